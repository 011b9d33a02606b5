"""Checks of arguments that the public functions of kernels/ share."""

import torch

from instruments import backend
from instruments.gpus import DTYPES
from kernels.quantize_schemes import Quantized

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
    """Raise ValueError unless `tensor` is a tensor of one of `dtypes`, of `shape`, on the device of `like`.

    name: the argument's name, for the message. like: a tensor whose device must match. why: ends the shape's message.
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


def check_quantized(name: str, quantized, schemes: tuple[str, ...], like: torch.Tensor | None = None):
    """Raise ValueError unless `quantized` is a Quantized of one of the schemes, whole and contiguous, on the device of
    `like`."""
    if not isinstance(quantized, Quantized):
        raise ValueError(f"{name}: got {type(quantized).__name__}, expected a Quantized (kernels/quantize_schemes.py)")
    scheme = quantized.scheme
    if scheme.name not in schemes:
        raise ValueError(f"{name}: got scheme {scheme.name!r}, expected one of {', '.join(schemes)}")
    rows, cols = torch.Size(quantized.shape[:-1]).numel(), quantized.shape[-1]
    parts = {
        "codes": (quantized.codes, scheme.codes_shape(rows, cols), scheme.code_dtype),
        "scales": (quantized.scales, scheme.scales_shape(rows, cols), scheme.scale_dtype),
    }
    if scheme.has_tensor_scale:
        parts["tensor_scale"] = quantized.tensor_scale, (), torch.float32
    for part, (tensor, shape, dtype) in parts.items():
        check_tensor(f"{name}.{part}", tensor, shape=shape, like=like, dtypes=(dtype,))
        like = quantized.codes
        if not tensor.is_contiguous():
            raise ValueError(f"{name}.{part}: got strides {tensor.stride()}, expected a contiguous tensor")


def check_width(name: str, tensor: torch.Tensor, limit: int):
    """Raise ValueError unless the last dimension of `tensor` exists and is at most `limit` wide."""
    if tensor.dim() == 0:
        raise ValueError(f"{name}: got a scalar, expected at least one dimension")
    if tensor.shape[-1] > limit:
        raise ValueError(f"{name}: got a last dimension of {tensor.shape[-1]:,}, expected 1 to {limit:,}")


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
    """Raise ValueError where autograd is recording one of the tensors."""
    for name, tensor in tensors.items():
        if wants_grad(tensor):
            raise ValueError(
                f"{name}: got a tensor that requires a gradient, which {function} does not give, "
                f"expected one that does not"
            )
