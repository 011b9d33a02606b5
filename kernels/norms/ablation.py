"""Lesson 05's experiment: RMSNorm that reads each row twice, with a switch for each choice in which the streaming
kernel of rmsnorm.py differs from the plain one: the order of the second pass, cache hints, tile and warps.

A variant changes one choice and nothing else, so that its time shows what the choice is worth. Minimum traffic,
arithmetic and reference are rmsnorm's.
"""

from dataclasses import dataclass, replace

import torch

from instruments.backend import next_power_of_2, tl, triton
from kernels.norms.rmsnorm import PATHS, rmsnorm_resident_kernel
from kernels.shared.arguments import check_eps, check_tensor, check_width
from kernels.shared.rows import MAX_COLS, row_plan


@triton.jit
def second_reading_kernel(
    x_ptr, weight_ptr, y_ptr,
    x_row_stride, x_col_stride,
    cols, eps,
    BACKWARDS: tl.constexpr, FIRST: tl.constexpr, SECOND: tl.constexpr, WEIGHT: tl.constexpr,
    WEIGHT_CACHE: tl.constexpr, STORE_CACHE: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """One row per program, read twice in steps of [BLOCK]: x and y [rows, cols] contiguous, weight [cols]."""
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * x_row_stride
    y_ptr += row * cols
    squares = tl.zeros([BLOCK], dtype=tl.float32)
    for start in tl.range(0, cols, BLOCK):
        col = start + tl.arange(0, BLOCK)  # [BLOCK]
        x = tl.load(x_ptr + col * x_col_stride, mask=col < cols, other=0.0, eviction_policy=FIRST).to(tl.float32)
        squares += x * x
    scale = tl.rsqrt(tl.sum(squares) / cols + eps)
    last = (tl.cdiv(cols, BLOCK) - 1) * BLOCK
    for step in tl.range(0, cols, BLOCK):
        start = last - step if BACKWARDS else step
        col = start + tl.arange(0, BLOCK)
        mask = col < cols
        x = tl.load(x_ptr + col * x_col_stride, mask=mask, other=0.0, eviction_policy=SECOND).to(tl.float32)
        weight = tl.load(weight_ptr + col, mask=mask, other=0.0, eviction_policy=WEIGHT, cache_modifier=WEIGHT_CACHE)
        y = x * scale * weight.to(tl.float32)
        tl.store(y_ptr + col, y.to(y_ptr.dtype.element_ty), mask=mask, cache_modifier=STORE_CACHE)


@dataclass(frozen=True)
class Variant:
    """A setting of the switches; the defaults are the plain kernel's.

    Args:
        backwards: whether the second pass goes from the row's end to its start.
        x_hints: whether the first pass marks x to stay in L1, and the second to leave first.
        weight: the weight's cache hint: '' (none), 'in L1' or 'past L1'.
        store_hint: whether y is marked to leave first.
        tile: elements per step.
        warps: warps per program.
    """

    backwards: bool = False
    x_hints: bool = False
    weight: str = ""
    store_hint: bool = False
    tile: int = 2048
    warps: int = 8

    @property
    def config(self) -> dict:
        """The arguments of second_reading_kernel, by name."""
        return {
            "BACKWARDS": self.backwards,
            "FIRST": "evict_last" if self.x_hints else "",
            "SECOND": "evict_first" if self.x_hints else "",
            "WEIGHT": "evict_last" if self.weight == "in L1" else "",
            "WEIGHT_CACHE": ".cg" if self.weight == "past L1" else "",
            "STORE_CACHE": ".cs" if self.store_hint else "",
            "BLOCK": self.tile,
            "num_warps": self.warps,
        }


RESIDENT = {"resident, 8 warps": 8, "resident, 16 warps": 16}  # the row stays in registers, for comparison


def variants(cols: int, itemsize: int) -> dict[str, Variant]:
    """{name: variant} for rows of one width: 'plain' and it with one change each, then 'all', which is rmsnorm's
    streaming kernel, and it without one change each. The names are those of the records."""
    plain = Variant()
    config = row_plan(PATHS, cols, itemsize, "streaming").config
    tile, warps = config["BLOCK"], config["num_warps"]
    weight_in_l1 = config["WEIGHT_IN_L1"]
    full = Variant(True, True, "in L1" if weight_in_l1 else "past L1", not weight_in_l1, tile, warps)
    table = {
        "plain": plain,
        "backwards": replace(plain, backwards=True),
        "x hints": replace(plain, x_hints=True),
        "weight kept": replace(plain, weight="in L1"),
        "weight past L1": replace(plain, weight="past L1"),
        "store .cs": replace(plain, store_hint=True),
        f"{warps} warps": replace(plain, warps=warps),
        f"tile {tile}": replace(plain, tile=tile),
        f"tile {tile}, {warps} warps": replace(plain, tile=tile, warps=warps),
        "all": full,
        "all but backwards": replace(full, backwards=False),
        "all but x hints": replace(full, x_hints=False),
        "all but weight hint": replace(full, weight=""),
        "all but store hint": replace(full, store_hint=False),
        "all but tile and warps": replace(full, tile=plain.tile, warps=plain.warps),
    }
    if weight_in_l1:  # then 'all' has no hint at the store
        del table["all but store hint"]
    return table


def second_reading(x: torch.Tensor, weight: torch.Tensor, variant: str = "plain", eps: float = 1e-6) -> torch.Tensor:
    """RMSNorm over the last dimension by one variant of the kernel.

    Args:
        x: [rows, cols], fp16, bf16 or fp32, cols 1 to 1,048,576, contiguous.
        weight: [cols], the dtype of x.
        variant: a name of `variants`, or of RESIDENT, which reads each row once.
        eps: added to the mean square; at least 0.

    Returns:
        [rows, cols], the dtype of x, contiguous.

    Raises:
        ValueError: naming the argument, what it is and what was expected.
    """
    check_tensor("x", x)
    if x.dim() != 2 or not x.is_contiguous():
        raise ValueError(f"x: got shape {tuple(x.shape)}, strides {x.stride()}, expected contiguous [rows, cols]")
    check_width("x", x, MAX_COLS)
    check_tensor("weight", weight, shape=x.shape[1:], like=x, dtypes=(x.dtype,), why=", the last dimension of x")
    check_eps(eps)
    rows, cols = x.shape
    y = torch.empty_like(x)
    if variant in RESIDENT:
        block = next_power_of_2(cols)
        rmsnorm_resident_kernel[(rows,)](x, weight, y, *x.stride(), cols, eps, BLOCK=block, num_warps=RESIDENT[variant])
        return y
    table = variants(cols, x.itemsize)
    if variant not in table:
        raise ValueError(f"variant: got {variant!r}, expected one of: {', '.join([*table, *RESIDENT])}")
    second_reading_kernel[(rows,)](x, weight.contiguous(), y, *x.stride(), cols, eps, **table[variant].config)
    return y
