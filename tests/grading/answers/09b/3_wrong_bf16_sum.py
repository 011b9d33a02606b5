# wrong, mistake: rounded to 16 bits
import torch
from instruments.backend import tl, triton


@triton.jit
def scaled_linear_kernel(
    x_ptr,
    w_ptr,
    x_scale_ptr,
    w_scale_ptr,
    bias_ptr,
    y_ptr,
    M,
    N,
    K,
    x_stride,
    w_stride,
    x_scale_stride,
    w_scale_stride,
    BLOCK: tl.constexpr,
):
    row = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
    col = (tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
    total = tl.zeros([BLOCK, BLOCK], tl.float32)
    for start in range(0, K, 64):
        k = start + tl.arange(0, 64)
        x = tl.load(x_ptr + row[:, None] * x_stride + k[None, :], mask=(row[:, None] < M) & (k[None, :] < K), other=0.0)
        w = tl.load(w_ptr + k[:, None] + col[None, :] * w_stride, mask=(k[:, None] < K) & (col[None, :] < N), other=0.0)
        part = tl.dot(x, w)  # of one group, on the tensor cores
        group = start // 64
        x_scale = tl.load(x_scale_ptr + group * x_scale_stride + row, mask=row < M, other=0.0)
        w_scale = tl.load(w_scale_ptr + col // 32 * w_scale_stride + group, mask=col < N, other=0.0)
        total = (
            (total + part * x_scale[:, None] * w_scale[None, :]).to(tl.bfloat16).to(tl.float32)
        )  # the promotion, fp32
    bias = tl.load(bias_ptr + col, mask=col < N, other=0.0)
    y = total + bias[None, :]
    tl.store(y_ptr + row[:, None] * N + col[None, :], y.to(tl.bfloat16), mask=(row[:, None] < M) & (col[None, :] < N))


def scaled_linear(x, w, x_scale, w_scale, bias):
    (M, K), N = x.shape, w.shape[0]
    y = torch.empty((M, N), dtype=torch.bfloat16, device=x.device)
    grid = triton.cdiv(M, 64), triton.cdiv(N, 64)
    scaled_linear_kernel[grid](
        x,
        w,
        x_scale,
        w_scale,
        bias,
        y,
        M,
        N,
        K,
        x.stride(0),
        w.stride(0),
        x_scale.stride(0),
        w_scale.stride(0),
        BLOCK=64,
    )
    return y
