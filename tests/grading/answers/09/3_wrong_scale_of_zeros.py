# wrong, values: A group of zeros has codes 0 and the scale's code 0.
import torch

from instruments.backend import tl, triton


@triton.jit
def e2m1(units):
    a = tl.abs(units)
    code = (a > 0.25).to(tl.int32) + (a >= 0.75).to(tl.int32) + (a > 1.25).to(tl.int32) + (a >= 1.75).to(tl.int32)
    code += (a > 2.5).to(tl.int32) + (a >= 3.5).to(tl.int32) + (a > 5.0).to(tl.int32)
    return tl.where(units < 0, code + 8, code)


@triton.jit
def quantize_down_kernel(x_ptr, packed_ptr, scales_ptr, rows, cols, x_row_stride, BLOCK: tl.constexpr):
    c = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    g = tl.program_id(1)
    r = g * 32 + tl.arange(0, 32)
    ok = (r < rows)[:, None] & (c < cols)[None, :]
    x = tl.load(x_ptr + r[:, None] * x_row_stride + c[None, :], mask=ok, other=0.0).to(tl.float32)
    amax = tl.max(tl.abs(x), axis=0)
    bits = (amax / 6.0).to(tl.int32, bitcast=True)
    e = (bits >> 23) & 255
    scale0 = (e << 23).to(tl.float32, bitcast=True)
    e = tl.where(amax > 6.0 * scale0, e + 1, e)
    e = tl.where(amax == 0.0, 127, e)
    scale = tl.where(amax == 0.0, 1.0, (e << 23).to(tl.float32, bitcast=True))
    code = e2m1(x / scale[None, :])
    low, high = tl.split(tl.permute(tl.reshape(code, (16, 2, BLOCK)), (0, 2, 1)))
    pr = g * 16 + tl.arange(0, 16)
    tl.store(
        packed_ptr + pr[:, None] * cols + c[None, :],
        (low + high * 16).to(tl.uint8),
        mask=(pr < rows // 2)[:, None] & (c < cols)[None, :],
    )
    tl.store(scales_ptr + g * cols + c, e.to(tl.uint8), mask=c < cols)


def quantize_down(x):
    rows, cols = x.shape
    packed = torch.empty((rows // 2, cols), dtype=torch.uint8, device=x.device)
    scales = torch.empty((triton.cdiv(rows, 32), cols), dtype=torch.uint8, device=x.device)
    quantize_down_kernel[(triton.cdiv(cols, 64), triton.cdiv(rows, 32))](x, packed, scales, rows, cols, x.stride(0), 64)
    return packed, scales
