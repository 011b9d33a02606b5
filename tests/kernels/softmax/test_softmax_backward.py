"""Softmax's backward against fp64."""

import pytest
import torch

from instruments.compiled import compiled
from instruments.meter import meter
from kernels.shared.rows import TILED_COLS
from kernels.softmax.backward import PATHS, softmax_backward, softmax_backward_traffic
from kernels.softmax.forward import softmax
from tests.kernels.tools import (
    BF16,
    DTYPES,
    FP32,
    LAYOUTS,
    SPILLS,
    assert_close,
    assert_counts,
    compile_widths,
    gradients,
    randn,
    widths,
)


def pair(rows, cols, dtype):
    """(y, dy) as autograd hands them over."""
    return torch.softmax(randn(rows, cols, scale=2), -1).to(dtype), randn(rows, cols, dtype=dtype, seed=3)


def check(y, dy, **kwargs):
    dx = softmax_backward(dy, y, **kwargs)
    y, dy = y.double(), dy.double()
    assert dx.is_contiguous()
    assert_close(dx, y * (dy - (y * dy).sum(-1, keepdim=True)))
    return dx


@pytest.mark.parametrize("dtype", [BF16, FP32], ids=str)
def test_backward_at_every_width(dtype):
    for cols in widths(PATHS, dtype)[1:]:  # of one column, the gradient is what rounding leaves of zero
        check(*pair(2, cols, dtype))
    check(*pair(41, 100, dtype))


@pytest.mark.parametrize("path", ["narrow", "resident", "streaming"])
def test_every_path(path):
    y, dy = pair(5, 1000, BF16)
    check(y, dy, path=path)
    report = meter(softmax_backward, dy, y, path=path)
    assert_counts(report, softmax_backward_traffic(5, 1000, BF16, path=path))
    assert report.kernels == [f"softmax_backward_{path}_kernel"]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("cols", [300, 9001])
def test_through_autograd_it_is_the_gradient_of_the_reference(dtype, cols):
    x, dy = randn(3, cols, dtype=dtype), randn(3, cols, dtype=dtype, seed=3)
    (dx,) = gradients(softmax, (x,), dy)
    assert dx.dtype == dtype
    y = softmax(x).double()  # as rounded: what is saved
    assert_close(dx, y * (dy.double() - (y * dy.double()).sum(-1, keepdim=True)))
    if dtype == FP32:
        (expected,) = gradients(lambda x: torch.softmax(x, -1), (x.double(),), dy.double())
        assert_close(dx, expected)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts_of_what_comes_from_above(layout):
    y, dy = pair(4, 1000, BF16)
    check(y, LAYOUTS[layout](dy))


def test_one_expanded_number_and_a_second_derivative():
    x = randn(2, 1, 300).requires_grad_()
    softmax(x).sum().backward()
    assert x.grad.shape == x.shape and x.grad.abs().max() < 1e-7, "the sum of a row is 1 whatever x is"
    (dx,) = torch.autograd.grad(softmax(x).square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError):
        dx.sum().backward()


def test_a_nan_stays_in_its_row():
    for cols in (100, 1000, 20_000):
        y, dy = pair(3, cols, BF16)
        dy[1, 5] = float("nan")
        dx = softmax_backward(dy, y)
        assert dx[1].isnan().all() and not dx[[0, 2]].isnan().any()


@pytest.mark.parametrize("rows, cols, dtype", [(41, 100, BF16), (3, 1000, FP32), (2, 40_000, BF16)])
def test_traffic_is_what_the_meter_counts(rows, cols, dtype):
    y, dy = pair(rows, cols, dtype)
    report = meter(softmax_backward, dy, y)
    assert_counts(report, softmax_backward_traffic(rows, cols, dtype, path=None))
    least = softmax_backward_traffic(rows, cols, dtype)
    assert (report.unique.read, report.unique.written) == (least.read, least.written)


@pytest.mark.parametrize("arch, dtype", [(80, FP32), (90, BF16)])
def test_no_spills_in_the_default_configs(arch, dtype):
    for cols in (*compile_widths(PATHS, dtype), TILED_COLS):
        y = randn(1, 1, dtype=dtype).expand(2, cols).contiguous()
        (binary,) = compiled(softmax_backward, y, y, arch=arch)
        assert binary.spills <= SPILLS, (binary, cols)
