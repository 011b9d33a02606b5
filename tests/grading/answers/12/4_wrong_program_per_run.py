# wrong, values: the task asks for two
import torch

from instruments.backend import tl, triton


@triton.jit
def by_run(dy_ptr, order_ptr, starts_ptr, heads_ptr, sums_ptr, count, cols, length, B: tl.constexpr):
    run, col = tl.program_id(0), tl.arange(0, B)
    first, end = tl.load(starts_ptr + run), tl.load(starts_ptr + run + 1)
    total, part = tl.zeros([B], tl.float32), tl.zeros([B], tl.float32)
    for at in range(first, end):
        row = tl.load(dy_ptr + tl.load(order_ptr + at) * cols + col, mask=col < cols, other=0.0).to(tl.float32)
        total += row
        if at % length == 0:
            part = tl.zeros([B], tl.float32)
            if at == first:
                tl.store(heads_ptr + at // length * cols + col, part, mask=col < cols)
        part += row
        if ((at + 1) % length == 0) | (at + 1 == end):
            if at // length * length > first:
                tl.store(heads_ptr + at // length * cols + col, part, mask=col < cols)
    tl.store(sums_ptr + run * cols + col, total, mask=col < cols)


def run_sums(dy, order, run, starts, length):
    (count, cols), runs = dy.shape, starts.shape[0] - 1
    heads = torch.empty(triton.cdiv(count, length), cols, dtype=torch.float32, device=dy.device)
    sums = torch.empty(runs, cols, dtype=torch.float32, device=dy.device)
    by_run[(runs,)](dy, order, starts, heads, sums, count, cols, length, triton.next_power_of_2(cols))
    return heads, sums
