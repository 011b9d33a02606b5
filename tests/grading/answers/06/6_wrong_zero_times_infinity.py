# wrong, values: 0 * -inf
import torch
from instruments.backend import tl, triton


@triton.jit
def entropy_kernel(x_ptr, entropy_ptr, lse_ptr, x_row_stride, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x_row = x_ptr + row * x_row_stride
    m = -3.0e38  # below every logit, and finite
    l = 0.0
    t = 0.0
    for start in range(0, cols, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        x = tl.load(x_row + columns, mask=columns < cols, other=float("-inf")).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x))
        factor = tl.exp(m - m_new)
        below = x - m_new
        e = tl.exp(below)
        t = (t + l * (m - m_new)) * factor + tl.sum(below * e)  # 0 * -inf would be NaN
        l = l * factor + tl.sum(e)
        m = m_new
    tl.store(entropy_ptr + row, tl.log(l) - t / l)
    tl.store(lse_ptr + row, m + tl.log(l))


def entropy(x):
    rows, cols = x.shape
    h = torch.empty(rows, dtype=torch.float32, device=x.device)
    lse = torch.empty(rows, dtype=torch.float32, device=x.device)
    BLOCK = min(4096, triton.next_power_of_2(cols))
    entropy_kernel[(rows,)](x, h, lse, x.stride(0), cols, BLOCK=BLOCK, num_warps=4)
    return h, lse
