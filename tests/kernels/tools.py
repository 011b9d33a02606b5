"""What the kernels' tests share: inputs, layouts, the error of a result, and the plans' boundaries."""

import torch

from instruments import backend
from instruments.backend import triton
from instruments.gpus import dtype_name
from kernels.rows import RESIDENT_BLOCK_BACKWARD
from kernels.tolerances import limit

FP32, BF16, FP16 = torch.float32, torch.bfloat16, torch.float16
DTYPES = (BF16, FP16, FP32)
DEVICE = backend.device()


def randn(*shape: int, dtype: torch.dtype = FP32, seed: int = 0, scale: float = 1, shift: float = 0) -> torch.Tensor:
    """Seeded normal numbers, made on the CPU so that they are the same everywhere."""
    x = torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return (x * scale + shift).to(dtype).to(DEVICE)


def worst_row(out: torch.Tensor, reference: torch.Tensor, floor: torch.Tensor | None = None) -> float:
    """The largest ||out - reference|| / ||reference|| of a row; infinite for a NaN, or where zero was expected and missed.

    floor: rows whose norm replaces the reference's where it is larger, for results that are differences of larger terms.
    """
    assert out.shape == reference.shape, f"shape {tuple(out.shape)}, expected {tuple(reference.shape)}"
    out, reference = out.double(), reference.double()
    size = reference.norm(dim=-1)
    if floor is not None:
        size = torch.maximum(size, floor.double().norm(dim=-1).to(size.device))
    error = (out - reference).norm(dim=-1)
    return float(torch.where(error == 0, 0.0, error / size).nan_to_num(float("inf"), posinf=float("inf")).amax())


def assert_close(out: torch.Tensor, reference: torch.Tensor, floor: torch.Tensor | None = None):
    """Within kernels/tolerances.py's limit for the dtype of `out`, row by row, against an fp64 reference."""
    assert reference.dtype == torch.float64
    error, allowed = worst_row(out, reference, floor), limit(dtype_name(out.dtype), out.shape[-1])
    assert error <= allowed, f"error {error:.2e} of {dtype_name(out.dtype)}, expected at most {allowed:.0e}"


#: Bytes per thread that a kernel may spill: none with the pinned Triton; the ptxas of 3.6 and of 3.9 each spill a few
#: in one kernel (fp16 add_rmsnorm at 131,072 columns on sm_90; LayerNorm's backward at 1000 on sm_100).
SPILLS = 0 if triton.__version__.startswith("3.7.") else 16

#: The same for a backward, by width. The widest tile with a ragged row is let off: its 16-bit loads take more registers
#: than the 128 of 16 warps, 32 warps spill more, and reading the row twice instead would cost more.
SPILLS_BACKWARD = dict.fromkeys(
    (64, 1000, 1024, 4095, 4096, RESIDENT_BLOCK_BACKWARD, RESIDENT_BLOCK_BACKWARD + 1, 16_384), SPILLS
) | {RESIDENT_BLOCK_BACKWARD - 1: 200}

#: Ways for [rows, cols] to lie in memory, by name: each takes a contiguous tensor and gives one of the same values' kind.
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


def widths(plan, dtype: torch.dtype, paths=("narrow", "resident", "streaming")) -> list:
    """1, odd, prime and round widths, and on both sides of every width at which `plan(cols, dtype)` changes its tile."""
    powers = [1 << p for p in range(1, 15)]
    edges = {cols for power in powers for cols in (power, power + 1) if plan(power, dtype) != plan(power + 1, dtype)}
    last = next(cols for cols in range(max(edges), 1 << 20, 512) if plan(cols, dtype)[0] == paths[-1])
    tile = plan(last, dtype)[1]["BLOCK"]
    chosen = {1, 2, 3, 17, 127, 1000, 1009, last + 1, 2 * tile - 1, 2 * tile, 2 * tile + 1, 3 * tile + 17}
    chosen |= {cols for cols in edges if cols > 64} | {cols - 1 for cols in edges if cols > 256}
    assert {plan(cols, dtype)[0] for cols in chosen} == set(paths), "the widths do not reach every kernel"
    return sorted(chosen)
