# wrong, mistake: or renormalized
import torch
from instruments.backend import tl, triton


@triton.jit
def combine_kernel(
    y_ptr,
    rows_ptr,
    gates_ptr,
    shared_ptr,
    out_ptr,
    hidden,
    y_row_stride,
    shared_row_stride,
    TOP_K: tl.constexpr,
    BLOCK: tl.constexpr,
):
    token = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < hidden
    acc = tl.load(shared_ptr + token * shared_row_stride + column, mask=inside, other=0.0).to(tl.float32)
    total = 0.0  # the gates of the choices that were not dropped
    for choice in tl.static_range(TOP_K):
        row = tl.load(rows_ptr + token * TOP_K + choice)
        total += tl.where(row >= 0, tl.load(gates_ptr + token * TOP_K + choice), 0.0)
    total = tl.where(total == 0.0, 1.0, total)
    for choice in tl.static_range(TOP_K):
        slot = token * TOP_K + choice
        row = tl.load(rows_ptr + slot)
        gate = tl.load(gates_ptr + slot)
        there = inside & (row >= 0)  # dropped choices load nothing
        expert_row = tl.load(y_ptr + row.to(tl.int64) * y_row_stride + column, mask=there, other=0.0).to(tl.float32)
        acc += gate / total * expert_row
    tl.store(out_ptr + token * hidden + column, acc, mask=inside)


def combine(y, rows, gates, shared):
    tokens, hidden = shared.shape
    out = torch.empty(tokens, hidden, dtype=y.dtype, device=y.device)
    BLOCK = min(1024, max(128, triton.next_power_of_2(hidden)))
    combine_kernel[(tokens, triton.cdiv(hidden, BLOCK))](
        y, rows, gates, shared, out, hidden, y.stride(0), shared.stride(0), TOP_K=rows.shape[1], BLOCK=BLOCK
    )
    return out
