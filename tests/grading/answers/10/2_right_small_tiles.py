# right
import torch

from instruments.backend import tl, triton


@triton.jit
def parts_kernel(a_ptr, b_ptr, bounds_ptr, out_ptr, M, N, stride, BM: tl.constexpr):
    part = tl.program_id(0)
    m, n, k = tl.arange(0, BM), tl.program_id(1) * 32 + tl.arange(0, 32), tl.arange(0, 16)
    at, end = tl.load(bounds_ptr + part), tl.load(bounds_ptr + part + 1)
    keep = (m[:, None] < M) & (n[None, :] < N)
    total = tl.zeros([BM, 32], tl.float32)
    while at < end:
        inside = at + k < end
        a = tl.load(a_ptr + m[:, None] * stride + (at + k)[None, :], mask=(m[:, None] < M) & inside[None, :], other=0)
        b = tl.load(b_ptr + (at + k)[:, None] * N + n[None, :], mask=inside[:, None] & (n[None, :] < N), other=0)
        total += tl.dot(a, b)
        at += 16
    tl.store(out_ptr + (part * M + m[:, None]) * N + n[None, :], total, mask=keep)


@triton.jit
def sum_kernel(partial_ptr, c_ptr, N, M, parts):
    row, col = tl.program_id(0), tl.program_id(1) * 64 + tl.arange(0, 64)
    total = tl.zeros([64], tl.float32)
    for back in range(parts):
        part = parts - 1 - back  # a fixed order, too
        total += tl.load(partial_ptr + (part * M + row) * N + col, mask=col < N, other=0)
    tl.store(c_ptr + row * N + col, total.to(tl.float16), mask=col < N)


def split_k(a, b, bounds):
    M, N, parts = len(a), b.shape[1], len(bounds) - 1
    partial = torch.empty((parts, M, N), device=a.device, dtype=torch.float32)
    c = torch.empty((M, N), device=a.device, dtype=torch.float16)
    # one column of tiles where the columns fit, as a is read once for each
    if N <= 32:
        parts_kernel[(parts, 1)](a, b, bounds, partial, M, N, a.stride(0), BM=64)
    else:
        wide_kernel[(parts, triton.cdiv(N, 64))](a, b, bounds, partial, M, N, a.stride(0))
    sum_kernel[(M, triton.cdiv(N, 64))](partial, c, N, M, parts)
    return partial, c


@triton.jit
def wide_kernel(a_ptr, b_ptr, bounds_ptr, out_ptr, M, N, stride):
    part = tl.program_id(0)
    m, n, k = tl.arange(0, 64), tl.program_id(1) * 64 + tl.arange(0, 64), tl.arange(0, 64)
    first, end = tl.load(bounds_ptr + part), tl.load(bounds_ptr + part + 1)
    total = tl.zeros([64, 64], tl.float32)
    for step in range(tl.cdiv(end - first, 64)):
        at = first + step * 64 + k
        a = tl.load(a_ptr + m[:, None] * stride + at[None, :], mask=(m[:, None] < M) & (at[None, :] < end), other=0)
        b = tl.load(b_ptr + at[:, None] * N + n[None, :], mask=(at[:, None] < end) & (n[None, :] < N), other=0)
        total = tl.dot(a, b, total)
    tl.store(out_ptr + (part * M + m[:, None]) * N + n[None, :], total, mask=(m[:, None] < M) & (n[None, :] < N))
