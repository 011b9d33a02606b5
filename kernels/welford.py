"""Mean and scale of a row that is streamed once, for LayerNorm's forward and backward.

Welford's update (1962) per lane; the lanes are merged by Chan, Golub and LeVeque's rule (1979).
"""

from instruments.backend import tl, triton


@triton.jit
def row_mean_and_scale(x_ptr, x_col_stride, cols, eps, BLOCK: tl.constexpr):
    """(mean, 1/sqrt(var + eps)) of one row, streamed once: Welford's update per lane, the lanes merged at the end."""
    lane = tl.arange(0, BLOCK)  # [BLOCK]
    mean = tl.zeros([BLOCK], dtype=tl.float32)
    deviations = tl.zeros([BLOCK], dtype=tl.float32)  # sum of (x - mean)^2 of what the lane has seen
    seen = 0.0
    for start in tl.range(0, cols, BLOCK):
        mask = start + lane < cols
        x = tl.load(x_ptr + (start + lane) * x_col_stride, mask=mask, other=0.0, eviction_policy="evict_last")
        seen += 1.0
        delta = tl.where(mask, x.to(tl.float32) - mean, 0.0)
        mean += delta * (1.0 / seen)
        deviations += delta * delta * ((seen - 1.0) * (1.0 / seen))
    count = tl.maximum(tl.cdiv(cols - lane, BLOCK), 0).to(tl.float32)  # how many elements each lane has seen
    row_mean = tl.div_rn(tl.sum(mean * count), cols + 0.0)
    apart = mean - row_mean
    return row_mean, tl.rsqrt(tl.sum(deviations + apart * apart * count) / cols + eps)
