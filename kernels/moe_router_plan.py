"""How the router is laid out: tiles of tokens, shares of the hidden dimension, and how tiles are fetched."""

from dataclasses import dataclass
from functools import cache

import torch

from instruments.backend import triton
from kernels.grouped_matmul_persistent import describable, runs_on
from kernels.rows import Device

WIDE = 128  # experts from which the product, not the reading of x, takes the time


@dataclass(frozen=True)
class Plan:
    """How the router is launched. tiles: of tokens; splits: of the hidden dimension, each `share` long; config: of
    route_kernel; merging: of route_splits_kernel."""

    tiles: int
    splits: int
    share: int
    config: dict
    merging: dict


@cache
def plan(tokens: int, hidden: int, experts: int, itemsize: int, gpu: Device) -> Plan:
    """Tiles of tokens, and shares of the hidden dimension where the tiles alone are too few for the GPU: more of them
    with few experts, whose sums are small beside x."""
    block_e = max(16, triton.next_power_of_2(experts))
    wide = block_e >= WIDE
    most, block_k = (64, 64 if wide else 128) if itemsize == 2 else (16, 32)
    block_t = max(16, min(most, triton.next_power_of_2(tokens)))
    tiles = triton.cdiv(tokens, block_t)
    waves = 4 if block_e == 16 else 1
    splits = max(1, min(waves * gpu.sms // tiles, hidden // (2 * block_k), 32))
    share = triton.cdiv(hidden, splits * block_k) * block_k
    splits = triton.cdiv(hidden, share)
    stages = gpu.shared_per_sm * 9 // 10 // ((block_t + block_e) * block_k * itemsize)
    config = {"BLOCK_T": block_t, "BLOCK_K": block_k, "BLOCK_E": block_e, "STAGES": min(5 if wide else 3, stages)}
    config["num_warps"] = 8 if wide else 4
    block_s = triton.next_power_of_2(splits)
    merging = {"BLOCK_S": block_s, "BLOCK_T": max(1, min(16, 4096 // (block_s * block_e))), "BLOCK_E": block_e}
    return Plan(tiles, splits, share, config, merging)


def described(x: torch.Tensor, router: torch.Tensor, config: dict) -> tuple:
    """(x, router, how): as tensor descriptors where a product of many experts wants them, and GPU and strides allow
    it: "rows", or "columns" for a router whose columns lie together; else as they are, and None."""
    if config["BLOCK_E"] < WIDE or x.itemsize != 2 or not runs_on(x.device) or not describable(x):
        return x, router, None
    rows, block_k, block_e = describable(router), config["BLOCK_K"], config["BLOCK_E"]
    if not rows and not describable(router.T):
        return x, router, None
    from triton.tools.tensor_descriptor import TensorDescriptor

    def describe(matrix, tile):
        return TensorDescriptor(matrix, list(matrix.shape), list(matrix.stride()), tile)

    across = describe(router, [block_k, block_e]) if rows else describe(router.T, [block_e, block_k])
    return describe(x, [config["BLOCK_T"], block_k]), across, "rows" if rows else "columns"
