# right
import torch
from instruments.backend import tl, triton


@triton.jit
def pair(ptr, row, c, inter):
    g = tl.load(ptr + row * 2 * inter + 2 * c, c < inter, 0).to(tl.float32)
    return g, tl.load(ptr + row * 2 * inter + 2 * c + 1, c < inter, 0).to(tl.float32)


@triton.jit
def fw(x_ptr, y_ptr, inter, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, BLOCK)
    g, u = pair(x_ptr, row, c, inter)
    tl.store(y_ptr + row * inter + c, (u * g + g) * tl.sigmoid(1.702 * g), c < inter)


@triton.jit
def bw(dy_ptr, x_ptr, d_ptr, inter, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, BLOCK)
    g, u = pair(x_ptr, row, c, inter)
    dy = tl.load(dy_ptr + row * inter + c, c < inter, 0).to(tl.float32)
    s = tl.sigmoid(1.702 * g)
    tl.store(d_ptr + row * 2 * inter + 2 * c, (dy * u + dy) * (s + (1.702 * g * s) * (1 - s)), c < inter)
    tl.store(d_ptr + row * 2 * inter + 2 * c + 1, dy * (g * s), c < inter)


def swiglu(gate_up):
    rows, inter = len(gate_up), gate_up.shape[1] // 2
    y = torch.empty(rows, inter, dtype=gate_up.dtype, device=gate_up.device)
    fw[(rows,)](gate_up, y, inter, triton.next_power_of_2(inter))
    return y


def swiglu_backward(dy, gate_up):
    d = torch.zeros_like(gate_up)
    bw[(len(dy),)](dy, gate_up, d, dy.shape[1], triton.next_power_of_2(dy.shape[1]))
    return d
