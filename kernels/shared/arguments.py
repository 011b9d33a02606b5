"""Checks of arguments, shared by the public functions of kernels/."""

import torch

from instruments import backend
from instruments.gpus import DTYPES

FLOATS = tuple(DTYPES.values())


def _names(dtypes) -> str:
    return ", ".join(str(d).removeprefix("torch.") for d in dtypes)


def check_tensor(
    name: str,
    tensor,
    *,
    shape: tuple | None = None,
    like: torch.Tensor | None = None,
    dtypes: tuple = FLOATS,
    why: str = "",
):
    """Check the kind, dtype, shape and device of an argument.

    Args:
        name: the argument's name, for the message.
        tensor: the argument.
        shape: the shape it must have; any if None.
        like: a tensor whose device it must share; None if it is the first, which must be where kernels run.
        dtypes: the dtypes it may have.
        why: the end of the message about its shape, such as ", the shape of x".

    Raises:
        ValueError: naming the argument, what it is and what was expected.
    """
    if not isinstance(tensor, torch.Tensor):
        raise ValueError(f"{name}: got {type(tensor).__name__}, expected a torch.Tensor")
    if tensor.dtype not in dtypes:
        raise ValueError(f"{name}: got dtype {_names([tensor.dtype])}, expected one of {_names(dtypes)}")
    if shape is not None and tensor.shape != shape:
        raise ValueError(f"{name}: got shape {tuple(tensor.shape)}, expected {tuple(shape)}{why}")
    if like is not None and tensor.device != like.device:
        raise ValueError(f"{name}: got device {tensor.device}, expected {like.device}, where the first argument is")
    if like is None and tensor.device.type != "cuda" and backend.mode() == "compiled":
        raise ValueError(
            f"{name}: got device {tensor.device}, expected a CUDA tensor (this machine compiles its kernels; "
            f"`with backend.interpret():` runs them on the CPU)"
        )


def check_width(name: str, tensor: torch.Tensor, limit: int):
    """Raise ValueError unless the last dimension of `tensor` exists and is at most `limit` wide."""
    if tensor.dim() == 0:
        raise ValueError(f"{name}: got a scalar, expected at least one dimension")
    if tensor.shape[-1] > limit:
        raise ValueError(f"{name}: got a last dimension of {tensor.shape[-1]:,}, expected 1 to {limit:,}")


def check_matrices(a, b, dtypes: tuple = FLOATS, names: tuple[str, str] = ("a", "b")):
    """Raise ValueError unless a [M, K] and b [K, N] can be multiplied.

    Args:
        a: the first argument of a matmul.
        b: the second.
        dtypes: what a may have; b needs a's.
        names: of the arguments, for the message.
    """
    first, second = names
    check_tensor(first, a, dtypes=dtypes)
    check_tensor(second, b, like=a, dtypes=(a.dtype,))
    if a.dim() != 2:
        raise ValueError(f"{first}: got {a.dim()} dimensions, expected 2")
    if b.dim() != 2 or b.shape[0] != a.shape[1]:
        raise ValueError(
            f"{second}: got shape {tuple(b.shape)}, expected ({a.shape[1]}, N), after {first} of {tuple(a.shape)}"
        )


def check_eps(eps: float):
    """Raise ValueError unless eps is a non-negative number."""
    if not isinstance(eps, (int, float)) or not eps >= 0:
        raise ValueError(f"eps: got {eps!r}, expected a number of at least 0")


def wants_grad(*tensors: torch.Tensor) -> bool:
    """Whether autograd is recording and one of the tensors takes part."""
    if torch.is_grad_enabled():
        for tensor in tensors:
            if getattr(tensor, "requires_grad", False):
                return True
    return False


def check_no_grad(function: str, **tensors: torch.Tensor):
    """Raise ValueError if autograd is recording one of the tensors, for functions without a backward."""
    for name, tensor in tensors.items():
        if wants_grad(tensor):
            raise ValueError(
                f"{name}: got a tensor that requires a gradient, which {function} does not give, "
                f"expected one that does not"
            )
