"""How attention is launched: checks of the arguments, tile sizes by path and head_dim, which path runs, descriptors.

Launches and traffic models read the same tables.
"""

from dataclasses import dataclass
from functools import cache

import torch

from instruments import backend
from instruments.gluon import gl
from kernels.shared.arguments import check_tensor
from kernels.shared.device import DescriptorPlan, has_descriptors, is_hopper

DTYPES = (torch.float16, torch.bfloat16)
MAX_HEAD_DIM = 256
WIDTHS = (16, 32, 64, 128, 256)  # powers of two that hold head_dim: a tensor core takes at least 16 columns
SHARED = 200_704  # bytes of shared memory per program that the fast kernels need at most

HOPPER_ROWS = 64  # queries per warpgroup of the Gluon kernel: what one wgmma instruction multiplies
HOPPER_KEYS = 128  # keys per tile of the Gluon kernel


def _tile(width: int, queries: int, keys: int, warps: int, stages: int, **more) -> dict:
    return {"BLOCK_M": queries, "BLOCK_N": keys, "BLOCK_D": width, "num_warps": warps, "num_stages": stages, **more}


#: Configs of the forward by path, then by width (for 'hopper': by head_dim). Wide heads leave registers for fewer rows.
#: 'fast', up to 128 columns: tiles small enough that two programs share an SM, so that the exponentials of one run
#: under the matmuls of the other. IN_REGISTERS: q stays in registers, multiplied by a power of two.
#: 'hopper': consumer warpgroups, registers of their threads, slots of the ring of key and value tiles; on an H200
#: chosen by trial. One program takes all 65,536 registers of an SM.
FORWARD = {
    "plain": {width: _tile(width, 64, 64 if width <= 128 else 32, 4, 2) for width in WIDTHS},
    "fast": {
        width: _tile(width, *((64, 64, 4, 3) if width <= 128 else (128, 64, 8, 2)), IN_REGISTERS=width in (64, 128))
        for width in WIDTHS
    },
    "hopper": {
        64: {"WARPGROUPS": 3, "REGISTERS": 160, "SLOTS": 8},
        128: {"WARPGROUPS": 2, "REGISTERS": 240, "SLOTS": 4},
    },
}
#: Configs of the backward by path and width (for 'hopper': by head_dim).
#: 'hopper': queries per tile, slots of each ring, whether the next tile's scores are started ahead, and whether the
#: last tile of queries comes first.
BACKWARD = {
    "plain": {width: _tile(width, 64, 64, 4, 2) if width <= 64 else _tile(width, 32, 32, 4, 2) for width in WIDTHS},
    "fast": {width: _tile(width, 64, 64, 4, 2) for width in WIDTHS if width <= 128},
    "hopper": {
        64: {"QUERIES": 128, "SLOTS": 2, "AHEAD": True, "DOWN": False},
        128: {"QUERIES": 64, "SLOTS": 2, "AHEAD": False, "DOWN": True},
    },
}

#: What each path needs, for the message about a path that cannot run.
_NEEDS = {
    "plain": "any GPU",
    "fast": f"tensor descriptors and {SHARED:,} B of shared memory per program, the last stride 1, the others "
    f"multiples of 16 bytes; the backward to a head_dim of {max(BACKWARD['fast'])}",
    "hopper": "a Hopper GPU, a head_dim of 64 or 128, no window",
}


def width_of(head_dim: int) -> int:
    """The width of a tile that holds a head."""
    return next(width for width in WIDTHS if head_dim <= width)


def config_of(table: dict, path: str, head_dim: int) -> dict | None:
    """The config of a path of FORWARD or BACKWARD, for whatever GPU; None where the path does not take the head_dim."""
    return table.get(path, {}).get(head_dim if path == "hopper" else width_of(head_dim))


def choose(
    table: dict, head_dim: int, path: str | None, device: torch.device, addressable: bool = True, window: bool = False
) -> tuple[str, dict]:
    """(path, config) of FORWARD or BACKWARD: the requested path if it can run, else the fastest that can on this GPU.

    Args:
        addressable: whether tensor descriptors can address the tensors (`is_addressable`).
        window: whether there is a window.

    Raises:
        ValueError: the requested path cannot run.
    """
    fast = addressable and config_of(table, "fast", head_dim) is not None and has_descriptors(device, SHARED)
    hopper = config_of(table, "hopper", head_dim) is not None and not window and runs_gluon(device)
    if path is None:
        path = "hopper" if hopper else "fast" if fast and device.type == "cuda" else "plain"
    if path == "hopper" and path in table and backend.mode() != "compiled":
        raise ValueError(
            "path: got 'hopper', expected None, 'plain' or 'fast': the 'hopper' kernel is written in Gluon, which is "
            "never interpreted, so a Triton path runs without a GPU and under meter, watch, portrait and interpret()"
        )
    if path not in table or path == "fast" and not fast or path == "hopper" and not hopper:
        raise ValueError(
            f"path: got {path!r} for a head_dim of {head_dim} on {device}, expected None"
            + "".join(f", {name!r} ({_NEEDS[name]})" for name in table)
        )
    return path, config_of(table, path, head_dim)


def runs_gluon(device: torch.device) -> bool:
    """Whether a launch on this device now runs Hopper's Gluon kernels: not in the interpreter, nor under the meter."""
    return backend.mode() == "compiled" and is_hopper(device)


def is_addressable(*tensors: torch.Tensor) -> bool:
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


def plan_descriptor(x: torch.Tensor, rows: int) -> DescriptorPlan:
    """Of the descriptors of tensors like x [batch, heads, sequence, head_dim], for tiles of so many rows of a head."""
    return DescriptorPlan(x.shape, [*_strides(x), 1], [1, 1, rows, width_of(x.shape[3])])


def describe(x: torch.Tensor, rows: int):
    """The tensor descriptor of x, where no plan is kept."""
    return plan_descriptor(x, rows)(x)


@cache
def _layout(tile: tuple):
    """The layout of a tile in shared memory, the same for fp16 and bf16; computing it takes the host microseconds."""
    return gl.NVMMASharedLayout.get_default_for(list(tile), gl.float16)


@dataclass(frozen=True)
class Operand:
    """How path 'hopper' describes a tensor: itself, or a copy where TMA cannot address it."""

    copied: bool
    descriptor: DescriptorPlan

    def __call__(self, x: torch.Tensor):
        if self.copied:
            x = x.clone(memory_format=torch.contiguous_format)  # contiguous() would return a misaligned tensor itself
        return self.descriptor(x)


def plan_operand(x: torch.Tensor, rows: int) -> Operand:
    """The Operand for tensors like x [batch, heads, sequence, head_dim], in tiles of so many rows of a head."""
    strides = [stride for stride, size in zip(x.stride()[:3], x.shape) if size > 1]  # any other is never used
    copied = x.stride(3) != 1 or x.data_ptr() % 16 != 0 or not all(stride % 8 == 0 < stride for stride in strides)
    if copied:
        x = torch.empty(x.shape, dtype=x.dtype, device="meta")
    strides = [stride if size > 1 else x.shape[3] for stride, size in zip(x.stride()[:3], x.shape)]
    tile = 1, 1, rows, x.shape[3]
    return Operand(copied, DescriptorPlan(x.shape, [*strides, 1], tile, _layout(tile)))


def describe_or_copy(x: torch.Tensor, rows: int):
    """Its descriptor of x, where no plan is kept."""
    return plan_operand(x, rows)(x)


def check_attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float | None, window: int | None = None
) -> float:
    """The scale. Raises ValueError, naming the argument, where attention cannot be computed of these arguments."""
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        check_tensor(name, tensor, like=None if name == "q" else q, dtypes=DTYPES if name == "q" else (q.dtype,))
        if tensor.dim() != 4:
            raise ValueError(f"{name}: got {tensor.dim()} dimensions, expected 4: batch, heads, sequence, head_dim")
    batch, heads, _, head_dim = q.shape
    if not 1 <= head_dim <= MAX_HEAD_DIM:
        raise ValueError(f"q: got a head_dim of {head_dim}, expected 1 to {MAX_HEAD_DIM}")
    if k.shape[0] != batch or k.shape[3] != head_dim:
        raise ValueError(f"k: got shape {tuple(k.shape)}, expected ({batch}, kv_heads, keys, {head_dim}), to go with q")
    if k.shape[1] < 1 or heads % k.shape[1]:
        raise ValueError(f"k: got {k.shape[1]} heads, expected a number that divides the {heads} of q")
    check_tensor("v", v, shape=k.shape, like=q, dtypes=(q.dtype,), why=", the shape of k")
    if window is not None and (not isinstance(window, int) or window < 1):
        raise ValueError(f"window: got {window!r}, expected None or a whole number of at least 1")
    scale = head_dim**-0.5 if scale is None else scale
    if not isinstance(scale, (int, float)) or not 0 < scale < float("inf"):
        raise ValueError(f"scale: got {scale!r}, expected None or a positive number")
    return scale
