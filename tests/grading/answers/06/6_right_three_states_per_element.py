# right
import torch
from instruments.backend import tl, triton


@triton.jit
def per_element(x_ptr, h_ptr, lse_ptr, stride, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    m = tl.full([BLOCK], -1e30, tl.float32)
    l = tl.zeros([BLOCK], tl.float32)
    t = tl.zeros([BLOCK], tl.float32)
    for start in range(0, cols, BLOCK):
        c = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * stride + c, mask=c < cols, other=float("-inf")).to(tl.float32)
        x = tl.maximum(x, -1e30)
        real = x > -1e30
        higher = tl.maximum(m, x)
        down = m - higher
        t = (t + l * down) * tl.exp(down) + tl.where(real, (x - higher) * tl.exp(x - higher), 0.0)
        l = l * tl.exp(down) + tl.where(real, tl.exp(x - higher), 0.0)
        m = higher
    top = tl.max(m)
    down = m - top
    t = tl.sum((t + l * down) * tl.exp(down))
    l = tl.sum(l * tl.exp(down))
    tl.store(h_ptr + row, tl.log(l) - t / l)
    tl.store(lse_ptr + row, top + tl.log(l))


def entropy(x):
    h, lse = torch.empty(2, len(x), device=x.device).unbind()
    per_element[(len(x),)](x, h, lse, x.stride(0), x.shape[1], BLOCK=1024)
    return h, lse
