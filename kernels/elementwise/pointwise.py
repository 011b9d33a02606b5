"""Pointwise kernels without parameters: a chain of ops, fused or unfused, and the addition of two tensors.

Minimum traffic: read each input once, write the output once, however many ops are fused. The kernels compute in fp32
and round once, at the store. The addition is the vector addition of Triton's first tutorial (2021), for any strides.
"""

import torch

from instruments.backend import tl, triton
from instruments.traffic import Traffic
from kernels.shared.arguments import check_no_grad, check_tensor, wants_grad
from kernels.shared.tiles import check_same, flat, launch, tile

MAX_STEPS = 256
SCALE, SHIFT = tl.constexpr(-0.9375), tl.constexpr(0.5)  # of the chain: exact in bf16, and values stay near 1


def pointwise_chain_reference(x: torch.Tensor, steps: int) -> torch.Tensor:
    """`steps` ops, x * scale + shift at even positions and |x| at odd ones, in the precision of x."""
    for step in range(steps):
        x = x.abs() if step % 2 else x * SCALE.value + SHIFT.value
    return x


def add_reference(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """x + y, by torch."""
    return x + y


@triton.jit
def pointwise_chain_kernel(
    x_ptr, y_ptr,
    x_row_stride, x_col_stride,
    rows, cols,
    FIRST: tl.constexpr, STEPS: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """STEPS ops, the first at position FIRST: x [rows, cols] of any strides, y contiguous; a tile [ROWS, BLOCK]."""
    row, col, mask = tile(rows, cols, ROWS, BLOCK)
    y = tl.load(x_ptr + row * x_row_stride + col * x_col_stride, mask=mask).to(tl.float32)
    for step in tl.static_range(FIRST, FIRST + STEPS):
        if step % 2 == 0:
            y = y * SCALE + SHIFT
        else:
            y = tl.abs(y)  # the compiler would fold two scalings back to back into one
    tl.store(y_ptr + row * cols + col, y.to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def add_kernel(
    x_ptr, y_ptr, sum_ptr,
    x_row_stride, x_col_stride, y_row_stride, y_col_stride,
    rows, cols,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """x, y [rows, cols] of any strides, sum contiguous; a tile [ROWS, BLOCK]."""
    row, col, mask = tile(rows, cols, ROWS, BLOCK)
    x = tl.load(x_ptr + row * x_row_stride + col * x_col_stride, mask=mask).to(tl.float32)
    y = tl.load(y_ptr + row * y_row_stride + col * y_col_stride, mask=mask).to(tl.float32)
    tl.store(sum_ptr + row * cols + col, (x + y).to(sum_ptr.dtype.element_ty), mask=mask)


def pointwise_chain(x: torch.Tensor, steps: int, fused: bool = True) -> torch.Tensor:
    """A chain of pointwise ops, x * -0.9375 + 0.5 and |x| in turn; not differentiable.

    Args:
        x: any shape and strides, fp16, bf16 or fp32.
        steps: number of ops, 1 to 256.
        fused: whether one launch computes all ops, in fp32; otherwise there is one launch per op, and each rounds to
            the dtype of x.

    Returns:
        The shape and dtype of x, contiguous.

    Raises:
        ValueError: naming the argument, what it is and what was expected.
    """
    check_tensor("x", x)
    if not isinstance(steps, int) or not 1 <= steps <= MAX_STEPS:
        raise ValueError(f"steps: got {steps!r}, expected an integer from 1 to {MAX_STEPS}")
    check_no_grad("pointwise_chain", x=x)
    y = torch.empty_like(x, memory_format=torch.contiguous_format)
    if not x.numel():
        return y
    (x,), (out,) = flat(x), flat(y)
    if fused:
        launch(pointwise_chain_kernel, [x], [out], x, FIRST=0, STEPS=steps)
    else:
        for step in range(steps):
            source = out if step else x
            launch(pointwise_chain_kernel, [source], [out], source, FIRST=step % 2, STEPS=1)
    return y


def _add_forward(x, y):
    out = torch.empty_like(x, memory_format=torch.contiguous_format)
    if x.numel():
        x, y = flat(x, y)
        launch(add_kernel, [x, y], [out], x, y)
    return out


class _Add(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        return _add_forward(x, y)

    @staticmethod
    def backward(ctx, dsum):
        return dsum, dsum


def add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """x + y, rounded as in torch; differentiable in both.

    Args:
        x: any shape and strides, fp16, bf16 or fp32.
        y: the shape and dtype of x, any strides.

    Returns:
        The shape and dtype of x, contiguous.

    Raises:
        ValueError: naming the argument, what it is and what was expected.
    """
    check_tensor("x", x)
    check_same("y", y, "x", x)
    return _Add.apply(x, y) if wants_grad(x, y) else _add_forward(x, y)


def pointwise_chain_traffic(size: int, dtype: torch.dtype, steps: int, fused: bool = True) -> Traffic:
    """The traffic of a chain of `steps` ops over `size` elements; unfused, each op reads what the last one wrote."""
    full, flops = size * dtype.itemsize, size * (steps + (steps + 1) // 2)
    if fused:
        return Traffic({"x": full}, {"y": full}, flops, launches=1)
    again = {"y": full * (steps - 1)} if steps > 1 else {}
    return Traffic({"x": full, **again}, {"y": full * steps}, flops, launches=steps)


def add_traffic(size: int, dtype: torch.dtype) -> Traffic:
    """The traffic of adding two tensors of `size` elements."""
    full = size * dtype.itemsize
    return Traffic({"x": full, "y": full}, {"sum": full}, size, launches=1)
