"""Rows that a cluster of CTAs shares, on Hopper: each CTA keeps a part of the row in its shared memory.

A row of 128 KiB or more does not fit in the registers of one CTA, and L1 forgets it before the second pass. So the CTAs
of a thread block cluster divide it among them: each copies its part to shared memory (cp.async), reduces it, and sends
the result to the others through distributed shared memory. Then each finishes its part from shared memory, and the row
has been read from HBM once. QuACK introduced softmax and norms of this form (Dao-AILab/quack, 2025).

The kernels are written in Gluon (instruments/gluon.py). Neither Triton 3.6 nor 3.7 can reduce a tensor over the CTAs of
a cluster, so `exchange` does it by hand, in PTX. A tile of one step is [CTAS, GROUPS, VECTOR]: CTAS parts of the row,
GROUPS 16-byte loads of each, VECTOR elements per load.
"""

from functools import cache

import torch

from instruments import backend
from instruments.backend import cdiv, triton
from instruments.gluon import commit_group, copy_rows, gl, gluon
from kernels.shared.device import is_hopper

PART_BYTES = 65_536  # of a row in each CTA; three such parts fit in an SM's shared memory
MAX_PART_BYTES = 131_072
MAX_CTAS = 16  # Hopper's most; clusters of more than 8 are harder to place, and only rows of more than 1 MiB get them

#: A CTA tells the others of its cluster that it runs, and so that its shared memory may be written.
ARRIVE = gl.constexpr("mov.b32 $0, $1; barrier.cluster.arrive.relaxed.aligned;")
#: Thread i sends two fp32 to CTA i, into the slot of its own CTA; then all wait for all. Result: where the slots begin.
EXCHANGE = gl.constexpr("""{
.shared .align 16 .b32 slots[32];
.reg .pred sends; .reg .b32 rank, thread, here, there;
mov.u32 rank, %cluster_ctarank;
mov.u32 thread, %tid.x;
mov.u32 here, %cluster_nctarank;
setp.lt.u32 sends, thread, here;
mov.u32 $0, slots;
shl.b32 here, rank, 3;
add.u32 here, here, $0;
barrier.cluster.wait.acquire.aligned;
@sends mapa.shared::cluster.u32 there, here, thread;
@sends st.shared::cluster.v2.f32 [there], {$1, $2};
barrier.cluster.arrive.release.aligned;
barrier.cluster.wait.acquire.aligned;
}""")
READ = gl.constexpr("ld.shared.f32 $0, [$1];")


def fits_a_cluster(x: torch.Tensor) -> bool:
    """Whether clusters can share the rows of x [rows, cols] as they lie: 16-byte copies, parts that fit."""
    rows, cols = x.shape
    row_bytes, stride = cols * x.itemsize, x.stride(0) * x.itemsize if rows > 1 else 0
    aligned = x.data_ptr() % 16 == row_bytes % 16 == stride % 16 == 0
    return aligned and (cols == 1 or x.stride(1) == 1) and row_bytes <= MAX_CTAS * MAX_PART_BYTES


def cluster_path(x: torch.Tensor, path: str | None) -> str | None:
    """The path to take over the rows of x [rows, cols]: 'cluster' where none is named, they are wide, and it runs here.

    Raises:
        ValueError: for 'cluster' where it cannot run.
    """
    runs = backend.mode() == "compiled" and is_hopper(x.device)
    if path == "cluster" and not (runs and fits_a_cluster(x)):
        raise ValueError(
            f"path: got 'cluster' for rows of {x.shape[-1]:,} {x.dtype} with strides {x.stride()} on {x.device}, "
            "expected contiguous rows of at most 2 MiB that begin at multiples of 16 bytes, on a Hopper GPU, compiled"
        )
    wide = x.shape[-1] * x.itemsize > PART_BYTES
    return "cluster" if path is None and wide and runs and fits_a_cluster(x) else path


@cache
def cluster_layout(cols: int, itemsize: int, warps: int, loads: int) -> dict:
    """One row per cluster, in steps of `loads` 16-byte loads per thread; for the table of a family's paths.

    warps: of a CTA whose part of the row has at most PART_BYTES; a larger part gets twice as many.
    """
    vector = 16 // itemsize
    ctas = 2
    while ctas < MAX_CTAS and ctas * (PART_BYTES if ctas < 8 else MAX_PART_BYTES) < cols * itemsize:
        ctas *= 2
    warps *= 1 + (ctas * PART_BYTES < cols * itemsize)
    groups = 32 * warps * loads
    steps = cdiv(cdiv(cols, ctas), groups * vector)
    config = {"CTAS": ctas, "STEPS": steps, "GROUPS": groups, "VECTOR": vector, "num_ctas": ctas, "num_warps": warps}
    if triton.__version__ == "missing":
        return {"config": config}
    split = [[1 << bit, 0, 0] for bit in range(ctas.bit_length() - 1)]
    registers = gl.BlockedLayout([1, 1, vector], [1, 32, 1], [1, warps, 1], [2, 1, 0], cga_layout=split)
    shared = gl.SwizzledSharedLayout(1, 1, 1, [2, 1, 0], cga_layout=split)
    return {"config": {**config, "LAYOUT": registers, "SHARED": shared}}


@gluon.jit
def arrive(value):
    """To be called first, by all threads, with any 32-bit number: `exchange` waits for it."""
    gl.inline_asm_elementwise(ARRIVE, "=r,r", [value], gl.int32, is_pure=False, pack=1)


@gluon.jit
def first_columns(
    CTAS: gl.constexpr, STEPS: gl.constexpr, GROUPS: gl.constexpr, VECTOR: gl.constexpr, LAYOUT: gl.constexpr
):
    """The columns [CTAS, GROUPS, VECTOR] of the first step; those of step i lie i * GROUPS * VECTOR further on."""
    by_group: gl.constexpr = gl.SliceLayout(2, LAYOUT)
    cta = gl.arange(0, CTAS, layout=gl.SliceLayout(1, by_group))
    group = gl.arange(0, GROUPS, layout=gl.SliceLayout(0, by_group))
    element = gl.arange(0, VECTOR, layout=gl.SliceLayout(0, gl.SliceLayout(1, LAYOUT)))
    starts = gl.expand_dims(cta * (STEPS * GROUPS * VECTOR), 1) + gl.expand_dims(group * VECTOR, 0)
    return gl.expand_dims(starts, 2) + gl.expand_dims(gl.expand_dims(element, 0), 1)


@gluon.jit
def start_copies(x_ptr, col, cols, STEPS: gl.constexpr, SHARED: gl.constexpr):
    """Start to copy a row to shared memory, a commit group per step; returns the tiles, [STEPS, CTAS, GROUPS, VECTOR].

    col: the columns of the first step.
    """
    CTAS: gl.constexpr = col.shape[0]
    GROUPS: gl.constexpr = col.shape[1]
    VECTOR: gl.constexpr = col.shape[2]
    tiles = gl.allocate_shared_memory(x_ptr.dtype.element_ty, [STEPS, CTAS, GROUPS, VECTOR], SHARED)
    for i in gl.static_range(STEPS):
        copy_rows(tiles.index(i), x_ptr + col + i * GROUPS * VECTOR, mask=col + i * GROUPS * VECTOR < cols)
        commit_group()
    return tiles


@gluon.jit
def exchange(first, second):
    """Send two numbers of each CTA, first and second [CTAS], to all; returns where a CTA has received them."""
    return gl.inline_asm_elementwise(EXCHANGE, "=&r,f,f", [first, second], gl.int32, is_pure=False, pack=1)


@gluon.jit
def received(slots, cta: gl.constexpr, which: gl.constexpr):
    """What a CTA of the cluster sent, its first (0) or second (1) number, in the layout of `slots`."""
    return gl.inline_asm_elementwise(READ, "=f,r", [slots + 8 * cta + 4 * which], gl.float32, is_pure=False, pack=1)
