"""A least-recently-used model of L2, fed with the tiles that programs touch in launch order: DRAM bytes without a GPU.

As many programs as the GPU holds are in flight, and the next one in launch order starts where one ends. What is still
in the cache is not fetched, and what was used longest ago leaves. Without `drift` all programs walk over K in step, the
best case for sharing. Real ones drift apart, and a tile that two programs share may have left before the second comes.
With L2_SHARE of an H200's L2 as capacity, and with DRIFT, the one number fitted here, the model comes within 2% of the
counters for programs in row order and in groups of 8 (a matmul of 8192 cubed in bf16), and 15% below them for groups
of 16. In row order it is steep: a drift of 0.04 gives a quarter less. A larger capacity with more drift meets the row
order as well (all of L2 with 0.1), but then groups of 8 and 16 come out 13% and 41% too low.

Only ratios matter: with tiles and cache scaled down together the traffic scales too, so that a grid of small tiles
stands for a large one. Imports neither torch nor triton.
"""

import heapq
import random
from collections import OrderedDict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass

#: How much of an H200's L2 one program's data may find room in: there a chain of loads begins to wait for DRAM
#: (`latency` in bench/results/h200.json). Why was not measured; each half of the chip may keep its own copy of a line.
L2_SHARE = 0.5

#: How much faster or slower than the mean a program may be, fitted to the bytes that an H200 reads in row order.
DRIFT = 0.05


class L2:
    """A cache of `capacity` bytes that holds whole tiles. read, written: bytes that passed between it and DRAM."""

    def __init__(self, capacity: float):
        if capacity <= 0:
            raise ValueError(f"capacity: got {capacity}, expected bytes above 0")
        self.capacity = capacity
        self.read = self.written = 0
        self._held: OrderedDict = OrderedDict()
        self._size = 0

    @property
    def held(self) -> tuple:
        """The tiles it holds, the one used longest ago first: that is the one to leave next."""
        return tuple(self._held)

    def load(self, tile: Hashable, nbytes: int) -> bool:
        """A program reads a tile; returns whether DRAM had to deliver it."""
        if tile in self._held:
            self._held.move_to_end(tile)
            return False
        self.read += nbytes
        self._keep(tile, nbytes)
        return True

    def store(self, tile: Hashable, nbytes: int) -> None:
        """A program writes a whole tile, once: it takes room, and DRAM gets it sooner or later."""
        self.written += nbytes
        self._keep(tile, nbytes)

    def _keep(self, tile, nbytes):
        self._size += nbytes - self._held.pop(tile, 0)
        self._held[tile] = nbytes
        while self._size > self.capacity and self._held:
            self._size -= self._held.popitem(last=False)[1]


@dataclass(frozen=True)
class Estimate:
    """What a matmul in some order moves: bytes between DRAM and L2, and bytes the programs ask of L2.

    a_times, b_times: how often each row of tiles of a, and each column of tiles of b, came from DRAM.
    """

    read: int
    written: int
    requested: int
    a_times: tuple
    b_times: tuple

    @property
    def bytes(self) -> int:
        """Read and written."""
        return self.read + self.written


def row_major(tiles_m: int, tiles_n: int) -> list:
    """The tiles of c as programs are numbered without grouping: (tile_m, tile_n), row by row."""
    return grouped(tiles_m, tiles_n, 1)


def grouped(tiles_m: int, tiles_n: int, group: int) -> list:
    """The tiles of c, `group` rows of tiles at a time, each group column by column; the last group may be lower."""
    return [
        (m, n)
        for first in range(0, tiles_m, group)
        for n in range(tiles_n)
        for m in range(first, min(first + group, tiles_m))
    ]


def matmul_dram(
    order: Sequence, shape: tuple, tile: tuple, itemsize: int, capacity: float, in_flight: int, drift: float = 0.0
) -> Estimate:
    """Estimated DRAM bytes of c = a @ b when program i computes the tile order[i] of c.

    order: [(tile_m, tile_n)] in launch order. shape: (M, N, K). tile: (BLOCK_M, BLOCK_N, BLOCK_K). capacity: bytes of
    L2. in_flight: programs that the GPU holds at once. drift: programs' speeds differ by up to this share, each one's
    own throughout (always the same random numbers). Ragged edges count what is inside. Raises ValueError where the
    order is not each tile once.
    """
    if in_flight < 1:
        raise ValueError(f"in_flight: got {in_flight}, expected at least 1 program")
    if not 0 <= drift < 1:
        raise ValueError(f"drift: got {drift}, expected 0 to less than 1")
    heights, widths, depths = (_parts(size, block) for size, block in zip(shape, tile))
    if sorted(order) != row_major(len(heights), len(widths)):
        raise ValueError(f"order: got {len(order)} tiles, expected each of {len(heights)} x {len(widths)} once")
    l2 = L2(capacity)
    a_fetched, b_fetched = [0] * len(heights), [0] * len(widths)
    schedule = _drifting(order, in_flight, len(depths), drift) if drift else _in_step(order, in_flight, len(depths))
    for step, rows, cols in schedule:
        if step == len(depths):
            for m, n in zip(rows, cols):
                l2.store((2, m, n), heights[m] * widths[n] * itemsize)
            continue
        depth = depths[step]
        for m in rows:
            a_fetched[m] += depth * l2.load((0, m, step), heights[m] * depth * itemsize)
        for n in cols:
            b_fetched[n] += depth * l2.load((1, n, step), depth * widths[n] * itemsize)
    M, N, K = shape
    requested = (M * K * len(widths) + K * N * len(heights) + M * N) * itemsize
    return Estimate(
        l2.read, l2.written, requested, tuple(times / K for times in a_fetched), tuple(times / K for times in b_fetched)
    )


def _in_step(order: Sequence, in_flight: int, steps: int) -> Iterator:
    """(step, rows of tiles, columns of tiles) as waves of programs touch them together; step `steps` is the store."""
    for first in range(0, len(order), in_flight):
        wave = order[first : first + in_flight]
        rows, cols = _first_uses(m for m, _ in wave), _first_uses(n for _, n in wave)
        for step in range(steps):
            yield step, rows, cols
        yield steps, *zip(*wave)


def _drifting(order: Sequence, in_flight: int, steps: int, drift: float) -> Iterator:
    """The same for programs of different speeds, each one by itself."""
    numbers, waiting, running = random.Random(0), iter(order), []

    def start(time):
        for m, n in waiting:
            pace = numbers.uniform(1 - drift, 1 + drift)
            return heapq.heappush(running, (time, numbers.random(), 0, pace, m, n))

    for _ in range(in_flight):
        start(0.0)
    while running:
        time, tie, step, pace, m, n = running[0]
        yield step, (m,), (n,)
        if step < steps:
            heapq.heapreplace(running, (time + (pace if step < steps - 1 else 0), tie, step + 1, pace, m, n))
        else:
            heapq.heappop(running)
            start(time + pace)


def _parts(size: int, block: int) -> list:
    """The lengths of the blocks that cover `size`: the last may be shorter."""
    return [min(block, size - start) for start in range(0, size, block)]


def _first_uses(items: Iterable) -> list:
    """Each item once, in order of first appearance."""
    return list(dict.fromkeys(items))
