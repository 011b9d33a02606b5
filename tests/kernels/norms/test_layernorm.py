"""LayerNorm against fp64."""

import pytest
import torch

from instruments.compiled import compiled
from instruments.meter import meter
from kernels.norms.layernorm import PATHS, layernorm, layernorm_reference, layernorm_traffic
from kernels.shared.rows import MAX_COLS, MAX_COLS_BACKWARD, row_plan
from tests.kernels.tools import (
    BATCHED,
    BF16,
    BF16_FIRST,
    DEVICE,
    DTYPES,
    FP16,
    FP32,
    LAYOUTS,
    SPILLS,
    assert_close,
    assert_counts,
    randn,
    widths,
)


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


@pytest.mark.parametrize("dtype", BF16_FIRST, ids=str)
def test_forward_at_every_width(dtype):
    for cols in widths(PATHS, dtype):
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


@pytest.mark.each
@pytest.mark.parametrize("value", [1.0, -3.0, 1000.0])
@pytest.mark.parametrize("cols", [164, 984, 20_024])
def test_constant_rows_give_the_bias(value, cols):
    """Here 1 / cols, rounded, times cols is not 1."""
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
    report = meter(layernorm, *inputs(rows, cols, dtype))
    assert_counts(report, layernorm_traffic(rows, cols, dtype, path=None, cached=False))
    shared = layernorm_traffic(rows, cols, dtype, path=None)
    assert report.unique.written == shared.written and report.unique.read["bias"] == shared.read["bias"]
    if row_plan(PATHS, cols, dtype.itemsize).passes == 1:
        assert report.unique.read == shared.read == layernorm_traffic(rows, cols, dtype).read


def test_an_unknown_path_is_named():
    for path in ("naive", "two_pass"):
        with pytest.raises(ValueError, match=f"path: got '{path}' for rows of 1, expected None or one of narrow"):
            layernorm_traffic(1, 1, BF16, path=path)


@pytest.mark.parametrize("arch", [80, 90, 100])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_no_spills_in_the_default_configs(arch, dtype):
    for cols in (1, 256, 512, 1001, 1024, 2048, 4096, 8191, 8192, 16_383, 16_384, 32_768, 131_072):
        x, parameter = torch.ones(2, cols, dtype=dtype, device=DEVICE), torch.ones(cols, dtype=dtype, device=DEVICE)
        for binary in compiled(layernorm, x, parameter, parameter, arch=arch):
            assert binary.spills <= SPILLS, (binary, cols)


def test_one_row_and_one_column_compile():
    for rows, cols in ((1, 1), (1, 1000), (1000, 1), (1, 40_000)):
        assert compiled(layernorm, *inputs(rows, cols, BF16))[0].ptx
