# right
import torch
from instruments.backend import tl, triton


@triton.jit
def part_kernel(x_ptr, means_ptr, deviations_ptr, x_row_stride, cols, parts, width, BLOCK: tl.constexpr):
    """Tiles of 512 columns, merged one after the other."""
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    end = tl.minimum((part + 1) * width, cols)
    count, mean, deviations = 0.0, 0.0, 0.0
    for start in range(part * width, end, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * x_row_stride + columns, mask=columns < end, other=0.0).to(tl.float32)
        n = tl.minimum(end - start, BLOCK).to(tl.float32)
        tile_mean = tl.sum(x) / n
        centered = tl.where(columns < end, x - tile_mean, 0.0)
        apart, both = tile_mean - mean, count + n
        deviations += tl.sum(centered * centered) + apart * apart * (count * n / both)
        mean += apart * (n / both)
        count = both
    tl.store(means_ptr + row * parts + part, mean)
    tl.store(deviations_ptr + row * parts + part, deviations)


@triton.jit
def merge_kernel(means_ptr, deviations_ptr, mean_ptr, scale_ptr, cols, parts, width, eps):
    """The rule of 05b.1, one part after the other."""
    row = tl.program_id(0).to(tl.int64)
    count, mean, deviations = 0.0, 0.0, 0.0
    for part in range(0, tl.cdiv(cols, width)):
        n = tl.minimum(cols - part * width, width).to(tl.float32)
        apart = tl.load(means_ptr + row * parts + part) - mean
        both = count + n
        deviations += tl.load(deviations_ptr + row * parts + part) + apart * apart * (count * n / both)
        mean += apart * (n / both)
        count = both
    tl.store(mean_ptr + row, mean)
    tl.store(scale_ptr + row, tl.rsqrt(deviations / cols + eps))


def statistics(x, eps, parts):
    rows, cols = x.shape
    mean = torch.empty(rows, dtype=torch.float32, device=x.device)
    scale = torch.empty_like(mean)
    means = torch.empty(rows, parts, dtype=torch.float32, device=x.device)
    deviations = torch.empty_like(means)
    width = triton.cdiv(cols, parts)
    part_kernel[(rows, parts)](x, means, deviations, x.stride(0), cols, parts, width, BLOCK=512)
    merge_kernel[(rows,)](means, deviations, mean, scale, cols, parts, width, eps)
    return mean, scale, means, deviations
