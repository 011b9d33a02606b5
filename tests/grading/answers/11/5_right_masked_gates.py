# right
import torch
from instruments.backend import tl, triton


@triton.jit
def masked(
    y_ptr, rows_ptr, gates_ptr, shared_ptr, out_ptr, hidden, y_stride, s_stride, K: tl.constexpr, B: tl.constexpr
):
    token, col = tl.program_id(0).to(tl.int64), tl.arange(0, B)
    total = tl.load(shared_ptr + token * s_stride + col, mask=col < hidden, other=0.0).to(tl.float32)
    for i in tl.static_range(K):
        row = tl.load(rows_ptr + token * K + i).to(tl.int64)
        y = tl.load(y_ptr + row * y_stride + col, mask=(col < hidden) & (row >= 0), other=0.0).to(tl.float32)
        total += y * tl.load(gates_ptr + token * K + i, mask=row >= 0, other=0.0)
    tl.store(out_ptr + token * hidden + col, total.to(out_ptr.dtype.element_ty), mask=col < hidden)


def combine(y, rows, gates, shared):
    (tokens, top_k), hidden = rows.shape, y.shape[1]
    out = torch.empty((tokens, hidden), dtype=y.dtype, device=y.device)
    masked[(tokens,)](
        y, rows, gates, shared, out, hidden, y.stride(0), shared.stride(0), top_k, triton.next_power_of_2(hidden)
    )
    return out
