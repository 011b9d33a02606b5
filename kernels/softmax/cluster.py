"""Softmax of rows too wide for one CTA, on Hopper: a cluster of CTAs shares each row.

Reference, minimum traffic and the other paths are those of forward.py. Each CTA copies its part of the row to shared
memory and absorbs it step by step, as the streaming kernel does (online.py); then the CTAs exchange their maxima and
sums. The second pass reads shared memory, so the row is read from HBM once.
"""

from instruments.gluon import gl, gluon, wait_group
from kernels.shared.clusters import arrive, exchange, first_columns, received, start_copies
from kernels.shared.tiles import LOG2E
from kernels.softmax.online import LOWEST

WARPS, LOADS = 4, 2  # of parts of 64 KiB; 8 warps lose 1% at 262,144 columns


@gluon.jit
def softmax_cluster_kernel(
    x_ptr, y_ptr, x_row_stride, cols,
    CTAS: gl.constexpr, STEPS: gl.constexpr, GROUPS: gl.constexpr, VECTOR: gl.constexpr,
    LAYOUT: gl.constexpr, SHARED: gl.constexpr,
):  # fmt: skip
    """One row per cluster of CTAS: x [rows, cols] with rows of 16-byte alignment, y [rows, cols] contiguous.

    Each group of VECTOR elements has a running max and a running sum of its own, [CTAS, GROUPS].
    """
    arrive(cols)
    cols, x_row_stride = cols // VECTOR * VECTOR, x_row_stride // VECTOR * VECTOR  # as they are; the compiler learns it
    row = gl.program_id(0).to(gl.int64)
    col = first_columns(CTAS, STEPS, GROUPS, VECTOR, LAYOUT)
    STEP: gl.constexpr = GROUPS * VECTOR
    tiles = start_copies(x_ptr + row * x_row_stride, col, cols, STEPS, SHARED)

    groups: gl.constexpr = gl.SliceLayout(2, LAYOUT)
    running_max = gl.full([CTAS, GROUPS], LOWEST, gl.float32, layout=groups)
    running_sum = gl.full([CTAS, GROUPS], 0.0, gl.float32, layout=groups)
    for i in gl.static_range(STEPS):
        wait_group(STEPS - 1 - i)
        x = gl.where(col + i * STEP < cols, tiles.index(i).load(LAYOUT).to(gl.float32), float("-inf"))
        new_max = gl.maximum(running_max, gl.max(x, 2))
        running_sum *= gl.exp2((running_max - new_max) * LOG2E)
        running_sum += gl.sum(gl.exp2((x - gl.expand_dims(new_max, 2)) * LOG2E), 2)
        running_max = new_max
    part_max = gl.max(running_max, 1)  # [CTAS]
    part_sum = gl.sum(running_sum * gl.exp2((running_max - gl.expand_dims(part_max, 1)) * LOG2E), 1)

    slots = exchange(part_max, part_sum)
    row_max = part_max
    for cta in gl.static_range(CTAS):
        row_max = gl.maximum(row_max, received(slots, cta, 0))
    row_sum = part_sum * 0.0
    for cta in gl.static_range(CTAS):
        row_sum += received(slots, cta, 1) * gl.exp2((received(slots, cta, 0) - row_max) * LOG2E)

    row_max = gl.expand_dims(gl.expand_dims(row_max, 1), 2)
    scale = gl.expand_dims(gl.expand_dims(1.0 / row_sum, 1), 2)
    for i in gl.static_range(STEPS):
        y = gl.exp2((tiles.index(i).load(LAYOUT).to(gl.float32) - row_max) * LOG2E) * scale
        gl.store(y_ptr + row * cols + col + i * STEP, y.to(y_ptr.dtype.element_ty), mask=col + i * STEP < cols)
