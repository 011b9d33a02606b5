# wrong, values: Loop over all columns
import torch

from instruments.backend import tl, triton


@triton.jit
def skinny_kernel(
    weight_ptr,
    x_ptr,
    y_ptr,
    rows,
    columns,
    weight_stride,
    TOKENS: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    n = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    t = tl.arange(0, 4)
    acc = tl.zeros((BLOCK_N, 4), tl.float32)
    for k0 in range(0, min(columns, 16384), BLOCK_K):
        k = k0 + tl.arange(0, BLOCK_K)
        w = tl.load(
            weight_ptr + n[:, None] * weight_stride + k[None, :],
            mask=(n[:, None] < rows) & (k[None, :] < columns),
            other=0.0,
        )
        x = tl.load(
            x_ptr + t[:, None] * columns + k[None, :], mask=(t[:, None] < TOKENS) & (k[None, :] < columns), other=0.0
        )
        acc += tl.sum(w.to(tl.float32)[:, None, :] * x.to(tl.float32)[None, :, :], axis=2)
    tl.store(y_ptr + n[:, None] * TOKENS + t[None, :], acc, mask=(n[:, None] < rows) & (t[None, :] < TOKENS))


def skinny(weight, x):
    rows, columns = weight.shape
    y = torch.empty((rows, x.shape[0]), dtype=torch.float16, device=x.device)
    skinny_kernel[(triton.cdiv(rows, 16),)](weight, x, y, rows, columns, weight.stride(0), x.shape[0], 16, 128)
    return y
