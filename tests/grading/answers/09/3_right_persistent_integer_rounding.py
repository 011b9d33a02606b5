# right
import torch
from instruments.backend import tl, triton


@triton.jit
def nibble(x, inverse):
    bits = (x * inverse).to(tl.int32, bitcast=True)
    size = tl.minimum((bits & 0x7FFFFFFF).to(tl.float32, bitcast=True), 6.0)
    small = size < 1.0
    b = tl.where(small, size + 1.0, size).to(tl.int32, bitcast=True)
    code = ((b + 0x1FFFFF + ((b >> 22) & 1)) >> 22) - 252 - tl.where(small, 2, 0)
    return code | ((bits >> 28) & 8)


@triton.jit
def persistent(x_ptr, packed_ptr, scales_ptr, rows, cols, stride, tiles, B: tl.constexpr):
    for job in range(tl.program_id(0), tl.cdiv(rows, 32) * tiles, tl.num_programs(0)):
        block, c = job // tiles, (job % tiles) * B + tl.arange(0, B)[None, :]
        i = block * 16 + tl.arange(0, 16)[:, None]
        mask = (i * 2 < rows) & (c < cols)
        row = i.to(tl.int64) * 2 * stride
        a = tl.load(x_ptr + row + c, mask=mask, other=0).to(tl.float32)
        b = tl.load(x_ptr + row + stride + c, mask=mask, other=0).to(tl.float32)
        amax = tl.maximum(tl.max(tl.abs(a), 0, keep_dims=True), tl.max(tl.abs(b), 0, keep_dims=True))
        over = amax * 1.3333334 * 0.9999999
        e = (amax.to(tl.int32, bitcast=True) >> 23) - 2
        scale = (tl.maximum(e, 1) << 23).to(tl.float32, bitcast=True)
        e = tl.where(amax > 6.0 * scale, e + 1, e)
        e = tl.where(amax > 0, e, 0)
        inverse = ((254 - e) << 23).to(tl.float32, bitcast=True)
        both = nibble(a, inverse) | (nibble(b, inverse) << 4)
        tl.store(packed_ptr + i.to(tl.int64) * cols + c, both, mask=mask)
        tl.store(scales_ptr + block * cols + c, e, mask=c < cols)


def quantize_down(x):
    rows, cols = x.shape
    packed = torch.zeros((rows // 2, cols), dtype=torch.uint8, device=x.device)
    scales = torch.empty(((rows + 31) // 32, cols), dtype=torch.uint8, device=x.device)
    tiles = triton.cdiv(cols, 32)
    persistent[(min(132, scales.shape[0] * tiles),)](x, packed, scales, rows, cols, x.stride(0), tiles, B=32)
    return packed, scales
