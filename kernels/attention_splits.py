"""One row of attention computed in parts: its state (m, l, acc), how two states are merged, how many parts there are.

m, `largest`, is the largest score of a part, in units of log2(e), or FLOOR where it has none; l, `total`, the sum of
exp2(score - m); acc, `out`, the values added up with these weights. The row's result is acc / l. Merging is associative
and commutative, so the parts may be any keys, and merged in any order: Milakov and Gimelshein's online softmax (2018),
the values carried along.
"""

from dataclasses import dataclass
from functools import cache

from instruments.backend import tl, triton
from kernels.attention_tiles import FLOOR, block_d
from kernels.rows import Device

STEP_BYTES = 32_768  # of 16-bit keys and values that a program loads at a time
STEPS_AHEAD = 2  # steps that are on their way while one is worked on
PROGRAMS = 2  # per multiprocessor
STARTING = 64  # keys that a program could have read while it starts, stores its state and has it merged
MAX_SPLITS = 128  # states of a row that one program merges


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
):
    """One row of out [rows, HEAD_DIM] from its states: largest, total [rows, splits], part [rows, splits, HEAD_DIM]."""
    row = tl.program_id(0).to(tl.int64)
    split = tl.arange(0, BLOCK_S)[:, None]  # [BLOCK_S, 1], BLOCK_S >= splits
    col = tl.arange(0, BLOCK_D)[None, :]  # [1, BLOCK_D]
    state, mask = row * splits + split, split < splits
    largest = tl.load(largest_ptr + state, mask=mask, other=FLOOR)
    total = tl.load(total_ptr + state, mask=mask, other=0.0)
    part = tl.load(part_ptr + state * HEAD_DIM + col, mask=mask & (col < HEAD_DIM), other=0.0)  # [BLOCK_S, BLOCK_D]
    states = (tl.broadcast_to(largest, part.shape), tl.broadcast_to(total, part.shape), part)
    largest, total, out = tl.reduce(states, axis=0, combine_fn=merge, keep_dims=True)  # [1, BLOCK_D]
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


@cache
def plan(sequences: int, rows: int, keys: int, head_dim: int, page: int, splits: int | None, gpu: Device) -> Plan:
    """The plan for groups of so many rows, with as many splits, unless given, as let the last program end soonest.

    sequences: pairs of a sequence and a key head. keys: of the longest sequence. page: rows of a page, 0 without pages.
    """
    width = block_d(head_dim)
    block_m = min(max(16, triton.next_power_of_2(rows)), 64 if width <= 128 else 32)
    block_n = min(128, STEP_BYTES // (4 * width))
    tiles = triton.cdiv(rows, block_m)
    at_a_time = gpu.sms * max(1, min(PROGRAMS, gpu.shared_per_sm // (STEP_BYTES * (STEPS_AHEAD + 1))))

    def keys_in_turn(splits: int) -> int:
        """That a place on the GPU reads, in all the programs that run there one after the other."""
        return triton.cdiv(sequences * tiles * splits, at_a_time) * (triton.cdiv(keys, splits) + STARTING)

    if splits is None:
        splits = min(range(1, max(2, min(MAX_SPLITS, triton.cdiv(keys, block_n)) + 1)), key=keys_in_turn)
    blocks = {"HEAD_DIM": head_dim, "BLOCK_D": width, "num_warps": 4}
    # behind a table's entries the loads are the second level of the pipeline, which halves how far ahead they are
    stages = {"num_stages": 1 + STEPS_AHEAD * (2 if page else 1)}
    config = {"PAGE": page, "BLOCK_M": block_m, "BLOCK_N": block_n, **blocks, **stages}
    return Plan(splits, tiles, config, {"BLOCK_S": triton.next_power_of_2(splits), **blocks})
