"""How the router is laid out: tiles of tokens, and shares of the hidden dimension."""

from dataclasses import dataclass
from functools import cache

from instruments.backend import triton
from kernels.rows import Device


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
    """Tiles of tokens, and shares of the hidden dimension where the tiles alone are too few for the GPU."""
    block_e = max(16, triton.next_power_of_2(experts))
    wide = block_e > 64
    most, block_k = (64, 64 if wide else 128) if itemsize == 2 else (16, 32)
    block_t = max(16, min(most, triton.next_power_of_2(tokens)))
    tiles = triton.cdiv(tokens, block_t)
    splits = max(1, min(gpu.sms // tiles, hidden // (2 * block_k), 64))
    share = triton.cdiv(hidden, splits * block_k) * block_k
    splits = triton.cdiv(hidden, share)
    config = {"BLOCK_T": block_t, "BLOCK_K": block_k, "BLOCK_E": block_e, "STAGES": 3}
    config["num_warps"] = 8 if wide else 4
    block_s = triton.next_power_of_2(splits)
    merging = {"BLOCK_S": block_s, "BLOCK_T": max(1, min(16, 4096 // (block_s * block_e))), "BLOCK_E": block_e}
    return Plan(tiles, splits, share, config, merging)
