"""Bias and GELU, forward and backward, against fp64."""

import pytest
import torch
import torch.nn.functional as F

from instruments.meter import meter
from kernels.elementwise.bias_gelu import (
    bias_gelu,
    bias_gelu_backward,
    bias_gelu_backward_traffic,
    bias_gelu_ops,
    bias_gelu_reference,
    bias_gelu_traffic,
)
from kernels.shared.device import device_of
from kernels.shared.rows import MAX_COLS
from tests.kernels.tools import (
    BF16,
    DEVICE,
    DTYPES,
    ELEMENTWISE_SHAPES,
    ELEMENTWISE_WIDTHS,
    FP16,
    FP32,
    LAYOUTS,
    assert_close,
    assert_counts,
    bias_of,
    close,
    gradients,
    other,
    randn,
)


def one(*shape, dtype=BF16, **kwargs):
    return randn(*shape, dtype=dtype, **kwargs)


@pytest.mark.parametrize("dtype", [BF16, FP16], ids=str)
def test_an_fp32_bias_beside_16_bit_rows(dtype):
    x = one(5, 300, dtype=dtype)
    bias = torch.stack([bias_of(x, FP32)] * 2, dim=1)[:, 0]
    close(bias_gelu(x, bias), bias_gelu_reference(x.double(), bias.double()))
    check_backward(x, bias)


def test_the_reference_is_torchs_own():
    x, bias = one(3, 50, dtype=FP32).double(), one(50, dtype=FP32, seed=1).double()
    assert torch.allclose(bias_gelu_reference(x, bias), F.gelu(x + bias, approximate="tanh"))


def check_backward(x, bias):
    dy = randn(*x.shape, dtype=x.dtype, seed=3)
    dx, dbias = gradients(bias_gelu, (x, bias), dy)
    expected = gradients(bias_gelu_reference, (x.double(), bias.double()), dy.double())
    assert (dx.dtype, dbias.dtype) == (x.dtype, bias.dtype)
    close(dx, expected[0])
    assert_close(dbias, expected[1], floor=expected[0].reshape(-1, x.shape[-1]).norm(dim=0))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_backward_at_every_width(dtype):
    for cols in ELEMENTWISE_WIDTHS:
        x = one(5, cols, dtype=dtype)
        check_backward(x, bias_of(x))
    for rows, cols in ((131, 40), (67, 1024), (300, 3)):  # more rows than programs
        x = one(rows, cols, dtype=dtype)
        check_backward(x, bias_of(x))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_backward_of_layouts(layout):
    x = LAYOUTS[layout](one(4, 300))
    check_backward(x, bias_of(x))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_backward_of_hard_values(dtype):
    x = one(3, 1000, dtype=dtype)
    x[0] = torch.linspace(-100, 100, 1000)
    x[1] = 6e4
    x[2] = -6e4
    ones = torch.ones_like(x)
    dx, dbias = bias_gelu_backward(ones, x, torch.zeros_like(x[0]))
    assert not dx.isnan().any() and (dx[1] == 1).all() and (dx[2] == 0).all() and not dbias.isnan().any()
    if dtype != FP16:
        huge = torch.full_like(x, 1e30)
        assert (bias_gelu_backward(ones, huge, torch.zeros_like(x[0]))[0] == 1).all()


def test_the_same_bits_every_time():
    x = one(37, 1100)
    first, second = (gradients(bias_gelu, (x, bias_of(x)), other(x)) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, second))


X, P = torch.ones(2, 8, device=DEVICE), torch.ones(8, device=DEVICE)


@pytest.mark.parametrize(
    "function, arguments, message",
    [
        (bias_gelu, (X[0, 0], P), "x: got a scalar"),
        (bias_gelu, (X, P[:7]), r"bias: got shape \(7,\), expected \(8,\), the last dimension of x"),
        (bias_gelu, (X.half(), P.bfloat16()), "bias: got dtype bfloat16, expected one of float16, float32"),
        (bias_gelu, (X, None), "bias: got NoneType"),
        (bias_gelu, (X[:1, :1].expand(1, MAX_COLS + 1), P), "x: got a last dimension of 1,048,577"),
        (bias_gelu_traffic, (1, 8, BF16, "fast"), "path: got 'fast', expected fused or naive"),
    ],
)
def test_bad_arguments_name_themselves(function, arguments, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        function(*arguments)


@pytest.mark.parametrize("rows, cols, dtype", ELEMENTWISE_SHAPES, ids=str)
def test_traffic_is_what_the_meter_counts(rows, cols, dtype):
    x = one(rows, cols, dtype=dtype)
    report = meter(bias_gelu, x, bias_of(x))
    assert_counts(report, bias_gelu_traffic(rows, cols, dtype, cached=False))
    shared = bias_gelu_traffic(rows, cols, dtype)
    assert (report.unique.read, report.unique.written) == (shared.read, shared.written)


def test_traffic_with_an_fp32_bias():
    x = one(4, 1030)
    assert_counts(
        meter(bias_gelu, x, bias_of(x, FP32)), bias_gelu_traffic(4, 1030, BF16, cached=False, bias_dtype=FP32)
    )


@pytest.mark.parametrize("rows, cols, dtype", [*ELEMENTWISE_SHAPES, (131, 40, FP32), (300, 3, BF16)], ids=str)
def test_backward_traffic_is_what_the_meter_counts(rows, cols, dtype):
    x = one(rows, cols, dtype=dtype)
    gpu = device_of(x.device)
    report = meter(bias_gelu_backward, other(x), x, bias_of(x))
    assert_counts(report, bias_gelu_backward_traffic(rows, cols, dtype, cached=False, gpu=gpu))
    shared = bias_gelu_backward_traffic(rows, cols, dtype, gpu=gpu)
    assert (report.unique.read, report.unique.written) == (shared.read, shared.written)


def test_the_naive_path_and_what_fusing_saves():
    rows, cols = 64, 1000
    full, bias = rows * cols * 2, cols * 2
    assert len(bias_gelu_ops(rows, cols, BF16)) == 10
    naive = bias_gelu_traffic(rows, cols, BF16, "naive")
    assert naive.launches == 10 and naive.bytes == 23 * full + bias
    assert bias_gelu_traffic(rows, cols, BF16).bytes == 2 * full + bias
