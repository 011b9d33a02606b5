"""Weight-only quantization: y = x @ weight^T with x of 16 bits and a weight of 8 or 4, dequantized in registers.

Minimum traffic: the weight's codes and scales and x read once, y written once. A weight costs one byte or half a byte
instead of two, and one product per row of x: with few rows (decode) the matmul is memory-bound and gets faster with
fewer bytes; with many (prefill) it is compute-bound, and 16-bit weights would do as well. Each has a kernel. With more
rows still, each tile of them would dequantize the same weights again, so path 'apart' dequantizes them once to memory
and runs a 16-bit matmul. Only that path rounds weights to 16 bits.

In registers, codes become 16-bit floats exactly (weight_only_unpack.py). Scales of integers stay fp32 and multiply sums
of products; those of FP4 are exact in 16 bits and multiply the weights; a tensor's scale multiplies the result. Sums
are fp32. The weights are the tensor core's left operand, so a tile of y^T [BLOCK_N, BLOCK_M] is computed.

Decode: in the time in which copy bandwidth moves four bits, an H200 issues about four instructions, so instructions
count. Converting to fp32, multiplying and adding takes more per weight; tensor cores take 16-bit values in pairs, as
the words hold them, and 2,048 products per instruction, even if most are padding. The warps of a program split K, not
rows: each takes some words of every row, next to its neighbour's, so that together they read long runs of a row and no
two read the same x; they add their sums at the end. Where the rows alone would not fill the GPU, programs split K, too
(split-K), and a second kernel adds their partial sums.

Prefill: Hopper's tensor cores take the left operand from registers. The weights come out in the order of their words'
parts; for many rows of x it pays to reorder x in memory first, from where it is copied to shared memory as
tensor cores read it. A step has two matmuls of half its columns each: while one runs, the other's weights are unpacked.

Sources: GPTQ (Frantar et al., 2022) and AWQ (Lin et al., 2023) quantize weights only, and their kernels do this.
"""

from dataclasses import dataclass
from functools import cache
from math import ceil

import torch

from instruments.backend import next_power_of_2, tl, triton
from instruments.gpus import GPU, GPUS
from instruments.launcher import Launch
from instruments.traffic import Traffic
from kernels.low_precision.weight_only_unpack import (
    flip_signs,
    order_by_parts,
    repeat_factors,
    rescale,
    scale_factors,
    split_slices,
    unpack,
    unpack_part,
)
from kernels.matmul.tile_order import grouped_tile
from kernels.matmul.tiled import matmul
from kernels.quantization.dequantize import dequantize
from kernels.quantization.schemes import Quantized, Scheme, dequantize_reference, scheme_of
from kernels.shared.arguments import check_no_grad, check_tensor
from kernels.shared.device import Device, device_of
from kernels.shared.metadata import by_metadata
from kernels.shared.rows import NO_LIMIT, as_rows

X_DTYPES = (torch.bfloat16, torch.float16)
WEIGHT_SCHEMES = ("int8_row", "int8_g128", "int4_g128", "mxfp4", "nvfp4")
MAX_SPLITS = 16
SUM_BLOCK = 1024  # elements of y per program of sum_splits_kernel
GROUP_N = 8  # rows of tiles of the weight in a group of the tile order


def weight_only_matmul_reference(x: torch.Tensor, weight: Quantized) -> torch.Tensor:
    """x @ weight^T in x's precision; pass fp64."""
    return x @ dequantize_reference(weight).to(x.dtype).T


@triton.jit
def weight_only_decode_kernel(
    x_ptr, codes_ptr, scales_ptr, tensor_scale_ptr, partial_ptr, y_ptr,
    M, N, K, x_row_stride, x_col_stride,
    words, row_words, row_scales, split_words,
    FORMAT: tl.constexpr, GROUP: tl.constexpr, EVEN: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, SLICES: tl.constexpr, WORDS: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """y [M, N], or partial [splits, M, N] in fp32 if it is not None: the sum over split_words words of each row.

    x [M <= BLOCK_M, K] of any strides; codes [N, words] int32 of FORMAT, with row stride row_words; scales
    [N, row_scales], one per GROUP values, or per row where GROUP is 0; tensor_scale one fp32, or None. EVEN: no tile
    ends outside the weight.
    """
    PER_WORD: tl.constexpr = 4 if FORMAT == "int8" else 8
    BLOCK_K: tl.constexpr = WORDS * PER_WORD  # of a slice
    COUNT: tl.constexpr = SLICES * BLOCK_K // GROUP if GROUP else 1  # scales of a row in a step
    dtype: tl.constexpr = x_ptr.dtype.element_ty
    row = tl.program_id(0).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)[:, None]  # [BLOCK_N, 1]: of the weights
    token = tl.arange(0, BLOCK_M)[:, None]  # [BLOCK_M, 1]: a row of x
    word = tl.arange(0, SLICES * WORDS)[None, :]  # [1, SLICES * WORDS]
    k = tl.arange(0, SLICES * BLOCK_K)[None, :]  # [1, SLICES * BLOCK_K]
    x_ptr += token.to(tl.int64) * x_row_stride
    codes_ptr += row * row_words
    scales_ptr += row * row_scales
    first = tl.program_id(1) * split_words
    acc = tl.zeros([SLICES, BLOCK_N, BLOCK_M], dtype=tl.float32)
    for start in tl.range(first, tl.minimum(first + split_words, words), SLICES * WORDS, num_stages=STAGES):
        start = tl.multiple_of(start, SLICES * WORDS)
        column = start * PER_WORD + k
        group = start * PER_WORD // GROUP + tl.arange(0, COUNT)[None, :] if GROUP else 0  # [1, COUNT]
        x_mask = token < M
        if EVEN:
            codes_mask, scales_mask, other = None, None, None
        else:  # past a row's end a weight may be any finite value: x is zero there
            codes_mask = (row < N) & (word < words - start)
            scales_mask, other = (row < N) & (group < row_scales), 0
            x_mask = x_mask & (column < K)
        codes = tl.load(codes_ptr + (start + word), mask=codes_mask)  # [BLOCK_N, SLICES * WORDS]
        x = tl.load(x_ptr + column * x_col_stride, mask=x_mask, other=0.0)  # [BLOCK_M, SLICES * BLOCK_K]
        weight = unpack(split_slices(codes, SLICES), FORMAT, dtype)  # [SLICES, BLOCK_N, BLOCK_K]
        x = order_by_parts(split_slices(x, SLICES), PER_WORD // 2)  # [SLICES, BLOCK_M, BLOCK_K]
        step = acc
        if GROUP:
            scales = split_slices(tl.load(scales_ptr + group, mask=scales_mask, other=other), SLICES)
            if FORMAT == "e2m1":
                weight *= repeat_factors(scale_factors(scales, dtype), GROUP)
            else:  # the sum of each group is scaled before it is added
                step = tl.zeros([SLICES, BLOCK_N, BLOCK_M], dtype=tl.float32)
        step = tl.dot(weight, x.permute(0, 2, 1), step)
        acc = acc + step * scales if GROUP and FORMAT != "e2m1" else step

    y = rescale(tl.sum(acc, axis=0), FORMAT, dtype)  # [BLOCK_N, BLOCK_M]
    if not GROUP:
        y *= tl.load(scales_ptr, mask=row < N, other=0.0)
    if tensor_scale_ptr is not None:
        y *= tl.load(tensor_scale_ptr)
    token = token.T.to(tl.int64)
    mask = (row < N) & (token < M)
    if partial_ptr is not None:
        tl.store(partial_ptr + (tl.program_id(1) * M + token) * N + row, y, mask=mask)
    else:
        tl.store(y_ptr + token * N + row, y.to(dtype), mask=mask)


@triton.jit
def sum_splits_kernel(partial_ptr, y_ptr, size, splits, BLOCK: tl.constexpr):
    """y [size] = the sum of partial [splits, size], fp32, in the order of the splits, rounded once."""
    offset = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)  # [BLOCK]
    acc = tl.zeros([BLOCK], dtype=tl.float32)
    for split in tl.range(0, splits):
        acc += tl.load(partial_ptr + split.to(tl.int64) * size + offset, mask=offset < size, other=0.0)
    tl.store(y_ptr + offset, acc.to(y_ptr.dtype.element_ty), mask=offset < size)


@triton.jit
def order_by_parts_kernel(
    x_ptr, ordered_ptr, K, x_row_stride, x_col_stride, cols, PARTS: tl.constexpr, BLOCK_K: tl.constexpr
):
    """x [M, K] of any strides -> ordered [M, cols], each BLOCK_K columns in the order of `order_by_parts`, zeros after
    x."""
    row = tl.program_id(0).to(tl.int64)
    col = tl.program_id(1) * BLOCK_K + tl.arange(0, BLOCK_K)[None, None, :]  # [1, 1, BLOCK_K]
    x = tl.load(x_ptr + row * x_row_stride + col * x_col_stride, mask=col < K, other=0.0)
    tl.store(ordered_ptr + row * cols + col, order_by_parts(x, PARTS))


@triton.jit
def weight_only_prefill_kernel(
    ordered_ptr, codes_ptr, scales_ptr, tensor_scale_ptr, y_ptr,
    M, N, cols, words, row_words, row_scales,
    FORMAT: tl.constexpr, GROUP: tl.constexpr,
    GROUP_N: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """y [M, N] from ordered [M, cols], x in the order of the parts, cols a multiple of BLOCK_K; the other tensors as in
    weight_only_decode_kernel."""
    PER_WORD: tl.constexpr = 4 if FORMAT == "int8" else 8
    PARTS: tl.constexpr = PER_WORD // 2
    WORDS: tl.constexpr = BLOCK_K // PER_WORD
    HALF_PARTS: tl.constexpr = PARTS // 2  # parts of one matmul
    HALF: tl.constexpr = BLOCK_K // 2  # their columns
    dtype: tl.constexpr = ordered_ptr.dtype.element_ty
    tile_n, tile_m = grouped_tile(tl.program_id(0), N, M, BLOCK_N, BLOCK_M, GROUP_N)
    row = tile_n.to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)[:, None]  # [BLOCK_N, 1]: of the weights
    token = tile_m.to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)[None, :]  # [1, BLOCK_M]: a row of x
    word = tl.arange(0, WORDS)[None, :]  # [1, WORDS]
    codes_ptr += row * row_words + word
    scales_ptr += row * row_scales
    ordered_ptr += token * cols + tl.arange(0, HALF)[:, None]
    acc = tl.zeros([BLOCK_N, BLOCK_M], dtype=tl.float32)
    for start in tl.range(0, words, WORDS, num_stages=STAGES):
        # past a row's end a code may be anything: x is zero there
        codes = tl.load(codes_ptr + start, mask=(row < N) & (word < words - start))  # [BLOCK_N, WORDS]
        codes = flip_signs(codes, FORMAT)
        step = acc
        if GROUP:  # the scales of this step, [BLOCK_N, BLOCK_K // GROUP]
            group = start * PER_WORD // GROUP + tl.arange(0, BLOCK_K // GROUP)[None, :]
            scales = tl.load(scales_ptr + group, mask=(row < N) & (group < row_scales), other=0)
            if FORMAT == "e2m1":
                factors = scale_factors(scales, dtype)[:, None, :, None]
                factors = tl.broadcast_to(factors, (BLOCK_N, HALF_PARTS, BLOCK_K // GROUP, GROUP // PARTS))
                factors = factors.reshape(BLOCK_N, HALF)  # one per column of a matmul
            else:  # the sum of each group is scaled before it is added
                step = tl.zeros([BLOCK_N, BLOCK_M], dtype=tl.float32)
        for s in tl.static_range(0, PARTS, HALF_PARTS):
            x_ptrs = ordered_ptr + (start * PER_WORD + s // HALF_PARTS * HALF)
            x = tl.load(x_ptrs, mask=token < M, other=0.0)  # [HALF, BLOCK_M]
            weight = unpack_part(codes, s, FORMAT, dtype)
            if HALF_PARTS == 2:
                weight = tl.join(weight, unpack_part(codes, s + 1, FORMAT, dtype)).permute(0, 3, 1, 2)
            weight = weight.reshape(BLOCK_N, HALF)
            if FORMAT == "e2m1":
                weight *= factors
            step = tl.dot(weight, x, step)
        acc = acc + step * scales if GROUP and FORMAT != "e2m1" else step
    acc = rescale(acc, FORMAT, dtype)
    if not GROUP:
        acc *= tl.load(scales_ptr, mask=row < N, other=0.0)
    if tensor_scale_ptr is not None:
        acc *= tl.load(tensor_scale_ptr)
    tl.store(y_ptr + token * N + row, acc.to(dtype), mask=(row < N) & (token < M))


@dataclass(frozen=True)
class WeightOnlyPath:
    """A row of the table of plans.

    Args:
        name: as in `path=`.
        rows: of x, at most.
        formats: of the weight.
        tile: as the kernel takes it; decode's BLOCK_M follows from the rows of x.
        programs: per SM; K is split where the weight's rows give fewer. 0 where K is never split.
        shared: bytes of shared memory that an SM must have.
        fills: whether the weight's rows must give that many programs by themselves.
    """

    name: str
    rows: int
    formats: tuple[str, ...]
    tile: dict
    programs: int = 0
    shared: int = 0
    fills: bool = False


def _slices(rows: int, warps: int, words: int, stages: int, registers: int | None = None) -> dict:
    """A decode tile: each warp takes `words` words of each row at a time. registers: per thread, at most."""
    tile = {"BLOCK_N": rows, "SLICES": warps, "WORDS": words, "num_warps": warps, "STAGES": stages}
    return tile if registers is None else tile | {"maxnreg": registers}


def _tile(tokens: int, rows: int, k: int, warps: int, stages: int) -> dict:
    """A prefill tile."""
    return {"BLOCK_M": tokens, "BLOCK_N": rows, "BLOCK_K": k, "num_warps": warps, "STAGES": stages}


ALL = ("int8", "int4", "e2m1")
PATHS = (
    # path, rows of x, formats, tile, programs or shared
    WeightOnlyPath("decode", 1, ("int4",), _slices(32, 8, 16, 3), 6, fills=True),
    WeightOnlyPath("decode", 1, ("int4",), _slices(32, 4, 16, 3, registers=80), 6, shared=200_000),
    WeightOnlyPath("decode", 1, ("int4",), _slices(32, 4, 16, 3), 6),
    WeightOnlyPath("decode", 4, ("int4",), _slices(64, 4, 16, 3), 6),
    WeightOnlyPath("decode", 8, ("int4",), _slices(64, 2, 16, 4), 6),
    WeightOnlyPath("decode", 8, ("int8", "e2m1"), _slices(32, 4, 16, 3), 6),
    WeightOnlyPath("decode", 16, ALL, _slices(64, 2, 16, 3), 6),
    WeightOnlyPath("prefill", 32, ALL, _tile(32, 128, 128, 4, 3)),
    WeightOnlyPath("prefill", 64, ("int4",), _tile(64, 128, 128, 4, 3), shared=200_000),
    WeightOnlyPath("prefill", 64, ALL, _tile(64, 128, 128, 8, 3)),
    WeightOnlyPath("prefill", 384, ("int4",), _tile(128, 64, 128, 4, 3), shared=200_000),
    WeightOnlyPath("prefill", 256, ("int8", "e2m1"), _tile(128, 128, 128, 8, 3), shared=200_000),
    WeightOnlyPath("prefill", 256, ALL, _tile(64, 128, 128, 8, 3)),
    WeightOnlyPath("apart", NO_LIMIT, ALL, {}),
    # prefill by name, for any number of rows
    WeightOnlyPath("prefill", NO_LIMIT, ("int4",), _tile(128, 64, 128, 4, 3), shared=200_000),
    WeightOnlyPath("prefill", NO_LIMIT, ALL, _tile(128, 128, 128, 8, 3), shared=200_000),
    WeightOnlyPath("prefill", NO_LIMIT, ALL, _tile(64, 128, 128, 8, 3)),
)


@dataclass(frozen=True)
class WeightOnlyPlan:
    """How a matmul is launched.

    Args:
        path, tile: as in WeightOnlyPath.
        splits: programs that split a row of the weight (split-K).
        split_words: 32-bit words of the row per split.
    """

    path: str
    tile: dict
    splits: int
    split_words: int


def per_word(scheme: Scheme) -> int:
    """Codes in a 32-bit word."""
    return 32 // scheme.bits


def plan(M: int, N: int, K: int, scheme: Scheme, path: str | None, gpu: Device | GPU) -> WeightOnlyPlan:
    """The plan for x [M, K] @ weight [N, K].T on a GPU: of the path named, or of the first in PATHS that takes M rows.

    Raises:
        ValueError: if the path does not take so many rows.
    """
    return _plan(M, N, K, scheme, path, gpu.sms, gpu.shared_per_sm)


@cache
def _plan(M: int, N: int, K: int, scheme: Scheme, path: str | None, sms: int, shared: int) -> WeightOnlyPlan:
    fitting = [
        row
        for row in PATHS
        if path in (None, row.name)
        and M <= row.rows
        and scheme.format in row.formats
        and shared >= row.shared
        and (not row.fills or ceil(N / row.tile["BLOCK_N"]) >= row.programs * sms)
    ]
    if not fitting:
        most = max(row.rows for row in PATHS if row.name == "decode")
        raise ValueError(
            f"path: got {path!r} for {M:,} rows of x, expected None, decode (to {most} rows), prefill or apart"
        )
    row, words = fitting[0], ceil(K / per_word(scheme))
    if row.name != "decode":
        return WeightOnlyPlan(row.name, row.tile, 1, words)
    tile = {"BLOCK_M": next_power_of_2(M), **row.tile}
    step = tile["SLICES"] * tile["WORDS"]
    steps, splits = ceil(words / step), row.programs * sms // ceil(N / tile["BLOCK_N"])
    split_words = ceil(steps / max(1, min(splits, steps, MAX_SPLITS))) * step
    return WeightOnlyPlan(row.name, tile, ceil(words / split_words), split_words)


def _as_words(codes: torch.Tensor) -> torch.Tensor:
    """[rows, bytes] as 32-bit words; copied only where rows do not begin and end on a word."""
    rows, cols = codes.shape
    if codes.stride(1) != 1 or (codes.data_ptr() | codes.stride(0) | cols) % 4:
        codes = torch.nn.functional.pad(codes, (0, -cols % 4)).contiguous()
    return codes.view(torch.int32)


def _check(x, weight, path):
    check_tensor("x", x, dtypes=X_DTYPES)
    if not isinstance(weight, Quantized):
        raise ValueError(
            f"weight: got {type(weight).__name__}, expected a Quantized of kernels/quantization/schemes.py"
        )
    scheme = weight.scheme
    if scheme.name not in WEIGHT_SCHEMES:
        raise ValueError(f"weight: got scheme {scheme.name}, expected one of {', '.join(WEIGHT_SCHEMES)}")
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


@dataclass(frozen=True)
class DecodeCall:
    """A call's plan for few rows of x. kernel, then, where it splits rows of the weight, adding: the launches. partial:
    [splits, M, N]."""

    partial: tuple[int, int, int]
    kernel: Launch
    adding: Launch | None

    def __call__(self, x, weights, y):
        partial = torch.empty(self.partial, dtype=torch.float32, device=x.device) if self.adding else None
        self.kernel(x, *weights, partial, y)
        if self.adding:
            self.adding(partial, y)


@dataclass(frozen=True)
class PrefillCall:
    """A call's plan for many rows of x, which are copied in the order of the parts first. ordered: [M, cols]."""

    ordered: tuple[int, int]
    ordering: Launch
    kernel: Launch

    def __call__(self, x, weights, y):
        ordered = torch.empty(self.ordered, dtype=x.dtype, device=x.device)
        self.ordering(x, ordered)
        self.kernel(ordered, *weights, y)


def _operands(weight: Quantized) -> tuple:
    """(codes as words, scales, tensor scale), as the kernels take them."""
    scales = weight.scales.contiguous()
    if weight.scheme.scale_format == "e4m3":
        scales = scales.view(torch.int8)
    return _as_words(weight.codes), scales, weight.tensor_scale


@by_metadata
def plan_call(x, weight, path) -> DecodeCall | PrefillCall | str:
    """The plan of a call, whose arguments it checks; else 'empty', 'zeros' or 'apart'."""
    _check(x, weight, path)
    (M, K), N, scheme = x.shape, weight.shape[0], weight.scheme
    if not M * N * K:
        return "zeros" if M * N else "empty"
    launch_plan = plan(M, N, K, scheme, path, device_of(x.device))
    if launch_plan.path == "apart":
        return "apart"
    (codes, scales, _), strides = _operands(weight), as_rows(x).stride()
    tile, splits, words = launch_plan.tile, launch_plan.splits, codes.shape[1]
    sizes = words, codes.stride(0), scales.shape[1]
    form, parts = {"FORMAT": scheme.format, "GROUP": scheme.block[1] or 0}, 2 if scheme.format == "int8" else 4
    if launch_plan.path == "decode":
        even = N % tile["BLOCK_N"] == 0 and words % (tile["SLICES"] * tile["WORDS"]) == 0 and K == words * 2 * parts
        kernel = Launch(
            weight_only_decode_kernel, (ceil(N / tile["BLOCK_N"]), splits),
            M, N, K, *strides, *sizes, launch_plan.split_words, **form, EVEN=even, **tile,
        )  # fmt: skip
        adding = Launch(sum_splits_kernel, (ceil(M * N / SUM_BLOCK),), M * N, splits, SUM_BLOCK) if splits > 1 else None
        return DecodeCall((splits, M, N), kernel, adding)
    blocks = ceil(2 * parts * words / tile["BLOCK_K"])
    cols, grid = blocks * tile["BLOCK_K"], (ceil(M / tile["BLOCK_M"]) * ceil(N / tile["BLOCK_N"]),)
    order = Launch(order_by_parts_kernel, (M, blocks), K, *strides, cols, parts, tile["BLOCK_K"], num_warps=1)
    return PrefillCall(
        (M, cols), order, Launch(weight_only_prefill_kernel, grid, M, N, cols, *sizes, **form, GROUP_N=GROUP_N, **tile)
    )


def weight_only_matmul(x: torch.Tensor, weight: Quantized, *, path: str | None = None) -> torch.Tensor:
    """x @ weight^T, accumulated in fp32 and rounded once.

    Args:
        x: [M, K], fp16 or bf16, of any strides.
        weight: [N, K], in scheme int8_row, int8_g128, int4_g128, mxfp4 or nvfp4.
        path: 'decode' (M up to 16), 'prefill', or 'apart' (the weight is dequantized to memory first, which takes
            2 N K bytes); None chooses by M.

    Returns:
        [M, N], contiguous, of x's dtype. No gradient.

    Raises:
        ValueError: names the argument.

    Note:
        Codes whose rows do not begin and end on 32-bit words are copied first. An MX scale may be from 2^-107 to 2^17,
        with fp16 from 2^-15 to 2^9; a larger one becomes infinite.
    """
    call = plan_call(x, weight, path)
    if call == "apart":
        return matmul(x, dequantize(weight, x.dtype).T)
    y = torch.empty((x.shape[0], weight.shape[0]), dtype=x.dtype, device=x.device)
    if call == "zeros":
        y.zero_()
    elif call != "empty":
        call(as_rows(x), _operands(weight), y)
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
    """What x [M, K] @ weight [N, K].T moves, the weight quantized.

    Args:
        M, N, K: sizes.
        scheme: of the weight, or its name.
        dtype: of x and y.
        path: 'minimum', each byte once; 'naive', like 'apart', the weight dequantized to 16 bits and then multiplied;
            'decode', 'prefill' or 'apart', the bytes that their programs request, before the caches; None, the path
            that `weight_only_matmul` chooses.
        gpu: for which the launch is planned.
    """
    scheme = scheme_of(scheme)
    stored, size, flops = scheme.nbytes(N, K), dtype.itemsize, 2 * M * N * K
    x, y = M * K * size, M * N * size
    if path == "minimum":
        return Traffic({"x": x, **stored}, {"y": y}, flops, launches=1)
    launch_plan = None if path == "naive" else plan(M, N, K, scheme, path, gpu)
    if path == "naive" or launch_plan.path == "apart":
        wide = N * K * size
        return Traffic(stored, {"weight": wide}, launches=1) + Traffic({"x": x, "weight": wide}, {"y": y}, flops, 1)
    across, down = ceil(N / launch_plan.tile["BLOCK_N"]), ceil(M / launch_plan.tile["BLOCK_M"])
    read = {"x": x * across, "codes": stored["codes"] * down, "scales": stored["scales"] * down}
    if scheme.block[1] is None:
        read["scales"] *= launch_plan.splits
    if scheme.has_tensor_scale:
        read["tensor_scale"] = 4 * across * down * launch_plan.splits
    if launch_plan.path == "prefill":
        ordered = M * ceil(K / launch_plan.tile["BLOCK_K"]) * launch_plan.tile["BLOCK_K"] * size
        read |= {"x": x, "ordered": ordered * across}
        return Traffic(read, {"ordered": ordered, "y": y}, flops, launches=2)
    if launch_plan.splits == 1:
        return Traffic(read, {"y": y}, flops, launches=1)
    partial = {"partial": 4 * M * N * launch_plan.splits}
    return Traffic(read | partial, {"y": y} | partial, flops, launches=2)
