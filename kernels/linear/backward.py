"""The backward of a linear layer y = x @ weight^T: two more matmuls, dx = dy @ weight and dweight = dy^T @ x.

Each has the forward's 2*M*N*K FLOPs, so a training step costs three matmuls for every one of inference. Minimum
traffic: dy, x and weight read once, dx and dweight written once; x has to be kept until then, or computed again.

dy^T costs nothing: dy lies by rows of tokens, and its tile is loaded as it lies, [BLOCK_K, BLOCK_M], and transposed on
the way to the tensor cores, which take either order of a 16-bit operand in shared memory. A transposed copy of dy would
move 2*M*N elements more.

A sum may be taken in pieces: `matmul_add` adds a product's tiles to an fp32 total in memory, as gradient accumulation
and a loss in chunks need. One program adds to one tile, so the bits are the same in every run.

The kernels are those of kernels/matmul with a transposed first operand; the reference is autograd's.
"""

import torch

from instruments.backend import cdiv, tl, triton
from instruments.traffic import Traffic
from kernels.matmul.persistent import LARGE, SHARED, aligned, count_tiles
from kernels.matmul.tile_order import grouped_tile
from kernels.matmul.tiled import matmul, matmul_traffic
from kernels.shared.arguments import check_matrices, check_no_grad, check_tensor
from kernels.shared.device import device_of, has_descriptors, tensor_descriptor
from kernels.shared.metadata import by_metadata

GROUP_M = 8
PLAIN = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32, "num_warps": 4, "num_stages": 3}


@triton.jit
def matmul_add_plain_kernel(
    a_ptr, b_ptr, out_ptr,
    M, N, K,
    a_row_stride, a_col_stride, b_row_stride, b_col_stride,
    ADD: tl.constexpr, PRECISION: tl.constexpr, GROUP_M: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """One tile [BLOCK_M, BLOCK_N] of a @ b per program: a [M, K] and b [K, N] of any strides; out [M, N] contiguous.
    ADD adds to what out holds."""
    tile_m, tile_n = grouped_tile(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    row = tile_m.to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]  # [BLOCK_M, 1]
    col = tile_n.to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]  # [1, BLOCK_N]
    k = tl.arange(0, BLOCK_K).to(tl.int64)  # [BLOCK_K]
    acc = tl.zeros([BLOCK_M, BLOCK_N], dtype=tl.float32)
    for start in tl.range(0, K, BLOCK_K):
        column = start + k
        a_ptrs = a_ptr + row * a_row_stride + column[None, :] * a_col_stride
        b_ptrs = b_ptr + column[:, None] * b_row_stride + col * b_col_stride
        a = tl.load(a_ptrs, mask=(row < M) & (column < K)[None, :], other=0.0)  # [BLOCK_M, BLOCK_K]
        b = tl.load(b_ptrs, mask=(column < K)[:, None] & (col < N), other=0.0)  # [BLOCK_K, BLOCK_N]
        acc = tl.dot(a, b, acc, input_precision=PRECISION)
    out_ptrs, mask = out_ptr + row * N + col, (row < M) & (col < N)
    if ADD:
        acc += tl.load(out_ptrs, mask=mask, other=0.0)
    tl.store(out_ptrs, acc.to(out_ptr.dtype.element_ty), mask=mask)


@triton.jit
def matmul_add_persistent_kernel(
    a, b, out,
    M, N, K,
    tiles,
    A_TRANSPOSED: tl.constexpr, ADD: tl.constexpr, GROUP_M: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Many tiles of a @ b per program: descriptors of a [M, K], or [K, M] with A_TRANSPOSED, of b [K, N], and of out
    [M, N] in tiles [BLOCK_M, BLOCK_N // 2]. With ADD out is fp32, and TMA adds the tile to what it holds, in L2: the
    program waits for no load of it."""
    HALF: tl.constexpr = BLOCK_N // 2
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0), flatten=True):
        tile_m, tile_n = grouped_tile(tile, M, N, BLOCK_M, BLOCK_N, GROUP_M)
        row, col = tile_m * BLOCK_M, tile_n * BLOCK_N
        acc = tl.zeros([BLOCK_M, BLOCK_N], dtype=tl.float32)
        for k in tl.range(0, K, BLOCK_K):
            if A_TRANSPOSED:
                a_tile = a.load([k, row]).T  # [BLOCK_M, BLOCK_K]
            else:
                a_tile = a.load([row, k])
            acc = tl.dot(a_tile, b.load([k, col]), acc)
        # in two halves, which share one buffer of half the size
        left, right = tl.split(tl.permute(tl.reshape(acc, (BLOCK_M, 2, HALF)), (0, 2, 1)))
        if ADD:
            out.atomic_add([row, col], left)
            out.atomic_add([row, col + HALF], right)
        else:
            out.store([row, col], left.to(out.dtype))
            out.store([row, col + HALF], right.to(out.dtype))


@by_metadata
def _path(names, a, b, out, path) -> str:
    check_no_grad("the backward of a linear layer", **dict(zip(names, (a, b, out), strict=True)))
    check_matrices(a, b, names=names[:2])
    check_tensor(names[2], out, shape=(a.shape[0], b.shape[1]), like=a, dtypes=(torch.float32, a.dtype))
    if not out.is_contiguous():
        raise ValueError(f"{names[2]}: got strides {out.stride()}, expected a contiguous tensor")
    columns = b.shape[1]
    able = a.itemsize == 2 and columns % 8 == 0 and has_descriptors(a.device, SHARED)
    if path not in (None, "plain", "persistent") or path == "persistent" and not able:
        raise ValueError(
            f"path: got {path!r} for {a.dtype} and {columns} columns on {a.device}, expected None, 'plain' (any) or "
            "'persistent' (16 bits, columns a multiple of 8; tensor descriptors)"
        )
    return path or ("persistent" if able and a.is_cuda else "plain")


def multiply_into(out, a, b, add: bool, path: str | None = None, names=("a", "b", "out")) -> torch.Tensor:
    """out = a @ b, or with `add` out += a @ b, for a [M, K] and b [K, N] of any strides; returns out."""
    path = _path(names, a, b, out, path)
    (M, K), N = a.shape, b.shape[1]
    if not out.numel():
        return out
    if not K:
        return out if add else out.zero_()
    if path == "plain":
        matmul_add_plain_kernel[(count_tiles(PLAIN, M, N),)](
            a, b, out,
            M, N, K,
            *a.stride(), *b.stride(),
            ADD=add, PRECISION="ieee", GROUP_M=GROUP_M, **PLAIN,
        )  # fmt: skip
        return out
    transposed = a.stride(0) == 1 and a.stride(1) != 1
    a, b = aligned(a.T if transposed else a), aligned(b)
    m, n, k = (LARGE[name] for name in ("BLOCK_M", "BLOCK_N", "BLOCK_K"))
    tiles = count_tiles(LARGE, M, N)
    matmul_add_persistent_kernel[(min(device_of(out.device).sms, tiles),)](
        tensor_descriptor(a, a.shape, a.stride(), (k, m) if transposed else (m, k)),
        tensor_descriptor(b, b.shape, b.stride(), (k, n)),
        tensor_descriptor(out, (M, N), (N, 1), (m, n // 2)),
        M, N, K,
        tiles,
        A_TRANSPOSED=transposed, ADD=add, GROUP_M=GROUP_M, **LARGE,
    )  # fmt: skip
    return out


def matmul_add(a: torch.Tensor, b: torch.Tensor, total: torch.Tensor, *, path: str | None = None) -> torch.Tensor:
    """total += a @ b, in fp32.

    Args:
        a: [M, K], fp16, bf16 or fp32, any strides.
        b: [K, N], the dtype of a, any strides.
        total: [M, N], fp32, contiguous; changed in place.
        path: 'plain' or 'persistent' (16 bits, and a GPU with tensor descriptors); None picks by the GPU.

    Returns:
        total.

    Raises:
        ValueError: naming the argument, what it is and what was expected.
    """
    check_tensor("total", total, dtypes=(torch.float32,))
    return multiply_into(total, a, b, True, path, ("a", "b", "total"))


def weight_gradient(
    dy: torch.Tensor, x: torch.Tensor, *, total: torch.Tensor | None = None, path: str | None = None
) -> torch.Tensor:
    """dy^T @ x, accumulated in fp32: the gradient of a linear layer's weight.

    Args:
        dy: [M, N], fp16, bf16 or fp32, any strides: the gradient of y, a row per token.
        x: [M, K], the dtype of dy, any strides: the layer's input.
        total: [N, K], fp32, contiguous: the gradient is added to it, in place.
        path: as in `matmul_add`.

    Returns:
        [N, K], contiguous: `total` if there is one, else a new tensor of dy's dtype.

    Raises:
        ValueError: naming the argument, what it is and what was expected.

    Note:
        The persistent path first copies an operand that a tensor descriptor cannot address.
    """
    check_matrices(dy.T, x, names=("dy^T", "x"))
    if total is not None:
        check_tensor("total", total, dtypes=(torch.float32,))
        return multiply_into(total, dy.T, x, True, path, ("dy^T", "x", "total"))
    out = torch.empty((dy.shape[1], x.shape[1]), dtype=dy.dtype, device=dy.device)
    return multiply_into(out, dy.T, x, False, path, ("dy^T", "x", "out"))


def linear_backward(dy: torch.Tensor, x: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The gradients of x and weight of y = x @ weight^T.

    Args:
        dy: [M, N], fp16, bf16 or fp32, any strides.
        x: [M, K], the dtype of dy, any strides.
        weight: [N, K], the dtype of dy, any strides.

    Returns:
        dx [M, K] and dweight [N, K], the dtype of dy, contiguous.

    Raises:
        ValueError: naming the argument, what it is and what was expected.
    """
    check_no_grad("linear_backward", dy=dy, x=x, weight=weight)
    return matmul(dy, weight), weight_gradient(dy, x)


def linear_backward_traffic(M: int, N: int, K: int, dtype: torch.dtype) -> Traffic:
    """The traffic of `linear_backward`, each operand of each matmul counted once.

    Args:
        M: tokens.
        N: rows of the weight.
        K: columns of the weight.
        dtype: dtype of all operands.

    Returns:
        Bytes per tensor, FLOPs and two launches.
    """
    dx, dweight = matmul_traffic(M, K, N, dtype), matmul_traffic(N, K, M, dtype)
    read = {"dy": dx.read["a"] + dweight.read["a"], "weight": dx.read["b"], "x": dweight.read["b"]}
    written = {"dx": dx.written["c"], "dweight": dweight.written["c"]}
    return Traffic(read, written, flops=dx.flops + dweight.flops, launches=2)


def matmul_add_traffic(
    M: int, N: int, K: int, dtype: torch.dtype, tile: tuple[int, int] | None = None, add: bool = True
) -> Traffic:
    """The traffic of `matmul_add`, or without `add` of `weight_gradient` with no total, for M, N, K of a @ b.

    Args:
        M: rows of a.
        N: columns of b.
        K: columns of a.
        dtype: dtype of a and b, and without `add` of the result.
        tile: (BLOCK_M, BLOCK_N) for the requested bytes of programs with this tile; None counts each byte once.
        add: whether an fp32 total is read and written.

    Returns:
        Bytes per tensor, FLOPs and one launch.
    """
    down, across = (cdiv(M, tile[0]), cdiv(N, tile[1])) if tile else (1, 1)
    size = dtype.itemsize
    read = {"a": M * K * across * size, "b": K * N * down * size}
    if add:
        read["total"] = M * N * 4
    return Traffic(read, {"total" if add else "out": M * N * (4 if add else size)}, flops=2 * M * N * K, launches=1)
