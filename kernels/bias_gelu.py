"""Bias and GELU: y = gelu(x + bias) in GELU's tanh form, forward and backward.

Minimum traffic: forward, x read once, y written once; backward, dy and x read once, dx written once, plus fp32 partial
sums of dbias. A bias of one row is read once and served by the caches. The tanh form is Hendrycks and Gimpel's (2016);
0.5 z (1 + tanh u) = z sigmoid(2u), so that no tanh is needed. Arithmetic is fp32, rounded once at the store.
"""

import torch
from torch.autograd.function import once_differentiable

from instruments.backend import tl, triton
from instruments.gpus import GPU, GPUS
from instruments.traffic import Traffic
from kernels.arguments import check_tensor, check_width, wants_grad
from kernels.rows import MAX_COLS, Device, as_rows, device_of, sum_partials
from kernels.tiles import LOG2E, backward_plan, check_path, forward_plan, launch, tile

CUBIC = tl.constexpr(0.044715)
TWO_U = tl.constexpr(1.5957691216057308)  # 2 sqrt(2/pi): 2u = TWO_U (z + CUBIC z^3)


def bias_gelu_reference(x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """The tanh form of gelu(x + bias), one op at a time: ten of them."""
    z = x + bias
    u = (2 / torch.pi) ** 0.5 * (z + CUBIC.value * (z * z * z))
    return 0.5 * z * (1 + torch.tanh(u))


@triton.jit
def gelu(z):
    """z sigmoid(2u) with 2u = TWO_U (z + CUBIC z^3)."""
    return z / (1 + tl.exp2(z * (-TWO_U * LOG2E - TWO_U * LOG2E * CUBIC * (z * z))))


@triton.jit
def bias_gelu_kernel(
    x_ptr, bias_ptr, y_ptr, x_row_stride, x_col_stride, rows, cols, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    """x [rows, cols] of any strides, bias [cols], y contiguous; a tile [ROWS, BLOCK]."""
    row, col, mask = tile(rows, cols, ROWS, BLOCK)
    x = tl.load(x_ptr + row * x_row_stride + col * x_col_stride, mask=mask).to(tl.float32)
    bias = tl.load(bias_ptr + col, mask=col < cols).to(tl.float32)
    tl.store(y_ptr + row * cols + col, gelu(x + bias).to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def bias_gelu_backward_kernel(
    dy_ptr,
    x_ptr,
    bias_ptr,
    dx_ptr,
    partial_ptr,
    x_row_stride,
    x_col_stride,
    rows,
    cols,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Every so many-th tile [ROWS, BLOCK] of x, dy, dx [rows, cols], bias [cols], partial [groups, cols]."""
    group = tl.program_id(1)
    col = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)  # [BLOCK]
    bias = tl.load(bias_ptr + col, mask=col < cols).to(tl.float32)
    dbias = tl.zeros([ROWS, BLOCK], dtype=tl.float32)
    for start in tl.range(group * ROWS, rows, tl.num_programs(1) * ROWS):
        row = start.to(tl.int64) + tl.arange(0, ROWS)[:, None]  # [ROWS, 1]
        mask = (row < rows) & (col < cols)[None, :]  # [ROWS, BLOCK]
        x = tl.load(x_ptr + row * x_row_stride + col[None, :] * x_col_stride, mask=mask, other=0.0).to(tl.float32)
        dy = tl.load(dy_ptr + row * cols + col[None, :], mask=mask, other=0.0).to(tl.float32)
        z = tl.minimum(tl.maximum(x + bias[None, :], -16.0), 16.0)  # flat beyond, and no infinity times zero
        squared = z * z
        sigmoid = 1 / (1 + tl.exp2(z * (-TWO_U * LOG2E - TWO_U * LOG2E * CUBIC * squared)))
        dx = dy * (sigmoid + z * sigmoid * (1 - sigmoid) * (TWO_U + 3 * TWO_U * CUBIC * squared))
        tl.store(dx_ptr + row * cols + col[None, :], dx.to(dx_ptr.dtype.element_ty), mask=mask)
        dbias += dx  # dy is 0 where the tile ends, and so is dx
    tl.store(partial_ptr + group.to(tl.int64) * cols + col, tl.sum(dbias, axis=0), mask=col < cols)


def check_bias(x: torch.Tensor, bias: torch.Tensor):
    """Raise ValueError unless bias is one for the rows of x."""
    check_tensor("x", x)
    check_width("x", x, MAX_COLS)
    check_tensor(
        "bias", bias, shape=x.shape[-1:], like=x, dtypes=(x.dtype, torch.float32), why=", the last dimension of x"
    )


def _bias_gelu_forward(x, bias):
    y = torch.empty_like(x, memory_format=torch.contiguous_format)
    if x.numel():
        x = as_rows(x)
        launch(bias_gelu_kernel, [x, bias], [y], x)
    return y


def bias_gelu_backward(dy: torch.Tensor, x: torch.Tensor, bias: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(dx, dbias) for y = bias_gelu(x, bias): what autograd calls, with arguments it has already checked."""
    dx, dbias = torch.empty_like(x, memory_format=torch.contiguous_format), torch.zeros_like(bias)
    if not x.numel():
        return dx, dbias
    x, dy = as_rows(x), dy.contiguous()
    rows, cols = x.shape
    plan = backward_plan(cols, device_of(x.device))
    groups = plan.programs(rows)
    partial = torch.empty((groups, cols), dtype=torch.float32, device=x.device)
    bias_gelu_backward_kernel[(plan.blocks, groups)](dy, x, bias, dx, partial, *x.stride(), rows, cols, **plan.config)
    sum_partials(partial, dbias)
    return dx, dbias


class _BiasGELU(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, bias):
        ctx.save_for_backward(x, bias)
        return _bias_gelu_forward(x, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        return bias_gelu_backward(dy, *ctx.saved_tensors)


def bias_gelu(x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """gelu(x + bias) in its tanh form; differentiable in x and bias.

    x: [..., cols], fp16, bf16 or fp32, cols 1 to 1,048,576, any strides; copied only where its rows cannot be addressed
    by one stride. bias: [cols], dtype of x or fp32. Returns a contiguous tensor of x's shape and dtype. Raises
    ValueError naming the argument.
    """
    check_bias(x, bias)
    bias = bias.contiguous()
    return _BiasGELU.apply(x, bias) if wants_grad(x, bias) else _bias_gelu_forward(x, bias)


def bias_gelu_ops(rows: int, cols: int, dtype: torch.dtype) -> dict[str, Traffic]:
    """What each op of `bias_gelu_reference`, run eagerly in `dtype`, reads and writes, in order: ten kernels."""
    size = rows * cols
    full = size * dtype.itemsize

    def op(read, written):
        return Traffic(dict.fromkeys(read, full), {written: full}, size, launches=1)

    shifted = Traffic({"x": full, "bias": cols * dtype.itemsize}, {"z": full}, size, launches=1)
    return {
        "x + bias": shifted,
        "z * z": op(["z"], "squared"),
        "* z": op(["squared", "z"], "cubed"),
        "0.044715 *": op(["cubed"], "scaled"),
        "z +": op(["z", "scaled"], "inner"),
        "sqrt(2/pi) *": op(["inner"], "u"),
        "0.5 * z": op(["z"], "half"),
        "tanh": op(["u"], "tanh"),
        "1 +": op(["tanh"], "gate"),
        "half * gate": op(["half", "gate"], "y"),
    }


def bias_gelu_traffic(
    rows: int,
    cols: int,
    dtype: torch.dtype,
    path: str = "fused",
    cached: bool = True,
    bias_dtype: torch.dtype | None = None,
) -> Traffic:
    """What bias + GELU forward moves. path: 'fused', or 'naive' (ten eager ops).

    cached: the bias, which all rows share, is counted once, as caches serve the rest; False counts what the programs
    ask for. bias_dtype: dtype unless given.
    """
    check_path(path)
    if path == "naive":
        return sum(bias_gelu_ops(rows, cols, dtype).values())
    full = rows * cols * dtype.itemsize
    row_blocks = 1 if cached else forward_plan(rows, cols).programs(rows)
    bias = cols * (bias_dtype or dtype).itemsize * row_blocks
    return Traffic({"x": full, "bias": bias}, {"y": full}, 8 * rows * cols, launches=1)


def bias_gelu_backward_traffic(
    rows: int, cols: int, dtype: torch.dtype, cached: bool = True, gpu: GPU | Device = GPUS["H200"]
) -> Traffic:
    """What the backward and its sum of fp32 partial sums move on a GPU, whose size decides how many of these there are.

    cached: as for `bias_gelu_traffic`. gpu: the H200 of the course's figures unless given, on any machine.
    """
    full, bias = rows * cols * dtype.itemsize, cols * dtype.itemsize
    groups = backward_plan(cols, gpu).programs(rows)
    partial = groups * cols * 4
    return Traffic(
        {"dy": full, "x": full, "bias": bias * (1 if cached else groups), "partial": partial},
        {"dx": full, "partial": partial, "total": bias},
        19 * rows * cols,
        launches=2,
    )
