"""One row of attention computed in parts: its state (m, l, acc), how two states are merged, how many parts there are.

m, `largest`, is the largest score of a part, in units of log2(e), or FLOOR where it has none; l, `total`, the sum of
exp2(score - m); acc, `out`, the values added up with these weights. The row's result is acc / l. Merging is associative
and commutative, so the parts may be any keys, and merged in any order: Milakov and Gimelshein's online softmax (2018),
the values carried along.

A second kernel merges the parts: on an H200 one launch, in which the program that ends last merges, took longer. From
Hopper on it is launched before the first one ends (programmatic dependent launch), and waits for it: EARLY.
"""

from dataclasses import dataclass
from functools import cache

from instruments.backend import tl, triton
from kernels.attention_plan import width_of
from kernels.attention_tiles import FLOOR
from kernels.rows import Device

STEPS = 3  # of keys and values that a program's share of shared memory holds: two on their way, one worked on
PROGRAMS = 2  # per multiprocessor: on an H200 as fast as one with twice the keys, and faster with pages
MAX_STEP = 256  # keys
STARTING = 131_072  # bytes that a program could have read while it starts and ends: another wave costs 3 us on an H200
MAX_SPLITS = 128  # states of a row that one program merges
MERGED_COLS = 32  # of a row that one program merges at least


@triton.jit
def merge(largest, total, out, other_largest, other_total, other_out):
    """The state of two parts together; the members of a state may be of any shapes that broadcast."""
    both = tl.maximum(largest, other_largest)
    repair, other_repair = tl.exp2(largest - both), tl.exp2(other_largest - both)
    return both, total * repair + other_total * other_repair, out * repair + other_out * other_repair


@triton.jit
def merge_parts_kernel(
    largest_ptr,
    total_ptr,
    part_ptr,
    out_ptr,
    splits,
    HEAD_DIM: tl.constexpr,
    BLOCK_S: tl.constexpr,
    BLOCK_D: tl.constexpr,
    EARLY: tl.constexpr,
):
    """BLOCK_D columns of a row of out [rows, HEAD_DIM] from its states: largest, total [rows, splits], part [rows,
    splits, HEAD_DIM]."""
    row = tl.program_id(0).to(tl.int64)
    split = tl.arange(0, BLOCK_S)[:, None]  # [BLOCK_S, 1], BLOCK_S >= splits
    col = tl.program_id(1) * BLOCK_D + tl.arange(0, BLOCK_D)[None, :]  # [1, BLOCK_D]
    state, mask = row * splits + split, split < splits
    if EARLY:
        tl.extra.cuda.gdc_wait()  # for the programs that leave the states
    largest = tl.load(largest_ptr + state, mask=mask, other=FLOOR)
    total = tl.load(total_ptr + state, mask=mask, other=0.0)
    part = tl.load(part_ptr + state * HEAD_DIM + col, mask=mask & (col < HEAD_DIM), other=0.0)  # [BLOCK_S, BLOCK_D]
    weight = tl.exp2(largest - tl.max(largest, axis=0, keep_dims=True))  # `merge`, for all parts at once
    total = tl.sum(total * weight, axis=0, keep_dims=True)  # [1, 1]
    out = tl.sum(part * weight, axis=0, keep_dims=True)  # [1, BLOCK_D]
    out /= tl.where(total == 0.0, 1.0, total)  # a row that saw no key is 0
    tl.store(out_ptr + row * HEAD_DIM + col, out.to(out_ptr.dtype.element_ty), mask=col < HEAD_DIM)


@dataclass(frozen=True)
class Plan:
    """How a call is laid out.

    splits: programs that share the keys of a sequence and key head. tiles: of a group's rows, each with programs of its
    own. config, merging: as the two kernels take them.
    """

    splits: int
    tiles: int
    config: dict
    merging: dict

    @property
    def mergers(self) -> int:
        """Programs that merge a row, each some of its columns."""
        return triton.cdiv(self.merging["HEAD_DIM"], self.merging["BLOCK_D"])


@cache
def plan(sequences: int, rows: int, keys: int, head_dim: int, page: int, splits: int | None, gpu: Device) -> Plan:
    """The plan for groups of so many rows, with as many splits, unless given, as let the last program end soonest.

    sequences: pairs of a sequence and a key head. keys: of the longest sequence. page: rows of a page, 0 without pages.
    PROGRAMS of them share a multiprocessor, and each loads as much at a time as its share of the shared memory holds.
    """
    width = width_of(head_dim)
    key_bytes = 2 * width * 2  # a key and its value, 16 bits an element
    fits = gpu.shared_per_sm // (PROGRAMS * STEPS * key_bytes)
    block_n = max(16, min(MAX_STEP, triton.next_power_of_2(fits + 1) // 2))
    block_m = min(max(16, triton.next_power_of_2(rows)), 64 if width <= 128 else 32)
    tiles = triton.cdiv(rows, block_m)

    def keys_in_turn(splits: int) -> float:
        """That the busiest place for a program reads, or could have read, in all the programs that it runs."""
        waves = triton.cdiv(sequences * tiles * splits, PROGRAMS * gpu.sms)
        return waves * (triton.cdiv(keys, splits) + STARTING / key_bytes)

    if splits is None:
        splits = min(range(1, max(2, min(MAX_SPLITS, triton.cdiv(keys, block_n)) + 1)), key=keys_in_turn)
        steps = triton.cdiv(triton.cdiv(keys, splits), block_n)
        splits = max(1, triton.cdiv(keys, max(1, steps) * block_n))  # as few as make no step more
    sizes = {"HEAD_DIM": head_dim, "BLOCK_D": width}
    warps = 8 if block_n * key_bytes > 32_768 else 4
    config = {"PAGE": page, "BLOCK_M": block_m, "BLOCK_N": block_n, **sizes, "num_warps": warps, "num_stages": STEPS}
    block_s, cols = triton.next_power_of_2(splits), width
    while cols > MERGED_COLS and sequences * rows * (width // cols) < gpu.sms:  # few rows: programs share the columns
        cols //= 2
    warps = max(1, 4 * cols // width, block_s * cols // 2048)
    return Plan(splits, tiles, config, {"HEAD_DIM": head_dim, "BLOCK_S": block_s, "BLOCK_D": cols, "num_warps": warps})
