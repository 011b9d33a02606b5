"""Weight-only quantisation: y = x @ weight^T, x of 16 bits, the weight of 8 or 4, dequantised in registers.

Minimum traffic: the weight's codes and scales and x read once, y written once. A weight costs a byte or half of one
instead of two, and one product for each row of x: with few rows, decode, bytes are the limit and time falls with them;
with many, prefill, products are, and weights of 16 bits would do as well. Each has a kernel: weight_only_decode.py,
weight_only_prefill.py. With more rows still, each tile of them would make the same weights anew; so they are made once,
apart, and multiplied as any matrix is. That path alone rounds them to 16 bits, and stores them.

In registers codes become 16-bit floats without error (weight_only_unpack.py). Scales of integers stay fp32 and multiply
sums of products; those of FP4 are exact in 16 bits and multiply the weights; a tensor's scale multiplies the result.
All is added up in fp32.

Weights alone are quantised by GPTQ (Frantar and others, 2022) and AWQ (Lin and others, 2023), whose kernels do this.
"""

from dataclasses import dataclass

import torch

from instruments.backend import triton
from instruments.gpus import GPU, GPUS
from instruments.traffic import Traffic
from kernels import weight_only_prefill as prefill
from kernels.arguments import check_no_grad, check_tensor
from kernels.dequantize import dequantize
from kernels.matmul import matmul
from kernels.quantize_schemes import Quantized, Scheme, dequantize_reference, scheme_of
from kernels.rows import NO_LIMIT, Device, as_rows, device_of
from kernels.weight_only_decode import sum_splits_kernel, weight_only_decode_kernel

HALVES = (torch.bfloat16, torch.float16)
TAKEN = ("int8_row", "int8_g128", "int4_g128", "mxfp4", "nvfp4")
MAX_SPLITS = 16
SUM_BLOCK = 1024  # elements of y that a program of sum_splits_kernel adds up


def weight_only_matmul_reference(x: torch.Tensor, weight: Quantized) -> torch.Tensor:
    """x @ weight^T in plain PyTorch, in the precision of x: give it fp64."""
    return x @ dequantize_reference(weight).to(x.dtype).T


@dataclass(frozen=True)
class Path:
    """A row of the table of plans. name: as in `path=`. rows: of x, the most that it is chosen for. formats: of the
    weight. tile: as the kernel takes it; decode's BLOCK_M follows from the rows of x. programs: per multiprocessor,
    which K is shared out for where the weight's rows give fewer; 0 where K stays whole. shared: bytes of shared memory
    that a multiprocessor has at least. fills: whether the weight's rows have to give so many programs themselves."""

    name: str
    rows: int
    formats: tuple[str, ...]
    tile: dict
    programs: int = 0
    shared: int = 0
    fills: bool = False


def _slices(rows: int, warps: int, words: int, stages: int, registers: int | None = None) -> dict:
    """Warps that take so many words of each row at a time. registers: of a thread, at most."""
    tile = {"BLOCK_N": rows, "SLICES": warps, "WORDS": words, "num_warps": warps, "STAGES": stages}
    return tile if registers is None else tile | {"maxnreg": registers}


def _tile(tokens: int, rows: int, k: int, warps: int, stages: int) -> dict:
    return {"BLOCK_M": tokens, "BLOCK_N": rows, "BLOCK_K": k, "num_warps": warps, "STAGES": stages}


ALL = ("int8", "int4", "e2m1")
PATHS = (
    # path, rows of x, formats, tile, programs or shared
    Path("decode", 1, ("int4",), _slices(32, 8, 16, 3), 6, fills=True),
    Path("decode", 1, ("int4",), _slices(32, 4, 16, 3, registers=80), 6, shared=200_000),
    Path("decode", 1, ("int4",), _slices(32, 4, 16, 3), 6),
    Path("decode", 4, ("int4",), _slices(64, 4, 16, 3), 6),
    Path("decode", 8, ("int4",), _slices(64, 2, 16, 4), 6),
    Path("decode", 8, ("int8", "e2m1"), _slices(32, 4, 16, 3), 6),
    Path("decode", 16, ALL, _slices(64, 2, 16, 3), 6),
    Path("prefill", 32, ALL, _tile(32, 128, 128, 4, 3)),
    Path("prefill", 64, ("int4",), _tile(64, 128, 128, 4, 3), shared=200_000),
    Path("prefill", 64, ALL, _tile(64, 128, 128, 8, 3)),
    Path("prefill", 384, ("int4",), _tile(128, 64, 128, 4, 3), shared=200_000),
    Path("prefill", 256, ("int8", "e2m1"), _tile(128, 128, 128, 8, 3), shared=200_000),
    Path("prefill", 256, ALL, _tile(64, 128, 128, 8, 3)),
    Path("apart", NO_LIMIT, ALL, {}),
    # from here on where prefill is asked for by name
    Path("prefill", NO_LIMIT, ("int4",), _tile(128, 64, 128, 4, 3), shared=200_000),
    Path("prefill", NO_LIMIT, ALL, _tile(128, 128, 128, 8, 3), shared=200_000),
    Path("prefill", NO_LIMIT, ALL, _tile(64, 128, 128, 8, 3)),
)


@dataclass(frozen=True)
class Plan:
    """path, tile: as in Path. splits: programs that share a row of the weight, each split_words of its words."""

    path: str
    tile: dict
    splits: int
    split_words: int


def per_word(scheme: Scheme) -> int:
    """Codes in a 32-bit word."""
    return 32 // scheme.bits


def plan(M: int, N: int, K: int, scheme: Scheme, path: str | None, gpu: Device | GPU) -> Plan:
    """How many rows of x are multiplied on a GPU: by the path named, or the first of PATHS that takes so many."""
    fitting = [
        row
        for row in PATHS
        if path in (None, row.name)
        and M <= row.rows
        and scheme.format in row.formats
        and gpu.shared_per_sm >= row.shared
        and (not row.fills or triton.cdiv(N, row.tile["BLOCK_N"]) >= row.programs * gpu.sms)
    ]
    if not fitting:
        most = max(row.rows for row in PATHS if row.name == "decode")
        raise ValueError(
            f"path: got {path!r} for {M:,} rows of x, expected None, decode (to {most} rows), prefill or apart"
        )
    row, words = fitting[0], triton.cdiv(K, per_word(scheme))
    if row.name != "decode":
        return Plan(row.name, row.tile, 1, words)
    tile = {"BLOCK_M": triton.next_power_of_2(M), **row.tile}
    step = tile["SLICES"] * tile["WORDS"]
    steps, wanted = triton.cdiv(words, step), row.programs * gpu.sms // triton.cdiv(N, tile["BLOCK_N"])
    split_words = triton.cdiv(steps, max(1, min(wanted, steps, MAX_SPLITS))) * step
    return Plan(row.name, tile, triton.cdiv(words, split_words), split_words)


def _as_words(codes: torch.Tensor) -> torch.Tensor:
    """[rows, bytes] as 32-bit words, without a copy where rows begin and end on one."""
    rows, cols = codes.shape
    if codes.stride(1) != 1 or (codes.data_ptr() | codes.stride(0) | cols) % 4:
        codes = torch.nn.functional.pad(codes, (0, -cols % 4)).contiguous()
    return codes.view(torch.int32)


def _check(x, weight, path):
    check_tensor("x", x, dtypes=HALVES)
    if not isinstance(weight, Quantized):
        raise ValueError(f"weight: got {type(weight).__name__}, expected a Quantized of kernels/quantize_schemes.py")
    scheme = weight.scheme
    if scheme.name not in TAKEN:
        raise ValueError(f"weight: got scheme {scheme.name}, expected one of {', '.join(TAKEN)}")
    if x.dim() != 2 or len(weight.shape) != 2 or x.shape[1] != weight.shape[1]:
        shapes = f"{tuple(x.shape)} and a weight of {tuple(weight.shape)}"
        raise ValueError(f"x: got shape {shapes}, expected (M, K) and (N, K)")
    N, K = weight.shape
    for name, tensor, shape, dtype in (
        ("codes", weight.codes, scheme.codes_shape(N, K), scheme.code_dtype),
        ("scales", weight.scales, scheme.scales_shape(N, K), scheme.scale_dtype),
    ):
        check_tensor(f"weight.{name}", tensor, shape=shape, like=x, dtypes=(dtype,), why=f", {scheme.name} of {N}x{K}")
    if scheme.has_tensor_scale:
        check_tensor("weight.tensor_scale", weight.tensor_scale, shape=(), like=x, dtypes=(torch.float32,))
    if path not in (None, *(row.name for row in PATHS)):
        raise ValueError(f"path: got {path!r}, expected None, decode, prefill or apart")
    check_no_grad("weight_only_matmul", x=x)


def weight_only_matmul(x: torch.Tensor, weight: Quantized, *, path: str | None = None) -> torch.Tensor:
    """x @ weight^T, added up in fp32 and rounded once; the weight dequantised in registers, or, for many rows of x, in
    memory first, in x's dtype.

    x: [M, K], fp16 or bf16, any strides. weight: [N, K] in the scheme int8_row, int8_g128, int4_g128, mxfp4 or nvfp4.
    Rows of codes that do not begin and end on 32-bit words are copied first. An MX block's scale may be from 2^-107 to
    2^17, with fp16 from 2^-15 to 2^9; a larger one becomes infinite. path: 'decode' (M to 16), 'prefill', or 'apart'
    (dequantised first, which takes 2 N K bytes), chosen by M unless given.

    Returns a contiguous [M, N] of x's dtype. No gradient. Raises ValueError naming the argument.
    """
    _check(x, weight, path)
    (M, K), N, scheme = x.shape, weight.shape[0], weight.scheme
    y = torch.empty((M, N), dtype=x.dtype, device=x.device)
    if not y.numel():
        return y
    if not K:
        return y.zero_()
    chosen = plan(M, N, K, scheme, path, device_of(x.device))
    if chosen.path == "apart":
        return matmul(x, dequantize(weight, x.dtype).T)
    codes, scales, x = _as_words(weight.codes), weight.scales.contiguous(), as_rows(x)
    if scheme.scale_format == "e4m3":
        scales = scales.view(torch.int8)
    words = codes.shape[1], codes.stride(0), scales.shape[1]
    form = {"FORMAT": scheme.format, "GROUP": scheme.block[1] or 0}
    weights = codes, scales, weight.tensor_scale
    if chosen.path == "decode":
        partial = None
        if chosen.splits > 1:
            partial = torch.empty((chosen.splits, M, N), dtype=torch.float32, device=x.device)
        grid = triton.cdiv(N, chosen.tile["BLOCK_N"]), chosen.splits
        step = chosen.tile["SLICES"] * chosen.tile["WORDS"]
        even = N % chosen.tile["BLOCK_N"] == 0 and words[0] % step == 0 and K == words[0] * per_word(scheme)
        weight_only_decode_kernel[grid](
            x, *weights, partial, y, M, N, K, *x.stride(), *words, chosen.split_words, **form, EVEN=even, **chosen.tile
        )
        if partial is not None:
            sum_splits_kernel[(triton.cdiv(M * N, SUM_BLOCK),)](partial, y, M * N, chosen.splits, SUM_BLOCK)
    else:
        prefill.launch(x, weights, y, words, form, chosen.tile)
    return y


def weight_only_matmul_traffic(
    M: int,
    N: int,
    K: int,
    scheme: Scheme | str,
    dtype: torch.dtype = torch.bfloat16,
    *,
    path: str | None = "minimum",
    gpu: GPU | Device = GPUS["H200"],
) -> Traffic:
    """What a product with a quantised weight moves: the 'minimum', each byte once; 'naive', the weight dequantised to
    16 bits and then multiplied, as by 'apart'; or what the programs of another path ask for on a GPU, None for the one
    that is chosen."""
    scheme = scheme_of(scheme)
    stored, size, flops = scheme.nbytes(N, K), dtype.itemsize, 2 * M * N * K
    x, y = M * K * size, M * N * size
    if path == "minimum":
        return Traffic({"x": x, **stored}, {"y": y}, flops, launches=1)
    chosen = None if path == "naive" else plan(M, N, K, scheme, path, Device(gpu.sms, gpu.shared_per_sm))
    if path == "naive" or chosen.path == "apart":
        wide = N * K * size
        return Traffic(stored, {"weight": wide}, launches=1) + Traffic({"x": x, "weight": wide}, {"y": y}, flops, 1)
    across, down = triton.cdiv(N, chosen.tile["BLOCK_N"]), triton.cdiv(M, chosen.tile["BLOCK_M"])
    read = {"x": x * across, "codes": stored["codes"] * down, "scales": stored["scales"] * down}
    if scheme.block[1] is None:
        read["scales"] *= chosen.splits
    if scheme.has_tensor_scale:
        read["tensor_scale"] = 4 * across * down * chosen.splits
    if chosen.path == "prefill":
        ordered = M * triton.cdiv(K, chosen.tile["BLOCK_K"]) * chosen.tile["BLOCK_K"] * size
        read |= {"x": x, "ordered": ordered * across}
        return Traffic(read, {"ordered": ordered, "y": y}, flops, launches=2)
    if chosen.splits == 1:
        return Traffic(read, {"y": y}, flops, launches=1)
    partial = {"partial": 4 * M * N * chosen.splits}
    return Traffic(read | partial, {"y": y} | partial, flops, launches=2)
