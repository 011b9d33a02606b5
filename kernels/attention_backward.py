"""Attention backward: the gradients of q, k and v, the scores computed again from q, k and the saved log-sum-exp.

With weights = exp(scale * q @ k^T - lse) and out = weights @ v:

    dv = weights^T @ dout        dweights = dout @ v^T        dscores = weights * (dweights - delta)
    dq = scale * dscores @ k     dk = scale * dscores^T @ q   delta = sum(dout * out) of each row

Minimum traffic: q, k, v, out, dout and lse read once, dq, dk and dv written once. One launch computes delta; one owns
tiles of keys, walks over the queries that see them and writes dk and dv; one owns tiles of queries and writes dq. Seven
products instead of five, and no atomics: the same numbers every time. dk and dv of a shared key head are summed over
its query heads by the program that owns the tile.

The method is Dao and others' (FlashAttention, 2022; FlashAttention-2, 2023). A tile of keys forms its scores transposed
from the start, [keys, queries], so that no product has to be transposed before the next.
"""

import torch

from instruments.backend import tl, triton
from kernels import attention_backward_fast
from kernels.attention_plan import BACKWARD, choose, describable
from kernels.attention_tiles import LOG2E, key_range, load_rows, load_statistics, query_range, sees, store_rows
from kernels.attention_traffic import attention_backward_traffic as attention_backward_traffic

DELTA_ROWS = 32  # rows of a program's tile in the launch that computes delta


@triton.jit
def attention_delta_kernel(
    out_ptr, dout_ptr, lse_ptr, delta_ptr, shift_ptr, rows, head_dim, ROWS: tl.constexpr, BLOCK_D: tl.constexpr
):
    """delta [rows] fp32 of out and dout [rows, head_dim] contiguous, and shift [rows]: lse [rows] in units of log2(e),
    but infinite where a row saw no key, so that its weights become zero. A tile of ROWS rows."""
    first = tl.program_id(0).to(tl.int64) * ROWS
    row = first + tl.arange(0, ROWS)  # [ROWS]
    strides = (0, 0, head_dim, 1)
    out = load_rows(out_ptr, first, rows, head_dim, strides, ROWS, BLOCK_D).to(tl.float32)
    dout = load_rows(dout_ptr, first, rows, head_dim, strides, ROWS, BLOCK_D).to(tl.float32)
    tl.store(delta_ptr + row, tl.sum(out * dout, axis=1), mask=row < rows)
    lse = tl.load(lse_ptr + row, mask=row < rows)
    tl.store(shift_ptr + row, tl.where(lse == float("-inf"), float("inf"), lse * LOG2E), mask=row < rows)


@triton.jit
def attention_dkdv_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    dout_ptr,
    shift_ptr,
    delta_ptr,
    dk_ptr,
    dv_ptr,
    q_strides,
    k_strides,
    v_strides,
    dout_strides,
    kv_heads,
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
    """One tile of keys of one key head; tensors as for the forward, dk and dv contiguous, delta like lse."""
    tiles = tl.cdiv(keys, BLOCK_N)
    batch_head, first_key = (tl.program_id(0) // tiles).to(tl.int64), tl.program_id(0) % tiles * BLOCK_N
    batch, kv_head = batch_head // kv_heads, batch_head % kv_heads
    k_ptr += batch * k_strides[0] + kv_head * k_strides[1]
    v_ptr += batch * v_strides[0] + kv_head * v_strides[1]
    k = load_rows(k_ptr, first_key, keys, head_dim, k_strides, BLOCK_N, BLOCK_D)
    v = load_rows(v_ptr, first_key, keys, head_dim, v_strides, BLOCK_N, BLOCK_D)
    key = first_key + tl.arange(0, BLOCK_N)[:, None]  # [BLOCK_N, 1]
    dk = tl.zeros([BLOCK_N, BLOCK_D], dtype=tl.float32)
    dv = tl.zeros([BLOCK_N, BLOCK_D], dtype=tl.float32)
    first, last = query_range(first_key, queries, keys, window, BLOCK_M, BLOCK_N, CAUSAL, WINDOWED)
    for head in tl.range(kv_head * group, kv_head * group + group):
        q_head_ptr = q_ptr + batch * q_strides[0] + head * q_strides[1]
        dout_head_ptr = dout_ptr + batch * dout_strides[0] + head * dout_strides[1]
        rows_before = (batch * kv_heads * group + head) * queries
        for start in tl.range(first, last, BLOCK_M):
            query = start + tl.arange(0, BLOCK_M)[None, :]  # [1, BLOCK_M]
            shift, delta = load_statistics(shift_ptr + rows_before, delta_ptr + rows_before, start, queries, BLOCK_M)
            q = load_rows(q_head_ptr, start, queries, head_dim, q_strides, BLOCK_M, BLOCK_D)
            weights = tl.exp2(tl.dot(k, q.T) * (scale * LOG2E) - shift[None, :])  # [BLOCK_N, BLOCK_M]
            weights = tl.where(sees(query, key, queries, keys, window, CAUSAL, WINDOWED), weights, 0.0)
            dout = load_rows(dout_head_ptr, start, queries, head_dim, dout_strides, BLOCK_M, BLOCK_D)
            dv = tl.dot(weights.to(dout.dtype), dout, dv)
            dscores = weights * (tl.dot(v, dout.T) - delta[None, :])
            dk = tl.dot(dscores.to(q.dtype), q, dk)
    keys_before = batch_head * keys * head_dim
    store_rows(dk_ptr + keys_before, dk * scale, first_key, keys, head_dim, BLOCK_N, BLOCK_D)
    store_rows(dv_ptr + keys_before, dv, first_key, keys, head_dim, BLOCK_N, BLOCK_D)


@triton.jit
def attention_dq_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    dout_ptr,
    shift_ptr,
    delta_ptr,
    dq_ptr,
    q_strides,
    k_strides,
    v_strides,
    dout_strides,
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
    """One tile of queries of one head; tensors as before, dq contiguous."""
    tiles = tl.cdiv(queries, BLOCK_M)
    batch_head, first_query = (tl.program_id(0) // tiles).to(tl.int64), tl.program_id(0) % tiles * BLOCK_M
    batch, head = batch_head // heads, batch_head % heads
    k_ptr += batch * k_strides[0] + head // group * k_strides[1]
    v_ptr += batch * v_strides[0] + head // group * v_strides[1]
    q_ptr += batch * q_strides[0] + head * q_strides[1]
    dout_ptr += batch * dout_strides[0] + head * dout_strides[1]
    q = load_rows(q_ptr, first_query, queries, head_dim, q_strides, BLOCK_M, BLOCK_D)
    dout = load_rows(dout_ptr, first_query, queries, head_dim, dout_strides, BLOCK_M, BLOCK_D)
    rows_before = batch_head * queries
    shift, delta = load_statistics(shift_ptr + rows_before, delta_ptr + rows_before, first_query, queries, BLOCK_M)
    query = first_query + tl.arange(0, BLOCK_M)[:, None]  # [BLOCK_M, 1]
    dq = tl.zeros([BLOCK_M, BLOCK_D], dtype=tl.float32)
    first, last = key_range(first_query, queries, keys, window, BLOCK_M, BLOCK_N, CAUSAL, WINDOWED)
    for start in tl.range(first, last, BLOCK_N):
        key = start + tl.arange(0, BLOCK_N)[None, :]  # [1, BLOCK_N]
        k = load_rows(k_ptr, start, keys, head_dim, k_strides, BLOCK_N, BLOCK_D)
        weights = tl.exp2(tl.dot(q, k.T) * (scale * LOG2E) - shift[:, None])  # [BLOCK_M, BLOCK_N]
        weights = tl.where(sees(query, key, queries, keys, window, CAUSAL, WINDOWED), weights, 0.0)
        v = load_rows(v_ptr, start, keys, head_dim, v_strides, BLOCK_N, BLOCK_D)
        dscores = weights * (tl.dot(dout, v.T) - delta[:, None])
        dq = tl.dot(dscores.to(k.dtype), k, dq)
    store_rows(dq_ptr + rows_before * head_dim, dq * scale, first_query, queries, head_dim, BLOCK_M, BLOCK_D)


def attention_backward(
    dout: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    causal: bool = False,
    scale: float | None = None,
    window: int | None = None,
    *,
    path: str | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(dq, dk, dv) for (out, lse) = flash_attention(q, k, v, causal, scale, window, return_lse=True): what autograd
    calls, with arguments it has already checked. dout: of the shape and dtype of q, any strides. The results are
    contiguous, of the shapes and dtype of q, k and v."""
    batch, heads, queries, head_dim = q.shape
    kv_heads, keys = k.shape[1:3]
    dq, dk, dv = (torch.empty_like(x, memory_format=torch.contiguous_format) for x in (q, k, v))
    if not (q.numel() and k.numel()):
        return dq.zero_(), dk.zero_(), dv.zero_()
    scale = head_dim**-0.5 if scale is None else scale
    dout, out, lse = dout.contiguous(), out.contiguous(), lse.contiguous()
    delta, shift = torch.empty_like(lse), torch.empty_like(lse)
    rows = batch * heads * queries
    path, tile = choose(BACKWARD, head_dim, path, q.device, describable(q, k, v))
    attention_delta_kernel[(triton.cdiv(rows, DELTA_ROWS),)](
        out, dout, lse, delta, shift, rows, head_dim, ROWS=DELTA_ROWS, BLOCK_D=tile["BLOCK_D"], num_warps=4
    )
    if path == "fast":
        attention_backward_fast.launch(q, k, v, dout, shift, delta, dq, dk, dv, causal, scale, window, tile)
        return dq, dk, dv
    strides = q.stride(), k.stride(), v.stride(), dout.stride()
    sizes = heads // kv_heads, queries, keys, head_dim, window or 0, scale
    options = {"CAUSAL": causal, "WINDOWED": window is not None, **tile}
    attention_dkdv_kernel[(batch * kv_heads * triton.cdiv(keys, tile["BLOCK_N"]),)](
        q, k, v, dout, shift, delta, dk, dv, *strides, kv_heads, *sizes, **options
    )
    attention_dq_kernel[(batch * heads * triton.cdiv(queries, tile["BLOCK_M"]),)](
        q, k, v, dout, shift, delta, dq, *strides, heads, *sizes, **options
    )
    return dq, dk, dv
