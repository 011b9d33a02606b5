# wrong, traffic: a program per row of y reads dout
import torch
from instruments.backend import tl, triton


@triton.jit
def by_row(
    dout_ptr,
    y_ptr,
    scores_ptr,
    slots_ptr,
    dy_ptr,
    dgates_ptr,
    H,
    ds,
    ys,
    K: tl.constexpr,
    KP: tl.constexpr,
    B: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    slot = tl.load(slots_ptr + row)
    token = slot // K
    k = tl.arange(0, KP)
    total = tl.sum(tl.load(scores_ptr + token * K + k, mask=(k < K) & (slot >= 0), other=0.0), axis=0)
    gate = tl.load(scores_ptr + slot, mask=slot >= 0, other=0.0) / tl.where(slot >= 0, total, 1.0)
    sums = 0.0
    for start in range(0, H, B):
        c = start + tl.arange(0, B)
        dout = tl.load(dout_ptr + token.to(tl.int64) * ds + c, mask=(c < H) & (slot >= 0), other=0.0).to(tl.float32)
        y = tl.load(y_ptr + row * ys + c, mask=(c < H) & (slot >= 0), other=0.0).to(tl.float32)
        sums += tl.sum(dout * y, axis=0)
        tl.store(dy_ptr + row * H + c, gate * dout, mask=c < H)
    tl.store(dgates_ptr + slot, sums, mask=slot >= 0)


@triton.jit
def divide(dgates_ptr, scores_ptr, rows_ptr, dscores_ptr, K: tl.constexpr, KP: tl.constexpr):
    k = tl.arange(0, KP)
    at = tl.program_id(0) * K + k
    there = tl.load(rows_ptr + at, mask=k < K, other=-1) >= 0
    score = tl.load(scores_ptr + at, mask=k < K, other=0.0)
    dgate = tl.load(dgates_ptr + at, mask=there, other=0.0)
    total = tl.sum(score, axis=0)
    tl.store(dscores_ptr + at, (dgate - tl.sum(score * dgate, axis=0) / total) / total, mask=k < K)


def combine_backward(dout, y, scores, rows, slots):
    K, H = rows.shape[1], y.shape[1]
    KP = triton.next_power_of_2(K)
    dy, dscores, dgates = (
        torch.empty(y.shape, dtype=y.dtype, device=y.device),
        torch.empty_like(scores),
        torch.empty_like(scores),
    )
    by_row[(len(y),)](dout, y, scores, slots, dy, dgates, H, dout.stride(0), y.stride(0), K, KP, 256)
    divide[(len(rows),)](dgates, scores, rows, dscores, K, KP)
    return dy, dscores
