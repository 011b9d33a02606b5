"""Lesson 08c's steps from the plain kernel to the fast one: causal attention, one change a step.

The kernel exists to be compiled and measured: each step changes one thing of the step before it, and the last one is
attention_fast_kernel of forward.py without windows, grouped heads and log-sum-exp. Minimum traffic is attention's: q, k
and v read once, the output written once. The algorithm is FlashAttention-2 (Dao, 2023).
"""

import math
from dataclasses import asdict, dataclass

import torch

from instruments.backend import tl, triton
from kernels.attention.configs import DTYPES, describe
from kernels.attention.masks import LOG2E, MIN_SCORE, load_rows, load_tile, store_rows
from kernels.shared.arguments import check_no_grad, check_tensor

HEAD_DIMS = (64, 128)
ROWS = 64  # queries per tile, and keys per tile
WARPS = 4


@triton.jit
def load_keys(x, head_ptr, strides, batch_head, start, sequence, DESCRIPTORS: tl.constexpr, TILE: tl.constexpr,
              HEAD_DIM: tl.constexpr):  # fmt: skip
    """Rows of k or v from `start` on: [TILE, HEAD_DIM]. x: a descriptor, or a pointer whose head starts at head_ptr."""
    if DESCRIPTORS:
        return load_tile(x, *batch_head, start, TILE, HEAD_DIM)
    else:
        return load_rows(head_ptr, start, sequence, HEAD_DIM, strides, TILE, HEAD_DIM)


@triton.jit
def attend_tiles(
    q_tile, k, v, heads_at, row, scale, begin, end, acc, running_max, running_sum,
    DESCRIPTORS: tl.constexpr, MASKED: tl.constexpr, FOLDED: tl.constexpr, TILE: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """(acc, running_max, running_sum) after the tiles of keys in [begin, end). heads_at: (pointer to k's head, to v's,
    strides of both, (batch, head), sequence)."""
    HEAD_DIM: tl.constexpr = q_tile.shape[1]
    k_ptr, v_ptr, k_strides, v_strides, batch_head, sequence = heads_at
    for start in tl.range(begin, end, TILE, num_stages=STAGES):
        k_tile = load_keys(k, k_ptr, k_strides, batch_head, start, sequence, DESCRIPTORS, TILE, HEAD_DIM)
        scores = tl.dot(q_tile, k_tile.T)  # [TILE, TILE]
        if not FOLDED:
            scores *= scale
        if MASKED:
            key = start + tl.arange(0, TILE)
            scores = tl.where(key[None, :] <= row[:, None], scores, float("-inf"))
        if FOLDED:
            new_max = tl.maximum(running_max, tl.max(scores, axis=1) * scale)
            weights = tl.exp2(scores * scale - new_max[:, None])  # one multiply-add per score
        else:
            new_max = tl.maximum(running_max, tl.max(scores, axis=1))
            weights = tl.exp2(scores - new_max[:, None])
        correction = tl.exp2(running_max - new_max)
        running_sum = running_sum * correction + tl.sum(weights, axis=1)
        v_tile = load_keys(v, v_ptr, v_strides, batch_head, start, sequence, DESCRIPTORS, TILE, HEAD_DIM)
        acc = tl.dot(weights.to(v_tile.dtype), v_tile, acc * correction[:, None])
        running_max = new_max
    return acc, running_max, running_sum


@triton.jit
def attention_step_kernel(
    q, k, v, out_ptr,  # pointers, or with DESCRIPTORS descriptors of q, k and v
    q_strides, k_strides, v_strides, heads, sequence, power, scale,
    DESCRIPTORS: tl.constexpr, SPLIT: tl.constexpr, FOLDED: tl.constexpr, IN_REGISTERS: tl.constexpr,
    LONGEST_FIRST: tl.constexpr, STAGES: tl.constexpr, TILE: tl.constexpr, HEAD_DIM: tl.constexpr,
):  # fmt: skip
    """TILE queries of one head: q, k, v, out [batch, heads, sequence, HEAD_DIM]. power * scale is the scale in units of
    log2(e), power a power of two; the switches are a Step's."""
    tiles = tl.cdiv(sequence, TILE)
    batch_head, tile = tl.program_id(0) // tiles, tl.program_id(0) % tiles
    if LONGEST_FIRST:
        tile = tiles - 1 - tile  # causal, the last tile of queries has the most tiles of keys
    batch, head = batch_head // heads, batch_head % heads
    first_query = tile * TILE
    row = first_query + tl.arange(0, TILE)
    k_ptr, v_ptr = k, v
    if DESCRIPTORS:
        q_tile = load_tile(q, batch, head, first_query, TILE, HEAD_DIM)
    else:
        q_ptr = q + batch.to(tl.int64) * q_strides[0] + head * q_strides[1]
        k_ptr += batch.to(tl.int64) * k_strides[0] + head * k_strides[1]
        v_ptr += batch.to(tl.int64) * v_strides[0] + head * v_strides[1]
        q_tile = load_rows(q_ptr, first_query, sequence, HEAD_DIM, q_strides, TILE, HEAD_DIM)
    if IN_REGISTERS:
        q_tile = (q_tile * power).to(q_tile.dtype)  # computed, so that it stays in registers
    else:
        scale *= power
    running_max = tl.full([TILE], MIN_SCORE, dtype=tl.float32)
    running_sum = tl.zeros([TILE], dtype=tl.float32)
    acc = tl.zeros([TILE, HEAD_DIM], dtype=tl.float32)
    operands = q_tile, k, v, (k_ptr, v_ptr, k_strides, v_strides, (batch, head), sequence), row, scale
    state = acc, running_max, running_sum
    last = tl.minimum(first_query + TILE, sequence)
    if SPLIT:
        state = attend_tiles(*operands, 0, first_query, *state, DESCRIPTORS, False, FOLDED, TILE, STAGES)
        state = attend_tiles(*operands, first_query, last, *state, DESCRIPTORS, True, FOLDED, TILE, STAGES)
    else:
        state = attend_tiles(*operands, 0, last, *state, DESCRIPTORS, True, FOLDED, TILE, STAGES)
    acc, running_max, running_sum = state
    out_ptr += batch_head.to(tl.int64) * sequence * HEAD_DIM
    store_rows(out_ptr, acc / running_sum[:, None], first_query, sequence, HEAD_DIM, TILE, HEAD_DIM)


@dataclass(frozen=True)
class Step:
    """The switches of a step.

    Args:
        stages: tiles of keys, and of values, that the loop prefetches into; 1: it loads each when it needs it.
        descriptors: TMA loads tiles of q, k and v, instead of pointers.
        split: tiles of keys that need no mask have a loop of their own.
        folded: scale and max are one multiply-add per score.
        in_registers: q is multiplied by a power of two once, and stays in registers.
        longest_first: programs with the most tiles of keys start first.
    """

    stages: int = 3
    descriptors: bool = False
    split: bool = False
    folded: bool = False
    in_registers: bool = False
    longest_first: bool = False


#: {name in records: step}, each with one more change than the one before.
STEPS = {
    "plain": Step(stages=1),
    "three stages": Step(),
    "descriptors": Step(descriptors=True),
    "split loop": Step(descriptors=True, split=True),
    "scale folded": Step(descriptors=True, split=True, folded=True),
    "q in registers": Step(descriptors=True, split=True, folded=True, in_registers=True),
    "longest first": Step(descriptors=True, split=True, folded=True, in_registers=True, longest_first=True),
}


def attention_steps(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, step: str = "longest first") -> torch.Tensor:
    """Causal softmax(q k^T / sqrt(head_dim)) v by one step's kernel.

    Args:
        q: [batch, heads, sequence, head_dim], fp16 or bf16, contiguous; head_dim 64 or 128.
        k: of q's shape and dtype, contiguous.
        v: of q's shape and dtype, contiguous.
        step: a name of STEPS.

    Returns:
        A tensor of q's shape and dtype, contiguous.

    Raises:
        ValueError: an argument that does not fit, by name.

    Note:
        Every step but 'plain' and 'three stages' needs a GPU with TMA, Hopper or later.
    """
    check_tensor("q", q, dtypes=DTYPES)
    if q.dim() != 4 or q.shape[3] not in HEAD_DIMS:
        raise ValueError(f"q: got shape {tuple(q.shape)}, expected [batch, heads, sequence, 64 or 128]")
    for name, tensor in {"k": k, "v": v}.items():
        check_tensor(name, tensor, shape=q.shape, like=q, dtypes=(q.dtype,), why=", that of q")
    for name, tensor in {"q": q, "k": k, "v": v}.items():
        if not tensor.is_contiguous():
            raise ValueError(f"{name}: got strides {tensor.stride()}, expected a contiguous tensor")
    if step not in STEPS:
        raise ValueError(f"step: got {step!r}, expected one of: {', '.join(STEPS)}")
    check_no_grad("attention_steps", q=q, k=k, v=v)
    out = torch.empty_like(q)
    if not q.numel():
        return out
    batch, heads, sequence, head_dim = q.shape
    rest, exponent = math.frexp(head_dim**-0.5 * LOG2E.value)
    switches = {name.upper(): value for name, value in asdict(STEPS[step]).items()}
    tensors = [describe(x, ROWS) for x in (q, k, v)] if STEPS[step].descriptors else (q, k, v)
    strides = q.stride(), k.stride(), v.stride()
    # fmt: off
    attention_step_kernel[(batch * heads * -(-sequence // ROWS),)](
        *tensors, out, *strides, heads, sequence, 2.0**exponent, rest,
        **switches, TILE=ROWS, HEAD_DIM=head_dim, num_warps=WARPS,
    )
    # fmt: on
    return out
