"""What lessons 05 and 05b step through without a kernel: passes over x, a second read of a row, Welford's update.

The panels `rmsnorm_passes`, `two_walks` and `welford_steps` draw these.
"""

from dataclasses import dataclass

import numpy as np
import torch

from instruments.cache import L2
from instruments.traffic import Traffic
from kernels.norms.rmsnorm import rmsnorm_ops, rmsnorm_traffic

SIX, TWICE, ONCE = "six kernels", "one kernel, reads twice", "one kernel, keeps the row"
FORMS = (SIX, TWICE, ONCE)


@dataclass(frozen=True)
class Step:
    """A part of a kernel: the kernel's number from 1, what it does, and the bytes that it moves."""

    kernel: int
    name: str
    work: Traffic


def rmsnorm_steps(form: str, rows: int, cols: int, dtype: torch.dtype) -> list[Step]:
    """The steps of RMSNorm in order: one per eager op, or two of a fused kernel, the sum and the scaling.

    Args:
        form: One of FORMS.
        rows: Rows of x.
        cols: Columns of x.
        dtype: Of x, the weight and y.
    """
    if form == SIX:
        return [Step(i, name, work) for i, (name, work) in enumerate(rmsnorm_ops(rows, cols, dtype).items(), 1)]
    moved = rmsnorm_traffic(rows, cols, dtype, path="two_pass" if form == TWICE else "minimum")
    x, weight, y = moved.read["x"], moved.read["weight"], moved.written["y"]
    first = rows * cols * dtype.itemsize
    again = {"x": x - first} if x > first else {}
    return [
        Step(1, "sum of squares, tile by tile" if again else "sum of squares", Traffic({"x": first}, {}, launches=1)),
        Step(1, "x * scale * weight", Traffic({**again, "weight": weight}, {"y": y})),
    ]


TILE_KIB = 4  # of 2,048 bf16 elements, as in rmsnorm.py's two_pass
FORWARDS, BACKWARDS = "forwards again", "backwards"


def read_twice(tiles: int, capacity: int, order: str) -> list[tuple[int, bool, tuple]]:
    """A row read twice, tile by tile, through an L1 that evicts the least recently used tile.

    Args:
        tiles: Tiles of the row.
        capacity: Tiles that L1 holds.
        order: Of the second read: FORWARDS or BACKWARDS.

    Returns:
        For each read in order: the tile, whether L1 had it, and what L1 holds after it, the oldest first.

    Note:
        A model: what a GPU's L1 evicts first is not published.
    """
    cache = L2(capacity)
    second = range(tiles) if order == FORWARDS else reversed(range(tiles))
    return [(tile, not cache.load(tile, 1), cache.held) for tile in (*range(tiles), *second)]


LANES, MEAN = 4, 10_000
#: A short row around 10,000, no multiple of the lanes: the last tile is ragged.
ROW = MEAN + np.array([1.6, -0.9, 0.3, 1.1, 0.4, -1.9, 1.2, 2.2, -0.6, -0.5, -0.9, 1.8, 1.0, -1.7])


def welford_lanes(row: np.ndarray, tiles: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Each lane's statistics after some tiles of LANES elements, by Welford's update (1962), in fp64.

    Args:
        row: [cols].
        tiles: Tiles read so far.

    Returns:
        (mean, sum of squared deviations, count), each [LANES].
    """
    mean, deviations, count = np.zeros(LANES), np.zeros(LANES), np.zeros(LANES)
    for at, x in enumerate(row[: tiles * LANES]):
        lane = at % LANES
        count[lane] += 1
        delta = x - mean[lane]
        mean[lane] += delta / count[lane]
        deviations[lane] += delta * delta * (count[lane] - 1) / count[lane]
    return mean, deviations, count
