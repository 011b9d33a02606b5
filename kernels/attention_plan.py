"""How attention's kernels are launched: tiles by path and width of a head, and which path can run.

Launches and traffic models read the same tables.
"""

from functools import cache

import torch

from instruments import backend

MAX_HEAD_DIM = 256
WIDTHS = (16, 32, 64, 128, 256)  # powers of two that hold head_dim: matrix units multiply 16 columns at least
SHARED = 200_704  # bytes of shared memory per program that the fast kernels need at most


def _tile(width: int, queries: int, keys: int, warps: int, stages: int, **more) -> dict:
    return {"BLOCK_M": queries, "BLOCK_N": keys, "BLOCK_D": width, "num_warps": warps, "num_stages": stages, **more}


#: Tiles of the forward by path and width. Wide heads leave registers for fewer rows. Fast ones, up to 128 columns, are
#: of a size that lets two programs share a multiprocessor, so that one's exponentials run under the other's products.
#: IN_REGISTERS: q stays there, multiplied by a power of two.
FORWARD = {
    "plain": {width: _tile(width, 64, 64 if width <= 128 else 32, 4, 2) for width in WIDTHS},
    "fast": {
        width: _tile(width, *((64, 64, 4, 3) if width <= 128 else (128, 64, 8, 2)), IN_REGISTERS=width == 128)
        for width in WIDTHS
    },
}
#: The same of the backward.
BACKWARD = {
    "plain": {width: _tile(width, 64, 64, 4, 2) if width <= 64 else _tile(width, 32, 32, 4, 2) for width in WIDTHS},
    "fast": {width: _tile(width, 64, 64, 4, 2) for width in WIDTHS if width <= 128},
}


def width_of(head_dim: int) -> int:
    """The width of a tile that holds a head."""
    return next(width for width in WIDTHS if head_dim <= width)


@cache
def runs_fast(device: torch.device) -> bool:
    """Whether a GPU has tensor descriptors, from Hopper on, and SHARED per program; the interpreter has both."""
    if device.type != "cuda":
        return True
    properties = torch.cuda.get_device_properties(device)
    return properties.major >= 9 and properties.shared_memory_per_block_optin >= SHARED


def launches_early(device: torch.device) -> bool:
    """Whether a kernel may be launched before the one that it waits for ends: from Hopper on, compiled."""
    return device.type == "cuda" and backend.mode() == "compiled" and runs_fast(device)


def describable(*tensors: torch.Tensor) -> bool:
    """Whether tensor descriptors can address [batch, heads, sequence, head_dim]: unit last stride, base and other
    strides on 16 bytes, nothing expanded."""
    return all(
        x.stride(3) == 1
        and x.data_ptr() % 16 == 0
        and all(stride > 0 and stride * x.itemsize % 16 == 0 for stride in _strides(x))
        for x in tensors
    )


def _strides(x: torch.Tensor) -> list[int]:
    """The first three strides; where there is nothing to step over, one that a descriptor takes."""
    return [stride if size > 1 else 16 for size, stride in zip(x.shape[:3], x.stride())]


def describe(x: torch.Tensor, rows: int):
    """A tensor descriptor of x [batch, heads, sequence, head_dim], for tiles of so many rows of one head."""
    from triton.tools.tensor_descriptor import TensorDescriptor

    return TensorDescriptor(x, list(x.shape), [*_strides(x), 1], [1, 1, rows, width_of(x.shape[3])])


def choose(table: dict, head_dim: int, path: str | None, device: torch.device, described: bool = True):
    """(path, tile) of FORWARD or BACKWARD: the path asked for if it can run, else fast where a GPU can run it."""
    width = width_of(head_dim)
    fast = described and runs_fast(device) and width in table["fast"]
    if path is None:
        path = "fast" if fast and device.type == "cuda" else "plain"
    if path not in table or path == "fast" and not fast:
        raise ValueError(
            f"path: got {path!r} for a head_dim of {head_dim} on {device}, expected None, plain (any GPU) or fast "
            f"(head_dim to {max(table['fast'])}; tensor descriptors and {SHARED:,} B of shared memory per program; the "
            "last stride 1, the others multiples of 16 bytes)"
        )
    return path, table[path][width]
