# right
import torch
from instruments.backend import tl, triton

NOTHING = tl.constexpr(float("-inf"))


@triton.jit
def part(x_ptr, m_ptr, l_ptr, t_ptr, stride, cols, tiles, BLOCK: tl.constexpr):
    row, tile = tl.program_id(1), tl.program_id(0)
    c = tile * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride + c, mask=c < cols, other=NOTHING).to(tl.float32)
    m = tl.max(x)
    seen = x > NOTHING
    below = tl.where(seen, x - m, 0.0)
    e = tl.where(seen, tl.exp(below), 0.0)
    tl.store(m_ptr + row * tiles + tile, m)
    tl.store(l_ptr + row * tiles + tile, tl.sum(e))
    tl.store(t_ptr + row * tiles + tile, tl.sum(e * below))


@triton.jit
def merged(m_ptr, l_ptr, t_ptr, h_ptr, lse_ptr, tiles, TILES: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, TILES)
    ok = at < tiles
    m = tl.load(m_ptr + row * tiles + at, mask=ok, other=NOTHING)
    l = tl.load(l_ptr + row * tiles + at, mask=ok, other=0.0)
    t = tl.load(t_ptr + row * tiles + at, mask=ok, other=0.0)
    top = tl.max(m)
    down = tl.where(l > 0, m - top, 0.0)
    t = tl.sum((t + l * down) * tl.exp(down))
    l = tl.sum(l * tl.exp(down))
    tl.store(h_ptr + row, tl.log(l) - t / l)
    tl.store(lse_ptr + row, top + tl.log(l))


def entropy(x):
    rows, cols = x.shape
    tiles = triton.cdiv(cols, 2048)
    m, l, t = (torch.empty(rows, tiles, device=x.device) for _ in range(3))
    h, lse = torch.empty(rows, device=x.device), torch.empty(rows, device=x.device)
    part[(tiles, rows)](x, m, l, t, x.stride(0), cols, tiles, BLOCK=2048)
    merged[(rows,)](m, l, t, h, lse, tiles, TILES=triton.next_power_of_2(tiles))
    return h, lse
