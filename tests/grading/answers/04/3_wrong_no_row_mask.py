# wrong, out_of_bounds: mask for both
import torch
from instruments.backend import tl, triton


@triton.jit
def bias_gelu_tile_kernel(
    x_ptr, bias_ptr, y_ptr, x_row_stride, rows, cols, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr
):
    row = tl.program_id(1).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    column = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    inside = column < cols
    bias = tl.load(bias_ptr + column, mask=column < cols)
    z = tl.load(x_ptr + row * x_row_stride + column, mask=inside).to(tl.float32) + bias
    two_u = 1.5957691216057308 * (z + 0.044715 * z * z * z)
    y = z * tl.sigmoid(two_u)
    tl.store(y_ptr + row * cols + column, y.to(y_ptr.dtype.element_ty), mask=inside)


def bias_gelu(x, bias):
    rows, cols = x.shape
    y = torch.empty((rows, cols), dtype=x.dtype, device=x.device)
    BLOCK_M, BLOCK_N = 16, 256
    grid = (triton.cdiv(cols, BLOCK_N), triton.cdiv(rows, BLOCK_M))
    bias_gelu_tile_kernel[grid](x, bias, y, x.stride(0), rows, cols, BLOCK_M, BLOCK_N, num_warps=8)
    return y
