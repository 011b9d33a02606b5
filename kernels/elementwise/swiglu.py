"""SwiGLU: y = silu(gate) * up, where silu(g) = g sigmoid(g), forward and backward.

Minimum traffic: the forward reads gate and up once and writes y once; the backward reads dy, gate and up once and
writes dgate and dup once. The kernels compute in fp32 and round once, at the store. SwiGLU comes from Shazeer (2020).
"""

import torch
import torch.nn.functional as F
from torch.autograd.function import once_differentiable

from instruments.backend import tl, triton
from instruments.traffic import Traffic
from kernels.shared.arguments import check_tensor, wants_grad
from kernels.shared.tiles import LOG2E, check_path, check_same, flat, launch, tile


def swiglu_reference(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """silu(gate) * up in plain PyTorch: two ops."""
    return F.silu(gate) * up


@triton.jit
def swiglu_kernel(
    gate_ptr, up_ptr, y_ptr,
    gate_row_stride, gate_col_stride, up_row_stride, up_col_stride,
    rows, cols,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """gate, up [rows, cols] of any strides, y contiguous; a tile [ROWS, BLOCK]."""
    row, col, mask = tile(rows, cols, ROWS, BLOCK)
    gate = tl.load(gate_ptr + row * gate_row_stride + col * gate_col_stride, mask=mask).to(tl.float32)
    up = tl.load(up_ptr + row * up_row_stride + col * up_col_stride, mask=mask).to(tl.float32)
    y = gate / (1 + tl.exp2(gate * -LOG2E)) * up
    tl.store(y_ptr + row * cols + col, y.to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def swiglu_backward_kernel(
    dy_ptr, gate_ptr, up_ptr, dgate_ptr, dup_ptr,
    gate_row_stride, gate_col_stride, up_row_stride, up_col_stride,
    rows, cols,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """gate, up [rows, cols] of any strides, dy, dgate, dup contiguous; a tile [ROWS, BLOCK]."""
    row, col, mask = tile(rows, cols, ROWS, BLOCK)
    gate = tl.load(gate_ptr + row * gate_row_stride + col * gate_col_stride, mask=mask).to(tl.float32)
    up = tl.load(up_ptr + row * up_row_stride + col * up_col_stride, mask=mask).to(tl.float32)
    dy = tl.load(dy_ptr + row * cols + col, mask=mask).to(tl.float32)
    sigmoid = 1 / (1 + tl.exp2(gate * -LOG2E))
    silu = gate * sigmoid
    dgate = dy * up * (sigmoid + silu * (1 - sigmoid))
    tl.store(dgate_ptr + row * cols + col, dgate.to(dgate_ptr.dtype.element_ty), mask=mask)
    tl.store(dup_ptr + row * cols + col, (dy * silu).to(dup_ptr.dtype.element_ty), mask=mask)


def _swiglu_forward(gate, up):
    y = torch.empty_like(gate, memory_format=torch.contiguous_format)
    if gate.numel():
        gate, up = flat(gate, up)
        launch(swiglu_kernel, [gate, up], [y], gate, up)
    return y


def swiglu_backward(dy: torch.Tensor, gate: torch.Tensor, up: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The gradients of SwiGLU, which autograd calls.

    Args:
        dy: the gradient of y, the shape and dtype of gate.
        gate: any shape and strides, fp16, bf16 or fp32.
        up: the shape and dtype of gate, any strides.

    Returns:
        dgate and dup: the shape and dtype of gate, contiguous.

    Note:
        The arguments are not checked.
    """
    dgate, dup = (torch.empty_like(gate, memory_format=torch.contiguous_format) for _ in range(2))
    if gate.numel():
        dy, (gate, up) = dy.contiguous(), flat(gate, up)
        launch(swiglu_backward_kernel, [dy, gate, up], [dgate, dup], gate, up)
    return dgate, dup


class _SwiGLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx, gate, up):
        ctx.save_for_backward(gate, up)
        return _swiglu_forward(gate, up)

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        return swiglu_backward(dy, *ctx.saved_tensors)


def swiglu(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """SwiGLU, silu(gate) * up with silu(g) = g sigmoid(g); differentiable in both.

    Args:
        gate: any shape and strides, fp16, bf16 or fp32.
        up: the shape and dtype of gate, any strides.

    Returns:
        The shape and dtype of gate, contiguous.

    Raises:
        ValueError: naming the argument, what it is and what was expected.

    Note:
        gate and up may be the two halves of one projection. They are copied only if no single stride can address their
        rows.
    """
    check_tensor("gate", gate)
    check_same("up", up, "gate", gate)
    return _SwiGLU.apply(gate, up) if wants_grad(gate, up) else _swiglu_forward(gate, up)


def swiglu_ops(size: int, dtype: torch.dtype) -> dict[str, Traffic]:
    """The traffic of each op of `swiglu_reference`, unfused in `dtype`, in order: two kernels."""
    full = size * dtype.itemsize
    return {
        "silu": Traffic({"gate": full}, {"silu": full}, 4 * size, launches=1),
        "* up": Traffic({"silu": full, "up": full}, {"y": full}, size, launches=1),
    }


def swiglu_traffic(size: int, dtype: torch.dtype, path: str = "fused") -> Traffic:
    """The traffic of SwiGLU's forward over `size` elements. path: 'fused', or 'naive' (two unfused ops)."""
    check_path(path)
    if path == "naive":
        return sum(swiglu_ops(size, dtype).values())
    full = size * dtype.itemsize
    return Traffic({"gate": full, "up": full}, {"y": full}, 5 * size, launches=1)


def swiglu_backward_traffic(size: int, dtype: torch.dtype) -> Traffic:
    """The traffic of the backward over `size` elements, which recomputes silu and sigmoid instead of reading them."""
    full = size * dtype.itemsize
    return Traffic({"dy": full, "gate": full, "up": full}, {"dgate": full, "dup": full}, 11 * size, launches=1)
