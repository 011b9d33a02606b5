# right
import torch
from instruments.backend import tl, triton


@triton.jit
def state(x_ptr, part_ptr, stride, cols, tiles, BLOCK: tl.constexpr):
    row, tile = tl.program_id(0), tl.program_id(1)
    c = tile * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride + c, mask=c < cols, other=float("-inf")).to(tl.float32)
    m = tl.max(x)
    l = tl.sum(tl.exp(x - tl.where(m == float("-inf"), 0.0, m)))
    tl.store(part_ptr + (row * tiles + tile) * 2, m)
    tl.store(part_ptr + (row * tiles + tile) * 2 + 1, l)


@triton.jit
def finish(x_ptr, sink_ptr, part_ptr, y_ptr, stride, cols, tiles, BLOCK: tl.constexpr, TILES: tl.constexpr):
    row = tl.program_id(0)
    sink = tl.load(sink_ptr + row)
    t = tl.arange(0, TILES)
    tops = tl.load(part_ptr + (row * tiles + t) * 2, mask=t < tiles, other=float("-inf"))
    sums = tl.load(part_ptr + (row * tiles + t) * 2 + 1, mask=t < tiles, other=0.0)
    m = tl.maximum(sink, tl.max(tops))
    log_l = tl.log(tl.exp(sink - m) + tl.sum(sums * tl.exp(tops - m)))
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride + c, mask=c < cols).to(tl.float32)
    tl.store(y_ptr + row * cols + c, tl.exp(x - m - log_l), mask=c < cols)


def sink_softmax(x, sink, out_dtype):
    rows, cols = x.shape
    block = 4096
    tiles = triton.cdiv(cols, block)
    part = torch.empty(rows, tiles, 2, device=x.device)
    y = torch.empty(rows, cols, dtype=out_dtype, device=x.device)
    state[(rows, tiles)](x, part, x.stride(0), cols, tiles, BLOCK=block)
    finish[(rows, tiles)](x, sink, part, y, x.stride(0), cols, tiles, block, triton.next_power_of_2(tiles))
    return y
