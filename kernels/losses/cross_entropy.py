"""Cross-entropy over a large vocabulary: the loss, and its gradient by the logits, without storing any probability.

loss = lse - (1 - s) x_t - s mean(x) per row, where lse = log(sum(exp(x))), x_t is the target's logit and s the label
smoothing; its gradient by x is softmax(x) - s / cols, and 1 - s less at the target. Minimum traffic: the loss reads the
logits once; with its gradient in the same launch they are read twice, the second time partly from L2, and the gradient
is written once, over the logits if they are no longer needed. The kernels compute in fp32.

The max and the sum of a row come from online softmax (Milakov and Gimelshein, 2018). Computing the gradient in the
forward, in place, is Liger Kernel's (2024).
"""

import torch
import torch.nn.functional as F
from torch.autograd.function import once_differentiable

from instruments.backend import tl, triton
from instruments.traffic import Traffic
from kernels.shared.arguments import check_tensor, wants_grad
from kernels.shared.tiles import LOG2E
from kernels.softmax.online import LOWEST, absorb, merge, streaming_layout

LN2 = tl.constexpr(0.6931471805599453)
IGNORED = -100  # torch's default for ignore_index
REDUCTIONS = ("mean", "sum")


def cross_entropy_reference(logits, targets, label_smoothing=0.0, ignore_index=IGNORED, reduction="mean"):
    """Cross-entropy by torch, in the precision of the logits: pass fp64 for a reference."""
    return F.cross_entropy(
        logits, targets, label_smoothing=label_smoothing, ignore_index=ignore_index, reduction=reduction
    )


@triton.jit
def gradient_tile(x, lse, at_target, cols, smoothing):
    """The gradient of a row's loss by its logits x, of any shape: softmax(x), less the smoothed target."""
    return tl.exp2((x - lse) * LOG2E) - smoothing / cols - tl.where(at_target, 1.0 - smoothing, 0.0)


@triton.jit
def cross_entropy_kernel(
    logits_ptr, targets_ptr, factor_ptr, loss_ptr, lse_ptr, gradient_ptr,
    logits_row_stride, gradient_row_stride,
    cols, ignore_index, smoothing,
    SMOOTH: tl.constexpr, VECTOR: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One row per program, in steps of [GROUPS, VECTOR]: logits [rows, cols], last stride 1; targets, loss and lse
    [rows]. With gradient [rows, cols], which may be the logits, a second sweep stores factor[0] times the gradient."""
    row = tl.program_id(0).to(tl.int64)
    target = tl.load(targets_ptr + row)
    logits_ptr += row * logits_row_stride
    GROUPS: tl.constexpr = BLOCK // VECTOR
    step = tl.arange(0, GROUPS)[:, None] * VECTOR + tl.arange(0, VECTOR)[None, :]  # [GROUPS, VECTOR]
    running_max = tl.full([GROUPS], LOWEST, dtype=tl.float32)
    running_sum = tl.zeros([GROUPS], dtype=tl.float32)
    total = tl.zeros([GROUPS, VECTOR], dtype=tl.float32)  # of the logits, for label smoothing
    for start in tl.range(0, cols, BLOCK):
        mask = start + step < cols
        x = tl.load(logits_ptr + start + step, mask=mask, other=float("-inf")).to(tl.float32)
        running_max, running_sum = absorb(running_max, running_sum, x)
        if SMOOTH:
            total += tl.where(mask, x, 0.0)
    row_max, row_sum = merge(running_max, running_sum)
    lse = row_max + tl.log2(row_sum) * LN2
    inside = (target >= 0) & (target < cols)
    at_target = tl.load(logits_ptr + target, mask=inside, other=float("nan")).to(tl.float32)
    loss = lse - (1.0 - smoothing) * at_target
    if SMOOTH:
        loss -= smoothing * (tl.sum(total) / cols)
    ignored = target == ignore_index
    tl.store(loss_ptr + row, tl.where(ignored, 0.0, loss))
    tl.store(lse_ptr + row, lse)
    if gradient_ptr is not None:
        gradient_ptr += row * gradient_row_stride
        factor = tl.load(factor_ptr)
        for start in tl.range(0, cols, BLOCK):
            col = start + step
            # from L2 where the row is still there, and then needed no more
            x = tl.load(logits_ptr + col, mask=col < cols, other=0.0, eviction_policy="evict_first").to(tl.float32)
            gradient = tl.where(ignored, 0.0, factor * gradient_tile(x, lse, col == target, cols, smoothing))
            tl.store(
                gradient_ptr + col, gradient.to(gradient_ptr.dtype.element_ty), mask=col < cols, cache_modifier=".cs"
            )


@triton.jit
def cross_entropy_backward_kernel(
    logits_ptr, targets_ptr, factor_ptr, lse_ptr, gradient_ptr,
    logits_row_stride, gradient_row_stride,
    cols, ignore_index, smoothing,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """A block of BLOCK columns of one row per program: factor[0] times the gradient; tensors as in the forward."""
    row = tl.program_id(0).to(tl.int64)
    col = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)  # [BLOCK]
    target, lse, factor = tl.load(targets_ptr + row), tl.load(lse_ptr + row), tl.load(factor_ptr)
    x = tl.load(logits_ptr + row * logits_row_stride + col, mask=col < cols, other=0.0).to(tl.float32)
    gradient = factor * gradient_tile(x, lse, col == target, cols, smoothing)
    gradient = tl.where(target == ignore_index, 0.0, gradient)
    tl.store(
        gradient_ptr + row * gradient_row_stride + col, gradient.to(gradient_ptr.dtype.element_ty), mask=col < cols
    )


BACKWARD = {"BLOCK": 4096, "num_warps": 4}


def _check(logits, targets, label_smoothing, reduction):
    check_tensor("logits", logits)
    if logits.dim() != 2 or not logits.shape[1]:
        raise ValueError(f"logits: got shape {tuple(logits.shape)}, expected (rows, cols) with at least one column")
    check_tensor("targets", targets, shape=logits.shape[:1], like=logits, dtypes=(torch.int64, torch.int32),
                 why=", the rows of logits")  # fmt: skip
    if not 0 <= label_smoothing <= 1:
        raise ValueError(f"label_smoothing: got {label_smoothing!r}, expected a number from 0 to 1")
    if reduction not in REDUCTIONS:
        raise ValueError(f"reduction: got {reduction!r}, expected one of {', '.join(REDUCTIONS)}")


def _rows(logits: torch.Tensor) -> torch.Tensor:
    """The logits themselves where their last stride is 1, else a copy."""
    return logits if logits.stride(1) == 1 or logits.shape[1] == 1 else logits.contiguous()


def _factor(targets, ignore_index, reduction) -> torch.Tensor:
    """[1] fp32: what a row's loss counts in the reduction, on the device."""
    if reduction == "sum":
        return torch.ones(1, dtype=torch.float32, device=targets.device)
    return (targets != ignore_index).sum().reshape(1).float().reciprocal()


def _forward(logits, targets, factor, label_smoothing, ignore_index, gradient=None):
    """(losses [rows] fp32, log-sum-exp [rows] fp32) of checked arguments; writes `gradient` if there is one."""
    rows, cols = logits.shape
    losses, lse = (torch.empty(rows, dtype=torch.float32, device=logits.device) for _ in range(2))
    if rows:
        cross_entropy_kernel[(rows,)](
            logits, targets, factor, losses, lse, gradient,
            logits.stride(0), 0 if gradient is None else gradient.stride(0),
            cols, ignore_index, float(label_smoothing),
            SMOOTH=label_smoothing > 0, **streaming_layout(cols, logits.itemsize)["config"],
        )  # fmt: skip
    return losses, lse


class _CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits, targets, label_smoothing, ignore_index, reduction):
        logits, factor = _rows(logits), _factor(targets, ignore_index, reduction)
        losses, lse = _forward(logits, targets, factor, label_smoothing, ignore_index)
        ctx.save_for_backward(logits, targets, factor, lse)
        ctx.options = ignore_index, float(label_smoothing)
        return losses.sum() * factor[0]

    @staticmethod
    @once_differentiable
    def backward(ctx, dloss):
        logits, targets, factor, lse = ctx.saved_tensors
        gradient = torch.empty_like(logits, memory_format=torch.contiguous_format)
        if logits.numel():
            rows, cols = logits.shape
            cross_entropy_backward_kernel[(rows, triton.cdiv(cols, BACKWARD["BLOCK"]))](
                logits, targets, factor * dloss, lse, gradient,
                logits.stride(0), gradient.stride(0),
                cols, *ctx.options,
                **BACKWARD,
            )  # fmt: skip
        return gradient, None, None, None, None


def cross_entropy(
    logits: torch.Tensor,
    targets: torch.Tensor,
    *,
    label_smoothing: float = 0.0,
    ignore_index: int = IGNORED,
    reduction: str = "mean",
) -> torch.Tensor:
    """The cross-entropy of the rows of logits, computed in fp32; differentiable in the logits.

    Args:
        logits: [rows, cols], fp16, bf16 or fp32; copied unless the last stride is 1.
        targets: [rows], int64 or int32: a column per row, or ignore_index.
        label_smoothing: the share of a target that is spread over all columns.
        ignore_index: rows with this target count for nothing.
        reduction: 'mean', over the rows that count, or 'sum'.

    Returns:
        A scalar, fp32. NaN where a target is neither a column nor ignore_index, or 'mean' has no row that counts.

    Raises:
        ValueError: naming the argument, what it is and what was expected.
    """
    _check(logits, targets, label_smoothing, reduction)
    if wants_grad(logits):
        return _CrossEntropy.apply(logits, targets, label_smoothing, ignore_index, reduction)
    logits, factor = _rows(logits), _factor(targets, ignore_index, reduction)
    return _forward(logits, targets, factor, label_smoothing, ignore_index)[0].sum() * factor[0]


def cross_entropy_with_gradient(
    logits: torch.Tensor,
    targets: torch.Tensor,
    *,
    label_smoothing: float = 0.0,
    ignore_index: int = IGNORED,
    reduction: str = "mean",
    in_place: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The loss and its gradient by the logits in one launch.

    Args:
        logits: [rows, cols], fp16, bf16 or fp32, last stride 1.
        targets: as in `cross_entropy`.
        label_smoothing: as in `cross_entropy`.
        ignore_index: as in `cross_entropy`.
        reduction: as in `cross_entropy`.
        in_place: write the gradient over the logits.

    Returns:
        The loss, a scalar in fp32, and the gradient, [rows, cols], the dtype of the logits.

    Raises:
        ValueError: naming the argument, what it is and what was expected.
    """
    _check(logits, targets, label_smoothing, reduction)
    if logits.stride(1) != 1 and logits.shape[1] > 1:
        raise ValueError(f"logits: got strides {logits.stride()}, expected a last stride of 1")
    logits, factor = logits.detach(), _factor(targets, ignore_index, reduction)
    gradient = logits if in_place else torch.empty_like(logits, memory_format=torch.contiguous_format)
    losses, _ = _forward(logits, targets, factor, label_smoothing, ignore_index, gradient)
    return losses.sum() * factor[0], gradient


def piece_statistics(logits: torch.Tensor, targets: torch.Tensor, lse: torch.Tensor, at_target: torch.Tensor):
    """Take a piece of a vocabulary into each row's log-sum-exp, and its target's logit, in place.

    Args:
        logits: [rows, cols], the piece's, last stride 1.
        targets: [rows], counted from the piece's first column; outside it a target belongs to another piece.
        lse: [rows] fp32, of the pieces before; -inf where there are none.
        at_target: [rows] fp32; the piece that has a row's target writes its logit.
    """
    inside = (targets >= 0) & (targets < logits.shape[1])
    factor = torch.ones(1, dtype=torch.float32, device=logits.device)
    losses, piece = _forward(logits, torch.where(inside, targets, IGNORED), factor, 0.0, IGNORED)
    at_target.copy_(torch.where(inside, piece - losses, at_target))
    lse.copy_(torch.logaddexp(lse, piece))


def piece_gradient_(logits: torch.Tensor, targets: torch.Tensor, lse: torch.Tensor, ignore_index: int):
    """Overwrite a piece's logits by the gradient of the summed loss; arguments as in `piece_statistics`, lse of the
    whole vocabulary."""
    rows, cols = logits.shape
    if logits.numel():
        factor = torch.ones(1, dtype=torch.float32, device=logits.device)
        cross_entropy_backward_kernel[(rows, triton.cdiv(cols, BACKWARD["BLOCK"]))](
            logits, targets, factor, lse, logits,
            logits.stride(0), logits.stride(0),
            cols, ignore_index, 0.0,
            **BACKWARD,
        )  # fmt: skip


def cross_entropy_traffic(rows: int, cols: int, dtype: torch.dtype, gradient: bool = False) -> Traffic:
    """The traffic of the loss's launch, or with `gradient` of loss and gradient in one launch, by requested bytes.

    Args:
        rows: rows of the logits.
        cols: the vocabulary.
        dtype: dtype of the logits.
        gradient: whether the second sweep writes the gradient.

    Returns:
        Bytes per tensor; int64 targets, without the few bytes of the reduction over rows.
    """
    full = rows * cols * dtype.itemsize
    read = {"logits": (2 if gradient else 1) * full + rows * dtype.itemsize, "targets": rows * 8}
    written = {"loss": rows * 4, "lse": rows * 4}
    if gradient:
        read["factor"], written["gradient"] = rows * 4, full
    return Traffic(read, written, launches=1)
