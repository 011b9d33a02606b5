# right
import torch
from instruments.backend import tl, triton


@triton.jit
def any_linear_kernel(
    x_ptr,
    w_ptr,
    y_ptr,
    M,
    N,
    K,
    x_row_stride,
    x_col_stride,
    w_row_stride,
    w_col_stride,
    K_ROUNDED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    col = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK, BLOCK], dtype=tl.float32)
    for start in range(0, K_ROUNDED, BLOCK):
        k = start + tl.arange(0, BLOCK).to(tl.int64)
        x = tl.load(
            x_ptr + row[:, None] * x_row_stride + k[None, :] * x_col_stride,
            mask=(row[:, None] < M) & (k[None, :] < K),
            other=0.0,
        )
        w = tl.load(
            w_ptr + col[None, :] * w_row_stride + k[:, None] * w_col_stride,
            mask=(col[None, :] < N) & (k[:, None] < K),
            other=0.0,
        )
        total = tl.dot(x, w, total, input_precision="ieee")
    tl.store(y_ptr + row[:, None] * N + col[None, :], total, mask=(row[:, None] < M) & (col[None, :] < N))


def any_linear(x, w):
    (M, K), N = x.shape, w.shape[0]
    y = torch.empty(M, N, dtype=torch.float32, device=x.device)
    grid = (triton.cdiv(M, 32), triton.cdiv(N, 32))
    any_linear_kernel[grid](
        x, w, y, M, N, K, *x.stride(), *w.stride(), K_ROUNDED=max(128, triton.next_power_of_2(K)), BLOCK=32
    )
    return y
