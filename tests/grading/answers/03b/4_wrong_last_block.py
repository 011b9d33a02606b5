# wrong, mistake: adds to acc
import torch
from triton.tools.tensor_descriptor import TensorDescriptor

from instruments.backend import tl, triton


@triton.jit
def product_kernel(a, b, c, K, SIDE: tl.constexpr, DEPTH: tl.constexpr):
    row, col = tl.program_id(1) * SIDE, tl.program_id(0) * SIDE
    acc = tl.zeros([SIDE, SIDE], dtype=tl.float32)
    for k in range(0, K, DEPTH):
        acc = tl.dot(a.load([row, k]), b.load([k, col]))
    c.store([row, col], acc.to(c.dtype))


def descriptor_matmul(a, b):
    c = a.new_empty(a.shape[0], b.shape[1])
    describe = TensorDescriptor.from_tensor
    grid = (triton.cdiv(c.shape[1], 128), triton.cdiv(c.shape[0], 128))
    product_kernel[grid](
        describe(a, [128, 32]), describe(b, [32, 128]), describe(c, [128, 128]), a.shape[1], SIDE=128, DEPTH=32
    )
    return c
