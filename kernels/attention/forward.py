"""Attention: out = softmax(scale * q @ k^T) @ v for each head, without the scores ever being in device memory.

Minimum traffic: q, k and v read once, out written once: (2 * heads * queries + 2 * kv_heads * keys) * head_dim elements
per sequence. A program keeps a tile of queries and loops over tiles of keys and values. It carries each row's running
max and running sum (lesson 06) and an output accumulator; whenever a larger score comes, it rescales the sum and the
accumulator by a correction factor. Each tile of queries requests all of its keys and values. The log-sum-exp of each
row is written too, since the backward recomputes the weights from it.

The algorithm is Dao and others' FlashAttention (2022), with the loop over queries outside as in FlashAttention-2 (Dao,
2023) and in Rabe and Staats (2021). Matmuls of 16-bit tensors accumulate in fp32; weights are rounded to 16 bits before
the second matmul. Three kernels compute it: the plain one and the fast one here, and Hopper's in hopper.py.
"""

import math
from dataclasses import dataclass

import torch
from torch.autograd.function import once_differentiable

from instruments.backend import cdiv, tl, triton
from instruments.launcher import Launch
from kernels.attention import hopper
from kernels.attention.configs import FORWARD, check_attention, choose, is_addressable, plan_descriptor
from kernels.attention.masks import (
    LOG2E,
    MIN_SCORE,
    attention_mask,
    key_range,
    load_rows,
    load_tile,
    store_rows,
    unmasked_range,
)
from kernels.attention.traffic import attention_ops as attention_ops
from kernels.attention.traffic import attention_traffic as attention_traffic
from kernels.shared.arguments import wants_grad
from kernels.shared.device import DescriptorPlan, device_of
from kernels.shared.metadata import by_metadata


def attention_reference(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    causal: bool = False,
    scale: float | None = None,
    window: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """(out, lse) in plain PyTorch, in the precision of its arguments: give it fp64 for a reference.

    Args:
        q, k, v, causal, scale, window: as for `flash_attention`, of any floating-point dtype.

    Returns:
        out: of q's shape; 0 in a row that attends to no key.
        lse: [batch, heads, queries], log of the sum of the exponentials of a row's scores; -inf in such a row.
    """
    group, (queries, head_dim), keys = q.shape[1] // k.shape[1], q.shape[2:], k.shape[2]
    k, v = (x.repeat_interleave(group, dim=1) for x in (k, v))
    scores = q @ k.mT * (head_dim**-0.5 if scale is None else scale)
    query, key = (torch.arange(n, device=q.device) for n in (queries, keys))
    ahead = key - (query[:, None] + keys - queries)  # [queries, keys]: how far a key is ahead of the query
    mask = ahead <= 0 if causal else torch.ones_like(ahead, dtype=torch.bool)
    if window is not None:
        mask &= (ahead > -window) & (ahead < window)
    scores = scores.masked_fill(~mask, float("-inf"))
    lse = scores.logsumexp(dim=-1)
    weights = (scores - lse[..., None]).exp().masked_fill(~mask, 0.0)
    return weights @ v, lse


@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, lse_ptr,  # tensors
    q_strides, k_strides, v_strides,
    heads, group, queries, keys, head_dim, window, scale,
    CAUSAL: tl.constexpr, WINDOWED: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """One tile of queries of one head, FlashAttention (Dao and others, 2022) with the loop over queries outside.

    Args:
        q_ptr: [batch, heads, queries, head_dim], fp16 or bf16, any strides.
        k_ptr, v_ptr: [batch, heads // group, keys, head_dim], q's dtype, any strides.
        out_ptr: [batch, heads, queries, head_dim], q's dtype, contiguous.
        lse_ptr: [batch, heads, queries], fp32, contiguous.
        q_strides, k_strides, v_strides: in elements, four each.
        group: query heads per KV head.
        window: as for `flash_attention`, where WINDOWED.
        scale: of the scores.
    """
    tiles = tl.cdiv(queries, BLOCK_M)
    batch_head, tile = (tl.program_id(0) // tiles).to(tl.int64), tl.program_id(0) % tiles
    batch, head = batch_head // heads, batch_head % heads
    q_ptr += batch * q_strides[0] + head * q_strides[1]
    k_ptr += batch * k_strides[0] + head // group * k_strides[1]
    v_ptr += batch * v_strides[0] + head // group * v_strides[1]

    row = tile * BLOCK_M + tl.arange(0, BLOCK_M)  # [BLOCK_M]
    q = load_rows(q_ptr, tile * BLOCK_M, queries, head_dim, q_strides, BLOCK_M, BLOCK_D)
    running_max = tl.full([BLOCK_M], MIN_SCORE, dtype=tl.float32)  # of the scores, in units of log2(e)
    running_sum = tl.zeros([BLOCK_M], dtype=tl.float32)  # of exp2(score - running_max)
    acc = tl.zeros([BLOCK_M, BLOCK_D], dtype=tl.float32)  # values, weighted by the same

    first, last = key_range(tile * BLOCK_M, queries, keys, window, BLOCK_M, BLOCK_N, CAUSAL, WINDOWED)
    for start in tl.range(first, last, BLOCK_N):
        key = start + tl.arange(0, BLOCK_N)  # [BLOCK_N]
        k = load_rows(k_ptr, start, keys, head_dim, k_strides, BLOCK_N, BLOCK_D)
        scores = tl.dot(q, k.T) * (scale * LOG2E)  # [BLOCK_M, BLOCK_N]
        mask = attention_mask(row[:, None], key[None, :], queries, keys, window, CAUSAL, WINDOWED)
        scores = tl.where(mask, scores, float("-inf"))

        new_max = tl.maximum(running_max, tl.max(scores, axis=1))
        weights = tl.exp2(scores - new_max[:, None])
        correction = tl.exp2(running_max - new_max)  # rescales what was accumulated over the old max
        running_sum = running_sum * correction + tl.sum(weights, axis=1)
        v = load_rows(v_ptr, start, keys, head_dim, v_strides, BLOCK_N, BLOCK_D)
        acc = tl.dot(weights.to(v.dtype), v, acc * correction[:, None])
        running_max = new_max

    empty = running_sum == 0.0  # rows that attend to no key
    out = acc / tl.where(empty, 1.0, running_sum)[:, None]
    lse = tl.where(empty, float("-inf"), (running_max + tl.log2(running_sum)) / LOG2E)
    tl.store(lse_ptr + batch_head * queries + row, lse, mask=row < queries)
    store_rows(out_ptr + batch_head * queries * head_dim, out, tile * BLOCK_M, queries, head_dim, BLOCK_M, BLOCK_D)


# The fast kernel computes the same, from FlashAttention-2 (Dao, 2023). What differs:
# - TMA copies tiles to shared memory through tensor descriptors, with zeros past the end of a head.
# - Tiles of keys that need no mask have a loop of their own: causal, that is all but the last one or two.
# - Up to 128 columns, tiles are small enough for two programs per SM: the matmuls of one run under the exponentials of
#   the other.
# - The rest of the scale and the max are one multiply-add per score; the scale's power of two goes to q, exactly, and
#   the scaled q stays in registers, which an H200 rewards at 64 and 128 columns.
# - Causal, the tiles of queries with the most work start first.


@triton.jit
def attend_keys(
    q_tile, k, v,  # tensors; k, v: descriptors
    batch_head, row, scale, sizes,  # sizes: queries, keys, window
    begin, end, acc, running_max, running_sum,
    CAUSAL: tl.constexpr, WINDOWED: tl.constexpr, MASKED: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """The plain kernel's loop over the tiles of keys in [begin, end).

    Args:
        q_tile: [BLOCK_M, BLOCK_D].
        k, v: descriptors of [batch, KV heads, keys, head_dim].
        batch_head: (batch, head) of k and v.
        row: [BLOCK_M], the queries.
        scale: of the scores, in units of log2(e).
        sizes: (queries, keys, window).
        acc, running_max, running_sum: [BLOCK_M, BLOCK_D], [BLOCK_M] and [BLOCK_M], fp32, of the tiles before.
        MASKED: whether some of the pairs are masked out.

    Returns:
        (acc, running_max, running_sum) after these tiles.
    """
    BLOCK_D: tl.constexpr = q_tile.shape[1]
    for start in tl.range(begin, end, BLOCK_N):
        scores = tl.dot(q_tile, load_tile(k, *batch_head, start, BLOCK_N, BLOCK_D).T)  # [BLOCK_M, BLOCK_N]
        if MASKED:
            key = start + tl.arange(0, BLOCK_N)  # [BLOCK_N]
            mask = attention_mask(row[:, None], key[None, :], *sizes, CAUSAL, WINDOWED)
            scores = tl.where(mask, scores, float("-inf"))
        new_max = tl.maximum(running_max, tl.max(scores, axis=1) * scale)
        weights = tl.exp2(scores * scale - new_max[:, None])
        correction = tl.exp2(running_max - new_max)
        running_sum = running_sum * correction + tl.sum(weights, axis=1)
        v_tile = load_tile(v, *batch_head, start, BLOCK_N, BLOCK_D)
        acc = tl.dot(weights.to(v_tile.dtype), v_tile, acc * correction[:, None])
        running_max = new_max
    return acc, running_max, running_sum


@triton.jit(do_not_specialize=["heads", "group", "queries", "keys", "window"])  # compiled once for all lengths
def attention_fast_kernel(
    q, k, v, out_ptr, lse_ptr,  # tensors; q, k, v: descriptors
    heads, group, queries, keys, head_dim, window, power, scale,
    CAUSAL: tl.constexpr, WINDOWED: tl.constexpr, IN_REGISTERS: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """One tile of queries of one head, as the plain kernel computes it.

    Args:
        q, k, v: descriptors of the plain kernel's tensors, for tiles of BLOCK_M, BLOCK_N and BLOCK_N rows.
        out_ptr, lse_ptr, heads, group, window: as for the plain kernel.
        power: a power of two.
        scale: power * scale is the scale of the scores, in units of log2(e).
        IN_REGISTERS: whether q is multiplied by power once, and stays in registers.
    """
    tiles = tl.cdiv(queries, BLOCK_M)
    batch_head = tl.program_id(0) // tiles
    first_query = (tiles - 1 - tl.program_id(0) % tiles) * BLOCK_M  # causal, the last tile has the most work
    batch, head = batch_head // heads, batch_head % heads
    kv_head = head // group
    row = first_query + tl.arange(0, BLOCK_M)  # [BLOCK_M]
    q_tile = load_tile(q, batch, head, first_query, BLOCK_M, BLOCK_D)
    if IN_REGISTERS:
        q_tile = (q_tile * power).to(q_tile.dtype)  # computed, so that it stays in registers
    else:
        scale *= power
    running_max = tl.full([BLOCK_M], MIN_SCORE, dtype=tl.float32)
    running_sum = tl.zeros([BLOCK_M], dtype=tl.float32)
    acc = tl.zeros([BLOCK_M, BLOCK_D], dtype=tl.float32)
    first, last = key_range(first_query, queries, keys, window, BLOCK_M, BLOCK_N, CAUSAL, WINDOWED)
    begin, end = unmasked_range(first_query, first, queries, keys, window, BLOCK_M, BLOCK_N, CAUSAL, WINDOWED)
    operands = q_tile, k, v, (batch, kv_head), row, scale, (queries, keys, window)
    state = acc, running_max, running_sum
    if WINDOWED:
        state = attend_keys(*operands, first, tl.minimum(begin, last), *state, CAUSAL, WINDOWED, True, BLOCK_N)
    state = attend_keys(*operands, begin, end, *state, CAUSAL, WINDOWED, False, BLOCK_N)
    acc, running_max, running_sum = attend_keys(*operands, end, last, *state, CAUSAL, WINDOWED, True, BLOCK_N)
    empty = running_sum == 0.0
    out = acc / tl.where(empty, 1.0, running_sum)[:, None]
    lse = tl.where(empty, float("-inf"), (running_max + tl.log2(running_sum)) / LOG2E)
    rows_before = batch_head.to(tl.int64) * queries
    tl.store(lse_ptr + rows_before + row, lse, mask=row < queries)
    store_rows(out_ptr + rows_before * head_dim, out, first_query, queries, head_dim, BLOCK_M, BLOCK_D)


@dataclass(frozen=True)
class ForwardPlan:
    """The plan of a call on path 'plain' or 'fast'. kernel: None where no query or no key is. tiles: descriptors of q,
    k and v; None for pointers."""

    kernel: Launch | None
    tiles: tuple[DescriptorPlan, ...] | None = None

    def __call__(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """(out, lse)."""
        out = torch.empty_like(q, memory_format=torch.contiguous_format)
        lse = torch.empty(q.shape[:3], dtype=torch.float32, device=q.device)
        if self.kernel is None:
            return out.zero_(), lse.fill_(float("-inf"))
        operands = [tile(x) for tile, x in zip(self.tiles, (q, k, v))] if self.tiles else (q, k, v)
        self.kernel(*operands, out, lse)
        return out, lse


@by_metadata
def _plan(q, k, v, causal, scale, window, path, return_lse) -> tuple[float, ForwardPlan | hopper.HopperPlan]:
    """(scale, the plan) of a call, whose arguments it checks; 'hopper' computes no lse unless return_lse."""
    scale = check_attention(q, k, v, scale, window)
    path, config = choose(FORWARD, q.shape[3], path, q.device, is_addressable(q, k, v), window is not None)
    if not (q.numel() and k.numel()):
        return scale, ForwardPlan(None)
    if path == "hopper":
        return scale, hopper.plan_launch(q, k, v, causal, scale, return_lse, device_of(q.device).sms)
    batch, heads, queries, head_dim = q.shape
    grid = (batch * heads * cdiv(queries, config["BLOCK_M"]),)
    sizes = heads, heads // k.shape[1], queries, k.shape[2], head_dim, window or 0
    options = {"CAUSAL": causal, "WINDOWED": window is not None, **config}
    if path == "plain":
        strides = q.stride(), k.stride(), v.stride()
        return scale, ForwardPlan(Launch(attention_kernel, grid, *strides, *sizes, scale, **options))
    rest, exponent = math.frexp(scale * LOG2E.value)
    rows = config["BLOCK_M"], config["BLOCK_N"], config["BLOCK_N"]
    tiles = tuple(plan_descriptor(x, n) for x, n in zip((q, k, v), rows))
    return scale, ForwardPlan(Launch(attention_fast_kernel, grid, *sizes, 2.0**exponent, rest, **options), tiles)


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, causal, scale, window, plan):
        out, lse = plan(q, k, v)
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.options = causal, scale, window
        ctx.mark_non_differentiable(lse)
        return out, lse

    @staticmethod
    @once_differentiable
    def backward(ctx, dout, dlse):
        from kernels.attention.backward import attention_backward

        return *attention_backward(dout, *ctx.saved_tensors, *ctx.options), *[None] * 4


def flash_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    causal: bool = False,
    scale: float | None = None,
    window: int | None = None,
    *,
    return_lse: bool = False,
    path: str | None = None,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """softmax(scale * q @ k^T) @ v for each head, without storing the scores; differentiable in q, k and v.

    Args:
        q: [batch, heads, queries, head_dim], fp16 or bf16, any strides; head_dim 1 to 256.
        k: [batch, kv_heads, keys, head_dim], q's dtype, any strides; heads is a multiple of kv_heads, and query head h
            attends to key head h // (heads // kv_heads).
        v: [batch, kv_heads, keys, head_dim], q's dtype, any strides.
        causal: query i attends to the keys j <= i + keys - queries only, so the last query attends to all.
        scale: a positive number; head_dim ** -0.5 unless given.
        window: a query attends only to keys less than `window` positions away from i + keys - queries.
        return_lse: also return the log-sum-exp of each row's scores.
        path: which kernel runs; the fastest one on this GPU unless given:
            'plain': pointers, any GPU.
            'fast': tensor descriptors, Hopper or later; all strides but the last in multiples of 16 bytes.
            'hopper': Gluon, a Hopper GPU; head_dim 64 or 128, no window.

    Returns:
        out: q's shape and dtype, contiguous; 0 in a row that attends to no key.
        lse: with return_lse, [batch, heads, queries], fp32, natural logarithm, no gradient; -inf in such a row.

    Raises:
        ValueError: an argument that does not fit, by name, or a path that cannot run here.

    Note:
        On a Hopper GPU 'hopper' is the default where it applies. It copies tensors that TMA cannot address. Gluon is
        never interpreted: in the interpreter, and so under the meter, watch and portrait, the default is a Triton path.
    """
    trains = wants_grad(q, k, v)
    scale, plan = _plan(q, k, v, causal, scale, window, path, return_lse or trains)
    out, lse = _Attention.apply(q, k, v, causal, scale, window, plan) if trains else plan(q, k, v)
    return (out, lse) if return_lse else out
