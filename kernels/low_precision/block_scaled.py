"""FP8 matmul with a scale per 1 x 128 block of x and per 128 x 128 block of weight: DeepSeek-V3's recipe.

Minimum traffic: codes and scales read once, y written once. A scale that changes along K does not factor out of the
sum: the matmul of each 128 columns is multiplied by its two scales and added to an fp32 accumulator in registers. This
also promotes the tensor core's sum, so that Hopper's short FP8 accumulator costs little accuracy here (ablation.py).

Blocks and promotion follow DeepSeek-V3's technical report (2024) and its DeepGEMM (2025). hopper.py has the Gluon
kernel for Hopper, in which one warpgroup promotes while another multiplies.
"""

from math import ceil

import torch

from instruments.backend import tl, triton
from instruments.traffic import Traffic
from kernels.low_precision.scaled import (
    GROUP_M,
    TILE,
    load_codes,
    plan_matmul,
    plan_of,
    scaled_matmul_reference,
    scaled_matmul_traffic,
)
from kernels.matmul.tile_order import grouped_tile
from kernels.quantization.codes import as_bytes
from kernels.quantization.schemes import SCHEMES, Quantized

X_SCHEME, WEIGHT_SCHEME = "fp8_1x128", "fp8_128x128"
assert (TILE["BLOCK_N"], TILE["BLOCK_K"]) == SCHEMES[WEIGHT_SCHEME].block  # a tile of weight has one scale

block_scaled_matmul_reference = scaled_matmul_reference


@triton.jit
def block_scaled_matmul_kernel(
    x_ptr, weight_ptr, x_scale_ptr, weight_scale_ptr, y_ptr,
    M, N, K,
    EMULATED: tl.constexpr,
    GROUP_M: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """One tile of y per program; the matmul of each block of K is scaled and added to an fp32 accumulator.

    Args:
        x_ptr: [M, K], E4M3, contiguous; uint8 where EMULATED.
        weight_ptr: [N, K], likewise.
        x_scale_ptr: [M, ceil(K / BLOCK_K)], fp32, contiguous.
        weight_scale_ptr: [ceil(N / BLOCK_N), ceil(K / BLOCK_K)], fp32, contiguous.
        y_ptr: [M, N], bf16, fp16 or fp32, contiguous.
        EMULATED: whether the GPU has no FP8 instruction, so that codes are decoded to fp16.
    """
    tile_m, tile_n = grouped_tile(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    row = tile_m.to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)  # [BLOCK_M]
    col = tile_n.to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)  # [BLOCK_N]
    k = tl.arange(0, BLOCK_K)  # [BLOCK_K]
    x_ptrs = x_ptr + row[:, None] * K + k[None, :]  # [BLOCK_M, BLOCK_K]
    weight_ptrs = weight_ptr + col[None, :] * K + k[:, None]  # [BLOCK_K, BLOCK_N]
    blocks = tl.cdiv(K, BLOCK_K)
    x_scale_ptrs = x_scale_ptr + row * blocks  # [BLOCK_M]
    weight_scale_ptr += tile_n.to(tl.int64) * blocks
    acc = tl.zeros([BLOCK_M, BLOCK_N], dtype=tl.float32)
    for block in tl.range(0, blocks):
        k_mask = k < K - block * BLOCK_K
        x = load_codes(x_ptrs, (row < M)[:, None] & k_mask[None, :], EMULATED)
        weight = load_codes(weight_ptrs, k_mask[:, None] & (col < N)[None, :], EMULATED)
        x_scale = tl.load(x_scale_ptrs + block, mask=row < M, other=0.0)  # [BLOCK_M]
        weight_scale = tl.load(weight_scale_ptr + block)  # one for the whole tile
        acc += tl.dot(x, weight) * (x_scale * weight_scale)[:, None]
        x_ptrs += BLOCK_K
        weight_ptrs += BLOCK_K
    mask = (row < M)[:, None] & (col < N)[None, :]
    tl.store(y_ptr + row[:, None] * N + col[None, :], acc.to(y_ptr.dtype.element_ty), mask=mask)


def block_scaled_matmul(
    x: Quantized, weight: Quantized, *, out_dtype: torch.dtype = torch.bfloat16, path: str | None = None
) -> torch.Tensor:
    """x @ weight.T of two FP8 matrices with block scales, accumulated in fp32 and rounded once.

    Args:
        x: [..., K], in scheme fp8_1x128.
        weight: [N, K], in scheme fp8_128x128.
        out_dtype: bf16, fp16 or fp32.
        path: 'plain' or 'hopper' (hopper.py); None takes hopper where it can.

    Returns:
        [..., N], contiguous, of out_dtype.

    Raises:
        ValueError: names the argument.
    """
    plan = plan_matmul(x, weight, (X_SCHEME,), (WEIGHT_SCHEME,), out_dtype, path)
    (M, K), N = x.codes.shape, weight.codes.shape[0]
    y = torch.empty((M, N), dtype=out_dtype, device=x.codes.device)
    if not K:
        y.zero_()
    elif plan:
        plan(x, weight, y)
    elif y.numel():
        tile, emulated = plan_of(y.device)
        codes = (as_bytes(q.codes) if emulated else q.codes for q in (x, weight))
        grid = (ceil(M / tile["BLOCK_M"]) * ceil(N / tile["BLOCK_N"]),)
        block_scaled_matmul_kernel[grid](
            *codes, x.scales, weight.scales, y, M, N, K, EMULATED=emulated, GROUP_M=GROUP_M, **tile
        )
    return y.view(*x.shape[:-1], N)


def block_scaled_matmul_traffic(
    M: int, N: int, K: int, out_dtype: torch.dtype = torch.bfloat16, *, path: str | None = "minimum"
) -> Traffic:
    """What the matmul moves; arguments as of `scaled_matmul_traffic`."""
    return scaled_matmul_traffic(M, N, K, X_SCHEME, WEIGHT_SCHEME, out_dtype, path=path)
