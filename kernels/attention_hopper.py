"""Attention's forward for Hopper, in Gluon: the warps of a program have roles, so that products run under exponentials.

Reference, minimum traffic and the Triton kernels are attention.py's. The loop over tiles of keys is the same; who does
what is written down here instead of left to the compiler. One warp loads: its TMA copies fill a ring of tiles, keys and
values in turn. Two or three warpgroups (four warps, 64 queries each) compute: under the exponentials of one tile the
matrix unit runs the second product of the tile before, and the products of the other warpgroups. They meet at
mbarriers only: counters in shared memory at which copies and warpgroups arrive, and others wait. A program walks over
many tiles of queries, so that the loads of the next run under the last products of this one. Causal, a warpgroup passes
by the tiles that only those behind it see.

Roles and overlap are FlashAttention-3's (Shah and others, 2024), as are the turns that warpgroups take to begin their
products, so that their exponentials do not all come at once. sm_90, head_dim 64 or 128, no interpreter. The role that
loads, and the steps of the one that computes, are in attention_hopper_steps.py.
"""

import torch

from instruments.backend import triton
from instruments.gluon import (
    TensorDescriptor,
    fence_async_shared,
    gl,
    gluon,
    mbarrier,
    store_tile,
    store_wait,
    warpgroup_mma_wait,
)
from kernels.arguments import check_no_grad
from kernels.attention_hopper_steps import (
    KEYS,
    ROWS,
    done_with,
    give_turn,
    hide,
    key_tiles,
    load,
    packed,
    pass_by,
    softmax_step,
    start_out,
    start_scores,
    take_turn,
    tile_of,
    turns_of,
    wait_for,
    walk,
)
from kernels.attention_tiles import FLOOR, LOG2E, check_attention
from kernels.rows import device_of

#: By head_dim: warpgroups that compute, registers of their threads, slots for tiles of keys and values, and whether
#: warpgroups take turns: then products run under the others' exponentials, not under their own. On an H200 this is
#: faster at 64 by a twentieth, and slower at 128. One program takes a multiprocessor's 65,536 registers.
PLANS = {
    64: {"WARPGROUPS": 3, "REGISTERS": 160, "SLOTS": 8, "IN_TURN": True},
    128: {"WARPGROUPS": 2, "REGISTERS": 240, "SLOTS": 4, "IN_TURN": False},
}


#: By head_dim: programs at work on a head; where heads are too many for that, tiles come in pairs (`tile_of`), with
#: which an H200 was faster at 64 heads of 128, 4,096 tokens, and slower at 32 of 16,384, and at 128 heads of 64.
SHARING = {64: 1, 128: 4}


@gluon.jit
def attend(common, WARPGROUP: gl.constexpr, CAUSAL: gl.constexpr, PAIRED: gl.constexpr):
    """A warpgroup that computes: its ROWS queries of each tile, from the wait for q to the store of out and lse."""
    shared, sizes, scale, lse_ptr = common
    q, k, v, out_descriptor, q_tiles, ring, out_tiles, q_full, q_free, full, free, turns = shared
    heads, group, queries, keys, all_heads, blocks = sizes
    WARPGROUPS: gl.constexpr = out_tiles.shape[0]
    HEAD_DIM: gl.constexpr = ring.shape[4]
    out_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, HEAD_DIM, 16])
    row_layout: gl.constexpr = gl.SliceLayout(1, gl.NVMMADistributedLayout([3, 0], [4, 1], [16, KEYS, 16]))
    out_tile = out_tiles.index(WARPGROUP)
    item, tile = 0, 0
    for turn in range(turns_of(all_heads, blocks, PAIRED)):
        mine, place, block = tile_of(turn, all_heads, blocks, CAUSAL, PAIRED)
        if mine:
            q_tile = q_tiles.index(tile % 2 * WARPGROUPS + WARPGROUP).reshape([ROWS, HEAD_DIM])
            first = block * WARPGROUPS * ROWS  # keys are counted from here below: masks then need fewer registers
            row = first + WARPGROUP * ROWS + gl.arange(0, ROWS, row_layout)  # [ROWS]
            last = gl.minimum(row + keys - (queries if CAUSAL else 0), keys - 1) - first  # key that a query sees
            largest = gl.full([ROWS], FLOOR, gl.float32, row_layout)  # FLOOR and empty rows as in attention.py
            total = gl.zeros([ROWS], gl.float32, row_layout)
            out = gl.zeros([ROWS, HEAD_DIM], gl.float32, out_layout)

            loaded, _ = key_tiles(first, queries, keys, CAUSAL, WARPGROUPS * ROWS)  # for all warpgroups
            count, whole = key_tiles(first + WARPGROUP * ROWS, queries, keys, CAUSAL, ROWS)  # that this one sees
            item = pass_by(loaded - count, item, full, free, turns, WARPGROUP)
            key = (count - 1) * KEYS - first
            wait_for(q_full, tile)  # for the copies of q,
            wait_for(full, item)  # and of the first keys
            take_turn(turns, item, WARPGROUP)
            scores = start_scores(q_tile, ring, item)
            give_turn(turns, WARPGROUP)
            scores = warpgroup_mma_wait(0, deps=(scores,))
            done_with(free, item)
            weights, largest, total, repair = softmax_step(hide(scores, key, last), largest, total, scale)
            state = out, packed(weights, ring.dtype), largest, total
            whole = gl.minimum(whole, count - 1)  # tiles that need no mask
            masked = count - 1 - whole
            given = q_tile, ring, full, free, turns, last, scale
            item, state = walk(masked, key - KEYS, item + 1, state, *given, WARPGROUP, HIDE=True)
            item, state = walk(whole, 0, item, state, *given, WARPGROUP, HIDE=False)
            out, weights, largest, total = state
            done_with(q_free, tile)
            wait_for(full, item)
            out = warpgroup_mma_wait(0, deps=(start_out(weights, ring, item, out),))
            done_with(free, item)
            item += 1

            empty = total == 0.0
            inverse = gl.convert_layout(1.0 / gl.where(empty, 1.0, total), gl.SliceLayout(1, out_layout))
            store_wait(0)  # of the tile before: out_tile may be written again
            out_tile.reshape([ROWS, HEAD_DIM]).store((out * inverse[:, None]).to(ring.dtype))
            fence_async_shared()  # a copy sees what threads wrote only behind a fence
            store_tile(out_descriptor, [place // heads, place % heads, first + WARPGROUP * ROWS, 0], out_tile)
            if lse_ptr is not None:
                lse = gl.where(empty, float("-inf"), (largest + gl.log2(total)) / LOG2E)
                gl.store(lse_ptr + place.to(gl.int64) * queries + row, lse, mask=row < queries)
            tile += 1
    store_wait(0)


@gluon.jit(do_not_specialize=["heads", "group", "queries", "keys", "all_heads", "blocks"])
def attention_hopper_kernel(
    q,
    k,
    v,
    out,
    lse_ptr,
    heads,
    group,
    queries,
    keys,
    all_heads,
    blocks,
    scale,
    CAUSAL: gl.constexpr,
    WARPGROUPS: gl.constexpr,
    REGISTERS: gl.constexpr,
    SLOTS: gl.constexpr,
    IN_TURN: gl.constexpr,
    PAIRED: gl.constexpr,
):
    """Descriptors: q, out [batch, heads, queries, head_dim] in tiles [1, 1, ROWS, head_dim]; k, v [batch, heads //
    group, keys, head_dim] in tiles [1, 1, KEYS, head_dim]. lse [batch, heads, queries] fp32, or None."""
    q_tiles = gl.allocate_shared_memory(q.dtype, [2 * WARPGROUPS] + q.block_type.shape, q.layout)
    out_tiles = gl.allocate_shared_memory(q.dtype, [WARPGROUPS] + q.block_type.shape, q.layout)
    ring = gl.allocate_shared_memory(k.dtype, [SLOTS] + k.block_type.shape, k.layout)
    q_full = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    q_free = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    full = gl.allocate_shared_memory(gl.int64, [SLOTS, 1], mbarrier.MBarrierLayout())
    free = gl.allocate_shared_memory(gl.int64, [SLOTS, 1], mbarrier.MBarrierLayout())
    TURNS: gl.constexpr = WARPGROUPS if IN_TURN else 1
    turns = gl.allocate_shared_memory(gl.int64, [TURNS, 1], mbarrier.MBarrierLayout())
    for warpgroup in gl.static_range(TURNS):
        mbarrier.init(turns.index(warpgroup), count=1)
    for slot in gl.static_range(2):
        mbarrier.init(q_full.index(slot), count=1)  # full: copies announced once; free: by every warpgroup
        mbarrier.init(q_free.index(slot), count=WARPGROUPS)
    for slot in gl.static_range(SLOTS):
        mbarrier.init(full.index(slot), count=1)
        mbarrier.init(free.index(slot), count=WARPGROUPS)
    fence_async_shared()

    shared = q, k, v, out, q_tiles, ring, out_tiles, q_full, q_free, full, free, turns
    sizes = heads, group, queries, keys, all_heads, blocks
    common = shared, sizes, scale, lse_ptr
    if WARPGROUPS == 2:
        gl.warp_specialize(
            [
                (attend, (common, 0, CAUSAL, PAIRED)),
                (attend, (common, 1, CAUSAL, PAIRED)),
                (load, (shared, sizes, CAUSAL, PAIRED)),
            ],
            [4, 1],
            [REGISTERS, 24],
        )
    else:
        gl.warp_specialize(
            [
                (attend, (common, 0, CAUSAL, PAIRED)),
                (attend, (common, 1, CAUSAL, PAIRED)),
                (attend, (common, 2, CAUSAL, PAIRED)),
                (load, (shared, sizes, CAUSAL, PAIRED)),
            ],
            [4, 4, 1],
            [REGISTERS, REGISTERS, 24],
        )


def _describe(x: torch.Tensor, rows: int):
    """A descriptor of tiles of so many rows; of a copy where TMA cannot address the tensor as it lies."""
    strides = [stride for stride, size in zip(x.stride()[:3], x.shape) if size > 1]  # any other is never used
    if x.stride(3) != 1 or x.data_ptr() % 16 or not all(stride % 8 == 0 < stride for stride in strides):
        x = x.contiguous()
    strides = [stride if size > 1 else x.shape[3] for stride, size in zip(x.stride()[:3], x.shape)]
    tile = [1, 1, rows, x.shape[3]]
    layout = gl.NVMMASharedLayout.get_default_for(tile, gl.float16)  # bf16's is the same
    return TensorDescriptor(x, list(x.shape), [*strides, 1], tile, layout)


def runs_on(device: torch.device) -> bool:
    """Whether a device is a Hopper GPU."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) == (9, 0)


def launch(q, k, v, causal: bool, scale: float, return_lse: bool = False, programs: int = 132) -> tuple:
    """(out, lse or None) of what `flash_attention_hopper` has checked, none of it empty."""
    batch, heads, queries, head_dim = q.shape
    plan = PLANS[head_dim]
    out = torch.empty_like(q, memory_format=torch.contiguous_format)
    lse = torch.empty(q.shape[:3], dtype=torch.float32, device=q.device) if return_lse else None
    blocks = triton.cdiv(queries, plan["WARPGROUPS"] * ROWS.value)
    sizes = heads, heads // k.shape[1], queries, k.shape[2], batch * heads, blocks
    paired = causal and SHARING[head_dim] * batch * heads > programs
    described = [_describe(x, rows.value) for x, rows in ((q, ROWS), (k, KEYS), (v, KEYS), (out, ROWS))]
    attention_hopper_kernel[(min(programs, batch * heads * blocks),)](
        *described, lse, *sizes, scale * LOG2E.value, CAUSAL=causal, PAIRED=paired, **plan, num_warps=4
    )
    return out, lse


def flash_attention_hopper(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    causal: bool = False,
    scale: float | None = None,
    *,
    return_lse: bool = False,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """`flash_attention` (kernels/attention.py), forward only, of fp16 or bf16 tensors with a head_dim of 64 or 128 on a
    Hopper GPU (compute capability 9.0): arguments and results as there. Raises ValueError naming the argument."""
    scale = check_attention(q, k, v, scale)
    check_no_grad("flash_attention_hopper", q=q, k=k, v=v)
    if q.shape[3] not in PLANS:
        raise ValueError(f"q: got a head_dim of {q.shape[3]}, expected {' or '.join(map(str, PLANS))}")
    if not runs_on(q.device):
        device = torch.cuda.get_device_name(q.device) if q.is_cuda else q.device
        raise ValueError(f"q: got device {device}, expected a Hopper GPU (9.0); flash_attention runs on others too")
    if q.numel() and k.numel():
        out, lse = launch(q, k, v, causal, scale, return_lse, device_of(q.device).sms)
    else:
        out = torch.zeros_like(q, memory_format=torch.contiguous_format)
        lse = q.new_full(q.shape[:3], float("-inf"), dtype=torch.float32)
    return (out, lse) if return_lse else out
