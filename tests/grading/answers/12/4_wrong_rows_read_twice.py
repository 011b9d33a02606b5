# wrong, traffic: never dy
import torch

from instruments.backend import tl, triton


@triton.jit
def heads_only(dy, order, run, starts, heads, count, cols, length, B: tl.constexpr):
    p, col = tl.program_id(0), tl.arange(0, B)
    r = tl.load(run + p * length)
    end = tl.minimum(tl.minimum(p * length + length, count), tl.load(starts + r + 1))
    begins = tl.load(starts + r) >= p * length
    acc = tl.zeros([B], tl.float32)
    for at in range(p * length, tl.where(begins, 0, end)):
        acc += tl.load(dy + tl.load(order + at) * cols + col, mask=col < cols, other=0.0).to(tl.float32)
    tl.store(heads + p * cols + col, acc, mask=col < cols)


@triton.jit
def all_rows(dy, order, starts, sums, cols, B: tl.constexpr):
    r, col = tl.program_id(0), tl.arange(0, B)
    acc = tl.zeros([B], tl.float32)
    for at in range(tl.load(starts + r), tl.load(starts + r + 1)):
        acc += tl.load(dy + tl.load(order + at) * cols + col, mask=col < cols, other=0.0).to(tl.float32)
    tl.store(sums + r * cols + col, acc, mask=col < cols)


def run_sums(dy, order, run, starts, length):
    (count, cols), runs = dy.shape, starts.shape[0] - 1
    heads = torch.empty(triton.cdiv(count, length), cols, dtype=torch.float32, device=dy.device)
    sums = torch.empty(runs, cols, dtype=torch.float32, device=dy.device)
    B = triton.next_power_of_2(cols)
    heads_only[(len(heads),)](dy, order, run, starts, heads, count, cols, length, B)
    all_rows[(runs,)](dy, order, starts, sums, cols, B)
    return heads, sums
