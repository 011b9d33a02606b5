# right
import torch
from instruments.backend import tl, triton


@triton.jit
def both_ways(x_ptr, weight_ptr, y_ptr, peak_ptr, stride, cols: tl.constexpr, eps, tiles, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    total = 0.0
    for tile in range(tiles):
        c = tile * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * stride + c, mask=c < cols, other=0).to(tl.float32)
        total += tl.sum(x * x)
    peak = 0.0
    scale = 1 / tl.sqrt(total / cols + eps)
    for tile in range(tiles):
        c = (tiles - 1 - tile) * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * stride + c, mask=c < cols, other=0).to(tl.float32)
        w = tl.load(weight_ptr + c, mask=c < cols, other=0)
        y = x * scale + x * scale * w
        peak = tl.maximum(peak, tl.max(tl.abs(y)))
        tl.store(y_ptr + row * cols + c, y.to(y_ptr.dtype.element_ty), mask=c < cols)
    tl.store(peak_ptr + row, peak)


def wide_norm(x, weight, eps, out_dtype):
    y = torch.empty(x.shape, dtype=out_dtype, device=x.device)
    peak = torch.empty(len(x), device=x.device)
    tiles = triton.cdiv(x.shape[1], 1024)
    both_ways[(x.shape[0],)](x, weight, y, peak, x.stride(0), x.shape[1], eps, tiles, BLOCK=1024)
    return y, peak
