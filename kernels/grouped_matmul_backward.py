"""The weight's gradient of a grouped product: dweight[e] = x_e^T @ dy_e, of the rows that group e has.

Minimum traffic: x and dy read once, dweight [E, K, N] written once, whole: a group without rows has a gradient of
zeros. What differs from group to group is the length of the sum, not the result: programs that follow each other have
tiles of dweight of one group. Where descriptors can address x and dy, a program walks over many tiles, as in
grouped_matmul_persistent.py, and rows beyond a group's last are zeros to it. x's gradient is a grouped product itself,
dy times weight.mT.

MegaBlocks (Gale and others, 2022) has the same product. Reference and check of the forward: grouped_matmul.py.
"""

from collections.abc import Sequence

import torch

from instruments import backend
from instruments.backend import tl, triton
from instruments.traffic import Traffic
from kernels import grouped_matmul_persistent as persistent
from kernels.arguments import check_no_grad, check_tensor
from kernels.grouped_matmul_persistent import load_ragged, ragged
from kernels.grouped_matmul_plan import check_index
from kernels.matmul_order import grouped_tile
from kernels.rows import device_of

GROUP_K = 8  # rows of tiles that programs walk over together


def _tile(k: int, n: int, m: int, warps: int, stages: int) -> dict:
    return {"BLOCK_K": k, "BLOCK_N": n, "BLOCK_M": m, "num_warps": warps, "num_stages": stages}


#: By path and bytes of an element: BLOCK_M rows at a time to a tile [BLOCK_K, BLOCK_N] of dweight.
TILES = {
    ("persistent", 2): _tile(256, 128, 64, 8, 4),
    ("plain", 2): _tile(128, 128, 32, 8, 4),
    ("plain", 4): _tile(64, 64, 32, 4, 3),
}


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
    k = tile_k.to(tl.int64) * BLOCK_K + tl.arange(0, BLOCK_K)  # [BLOCK_K]
    col = tile_n.to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)  # [BLOCK_N]
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


@triton.jit
def grouped_matmul_weight_gradient_persistent_kernel(
    x,
    dy,
    offsets_ptr,
    dweight,
    groups,
    K,
    N,
    GROUP_K: tl.constexpr,
    BLOCK_K: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_M: tl.constexpr,
):
    """Descriptors: x [slots, K] and dy [slots, N], ragged; dweight [groups, K, N]. Every so many-th tile of dweight."""
    tiles = tl.cdiv(K, BLOCK_K) * tl.cdiv(N, BLOCK_N)
    for tile in tl.range(tl.program_id(0), groups * tiles, tl.num_programs(0), flatten=True):
        group = tile // tiles
        tile_k, tile_n = grouped_tile(tile % tiles, K, N, BLOCK_K, BLOCK_N, GROUP_K)
        k, col = tile_k * BLOCK_K, tile_n * BLOCK_N
        begin, end = tl.load(offsets_ptr + group), tl.load(offsets_ptr + group + 1)
        total = tl.zeros([BLOCK_K, BLOCK_N], dtype=tl.float32)
        for row in tl.range(begin, end, BLOCK_M):
            x_tile = load_ragged(x, end, row, k, BLOCK_M, BLOCK_K)
            total = tl.dot(x_tile.T, load_ragged(dy, end, row, col, BLOCK_M, BLOCK_N), total)
        left, right = tl.split(tl.permute(tl.reshape(total, (BLOCK_K, 2, BLOCK_N // 2)), (0, 2, 1)))
        dweight.store([group, k, col], left.to(dweight.dtype).reshape(1, BLOCK_K, BLOCK_N // 2))
        dweight.store([group, k, col + BLOCK_N // 2], right.to(dweight.dtype).reshape(1, BLOCK_K, BLOCK_N // 2))


def _choose(x, dy, dweight, rows, path: str | None) -> str:
    """The path that is taken."""
    able = rows is None and persistent.takes(x, dweight, dy)
    if path not in (None, "plain", "persistent") or path == "persistent" and not able:
        raise ValueError(
            f"path: got {path!r} for {x.dtype} on {x.device}, expected None, 'plain' or 'persistent' (without rows; "
            "16 bits that tensor descriptors can address on a GPU that has them)"
        )
    return path or ("persistent" if able and backend.mode() == "compiled" else "plain")


def grouped_matmul_weight_gradient(
    x: torch.Tensor,
    dy: torch.Tensor,
    offsets: torch.Tensor,
    *,
    rows: torch.Tensor | None = None,
    path: str | None = None,
) -> torch.Tensor:
    """dweight [E, K, N] of y = grouped_matmul(x, weight, offsets, rows=rows), added up in fp32 and rounded once.

    x: [slots, K], fp16, bf16 or fp32, any strides; or, with rows, [tokens, K]. dy: [slots, N] of x's dtype, any
    strides. offsets: [E + 1] int32; rows: [slots] int32, as grouped_matmul takes them. path: 'plain', or, without rows,
    'persistent', chosen unless given. Returns a contiguous tensor, zeros where a group has no rows. Raises ValueError
    naming the argument.
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
    path = _choose(x, dy, dweight, rows, path)
    tile = TILES[path, x.itemsize]
    k, n, m = tile["BLOCK_K"], tile["BLOCK_N"], tile["BLOCK_M"]
    tiles = groups * triton.cdiv(K, k) * triton.cdiv(N, n)
    if path == "persistent":
        from triton.tools.tensor_descriptor import TensorDescriptor

        out = TensorDescriptor(dweight, [groups, K, N], [K * N, N, 1], [1, k, n // 2])
        grouped_matmul_weight_gradient_persistent_kernel[(min(tiles, device_of(x.device).sms),)](
            TensorDescriptor(x, *ragged(x), [1, 1, m, k]),
            TensorDescriptor(dy, *ragged(dy), [1, 1, m, n]),
            offsets,
            out,
            groups,
            K,
            N,
            GROUP_K=GROUP_K,
            **tile,
        )
        return dweight
    even = K % k == 0 and N % n == 0
    grouped_matmul_weight_gradient_kernel[(tiles,)](
        x, dy, offsets, rows, dweight, K, N, *x.stride(), *dy.stride(), EVEN=even, GROUP_K=GROUP_K, **tile
    )
    return dweight


def grouped_matmul_weight_gradient_traffic(
    counts: Sequence[int], K: int, N: int, dtype: torch.dtype, *, path: str = "minimum", tokens: int | None = None
) -> Traffic:
    """What it moves: 'minimum', each byte once, or what the programs of 'plain' or 'persistent' ask for.

    counts: rows of each group. tokens: rows of x where the gather is part of the load, all of them chosen.
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
    down, across = triton.cdiv(K, tile["BLOCK_K"]), triton.cdiv(N, tile["BLOCK_N"])
    read = {"x": slots * K * across * size, "dy": slots * N * down * size, "offsets": 8 * groups * down * across}
    return Traffic(read | {name: nbytes * down * across for name, nbytes in rows.items()}, written, flops, launches=1)
