"""The way back from the experts: each token's rows, times their gates, added up.

Minimum traffic: the rows of y that tokens have read once, rows and gates read once, out written once. A program reads
the top_k rows of one token where they lie, so nothing is sorted back and nothing is stored in between; sums are fp32
and in the order of the choices, so the result is the same in every run. The kernels stand in moe_rows.py.
"""

import torch
from torch.autograd.function import once_differentiable

from instruments.traffic import Traffic
from kernels.arguments import check_tensor, wants_grad
from kernels.moe_rows import (
    Permutation,
    blocks_of,
    check_permuted,
    combine_backward,
    combine_forward,
    gather_rows_forward,
)

__all__ = ["combine", "combine_backward", "combine_reference", "combine_traffic"]


def combine_reference(y: torch.Tensor, permutation: Permutation, gates: torch.Tensor | None = None) -> torch.Tensor:
    """What `combine` computes, in plain PyTorch, in the precision of its arguments: give it fp64."""
    rows = permutation.rows.long()
    taken = y[rows.clamp(min=0)].masked_fill((rows < 0)[..., None], 0)  # [tokens, top_k, hidden]
    return (taken if gates is None else taken * gates[..., None]).sum(dim=1)


class _Combine(torch.autograd.Function):
    @staticmethod
    def forward(ctx, y, permutation, gates):
        ctx.permutation = permutation
        ctx.save_for_backward(*(() if gates is None else (y, gates)))
        return combine_forward(y, permutation, gates)

    @staticmethod
    @once_differentiable
    def backward(ctx, dout):
        if not ctx.saved_tensors:
            return gather_rows_forward(dout, ctx.permutation), None, None
        y, gates = ctx.saved_tensors
        dy, dgates = combine_backward(dout, y, ctx.permutation, gates)
        return dy, None, dgates


def combine(y: torch.Tensor, permutation: Permutation, gates: torch.Tensor | None = None) -> torch.Tensor:
    """The sum over a token's choices of gate * y[row]; differentiable.

    y: [slots, hidden], fp16, bf16 or fp32, any strides, in the order of the permutation; rows that no token has are not
    read. gates: [tokens, top_k] fp32, as `route` gives them; a plain sum without. A choice that was dropped adds
    nothing. Returns [tokens, hidden] of y's dtype, contiguous. Raises ValueError naming the argument.
    """
    check_permuted("y", y, permutation, "slots")
    if gates is not None:
        why = ", a gate for each slot"
        check_tensor("gates", gates, shape=permutation.rows.shape, like=y, dtypes=(torch.float32,), why=why)
        gates = gates.contiguous()
    if wants_grad(y, gates):
        return _Combine.apply(y, permutation, gates)
    return combine_forward(y, permutation, gates)


def combine_traffic(tokens: int, top_k: int, hidden: int, dtype: torch.dtype, path: str | None = "minimum") -> Traffic:
    """What `combine` moves with gates, where all slots have rows: the 'minimum', each byte once; 'naive', the eager ops
    of `combine_reference`; or, with None, what its programs ask for."""
    slots, row = tokens * top_k, hidden * dtype.itemsize
    flops = 2 * slots * hidden
    if path == "naive":
        indexed = Traffic({"y": slots * row, "rows": 8 * slots}, {"taken": slots * row}, launches=1)
        scaled = Traffic({"taken": slots * row, "gates": 4 * slots}, {"scaled": slots * row}, flops // 2, launches=1)
        return indexed + scaled + Traffic({"scaled": slots * row}, {"out": tokens * row}, flops // 2, launches=1)
    blocks = blocks_of(hidden, path)
    read = {"y": slots * row, "rows": 4 * slots * blocks, "gates": 4 * slots * blocks}
    return Traffic(read, {"out": tokens * row}, flops, launches=1)
