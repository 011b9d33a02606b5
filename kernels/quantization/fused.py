"""Quantization as the epilogue of RMSNorm and of SwiGLU: the result leaves as codes and scales, never in 16 bits.

Minimum traffic: the operator's inputs read once; codes and scales written once. Unfused, one kernel writes the result
in 16 bits and another reads it again: at 8 bits per value RMSNorm then moves 7 bytes per value instead of 3, SwiGLU 9
instead of 5. RMSNorm keeps a row in registers and reads it once; it streams a wider row twice, the second time
backwards, to find in L1 and L2 what it read last.

Arithmetic is fp32 from the loads to the codes. In RMSNorm, where a row has one scale, its max |x * weight| is reduced
together with its sum of squares, in one pass over the registers, and each value is multiplied once by all factors that
its row shares. Scales are those of schemes.py, except for square blocks; a tensor's scale must be given, since no
program can know it before the last row is done. TensorRT-LLM, vLLM and Transformer Engine fuse the same way.
"""

from math import ceil

import torch

from instruments.backend import next_power_of_2, tl, triton
from instruments.traffic import Traffic
from kernels.elementwise.swiglu import swiglu_traffic
from kernels.norms.rmsnorm import check_norm, rmsnorm_traffic
from kernels.quantization.codes import (
    absmax,
    block_scale,
    locate_groups,
    max_or_nan,
    quantize_tile,
    scheme_constants,
    store_codes,
    to_fp32,
)
from kernels.quantization.quantize import (
    CHUNK,
    PER_WARP,
    check_tensor_scale,
    granularity,
    groups_plan,
    outputs,
    quantize_traffic,
    with_tensor_scale,
)
from kernels.quantization.schemes import Quantized, Scheme, check_columns, empty, scheme_of
from kernels.shared.arguments import check_no_grad, check_tensor
from kernels.shared.rows import MAX_COLS, RESIDENT_COLS, RowPath, RowPlan, always, as_rows, row_plan
from kernels.shared.tiles import LOG2E, check_same

NORM_RESIDENT_COLS = 1 << 14  # the widest row of a norm that fits in registers together with its codes
STREAM_TILE, STREAM_WARPS = 4096, 8  # columns of a tile of a streamed row


@triton.jit
def swiglu_quantize_kernel(
    gate_ptr, up_ptr, codes_ptr, scales_ptr, tensor_scale_ptr,
    gate_row_stride, gate_col_stride, up_row_stride, up_col_stride,
    rows, cols, groups_per_row,
    FORMAT: tl.constexpr, SCALE: tl.constexpr, LARGEST: tl.constexpr, ROUND_UP: tl.constexpr, NATIVE: tl.constexpr,
    FLAT: tl.constexpr, GROUPS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Groups of BLOCK columns, each with its scale, in a tile [GROUPS, BLOCK].

    gate and up [rows, cols] of any strides; codes [rows, cols], contiguous; scales [rows, groups_per_row].
    """
    first = tl.program_id(0).to(tl.int64) * GROUPS
    top, row, start, count = locate_groups(first, rows, cols, groups_per_row, FLAT, GROUPS, BLOCK)  # [GROUPS]
    if FLAT:
        gate_row_stride, up_row_stride, cols = BLOCK, BLOCK, BLOCK
    if SCALE != "tensor":
        scales_ptr += first
    local = tl.arange(0, BLOCK)[None, :]
    mask = local < count[:, None]
    row_at, col = row[:, None], start[:, None] + local
    gate_ptr += top * gate_row_stride
    up_ptr += top * up_row_stride
    gate = tl.load(gate_ptr + (row_at * gate_row_stride + col * gate_col_stride), mask=mask, other=0.0)
    up = tl.load(up_ptr + (row_at * up_row_stride + col * up_col_stride), mask=mask, other=0.0)
    gate, up = to_fp32(gate), to_fp32(up)
    y = gate / (1 + tl.exp2(gate * -LOG2E)) * up
    quantize_tile(
        y, top * cols, row * cols + start, count, tl.arange(0, GROUPS),
        codes_ptr, scales_ptr, tensor_scale_ptr, tensor_scale_ptr,
        FORMAT, SCALE, LARGEST, ROUND_UP, NATIVE, 0, GROUPS, BLOCK,
    )  # fmt: skip


@triton.jit
def _sum_and_max(a, b, c, d):
    """Of the pairs (a, b) and (c, d): the sum of the first and the larger of the second, NaN if either is."""
    return a + c, max_or_nan(b, d)


@triton.jit
def rmsnorm_quantize_resident_kernel(
    x_ptr, weight_ptr, codes_ptr, scales_ptr, tensor_scale_ptr,
    row_stride, col_stride,
    cols, eps,
    FORMAT: tl.constexpr, SCALE: tl.constexpr, LARGEST: tl.constexpr, ROUND_UP: tl.constexpr, NATIVE: tl.constexpr,
    OF_ROW: tl.constexpr, EVEN: tl.constexpr, GROUPS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One row in registers, in a tile [GROUPS, BLOCK] of groups with a scale each.

    x [rows, cols] of any strides; weight [cols]; codes [rows, cols], contiguous; scales [rows, groups]. OF_ROW: one
    scale for the row and none for groups. EVEN: the tile is as wide as the row.
    """
    row = tl.program_id(0).to(tl.int64)
    group = tl.arange(0, GROUPS)
    start = group * BLOCK  # [GROUPS]
    col = start[:, None] + tl.arange(0, BLOCK)[None, :]  # [GROUPS, BLOCK]
    if EVEN:
        cols = GROUPS * BLOCK  # a constant, so that the compiler drops the masks
    mask = col < cols
    x = to_fp32(tl.load(x_ptr + row * row_stride + col * col_stride, mask=mask, other=0.0))
    weight = to_fp32(tl.load(weight_ptr + col, mask=mask, other=0.0, eviction_policy="evict_last"))
    y, squares = x * weight, tl.reshape(x * x, [GROUPS * BLOCK])
    if OF_ROW:
        squares, amax = tl.reduce((squares, tl.reshape(tl.abs(y), [GROUPS * BLOCK])), 0, _sum_and_max)
        norm = tl.rsqrt(squares / cols + eps)
        scale, inverse = block_scale(amax * norm, 1.0, SCALE, LARGEST, ROUND_UP, NATIVE)
        tl.store(scales_ptr + row, scale)
        store_codes(
            codes_ptr, row * cols, start, cols - start, y * (norm * inverse), FORMAT, LARGEST, NATIVE, GROUPS, BLOCK
        )
    else:
        norm = tl.rsqrt(tl.sum(squares, axis=0) / cols + eps)
        quantize_tile(
            y * norm, row * cols, start, cols - start, row * tl.cdiv(cols, BLOCK) + group,
            codes_ptr, scales_ptr, tensor_scale_ptr, tensor_scale_ptr,
            FORMAT, SCALE, LARGEST, ROUND_UP, NATIVE, 0, GROUPS, BLOCK,
        )  # fmt: skip


@triton.jit
def rmsnorm_quantize_streaming_kernel(
    x_ptr, weight_ptr, codes_ptr, scales_ptr, tensor_scale_ptr,
    row_stride, col_stride,
    cols, eps,
    FORMAT: tl.constexpr, SCALE: tl.constexpr, LARGEST: tl.constexpr, ROUND_UP: tl.constexpr, NATIVE: tl.constexpr,
    OF_ROW: tl.constexpr, GROUPS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One row, read twice in tiles [GROUPS, BLOCK]; tensors and OF_ROW as for the resident kernel."""
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * row_stride
    group, local = tl.arange(0, GROUPS), tl.arange(0, BLOCK)[None, :]
    squares = tl.zeros([GROUPS, BLOCK], dtype=tl.float32)
    running_max = tl.zeros([GROUPS, BLOCK], dtype=tl.float32)
    for first in tl.range(0, cols, GROUPS * BLOCK):
        col = first + group[:, None] * BLOCK + local  # [GROUPS, BLOCK]
        x = tl.load(x_ptr + col * col_stride, mask=col < cols, other=0.0, eviction_policy="evict_last")
        x = to_fp32(x)
        squares += x * x
        if OF_ROW:
            weight = tl.load(weight_ptr + col, mask=col < cols, other=0.0, eviction_policy="evict_last").to(tl.float32)
            running_max = tl.maximum(running_max, tl.abs(x * weight), propagate_nan=tl.PropagateNan.ALL)
    norm = tl.rsqrt(tl.sum(tl.sum(squares, axis=1), axis=0) / cols + eps)
    if OF_ROW:
        amax = absmax(absmax(running_max, 1), 0) * norm
        scale, inverse = block_scale(amax, 1.0, SCALE, LARGEST, ROUND_UP, NATIVE)
        tl.store(scales_ptr + row, scale)
        inverse *= norm
    last = (tl.cdiv(cols, GROUPS * BLOCK) - 1) * (GROUPS * BLOCK)
    for back in tl.range(0, cols, GROUPS * BLOCK):  # backwards: a cache still holds what was read last
        start = last - back + group * BLOCK  # [GROUPS]
        col = start[:, None] + local
        x = tl.load(x_ptr + col * col_stride, mask=col < cols, other=0.0, eviction_policy="evict_first").to(tl.float32)
        weight = tl.load(weight_ptr + col, mask=col < cols, other=0.0, eviction_policy="evict_last").to(tl.float32)
        count = cols - start
        if OF_ROW:
            store_codes(
                codes_ptr, row * cols, start, count, x * weight * inverse, FORMAT, LARGEST, NATIVE, GROUPS, BLOCK
            )
        else:
            quantize_tile(
                x * weight * norm, row * cols, start, count, row * tl.cdiv(cols, BLOCK) + start // BLOCK,
                codes_ptr, scales_ptr, tensor_scale_ptr, tensor_scale_ptr,
                FORMAT, SCALE, LARGEST, ROUND_UP, NATIVE, 0, GROUPS, BLOCK,
            )  # fmt: skip


def check_fusible(name: str, x: torch.Tensor, scheme: Scheme | str, tensor_scale) -> Scheme:
    """The scheme; ValueError unless an operator over rows of x can store its result in it."""
    scheme = scheme_of(scheme)
    check_columns(name, x.shape, scheme)
    shares_scale = granularity(scheme, x.shape[-1])
    if shares_scale == "squares":
        raise ValueError(f"scheme: got {scheme.name}, expected one whose scales are of one row, or given for all")
    if tensor_scale is None and (shares_scale == "tensor" or scheme.has_tensor_scale):
        raise ValueError(f"tensor_scale: got None, expected the tensor's scale, which {scheme.name} has to know before")
    check_tensor_scale(tensor_scale, scheme, x)
    return scheme


def swiglu_quantize(
    gate: torch.Tensor, up: torch.Tensor, scheme: Scheme | str, *, tensor_scale: torch.Tensor | None = None
) -> Quantized:
    """silu(gate) * up, quantized; silu(g) = g sigmoid(g).

    Args:
        gate: [..., cols], fp16, bf16 or fp32, of any strides; cols up to 32,768 where a row has one scale.
        up: like gate; the two may be halves of one projection.
        scheme: a Scheme, or the name of one of SCHEMES; no square blocks.
        tensor_scale: scalar, fp32, required for fp8_tensor and nvfp4.

    Returns:
        A Quantized of gate's shape.

    Raises:
        ValueError: names the argument.

    Note:
        gate and up are copied only where one stride cannot address their rows.
    """
    check_tensor("gate", gate)
    check_same("up", up, "gate", gate)
    check_no_grad("swiglu_quantize", gate=gate, up=up)
    scheme = check_fusible("gate", gate, scheme, tensor_scale)
    if granularity(scheme, gate.shape[-1]) == "wide rows":
        raise ValueError(f"gate: got {gate.shape[-1]:,} columns for {scheme.name}, expected at most {RESIDENT_COLS:,}")
    q = with_tensor_scale(empty(gate.shape, scheme, gate.device), tensor_scale)
    if gate.numel():
        gate, up = as_rows(gate), as_rows(up)
        contiguous = gate.is_contiguous() and up.is_contiguous()
        sizes, config, programs = groups_plan(scheme, *gate.shape, contiguous)
        strides = (sizes["cols"], 1) * 2 if contiguous else (*gate.stride(), *up.stride())
        swiglu_quantize_kernel[(programs,)](
            gate, up, *outputs(q), tensor_scale, *strides, **sizes, **scheme_constants(scheme, gate.device), **config
        )
    return q


def _resident(cols: int, itemsize: int, group: int | None) -> dict:
    """The whole row, in groups of `group` columns, or as one."""
    size = max(16, next_power_of_2(cols))
    block = min(size, group or size)
    warps = max(1, min(4, size // PER_WARP), size // (2 * PER_WARP))  # wide rows amortize the reduction across warps
    return {"config": {"GROUPS": size // block, "BLOCK": block, "num_warps": warps}}


def _streaming(cols: int, itemsize: int, group: int | None) -> dict:
    """Tiles of STREAM_TILE columns."""
    block = group or CHUNK
    return {"config": {"GROUPS": STREAM_TILE // block, "BLOCK": block, "num_warps": STREAM_WARPS}}


PATHS = (
    # name, max_cols, applies, layout, passes
    RowPath("resident", NORM_RESIDENT_COLS, lambda cols, nbytes: cols <= NORM_RESIDENT_COLS, _resident, 1),
    RowPath("streaming", MAX_COLS, always, _streaming, 2),
)


def _plan(scheme: Scheme, cols: int, itemsize: int, path: str | None) -> RowPlan:
    """The row plan of `rmsnorm_quantize`."""
    return row_plan(PATHS, cols, itemsize, path, scheme.block[1])


def rmsnorm_quantize(
    x: torch.Tensor,
    weight: torch.Tensor,
    scheme: Scheme | str,
    eps: float = 1e-6,
    *,
    tensor_scale: torch.Tensor | None = None,
    path: str | None = None,
) -> Quantized:
    """x / sqrt(mean(x^2) + eps) * weight over the last dimension, quantized.

    Args:
        x: [..., cols], fp16, bf16 or fp32, of any strides; cols from 1 to 1,048,576.
        weight: [cols], x's dtype or fp32.
        scheme: a Scheme, or the name of one of SCHEMES; no square blocks.
        eps: added to the mean of squares.
        tensor_scale: scalar, fp32, required for fp8_tensor and nvfp4.
        path: 'resident' (the row stays in registers) or 'streaming' (it is read twice); None chooses by the width.

    Returns:
        A Quantized of x's shape.

    Raises:
        ValueError: names the argument.

    Note:
        x is copied only where one stride cannot address its rows.
    """
    check_norm(x, weight, eps, backward=False)
    check_no_grad("rmsnorm_quantize", x=x, weight=weight)
    scheme = check_fusible("x", x, scheme, tensor_scale)
    q = with_tensor_scale(empty(x.shape, scheme, x.device), tensor_scale)
    if x.numel():
        x = as_rows(x)
        rows, cols = x.shape
        layout = _plan(scheme, cols, x.itemsize, path)
        tensors = (x, weight.contiguous(), *outputs(q), tensor_scale, *x.stride(), cols, eps)
        constants = scheme_constants(scheme, x.device) | layout.config | {"OF_ROW": scheme.block == (1, None)}
        if layout.path == "resident":
            even = layout.config["GROUPS"] * layout.config["BLOCK"] == cols
            rmsnorm_quantize_resident_kernel[(rows,)](*tensors, EVEN=even, **constants)
        else:
            rmsnorm_quantize_streaming_kernel[(rows,)](*tensors, **constants)
    return q


def _fused_traffic(plain: Traffic, quantization: Traffic, loads: int, path: str | None, cached: bool) -> Traffic:
    """The operator's reads and the quantization's writes in one launch, or both. loads: of the tensor's scale."""
    if path == "unfused":
        return plain + quantization
    scale = {name: 4 if cached else 4 * loads for name in quantization.read if name == "tensor_scale"}
    return Traffic(plain.read | scale, quantization.written, plain.flops + quantization.flops, launches=1)


def swiglu_quantize_traffic(
    rows: int, cols: int, dtype: torch.dtype, scheme: Scheme | str, path: str | None = "minimum", cached: bool = True
) -> Traffic:
    """What SwiGLU of gate and up [rows, cols], quantized, moves.

    Args:
        rows, cols, dtype: of gate and up.
        scheme: a Scheme, or the name of one of SCHEMES.
        path: 'minimum', each byte once; 'unfused', two kernels; None, what `swiglu_quantize` does.
        cached: count what programs share once; False counts requested bytes, before the caches.
    """
    scheme = scheme_of(scheme)
    if path not in ("minimum", "unfused", None):
        raise ValueError(f"path: got {path!r}, expected minimum, unfused or None")
    programs = groups_plan(scheme, rows, cols)[2]
    plain = swiglu_traffic(rows * cols, dtype)
    return _fused_traffic(plain, quantize_traffic(rows, cols, dtype, scheme, static_scale=True), programs, path, cached)


def rmsnorm_quantize_traffic(
    rows: int, cols: int, dtype: torch.dtype, scheme: Scheme | str, path: str | None = "minimum", cached: bool = True
) -> Traffic:
    """What RMSNorm of x [rows, cols], quantized, moves.

    Args:
        rows, cols, dtype: of x.
        scheme: a Scheme, or the name of one of SCHEMES.
        path: 'minimum', each byte once; 'unfused', two kernels; 'resident' or 'streaming', as in `rmsnorm_quantize`,
            None for the one that it chooses.
        cached: count what programs share once; False counts requested bytes, before the caches.
    """
    scheme = scheme_of(scheme)
    plain, loads = rmsnorm_traffic(rows, cols, dtype), rows
    if path not in ("minimum", "unfused"):
        layout = _plan(scheme, cols, dtype.itemsize, path)
        plain.read["x"] *= layout.passes
        streaming = layout.path == "streaming"
        if not cached:
            plain.read["weight"] *= rows * (1 + (streaming and scheme.block == (1, None)))
        loads *= ceil(cols / STREAM_TILE) if streaming else 1  # of the tensor's scale, with every tile
    return _fused_traffic(plain, quantize_traffic(rows, cols, dtype, scheme, static_scale=True), loads, path, cached)
