"""What the kernels' tests share: inputs, layouts, the error of a result, and the plans' boundaries."""

import pytest
import torch

from instruments import backend
from instruments.backend import triton
from instruments.gpus import dtype_name
from kernels.shared.rows import MAX_COLS, RESIDENT_COLS_BACKWARD, row_plan
from kernels.shared.tiles import TILE
from kernels.shared.tolerances import limit

FP32, BF16, FP16 = torch.float32, torch.bfloat16, torch.float16
DTYPES = (BF16, FP16, FP32)
#: The same where the other versions of Triton are asked about bf16 alone, which its interpreter has no type for.
BF16_FIRST = (BF16, *(pytest.param(dtype, marks=pytest.mark.once) for dtype in (FP16, FP32)))
DEVICE = backend.device()
AGAIN = 9 if DEVICE == "cuda" else 1  # runs that must repeat a first one's bits: the interpreter has but one order


def randn(*shape: int, dtype: torch.dtype = FP32, seed: int = 0, scale: float = 1, shift: float = 0) -> torch.Tensor:
    """Seeded normal numbers, made on the CPU so that they are the same everywhere."""
    x = torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return (x * scale + shift).to(dtype).to(DEVICE)


def worst_row(out: torch.Tensor, reference: torch.Tensor, floor: torch.Tensor | None = None) -> float:
    """The largest ||out - reference|| / ||reference|| of a row; infinite for a NaN, or where zero was missed.

    floor: rows whose norm replaces the reference's where it is larger, for differences of larger terms.
    """
    assert out.shape == reference.shape, f"shape {tuple(out.shape)}, expected {tuple(reference.shape)}"
    out, reference = out.double(), reference.double()
    size = reference.norm(dim=-1)
    if floor is not None:
        size = torch.maximum(size, floor.double().norm(dim=-1).to(size.device))
    error = (out - reference).norm(dim=-1)
    return float(torch.where(error == 0, 0.0, error / size).nan_to_num(float("inf"), posinf=float("inf")).amax())


def assert_close(out: torch.Tensor, reference: torch.Tensor, floor: torch.Tensor | None = None):
    """Within kernels/shared/tolerances.py's limit for the dtype of `out`, row by row, against an fp64 reference."""
    assert reference.dtype == torch.float64
    error, allowed = worst_row(out, reference, floor), limit(dtype_name(out.dtype), out.shape[-1])
    assert error <= allowed, f"error {error:.2e} of {dtype_name(out.dtype)}, expected at most {allowed:.0e}"


def assert_rounded_once(out: torch.Tensor, reference: torch.Tensor):
    """Each element of a softmax within half a unit in the last place of an fp64 reference, and what fp32 may lose
    before: for rows of which few values have the weight, so that their roundings do not average."""
    info = torch.finfo(out.dtype)
    allowed = reference * (info.eps / 2 + 2e-6) + 1e-7 * reference.amax(-1, keepdim=True)
    worst = ((out.double() - reference).abs() - allowed - info.smallest_normal * info.eps).nan_to_num(float("inf"))
    assert worst.amax() <= 0, f"an element is {worst.amax():.1e} further off than its rounding"


#: Bytes per thread that a kernel may spill: none with the pinned Triton; the ptxas of 3.6 and of 3.9 each spill a few
#: in one kernel (fp16 add_rmsnorm at 131,072 columns on sm_90; LayerNorm's backward at 1000 on sm_100).
SPILLS = 0 if triton.__version__.startswith("3.7.") else 16

#: The same for a backward, by width. The widest tile with a ragged row is let off: its 16-bit loads take more registers
#: than the 128 of 16 warps, 32 warps spill more, and reading the row twice instead would cost more.
SPILLS_BACKWARD = dict.fromkeys(
    (64, 1000, 1024, 4095, 4096, RESIDENT_COLS_BACKWARD, RESIDENT_COLS_BACKWARD + 1, 16_384), SPILLS
) | {RESIDENT_COLS_BACKWARD - 1: 200}

#: Ways for [rows, cols] to lie in memory, by name: each takes a contiguous tensor and gives one of the same kind.
LAYOUTS = {
    "transposed": lambda x: x.T.contiguous().T,
    "columns of a wider tensor": lambda x: torch.cat([x, x, x], dim=1)[:, x.shape[1] : 2 * x.shape[1]],
    "every second column": lambda x: x.repeat_interleave(2, dim=1)[:, ::2],
    "every second row": lambda x: x.repeat_interleave(2, dim=0)[::2],
    "one row, expanded": lambda x: x[:1].expand(len(x), -1),
    "one column, expanded": lambda x: x[:, :1].expand(-1, x.shape[1]),
    "an odd offset": lambda x: torch.cat([x.new_zeros(1), x.flatten()])[1:].view(x.shape),
}

#: Ways for [batch, rows, cols] to lie in memory whose rows one stride cannot address, or can.
BATCHED = {
    "permuted batch": lambda x: x.permute(1, 0, 2),
    "sliced batch": lambda x: x[1:, ::2],
    "sliced rows and columns": lambda x: x[:, 1:, 3:],
    "batch expanded": lambda x: x[:1].expand(3, -1, -1),
    "features first": lambda x: x.permute(0, 2, 1).contiguous().permute(0, 2, 1),
}


def widths(table: tuple, dtype: torch.dtype) -> list:
    """1, odd, prime and round widths, and on both sides of every width at which a table's plan changes its tile."""

    def at(cols):
        return row_plan(table, cols, dtype.itemsize)

    powers = [1 << p for p in range(1, 15)]
    edges = {cols for power in powers for cols in (power, power + 1) if at(power) != at(power + 1)}
    streamed = next(row.name for row in table if row.max_cols == MAX_COLS)
    last = next(cols for cols in range(max(edges), MAX_COLS, 512) if at(cols).path == streamed)
    tile = at(last).config["BLOCK"]
    tested = {1, 2, 3, 17, 127, 1000, 1009, last + 1, 2 * tile - 1, 2 * tile, 2 * tile + 1, 3 * tile + 17}
    tested |= {cols for cols in edges if cols > 64} | {cols - 1 for cols in edges if cols > 256}
    reached = {at(cols).path for cols in tested}
    paths = {row.name for row in table if row.max_cols <= MAX_COLS and row.name != "two_pass"}
    assert reached == paths, "the widths do not reach every kernel"
    return sorted(tested)


def assert_counts(report, model):
    """The meter's bytes per tensor and launches are the model's, and it found nothing out of bounds or unwritten."""
    assert report.clean
    assert (report.traffic.read, report.traffic.written, report.launches) == (model.read, model.written, model.launches)


def compile_widths(table: tuple, dtype: torch.dtype) -> list:
    """The widest row of each forward tile, and one odd one: where registers are scarcest."""
    tiles = {}
    for cols in (1, 256, 512, *(1 << p for p in range(10, 18)), 1001):
        plan = row_plan(table, cols, dtype.itemsize)
        tiles[plan.path, tuple(plan.config.items()), cols % 16 == 0] = cols
    return sorted(set(tiles.values()))


#: Widths on both sides of those at which elementwise tiles change.
ELEMENTWISE_WIDTHS = (1, 2, 3, 4, 5, 17, 127, 512, 513, 1000, TILE - 1, TILE, TILE + 1, 2 * TILE + 17)
ELEMENTWISE_SHAPES = ((5, 1, BF16), (41, 100, BF16), (17, 256, FP32), (3, 1000, FP16), (4, 4096, BF16), (3, 2049, FP32))


def other(x: torch.Tensor) -> torch.Tensor:
    """Other numbers of the shape and dtype of x."""
    return randn(*x.shape, dtype=x.dtype, seed=2)


def bias_of(x: torch.Tensor, dtype: torch.dtype | None = None) -> torch.Tensor:
    """A bias for the rows of x."""
    return randn(x.shape[-1], dtype=dtype or x.dtype, seed=1)


def close(result: torch.Tensor, reference: torch.Tensor):
    """As one row: an element of an elementwise kernel may on its own be near a zero of the function."""
    assert_close(result.flatten(), reference.flatten(), floor=torch.full((max(1, min(16, reference.numel())),), 0.1))


def gradients(function, tensors: tuple, upstream: torch.Tensor) -> tuple:
    """The gradients of function(*tensors) by each of them."""
    tensors = [t.detach().requires_grad_() for t in tensors]
    return torch.autograd.grad(function(*tensors), tensors, upstream)
