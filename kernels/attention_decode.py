"""Attention of the last few queries of each sequence over all of its keys: what every step of generating text does.

Minimum traffic: the keys and values read once, 2 * kv_heads * keys * head_dim elements per sequence; q and out are a
few rows beside them. A key serves the queries of one group of heads only, so memory is the limit. The query heads that
share a key head lie in one tile, [group * queries, head_dim], and keys come once; several programs share the keys of a
sequence, or most of a GPU would have none, and a second kernel merges what each leaves (attention_splits.py).

The split is Dao, Haziza, Massa and Sizov's Flash-Decoding (2023); keys and values in pages found by a table are Kwon
and others' PagedAttention (2023). Products are added up in fp32; weights are rounded to 16 bits before the second.
"""

from collections.abc import Sequence

import torch

from instruments.backend import tl, triton
from instruments.gpus import GPU, GPUS
from instruments.traffic import Traffic
from kernels.arguments import check_no_grad, check_tensor
from kernels.attention_plan import launches_early
from kernels.attention_splits import MAX_SPLITS, merge, merge_parts_kernel, plan
from kernels.attention_tiles import FLOOR, LOG2E, check_attention
from kernels.attention_traffic import attention_ops, pairs_seen
from kernels.rows import Device, device_of

MAX_QUERIES = 16


def attention_decode_reference(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    lengths: torch.Tensor | None = None,
    scale: float | None = None,
    block_table: torch.Tensor | None = None,
) -> torch.Tensor:
    """What `attention_decode` computes, in plain PyTorch, in the precision of its arguments: give it fp64."""
    if block_table is not None:  # [batch, pages of a sequence, kv_heads, page, head_dim] -> as without pages
        k, v = (x[block_table.long()].transpose(1, 2).flatten(2, 3) for x in (k, v))
    (_, heads, queries, head_dim), (batch, kv_heads, keys, _) = q.shape, k.shape
    k, v = (x.repeat_interleave(heads // kv_heads, dim=1) for x in (k, v))
    length = torch.full((batch,), keys, device=q.device) if lengths is None else lengths
    last = length[:, None] - queries + torch.arange(queries, device=q.device)  # [batch, queries]: key that a query sees
    hidden = (torch.arange(keys, device=q.device) > last[:, :, None])[:, None]  # [batch, 1, queries, keys]
    scores = (q @ k.mT * (head_dim**-0.5 if scale is None else scale)).masked_fill(hidden, float("-inf"))
    return scores.softmax(dim=-1).masked_fill(hidden, 0.0) @ v


@triton.jit
def attention_decode_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    lengths_ptr,
    block_table_ptr,
    largest_ptr,
    total_ptr,
    part_ptr,
    q_strides,
    k_strides,
    v_strides,
    kv_heads,
    group,
    queries,
    keys,
    splits,
    scale,
    HEAD_DIM: tl.constexpr,
    PAGE: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
    EARLY: tl.constexpr,
):
    """A part of the keys of one sequence and key head: q [batch, kv_heads * group, queries, HEAD_DIM], k and v [batch,
    kv_heads, keys, HEAD_DIM] or, with block_table [batch, keys // PAGE], [any number, kv_heads, PAGE, HEAD_DIM], of any
    strides; lengths [batch] or None. Leaves largest and total [batch, kv_heads, group * queries, splits] and part
    [..., splits, HEAD_DIM], fp32."""
    if EARLY:
        tl.extra.cuda.gdc_launch_dependents()  # the merging kernel may be launched, to wait for this one
    batch_head, split = tl.program_id(0).to(tl.int64), tl.program_id(1)
    batch, kv_head = batch_head // kv_heads, batch_head % kv_heads
    row = tl.program_id(2) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]  # [BLOCK_M, 1]: of the group's queries, by head
    col = tl.arange(0, BLOCK_D)[None, :]  # [1, BLOCK_D]
    row_mask = row < group * queries
    q_mask = row_mask & (col < HEAD_DIM)
    head, query = kv_head * group + row // queries, row % queries
    q_rows = q_ptr + batch * q_strides[0] + head * q_strides[1] + query * q_strides[2]
    q = tl.load(q_rows + col * q_strides[3], mask=q_mask, other=0.0)  # [BLOCK_M, BLOCK_D]

    length = keys
    if lengths_ptr is not None:
        length = tl.minimum(tl.load(lengths_ptr + batch), keys)
    share = tl.cdiv(length, splits)
    first = split * share
    last = tl.minimum(first + share, length)
    k_ptr += kv_head * k_strides[1]
    v_ptr += kv_head * v_strides[1]

    largest = tl.full([BLOCK_M, 1], FLOOR, dtype=tl.float32)
    total = tl.zeros([BLOCK_M, 1], dtype=tl.float32)
    out = tl.zeros([BLOCK_M, BLOCK_D], dtype=tl.float32)
    key = first + tl.arange(0, BLOCK_N)  # [BLOCK_N]
    if PAGE:  # the table is read a step ahead, so that no load waits for it
        block_table_ptr += batch * (keys // PAGE)
        next_page = tl.load(block_table_ptr + key // PAGE, mask=key < last, other=0)
    for start in tl.range(first, last, BLOCK_N):
        key = start + tl.arange(0, BLOCK_N)
        if PAGE:
            place, key_row = next_page.to(tl.int64)[:, None], (key % PAGE).to(tl.int64)[:, None]  # [BLOCK_N, 1]
            next_key = key + BLOCK_N
            next_page = tl.load(block_table_ptr + next_key // PAGE, mask=next_key < last, other=0)
        else:
            place, key_row = batch, key.to(tl.int64)[:, None]
        mask = (key[:, None] < last) & (col < HEAD_DIM)
        k_ptrs = k_ptr + place * k_strides[0] + key_row * k_strides[2] + col * k_strides[3]  # [BLOCK_N, BLOCK_D]
        v_ptrs = v_ptr + place * v_strides[0] + key_row * v_strides[2] + col * v_strides[3]
        k = tl.load(k_ptrs, mask=mask, other=0.0)
        v = tl.load(v_ptrs, mask=mask, other=0.0)
        seen = (key[None, :] < last) & (key[None, :] <= query + length - queries)
        scores = tl.where(seen, tl.dot(q, k.T) * (scale * LOG2E), float("-inf"))  # [BLOCK_M, BLOCK_N]
        tile_largest = tl.maximum(tl.max(scores, axis=1, keep_dims=True), FLOOR)
        weights = tl.exp2(scores - tile_largest)
        tile_total = tl.sum(weights, axis=1, keep_dims=True)
        tile_out = tl.dot(weights.to(v.dtype), v)
        largest, total, out = merge(largest, total, out, tile_largest, tile_total, tile_out)

    state = (batch_head * group * queries + row) * splits + split  # [BLOCK_M, 1]
    tl.store(largest_ptr + state, largest, mask=row_mask)
    tl.store(total_ptr + state, total, mask=row_mask)
    tl.store(part_ptr + state * HEAD_DIM + col, out, mask=q_mask)


def _one_page(name: str, pages: torch.Tensor, batch: int) -> torch.Tensor:
    """A page of each sequence, to be checked as keys without pages are."""
    check_tensor(name, pages)
    if pages.dim() != 4 or not len(pages):
        raise ValueError(f"{name}: got shape {tuple(pages.shape)}, expected (pages, kv_heads, page, head_dim)")
    return pages[:1].expand(batch, -1, -1, -1)


def _check(q, k, v, lengths, scale, block_table, splits) -> tuple[float, int, int]:
    """(scale, rows of a page or 0, keys that a sequence may have). Raises ValueError naming the argument."""
    if block_table is None:
        scale, page, keys = check_attention(q, k, v, scale), 0, k.shape[2]
    else:
        check_tensor("q", q)
        check_tensor("block_table", block_table, like=q, dtypes=(torch.int32,))
        if block_table.dim() != 2 or block_table.shape[:1] != q.shape[:1]:
            raise ValueError(f"block_table: got shape {tuple(block_table.shape)}, expected (batch, pages), after q")
        batch = len(block_table)
        scale = check_attention(q, _one_page("k", k, batch), _one_page("v", v, batch), scale)
        check_tensor("v", v, shape=k.shape, like=q, why=", the shape of k")
        page = k.shape[2]
        keys = page * block_table.shape[1]
    check_no_grad("attention_decode", q=q, k=k, v=v)
    if q.shape[2] > MAX_QUERIES:
        raise ValueError(f"q: got {q.shape[2]} queries, expected at most {MAX_QUERIES} (flash_attention takes more)")
    if lengths is not None:
        check_tensor("lengths", lengths, shape=q.shape[:1], like=q, dtypes=(torch.int32,), why=", the batch of q")
    if splits is not None and splits not in range(1, MAX_SPLITS + 1):
        raise ValueError(f"splits: got {splits!r}, expected None or a whole number from 1 to {MAX_SPLITS}")
    return scale, page, keys


def attention_decode(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    lengths: torch.Tensor | None = None,
    scale: float | None = None,
    block_table: torch.Tensor | None = None,
    *,
    splits: int | None = None,
) -> torch.Tensor:
    """softmax(scale * q @ k^T) @ v for the last few queries of each sequence, causal among themselves.

    q: [batch, heads, queries, head_dim], queries 1 to 16; k, v: [batch, kv_heads, keys, head_dim]; of one dtype, fp16
    or bf16, any strides; head_dim 1 to 256; heads a multiple of kv_heads, query head h reads key head h // (heads //
    kv_heads). lengths: [batch] int32, how many keys each sequence has, its queries' own among them; all unless given.
    Query i sees the keys j <= i + length - queries; what lies past a length is never read. scale: a positive number,
    head_dim ** -0.5 unless given. block_table: [batch, pages of a sequence] int32: k and v are then pages, [any number,
    kv_heads, page, head_dim], and key j of sequence b lies in row j % page of page block_table[b, j // page].
    splits: programs that share the keys of a sequence and key head, 1 to 128; chosen by the GPU unless given.

    What lengths and block_table hold is the caller's to keep within keys and pages: looking would wait for the GPU.
    Returns a contiguous tensor of q's shape and dtype; a row that sees no key is 0. No gradient. Raises ValueError
    naming the argument.
    """
    scale, page, keys = _check(q, k, v, lengths, scale, block_table, splits)
    (batch, heads, queries, head_dim), kv_heads = q.shape, k.shape[1]
    out = torch.empty_like(q, memory_format=torch.contiguous_format)
    if not out.numel():
        return out
    chosen = plan(batch * kv_heads, heads // kv_heads * queries, keys, head_dim, page, splits, device_of(q.device))
    rows = batch * heads * queries
    largest, total = torch.empty((2, rows, chosen.splits), dtype=torch.float32, device=q.device)
    part = torch.empty((rows, chosen.splits, head_dim), dtype=torch.float32, device=q.device)
    lengths, block_table = (None if x is None else x.contiguous() for x in (lengths, block_table))
    tensors = (q, k, v, lengths, block_table, largest, total, part, q.stride(), k.stride(), v.stride())
    sizes = (kv_heads, heads // kv_heads, queries, keys, chosen.splits, scale)
    early = launches_early(q.device)
    merging = {**chosen.merging, "EARLY": early, **({"launch_pdl": True} if early else {})}
    grid = batch * kv_heads, chosen.splits, chosen.tiles
    attention_decode_kernel[grid](*tensors, *sizes, **chosen.config, EARLY=early)
    merge_parts_kernel[(rows, chosen.mergers)](largest, total, part, out, chosen.splits, **merging)
    return out


def attention_decode_traffic(
    batch: int,
    heads: int,
    kv_heads: int,
    queries: int,
    keys: int,
    head_dim: int,
    dtype: torch.dtype,
    *,
    lengths: Sequence[int] | None = None,
    page: int = 0,
    splits: int | None = None,
    gpu: GPU | Device = GPUS["H200"],
    path: str | None = "minimum",
) -> Traffic:
    """What decoding moves: the 'minimum', each byte once; 'naive', the eager ops of `attention_ops` over all keys; or,
    with None, what the programs of `attention_decode` ask for on a GPU, the H200 of the course's figures unless given.

    keys: that a sequence may have. lengths: that each has, keys unless given. page: rows of a page, 0 without pages.
    splits: as for `attention_decode`. FLOPs are those of both products over the pairs of query and key that are seen.
    """
    if path == "naive":
        naive = attention_ops(batch, heads, queries, keys, head_dim, dtype, causal=queries > 1, kv_heads=kv_heads)
        return sum(naive.values())
    each = [keys] * batch if lengths is None else list(lengths)
    flops = 4 * heads * head_dim * sum(pairs_seen(queries, n, True, None) for n in each)
    gpu = Device(gpu.sms, gpu.shared_per_sm)
    chosen = plan(batch * kv_heads, heads // kv_heads * queries, keys, head_dim, page, splits, gpu)
    once = path == "minimum"
    splits, tiles = (1, 1) if once else (chosen.splits, chosen.tiles)
    rows, wide = batch * heads * queries, head_dim * dtype.itemsize
    seen = tiles * kv_heads * sum(each)  # keys, each time that a program loads one
    read = {"q": splits * rows * wide, "k": seen * wide, "v": seen * wide}
    if lengths is not None:
        read["lengths"] = 4 * batch * (1 if once else tiles * kv_heads * splits)
    if page:
        read["block_table"] = 4 * (sum(triton.cdiv(n, page) for n in each) if once else seen)
    parts = 4 * rows * splits
    states = {} if once else {"largest": parts, "total": parts, "part": parts * head_dim}
    merged = {name: nbytes if name == "part" else chosen.mergers * nbytes for name, nbytes in states.items()}
    return Traffic(read | merged, {"out": rows * wide} | states, flops, launches=1 if once else 2)
