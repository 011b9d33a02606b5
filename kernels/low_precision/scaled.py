"""FP8 matmul with one scale per tensor or per row: y = (x codes * x scales) @ (weight codes * weight scales).T.

Minimum traffic: codes and scales of x [M, K] and weight [N, K] read once, y written once: half the bytes of 16-bit
operands, at twice their FLOP/s where tensor cores take FP8. A scale that a whole row shares factors out of the sum over
K, so it is applied once, to the finished tile. The rows of both operands lie along K, as FP8 tensor cores require.

Hopper's FP8 tensor cores keep fewer bits of a sum than fp32 has (ablation.py measures how many). "promoted" adds the
matmul of every BLOCK_K columns to an fp32 accumulator in registers, as DeepSeek-V3's report (2024) does; "fast"
accumulates in the tensor core throughout. GPUs before Ada have no FP8 instruction: there codes are decoded to fp16,
which is exact, and sums are those of "promoted". hopper.py has the Gluon kernel for Hopper.
"""

from functools import cache
from math import ceil

import torch

from instruments import backend
from instruments.backend import tl, triton
from instruments.traffic import Traffic
from kernels.low_precision import hopper
from kernels.matmul.tile_order import grouped_tile
from kernels.quantization.codes import as_bytes, decode
from kernels.quantization.schemes import Quantized, Scheme, check_quantized, dequantize_reference, scheme_of
from kernels.shared.metadata import by_metadata

GROUP_M = 8
TILE = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 128, "num_warps": 8, "num_stages": 4}
SMALL_TILE = TILE | {"BLOCK_M": 64, "num_stages": 2}  # where operands come through registers
FP8_SCHEMES = ("fp8_tensor", "fp8_row")
OUT_DTYPES = (torch.bfloat16, torch.float16, torch.float32)


def scaled_matmul_reference(x: Quantized, weight: Quantized) -> torch.Tensor:
    """Dequantized x [..., K] @ dequantized weight [N, K].T in fp64, of any schemes."""
    return dequantize_reference(x).double() @ dequantize_reference(weight).double().T


@triton.jit
def load_codes(ptrs, mask, EMULATED: tl.constexpr):
    """A tile of E4M3 codes; EMULATED: from pointers to uint8, decoded to fp16."""
    if EMULATED:
        return decode(tl.load(ptrs, mask=mask, other=0).to(tl.int32), "e4m3").to(tl.float16)
    else:
        return tl.load(ptrs, mask=mask, other=0.0)


@triton.jit
def scaled_matmul_kernel(
    x_ptr, weight_ptr, x_scale_ptr, weight_scale_ptr, y_ptr,
    M, N, K, x_scale_step, weight_scale_step,
    PROMOTE_EVERY: tl.constexpr, EMULATED: tl.constexpr,
    GROUP_M: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """One tile of y per program, in the grouped tile order.

    Args:
        x_ptr: [M, K], E4M3, contiguous; uint8 where EMULATED.
        weight_ptr: [N, K], likewise.
        x_scale_ptr, weight_scale_ptr: fp32, one per row of x or weight, or one for all.
        y_ptr: [M, N], bf16, fp16 or fp32, contiguous.
        x_scale_step, weight_scale_step: 1 for a scale per row, 0 for one scale for all rows.
        PROMOTE_EVERY: columns after which the tensor core's sum is added to fp32 registers; None for never.
        EMULATED: whether the GPU has no FP8 instruction, so that codes are decoded to fp16.
    """
    tile_m, tile_n = grouped_tile(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    row = tile_m.to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)  # [BLOCK_M]
    col = tile_n.to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)  # [BLOCK_N]
    k = tl.arange(0, BLOCK_K)  # [BLOCK_K]
    x_ptrs = x_ptr + row[:, None] * K + k[None, :]  # [BLOCK_M, BLOCK_K]
    weight_ptrs = weight_ptr + col[None, :] * K + k[:, None]  # [BLOCK_K, BLOCK_N]: a row of weight is a column here
    acc = tl.zeros([BLOCK_M, BLOCK_N], dtype=tl.float32)
    for start in tl.range(0, K, BLOCK_K):
        k_mask = k < K - start
        x = load_codes(x_ptrs, (row < M)[:, None] & k_mask[None, :], EMULATED)
        weight = load_codes(weight_ptrs, k_mask[:, None] & (col < N)[None, :], EMULATED)
        acc = tl.dot(x, weight, acc, max_num_imprecise_acc=PROMOTE_EVERY)
        x_ptrs += BLOCK_K
        weight_ptrs += BLOCK_K
    x_scale = tl.load(x_scale_ptr + row * x_scale_step, mask=row < M, other=0.0)  # [BLOCK_M]
    weight_scale = tl.load(weight_scale_ptr + col * weight_scale_step, mask=col < N, other=0.0)  # [BLOCK_N]
    acc = acc * x_scale[:, None] * weight_scale[None, :]
    mask = (row < M)[:, None] & (col < N)[None, :]
    tl.store(y_ptr + row[:, None] * N + col[None, :], acc.to(y_ptr.dtype.element_ty), mask=mask)


@cache
def plan_of(device: torch.device) -> tuple[dict, bool]:
    """(tile, whether FP8 is emulated). Ada and later have FP8, as has the interpreter; Hopper and Blackwell multiply
    from shared memory."""
    if device.type != "cuda":
        return TILE, False
    capability = torch.cuda.get_device_capability(device)
    return TILE if capability[0] in (9, 10) else SMALL_TILE, capability < (8, 9)


@by_metadata
def plan_matmul(
    x: Quantized,
    weight: Quantized,
    x_schemes: tuple,
    weight_schemes: tuple,
    out_dtype: torch.dtype,
    path: str | None,
    accumulate: str = "promoted",
) -> hopper.Fp8Call | None:
    """The plan of x @ weight.T on path 'hopper', else None. Raises ValueError unless the matmul is defined, in these
    schemes and out_dtype."""
    check_quantized("x", x, x_schemes)
    check_quantized("weight", weight, weight_schemes, like=x.codes)
    if len(weight.shape) != 2 or weight.shape[1] != x.shape[-1]:
        raise ValueError(
            f"weight: got shape {tuple(weight.shape)}, expected (N, {x.shape[-1]}), after x of {tuple(x.shape)}"
        )
    if out_dtype not in OUT_DTYPES:
        raise ValueError(f"out_dtype: got {out_dtype}, expected one of {', '.join(map(str, OUT_DTYPES))}")
    # strides and alignment as of the real one
    y = torch.empty((len(x.codes), len(weight.codes)), dtype=out_dtype, device="meta")
    path = _choose_path(path, x.codes, weight.codes, y)
    if accumulate not in ("promoted", "fast"):
        raise ValueError(f"accumulate: got {accumulate!r}, expected 'promoted' or 'fast'")
    if path == "hopper" and y.numel() and x.codes.shape[1]:
        return hopper.plan_call(x, weight, y, accumulate == "promoted")
    return None


def _choose_path(path: str | None, x: torch.Tensor, weight: torch.Tensor, y: torch.Tensor) -> str:
    """`path` if it takes codes x and weight; for None, hopper where it does, else plain."""
    on_hopper = backend.mode() == "compiled" and hopper.takes(x, weight, y)
    if path not in (None, "plain", "hopper") or path == "hopper" and not on_hopper:
        raise ValueError(
            f"path: got {path!r} for {tuple(x.shape)} by {tuple(weight.shape)} on {x.device}, expected None or one of "
            "plain, hopper (a Hopper GPU; K and a row of y multiples of 16 bytes)"
        )
    return path or ("hopper" if on_hopper else "plain")


def scaled_matmul(
    x: Quantized,
    weight: Quantized,
    *,
    accumulate: str = "promoted",
    out_dtype: torch.dtype = torch.bfloat16,
    path: str | None = None,
) -> torch.Tensor:
    """x @ weight.T of two FP8 matrices, accumulated in fp32 and rounded once.

    Args:
        x: [..., K], in scheme fp8_tensor or fp8_row.
        weight: [N, K], in scheme fp8_tensor or fp8_row.
        accumulate: 'promoted' or 'fast', see the module's docstring; they differ on Hopper only.
        out_dtype: bf16, fp16 or fp32.
        path: 'plain' or 'hopper' (hopper.py); None takes hopper where it can.

    Returns:
        [..., N], contiguous, of out_dtype.

    Raises:
        ValueError: names the argument.
    """
    plan = plan_matmul(x, weight, FP8_SCHEMES, FP8_SCHEMES, out_dtype, path, accumulate)
    (M, K), N = x.codes.shape, weight.codes.shape[0]
    y = torch.empty((M, N), dtype=out_dtype, device=x.codes.device)
    if not K:
        y.zero_()
    elif plan:
        plan(x, weight, y)
    elif y.numel():
        tile, emulated = plan_of(y.device)
        codes = (as_bytes(q.codes) if emulated else q.codes for q in (x, weight))
        steps = (int(q.scheme.block[0] == 1) for q in (x, weight))
        grid = (ceil(M / tile["BLOCK_M"]) * ceil(N / tile["BLOCK_N"]),)
        scaled_matmul_kernel[grid](
            *codes, x.scales, weight.scales, y, M, N, K, *steps,
            PROMOTE_EVERY=tile["BLOCK_K"] if accumulate == "promoted" else None,
            EMULATED=emulated, GROUP_M=GROUP_M, **tile,
        )  # fmt: skip
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
    """What an FP8 matmul x [M, K] @ weight [N, K].T moves.

    Args:
        M, N, K: sizes.
        x_scheme, weight_scheme: any two schemes, or their names.
        out_dtype: of y.
        path: 'minimum', codes and scales read once and y written once; 'plain' or None, the bytes that programs of the
            plain kernel request, before the caches.

    Note:
        Each row of tiles of y requests all of weight, and each column of tiles all of x; edges count what is inside. A
        scale per tensor is requested once per row of a tile.
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
        down, across = ceil(M / TILE["BLOCK_M"]), ceil(N / TILE["BLOCK_N"])
        read = {name: nbytes * (down if name.startswith("weight") else across) for name, nbytes in read.items()}
    return Traffic(read, {"y": M * N * out_dtype.itemsize}, flops=2 * M * N * K, launches=1)
