# right
import torch
from instruments.backend import tl, triton


@triton.jit
def sums(x_ptr, part_ptr, stride, cols, tiles, BLOCK: tl.constexpr):
    row, tile = tl.program_id(0), tl.program_id(1)
    c = tile * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride + c, mask=c < cols, other=0.0).to(tl.float32)
    tl.store(part_ptr + row * tiles + tile, tl.sum(x * x))


@triton.jit
def finish(x_ptr, w_ptr, part_ptr, y_ptr, peak_ptr, stride, cols, tiles, eps, BLOCK: tl.constexpr, TILES: tl.constexpr):
    row, tile = tl.program_id(0), tl.program_id(1)
    t = tl.arange(0, TILES)
    total = tl.sum(tl.load(part_ptr + row * tiles + t, mask=t < tiles, other=0.0))
    c = tile * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride + c, mask=c < cols, other=0.0).to(tl.float32)
    w = tl.load(w_ptr + c, mask=c < cols, other=0.0)
    y = x * tl.rsqrt(total / cols + eps) * (1 + w)
    tl.store(y_ptr + row * cols + c, y, mask=c < cols)
    tl.store(peak_ptr + row * tiles + tile, tl.max(tl.abs(y)))


@triton.jit
def largest_of_tiles(peak_ptr, largest_ptr, tiles, TILES: tl.constexpr):
    row, t = tl.program_id(0), tl.arange(0, TILES)
    tl.store(largest_ptr + row, tl.max(tl.load(peak_ptr + row * tiles + t, mask=t < tiles, other=0.0)))


def wide_norm(x, weight, eps, out_dtype):
    rows, cols = x.shape
    block = 2048
    tiles = triton.cdiv(cols, block)
    width = triton.next_power_of_2(tiles)
    part = torch.empty(rows, tiles, device=x.device)
    peak, largest = torch.empty_like(part), torch.empty(rows, device=x.device)
    y = torch.empty(rows, cols, dtype=out_dtype, device=x.device)
    sums[(rows, tiles)](x, part, x.stride(0), cols, tiles, BLOCK=block)
    finish[(rows, tiles)](x, weight, part, y, peak, x.stride(0), cols, tiles, eps, block, width)
    largest_of_tiles[(rows,)](peak, largest, tiles, width)
    return y, largest
