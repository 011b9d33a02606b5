"""SwiGLU, forward and backward, against fp64."""

import pytest
import torch

from instruments.meter import meter
from kernels.elementwise.swiglu import (
    swiglu,
    swiglu_backward,
    swiglu_backward_traffic,
    swiglu_ops,
    swiglu_reference,
    swiglu_traffic,
)
from tests.kernels.tools import (
    BF16,
    DEVICE,
    DTYPES,
    ELEMENTWISE_SHAPES,
    ELEMENTWISE_WIDTHS,
    FP32,
    LAYOUTS,
    assert_counts,
    close,
    gradients,
    other,
    randn,
)


def one(*shape, dtype=BF16, **kwargs):
    return randn(*shape, dtype=dtype, **kwargs)


def test_the_reference_is_torchs_own():
    x = one(3, 50, dtype=FP32).double()
    assert torch.allclose(swiglu_reference(x, x), x * torch.sigmoid(x) * x)


def check_backward(gate, up):
    dy = randn(*gate.shape, dtype=gate.dtype, seed=3)
    mine = gradients(swiglu, (gate, up), dy)
    expected = gradients(swiglu_reference, (gate.double(), up.double()), dy.double())
    for gradient, reference in zip(mine, expected):
        assert gradient.dtype == gate.dtype and gradient.shape == gate.shape
        close(gradient, reference)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_backward_at_every_width(dtype):
    for cols in ELEMENTWISE_WIDTHS:
        x = one(5, cols, dtype=dtype)
        check_backward(x, other(x))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_backward_of_layouts(layout):
    x = LAYOUTS[layout](one(4, 300))
    check_backward(x, other(x))
    check_backward(other(x), x)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_backward_of_hard_values(dtype):
    x = one(3, 1000, dtype=dtype)
    x[0] = torch.linspace(-100, 100, 1000)
    x[1] = 6e4
    x[2] = -6e4
    ones = torch.ones_like(x)
    dgate, dup = swiglu_backward(ones, x, ones)
    assert not dgate.isnan().any() and (dgate[1] == 1).all() and (dgate[2] == 0).all()
    assert torch.equal(dup[1], x[1]) and (dup[2] == 0).all()


X = torch.ones(2, 8, device=DEVICE)


@pytest.mark.parametrize(
    "function, arguments, message",
    [
        (swiglu, (X.double(), X), "gate: got dtype float64"),
        (swiglu, (X, X[:, :7]), r"up: got shape \(2, 7\), expected \(2, 8\), the shape of gate"),
        (swiglu, (X, X.to("meta")), "up: got device meta"),
        (swiglu_traffic, (8, BF16, "fast"), "path: got 'fast', expected fused or naive"),
    ],
)
def test_bad_arguments_name_themselves(function, arguments, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        function(*arguments)


@pytest.mark.parametrize("rows, cols, dtype", ELEMENTWISE_SHAPES, ids=str)
def test_traffic_is_what_the_meter_counts(rows, cols, dtype):
    x, size = one(rows, cols, dtype=dtype), rows * cols
    assert_counts(meter(swiglu, x, other(x)), swiglu_traffic(size, dtype))
    assert_counts(meter(swiglu_backward, x, other(x), x.clone()), swiglu_backward_traffic(size, dtype))


def test_the_naive_path_and_what_fusing_saves():
    full = 64_000 * 2
    assert len(swiglu_ops(64_000, BF16)) == 2
    assert swiglu_traffic(64_000, BF16, "naive").bytes == 5 * full
    assert swiglu_traffic(64_000, BF16).bytes == 3 * full
