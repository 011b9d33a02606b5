"""Elementwise kernels, forward and backward, against fp64."""

import pytest
import torch
import torch.nn.functional as F

from instruments.backend import tl, triton
from instruments.compiled import compiled
from instruments.meter import meter
from kernels import elementwise as module
from kernels.elementwise import (
    TILE,
    add,
    add_reference,
    add_traffic,
    bias_gelu,
    bias_gelu_backward,
    bias_gelu_backward_traffic,
    bias_gelu_dropout,
    bias_gelu_dropout_ops,
    bias_gelu_dropout_reference,
    bias_gelu_dropout_traffic,
    bias_gelu_ops,
    bias_gelu_reference,
    bias_gelu_traffic,
    dropout_mask,
    pointwise_chain,
    pointwise_chain_reference,
    pointwise_chain_traffic,
    swiglu,
    swiglu_backward,
    swiglu_backward_traffic,
    swiglu_ops,
    swiglu_reference,
    swiglu_traffic,
)
from kernels.rows import MAX_COLS
from tests.kernels.tools import BATCHED, BF16, DEVICE, DTYPES, FP16, FP32, LAYOUTS, assert_close, randn

WIDTHS = (1, 2, 3, 4, 5, 17, 127, 512, 513, 1000, TILE - 1, TILE, TILE + 1, 2 * TILE + 17)


def one(*shape, dtype=BF16, **kwargs):
    return randn(*shape, dtype=dtype, **kwargs)


def other(x):
    return randn(*x.shape, dtype=x.dtype, seed=2)


def bias_of(x, dtype=None):
    return randn(x.shape[-1], dtype=dtype or x.dtype, seed=1)


def assert_result(y, x):
    assert y.dtype == x.dtype and y.shape == x.shape and y.is_contiguous()


def check(x, gate=None):
    """Every function at one x; the second tensor of the same shape is `gate`."""
    y = other(x) if gate is None else gate
    bias, before = bias_of(x), x.clone()
    for result, reference in (
        (add(x, y), add_reference(x.double(), y.double())),
        (swiglu(x, y), swiglu_reference(x.double(), y.double())),
        (bias_gelu(x, bias), bias_gelu_reference(x.double(), bias.double())),
        (pointwise_chain(x, 5), pointwise_chain_reference(x.double(), 5)),
        (
            bias_gelu_dropout(x, bias, 0.25, 7),
            bias_gelu_dropout_reference(x.double(), bias.double(), dropout_mask(x.shape, 0.25, 7), 0.25),
        ),
    ):
        assert_result(result, x)
        close(result, reference)
    assert torch.equal(x, before)


def close(result, reference):
    """As one row: an element on its own may be near a zero of the function."""
    assert_close(result.flatten(), reference.flatten(), floor=torch.full((max(1, min(16, reference.numel())),), 0.1))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_function_at_every_width(dtype):
    for cols in WIDTHS:
        check(one(3, cols, dtype=dtype))
    for rows in (1, 5, 41):
        check(one(rows, 100, dtype=dtype))
    check(one(600, 3, dtype=dtype))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("cols", [33, 1030])
def test_layouts(layout, cols):
    x = LAYOUTS[layout](one(4, cols))
    check(x)
    check(other(x), gate=x)


@pytest.mark.parametrize("layout", BATCHED)
def test_batches(layout):
    check(BATCHED[layout](one(3, 4, 300)))


def test_the_two_halves_of_one_projection():
    gate, up = one(5, 600).chunk(2, dim=1)
    assert not meter(swiglu, gate, up).out_of_bounds
    close(swiglu(gate, up), swiglu_reference(gate.double(), up.double()))


@pytest.mark.parametrize("shape", [(7,), (1, 1), (2, 3, 5), (2, 1, 3, 1, 10)])
def test_any_number_of_leading_dimensions(shape):
    check(one(*shape, dtype=FP16))


def test_a_scalar_has_no_bias_but_the_rest():
    x = one()
    assert add(x, x).shape == swiglu(x, x).shape == pointwise_chain(x, 2).shape == ()


@pytest.mark.parametrize("shape", [(0,), (0, 8), (3, 0), (2, 0, 8)])
def test_empty_in_empty_out(shape):
    x = torch.empty(shape, dtype=BF16, device=DEVICE)
    bias = bias_of(x)
    assert dropout_mask(shape, 0.5, 0).shape == bias_gelu_dropout(x, bias, 0.5, 0).shape == shape
    assert pointwise_chain(x, 3).shape == pointwise_chain(x, 3, fused=False).shape == shape
    x.requires_grad_(), bias.requires_grad_()
    for y in (add(x, x), swiglu(x, x), bias_gelu(x, bias)):
        assert y.shape == shape
        y.sum().backward()
    assert x.grad.shape == shape and (bias.grad == 0).all()


def test_rows_beyond_the_second_axis_of_the_grid(monkeypatch):
    monkeypatch.setattr(module, "MAX_GRID_Y", 3)
    for rows in (3, 4, 11):
        check(one(rows, 1025))
        check(one(4 * rows - 1, 500).T.contiguous().T)
    assert bool(dropout_mask((2 * 3 * 64, 16), 0.0, 0).all())


def test_a_sum_is_rounded_as_torch_rounds_it():
    x = one(9, 1000)
    assert torch.equal(add(x, other(x)), x + other(x))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_hard_values(dtype):
    x = one(4, 1000, dtype=dtype)
    x[0] = torch.linspace(-200, 200, 1000)
    x[1] *= 1e-4
    x[2] = 6e4
    x[3] = -6e4
    bias, ones = torch.zeros_like(x[0]), torch.ones_like(x)
    for y, reference in (
        (bias_gelu(x, bias), F.gelu(x.double(), approximate="tanh")),
        (swiglu(x, ones), F.silu(x.double())),
    ):
        assert_close(y, reference, floor=torch.full((4, 1), 1e-3))
        assert (y[3] == 0).all() and torch.equal(y[2], x[2])
    x[0, 7] = float("nan")
    assert bias_gelu(x, bias).isnan().sum() == swiglu(x, ones).isnan().sum() == 1


@pytest.mark.parametrize("dtype", [BF16, FP16], ids=str)
def test_an_fp32_bias_beside_16_bit_rows(dtype):
    x = one(5, 300, dtype=dtype)
    bias = torch.stack([bias_of(x, FP32)] * 2, dim=1)[:, 0]
    close(bias_gelu(x, bias), bias_gelu_reference(x.double(), bias.double()))
    close(bias_gelu_dropout(x, bias, 0, 1), bias_gelu_reference(x.double(), bias.double()))
    check_bias_gelu_backward(x, bias)


def test_the_references_are_torchs_own():
    x, bias = one(3, 50, dtype=FP32).double(), one(50, dtype=FP32, seed=1).double()
    assert torch.allclose(bias_gelu_reference(x, bias), F.gelu(x + bias, approximate="tanh"))
    assert torch.allclose(swiglu_reference(x, x), x * torch.sigmoid(x) * x)


# ---------------------------------------------------------------- the chain


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("steps", [1, 2, 3, 16])
def test_fused_and_unfused_chains(dtype, steps):
    x = one(5, 300, dtype=dtype)
    fused, unfused = pointwise_chain(x, steps), pointwise_chain(x, steps, fused=False)
    exact = pointwise_chain_reference(x.double(), steps)
    close(fused, exact)
    rounded = x.double()
    for step in range(steps):
        rounded = rounded.abs() if step % 2 else pointwise_chain_reference(rounded, 1)
        rounded = rounded.to(dtype).double()  # each op by itself rounds once
    close(unfused, rounded)
    if steps == 16 and dtype != FP32:
        assert (unfused.double() - exact).norm() > 1.5 * (fused.double() - exact).norm()


def test_an_unfused_chain_of_strided_rows():
    x = one(4, 66, dtype=FP32)[:, ::2]
    before = x.clone()
    close(pointwise_chain(x, 3, fused=False), pointwise_chain(x, 3).double())
    assert torch.equal(x, before)


# ---------------------------------------------------------------- dropout


@pytest.mark.parametrize("seed", [0, 1, 16, 123, (1 << 40) + 3, (1 << 63) - 1])
def test_a_seed_gives_a_mask_and_the_next_another(seed):
    mask = dropout_mask((20, 1000), 0.3, seed)
    assert torch.equal(mask, dropout_mask((20, 1000), 0.3, seed))
    assert not torch.equal(mask, dropout_mask((20, 1000), 0.3, seed - 1 if seed else 1))
    x = torch.ones(20, 1000, dtype=FP16, device=DEVICE)
    y = bias_gelu_dropout(x, x[0], 0.3, seed)
    assert torch.equal(y != 0, mask)
    assert torch.equal(y, bias_gelu_dropout(x, x[0], 0.3, seed))


@pytest.mark.parametrize("p", [0.0, 0.1, 0.5, 0.9])
@pytest.mark.parametrize("shape", [(64, 1024), (999, 63)])
def test_as_many_are_kept_as_asked_and_neighbours_do_not_follow_each_other(p, shape):
    kept = dropout_mask(shape, p, 11).double()
    noise = 5 * (p * (1 - p) / kept.numel()) ** 0.5
    assert abs(float(kept.mean()) - (1 - p)) <= noise
    for shift in ((0, 1), (0, 2), (0, 4), (1, 0), (8, 0)):
        together = (kept * kept.roll(shift, (0, 1))).mean()
        assert abs(float(together) - (1 - p) ** 2) <= 3 * noise


def test_the_mask_does_not_depend_on_the_layout():
    x = one(6, 300)
    bias = bias_of(x)
    assert torch.equal(bias_gelu_dropout(x, bias, 0.5, 3), bias_gelu_dropout(x.T.contiguous().T, bias, 0.5, 3))
    batch = bias_gelu_dropout(x.view(2, 3, 300), bias, 0.5, 3)
    assert torch.equal(bias_gelu_dropout(x, bias, 0.5, 3).view(2, 3, 300), batch)
    assert torch.equal(bias_gelu_dropout(x, bias, 0.0, 3), bias_gelu(x, bias))


@triton.jit
def keep_at_kernel(mask_ptr, row, cols, ROUNDS: tl.constexpr, BLOCK: tl.constexpr):
    row = row.to(tl.int64) + tl.arange(0, 1)[:, None]
    tl.store(mask_ptr + tl.arange(0, BLOCK)[None, :], module.keep(row, cols, 0.5, 5, ROUNDS, 1, BLOCK))


def test_the_counters_of_the_mask_have_64_bits():
    masks = []
    for row in (0, 1 << 24, 1 << 25):  # 2^32 and 2^33 groups of four further
        masks.append(torch.zeros(1024, dtype=torch.bool, device=DEVICE))
        keep_at_kernel[(1,)](masks[-1], row, 1024, module.ROUNDS, 1024)
        for earlier in masks[:-1]:
            assert 400 < (masks[-1] != earlier).sum() < 624


# ---------------------------------------------------------------- backward


def gradients(function, tensors, upstream):
    tensors = [t.detach().requires_grad_() for t in tensors]
    return torch.autograd.grad(function(*tensors), tensors, upstream)


def check_swiglu_backward(gate, up):
    dy = randn(*gate.shape, dtype=gate.dtype, seed=3)
    mine = gradients(swiglu, (gate, up), dy)
    expected = gradients(swiglu_reference, (gate.double(), up.double()), dy.double())
    for gradient, reference in zip(mine, expected):
        assert gradient.dtype == gate.dtype and gradient.shape == gate.shape
        close(gradient, reference)


def check_bias_gelu_backward(x, bias):
    dy = randn(*x.shape, dtype=x.dtype, seed=3)
    dx, dbias = gradients(bias_gelu, (x, bias), dy)
    expected = gradients(bias_gelu_reference, (x.double(), bias.double()), dy.double())
    assert (dx.dtype, dbias.dtype) == (x.dtype, bias.dtype)
    close(dx, expected[0])
    assert_close(dbias, expected[1], floor=expected[0].reshape(-1, x.shape[-1]).norm(dim=0))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_backward_at_every_width(dtype):
    for cols in WIDTHS:
        x = one(5, cols, dtype=dtype)
        check_swiglu_backward(x, other(x))
        check_bias_gelu_backward(x, bias_of(x))
    for rows, cols in ((131, 40), (67, 1024), (300, 3)):  # more rows than programs
        x = one(rows, cols, dtype=dtype)
        check_bias_gelu_backward(x, bias_of(x))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_backward_of_layouts(layout):
    x = LAYOUTS[layout](one(4, 300))
    check_bias_gelu_backward(x, bias_of(x))
    check_swiglu_backward(x, other(x))
    check_swiglu_backward(other(x), x)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_backward_of_hard_values(dtype):
    x = one(3, 1000, dtype=dtype)
    x[0] = torch.linspace(-100, 100, 1000)
    x[1] = 6e4
    x[2] = -6e4
    ones = torch.ones_like(x)
    dx, dbias = bias_gelu_backward(ones, x, torch.zeros_like(x[0]))
    dgate, dup = swiglu_backward(ones, x, ones)
    for gradient in (dx, dgate):
        assert not gradient.isnan().any() and (gradient[1] == 1).all() and (gradient[2] == 0).all()
    assert not dbias.isnan().any() and torch.equal(dup[1], x[1]) and (dup[2] == 0).all()
    if dtype != FP16:
        huge = torch.full_like(x, 1e30)
        assert (bias_gelu_backward(ones, huge, torch.zeros_like(x[0]))[0] == 1).all()


def test_the_gradient_of_a_sum_is_passed_on():
    x = one(3, 20)
    dx, dy = gradients(add, (x, other(x)), torch.full_like(x, 2))
    assert (dx == 2).all() and (dy == 2).all()


def test_the_same_bits_every_time():
    x = one(37, 1100)
    first, second = (gradients(bias_gelu, (x, bias_of(x)), other(x)) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, second))


@pytest.mark.parametrize("function", [swiglu, bias_gelu])
def test_a_second_derivative_is_refused_rather_than_wrong(function):
    x = one(16, dtype=FP32).requires_grad_()
    (dx,) = torch.autograd.grad(function(x, x.detach()).square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError):
        dx.sum().backward()


# ---------------------------------------------------------------- arguments


X, P = torch.ones(2, 8, device=DEVICE), torch.ones(8, device=DEVICE)


@pytest.mark.parametrize(
    "function, arguments, message",
    [
        (add, ("x", X), "x: got str, expected a torch.Tensor"),
        (add, (X, X[:1]), r"y: got shape \(1, 8\), expected \(2, 8\), the shape of x"),
        (add, (X, X.half()), "y: got dtype float16, expected one of float32"),
        (swiglu, (X.double(), X), "gate: got dtype float64"),
        (swiglu, (X, X[:, :7]), r"up: got shape \(2, 7\), expected \(2, 8\), the shape of gate"),
        (swiglu, (X, X.to("meta")), "up: got device meta"),
        (bias_gelu, (X[0, 0], P), "x: got a scalar"),
        (bias_gelu, (X, P[:7]), r"bias: got shape \(7,\), expected \(8,\), the last dimension of x"),
        (bias_gelu, (X.half(), P.bfloat16()), "bias: got dtype bfloat16, expected one of float16, float32"),
        (bias_gelu, (X, None), "bias: got NoneType"),
        (bias_gelu, (X[:1, :1].expand(1, MAX_COLS + 1), P), "x: got a last dimension of 1,048,577"),
        (pointwise_chain, (X, 0), "steps: got 0, expected an integer from 1 to 256"),
        (pointwise_chain, (X, 2.0), "steps: got 2.0"),
        (
            pointwise_chain,
            (X.clone().requires_grad_(), 2),
            "x: got a tensor that requires a gradient, which pointwise_chain",
        ),
        (bias_gelu_dropout, (X, P, 1, 0), "p: got 1, expected a number from 0 to below 1"),
        (bias_gelu_dropout, (X, P, 0.5, -1), r"seed: got -1, expected an integer from 0 to 2\^63 - 1"),
        (bias_gelu_dropout, (X, P, 0.5, 0.5), "seed: got 0.5"),
        (bias_gelu_dropout, (X, P.clone().requires_grad_(), 0.5, 0), "bias: got a tensor that requires a gradient"),
        (dropout_mask, ((), 0.5, 0), "shape: got a scalar's, expected at least one dimension"),
        (dropout_mask, ((2,), float("nan"), 0), "p: got nan"),
        (swiglu_traffic, (8, BF16, "fast"), "path: got 'fast', expected fused or naive"),
        (bias_gelu_traffic, (1, 8, BF16, "fast"), "path: got 'fast', expected fused or naive"),
    ],
)
def test_bad_arguments_name_themselves(function, arguments, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        function(*arguments)


# ---------------------------------------------------------------- bytes and machine code


def assert_counts(report, model):
    assert report.clean
    assert (report.traffic.read, report.traffic.written, report.launches) == (model.read, model.written, model.launches)


SHAPES = [(5, 1, BF16), (41, 100, BF16), (17, 256, FP32), (3, 1000, FP16), (4, 4096, BF16), (3, 2049, FP32)]


@pytest.mark.parametrize("rows, cols, dtype", SHAPES, ids=str)
def test_traffic_is_what_the_meter_counts(rows, cols, dtype):
    x, size = one(rows, cols, dtype=dtype), rows * cols
    y, bias = other(x), bias_of(x)
    assert_counts(meter(add, x, y), add_traffic(size, dtype))
    assert_counts(meter(swiglu, x, y), swiglu_traffic(size, dtype))
    assert_counts(meter(swiglu_backward, x, y, x.clone()), swiglu_backward_traffic(size, dtype))
    for fused in (True, False):
        for steps in (1, 4):
            assert_counts(meter(pointwise_chain, x, steps, fused), pointwise_chain_traffic(size, dtype, steps, fused))
    report = meter(bias_gelu, x, bias)
    assert_counts(report, bias_gelu_traffic(rows, cols, dtype, cached=False))
    shared = bias_gelu_traffic(rows, cols, dtype)
    assert (report.unique.read, report.unique.written) == (shared.read, shared.written)
    report = meter(bias_gelu_dropout, x, bias, 0.5, 1)
    assert_counts(report, bias_gelu_dropout_traffic(rows, cols, dtype, cached=False))
    assert report.unique.bytes == shared.bytes, "the mask costs no bytes"


def test_traffic_with_an_fp32_bias():
    x = one(4, 1030)
    assert_counts(
        meter(bias_gelu, x, bias_of(x, FP32)), bias_gelu_traffic(4, 1030, BF16, cached=False, bias_dtype=FP32)
    )


@pytest.mark.parametrize("rows, cols, dtype", [*SHAPES, (131, 40, FP32), (300, 3, BF16)], ids=str)
def test_backward_traffic_is_what_the_meter_counts(rows, cols, dtype):
    x = one(rows, cols, dtype=dtype)
    report = meter(bias_gelu_backward, other(x), x, bias_of(x))
    assert_counts(report, bias_gelu_backward_traffic(rows, cols, dtype, cached=False))
    shared = bias_gelu_backward_traffic(rows, cols, dtype)
    assert (report.unique.read, report.unique.written) == (shared.read, shared.written)


def test_the_naive_paths_and_what_fusing_saves():
    rows, cols = 64, 1000
    full, bias = rows * cols * 2, cols * 2
    assert len(swiglu_ops(rows * cols, BF16)) == 2 and len(bias_gelu_ops(rows, cols, BF16)) == 10
    assert swiglu_traffic(rows * cols, BF16, "naive").bytes == 5 * full
    assert swiglu_traffic(rows * cols, BF16).bytes == 3 * full
    naive = bias_gelu_traffic(rows, cols, BF16, "naive")
    assert naive.launches == 10 and naive.bytes == 23 * full + bias
    assert bias_gelu_traffic(rows, cols, BF16).bytes == 2 * full + bias
    ops = bias_gelu_dropout_ops(rows, cols, BF16)
    assert len(ops) == 11 and sum(ops.values()).bytes == 25 * full + full // 2 + bias
    assert sum(ops.values()) == bias_gelu_dropout_traffic(rows, cols, BF16, "naive")
    chain = pointwise_chain_traffic(rows * cols, BF16, 6, fused=False)
    assert chain.launches == 6 and chain.bytes == 6 * pointwise_chain_traffic(rows * cols, BF16, 6).bytes


def machine_code(rows, cols, dtype, arch):
    x, bias = torch.ones(rows, cols, dtype=dtype, device=DEVICE), torch.ones(cols, dtype=dtype, device=DEVICE)
    calls = [
        (add, x, x),
        (swiglu, x, x),
        (swiglu_backward, x, x, x),
        (pointwise_chain, x, 8),
        (bias_gelu, x, bias),
        (bias_gelu_dropout, x, bias, 0.1, 5),
        (bias_gelu_backward, x, x, bias),
    ]
    return [compiled(function, *arguments, arch=arch)[0] for function, *arguments in calls]


@pytest.mark.parametrize("arch", [80, 90, 100])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_no_spills_and_loads_of_16_bytes(arch, dtype):
    for binary in machine_code(64, 11_008, dtype, arch):
        assert binary.spills == 0 and set(binary.loads) == set(binary.stores) == {128}, (binary, binary.loads)
    for binary in machine_code(64, 1001, dtype, arch)[-3:]:
        assert binary.spills == 0, binary


def test_the_forward_kernels_share_no_memory_and_convert_no_layout():
    for binary in machine_code(64, 11_008, BF16, 90)[:-1]:
        assert binary.shared == 0, binary


@pytest.mark.parametrize("shape", [(1, 1), (1, 1000), (1000, 1)])
def test_sizes_of_one_compile(shape):
    assert len(machine_code(*shape, BF16, 90)) == 7
    for seed in (0, 1, 1 << 40):
        assert compiled(dropout_mask, shape, 0.5, seed)[0].spills == 0
