"""RMSNorm and SwiGLU whose result leaves as codes and scales, never in 16 bits.

Minimum traffic: what the operator reads, once; codes and scales written once. Written in 16 bits and quantised by
another kernel, the result would be written and read again: at eight bits a value the two launches move 7 bytes a value
of RMSNorm where one moves 3, and 9 of SwiGLU where one moves 5.

Arithmetic is fp32 from the loads to the codes; the result is not rounded to 16 bits in between. Schemes as in
kernels/quantize_schemes.py, but for squares of rows and columns; where the tensor has a scale, it has to be given: it
cannot be known before the last row is. Fused this way by TensorRT-LLM, vLLM and Transformer Engine.
"""

import torch

from instruments.backend import tl, triton
from instruments.traffic import Traffic
from kernels.arguments import check_no_grad, check_tensor
from kernels.quantize import check_tensor_scale, outputs, with_tensor_scale
from kernels.quantize_codes import coding
from kernels.quantize_plan import groups_plan, kind, programs_of, quantize_traffic
from kernels.quantize_schemes import Quantized, Scheme, check_columns, empty, scheme_of
from kernels.quantize_tile import groups_at, quantize_tile
from kernels.rmsnorm import check_norm, rmsnorm_traffic
from kernels.rows import RESIDENT_COLS, as_rows
from kernels.swiglu import swiglu_traffic
from kernels.tiles import LOG2E, check_same

KEPT_COLS = 1 << 14  # the widest row that RMSNorm keeps in registers beside its codes


@triton.jit
def rmsnorm_quantize_kernel(
    x_ptr,
    weight_ptr,
    codes_ptr,
    scales_ptr,
    tensor_scale_ptr,
    row_stride,
    col_stride,
    cols,
    eps,
    FORMAT: tl.constexpr,
    SCALE: tl.constexpr,
    PACKED: tl.constexpr,
    LARGEST: tl.constexpr,
    LARGEST_BITS: tl.constexpr,
    ROUND_UP: tl.constexpr,
    NATIVE: tl.constexpr,
    GROUPS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """A row, kept in a tile [GROUPS, BLOCK] of groups with a scale each: x [rows, cols] of any strides, weight [cols],
    codes [rows, cols] contiguous, scales [rows, groups]."""
    row = tl.program_id(0).to(tl.int64)
    group = tl.arange(0, GROUPS)
    start = group * BLOCK  # [GROUPS]
    col = start[:, None] + tl.arange(0, BLOCK)[None, :]  # [GROUPS, BLOCK]
    mask = col < cols
    x = tl.load(x_ptr + row * row_stride + col * col_stride, mask=mask, other=0.0).to(tl.float32)
    weight = tl.load(weight_ptr + col, mask=mask, other=0.0).to(tl.float32)
    y = x * tl.rsqrt(tl.sum(tl.sum(x * x, axis=1), axis=0) / cols + eps) * weight
    quantize_tile(
        y, row * cols + start, cols - start, row * tl.cdiv(cols, BLOCK) + group,
        codes_ptr, scales_ptr, tensor_scale_ptr, tensor_scale_ptr,
        FORMAT, SCALE, PACKED, LARGEST, LARGEST_BITS, ROUND_UP, NATIVE, 0, GROUPS, BLOCK,
    )  # fmt: skip


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
    PACKED: tl.constexpr,
    LARGEST: tl.constexpr,
    LARGEST_BITS: tl.constexpr,
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
    gate = tl.load(gate_ptr + (row_at * gate_row_stride + col * gate_col_stride), mask=mask, other=0.0).to(tl.float32)
    up = tl.load(up_ptr + (row_at * up_row_stride + col * up_col_stride), mask=mask, other=0.0).to(tl.float32)
    y = gate / (1 + tl.exp2(gate * -LOG2E)) * up
    quantize_tile(
        y, row * cols + start, count, tl.arange(0, GROUPS),
        codes_ptr + (top * cols // 2 if PACKED else top * cols), scales_ptr, tensor_scale_ptr, tensor_scale_ptr,
        FORMAT, SCALE, PACKED, LARGEST, LARGEST_BITS, ROUND_UP, NATIVE, 0, GROUPS, BLOCK,
    )  # fmt: skip


def _check(name: str, x: torch.Tensor, scheme: Scheme | str, tensor_scale) -> Scheme:
    scheme = scheme_of(scheme)
    check_columns(name, x.shape, scheme)
    how = kind(scheme, x.shape[-1])
    if how == "squares":
        raise ValueError(f"scheme: got {scheme.name}, expected one whose scales are of one row, or given for all")
    if how == "wide rows":
        raise ValueError(f"{name}: got {x.shape[-1]:,} columns for {scheme.name}, expected at most {RESIDENT_COLS:,}")
    if tensor_scale is None and (how == "tensor" or scheme.has_tensor_scale):
        raise ValueError(f"tensor_scale: got None, expected the tensor's scale, which {scheme.name} has to know before")
    check_tensor_scale(tensor_scale, scheme, x)
    return scheme


def rmsnorm_quantize(
    x: torch.Tensor,
    weight: torch.Tensor,
    scheme: Scheme | str,
    eps: float = 1e-6,
    *,
    tensor_scale: torch.Tensor | None = None,
) -> Quantized:
    """x / sqrt(mean(x^2) + eps) * weight over the last dimension, quantised.

    x: [..., cols], fp16, bf16 or fp32, cols to 16,384, any strides; copied only where its rows cannot be addressed by
    one stride. weight: [cols], dtype of x or fp32. tensor_scale: an fp32 scalar, for fp8_tensor and nvfp4. Raises
    ValueError naming the argument.
    """
    check_norm(x, weight, eps, backward=False)
    check_no_grad("rmsnorm_quantize", x=x, weight=weight)
    scheme = _check("x", x, scheme, tensor_scale)
    if x.shape[-1] > KEPT_COLS:
        raise ValueError(f"x: got {x.shape[-1]:,} columns, expected at most {KEPT_COLS:,}")
    q = with_tensor_scale(empty(x.shape, scheme, x.device), tensor_scale)
    if x.numel():
        x = as_rows(x)
        rows, cols = x.shape
        rmsnorm_quantize_kernel[(rows,)](
            x,
            weight.contiguous(),
            *outputs(q),
            tensor_scale,
            *x.stride(),
            cols,
            eps,
            **coding(scheme, x.device),
            **row_tile(scheme, cols),
        )
    return q


def row_tile(scheme: Scheme, cols: int) -> dict:
    """The tile of a whole row, by groups, and its warps."""
    size = max(16, triton.next_power_of_2(cols))
    block = min(size, scheme.block[1] or size)
    return {"GROUPS": size // block, "BLOCK": block, "num_warps": min(16, max(1, size // 512))}


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
    scheme = _check("gate", gate, scheme, tensor_scale)
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


def _fused(plain: Traffic, quantising: Traffic, programs: int, path: str | None, cached: bool) -> Traffic:
    """One launch that reads what the plain operator reads and writes what quantising writes, or the two launches."""
    if path == "unfused":
        return plain + quantising
    if path not in ("minimum", None):
        raise ValueError(f"path: got {path!r}, expected minimum, unfused or None")
    given = {name: 4 if cached else 4 * programs for name in quantising.read if name == "tensor_scale"}
    return Traffic(plain.read | given, quantising.written, plain.flops + quantising.flops, launches=1)


def rmsnorm_quantize_traffic(
    rows: int, cols: int, dtype: torch.dtype, scheme: Scheme | str, path: str | None = "minimum", cached: bool = True
) -> Traffic:
    """What RMSNorm with quantising moves: the 'minimum', each byte once, which `rmsnorm_quantize` (None) moves, too, or
    'unfused', the two kernels. cached: what programs share is counted once; False counts what they ask for."""
    scheme = scheme_of(scheme)
    given = scheme.has_tensor_scale or scheme.block == (None, None)
    plain = rmsnorm_traffic(rows, cols, dtype)
    if path is None and not cached:
        plain = Traffic(
            plain.read | {"weight": plain.read["weight"] * rows}, plain.written, plain.flops, plain.launches
        )
    return _fused(plain, quantize_traffic(rows, cols, dtype, scheme, given=given), rows, path, cached)


def swiglu_quantize_traffic(
    rows: int, cols: int, dtype: torch.dtype, scheme: Scheme | str, path: str | None = "minimum", cached: bool = True
) -> Traffic:
    """What SwiGLU with quantising moves; paths as for `rmsnorm_quantize_traffic`."""
    scheme = scheme_of(scheme)
    given = scheme.has_tensor_scale or scheme.block == (None, None)
    programs = programs_of(*groups_plan(scheme, rows, cols))
    plain = swiglu_traffic(rows * cols, dtype)
    return _fused(plain, quantize_traffic(rows, cols, dtype, scheme, given=given), programs, path, cached)
