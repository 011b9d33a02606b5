"""Grouped matrix product: the rows of every group times the group's own matrix, in one launch; in a mixture of experts
the group of an expert is the rows of the tokens that chose it.

Minimum traffic: x and y once, of the weight [E, K, N] the matrices of groups that have rows; 2 * rows * K * N FLOPs.
How many rows a group has is known on the GPU alone, in `offsets`, and nothing here asks for it: programs are started
for as many tiles as there can be at once, and each finds the tiles that are its own (matmul_order.py). The tiles of a
group follow each other, so that its matrix comes from DRAM once. Gathering the rows of the tokens is part of the load,
and SwiGLU of the store, where asked for: a program then multiplies a tile of gate's columns and the same of up's.

One launch for all experts is MegaBlocks' idea (Gale and others, 2022), a gather in the load ScatterMoE's (Tan and
others, 2024). With few rows a group, as in decode, tiles have 16 rows.
"""

from dataclasses import replace

import torch
import torch.nn.functional as F

from instruments import backend
from instruments.backend import tl, triton
from kernels import grouped_matmul_hopper, grouped_matmul_persistent
from kernels.arguments import check_no_grad, check_tensor
from kernels.grouped_matmul_plan import FEW, MAX_GROUPS, PORTABLE, Plan, check_index, grouped_matmul_traffic, plan
from kernels.matmul_order import ragged_ends, ragged_tile
from kernels.rows import device_of
from kernels.tiles import LOG2E

__all__ = ["grouped_matmul", "grouped_matmul_reference", "grouped_matmul_traffic"]

#: By path, what multiplies many rows where descriptors can address them.
DESCRIBED = {"hopper": grouped_matmul_hopper, "persistent": grouped_matmul_persistent}

#: Columns of a weight beyond which path 'hopper' had better find its rows sorted: gathered in its load they made it 8%
#: slower on an H200 with 28,672 columns and 10% with 2,816, and gathering them first takes as long whatever the
#: columns. In all, gathering first saved 8% with 28,672 columns and would save 3% with 2,816; fewer were not timed.
GATHER_FIRST = 4096


def grouped_matmul_reference(
    x: torch.Tensor,
    weight: torch.Tensor,
    offsets: torch.Tensor,
    *,
    rows: torch.Tensor | None = None,
    activation: str | None = None,
) -> torch.Tensor:
    """A product for each group, one after the other: give it fp64 for a reference. Rows of no group are zero."""
    x = x if rows is None else x[rows.long()]
    y = x.new_zeros(len(x), weight.shape[2] // (2 if activation else 1))
    bounds = offsets.tolist()
    for matrix, begin, end in zip(weight, bounds, bounds[1:]):
        product = x[begin:end] @ matrix
        if activation == "swiglu":
            gate, up = product.chunk(2, dim=1)
            product = F.silu(gate) * up
        y[begin:end] = product
    return y


@triton.jit
def grouped_matmul_kernel(
    x_ptr,
    weight_ptr,
    offsets_ptr,
    rows_ptr,
    y_ptr,
    groups,
    K,
    N,
    x_row_stride,
    x_col_stride,
    weight_group_stride,
    weight_row_stride,
    weight_col_stride,
    up_offset,
    SWIGLU: tl.constexpr,
    EVEN: tl.constexpr,
    GROUP_M: tl.constexpr,
    BLOCK_E: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """x [slots, K], or [tokens, K] with rows [slots]; weight [groups, K, N], or [groups, K, 2 * N] with SWIGLU, of any
    strides; offsets [groups + 1] int32; y [slots, N] contiguous. up_offset: elements from a column of gate to the same
    of up. EVEN: K and N end with a tile."""
    ends = ragged_ends(offsets_ptr, groups, N, BLOCK_M, BLOCK_N, BLOCK_E)
    for tile in tl.range(tl.program_id(0), tl.max(ends), tl.num_programs(0)):
        group, end, first_row, first_col = ragged_tile(tile, ends, offsets_ptr, N, BLOCK_M, BLOCK_N, GROUP_M)
        row = first_row + tl.arange(0, BLOCK_M)  # [BLOCK_M]
        inside = (row < end)[:, None]  # [BLOCK_M, 1]
        source = row if rows_ptr is None else tl.load(rows_ptr + row, mask=row < end, other=0)
        x_rows = x_ptr + source.to(tl.int64)[:, None] * x_row_stride  # [BLOCK_M, 1]
        k, n = tl.arange(0, BLOCK_K), tl.arange(0, BLOCK_N)[None, :]  # [BLOCK_K], [1, BLOCK_N]
        col = first_col + n
        corner = weight_ptr + group.to(tl.int64) * weight_group_stride + first_col.to(tl.int64) * weight_col_stride
        # [BLOCK_K, BLOCK_N]: within a tile 32 bits are enough, and take half the registers of pointers
        within = k[:, None] * weight_row_stride + n * weight_col_stride
        total = tl.zeros([BLOCK_M, BLOCK_N], dtype=tl.float32)
        up_total = total
        for start in tl.range(0, K, BLOCK_K):
            x_mask = inside if EVEN else inside & (k[None, :] < K - start)
            weight_mask = None if EVEN else (k[:, None] < K - start) & (col < N)
            other = None if EVEN else 0.0
            first_k = start.to(tl.int64)
            x_ptrs = x_rows + first_k * x_col_stride + k[None, :] * x_col_stride
            x = tl.load(x_ptrs, mask=x_mask, other=0.0)  # [BLOCK_M, BLOCK_K]
            strip = corner + first_k * weight_row_stride
            weight = tl.load(strip + within, mask=weight_mask, other=other)  # [BLOCK_K, BLOCK_N]
            total = tl.dot(x, weight, total, input_precision="ieee")
            if SWIGLU:
                up = tl.load(strip + up_offset + within, mask=weight_mask, other=other)
                up_total = tl.dot(x, up, up_total, input_precision="ieee")
        if SWIGLU:
            total = total / (1 + tl.exp2(total * -LOG2E)) * up_total
        y_ptrs = y_ptr + row.to(tl.int64)[:, None] * N + col
        tl.store(y_ptrs, total.to(y_ptr.dtype.element_ty), mask=inside & (col < N))


def _check(x, weight, offsets, rows, activation):
    check_tensor("x", x)
    check_tensor("weight", weight, like=x, dtypes=(x.dtype,))
    if x.dim() != 2:
        raise ValueError(f"x: got {x.dim()} dimensions, expected 2")
    if weight.dim() != 3 or weight.shape[1] != x.shape[1] or not 1 <= weight.shape[0] <= MAX_GROUPS:
        wanted = f"(groups, {x.shape[1]}, N) with 1 to {MAX_GROUPS} groups, after x of {tuple(x.shape)}"
        raise ValueError(f"weight: got shape {tuple(weight.shape)}, expected {wanted}")
    if activation not in (None, "swiglu"):
        raise ValueError(f"activation: got {activation!r}, expected None or 'swiglu'")
    if activation and weight.shape[2] % 2:
        raise ValueError(f"weight: got {weight.shape[2]} columns, expected an even number: gate's, then up's")
    check_index("offsets", offsets, x, weight.shape[0] + 1)
    if rows is not None:
        check_index("rows", rows, x)


def _choose(x, weight, y, swiglu, path, sms) -> Plan:
    """The plan of a product that is not empty."""
    if sms is not None and not sms >= 1:
        raise ValueError(f"sms: got {sms}, expected at least 1")
    slots, groups, able = y.shape[0], weight.shape[0], PORTABLE
    many = slots > FEW * groups and backend.mode() == "compiled"
    if path in DESCRIBED or path is None and many:
        able = [name for name, kernel in DESCRIBED.items() if kernel.takes(x, weight, y)]
        if path and path not in able:
            raise ValueError(
                f"path: got {path!r} for {x.dtype} on {x.device}, strides {x.stride()} and {weight.stride()}, expected "
                "16 bits that tensor descriptors can address, on a GPU that has them; for 'hopper' a Hopper GPU"
            )
        able = (*able, *PORTABLE)
    gpu = device_of(x.device)
    if sms is not None:
        gpu = replace(gpu, sms=min(sms, gpu.sms))
    return plan(slots, groups, y.shape[1], swiglu, x.itemsize, path, gpu, able)


def gathers_first(x: torch.Tensor, weight: torch.Tensor, slots: int) -> bool:
    """Whether gathering so many rows of x and then multiplying them by weight is faster than `rows=` of
    `grouped_matmul`."""
    y = torch.empty((slots, weight.shape[2]), dtype=x.dtype, device="meta")
    return weight.shape[2] > GATHER_FIRST and _choose(x, weight, y, False, None, None).path == "hopper"


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
    """y of which rows offsets[e] to offsets[e + 1] are those rows of x times weight[e], added up in fp32, rounded once.

    x: [slots, K], fp16, bf16 or fp32, any strides; or, with rows, [tokens, K], of which slot s has row rows[s]. weight:
    [E, K, N] of x's dtype, any strides, E to 256. offsets: [E + 1] int32, from 0, never falling, to slots at most.
    rows: [slots] int32, from 0 to tokens - 1 where a slot is in a group. activation: "swiglu": the weight's first half
    of columns is gate, its second up, and y = silu(gate) * up, rounded once. path: 'decode', 'persistent' or 'hopper'
    (16 bits all), or 'plain', chosen unless given. sms: multiprocessors that it may take, all unless given.

    Returns a contiguous [slots, N], or [slots, N / 2] with an activation; rows of no group, beyond offsets[E], hold
    nothing. Offsets and rows stay on the GPU, unchecked. No gradient: that of x is a product of dy with weight.mT, that
    of the weight is in grouped_matmul_backward.py. Raises ValueError naming the argument.
    """
    _check(x, weight, offsets, rows, activation)
    check_no_grad("grouped_matmul", x=x, weight=weight)
    slots, K, groups = (x if rows is None else rows).shape[0], x.shape[1], weight.shape[0]
    N = weight.shape[2] // (2 if activation else 1)
    y = torch.empty((slots, N), dtype=x.dtype, device=x.device)
    if not y.numel():
        return y
    if not K:
        return y.zero_()
    swiglu = activation is not None
    chosen = _choose(x, weight, y, swiglu, path, sms)
    if chosen.path in DESCRIBED:
        DESCRIBED[chosen.path].launch(x, weight, offsets, rows, y, swiglu, chosen.tile, chosen.programs, chosen.group_m)
        return y
    grouped_matmul_kernel[(chosen.programs,)](
        x,
        weight,
        offsets,
        rows,
        y,
        groups,
        K,
        N,
        *x.stride(),
        *weight.stride(),
        N * weight.stride(2),
        SWIGLU=swiglu,
        EVEN=K % chosen.tile["BLOCK_K"] == 0 and N % chosen.tile["BLOCK_N"] == 0,
        GROUP_M=chosen.group_m,
        BLOCK_E=triton.next_power_of_2(groups),
        **chosen.tile,
    )
    return y
