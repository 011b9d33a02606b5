"""Attention backward: the gradients of q, k and v, with the scores recomputed from q, k and the saved log-sum-exp.

With weights = exp(scale * q @ k^T - lse) and out = weights @ v:

    dv = weights^T @ dout        dweights = dout @ v^T        dscores = weights * (dweights - delta)
    dq = scale * dscores @ k     dk = scale * dscores^T @ q   delta = sum(dout * out) of each row

Minimum traffic: q, k, v, out, dout and lse read once, dq, dk and dv written once. One launch computes delta. One owns
tiles of keys, loops over the queries that attend to them and writes dk and dv. One owns tiles of queries and writes dq.
That makes seven matmuls instead of five, and no atomics: the result is the same in every run. (The kernel with five is
in backward_hopper.py.) dk and dv of a shared KV head are summed over its query heads by the program that owns the tile.

The method is Dao and others' (FlashAttention, 2022; FlashAttention-2, 2023). A tile of keys computes its scores
transposed from the start, [keys, queries], so that no matmul needs the transpose of another's result.
"""

import torch

from instruments.backend import cdiv, tl, triton
from kernels.attention import backward_hopper
from kernels.attention.configs import BACKWARD, choose, describe, is_addressable
from kernels.attention.masks import (
    LOG2E,
    attention_mask,
    key_range,
    load_rows,
    load_statistics,
    load_tile,
    query_range,
    store_rows,
    unmasked_range,
)
from kernels.attention.traffic import attention_backward_traffic as attention_backward_traffic

DELTA_ROWS = 32  # rows per program in the launch that computes delta


@triton.jit
def attention_delta_kernel(
    out_ptr, dout_ptr, lse_ptr, delta_ptr, shift_ptr,  # tensors
    rows, head_dim, ROWS: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """delta and shift of a tile of ROWS rows.

    Args:
        out_ptr, dout_ptr: [rows, head_dim], fp16 or bf16, contiguous.
        lse_ptr: [rows], fp32.
        delta_ptr: [rows], fp32, written: dout * out, summed per row.
        shift_ptr: [rows], fp32, written: lse in units of log2(e); infinite where a row attends to no key, so that its
            weights become zero.
    """
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
    q_ptr, k_ptr, v_ptr, dout_ptr, shift_ptr, delta_ptr, dk_ptr, dv_ptr,  # tensors
    q_strides, k_strides, v_strides, dout_strides,
    kv_heads, group, queries, keys, head_dim, window, scale,
    CAUSAL: tl.constexpr, WINDOWED: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """dk and dv of one tile of keys of one KV head.

    Args:
        q_ptr, dout_ptr: [batch, kv_heads * group, queries, head_dim], fp16 or bf16, any strides.
        k_ptr, v_ptr: [batch, kv_heads, keys, head_dim], any strides.
        shift_ptr, delta_ptr: [batch, kv_heads * group, queries], fp32, of `attention_delta_kernel`.
        dk_ptr, dv_ptr: like k and v, contiguous, written.
    """
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
            weights = tl.where(attention_mask(query, key, queries, keys, window, CAUSAL, WINDOWED), weights, 0.0)
            dout = load_rows(dout_head_ptr, start, queries, head_dim, dout_strides, BLOCK_M, BLOCK_D)
            dv = tl.dot(weights.to(dout.dtype), dout, dv)
            dscores = weights * (tl.dot(v, dout.T) - delta[None, :])
            dk = tl.dot(dscores.to(q.dtype), q, dk)
    keys_before = batch_head * keys * head_dim
    store_rows(dk_ptr + keys_before, dk * scale, first_key, keys, head_dim, BLOCK_N, BLOCK_D)
    store_rows(dv_ptr + keys_before, dv, first_key, keys, head_dim, BLOCK_N, BLOCK_D)


@triton.jit
def attention_dq_kernel(
    q_ptr, k_ptr, v_ptr, dout_ptr, shift_ptr, delta_ptr, dq_ptr,  # tensors
    q_strides, k_strides, v_strides, dout_strides,
    heads, group, queries, keys, head_dim, window, scale,
    CAUSAL: tl.constexpr, WINDOWED: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """dq of one tile of queries of one head.

    Args:
        q_ptr, k_ptr, v_ptr, dout_ptr, shift_ptr, delta_ptr: as for `attention_dkdv_kernel`.
        dq_ptr: like q, contiguous, written.
    """
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
        weights = tl.where(attention_mask(query, key, queries, keys, window, CAUSAL, WINDOWED), weights, 0.0)
        v = load_rows(v_ptr, start, keys, head_dim, v_strides, BLOCK_N, BLOCK_D)
        dscores = weights * (tl.dot(dout, v.T) - delta[:, None])
        dq = tl.dot(dscores.to(k.dtype), k, dq)
    store_rows(dq_ptr + rows_before * head_dim, dq * scale, first_query, queries, head_dim, BLOCK_M, BLOCK_D)


# The fast kernels compute the same with tensor descriptors, with masks only where a tile needs them, and with two
# programs per SM. Where nothing is masked, the program that owns queries starts the next tile's dweights before this
# tile's exponentials, so that both run at the same time.


@triton.jit
def accumulate_dkdv(
    k_tile, v_tile, q, dout, shift_ptr, delta_ptr,  # tensors
    batch_head, key, scale, sizes,  # sizes: queries, keys, window
    begin, end, dk, dv,
    CAUSAL: tl.constexpr, WINDOWED: tl.constexpr, MASKED: tl.constexpr, BLOCK_M: tl.constexpr,
):  # fmt: skip
    """(dk, dv) after the tiles of queries in [begin, end) of one head. batch_head: (batch, head) of q and dout; MASKED:
    whether some of the pairs are masked out."""
    BLOCK_D: tl.constexpr = k_tile.shape[1]
    STAGES: tl.constexpr = 1 if MASKED else 2
    for start in tl.range(begin, end, BLOCK_M, num_stages=STAGES):
        q_tile = load_tile(q, *batch_head, start, BLOCK_M, BLOCK_D)
        scores = tl.dot(k_tile, q_tile.T)  # [BLOCK_N, BLOCK_M]
        shift, delta = load_statistics(shift_ptr, delta_ptr, start, sizes[0], BLOCK_M)
        weights = tl.exp2(scores * (scale * LOG2E) - shift[None, :])
        if MASKED:
            query = start + tl.arange(0, BLOCK_M)[None, :]  # [1, BLOCK_M]
            weights = tl.where(attention_mask(query, key, *sizes, CAUSAL, WINDOWED), weights, 0.0)
        dout_tile = load_tile(dout, *batch_head, start, BLOCK_M, BLOCK_D)
        dweights = tl.dot(v_tile, dout_tile.T)
        dv = tl.dot(weights.to(dout_tile.dtype), dout_tile, dv)
        dscores = weights * (dweights - delta[None, :])
        dk = tl.dot(dscores.to(q_tile.dtype), q_tile, dk)
    return dk, dv


@triton.jit
def accumulate_dq(
    q_tile, dout_tile, k, v, shift, delta,  # tensors
    batch_head, query, scale, sizes,  # sizes: queries, keys, window
    begin, end, dq,
    CAUSAL: tl.constexpr, WINDOWED: tl.constexpr, MASKED: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """dq after the tiles of keys in [begin, end). batch_head: (batch, head) of k and v; MASKED: whether some of the
    pairs are masked out. Where none are, the next tile's dweights start before this tile's exponentials."""
    BLOCK_D: tl.constexpr = q_tile.shape[1]
    if MASKED:
        for start in tl.range(begin, end, BLOCK_N, num_stages=1):
            k_tile = load_tile(k, *batch_head, start, BLOCK_N, BLOCK_D)
            weights = tl.exp2(tl.dot(q_tile, k_tile.T) * (scale * LOG2E) - shift[:, None])  # [BLOCK_M, BLOCK_N]
            key = start + tl.arange(0, BLOCK_N)[None, :]  # [1, BLOCK_N]
            weights = tl.where(attention_mask(query, key, *sizes, CAUSAL, WINDOWED), weights, 0.0)
            dweights = tl.dot(dout_tile, load_tile(v, *batch_head, start, BLOCK_N, BLOCK_D).T)
            dscores = weights * (dweights - delta[:, None])
            dq = tl.dot(dscores.to(k_tile.dtype), k_tile, dq)
    elif begin < end:
        dweights = tl.dot(dout_tile, load_tile(v, *batch_head, begin, BLOCK_N, BLOCK_D).T)
        for start in tl.range(begin, end, BLOCK_N):
            k_tile = load_tile(k, *batch_head, start, BLOCK_N, BLOCK_D)
            scores = tl.dot(q_tile, k_tile.T)
            centered = dweights - delta[:, None]  # now, so that the next matmul may take the registers of dweights
            dweights = tl.dot(dout_tile, load_tile(v, *batch_head, start + BLOCK_N, BLOCK_N, BLOCK_D).T)
            weights = tl.exp2(scores * (scale * LOG2E) - shift[:, None])
            dq = tl.dot((weights * centered).to(k_tile.dtype), k_tile, dq)
    return dq


@triton.jit
def attention_dkdv_fast_kernel(
    q, k, v, dout, shift_ptr, delta_ptr, dk_ptr, dv_ptr,  # tensors; q, k, v, dout: descriptors
    kv_heads, group, queries, keys, head_dim, window, scale,
    CAUSAL: tl.constexpr, WINDOWED: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """One tile of keys of one KV head; tensors as for the plain kernel."""
    tiles = tl.cdiv(keys, BLOCK_N)
    batch_head, first_key = tl.program_id(0) // tiles, tl.program_id(0) % tiles * BLOCK_N
    batch, kv_head = batch_head // kv_heads, batch_head % kv_heads
    k_tile = load_tile(k, batch, kv_head, first_key, BLOCK_N, BLOCK_D)
    v_tile = load_tile(v, batch, kv_head, first_key, BLOCK_N, BLOCK_D)
    key = first_key + tl.arange(0, BLOCK_N)[:, None]  # [BLOCK_N, 1]
    dk = tl.zeros([BLOCK_N, BLOCK_D], dtype=tl.float32)
    dv = tl.zeros([BLOCK_N, BLOCK_D], dtype=tl.float32)
    first, last = query_range(first_key, queries, keys, window, BLOCK_M, BLOCK_N, CAUSAL, WINDOWED)
    begin = first  # of the queries that attend to all of these keys; with a window, every tile takes the mask
    if CAUSAL:
        diagonal = first_key + BLOCK_N - 1 - (keys - queries)  # the query at the position of the tile's last key
        begin = tl.minimum(tl.cdiv(tl.maximum(diagonal, 0), BLOCK_M) * BLOCK_M, last)
    if WINDOWED:
        begin = last
    sizes = queries, keys, window
    for head in tl.range(kv_head * group, kv_head * group + group):
        rows_before = (batch.to(tl.int64) * kv_heads * group + head) * queries
        rows_shift, rows_delta = shift_ptr + rows_before, delta_ptr + rows_before
        operands = k_tile, v_tile, q, dout, rows_shift, rows_delta, (batch, head), key, scale, sizes
        if CAUSAL or WINDOWED:
            dk, dv = accumulate_dkdv(*operands, first, begin, dk, dv, CAUSAL, WINDOWED, True, BLOCK_M)
        dk, dv = accumulate_dkdv(*operands, begin, last, dk, dv, CAUSAL, WINDOWED, False, BLOCK_M)
    keys_before = batch_head.to(tl.int64) * keys * head_dim
    store_rows(dk_ptr + keys_before, dk * scale, first_key, keys, head_dim, BLOCK_N, BLOCK_D)
    store_rows(dv_ptr + keys_before, dv, first_key, keys, head_dim, BLOCK_N, BLOCK_D)


@triton.jit
def attention_dq_fast_kernel(
    q, k, v, dout, shift_ptr, delta_ptr, dq_ptr,  # tensors; q, k, v, dout: descriptors
    heads, group, queries, keys, head_dim, window, scale,
    CAUSAL: tl.constexpr, WINDOWED: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """One tile of queries of one head; tensors as before."""
    tiles = tl.cdiv(queries, BLOCK_M)
    batch_head = tl.program_id(0) // tiles
    first_query = (tiles - 1 - tl.program_id(0) % tiles) * BLOCK_M  # causal, the last tile has the most work
    batch, head = batch_head // heads, batch_head % heads
    kv_head = head // group
    q_tile = load_tile(q, batch, head, first_query, BLOCK_M, BLOCK_D)
    dout_tile = load_tile(dout, batch, head, first_query, BLOCK_M, BLOCK_D)
    rows_before = batch_head.to(tl.int64) * queries
    shift, delta = load_statistics(shift_ptr + rows_before, delta_ptr + rows_before, first_query, queries, BLOCK_M)
    query = first_query + tl.arange(0, BLOCK_M)[:, None]  # [BLOCK_M, 1]
    dq = tl.zeros([BLOCK_M, BLOCK_D], dtype=tl.float32)
    first, last = key_range(first_query, queries, keys, window, BLOCK_M, BLOCK_N, CAUSAL, WINDOWED)
    begin, end = unmasked_range(first_query, first, queries, keys, window, BLOCK_M, BLOCK_N, CAUSAL, WINDOWED)
    operands = q_tile, dout_tile, k, v, shift, delta, (batch, kv_head), query, scale, (queries, keys, window)
    if WINDOWED:
        dq = accumulate_dq(*operands, first, tl.minimum(begin, last), dq, CAUSAL, WINDOWED, True, BLOCK_N)
    dq = accumulate_dq(*operands, begin, end, dq, CAUSAL, WINDOWED, False, BLOCK_N)
    dq = accumulate_dq(*operands, end, last, dq, CAUSAL, WINDOWED, True, BLOCK_N)
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
    deterministic: bool | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(dq, dk, dv) for (out, lse) = flash_attention(q, k, v, causal, scale, window, return_lse=True).

    Args:
        dout: [batch, heads, queries, head_dim], q's dtype, any strides: the gradient of out.
        q, k, v, causal, scale, window: those of the forward.
        out: [batch, heads, queries, head_dim], q's dtype: the forward's result.
        lse: [batch, heads, queries], fp32: the forward's other result.
        path: which kernels run, 'plain', 'fast' or 'hopper', as for `flash_attention`; the fastest on this GPU unless
            given.
        deterministic: whether dq must be the same to the bit in every run, as 'plain' and 'fast' compute it; 'hopper'
            adds dq up in any order. Unless given, what `torch.use_deterministic_algorithms` asks for.

    Returns:
        dq, dk, dv: of the shapes and dtype of q, k and v, contiguous.

    Raises:
        ValueError: a path that cannot run here, or 'hopper' where deterministic is True.

    Note:
        Autograd calls this with arguments that the forward has checked; they are not checked again.
    """
    batch, heads, queries, head_dim = q.shape
    kv_heads, keys = k.shape[1:3]
    if not (q.numel() and k.numel()):
        return tuple(torch.zeros_like(x, memory_format=torch.contiguous_format) for x in (q, k, v))
    scale = head_dim**-0.5 if scale is None else scale
    if deterministic is None:
        deterministic = torch.are_deterministic_algorithms_enabled() and path is None
    if deterministic and path == "hopper":
        raise ValueError("path: got 'hopper', expected None, 'plain' or 'fast' where deterministic is True")
    no_hopper = window is not None or deterministic
    path, config = choose(BACKWARD, head_dim, path, q.device, is_addressable(q, k, v), no_hopper)
    if path == "hopper":
        return backward_hopper.launch(dout, q, k, v, out, lse, causal, scale)
    dq, dk, dv = (torch.empty_like(x, memory_format=torch.contiguous_format) for x in (q, k, v))
    dout, out, lse = dout.contiguous(), out.contiguous(), lse.contiguous()
    delta, shift = torch.empty_like(lse), torch.empty_like(lse)
    rows = batch * heads * queries
    attention_delta_kernel[(cdiv(rows, DELTA_ROWS),)](
        out, dout, lse, delta, shift, rows, head_dim, ROWS=DELTA_ROWS, BLOCK_D=config["BLOCK_D"], num_warps=4
    )
    block_m, block_n = config["BLOCK_M"], config["BLOCK_N"]
    key_grid = (batch * kv_heads * cdiv(keys, block_n),)
    query_grid = (batch * heads * cdiv(queries, block_m),)
    sizes = heads // kv_heads, queries, keys, head_dim, window or 0, scale
    options = {"CAUSAL": causal, "WINDOWED": window is not None, **config}
    if path == "fast":
        q, k, v, dout = describe(q, block_m), describe(k, block_n), describe(v, block_n), describe(dout, block_m)
        operands = q, k, v, dout, shift, delta
        attention_dkdv_fast_kernel[key_grid](*operands, dk, dv, kv_heads, *sizes, **options)
        attention_dq_fast_kernel[query_grid](*operands, dq, heads, *sizes, **options)
    else:
        strides = q.stride(), k.stride(), v.stride(), dout.stride()
        operands = q, k, v, dout, shift, delta
        attention_dkdv_kernel[key_grid](*operands, dk, dv, *strides, kv_heads, *sizes, **options)
        attention_dq_kernel[query_grid](*operands, dq, *strides, heads, *sizes, **options)
    return dq, dk, dv
