# right
import torch
from instruments.backend import tl, triton


@triton.jit
def tokens_kernel(
    dout_ptr,
    y_ptr,
    scores_ptr,
    rows_ptr,
    dy_ptr,
    dscores_ptr,
    H,
    ds,
    ys,
    K: tl.constexpr,
    KP: tl.constexpr,
    B: tl.constexpr,
):
    token = tl.program_id(0).to(tl.int64)
    k = tl.arange(0, KP)
    score = tl.load(scores_ptr + token * K + k, mask=k < K, other=0.0)
    total = tl.sum(score, axis=0)
    dgates = tl.zeros([KP], dtype=tl.float32)
    for start in tl.range(0, H, B):
        c = start + tl.arange(0, B)
        dout = tl.load(dout_ptr + token * ds + c, mask=c < H, other=0.0).to(tl.float32)
        for i in tl.static_range(K):
            row = tl.load(rows_ptr + token * K + i).to(tl.int64)
            gate = tl.load(scores_ptr + token * K + i) / total
            mask = (c < H) & (row >= 0)
            y = tl.load(y_ptr + row * ys + c, mask=mask, other=0.0).to(tl.float32)
            dgates += tl.where(k == i, tl.sum(dout * y), 0.0)
            tl.store(dy_ptr + row * H + c, (gate * dout).to(dy_ptr.dtype.element_ty), mask=mask)
    dscores = dgates / total - tl.sum(score * dgates, axis=0) / (total * total)
    tl.store(dscores_ptr + token * K + k, dscores, mask=k < K)


@triton.jit
def zeros_kernel(slots_ptr, dy_ptr, N, H, R: tl.constexpr, B: tl.constexpr):
    row, c = tl.program_id(0) * R + tl.arange(0, R), tl.arange(0, B)
    empty = tl.load(slots_ptr + row, mask=row < N, other=0) < 0
    at = row.to(tl.int64)[:, None] * H + c[None, :]
    tl.store(dy_ptr + at, tl.zeros([R, B], dtype=dy_ptr.dtype.element_ty), mask=empty[:, None] & (c < H)[None, :])


def combine_backward(dout, y, scores, rows, slots):
    (T, K), (N, H) = rows.shape, y.shape
    dy, dscores = y.new_empty((N, H)), scores.new_empty((T, K))
    tokens_kernel[(T,)](
        dout, y, scores, rows, dy, dscores, H, dout.stride(0), y.stride(0), K, triton.next_power_of_2(K), 512
    )
    zeros_kernel[(triton.cdiv(N, 8),)](slots, dy, N, H, 8, triton.next_power_of_2(H))
    return dy, dscores
