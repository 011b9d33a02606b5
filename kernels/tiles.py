"""How elementwise kernels are tiled and launched, and what their functions check alike.

A program takes two rows of 1,024 elements: for 16-bit values one 16-byte load per row, tensor and thread, which is how
a copy reaches its roof. Where there is no bias and everything is contiguous, the tensors are seen as one long row.
"""

from functools import cache

import torch

from instruments.backend import tl, triton
from instruments.gpus import GPU
from kernels.arguments import check_tensor
from kernels.rows import WIDE_PROGRAMS, Device, Plan, as_rows

TILE = 1024  # columns of a program's tile, where there are as many
NUM_WARPS = 4
MAX_GRID_Y = 65_535  # CUDA's limit; rows beyond it go on along the grid's third axis

LOG2E = tl.constexpr(1.4426950408889634)  # every exponential is an exp2


@triton.jit
def tile(rows, cols, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """(row, col, mask) of this program's tile: no division, and int64 so that nothing overflows."""
    block = tl.program_id(2).to(tl.int64) * tl.num_programs(1) + tl.program_id(1)
    row = block * ROWS + tl.arange(0, ROWS)[:, None]  # [ROWS, 1]
    col = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)[None, :]  # [1, BLOCK]
    return row, col, (row < rows) & (col < cols)


@cache
def _tile_shape(cols: int, elements: int) -> tuple[int, int]:
    """(rows, columns) of a program's tile of so many elements: at least four columns, at most TILE."""
    block = min(TILE, max(4, triton.next_power_of_2(cols)))
    return elements // block, block


def forward_plan(rows: int, cols: int) -> Plan:
    """Two rows of full width per tile, or as many narrow ones as make the same number of elements; of one row, one."""
    tile_rows, block = _tile_shape(cols, 2 * TILE)
    config = {"ROWS": tile_rows if rows > 1 else 1, "BLOCK": block, "num_warps": NUM_WARPS}
    return Plan("fused", 1, config, blocks=triton.cdiv(cols, block))


def backward_plan(cols: int, gpu: Device | GPU) -> Plan:
    """Of a backward that adds up over the rows: groups of rows, of which each writes a row of partial sums."""
    tile_rows, block = _tile_shape(cols, TILE)
    blocks = triton.cdiv(cols, block)
    config = {"ROWS": tile_rows, "BLOCK": block, "num_warps": NUM_WARPS}
    return Plan("fused", 1, config, blocks, most=max(1, WIDE_PROGRAMS * gpu.sms // blocks))


def grid(plan: Plan, rows: int) -> tuple[int, int, int]:
    """Blocks of columns by blocks of rows, these along two axes."""
    row_blocks = plan.programs(rows)
    return plan.blocks, min(row_blocks, MAX_GRID_Y), triton.cdiv(row_blocks, MAX_GRID_Y)


def flat(*tensors: torch.Tensor) -> list[torch.Tensor]:
    """Tensors of one shape as one long row where all are contiguous, else as rows."""
    if all(t.is_contiguous() for t in tensors):
        return [t.view(1, -1) for t in tensors]
    return [as_rows(t) for t in tensors]


def launch(kernel, inputs: list[torch.Tensor], outputs: list[torch.Tensor], *strided: torch.Tensor, **more):
    """Run an elementwise kernel over inputs and outputs, passing the strides of `strided`, and `more` by name."""
    rows, cols = strided[0].shape
    plan = forward_plan(rows, cols)
    strides = [stride for t in strided for stride in t.stride()]
    kernel[grid(plan, rows)](*inputs, *outputs, *strides, rows, cols, **more, **plan.config)


def check_same(name: str, tensor, x_name: str, x: torch.Tensor):
    """Raise ValueError unless `tensor` is one of x's shape, dtype and device."""
    check_tensor(name, tensor, shape=x.shape, like=x, dtypes=(x.dtype,), why=f", the shape of {x_name}")


def check_path(path: str):
    """Raise ValueError for a path of a traffic function that is none."""
    if path not in ("fused", "naive"):
        raise ValueError(f"path: got {path!r}, expected fused or naive")
