"""Grouped matmul: each group of rows of x times a weight of its own, all groups in one launch.

In a mixture of experts, a group is the rows of the tokens that one expert gets.

Minimum traffic: x and y once, and of the weight [E, K, N] the matrices of the groups that have rows; 2 * rows * K * N
FLOPs. Only the GPU knows how many rows each group has, in `offsets`, and the host never asks. The launch starts as many
programs as can run at once, and each program finds its own tiles from the offsets (kernels/matmul/tile_order.py). The
tiles of a group are neighbors in that order, so its weight comes from DRAM once. Two steps can be fused: the gather of
the tokens' rows into the load, and SwiGLU into the store. With SwiGLU, a program computes a tile of gate's columns and
the same tile of up's.

Sources: one launch for all experts is from MegaBlocks (Gale et al., 2022), the gather in the load from ScatterMoE (Tan
et al., 2024). In decode a group has few rows, and tiles have 16.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import accumulate

import torch
import torch.nn.functional as F

from instruments import backend
from instruments.backend import cdiv, next_power_of_2, tl, triton
from instruments.gpus import GPU, GPUS
from instruments.launcher import Launch
from instruments.traffic import Traffic
from kernels.grouped_matmul import hopper, persistent
from kernels.matmul.tile_order import ragged_ends, ragged_tile
from kernels.shared.arguments import check_no_grad, check_tensor
from kernels.shared.device import Device, device_of
from kernels.shared.metadata import by_metadata
from kernels.shared.rows import NO_LIMIT
from kernels.shared.tiles import LOG2E

MAX_GROUPS = 256  # one tile of offsets

#: The paths that load tiles by TMA, for many rows per group.
TMA_PATHS = {"hopper": hopper, "persistent": persistent}
PORTABLE = ("decode", "plain")  # paths that run anywhere

#: Number of weight columns above which gathering x before path 'hopper' is faster than gathering it in the load. On an
#: H200 the gather in the load slows that path by 8% with 28,672 columns and by 10% with 2,816; gathering beforehand
#: takes the same time for any number of columns. In total, gathering first saves 8% with 28,672 columns and would save
#: 3% with 2,816. We did not time fewer.
GATHER_FIRST = 4096


def grouped_matmul_reference(
    x: torch.Tensor,
    weight: torch.Tensor,
    offsets: torch.Tensor,
    *,
    rows: torch.Tensor | None = None,
    activation: str | None = None,
) -> torch.Tensor:
    """`grouped_matmul` in plain PyTorch, one matmul per group; fp64 inputs give a reference. Rows of no group are 0."""
    x = x if rows is None else x[rows.long()]
    y = x.new_zeros(len(x), weight.shape[2] // (2 if activation else 1))
    bounds = offsets.tolist()
    for matrix, begin, end in zip(weight, bounds, bounds[1:]):
        out = x[begin:end] @ matrix
        if activation == "swiglu":
            gate, up = out.chunk(2, dim=1)
            out = F.silu(gate) * up
        y[begin:end] = out
    return y


@triton.jit
def grouped_matmul_kernel(
    x_ptr, weight_ptr, offsets_ptr, rows_ptr, y_ptr,  # tensors
    groups, K, N,
    x_row_stride, x_col_stride,
    weight_group_stride, weight_row_stride, weight_col_stride, up_offset,
    SWIGLU: tl.constexpr, EVEN: tl.constexpr, GROUP_M: tl.constexpr,
    BLOCK_E: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """x [slots, K], or [tokens, K] with rows [slots]; weight [groups, K, N], or [groups, K, 2 * N] with SWIGLU, any
    strides; offsets [groups + 1] int32; y [slots, N] contiguous. up_offset: elements from a column of gate to the same
    column of up. EVEN: K and N are multiples of the tile."""
    ends = ragged_ends(offsets_ptr, groups, N, BLOCK_M, BLOCK_N, BLOCK_E)
    for tile in tl.range(tl.program_id(0), tl.max(ends), tl.num_programs(0)):
        group, end, first_row, first_col = ragged_tile(tile, ends, offsets_ptr, N, BLOCK_M, BLOCK_N, GROUP_M)
        row = first_row + tl.arange(0, BLOCK_M)  # [BLOCK_M]
        row_mask = (row < end)[:, None]  # [BLOCK_M, 1]
        x_row = row if rows_ptr is None else tl.load(rows_ptr + row, mask=row < end, other=0)
        x_rows = x_ptr + x_row.to(tl.int64)[:, None] * x_row_stride  # [BLOCK_M, 1]
        k, n = tl.arange(0, BLOCK_K), tl.arange(0, BLOCK_N)[None, :]  # [BLOCK_K], [1, BLOCK_N]
        col = first_col + n
        corner = weight_ptr + group.to(tl.int64) * weight_group_stride + first_col.to(tl.int64) * weight_col_stride
        # [BLOCK_K, BLOCK_N]: 32 bits are enough within a tile, and take half the registers of pointers
        tile_offset = k[:, None] * weight_row_stride + n * weight_col_stride
        acc = tl.zeros([BLOCK_M, BLOCK_N], dtype=tl.float32)
        up_acc = acc
        for start in tl.range(0, K, BLOCK_K):
            x_mask = row_mask if EVEN else row_mask & (k[None, :] < K - start)
            weight_mask = None if EVEN else (k[:, None] < K - start) & (col < N)
            other = None if EVEN else 0.0
            first_k = start.to(tl.int64)
            x_ptrs = x_rows + first_k * x_col_stride + k[None, :] * x_col_stride
            x = tl.load(x_ptrs, mask=x_mask, other=0.0)  # [BLOCK_M, BLOCK_K]
            strip = corner + first_k * weight_row_stride
            weight = tl.load(strip + tile_offset, mask=weight_mask, other=other)  # [BLOCK_K, BLOCK_N]
            acc = tl.dot(x, weight, acc, input_precision="ieee")
            if SWIGLU:
                up = tl.load(strip + up_offset + tile_offset, mask=weight_mask, other=other)
                up_acc = tl.dot(x, up, up_acc, input_precision="ieee")
        if SWIGLU:
            acc = acc / (1 + tl.exp2(acc * -LOG2E)) * up_acc
        y_ptrs = y_ptr + row.to(tl.int64)[:, None] * N + col
        tl.store(y_ptrs, acc.to(y_ptr.dtype.element_ty), mask=row_mask & (col < N))


@dataclass(frozen=True)
class GroupedPath:
    """A row of the table of paths.

    Args:
        name: as in `path=`.
        rows: the path is chosen up to so many rows per group, on average.
        itemsize: bytes of the widest elements it takes.
        tile: the kernel's tile sizes, warps and stages; BLOCK_N counts columns of the weight.
        programs: per SM.
        group_m: rows of tiles that programs visit together.
    """

    name: str
    rows: int
    itemsize: int
    tile: dict
    programs: int
    group_m: int = 16


def _tile(m: int, n: int, k: int, warps: int, stages: int) -> dict:
    return {"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k, "num_warps": warps, "num_stages": stages}


FEW = 16  # up to so many rows per group, on average, it is decode, whose tiles have 16 rows
#: The tiles for 16 bits were the fastest of some dozens on an H200; those for fp32 are those of kernels/matmul.
PATHS = (
    GroupedPath("decode", FEW, 2, _tile(FEW, 128, 64, 4, 4), 3),
    GroupedPath("decode", FEW, 2, _tile(FEW, 64, 128, 4, 4), 4),
    GroupedPath("hopper", NO_LIMIT, 2, _tile(128, 256, 64, 4, 4), 1),
    GroupedPath("persistent", 128, 2, _tile(64, 128, 64, 4, 4), 2),
    GroupedPath("persistent", NO_LIMIT, 2, _tile(128, 256, 64, 8, 4), 1),
    GroupedPath("persistent", NO_LIMIT, 2, _tile(128, 128, 64, 4, 5), 1),
    GroupedPath("plain", NO_LIMIT, 2, _tile(128, 128, 32, 8, 4), 1),
    GroupedPath("plain", NO_LIMIT, 4, _tile(64, 64, 32, 4, 3), 2),
)
OUTSIDE = 16  # at most one in so many columns of a wide tile may lie outside y


@dataclass(frozen=True)
class GroupedPlan:
    """A launch. path, group_m: as in GroupedPath. tile: with BLOCK_N in columns of y. programs: in total."""

    path: str
    tile: dict
    group_m: int
    programs: int


@cache
def grouped_plan(
    slots: int,
    groups: int,
    N: int,
    swiglu: bool,
    itemsize: int,
    path: str | None,
    gpu: Device,
    paths: tuple[str, ...] = PORTABLE,
) -> GroupedPlan:
    """The launch for so many slots, groups and columns of y, by `path` or the first of `paths` that is made for so many
    rows per group. Of a path's tiles it takes the widest that keeps every SM busy and lies nearly whole in y, else the
    last."""
    table = [row for row in PATHS if itemsize <= row.itemsize and (path == row.name if path else row.name in paths)]
    candidates = [row for row in table if slots <= row.rows * groups] or table
    if not candidates:
        raise ValueError(
            f"path: got {path!r} for {itemsize}-byte elements, expected None, 'plain' or, with 16 bits, 'decode', "
            "'persistent' or 'hopper'"
        )
    first = candidates[0]
    for row in candidates:
        if (row.name, row.rows, row.itemsize) != (first.name, first.rows, first.itemsize):
            break
        best, block_n = row, row.tile["BLOCK_N"] // (2 if swiglu else 1)
        tiles_n = cdiv(N, block_n)
        max_tiles = (slots // row.tile["BLOCK_M"] + min(groups, slots)) * tiles_n
        if max_tiles >= gpu.sms and (tiles_n * block_n - N) * OUTSIDE <= N:
            break
    programs = min(best.programs * gpu.sms, max_tiles)
    return GroupedPlan(best.name, best.tile | {"BLOCK_N": block_n}, best.group_m, programs)


def check_index(name: str, tensor, like: torch.Tensor, length: int | None = None):
    """Raise ValueError unless `tensor` is a contiguous int32 vector of `length` elements on the device of `like`."""
    check_tensor(name, tensor, like=like, dtypes=(torch.int32,))
    if tensor.dim() != 1 or length not in (None, tensor.shape[0]):
        expected = f"({'any' if length is None else length},)"
        raise ValueError(f"{name}: got shape {tuple(tensor.shape)}, expected {expected}")
    if not tensor.is_contiguous():
        raise ValueError(f"{name}: got strides {tensor.stride()}, expected a contiguous tensor")


def _check(x, weight, offsets, rows, activation):
    check_tensor("x", x)
    check_tensor("weight", weight, like=x, dtypes=(x.dtype,))
    if x.dim() != 2:
        raise ValueError(f"x: got {x.dim()} dimensions, expected 2")
    if weight.dim() != 3 or weight.shape[1] != x.shape[1] or not 1 <= weight.shape[0] <= MAX_GROUPS:
        expected = f"(groups, {x.shape[1]}, N) with 1 to {MAX_GROUPS} groups, after x of {tuple(x.shape)}"
        raise ValueError(f"weight: got shape {tuple(weight.shape)}, expected {expected}")
    if activation not in (None, "swiglu"):
        raise ValueError(f"activation: got {activation!r}, expected None or 'swiglu'")
    if activation and weight.shape[2] % 2:
        raise ValueError(f"weight: got {weight.shape[2]} columns, expected an even number: gate's, then up's")
    check_index("offsets", offsets, x, weight.shape[0] + 1)
    if rows is not None:
        check_index("rows", rows, x)


def _many_rows(slots: int, groups: int) -> bool:
    """Whether groups have enough rows for a path with TMA, in a compiled kernel."""
    return slots > FEW * groups and backend.mode() == "compiled"


@dataclass(frozen=True)
class GroupedCall:
    """A call's plan. shape: of y. launch: of x, weight, offsets, rows and y; None where y is empty or all zeros."""

    shape: tuple[int, int]
    launch: Callable | None

    def __call__(self, x, weight, offsets, rows=None) -> torch.Tensor:
        y = torch.empty(self.shape, dtype=x.dtype, device=x.device)
        if self.launch is None:
            return y.zero_()
        self.launch(x, weight, offsets, rows, y)
        return y


def plan_call(
    x: torch.Tensor,
    weight: torch.Tensor,
    slots: int,
    gathered: bool,
    activation: str | None,
    path: str | None = None,
    sms: int | None = None,
) -> GroupedCall:
    """The plan of a call with tensors like these, checked already.

    Args:
        x: only metadata matter, and not the device, which is the weight's.
        slots: rows of y.
        gathered: whether `rows` is given.
    """
    groups, K, paths = *weight.shape[:2], PORTABLE
    swiglu = activation is not None
    N = weight.shape[2] // (2 if swiglu else 1)
    if not slots * N * K:
        return GroupedCall((slots, N), None)
    y = torch.empty((slots, N), dtype=x.dtype, device="meta")  # strides and alignment as of the real one
    if path in TMA_PATHS or path is None and _many_rows(slots, groups):
        paths = [name for name, kernel in TMA_PATHS.items() if kernel.takes(x, weight, y)]
        if path and path not in paths:
            raise ValueError(
                f"path: got {path!r} for {x.dtype} on {x.device}, strides {x.stride()} and {weight.stride()}, expected "
                "16 bits that tensor descriptors can address, on a GPU that has them; for 'hopper' a Hopper GPU"
            )
        paths = (*paths, *PORTABLE)
    gpu = device_of(weight.device)
    if sms is not None:
        gpu = replace(gpu, sms=min(sms, gpu.sms))
    plan = grouped_plan(slots, groups, N, swiglu, x.itemsize, path, gpu, paths)
    if plan.path in TMA_PATHS:
        return GroupedCall((slots, N), TMA_PATHS[plan.path].plan_call(x, weight, gathered, y, swiglu, plan))
    even = K % plan.tile["BLOCK_K"] == 0 and N % plan.tile["BLOCK_N"] == 0
    launch = Launch(
        grouped_matmul_kernel, (plan.programs,),
        groups, K, N,
        *x.stride(), *weight.stride(), N * weight.stride(2),
        SWIGLU=swiglu, EVEN=even, GROUP_M=plan.group_m, BLOCK_E=next_power_of_2(groups), **plan.tile,
    )  # fmt: skip
    return GroupedCall((slots, N), launch)


@by_metadata
def _plan(x, weight, offsets, rows, activation, path, sms) -> GroupedCall:
    """The plan of a call, whose arguments it checks."""
    _check(x, weight, offsets, rows, activation)
    if sms is not None and not sms >= 1:
        raise ValueError(f"sms: got {sms}, expected at least 1")
    plan = plan_call(x, weight, len(x if rows is None else rows), rows is not None, activation, path, sms)
    check_no_grad("grouped_matmul", x=x, weight=weight)
    return plan


def gathers_first(x: torch.Tensor, weight: torch.Tensor, slots: int) -> bool:
    """Whether gathering `slots` rows of x before the matmul is faster than `rows=` of `grouped_matmul`: so on path
    'hopper' with many columns."""
    groups, _, columns = weight.shape
    if columns <= GATHER_FIRST or columns % 8 or not _many_rows(slots, groups):
        return False
    return hopper.takes(x, weight, x)


def grouped_matmul(
    x: torch.Tensor,
    weight: torch.Tensor,
    offsets: torch.Tensor,
    *,
    rows: torch.Tensor | None = None,
    activation: str | None = None,
    path: str | None = None,
    sms: int | None = None,
) -> torch.Tensor:
    """Multiply the rows offsets[e] to offsets[e + 1] of x by weight[e], for every group e.

    Args:
        x: [slots, K], or [tokens, K] with rows; fp16, bf16 or fp32, any strides.
        weight: [E, K, N], or [E, K, 2 * N] with an activation; x's dtype, any strides, 1 to 256 groups.
        offsets: [E + 1], int32, contiguous: from 0, never decreasing, at most slots.
        rows: [slots], int32, contiguous: the row of x for each slot. None: x has a row for each slot.
        activation: "swiglu": the first half of the weight's columns is gate, the second up, and y = silu(gate) * up.
        path: "decode", "persistent" or "hopper" (16 bits only) or "plain". None: the fastest for these sizes.
        sms: number of SMs to use. None: all.

    Returns:
        y [slots, N], x's dtype, contiguous; accumulated in fp32 and rounded once.

    Raises:
        ValueError: names the argument, what it got and what was expected.

    Note:
        Rows of y that belong to no group (from offsets[E] on) are not written. Offsets and rows stay on the GPU and are
        not checked. The function is not differentiable: the gradient of x is grouped_matmul(dy, weight.mT, offsets),
        that of the weight `grouped_matmul_weight_gradient`.
    """
    return _plan(x, weight, offsets, rows, activation, path, sms)(x, weight, offsets, rows)


def grouped_matmul_traffic(
    counts: Sequence[int],
    K: int,
    N: int,
    dtype: torch.dtype,
    *,
    path: str | None = "minimum",
    tokens: int | None = None,
    activation: str | None = None,
    gpu: GPU | Device = GPUS["H200"],
) -> Traffic:
    """Bytes and FLOPs of a grouped matmul.

    Args:
        counts: rows of each group.
        K: columns of x.
        N: columns of the weight [len(counts), K, N], gate's and up's with an activation.
        dtype: of x, weight and y.
        path: "minimum", each byte once; "naive", one launch per group that has rows; "padded", one launch in which each
            group is padded to the rows of the largest; or the requested bytes of a path of `grouped_matmul`. None: the
            path chosen without TMA, as in the interpreter.
        tokens: rows of x where the gather is part of the load; every token is used. None: x has a row for each of y.
        activation: as in `grouped_matmul`.
        gpu: whose number of SMs sets the number of programs.
    """
    counts, size = list(counts), dtype.itemsize
    slots, active_groups, groups = sum(counts), sum(count > 0 for count in counts), len(counts)
    columns = N // (2 if activation else 1)  # of y
    index = {} if tokens is None else {"rows": 4 * slots}
    if path == "padded":
        slots, active_groups = groups * max(counts), groups
    flops = 2 * slots * K * N + (5 * slots * columns if activation else 0)
    y = {"y": slots * columns * size}
    if path in ("minimum", "naive", "padded"):
        x = slots if tokens is None or path == "padded" else tokens
        read = {"x": x * K * size, "weight": active_groups * K * N * size}
        if path == "minimum":
            read |= {"offsets": 4 * (groups + 1), **index}
        return Traffic(read, y, flops, launches=active_groups if path == "naive" else 1)
    plan = grouped_plan(slots, groups, columns, activation is not None, size, path, Device(gpu.sms, gpu.shared_per_sm))
    block_m, block_n = plan.tile["BLOCK_M"], plan.tile["BLOCK_N"]
    tiles_m = [cdiv(count, block_m) for count in counts]  # of each group
    tiles_n, x_rows, weight_columns = cdiv(columns, block_n), slots, N
    if plan.path in TMA_PATHS and tokens is None:  # a tile reaches into the rows of the next groups
        begins = accumulate(counts, initial=0)
        x_rows = sum(min(tiles * block_m, slots - begin) for tiles, begin in zip(tiles_m, begins))
    if plan.path in TMA_PATHS and activation:  # and a tile of gate's columns into those of up
        weight_columns = min(tiles_n * block_n, N) + columns
    read = {
        "x": x_rows * K * tiles_n * size,
        "weight": sum(tiles_m) * K * weight_columns * size,
        "offsets": 8 * groups * plan.programs + 8 * sum(tiles_m) * tiles_n,
        **{name: nbytes * tiles_n for name, nbytes in index.items()},
    }
    return Traffic(read, y, flops, launches=1)
