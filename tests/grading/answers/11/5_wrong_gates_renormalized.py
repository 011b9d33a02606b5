# wrong, mistake: those of dropped choices too
import torch
from instruments.backend import tl, triton


@triton.jit
def combine_backward_kernel(
    dout_ptr,
    y_ptr,
    scores_ptr,
    rows_ptr,
    slots_ptr,
    dy_ptr,
    dscores_ptr,
    num_rows,
    hidden,
    dout_row_stride,
    y_row_stride,
    TOP_K: tl.constexpr,
    BLOCK: tl.constexpr,
):
    token = tl.program_id(0).to(tl.int64)
    choice = tl.arange(0, triton.next_power_of_2(TOP_K))
    slot, real = token * TOP_K + choice, choice < TOP_K
    row = tl.load(rows_ptr + slot, mask=real, other=-1).to(tl.int64)
    score = tl.load(scores_ptr + slot, mask=real, other=0.0)
    total = tl.sum(score, axis=0)
    there = tl.sum(tl.where(row >= 0, score, 0.0), axis=0)
    gate = score / total
    dgate = tl.zeros_like(gate)
    for start in range(0, hidden, BLOCK):
        column = start + tl.arange(0, BLOCK)
        dout = tl.load(dout_ptr + token * dout_row_stride + column, mask=column < hidden, other=0.0)
        dout = dout.to(tl.float32)[None, :]
        mask = (row >= 0)[:, None] & (column < hidden)[None, :]  # [choices, BLOCK]
        y = tl.load(y_ptr + row[:, None] * y_row_stride + column[None, :], mask=mask, other=0.0)
        dgate += tl.sum(dout * y.to(tl.float32), axis=1)
        tl.store(
            dy_ptr + row[:, None] * hidden + column[None, :],
            (score / tl.where(there > 0, there, 1.0))[:, None] * dout,
            mask=mask,
        )
    mean = tl.sum(gate * dgate, axis=0)
    tl.store(dscores_ptr + slot, (dgate - mean) / total, mask=real)
    for other in range(tl.program_id(0), num_rows, tl.num_programs(0)):  # rows without a slot
        empty = tl.load(slots_ptr + other) < 0
        for start in range(0, hidden, BLOCK):
            column = start + tl.arange(0, BLOCK)
            zeros = tl.zeros([BLOCK], dtype=tl.float32)
            tl.store(dy_ptr + tl.cast(other, tl.int64) * hidden + column, zeros, mask=empty & (column < hidden))


def combine_backward(dout, y, scores, rows, slots):
    (tokens, top_k), (num_rows, hidden) = rows.shape, y.shape
    dy = torch.empty(num_rows, hidden, dtype=y.dtype, device=y.device)
    dscores = torch.empty_like(scores)
    BLOCK = min(1024, triton.next_power_of_2(hidden))
    combine_backward_kernel[(tokens,)](
        dout,
        y,
        scores,
        rows,
        slots,
        dy,
        dscores,
        num_rows,
        hidden,
        dout.stride(0),
        y.stride(0),
        TOP_K=top_k,
        BLOCK=BLOCK,
    )
    return dy, dscores
