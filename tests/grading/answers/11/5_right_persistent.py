# right
import torch
from instruments.backend import tl, triton


@triton.jit
def loop(
    dout_ptr,
    y_ptr,
    scores_ptr,
    rows_ptr,
    slots_ptr,
    dy_ptr,
    dscores_ptr,
    T,
    N,
    H,
    ds,
    ys,
    K: tl.constexpr,
    KP: tl.constexpr,
    B: tl.constexpr,
):
    """The first T of T + N pieces of work are tokens, the others rows."""
    k, c = tl.arange(0, KP), tl.arange(0, B)
    for work in range(tl.program_id(0), T + N, tl.num_programs(0)):
        if work < T:
            score = tl.load(scores_ptr + work * K + k, mask=k < K, other=0.0)
            row = tl.load(rows_ptr + work * K + k, mask=k < K, other=-1)
            share = score / tl.sum(score, axis=0)
            mask = (row != -1)[:, None] & (c < H)[None, :]
            d = tl.load(dout_ptr + work * ds + c, mask=c < H, other=0.0).to(tl.float32)[None, :]
            y = tl.load(y_ptr + row[:, None] * ys + c[None, :], mask=mask, other=0.0).to(tl.float32)
            tl.store(
                dy_ptr + row[:, None] * H + c[None, :], (share[:, None] * d).to(dy_ptr.dtype.element_ty), mask=mask
            )
            dshare = tl.sum(y * d, axis=1)
            dscore = (dshare - tl.sum(dshare * share, axis=0)) / tl.sum(score, axis=0)
            tl.store(dscores_ptr + work * K + k, dscore, mask=k < K)
        else:
            if tl.load(slots_ptr + work - T) == -1:
                tl.store(dy_ptr + (work - T) * H + c, tl.zeros([B], tl.float32).to(dy_ptr.dtype.element_ty), mask=c < H)


def combine_backward(dout, y, scores, rows, slots):
    (T, K), (N, H) = rows.shape, y.shape
    dy = torch.zeros((N, H), dtype=y.dtype, device=y.device)
    dscores = torch.empty((T, K), dtype=torch.float32, device=y.device)
    loop[(min(T + N, 264),)](
        dout,
        y,
        scores,
        rows,
        slots,
        dy,
        dscores,
        T,
        N,
        H,
        dout.stride(0),
        y.stride(0),
        K,
        triton.next_power_of_2(K),
        triton.next_power_of_2(H),
    )
    return dy, dscores
