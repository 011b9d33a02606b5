# wrong, values: 256 groups per row
import torch
from instruments.backend import tl, triton


@triton.jit
def q4_linear_kernel(
    x_ptr, packed_ptr, scales_ptr, y_ptr, tokens, N, K, packed_row_stride, T: tl.constexpr, BLOCK_N: tl.constexpr
):
    row = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    token = tl.arange(0, T)
    i = tl.arange(0, 16)
    inside, there = row < N, token < tokens
    packed_ptrs = packed_ptr + row.to(tl.int64)[None, :] * packed_row_stride + i[:, None]  # [16, BLOCK_N]
    x_ptrs = x_ptr + token[:, None] * K + i[None, :]  # [T, 16]
    acc = tl.zeros([T, BLOCK_N], tl.float32)
    for g in range(min(K // 32, 64)):
        bytes = tl.load(packed_ptrs + g * 16, mask=inside[None, :], other=0)
        low = (bytes & 15).to(tl.float16) - 8  # exact: an integer from -8 to 7
        high = (bytes >> 4).to(tl.float16) - 8
        x_low = tl.load(x_ptrs + g * 32, mask=there[:, None], other=0.0)
        x_high = tl.load(x_ptrs + g * 32 + 16, mask=there[:, None], other=0.0)
        part = tl.dot(x_low, low, acc=tl.dot(x_high, high))  # [T, BLOCK_N], fp32
        scale = tl.load(scales_ptr + row * (K // 32) + g, mask=inside, other=0.0)
        acc += part * scale.to(tl.float32)[None, :]  # once for the group's sum
    tl.store(y_ptr + token[:, None] * N + row[None, :], acc, mask=there[:, None] & inside[None, :])


def q4_linear(x, packed, scales):
    tokens, K = x.shape
    N = len(packed)
    y = torch.empty(tokens, N, dtype=torch.float32, device=x.device)
    q4_linear_kernel[(triton.cdiv(N, 16),)](
        x, packed, scales, y, tokens, N, K, packed.stride(0), T=16, BLOCK_N=16, num_warps=1
    )
    return y
