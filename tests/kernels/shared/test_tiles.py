"""What the elementwise kernels share: every function at every width, layout and shape, against fp64."""

import pytest
import torch
import torch.nn.functional as F

from instruments.compiled import compiled
from instruments.meter import meter
from kernels.elementwise.bias_gelu import bias_gelu, bias_gelu_backward, bias_gelu_reference
from kernels.elementwise.dropout import bias_gelu_dropout, bias_gelu_dropout_reference, dropout_mask
from kernels.elementwise.pointwise import add, add_reference, pointwise_chain, pointwise_chain_reference
from kernels.elementwise.swiglu import swiglu, swiglu_backward, swiglu_reference
from kernels.shared import tiles
from tests.kernels.tools import (
    BATCHED,
    BF16,
    DEVICE,
    DTYPES,
    ELEMENTWISE_WIDTHS,
    FP16,
    LAYOUTS,
    assert_close,
    bias_of,
    close,
    other,
    randn,
)


def one(*shape, dtype=BF16, **kwargs):
    return randn(*shape, dtype=dtype, **kwargs)


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


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_function_at_every_width(dtype):
    for cols in ELEMENTWISE_WIDTHS:
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
    monkeypatch.setattr(tiles, "MAX_GRID_Y", 3)
    for rows in (3, 4, 11):
        check(one(rows, 1025))
        check(one(4 * rows - 1, 500).T.contiguous().T)
    assert bool(dropout_mask((2 * 3 * 64, 16), 0.0, 0).all())


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


@pytest.mark.parametrize("function", [swiglu, bias_gelu])
def test_a_second_derivative_is_refused_rather_than_wrong(function):
    x = one(16, dtype=torch.float32).requires_grad_()
    (dx,) = torch.autograd.grad(function(x, x.detach()).square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError):
        dx.sum().backward()


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
