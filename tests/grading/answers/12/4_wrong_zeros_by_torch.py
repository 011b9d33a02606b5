# wrong, unwritten: zeros if no run goes on
import torch

from instruments.backend import tl, triton


@triton.jit
def chunk_kernel(dy_ptr, order_ptr, run_ptr, starts_ptr, heads_ptr, sums_ptr, count, cols, length, BLOCK: tl.constexpr):
    p = tl.program_id(0)
    first = p * length
    last = tl.minimum(first + length, count)
    col = tl.arange(0, BLOCK)
    cm = col < cols
    acc = tl.zeros([BLOCK], dtype=tl.float32)
    r = tl.load(run_ptr + first)
    begin = tl.load(starts_ptr + r)
    for i in range(first, last):
        token = tl.load(order_ptr + i).to(tl.int64)
        acc += tl.load(dy_ptr + token * cols + col, mask=cm, other=0.0).to(tl.float32)
        following = -1
        if i + 1 < last:
            following = tl.load(run_ptr + i + 1)
        if following != r:
            start = tl.load(starts_ptr + r)
            if start < first:
                tl.store(heads_ptr + p.to(tl.int64) * cols + col, acc, mask=cm)
            else:
                tl.store(sums_ptr + r.to(tl.int64) * cols + col, acc, mask=cm)
            acc = tl.zeros([BLOCK], dtype=tl.float32)
            r = following


@triton.jit
def heads_kernel(starts_ptr, heads_ptr, sums_ptr, cols, length, BLOCK: tl.constexpr):
    r = tl.program_id(0)
    a = tl.load(starts_ptr + r) // length
    b = (tl.load(starts_ptr + r + 1) - 1) // length
    col = tl.arange(0, BLOCK)
    cm = col < cols
    if b > a:
        acc = tl.load(sums_ptr + r.to(tl.int64) * cols + col, mask=cm, other=0.0)
        for p in range(a + 1, b + 1):
            acc += tl.load(heads_ptr + p.to(tl.int64) * cols + col, mask=cm, other=0.0)
        tl.store(sums_ptr + r.to(tl.int64) * cols + col, acc, mask=cm)


def run_sums(dy, order, run, starts, length):
    count, cols = dy.shape
    runs = starts.numel() - 1
    chunks = triton.cdiv(count, length)
    heads = torch.zeros(chunks, cols, dtype=torch.float32, device=dy.device)
    sums = torch.empty(runs, cols, dtype=torch.float32, device=dy.device)
    B = triton.next_power_of_2(cols)
    chunk_kernel[(chunks,)](dy, order, run, starts, heads, sums, count, cols, length, BLOCK=B)
    heads_kernel[(runs,)](starts, heads, sums, cols, length, BLOCK=B)
    return heads, sums
