"""FP8 matrix product with a scale for each 1x128 block of x and each 128x128 block of weight: DeepSeek-V3's recipe.

Minimum traffic: codes and scales read once, y written once. A scale that changes along K cannot wait for the end of the
sum: what 128 columns gave is multiplied by its two scales and added to a sum in fp32 registers. That is also where the
matrix unit's short sum is promoted, so that Hopper's FP8 instructions lose little here (kernels/fp8_accumulator.py).

Blocks and promotion follow DeepSeek-V3's technical report (2024) and its DeepGEMM (2025). The Gluon kernel for Hopper,
which promotes one warpgroup's sum under another's product, is in fp8_hopper.py.
"""

import torch

from instruments.backend import tl, triton
from instruments.traffic import Traffic
from kernels import fp8_hopper
from kernels.matmul_order import grouped_tile
from kernels.quantize_codes import as_bytes
from kernels.quantize_schemes import SCHEMES, Quantized
from kernels.scaled_matmul import (
    GROUP_M,
    TILE,
    check_product,
    choose,
    load_codes,
    plan_of,
    scaled_matmul_reference,
    scaled_matmul_traffic,
)

X_SCHEME, WEIGHT_SCHEME = "fp8_1x128", "fp8_128x128"
assert (TILE["BLOCK_N"], TILE["BLOCK_K"]) == SCHEMES[WEIGHT_SCHEME].block  # a tile of weight has one scale

block_scaled_matmul_reference = scaled_matmul_reference


@triton.jit
def block_scaled_matmul_kernel(
    x_ptr,
    weight_ptr,
    x_scale_ptr,
    weight_scale_ptr,
    y_ptr,
    M,
    N,
    K,
    EMULATED: tl.constexpr,
    GROUP_M: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """x [M, K], weight [N, K], y [M, N], x_scale [M, blocks], weight_scale [N / BLOCK_N, blocks], blocks = K / BLOCK_K,
    both rounded up; all contiguous. A tile of y per program."""
    tile_m, tile_n = grouped_tile(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    row = tile_m.to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)  # [BLOCK_M]
    col = tile_n.to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)  # [BLOCK_N]
    k = tl.arange(0, BLOCK_K)  # [BLOCK_K]
    x_ptrs = x_ptr + row[:, None] * K + k[None, :]  # [BLOCK_M, BLOCK_K]
    weight_ptrs = weight_ptr + col[None, :] * K + k[:, None]  # [BLOCK_K, BLOCK_N]
    blocks = tl.cdiv(K, BLOCK_K)
    x_scale_ptrs = x_scale_ptr + row * blocks  # [BLOCK_M]
    weight_scale_ptr += tile_n.to(tl.int64) * blocks
    total = tl.zeros([BLOCK_M, BLOCK_N], dtype=tl.float32)
    for block in tl.range(0, blocks):
        inside = k < K - block * BLOCK_K
        x = load_codes(x_ptrs, (row < M)[:, None] & inside[None, :], EMULATED)
        weight = load_codes(weight_ptrs, inside[:, None] & (col < N)[None, :], EMULATED)
        x_scale = tl.load(x_scale_ptrs + block, mask=row < M, other=0.0)  # [BLOCK_M]
        weight_scale = tl.load(weight_scale_ptr + block)  # one for the whole tile
        total += tl.dot(x, weight) * (x_scale * weight_scale)[:, None]
        x_ptrs += BLOCK_K
        weight_ptrs += BLOCK_K
    mask = (row < M)[:, None] & (col < N)[None, :]
    tl.store(y_ptr + row[:, None] * N + col[None, :], total.to(y_ptr.dtype.element_ty), mask=mask)


def block_scaled_matmul(
    x: Quantized, weight: Quantized, *, out_dtype: torch.dtype = torch.bfloat16, path: str | None = None
) -> torch.Tensor:
    """y = x @ weight.T of what two FP8 matrices in blocks are worth, summed in fp32 and rounded once.

    x: [..., K] in scheme fp8_1x128, weight: [N, K] in fp8_128x128; any M, N and K. out_dtype: bf16, fp16 or fp32. path:
    "plain" or "hopper" (fp8_hopper.py), chosen unless given. Returns [..., N], contiguous. Raises ValueError naming the
    argument.
    """
    check_product(x, weight, (X_SCHEME,), (WEIGHT_SCHEME,), out_dtype)
    (M, K), N = x.codes.shape, weight.codes.shape[0]
    y = torch.empty((M, N), dtype=out_dtype, device=x.codes.device)
    path = choose(path, x.codes, weight.codes, y)
    if not K:
        y.zero_()
    elif y.numel() and path == "hopper":
        fp8_hopper.launch(x, weight, y)
    elif y.numel():
        tile, emulated = plan_of(y.device)
        codes = (as_bytes(q.codes) if emulated else q.codes for q in (x, weight))
        block_scaled_matmul_kernel[(triton.cdiv(M, tile["BLOCK_M"]) * triton.cdiv(N, tile["BLOCK_N"]),)](
            *codes, x.scales, weight.scales, y, M, N, K, EMULATED=emulated, GROUP_M=GROUP_M, **tile
        )
    return y.view(*x.shape[:-1], N)


def block_scaled_matmul_traffic(
    M: int, N: int, K: int, out_dtype: torch.dtype = torch.bfloat16, *, path: str | None = "minimum"
) -> Traffic:
    """What the product moves, as `scaled_matmul_traffic` has it."""
    return scaled_matmul_traffic(M, N, K, X_SCHEME, WEIGHT_SCHEME, out_dtype, path=path)
