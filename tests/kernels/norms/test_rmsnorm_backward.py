"""RMSNorm's backward against fp64."""

import pytest
import torch

from instruments.compiled import compiled
from instruments.meter import meter
from kernels.norms.rmsnorm import rmsnorm, rmsnorm_reference
from kernels.norms.rmsnorm_backward import rmsnorm_backward, rmsnorm_backward_traffic
from kernels.shared.device import device_of
from kernels.shared.rows import MAX_COLS_BACKWARD, RESIDENT_COLS_BACKWARD
from tests.kernels.tools import (
    BF16,
    BF16_FIRST,
    DEVICE,
    DTYPES,
    FP16,
    FP32,
    LAYOUTS,
    SPILLS_BACKWARD,
    assert_close,
    assert_counts,
    randn,
)


def inputs(rows, cols, dtype, weight_dtype=None, **kwargs):
    return randn(rows, cols, dtype=dtype, **kwargs), randn(cols, dtype=weight_dtype or dtype, seed=1)


def gradients(function, tensors, upstream):
    tensors = [
        t.detach().clone().requires_grad_() if t.is_contiguous() else t.detach().requires_grad_() for t in tensors
    ]
    outputs = function(*tensors)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    return torch.autograd.grad(outputs, tensors, upstream)


def check_backward(x, weight, eps=1e-6):
    dy = randn(*x.shape, dtype=x.dtype, seed=3)
    dx, dweight = gradients(lambda *t: rmsnorm(*t, eps), (x, weight), (dy,))
    expected = gradients(lambda *t: rmsnorm_reference(*t, eps), (x.double(), weight.double()), (dy.double(),))
    assert dx.dtype == x.dtype and dweight.dtype == weight.dtype
    scale = rmsnorm_reference(torch.ones_like(x).double(), torch.ones_like(weight).double()) * torch.rsqrt(
        x.double().square().mean(-1, keepdim=True) + eps
    )
    assert_close(dx, expected[0], floor=scale * dy.double() * weight.double())
    assert_close(dweight, expected[1])
    return dx, dweight


BACKWARD_WIDTHS = (1, 2, 17, 256, 257, 1000, 1024, RESIDENT_COLS_BACKWARD, RESIDENT_COLS_BACKWARD + 1, 17_001)


@pytest.mark.parametrize("dtype", BF16_FIRST, ids=str)
def test_backward_at_every_width(dtype):
    for cols in BACKWARD_WIDTHS:
        check_backward(*inputs(5, cols, dtype))
    check_backward(*inputs(131, 40, dtype))  # more rows than programs
    check_backward(*inputs(67, 1024, dtype))


@pytest.mark.once
def test_backward_of_the_widest_row():
    check_backward(*inputs(2, MAX_COLS_BACKWARD, BF16))


@pytest.mark.parametrize("cols", [1000, RESIDENT_COLS_BACKWARD + 1])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_backward_of_layouts(layout, cols):
    x, weight = inputs(4, cols, BF16)
    check_backward(LAYOUTS[layout](x), weight)


@pytest.mark.parametrize("cols", [300, RESIDENT_COLS_BACKWARD + 1])
def test_backward_with_fp32_weight_and_hard_rows(cols):
    x, weight = inputs(5, cols, FP16, weight_dtype=FP32)
    x[0] = 0.01
    x[1] = 300
    x[2, cols - 1] = 1000
    check_backward(x, weight)


def test_gradients_of_sums_reach_leaves_and_only_those_asked_for():
    x, weight = inputs(4, 300, FP32)
    weight.requires_grad_()
    rmsnorm(x, weight).sum().backward()  # dy is one expanded number
    expected = (x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)).double().sum(0)
    assert x.grad is None
    assert_close(weight.grad, expected)
    with torch.no_grad():
        assert not rmsnorm(x, weight).requires_grad


def test_a_second_derivative_is_refused_rather_than_wrong():
    x, weight = inputs(2, 16, FP32)
    leaf = x.clone().requires_grad_()
    (dx,) = torch.autograd.grad(rmsnorm(leaf, weight).square().sum(), leaf, create_graph=True)
    with pytest.raises(RuntimeError):
        dx.sum().backward()


@pytest.mark.once
@pytest.mark.parametrize("cols", [40, 1000, 9000])
def test_the_same_bits_every_time(cols):
    x, weight = inputs(67, cols, BF16)
    dy = randn(67, cols, dtype=BF16, seed=3)
    first, second = (gradients(rmsnorm, (x, weight), (dy,)) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, second))
    assert torch.equal(rmsnorm(x, weight), rmsnorm(x, weight))


SHAPES = [
    (5, 1, BF16),
    (41, 100, BF16),
    (17, 256, FP32),
    (3, 1000, FP16),
    (4, 4096, BF16),
    (3, 8193, FP32),
    (2, 20_000, BF16),
]


@pytest.mark.parametrize("rows, cols, dtype", [*SHAPES, (131, 40, FP32), (3, 9000, FP32)], ids=str)
def test_traffic_is_what_the_meter_counts(rows, cols, dtype):
    x, weight = (t.requires_grad_() for t in inputs(rows, cols, dtype))
    report = meter(torch.autograd.grad, rmsnorm(x, weight), (x, weight), torch.ones_like(x))
    assert_counts(report, rmsnorm_backward_traffic(rows, cols, dtype, cached=False, gpu=device_of(x.device)))


@pytest.mark.parametrize("arch", [80, 90, 100])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_no_spills(arch, dtype):
    for cols, allowed in SPILLS_BACKWARD.items():
        x, weight = torch.ones(2, cols, dtype=dtype, device=DEVICE), torch.ones(cols, dtype=dtype, device=DEVICE)
        for dsum in (None, x):
            for binary in compiled(rmsnorm_backward, x, x, weight, 1e-6, dsum, arch=arch):
                assert binary.spills <= allowed, (binary, cols)


def test_one_row_one_column_and_one_size_of_one_compile():
    for shape in ((1, 1), (1, 1000), (1000, 1), (1, 20_000)):
        x, weight = inputs(*shape, BF16)
        assert len(compiled(rmsnorm_backward, x, x, weight)) >= 2
