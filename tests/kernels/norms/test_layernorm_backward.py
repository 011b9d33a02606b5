"""LayerNorm's backward against fp64."""

import pytest
import torch

from instruments.compiled import compiled
from instruments.meter import meter
from kernels.norms.layernorm import layernorm, layernorm_reference
from kernels.norms.layernorm_backward import layernorm_backward, layernorm_backward_traffic
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
    randn,
)


def inputs(rows, cols, dtype, parameters=None, **kwargs):
    parameters = parameters or dtype
    return (
        randn(rows, cols, dtype=dtype, **kwargs),
        randn(cols, dtype=parameters, seed=1),
        randn(cols, dtype=parameters, seed=2),
    )


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
@pytest.mark.parametrize("layout", [layout for layout in LAYOUTS if layout != "one column, expanded"])
def test_backward_of_layouts(layout, cols):
    x, weight, bias = inputs(4, cols, BF16)
    check_backward(LAYOUTS[layout](x), weight, bias)


@pytest.mark.parametrize("cols", [300, RESIDENT_COLS_BACKWARD + 1])
def test_backward_with_fp32_parameters_and_hard_rows(cols):
    x, weight, bias = inputs(5, cols, FP16, parameters=FP32)
    x[0] *= 0.01
    x[1, ::2] = 300
    x[2, cols - 1] = 1000
    x[3] += 100
    check_backward(x, weight, bias)


@pytest.mark.once
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


SHAPES = [
    (5, 1, BF16),
    (41, 100, BF16),
    (17, 256, FP32),
    (3, 1000, FP16),
    (4, 4096, BF16),
    (3, 9001, FP32),
    (2, 20_000, BF16),
]


@pytest.mark.parametrize("rows, cols, dtype", [*SHAPES, (131, 40, FP32), (3, 9000, FP32)], ids=str)
def test_backward_traffic_is_what_the_meter_counts(rows, cols, dtype):
    tensors = [t.requires_grad_() for t in inputs(rows, cols, dtype)]
    report = meter(
        torch.autograd.grad, layernorm(*tensors), tensors, torch.ones(rows, cols, dtype=dtype, device=DEVICE)
    )
    model = layernorm_backward_traffic(rows, cols, dtype, cached=False, gpu=device_of(tensors[0].device))
    names = {"total": "dweight", "total (2)": "dbias"}  # what the summing kernel calls its output
    assert report.clean
    assert {names.get(name, name): written for name, written in report.traffic.written.items()} == model.written
    assert (report.traffic.read, report.launches) == (model.read, model.launches)


@pytest.mark.parametrize("arch", [80, 90, 100])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_no_spills(arch, dtype):
    for cols, allowed in SPILLS_BACKWARD.items():
        x, parameter = torch.ones(2, cols, dtype=dtype, device=DEVICE), torch.ones(cols, dtype=dtype, device=DEVICE)
        for binary in compiled(layernorm_backward, x, x, parameter, parameter, arch=arch):
            assert binary.spills <= allowed, (binary, cols)


def test_one_row_and_one_column_compile():
    for rows, cols in ((1, 1), (1, 1000), (1000, 1), (1, 40_000)):
        x, weight, bias = inputs(rows, cols, BF16)
        assert len(compiled(layernorm_backward, x, x, weight, bias)) >= 3
