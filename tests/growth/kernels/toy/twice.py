"""Twice a tensor: y = 2 x.

Minimum traffic: each byte of x read once and each byte of y written once, 2 * numel * itemsize. The kernel follows the
vector addition of Triton's tutorials (2021): each program loads one tile, doubles it and stores it.
"""

import torch

from instruments.backend import tl, triton
from instruments.traffic import Traffic
from kernels.shared.arguments import check_no_grad, check_tensor

BLOCK = 1024  # elements per program


def twice_reference(x: torch.Tensor) -> torch.Tensor:
    """2 x, in PyTorch."""
    return 2 * x


@triton.jit
def twice_kernel(
    x_ptr, y_ptr,  # tensors
    size,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """x, y [size], contiguous; a tile [BLOCK]."""
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)  # [BLOCK]
    mask = offsets < size
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(y_ptr + offsets, 2 * x, mask=mask)


def twice(x: torch.Tensor) -> torch.Tensor:
    """Doubles every element.

    Args:
        x: any shape, contiguous, fp16, bf16 or fp32.

    Returns:
        2 x, with the shape and dtype of x.

    Raises:
        ValueError: x has another dtype, is on another device, is not contiguous or requires a gradient.
    """
    check_tensor("x", x)
    check_no_grad("twice", x=x)
    if not x.is_contiguous():
        raise ValueError(f"x: got strides {x.stride()} for shape {tuple(x.shape)}, expected a contiguous tensor")
    y = torch.empty_like(x)
    if x.numel():
        twice_kernel[(triton.cdiv(x.numel(), BLOCK),)](x, y, x.numel(), BLOCK)
    return y


def twice_traffic(size: int, dtype: torch.dtype) -> Traffic:
    """The bytes, FLOPs and launches of doubling `size` elements."""
    nbytes = size * dtype.itemsize
    return Traffic(read={"x": nbytes}, written={"y": nbytes}, flops=size, launches=1)
