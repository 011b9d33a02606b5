# wrong, out_of_bounds: This input has padded rows
import torch
from instruments.backend import tl, triton


@triton.jit
def kernel(dy_ptr, x_ptr, offsets_ptr, dw_ptr, db_ptr, N, K, x_stride, T: tl.constexpr, R: tl.constexpr):
    e = tl.program_id(2)
    n = tl.program_id(0) * T + tl.arange(0, T)
    k = tl.program_id(1) * T + tl.arange(0, T)
    start, end = tl.load(offsets_ptr + e), tl.load(offsets_ptr + e + 1)
    dw, db = tl.zeros([T, T], tl.float32), tl.zeros([T], tl.float32)
    for first in range(start, end, R):
        row = first + tl.arange(0, R)
        inside = row < end
        dy = tl.load(dy_ptr + row[:, None] * N + n[None, :], inside[:, None] & (n[None, :] < N), 0.0)
        x = tl.load(x_ptr + row[:, None] * K + k[None, :], inside[:, None] & (k[None, :] < K), 0.0)
        dw = tl.dot(dy.T, x, dw)
        db += tl.sum(dy.to(tl.float32), 0)
    tl.store(dw_ptr + (e * N + n[:, None]) * K + k[None, :], dw, (n[:, None] < N) & (k[None, :] < K))
    if tl.program_id(1) == 0:
        tl.store(db_ptr + e * N + n, db, n < N)


def expert_gradients(dy, x, offsets):
    E, N, K = len(offsets) - 1, dy.shape[1], x.shape[1]
    dw, db = (torch.empty(*shape, dtype=torch.float32, device=x.device) for shape in ((E, N, K), (E, N)))
    kernel[(triton.cdiv(N, 32), triton.cdiv(K, 32), E)](dy, x, offsets, dw, db, N, K, x.stride(0), T=32, R=16)
    return dw, db
