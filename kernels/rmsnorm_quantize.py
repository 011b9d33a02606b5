"""RMSNorm whose result leaves as codes and scales, never in 16 bits.

Minimum traffic: x and the weight read once; codes and scales written once. Written in 16 bits and quantised by another
kernel, the result would be written and read again: at eight bits a value two launches move 7 bytes a value where one
moves 3. A row that stays in registers is read once; a wider one is streamed twice, the second time backwards, from what
L1 and L2 still hold of it.

Arithmetic is fp32 from the loads to the codes. Where a row has one scale, its largest |x * weight| is found together
with the sum of its squares, in one pass over the registers, and a value is multiplied once by all that its row shares.
Schemes as in kernels/quantize_schemes.py, but for squares of rows and columns; where the tensor has a scale, it has to
be given: it cannot be known before the last row is. Fused this way by TensorRT-LLM, vLLM and Transformer Engine.
"""

from math import ceil

import torch

from instruments.backend import tl, triton
from instruments.traffic import Traffic
from kernels.arguments import check_no_grad
from kernels.quantize import check_fusible, outputs, with_tensor_scale
from kernels.quantize_codes import block_scale, coding, larger, largest_magnitude
from kernels.quantize_plan import CHUNK, PER_WARP, fused_traffic, quantize_traffic
from kernels.quantize_schemes import Quantized, Scheme, empty, scheme_of
from kernels.quantize_tile import quantize_tile, store_codes, widened
from kernels.rmsnorm import check_norm, rmsnorm_traffic
from kernels.rows import MAX_COLS, Path, Plan, always, as_rows, plan

KEPT_COLS = 1 << 14  # the widest row that stays in registers beside its codes
STEP, STEP_WARPS = 4096, 8  # columns of a tile of a row that is streamed


@triton.jit
def _sum_and_largest(a, b, c, d):
    """Of two pairs, the sum of the first numbers and the larger of the second; NaN where one of these is."""
    return a + c, larger(b, d)


@triton.jit
def rmsnorm_quantize_resident_kernel(
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
    LARGEST: tl.constexpr,
    ROUND_UP: tl.constexpr,
    NATIVE: tl.constexpr,
    OF_ROW: tl.constexpr,
    EVEN: tl.constexpr,
    GROUPS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """A row, kept in a tile [GROUPS, BLOCK] of groups with a scale each: x [rows, cols] of any strides, weight [cols],
    codes [rows, cols] contiguous, scales [rows, groups]. OF_ROW: the row has one scale, and the groups have none. EVEN:
    the tile has as many columns as the row."""
    row = tl.program_id(0).to(tl.int64)
    group = tl.arange(0, GROUPS)
    start = group * BLOCK  # [GROUPS]
    col = start[:, None] + tl.arange(0, BLOCK)[None, :]  # [GROUPS, BLOCK]
    if EVEN:
        cols = GROUPS * BLOCK  # known to the compiler, to which no mask is left
    mask = col < cols
    x = widened(tl.load(x_ptr + row * row_stride + col * col_stride, mask=mask, other=0.0))
    weight = widened(tl.load(weight_ptr + col, mask=mask, other=0.0, eviction_policy="evict_last"))
    y, squares = x * weight, tl.reshape(x * x, [GROUPS * BLOCK])
    if OF_ROW:
        squares, amax = tl.reduce((squares, tl.reshape(tl.abs(y), [GROUPS * BLOCK])), 0, _sum_and_largest)
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
    LARGEST: tl.constexpr,
    ROUND_UP: tl.constexpr,
    NATIVE: tl.constexpr,
    OF_ROW: tl.constexpr,
    GROUPS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """A row, read twice in tiles [GROUPS, BLOCK]; tensors as for the resident kernel. OF_ROW: the row has one scale,
    and the groups have none."""
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * row_stride
    group, within = tl.arange(0, GROUPS), tl.arange(0, BLOCK)[None, :]
    squares = tl.zeros([GROUPS, BLOCK], dtype=tl.float32)
    largest = tl.zeros([GROUPS, BLOCK], dtype=tl.float32)
    for first in tl.range(0, cols, GROUPS * BLOCK):
        col = first + group[:, None] * BLOCK + within  # [GROUPS, BLOCK]
        x = tl.load(x_ptr + col * col_stride, mask=col < cols, other=0.0, eviction_policy="evict_last")
        x = widened(x)
        squares += x * x
        if OF_ROW:
            weight = tl.load(weight_ptr + col, mask=col < cols, other=0.0, eviction_policy="evict_last").to(tl.float32)
            largest = tl.maximum(largest, tl.abs(x * weight), propagate_nan=tl.PropagateNan.ALL)
    norm = tl.rsqrt(tl.sum(tl.sum(squares, axis=1), axis=0) / cols + eps)
    if OF_ROW:
        amax = largest_magnitude(largest_magnitude(largest, 1), 0) * norm
        scale, inverse = block_scale(amax, 1.0, SCALE, LARGEST, ROUND_UP, NATIVE)
        tl.store(scales_ptr + row, scale)
        inverse *= norm
    last = (tl.cdiv(cols, GROUPS * BLOCK) - 1) * (GROUPS * BLOCK)
    for back in tl.range(0, cols, GROUPS * BLOCK):  # backwards: what was read last is what a cache still has
        start = last - back + group * BLOCK  # [GROUPS]
        col = start[:, None] + within
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


def _resident(cols: int, itemsize: int, group: int | None) -> dict:
    """The whole row, by groups of `group` columns, or as one."""
    size = max(16, triton.next_power_of_2(cols))
    block = min(size, group or size)
    warps = max(1, min(4, size // PER_WARP), size // (2 * PER_WARP))  # what warps add up together costs wide rows less
    return {"config": {"GROUPS": size // block, "BLOCK": block, "num_warps": warps}}


def _streaming(cols: int, itemsize: int, group: int | None) -> dict:
    block = group or CHUNK
    return {"config": {"GROUPS": STEP // block, "BLOCK": block, "num_warps": STEP_WARPS}}


PATHS = (
    # path, takes, chosen, layout, passes
    Path("resident", KEPT_COLS, lambda cols, nbytes: cols <= KEPT_COLS, _resident, 1),
    Path("streaming", MAX_COLS, always, _streaming, 2),
)


def _plan(scheme: Scheme, cols: int, itemsize: int, path: str | None) -> Plan:
    return plan(PATHS, cols, itemsize, path, scheme.block[1])


def rmsnorm_quantize(
    x: torch.Tensor,
    weight: torch.Tensor,
    scheme: Scheme | str,
    eps: float = 1e-6,
    *,
    tensor_scale: torch.Tensor | None = None,
    path: str | None = None,
) -> Quantized:
    """x / sqrt(mean(x^2) + eps) * weight over the last dimension, quantised.

    x: [..., cols], fp16, bf16 or fp32, cols 1 to 1,048,576, any strides; copied only where its rows cannot be addressed
    by one stride. weight: [cols], dtype of x or fp32. tensor_scale: an fp32 scalar, for fp8_tensor and nvfp4. path:
    which kernel runs, chosen by the width unless given: 'resident' (a row is kept) or 'streaming' (read twice). Raises
    ValueError naming the argument.
    """
    check_norm(x, weight, eps, backward=False)
    check_no_grad("rmsnorm_quantize", x=x, weight=weight)
    scheme = check_fusible("x", x, scheme, tensor_scale)
    q = with_tensor_scale(empty(x.shape, scheme, x.device), tensor_scale)
    if x.numel():
        x = as_rows(x)
        rows, cols = x.shape
        chosen = _plan(scheme, cols, x.itemsize, path)
        tensors = (x, weight.contiguous(), *outputs(q), tensor_scale, *x.stride(), cols, eps)
        settings = coding(scheme, x.device) | chosen.config | {"OF_ROW": scheme.block == (1, None)}
        if chosen.path == "resident":
            even = chosen.config["GROUPS"] * chosen.config["BLOCK"] == cols
            rmsnorm_quantize_resident_kernel[(rows,)](*tensors, EVEN=even, **settings)
        else:
            rmsnorm_quantize_streaming_kernel[(rows,)](*tensors, **settings)
    return q


def rmsnorm_quantize_traffic(
    rows: int, cols: int, dtype: torch.dtype, scheme: Scheme | str, path: str | None = "minimum", cached: bool = True
) -> Traffic:
    """What RMSNorm with quantising moves: the 'minimum', each byte once; 'unfused', two kernels; or a path of
    `rmsnorm_quantize`'s, None for the one that it chooses.

    cached: what programs share is counted once; False counts what they ask for.
    """
    scheme = scheme_of(scheme)
    plain, asked = rmsnorm_traffic(rows, cols, dtype), rows
    if path not in ("minimum", "unfused"):
        chosen = _plan(scheme, cols, dtype.itemsize, path)
        plain.read["x"] *= chosen.passes
        streamed = chosen.path == "streaming"
        if not cached:
            plain.read["weight"] *= rows * (1 + (streamed and scheme.block == (1, None)))
        asked *= ceil(cols / STEP) if streamed else 1  # for the tensor's scale, with every tile
    return fused_traffic(plain, quantize_traffic(rows, cols, dtype, scheme, given=True), asked, path, cached)
