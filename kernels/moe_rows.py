"""Rows of tokens on their way to experts and back: what the permutation is, and the kernels that move rows by it.

Both walk over the tokens, a block of columns per program. Scattering reads a token's row once and writes it to each of
its rows; gathering reads these and writes one. Each is the other's backward; with gates, gathering's own reads what
both read.
"""

from dataclasses import dataclass

import torch

from instruments.backend import tl, triton
from kernels.arguments import check_tensor

BLOCK = 1024  # columns of a program
NUM_WARPS = 4


@dataclass(frozen=True)
class Permutation:
    """Slots, one for each (token, choice), sorted by expert.

    offsets: [experts + 1]; the rows of expert e are those from offsets[e] to offsets[e + 1]. tokens: [slots]; the token
    of a row, -1 for rows from offsets[-1] on, which hold nothing. rows: [tokens, top_k]; the row of a slot, -1 where it
    has none. counts: [experts]; how many slots chose an expert, before any is dropped. All int32. capacity: rows that
    an expert has at most, None for any number.
    """

    offsets: torch.Tensor
    tokens: torch.Tensor
    rows: torch.Tensor
    counts: torch.Tensor
    capacity: int | None = None


def check_permuted(name: str, x, permutation: Permutation, of: str):
    """Raise ValueError unless x has a row for each of the permutation's `of`, 'tokens' or 'slots', on its device."""
    if not isinstance(permutation, Permutation):
        raise ValueError(f"permutation: got {type(permutation).__name__}, expected a Permutation")
    check_tensor(name, x, like=permutation.rows)
    length = permutation.rows.shape[0] if of == "tokens" else permutation.rows.numel()
    if x.dim() != 2 or x.shape[0] != length:
        raise ValueError(f"{name}: got shape {tuple(x.shape)}, expected ({length}, hidden), a row for each of the {of}")


def blocks_of(hidden: int, path: str | None) -> int:
    """How many programs read what belongs to one token."""
    if path not in ("minimum", None):
        raise ValueError(f"path: got {path!r}, expected minimum or None")
    return 1 if path else triton.cdiv(hidden, BLOCK)


@triton.jit
def scatter_rows_kernel(
    x_ptr, rows_ptr, y_ptr, x_row_stride, x_col_stride, hidden, blocks, TOP_K: tl.constexpr, BLOCK: tl.constexpr
):
    """y [slots, hidden]: the row of x [tokens, hidden], of any strides, of one token, at rows [tokens, TOP_K]. The
    blocks of a row are programs next to each other, so that its pages are written together."""
    token = (tl.program_id(0) // blocks).to(tl.int64)
    col = tl.program_id(0) % blocks * BLOCK + tl.arange(0, BLOCK)  # [BLOCK]
    x = tl.load(x_ptr + token * x_row_stride + col.to(tl.int64) * x_col_stride, mask=col < hidden, other=0.0)
    for i in tl.static_range(TOP_K):
        row = tl.load(rows_ptr + token * TOP_K + i).to(tl.int64)
        tl.store(y_ptr + row * hidden + col, x, mask=(col < hidden) & (row >= 0))


@triton.jit
def gather_rows_kernel(
    y_ptr, rows_ptr, gates_ptr, out_ptr, y_row_stride, y_col_stride, hidden, TOP_K: tl.constexpr, BLOCK: tl.constexpr
):
    """out [tokens, hidden]: the sum of one token's rows [tokens, TOP_K] of y [slots, hidden], of any strides, times
    gates [tokens, TOP_K], unless None."""
    token = tl.program_id(0).to(tl.int64)
    col = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)  # [BLOCK]
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for i in tl.static_range(TOP_K):
        row = tl.load(rows_ptr + token * TOP_K + i).to(tl.int64)
        mask = (col < hidden) & (row >= 0)
        y = tl.load(y_ptr + row * y_row_stride + col.to(tl.int64) * y_col_stride, mask=mask, other=0.0).to(tl.float32)
        if gates_ptr is not None:
            y *= tl.load(gates_ptr + token * TOP_K + i)
        total += tl.where(row >= 0, y, 0.0)
    tl.store(out_ptr + token * hidden + col, total.to(out_ptr.dtype.element_ty), mask=col < hidden)


@triton.jit
def combine_backward_kernel(
    dout_ptr,
    y_ptr,
    rows_ptr,
    gates_ptr,
    dy_ptr,
    dgates_ptr,
    dout_strides,
    y_strides,
    hidden,
    TOP_K: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """One token: from dout [tokens, hidden], dy [slots, hidden] at its rows, and dgates [tokens, TOP_K], fp32."""
    token = tl.program_id(0).to(tl.int64)
    choice = tl.arange(0, triton.next_power_of_2(TOP_K))  # [TOP_K, padded]
    dgates = tl.zeros([triton.next_power_of_2(TOP_K)], dtype=tl.float32)
    for start in tl.range(0, hidden, BLOCK):
        col = start + tl.arange(0, BLOCK)  # [BLOCK]
        across = col.to(tl.int64)
        dout = tl.load(dout_ptr + token * dout_strides[0] + across * dout_strides[1], mask=col < hidden, other=0.0)
        dout = dout.to(tl.float32)
        for i in tl.static_range(TOP_K):
            row = tl.load(rows_ptr + token * TOP_K + i).to(tl.int64)
            gate = tl.load(gates_ptr + token * TOP_K + i)
            mask = (col < hidden) & (row >= 0)
            y = tl.load(y_ptr + row * y_strides[0] + across * y_strides[1], mask=mask, other=0.0).to(tl.float32)
            dgates += tl.where(choice == i, tl.sum(dout * y), 0.0)
            tl.store(dy_ptr + row * hidden + col, (gate * dout).to(dy_ptr.dtype.element_ty), mask=mask)
    tl.store(dgates_ptr + token * TOP_K + choice, dgates, mask=choice < TOP_K)


def _rows_for(permutation: Permutation, hidden: int, like: torch.Tensor) -> torch.Tensor:
    """A tensor for [slots, hidden]: where rows may be left free, of zeros."""
    make = torch.empty if permutation.capacity is None else torch.zeros
    return make((permutation.rows.numel(), hidden), dtype=like.dtype, device=like.device)


def gather_rows_forward(x: torch.Tensor, permutation: Permutation) -> torch.Tensor:
    """x [tokens, hidden] -> [slots, hidden], each token's row at all rows that it has."""
    (tokens, top_k), hidden = permutation.rows.shape, x.shape[1]
    y = _rows_for(permutation, hidden, x)
    if y.numel():
        blocks = triton.cdiv(hidden, BLOCK)
        config = {"TOP_K": top_k, "BLOCK": BLOCK, "num_warps": NUM_WARPS}
        scatter_rows_kernel[(tokens * blocks,)](x, permutation.rows, y, *x.stride(), hidden, blocks, **config)
    return y


def combine_forward(y: torch.Tensor, permutation: Permutation, gates: torch.Tensor | None) -> torch.Tensor:
    """y [slots, hidden] -> [tokens, hidden], the sum of each token's rows times their gates, if any."""
    (tokens, top_k), hidden = permutation.rows.shape, y.shape[1]
    out = torch.empty((tokens, hidden), dtype=y.dtype, device=y.device)
    if out.numel():
        grid = tokens, triton.cdiv(hidden, BLOCK)
        config = {"TOP_K": top_k, "BLOCK": BLOCK, "num_warps": NUM_WARPS}
        gather_rows_kernel[grid](y, permutation.rows, gates, out, *y.stride(), hidden, **config)
    return out


def combine_backward(
    dout: torch.Tensor, y: torch.Tensor, permutation: Permutation, gates: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """(dy [slots, hidden] of y's dtype, dgates [tokens, top_k] fp32) of out = combine(y, permutation, gates), in one
    reading of dout and y. Rows of dy that no token has hold nothing, or zeros where there is a capacity."""
    (tokens, top_k), hidden = permutation.rows.shape, y.shape[1]
    dy, dgates = _rows_for(permutation, hidden, y), torch.empty_like(gates, memory_format=torch.contiguous_format)
    if tokens:
        tensors = (dout, y, permutation.rows, gates, dy, dgates, dout.stride(), y.stride())
        config = {"TOP_K": top_k, "BLOCK": BLOCK, "num_warps": NUM_WARPS}
        combine_backward_kernel[(tokens,)](*tensors, hidden, **config)
    return dy, dgates
