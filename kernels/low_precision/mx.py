"""Matmul of microscaling operands: MXFP8, MXFP4 and NVFP4, or 16-bit x with a weight in one of them.

Minimum traffic: codes and scales read once, y written once. Blackwell's tensor cores take scales as operands: one
instruction multiplies two tiles of codes and applies a scale to each block of 32, or 16, along K (tl.dot_scaled).
Elsewhere, and in the interpreter, the same kernel dequantizes tiles to bf16 in registers and multiplies those: E4M3 or
E2M1 times such a scale fits bf16's eight bits, so both ways multiply the same values and accumulate in fp32. (The
exception is a scale near 2^-127 or 2^127, outside bf16's range.)

Formats: OCP MX Specification 1.0 (2023) and NVIDIA's NVFP4 (2025), as in kernels/quantization/schemes.py. Scales lie
in rows beside their codes, as in `Quantized`; the instruction needs them in tensor memory in an order of its own, and
the compiler moves them there.
"""

from functools import cache
from math import ceil

import torch

from instruments.backend import tl, triton
from instruments.traffic import Traffic
from kernels.matmul.tile_order import grouped_tile
from kernels.quantization.codes import as_bytes, decode, scale_value, unpack_nibbles
from kernels.quantization.schemes import Quantized, Scheme, check_quantized, dequantize_reference, scheme_of
from kernels.shared.arguments import check_no_grad, check_tensor

GROUP_M = 8
#: Tiles by whether the GPU has the instruction; dequantizing in registers leaves fewer of them for the tile.
TILES = {
    True: {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 128, "num_warps": 8, "num_stages": 2},
    False: {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 64, "num_warps": 4, "num_stages": 2},
}
MX = ("mxfp8", "mxfp4")
OUT_DTYPES = (torch.bfloat16, torch.float16, torch.float32)


def mx_matmul_reference(x: Quantized | torch.Tensor, weight: Quantized) -> torch.Tensor:
    """x [..., K] @ dequantized weight [N, K].T in fp64."""
    x = dequantize_reference(x) if isinstance(x, Quantized) else x
    return x.double() @ dequantize_reference(weight).double().T


@triton.jit
def load_rows(ptr, row, rows, start, cols, COLS: tl.constexpr):
    """Columns start to start + COLS of the rows `row` of a contiguous matrix [rows, cols]; zeros outside."""
    col = start + tl.arange(0, COLS)
    mask = (row < rows)[:, None] & (col < cols)[None, :]
    return tl.load(ptr + row[:, None].to(tl.int64) * cols + col[None, :], mask=mask, other=0.0)


@triton.jit
def dequantize_bf16(codes, scales, FORMAT: tl.constexpr, SCALE: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr):
    """A tile of codes, two of E2M1 per byte, and its scales [ROWS, blocks] -> bf16 [ROWS, COLS]."""
    codes = unpack_nibbles(codes, ROWS, COLS) if FORMAT == "e2m1" else codes.to(tl.int32)
    blocks: tl.constexpr = scales.shape[1]
    values = tl.reshape(decode(codes, FORMAT), [ROWS, blocks, COLS // blocks])
    return tl.reshape(values * scale_value(scales, SCALE)[:, :, None], [ROWS, COLS]).to(tl.bfloat16)


@triton.jit
def mx_matmul_kernel(
    x_ptr, x_scale_ptr, x_tensor_scale_ptr, weight_ptr, weight_scale_ptr, weight_tensor_scale_ptr, y_ptr,
    M, N, K,
    X_FORMAT: tl.constexpr, WEIGHT_FORMAT: tl.constexpr, GROUP_SIZE: tl.constexpr, NATIVE: tl.constexpr,
    GROUP_M: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """One tile of y per program, in the grouped tile order.

    Args:
        x_ptr: [M, K] as stored, two E2M1 codes per byte, or bf16; contiguous.
        weight_ptr: [N, K] as stored, contiguous.
        x_scale_ptr, weight_scale_ptr: [M or N, ceil(K / GROUP_SIZE)], E8M0 or E4M3, contiguous; none for a bf16 x.
        x_tensor_scale_ptr, weight_tensor_scale_ptr: scalars, fp32, of NVFP4; else None.
        y_ptr: [M, N], bf16, fp16 or fp32, contiguous.
        NATIVE: whether tensor cores take the scales; else codes and scales are uint8.
    """
    tile_m, tile_n = grouped_tile(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    row = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)  # [BLOCK_M]
    col = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)  # [BLOCK_N]
    X_PACK: tl.constexpr = 2 if X_FORMAT == "e2m1" else 1  # values per stored element
    WEIGHT_PACK: tl.constexpr = 2 if WEIGHT_FORMAT == "e2m1" else 1
    SCALE: tl.constexpr = "e8m0" if GROUP_SIZE == 32 else "e4m3"
    blocks = tl.cdiv(K, GROUP_SIZE)
    acc = tl.zeros([BLOCK_M, BLOCK_N], dtype=tl.float32)
    for start in tl.range(0, K, BLOCK_K):
        x = load_rows(x_ptr, row, M, start // X_PACK, K // X_PACK, BLOCK_K // X_PACK)
        weight = load_rows(weight_ptr, col, N, start // WEIGHT_PACK, K // WEIGHT_PACK, BLOCK_K // WEIGHT_PACK)
        weight_scale = load_rows(weight_scale_ptr, col, N, start // GROUP_SIZE, blocks, BLOCK_K // GROUP_SIZE)
        if X_FORMAT != "bf16":
            x_scale = load_rows(x_scale_ptr, row, M, start // GROUP_SIZE, blocks, BLOCK_K // GROUP_SIZE)
        if NATIVE:
            acc = tl.dot_scaled(x, x_scale, X_FORMAT, weight.T, weight_scale, WEIGHT_FORMAT, acc)
        else:
            if X_FORMAT != "bf16":
                x = dequantize_bf16(x, x_scale, X_FORMAT, SCALE, BLOCK_M, BLOCK_K)
            weight = dequantize_bf16(weight, weight_scale, WEIGHT_FORMAT, SCALE, BLOCK_N, BLOCK_K)
            acc = tl.dot(x, weight.T, acc)
    if x_tensor_scale_ptr is not None:
        acc *= tl.load(x_tensor_scale_ptr)
    if weight_tensor_scale_ptr is not None:
        acc *= tl.load(weight_tensor_scale_ptr)
    mask = (row < M)[:, None] & (col < N)[None, :]
    tl.store(y_ptr + row[:, None].to(tl.int64) * N + col[None, :], acc.to(y_ptr.dtype.element_ty), mask=mask)


@cache
def has_block_scales(device: torch.device) -> bool:
    """Whether tensor cores take block scales, from tensor memory: Blackwell's data center GPUs."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device)[0] == 10


def mx_matmul(
    x: Quantized | torch.Tensor, weight: Quantized, *, out_dtype: torch.dtype = torch.bfloat16
) -> torch.Tensor:
    """x @ weight.T of microscaling matrices, accumulated in fp32 and rounded once.

    Args:
        x: [..., K]; in mxfp8 or mxfp4 for a weight in either, in nvfp4 for one in nvfp4, as tensor cores pair them; or
            a contiguous bf16 tensor for any weight. K is even for codes of four bits.
        weight: [N, K], in scheme mxfp8, mxfp4 or nvfp4.
        out_dtype: bf16, fp16 or fp32.

    Returns:
        [..., N], contiguous, of out_dtype.

    Raises:
        ValueError: names the argument.
    """
    check_quantized("weight", weight, (*MX, "nvfp4"))
    x_quantized = isinstance(x, Quantized)
    if x_quantized:
        check_quantized("x", x, ("nvfp4",) if weight.scheme.name == "nvfp4" else MX, like=weight.codes)
    else:
        check_tensor("x", x, dtypes=(torch.bfloat16,), like=weight.codes)
        if x.dim() == 0 or not x.is_contiguous():
            raise ValueError(f"x: got strides {x.stride()}, expected a contiguous tensor of at least one dimension")
        check_no_grad("mx_matmul", x=x)
    if len(weight.shape) != 2 or weight.shape[1] != x.shape[-1]:
        raise ValueError(
            f"weight: got shape {tuple(weight.shape)}, expected (N, {x.shape[-1]}), after x of {tuple(x.shape)}"
        )
    if out_dtype not in OUT_DTYPES:
        raise ValueError(f"out_dtype: got {out_dtype}, expected one of {', '.join(map(str, OUT_DTYPES))}")
    M, (N, K) = torch.Size(x.shape[:-1]).numel(), weight.shape
    y = torch.empty((M, N), dtype=out_dtype, device=weight.codes.device)
    native = x_quantized and has_block_scales(y.device)

    def operand(q):
        """Codes, scales and tensor scale as the kernel takes them."""
        if not isinstance(q, Quantized):
            return q, None, None
        return as_bytes(q.codes), q.scales if native else as_bytes(q.scales), q.tensor_scale

    if not K:
        y.zero_()
    elif y.numel():
        tile = TILES[native]
        mx_matmul_kernel[(ceil(M / tile["BLOCK_M"]) * ceil(N / tile["BLOCK_N"]),)](
            *operand(x), *operand(weight), y, M, N, K,
            X_FORMAT=x.scheme.format if x_quantized else "bf16", WEIGHT_FORMAT=weight.scheme.format,
            GROUP_SIZE=weight.scheme.block[1], NATIVE=native, GROUP_M=GROUP_M, **tile,
        )  # fmt: skip
    return y.view(*x.shape[:-1], N)


def mx_matmul_traffic(
    M: int,
    N: int,
    K: int,
    x_scheme: Scheme | str | torch.dtype,
    weight_scheme: Scheme | str,
    out_dtype: torch.dtype = torch.bfloat16,
    *,
    path: str | None = "minimum",
) -> Traffic:
    """What a matmul of microscaling operands, x [M, K] @ weight [N, K].T, moves.

    Args:
        M, N, K: sizes.
        x_scheme: a scheme, its name, or torch.bfloat16 for an x without scales.
        weight_scheme: a scheme, or its name.
        out_dtype: of y.
        path: 'minimum', each byte once; 'emulated' or None, the bytes that programs request, before the caches, on a
            GPU without the instruction.

    Note:
        Each row of tiles of y requests all of weight, and each column of tiles all of x; edges count what is inside.
    """
    if path not in ("minimum", "emulated", None):
        raise ValueError(f"path: got {path!r}, expected 'minimum', 'emulated' or None")
    tile, per_tile = TILES[False], path != "minimum"
    down, across = (ceil(M / tile["BLOCK_M"]), ceil(N / tile["BLOCK_N"])) if per_tile else (1, 1)
    read = {}
    for name, scheme, rows, times in (("x", x_scheme, M, across), ("weight", weight_scheme, N, down)):
        if isinstance(scheme, torch.dtype):
            read[name] = rows * K * scheme.itemsize * times
            continue
        nbytes = scheme_of(scheme).nbytes(rows, K)
        read |= {name: nbytes["codes"] * times, f"{name}_scale": nbytes["scales"] * times}
        if "tensor_scale" in nbytes:
            read[f"{name}_tensor_scale"] = 4 * (down * across if per_tile else 1)
    return Traffic(read, {"y": M * N * out_dtype.itemsize}, flops=2 * M * N * K, launches=1)
