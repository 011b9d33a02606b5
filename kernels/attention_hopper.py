"""Attention's forward for Hopper, in Gluon: the warps of a program have roles, so that products run under exponentials.

Reference, minimum traffic and the Triton kernels are attention.py's. The loop over tiles of keys is the same; who does
what is written down here instead of left to the compiler. One warp loads: its TMA copies fill a ring of tiles, keys and
values in turn. Two or three warpgroups (four warps, 64 queries each) compute: under the exponentials of one tile the
matrix unit runs the warpgroup's own second product of the tile before, and those of the other warpgroups. They meet at
mbarriers only: counters in shared memory at which copies and warpgroups arrive, and others wait. A program walks over
many tiles of queries, so that the loads of the next run under the last products of this one.

Roles and overlap are FlashAttention-3's (Shah and others, 2024); its turns between warpgroups, tried at head_dim 128,
gained nothing and are left out. sm_90, head_dim 64 or 128, no interpreter. The steps that the roles take are in
attention_hopper_steps.py.
"""

import torch

from instruments.backend import triton
from instruments.gluon import (
    TensorDescriptor,
    fence_async_shared,
    gl,
    gluon,
    load_tile,
    mbarrier,
    store_tile,
    store_wait,
    warpgroup_mma_wait,
)
from kernels.arguments import check_no_grad
from kernels.attention_hopper_steps import (
    KEYS,
    ROWS,
    SLOTS,
    hide,
    key_tiles,
    packed,
    softmax_step,
    start_out,
    start_scores,
    tile_of,
    wait_for,
    walk,
)
from kernels.attention_tiles import FLOOR, LOG2E, check_attention
from kernels.rows import device_of

#: By head_dim: warpgroups that compute, and registers of their threads. One program takes a multiprocessor's 65,536.
PLANS = {64: {"WARPGROUPS": 3, "REGISTERS": 160}, 128: {"WARPGROUPS": 2, "REGISTERS": 240}}


@gluon.jit
def load(shared, sizes, CAUSAL: gl.constexpr):
    """The warp that loads: for each tile of queries q, then keys and values in turn, from the last keys seen down."""
    q, k, v, out, q_tiles, ring, out_tiles, q_full, q_free, full, free = shared
    heads, group, queries, keys, all_heads, blocks = sizes
    WARPGROUPS: gl.constexpr = q_tiles.shape[0]
    item = 0
    for turn in range(gl.cdiv(all_heads * blocks, gl.num_programs(0))):
        number, place, block = tile_of(turn, all_heads, blocks, CAUSAL)
        if number < all_heads * blocks:
            batch, head, row = place // heads, place % heads, block * WARPGROUPS * ROWS
            mbarrier.wait(q_free, turn & 1 ^ 1)  # for every warpgroup to be done with the q before
            mbarrier.expect(q_full, WARPGROUPS * q.block_type.nbytes)  # full when so many bytes have come
            for warpgroup in gl.static_range(WARPGROUPS):
                load_tile(q, [batch, head, row + warpgroup * ROWS, 0], q_full, q_tiles.index(warpgroup))
            count, whole = key_tiles(row, queries, keys, CAUSAL, WARPGROUPS * ROWS)
            for step in range(count):
                at = [batch, head // group, (count - 1 - step) * KEYS, 0]
                for second in gl.static_range(2):
                    slot = item % SLOTS
                    wait_for(free, item, FREE=True)  # for every warpgroup to be done with what it held
                    mbarrier.expect(full.index(slot), k.block_type.nbytes)
                    load_tile(v if second else k, at, full.index(slot), ring.index(slot))
                    item += 1


@gluon.jit
def attend(common, WARPGROUP: gl.constexpr, CAUSAL: gl.constexpr):
    """A warpgroup that computes: its ROWS queries of each tile, from the wait for q to the store of out and lse."""
    shared, sizes, scale, lse_ptr = common
    q, k, v, out_descriptor, q_tiles, ring, out_tiles, q_full, q_free, full, free = shared
    heads, group, queries, keys, all_heads, blocks = sizes
    WARPGROUPS: gl.constexpr = q_tiles.shape[0]
    HEAD_DIM: gl.constexpr = ring.shape[4]
    out_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, HEAD_DIM, 16])
    row_layout: gl.constexpr = gl.SliceLayout(1, gl.NVMMADistributedLayout([3, 0], [4, 1], [16, KEYS, 16]))
    q_tile, out_tile = q_tiles.index(WARPGROUP).reshape([ROWS, HEAD_DIM]), out_tiles.index(WARPGROUP)
    item = 0
    for turn in range(gl.cdiv(all_heads * blocks, gl.num_programs(0))):
        number, place, block = tile_of(turn, all_heads, blocks, CAUSAL)
        if number < all_heads * blocks:
            first = block * WARPGROUPS * ROWS  # keys are counted from here below: masks then need fewer registers
            row = first + WARPGROUP * ROWS + gl.arange(0, ROWS, row_layout)  # [ROWS]
            last = gl.minimum(row + keys - (queries if CAUSAL else 0), keys - 1) - first  # key that a query sees
            largest = gl.full([ROWS], FLOOR, gl.float32, row_layout)  # FLOOR and empty rows as in attention.py
            total = gl.zeros([ROWS], gl.float32, row_layout)
            out = gl.zeros([ROWS, HEAD_DIM], gl.float32, out_layout)

            count, whole = key_tiles(first, queries, keys, CAUSAL, WARPGROUPS * ROWS)
            key = (count - 1) * KEYS - first
            mbarrier.wait(q_full, turn & 1)  # for the copies of q,
            wait_for(full, item)  # and of the first keys
            scores = warpgroup_mma_wait(0, deps=(start_scores(q_tile, ring, item),))
            mbarrier.arrive(free.index(item % SLOTS))
            weights, largest, total, repair = softmax_step(hide(scores, key, last), largest, total, scale)
            state = out, packed(weights, ring.dtype), largest, total
            whole = gl.minimum(whole, count - 1)  # tiles that need no mask
            masked = count - 1 - whole
            item, state = walk(masked, key - KEYS, item + 1, state, q_tile, ring, full, free, last, scale, HIDE=True)
            item, state = walk(whole, 0, item, state, q_tile, ring, full, free, last, scale, HIDE=False)
            out, weights, largest, total = state
            wait_for(full, item)
            out = warpgroup_mma_wait(0, deps=(start_out(weights, ring, item, out),))
            mbarrier.arrive(free.index(item % SLOTS))
            mbarrier.arrive(q_free)  # the loading warp may overwrite q
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
):
    """Descriptors: q, out [batch, heads, queries, head_dim] in tiles [1, 1, ROWS, head_dim]; k, v [batch, heads //
    group, keys, head_dim] in tiles [1, 1, KEYS, head_dim]. lse [batch, heads, queries] fp32, or None."""
    q_tiles = gl.allocate_shared_memory(q.dtype, [WARPGROUPS] + q.block_type.shape, q.layout)
    out_tiles = gl.allocate_shared_memory(q.dtype, [WARPGROUPS] + q.block_type.shape, q.layout)
    ring = gl.allocate_shared_memory(k.dtype, [SLOTS] + k.block_type.shape, k.layout)
    q_full = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    q_free = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    full = gl.allocate_shared_memory(gl.int64, [SLOTS, 1], mbarrier.MBarrierLayout())
    free = gl.allocate_shared_memory(gl.int64, [SLOTS, 1], mbarrier.MBarrierLayout())
    mbarrier.init(q_full, count=1)  # full: copies announced once; free: by every warpgroup
    mbarrier.init(q_free, count=WARPGROUPS)
    for slot in gl.static_range(SLOTS):
        mbarrier.init(full.index(slot), count=1)
        mbarrier.init(free.index(slot), count=WARPGROUPS)
    fence_async_shared()

    shared = q, k, v, out, q_tiles, ring, out_tiles, q_full, q_free, full, free
    sizes = heads, group, queries, keys, all_heads, blocks
    common = shared, sizes, scale, lse_ptr
    if WARPGROUPS == 2:
        gl.warp_specialize(
            [(attend, (common, 0, CAUSAL)), (attend, (common, 1, CAUSAL)), (load, (shared, sizes, CAUSAL))],
            [4, 1],
            [REGISTERS, 24],
        )
    else:
        gl.warp_specialize(
            [
                (attend, (common, 0, CAUSAL)),
                (attend, (common, 1, CAUSAL)),
                (attend, (common, 2, CAUSAL)),
                (load, (shared, sizes, CAUSAL)),
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
    described = [_describe(x, rows.value) for x, rows in ((q, ROWS), (k, KEYS), (v, KEYS), (out, ROWS))]
    attention_hopper_kernel[(min(programs, batch * heads * blocks),)](
        *described, lse, *sizes, scale * LOG2E.value, CAUSAL=causal, **plan, num_warps=4
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
