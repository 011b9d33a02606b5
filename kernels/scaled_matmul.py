"""FP8 matrix product with a scale per tensor or per row: y = (x codes * x scales) @ (weight codes * weight scales).T.

Minimum traffic: the codes of x [M, K] and weight [N, K] and their scales read once, y written once: half the bytes of
16-bit operands, at twice their FLOP/s where the GPU has FP8 matrix instructions. A scale that a whole row shares leaves
the sum over K: it is applied once, to the finished tile. Rows of both operands lie along K, as the instructions want.

Hopper's FP8 instructions keep fewer bits of a sum than fp32 has (kernels/fp8_accumulator.py measures how many).
"promoted" adds what BLOCK_K columns gave to a sum in fp32 registers, as DeepSeek-V3's report (2024) does; "fast" leaves
the sum in the matrix unit to the end. GPUs before Ada have no FP8 instruction: codes become fp16 there, exactly, and
products and sums are those of "promoted". The Gluon kernel for Hopper is in fp8_hopper.py.
"""

from functools import cache

import torch

from instruments import backend
from instruments.backend import tl, triton
from instruments.traffic import Traffic
from kernels import fp8_hopper
from kernels.arguments import check_quantized
from kernels.matmul_order import grouped_tile
from kernels.quantize_codes import as_bytes, decode
from kernels.quantize_schemes import Quantized, Scheme, dequantize_reference, scheme_of

GROUP_M = 8
TILE = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 128, "num_warps": 8, "num_stages": 4}
SMALL_TILE = TILE | {"BLOCK_M": 64, "num_stages": 2}  # where operands come through registers
SCALED = ("fp8_tensor", "fp8_row")
OUTPUTS = (torch.bfloat16, torch.float16, torch.float32)


def scaled_matmul_reference(x: Quantized, weight: Quantized) -> torch.Tensor:
    """dequantised x [..., K] @ dequantised weight [N, K].T in fp64, of whatever schemes."""
    return dequantize_reference(x).double() @ dequantize_reference(weight).double().T


@triton.jit
def load_codes(ptrs, mask, EMULATED: tl.constexpr):
    """A tile of E4M3 codes, as they are, or EMULATED as fp16: pointers to uint8 then."""
    if EMULATED:
        return decode(tl.load(ptrs, mask=mask, other=0).to(tl.int32), "e4m3").to(tl.float16)
    else:
        return tl.load(ptrs, mask=mask, other=0.0)


@triton.jit
def scaled_matmul_kernel(
    x_ptr,
    weight_ptr,
    x_scale_ptr,
    weight_scale_ptr,
    y_ptr,
    M,
    N,
    K,
    x_scale_step,
    weight_scale_step,
    PROMOTE_EVERY: tl.constexpr,
    EMULATED: tl.constexpr,
    GROUP_M: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """x [M, K], weight [N, K] and y [M, N], contiguous: a tile of y per program. A step of 0 is one scale for all rows.

    PROMOTE_EVERY: columns after which the sum goes to fp32 registers, None for never.
    """
    tile_m, tile_n = grouped_tile(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    row = tile_m.to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)  # [BLOCK_M]
    col = tile_n.to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)  # [BLOCK_N]
    k = tl.arange(0, BLOCK_K)  # [BLOCK_K]
    x_ptrs = x_ptr + row[:, None] * K + k[None, :]  # [BLOCK_M, BLOCK_K]
    weight_ptrs = weight_ptr + col[None, :] * K + k[:, None]  # [BLOCK_K, BLOCK_N]: a row of weight is a column here
    total = tl.zeros([BLOCK_M, BLOCK_N], dtype=tl.float32)
    for start in tl.range(0, K, BLOCK_K):
        inside = k < K - start
        x = load_codes(x_ptrs, (row < M)[:, None] & inside[None, :], EMULATED)
        weight = load_codes(weight_ptrs, inside[:, None] & (col < N)[None, :], EMULATED)
        total = tl.dot(x, weight, total, max_num_imprecise_acc=PROMOTE_EVERY)
        x_ptrs += BLOCK_K
        weight_ptrs += BLOCK_K
    x_scale = tl.load(x_scale_ptr + row * x_scale_step, mask=row < M, other=0.0)  # [BLOCK_M]
    weight_scale = tl.load(weight_scale_ptr + col * weight_scale_step, mask=col < N, other=0.0)  # [BLOCK_N]
    total = total * x_scale[:, None] * weight_scale[None, :]
    mask = (row < M)[:, None] & (col < N)[None, :]
    tl.store(y_ptr + row[:, None] * N + col[None, :], total.to(y_ptr.dtype.element_ty), mask=mask)


@cache
def plan_of(device: torch.device) -> tuple[dict, bool]:
    """(tile, whether FP8 is emulated) on a device: Ada and later have FP8, as has the interpreter; Hopper and Blackwell
    multiply from shared memory."""
    if device.type != "cuda":
        return TILE, False
    capability = torch.cuda.get_device_capability(device)
    return TILE if capability[0] in (9, 10) else SMALL_TILE, capability < (8, 9)


def check_product(x: Quantized, weight: Quantized, x_schemes: tuple, weight_schemes: tuple, out_dtype: torch.dtype):
    """Raise ValueError unless the two can be multiplied into a matrix of out_dtype."""
    check_quantized("x", x, x_schemes)
    check_quantized("weight", weight, weight_schemes, like=x.codes)
    if len(weight.shape) != 2 or weight.shape[1] != x.shape[-1]:
        raise ValueError(
            f"weight: got shape {tuple(weight.shape)}, expected (N, {x.shape[-1]}), after x of {tuple(x.shape)}"
        )
    if out_dtype not in OUTPUTS:
        raise ValueError(f"out_dtype: got {out_dtype}, expected one of {', '.join(map(str, OUTPUTS))}")


def choose(path: str | None, x: torch.Tensor, weight: torch.Tensor, y: torch.Tensor) -> str:
    """The path that multiplies codes x by weight into y: the one asked for if it can, else hopper where it can."""
    able = backend.mode() == "compiled" and fp8_hopper.takes(x, weight, y)
    if path not in (None, "plain", "hopper") or path == "hopper" and not able:
        raise ValueError(
            f"path: got {path!r} for {tuple(x.shape)} by {tuple(weight.shape)} on {x.device}, expected None or one of "
            "plain, hopper (a Hopper GPU; K and a row of y multiples of 16 bytes)"
        )
    return path or ("hopper" if able else "plain")


def scaled_matmul(
    x: Quantized,
    weight: Quantized,
    *,
    accumulate: str = "promoted",
    out_dtype: torch.dtype = torch.bfloat16,
    path: str | None = None,
) -> torch.Tensor:
    """y = x @ weight.T of what two FP8 matrices are worth, summed in fp32 and rounded once.

    x: [..., K], weight: [N, K], each in scheme fp8_tensor or fp8_row. accumulate: "promoted" or "fast", as above; a
    difference on Hopper alone. out_dtype: bf16, fp16 or fp32. path: "plain" or "hopper", chosen unless given. Returns
    [..., N], contiguous. Raises ValueError naming the argument.
    """
    check_product(x, weight, SCALED, SCALED, out_dtype)
    if accumulate not in ("promoted", "fast"):
        raise ValueError(f"accumulate: got {accumulate!r}, expected 'promoted' or 'fast'")
    (M, K), N = x.codes.shape, weight.codes.shape[0]
    y = torch.empty((M, N), dtype=out_dtype, device=x.codes.device)
    path = choose(path, x.codes, weight.codes, y)
    if not K:
        y.zero_()
    elif y.numel() and path == "hopper":
        fp8_hopper.launch(x, weight, y, accumulate == "promoted")
    elif y.numel():
        tile, emulated = plan_of(y.device)
        codes = (as_bytes(q.codes) if emulated else q.codes for q in (x, weight))
        steps = (int(q.scheme.block[0] == 1) for q in (x, weight))
        scaled_matmul_kernel[(triton.cdiv(M, tile["BLOCK_M"]) * triton.cdiv(N, tile["BLOCK_N"]),)](
            *codes,
            x.scales,
            weight.scales,
            y,
            M,
            N,
            K,
            *steps,
            PROMOTE_EVERY=tile["BLOCK_K"] if accumulate == "promoted" else None,
            EMULATED=emulated,
            GROUP_M=GROUP_M,
            **tile,
        )
    return y.view(*x.shape[:-1], N)


def scaled_matmul_traffic(
    M: int,
    N: int,
    K: int,
    x_scheme: Scheme | str = "fp8_tensor",
    weight_scheme: Scheme | str = "fp8_tensor",
    out_dtype: torch.dtype = torch.bfloat16,
    *,
    path: str | None = "minimum",
) -> Traffic:
    """What a product of FP8 matrices moves: "minimum", codes and scales read once and y written once; "plain" or None,
    what the programs of the plain kernel ask for, the one that a meter can count. Of any two schemes.

    A column of tiles of weight is asked for by each row of tiles of y, and the other way round; edges count what is
    inside. A scale per tensor is asked for by each row of a tile.
    """
    if path not in ("minimum", "plain", None):
        raise ValueError(f"path: got {path!r}, expected 'minimum', 'plain' or None")
    plain, read = path != "minimum", {}
    for name, scheme, rows in (("x", x_scheme, M), ("weight", weight_scheme, N)):
        scheme = scheme_of(scheme)
        nbytes = scheme.nbytes(rows, K)
        read |= {name: nbytes["codes"], f"{name}_scale": nbytes["scales"]}
        if plain and scheme.block[1] is None:
            read[f"{name}_scale"] = rows * scheme.scale_dtype.itemsize
    if plain:
        down, across = triton.cdiv(M, TILE["BLOCK_M"]), triton.cdiv(N, TILE["BLOCK_N"])
        read = {name: nbytes * (down if name.startswith("weight") else across) for name, nbytes in read.items()}
    return Traffic(read, {"y": M * N * out_dtype.itemsize}, flops=2 * M * N * K, launches=1)
