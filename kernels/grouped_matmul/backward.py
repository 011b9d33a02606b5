"""The weight's gradient of a grouped matmul: dweight[e] = x_e^T @ dy_e, over the rows of group e.

Minimum traffic: x and dy read once, dweight [E, K, N] written once and in full: a group without rows has a gradient of
zeros. Groups differ in the length of the sum, not in the size of the result, so neighboring programs compute tiles of
the same group's dweight. Where TMA can address x and dy, each program computes many tiles, as in persistent.py, and
loads rows beyond the end of a group as zeros. The gradient of x is a grouped matmul itself, of dy and weight.mT.

Source: MegaBlocks (Gale et al., 2022) has the same matmul. forward.py has the forward.
"""

from collections.abc import Sequence

import torch

from instruments import backend
from instruments.backend import cdiv, tl, triton
from instruments.traffic import Traffic
from kernels.grouped_matmul import persistent
from kernels.grouped_matmul.forward import check_index
from kernels.grouped_matmul.persistent import load_ragged, ragged
from kernels.matmul.tile_order import grouped_tile
from kernels.shared.arguments import check_no_grad, check_tensor
from kernels.shared.device import device_of, tensor_descriptor

GROUP_K = 8  # rows of tiles that programs visit together


def _tile(k: int, n: int, m: int, warps: int, stages: int) -> dict:
    return {"BLOCK_K": k, "BLOCK_N": n, "BLOCK_M": m, "num_warps": warps, "num_stages": stages}


#: By path and bytes of an element. A program computes a tile [BLOCK_K, BLOCK_N] of dweight, BLOCK_M rows at a time.
TILES = {
    ("persistent", 2): _tile(256, 128, 64, 8, 4),
    ("plain", 2): _tile(128, 128, 32, 8, 4),
    ("plain", 4): _tile(64, 64, 32, 4, 3),
}


def grouped_matmul_weight_gradient_reference(
    x: torch.Tensor, dy: torch.Tensor, offsets: torch.Tensor, *, rows: torch.Tensor | None = None
) -> torch.Tensor:
    """`grouped_matmul_weight_gradient` in plain PyTorch, one matmul per group; fp64 inputs give a reference."""
    x = x if rows is None else x[rows.long()]
    bounds = offsets.tolist()
    return torch.stack([x[begin:end].T @ dy[begin:end] for begin, end in zip(bounds, bounds[1:])])


@triton.jit
def grouped_matmul_weight_gradient_kernel(
    x_ptr, dy_ptr, offsets_ptr, rows_ptr, dweight_ptr,  # tensors
    K, N,
    x_row_stride, x_col_stride, dy_row_stride, dy_col_stride,
    EVEN: tl.constexpr, GROUP_K: tl.constexpr,
    BLOCK_K: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_M: tl.constexpr,
):  # fmt: skip
    """One tile of dweight [groups, K, N] (contiguous) per program, from x [slots, K], or [tokens, K] with rows [slots],
    and dy [slots, N], both with any strides. EVEN: K and N are multiples of the tile."""
    tiles = tl.cdiv(K, BLOCK_K) * tl.cdiv(N, BLOCK_N)
    group = tl.program_id(0) // tiles
    tile_k, tile_n = grouped_tile(tl.program_id(0) % tiles, K, N, BLOCK_K, BLOCK_N, GROUP_K)
    k = tile_k.to(tl.int64) * BLOCK_K + tl.arange(0, BLOCK_K)  # [BLOCK_K]
    col = tile_n.to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)  # [BLOCK_N]
    begin, end = tl.load(offsets_ptr + group), tl.load(offsets_ptr + group + 1)
    acc = tl.zeros([BLOCK_K, BLOCK_N], dtype=tl.float32)
    for start in tl.range(begin, end, BLOCK_M):
        row = start + tl.arange(0, BLOCK_M)  # [BLOCK_M]
        row_mask = (row < end)[:, None]
        x_row = row if rows_ptr is None else tl.load(rows_ptr + row, mask=row < end, other=0)
        x_ptrs = x_ptr + x_row.to(tl.int64)[:, None] * x_row_stride + k[None, :] * x_col_stride
        dy_ptrs = dy_ptr + row.to(tl.int64)[:, None] * dy_row_stride + col[None, :] * dy_col_stride
        x = tl.load(x_ptrs, mask=row_mask if EVEN else row_mask & (k < K)[None, :], other=0.0)  # [BLOCK_M, BLOCK_K]
        dy = tl.load(dy_ptrs, mask=row_mask if EVEN else row_mask & (col < N)[None, :], other=0.0)  # [BLOCK_M, BLOCK_N]
        acc = tl.dot(x.T, dy, acc, input_precision="ieee")
    dweight_ptr += (group.to(tl.int64) * K + k[:, None]) * N + col[None, :]
    tl.store(dweight_ptr, acc.to(dweight_ptr.dtype.element_ty), mask=(k < K)[:, None] & (col < N)[None, :])


@triton.jit
def grouped_matmul_weight_gradient_persistent_kernel(
    x, dy, offsets_ptr, dweight,  # tensors
    groups, K, N,
    GROUP_K: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_M: tl.constexpr,
):  # fmt: skip
    """Each program's share of the tiles of dweight [groups, K, N], from x [slots, K] and dy [slots, N]. All three are
    descriptors, those of x and dy ragged."""
    tiles = tl.cdiv(K, BLOCK_K) * tl.cdiv(N, BLOCK_N)
    for tile in tl.range(tl.program_id(0), groups * tiles, tl.num_programs(0), flatten=True):
        group = tile // tiles
        tile_k, tile_n = grouped_tile(tile % tiles, K, N, BLOCK_K, BLOCK_N, GROUP_K)
        k, col = tile_k * BLOCK_K, tile_n * BLOCK_N
        begin, end = tl.load(offsets_ptr + group), tl.load(offsets_ptr + group + 1)
        acc = tl.zeros([BLOCK_K, BLOCK_N], dtype=tl.float32)
        for row in tl.range(begin, end, BLOCK_M):
            x_tile = load_ragged(x, end, row, k, BLOCK_M, BLOCK_K)
            acc = tl.dot(x_tile.T, load_ragged(dy, end, row, col, BLOCK_M, BLOCK_N), acc)
        left, right = tl.split(tl.permute(tl.reshape(acc, (BLOCK_K, 2, BLOCK_N // 2)), (0, 2, 1)))
        dweight.store([group, k, col], left.to(dweight.dtype).reshape(1, BLOCK_K, BLOCK_N // 2))
        dweight.store([group, k, col + BLOCK_N // 2], right.to(dweight.dtype).reshape(1, BLOCK_K, BLOCK_N // 2))


def _path_for(x, dy, dweight, rows, path: str | None) -> str:
    """`path` if it is possible, or the fastest."""
    persistent_works = rows is None and persistent.takes(x, dweight, dy)
    if path not in (None, "plain", "persistent") or path == "persistent" and not persistent_works:
        raise ValueError(
            f"path: got {path!r} for {x.dtype} on {x.device}, expected None, 'plain' or 'persistent' (without rows; "
            "16 bits that tensor descriptors can address on a GPU that has them)"
        )
    return path or ("persistent" if persistent_works and backend.mode() == "compiled" else "plain")


def grouped_matmul_weight_gradient(
    x: torch.Tensor,
    dy: torch.Tensor,
    offsets: torch.Tensor,
    *,
    rows: torch.Tensor | None = None,
    path: str | None = None,
) -> torch.Tensor:
    """Compute dweight of y = grouped_matmul(x, weight, offsets, rows=rows).

    Args:
        x: [slots, K], or [tokens, K] with rows; fp16, bf16 or fp32, any strides.
        dy: [slots, N], x's dtype, any strides.
        offsets: [E + 1], int32, contiguous, as in `grouped_matmul`.
        rows: [slots], int32, contiguous, as in `grouped_matmul`.
        path: "plain" or, without rows, "persistent" (16 bits only). None: the fastest.

    Returns:
        dweight [E, K, N], x's dtype, contiguous; accumulated in fp32 and rounded once. Zeros where a group has no rows.

    Raises:
        ValueError: names the argument, what it got and what was expected.
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
    path = _path_for(x, dy, dweight, rows, path)
    tile = TILES[path, x.itemsize]
    k, n, m = tile["BLOCK_K"], tile["BLOCK_N"], tile["BLOCK_M"]
    tiles = groups * cdiv(K, k) * cdiv(N, n)
    if path == "persistent":
        x_tiles = tensor_descriptor(x, *ragged(x), [1, 1, m, k])
        dy_tiles = tensor_descriptor(dy, *ragged(dy), [1, 1, m, n])
        out_tiles = tensor_descriptor(dweight, [groups, K, N], [K * N, N, 1], [1, k, n // 2])
        grouped_matmul_weight_gradient_persistent_kernel[(min(tiles, device_of(x.device).sms),)](
            x_tiles, dy_tiles, offsets, out_tiles,
            groups, K, N,
            GROUP_K=GROUP_K, **tile,
        )  # fmt: skip
        return dweight
    grouped_matmul_weight_gradient_kernel[(tiles,)](
        x, dy, offsets, rows, dweight,
        K, N,
        *x.stride(), *dy.stride(),
        EVEN=K % k == 0 and N % n == 0, GROUP_K=GROUP_K, **tile,
    )  # fmt: skip
    return dweight


def grouped_matmul_weight_gradient_traffic(
    counts: Sequence[int], K: int, N: int, dtype: torch.dtype, *, path: str = "minimum", tokens: int | None = None
) -> Traffic:
    """Bytes and FLOPs of the weight's gradient.

    Args:
        counts: rows of each group.
        K: columns of x.
        N: columns of dy.
        dtype: of x, dy and dweight.
        path: "minimum", each byte once, or the requested bytes of "plain" or "persistent".
        tokens: rows of x where the gather is part of the load; every token is used. None: x has a row for each of dy.
    """
    if path != "minimum" and (path, dtype.itemsize) not in TILES:
        raise ValueError(f"path: got {path!r} for {dtype}, expected 'minimum', 'plain' or 'persistent' (16 bits)")
    size, slots, groups = dtype.itemsize, sum(counts), len(counts)
    written = {"dweight": groups * K * N * size}
    flops = 2 * slots * K * N
    rows = {} if tokens is None else {"rows": 4 * slots}
    if path == "minimum":
        x = slots if tokens is None else tokens
        read = {"x": x * K * size, "dy": slots * N * size, "offsets": 4 * (groups + 1), **rows}
        return Traffic(read, written, flops, launches=1)
    tile = TILES[path, size]
    tiles_k, tiles_n = cdiv(K, tile["BLOCK_K"]), cdiv(N, tile["BLOCK_N"])
    tiles = tiles_k * tiles_n
    read = {"x": slots * K * tiles_n * size, "dy": slots * N * tiles_k * size, "offsets": 8 * groups * tiles}
    return Traffic(read | {name: nbytes * tiles for name, nbytes in rows.items()}, written, flops, launches=1)
