"""How elementwise kernels are tiled and launched, and the checks that their public functions share.

A program takes two rows of 1,024 elements: for 16-bit values one 16-byte load per row, tensor and thread, which is
enough to reach copy bandwidth. Kernels without a bias treat contiguous tensors as one long row.
"""

from functools import cache

import torch

from instruments.backend import cdiv, next_power_of_2, tl, triton
from instruments.gpus import GPU
from kernels.shared.arguments import check_tensor
from kernels.shared.device import Device
from kernels.shared.rows import WIDE_PROGRAMS, RowPlan, as_rows

TILE = 1024  # columns of a program's tile, or fewer where the tensor has fewer
NUM_WARPS = 4
MAX_GRID_Y = 65_535  # CUDA's limit; further rows continue along the grid's third axis

LOG2E = tl.constexpr(1.4426950408889634)  # every exponential is an exp2


@triton.jit
def tile(rows, cols, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """(row, col, mask) of this program's tile, in int64 so that no offset overflows."""
    block = tl.program_id(2).to(tl.int64) * tl.num_programs(1) + tl.program_id(1)
    row = block * ROWS + tl.arange(0, ROWS)[:, None]  # [ROWS, 1]
    col = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)[None, :]  # [1, BLOCK]
    return row, col, (row < rows) & (col < cols)


@cache
def _tile_shape(cols: int, elements: int) -> tuple[int, int]:
    """(rows, columns) of a program's tile with this many elements: at least four columns, at most TILE."""
    block = min(TILE, max(4, next_power_of_2(cols)))
    return elements // block, block


@cache
def forward_plan(rows: int, cols: int) -> RowPlan:
    """The plan of a forward: two rows of full width per tile, or as many narrow rows as give the same number of
    elements; a single row has tiles of one row."""
    tile_rows, block = _tile_shape(cols, 2 * TILE)
    config = {"ROWS": tile_rows if rows > 1 else 1, "BLOCK": block, "num_warps": NUM_WARPS}
    return RowPlan("fused", 1, config, blocks=cdiv(cols, block))


def backward_plan(cols: int, gpu: Device | GPU) -> RowPlan:
    """The plan of a backward that sums over the rows: groups of rows, each of which writes a row of partial sums."""
    return _backward_plan(cols, gpu.sms)


@cache
def _backward_plan(cols: int, sms: int) -> RowPlan:
    """The same, by the number of SMs."""
    tile_rows, block = _tile_shape(cols, TILE)
    blocks = cdiv(cols, block)
    config = {"ROWS": tile_rows, "BLOCK": block, "num_warps": NUM_WARPS}
    return RowPlan("fused", 1, config, blocks, max_programs=max(1, WIDE_PROGRAMS * sms // blocks))


def grid(plan: RowPlan, rows: int) -> tuple[int, int, int]:
    """The launch grid: blocks of columns, then blocks of rows along two axes."""
    row_blocks = plan.programs(rows)
    return plan.blocks, min(row_blocks, MAX_GRID_Y), cdiv(row_blocks, MAX_GRID_Y)


def flat(*tensors: torch.Tensor) -> list[torch.Tensor]:
    """Tensors of one shape as one long row if all are contiguous, else as [rows, cols]."""
    if all(t.is_contiguous() for t in tensors):
        return [t.view(1, -1) for t in tensors]
    return [as_rows(t) for t in tensors]


def launch(kernel, inputs: list[torch.Tensor], outputs: list[torch.Tensor], *strided: torch.Tensor, **more):
    """Launch an elementwise kernel.

    Args:
        kernel: takes inputs, outputs, strides, rows and cols in this order, then ROWS and BLOCK.
        inputs: [rows, cols] each, or a bias [cols].
        outputs: contiguous, [rows, cols] each.
        *strided: the inputs whose strides the kernel takes, in its order.
        **more: further arguments, by name.
    """
    rows, cols = strided[0].shape
    plan = forward_plan(rows, cols)
    strides = [stride for t in strided for stride in t.stride()]
    kernel[grid(plan, rows)](*inputs, *outputs, *strides, rows, cols, **more, **plan.config)


def check_same(name: str, tensor, x_name: str, x: torch.Tensor):
    """Raise ValueError unless `tensor` has x's shape, dtype and device."""
    check_tensor(name, tensor, shape=x.shape, like=x, dtypes=(x.dtype,), why=f", the shape of {x_name}")


def check_path(path: str):
    """Raise ValueError unless a traffic function knows this path."""
    if path not in ("fused", "naive"):
        raise ValueError(f"path: got {path!r}, expected fused or naive")
