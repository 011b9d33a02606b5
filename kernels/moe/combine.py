"""Move rows to the experts and back: `gather_rows` for dispatch, `combine` for the weighted sum of the results.

Minimum traffic: `gather_rows` reads x once and writes each row top_k times; `combine` reads those rows of y, the row
numbers and the gates once, and writes out once.

Both kernels run over the tokens, with a block of columns per program. Dispatch reads a token's row once and writes it
to each of the token's slots. Combine reads those rows where they lie, so nothing is sorted back and no intermediate
result is stored; sums are fp32 and in the order of the choices, so the result has the same bits in every run. Each is
the other's backward. With gates, combine's own backward computes dy and dgates in one pass over dout and y.
"""

from dataclasses import dataclass

import torch
from torch.autograd.function import once_differentiable

from instruments.backend import cdiv, tl, triton
from instruments.launcher import Launch
from instruments.traffic import Traffic
from kernels.moe.permute import Permutation
from kernels.shared.arguments import check_tensor, wants_grad
from kernels.shared.metadata import by_metadata

BLOCK = 1024  # columns of a program
NUM_WARPS = 4


def combine_reference(y: torch.Tensor, permutation: Permutation, gates: torch.Tensor | None = None) -> torch.Tensor:
    """`combine` in plain PyTorch, in the precision of its arguments; fp64 inputs give a reference."""
    rows = permutation.rows.long()
    slots = y[rows.clamp(min=0)].masked_fill((rows < 0)[..., None], 0)  # [tokens, top_k, hidden]
    return (slots if gates is None else slots * gates[..., None]).sum(dim=1)


@triton.jit
def dispatch_kernel(
    x_ptr, rows_ptr, y_ptr,  # tensors
    x_row_stride, x_col_stride, hidden, blocks,
    TOP_K: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Copy one token's row of x [tokens, hidden], any strides, to its rows [tokens, TOP_K] of y [slots, hidden]. The
    blocks of a row are neighboring programs, so that the pages of a row are written together."""
    token = (tl.program_id(0) // blocks).to(tl.int64)
    col = tl.program_id(0) % blocks * BLOCK + tl.arange(0, BLOCK)  # [BLOCK]
    x = tl.load(x_ptr + token * x_row_stride + col.to(tl.int64) * x_col_stride, mask=col < hidden, other=0.0)
    for i in tl.static_range(TOP_K):
        row = tl.load(rows_ptr + token * TOP_K + i).to(tl.int64)
        tl.store(y_ptr + row * hidden + col, x, mask=(col < hidden) & (row >= 0))


@triton.jit
def combine_kernel(
    y_ptr, rows_ptr, gates_ptr, out_ptr,  # tensors
    y_row_stride, y_col_stride, hidden,
    TOP_K: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """A block of one token's out [tokens, hidden]: the sum of its rows [tokens, TOP_K] of y [slots, hidden], any
    strides, times gates [tokens, TOP_K], unless gates is None."""
    token = tl.program_id(0).to(tl.int64)
    col = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)  # [BLOCK]
    acc = tl.zeros([BLOCK], dtype=tl.float32)
    for i in tl.static_range(TOP_K):
        row = tl.load(rows_ptr + token * TOP_K + i).to(tl.int64)
        mask = (col < hidden) & (row >= 0)
        y = tl.load(y_ptr + row * y_row_stride + col.to(tl.int64) * y_col_stride, mask=mask, other=0.0).to(tl.float32)
        if gates_ptr is not None:
            y *= tl.load(gates_ptr + token * TOP_K + i)
        acc += tl.where(row >= 0, y, 0.0)
    tl.store(out_ptr + token * hidden + col, acc.to(out_ptr.dtype.element_ty), mask=col < hidden)


@triton.jit
def combine_backward_kernel(
    dout_ptr, y_ptr, rows_ptr, gates_ptr, dy_ptr, dgates_ptr,  # tensors
    dout_strides, y_strides, hidden,
    TOP_K: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One token: from dout [tokens, hidden], dy [slots, hidden] at its rows, and dgates [tokens, TOP_K], fp32."""
    token = tl.program_id(0).to(tl.int64)
    choice = tl.arange(0, triton.next_power_of_2(TOP_K))  # [TOP_K, padded]
    dgates = tl.zeros([triton.next_power_of_2(TOP_K)], dtype=tl.float32)
    for start in tl.range(0, hidden, BLOCK):
        col = start + tl.arange(0, BLOCK)  # [BLOCK]
        wide_col = col.to(tl.int64)
        dout = tl.load(dout_ptr + token * dout_strides[0] + wide_col * dout_strides[1], mask=col < hidden, other=0.0)
        dout = dout.to(tl.float32)
        for i in tl.static_range(TOP_K):
            row = tl.load(rows_ptr + token * TOP_K + i).to(tl.int64)
            gate = tl.load(gates_ptr + token * TOP_K + i)
            mask = (col < hidden) & (row >= 0)
            y = tl.load(y_ptr + row * y_strides[0] + wide_col * y_strides[1], mask=mask, other=0.0).to(tl.float32)
            dgates += tl.where(choice == i, tl.sum(dout * y), 0.0)
            tl.store(dy_ptr + row * hidden + col, (gate * dout).to(dy_ptr.dtype.element_ty), mask=mask)
    tl.store(dgates_ptr + token * TOP_K + choice, dgates, mask=choice < TOP_K)


def _check(name: str, x, permutation: Permutation, of: str):
    """Raise ValueError unless x has a row for each of the permutation's `of`, 'tokens' or 'slots', on its device."""
    if not isinstance(permutation, Permutation):
        raise ValueError(f"permutation: got {type(permutation).__name__}, expected a Permutation")
    check_tensor(name, x, like=permutation.rows)
    length = permutation.rows.shape[0] if of == "tokens" else permutation.rows.numel()
    if x.dim() != 2 or x.shape[0] != length:
        raise ValueError(f"{name}: got shape {tuple(x.shape)}, expected ({length}, hidden), a row for each of the {of}")


def _empty_slots(permutation: Permutation, hidden: int, like: torch.Tensor) -> torch.Tensor:
    """A tensor [slots, hidden]; of zeros if a capacity may leave rows empty."""
    new = torch.empty if permutation.capacity is None else torch.zeros
    return new((permutation.rows.numel(), hidden), dtype=like.dtype, device=like.device)


def gather_rows_forward(x: torch.Tensor, permutation: Permutation) -> torch.Tensor:
    """`gather_rows` without checks or autograd."""
    (tokens, top_k), hidden = permutation.rows.shape, x.shape[1]
    y = _empty_slots(permutation, hidden, x)
    if y.numel():
        blocks = cdiv(hidden, BLOCK)
        dispatch_kernel[(tokens * blocks,)](
            x, permutation.rows, y,
            *x.stride(), hidden, blocks,
            TOP_K=top_k, BLOCK=BLOCK, num_warps=NUM_WARPS,
        )  # fmt: skip
    return y


@dataclass(frozen=True)
class CombineCall:
    """A call's plan. shape: of out. kernel: None where out is empty."""

    shape: tuple[int, int]
    kernel: Launch | None

    def __call__(self, y: torch.Tensor, rows: torch.Tensor, gates: torch.Tensor | None) -> torch.Tensor:
        out = torch.empty(self.shape, dtype=y.dtype, device=y.device)
        if self.kernel:
            self.kernel(y, rows, gates, out)
        return out


def plan_call(y: torch.Tensor, tokens: int, top_k: int) -> CombineCall:
    """The plan of a call with tensors like y [slots, hidden], of which only metadata matter."""
    hidden = y.shape[1]
    grid, kernel = (tokens, cdiv(hidden, BLOCK)), None
    if tokens * hidden:
        kernel = Launch(combine_kernel, grid, *y.stride(), hidden, TOP_K=top_k, BLOCK=BLOCK, num_warps=NUM_WARPS)
    return CombineCall((tokens, hidden), kernel)


@by_metadata
def _plan(y, rows, gates) -> CombineCall:
    """The plan of a call whose rows are a permutation's [tokens, top_k]; checks gates."""
    if gates is not None:
        why = ", a gate for each slot"
        check_tensor("gates", gates, shape=rows.shape, like=y, dtypes=(torch.float32,), why=why)
    return plan_call(y, *rows.shape)


def combine_backward(
    dout: torch.Tensor, y: torch.Tensor, permutation: Permutation, gates: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """(dy [slots, hidden] in y's dtype, dgates [tokens, top_k] fp32) of out = combine(y, permutation, gates), in one
    pass over dout and y. Empty rows of dy are not written, or are zeros with a capacity."""
    (tokens, top_k), hidden = permutation.rows.shape, y.shape[1]
    dy, dgates = _empty_slots(permutation, hidden, y), torch.empty_like(gates, memory_format=torch.contiguous_format)
    if tokens:
        combine_backward_kernel[(tokens,)](
            dout, y, permutation.rows, gates, dy, dgates,
            dout.stride(), y.stride(), hidden,
            TOP_K=top_k, BLOCK=BLOCK, num_warps=NUM_WARPS,
        )  # fmt: skip
    return dy, dgates


class _GatherRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, permutation):
        ctx.permutation = permutation
        return gather_rows_forward(x, permutation)

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        return combine(dy, ctx.permutation), None


class _Combine(torch.autograd.Function):
    @staticmethod
    def forward(ctx, y, permutation, gates, plan):
        ctx.permutation = permutation
        ctx.save_for_backward(*(() if gates is None else (y, gates)))
        return plan(y, permutation.rows, gates)

    @staticmethod
    @once_differentiable
    def backward(ctx, dout):
        if not ctx.saved_tensors:
            return gather_rows_forward(dout, ctx.permutation), None, None, None
        y, gates = ctx.saved_tensors
        dy, dgates = combine_backward(dout, y, ctx.permutation, gates)
        return dy, None, dgates, None


def gather_rows(x: torch.Tensor, permutation: Permutation) -> torch.Tensor:
    """Copy each token's row of x to every row that the permutation assigns to it: dispatch. Differentiable.

    Args:
        x: [tokens, hidden], fp16, bf16 or fp32, any strides.
        permutation: as `permute` returns it.

    Returns:
        y [slots, hidden], x's dtype, contiguous.

    Raises:
        ValueError: names the argument, what it got and what was expected.

    Note:
        Rows without a token are not written, or are zeros if the permutation has a capacity.
    """
    _check("x", x, permutation, "tokens")
    return _GatherRows.apply(x, permutation) if wants_grad(x) else gather_rows_forward(x, permutation)


def combine(y: torch.Tensor, permutation: Permutation, gates: torch.Tensor | None = None) -> torch.Tensor:
    """Add up gate * y[row] over each token's choices. Differentiable.

    Args:
        y: [slots, hidden], fp16, bf16 or fp32, any strides, in the order of the permutation. Rows without a token are
            not read.
        permutation: as `permute` returns it. A choice that was dropped adds nothing.
        gates: [tokens, top_k], fp32, any strides, as `route` returns them. None: a plain sum.

    Returns:
        out [tokens, hidden], y's dtype, contiguous; accumulated in fp32 and rounded once.

    Raises:
        ValueError: names the argument, what it got and what was expected.
    """
    _check("y", y, permutation, "slots")
    plan = _plan(y, permutation.rows, gates)
    gates = None if gates is None else gates.contiguous()
    if wants_grad(y, gates):
        return _Combine.apply(y, permutation, gates, plan)
    return plan(y, permutation.rows, gates)


def _blocks(hidden: int, path: str | None) -> int:
    """How many programs read the row numbers and gates of one token."""
    if path not in ("minimum", None):
        raise ValueError(f"path: got {path!r}, expected minimum or None")
    return 1 if path else cdiv(hidden, BLOCK)


def gather_traffic(tokens: int, top_k: int, hidden: int, dtype: torch.dtype, path: str | None = "minimum") -> Traffic:
    """Bytes of `gather_rows`, if no slot is dropped.

    Args:
        tokens: rows of x.
        top_k: slots per token.
        hidden: columns of x.
        dtype: of x.
        path: "minimum", each byte once. None: the requested bytes of the kernel.
    """
    blocks, row = _blocks(hidden, path), hidden * dtype.itemsize
    return Traffic({"x": tokens * row, "rows": 4 * tokens * top_k * blocks}, {"y": tokens * top_k * row}, launches=1)


def combine_traffic(tokens: int, top_k: int, hidden: int, dtype: torch.dtype, path: str | None = "minimum") -> Traffic:
    """Bytes and FLOPs of `combine` with gates, if no slot is dropped.

    Args:
        tokens: rows of out.
        top_k: slots per token.
        hidden: columns of y.
        dtype: of y.
        path: "minimum", each byte once; "naive", the unfused ops of `combine_reference`. None: the requested bytes of
            the kernel.
    """
    slots, row = tokens * top_k, hidden * dtype.itemsize
    flops = 2 * slots * hidden
    if path == "naive":
        index = Traffic({"y": slots * row, "rows": 8 * slots}, {"gathered": slots * row}, launches=1)
        scale = Traffic({"gathered": slots * row, "gates": 4 * slots}, {"scaled": slots * row}, flops // 2, launches=1)
        return index + scale + Traffic({"scaled": slots * row}, {"out": tokens * row}, flops // 2, launches=1)
    blocks = _blocks(hidden, path)
    read = {"y": slots * row, "rows": 4 * slots * blocks, "gates": 4 * slots * blocks}
    return Traffic(read, {"out": tokens * row}, flops, launches=1)
