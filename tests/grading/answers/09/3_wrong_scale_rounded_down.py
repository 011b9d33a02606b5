# wrong, mistake: the scale was rounded down
import torch
from instruments.backend import tl, triton


@triton.jit
def e2m1(units):
    size = tl.abs(units)
    code = (size > 0.25).to(tl.int32) + (size >= 0.75) + (size > 1.25) + (size >= 1.75)
    return code + (size > 2.5) + (size >= 3.5) + (size > 5.0) + tl.where(units < 0, 8, 0)


@triton.jit
def quantize_down_kernel(x_ptr, packed_ptr, scales_ptr, rows, cols, x_row_stride, BLOCK: tl.constexpr):
    pair = tl.program_id(0) * 16 + tl.arange(0, 16)  # of rows: 32 of them share a scale
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = (2 * pair < rows)[:, None] & (column < cols)[None, :]
    even_ptrs = x_ptr + 2 * pair.to(tl.int64)[:, None] * x_row_stride + column[None, :]
    even = tl.load(even_ptrs, mask=inside, other=0.0).to(tl.float32)  # [16, BLOCK]
    odd = tl.load(even_ptrs + x_row_stride, mask=inside, other=0.0).to(tl.float32)  # [16, BLOCK]
    amax = tl.max(tl.maximum(tl.abs(even), tl.abs(odd)), axis=0)  # [BLOCK]

    bits = amax.to(tl.int32, bitcast=True)  # amax = 1.mantissa * 2**(exponent - 127)
    exponent, mantissa = bits >> 23, bits & 0x7FFFFF
    code = exponent - 2  # 6 = 1.5 * 2**2: one more where 1.mantissa > 1.5
    code = tl.maximum(code, 0)
    inverse = ((254 - code) << 23).to(tl.float32, bitcast=True)  # 2**(127 - code) = 1 / scale

    packed = e2m1(even * inverse[None, :]) | e2m1(odd * inverse[None, :]) << 4
    at = pair.to(tl.int64)[:, None] * cols + column[None, :]
    tl.store(packed_ptr + at, packed.to(tl.uint8), mask=inside)
    tl.store(scales_ptr + tl.program_id(0).to(tl.int64) * cols + column, code.to(tl.uint8), mask=column < cols)


def quantize_down(x):
    rows, cols = x.shape
    packed = torch.empty(rows // 2, cols, dtype=torch.uint8, device=x.device)
    scales = torch.empty(triton.cdiv(rows, 32), cols, dtype=torch.uint8, device=x.device)
    BLOCK = 128
    grid = (triton.cdiv(rows, 32), triton.cdiv(cols, BLOCK))
    quantize_down_kernel[grid](x, packed, scales, rows, cols, x.stride(0), BLOCK=BLOCK, num_warps=4)
    return packed, scales
