"""The weight's gradient of a grouped product: dweight[e] = x_e^T @ dy_e, of the rows that group e has.

Minimum traffic: x and dy read once, dweight [E, K, N] written once, whole: a group without rows has a gradient of
zeros. What differs from group to group is the length of the sum, not the result: each tile of dweight has a program,
and programs that follow each other belong to one group. x's gradient is a grouped product itself, dy times weight.mT.

MegaBlocks (Gale and others, 2022) has the same product. Reference and check of the forward: grouped_matmul.py.
"""

from collections.abc import Sequence

import torch

from instruments.backend import tl, triton
from instruments.traffic import Traffic
from kernels.arguments import check_no_grad, check_tensor
from kernels.grouped_matmul_plan import check_index
from kernels.matmul_order import grouped_tile

GROUP_K = 8  # rows of tiles that programs walk over together
TILE = {"BLOCK_K": 128, "BLOCK_N": 128, "BLOCK_M": 32, "num_warps": 8, "num_stages": 4}
EXACT_TILE = {"BLOCK_K": 64, "BLOCK_N": 64, "BLOCK_M": 32, "num_warps": 4, "num_stages": 3}  # fp32


def grouped_matmul_weight_gradient_reference(
    x: torch.Tensor, dy: torch.Tensor, offsets: torch.Tensor, *, rows: torch.Tensor | None = None
) -> torch.Tensor:
    """A product for each group, one after the other: give it fp64 for a reference."""
    x = x if rows is None else x[rows.long()]
    bounds = offsets.tolist()
    return torch.stack([x[begin:end].T @ dy[begin:end] for begin, end in zip(bounds, bounds[1:])])


@triton.jit
def grouped_matmul_weight_gradient_kernel(
    x_ptr,
    dy_ptr,
    offsets_ptr,
    rows_ptr,
    dweight_ptr,
    K,
    N,
    x_row_stride,
    x_col_stride,
    dy_row_stride,
    dy_col_stride,
    EVEN: tl.constexpr,
    GROUP_K: tl.constexpr,
    BLOCK_K: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_M: tl.constexpr,
):
    """x [slots, K], or [tokens, K] with rows [slots], and dy [slots, N] of any strides; dweight [groups, K, N]
    contiguous: a tile of it per program. EVEN: K and N end with a tile."""
    tiles = tl.cdiv(K, BLOCK_K) * tl.cdiv(N, BLOCK_N)
    group = tl.program_id(0) // tiles
    tile_k, tile_n = grouped_tile(tl.program_id(0) % tiles, K, N, BLOCK_K, BLOCK_N, GROUP_K)
    k = tile_k * BLOCK_K + tl.arange(0, BLOCK_K)  # [BLOCK_K]
    col = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)  # [BLOCK_N]
    begin, end = tl.load(offsets_ptr + group), tl.load(offsets_ptr + group + 1)
    total = tl.zeros([BLOCK_K, BLOCK_N], dtype=tl.float32)
    for start in tl.range(begin, end, BLOCK_M):
        row = start + tl.arange(0, BLOCK_M)  # [BLOCK_M]
        inside = (row < end)[:, None]
        source = row if rows_ptr is None else tl.load(rows_ptr + row, mask=row < end, other=0)
        x_ptrs = x_ptr + source.to(tl.int64)[:, None] * x_row_stride + k[None, :] * x_col_stride
        dy_ptrs = dy_ptr + row.to(tl.int64)[:, None] * dy_row_stride + col[None, :] * dy_col_stride
        x = tl.load(x_ptrs, mask=inside if EVEN else inside & (k < K)[None, :], other=0.0)  # [BLOCK_M, BLOCK_K]
        dy = tl.load(dy_ptrs, mask=inside if EVEN else inside & (col < N)[None, :], other=0.0)  # [BLOCK_M, BLOCK_N]
        total = tl.dot(x.T, dy, total, input_precision="ieee")
    dweight_ptr += (group.to(tl.int64) * K + k[:, None]) * N + col[None, :]
    tl.store(dweight_ptr, total.to(dweight_ptr.dtype.element_ty), mask=(k < K)[:, None] & (col < N)[None, :])


def grouped_matmul_weight_gradient(
    x: torch.Tensor, dy: torch.Tensor, offsets: torch.Tensor, *, rows: torch.Tensor | None = None
) -> torch.Tensor:
    """dweight [E, K, N] of y = grouped_matmul(x, weight, offsets, rows=rows), added up in fp32 and rounded once.

    x: [slots, K], fp16, bf16 or fp32, any strides; or, with rows, [tokens, K]. dy: [slots, N] of x's dtype, any
    strides. offsets: [E + 1] int32; rows: [slots] int32, as grouped_matmul takes them. Returns a contiguous tensor,
    zeros where a group has no rows. Raises ValueError naming the argument.
    """
    check_tensor("x", x)
    check_tensor("dy", dy, like=x, dtypes=(x.dtype,))
    for name, tensor in (("x", x), ("dy", dy)):
        if tensor.dim() != 2:
            raise ValueError(f"{name}: got {tensor.dim()} dimensions, expected 2")
    check_index("offsets", offsets, x, None)
    if rows is not None:
        check_index("rows", rows, x, None)
    slots = len(x) if rows is None else len(rows)
    if len(dy) != slots:
        raise ValueError(f"dy: got {len(dy)} rows, expected {slots}, one for each row of y")
    check_no_grad("grouped_matmul_weight_gradient", x=x, dy=dy)
    groups, K, N = len(offsets) - 1, x.shape[1], dy.shape[1]
    dweight = torch.empty((groups, K, N), dtype=x.dtype, device=x.device)
    if not dweight.numel():
        return dweight
    tile = TILE if x.itemsize == 2 else EXACT_TILE
    grid = (groups * triton.cdiv(K, tile["BLOCK_K"]) * triton.cdiv(N, tile["BLOCK_N"]),)
    even = K % tile["BLOCK_K"] == 0 and N % tile["BLOCK_N"] == 0
    grouped_matmul_weight_gradient_kernel[grid](
        x, dy, offsets, rows, dweight, K, N, *x.stride(), *dy.stride(), EVEN=even, GROUP_K=GROUP_K, **tile
    )
    return dweight


def grouped_matmul_weight_gradient_traffic(
    counts: Sequence[int],
    K: int,
    N: int,
    dtype: torch.dtype,
    *,
    path: str | None = "minimum",
    tokens: int | None = None,
) -> Traffic:
    """What it moves: 'minimum', each byte once, or None, what the programs ask for. counts: rows of each group. tokens:
    rows of x where the gather is part of the load, all of them chosen."""
    if path not in ("minimum", None):
        raise ValueError(f"path: got {path!r}, expected 'minimum' or None")
    size, slots, groups = dtype.itemsize, sum(counts), len(counts)
    written = {"dweight": groups * K * N * size}
    flops = 2 * slots * K * N
    rows = {} if tokens is None else {"rows": 4 * slots}
    if path == "minimum":
        x = slots if tokens is None else tokens
        read = {"x": x * K * size, "dy": slots * N * size, "offsets": 4 * (groups + 1), **rows}
        return Traffic(read, written, flops, launches=1)
    tile = TILE if size == 2 else EXACT_TILE
    down, across = triton.cdiv(K, tile["BLOCK_K"]), triton.cdiv(N, tile["BLOCK_N"])
    read = {"x": slots * K * across * size, "dy": slots * N * down * size, "offsets": 8 * groups * down * across}
    return Traffic(read | {name: nbytes * down * across for name, nbytes in rows.items()}, written, flops, launches=1)
