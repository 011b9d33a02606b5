"""What lesson 08 computes without a kernel: one row tile by tile, the peak memory of unfused attention, and the tiles
that a mask leaves.

The panels `attention_row`, `attention_memory` and `tile_cursor` draw these.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from instruments.traffic import Traffic
from kernels.attention.configs import FORWARD
from kernels.attention.masks import attention_mask
from kernels.attention.traffic import key_ranges

FULL, CAUSAL, WINDOW, BOTH = "full", "causal", "window", "causal, window"
MASKS = (FULL, CAUSAL, WINDOW, BOTH)
TILE_M, TILE_N = (FORWARD["plain"][128][side] for side in ("BLOCK_M", "BLOCK_N"))  # for a head_dim of 128


def unfused_peak_bytes(work: Traffic, ops: dict[str, Traffic]) -> int:
    """Peak memory of eager ops: q, k and v, and what softmax reads and writes.

    Args:
        work: What `attention_traffic` gives.
        ops: What `attention_ops` gives for the same sizes.
    """
    return work.bytes_read + ops["softmax"].bytes


def longest_sequence(memory: int, bytes_at: Callable[[int], int]) -> int:
    """The longest sequence that fits in so many bytes.

    Args:
        memory: Bytes.
        bytes_at: Maps a sequence length to the bytes that it takes; increasing.
    """
    low, high = 0, 1
    while bytes_at(high) <= memory:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if bytes_at(middle) <= memory else (low, middle)
    return low


@lru_cache(maxsize=64)
def visited_tiles(queries: int, keys: int, mask: str, window: int) -> tuple[list[range], np.ndarray]:
    """The tiles of keys that each program of the forward visits, and what the mask leaves of every tile.

    Args:
        queries: A multiple of TILE_M; the last query is at the last key's position.
        keys: A multiple of TILE_N.
        mask: One of MASKS.
        window: Keys less than so many positions away are attended to, where the mask has a window.

    Returns:
        (programs, pairs): a range of tiles of keys per program; and how many pairs of a query and a key that it attends
        to each tile has, [queries / TILE_M, keys / TILE_N].
    """
    causal, width = mask in (CAUSAL, BOTH), window if mask in (WINDOW, BOTH) else None
    ranges = key_ranges(queries, keys, causal, width, TILE_M, TILE_N)
    programs = [range(first // TILE_N, -(-last // TILE_N)) for first, _, last in ranges]
    query, key = np.indices((queries, keys))
    attended = attention_mask.fn(query, key, queries, keys, width or 0, causal, width is not None)
    pairs = attended.reshape(queries // TILE_M, TILE_M, keys // TILE_N, TILE_N).sum(axis=(1, 3))
    return programs, pairs


KEYS_PER_TILE = 2
#: Values of four keys, two numbers each: head_dim is 2.
VALUES = ((4.0, 0.0), (0.0, 2.0), (1.0, 3.0), (2.0, 1.0))
#: {name: the scores of one query with the four keys, in units of log2(e): a score s counts 2**s}
SCORE_ROWS = {
    "the largest score comes second": (1.0, 0.0, 3.0, 2.0),
    "the largest score comes first": (3.0, 2.0, 1.0, 0.0),
}
RIGHT, NO_RESCALE = "rescale l and out", "rescale l only"
ROW_LOOPS = (RIGHT, NO_RESCALE)
ROW_PARTS = ("scores", "rescale", "add")  # of each tile; at the end out is divided by l


@dataclass(frozen=True)
class RowState:
    """A row of attention after one step.

    Attributes:
        running_max, old_max: now, and before this tile.
        correction: of this tile; 0 for the first, which has nothing to rescale.
        weights: of this tile's keys.
        running_sum: of the weights so far.
        out: the output accumulator.
    """

    running_max: float
    old_max: float
    correction: float
    weights: tuple[float, ...]
    running_sum: float
    out: tuple[float, ...]


def row_states(scores: tuple, values: tuple = VALUES, loop: str = RIGHT) -> list[RowState]:
    """One row of attention: a state per step, three for each tile of KEYS_PER_TILE keys, then the division."""
    running_max, running_sum, out, states = -math.inf, 0.0, (0.0,) * len(values[0]), []
    for start in range(0, len(scores), KEYS_PER_TILE):
        tile, tile_values = (x[start : start + KEYS_PER_TILE] for x in (scores, values))
        new_max = max(running_max, *tile)
        correction = 2.0 ** (running_max - new_max)
        weights = tuple(2.0 ** (score - new_max) for score in tile)
        seen = new_max, running_max, correction, weights
        states.append(RowState(*seen, running_sum, out))
        running_sum *= correction
        if loop == RIGHT:
            out = tuple(x * correction for x in out)
        states.append(RowState(*seen, running_sum, out))
        running_sum += sum(weights)
        out = tuple(x + sum(w * v[at] for w, v in zip(weights, tile_values)) for at, x in enumerate(out))
        states.append(RowState(*seen, running_sum, out))
        running_max = new_max
    return [*states, RowState(*seen, running_sum, tuple(x / running_sum for x in out))]


def row_output(scores: tuple, values: tuple = VALUES) -> tuple[float, ...]:
    """Softmax in base 2 of the scores, times the values, all keys at once."""
    weights = [2.0 ** (score - max(scores)) for score in scores]
    return tuple(sum(w * x for w, x in zip(weights, column)) / sum(weights) for column in zip(*values))
