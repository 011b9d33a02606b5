# wrong, mistake: it lacks n * d**2
import torch
from instruments.backend import tl, triton


@triton.jit
def part_kernel(x_ptr, means_ptr, deviations_ptr, x_row_stride, cols, parts, width, BLOCK: tl.constexpr):
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    start = part * width
    count = tl.maximum(tl.minimum(cols - start, width), 0)
    columns = tl.arange(0, BLOCK)
    inside = columns < count
    x = tl.load(x_ptr + row * x_row_stride + start + columns, mask=inside, other=0.0).to(tl.float32)
    mean = tl.sum(x) / tl.maximum(count, 1)
    centered = tl.where(inside, x - mean, 0.0)
    tl.store(means_ptr + row * parts + part, mean)
    tl.store(deviations_ptr + row * parts + part, tl.sum(centered * centered))


@triton.jit
def merge_kernel(means_ptr, deviations_ptr, mean_ptr, scale_ptr, cols, parts, width, eps, PARTS: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    part = tl.arange(0, PARTS)
    count = tl.maximum(tl.minimum(cols - part * width, width), 0).to(tl.float32)
    means = tl.load(means_ptr + row * parts + part, mask=part < parts, other=0.0)
    deviations = tl.load(deviations_ptr + row * parts + part, mask=part < parts, other=0.0)
    mean = tl.sum(means * count) / cols
    apart = means - mean
    variance = tl.sum(deviations + tl.where(count > 0, apart * apart, 0.0)) / cols
    tl.store(mean_ptr + row, mean)
    tl.store(scale_ptr + row, tl.rsqrt(variance + eps))


def statistics(x, eps, parts):
    rows, cols = x.shape
    mean = torch.empty(rows, dtype=torch.float32, device=x.device)
    scale = torch.empty_like(mean)
    means = torch.empty(rows, parts, dtype=torch.float32, device=x.device)
    deviations = torch.empty_like(means)
    width = triton.cdiv(cols, parts)
    BLOCK = triton.next_power_of_2(width)
    part_kernel[(rows, parts)](x, means, deviations, x.stride(0), cols, parts, width, BLOCK=BLOCK)
    PARTS = triton.next_power_of_2(parts)
    merge_kernel[(rows,)](means, deviations, mean, scale, cols, parts, width, eps, PARTS=PARTS)
    return mean, scale, means, deviations
