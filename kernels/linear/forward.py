"""Linear layers with an epilogue: what follows a matmul is done to its accumulator, before the only store.

y = alpha * act(x @ weight^T * row_scale + bias) + beta * residual, with each part optional. Minimum traffic: x, weight,
bias and residual read once, y written once. Unfused, every op after the matmul reads and writes M * N elements more.

The accumulator tile [BLOCK_M, BLOCK_N] is in registers, in fp32. Adding a bias, an activation or a residual there costs
no traffic but the bias's and the residual's own, and everything is rounded once, at the store. Three epilogues change
more than single elements:

    SwiGLU     gate and up come out of one matmul. Their weights' rows alternate, so that both numbers of a pair are
               neighbors in a thread, and the tile stored has half the columns.
    RMSNorm    its scale is the same for a whole row, so it commutes with the matmul and multiplies the accumulator's
               rows. The plain kernel takes the sum of squares in the K loop, from the tiles of x that are there anyway,
               again in each column of tiles. The norm's weight is folded into `weight`.
    RMSNorm of y needs a whole row of y, which no tile has: `linear_residual_rmsnorm` makes two launches.

On a GPU the row scales are computed by a launch of their own, which reads x once and writes 4 bytes per row. In the
persistent kernel the K loop cannot: with Triton 3.6, a tile that TMA loads for the tensor cores and that registers read
as well is overwritten too early, and on an H200 half of the rows of a 1,024 x 4,096 x 4,096 matmul were wrong.

CUTLASS calls this an epilogue functor or visitor tree (EVT), cuBLASLt an epilogue; XLA and Inductor fuse it. The
kernels are those of kernels/matmul with an epilogue; SwiGLU is Shazeer's (2020), RMSNorm Zhang and Sennrich's (2019).
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F

from instruments.backend import cdiv, tl, triton
from kernels.elementwise.bias_gelu import CUBIC, TWO_U, gelu
from kernels.matmul import persistent
from kernels.matmul.persistent import aligned, count_tiles, is_describable
from kernels.matmul.tile_order import grouped_tile
from kernels.shared.device import device_of, has_descriptors, tensor_descriptor
from kernels.shared.tiles import LOG2E

GROUP_M = 8
ACTIVATIONS = ("relu", "gelu", "silu")
PLAIN = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32, "num_warps": 4, "num_stages": 3}
#: Of the plain kernel for up to 16 rows, as in decode: many narrow tiles, so that all SMs load the weight.
FEW_ROWS = {"BLOCK_M": 16, "BLOCK_N": 32, "BLOCK_K": 256, "num_warps": 4, "num_stages": 4}
ROW_SCALE = {"BLOCK": 2048, "num_warps": 4}
PATHS = ("plain", "persistent")


def linear_reference(x, weight, bias=None, activation=None, residual=None, alpha=1.0, beta=1.0, row_scale=None):
    """The same in plain PyTorch, in the precision of its arguments: pass fp64 for a reference. weight [N, K]; with
    activation 'swiglu' its rows alternate between gate and up."""
    z = x @ weight.T
    if row_scale is not None:
        z = z * row_scale[:, None]
    if bias is not None:
        z = z + bias
    if activation == "swiglu":
        z = F.silu(z[:, ::2]) * z[:, 1::2]
    elif activation == "gelu":
        z = F.gelu(z, approximate="tanh")
    elif activation:
        z = getattr(F, activation)(z)
    return alpha * z if residual is None else alpha * z + beta * residual


@triton.jit
def silu(z):
    """z sigmoid(z), in fp32."""
    return z / (1 + tl.exp2(z * -LOG2E))


@triton.jit
def gelu_approximate(z):
    """GELU with one SFU instruction, tanh.approx, where gelu() takes two, an exp2 and a reciprocal. NVIDIA only.

    The tanh is off by 2**-11 at most, so the result by 2**-12 |z|: less than rounding to bf16 where z is above 1, more
    where GELU is near 0, as at z = -3. The error of a whole tensor, in the norm, stays that of the rounding.
    """
    u = z * (TWO_U / 2 + TWO_U / 2 * CUBIC * (z * z))
    half = 0.5 * z
    return half + half * tl.inline_asm_elementwise(
        "tanh.approx.f32 $0, $1;", "=f,f", [u], dtype=tl.float32, is_pure=True, pack=1
    )


@triton.jit
def activate(z, ACTIVATION: tl.constexpr, APPROXIMATE: tl.constexpr = False):
    """The activation of a tile in fp32; a NaN stays one."""
    if ACTIVATION == "relu":
        return tl.where(z < 0, 0.0, z)
    elif ACTIVATION == "gelu":
        return gelu_approximate(z) if APPROXIMATE else gelu(z)
    elif ACTIVATION == "silu":
        return silu(z)
    else:
        return z


@triton.jit
def row_scale_kernel(x_ptr, scale_ptr, K, x_row_stride, x_col_stride, eps, BLOCK: tl.constexpr):
    """RMSNorm's scale of one row per program: x [M, K] of any strides, scale [M] fp32."""
    row = tl.program_id(0).to(tl.int64)
    squares = tl.zeros([BLOCK], dtype=tl.float32)
    for start in tl.range(0, K, BLOCK):
        col = start + tl.arange(0, BLOCK).to(tl.int64)
        x = tl.load(x_ptr + row * x_row_stride + col * x_col_stride, mask=col < K, other=0.0).to(tl.float32)
        squares += x * x
    tl.store(scale_ptr + row, tl.rsqrt(tl.sum(squares) / K + eps))


@triton.jit
def finish_rows_and_columns(acc, scale, bias_ptr, col, N, BLOCK_N: tl.constexpr):
    """The accumulator [BLOCK_M, BLOCK_N] times the scale of each row, if there are scales [BLOCK_M], plus the bias of
    each column, if there is one."""
    if scale is not None:
        acc *= scale[:, None]
    if bias_ptr is not None:
        cols = col + tl.arange(0, BLOCK_N)  # [BLOCK_N]
        acc += tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)[None, :]
    return acc


@triton.jit
def swiglu_pairs(acc, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """[BLOCK_M, BLOCK_N // 2]: silu(gate) * up of an accumulator whose columns alternate between gate and up."""
    gate, up = tl.split(tl.reshape(acc, (BLOCK_M, BLOCK_N // 2, 2)))
    return silu(gate) * up


@triton.jit
def linear_plain_kernel(
    x_ptr, weight_ptr, scale_ptr, bias_ptr, residual_ptr, y_ptr,
    M, N, K,
    x_row_stride, x_col_stride, weight_row_stride, weight_col_stride, residual_row_stride, residual_col_stride,
    alpha, beta, eps,
    ACTIVATION: tl.constexpr, NORM: tl.constexpr, PRECISION: tl.constexpr, GROUP_M: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """One tile of y per program: x [M, K], weight [N, K] and residual like y of any strides, scale [M] fp32, bias [N];
    y [M, N], or [M, N // 2] with SwiGLU, contiguous. scale, bias and residual may be None. With NORM the rows' scales
    are computed here."""
    tile_m, tile_n = grouped_tile(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    row = tile_m.to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]  # [BLOCK_M, 1]
    col = tile_n.to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]  # [1, BLOCK_N]
    k = tl.arange(0, BLOCK_K).to(tl.int64)  # [BLOCK_K]
    acc = tl.zeros([BLOCK_M, BLOCK_N], dtype=tl.float32)
    squares = tl.zeros([BLOCK_M], dtype=tl.float32) if NORM else None
    for start in tl.range(0, K, BLOCK_K):
        inside = start + k < K
        x_ptrs = x_ptr + row * x_row_stride + (start + k)[None, :] * x_col_stride
        x = tl.load(x_ptrs, mask=(row < M) & inside[None, :], other=0.0)  # [BLOCK_M, BLOCK_K]
        weight_ptrs = weight_ptr + (start + k)[:, None] * weight_col_stride + col * weight_row_stride
        weight = tl.load(weight_ptrs, mask=inside[:, None] & (col < N), other=0.0)  # [BLOCK_K, BLOCK_N]
        acc = tl.dot(x, weight, acc, input_precision=PRECISION)
        if NORM:
            squares += tl.sum(x.to(tl.float32) * x.to(tl.float32), axis=1)
    scale = None
    if NORM:
        scale = tl.rsqrt(squares / K + eps)
    elif scale_ptr is not None:
        rows = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
        scale = tl.load(scale_ptr + rows, mask=rows < M, other=0.0)
    acc = finish_rows_and_columns(acc, scale, bias_ptr, tile_n * BLOCK_N, N, BLOCK_N)
    if ACTIVATION == "swiglu":
        pairs = tile_n.to(tl.int64) * (BLOCK_N // 2) + tl.arange(0, BLOCK_N // 2)[None, :]  # [1, BLOCK_N // 2]
        y = alpha * swiglu_pairs(acc, BLOCK_M, BLOCK_N)
        tl.store(y_ptr + row * (N // 2) + pairs, y.to(y_ptr.dtype.element_ty), mask=(row < M) & (pairs < N // 2))
    else:
        mask = (row < M) & (col < N)
        y = alpha * activate(acc, ACTIVATION)
        if residual_ptr is not None:
            residual_ptrs = residual_ptr + row * residual_row_stride + col * residual_col_stride
            y += beta * tl.load(residual_ptrs, mask=mask, other=0.0).to(tl.float32)
        tl.store(y_ptr + row * N + col, y.to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def linear_persistent_kernel(
    x, weight, scale_ptr, bias_ptr, residual, y,
    M, N, K,
    alpha, beta,
    tiles,
    ACTIVATION: tl.constexpr, GROUP_M: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Many tiles per program: descriptors of x [M, K], weight [N, K], and of residual and y, [M, N] or with SwiGLU
    [M, N // 2], in tiles [BLOCK_M, BLOCK_N // 2]; scale [M] fp32, bias [N]. scale, bias and residual may be None."""
    HALF: tl.constexpr = BLOCK_N // 2
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0), flatten=True):
        tile_m, tile_n = grouped_tile(tile, M, N, BLOCK_M, BLOCK_N, GROUP_M)
        row, col = tile_m * BLOCK_M, tile_n * BLOCK_N
        acc = tl.zeros([BLOCK_M, BLOCK_N], dtype=tl.float32)
        for k in tl.range(0, K, BLOCK_K):
            acc = tl.dot(x.load([row, k]), weight.load([col, k]).T, acc)
        scale = None
        if scale_ptr is not None:
            rows = row + tl.arange(0, BLOCK_M)  # [BLOCK_M]
            scale = tl.load(scale_ptr + rows, mask=rows < M, other=0.0)
        acc = finish_rows_and_columns(acc, scale, bias_ptr, col, N, BLOCK_N)
        if ACTIVATION == "swiglu":
            y.store([row, tile_n * HALF], (alpha * swiglu_pairs(acc, BLOCK_M, BLOCK_N)).to(y.dtype))
        else:  # in two halves, which share one buffer of half the size
            left, right = tl.split(tl.permute(tl.reshape(acc, (BLOCK_M, 2, HALF)), (0, 2, 1)))
            left = alpha * activate(left, ACTIVATION, y.dtype == tl.bfloat16)
            right = alpha * activate(right, ACTIVATION, y.dtype == tl.bfloat16)
            if residual is not None:
                left += beta * residual.load([row, col]).to(tl.float32)
                right += beta * residual.load([row, col + HALF]).to(tl.float32)
            y.store([row, col], left.to(y.dtype))
            y.store([row, col + HALF], right.to(y.dtype))


@dataclass(frozen=True)
class LinearPlan:
    """A launch. path: of PATHS. tile: constants of the kernel by its names for them. programs: their number.
    scale_first: whether RMSNorm's scales come from a launch of their own."""

    path: str
    tile: dict
    programs: int
    scale_first: bool


def linear_plan(M: int, N: int, device: torch.device, itemsize: int, columns: int, path: str | None) -> LinearPlan:
    """The plan for y [M, columns] of a weight with N rows.

    Args:
        M: rows of x.
        N: rows of the weight.
        device: where the tensors are.
        itemsize: bytes of an element.
        columns: of y: N, or half of it with SwiGLU.
        path: None picks the persistent kernel for more than 16 rows on a GPU that can run it.

    Raises:
        ValueError: where the path cannot run.
    """
    able = itemsize == 2 and columns % 8 == 0 and has_descriptors(device, persistent.SHARED)
    if path is not None and (path not in PATHS or path == "persistent" and not able):
        raise ValueError(
            f"path: got {path!r} for {itemsize}-byte elements and {columns} columns on {device}, expected None, "
            f"'plain' (any) or 'persistent' (16 bits, columns a multiple of 8; tensor descriptors and "
            f"{persistent.SHARED:,} B of shared memory)"
        )
    if path == "plain" or path is None and (M <= FEW_ROWS["BLOCK_M"] or not (able and device.type == "cuda")):
        tile = FEW_ROWS if M <= FEW_ROWS["BLOCK_M"] else PLAIN
        return LinearPlan("plain", tile, count_tiles(tile, M, N), path is None and device.type == "cuda")
    programs = device_of(device).sms
    tile = persistent.LARGE if 4 * count_tiles(persistent.LARGE, M, N) >= 3 * programs else persistent.SMALL
    return LinearPlan("persistent", tile, min(programs, count_tiles(tile, M, N)), True)


def launch(x, weight, bias, residual, y, plan: LinearPlan, activation, alpha, beta, norm_eps):
    """y as in the module's docstring, of checked arguments, none of them empty. norm_eps: None, or RMSNorm's eps."""
    (M, K), N = x.shape, weight.shape[0]
    scale = None
    if norm_eps is not None and plan.scale_first:
        scale = torch.empty(M, dtype=torch.float32, device=x.device)
        row_scale_kernel[(M,)](x, scale, K, *x.stride(), norm_eps, **ROW_SCALE)
    if plan.path == "plain":
        strides = residual.stride() if residual is not None else (0, 0)
        linear_plain_kernel[(plan.programs,)](
            x, weight, scale, bias, residual, y,
            M, N, K,
            *x.stride(), *weight.stride(), *strides,
            float(alpha), float(beta), norm_eps or 0.0,
            ACTIVATION=activation, NORM=norm_eps is not None and scale is None,
            PRECISION="ieee", GROUP_M=GROUP_M, **plan.tile,
        )  # fmt: skip
        return
    x, weight = aligned(x), aligned(weight)
    if residual is not None and not is_describable(residual):
        residual = residual.contiguous()
    m, n, k = (plan.tile[name] for name in ("BLOCK_M", "BLOCK_N", "BLOCK_K"))

    def describe(matrix, *box):
        return tensor_descriptor(matrix, matrix.shape, matrix.stride(), box)

    linear_persistent_kernel[(plan.programs,)](
        describe(x, m, k), describe(weight, n, k), scale, bias,
        residual if residual is None else describe(residual, m, n // 2), describe(y, m, n // 2),
        M, N, K,
        float(alpha), float(beta),
        count_tiles(plan.tile, M, N),
        ACTIVATION=activation, GROUP_M=GROUP_M, **plan.tile,
    )  # fmt: skip


def tiles_across(N: int, tile: dict | None) -> int:
    """Columns of tiles of a weight with N rows; 1 where no tile is given."""
    return cdiv(N, tile["BLOCK_N"]) if tile else 1
