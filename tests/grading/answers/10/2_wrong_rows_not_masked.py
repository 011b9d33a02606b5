# wrong, out_of_bounds
import torch

from instruments.backend import tl, triton


@triton.jit
def part_kernel(
    a_ptr,
    b_ptr,
    bounds_ptr,
    partial_ptr,
    M,
    N,
    a_stride,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    part = tl.program_id(1)
    row = tl.arange(0, BLOCK_M)[:, None]
    col = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    first = tl.load(bounds_ptr + part)
    last = tl.load(bounds_ptr + part + 1)
    acc = tl.zeros([BLOCK_M, BLOCK_N], dtype=tl.float32)
    for start in range(first, last, BLOCK_K):  # no step in an empty part
        k = start + tl.arange(0, BLOCK_K)
        a = tl.load(a_ptr + row * a_stride + k[None, :], mask=(k[None, :] < last), other=0.0)
        b = tl.load(b_ptr + k[:, None] * N + col, mask=(k[:, None] < last) & (col < N), other=0.0)
        acc = tl.dot(a, b, acc)
    tl.store(partial_ptr + part * M * N + row * N + col, acc, mask=(row < M) & (col < N))


@triton.jit
def add_kernel(partial_ptr, c_ptr, size, parts, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for part in range(parts):  # always 0, 1, 2, ...
        total += tl.load(partial_ptr + part * size + at, mask=at < size, other=0.0)
    tl.store(c_ptr + at, total.to(tl.float16), mask=at < size)


def split_k(a, b, bounds):
    (M, _), N, parts = a.shape, b.shape[1], bounds.shape[0] - 1
    partial = torch.empty(parts, M, N, dtype=torch.float32, device=a.device)
    c = torch.empty(M, N, dtype=torch.float16, device=a.device)
    part_kernel[(triton.cdiv(N, 64), parts)](
        a, b, bounds, partial, M, N, a.stride(0), BLOCK_M=64, BLOCK_N=64, BLOCK_K=32
    )
    add_kernel[(triton.cdiv(M * N, 64),)](partial, c, M * N, parts, BLOCK=64)
    return partial, c
