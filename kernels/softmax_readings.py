"""Softmax of streamed rows, with a switch for how often a row is read: three times, for the maximum, the sum and the
output, or twice, with maximum and sum online.

It exists to be measured: what the saved reading is worth is seen where tile, warps, order and hints are the same.
Minimum traffic and reference are softmax's.
"""

import torch

from instruments.backend import tl, triton
from instruments.traffic import Traffic
from kernels.arguments import check_tensor, check_width
from kernels.online_softmax import LOWEST, absorb, merge
from kernels.rows import MAX_COLS
from kernels.tiles import LOG2E

THREE, PER_LANE, PER_TILE = "three readings", "two, a maximum per lane", "two, a maximum per tile"
READINGS = {THREE: 3, PER_LANE: 2, PER_TILE: 2}  # of a row
WARPS = 32


@triton.jit
def softmax_readings_kernel(
    x_ptr, y_ptr, cols, PER_LANE: tl.constexpr, PER_TILE: tl.constexpr, VECTOR: tl.constexpr, BLOCK: tl.constexpr
):
    """One row in steps of [LANES, VECTOR], every time from its beginning; x and y [rows, cols] contiguous."""
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * cols
    y_ptr += row * cols
    LANES: tl.constexpr = BLOCK // VECTOR
    step = tl.arange(0, LANES)[:, None] * VECTOR + tl.arange(0, VECTOR)[None, :]  # [LANES, VECTOR]
    lane_max = tl.full([LANES], LOWEST, dtype=tl.float32)
    total = tl.zeros([LANES], dtype=tl.float32)
    row_max = LOWEST + 0.0
    if not PER_LANE and not PER_TILE:
        for start in tl.range(0, cols, BLOCK):
            x = tl.load(x_ptr + start + step, mask=start + step < cols, other=float("-inf")).to(tl.float32)
            lane_max = tl.maximum(lane_max, tl.max(x, axis=1))
        row_max = tl.max(lane_max)
    for start in tl.range(0, cols, BLOCK):
        x = tl.load(x_ptr + start + step, mask=start + step < cols, other=float("-inf")).to(tl.float32)
        if PER_LANE:
            lane_max, total = absorb(lane_max, total, x)
        else:
            if PER_TILE:
                larger = tl.maximum(row_max, tl.max(x))
                total *= tl.exp2((row_max - larger) * LOG2E)
                row_max = larger
            total += tl.sum(tl.exp2((x - row_max) * LOG2E), axis=1)
    if PER_LANE:
        row_max, row_total = merge(lane_max, total)
    else:
        row_total = tl.sum(total)
    for start in tl.range(0, cols, BLOCK):
        mask = start + step < cols
        x = tl.load(x_ptr + start + step, mask=mask, other=0.0).to(tl.float32)
        y = tl.exp2((x - row_max) * LOG2E) * (1.0 / row_total)
        tl.store(y_ptr + start + step, y.to(y_ptr.dtype.element_ty), mask=mask)


def softmax_readings(x: torch.Tensor, form: str = THREE) -> torch.Tensor:
    """Softmax of the rows of x by one of READINGS.

    x: [rows, cols], contiguous, fp16, bf16 or fp32, cols 1 to 1,048,576. Returns y like x; a row that is all -inf, or
    holds +inf or NaN, comes out NaN. Raises ValueError naming the argument.
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
        vector = 16 // x.itemsize  # a thread's load, and its lane
        tile = {"VECTOR": vector, "BLOCK": 32 * WARPS * vector, "num_warps": WARPS}
        softmax_readings_kernel[(rows,)](x, y, cols, PER_LANE=form == PER_LANE, PER_TILE=form == PER_TILE, **tile)
    return y


def softmax_readings_traffic(rows: int, cols: int, dtype: torch.dtype, form: str = THREE) -> Traffic:
    """What the programs of a form ask for: x as often as READINGS says, and y once."""
    full = rows * cols * dtype.itemsize
    return Traffic({"x": full * READINGS[form]}, {"y": full}, flops=5 * rows * cols, launches=1)
