# wrong, mistake: c lacks the first part
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
    part = tl.program_id(0)
    m = tl.arange(0, BLOCK_M)
    n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    begin = tl.load(bounds_ptr + part)
    end = tl.load(bounds_ptr + part + 1)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k0 in range(begin, end, BLOCK_K):
        k = k0 + tl.arange(0, BLOCK_K)
        a = tl.load(a_ptr + m[:, None] * a_stride + k[None, :], mask=(m[:, None] < M) & (k[None, :] < end), other=0.0)
        b = tl.load(b_ptr + k[:, None] * N + n[None, :], mask=(n[None, :] < N) & (k[:, None] < end), other=0.0)
        acc = tl.dot(a, b, acc)
    tl.store(partial_ptr + part * M * N + m[:, None] * N + n[None, :], acc, mask=(m[:, None] < M) & (n[None, :] < N))


@triton.jit
def add_kernel(partial_ptr, c_ptr, size, parts, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for p in range(1, parts):
        total += tl.load(partial_ptr + p * size + i, mask=i < size, other=0.0)
    tl.store(c_ptr + i, total.to(tl.float16), mask=i < size)


def split_k(a, b, bounds):
    M, K = a.shape
    N = b.shape[1]
    parts = bounds.numel() - 1
    partial = torch.empty((parts, M, N), dtype=torch.float32, device=a.device)
    c = torch.empty((M, N), dtype=torch.float16, device=a.device)
    part_kernel[(parts, triton.cdiv(N, 64))](
        a, b, bounds, partial, M, N, a.stride(0), max(16, triton.next_power_of_2(M)), 64, 32
    )
    add_kernel[(triton.cdiv(M * N, 64),)](partial, c, M * N, parts, 64)
    return partial, c
