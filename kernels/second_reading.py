"""RMSNorm that reads each row twice, with a switch for each thing in which the streaming kernel of rmsnorm.py differs
from the plain one: the order of the second reading, hints to the caches, the tile and the warps.

It exists to be measured: what a change costs or saves is seen where nothing else changed. Minimum traffic, arithmetic
and reference are rmsnorm's.
"""

from dataclasses import dataclass, replace

import torch

from instruments.backend import tl, triton
from kernels.arguments import check_eps, check_tensor, check_width
from kernels.rmsnorm import PATHS, rmsnorm_resident_kernel
from kernels.rows import MAX_COLS, plan


@triton.jit
def second_reading_kernel(
    x_ptr,
    weight_ptr,
    y_ptr,
    x_row_stride,
    x_col_stride,
    cols,
    eps,
    BACKWARDS: tl.constexpr,
    FIRST: tl.constexpr,
    SECOND: tl.constexpr,
    WEIGHT: tl.constexpr,
    WEIGHT_CACHE: tl.constexpr,
    STORE_CACHE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """One row in steps of [BLOCK], twice: x and y [rows, cols] contiguous, weight [cols]."""
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
    """One setting of the switches; the defaults are the plain kernel's. weight: '', 'kept' in L1 or 'past L1'."""

    backwards: bool = False
    x_hints: bool = False
    weight: str = ""
    store_hint: bool = False
    tile: int = 2048
    warps: int = 8

    @property
    def config(self) -> dict:
        """What second_reading_kernel takes by name."""
        return {
            "BACKWARDS": self.backwards,
            "FIRST": "evict_last" if self.x_hints else "",
            "SECOND": "evict_first" if self.x_hints else "",
            "WEIGHT": "evict_last" if self.weight == "kept" else "",
            "WEIGHT_CACHE": ".cg" if self.weight == "past L1" else "",
            "STORE_CACHE": ".cs" if self.store_hint else "",
            "BLOCK": self.tile,
            "num_warps": self.warps,
        }


RESIDENT = {"resident, 8 warps": 8, "resident, 16 warps": 16}  # the row kept, for comparison


def variants(cols: int, itemsize: int) -> dict[str, Variant]:
    """{name: variant} for rows of one width: 'plain', one thing changed; 'all', which is rmsnorm's streaming kernel,
    and one thing taken back."""
    plain = Variant()
    config = plan(PATHS, cols, itemsize, "streaming").config
    tile, warps = config["BLOCK"], config["num_warps"]
    kept = config["WEIGHT_IN_L1"]
    full = Variant(True, True, "kept" if kept else "past L1", not kept, tile, warps)
    found = {
        "plain": plain,
        "backwards": replace(plain, backwards=True),
        "x hints": replace(plain, x_hints=True),
        "weight kept": replace(plain, weight="kept"),
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
    if kept:  # then there is no hint at the store to take back
        del found["all but store hint"]
    return found


def second_reading(x: torch.Tensor, weight: torch.Tensor, variant: str = "plain", eps: float = 1e-6) -> torch.Tensor:
    """RMSNorm of the rows of x by one variant of the kernel.

    x: [rows, cols], contiguous, fp16, bf16 or fp32, cols 1 to 1,048,576. weight: [cols], x's dtype. variant: a name of
    `variants`, or of RESIDENT, whose rows are kept and not read twice. Returns y like x. Raises ValueError naming the
    argument.
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
        block = triton.next_power_of_2(cols)
        rmsnorm_resident_kernel[(rows,)](x, weight, y, *x.stride(), cols, eps, BLOCK=block, num_warps=RESIDENT[variant])
        return y
    known = variants(cols, x.itemsize)
    if variant not in known:
        raise ValueError(f"variant: got {variant!r}, expected one of: {', '.join([*known, *RESIDENT])}")
    second_reading_kernel[(rows,)](x, weight.contiguous(), y, *x.stride(), cols, eps, **known[variant].config)
    return y
