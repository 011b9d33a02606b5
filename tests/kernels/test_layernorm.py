"""LayerNorm, forward and backward, against fp64."""

import pytest
import torch

from instruments.compiled import compiled
from instruments.meter import meter
from kernels import layernorm as module
from kernels.layernorm import layernorm, layernorm_backward_traffic, layernorm_reference, layernorm_traffic
from kernels.rows import MAX_COLS, MAX_COLS_BACKWARD, RESIDENT_BLOCK_BACKWARD
from tests.kernels.tools import (
    BATCHED,
    BF16,
    DEVICE,
    DTYPES,
    FP16,
    FP32,
    LAYOUTS,
    SPILLS,
    SPILLS_BACKWARD,
    assert_close,
    randn,
    widths,
)

plan = module._plan


def inputs(rows, cols, dtype, parameters=None, **kwargs):
    parameters = parameters or dtype
    return (
        randn(rows, cols, dtype=dtype, **kwargs),
        randn(cols, dtype=parameters, seed=1),
        randn(cols, dtype=parameters, seed=2),
    )


def check(x, weight, bias, eps=1e-5):
    y = layernorm(x, weight, bias, eps)
    assert y.dtype == x.dtype and y.shape == x.shape and y.is_contiguous()
    assert_close(y, layernorm_reference(x.double(), weight.double(), bias.double(), eps))
    return y


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_forward_at_every_width(dtype):
    for cols in widths(plan, dtype):
        check(*inputs(3, cols, dtype))
    for rows in (1, 15, 41):
        check(*inputs(rows, 100, dtype))


def test_the_widest_row():
    check(*inputs(1, MAX_COLS, BF16))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("cols", [200, 1000, 17_001])
def test_layouts(layout, cols):
    x, weight, bias = inputs(4, cols, BF16)
    x = LAYOUTS[layout](x)
    before = x.clone()
    check(x, weight, bias)
    assert meter(layernorm, x, weight, bias).clean
    assert torch.equal(x, before)


@pytest.mark.parametrize("layout", BATCHED)
def test_batches(layout):
    x = BATCHED[layout](randn(3, 4, 300, dtype=BF16))
    check(x, *inputs(1, x.shape[-1], BF16)[1:])


@pytest.mark.parametrize("shape", [(7,), (1, 1), (2, 3, 5), (2, 1, 3, 1, 10)])
def test_any_number_of_leading_dimensions(shape):
    check(randn(*shape, dtype=FP16), *inputs(1, shape[-1], FP16)[1:])


@pytest.mark.parametrize("shape", [(0,), (0, 8), (3, 0), (2, 0, 8)])
def test_empty_in_empty_out(shape):
    x = torch.empty(shape, dtype=BF16, device=DEVICE).requires_grad_()
    weight, bias = (t.requires_grad_() for t in inputs(1, shape[-1], BF16)[1:])
    y = layernorm(x, weight, bias)
    assert y.shape == shape
    y.sum().backward()
    assert x.grad.shape == shape and (weight.grad == 0).all() and (bias.grad == 0).all()


@pytest.mark.parametrize("dtype", [BF16, FP16], ids=str)
@pytest.mark.parametrize("cols", [100, 1000, 40_000])
def test_fp32_parameters_beside_16_bit_rows(dtype, cols):
    x, weight, bias = inputs(3, cols, dtype, parameters=FP32)
    check(x, weight, bias)
    check(x, weight, bias.to(dtype))  # each on its own
    check(x, weight.to(dtype), torch.stack([bias, bias], dim=1)[:, 0])


@pytest.mark.parametrize("cols", [200, 1000, 8192, 20_011])
def test_a_mean_far_above_the_deviation(cols):
    # mean(x^2) - mean(x)^2 would come out negative here
    x, weight, bias = inputs(4, cols, FP32, shift=1e4)
    reference = layernorm_reference(x.double(), weight.double(), bias.double(), 1e-5)
    error = (layernorm(x, weight, bias).double() - reference).norm(dim=1) / reference.norm(dim=1)
    assert float(error.max()) < 2e-3  # the mean itself is known to half a step of fp32 at 1e4: 5e-4 of the deviation
    naive = x.square().mean(1) - x.mean(1).square()
    assert (naive - x.double().var(1, correction=0)).abs().max() > 0.1


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("cols", [200, 1000, 20_011])
def test_hard_values(dtype, cols):
    x, weight, bias = inputs(6, cols, dtype)
    x[0] = 0
    x[1, ::2] = 300  # deviations square beyond fp16
    x[2] = 0
    x[2, cols - 1] = 200
    x[3] *= 1e-3
    x[4, cols * 3 // 4] = 6e4
    x[5, 0] = 100  # an outlier in the first chunk, which all later ones must be merged with
    y = check(x, weight, bias)
    assert torch.equal(y[0], bias)
    check(x, weight, bias, eps=0.1)


@pytest.mark.parametrize("value", [1.0, -3.0, 1000.0])
@pytest.mark.parametrize("cols", [200, 1000, 20_011])
def test_constant_rows_give_the_bias(value, cols):
    x = torch.full((2, cols), value, dtype=FP16, device=DEVICE)
    _, weight, bias = inputs(2, cols, FP16)
    y = layernorm(x, weight, bias)
    assert torch.equal(y, bias.expand(2, -1))  # 1/sqrt(eps) is 316: a last bit of the mean would show


def test_a_nan_stays_in_its_row():
    for cols in (100, 1000, 20_000):
        x, weight, bias = inputs(3, cols, BF16)
        x[1, 5] = float("nan")
        y = layernorm(x, weight, bias)
        assert y[1].isnan().all() and not y[[0, 2]].isnan().any()


# ---------------------------------------------------------------- backward


def gradients(function, tensors, upstream):
    tensors = [t.detach().requires_grad_() for t in tensors]
    return torch.autograd.grad(function(*tensors), tensors, upstream)


def check_backward(x, weight, bias, eps=1e-5):
    dy = randn(*x.shape, dtype=x.dtype, seed=3)
    mine = gradients(lambda *t: layernorm(*t, eps), (x, weight, bias), dy)
    exact = [t.double() for t in (x, weight, bias)]
    expected = gradients(lambda *t: layernorm_reference(*t, eps), exact, dy.double())
    assert [t.dtype for t in mine] == [x.dtype, weight.dtype, bias.dtype]
    scale = torch.rsqrt(exact[0].var(-1, correction=0, keepdim=True) + eps)
    assert_close(mine[0], expected[0], floor=scale * dy.double() * exact[1])
    normed = (exact[0] - exact[0].mean(-1, keepdim=True)) * scale
    assert_close(mine[1], expected[1], floor=(dy.double() * normed).reshape(-1, x.shape[-1]).norm(dim=0))
    assert_close(mine[2], expected[2])


BACKWARD_WIDTHS = (1, 2, 17, 256, 257, 1000, 1024, RESIDENT_BLOCK_BACKWARD, RESIDENT_BLOCK_BACKWARD + 1, 17_001)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_backward_at_every_width(dtype):
    for cols in BACKWARD_WIDTHS:
        check_backward(*inputs(5, cols, dtype))
    check_backward(*inputs(131, 40, dtype))  # more rows than programs
    check_backward(*inputs(67, 1024, dtype))


def test_backward_of_the_widest_row():
    check_backward(*inputs(2, MAX_COLS_BACKWARD, BF16))


@pytest.mark.parametrize("cols", [1000, RESIDENT_BLOCK_BACKWARD + 1])
@pytest.mark.parametrize("layout", [layout for layout in LAYOUTS if layout != "one column, expanded"])
def test_backward_of_layouts(layout, cols):
    x, weight, bias = inputs(4, cols, BF16)
    check_backward(LAYOUTS[layout](x), weight, bias)


@pytest.mark.parametrize("cols", [300, RESIDENT_BLOCK_BACKWARD + 1])
def test_backward_with_fp32_parameters_and_hard_rows(cols):
    x, weight, bias = inputs(5, cols, FP16, parameters=FP32)
    x[0] *= 0.01
    x[1, ::2] = 300
    x[2, cols - 1] = 1000
    x[3] += 100
    check_backward(x, weight, bias)


@pytest.mark.parametrize("cols", [40, 1000, 9000])
def test_the_same_bits_every_time(cols):
    x, weight, bias = inputs(37, cols, BF16)
    dy = randn(37, cols, dtype=BF16, seed=3)
    first, second = (gradients(layernorm, (x, weight, bias), dy) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, second))


def test_a_second_derivative_is_refused_rather_than_wrong():
    x, weight, bias = inputs(2, 16, FP32)
    x.requires_grad_()
    (dx,) = torch.autograd.grad(layernorm(x, weight, bias).square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError):
        dx.sum().backward()


# ---------------------------------------------------------------- arguments


X, P = torch.ones(2, 8, device=DEVICE), torch.ones(8, device=DEVICE)


@pytest.mark.parametrize(
    "arguments, message",
    [
        (("x", P, P), "x: got str, expected a torch.Tensor"),
        ((X.double(), P.double(), P.double()), "x: got dtype float64"),
        ((X[0, 0], P, P), "x: got a scalar"),
        ((X, P[:7], P), r"weight: got shape \(7,\), expected \(8,\), the last dimension of x"),
        ((X, P, P[:7]), r"bias: got shape \(7,\), expected \(8,\)"),
        ((X.half(), P, P.bfloat16()), "bias: got dtype bfloat16, expected one of float16, float32"),
        ((X, P, P.to("meta")), "bias: got device meta"),
        ((X, P, None), "bias: got NoneType"),
        ((X, P, P, -1.0), "eps: got -1.0"),
        (
            (torch.ones(1, MAX_COLS + 1, device=DEVICE),) + (torch.ones(MAX_COLS + 1, device=DEVICE),) * 2,
            "x: got a last dimension of 1,048,577",
        ),
        (
            (torch.ones(1, MAX_COLS_BACKWARD + 1, device=DEVICE, requires_grad=True),)
            + (torch.ones(MAX_COLS_BACKWARD + 1, device=DEVICE),) * 2,
            "x: got a last dimension of 131,073, expected 1 to 131,072",
        ),
    ],
)
def test_bad_arguments_name_themselves(arguments, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        layernorm(*arguments)


# ---------------------------------------------------------------- bytes and machine code


SHAPES = [
    (5, 1, BF16),
    (41, 100, BF16),
    (17, 256, FP32),
    (3, 1000, FP16),
    (4, 4096, BF16),
    (3, 9001, FP32),
    (2, 20_000, BF16),
]


@pytest.mark.parametrize("rows, cols, dtype", SHAPES, ids=str)
def test_traffic_is_what_the_meter_counts(rows, cols, dtype):
    path, _ = plan(cols, dtype)
    report = meter(layernorm, *inputs(rows, cols, dtype))
    model = layernorm_traffic(rows, cols, dtype, path=path, cached=False)
    assert report.clean
    assert (report.traffic.read, report.traffic.written, report.launches) == (model.read, model.written, model.launches)
    shared = layernorm_traffic(rows, cols, dtype, path=path)
    assert report.unique.written == shared.written and report.unique.read["bias"] == shared.read["bias"]
    if path in ("narrow", "resident"):
        assert report.unique.read == shared.read


@pytest.mark.parametrize("rows, cols, dtype", [*SHAPES, (131, 40, FP32), (3, 9000, FP32)], ids=str)
def test_backward_traffic_is_what_the_meter_counts(rows, cols, dtype):
    tensors = [t.requires_grad_() for t in inputs(rows, cols, dtype)]
    report = meter(
        torch.autograd.grad, layernorm(*tensors), tensors, torch.ones(rows, cols, dtype=dtype, device=DEVICE)
    )
    model = layernorm_backward_traffic(rows, cols, dtype, cached=False)
    names = {"total": "dweight", "total (2)": "dbias"}  # what the summing kernel calls its output
    assert report.clean
    assert {names.get(name, name): written for name, written in report.traffic.written.items()} == model.written
    assert (report.traffic.read, report.launches) == (model.read, model.launches)


def test_an_unknown_path_is_named():
    with pytest.raises(ValueError, match="path: got 'naive', expected one of narrow"):
        layernorm_traffic(1, 1, BF16, path="naive")


@pytest.mark.parametrize("arch", [80, 90, 100])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_no_spills_in_the_default_configs(arch, dtype):
    for cols in (1, 256, 512, 1001, 1024, 2048, 4096, 8191, 8192, 16_383, 16_384, 32_768, 131_072):
        x, parameter = torch.ones(2, cols, dtype=dtype, device=DEVICE), torch.ones(cols, dtype=dtype, device=DEVICE)
        for binary in compiled(layernorm, x, parameter, parameter, arch=arch):
            assert binary.spills <= SPILLS, (binary, cols)
    for cols, allowed in SPILLS_BACKWARD.items():
        x, parameter = torch.ones(2, cols, dtype=dtype, device=DEVICE), torch.ones(cols, dtype=dtype, device=DEVICE)
        for binary in compiled(module.layernorm_backward, x, x, parameter, parameter, arch=arch):
            assert binary.spills <= allowed, (binary, cols)


def test_one_row_and_one_column_compile():
    for rows, cols in ((1, 1), (1, 1000), (1000, 1), (1, 40_000)):
        x, weight, bias = inputs(rows, cols, BF16)
        assert compiled(layernorm, x, weight, bias)[0].ptx
        assert len(compiled(module.layernorm_backward, x, x, weight, bias)) >= 3
