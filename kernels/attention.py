"""Attention: out = softmax(scale * q @ k^T) @ v for each head, without the scores ever being in memory.

Minimum traffic: q, k and v read once, out written once: (2 * heads * queries + 2 * kv_heads * keys) * head_dim elements
per sequence. A program keeps a tile of queries and walks over tiles of keys and values; the running maximum and sum of
each row (lesson 06) repair what it has added up so far whenever a larger score comes. k and v are asked for once per
tile of queries. The log-sum-exp of each row is written too: the backward computes the scores again from it.

The algorithm is Dao and others' FlashAttention (2022), with the loop over queries outside as in FlashAttention-2 (2023)
and in Rabe and Staats (2021). Products of 16-bit tensors are added up in fp32; weights are rounded before the second.
"""

import torch
from torch.autograd.function import once_differentiable

from instruments.backend import tl, triton
from kernels import attention_fast
from kernels.arguments import wants_grad
from kernels.attention_plan import FORWARD, choose, describable
from kernels.attention_tiles import FLOOR, LOG2E, check_attention, key_range, load_rows, sees, store_rows
from kernels.attention_traffic import attention_ops as attention_ops
from kernels.attention_traffic import attention_traffic as attention_traffic


def attention_reference(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    causal: bool = False,
    scale: float | None = None,
    window: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """(out, lse) in plain PyTorch, in the precision of its arguments: give it fp64 for a reference.

    Shapes, causal and window as for `flash_attention`; lse [batch, heads, queries] is the logarithm of the sum of the
    exponentials of a row's scores. A row that sees no key has out 0 and lse -inf.
    """
    group, (queries, head_dim), keys = q.shape[1] // k.shape[1], q.shape[2:], k.shape[2]
    k, v = (x.repeat_interleave(group, dim=1) for x in (k, v))
    scores = q @ k.mT * (head_dim**-0.5 if scale is None else scale)
    query, key = (torch.arange(n, device=q.device) for n in (queries, keys))
    ahead = key - (query[:, None] + keys - queries)  # [queries, keys]: how far a key is ahead of the query
    seen = ahead <= 0 if causal else torch.ones_like(ahead, dtype=torch.bool)
    if window is not None:
        seen &= (ahead > -window) & (ahead < window)
    scores = scores.masked_fill(~seen, float("-inf"))
    lse = scores.logsumexp(dim=-1)
    weights = (scores - lse[..., None]).exp().masked_fill(~seen, 0.0)
    return weights @ v, lse


@triton.jit
def attention_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    out_ptr,
    lse_ptr,
    q_strides,
    k_strides,
    v_strides,
    heads,
    group,
    queries,
    keys,
    head_dim,
    window,
    scale,
    CAUSAL: tl.constexpr,
    WINDOWED: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    """One tile of queries of one head: q [batch, heads, queries, head_dim], k and v [batch, heads // group, keys,
    head_dim] of any strides, out [batch, heads, queries, head_dim] and lse [batch, heads, queries] contiguous."""
    tiles = tl.cdiv(queries, BLOCK_M)
    batch_head, tile = (tl.program_id(0) // tiles).to(tl.int64), tl.program_id(0) % tiles
    batch, head = batch_head // heads, batch_head % heads
    q_ptr += batch * q_strides[0] + head * q_strides[1]
    k_ptr += batch * k_strides[0] + head // group * k_strides[1]
    v_ptr += batch * v_strides[0] + head // group * v_strides[1]

    row = tile * BLOCK_M + tl.arange(0, BLOCK_M)  # [BLOCK_M]
    q = load_rows(q_ptr, tile * BLOCK_M, queries, head_dim, q_strides, BLOCK_M, BLOCK_D)
    largest = tl.full([BLOCK_M], FLOOR, dtype=tl.float32)  # of the scores so far, in units of log2(e)
    total = tl.zeros([BLOCK_M], dtype=tl.float32)  # of their exponentials, over that of the largest
    out = tl.zeros([BLOCK_M, BLOCK_D], dtype=tl.float32)  # weighted values, over the same

    first, last = key_range(tile * BLOCK_M, queries, keys, window, BLOCK_M, BLOCK_N, CAUSAL, WINDOWED)
    for start in tl.range(first, last, BLOCK_N):
        key = start + tl.arange(0, BLOCK_N)  # [BLOCK_N]
        k = load_rows(k_ptr, start, keys, head_dim, k_strides, BLOCK_N, BLOCK_D)
        scores = tl.dot(q, k.T) * (scale * LOG2E)  # [BLOCK_M, BLOCK_N]
        seen = sees(row[:, None], key[None, :], queries, keys, window, CAUSAL, WINDOWED)
        scores = tl.where(seen, scores, float("-inf"))

        larger = tl.maximum(largest, tl.max(scores, axis=1))
        weights = tl.exp2(scores - larger[:, None])
        repair = tl.exp2(largest - larger)  # of what was added up over the old largest
        total = total * repair + tl.sum(weights, axis=1)
        v = load_rows(v_ptr, start, keys, head_dim, v_strides, BLOCK_N, BLOCK_D)
        out = tl.dot(weights.to(v.dtype), v, out * repair[:, None])
        largest = larger

    empty = total == 0.0  # rows that saw no key
    out = out / tl.where(empty, 1.0, total)[:, None]
    lse = tl.where(empty, float("-inf"), (largest + tl.log2(total)) / LOG2E)
    tl.store(lse_ptr + batch_head * queries + row, lse, mask=row < queries)
    store_rows(out_ptr + batch_head * queries * head_dim, out, tile * BLOCK_M, queries, head_dim, BLOCK_M, BLOCK_D)


def _forward(q, k, v, causal, scale, window, path):
    batch, heads, queries, head_dim = q.shape
    out = torch.empty_like(q, memory_format=torch.contiguous_format)
    lse = torch.empty((batch, heads, queries), dtype=torch.float32, device=q.device)
    if not (q.numel() and k.numel()):  # nobody, or nothing to see
        return out.zero_(), lse.fill_(float("-inf"))
    path, tile = choose(FORWARD, head_dim, path, q.device, describable(q, k, v))
    if path == "fast":
        attention_fast.launch(q, k, v, out, lse, causal, scale, window, tile)
        return out, lse
    grid = (batch * heads * triton.cdiv(queries, tile["BLOCK_M"]),)
    sizes = (heads, heads // k.shape[1], queries, k.shape[2], head_dim)
    attention_kernel[grid](
        q,
        k,
        v,
        out,
        lse,
        q.stride(),
        k.stride(),
        v.stride(),
        *sizes,
        window or 0,
        scale,
        CAUSAL=causal,
        WINDOWED=window is not None,
        **tile,
    )
    return out, lse


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, causal, scale, window, path):
        out, lse = _forward(q, k, v, causal, scale, window, path)
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.options = causal, scale, window
        ctx.mark_non_differentiable(lse)
        return out, lse

    @staticmethod
    @once_differentiable
    def backward(ctx, dout, dlse):
        from kernels.attention_backward import attention_backward

        return *attention_backward(dout, *ctx.saved_tensors, *ctx.options), None, None, None, None


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
    """softmax(scale * q @ k^T) @ v for each head, the scores never stored; differentiable in q, k and v.

    q: [batch, heads, queries, head_dim], k, v: [batch, kv_heads, keys, head_dim], of one dtype, fp16 or bf16, any
    strides; head_dim 1 to 256; heads a multiple of kv_heads, and query head h reads key head h // (heads // kv_heads).
    causal: query i sees the keys j <= i + keys - queries, so the last sees all. scale: a positive number, head_dim **
    -0.5 unless given. window: only keys less than so many positions from i + keys - queries are seen. path: which
    kernel runs, chosen by the GPU unless given: 'plain' (pointers, any GPU) or 'fast' (tensor descriptors: Hopper or
    later, strides but the last in multiples of 16 bytes).

    Returns out, contiguous, of q's shape and dtype; with return_lse also the log-sum-exp of each row's scores, [batch,
    heads, queries] fp32, natural logarithm, without a gradient. A row that sees no key has out 0 and lse -inf. Raises
    ValueError naming the argument.
    """
    scale = check_attention(q, k, v, scale, window)
    choose(FORWARD, q.shape[3], path, q.device, describable(q, k, v))
    function = _Attention.apply if wants_grad(q, k, v) else _forward
    out, lse = function(q, k, v, causal, scale, window, path)
    return (out, lse) if return_lse else out
