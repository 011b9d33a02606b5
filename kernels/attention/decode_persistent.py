"""Decoding with one program per slot of the GPU: each reads a chunk of all keys, over the ends of sequences.

All keys lie in one row of tiles, sequence by sequence (a sequence: the keys of one sequence and KV head), and each
program takes a chunk of CHUNK tiles: the stream-K of Osama and others (2023), for keys. All programs are resident at
once and read equally many tiles, whatever the number of sequences: no wave starts with empty pipelines, and none is
nearly empty. The loop runs over tiles, not over sequences and tiles, so the loads of a sequence's first tile are in
flight while the last tile of the sequence before it is multiplied; q is loaded with them.

A sequence that lies within one chunk is written to out. Each other sequence has parts, [rows, parts] as in decode.py,
of which the first program's is part 0, and a second kernel merges them. If CHUNK is a multiple of a sequence's tiles,
there are no parts, and no second kernel.
"""

from instruments.backend import tl, triton
from kernels.attention.masks import LOG2E, MIN_SCORE


@triton.jit
def write_rows(out_ptrs, row_sum, acc, mask):
    """The rows that have this sum and accumulator; a row that attends to no key is 0."""
    out = acc / tl.where(row_sum == 0.0, 1.0, row_sum)
    tl.store(out_ptrs, out.to(out_ptrs.dtype.element_ty), mask=mask)


@triton.jit
def attention_decode_persistent_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, part_max_ptr, part_sum_ptr, part_acc_ptr,  # tensors
    q_strides, k_strides, v_strides,
    sequences, kv_heads, group, queries, keys, parts, chunk, scale,
    HEAD_DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Attention over a chunk of the tiles of all sequences.

    Args:
        q_ptr: [batch, kv_heads * group, queries, HEAD_DIM], fp16 or bf16, any strides.
        k_ptr, v_ptr: [batch, kv_heads, keys, HEAD_DIM], any strides.
        out_ptr: like q, contiguous: written where a sequence lies within one chunk.
        part_max_ptr, part_sum_ptr: [rows of out, parts], fp32, written for the other sequences; None without any.
        part_acc_ptr: [rows of out, parts, HEAD_DIM], fp32, the same.
        sequences: pairs of a sequence and a KV head.
        chunk: tiles per program.
    """
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()  # the merge kernel may be launched now; it waits for this one
    program = tl.program_id(0)
    row = tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]  # [BLOCK_M, 1]: query of the group, head by head
    col = tl.arange(0, BLOCK_D)[None, :]  # [1, BLOCK_D]
    row_mask = row < group * queries
    q_mask = row_mask & (col < HEAD_DIM)
    query = row % queries
    q_ptrs = q_ptr + row // queries * q_strides[1] + query * q_strides[2] + col * q_strides[3]  # [BLOCK_M, BLOCK_D]

    tiles = tl.cdiv(keys, BLOCK_N)  # of a sequence
    first = program * chunk
    last = tl.minimum(first + chunk, sequences * tiles)
    running_max = tl.full([BLOCK_M, 1], MIN_SCORE, dtype=tl.float32)
    running_sum = tl.zeros([BLOCK_M, 1], dtype=tl.float32)
    acc = tl.zeros([BLOCK_M, BLOCK_D], dtype=tl.float32)
    for tile in tl.range(first, last):
        sequence, start = (tile // tiles).to(tl.int64), tile % tiles * BLOCK_N
        batch, kv_head = sequence // kv_heads, sequence % kv_heads
        q = tl.load(q_ptrs + batch * q_strides[0] + kv_head * group * q_strides[1], mask=q_mask, other=0.0)
        key = start + tl.arange(0, BLOCK_N)
        kv_mask = (key[:, None] < keys) & (col < HEAD_DIM)
        key_row = key.to(tl.int64)[:, None]  # [BLOCK_N, 1]
        k_ptrs = k_ptr + batch * k_strides[0] + kv_head * k_strides[1] + key_row * k_strides[2] + col * k_strides[3]
        v_ptrs = v_ptr + batch * v_strides[0] + kv_head * v_strides[1] + key_row * v_strides[2] + col * v_strides[3]
        k = tl.load(k_ptrs, mask=kv_mask, other=0.0)  # [BLOCK_N, BLOCK_D]
        v = tl.load(v_ptrs, mask=kv_mask, other=0.0)
        mask = (key[None, :] < keys) & (key[None, :] <= query + keys - queries)
        scores = tl.where(mask, tl.dot(q, k.T) * (scale * LOG2E), float("-inf"))  # [BLOCK_M, BLOCK_N]

        begins = start == 0  # a sequence: nothing of the one before is kept, not even a NaN
        running_max = tl.where(begins, MIN_SCORE, running_max)
        new_max = tl.maximum(running_max, tl.max(scores, axis=1, keep_dims=True))
        weights = tl.exp2(scores - new_max)
        correction = tl.exp2(running_max - new_max)
        running_sum = tl.where(begins, 0.0, running_sum * correction) + tl.sum(weights, axis=1, keep_dims=True)
        acc = tl.dot(weights.to(v.dtype), v, tl.where(begins, 0.0, acc * correction))
        running_max = new_max

        if (start + BLOCK_N >= keys) | (tile + 1 == last):
            out_row = sequence * group * queries + row  # [BLOCK_M, 1]
            first_program = sequence * tiles // chunk
            if part_acc_ptr is None:  # no sequence has parts
                write_rows(out_ptr + out_row * HEAD_DIM + col, running_sum, acc, q_mask)
            elif ((sequence + 1) * tiles - 1) // chunk == first_program:  # all of its tiles
                write_rows(out_ptr + out_row * HEAD_DIM + col, running_sum, acc, q_mask)
            else:
                part = out_row * parts + program - first_program
                tl.store(part_max_ptr + part, running_max, mask=row_mask)
                tl.store(part_sum_ptr + part, running_sum, mask=row_mask)
                tl.store(part_acc_ptr + part * HEAD_DIM + col, acc, mask=q_mask)


@triton.jit
def merge_chunks_kernel(
    part_max_ptr, part_sum_ptr, part_acc_ptr, out_ptr,  # tensors
    group_rows, tiles, parts, chunk,
    HEAD_DIM: tl.constexpr, BLOCK_S: tl.constexpr, BLOCK_D: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """BLOCK_D columns of one row of out, unless the row has a single part.

    Args:
        part_max_ptr, part_sum_ptr: [rows, parts], fp32.
        part_acc_ptr: [rows, parts, HEAD_DIM], fp32.
        out_ptr: [rows, HEAD_DIM], written.
        group_rows: rows per sequence and KV head.
        tiles: per sequence.
        chunk: tiles per program of the first kernel.
    """
    row = tl.program_id(0).to(tl.int64)
    sequence = row // group_rows
    row_parts = ((sequence + 1) * tiles - 1) // chunk - sequence * tiles // chunk + 1
    split = tl.arange(0, BLOCK_S)[:, None]  # [BLOCK_S, 1], BLOCK_S >= parts
    col = tl.program_id(1) * BLOCK_D + tl.arange(0, BLOCK_D)[None, :]  # [1, BLOCK_D]
    part, mask = row * parts + split, (split < row_parts) & (row_parts > 1)
    if PDL:
        tl.extra.cuda.gdc_wait()  # for the programs that write the parts
    part_max = tl.load(part_max_ptr + part, mask=mask, other=MIN_SCORE)
    part_sum = tl.load(part_sum_ptr + part, mask=mask, other=0.0)
    part_acc = tl.load(part_acc_ptr + part * HEAD_DIM + col, mask=mask & (col < HEAD_DIM), other=0.0)
    correction = tl.exp2(part_max - tl.max(part_max, axis=0, keep_dims=True))
    row_sum = tl.sum(part_sum * correction, axis=0, keep_dims=True)  # [1, 1]
    out = tl.sum(part_acc * correction, axis=0, keep_dims=True)  # [1, BLOCK_D]
    out /= tl.where(row_sum == 0.0, 1.0, row_sum)  # a row that attends to no key is 0
    out_mask = (col < HEAD_DIM) & (row_parts > 1)
    tl.store(out_ptr + row * HEAD_DIM + col, out.to(out_ptr.dtype.element_ty), mask=out_mask)
