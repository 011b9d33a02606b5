# wrong, values: heads were left out
import torch

from instruments.backend import tl, triton


@triton.jit
def chunk_kernel(dy_ptr, order_ptr, run_ptr, starts_ptr, heads_ptr, sums_ptr, count, cols, length, BLOCK: tl.constexpr):
    chunk, col = tl.program_id(0), tl.arange(0, BLOCK)
    first = chunk * length
    end = tl.minimum(first + length, count)
    run = tl.load(run_ptr + first)
    begun = tl.load(starts_ptr + run) >= first  # no run goes on from the chunk before
    head_at = heads_ptr + chunk * cols + col
    tl.store(head_at, tl.zeros([BLOCK], dtype=tl.float32), mask=(col < cols) & begun)
    acc = tl.zeros([BLOCK], dtype=tl.float32)
    for at in range(first, end):
        token = tl.load(order_ptr + at).to(tl.int64)
        acc += tl.load(dy_ptr + token * cols + col, mask=col < cols, other=0.0).to(tl.float32)
        following = tl.load(run_ptr + at + 1, mask=at + 1 < end, other=-1)
        last = following != run  # of this run, in this chunk
        tl.store(head_at, acc, mask=(col < cols) & last & (begun == 0))
        tl.store(sums_ptr + run.to(tl.int64) * cols + col, acc, mask=(col < cols) & last & begun)
        acc = tl.where(last, 0.0, acc)
        begun = begun | last
        run = following


@triton.jit
def heads_kernel(starts_ptr, heads_ptr, sums_ptr, cols, length, BLOCK: tl.constexpr):
    run, col = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    first = tl.load(starts_ptr + run) // length
    last = (tl.load(starts_ptr + run + 1) - 1) // length
    acc = tl.load(sums_ptr + run * cols + col, mask=col < cols, other=0.0)
    for chunk in range(first + 1, last + 1):
        acc += tl.load(heads_ptr + chunk * cols + col, mask=col < cols, other=0.0)
    tl.store(sums_ptr + run * cols + col, acc, mask=col < cols)


def run_sums(dy, order, run, starts, length):
    (count, cols), runs = dy.shape, starts.shape[0] - 1
    chunks, BLOCK = triton.cdiv(count, length), triton.next_power_of_2(cols)
    heads = torch.empty(chunks, cols, dtype=torch.float32, device=dy.device)
    sums = torch.empty(runs, cols, dtype=torch.float32, device=dy.device)
    chunk_kernel[(chunks,)](dy, order, run, starts, heads, sums, count, cols, length, BLOCK=BLOCK)
    return heads, sums
