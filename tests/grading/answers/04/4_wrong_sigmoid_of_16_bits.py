# wrong, exception: Convert right after the load
import torch
from instruments.backend import tl, triton


@triton.jit
def swiglu_kernel(gate_up_ptr, y_ptr, size, BLOCK: tl.constexpr):
    start = tl.program_id(0).to(tl.int64) * BLOCK
    pair = 2 * start + tl.arange(0, 2 * BLOCK)
    pairs = tl.load(gate_up_ptr + pair, mask=pair < 2 * size, other=0.0).to(tl.float32)
    gate, up = tl.split(tl.reshape(pairs, (BLOCK, 2)))
    y = gate * tl.sigmoid(1.702 * gate) * (up + 1)
    element = start + tl.arange(0, BLOCK)
    tl.store(y_ptr + element, y.to(y_ptr.dtype.element_ty), mask=element < size)


def swiglu(gate_up):
    rows, inter = gate_up.shape[0], gate_up.shape[1] // 2
    y = torch.empty((rows, inter), dtype=gate_up.dtype, device=gate_up.device)
    swiglu_kernel[(triton.cdiv(y.numel(), 1024),)](gate_up, y, y.numel(), BLOCK=1024)
    return y


@triton.jit
def swiglu_backward_kernel(dy_ptr, gate_up_ptr, dgate_up_ptr, size, BLOCK: tl.constexpr):
    element = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = element < size
    dy = tl.load(dy_ptr + element, mask=inside).to(tl.float32)
    gate = tl.load(gate_up_ptr + 2 * element, mask=inside)
    up = tl.load(gate_up_ptr + 2 * element + 1, mask=inside).to(tl.float32)
    sigmoid = tl.sigmoid(gate)
    dgate = dy * (up + 1) * (sigmoid + 1.702 * gate * sigmoid * (1 - sigmoid))
    dup = dy * gate * sigmoid
    tl.store(dgate_up_ptr + 2 * element, dgate.to(dgate_up_ptr.dtype.element_ty), mask=inside)
    tl.store(dgate_up_ptr + 2 * element + 1, dup.to(dgate_up_ptr.dtype.element_ty), mask=inside)


def swiglu_backward(dy, gate_up):
    dgate_up = torch.empty_like(gate_up)
    swiglu_backward_kernel[(triton.cdiv(dy.numel(), 1024),)](dy, gate_up, dgate_up, dy.numel(), BLOCK=1024)
    return dgate_up
