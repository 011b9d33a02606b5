"""Embedding bag: the sum or mean of a bag of a table's rows, without storing the rows.

y[b] = sum of table[indices[i]] for i from offsets[b] to offsets[b + 1]; mean divides by their number. Minimum traffic:
each named row read once, y written once; gathered first, the rows would be written and read once more. A program keeps
BLOCK columns of one bag's sum in registers, in fp32, and rounds once. An empty bag is zero, as in torch.

The backward is the embedding's: each index gets the gradient of its bag.
"""

import torch
import torch.nn.functional as F
from torch.autograd.function import once_differentiable

from instruments.backend import cdiv, tl, triton
from instruments.traffic import Traffic
from kernels.embedding.embedding import INDEX_DTYPES, NUM_WARPS, check_indices, embedding_backward, tile_of
from kernels.shared.arguments import check_tensor, wants_grad

MODES = ("sum", "mean")


def embedding_bag_reference(table, indices, offsets, mode="sum"):
    """The bags by torch, in the precision of the table: pass fp64 for a reference. offsets [bags + 1]."""
    return F.embedding_bag(indices.long(), table, offsets.long(), mode=mode, include_last_offset=True)


@triton.jit
def embedding_bag_kernel(
    table_ptr, indices_ptr, offsets_ptr, y_ptr,
    table_row_stride, table_col_stride,
    rows, cols,
    MEAN: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """BLOCK columns of one bag per program: table [rows, cols] of any strides, indices [count], offsets [bags + 1], y
    [bags, cols]. An index outside the table loads nothing and makes its bag NaN."""
    bag = tl.program_id(0).to(tl.int64)
    col = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)  # [BLOCK]
    first, last = tl.load(offsets_ptr + bag), tl.load(offsets_ptr + bag + 1)
    acc = tl.zeros([BLOCK], dtype=tl.float32)
    for at in tl.range(first, last):
        index = tl.load(indices_ptr + at).to(tl.int64)
        inside = (index >= 0) & (index < rows)
        x_ptrs = table_ptr + index * table_row_stride + col * table_col_stride
        acc += tl.load(x_ptrs, mask=inside & (col < cols), other=float("nan")).to(tl.float32)
    if MEAN:
        acc /= tl.maximum(last - first, 1).to(tl.float32)
    tl.store(y_ptr + bag * cols + col, acc.to(y_ptr.dtype.element_ty), mask=col < cols)


def _forward(table, indices, offsets, mode):
    bags, cols = len(offsets) - 1, table.shape[1]
    y = torch.empty((bags, cols), dtype=table.dtype, device=table.device)
    if y.numel():
        block = tile_of(cols)["BLOCK"]
        embedding_bag_kernel[(bags, cdiv(cols, block))](
            table, indices, offsets, y, *table.stride(), len(table), cols,
            MEAN=mode == "mean", BLOCK=block, num_warps=NUM_WARPS,
        )  # fmt: skip
    return y


class _EmbeddingBag(torch.autograd.Function):
    @staticmethod
    def forward(ctx, table, indices, offsets, mode, method):
        ctx.save_for_backward(indices, offsets)
        ctx.rows, ctx.mode, ctx.method = len(table), mode, method
        return _forward(table, indices, offsets, mode)

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        indices, offsets = ctx.saved_tensors
        counts = offsets.diff()
        if ctx.mode == "mean":
            dy = dy / counts.clamp(min=1)[:, None].to(dy.dtype)
        rows = torch.repeat_interleave(dy, counts, dim=0)  # the gradient of each index
        return embedding_backward(rows, indices, ctx.rows, ctx.method), None, None, None, None


def embedding_bag(
    table: torch.Tensor,
    indices: torch.Tensor,
    offsets: torch.Tensor,
    *,
    mode: str = "sum",
    check_range: bool = True,
    backward: str = "sorted",
) -> torch.Tensor:
    """The sum or mean of each bag of rows, added in fp32 in the order of the indices; differentiable in the table.

    Args:
        table: [rows, cols], fp16, bf16 or fp32, any strides.
        indices: [count], int64 or int32, contiguous.
        offsets: [bags + 1], the dtype of indices, contiguous, ascending from 0 to count: where each bag begins.
        mode: 'sum' or 'mean'.
        check_range: raise if an index is no row or the offsets are no bags. The host waits for the GPU then.
        backward: as in `embedding`.

    Returns:
        [bags, cols], the dtype of table, contiguous; an empty bag is zero.

    Raises:
        ValueError: naming the argument, what it is and what was expected.
    """
    check_tensor("table", table)
    if table.dim() != 2:
        raise ValueError(f"table: got {table.dim()} dimensions, expected 2")
    if mode not in MODES:
        raise ValueError(f"mode: got {mode!r}, expected one of {', '.join(MODES)}")
    check_indices("indices", indices, table, check_range)
    check_tensor("offsets", offsets, like=table, dtypes=INDEX_DTYPES)
    for name, tensor in (("indices", indices), ("offsets", offsets)):
        if tensor.dim() != 1 or not tensor.is_contiguous():
            raise ValueError(f"{name}: got shape {tuple(tensor.shape)}, expected a contiguous vector")
    if not len(offsets):
        raise ValueError("offsets: got no element, expected at least one, 0")
    if check_range and (int(offsets[0]) or int(offsets[-1]) != len(indices) or bool((offsets.diff() < 0).any())):
        raise ValueError(f"offsets: got {offsets.tolist()[:8]}, expected ascending from 0 to {len(indices)}")
    if wants_grad(table):
        return _EmbeddingBag.apply(table, indices, offsets, mode, backward)
    return _forward(table, indices, offsets, mode)


def embedding_bag_traffic(count: int, bags: int, cols: int, dtype: torch.dtype) -> Traffic:
    """The requested bytes of an embedding bag: every row of every bag read, y written.

    Args:
        count: indices in all bags.
        bags: rows of y.
        cols: columns.
        dtype: dtype of table and y.
    """
    blocks = cdiv(cols, tile_of(cols)["BLOCK"])
    size = cols * dtype.itemsize
    read = {"table": count * size, "indices": count * 8 * blocks, "offsets": 2 * bags * 8 * blocks}
    return Traffic(read, {"y": bags * size}, launches=1)
