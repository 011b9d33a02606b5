# wrong, values: Follow m, l and t
import torch

from instruments.backend import tl, triton


@triton.jit
def entropy_kernel(x_ptr, entropy_ptr, lse_ptr, x_row_stride, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    m = -float("inf")
    l = 0.0
    t = 0.0
    for start in range(0, cols, BLOCK):
        c = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * x_row_stride + c, mask=c < cols, other=-float("inf")).to(tl.float32)
        top = tl.max(x, axis=0)
        if top > -float("inf"):
            d = tl.where(x > -float("inf"), x - top, 0.0)
            e = tl.where(x > -float("inf"), tl.exp(d), 0.0)
            ls = tl.sum(e, axis=0)
            ts = tl.sum(e * d, axis=0)
            new = tl.maximum(m, top)
            fb = tl.exp(top - new)
            da = tl.where(m > -float("inf"), m - new, 0.0)
            fa = tl.where(m > -float("inf"), tl.exp(da), 0.0)
            t = fa * (t + da * l) + fb * (ts + (top - new) * ls)
            l = fa * l + fb * ls
            m = new
    tl.store(entropy_ptr + row, (tl.log(l) - t / l) / 0.6931471805599453)
    tl.store(lse_ptr + row, m + tl.log(l))


def entropy(x):
    h, lse = (torch.empty(len(x), dtype=torch.float32, device=x.device) for _ in range(2))
    entropy_kernel[(len(x),)](x, h, lse, x.stride(0), x.shape[1], 2048)
    return h, lse
