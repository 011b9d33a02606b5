# right
import torch
from instruments.backend import tl, triton


@triton.jit
def wide(x_ptr, w_ptr, s_ptr, y_ptr, M, N, K, stride, R: tl.constexpr, GROUPS: tl.constexpr):
    n, t = tl.program_id(0) * R + tl.arange(0, R), tl.arange(0, 16)
    b = tl.arange(0, 16 * GROUPS)
    y = tl.zeros([R, 16], tl.float32)
    for start in tl.range(0, K // 2, 16 * GROUPS, num_stages=2):
        inside = start + b < K // 2
        w = tl.load(w_ptr + n[:, None] * stride + start + b[None, :], (n < N)[:, None] & inside[None, :], 0)
        g = start // 16 + tl.arange(0, GROUPS)
        s = tl.load(s_ptr + n[:, None] * (K // 32) + g[None, :], (n < N)[:, None] & (g < K // 32)[None, :], 0.0)
        s = tl.reshape(tl.broadcast_to(s.to(tl.float32)[:, :, None], (R, GROUPS, 16)), (R, GROUPS * 16))
        column = (start + b) // 16 * 32 + b % 16
        at = x_ptr + t[None, :] * K + column[:, None]
        mask = inside[:, None] & (t < M)[None, :]
        low, high = tl.load(at, mask, 0.0).to(tl.float32), tl.load(at + 16, mask, 0.0).to(tl.float32)
        y = tl.dot(((w & 15).to(tl.float32) - 8.0) * s, low, y, input_precision="ieee")
        y = tl.dot(((w // 16).to(tl.float32) - 8.0) * s, high, y, input_precision="ieee")
    tl.store(y_ptr + t[None, :] * N + n[:, None], y, (n < N)[:, None] & (t < M)[None, :])


def q4_linear(x, packed, scales):
    y = torch.empty((x.shape[0], packed.shape[0]), device=x.device)
    grid = lambda meta: (triton.cdiv(y.shape[1], meta["R"]),)
    wide[grid](x, packed, scales, y, *y.shape, x.shape[1], packed.stride(0), R=64, GROUPS=2)
    return y
