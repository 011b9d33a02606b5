# right
import torch
from instruments.backend import tl, triton


@triton.jit
def there_and_back(x_ptr, stream_ptr, gain_ptr, y_ptr, cols, tiles, eps, BLOCK: tl.constexpr):
    first = tl.program_id(0).to(tl.int64) * cols
    c = tl.arange(0, BLOCK)
    total, energy = tl.zeros([BLOCK], tl.float32), tl.zeros([BLOCK], tl.float32)
    for tile in range(tiles):
        at = tile * BLOCK + c
        total = tl.load(stream_ptr + first + at, at < cols, 0.0) + tl.load(x_ptr + first + at, at < cols, 0.0)
        tl.store(stream_ptr + first + at, total, at < cols)
        energy += total * total
    scale = tl.rsqrt(tl.sum(energy) / cols + eps)
    for back in range(tiles):
        at = (tiles - 1 - back) * BLOCK + c
        total = tl.load(stream_ptr + first + at, at < cols, 0.0)
        y = total * scale * tl.load(gain_ptr + at, at < cols, 0.0)
        tl.store(y_ptr + first + at, y.to(y_ptr.dtype.element_ty), at < cols)


def add_gemma_norm(x, residual, weight, eps):
    y, cols = torch.empty_like(x), x.shape[1]
    tiles = triton.cdiv(cols, 1024)
    there_and_back[(len(x),)](x, residual, 1 + weight, y, cols, tiles, eps, BLOCK=1024, num_warps=8)
    return y
