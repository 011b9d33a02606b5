"""Right answers that must get full marks: {name: (line of the findings, task, answer cell)}. Data only.

Written apart from the cure, from the lines of the findings. Each was run in the interpreter on awkward shapes against
fp64 and compiled for sm_80 and sm_90, but for those under `costs 7`, of which the interpreter of commit 7a3d67d could
not run all; these were compiled. A cell may assume `import torch` and `from instruments.backend import triton, tl`.
"""

# Host functions that several items share; what an item is about stands in the item.

SCALED_ADD = """

def scaled_add(x, y, alpha):
    out = torch.empty_like(y)
    size = y.numel()
    scaled_add_kernel[(triton.cdiv(size, 1024),)](x, y, out, alpha, size, BLOCK=1024)
    return out
"""

FUSED_CHAIN = """

def fused_chain(x, scale, shift, limit):
    rows, cols = x.shape
    y = torch.empty((rows, cols), dtype=x.dtype, device=x.device)
    chain_kernel[(triton.cdiv(cols, 512), rows)](x, scale, shift, y, x.stride(0), cols, float(limit), BLOCK=512)
    return y
"""

BIAS_GELU = """

def bias_gelu(x, bias):
    rows, cols = x.shape
    y = torch.empty((rows, cols), dtype=x.dtype, device=x.device)
    grid = (triton.cdiv(cols, 128), triton.cdiv(rows, 16))
    bias_gelu_tile_kernel[grid](x, bias, y, x.stride(0), rows, cols, 16, 128)
    return y
"""

GEMMA_NORM = """

def gemma_norm(x, weight, eps):
    rows, cols = x.shape
    y = torch.empty(rows, cols, dtype=torch.float32, device=x.device)
    scale = torch.empty(rows, dtype=torch.float32, device=x.device)
    BLOCK = triton.next_power_of_2(cols)
    gemma_norm_kernel[(rows,)](x, weight, y, scale, x.stride(0), cols, eps, BLOCK=BLOCK, num_warps=8)
    return y, scale
"""

WIDE_NORM = """

def wide_norm(x, weight, eps, out_dtype):
    rows, cols = x.shape
    y = torch.empty(rows, cols, dtype=out_dtype, device=x.device)
    wide_norm_kernel[(rows,)](x, weight, y, x.stride(0), cols, eps, BLOCK=2048, num_warps=8)
    return y
"""

ROW_SUM_MAX = """

def row_sum_max(x):
    rows, cols = x.shape
    sums = torch.empty(rows, dtype=torch.float32, device=x.device)
    largest = torch.empty_like(sums)
    row_sum_max_kernel[(rows,)](x, sums, largest, cols, x.stride(0), BLOCK=1024)
    return sums, largest
"""

GELU_HEAD = """
@triton.jit
def bias_gelu_tile_kernel(x_ptr, bias_ptr, y_ptr, x_row_stride, rows, cols, BLOCK_M: tl.constexpr,
                          BLOCK_N: tl.constexpr):
    row = tl.program_id(1).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    column = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    inside = (row < rows) & (column < cols)
    z = tl.load(x_ptr + row * x_row_stride + column, mask=inside, other=0.0).to(tl.float32)
    z += tl.load(bias_ptr + column, mask=column < cols, other=0.0)
"""

NORM_HEAD = """
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    inside = columns < cols
    x = tl.load(x_ptr + row * x_row_stride + columns, mask=inside, other=0.0).to(tl.float32)
"""

NORM_TAIL = """
    weight = tl.load(weight_ptr + columns, mask=inside, other=0.0)
    tl.store(y_ptr + row * cols + columns, x * scale * (1 + weight), mask=inside)
    tl.store(scale_ptr + row, scale)
"""

RIGHT = {
    # ---- costs 2: constants and hints that compile and that the replay must know ----
    "a constant from math.pi and a power": (
        "costs 2",
        "04.3",
        """
import math

TWICE = tl.constexpr(2 * (2 / math.pi) ** 0.5)

"""
        + GELU_HEAD
        + """
    u = z * (1 + 0.044715 * z * z)
    y = z * tl.sigmoid(u * TWICE)
    tl.store(y_ptr + row * cols + column, y.to(y_ptr.dtype.element_ty), mask=inside)
"""
        + BIAS_GELU,
    ),
    "exp2 with a constant from math.log2(math.e)": (
        "costs 2",
        "04.4",
        """
from math import e, log2

ALPHA = tl.constexpr(1.702)
FACTOR = tl.constexpr(-1.702 * log2(e))


@triton.jit
def swiglu_kernel(gate_up_ptr, y_ptr, size, BLOCK: tl.constexpr):
    element = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = element < size
    gate = tl.load(gate_up_ptr + 2 * element, mask=inside).to(tl.float32)
    up = tl.load(gate_up_ptr + 2 * element + 1, mask=inside).to(tl.float32)
    power = gate * FACTOR
    y = gate / (1 + tl.exp2(power)) * (up + 1)
    tl.store(y_ptr + element, y.to(y_ptr.dtype.element_ty), mask=inside)


def swiglu(gate_up):
    rows, inter = gate_up.shape[0], gate_up.shape[1] // 2
    y = torch.empty((rows, inter), dtype=gate_up.dtype, device=gate_up.device)
    swiglu_kernel[(triton.cdiv(y.numel(), 512),)](gate_up, y, y.numel(), BLOCK=512)
    return y


@triton.jit
def swiglu_backward_kernel(dy_ptr, gate_up_ptr, dgate_up_ptr, size, BLOCK: tl.constexpr):
    element = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = element < size
    dy = tl.load(dy_ptr + element, mask=inside).to(tl.float32)
    gate = tl.load(gate_up_ptr + 2 * element, mask=inside).to(tl.float32)
    up = tl.load(gate_up_ptr + 2 * element + 1, mask=inside).to(tl.float32)
    power = gate * FACTOR
    s = 1 / (1 + tl.exp2(power))
    dgate = dy * (up + 1) * (s + gate * ALPHA * s * (1 - s))
    tl.store(dgate_up_ptr + 2 * element, dgate.to(dgate_up_ptr.dtype.element_ty), mask=inside)
    tl.store(dgate_up_ptr + 2 * element + 1, (dy * gate * s).to(dgate_up_ptr.dtype.element_ty), mask=inside)


def swiglu_backward(dy, gate_up):
    dgate_up = torch.empty_like(gate_up)
    swiglu_backward_kernel[(triton.cdiv(dy.numel(), 512),)](dy, gate_up, dgate_up, dy.numel(), BLOCK=512)
    return dgate_up
""",
    ),
    "minus infinity from math.inf": (
        "costs 2",
        "02.4",
        """
import math

LOWEST = tl.constexpr(-math.inf)


@triton.jit
def row_sum_max_kernel(x_ptr, sums_ptr, largest_ptr, cols, row_stride, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    total = tl.zeros([BLOCK], dtype=tl.float32)
    largest = tl.full([BLOCK], LOWEST, dtype=tl.float32)
    for start in tl.range(0, cols, BLOCK):
        col = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * row_stride + col, mask=col < cols, other=LOWEST).to(tl.float32)
        total += tl.where(col < cols, x, 0.0)
        largest = tl.maximum(largest, x)
    tl.store(sums_ptr + row, tl.sum(total))
    tl.store(largest_ptr + row, tl.max(largest))
"""
        + ROW_SUM_MAX,
    ),
    "the smallest normal number from torch.finfo": (
        "costs 2",
        "05.4",
        """
TINY = tl.constexpr(torch.finfo(torch.float32).tiny)


@triton.jit
def wide_norm_kernel(x_ptr, weight_ptr, y_ptr, x_row_stride, cols, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    squares = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, cols, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * x_row_stride + columns, mask=columns < cols, other=0.0).to(tl.float32)
        squares += x * x
    mean = tl.sum(squares) / cols + eps
    scale = tl.rsqrt(tl.maximum(mean, TINY))
    for start in range(0, cols, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        inside = columns < cols
        x = tl.load(x_ptr + row * x_row_stride + columns, mask=inside, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + columns, mask=inside, other=0.0)
        tl.store(y_ptr + row * cols + columns, x * scale * (1 + weight), mask=inside)
"""
        + WIDE_NORM,
    ),
    "the largest number from torch.finfo in an annotated global": (
        "costs 2",
        "04.2",
        """
LARGEST: tl.constexpr = tl.constexpr(torch.finfo(torch.float32).max)


@triton.jit
def chain_kernel(x_ptr, scale_ptr, shift_ptr, y_ptr, x_row_stride, cols, limit, BLOCK: tl.constexpr):
    row = tl.program_id(1).to(tl.int64)
    columns = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = columns < cols
    x = tl.load(x_ptr + row * x_row_stride + columns, mask=inside).to(tl.float32)
    z = tl.load(scale_ptr + columns, mask=inside) * x + tl.load(shift_ptr + columns, mask=inside)
    z = tl.maximum(z, 0.0)
    square = tl.minimum(z * z, LARGEST)
    tl.store(y_ptr + row * cols + columns, tl.minimum(square, limit).to(y_ptr.dtype.element_ty), mask=inside)
"""
        + FUSED_CHAIN,
    ),
    "two constants unpacked from a list": (
        "costs 2",
        "04.3",
        """
[TWICE, CUBIC] = [tl.constexpr(1.5957691216057308), tl.constexpr(0.044715)]

"""
        + GELU_HEAD
        + """
    u = z + z * z * z * CUBIC
    y = z * tl.sigmoid(u * TWICE)
    tl.store(y_ptr + row * cols + column, y.to(y_ptr.dtype.element_ty), mask=inside)
"""
        + BIAS_GELU,
    ),
    "constants unpacked with a star from map": (
        "costs 2",
        "04.3",
        """
TILE_M, TILE_N, *FACTORS = 32, 64, 1.5957691216057308, 0.044715
TWICE, CUBIC = map(tl.constexpr, FACTORS)

"""
        + GELU_HEAD
        + """
    y = z * tl.sigmoid((z + z * z * z * CUBIC) * TWICE)
    tl.store(y_ptr + row * cols + column, y.to(y_ptr.dtype.element_ty), mask=inside)


def bias_gelu(x, bias):
    rows, cols = x.shape
    y = torch.empty((rows, cols), dtype=x.dtype, device=x.device)
    grid = (triton.cdiv(cols, TILE_N), triton.cdiv(rows, TILE_M))
    bias_gelu_tile_kernel[grid](x, bias, y, x.stride(0), rows, cols, TILE_M, TILE_N)
    return y
""",
    ),
    "nested unpacking of the tile and the warps": (
        "costs 2",
        "02.3",
        """
(SIDE, (WARPS, STAGES)), PAD = (32, (4, 1)), tl.constexpr(0)


@triton.jit
def transpose_kernel(x_ptr, out_ptr, rows, cols, row_stride, ROWS: tl.constexpr, COLS: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    col = tl.program_id(1).to(tl.int64) * COLS + tl.arange(0, COLS)
    mask = (row < rows)[:, None] & (col < cols)[None, :]
    tile = tl.load(x_ptr + row[:, None] * row_stride + col[None, :], mask=mask, other=PAD)
    tl.store(out_ptr + col[:, None] * rows + row[None, :], tl.trans(tile), mask=tl.trans(mask))


def transpose(x):
    rows, cols = x.shape
    out = torch.empty((cols, rows), dtype=x.dtype, device=x.device)
    transpose_kernel[(triton.cdiv(rows, SIDE), triton.cdiv(cols, SIDE))](
        x, out, rows, cols, x.stride(0), ROWS=SIDE, COLS=SIDE, num_warps=WARPS, num_stages=STAGES)
    return out
""",
    ),
    "a constant that a helper function computes": (
        "costs 2",
        "04.3",
        '''
def newton(square):
    """The square root, by Newton's steps."""
    root = 1.0
    for _ in range(30):
        root = (root + square / root) / 2
    return root


PI = 3.141592653589793
TWICE = tl.constexpr(2 * newton(2 / PI))

'''
        + GELU_HEAD
        + """
    y = z * tl.sigmoid((z + 0.044715 * z * z * z) * TWICE)
    tl.store(y_ptr + row * cols + column, y.to(y_ptr.dtype.element_ty), mask=inside)
"""
        + BIAS_GELU,
    ),
    "a constant from a lambda and a dictionary": (
        "costs 2",
        "04.2",
        """
SIZES = {"block": 256, "warps": 4}
power = lambda base, exponent: base ** exponent
FLOOR = tl.constexpr(0.0 * power(2, 3))


@triton.jit
def chain_kernel(x_ptr, scale_ptr, shift_ptr, y_ptr, x_row_stride, cols, limit, BLOCK: tl.constexpr):
    row = tl.program_id(1).to(tl.int64)
    columns = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = columns < cols
    x = tl.load(x_ptr + row * x_row_stride + columns, mask=inside).to(tl.float32)
    z = tl.load(scale_ptr + columns, mask=inside) * x + tl.load(shift_ptr + columns, mask=inside)
    z = tl.maximum(z, FLOOR)
    tl.store(y_ptr + row * cols + columns, tl.minimum(z * z, limit).to(y_ptr.dtype.element_ty), mask=inside)


def fused_chain(x, scale, shift, limit):
    rows, cols = x.shape
    y = torch.empty((rows, cols), dtype=x.dtype, device=x.device)
    block = SIZES["block"]
    chain_kernel[(triton.cdiv(cols, block), rows)](x, scale, shift, y, x.stride(0), cols, limit, BLOCK=block,
                                                   num_warps=SIZES["warps"])
    return y
""",
    ),
    "a constant that a loop and an if at module level compute": (
        "costs 2",
        "05.3",
        """
unit = 2.0
for _ in range(3):
    unit = unit / 2
if unit < 1:
    unit = unit * 4
ONE = tl.constexpr(unit)


@triton.jit
def gemma_norm_kernel(x_ptr, weight_ptr, y_ptr, scale_ptr, x_row_stride, cols, eps, BLOCK: tl.constexpr):
"""
        + NORM_HEAD
        + """
    scale = tl.rsqrt(tl.sum(x * x) / cols + eps)
    weight = tl.load(weight_ptr + columns, mask=inside, other=0.0) + ONE
    tl.store(y_ptr + row * cols + columns, x * scale * weight, mask=inside)
    tl.store(scale_ptr + row, scale)
"""
        + GEMMA_NORM,
    ),
    "constants in a class, an enum and numpy": (
        "costs 2",
        "04.3",
        """
from dataclasses import dataclass
from enum import IntEnum

import numpy as np


class Side(IntEnum):
    ROWS = 16
    COLS = 256


@dataclass(frozen=True)
class Gelu:
    twice: float = float(2 * np.sqrt(2 / np.pi))
    cubic: float = 0.044715


TWICE, CUBIC = tl.constexpr(Gelu().twice), tl.constexpr(Gelu.cubic)

"""
        + GELU_HEAD
        + """
    y = z * tl.sigmoid((z + z * z * z * CUBIC) * TWICE)
    tl.store(y_ptr + row * cols + column, y.to(y_ptr.dtype.element_ty), mask=inside)


def bias_gelu(x, bias):
    rows, cols = x.shape
    y = torch.empty((rows, cols), dtype=x.dtype, device=x.device)
    grid = (triton.cdiv(cols, int(Side.COLS)), triton.cdiv(rows, int(Side.ROWS)))
    bias_gelu_tile_kernel[grid](x, bias, y, x.stride(0), rows, cols, int(Side.ROWS), int(Side.COLS))
    return y
""",
    ),
    "constexpr_function halves the block": (
        "costs 2",
        "02.2",
        """
@triton.constexpr_function
def half(n):
    return n // 2


@triton.jit
def add_short_kernel(x_ptr, y_ptr, out_ptr, n, m, BLOCK: tl.constexpr):
    start = tl.program_id(0).to(tl.int64) * BLOCK
    for part in tl.static_range(2):
        offsets = start + part * half(BLOCK) + tl.arange(0, half(BLOCK))
        x = tl.load(x_ptr + offsets, mask=offsets < n).to(tl.float32)
        y = tl.load(y_ptr + offsets, mask=offsets < m, other=0.0).to(tl.float32)
        tl.store(out_ptr + offsets, x + y, mask=offsets < n)


def add_short(x, y):
    out = torch.empty(x.numel(), dtype=torch.float32, device=x.device)
    add_short_kernel[(triton.cdiv(x.numel(), 512),)](x, y, out, x.numel(), y.numel(), BLOCK=512)
    return out
""",
    ),
    "constexpr_function that calls another and decides": (
        "costs 2",
        "04.2",
        """
@triton.constexpr_function
def is_wide(block):
    return block >= 512


@triton.constexpr_function
def steps(block):
    return 4 if is_wide(block) else 1


@triton.jit
def chain_kernel(x_ptr, scale_ptr, shift_ptr, y_ptr, x_row_stride, cols, limit, BLOCK: tl.constexpr):
    row = tl.program_id(1).to(tl.int64)
    WIDTH: tl.constexpr = BLOCK // steps(BLOCK)
    for step in tl.static_range(steps(BLOCK)):
        columns = tl.program_id(0) * BLOCK + step * WIDTH + tl.arange(0, WIDTH)
        inside = columns < cols
        x = tl.load(x_ptr + row * x_row_stride + columns, mask=inside).to(tl.float32)
        z = tl.load(scale_ptr + columns, mask=inside) * x + tl.load(shift_ptr + columns, mask=inside)
        z = tl.maximum(z, 0.0)
        tl.store(y_ptr + row * cols + columns, tl.minimum(z * z, limit).to(y_ptr.dtype.element_ty), mask=inside)
"""
        + FUSED_CHAIN,
    ),
    "hints of tensors or None, int and float, and None returned": (
        "costs 2",
        "05.3",
        """
@triton.jit
def gemma_norm_kernel(x_ptr: torch.Tensor | None, weight_ptr: "torch.Tensor", y_ptr: tl.tensor, scale_ptr,
                      x_row_stride: int, cols: int, eps: float, BLOCK: tl.constexpr) -> None:
"""
        + NORM_HEAD
        + """
    scale = tl.rsqrt(tl.sum(x * x) / cols + eps)
"""
        + NORM_TAIL
        + """

def gemma_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> tuple[torch.Tensor, torch.Tensor]:
    rows, cols = x.shape
    y: torch.Tensor = torch.empty(rows, cols, dtype=torch.float32, device=x.device)
    scale: torch.Tensor = torch.empty(rows, dtype=torch.float32, device=x.device)
    gemma_norm_kernel[(rows,)](x, weight, y, scale, x.stride(0), cols, eps, BLOCK=triton.next_power_of_2(cols))
    return y, scale
""",
    ),
    "hints in quotes, an alias among them": (
        "costs 2",
        "01.5",
        '''
Pointer = torch.Tensor


@triton.jit
def scaled_add_kernel(x_ptr: "Pointer", y_ptr: "Pointer", out_ptr: "Pointer", alpha: "int | float", size: "int",
                      BLOCK: "tl.constexpr"):
    """out = alpha * x + y, in fp32."""
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < size
    x = tl.load(x_ptr + offsets, mask=mask).to(tl.float32)
    y = tl.load(y_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, alpha * x + y, mask=mask)
'''
        + SCALED_ADD,
    ),
    "f-strings, an assert and a lambda for the grid around the launch": (
        "costs 1",
        "01.5",
        '''
@triton.jit
def scaled_add_kernel(x_ptr, y_ptr, out_ptr, alpha, size, BLOCK: tl.constexpr):
    tl.static_assert(BLOCK >= 128, "a tile of at least 128")
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < size
    x = tl.load(x_ptr + offsets, mask=mask).to(tl.float32)
    tl.store(out_ptr + offsets, alpha * x + tl.load(y_ptr + offsets, mask=mask), mask=mask)


def scaled_add(x, y, alpha):
    """alpha * x + y."""
    assert x.shape == y.shape, f"x is {tuple(x.shape)}, y is {tuple(y.shape)}"
    out = torch.empty_like(y)
    grid = lambda meta: (triton.cdiv(out.numel(), meta["BLOCK"]),)
    scaled_add_kernel[grid](x, y, out, alpha, out.numel(), BLOCK=256, num_warps=4)
    return out
''',
    ),
    "two kernels and a device function of its own": (
        "costs 1",
        "05.3",
        """
@triton.jit
def squared(value):
    return value * value


@triton.jit
def add_up(a, b):
    return a + b


@triton.jit
def gemma_norm_kernel(x_ptr, weight_ptr, y_ptr, scale_ptr, x_row_stride, cols, eps, BLOCK: tl.constexpr):
"""
        + NORM_HEAD
        + """
    scale = tl.rsqrt(tl.reduce(squared(x), 0, add_up) / cols + eps)
"""
        + NORM_TAIL
        + GEMMA_NORM,
    ),
    # ---- costs 3: powers of two among the constexprs that are no tile ----
    "256 persistent programs, tiles of 32": (
        "costs 3",
        "03.3",
        """
@triton.jit
def linear_kernel(x_ptr, w_ptr, y_ptr, M, N, K, x_row_stride, w_row_stride, PROGRAMS: tl.constexpr,
                  BLOCK: tl.constexpr):
    tiles_n = N // BLOCK
    for tile in tl.range(tl.program_id(0), (M // BLOCK) * tiles_n, PROGRAMS):
        row = (tile // tiles_n).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
        col = (tile % tiles_n).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
        k = tl.arange(0, BLOCK)
        total = tl.zeros([BLOCK, BLOCK], dtype=tl.float32)
        for start in range(0, K, BLOCK):
            x = tl.load(x_ptr + row[:, None] * x_row_stride + start + k[None, :])
            w = tl.load(w_ptr + col[None, :] * w_row_stride + start + k[:, None])
            total = tl.dot(x, w, total, input_precision="ieee")
        tl.store(y_ptr + row[:, None] * N + col[None, :], total)


def linear(x, w):
    (M, K), N = x.shape, w.shape[0]
    y = torch.empty(M, N, dtype=torch.float32, device=x.device)
    linear_kernel[(256,)](x, w, y, M, N, K, x.stride(0), w.stride(0), PROGRAMS=256, BLOCK=32)
    return y
""",
    ),
    "NUM_SMS of 128 and a loop over tiles": (
        "costs 3",
        "03.4",
        """
@triton.jit
def any_linear_kernel(x_ptr, w_ptr, y_ptr, M, N, K, x_row_stride, x_col_stride, w_row_stride, w_col_stride,
                      NUM_SMS: tl.constexpr, BLOCK: tl.constexpr):
    tiles_n = tl.cdiv(N, BLOCK)
    for tile in tl.range(tl.program_id(0), tl.cdiv(M, BLOCK) * tiles_n, NUM_SMS):
        row = (tile // tiles_n).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
        col = (tile % tiles_n).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
        total = tl.zeros([BLOCK, BLOCK], dtype=tl.float32)
        for start in range(0, K, BLOCK):
            k = start + tl.arange(0, BLOCK).to(tl.int64)
            x = tl.load(x_ptr + row[:, None] * x_row_stride + k[None, :] * x_col_stride,
                        mask=(row[:, None] < M) & (k[None, :] < K), other=0.0)
            w = tl.load(w_ptr + col[None, :] * w_row_stride + k[:, None] * w_col_stride,
                        mask=(col[None, :] < N) & (k[:, None] < K), other=0.0)
            total = tl.dot(x, w, total, input_precision="ieee")
        tl.store(y_ptr + row[:, None] * N + col[None, :], total, mask=(row[:, None] < M) & (col[None, :] < N))


def any_linear(x, w):
    (M, K), N = x.shape, w.shape[0]
    y = torch.empty(M, N, dtype=torch.float32, device=x.device)
    tiles = triton.cdiv(M, 32) * triton.cdiv(N, 32)
    any_linear_kernel[(min(tiles, 128),)](x, w, y, M, N, K, *x.stride(), *w.stride(), NUM_SMS=128, BLOCK=32)
    return y
""",
    ),
    "K rounded up to a power of two as a constexpr bound": (
        "costs 3",
        "03.4",
        """
@triton.jit
def any_linear_kernel(x_ptr, w_ptr, y_ptr, M, N, K, x_row_stride, x_col_stride, w_row_stride, w_col_stride,
                      K_ROUNDED: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    col = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK, BLOCK], dtype=tl.float32)
    for start in range(0, K_ROUNDED, BLOCK):
        k = start + tl.arange(0, BLOCK).to(tl.int64)
        x = tl.load(x_ptr + row[:, None] * x_row_stride + k[None, :] * x_col_stride,
                    mask=(row[:, None] < M) & (k[None, :] < K), other=0.0)
        w = tl.load(w_ptr + col[None, :] * w_row_stride + k[:, None] * w_col_stride,
                    mask=(col[None, :] < N) & (k[:, None] < K), other=0.0)
        total = tl.dot(x, w, total, input_precision="ieee")
    tl.store(y_ptr + row[:, None] * N + col[None, :], total, mask=(row[:, None] < M) & (col[None, :] < N))


def any_linear(x, w):
    (M, K), N = x.shape, w.shape[0]
    y = torch.empty(M, N, dtype=torch.float32, device=x.device)
    grid = (triton.cdiv(M, 32), triton.cdiv(N, 32))
    any_linear_kernel[grid](x, w, y, M, N, K, *x.stride(), *w.stride(), K_ROUNDED=max(128, triton.next_power_of_2(K)),
                            BLOCK=32)
    return y
""",
    ),
    "columns as a constexpr of their own, tiles of 1024": (
        "costs 3",
        "05.4",
        """
@triton.jit
def wide_norm_kernel(x_ptr, weight_ptr, y_ptr, x_row_stride, eps, COLS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    squares = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, COLS, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * x_row_stride + columns, mask=columns < COLS, other=0.0).to(tl.float32)
        squares += x * x
    scale = tl.rsqrt(tl.sum(squares) / COLS + eps)
    for start in range(0, COLS, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        inside = columns < COLS
        x = tl.load(x_ptr + row * x_row_stride + columns, mask=inside, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + columns, mask=inside, other=0.0)
        tl.store(y_ptr + row * COLS + columns, x * scale * (1 + weight), mask=inside)


def wide_norm(x, weight, eps, out_dtype):
    rows, cols = x.shape
    y = torch.empty(rows, cols, dtype=out_dtype, device=x.device)
    wide_norm_kernel[(rows,)](x, weight, y, x.stride(0), eps, COLS=cols, BLOCK=1024)
    return y
""",
    ),
    "a span of 16384 columns walked in tiles of 2048": (
        "costs 3",
        "05.4",
        """
@triton.jit
def wide_norm_kernel(x_ptr, weight_ptr, y_ptr, x_row_stride, cols, eps, SPAN: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    squares = tl.zeros([BLOCK], dtype=tl.float32)
    for span in range(0, cols, SPAN):
        for start in range(span, tl.minimum(span + SPAN, cols), BLOCK):
            columns = start + tl.arange(0, BLOCK)
            x = tl.load(x_ptr + row * x_row_stride + columns, mask=columns < cols, other=0.0).to(tl.float32)
            squares += x * x
    scale = tl.rsqrt(tl.sum(squares) / cols + eps)
    for start in range(0, cols, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        inside = columns < cols
        x = tl.load(x_ptr + row * x_row_stride + columns, mask=inside, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + columns, mask=inside, other=0.0)
        tl.store(y_ptr + row * cols + columns, x * scale * (1 + weight), mask=inside)


def wide_norm(x, weight, eps, out_dtype):
    rows, cols = x.shape
    y = torch.empty(rows, cols, dtype=out_dtype, device=x.device)
    wide_norm_kernel[(rows,)](x, weight, y, x.stride(0), cols, eps, SPAN=16384, BLOCK=2048, num_warps=8)
    return y
""",
    ),
    "BLOCK of 4096 whose accesses are half as wide": (
        "costs 3",
        "02.4",
        """
@triton.jit
def row_sum_max_kernel(x_ptr, sums_ptr, largest_ptr, cols, row_stride, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    total = tl.zeros([BLOCK // 2], dtype=tl.float32)
    largest = tl.full([BLOCK // 2], float("-inf"), dtype=tl.float32)
    for start in tl.range(0, cols, BLOCK):
        for part in tl.static_range(2):
            col = start + part * (BLOCK // 2) + tl.arange(0, BLOCK // 2)
            x = tl.load(x_ptr + row * row_stride + col, mask=col < cols, other=float("-inf")).to(tl.float32)
            total += tl.where(col < cols, x, 0.0)
            largest = tl.maximum(largest, x)
    tl.store(sums_ptr + row, tl.sum(total))
    tl.store(largest_ptr + row, tl.max(largest))


def row_sum_max(x):
    rows, cols = x.shape
    sums = torch.empty(rows, dtype=torch.float32, device=x.device)
    largest = torch.empty_like(sums)
    row_sum_max_kernel[(rows,)](x, sums, largest, cols, x.stride(0), BLOCK=4096, num_warps=8)
    return sums, largest
""",
    ),
    "a seed of 65536 that is added and taken away": (
        "costs 3",
        "02.4",
        """
@triton.jit
def row_sum_max_kernel(x_ptr, sums_ptr, largest_ptr, cols, row_stride, OFFSET: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    total = tl.zeros([BLOCK], dtype=tl.float32)
    largest = tl.full([BLOCK], float("-inf"), dtype=tl.float32)
    for start in tl.range(OFFSET, cols + OFFSET, BLOCK):
        col = start - OFFSET + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * row_stride + col, mask=col < cols, other=float("-inf")).to(tl.float32)
        total += tl.where(col < cols, x, 0.0)
        largest = tl.maximum(largest, x)
    tl.store(sums_ptr + row, tl.sum(total))
    tl.store(largest_ptr + row, tl.max(largest))


def row_sum_max(x):
    rows, cols = x.shape
    sums, largest = (torch.empty(rows, dtype=torch.float32, device=x.device) for _ in range(2))
    row_sum_max_kernel[(rows,)](x, sums, largest, cols, x.stride(0), OFFSET=65536, BLOCK=512)
    return sums, largest
""",
    ),
    # ---- costs 7: compiles, and the interpreter has to know it ----
    "eps.to(tl.float32) of a float argument": (
        "costs 7",
        "05.3",
        """
@triton.jit
def gemma_norm_kernel(x_ptr, weight_ptr, y_ptr, scale_ptr, x_row_stride, cols, eps, BLOCK: tl.constexpr):
"""
        + NORM_HEAD
        + """
    scale = tl.rsqrt(tl.sum(x * x) / cols + eps.to(tl.float32))
"""
        + NORM_TAIL
        + GEMMA_NORM,
    ),
    "limit.to of a float argument and its dtype": (
        "costs 7",
        "04.2",
        """
@triton.jit
def chain_kernel(x_ptr, scale_ptr, shift_ptr, y_ptr, x_row_stride, cols, limit, BLOCK: tl.constexpr):
    row = tl.program_id(1).to(tl.int64)
    columns = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = columns < cols
    top = limit.to(scale_ptr.dtype.element_ty)
    x = tl.load(x_ptr + row * x_row_stride + columns, mask=inside).to(limit.dtype)
    z = tl.load(scale_ptr + columns, mask=inside) * x + tl.load(shift_ptr + columns, mask=inside)
    z = tl.maximum(z, 0.0)
    tl.store(y_ptr + row * cols + columns, tl.minimum(z * z, top).to(y_ptr.dtype.element_ty), mask=inside)
"""
        + FUSED_CHAIN,
    ),
    "tl.cast and tl.full of a float argument": (
        "costs 7",
        "01.5",
        """
@triton.jit
def scaled_add_kernel(x_ptr, y_ptr, out_ptr, alpha, size, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < size
    factor = tl.full([BLOCK], alpha, dtype=tl.float32)
    x = tl.cast(tl.load(x_ptr + offsets, mask=mask), tl.float32)
    tl.store(out_ptr + offsets, factor * x + tl.load(y_ptr + offsets, mask=mask), mask=mask)
"""
        + SCALED_ADD,
    ),
    "a constexpr left of a product inside tl.sigmoid": (
        "costs 7",
        "04.3",
        """
TWICE = tl.constexpr(1.5957691216057308)

"""
        + GELU_HEAD
        + """
    y = z * tl.sigmoid(TWICE * (z + 0.044715 * z * z * z))
    tl.store(y_ptr + row * cols + column, y.to(y_ptr.dtype.element_ty), mask=inside)
"""
        + BIAS_GELU,
    ),
    "constexprs left of a difference and a quotient inside calls": (
        "costs 7",
        "05.3",
        """
ONE, ZERO = tl.constexpr(1.0), tl.constexpr(0.0)


@triton.jit
def gemma_norm_kernel(x_ptr, weight_ptr, y_ptr, scale_ptr, x_row_stride, cols, eps, BLOCK: tl.constexpr):
"""
        + NORM_HEAD
        + """
    squares = tl.sum(ZERO - (ZERO - x * x))
    scale = tl.rsqrt(squares / cols + eps)
    weight = tl.load(weight_ptr + columns, mask=inside, other=0.0)
    tl.store(y_ptr + row * cols + columns, x * (ONE / (ONE / scale)) * (ONE + weight), mask=inside)
    tl.store(scale_ptr + row, ONE * scale)
"""
        + GEMMA_NORM,
    ),
    "sigmoid and load under names of the answer's own": (
        "costs 7",
        "04.3",
        """
sigmoid = tl.sigmoid
load, store = tl.load, tl.store


@triton.jit
def bias_gelu_tile_kernel(x_ptr, bias_ptr, y_ptr, x_row_stride, rows, cols, BLOCK_M: tl.constexpr,
                          BLOCK_N: tl.constexpr):
    row = tl.program_id(1).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    column = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    inside = (row < rows) & (column < cols)
    z = load(x_ptr + row * x_row_stride + column, mask=inside, other=0.0).to(tl.float32)
    z += load(bias_ptr + column, mask=column < cols, other=0.0)
    y = z * sigmoid(1.5957691216057308 * (z + 0.044715 * z * z * z))
    store(y_ptr + row * cols + column, y.to(y_ptr.dtype.element_ty), mask=inside)
"""
        + BIAS_GELU,
    ),
    "dot and zeros imported by name": (
        "costs 7",
        "03.3",
        """
import triton.language as L
from triton.language import dot, zeros


@triton.jit
def linear_kernel(x_ptr, w_ptr, y_ptr, N, K, x_row_stride, w_row_stride, BLOCK: L.constexpr):
    row = L.program_id(0).to(L.int64) * BLOCK + L.arange(0, BLOCK)
    col = L.program_id(1).to(L.int64) * BLOCK + L.arange(0, BLOCK)
    k = L.arange(0, BLOCK)
    total = zeros([BLOCK, BLOCK], dtype=L.float32)
    for start in range(0, K, BLOCK):
        x = L.load(x_ptr + row[:, None] * x_row_stride + start + k[None, :])
        w = L.load(w_ptr + col[None, :] * w_row_stride + start + k[:, None])
        total = dot(x, w, total, input_precision="ieee")
    L.store(y_ptr + row[:, None] * N + col[None, :], total)


def linear(x, w):
    (M, K), N = x.shape, w.shape[0]
    y = torch.empty(M, N, dtype=torch.float32, device=x.device)
    linear_kernel[(M // 32, N // 32)](x, w, y, N, K, x.stride(0), w.stride(0), BLOCK=32)
    return y
""",
    ),
    "rsqrt and sum under names of the answer's own": (
        "costs 7",
        "05.5",
        """
rsqrt, total_of = tl.rsqrt, tl.sum


@triton.jit
def add_gemma_norm_kernel(x_ptr, residual_ptr, weight_ptr, y_ptr, cols, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    inside = columns < cols
    x = tl.load(x_ptr + row * cols + columns, mask=inside, other=0.0).to(tl.float32)
    x += tl.load(residual_ptr + row * cols + columns, mask=inside, other=0.0)
    tl.store(residual_ptr + row * cols + columns, x, mask=inside)
    scale = rsqrt(total_of(x * x) / cols + eps)
    weight = tl.load(weight_ptr + columns, mask=inside, other=0.0)
    tl.store(y_ptr + row * cols + columns, x * scale * (1 + weight), mask=inside)


def add_gemma_norm(x, residual, weight, eps):
    rows, cols = x.shape
    y = torch.empty_like(x)
    add_gemma_norm_kernel[(rows,)](x, residual, weight, y, cols, eps, BLOCK=triton.next_power_of_2(cols), num_warps=8)
    return y
""",
    ),
    # ---- costs 9: the launch inside something of torch's ----
    "a custom_op that fills its outputs": (
        "costs 9",
        "05.3",
        """
@triton.jit
def gemma_norm_kernel(x_ptr, weight_ptr, y_ptr, scale_ptr, x_row_stride, cols, eps, BLOCK: tl.constexpr):
"""
        + NORM_HEAD
        + """
    scale = tl.rsqrt(tl.sum(x * x) / cols + eps)
"""
        + NORM_TAIL
        + """

@torch.library.custom_op("apart::gemma_norm_into", mutates_args=("y", "scale"))
def gemma_norm_into(x: torch.Tensor, weight: torch.Tensor, y: torch.Tensor, scale: torch.Tensor, eps: float) -> None:
    rows, cols = x.shape
    gemma_norm_kernel[(rows,)](x, weight, y, scale, x.stride(0), cols, eps, BLOCK=triton.next_power_of_2(cols))


def gemma_norm(x, weight, eps):
    y = torch.empty(x.shape, dtype=torch.float32, device=x.device)
    scale = torch.empty(x.shape[0], dtype=torch.float32, device=x.device)
    gemma_norm_into(x, weight, y, scale, eps)
    return y, scale
""",
    ),
    "a custom_op that returns a new tensor, with a fake": (
        "costs 9",
        "02.3",
        """
@triton.jit
def transpose_kernel(x_ptr, out_ptr, rows, cols, row_stride, ROWS: tl.constexpr, COLS: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    col = tl.program_id(1).to(tl.int64) * COLS + tl.arange(0, COLS)
    mask = (row < rows)[:, None] & (col < cols)[None, :]
    tile = tl.load(x_ptr + row[:, None] * row_stride + col[None, :], mask=mask)
    tl.store(out_ptr + col[None, :] * rows + row[:, None], tile, mask=mask)


@torch.library.custom_op("apart::transposed", mutates_args=())
def transposed(x: torch.Tensor) -> torch.Tensor:
    rows, cols = x.shape
    out = torch.empty((cols, rows), dtype=x.dtype, device=x.device)
    transpose_kernel[(triton.cdiv(rows, 64), triton.cdiv(cols, 64))](x, out, rows, cols, x.stride(0), ROWS=64, COLS=64)
    return out


@transposed.register_fake
def _(x):
    return x.new_empty((x.shape[1], x.shape[0]))


def transpose(x):
    return transposed(x)
""",
    ),
    "an autograd.Function without gradients": (
        "costs 9",
        "01.5",
        """
@triton.jit
def scaled_add_kernel(x_ptr, y_ptr, out_ptr, alpha, size, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < size
    x = tl.load(x_ptr + offsets, mask=mask).to(tl.float32)
    tl.store(out_ptr + offsets, alpha * x + tl.load(y_ptr + offsets, mask=mask), mask=mask)


class ScaledAdd(torch.autograd.Function):

    @staticmethod
    def forward(ctx, x, y, alpha):
        out = torch.empty_like(y)
        scaled_add_kernel[(triton.cdiv(out.numel(), 1024),)](x, y, out, alpha, out.numel(), BLOCK=1024)
        return out


@torch.no_grad()
def scaled_add(x, y, alpha):
    return ScaledAdd.apply(x, y, alpha)
""",
    ),
    "an nn.Module whose forward launches": (
        "costs 9",
        "04.2",
        """
@triton.jit
def chain_kernel(x_ptr, scale_ptr, shift_ptr, y_ptr, x_row_stride, cols, limit, BLOCK: tl.constexpr):
    row = tl.program_id(1).to(tl.int64)
    columns = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = columns < cols
    x = tl.load(x_ptr + row * x_row_stride + columns, mask=inside).to(tl.float32)
    z = tl.load(scale_ptr + columns, mask=inside) * x + tl.load(shift_ptr + columns, mask=inside)
    z = tl.maximum(z, 0.0)
    tl.store(y_ptr + row * cols + columns, tl.minimum(z * z, limit).to(y_ptr.dtype.element_ty), mask=inside)


class Chain(torch.nn.Module):

    def forward(self, x, scale, shift, limit):
        rows, cols = x.shape
        y = torch.empty((rows, cols), dtype=x.dtype, device=x.device)
        chain_kernel[(triton.cdiv(cols, 512), rows)](x, scale, shift, y, x.stride(0), cols, limit, BLOCK=512)
        return y


chain = Chain()


def fused_chain(x, scale, shift, limit):
    with torch.inference_mode():
        pass
    return chain(x, scale, shift, limit)
""",
    ),
    # ---- near the wrong answers of "lets through" ----
    "a persistent grid of 132 with a loop over rows": (
        "lets through 1",
        "05.3",
        """
@triton.jit
def gemma_norm_kernel(x_ptr, weight_ptr, y_ptr, scale_ptr, x_row_stride, rows, cols, eps, BLOCK: tl.constexpr):
    columns = tl.arange(0, BLOCK)
    inside = columns < cols
    for r in range(tl.program_id(0), rows, tl.num_programs(0)):
        row = r.to(tl.int64)
        x = tl.load(x_ptr + row * x_row_stride + columns, mask=inside, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + columns, mask=inside, other=0.0)
        scale = tl.rsqrt(tl.sum(x * x) / cols + eps)
        tl.store(y_ptr + row * cols + columns, x * scale * (1 + weight), mask=inside)
        tl.store(scale_ptr + row, scale)


def gemma_norm(x, weight, eps):
    rows, cols = x.shape
    y = torch.empty(rows, cols, dtype=torch.float32, device=x.device)
    scale = torch.empty(rows, dtype=torch.float32, device=x.device)
    gemma_norm_kernel[(min(rows, 132),)](x, weight, y, scale, x.stride(0), rows, cols, eps,
                                         BLOCK=triton.next_power_of_2(cols), num_warps=8)
    return y, scale
""",
    ),
    "one weight for all rows of a program": (
        "lets through 1",
        "05.4",
        """
# Fewer requests than the card allows: four rows share each load of the weight.
@triton.jit
def wide_norm_kernel(x_ptr, weight_ptr, y_ptr, x_row_stride, rows, cols, eps, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    squares = tl.zeros([ROWS, BLOCK], dtype=tl.float32)
    for start in range(0, cols, BLOCK):
        columns = start + tl.arange(0, BLOCK)[None, :]
        inside = (row < rows) & (columns < cols)
        x = tl.load(x_ptr + row * x_row_stride + columns, mask=inside, other=0.0).to(tl.float32)
        squares += x * x
    scale = tl.rsqrt(tl.sum(squares, axis=1, keep_dims=True) / cols + eps)
    for start in range(0, cols, BLOCK):
        columns = start + tl.arange(0, BLOCK)[None, :]
        inside = (row < rows) & (columns < cols)
        x = tl.load(x_ptr + row * x_row_stride + columns, mask=inside, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + columns, mask=columns < cols, other=0.0)
        tl.store(y_ptr + row * cols + columns, x * scale * (1 + weight), mask=inside)


def wide_norm(x, weight, eps, out_dtype):
    rows, cols = x.shape
    y = torch.empty(rows, cols, dtype=out_dtype, device=x.device)
    wide_norm_kernel[(triton.cdiv(rows, 4),)](x, weight, y, x.stride(0), rows, cols, eps, ROWS=4, BLOCK=512)
    return y
""",
    ),
    "a persistent grid of 108 over flat tiles": (
        "lets through 1",
        "01.5",
        """
@triton.jit
def scaled_add_kernel(x_ptr, y_ptr, out_ptr, alpha, size, BLOCK: tl.constexpr):
    first = tl.program_id(0).to(tl.int64) * BLOCK
    for start in range(first, size, tl.num_programs(0) * BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        mask = offsets < size
        x = tl.load(x_ptr + offsets, mask=mask).to(tl.float32)
        tl.store(out_ptr + offsets, alpha * x + tl.load(y_ptr + offsets, mask=mask), mask=mask)


def scaled_add(x, y, alpha):
    out = torch.empty_like(y)
    scaled_add_kernel[(min(triton.cdiv(y.numel(), 512), 108),)](x, y, out, alpha, y.numel(), BLOCK=512)
    return out
""",
    ),
    "result as a view of a flat buffer": (
        "lets through 2",
        "02.3",
        """
@triton.jit
def transpose_kernel(x_ptr, out_ptr, rows, cols, row_stride, ROWS: tl.constexpr, COLS: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    col = tl.program_id(1).to(tl.int64) * COLS + tl.arange(0, COLS)
    mask = (row < rows)[:, None] & (col < cols)[None, :]
    tile = tl.load(x_ptr + row[:, None] * row_stride + col[None, :], mask=mask)
    tl.store(out_ptr + col[None, :] * rows + row[:, None], tile, mask=mask)


def transpose(x):
    rows, cols = x.shape
    out = torch.empty(rows * cols, dtype=x.dtype, device=x.device)
    transpose_kernel[(triton.cdiv(rows, 32), triton.cdiv(cols, 32))](x, out, rows, cols, x.stride(0), ROWS=32, COLS=32)
    return out.view(cols, rows)
""",
    ),
    "empty_strided with a contiguous result's strides": (
        "lets through 2",
        "04.3",
        GELU_HEAD
        + """
    y = z * tl.sigmoid(1.5957691216057308 * (z + 0.044715 * z * z * z))
    tl.store(y_ptr + row * cols + column, y.to(y_ptr.dtype.element_ty), mask=inside)


def bias_gelu(x, bias):
    rows, cols = x.shape
    y = torch.empty_strided((rows, cols), (cols, 1), dtype=x.dtype, device=x.device)
    grid = (triton.cdiv(cols, 256), triton.cdiv(rows, 32))
    bias_gelu_tile_kernel[grid](x, bias, y, x.stride(0), rows, cols, 32, 256)
    return y
""",
    ),
    "a choice of tile kept in an lru_cache": (
        "lets through 3",
        "05.5",
        """
# What is kept between calls is a choice, not a result.
from functools import lru_cache


@lru_cache(maxsize=None)
def launch_options(cols):
    block = triton.next_power_of_2(cols)
    return {"BLOCK": block, "num_warps": min(16, max(1, block // 512))}


@triton.jit
def add_gemma_norm_kernel(x_ptr, residual_ptr, weight_ptr, y_ptr, cols, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    inside = columns < cols
    x = tl.load(x_ptr + row * cols + columns, mask=inside, other=0.0).to(tl.float32)
    x += tl.load(residual_ptr + row * cols + columns, mask=inside, other=0.0)
    tl.store(residual_ptr + row * cols + columns, x, mask=inside)
    scale = tl.rsqrt(tl.sum(x * x) / cols + eps)
    weight = tl.load(weight_ptr + columns, mask=inside, other=0.0)
    tl.store(y_ptr + row * cols + columns, x * scale * (1 + weight), mask=inside)


def add_gemma_norm(x, residual, weight, eps):
    y = torch.empty_like(x)
    add_gemma_norm_kernel[(x.shape[0],)](x, residual, weight, y, x.shape[1], eps, **launch_options(x.shape[1]))
    return y
""",
    ),
    "a dictionary that counts calls and is not used": (
        "lets through 3",
        "04.5",
        """
CALLS = {"decide": 0}


def decide(unfused, fused, needed_by_backward, gpu):
    CALLS["decide"] += 1
    gpu, fused = dict(gpu), [dict(kernel) for kernel in fused]  # copies: the caller's stay as they are
    fused[0]["bytes"] = fused[0]["bytes"] + needed_by_backward

    def seconds(kernels):
        busy = sum(max(k["bytes"] / gpu["bandwidth"], k["flops"] / (k["efficiency"] * gpu[k["unit"]])) for k in kernels)
        return max(busy, len(kernels) * gpu["launch"])

    before = seconds(unfused)
    saved = before - seconds(fused)
    return ("fuse" if saved >= 0.05 * before else "leave"), saved
""",
    ),
    "an if on a constexpr with two branches that compile": (
        "lets through 4",
        "04.2",
        """
@triton.jit
def chain_kernel(x_ptr, scale_ptr, shift_ptr, y_ptr, x_row_stride, cols, limit, EVEN: tl.constexpr,
                 BLOCK: tl.constexpr):
    row = tl.program_id(1).to(tl.int64)
    columns = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if EVEN:
        x = tl.load(x_ptr + row * x_row_stride + columns).to(tl.float32)
        z = tl.maximum(tl.load(scale_ptr + columns) * x + tl.load(shift_ptr + columns), 0.0)
        tl.store(y_ptr + row * cols + columns, tl.minimum(z * z, limit).to(y_ptr.dtype.element_ty))
    else:
        inside = columns < cols
        x = tl.load(x_ptr + row * x_row_stride + columns, mask=inside).to(tl.float32)
        z = tl.load(scale_ptr + columns, mask=inside) * x + tl.load(shift_ptr + columns, mask=inside)
        z = tl.maximum(z, 0.0)
        tl.store(y_ptr + row * cols + columns, tl.minimum(z * z, limit).to(y_ptr.dtype.element_ty), mask=inside)


def fused_chain(x, scale, shift, limit):
    rows, cols = x.shape
    y = torch.empty((rows, cols), dtype=x.dtype, device=x.device)
    block = 256
    chain_kernel[(triton.cdiv(cols, block), rows)](x, scale, shift, y, x.stride(0), cols, float(limit),
                                                   EVEN=cols % block == 0, BLOCK=block)
    return y
""",
    ),
    "the last program of a row finishes, by an atomic counter": (
        "lets through 5",
        "02.4",
        """
@triton.jit
def row_sum_max_kernel(x_ptr, sums_ptr, largest_ptr, cols, row_stride, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    col = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * row_stride + col, mask=col < cols, other=float("-inf")).to(tl.float32)
    tl.store(sums_ptr + row, tl.sum(tl.where(col < cols, x, 0.0)))
    tl.store(largest_ptr + row, tl.max(x))


@triton.jit
def parts_kernel(x_ptr, part_sums_ptr, part_largest_ptr, counter_ptr, sums_ptr, largest_ptr, cols, row_stride, parts,
                 PARTS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    part = tl.program_id(1)
    col = part * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * row_stride + col, mask=col < cols, other=float("-inf")).to(tl.float32)
    tl.store(part_sums_ptr + row * parts + part, tl.sum(tl.where(col < cols, x, 0.0)))
    tl.store(part_largest_ptr + row * parts + part, tl.max(x))
    tl.debug_barrier()
    done = tl.atomic_add(counter_ptr + row, 1, sem="acq_rel")
    if done == parts - 1:
        lane = tl.arange(0, PARTS)
        s = tl.load(part_sums_ptr + row * parts + lane, mask=lane < parts, other=0.0, cache_modifier=".cg")
        m = tl.load(part_largest_ptr + row * parts + lane, mask=lane < parts, other=float("-inf"), cache_modifier=".cg")
        tl.store(sums_ptr + row, tl.sum(s))
        tl.store(largest_ptr + row, tl.max(m))


def row_sum_max(x):
    rows, cols = x.shape
    sums = torch.empty(rows, dtype=torch.float32, device=x.device)
    largest = torch.empty_like(sums)
    if cols <= 2048:
        row_sum_max_kernel[(rows,)](x, sums, largest, cols, x.stride(0), BLOCK=triton.next_power_of_2(cols))
        return sums, largest
    parts = triton.cdiv(cols, 1024)
    part_sums = torch.empty((rows, parts), dtype=torch.float32, device=x.device)
    part_largest = torch.empty_like(part_sums)
    counter = torch.zeros(rows, dtype=torch.int32, device=x.device)
    parts_kernel[(rows, parts)](x, part_sums, part_largest, counter, sums, largest, cols, x.stride(0), parts,
                                PARTS=triton.next_power_of_2(parts), BLOCK=1024)
    return sums, largest
""",
    ),
    "two kernels, the first leaves partial sums": (
        "lets through 5",
        "05.4",
        """
@triton.jit
def squares_kernel(x_ptr, part_ptr, x_row_stride, cols, parts, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    part = tl.program_id(1)
    columns = part * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * x_row_stride + columns, mask=columns < cols, other=0.0).to(tl.float32)
    tl.store(part_ptr + row * parts + part, tl.sum(x * x))


@triton.jit
def output_kernel(x_ptr, weight_ptr, part_ptr, y_ptr, x_row_stride, cols, parts, eps, PARTS: tl.constexpr,
                  BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, PARTS)
    squares = tl.sum(tl.load(part_ptr + row * parts + lane, mask=lane < parts, other=0.0))
    scale = tl.rsqrt(squares / cols + eps)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = columns < cols
    x = tl.load(x_ptr + row * x_row_stride + columns, mask=inside, other=0.0).to(tl.float32)
    weight = tl.load(weight_ptr + columns, mask=inside, other=0.0)
    tl.store(y_ptr + row * cols + columns, x * scale * (1 + weight), mask=inside)


@triton.jit
def wide_norm_kernel(x_ptr, weight_ptr, y_ptr, x_row_stride, cols, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    inside = columns < cols
    x = tl.load(x_ptr + row * x_row_stride + columns, mask=inside, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(x * x) / cols + eps)
    weight = tl.load(weight_ptr + columns, mask=inside, other=0.0)
    tl.store(y_ptr + row * cols + columns, x * scale * (1 + weight), mask=inside)


def wide_norm(x, weight, eps, out_dtype):
    rows, cols = x.shape
    y = torch.empty(rows, cols, dtype=out_dtype, device=x.device)
    if cols <= 4096:
        wide_norm_kernel[(rows,)](x, weight, y, x.stride(0), cols, eps, BLOCK=triton.next_power_of_2(cols))
        return y
    parts = triton.cdiv(cols, 4096)
    partial = torch.empty((rows, parts), dtype=torch.float32, device=x.device)
    squares_kernel[(rows, parts)](x, partial, x.stride(0), cols, parts, BLOCK=4096)
    output_kernel[(rows, parts)](x, weight, partial, y, x.stride(0), cols, parts, eps,
                                 PARTS=triton.next_power_of_2(parts), BLOCK=4096)
    return y
""",
    ),
    "promises that hold: multiple_of and max_contiguous": (
        "lets through 5",
        "01.5",
        """
@triton.jit
def scaled_add_kernel(x_ptr, y_ptr, out_ptr, alpha, size, BLOCK: tl.constexpr):
    start = tl.multiple_of(tl.program_id(0) * BLOCK, BLOCK)
    offsets = start + tl.max_contiguous(tl.arange(0, BLOCK), BLOCK)
    offsets = tl.max_contiguous(tl.multiple_of(offsets, BLOCK), BLOCK)
    mask = offsets < size
    x = tl.load(x_ptr + offsets, mask=mask).to(tl.float32)
    tl.store(out_ptr + offsets, alpha * x + tl.load(y_ptr + offsets, mask=mask), mask=mask)
"""
        + SCALED_ADD,
    ),
    "a promise about the stride only where it holds": (
        "lets through 5",
        "04.2",
        """
@triton.jit
def chain_kernel(x_ptr, scale_ptr, shift_ptr, y_ptr, x_row_stride, cols, limit, ALIGNED: tl.constexpr,
                 BLOCK: tl.constexpr):
    if ALIGNED:
        x_row_stride = tl.multiple_of(x_row_stride, 8)
        cols = tl.multiple_of(cols, 8)
    row = tl.program_id(1)
    columns = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = columns < cols
    x = tl.load(x_ptr + row.to(tl.int64) * x_row_stride + columns, mask=inside).to(tl.float32)
    z = tl.load(scale_ptr + columns, mask=inside) * x + tl.load(shift_ptr + columns, mask=inside)
    z = tl.maximum(z, 0.0)
    y = tl.minimum(z * z, limit).to(y_ptr.dtype.element_ty)
    tl.store(y_ptr + row.to(tl.int64) * cols + columns, y, mask=inside)


def fused_chain(x, scale, shift, limit):
    rows, cols = x.shape
    y = torch.empty((rows, cols), dtype=x.dtype, device=x.device)
    aligned = x.stride(0) % 8 == 0 and cols % 8 == 0
    chain_kernel[(triton.cdiv(cols, 512), rows)](x, scale, shift, y, x.stride(0), cols, float(limit), ALIGNED=aligned,
                                                 BLOCK=512)
    return y
""",
    ),
    "general strides, the reading order chosen by them": (
        "lets through 6",
        "03.4",
        """
@triton.jit
def any_linear_kernel(x_ptr, w_ptr, y_ptr, M, N, K, xs0, xs1, ws0, ws1, BM: tl.constexpr, BN: tl.constexpr,
                      BK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * BM + tl.arange(0, BM)
    col = tl.program_id(1).to(tl.int64) * BN + tl.arange(0, BN)
    total = tl.zeros([BM, BN], dtype=tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK).to(tl.int64)
        x = tl.load(x_ptr + row[:, None] * xs0 + k[None, :] * xs1, mask=(row < M)[:, None] & (k < K)[None, :],
                    other=0.0)
        w = tl.load(w_ptr + col[:, None] * ws0 + k[None, :] * ws1, mask=(col < N)[:, None] & (k < K)[None, :],
                    other=0.0)
        total += tl.dot(x, tl.trans(w), input_precision="ieee")
    tl.store(y_ptr + row[:, None] * N + col[None, :], total, mask=(row < M)[:, None] & (col < N)[None, :])


def any_linear(x, w):
    (M, K), N = x.shape, w.shape[0]
    y = torch.empty(M, N, dtype=torch.float32, device=x.device)
    grid = (triton.cdiv(M, 64), triton.cdiv(N, 32))
    any_linear_kernel[grid](x, w, y, M, N, K, x.stride(0), x.stride(1), w.stride(0), w.stride(1), BM=64, BN=32, BK=16)
    return y
""",
    ),
    "any number of dimensions through view(-1)": (
        "lets through 6",
        "01.5",
        """
@triton.jit
def scaled_add_kernel(x_ptr, y_ptr, out_ptr, alpha, size, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < size
    x = tl.load(x_ptr + offsets, mask=mask).to(tl.float32)
    tl.store(out_ptr + offsets, alpha * x + tl.load(y_ptr + offsets, mask=mask), mask=mask)


def scaled_add(x, y, alpha):
    flat = torch.empty(y.numel(), dtype=torch.float32, device=y.device)
    scaled_add_kernel[(triton.cdiv(flat.numel(), 2048),)](x.view(-1), y.view(-1), flat, alpha, flat.numel(), BLOCK=2048)
    return flat.view(y.shape)
""",
    ),
    "a row for carry of other numbers": (
        "lets through 6",
        "05.6",
        """
def show_wrong(cols):
    row = torch.full((cols,), 0.0625, dtype=torch.float32)  # 64 squares: 0.25, under half of the last bit of 256
    row[:64] = 2.0
    return "carry", row
""",
    ),
    # ---- near the attacks ----
    "sixteen scalars among the arguments": (
        "gains 1",
        "04.3",
        """
@triton.jit
def bias_gelu_tile_kernel(x_ptr, bias_ptr, y_ptr, x_row_stride, x_col_stride, y_row_stride, y_col_stride, rows, cols,
                          first_row, first_col, one, twice, cubic, zero, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    row = first_row + tl.program_id(1).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    column = first_col + tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    inside = (row < rows) & (column < cols)
    z = tl.load(x_ptr + row * x_row_stride + column * x_col_stride, mask=inside, other=0.0).to(tl.float32)
    z += tl.load(bias_ptr + column, mask=column < cols, other=0.0)
    y = z * (one / (one + tl.exp(zero - twice * (z + cubic * z * z * z))))
    tl.store(y_ptr + row * y_row_stride + column * y_col_stride, y.to(y_ptr.dtype.element_ty), mask=inside)


def bias_gelu(x, bias):
    rows, cols = x.shape
    y = torch.empty((rows, cols), dtype=x.dtype, device=x.device)
    grid = (triton.cdiv(cols, 128), triton.cdiv(rows, 16))
    bias_gelu_tile_kernel[grid](x, bias, y, *x.stride(), *y.stride(), rows, cols, 0, 0, 1.0,
                                1.5957691216057308, 0.044715, 0.0, 16, 128)
    return y
""",
    ),
    "shapes and strides as tuples": (
        "gains 1",
        "03.4",
        """
# Triton takes tuples of numbers as arguments; these hold two each.
@triton.jit
def any_linear_kernel(x_ptr, w_ptr, y_ptr, M, N, K, x_strides, w_strides, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    col = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK, BLOCK], dtype=tl.float32)
    for start in range(0, K, BLOCK):
        k = start + tl.arange(0, BLOCK).to(tl.int64)
        x = tl.load(x_ptr + row[:, None] * x_strides[0] + k[None, :] * x_strides[1],
                    mask=(row[:, None] < M) & (k[None, :] < K), other=0.0)
        w = tl.load(w_ptr + col[None, :] * w_strides[0] + k[:, None] * w_strides[1],
                    mask=(col[None, :] < N) & (k[:, None] < K), other=0.0)
        total = tl.dot(x, w, total, input_precision="ieee")
    tl.store(y_ptr + row[:, None] * N + col[None, :], total, mask=(row[:, None] < M) & (col[None, :] < N))


def any_linear(x, w):
    (M, K), N = x.shape, w.shape[0]
    y = torch.empty(M, N, dtype=torch.float32, device=x.device)
    grid = (triton.cdiv(M, 32), triton.cdiv(N, 32))
    any_linear_kernel[grid](x, w, y, M, N, K, x.stride(), w.stride(), BLOCK=32)
    return y
""",
    ),
    "a launch for each row, through views": (
        "gains 2",
        "04.2",
        """
@triton.jit
def chain_kernel(x_ptr, scale_ptr, shift_ptr, y_ptr, cols, limit, BLOCK: tl.constexpr):
    columns = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = columns < cols
    x = tl.load(x_ptr + columns, mask=inside).to(tl.float32)
    z = tl.load(scale_ptr + columns, mask=inside) * x + tl.load(shift_ptr + columns, mask=inside)
    z = tl.maximum(z, 0.0)
    tl.store(y_ptr + columns, tl.minimum(z * z, limit).to(y_ptr.dtype.element_ty), mask=inside)


def fused_chain(x, scale, shift, limit):
    rows, cols = x.shape
    y = torch.empty((rows, cols), dtype=x.dtype, device=x.device)
    for r in range(rows):
        chain_kernel[(triton.cdiv(cols, 1024),)](x[r], scale, shift, y[r], cols, float(limit), BLOCK=1024)
    return y
""",
    ),
    "a launch for each row, of unbind's views": (
        "gains 2",
        "05.3",
        """
@triton.jit
def gemma_norm_kernel(x_ptr, weight_ptr, y_ptr, scale_ptr, cols, eps, BLOCK: tl.constexpr):
    columns = tl.arange(0, BLOCK)
    inside = columns < cols
    x = tl.load(x_ptr + columns, mask=inside, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(x * x) / cols + eps)
    weight = tl.load(weight_ptr + columns, mask=inside, other=0.0)
    tl.store(y_ptr + columns, x * scale * (1 + weight), mask=inside)
    tl.store(scale_ptr, scale)


def gemma_norm(x, weight, eps):
    rows, cols = x.shape
    y = torch.empty(rows, cols, dtype=torch.float32, device=x.device)
    scale = torch.empty(rows, dtype=torch.float32, device=x.device)
    block = triton.next_power_of_2(cols)
    for index, (x_row, y_row) in enumerate(zip(x.unbind(0), y.unbind(0))):
        gemma_norm_kernel[(1,)](x_row, weight, y_row, scale[index:index + 1], cols, eps, BLOCK=block, num_warps=8)
    return y, scale
""",
    ),
    "halves of the columns in two launches": (
        "gains 2",
        "02.2",
        """
@triton.jit
def add_short_kernel(x_ptr, y_ptr, out_ptr, n, m, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask).to(tl.float32)
    y = tl.load(y_ptr + offsets, mask=offsets < m, other=0.0).to(tl.float32)
    tl.store(out_ptr + offsets, x + y, mask=mask)


def add_short(x, y):
    n, m = x.numel(), y.numel()
    out = torch.empty(n, dtype=torch.float32, device=x.device)
    add_short_kernel[(triton.cdiv(m, 1024),)](x[:m], y, out[:m], m, m, BLOCK=1024)
    if n > m:
        add_short_kernel[(triton.cdiv(n - m, 1024),)](x[m:], y, out[m:], n - m, 0, BLOCK=1024)
    return out
""",
    ),
    "a heuristic chooses the tile": (
        "gains 3",
        "05.3",
        """
@triton.heuristics({"BLOCK": lambda args: triton.next_power_of_2(args["cols"])})
@triton.jit
def gemma_norm_kernel(x_ptr, weight_ptr, y_ptr, scale_ptr, x_row_stride, cols, eps, BLOCK: tl.constexpr):
"""
        + NORM_HEAD
        + """
    scale = tl.rsqrt(tl.sum(x * x) / cols + eps)
"""
        + NORM_TAIL
        + """

def gemma_norm(x, weight, eps):
    rows, cols = x.shape
    y = torch.empty(rows, cols, dtype=torch.float32, device=x.device)
    scale = torch.empty(rows, dtype=torch.float32, device=x.device)
    gemma_norm_kernel[(rows,)](x, weight, y, scale, x.stride(0), cols, eps, num_warps=8)
    return y, scale
""",
    ),
    "do_not_specialize and a default for the tile": (
        "gains 3",
        "02.2",
        """
@triton.jit(do_not_specialize=["n", "m"])
def add_short_kernel(x_ptr, y_ptr, out_ptr, n, m, BLOCK: tl.constexpr = 2048):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask, eviction_policy="evict_first").to(tl.float32)
    y = tl.load(y_ptr + offsets, mask=offsets < m, other=0.0).to(tl.float32)
    tl.store(out_ptr + offsets, x + y, mask=mask)


def add_short(x, y):
    out = x.new_empty(x.shape, dtype=torch.float32)
    add_short_kernel[(triton.cdiv(x.numel(), 2048),)](x, y, out, x.numel(), y.numel())
    return out
""",
    ),
    "a long sum written out": (
        "gains 5",
        "05.3",
        """
# Thirty terms in a row: long, and nothing to stumble over.
ONE = tl.constexpr("""
        + " + ".join(["0.03125"] * 32)
        + """)


@triton.jit
def gemma_norm_kernel(x_ptr, weight_ptr, y_ptr, scale_ptr, x_row_stride, cols, eps, BLOCK: tl.constexpr):
"""
        + NORM_HEAD
        + """
    scale = tl.rsqrt(tl.sum(x * x) / cols + eps)
    weight = tl.load(weight_ptr + columns, mask=inside, other=0.0) + ONE
    tl.store(y_ptr + row * cols + columns, x * scale * weight, mask=inside)
    tl.store(scale_ptr + row, scale)
"""
        + GEMMA_NORM,
    ),
    "stub's comment and a raise after the return": (
        "costs 4",
        "02.2",
        """
# The raise of the stub can never be reached: the host function is finished before it.
@triton.jit
def add_short_kernel(x_ptr, y_ptr, out_ptr, n, m, BLOCK: tl.constexpr):
    # YOUR CODE HERE
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask).to(tl.float32)
    y = tl.load(y_ptr + offsets, mask=offsets < m, other=0.0).to(tl.float32)
    tl.store(out_ptr + offsets, x + y, mask=mask)


def add_short(x, y):
    # YOUR CODE HERE
    out = torch.empty(x.shape, dtype=torch.float32, device=x.device)
    add_short_kernel[(triton.cdiv(x.numel(), 256),)](x, y, out, x.numel(), y.numel(), BLOCK=256)
    return out
    raise NotImplementedError()
""",
    ),
    "refuses what the card excludes with the stub's exception": (
        "costs 4",
        "05.3",
        """
@triton.jit
def gemma_norm_kernel(x_ptr, weight_ptr, y_ptr, scale_ptr, x_row_stride, cols, eps, BLOCK: tl.constexpr):
"""
        + NORM_HEAD
        + """
    scale = tl.rsqrt(tl.sum(x * x) / cols + eps)
"""
        + NORM_TAIL
        + """

def gemma_norm(x, weight, eps):
    rows, cols = x.shape
    if cols > 32768:
        raise NotImplementedError("rows of more than 32,768 columns do not fit")
    y = torch.empty(rows, cols, dtype=torch.float32, device=x.device)
    scale = torch.empty(rows, dtype=torch.float32, device=x.device)
    gemma_norm_kernel[(rows,)](x, weight, y, scale, x.stride(0), cols, eps, BLOCK=triton.next_power_of_2(cols))
    return y, scale
""",
    ),
}
