# right
import torch
from instruments.backend import tl, triton


@triton.jit
def rows_kernel(x, y, means, scales, stride, n_rows, n, eps, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    c = tl.arange(0, BLOCK)[None, :]
    ok = (r[:, None] < n_rows) & (c < n)
    tile = tl.load(x + r[:, None].to(tl.int64) * stride + c, ok, 0).to(tl.float32)
    mean = tl.sum(tile, axis=1) / n
    tile = (tile - mean[:, None]) * ok.to(tl.float32)
    scale = 1.0 / tl.sqrt(tl.sum(tile * tile, axis=1) / n + eps)
    tl.store(y + r[:, None].to(tl.int64) * n + c, tile * scale[:, None], ok)
    tl.store(means + r, mean, r < n_rows)
    tl.store(scales + r, scale, r < n_rows)


def normalise(x, eps):
    rows, cols = x.shape
    y, mean, scale = x.new_empty(rows, cols), x.new_empty(rows, dtype=torch.float32), torch.empty(rows, device=x.device)
    rows_kernel[(triton.cdiv(rows, 2),)](
        x, y, mean, scale, x.stride(0), rows, cols, eps, ROWS=2, BLOCK=triton.next_power_of_2(cols)
    )
    return y, mean, scale
