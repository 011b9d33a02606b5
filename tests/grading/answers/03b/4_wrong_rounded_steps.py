# wrong, values: Keep acc in fp32 over all of K
import torch
from triton.tools.tensor_descriptor import TensorDescriptor

from instruments.backend import tl, triton


@triton.jit
def descriptor_matmul_kernel(a, b, c, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    m = tl.program_id(1) * BLOCK_M
    n = tl.program_id(0) * BLOCK_N
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for k in range(0, tl.cdiv(K, BLOCK_K)):
        acc += tl.dot(a.load([m, k * BLOCK_K]), b.load([k * BLOCK_K, n])).to(c.dtype)
    c.store([m, n], acc.to(c.dtype))


def descriptor_matmul(a, b):
    M, K = a.shape
    N = b.shape[1]
    c = torch.empty((M, N), dtype=a.dtype, device=a.device)
    A = TensorDescriptor.from_tensor(a, [256, 64])
    B = TensorDescriptor.from_tensor(b, [64, 128])
    C = TensorDescriptor.from_tensor(c, [256, 128])
    descriptor_matmul_kernel[(triton.cdiv(N, 128), triton.cdiv(M, 256))](A, B, C, M, N, K, 256, 128, 64, num_warps=8)
    return c
