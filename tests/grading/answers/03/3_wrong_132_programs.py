# wrong, unwritten: more tiles than a GPU has SMs
import torch
from instruments.backend import tl, triton


@triton.jit
def linear_kernel(x_ptr, w_ptr, y_ptr, N, K, x_row_stride, w_row_stride, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    col = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    k = tl.arange(0, BLOCK)
    x_ptrs = x_ptr + row[:, None] * x_row_stride + k[None, :]  # [M, K] of the tile
    w_ptrs = w_ptr + col[None, :] * w_row_stride + k[:, None]  # [K, N]: w is read transposed
    total = tl.zeros([BLOCK, BLOCK], dtype=tl.float32)
    for start in range(0, K, BLOCK):
        total = tl.dot(tl.load(x_ptrs + start), tl.load(w_ptrs + start), total, input_precision="ieee")
    tl.store(y_ptr + row[:, None] * N + col[None, :], total)


def linear(x, w):
    (M, K), N = x.shape, w.shape[0]
    y = torch.empty(M, N, dtype=torch.float32, device=x.device)
    linear_kernel[(M // 32, min(N // 32, 132))](x, w, y, N, K, x.stride(0), w.stride(0), BLOCK=32)
    return y
