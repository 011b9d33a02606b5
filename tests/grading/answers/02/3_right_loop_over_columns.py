# right
import torch
from instruments.backend import tl, triton


@triton.jit
def k(x_ptr, out_ptr, rows, cols, row_stride, R: tl.constexpr, C: tl.constexpr):
    row = tl.program_id(0) * R + tl.arange(0, R)[:, None]
    for start in tl.range(0, cols, C):
        col = start + tl.arange(0, C)[None, :]
        mask = (row < rows) & (col < cols)
        tl.store(out_ptr + col * rows + row, tl.load(x_ptr + row * row_stride + col, mask=mask), mask=mask)


def transpose(x):
    out = torch.empty(x.shape[1], x.shape[0], dtype=x.dtype, device=x.device)
    k[(triton.cdiv(x.shape[0], 64),)](x, out, x.shape[0], x.shape[1], x.stride(0), R=64, C=32)
    return out
