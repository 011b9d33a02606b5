"""The online softmax recurrence of Milakov and Gimelshein (2018), by which softmax.py and causal_softmax.py stream.

Its state is a pair: the largest value met so far, and the sum of exp(x - largest) over what was met.
"""

from instruments.backend import tl, triton
from kernels.tiles import LOG2E

#: The lowest fp32, where a largest value starts: from -inf, a row that begins with -inf would give -inf - -inf, a NaN.
LOWEST = tl.constexpr(-3.4028234663852886e38)


@triton.jit
def absorb(largest, total, x):
    """The state of every lane, largest and total [LANES], after x [LANES, VECTOR]: a larger value repairs the sum."""
    larger = tl.maximum(largest, tl.max(x, axis=1))
    total *= tl.exp2((largest - larger) * LOG2E)
    return larger, total + tl.sum(tl.exp2((x - larger[:, None]) * LOG2E), axis=1)


@triton.jit
def merge(largest, total):
    """The state of a row, two numbers, from those of its lanes, largest and total [LANES]."""
    row_largest = tl.max(largest)
    return row_largest, tl.sum(total * tl.exp2((largest - row_largest) * LOG2E))


def streaming(cols: int, itemsize: int) -> dict:
    """One row per program, in steps of two 16-byte loads per thread, each load a lane.

    A warp has 2 to 4 KiB of the row: the rows of the 64 warps that fill a multiprocessor nearly fit its L1 between the
    two readings. Rows beyond 128 KiB find no more warps, and less of them stays there.
    """
    vector = 16 // itemsize
    warps = min(32, max(4, triton.next_power_of_2(cols * itemsize // 2048 + 1) // 2))
    return {"config": {"VECTOR": vector, "BLOCK": 2 * 32 * warps * vector, "num_warps": warps}}
