# wrong, mistake: dweight sums dy
import torch

from instruments.backend import tl, triton


@triton.jit
def norm_parts_kernel(
    dy_ptr,
    x_ptr,
    stats_ptr,
    dweight_ptr,
    dbias_ptr,
    rows,
    cols,
    x_stride,
    length,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    col = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[None, :]
    block = tl.program_id(1).to(tl.int64)
    end = tl.minimum((block + 1) * length, rows)
    dweight = tl.zeros([ROWS, BLOCK], dtype=tl.float32)
    dbias = tl.zeros([ROWS, BLOCK], dtype=tl.float32)
    for start in range(block * length, end, ROWS):
        row = start + tl.arange(0, ROWS)[:, None]
        mask = (row < end) & (col < cols)
        dy = tl.load(dy_ptr + row * cols + col, mask=mask, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + row * x_stride + col, mask=mask, other=0.0).to(tl.float32)
        mean = tl.load(stats_ptr + 2 * row, mask=row < end, other=0.0)
        scale = tl.load(stats_ptr + 2 * row + 1, mask=row < end, other=0.0)
        dweight += dy * x * scale  # 0 in masked-out elements, where dy is 0
        dbias += dy
    at = block * cols + col
    tl.store(dweight_ptr + at, tl.sum(dweight, axis=0)[None, :], mask=col < cols)
    tl.store(dbias_ptr + at, tl.sum(dbias, axis=0)[None, :], mask=col < cols)


@triton.jit
def add_parts_kernel(parts_ptr, total_ptr, count, cols, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    col = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros([ROWS, BLOCK], dtype=tl.float32)
    for start in range(0, count, ROWS):
        row = start + tl.arange(0, ROWS).to(tl.int64)[:, None]
        total += tl.load(parts_ptr + row * cols + col[None, :], mask=(row < count) & (col < cols)[None, :], other=0.0)
    tl.store(total_ptr + col, tl.sum(total, axis=0).to(total_ptr.dtype.element_ty), mask=col < cols)


def norm_parts(dy, x, stats, length):
    rows, cols = x.shape
    blocks = triton.cdiv(rows, length)
    dweight, dbias = (torch.empty(blocks, cols, dtype=torch.float32, device=x.device) for _ in range(2))
    norm_parts_kernel[(triton.cdiv(cols, 128), blocks)](
        dy, x, stats, dweight, dbias, rows, cols, x.stride(0), length, ROWS=16, BLOCK=128
    )
    return dweight, dbias


def add_parts(parts, dtype):
    count, cols = parts.shape
    total = torch.empty(cols, dtype=dtype, device=parts.device)
    add_parts_kernel[(triton.cdiv(cols, 64),)](parts, total, count, cols, ROWS=32, BLOCK=64)
    return total
