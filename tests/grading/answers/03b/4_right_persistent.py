# right
import torch
from triton.tools.tensor_descriptor import TensorDescriptor

from instruments.backend import tl, triton


@triton.jit
def persistent_kernel(a, b, c, tiles, across, K, M_: tl.constexpr, N_: tl.constexpr, K_: tl.constexpr):
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0)):
        row, col = tile // across * M_, tile % across * N_
        acc = tl.zeros([M_, N_], dtype=tl.float32)
        for k in range(0, K, K_):
            acc = tl.dot(a.load([row, k]), b.load([k, col]), acc)
        c.store([row, col], acc.to(c.dtype))


def descriptor_matmul(a, b):
    (M, K), N = a.shape, b.shape[1]
    c = torch.empty((M, N), dtype=a.dtype, device=a.device)
    down, across = triton.cdiv(M, 256), triton.cdiv(N, 128)
    persistent_kernel[(min(down * across, 132),)](
        TensorDescriptor.from_tensor(a, [256, 64]),
        TensorDescriptor.from_tensor(b, [64, 128]),
        TensorDescriptor.from_tensor(c, [256, 128]),
        down * across,
        across,
        K,
        M_=256,
        N_=128,
        K_=64,
        num_warps=8,
    )
    return c
