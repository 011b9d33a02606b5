# right
import torch
from instruments.backend import tl, triton


@triton.jit
def forward(both_ptr, y_ptr, size, BLOCK: tl.constexpr):
    i = tl.program_id(0) * 2 * BLOCK + tl.arange(0, 2 * BLOCK)
    both = tl.load(both_ptr + i, i < 2 * size, 0).to(tl.float32)
    g, u = tl.split(tl.reshape(both, [BLOCK, 2]))
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + o, g / (1 + tl.exp(-1.702 * g)) * (u + 1), o < size)


@triton.jit
def backward(dy_ptr, both_ptr, d_ptr, size, BLOCK: tl.constexpr):
    i = tl.program_id(0) * 2 * BLOCK + tl.arange(0, 2 * BLOCK)
    both = tl.load(both_ptr + i, i < 2 * size, 0).to(tl.float32)
    g, u = tl.split(tl.reshape(both, [BLOCK, 2]))
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    dy = tl.load(dy_ptr + o, o < size, 0).to(tl.float32)
    s = 1 / (1 + tl.exp(-1.702 * g))
    d = tl.join(dy * (u + 1) * s * (1 + 1.702 * g * (1 - s)), dy * g * s)
    tl.store(d_ptr + i, tl.reshape(d, [2 * BLOCK]), i < 2 * size)


def swiglu(gate_up):
    y = gate_up.new_empty((len(gate_up), gate_up.shape[1] // 2))
    forward[(triton.cdiv(y.numel(), 256),)](gate_up, y, y.numel(), 256)
    return y


def swiglu_backward(dy, gate_up):
    d = torch.empty_like(gate_up)
    backward[(triton.cdiv(dy.numel(), 256),)](dy, gate_up, d, dy.numel(), 256)
    return d
