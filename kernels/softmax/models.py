"""What lesson 06 steps through, computed without a kernel: passes over x, and the running max and sum of a row.

The panels `softmax_passes` and `online_stepper` draw these. Online softmax: Milakov and Gimelshein, 2018.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch

from instruments.gpus import GPUS
from instruments.occupancy import RESIDENT
from instruments.traffic import Traffic
from kernels.softmax.ablation import PER_TILE, THREE, softmax_readings_traffic
from kernels.softmax.forward import softmax_traffic
from kernels.softmax.online import streaming_layout

UNFUSED, SAFE, ONLINE, RESIDENT_ROW = "unfused", "three reads", "two reads, online", "one read, resident"
#: What each pass over a tensor like x is for, in order; those that write begin with a dash.
PASSES = {
    UNFUSED: ("max", "sub", "-sub", "exp", "-exp", "sum", "div", "-div"),
    SAFE: ("m", "l", "y", "-y"),
    ONLINE: ("m, l", "y", "-y"),
    RESIDENT_ROW: ("all", "-y"),
}


def softmax_passes_traffic(form: str, rows: int, cols: int, dtype: torch.dtype = torch.bfloat16) -> Traffic | None:
    """The bytes that a form of softmax requests; None for rows too wide for it.

    Args:
        form: One of PASSES.
        rows: Rows of x.
        cols: Columns of x.
        dtype: Of x and y.
    """
    if form in (SAFE, ONLINE):
        return softmax_readings_traffic(rows, cols, dtype, THREE if form == SAFE else PER_TILE)
    try:
        return softmax_traffic(rows, cols, dtype, path="naive" if form == UNFUSED else "resident")
    except ValueError:
        return None


def rows_in_flight(rows: int, cols: int, gpu: str, dtype: torch.dtype = torch.bfloat16) -> int:
    """Rows that a GPU reads at a time: one per program, as many programs as fit by their warps."""
    warps = streaming_layout(cols, dtype.itemsize)["config"]["num_warps"]
    return min(rows, GPUS[gpu].sms * (RESIDENT[GPUS[gpu].arch][0] // warps))


BLOCK = 4
#: Logits, four blocks each; a logit of -inf is masked out.
ROWS = {
    "the max comes last": (0.3, 1.2, -0.6, 0.7, 1.0, -1.4, 2.0, 0.2, 0.9, 1.4, -0.3, 1.0, -0.7, 1.7, 3.2, 0.5),
    "the max comes first": (0.5, 3.2, 1.9, -0.8, 1.0, -0.4, 1.5, 0.8, 0.2, 2.0, -1.4, 1.2, 0.7, -0.5, 1.2, 0.4),
    "a block of −inf first": (*[-math.inf] * 4, 1.1, -1.4, 2.0, 0.2, 0.9, 1.4, -0.3, 0.9, -0.8, 1.9, 3.2, 0.5),
}
RIGHT, NO_CORRECTION, NO_GUARD = "correct", "without the correction", "without the guard"
LOOPS = (RIGHT, NO_CORRECTION, NO_GUARD)
PARTS = ("the running max", "the correction", "the running sum")  # of a block's work, a step each
STEPS = 4 * len(PARTS)


@dataclass(frozen=True)
class OnlineState:
    """The loop's variables after a step.

    Attributes:
        old_max: The running max before this block.
        running_max: The running max now.
        correction: The factor that rescales the running sum.
        block_sum: This block's own sum of exponentials.
        parts: What each logit has contributed to the running sum so far.
        running_sum: The sum of `parts`.
    """

    old_max: float
    running_max: float
    correction: float
    block_sum: float
    parts: tuple
    running_sum: float


def _exp(x, running_max: float, guarded: bool):
    """exp(x - max); the guard takes 0 for a max of -inf, as -inf - -inf is NaN."""
    with np.errstate(invalid="ignore"):
        return np.exp(np.asarray(x) - (0.0 if guarded and running_max == -math.inf else running_max))


def online_states(row: tuple, loop: str = RIGHT) -> list[OnlineState]:
    """The state after each of the 12 steps: per block the running max, the correction and the running sum.

    Args:
        row: 16 logits, such as one of ROWS.
        loop: One of LOOPS; two of them leave a part out.
    """
    guarded, states = loop != NO_GUARD, []
    running_max, parts = -math.inf, np.zeros(len(row))
    for start in range(0, len(row), BLOCK):
        block = np.array(row[start : start + BLOCK])
        old_max, running_max = running_max, max(running_max, float(block.max()))
        correction = 1.0 if loop == NO_CORRECTION else float(_exp(old_max, running_max, guarded))
        new = _exp(block, running_max, guarded)
        for part in PARTS:
            if part == "the correction":
                parts = parts * correction
            if part == "the running sum":
                parts = parts.copy()
                parts[start : start + BLOCK] = new
            states.append(
                OnlineState(old_max, running_max, correction, float(new.sum()), tuple(parts), math.fsum(parts))
            )
    return states


def softmax_sum(row: tuple) -> float:
    """The sum of exp(x - max) over the whole row, which the loop has to arrive at."""
    return float(np.exp(np.array(row) - max(row)).sum())
