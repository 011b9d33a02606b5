"""Lesson 03's ladder: one matmul kernel whose options change one at a time, from tiles on CUDA cores to grouped tiles
on tensor cores.

`STEPS` lists the options step by step. Each step differs from the one before in one option, a tile counting as one.
`NEIGHBORS` changes each option of the last step alone. The idea is that of the worklogs of Boehm (2022) and Gordić
(2025).
"""

import torch

from instruments.backend import cdiv, tl, triton
from kernels.matmul.tile_order import grouped_tile
from kernels.shared.arguments import check_tensor

FIRST = {
    "TENSOR_CORES": False,
    "GROUP_M": 1,
    "BLOCK_M": 16,
    "BLOCK_N": 16,
    "BLOCK_K": 32,
    "num_warps": 8,
    "num_stages": 1,
}
#: {name of a step: the options that it changes}
CHANGES = {
    "tile 16 x 16": {},
    "tile 64 x 64": {"BLOCK_M": 64, "BLOCK_N": 64},
    "tile 128 x 128": {"BLOCK_M": 128, "BLOCK_N": 128},
    "tensor cores": {"TENSOR_CORES": True},
    "3 stages": {"num_stages": 3},
    "BLOCK_K 64": {"BLOCK_K": 64},
    "groups of 8": {"GROUP_M": 8},
    "tile 128 x 256": {"BLOCK_N": 256},
}


def _steps() -> dict[str, dict]:
    """{name: all options}, each step on top of the last one."""
    steps, options = {}, FIRST
    for name, change in CHANGES.items():
        steps[name] = options = {**options, **change}
    return steps


STEPS = _steps()
LAST = STEPS["tile 128 x 256"]
#: {name: all options}: the last step with one option changed
NEIGHBORS = {
    "2 stages": LAST | {"num_stages": 2},
    "4 stages": LAST | {"num_stages": 4},
    "4 warps": LAST | {"num_warps": 4},
    "BLOCK_K 32": LAST | {"BLOCK_K": 32},
    "BLOCK_K 128": LAST | {"BLOCK_K": 128, "num_stages": 2},  # three stages of 128 exceed shared memory
    "tile 128 x 128": LAST | {"BLOCK_N": 128},
    "tile 256 x 128": LAST | {"BLOCK_M": 256, "BLOCK_N": 128},
    "tile 256 x 256": LAST | {"BLOCK_M": 256},
    "groups of 1": LAST | {"GROUP_M": 1},
    "groups of 16": LAST | {"GROUP_M": 16},
}


@triton.jit
def matmul_step_kernel(
    a_ptr, b_ptr, c_ptr,
    M, N, K,
    TENSOR_CORES: tl.constexpr, GROUP_M: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """One tile of c per program. a, b and c are contiguous, and their sides multiples of the tile's."""
    tile_m, tile_n = grouped_tile(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    row = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]  # [BLOCK_M, 1]
    col = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]  # [1, BLOCK_N]
    k = tl.arange(0, BLOCK_K)
    acc = tl.zeros([BLOCK_M, BLOCK_N], dtype=tl.float32)
    for start in tl.range(0, K, BLOCK_K):
        a = tl.load(a_ptr + row * K + (start + k[None, :]))  # [BLOCK_M, BLOCK_K]
        b = tl.load(b_ptr + (start + k[:, None]) * N + col)  # [BLOCK_K, BLOCK_N]
        if not TENSOR_CORES:
            a, b = a.to(tl.float32), b.to(tl.float32)
        acc = tl.dot(a, b, acc, input_precision="ieee")
    tl.store(c_ptr + row * N + col, acc.to(c_ptr.dtype.element_ty))


def launch_step(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, options: dict, tiles: int | None = None):
    """c = a @ b, or its first `tiles` tiles; returns what the launch returns."""
    (M, K), N = a.shape, b.shape[1]
    count = cdiv(M, options["BLOCK_M"]) * cdiv(N, options["BLOCK_N"])
    return matmul_step_kernel[(min(count, tiles or count),)](a, b, c, M, N, K, **options)


def matmul_step(a: torch.Tensor, b: torch.Tensor, options: dict, tiles: int | None = None) -> torch.Tensor:
    """a @ b by one step of the ladder.

    Args:
        a: [M, K], fp16 or bf16, contiguous; M, N and K are multiples of the tile's sides.
        b: [K, N], the dtype of a, contiguous.
        options: a value of STEPS or NEIGHBORS.
        tiles: how many programs to launch; None for one per tile. Tiles without a program are not written.

    Returns:
        [M, N], the dtype of a.

    Raises:
        ValueError: where a size is no multiple of the tile's side.
    """
    check_tensor("a", a)
    check_tensor("b", b, like=a, dtypes=(a.dtype,))
    (M, K), N = a.shape, b.shape[1]
    for size, side in ((M, "BLOCK_M"), (N, "BLOCK_N"), (K, "BLOCK_K")):
        if size % options[side]:
            raise ValueError(f"options: got {side}={options[side]} for a side of {size}, expected a divisor of it")
    c = torch.empty((M, N), dtype=a.dtype, device=a.device)
    launch_step(a, b, c, options, tiles)
    return c
