"""Mean and scale of a row in one pass, for LayerNorm's forward and backward on wide rows.

Each element of the tile has a running mean by Welford's update (1962); at the end the elements are merged by Chan,
Golub and LeVeque's rule (1979).
"""

from instruments.backend import tl, triton


@triton.jit
def row_mean_and_scale(x_ptr, x_col_stride, cols, eps, BLOCK: tl.constexpr):
    """(mean, 1/sqrt(var + eps)) of one row, read once in steps of [BLOCK]."""
    offset = tl.arange(0, BLOCK)  # [BLOCK]
    mean = tl.zeros([BLOCK], dtype=tl.float32)
    deviations = tl.zeros([BLOCK], dtype=tl.float32)  # running sum of (x - mean)^2
    steps = 0.0
    for start in tl.range(0, cols, BLOCK):
        mask = start + offset < cols
        x = tl.load(x_ptr + (start + offset) * x_col_stride, mask=mask, other=0.0, eviction_policy="evict_last")
        steps += 1.0
        delta = tl.where(mask, x.to(tl.float32) - mean, 0.0)
        mean += delta * (1.0 / steps)
        deviations += delta * delta * ((steps - 1.0) * (1.0 / steps))
    count = tl.maximum(tl.cdiv(cols - offset, BLOCK), 0).to(tl.float32)  # values per mean: the last step is ragged
    row_mean = tl.div_rn(tl.sum(mean * count), cols + 0.0)
    shift = mean - row_mean
    return row_mean, tl.rsqrt(tl.sum(deviations + shift * shift * count) / cols + eps)
