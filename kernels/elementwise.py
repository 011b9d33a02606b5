"""Elementwise kernels: a chain of pointwise ops, residual add, SwiGLU, bias + GELU, and bias + GELU + dropout.

Minimum traffic: each input read once, each output written once, whatever number of ops lies between; a bias of one row
is read once and served by the caches. GELU's tanh form is Hendrycks and Gimpel's (2016), SwiGLU Shazeer's (2020), Philox
Salmon et al.'s (2011). 0.5 z (1 + tanh u) = z sigmoid(2u), so that no tanh is needed, and every exponential is an exp2.

A program takes 1,024 elements: for 16-bit values one 16-byte load per tensor and thread, which is how a copy reaches its
roof. Where there is no bias and everything is contiguous, the tensors are seen as one long row. Arithmetic is fp32,
rounded once at the store.
"""

from functools import cache

import torch
import torch.nn.functional as F
from torch.autograd.function import once_differentiable

from instruments import backend
from instruments.backend import tl, triton
from instruments.traffic import Traffic
from kernels.arguments import check_tensor, check_width, wants_grad
from kernels.rows import MAX_COLS, as_rows, sum_partials, wide_plan

TILE = 1024  # columns of a program's tile, where there are as many
NUM_WARPS = 4
MAX_GRID_Y = 65_535  # CUDA's limit; rows beyond it go on along the grid's third axis
MAX_STEPS = 256
ROUNDS = 7  # of Philox: the fewest that pass BigCrush

SCALE, SHIFT = tl.constexpr(-0.9375), tl.constexpr(0.5)  # of the chain: exact in bf16, and values stay near 1
LOG2E = tl.constexpr(1.4426950408889634)
CUBIC = tl.constexpr(0.044715)
TWO_U = tl.constexpr(1.5957691216057308)  # 2 sqrt(2/pi): 2u = TWO_U (z + CUBIC z^3)


def pointwise_chain_reference(x: torch.Tensor, steps: int) -> torch.Tensor:
    """`steps` ops in turn, x * scale + shift at even places and |x| at odd ones, in the precision of x."""
    for step in range(steps):
        x = x.abs() if step % 2 else x * SCALE.value + SHIFT.value
    return x


def add_reference(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """x + y, by torch."""
    return x + y


def swiglu_reference(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """silu(gate) * up in plain PyTorch: two ops."""
    return F.silu(gate) * up


def bias_gelu_reference(x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """The tanh form of gelu(x + bias), one op at a time: ten of them."""
    z = x + bias
    u = (2 / torch.pi) ** 0.5 * (z + CUBIC.value * (z * z * z))
    return 0.5 * z * (1 + torch.tanh(u))


def bias_gelu_dropout_reference(x: torch.Tensor, bias: torch.Tensor, mask: torch.Tensor, p: float) -> torch.Tensor:
    """bias_gelu, zero where `mask` is False and divided by 1 - p elsewhere."""
    return torch.where(mask, bias_gelu_reference(x, bias) / (1 - p), 0)


@triton.jit
def tile(rows, cols, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """(row, col, mask) of this program's tile: no division, and int64 so that nothing overflows."""
    block = tl.program_id(2).to(tl.int64) * tl.num_programs(1) + tl.program_id(1)
    row = block * ROWS + tl.arange(0, ROWS)[:, None]  # [ROWS, 1]
    col = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)[None, :]  # [1, BLOCK]
    return row, col, (row < rows) & (col < cols)


@triton.jit
def pointwise_chain_kernel(
    x_ptr,
    y_ptr,
    x_row_stride,
    x_col_stride,
    rows,
    cols,
    FIRST: tl.constexpr,
    STEPS: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row, col, mask = tile(rows, cols, ROWS, BLOCK)
    y = tl.load(x_ptr + row * x_row_stride + col * x_col_stride, mask=mask).to(tl.float32)
    for step in tl.static_range(FIRST, FIRST + STEPS):
        if step % 2 == 0:
            y = y * SCALE + SHIFT
        else:
            y = tl.abs(y)  # two scalings in a row would fold into one
    tl.store(y_ptr + row * cols + col, y.to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def add_kernel(
    x_ptr,
    y_ptr,
    sum_ptr,
    x_row_stride,
    x_col_stride,
    y_row_stride,
    y_col_stride,
    rows,
    cols,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row, col, mask = tile(rows, cols, ROWS, BLOCK)
    x = tl.load(x_ptr + row * x_row_stride + col * x_col_stride, mask=mask).to(tl.float32)
    y = tl.load(y_ptr + row * y_row_stride + col * y_col_stride, mask=mask).to(tl.float32)
    tl.store(sum_ptr + row * cols + col, (x + y).to(sum_ptr.dtype.element_ty), mask=mask)


@triton.jit
def swiglu_kernel(
    gate_ptr,
    up_ptr,
    y_ptr,
    gate_row_stride,
    gate_col_stride,
    up_row_stride,
    up_col_stride,
    rows,
    cols,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row, col, mask = tile(rows, cols, ROWS, BLOCK)
    gate = tl.load(gate_ptr + row * gate_row_stride + col * gate_col_stride, mask=mask).to(tl.float32)
    up = tl.load(up_ptr + row * up_row_stride + col * up_col_stride, mask=mask).to(tl.float32)
    y = gate / (1 + tl.exp2(gate * -LOG2E)) * up
    tl.store(y_ptr + row * cols + col, y.to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def swiglu_backward_kernel(
    dy_ptr,
    gate_ptr,
    up_ptr,
    dgate_ptr,
    dup_ptr,
    gate_row_stride,
    gate_col_stride,
    up_row_stride,
    up_col_stride,
    rows,
    cols,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row, col, mask = tile(rows, cols, ROWS, BLOCK)
    gate = tl.load(gate_ptr + row * gate_row_stride + col * gate_col_stride, mask=mask).to(tl.float32)
    up = tl.load(up_ptr + row * up_row_stride + col * up_col_stride, mask=mask).to(tl.float32)
    dy = tl.load(dy_ptr + row * cols + col, mask=mask).to(tl.float32)
    sigmoid = 1 / (1 + tl.exp2(gate * -LOG2E))
    silu = gate * sigmoid
    dgate = dy * up * (sigmoid + silu * (1 - sigmoid))
    tl.store(dgate_ptr + row * cols + col, dgate.to(dgate_ptr.dtype.element_ty), mask=mask)
    tl.store(dup_ptr + row * cols + col, (dy * silu).to(dup_ptr.dtype.element_ty), mask=mask)


@triton.jit
def gelu(z):
    """z sigmoid(2u) with 2u = TWO_U (z + CUBIC z^3)."""
    return z / (1 + tl.exp2(z * (-TWO_U * LOG2E - TWO_U * LOG2E * CUBIC * (z * z))))


@triton.jit
def bias_gelu_kernel(
    x_ptr, bias_ptr, y_ptr, x_row_stride, x_col_stride, rows, cols, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    row, col, mask = tile(rows, cols, ROWS, BLOCK)
    x = tl.load(x_ptr + row * x_row_stride + col * x_col_stride, mask=mask).to(tl.float32)
    bias = tl.load(bias_ptr + col, mask=col < cols).to(tl.float32)
    tl.store(y_ptr + row * cols + col, gelu(x + bias).to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def bias_gelu_backward_kernel(
    dy_ptr,
    x_ptr,
    bias_ptr,
    dx_ptr,
    partial_ptr,
    x_row_stride,
    x_col_stride,
    rows,
    cols,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    group = tl.program_id(1)
    col = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)  # [BLOCK]
    bias = tl.load(bias_ptr + col, mask=col < cols).to(tl.float32)
    dbias = tl.zeros([ROWS, BLOCK], dtype=tl.float32)
    for start in tl.range(group * ROWS, rows, tl.num_programs(1) * ROWS):
        row = start.to(tl.int64) + tl.arange(0, ROWS)[:, None]  # [ROWS, 1]
        mask = (row < rows) & (col < cols)[None, :]  # [ROWS, BLOCK]
        x = tl.load(x_ptr + row * x_row_stride + col[None, :] * x_col_stride, mask=mask, other=0.0).to(tl.float32)
        dy = tl.load(dy_ptr + row * cols + col[None, :], mask=mask, other=0.0).to(tl.float32)
        z = tl.minimum(tl.maximum(x + bias[None, :], -16.0), 16.0)  # flat beyond, and no infinity times zero
        squared = z * z
        sigmoid = 1 / (1 + tl.exp2(z * (-TWO_U * LOG2E - TWO_U * LOG2E * CUBIC * squared)))
        dx = dy * (sigmoid + z * sigmoid * (1 - sigmoid) * (TWO_U + 3 * TWO_U * CUBIC * squared))
        tl.store(dx_ptr + row * cols + col[None, :], dx.to(dx_ptr.dtype.element_ty), mask=mask)
        dbias += dx  # dy is 0 where the tile ends, and so is dx
    tl.store(partial_ptr + group.to(tl.int64) * cols + col, tl.sum(dbias, axis=0), mask=col < cols)


@triton.jit
def keep(row, cols, p, seed, ROUNDS: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """[ROWS, BLOCK] of booleans, True with probability 1 - p: they depend on seed, row, column and cols alone.

    One run of Philox gives four numbers, one for each of four neighbours in a row.
    """
    four = tl.program_id(0).to(tl.int64) * (BLOCK // 4) + tl.arange(0, BLOCK // 4)[None, :]
    a, b, c, d = tl.rand4x(seed, row * tl.cdiv(cols, 4) + four, ROUNDS)  # [ROWS, BLOCK / 4] each
    return tl.reshape(tl.join(tl.join(a, c), tl.join(b, d)), [ROWS, BLOCK]) >= p


@triton.jit
def dropout_mask_kernel(mask_ptr, rows, cols, p, seed, ROUNDS: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    row, col, mask = tile(rows, cols, ROWS, BLOCK)
    tl.store(mask_ptr + row * cols + col, keep(row, cols, p, seed, ROUNDS, ROWS, BLOCK), mask=mask)


@triton.jit
def bias_gelu_dropout_kernel(
    x_ptr,
    bias_ptr,
    y_ptr,
    x_row_stride,
    x_col_stride,
    rows,
    cols,
    p,
    seed,
    ROUNDS: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row, col, mask = tile(rows, cols, ROWS, BLOCK)
    x = tl.load(x_ptr + row * x_row_stride + col * x_col_stride, mask=mask).to(tl.float32)
    bias = tl.load(bias_ptr + col, mask=col < cols).to(tl.float32)
    y = tl.where(keep(row, cols, p, seed, ROUNDS, ROWS, BLOCK), gelu(x + bias) * (1 / (1 - p)), 0.0)
    tl.store(y_ptr + row * cols + col, y.to(y_ptr.dtype.element_ty), mask=mask)


@cache
def _tile_shape(cols: int, elements: int = TILE) -> tuple[int, int]:
    """(rows, columns) of a program's tile of so many elements: at least four columns, at most TILE."""
    block = min(TILE, max(4, triton.next_power_of_2(cols)))
    return elements // block, block


def _forward_rows(rows: int, cols: int) -> int:
    """Rows of a forward program's tile: two of full width, or as many narrow ones as make the same number of elements."""
    return 1 if rows == 1 else _tile_shape(cols, 2 * TILE)[0]


def _plan(rows: int, cols: int) -> tuple[tuple[int, int, int], dict]:
    """(grid of column blocks by rows, tile and warps)."""
    tile_rows, block = _forward_rows(rows, cols), _tile_shape(cols)[1]
    row_blocks = triton.cdiv(rows, tile_rows)
    grid = (triton.cdiv(cols, block), min(row_blocks, MAX_GRID_Y), triton.cdiv(row_blocks, MAX_GRID_Y))
    return grid, {"ROWS": tile_rows, "BLOCK": block, "num_warps": NUM_WARPS}


def _backward_plan(rows: int, cols: int) -> tuple[tuple[int, int], dict]:
    """(grid of column blocks by groups of rows, tile and warps) of a backward that adds up over the rows."""
    tile_rows, block = _tile_shape(cols)
    grid, config = wide_plan(triton.cdiv(rows, tile_rows), cols)
    return grid, {**config, "ROWS": tile_rows, "BLOCK": block}


def _flat(*tensors: torch.Tensor) -> list[torch.Tensor]:
    """Tensors of one shape as one long row where all are contiguous, else as rows."""
    if all(t.is_contiguous() for t in tensors):
        return [t.view(1, -1) for t in tensors]
    return [as_rows(t) for t in tensors]


def _launch(kernel, inputs: list[torch.Tensor], outputs: list[torch.Tensor], *strided: torch.Tensor, **config):
    """Run an elementwise kernel over inputs and outputs, passing the strides of `strided`."""
    rows, cols = strided[0].shape
    grid, tiles = _plan(rows, cols)
    strides = [stride for t in strided for stride in t.stride()]
    kernel[grid](*inputs, *outputs, *strides, rows, cols, **config, **tiles)


def _check_same(name: str, tensor, x_name: str, x: torch.Tensor):
    check_tensor(name, tensor, shape=x.shape, like=x, dtypes=(x.dtype,), why=f", the shape of {x_name}")


def _check_no_grad(function: str, **tensors: torch.Tensor):
    for name, tensor in tensors.items():
        if wants_grad(tensor):
            raise ValueError(
                f"{name}: got a tensor that requires a gradient, which {function} does not give, "
                f"expected one that does not"
            )


def pointwise_chain(x: torch.Tensor, steps: int, fused: bool = True) -> torch.Tensor:
    """`steps` pointwise ops on x: x * -0.9375 + 0.5 and |x|, by turns. Not differentiable.

    x: any shape and strides, fp16, bf16 or fp32. steps: 1 to 256. fused: one launch, fp32 between the ops; else one
    launch per op, each rounding to x's dtype. Returns a contiguous tensor of x's shape and dtype. Raises ValueError
    naming the argument.
    """
    check_tensor("x", x)
    if not isinstance(steps, int) or not 1 <= steps <= MAX_STEPS:
        raise ValueError(f"steps: got {steps!r}, expected an integer from 1 to {MAX_STEPS}")
    _check_no_grad("pointwise_chain", x=x)
    y = torch.empty_like(x, memory_format=torch.contiguous_format)
    if not x.numel():
        return y
    (x,), (out,) = _flat(x), _flat(y)
    if fused:
        _launch(pointwise_chain_kernel, [x], [out], x, FIRST=0, STEPS=steps)
    else:
        for step in range(steps):
            source = out if step else x
            _launch(pointwise_chain_kernel, [source], [out], source, FIRST=step % 2, STEPS=1)
    return y


def _add_forward(x, y):
    total = torch.empty_like(x, memory_format=torch.contiguous_format)
    if x.numel():
        x, y = _flat(x, y)
        _launch(add_kernel, [x, y], [total], x, y)
    return total


class _Add(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        return _add_forward(x, y)

    @staticmethod
    def backward(ctx, dsum):
        return dsum, dsum


def add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """x + y, rounded as torch rounds it; differentiable in both.

    x, y: one shape and dtype, fp16, bf16 or fp32, any strides. Returns a contiguous tensor of that shape and dtype.
    Raises ValueError naming the argument.
    """
    check_tensor("x", x)
    _check_same("y", y, "x", x)
    return _Add.apply(x, y) if wants_grad(x, y) else _add_forward(x, y)


def _swiglu_forward(gate, up):
    y = torch.empty_like(gate, memory_format=torch.contiguous_format)
    if gate.numel():
        gate, up = _flat(gate, up)
        _launch(swiglu_kernel, [gate, up], [y], gate, up)
    return y


def swiglu_backward(dy: torch.Tensor, gate: torch.Tensor, up: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(dgate, dup) for y = swiglu(gate, up): what autograd calls, with arguments it has already checked."""
    dgate, dup = (torch.empty_like(gate, memory_format=torch.contiguous_format) for _ in range(2))
    if gate.numel():
        dy, (gate, up) = dy.contiguous(), _flat(gate, up)
        _launch(swiglu_backward_kernel, [dy, gate, up], [dgate, dup], gate, up)
    return dgate, dup


class _SwiGLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx, gate, up):
        ctx.save_for_backward(gate, up)
        return _swiglu_forward(gate, up)

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        return swiglu_backward(dy, *ctx.saved_tensors)


def swiglu(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """silu(gate) * up, where silu(g) = g sigmoid(g); differentiable in both.

    gate, up: one shape and dtype, fp16, bf16 or fp32, any strides (the two halves of one projection, for example); copied
    only where their rows cannot be addressed by one stride. Returns a contiguous tensor of that shape and dtype. Raises
    ValueError naming the argument.
    """
    check_tensor("gate", gate)
    _check_same("up", up, "gate", gate)
    return _SwiGLU.apply(gate, up) if wants_grad(gate, up) else _swiglu_forward(gate, up)


def _check_bias(x, bias):
    check_tensor("x", x)
    check_width("x", x, MAX_COLS)
    check_tensor(
        "bias", bias, shape=x.shape[-1:], like=x, dtypes=(x.dtype, torch.float32), why=", the last dimension of x"
    )


def _bias_gelu_forward(x, bias):
    y = torch.empty_like(x, memory_format=torch.contiguous_format)
    if x.numel():
        x = as_rows(x)
        _launch(bias_gelu_kernel, [x, bias], [y], x)
    return y


def bias_gelu_backward(dy: torch.Tensor, x: torch.Tensor, bias: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(dx, dbias) for y = bias_gelu(x, bias): what autograd calls, with arguments it has already checked."""
    dx, dbias = torch.empty_like(x, memory_format=torch.contiguous_format), torch.zeros_like(bias)
    if not x.numel():
        return dx, dbias
    x, dy = as_rows(x), dy.contiguous()
    rows, cols = x.shape
    grid, config = _backward_plan(rows, cols)
    partial = torch.empty((grid[1], cols), dtype=torch.float32, device=x.device)
    bias_gelu_backward_kernel[grid](dy, x, bias, dx, partial, *x.stride(), rows, cols, **config)
    sum_partials(partial, dbias)
    return dx, dbias


class _BiasGELU(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, bias):
        ctx.save_for_backward(x, bias)
        return _bias_gelu_forward(x, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        return bias_gelu_backward(dy, *ctx.saved_tensors)


def bias_gelu(x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """gelu(x + bias) in its tanh form; differentiable in x and bias.

    x: [..., cols], fp16, bf16 or fp32, cols 1 to 1,048,576, any strides; copied only where its rows cannot be addressed
    by one stride. bias: [cols], dtype of x or fp32. Returns a contiguous tensor of x's shape and dtype. Raises ValueError
    naming the argument.
    """
    _check_bias(x, bias)
    bias = bias.contiguous()
    return _BiasGELU.apply(x, bias) if wants_grad(x, bias) else _bias_gelu_forward(x, bias)


def _check_dropout(p, seed):
    if not isinstance(p, (int, float)) or not 0 <= p < 1:
        raise ValueError(f"p: got {p!r}, expected a number from 0 to below 1")
    if not isinstance(seed, int) or not 0 <= seed < 1 << 63:
        raise ValueError(f"seed: got {seed!r}, expected an integer from 0 to 2^63 - 1")


def dropout_mask(shape: tuple, p: float, seed: int, device: torch.device | str | None = None) -> torch.Tensor:
    """The mask that `bias_gelu_dropout` applies to an x of `shape`: True where a value is kept.

    shape: at least one dimension. p: probability of dropping, 0 to below 1. seed: 0 to 2^63 - 1. device: where kernels
    run, unless given. Raises ValueError naming the argument.
    """
    _check_dropout(p, seed)
    if len(shape) == 0:
        raise ValueError("shape: got a scalar's, expected at least one dimension")
    mask = torch.empty(shape, dtype=torch.bool, device=device or backend.device())
    if mask.numel():
        rows, cols = mask.view(-1, shape[-1]).shape
        grid, config = _plan(rows, cols)
        dropout_mask_kernel[grid](mask, rows, cols, float(p), seed, ROUNDS=ROUNDS, **config)
    return mask


def bias_gelu_dropout(x: torch.Tensor, bias: torch.Tensor, p: float, seed: int) -> torch.Tensor:
    """bias_gelu(x, bias) with values dropped at probability p and the rest divided by 1 - p. Not differentiable.

    x, bias: as for `bias_gelu`. p, seed: as for `dropout_mask`, which gives the same mask: it depends on x's shape, p and
    seed alone and is never stored. Returns a contiguous tensor of x's shape and dtype. Raises ValueError naming the
    argument.
    """
    _check_bias(x, bias)
    _check_dropout(p, seed)
    _check_no_grad("bias_gelu_dropout", x=x, bias=bias)
    y = torch.empty_like(x, memory_format=torch.contiguous_format)
    if x.numel():
        x, bias = as_rows(x), bias.contiguous()
        rows, cols = x.shape
        grid, config = _plan(rows, cols)
        bias_gelu_dropout_kernel[grid](x, bias, y, *x.stride(), rows, cols, float(p), seed, ROUNDS=ROUNDS, **config)
    return y


def pointwise_chain_traffic(size: int, dtype: torch.dtype, steps: int, fused: bool = True) -> Traffic:
    """What a chain of `steps` ops over `size` elements moves; an unfused one reads back what the op before it wrote."""
    full, flops = size * dtype.itemsize, size * (steps + (steps + 1) // 2)
    if fused:
        return Traffic({"x": full}, {"y": full}, flops, launches=1)
    again = {"y": full * (steps - 1)} if steps > 1 else {}
    return Traffic({"x": full, **again}, {"y": full * steps}, flops, launches=steps)


def add_traffic(size: int, dtype: torch.dtype) -> Traffic:
    """What adding two tensors of `size` elements moves."""
    full = size * dtype.itemsize
    return Traffic({"x": full, "y": full}, {"sum": full}, size, launches=1)


def swiglu_ops(size: int, dtype: torch.dtype) -> dict[str, Traffic]:
    """What each op of `swiglu_reference`, run eagerly in `dtype`, reads and writes, in order: two kernels."""
    full = size * dtype.itemsize
    return {
        "silu": Traffic({"gate": full}, {"silu": full}, 4 * size, launches=1),
        "* up": Traffic({"silu": full, "up": full}, {"y": full}, size, launches=1),
    }


def swiglu_traffic(size: int, dtype: torch.dtype, path: str = "fused") -> Traffic:
    """What SwiGLU forward moves. path: 'fused', or 'naive' (two eager ops)."""
    _check_path(path)
    if path == "naive":
        return sum(swiglu_ops(size, dtype).values())
    full = size * dtype.itemsize
    return Traffic({"gate": full, "up": full}, {"y": full}, 5 * size, launches=1)


def swiglu_backward_traffic(size: int, dtype: torch.dtype) -> Traffic:
    """What the backward moves: silu and sigmoid are computed again rather than stored."""
    full = size * dtype.itemsize
    return Traffic({"dy": full, "gate": full, "up": full}, {"dgate": full, "dup": full}, 11 * size, launches=1)


def bias_gelu_ops(rows: int, cols: int, dtype: torch.dtype) -> dict[str, Traffic]:
    """What each op of `bias_gelu_reference`, run eagerly in `dtype`, reads and writes, in order: ten kernels."""
    size = rows * cols
    full = size * dtype.itemsize

    def op(read, written):
        return Traffic(dict.fromkeys(read, full), {written: full}, size, launches=1)

    shifted = Traffic({"x": full, "bias": cols * dtype.itemsize}, {"z": full}, size, launches=1)
    return {
        "x + bias": shifted,
        "z * z": op(["z"], "squared"),
        "* z": op(["squared", "z"], "cubed"),
        "0.044715 *": op(["cubed"], "scaled"),
        "z +": op(["z", "scaled"], "inner"),
        "sqrt(2/pi) *": op(["inner"], "u"),
        "0.5 * z": op(["z"], "half"),
        "tanh": op(["u"], "tanh"),
        "1 +": op(["tanh"], "gate"),
        "half * gate": op(["half", "gate"], "y"),
    }


def bias_gelu_traffic(
    rows: int,
    cols: int,
    dtype: torch.dtype,
    path: str = "fused",
    cached: bool = True,
    bias_dtype: torch.dtype | None = None,
) -> Traffic:
    """What bias + GELU forward moves. path: 'fused', or 'naive' (ten eager ops).

    cached: the bias, which all rows share, is counted once, as caches serve the rest; False counts what the programs ask
    for. bias_dtype: dtype unless given.
    """
    _check_path(path)
    if path == "naive":
        return sum(bias_gelu_ops(rows, cols, dtype).values())
    full = rows * cols * dtype.itemsize
    row_blocks = triton.cdiv(rows, _forward_rows(rows, cols))
    bias = cols * (bias_dtype or dtype).itemsize * (1 if cached else row_blocks)
    return Traffic({"x": full, "bias": bias}, {"y": full}, 8 * rows * cols, launches=1)


def bias_gelu_backward_traffic(rows: int, cols: int, dtype: torch.dtype, cached: bool = True) -> Traffic:
    """What the backward and the final sum of its fp32 partial sums move."""
    full, bias = rows * cols * dtype.itemsize, cols * dtype.itemsize
    groups = _backward_plan(rows, cols)[0][1]
    partial = groups * cols * 4
    return Traffic(
        {"dy": full, "x": full, "bias": bias * (1 if cached else groups), "partial": partial},
        {"dx": full, "partial": partial, "total": bias},
        19 * rows * cols,
        launches=2,
    )


def bias_gelu_dropout_ops(rows: int, cols: int, dtype: torch.dtype) -> dict[str, Traffic]:
    """The ten ops of `bias_gelu_ops`, then torch's dropout, which stores its mask, a byte per element."""
    size = rows * cols
    ops = bias_gelu_ops(rows, cols, dtype)
    last = ops.pop("half * gate")
    full = size * dtype.itemsize
    return {
        **ops,
        "half * gate": Traffic(last.read, {"gelu": full}, size, launches=1),
        "dropout": Traffic({"gelu": full}, {"y": full, "mask": size}, 2 * size, launches=1),
    }


def bias_gelu_dropout_traffic(
    rows: int, cols: int, dtype: torch.dtype, path: str = "fused", cached: bool = True
) -> Traffic:
    """What bias + GELU + dropout moves: fused, as much as without dropout. path, cached: as for `bias_gelu_traffic`.

    Philox's integer operations, about as many instructions as all the rest, are not FLOPs and not counted.
    """
    if path == "naive":
        return sum(bias_gelu_dropout_ops(rows, cols, dtype).values())
    return bias_gelu_traffic(rows, cols, dtype, path, cached) + Traffic(flops=2 * rows * cols)


def _check_path(path: str):
    if path not in ("fused", "naive"):
        raise ValueError(f"path: got {path!r}, expected fused or naive")
