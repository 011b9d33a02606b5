"""RMSNorm of rows too wide for one CTA, on Hopper: a cluster of CTAs shares each row.

Reference, minimum traffic and the other paths are those of rmsnorm.py. Each CTA copies its part of the row to shared
memory and adds up its squares; the CTAs exchange their sums, and each normalizes its part from shared memory. The row
is read from HBM once.
"""

from instruments.gluon import gl, gluon, wait_group
from kernels.shared.clusters import arrive, exchange, first_columns, received, start_copies

WARPS, LOADS = 16, 2


@gluon.jit
def rmsnorm_cluster_kernel(
    x_ptr, weight_ptr, y_ptr, x_row_stride, cols, eps,
    CTAS: gl.constexpr, STEPS: gl.constexpr, GROUPS: gl.constexpr, VECTOR: gl.constexpr,
    LAYOUT: gl.constexpr, SHARED: gl.constexpr,
):  # fmt: skip
    """One row per cluster of CTAS: x [rows, cols] with rows of 16-byte alignment, weight [cols], y [rows, cols]
    contiguous."""
    arrive(cols)
    cols, x_row_stride = cols // VECTOR * VECTOR, x_row_stride // VECTOR * VECTOR  # as they are; the compiler learns it
    row = gl.program_id(0).to(gl.int64)
    col = first_columns(CTAS, STEPS, GROUPS, VECTOR, LAYOUT)
    STEP: gl.constexpr = GROUPS * VECTOR
    tiles = start_copies(x_ptr + row * x_row_stride, col, cols, STEPS, SHARED)

    squares = gl.full([CTAS, GROUPS, VECTOR], 0.0, gl.float32, layout=LAYOUT)
    for i in gl.static_range(STEPS):
        wait_group(STEPS - 1 - i)
        x = gl.where(col + i * STEP < cols, tiles.index(i).load(LAYOUT).to(gl.float32), 0.0)
        squares += x * x
    part_sum = gl.sum(gl.sum(squares, 2), 1)  # [CTAS]

    slots = exchange(part_sum, part_sum)
    row_sum = part_sum * 0.0
    for cta in gl.static_range(CTAS):
        row_sum += received(slots, cta, 0)
    scale = gl.expand_dims(gl.expand_dims(gl.rsqrt(row_sum / cols + eps), 1), 2)
    for i in gl.static_range(STEPS):
        mask = col + i * STEP < cols
        weight = gl.load(weight_ptr + col + i * STEP, mask=mask, other=0.0).to(gl.float32)
        y = tiles.index(i).load(LAYOUT).to(gl.float32) * scale * weight
        gl.store(y_ptr + row * cols + col + i * STEP, y.to(y_ptr.dtype.element_ty), mask=mask)
