"""Copy: y = x. Its throughput, the copy bandwidth, is the yardstick of every memory-bound kernel.

Minimum traffic: read x once and write y once, 2 * numel * itemsize; no FLOPs. The kernel is the smallest complete
Triton program, after Triton's first tutorial (2021): which program am I, which elements are mine, load, store.
"""

import torch

from instruments.backend import cdiv, tl, triton
from instruments.traffic import Traffic
from kernels.shared.arguments import check_tensor

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
    """A copy of x.

    Args:
        x: any shape, fp16, bf16 or fp32, contiguous.

    Returns:
        The shape and dtype of x, contiguous.

    Raises:
        ValueError: naming the argument, what it is and what was expected.
    """
    check_tensor("x", x)
    if not x.is_contiguous():
        raise ValueError(f"x: got strides {x.stride()} for shape {tuple(x.shape)}, expected a contiguous tensor")
    y = torch.empty_like(x)
    if x.numel():
        copy_kernel[(cdiv(x.numel(), BLOCK),)](x, y, x.numel(), BLOCK, num_warps=4)
    return y


def copy_traffic(size: int, dtype: torch.dtype) -> Traffic:
    """The traffic of copying `size` elements."""
    nbytes = size * dtype.itemsize
    return Traffic(read={"x": nbytes}, written={"y": nbytes}, launches=1)
