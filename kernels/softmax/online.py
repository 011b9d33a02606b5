"""Online softmax: the maximum and the sum of a row in one pass (Milakov and Gimelshein, 2018).

The state is a pair: the running max of the values so far, and the running sum of exp(x - running max) over them. When
the max grows, a correction factor rescales the sum. forward.py and causal.py stream wide rows this way.
"""

from instruments.backend import next_power_of_2, tl, triton
from kernels.shared.tiles import LOG2E

#: The lowest fp32, where a running max starts: starting from -inf, a row that begins with -inf would compute
#: -inf - -inf, a NaN.
LOWEST = tl.constexpr(-3.4028234663852886e38)


@triton.jit
def absorb(running_max, running_sum, x):
    """The state after x [GROUPS, VECTOR]: running_max and running_sum [GROUPS], one pair per group of x."""
    new_max = tl.maximum(running_max, tl.max(x, axis=1))
    correction = tl.exp2((running_max - new_max) * LOG2E)
    running_sum *= correction
    return new_max, running_sum + tl.sum(tl.exp2((x - new_max[:, None]) * LOG2E), axis=1)


@triton.jit
def merge(running_max, running_sum):
    """The state of a whole row, two numbers, from those of its groups, running_max and running_sum [GROUPS]."""
    row_max = tl.max(running_max)
    return row_max, tl.sum(running_sum * tl.exp2((running_max - row_max) * LOG2E))


def streaming_layout(cols: int, itemsize: int) -> dict:
    """One row per program, in steps of two 16-byte loads per thread; the VECTOR elements of a load are a group.

    A warp gets 2 to 4 KiB of the row, so that the rows of the 64 warps that fill an SM nearly fit in its L1 between the
    two passes. A row of more than 128 KiB gets no further warps, and less of it stays in L1.
    """
    vector = 16 // itemsize
    warps = min(32, max(4, next_power_of_2(cols * itemsize // 2048 + 1) // 2))
    return {"config": {"VECTOR": vector, "BLOCK": 2 * 32 * warps * vector, "num_warps": warps}}
