# right
import torch
from instruments.backend import tl, triton

GROUP = tl.constexpr(64)


@triton.jit
def one_group(x, w, xs, ws):
    return tl.dot(w, x) * xs[None, :] * ws[:, None]


@triton.jit
def walk(x_ptr, w_ptr, xs_ptr, ws_ptr, b_ptr, y_ptr, M, N, K, x_step, w_step, xs_step, ws_step, tiles, B: tl.constexpr):
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        m = (tile % tl.cdiv(M, B)) * B + tl.arange(0, B)
        n = (tile // tl.cdiv(M, B)) * B + tl.arange(0, B)
        y = tl.zeros((B, B), dtype=tl.float32)
        start = 0
        while start < K:
            k = start + tl.arange(0, GROUP)
            x = tl.load(x_ptr + m[None, :] * x_step + k[:, None], mask=(m[None, :] < M) & (k[:, None] < K), other=0.0)
            w = tl.load(w_ptr + n[:, None] * w_step + k[None, :], mask=(n[:, None] < N) & (k[None, :] < K), other=0.0)
            xs = tl.load(xs_ptr + start // GROUP * xs_step + m, mask=m < M, other=0)
            ws = tl.load(ws_ptr + n // 32 * ws_step + start // GROUP, mask=n < N, other=0)
            y += one_group(x, w, xs, ws)
            start += GROUP
        y += tl.load(b_ptr + n, mask=n < N, other=0)[:, None]
        tl.store(y_ptr + m[None, :] * N + n[:, None], y.to(tl.bfloat16), mask=(m[None, :] < M) & (n[:, None] < N))


def scaled_linear(x, w, x_scale, w_scale, bias):
    M, N, K = x.size(0), w.size(0), x.size(1)
    y = torch.zeros(M, N, dtype=torch.bfloat16, device=x.device)
    tiles = triton.cdiv(M, 32) * triton.cdiv(N, 32)
    walk[(min(tiles, 20),)](
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
        tiles,
        32,
    )
    return y
