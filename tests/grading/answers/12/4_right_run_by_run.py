# right
import torch

from instruments.backend import tl, triton


@triton.jit
def pieces(dy, order, run, starts, heads, sums, count, cols, length, B: tl.constexpr):
    """A loop over the runs of the chunk, and one over the rows of each."""
    p, col = tl.program_id(0), tl.arange(0, B)
    inside = col < cols
    lo, hi = p * length, tl.minimum(p * length + length, count)
    if tl.load(starts + tl.load(run + lo)) >= lo:
        tl.store(heads + p * cols + col, tl.zeros([B], tl.float32), mask=inside)
    for r in range(tl.load(run + lo), tl.load(run + hi - 1) + 1):
        begin, end = tl.load(starts + r), tl.load(starts + r + 1)
        acc = tl.zeros([B], tl.float32)
        for at in range(tl.maximum(begin, lo), tl.minimum(end, hi)):
            acc += tl.load(dy + tl.load(order + at).to(tl.int64) * cols + col, mask=inside, other=0.0).to(tl.float32)
        tl.store((heads + p * cols if begin < lo else sums + r * cols) + col, acc, mask=inside)


@triton.jit
def carry(run, starts, heads, sums, count, chunks, cols, length, B: tl.constexpr):
    """The last run of a chunk, if it begins there and goes on."""
    p, col = tl.program_id(0), tl.arange(0, B)
    r = tl.load(run + tl.minimum(p * length + length, count) - 1)
    begin, end = tl.load(starts + r), tl.load(starts + r + 1)
    if (begin >= p * length) & (end > p * length + length):
        acc = tl.load(sums + r * cols + col, mask=col < cols, other=0.0)
        for q in range(p + 1, tl.cdiv(end, length)):
            acc += tl.load(heads + q * cols + col, mask=col < cols, other=0.0)
        tl.store(sums + r * cols + col, acc, mask=col < cols)


def run_sums(dy, order, run, starts, length):
    (count, cols), runs = dy.shape, len(starts) - 1
    chunks = -(-count // length)
    heads, sums = (torch.empty((n, cols), dtype=torch.float32, device=dy.device) for n in (chunks, runs))
    B = triton.next_power_of_2(cols)
    pieces[(chunks,)](dy, order, run, starts, heads, sums, count, cols, length, B)
    carry[(chunks,)](run, starts, heads, sums, count, chunks, cols, length, B)
    return heads, sums
