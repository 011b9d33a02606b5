"""SwiGLU whose result leaves as codes and scales, never in 16 bits; and, by its own file, RMSNorm.

Minimum traffic: gate and up read once; codes and scales written once. Written in 16 bits and quantised by another
kernel, the result would be written and read again: at eight bits a value two launches move 9 bytes a value where one
moves 5.

Arithmetic is fp32 from the loads to the codes. Schemes as in kernels/quantize_schemes.py, but for squares of rows and
columns; where the tensor has a scale, it has to be given: it cannot be known before the last row is. Fused this way by
TensorRT-LLM, vLLM and Transformer Engine.
"""

import torch

from instruments.backend import tl, triton
from instruments.traffic import Traffic
from kernels.arguments import check_no_grad, check_tensor
from kernels.quantize import check_fusible, outputs, with_tensor_scale
from kernels.quantize_codes import coding
from kernels.quantize_plan import fused_traffic, groups_plan, kind, programs_of, quantize_traffic
from kernels.quantize_schemes import Quantized, Scheme, empty, scheme_of
from kernels.quantize_tile import groups_at, quantize_tile, widened
from kernels.rmsnorm_quantize import rmsnorm_quantize, rmsnorm_quantize_traffic
from kernels.rows import RESIDENT_COLS, as_rows
from kernels.swiglu import swiglu_traffic
from kernels.tiles import LOG2E, check_same

__all__ = ["rmsnorm_quantize", "rmsnorm_quantize_traffic", "swiglu_quantize", "swiglu_quantize_traffic"]


@triton.jit
def swiglu_quantize_kernel(
    gate_ptr,
    up_ptr,
    codes_ptr,
    scales_ptr,
    tensor_scale_ptr,
    gate_row_stride,
    gate_col_stride,
    up_row_stride,
    up_col_stride,
    rows,
    cols,
    groups_per_row,
    FORMAT: tl.constexpr,
    SCALE: tl.constexpr,
    LARGEST: tl.constexpr,
    ROUND_UP: tl.constexpr,
    NATIVE: tl.constexpr,
    FLAT: tl.constexpr,
    GROUPS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Groups of BLOCK columns, each with its scale, in a tile [GROUPS, BLOCK]: gate, up [rows, cols] of any strides,
    codes [rows, cols] contiguous, scales [rows, groups_per_row]."""
    first = tl.program_id(0).to(tl.int64) * GROUPS
    top, row, start, count = groups_at(first, rows, cols, groups_per_row, FLAT, GROUPS, BLOCK)  # [GROUPS]
    if FLAT:
        gate_row_stride, up_row_stride, cols = BLOCK, BLOCK, BLOCK
    if SCALE != "tensor":
        scales_ptr += first
    within = tl.arange(0, BLOCK)[None, :]
    mask = within < count[:, None]
    row_at, col = row[:, None], start[:, None] + within
    gate_ptr += top * gate_row_stride
    up_ptr += top * up_row_stride
    gate = tl.load(gate_ptr + (row_at * gate_row_stride + col * gate_col_stride), mask=mask, other=0.0)
    up = tl.load(up_ptr + (row_at * up_row_stride + col * up_col_stride), mask=mask, other=0.0)
    gate, up = widened(gate), widened(up)
    y = gate / (1 + tl.exp2(gate * -LOG2E)) * up
    quantize_tile(
        y, top * cols, row * cols + start, count, tl.arange(0, GROUPS),
        codes_ptr, scales_ptr, tensor_scale_ptr, tensor_scale_ptr,
        FORMAT, SCALE, LARGEST, ROUND_UP, NATIVE, 0, GROUPS, BLOCK,
    )  # fmt: skip


def swiglu_quantize(
    gate: torch.Tensor, up: torch.Tensor, scheme: Scheme | str, *, tensor_scale: torch.Tensor | None = None
) -> Quantized:
    """silu(gate) * up, where silu(g) = g sigmoid(g), quantised.

    gate, up: [..., cols], one shape and dtype, fp16, bf16 or fp32, any strides (the two halves of one projection, for
    example); copied only where their rows cannot be addressed by one stride. cols to 32,768 where a row has one scale.
    tensor_scale: an fp32 scalar, for fp8_tensor and nvfp4. Raises ValueError naming the argument.
    """
    check_tensor("gate", gate)
    check_same("up", up, "gate", gate)
    check_no_grad("swiglu_quantize", gate=gate, up=up)
    scheme = check_fusible("gate", gate, scheme, tensor_scale)
    if kind(scheme, gate.shape[-1]) == "wide rows":
        raise ValueError(f"gate: got {gate.shape[-1]:,} columns for {scheme.name}, expected at most {RESIDENT_COLS:,}")
    q = with_tensor_scale(empty(gate.shape, scheme, gate.device), tensor_scale)
    if gate.numel():
        gate, up = as_rows(gate), as_rows(up)
        contiguous = gate.is_contiguous() and up.is_contiguous()
        place, config = groups_plan(scheme, *gate.shape, contiguous)
        strides = (place["cols"], 1) * 2 if contiguous else (*gate.stride(), *up.stride())
        swiglu_quantize_kernel[(programs_of(place, config),)](
            gate, up, *outputs(q), tensor_scale, *strides, **place, **coding(scheme, gate.device), **config
        )
    return q


def swiglu_quantize_traffic(
    rows: int, cols: int, dtype: torch.dtype, scheme: Scheme | str, path: str | None = "minimum", cached: bool = True
) -> Traffic:
    """What SwiGLU with quantising moves: the 'minimum', each byte once, which `swiglu_quantize` (None) moves, too, or
    'unfused', two kernels. cached: what programs share is counted once; False counts what they ask for."""
    scheme = scheme_of(scheme)
    if path not in ("minimum", "unfused", None):
        raise ValueError(f"path: got {path!r}, expected minimum, unfused or None")
    programs = programs_of(*groups_plan(scheme, rows, cols))
    plain = swiglu_traffic(rows * cols, dtype)
    return fused_traffic(plain, quantize_traffic(rows, cols, dtype, scheme, given=True), programs, path, cached)
