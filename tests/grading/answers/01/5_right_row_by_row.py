# right
import torch
from instruments.backend import tl, triton


@triton.jit
def rows_kernel(x_ptr, y_ptr, out_ptr, alpha, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    for start in tl.range(0, cols, BLOCK):
        col = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * cols + col, mask=col < cols, other=0.0)
        y = tl.load(y_ptr + row * cols + col, mask=col < cols, other=0.0)
        out = tl.fma(x.to(tl.float32), tl.full([BLOCK], alpha, tl.float32), y)
        tl.store(out_ptr + row * cols + col, out, mask=col < cols)


def scaled_add(x, y, alpha):
    out = torch.empty(y.shape, dtype=torch.float32, device=y.device)
    rows, cols = y.reshape(-1, y.shape[-1]).shape
    rows_kernel[(rows,)](x, y, out, float(alpha), cols, BLOCK=2048)
    return out
