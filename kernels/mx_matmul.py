"""Matrix product of block-scaled operands: MXFP8, MXFP4 and NVFP4, or 16-bit x by one of them.

Minimum traffic: codes and scales read once, y written once. Blackwell's matrix instructions take scales as operands:
one instruction multiplies two tiles of codes and applies a scale to each block of 32, or 16, along K (tl.dot_scaled).
Elsewhere, in the interpreter too, the same kernel makes numbers of a tile's codes, times their scales, in bf16, and
multiplies those: E4M3 or E2M1 times such a scale fits bf16's eight bits, so that the products are the same, and sums
are fp32 in both. (A scale near 2^-127 or 2^127, out of bf16's reach, is the exception.)

Formats are the OCP MX Specification's (2023) and NVIDIA's NVFP4 (2025), as kernels/quantize_schemes.py has them. Scales
lie as `Quantized` has them, in rows beside their codes; the instruction wants them in tensor memory, in an order of its
own, and the compiler moves them there.
"""

from functools import cache

import torch

from instruments.backend import tl, triton
from instruments.traffic import Traffic
from kernels.arguments import check_no_grad, check_quantized, check_tensor
from kernels.matmul_order import grouped_tile
from kernels.quantize_codes import as_bytes, decode, scale_value, unpack
from kernels.quantize_schemes import Quantized, Scheme, dequantize_reference, scheme_of

GROUP_M = 8
#: Tiles by whether the GPU has the instruction: numbers made in registers leave room for smaller ones.
TILES = {
    True: {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 128, "num_warps": 8, "num_stages": 2},
    False: {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 64, "num_warps": 4, "num_stages": 2},
}
MX = ("mxfp8", "mxfp4")
OUTPUTS = (torch.bfloat16, torch.float16, torch.float32)


def mx_matmul_reference(x: Quantized | torch.Tensor, weight: Quantized) -> torch.Tensor:
    """x [..., K] @ dequantised weight [N, K].T in fp64."""
    x = dequantize_reference(x) if isinstance(x, Quantized) else x
    return x.double() @ dequantize_reference(weight).double().T


@triton.jit
def load_part(ptr, row, rows, start, cols, COLS: tl.constexpr):
    """COLS columns from `start` on of a matrix [rows, cols], as it is stored, of the rows `row`; zeros outside."""
    col = start + tl.arange(0, COLS)
    mask = (row < rows)[:, None] & (col < cols)[None, :]
    return tl.load(ptr + row[:, None].to(tl.int64) * cols + col[None, :], mask=mask, other=0.0)


@triton.jit
def numbers(codes, scales, FORMAT: tl.constexpr, SCALE: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr):
    """A tile of codes, two of E2M1 a byte, and its scales [ROWS, blocks] -> bf16 [ROWS, COLS]."""
    codes = unpack(codes, ROWS, COLS) if FORMAT == "e2m1" else codes.to(tl.int32)
    blocks: tl.constexpr = scales.shape[1]
    values = tl.reshape(decode(codes, FORMAT), [ROWS, blocks, COLS // blocks])
    return tl.reshape(values * scale_value(scales, SCALE)[:, :, None], [ROWS, COLS]).to(tl.bfloat16)


@triton.jit
def mx_matmul_kernel(
    x_ptr,
    x_scale_ptr,
    x_tensor_scale_ptr,
    weight_ptr,
    weight_scale_ptr,
    weight_tensor_scale_ptr,
    y_ptr,
    M,
    N,
    K,
    X_FORMAT: tl.constexpr,
    WEIGHT_FORMAT: tl.constexpr,
    SCALED: tl.constexpr,
    NATIVE: tl.constexpr,
    GROUP_M: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """x [M, K] and weight [N, K] as stored, with scales [M, K / SCALED] and [N, K / SCALED], rounded up, and y [M, N],
    all contiguous: a tile of y per program. X_FORMAT "bf16" has no scales; NVFP4 has one for the tensor besides.

    SCALED: columns that share a scale. NATIVE: by the GPU's own block-scaled instruction; else codes and scales come
    as uint8.
    """
    tile_m, tile_n = grouped_tile(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    row = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)  # [BLOCK_M]
    col = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)  # [BLOCK_N]
    X_PACKED: tl.constexpr = 2 if X_FORMAT == "e2m1" else 1  # values that lie in one element
    WEIGHT_PACKED: tl.constexpr = 2 if WEIGHT_FORMAT == "e2m1" else 1
    SCALE: tl.constexpr = "e8m0" if SCALED == 32 else "e4m3"
    blocks = tl.cdiv(K, SCALED)
    total = tl.zeros([BLOCK_M, BLOCK_N], dtype=tl.float32)
    for start in tl.range(0, K, BLOCK_K):
        x = load_part(x_ptr, row, M, start // X_PACKED, K // X_PACKED, BLOCK_K // X_PACKED)
        weight = load_part(weight_ptr, col, N, start // WEIGHT_PACKED, K // WEIGHT_PACKED, BLOCK_K // WEIGHT_PACKED)
        weight_scale = load_part(weight_scale_ptr, col, N, start // SCALED, blocks, BLOCK_K // SCALED)
        if X_FORMAT != "bf16":
            x_scale = load_part(x_scale_ptr, row, M, start // SCALED, blocks, BLOCK_K // SCALED)
        if NATIVE:
            total = tl.dot_scaled(x, x_scale, X_FORMAT, weight.T, weight_scale, WEIGHT_FORMAT, total)
        else:
            if X_FORMAT != "bf16":
                x = numbers(x, x_scale, X_FORMAT, SCALE, BLOCK_M, BLOCK_K)
            weight = numbers(weight, weight_scale, WEIGHT_FORMAT, SCALE, BLOCK_N, BLOCK_K)
            total = tl.dot(x, weight.T, total)
    if x_tensor_scale_ptr is not None:
        total *= tl.load(x_tensor_scale_ptr)
    if weight_tensor_scale_ptr is not None:
        total *= tl.load(weight_tensor_scale_ptr)
    mask = (row < M)[:, None] & (col < N)[None, :]
    tl.store(y_ptr + row[:, None].to(tl.int64) * N + col[None, :], total.to(y_ptr.dtype.element_ty), mask=mask)


@cache
def has_block_scales(device: torch.device) -> bool:
    """Whether a GPU has block-scaled matrix instructions with scales in tensor memory: Blackwell's server parts."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device)[0] == 10


def mx_matmul(
    x: Quantized | torch.Tensor, weight: Quantized, *, out_dtype: torch.dtype = torch.bfloat16
) -> torch.Tensor:
    """y = x @ weight.T of what block-scaled matrices are worth, summed in fp32 and rounded once.

    weight: [N, K] in scheme mxfp8, mxfp4 or nvfp4. x: [..., K] in mxfp8 or mxfp4 for a weight of either, in nvfp4 for
    one of nvfp4, as matrix instructions pair them; or a contiguous bf16 tensor for any. Any M, N and K; even K for
    four bits. out_dtype: bf16, fp16 or fp32. Returns [..., N], contiguous. Raises ValueError naming the argument.
    """
    check_quantized("weight", weight, (*MX, "nvfp4"))
    described = isinstance(x, Quantized)
    if described:
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
    if out_dtype not in OUTPUTS:
        raise ValueError(f"out_dtype: got {out_dtype}, expected one of {', '.join(map(str, OUTPUTS))}")
    M, (N, K) = torch.Size(x.shape[:-1]).numel(), weight.shape
    y = torch.empty((M, N), dtype=out_dtype, device=weight.codes.device)
    native = described and has_block_scales(y.device)

    def operand(q):
        """Codes and scales as the kernel takes them, and the tensor's scale."""
        if not isinstance(q, Quantized):
            return q, None, None
        return as_bytes(q.codes), q.scales if native else as_bytes(q.scales), q.tensor_scale

    if not K:
        y.zero_()
    elif y.numel():
        tile = TILES[native]
        mx_matmul_kernel[(triton.cdiv(M, tile["BLOCK_M"]) * triton.cdiv(N, tile["BLOCK_N"]),)](
            *operand(x),
            *operand(weight),
            y,
            M,
            N,
            K,
            X_FORMAT=x.scheme.format if described else "bf16",
            WEIGHT_FORMAT=weight.scheme.format,
            SCALED=weight.scheme.block[1],
            NATIVE=native,
            GROUP_M=GROUP_M,
            **tile,
        )
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
    """What a product of block-scaled matrices moves: "minimum", everything once; "emulated" or None, what the
    programs of a GPU without the instruction ask for, which a meter can count.

    x_scheme: torch.bfloat16 for an x that has no scales. A column of tiles of weight is asked for by each row of tiles
    of y, and the other way round; edges count what is inside.
    """
    if path not in ("minimum", "emulated", None):
        raise ValueError(f"path: got {path!r}, expected 'minimum', 'emulated' or None")
    tile, tiled = TILES[False], path != "minimum"
    down, across = (triton.cdiv(M, tile["BLOCK_M"]), triton.cdiv(N, tile["BLOCK_N"])) if tiled else (1, 1)
    read = {}
    for name, scheme, rows, times in (("x", x_scheme, M, across), ("weight", weight_scheme, N, down)):
        if isinstance(scheme, torch.dtype):
            read[name] = rows * K * scheme.itemsize * times
            continue
        nbytes = scheme_of(scheme).nbytes(rows, K)
        read |= {name: nbytes["codes"] * times, f"{name}_scale": nbytes["scales"] * times}
        if "tensor_scale" in nbytes:
            read[f"{name}_tensor_scale"] = 4 * (down * across if tiled else 1)
    return Traffic(read, {"y": M * N * out_dtype.itemsize}, flops=2 * M * N * K, launches=1)
