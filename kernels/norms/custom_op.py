"""RMSNorm as an op of PyTorch's, so that torch.compile keeps it whole instead of tracing into its launch.

`rmsnorm` is a Python function around a launch, with a torch.autograd.Function for its gradient. Eager PyTorch needs no
more. torch.compile traces tensors without data through a model; to it, an op must say what its result looks like (the
fake function), and what its gradient is, as an op again. Bytes and kernels are those of rmsnorm.py.

    bytes_first::rmsnorm(x, weight, eps) -> y
    bytes_first::rmsnorm_backward(dy, x, weight, eps) -> (dx, dweight)

torch.library (PyTorch 2.4, 2024); `torch.library.opcheck` tests what is registered.
"""

import torch

from kernels.norms.rmsnorm import rmsnorm
from kernels.norms.rmsnorm_backward import rmsnorm_backward


@torch.library.custom_op("bytes_first::rmsnorm", mutates_args=())
def rmsnorm_op(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    """`rmsnorm` as an op: the same arguments, result and errors, differentiable, and opaque to torch.compile.

    Args:
        x: [..., cols], fp16, bf16 or fp32.
        weight: [cols], the dtype of x or fp32, contiguous.
        eps: added to the mean square.

    Returns:
        [..., cols], the dtype of x, contiguous.
    """
    return rmsnorm(x, weight, eps)


@rmsnorm_op.register_fake
def _like_x(x, weight, eps=1e-6):
    return torch.empty_like(x, memory_format=torch.contiguous_format)


@torch.library.custom_op("bytes_first::rmsnorm_backward", mutates_args=())
def rmsnorm_backward_op(
    dy: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """The gradients of `rmsnorm_op`, which autograd calls: dx like x, dweight like weight."""
    return rmsnorm_backward(dy, x, weight, eps)


@rmsnorm_backward_op.register_fake
def _like_x_and_weight(dy, x, weight, eps):
    return torch.empty_like(x, memory_format=torch.contiguous_format), torch.empty_like(weight)


def _save(ctx, inputs, output):
    x, weight, ctx.eps = inputs
    ctx.save_for_backward(x, weight)


def _gradients(ctx, dy):
    return *rmsnorm_backward_op(dy, *ctx.saved_tensors, ctx.eps), None


rmsnorm_op.register_autograd(_gradients, setup_context=_save)
