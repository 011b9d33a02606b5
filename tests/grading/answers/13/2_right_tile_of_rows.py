# right
import torch

from instruments.backend import tl, triton


@triton.jit
def part_kernel(
    dy_ptr,
    x_ptr,
    partial_ptr,
    tokens,
    rows,
    columns,
    dy_stride,
    length,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    tiles_n = tl.cdiv(columns, BLOCK_N)
    row = tl.program_id(0) // tiles_n * BLOCK_M + tl.arange(0, BLOCK_M)
    col = tl.program_id(0) % tiles_n * BLOCK_N + tl.arange(0, BLOCK_N)
    part = tl.program_id(1).to(tl.int64)
    first = part * length
    end = tl.minimum(first + length, tokens)
    acc = tl.zeros([BLOCK_M, BLOCK_N], dtype=tl.float32)
    for step in range(0, tl.cdiv(end - first, BLOCK_K)):
        token = first + step * BLOCK_K + tl.arange(0, BLOCK_K)[:, None]
        dy_mask = (token < end) & (row < rows)[None, :]
        x_mask = (token < end) & (col < columns)[None, :]
        dy = tl.load(dy_ptr + token * dy_stride + row[None, :], mask=dy_mask, other=0.0)  # as it lies, by tokens
        x = tl.load(x_ptr + token * columns + col[None, :], mask=x_mask, other=0.0)
        acc = tl.dot(dy.T, x, acc)
    at = (part * rows + row[:, None]) * columns + col[None, :]
    tl.store(partial_ptr + at, acc, mask=(row < rows)[:, None] & (col < columns)[None, :])


@triton.jit
def add_kernel(partial_ptr, total_ptr, size, parts, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    gradient = tl.zeros([BLOCK], dtype=tl.float32)
    for part in range(0, parts):
        gradient += tl.load(partial_ptr + at, mask=at < size, other=0.0)
        partial_ptr += size
    total = tl.load(total_ptr + at, mask=at < size, other=0.0)
    tl.store(total_ptr + at, total + gradient, mask=at < size)


def weight_gradient(dy, x, total, length):
    (tokens, rows), columns = dy.shape, x.shape[1]
    parts, tiles = triton.cdiv(tokens, length), triton.cdiv(rows, 64) * triton.cdiv(columns, 64)
    partial = torch.empty(parts, rows, columns, dtype=torch.float32, device=dy.device)
    part_kernel[(tiles, parts)](
        dy, x, partial, tokens, rows, columns, dy.stride(0), length, BLOCK_M=64, BLOCK_N=64, BLOCK_K=32
    )
    add_kernel[(triton.cdiv(rows * columns, 256),)](partial, total, rows * columns, parts, BLOCK=256)
    return partial
