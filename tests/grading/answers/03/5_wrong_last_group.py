# wrong, out_of_bounds: its own height
import torch
from instruments.backend import tl, triton


@triton.jit
def grouped_linear_kernel(x_ptr, w_ptr, y_ptr, order_ptr, M, N, K: tl.constexpr, GROUP: tl.constexpr):
    program = tl.program_id(0)
    tiles_m, tiles_n = M // 16, N // 16
    group = program // (GROUP * tiles_n)  # GROUP rows of tiles form a group
    first = group * GROUP
    height = GROUP  # the last one may be lower
    within = program - first * tiles_n
    tile_m, tile_n = first + within % height, within // height
    row = tile_m * 16 + tl.arange(0, 16)
    col = tile_n * 16 + tl.arange(0, 16)
    k = tl.arange(0, K)
    x = tl.load(x_ptr + row[:, None] * K + k[None, :])
    w = tl.load(w_ptr + col[None, :] * K + k[:, None])
    tl.store(y_ptr + row[:, None] * N + col[None, :], tl.dot(x, w, input_precision="ieee"))
    tl.store(order_ptr + program, tile_m * tiles_n + tile_n)


def grouped_linear(x, w):
    (M, K), N = x.shape, w.shape[0]
    programs = (M // 16) * (N // 16)
    y = torch.empty(M, N, dtype=torch.float32, device=x.device)
    order = torch.empty(programs, dtype=torch.int32, device=x.device)
    grouped_linear_kernel[(programs,)](x, w, y, order, M, N, K, GROUP=4)
    return y, order
