# wrong, mistake: not transposed
import torch
from instruments.backend import tl, triton


@triton.jit
def transpose_kernel(x_ptr, out_ptr, rows, cols, row_stride, ROWS: tl.constexpr, COLS: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)  # [ROWS]
    col = tl.program_id(1).to(tl.int64) * COLS + tl.arange(0, COLS)  # [COLS]
    mask = (row < rows)[:, None] & (col < cols)[None, :]  # [ROWS, COLS]
    tile = tl.load(x_ptr + row[:, None] * row_stride + col[None, :], mask=mask)
    tl.store(out_ptr + row[:, None] * cols + col[None, :], tile, mask=mask)


def transpose(x):
    rows, cols = x.shape
    out = torch.empty((cols, rows), dtype=x.dtype, device=x.device)
    grid = (triton.cdiv(rows, 64), triton.cdiv(cols, 64))
    transpose_kernel[grid](x, out, rows, cols, x.stride(0), ROWS=64, COLS=64)
    return out
