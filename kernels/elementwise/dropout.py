"""Bias, GELU and dropout: y = mask * gelu(x + bias) / (1 - p), with a mask that is never stored.

Minimum traffic: that of bias and GELU alone: read x once, write y once. Every program recomputes its part of the mask
by Philox, the counter-based generator of Salmon et al. (2011). The kernel computes in fp32 and rounds once.
"""

import torch

from instruments import backend
from instruments.backend import tl, triton
from instruments.traffic import Traffic
from kernels.elementwise.bias_gelu import bias_gelu_ops, bias_gelu_reference, bias_gelu_traffic, check_bias, gelu
from kernels.shared.arguments import check_no_grad
from kernels.shared.rows import as_rows
from kernels.shared.tiles import forward_plan, grid, tile

ROUNDS = 7  # of Philox: the fewest that pass BigCrush


def bias_gelu_dropout_reference(x: torch.Tensor, bias: torch.Tensor, mask: torch.Tensor, p: float) -> torch.Tensor:
    """bias_gelu in plain PyTorch, zero where `mask` is False and divided by 1 - p elsewhere."""
    return torch.where(mask, bias_gelu_reference(x, bias) / (1 - p), 0)


@triton.jit
def keep(row, cols, p, seed, ROUNDS: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """[ROWS, BLOCK] of booleans, True with probability 1 - p: a function of seed, row, column and cols.

    One Philox call returns four numbers, for four neighboring elements of a row.
    """
    four = tl.program_id(0).to(tl.int64) * (BLOCK // 4) + tl.arange(0, BLOCK // 4)[None, :]
    a, b, c, d = tl.rand4x(seed, row * tl.cdiv(cols, 4) + four, ROUNDS)  # [ROWS, BLOCK / 4] each
    return tl.reshape(tl.join(tl.join(a, c), tl.join(b, d)), [ROWS, BLOCK]) >= p


@triton.jit
def dropout_mask_kernel(mask_ptr, rows, cols, p, seed, ROUNDS: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """mask [rows, cols] of booleans, contiguous; a tile [ROWS, BLOCK]."""
    row, col, mask = tile(rows, cols, ROWS, BLOCK)
    tl.store(mask_ptr + row * cols + col, keep(row, cols, p, seed, ROUNDS, ROWS, BLOCK), mask=mask)


@triton.jit
def bias_gelu_dropout_kernel(
    x_ptr, bias_ptr, y_ptr,
    x_row_stride, x_col_stride,
    rows, cols, p, seed,
    ROUNDS: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """x [rows, cols] of any strides, bias [cols], y contiguous; a tile [ROWS, BLOCK]."""
    row, col, mask = tile(rows, cols, ROWS, BLOCK)
    x = tl.load(x_ptr + row * x_row_stride + col * x_col_stride, mask=mask).to(tl.float32)
    bias = tl.load(bias_ptr + col, mask=col < cols).to(tl.float32)
    y = tl.where(keep(row, cols, p, seed, ROUNDS, ROWS, BLOCK), gelu(x + bias) * (1 / (1 - p)), 0.0)
    tl.store(y_ptr + row * cols + col, y.to(y_ptr.dtype.element_ty), mask=mask)


def _check_dropout(p, seed):
    if not isinstance(p, (int, float)) or not 0 <= p < 1:
        raise ValueError(f"p: got {p!r}, expected a number from 0 to below 1")
    if not isinstance(seed, int) or not 0 <= seed < 1 << 63:
        raise ValueError(f"seed: got {seed!r}, expected an integer from 0 to 2^63 - 1")


def dropout_mask(shape: tuple, p: float, seed: int, device: torch.device | str | None = None) -> torch.Tensor:
    """The mask that `bias_gelu_dropout` applies to an x of this shape.

    Args:
        shape: of x; at least one dimension.
        p: probability that an element is dropped, at least 0 and below 1.
        seed: 0 to 2^63 - 1.
        device: the mask's device; None for the one that runs kernels.

    Returns:
        `shape`, bool, contiguous; False for dropped elements.

    Raises:
        ValueError: naming the argument, what it is and what was expected.
    """
    _check_dropout(p, seed)
    if len(shape) == 0:
        raise ValueError("shape: got a scalar's, expected at least one dimension")
    mask = torch.empty(shape, dtype=torch.bool, device=device or backend.device())
    if mask.numel():
        rows, cols = mask.view(-1, shape[-1]).shape
        plan = forward_plan(rows, cols)
        dropout_mask_kernel[grid(plan, rows)](mask, rows, cols, float(p), seed, ROUNDS=ROUNDS, **plan.config)
    return mask


def bias_gelu_dropout(x: torch.Tensor, bias: torch.Tensor, p: float, seed: int) -> torch.Tensor:
    """Bias, GELU and dropout, mask * gelu(x + bias) / (1 - p); not differentiable.

    Args:
        x: [..., cols], fp16, bf16 or fp32, cols 1 to 1,048,576, any strides.
        bias: [cols], the dtype of x or fp32.
        p: probability that an element is dropped, at least 0 and below 1.
        seed: 0 to 2^63 - 1.

    Returns:
        [..., cols], the dtype of x, contiguous.

    Raises:
        ValueError: naming the argument, what it is and what was expected.

    Note:
        The mask depends on the shape of x, p and seed alone and is never stored; `dropout_mask` returns it.
    """
    check_bias(x, bias)
    _check_dropout(p, seed)
    check_no_grad("bias_gelu_dropout", x=x, bias=bias)
    y = torch.empty_like(x, memory_format=torch.contiguous_format)
    if x.numel():
        x, bias = as_rows(x), bias.contiguous()
        rows, cols = x.shape
        plan = forward_plan(rows, cols)
        bias_gelu_dropout_kernel[grid(plan, rows)](
            x, bias, y, *x.stride(),
            rows, cols, float(p), seed,
            ROUNDS=ROUNDS, **plan.config,
        )  # fmt: skip
    return y


def bias_gelu_dropout_ops(rows: int, cols: int, dtype: torch.dtype) -> dict[str, Traffic]:
    """The traffic of each unfused op: `bias_gelu_ops`, then torch's dropout, which stores a mask."""
    size = rows * cols  # also the mask's bytes
    ops = bias_gelu_ops(rows, cols, dtype)
    last = ops.pop("half * gate")
    full = size * dtype.itemsize
    return {
        **ops,
        "half * gate": Traffic(last.read, {"gelu": full}, size, launches=1),
        "dropout": Traffic({"gelu": full}, {"y": full, "mask": size}, 2 * size, launches=1),
    }


def bias_gelu_dropout_traffic(
    rows: int, cols: int, dtype: torch.dtype, path: str = "fused", cached: bool = True
) -> Traffic:
    """The traffic of bias + GELU + dropout; fused, the same bytes as without dropout.

    Args:
        rows: rows of x.
        cols: columns of x.
        dtype: dtype of all tensors.
        path: 'fused', or 'naive' (eleven unfused ops).
        cached: as for `bias_gelu_traffic`.

    Returns:
        Bytes per tensor, FLOPs and launches.

    Note:
        Philox's integer operations, about as many instructions as all the rest, are not FLOPs and not counted.
    """
    if path == "naive":
        return sum(bias_gelu_dropout_ops(rows, cols, dtype).values())
    return bias_gelu_traffic(rows, cols, dtype, path, cached) + Traffic(flops=2 * rows * cols)
