# right
import torch
from instruments.backend import tl, triton


@triton.jit
def one_load(x_ptr, packed_ptr, scales_ptr, rows, cols, stride, B: tl.constexpr):
    start = tl.program_id(1) * 32
    r, c = start + tl.arange(0, 32), tl.program_id(0) * B + tl.arange(0, B)
    x = tl.load(x_ptr + r[:, None].to(tl.int64) * stride + c[None, :], (r < rows)[:, None] & (c < cols)[None, :], 0.0)
    x = x.to(tl.float32)
    amax = tl.max(tl.abs(x), 0)
    power = tl.ceil(tl.log2(tl.where(amax > 0, amax, 6.0) / 6))
    power += tl.where(amax > 6 * tl.exp2(power), 1.0, 0.0)
    power -= tl.where(amax <= 3 * tl.exp2(power), 1.0, 0.0)
    units = x / tl.exp2(tl.where(amax > 0, power, 0.0))[None, :]
    size = tl.abs(units)
    step = tl.where(size < 2, 0.5, tl.where(size < 4, 1.0, 2.0))
    n = size / step
    whole = tl.floor(n)
    half = n - whole
    odd = (whole.to(tl.int32) & 1) == 1
    n = tl.where((half > 0.5) | ((half == 0.5) & odd), whole + 1, whole)
    code = (n + tl.where(size < 2, 0.0, tl.where(size < 4, 2.0, 4.0))).to(tl.int32)
    code = tl.where(units < 0, code | 8, code)
    even, odd_rows = tl.split(tl.permute(tl.reshape(code, (16, 2, B)), (0, 2, 1)))
    byte = (even + odd_rows * 16).to(tl.uint8)
    p = start // 2 + tl.arange(0, 16)
    tl.store(
        packed_ptr + p[:, None].to(tl.int64) * cols + c[None, :], byte, (p < rows // 2)[:, None] & (c < cols)[None, :]
    )
    tl.store(
        scales_ptr + tl.program_id(1) * cols + c,
        tl.where(amax > 0, power + 127, 0.0).to(tl.int32).to(tl.uint8),
        c < cols,
    )


def quantize_down(x):
    rows, cols = x.shape
    blocks = triton.cdiv(rows, 32)
    packed, scales = x.new_empty((rows // 2, cols), dtype=torch.uint8), x.new_empty((blocks, cols), dtype=torch.uint8)
    one_load[(triton.cdiv(cols, 64), blocks)](x, packed, scales, rows, cols, x.stride(0), 64)
    return packed, scales
