# wrong, out_of_bounds: .stride(0) elements on
import torch
from instruments.backend import tl, triton


@triton.jit
def normalise_kernel(x_ptr, y_ptr, mean_ptr, scale_ptr, x_row_stride, cols, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)  # int64: row * stride may pass 2^31
    columns = tl.arange(0, BLOCK)
    inside = columns < cols
    x = tl.load(x_ptr + row * cols + columns, mask=inside, other=0.0).to(tl.float32)
    mean = tl.sum(x) / cols  # masked lanes are 0 and add nothing
    centred = tl.where(inside, x - mean, 0.0)  # here they would be -mean
    scale = tl.rsqrt(tl.sum(centred * centred) / cols + eps)
    tl.store(y_ptr + row * cols + columns, centred * scale, mask=inside)
    tl.store(mean_ptr + row, mean)
    tl.store(scale_ptr + row, scale)


def normalise(x, eps):
    rows, cols = x.shape
    y = torch.empty(rows, cols, dtype=x.dtype, device=x.device)
    mean = torch.empty(rows, dtype=torch.float32, device=x.device)
    scale = torch.empty(rows, dtype=torch.float32, device=x.device)
    BLOCK = triton.next_power_of_2(cols)  # the tile spans the row
    warps = min(8, max(1, BLOCK // 1024))  # two sums, one after the other, want few warps
    normalise_kernel[(rows,)](x, y, mean, scale, x.stride(0), cols, eps, BLOCK=BLOCK, num_warps=warps)
    return y, mean, scale
