"""Attention of the last few queries of each sequence over all of its keys: what every step of decoding does.

Minimum traffic: the keys and values read once, 2 * kv_heads * keys * head_dim elements per sequence; q and out are a
few rows beside them. A key serves only the queries of one group of heads, so memory bandwidth is the limit. The query
heads that share a KV head form one tile, [group * queries, head_dim], so keys are read once. One program per sequence
and KV head would leave most SMs idle, so several programs split the keys of a sequence (split-KV), and a second kernel
merges their parts.

Each part has a state (m, l, acc): m, the running max, is the part's largest score in units of log2(e), or MIN_SCORE
where it has none; l, the running sum, is the sum of exp2(score - m); acc is the sum of the values with these weights.
The row's result is acc / l. Merging two states is associative and commutative, so the parts may be any keys, merged in
any order: Milakov and Gimelshein's online softmax (2018), with the values carried along.

Merging is a launch of its own: on an H200 one launch, in which the last program merges, took longer. From Hopper on the
second kernel is launched before the first one ends, and waits for it (programmatic dependent launch, PDL).

The split is Dao, Haziza, Massa and Sizov's Flash-Decoding (2023); keys and values in pages that a block table lists are
Kwon and others' PagedAttention (2023). Matmuls accumulate in fp32; weights are rounded to 16 bits before the second.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import torch

from instruments.backend import cdiv, next_power_of_2, tl, triton
from instruments.gpus import GPU, GPUS
from instruments.launcher import Launch
from instruments.traffic import Traffic
from kernels.attention.configs import check_attention, width_of
from kernels.attention.decode_persistent import attention_decode_persistent_kernel, merge_chunks_kernel, write_rows
from kernels.attention.masks import LOG2E, MIN_SCORE
from kernels.attention.traffic import attention_ops, unmasked_pairs
from kernels.shared.arguments import check_no_grad, check_tensor
from kernels.shared.device import Device, device_of, has_dependent_launch
from kernels.shared.metadata import by_metadata

MAX_QUERIES = 16
MAX_SPLITS = 128  # parts of a row that one program merges
STAGES = 3  # tiles of keys and values in a program's share of shared memory: two in flight, one in use
PROGRAMS_PER_SM = 2  # on an H200 as fast as one with tiles of twice the keys, and faster with pages
MAX_BLOCK_N = 256  # keys per tile
STARTUP_BYTES = 131_072  # that a program could have read while it starts and ends: a wave costs 3 us more on an H200
MAX_CHUNK = 1.1  # tiles of a persistent program, over the fewest possible: for fewer parts
MAX_PERSISTENT_ROWS = 32  # with more, q, loaded with each tile of keys, leaves too little shared memory
MIN_MERGE_COLS = 32  # columns of a row that one program merges at least


def attention_decode_reference(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    lengths: torch.Tensor | None = None,
    scale: float | None = None,
    block_table: torch.Tensor | None = None,
) -> torch.Tensor:
    """`attention_decode` in plain PyTorch, in the precision of its arguments: give it fp64 for a reference.

    Args:
        q, k, v, lengths, scale, block_table: as for `attention_decode`, of any floating-point dtype.
    """
    if block_table is not None:  # [batch, pages of a sequence, kv_heads, page, head_dim] -> as without pages
        k, v = (x[block_table.long()].transpose(1, 2).flatten(2, 3) for x in (k, v))
    (_, heads, queries, head_dim), (batch, kv_heads, keys, _) = q.shape, k.shape
    k, v = (x.repeat_interleave(heads // kv_heads, dim=1) for x in (k, v))
    length = torch.full((batch,), keys, device=q.device) if lengths is None else lengths
    last = length[:, None] - queries + torch.arange(queries, device=q.device)  # [batch, queries]: of a query's keys
    mask = (torch.arange(keys, device=q.device) <= last[:, :, None])[:, None]  # [batch, 1, queries, keys]
    scores = (q @ k.mT * (head_dim**-0.5 if scale is None else scale)).masked_fill(~mask, float("-inf"))
    return scores.softmax(dim=-1).masked_fill(~mask, 0.0) @ v


@triton.jit
def merge(running_max, running_sum, acc, other_max, other_sum, other_acc):
    """The state (running_max, running_sum, acc) of two parts together, of any shapes that broadcast."""
    new_max = tl.maximum(running_max, other_max)
    correction, other_correction = tl.exp2(running_max - new_max), tl.exp2(other_max - new_max)
    new_sum = running_sum * correction + other_sum * other_correction
    return new_max, new_sum, acc * correction + other_acc * other_correction


@triton.jit
def attention_decode_kernel(
    q_ptr, k_ptr, v_ptr, lengths_ptr, block_table_ptr, out_ptr, part_max_ptr, part_sum_ptr, part_acc_ptr,  # tensors
    q_strides, k_strides, v_strides,
    kv_heads, group, queries, keys, splits, scale,
    HEAD_DIM: tl.constexpr, PAGE: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Attention over a part of the keys of one sequence and KV head.

    Args:
        q_ptr: [batch, kv_heads * group, queries, HEAD_DIM], fp16 or bf16, any strides.
        k_ptr, v_ptr: [batch, kv_heads, keys, HEAD_DIM], or pages [any number, kv_heads, PAGE, HEAD_DIM]; any strides.
        lengths_ptr: [batch], int32, or None.
        block_table_ptr: [batch, keys // PAGE], int32; unused where PAGE is 0.
        out_ptr: like q, contiguous: written where there is one split.
        part_max_ptr, part_sum_ptr: [batch, kv_heads, group * queries, splits], fp32, written; None with one split.
        part_acc_ptr: [batch, kv_heads, group * queries, splits, HEAD_DIM], fp32, written; None with one split.
    """
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()  # the merge kernel may be launched now; it waits for this one
    batch_head, split = tl.program_id(0).to(tl.int64), tl.program_id(1)
    batch, kv_head = batch_head // kv_heads, batch_head % kv_heads
    row = tl.program_id(2) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]  # [BLOCK_M, 1]: query of the group, head by head
    col = tl.arange(0, BLOCK_D)[None, :]  # [1, BLOCK_D]
    row_mask = row < group * queries
    q_mask = row_mask & (col < HEAD_DIM)
    head, query = kv_head * group + row // queries, row % queries
    q_rows = q_ptr + batch * q_strides[0] + head * q_strides[1] + query * q_strides[2]
    q = tl.load(q_rows + col * q_strides[3], mask=q_mask, other=0.0)  # [BLOCK_M, BLOCK_D]

    length = keys
    if lengths_ptr is not None:
        length = tl.minimum(tl.load(lengths_ptr + batch), keys)
    part_keys = tl.cdiv(length, splits)
    first = split * part_keys
    last = tl.minimum(first + part_keys, length)
    k_ptr += kv_head * k_strides[1]
    v_ptr += kv_head * v_strides[1]

    running_max = tl.full([BLOCK_M, 1], MIN_SCORE, dtype=tl.float32)
    running_sum = tl.zeros([BLOCK_M, 1], dtype=tl.float32)
    acc = tl.zeros([BLOCK_M, BLOCK_D], dtype=tl.float32)
    key = first + tl.arange(0, BLOCK_N)  # [BLOCK_N]
    if PAGE:  # the table is prefetched one tile ahead, so that no load waits for it
        block_table_ptr += batch * (keys // PAGE)
        next_page = tl.load(block_table_ptr + key // PAGE, mask=key < last, other=0)
    for start in tl.range(first, last, BLOCK_N):
        key = start + tl.arange(0, BLOCK_N)
        if PAGE:
            page, key_row = next_page.to(tl.int64)[:, None], (key % PAGE).to(tl.int64)[:, None]  # [BLOCK_N, 1]
            next_key = key + BLOCK_N
            next_page = tl.load(block_table_ptr + next_key // PAGE, mask=next_key < last, other=0)
        else:
            page, key_row = batch, key.to(tl.int64)[:, None]  # the whole sequence is one page
        kv_mask = (key[:, None] < last) & (col < HEAD_DIM)
        k_ptrs = k_ptr + page * k_strides[0] + key_row * k_strides[2] + col * k_strides[3]  # [BLOCK_N, BLOCK_D]
        v_ptrs = v_ptr + page * v_strides[0] + key_row * v_strides[2] + col * v_strides[3]
        k = tl.load(k_ptrs, mask=kv_mask, other=0.0)
        v = tl.load(v_ptrs, mask=kv_mask, other=0.0)
        mask = (key[None, :] < last) & (key[None, :] <= query + length - queries)
        scores = tl.where(mask, tl.dot(q, k.T) * (scale * LOG2E), float("-inf"))  # [BLOCK_M, BLOCK_N]
        tile_max = tl.maximum(tl.max(scores, axis=1, keep_dims=True), MIN_SCORE)
        weights = tl.exp2(scores - tile_max)
        tile_sum = tl.sum(weights, axis=1, keep_dims=True)
        tile_acc = tl.dot(weights.to(v.dtype), v)
        running_max, running_sum, acc = merge(running_max, running_sum, acc, tile_max, tile_sum, tile_acc)

    part = (batch_head * group * queries + row) * splits + split  # [BLOCK_M, 1]
    if part_acc_ptr is None:  # one split
        write_rows(out_ptr + part * HEAD_DIM + col, running_sum, acc, q_mask)
    else:
        tl.store(part_max_ptr + part, running_max, mask=row_mask)
        tl.store(part_sum_ptr + part, running_sum, mask=row_mask)
        tl.store(part_acc_ptr + part * HEAD_DIM + col, acc, mask=q_mask)


@triton.jit
def merge_parts_kernel(
    part_max_ptr, part_sum_ptr, part_acc_ptr, out_ptr,  # tensors
    splits,
    HEAD_DIM: tl.constexpr, BLOCK_S: tl.constexpr, BLOCK_D: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """BLOCK_D columns of one row of out from its parts.

    Args:
        part_max_ptr, part_sum_ptr: [rows, splits], fp32.
        part_acc_ptr: [rows, splits, HEAD_DIM], fp32.
        out_ptr: [rows, HEAD_DIM], written.
    """
    row = tl.program_id(0).to(tl.int64)
    split = tl.arange(0, BLOCK_S)[:, None]  # [BLOCK_S, 1], BLOCK_S >= splits
    col = tl.program_id(1) * BLOCK_D + tl.arange(0, BLOCK_D)[None, :]  # [1, BLOCK_D]
    part, mask = row * splits + split, split < splits
    if PDL:
        tl.extra.cuda.gdc_wait()  # for the programs that write the parts
    part_max = tl.load(part_max_ptr + part, mask=mask, other=MIN_SCORE)
    part_sum = tl.load(part_sum_ptr + part, mask=mask, other=0.0)
    part_acc = tl.load(part_acc_ptr + part * HEAD_DIM + col, mask=mask & (col < HEAD_DIM), other=0.0)
    correction = tl.exp2(part_max - tl.max(part_max, axis=0, keep_dims=True))  # `merge`, for all parts at once
    row_sum = tl.sum(part_sum * correction, axis=0, keep_dims=True)  # [1, 1]
    out = tl.sum(part_acc * correction, axis=0, keep_dims=True)  # [1, BLOCK_D]
    out /= tl.where(row_sum == 0.0, 1.0, row_sum)  # a row that attends to no key is 0
    tl.store(out_ptr + row * HEAD_DIM + col, out.to(out_ptr.dtype.element_ty), mask=col < HEAD_DIM)


@dataclass(frozen=True)
class SplitPlan:
    """How a call is laid out.

    Args:
        splits: programs that split the keys of a sequence and KV head, of a persistent kernel at most.
        tiles: tiles of a group's rows, each with programs of its own.
        config: constexprs and options of the first kernel.
        merge_config: those of the merge kernel, which is launched where there is more than one split.
        chunk: tiles of keys that a program of the persistent kernel reads; 0: the plain kernel.
        programs: of the persistent kernel, per tile of rows.
    """

    splits: int
    tiles: int
    config: dict
    merge_config: dict
    chunk: int = 0
    programs: int = 0

    @property
    def merge_programs(self) -> int:
        """Programs that merge a row, each some of its columns."""
        return cdiv(self.merge_config["HEAD_DIM"], self.merge_config["BLOCK_D"])


def _tile_config(rows: int, head_dim: int, page: int, gpu: Device, programs: int, loads_q: bool) -> tuple[dict, int]:
    """(the first kernel's config, tiles of a group's rows) where `programs` share an SM and its shared memory.

    loads_q: whether q is loaded with every tile of keys.
    """
    width = width_of(head_dim)
    key_bytes = 2 * width * 2  # a key and its value, 16 bits per element
    block_m = min(max(16, next_power_of_2(rows)), 64 if width <= 128 else 32)
    stage_bytes = gpu.shared_per_sm // (programs * STAGES) - (2 * width * block_m if loads_q else 0)
    block_n = max(16, min(MAX_BLOCK_N, next_power_of_2(max(0, stage_bytes // key_bytes) + 1) // 2))
    config = {"HEAD_DIM": head_dim, "PAGE": page, "BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_D": width}
    warps = 8 if block_n * key_bytes > 32_768 else 4
    return config | {"num_warps": warps, "num_stages": STAGES}, cdiv(rows, block_m)


def _merge_config(rows: int, splits: int, head_dim: int, gpu: Device) -> dict:
    """The merge kernel's config for so many rows of out."""
    width = width_of(head_dim)
    block_s, cols = next_power_of_2(splits), width
    while cols > MIN_MERGE_COLS and rows * (width // cols) < gpu.sms:  # few rows: split their columns
        cols //= 2
    warps = max(1, 4 * cols // width, block_s * cols // 2048)
    return {"HEAD_DIM": head_dim, "BLOCK_S": block_s, "BLOCK_D": cols, "num_warps": warps}


@cache
def split_plan(
    sequences: int,
    rows: int,
    keys: int,
    head_dim: int,
    page: int,
    splits: int | None,
    gpu: Device,
    programs: int = PROGRAMS_PER_SM,
) -> SplitPlan:
    """The plan for groups of so many rows; unless given, as many splits as let the last program end soonest.

    Args:
        sequences: pairs of a sequence and a KV head.
        rows: queries that share a KV head.
        keys: of the longest sequence.
        page: keys per page, 0 without pages.
        splits: as for `attention_decode`.
        gpu: `programs` programs share an SM, and each loads tiles as large as its share of the shared memory.
        programs: resident per SM.
    """
    config, tiles = _tile_config(rows, head_dim, page, gpu, programs, loads_q=False)
    block_n, key_bytes = config["BLOCK_N"], 4 * config["BLOCK_D"]

    def busiest_keys(splits: int) -> float:
        """Keys that the busiest slot of an SM reads, or could have read while its programs start and end."""
        waves = cdiv(sequences * tiles * splits, programs * gpu.sms)
        return waves * (cdiv(keys, splits) + STARTUP_BYTES / key_bytes)

    if splits is None:
        splits = min(range(1, max(2, min(MAX_SPLITS, cdiv(keys, block_n)) + 1)), key=busiest_keys)
        steps = cdiv(cdiv(keys, splits), block_n)
        splits = max(1, cdiv(keys, max(1, steps) * block_n))  # the fewest that need no step more
    return SplitPlan(splits, tiles, config, _merge_config(sequences * rows, splits, head_dim, gpu))


@cache
def persistent_plan(sequences: int, rows: int, keys: int, head_dim: int, gpu: Device) -> SplitPlan | None:
    """The plan of one wave in which each program reads a chunk of all keys; None where only the plain kernel can.

    Args:
        sequences, rows, keys, head_dim, gpu: as for `split_plan`.
    """
    programs = 1 if width_of(head_dim) >= 128 else 2  # per SM
    config, tiles = _tile_config(rows, head_dim, 0, gpu, programs, loads_q=True)
    del config["PAGE"]
    if not keys or not sequences or config["BLOCK_M"] > MAX_PERSISTENT_ROWS or programs * gpu.sms < tiles:
        return None
    return chunk_plan(sequences, rows, keys, config, tiles, programs * gpu.sms // tiles, gpu)


def chunk_plan(sequences: int, rows: int, keys: int, config: dict, tiles: int, slots: int, gpu: Device) -> SplitPlan:
    """The plan for tiles of such a config: of the chunks that let all programs be resident in so many slots and are
    less than a tenth longer than the shortest, the one that cuts sequences into fewest parts."""
    steps = cdiv(keys, config["BLOCK_N"])  # tiles of a sequence

    def parts(chunk: int) -> int:
        """Parts of a sequence at most."""
        if chunk % steps == 0 or steps % chunk == 0:  # no chunk has the end of one sequence and a part of another
            return max(1, steps // chunk)
        return cdiv(steps - 1, chunk) + 1

    least = max(cdiv(sequences * steps, slots), cdiv(steps, MAX_SPLITS - 1))
    chunk = min(range(least, int(least * MAX_CHUNK) + 1), key=lambda chunk: (parts(chunk), chunk))
    merge_config = _merge_config(sequences * rows, parts(chunk), config["HEAD_DIM"], gpu)
    return SplitPlan(parts(chunk), tiles, config, merge_config, chunk, cdiv(sequences * steps, chunk))


def _plan(sequences, rows, keys, head_dim, page, splits, ragged: bool, gpu: Device) -> SplitPlan:
    """A call's plan: persistent where all sequences have all keys, without pages, and nobody asked for splits."""
    plan = None
    if not (page or ragged or splits):
        plan = persistent_plan(sequences, rows, keys, head_dim, gpu)
    return plan or split_plan(sequences, rows, keys, head_dim, page, splits, gpu)


def _one_page(name: str, pages: torch.Tensor, batch: int) -> torch.Tensor:
    """One page per sequence, to be checked like keys without pages."""
    check_tensor(name, pages)
    if pages.dim() != 4 or not len(pages):
        raise ValueError(f"{name}: got shape {tuple(pages.shape)}, expected (pages, kv_heads, page, head_dim)")
    return pages[:1].expand(batch, -1, -1, -1)


def _check(q, k, v, lengths, scale, block_table, splits) -> tuple[float, int, int]:
    """(scale, keys per page or 0, keys that a sequence may have). Raises ValueError naming the argument."""
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


@dataclass(frozen=True)
class DecodeCall:
    """A call's plan. kernel: None where out is empty. paged: whether it takes lengths and block_table. parts, merging:
    shapes of max, sum and acc of the parts of each row, and the second launch, if there are several splits."""

    kernel: Launch | None = None
    paged: bool = True
    parts: tuple = ()
    merging: Launch | None = None

    def __call__(self, q, k, v, lengths, block_table) -> torch.Tensor:
        out = torch.empty_like(q, memory_format=torch.contiguous_format)
        if self.kernel is None:
            return out
        tables = (lengths, block_table) if self.paged else ()
        parts = [torch.empty(shape, dtype=torch.float32, device=q.device) for shape in self.parts] or [None] * 3
        self.kernel(q, k, v, *[None if x is None else x.contiguous() for x in tables], out, *parts)
        if self.merging:
            self.merging(*parts, out)
        return out


@by_metadata
def plan_call(q, k, v, lengths, scale, block_table, splits) -> DecodeCall:
    """The plan of a call, whose arguments it checks."""
    scale, page, keys = _check(q, k, v, lengths, scale, block_table, splits)
    if not q.numel():
        return DecodeCall()
    (batch, heads, queries, head_dim), kv_heads, gpu = q.shape, k.shape[1], device_of(q.device)
    sequences, group, rows = batch * kv_heads, heads // kv_heads, batch * heads * queries
    plan = _plan(sequences, group * queries, keys, head_dim, page, splits, lengths is not None, gpu)
    strides, sizes = (q.stride(), k.stride(), v.stride()), (kv_heads, group, queries, keys, plan.splits)
    parts, merging, pdl = (), None, plan.splits > 1 and has_dependent_launch(q.device)
    options = {**plan.config, "PDL": pdl}
    if plan.chunk:
        chunks = group * queries, cdiv(keys, plan.config["BLOCK_N"]), plan.splits, plan.chunk
        grid, sizes = (plan.programs, plan.tiles), (sequences, *sizes, plan.chunk)
        kernel = Launch(attention_decode_persistent_kernel, grid, *strides, *sizes, scale, **options)
    else:
        grid = sequences, plan.splits, plan.tiles
        kernel = Launch(attention_decode_kernel, grid, *strides, *sizes, scale, **options)
    if plan.splits > 1:
        options = {**plan.merge_config, "PDL": pdl, **({"launch_pdl": True} if pdl else {})}
        merge_kernel, counts = (merge_chunks_kernel, chunks) if plan.chunk else (merge_parts_kernel, (plan.splits,))
        merging = Launch(merge_kernel, (rows, plan.merge_programs), *counts, **options)
        parts = (rows, plan.splits), (rows, plan.splits), (rows, plan.splits, head_dim)
    return DecodeCall(kernel, not plan.chunk, parts, merging)


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

    Args:
        q: [batch, heads, queries, head_dim], fp16 or bf16, any strides; 1 to 16 queries, head_dim 1 to 256.
        k: [batch, kv_heads, keys, head_dim], q's dtype, any strides; heads is a multiple of kv_heads, and query head h
            attends to KV head h // (heads // kv_heads).
        v: [batch, kv_heads, keys, head_dim], q's dtype, any strides.
        lengths: [batch], int32: the keys that each sequence has, those of its queries included; all unless given.
            Query i attends to the keys j <= i + length - queries; what lies past a length is never read.
        scale: a positive number; head_dim ** -0.5 unless given.
        block_table: [batch, pages per sequence], int32: k and v are then pages, [any number, kv_heads, page, head_dim],
            and key j of sequence b is row j % page of page block_table[b, j // page].
        splits: programs that split the keys of a sequence and KV head, 1 to 128; chosen for the GPU unless given.

    Returns:
        [batch, heads, queries, head_dim], q's dtype, contiguous; 0 in a row that attends to no key. No gradient.

    Raises:
        ValueError: an argument that does not fit, by name.

    Note:
        The caller keeps lengths within the keys, and block_table within the pages: a check would wait for the GPU.
    """
    return plan_call(q, k, v, lengths, scale, block_table, splits)(q, k, v, lengths, block_table)


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
    """What `attention_decode` moves.

    Args:
        batch, heads, kv_heads, queries, keys, head_dim: sizes of the call; keys: that a sequence may have.
        dtype: of q, k and v.
        lengths: keys that each sequence has; `keys` unless given.
        page: keys per page, 0 without pages.
        splits: as for `attention_decode`.
        gpu: on which the programs run; the H200 of the course's records unless given.
        path: 'minimum', each byte once; 'naive', the eager ops of `attention_ops` over all keys; None, what the
            programs request.

    Returns:
        The traffic. FLOPs are those of both matmuls over the unmasked pairs of query and key.
    """
    if path == "naive":
        naive = attention_ops(batch, heads, queries, keys, head_dim, dtype, causal=queries > 1, kv_heads=kv_heads)
        return sum(naive.values())
    each = [keys] * batch if lengths is None else list(lengths)
    flops = 4 * heads * head_dim * sum(unmasked_pairs(queries, n, True, None) for n in each)
    gpu = Device(gpu.sms, gpu.shared_per_sm)
    sizes = (batch * kv_heads, heads // kv_heads * queries, keys, head_dim, page)
    plan = _plan(*sizes, splits, lengths is not None, gpu)
    once = path == "minimum"
    splits, tiles = (1, 1) if once else (plan.splits, plan.tiles)
    rows, row_bytes = batch * heads * queries, head_dim * dtype.itemsize
    loads = tiles * kv_heads * sum(each)  # of a key, counted each time that a program loads it
    q_loads = 1 if once else cdiv(keys, plan.config["BLOCK_N"]) if plan.chunk else splits
    read = {"q": q_loads * rows * row_bytes, "k": loads * row_bytes, "v": loads * row_bytes}
    if lengths is not None:
        read["lengths"] = 4 * batch * (1 if once else tiles * kv_heads * splits)
    if page:
        read["block_table"] = 4 * (sum(cdiv(n, page) for n in each) if once else loads)
    written = {"out": rows * row_bytes}
    if once or splits == 1:
        return Traffic(read, written, flops, launches=1)
    parts = _parts(plan, batch * kv_heads, keys)
    group_rows = rows // (batch * kv_heads)
    scalars, acc = 4 * parts * group_rows, 4 * parts * group_rows * head_dim
    read |= {"part_max": plan.merge_programs * scalars, "part_sum": plan.merge_programs * scalars, "part_acc": acc}
    written |= {"part_max": scalars, "part_sum": scalars, "part_acc": acc}
    return Traffic(read, written, flops, launches=2)


def _parts(plan: SplitPlan, sequences: int, keys: int) -> int:
    """Parts of all sequences together; those of a persistent kernel that are a whole sequence are none."""
    if not plan.chunk:
        return sequences * plan.splits
    steps = cdiv(keys, plan.config["BLOCK_N"])
    parts = (((s + 1) * steps - 1) // plan.chunk - s * steps // plan.chunk + 1 for s in range(sequences))
    return sum(n for n in parts if n > 1)
