"""Softmax of wide rows that are streamed, with a switch for how often a row is read: three times, for the maximum, the
sum and the output, or twice, with maximum and sum online.

It exists to be measured: what the saved reading is worth is seen where tile, warps, order and hints are the same. The
online forms are Milakov and Gimelshein's (2018).
"""

import torch

from instruments.backend import tl, triton
from instruments.traffic import Traffic
from kernels.arguments import check_tensor, check_width
from kernels.rows import MAX_COLS, streaming

THREE, PER_TILE, PER_LANE = "three readings", "two, a maximum per tile", "two, a maximum per lane"
READINGS = {THREE: 3, PER_TILE: 2, PER_LANE: 2}  # of a row
LOG2_E = tl.constexpr(1.4426950408889634)
LOWEST = tl.constexpr(-3.0e38)  # a maximum to start from that is finite, so that no -inf is taken from -inf


@triton.jit
def softmax_readings_kernel(x_ptr, y_ptr, cols, PER_TILE: tl.constexpr, PER_LANE: tl.constexpr, BLOCK: tl.constexpr):
    """One row in steps of [BLOCK], every time from its beginning; x and y [rows, cols] contiguous."""
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * cols
    y_ptr += row * cols
    lane = tl.arange(0, BLOCK)  # [BLOCK]
    total = tl.zeros([BLOCK], dtype=tl.float32)
    highest = LOWEST + tl.zeros([BLOCK], dtype=tl.float32)
    m = LOWEST + 0.0
    if not PER_TILE and not PER_LANE:
        for start in tl.range(0, cols, BLOCK):
            x = tl.load(x_ptr + start + lane, mask=start + lane < cols, other=-float("inf")).to(tl.float32)
            highest = tl.maximum(highest, x * LOG2_E)
        m = tl.max(highest)
    for start in tl.range(0, cols, BLOCK):
        x = tl.load(x_ptr + start + lane, mask=start + lane < cols, other=-float("inf")).to(tl.float32) * LOG2_E
        if PER_TILE:
            old = m
            m = tl.maximum(m, tl.max(x))
            total = total * tl.exp2(old - m) + tl.exp2(x - m)
        elif PER_LANE:
            old = highest
            highest = tl.maximum(highest, x)
            total = total * tl.exp2(old - highest) + tl.exp2(x - highest)
        else:
            total += tl.exp2(x - m)
    if PER_LANE:  # the lanes' maxima and sums become the row's
        m = tl.max(highest)
        total *= tl.exp2(highest - m)
    scale = 1 / tl.sum(total)
    for start in tl.range(0, cols, BLOCK):
        mask = start + lane < cols
        x = tl.load(x_ptr + start + lane, mask=mask, other=0.0).to(tl.float32) * LOG2_E
        tl.store(y_ptr + start + lane, (tl.exp2(x - m) * scale).to(y_ptr.dtype.element_ty), mask=mask)


def softmax_readings(x: torch.Tensor, form: str = THREE) -> torch.Tensor:
    """Softmax of the rows of x by one of READINGS.

    x: [rows, cols], contiguous, fp16, bf16 or fp32, cols 1 to 1,048,576. Returns y like x; a row of nothing but -inf is
    NaN, as are rows with NaN or inf. Raises ValueError naming the argument.
    """
    check_tensor("x", x)
    if x.dim() != 2 or not x.is_contiguous():
        raise ValueError(f"x: got shape {tuple(x.shape)}, strides {x.stride()}, expected contiguous [rows, cols]")
    check_width("x", x, MAX_COLS)
    if form not in READINGS:
        raise ValueError(f"form: got {form!r}, expected one of: {'; '.join(READINGS)}")
    rows, cols = x.shape
    y = torch.empty_like(x)
    if x.numel():
        config = streaming(cols, x.itemsize)["config"]
        softmax_readings_kernel[(rows,)](x, y, cols, PER_TILE=form == PER_TILE, PER_LANE=form == PER_LANE, **config)
    return y


def softmax_readings_traffic(rows: int, cols: int, dtype: torch.dtype, form: str = THREE) -> Traffic:
    """What the programs of a form ask for: x as often as READINGS says, and y once. FLOPs are not counted."""
    full = rows * cols * dtype.itemsize
    return Traffic({"x": full * READINGS[form]}, {"y": full}, launches=1)
