# right
import torch
from instruments.backend import tl, triton

from math import e, log2

ALPHA = tl.constexpr(1.702)
FACTOR = tl.constexpr(-1.702 * log2(e))


@triton.jit
def swiglu_kernel(gate_up_ptr, y_ptr, size, BLOCK: tl.constexpr):
    element = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = element < size
    gate = tl.load(gate_up_ptr + 2 * element, mask=inside).to(tl.float32)
    up = tl.load(gate_up_ptr + 2 * element + 1, mask=inside).to(tl.float32)
    power = gate * FACTOR
    y = gate / (1 + tl.exp2(power)) * (up + 1)
    tl.store(y_ptr + element, y.to(y_ptr.dtype.element_ty), mask=inside)


def swiglu(gate_up):
    rows, inter = gate_up.shape[0], gate_up.shape[1] // 2
    y = torch.empty((rows, inter), dtype=gate_up.dtype, device=gate_up.device)
    swiglu_kernel[(triton.cdiv(y.numel(), 512),)](gate_up, y, y.numel(), BLOCK=512)
    return y


@triton.jit
def swiglu_backward_kernel(dy_ptr, gate_up_ptr, dgate_up_ptr, size, BLOCK: tl.constexpr):
    element = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = element < size
    dy = tl.load(dy_ptr + element, mask=inside).to(tl.float32)
    gate = tl.load(gate_up_ptr + 2 * element, mask=inside).to(tl.float32)
    up = tl.load(gate_up_ptr + 2 * element + 1, mask=inside).to(tl.float32)
    power = gate * FACTOR
    s = 1 / (1 + tl.exp2(power))
    dgate = dy * (up + 1) * (s + gate * ALPHA * s * (1 - s))
    tl.store(dgate_up_ptr + 2 * element, dgate.to(dgate_up_ptr.dtype.element_ty), mask=inside)
    tl.store(dgate_up_ptr + 2 * element + 1, (dy * gate * s).to(dgate_up_ptr.dtype.element_ty), mask=inside)


def swiglu_backward(dy, gate_up):
    dgate_up = torch.empty_like(gate_up)
    swiglu_backward_kernel[(triton.cdiv(dy.numel(), 512),)](dy, gate_up, dgate_up, dy.numel(), BLOCK=512)
    return dgate_up
