"""Bias and GELU: y = gelu(x + bias) in GELU's tanh form, forward and backward.

Minimum traffic: the forward reads x once and writes y once; the backward reads dy and x once, writes dx once, and moves
fp32 partial sums of dbias. All rows share the bias, so caches serve it after its first read. The kernels compute in
fp32 and round once, at the store.

The tanh form comes from Hendrycks and Gimpel (2016). 0.5 z (1 + tanh u) = z sigmoid(2u), so no tanh is needed.
"""

import torch
from torch.autograd.function import once_differentiable

from instruments.backend import tl, triton
from instruments.gpus import GPU, GPUS
from instruments.traffic import Traffic
from kernels.shared.arguments import check_tensor, check_width, wants_grad
from kernels.shared.device import Device, device_of
from kernels.shared.rows import MAX_COLS, as_rows, sum_partials
from kernels.shared.tiles import LOG2E, backward_plan, check_path, forward_plan, launch, tile

CUBIC = tl.constexpr(0.044715)
TWO_U = tl.constexpr(1.5957691216057308)  # 2 sqrt(2/pi): 2u = TWO_U (z + CUBIC z^3)


def bias_gelu_reference(x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """The tanh form of gelu(x + bias) in plain PyTorch: ten ops."""
    z = x + bias
    u = (2 / torch.pi) ** 0.5 * (z + CUBIC.value * (z * z * z))
    return 0.5 * z * (1 + torch.tanh(u))


@triton.jit
def gelu(z):
    """z sigmoid(2u) with 2u = TWO_U (z + CUBIC z^3)."""
    return z / (1 + tl.exp2(z * (-TWO_U * LOG2E - TWO_U * LOG2E * CUBIC * (z * z))))


@triton.jit
def bias_gelu_kernel(
    x_ptr, bias_ptr, y_ptr,
    x_row_stride, x_col_stride,
    rows, cols,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """x [rows, cols] of any strides, bias [cols], y contiguous; a tile [ROWS, BLOCK]."""
    row, col, mask = tile(rows, cols, ROWS, BLOCK)
    x = tl.load(x_ptr + row * x_row_stride + col * x_col_stride, mask=mask).to(tl.float32)
    bias = tl.load(bias_ptr + col, mask=col < cols).to(tl.float32)
    tl.store(y_ptr + row * cols + col, gelu(x + bias).to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def bias_gelu_backward_kernel(
    dy_ptr, x_ptr, bias_ptr, dx_ptr, partial_ptr,
    x_row_stride, x_col_stride,
    rows, cols,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """A group of rows, a tile [ROWS, BLOCK] at a time: x, dy, dx [rows, cols], bias [cols], partial [groups, cols]."""
    group = tl.program_id(1)
    col = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)  # [BLOCK]
    bias = tl.load(bias_ptr + col, mask=col < cols).to(tl.float32)
    dbias = tl.zeros([ROWS, BLOCK], dtype=tl.float32)
    for start in tl.range(group * ROWS, rows, tl.num_programs(1) * ROWS):
        row = start.to(tl.int64) + tl.arange(0, ROWS)[:, None]  # [ROWS, 1]
        mask = (row < rows) & (col < cols)[None, :]  # [ROWS, BLOCK]
        x = tl.load(x_ptr + row * x_row_stride + col[None, :] * x_col_stride, mask=mask, other=0.0).to(tl.float32)
        dy = tl.load(dy_ptr + row * cols + col[None, :], mask=mask, other=0.0).to(tl.float32)
        z = tl.minimum(tl.maximum(x + bias[None, :], -16.0), 16.0)  # the slope is constant beyond; inf * 0 is a NaN
        squared = z * z
        sigmoid = 1 / (1 + tl.exp2(z * (-TWO_U * LOG2E - TWO_U * LOG2E * CUBIC * squared)))
        dx = dy * (sigmoid + z * sigmoid * (1 - sigmoid) * (TWO_U + 3 * TWO_U * CUBIC * squared))
        tl.store(dx_ptr + row * cols + col[None, :], dx.to(dx_ptr.dtype.element_ty), mask=mask)
        dbias += dx  # in padding dy is 0, and so is dx
    tl.store(partial_ptr + group.to(tl.int64) * cols + col, tl.sum(dbias, axis=0), mask=col < cols)


def check_bias(x: torch.Tensor, bias: torch.Tensor):
    """Raise ValueError unless bias fits the rows of x."""
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
    """The gradients of bias + GELU, which autograd calls.

    Args:
        dy: [..., cols], the gradient of y, the shape and dtype of x.
        x: [..., cols], fp16, bf16 or fp32.
        bias: [cols], contiguous.

    Returns:
        dx: [..., cols], the dtype of x, and dbias: [cols], the dtype of bias.

    Note:
        The arguments are not checked.
    """
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
    """Bias and GELU, gelu(x + bias) in the tanh form; differentiable in x and bias.

    Args:
        x: [..., cols], fp16, bf16 or fp32, cols 1 to 1,048,576, any strides.
        bias: [cols], the dtype of x or fp32.

    Returns:
        [..., cols], the dtype of x, contiguous.

    Raises:
        ValueError: naming the argument, what it is and what was expected.

    Note:
        x is copied only if no single stride can address its rows.
    """
    check_bias(x, bias)
    bias = bias.contiguous()
    return _BiasGELU.apply(x, bias) if wants_grad(x, bias) else _bias_gelu_forward(x, bias)


def bias_gelu_ops(rows: int, cols: int, dtype: torch.dtype) -> dict[str, Traffic]:
    """The traffic of each op of `bias_gelu_reference`, unfused in `dtype`, in order: ten kernels."""
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
    """The traffic of bias + GELU's forward.

    Args:
        rows: rows of x.
        cols: columns of x.
        dtype: dtype of x and y.
        path: 'fused', or 'naive' (ten unfused ops).
        cached: count the bias, which all rows share, once, as if caches served every further read; False counts the
            requested bytes of every program.
        bias_dtype: dtype of the bias; None for `dtype`.

    Returns:
        Bytes per tensor, FLOPs and launches.
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
    """The traffic of the backward and of its final sum.

    Args:
        rows: rows of x.
        cols: columns of x.
        dtype: dtype of all tensors.
        cached: as for `bias_gelu_traffic`.
        gpu: its number of SMs decides how many partial sums there are; the H200 of the recorded figures by default.

    Returns:
        Bytes per tensor, FLOPs and launches.
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
