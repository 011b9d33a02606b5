"""Lesson 06's experiment: softmax of streamed rows in three passes over x (max, sum, output) or in two, with the max
and the sum online (Milakov and Gimelshein, 2018).

All forms share tile, warps, order and cache hints, so that the times differ by the pass alone. Minimum traffic and
reference are softmax's.
"""

import torch

from instruments.backend import tl, triton
from instruments.traffic import Traffic
from kernels.shared.arguments import check_tensor, check_width
from kernels.shared.rows import MAX_COLS
from kernels.shared.tiles import LOG2E
from kernels.softmax.online import LOWEST, absorb, merge

THREE, PER_GROUP, PER_TILE = "three readings", "two, a maximum per lane", "two, a maximum per tile"
PASSES = {THREE: 3, PER_GROUP: 2, PER_TILE: 2}  # over x, by the form's name in the records
WARPS = 32


@triton.jit
def softmax_readings_kernel(
    x_ptr, y_ptr,
    cols,
    PER_GROUP: tl.constexpr, PER_TILE: tl.constexpr,
    VECTOR: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One row per program in steps of [GROUPS, VECTOR], each pass from the start; x and y [rows, cols] contiguous."""
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * cols
    y_ptr += row * cols
    GROUPS: tl.constexpr = BLOCK // VECTOR
    step = tl.arange(0, GROUPS)[:, None] * VECTOR + tl.arange(0, VECTOR)[None, :]  # [GROUPS, VECTOR]
    running_max = tl.full([GROUPS], LOWEST, dtype=tl.float32)
    running_sum = tl.zeros([GROUPS], dtype=tl.float32)
    row_max = LOWEST + 0.0
    if not PER_GROUP and not PER_TILE:
        for start in tl.range(0, cols, BLOCK):
            x = tl.load(x_ptr + start + step, mask=start + step < cols, other=float("-inf")).to(tl.float32)
            running_max = tl.maximum(running_max, tl.max(x, axis=1))
        row_max = tl.max(running_max)
    for start in tl.range(0, cols, BLOCK):
        x = tl.load(x_ptr + start + step, mask=start + step < cols, other=float("-inf")).to(tl.float32)
        if PER_GROUP:
            running_max, running_sum = absorb(running_max, running_sum, x)
        else:
            if PER_TILE:
                new_max = tl.maximum(row_max, tl.max(x))
                running_sum *= tl.exp2((row_max - new_max) * LOG2E)
                row_max = new_max
            running_sum += tl.sum(tl.exp2((x - row_max) * LOG2E), axis=1)
    if PER_GROUP:
        row_max, row_sum = merge(running_max, running_sum)
    else:
        row_sum = tl.sum(running_sum)
    for start in tl.range(0, cols, BLOCK):
        mask = start + step < cols
        x = tl.load(x_ptr + start + step, mask=mask, other=0.0).to(tl.float32)
        y = tl.exp2((x - row_max) * LOG2E) * (1.0 / row_sum)
        tl.store(y_ptr + start + step, y.to(y_ptr.dtype.element_ty), mask=mask)


def softmax_readings(x: torch.Tensor, form: str = THREE) -> torch.Tensor:
    """Softmax over the last dimension by one form of the kernel.

    Args:
        x: [rows, cols], fp16, bf16 or fp32, cols 1 to 1,048,576, contiguous.
        form: a name of PASSES.

    Returns:
        [rows, cols], the dtype of x, contiguous.

    Raises:
        ValueError: naming the argument, what it is and what was expected.

    Note:
        A row that is all -inf, or contains +inf or NaN, becomes NaN.
    """
    check_tensor("x", x)
    if x.dim() != 2 or not x.is_contiguous():
        raise ValueError(f"x: got shape {tuple(x.shape)}, strides {x.stride()}, expected contiguous [rows, cols]")
    check_width("x", x, MAX_COLS)
    if form not in PASSES:
        raise ValueError(f"form: got {form!r}, expected one of: {'; '.join(PASSES)}")
    rows, cols = x.shape
    y = torch.empty_like(x)
    if x.numel():
        vector = 16 // x.itemsize  # elements of a thread's load
        tile = {"VECTOR": vector, "BLOCK": 32 * WARPS * vector, "num_warps": WARPS}
        softmax_readings_kernel[(rows,)](
            x, y, cols,
            PER_GROUP=form == PER_GROUP, PER_TILE=form == PER_TILE, **tile,
        )  # fmt: skip
    return y


def softmax_readings_traffic(rows: int, cols: int, dtype: torch.dtype, form: str = THREE) -> Traffic:
    """The requested bytes of one form of `softmax_readings`: x once per pass of PASSES, y once.

    Args:
        rows: rows of x.
        cols: columns of x.
        dtype: dtype of x and y.
        form: a name of PASSES.
    """
    full = rows * cols * dtype.itemsize
    return Traffic({"x": full * PASSES[form]}, {"y": full}, flops=5 * rows * cols, launches=1)
