# wrong, values
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
    row = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)[:, None]
    acc_0 = tl.zeros([BLOCK_N, BLOCK_K], dtype=tl.float16)  # a tile of partial sums per token
    acc_1 = tl.zeros([BLOCK_N, BLOCK_K], dtype=tl.float32)
    acc_2, acc_3 = acc_1, acc_1
    for start in range(0, columns, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)[None, :]
        inside = k < columns
        at = weight_ptr + row.to(tl.int64) * weight_stride + k
        w = tl.load(at, mask=(row < rows) & inside, other=0.0).to(tl.float32)
        acc_0 += (w * tl.load(x_ptr + k, mask=inside, other=0.0)).to(tl.float16)
        if TOKENS > 1:
            acc_1 += w * tl.load(x_ptr + columns + k, mask=inside, other=0.0).to(tl.float32)
        if TOKENS > 2:
            acc_2 += w * tl.load(x_ptr + 2 * columns + k, mask=inside, other=0.0).to(tl.float32)
        if TOKENS > 3:
            acc_3 += w * tl.load(x_ptr + 3 * columns + k, mask=inside, other=0.0).to(tl.float32)
    y_ptrs = y_ptr + row * TOKENS
    used = row < rows
    tl.store(y_ptrs, tl.sum(acc_0, axis=1, keep_dims=True).to(tl.float16), mask=used)
    if TOKENS > 1:
        tl.store(y_ptrs + 1, tl.sum(acc_1, axis=1, keep_dims=True).to(tl.float16), mask=used)
    if TOKENS > 2:
        tl.store(y_ptrs + 2, tl.sum(acc_2, axis=1, keep_dims=True).to(tl.float16), mask=used)
    if TOKENS > 3:
        tl.store(y_ptrs + 3, tl.sum(acc_3, axis=1, keep_dims=True).to(tl.float16), mask=used)


def skinny(weight, x):
    (rows, columns), tokens = weight.shape, x.shape[0]
    y = torch.empty(rows, tokens, dtype=torch.float16, device=weight.device)
    skinny_kernel[(triton.cdiv(rows, 8),)](
        weight, x, y, rows, columns, weight.stride(0), TOKENS=tokens, BLOCK_N=8, BLOCK_K=256, num_warps=4
    )
    return y
