# wrong, mistake: only one tile of K
import torch
from instruments.backend import tl, triton


@triton.jit
def grouped_linear_kernel(
    x_ptr,
    weight_ptr,
    bias_ptr,
    offsets_ptr,
    y_ptr,
    num_experts,
    N,
    K,
    x_row_stride,
    BLOCK_E: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    tile, e = tl.program_id(0), tl.arange(0, BLOCK_E)
    starts = tl.load(offsets_ptr + e, mask=e < num_experts, other=0)
    ends = tl.load(offsets_ptr + e + 1, mask=e < num_experts, other=0)
    tiles = (ends - starts + BLOCK_M - 1) // BLOCK_M  # of each expert, 0 for an empty one
    last = tl.cumsum(tiles, axis=0)  # tiles up to and with this expert
    if tile >= tl.sum(tiles, axis=0):
        return
    expert = tl.sum((last <= tile).to(tl.int32), axis=0)  # experts whose tiles all come before this one
    before = tl.sum(tl.where(e < expert, tiles, 0), axis=0)
    start = tl.sum(tl.where(e == expert, starts, 0), axis=0)
    end = tl.sum(tl.where(e == expert, ends, 0), axis=0)

    row = start + (tile - before) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    weight_ptr += expert.to(tl.int64) * N * K
    acc = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for k0 in range(0, 1, BLOCK_K):
        k = k0 + tl.arange(0, BLOCK_K)
        x = tl.load(
            x_ptr + row.to(tl.int64)[:, None] * x_row_stride + k[None, :],
            mask=(row < end)[:, None] & (k < K)[None, :],
            other=0.0,
        )  # [BLOCK_M, BLOCK_K]
        w = tl.load(
            weight_ptr + n[None, :] * K + k[:, None], mask=(n < N)[None, :] & (k < K)[:, None], other=0.0
        )  # [BLOCK_K, BLOCK_N]
        acc = tl.dot(x, w, acc=acc)
    bias = tl.load(bias_ptr + expert * N + n, mask=n < N, other=0.0)
    z = tl.maximum(acc + bias[None, :], 0.0)
    tl.store(y_ptr + row.to(tl.int64)[:, None] * N + n[None, :], z * z, mask=(row < end)[:, None] & (n < N)[None, :])


def grouped_linear(x, weight, bias, offsets):
    rows, K = x.shape
    num_experts, N = weight.shape[:2]
    y = torch.empty(rows, N, dtype=x.dtype, device=x.device)
    BLOCK_M, BLOCK_N = 32, 64
    most = triton.cdiv(rows, BLOCK_M) + num_experts  # at most one partial tile per group
    grouped_linear_kernel[(most, triton.cdiv(N, BLOCK_N))](
        x,
        weight,
        bias,
        offsets,
        y,
        num_experts,
        N,
        K,
        x.stride(0),
        BLOCK_E=triton.next_power_of_2(num_experts),
        BLOCK_M=BLOCK_M,
        BLOCK_N=BLOCK_N,
        BLOCK_K=64,
    )
    return y
