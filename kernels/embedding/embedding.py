"""Embedding: y[i] = table[indices[i]], a gather of rows; and its backward, which adds up the rows of each index.

Minimum traffic: each row that is named is read once and each row of y written once; repeated indices hit caches. Rows
lie anywhere, but the columns of a row are contiguous, so sectors and lines are used whole: a program takes a tile of
columns of several rows, and each thread 16 bytes of one of them.

The backward has two forms. 'sorted' sorts the indices (stable), so that the rows of dy that belong to one row of the
table form a run; one program adds a run up in fp32 in the order of the batch, and the same bits come out in every run.
'atomics' adds each row of dy to the table's gradient in fp32 where it is, in any order. torch's CUDA kernel sorts.
"""

import torch
from torch.autograd.function import once_differentiable

from instruments.backend import cdiv, next_power_of_2, tl, triton
from instruments.traffic import Traffic
from kernels.shared.arguments import check_tensor, wants_grad

INDEX_DTYPES = (torch.int64, torch.int32)
TILE = 2048  # elements of a program's tile
MAX_BLOCK = 1024  # columns of a tile
NUM_WARPS = 4
BACKWARDS = ("sorted", "atomics")


def embedding_reference(table: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
    """table[indices] by torch."""
    return table[indices]


@triton.jit
def embedding_kernel(
    table_ptr, indices_ptr, y_ptr,
    table_row_stride, table_col_stride,
    count, rows, cols,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """A tile [ROWS, BLOCK] of y [count, cols] per program: table [rows, cols] of any strides, indices [count]. An index
    outside the table loads nothing and gives NaN."""
    out_row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)  # [ROWS]
    col = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]  # [1, BLOCK]
    index = tl.load(indices_ptr + out_row, mask=out_row < count, other=0).to(tl.int64)  # [ROWS]
    inside = ((index >= 0) & (index < rows))[:, None] & (col < cols)
    x = tl.load(table_ptr + index[:, None] * table_row_stride + col * table_col_stride, mask=inside, other=float("nan"))
    tl.store(y_ptr + out_row[:, None] * cols + col, x, mask=(out_row < count)[:, None] & (col < cols))


@triton.jit
def embedding_sorted_backward_kernel(
    dy_ptr, order_ptr, offsets_ptr, dtable_ptr,
    cols,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """BLOCK columns of one row of dtable [rows, cols] per program: the sum of the rows order[offsets[row]] to
    order[offsets[row + 1] - 1] of dy [count, cols]; zeros where there are none."""
    row = tl.program_id(0).to(tl.int64)
    col = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)  # [BLOCK]
    acc = tl.zeros([BLOCK], dtype=tl.float32)
    for at in tl.range(tl.load(offsets_ptr + row), tl.load(offsets_ptr + row + 1)):
        source = tl.load(order_ptr + at).to(tl.int64)
        acc += tl.load(dy_ptr + source * cols + col, mask=col < cols, other=0.0).to(tl.float32)
    tl.store(dtable_ptr + row * cols + col, acc.to(dtable_ptr.dtype.element_ty), mask=col < cols)


@triton.jit
def embedding_atomic_backward_kernel(
    dy_ptr, indices_ptr, dtable_ptr,
    count, cols,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """A tile [ROWS, BLOCK] of dy [count, cols] per program, added to dtable [rows, cols], fp32 and zero beforehand."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)  # [ROWS]
    col = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]  # [1, BLOCK]
    mask = (row < count)[:, None] & (col < cols)
    index = tl.load(indices_ptr + row, mask=row < count, other=0).to(tl.int64)
    dy = tl.load(dy_ptr + row[:, None] * cols + col, mask=mask, other=0.0).to(tl.float32)
    tl.atomic_add(dtable_ptr + index[:, None] * cols + col, dy, mask=mask, sem="relaxed")


def tile_of(cols: int) -> dict:
    """The tile for rows of this width: constants of the kernels by their names for them."""
    block = min(MAX_BLOCK, max(8, next_power_of_2(cols)))
    return {"ROWS": max(1, TILE // block), "BLOCK": block, "num_warps": NUM_WARPS}


def check_indices(name: str, indices, table: torch.Tensor, check_range: bool):
    """Raise ValueError unless `indices` are integers on the table's device, and with check_range name its rows."""
    check_tensor(name, indices, like=table, dtypes=INDEX_DTYPES)
    if check_range and indices.numel():
        low, high = int(indices.min()), int(indices.max())
        if low < 0 or high >= len(table):
            raise ValueError(f"{name}: got {low if low < 0 else high}, expected 0 to {len(table) - 1}, a row of table")


def run_offsets(indices: torch.Tensor, rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    """(order, offsets [rows + 1]): indices[order] is sorted, equal ones in their order, and those of row r lie from
    offsets[r] to offsets[r + 1]."""
    values, order = torch.sort(indices, stable=True)
    return order, torch.searchsorted(values, torch.arange(rows + 1, dtype=values.dtype, device=values.device))


def embedding_backward(dy: torch.Tensor, indices: torch.Tensor, rows: int, method: str = "sorted") -> torch.Tensor:
    """The gradient of the table, which autograd calls.

    Args:
        dy: [..., cols], the gradient of y.
        indices: [...], int64 or int32, each a row of the table.
        rows: rows of the table.
        method: 'sorted' gives the same bits in every run; 'atomics' does not.

    Returns:
        [rows, cols], the dtype of dy.

    Raises:
        ValueError: where method is another word.
    """
    if method not in BACKWARDS:
        raise ValueError(f"method: got {method!r}, expected one of {', '.join(BACKWARDS)}")
    cols = dy.shape[-1]
    dy, indices = dy.reshape(-1, cols).contiguous(), indices.reshape(-1)
    if not dy.numel() or not rows:
        return dy.new_zeros((rows, cols))
    tile = tile_of(cols)
    blocks = cdiv(cols, tile["BLOCK"])
    if method == "atomics":
        dtable = torch.zeros((rows, cols), dtype=torch.float32, device=dy.device)
        embedding_atomic_backward_kernel[(cdiv(len(dy), tile["ROWS"]), blocks)](
            dy, indices.contiguous(), dtable, len(dy), cols, **tile
        )
        return dtable.to(dy.dtype)
    dtable = torch.empty((rows, cols), dtype=dy.dtype, device=dy.device)
    order, offsets = run_offsets(indices, rows)
    embedding_sorted_backward_kernel[(rows, blocks)](
        dy, order, offsets, dtable, cols, BLOCK=tile["BLOCK"], num_warps=NUM_WARPS
    )
    return dtable


def _forward(table, indices):
    flat, cols = indices.reshape(-1).contiguous(), table.shape[1]
    y = torch.empty((*indices.shape, cols), dtype=table.dtype, device=table.device)
    if y.numel():
        tile = tile_of(cols)
        embedding_kernel[(cdiv(len(flat), tile["ROWS"]), cdiv(cols, tile["BLOCK"]))](
            table, flat, y, *table.stride(), len(flat), len(table), cols, **tile
        )
    return y


class _Embedding(torch.autograd.Function):
    @staticmethod
    def forward(ctx, table, indices, method):
        ctx.save_for_backward(indices)
        ctx.rows, ctx.method = len(table), method
        return _forward(table, indices)

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        return embedding_backward(dy, *ctx.saved_tensors, ctx.rows, ctx.method), None, None


def embedding(
    table: torch.Tensor, indices: torch.Tensor, *, check_range: bool = True, backward: str = "sorted"
) -> torch.Tensor:
    """table[indices], differentiable in the table.

    Args:
        table: [rows, cols], fp16, bf16 or fp32, any strides.
        indices: any shape, int64 or int32, in any order, repeated or not.
        check_range: raise if an index is no row. The host waits for the GPU then, so a CUDA graph needs False; an index
            outside gives a row of NaN in that case.
        backward: 'sorted' or 'atomics', see `embedding_backward`.

    Returns:
        [*indices.shape, cols], the dtype of table, contiguous.

    Raises:
        ValueError: naming the argument, what it is and what was expected.
    """
    check_tensor("table", table)
    if table.dim() != 2:
        raise ValueError(f"table: got {table.dim()} dimensions, expected 2")
    if backward not in BACKWARDS:
        raise ValueError(f"backward: got {backward!r}, expected one of {', '.join(BACKWARDS)}")
    check_indices("indices", indices, table, check_range)
    return _Embedding.apply(table, indices, backward) if wants_grad(table) else _forward(table, indices)


def embedding_traffic(count: int, distinct: int, cols: int, dtype: torch.dtype) -> Traffic:
    """The traffic of an embedding.

    Args:
        count: rows of y.
        distinct: rows of the table that indices name: the minimum. With `count` instead, the requested bytes.
        cols: columns.
        dtype: dtype of table and y.
    """
    size, blocks = cols * dtype.itemsize, cdiv(cols, tile_of(cols)["BLOCK"])
    return Traffic({"table": distinct * size, "indices": count * 8 * blocks}, {"y": count * size}, launches=1)
