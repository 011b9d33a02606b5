"""Copy: y = x, the roof that every memory-bound kernel is measured against.

Minimum traffic: each byte of x read once and written once, 2 * numel * itemsize; no FLOPs. The kernel is the smallest
complete Triton program: where am I, which elements are mine, load, store.
"""

import torch

from instruments.backend import tl, triton
from instruments.traffic import Traffic
from kernels.arguments import check_tensor

BLOCK = 1024  # elements per program: one 16-byte load of 16-bit values for each of 128 threads


def copy_reference(x: torch.Tensor) -> torch.Tensor:
    """A copy of x, by torch."""
    return x.clone()


@triton.jit
def copy_kernel(x_ptr, y_ptr, size, BLOCK: tl.constexpr):
    """x, y [size], contiguous; a tile [BLOCK]."""
    start = tl.program_id(0).to(tl.int64) * BLOCK
    offsets = start + tl.arange(0, BLOCK)  # [BLOCK]
    mask = offsets < size
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets, mask=mask), mask=mask)


def copy(x: torch.Tensor) -> torch.Tensor:
    """A copy of x. x: contiguous, any shape, fp16, bf16 or fp32. Returns a tensor of the same shape and dtype.

    Raises ValueError for another dtype, device or a tensor that is not contiguous.
    """
    check_tensor("x", x)
    if not x.is_contiguous():
        raise ValueError(f"x: got strides {x.stride()} for shape {tuple(x.shape)}, expected a contiguous tensor")
    y = torch.empty_like(x)
    if x.numel():
        copy_kernel[(triton.cdiv(x.numel(), BLOCK),)](x, y, x.numel(), BLOCK, num_warps=4)
    return y


def copy_traffic(size: int, dtype: torch.dtype) -> Traffic:
    """Bytes that copying `size` elements moves."""
    nbytes = size * dtype.itemsize
    return Traffic(read={"x": nbytes}, written={"y": nbytes}, launches=1)
