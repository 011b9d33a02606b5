"""Residual add and RMSNorm against fp64, forward and backward."""

import pytest
import torch

from instruments.compiled import compiled
from instruments.meter import meter
from kernels.norms.add_rmsnorm import PATHS, add_rmsnorm, add_rmsnorm_reference, add_rmsnorm_traffic
from kernels.norms.rmsnorm import rmsnorm, rmsnorm_reference
from kernels.norms.rmsnorm_backward import rmsnorm_backward_traffic
from kernels.shared.device import device_of
from kernels.shared.rows import MAX_COLS, RESIDENT_COLS_BACKWARD, row_plan
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
    compile_widths,
    randn,
    widths,
)


def inputs(rows, cols, dtype, weight_dtype=None):
    """x, residual, weight."""
    return (
        randn(rows, cols, dtype=dtype),
        randn(rows, cols, dtype=dtype, seed=2),
        randn(cols, dtype=weight_dtype or dtype, seed=1),
    )


def check(x, residual, weight, eps=1e-6):
    y, new_residual = add_rmsnorm(x, residual, weight, eps)
    assert y.dtype == new_residual.dtype == x.dtype and y.is_contiguous() and new_residual.is_contiguous()
    assert torch.equal(new_residual, x + residual), "the sum is not the one that torch rounds"
    assert_close(y, rmsnorm_reference((x + residual).double(), weight.double(), eps))


@pytest.mark.parametrize("dtype", BF16_FIRST, ids=str)
def test_forward_at_every_width(dtype):
    for cols in widths(PATHS, dtype):
        check(*inputs(3, cols, dtype))
    for rows in (1, 17, 41):
        check(*inputs(rows, 100, dtype))


def test_the_widest_row():
    check(*inputs(1, MAX_COLS, BF16))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("cols", [200, 1000, 9001])
def test_layouts(layout, cols):
    x, residual, weight = inputs(4, cols, BF16)
    x = LAYOUTS[layout](x)
    before = x.clone()
    check(x, residual, weight)
    check(residual, x, weight)
    assert torch.equal(x, before)
    assert meter(add_rmsnorm, x, residual, weight).clean


@pytest.mark.parametrize("layout", BATCHED)
def test_batches(layout):
    x = BATCHED[layout](randn(3, 4, 300, dtype=BF16))
    check(x, randn(*x.shape, dtype=BF16, seed=2), randn(x.shape[-1], dtype=BF16, seed=1))


@pytest.mark.parametrize("shape", [(7,), (1, 1), (2, 3, 5), (2, 1, 3, 1, 10)])
def test_any_number_of_leading_dimensions(shape):
    x, weight = randn(*shape, dtype=FP16), randn(shape[-1], dtype=FP16, seed=1)
    check(x, randn(*shape, dtype=FP16, seed=2), weight)


@pytest.mark.parametrize("shape", [(0,), (0, 8), (3, 0), (2, 0, 8), (0, 2, 0)])
def test_empty_in_empty_out(shape):
    x = torch.empty(shape, dtype=BF16, device=DEVICE)
    weight = randn(shape[-1], dtype=BF16)
    assert [t.shape for t in add_rmsnorm(x, x, weight)] == [torch.Size(shape)] * 2
    x.requires_grad_(), weight.requires_grad_()
    add_rmsnorm(x, x, weight)[0].sum().backward()
    assert x.grad.shape == shape and (weight.grad == 0).all()


@pytest.mark.parametrize("dtype", [BF16, FP16], ids=str)
@pytest.mark.parametrize("cols", [100, 1000, 20_000])
def test_fp32_weight_beside_16_bit_rows(dtype, cols):
    check(*inputs(3, cols, dtype, weight_dtype=FP32))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("cols", [200, 1000, 20_011])
def test_hard_values(dtype, cols):
    x, _, weight = inputs(6, cols, dtype)
    x[0] = 0  # eps alone
    x[1] = 300  # squares to 90,000, beyond fp16
    x[2] = 0
    x[2, cols - 1] = 200  # an outlier in the last lane, alone
    x[3] *= 1e-3
    x[4, cols * 3 // 4] = 6e4
    x[5] = -1
    check(x, torch.zeros_like(x), weight)


@pytest.mark.parametrize("cols", [100, 1000, 20_000])
def test_add_normalises_the_sum_as_it_is_stored(cols):
    # 256 + 0.9 is stored as 256 in bf16 (steps of 2): normalised before rounding, every element would be 0.4% larger
    x, residual = (
        torch.full((2, cols), 256.0, dtype=BF16, device=DEVICE),
        torch.full((2, cols), 0.9, dtype=BF16, device=DEVICE),
    )
    x[:, 0], residual[:, 0] = 1, 0
    y, new_residual = add_rmsnorm(x, residual, torch.ones(cols, dtype=FP32, device=DEVICE))
    alone = rmsnorm(new_residual, torch.ones(cols, dtype=FP32, device=DEVICE))
    assert torch.equal(y, alone) and new_residual[0, 1] == 256
    assert torch.equal(new_residual, add_rmsnorm_reference(x, residual, torch.ones_like(x[0]))[1])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("cols", [17, 1000, RESIDENT_COLS_BACKWARD + 1])
@pytest.mark.parametrize("used", ["both", "y", "new_residual"])
def test_add_backward(dtype, cols, used):
    x, residual = randn(5, cols, dtype=dtype), randn(5, cols, dtype=dtype, seed=2)
    weight = randn(cols, dtype=dtype, seed=1)
    dy, dsum = randn(5, cols, dtype=dtype, seed=3), randn(5, cols, dtype=dtype, seed=4)
    total = x + residual  # as rounded
    exact, w = total.double().requires_grad_(), weight.double().requires_grad_()
    loss = 0
    if used != "new_residual":
        loss = loss + (rmsnorm_reference(exact, w) * dy.double()).sum()
    if used != "y":
        loss = loss + (exact * dsum.double()).sum()
    expected = torch.autograd.grad(loss, (exact, w), allow_unused=True)

    leaves = [t.clone().requires_grad_() for t in (x, residual, weight)]
    y, new_residual = add_rmsnorm(*leaves)
    mine = {
        "both": (y * dy).sum() + (new_residual * dsum).sum(),
        "y": (y * dy).sum(),
        "new_residual": (new_residual * dsum).sum(),
    }
    mine[used].backward()
    dx, dresidual, dweight = (t.grad for t in leaves)
    assert torch.equal(dx, dresidual) and dx.data_ptr() != dresidual.data_ptr()
    scale = torch.rsqrt(total.double().square().mean(-1, keepdim=True) + 1e-6)
    assert_close(dx, expected[0], floor=scale * dy.double() * weight.double())
    if expected[1] is None:
        assert (dweight == 0).all()
    else:
        assert_close(dweight, expected[1])


def test_a_second_derivative_is_refused_rather_than_wrong():
    x, _, weight = inputs(2, 16, FP32)
    leaf = x.clone().requires_grad_()
    (dx,) = torch.autograd.grad(add_rmsnorm(leaf, leaf, weight)[0].square().sum(), leaf, create_graph=True)
    with pytest.raises(RuntimeError):
        dx.sum().backward()


# ---------------------------------------------------------------- arguments


X, W = torch.ones(2, 8, device=DEVICE), torch.ones(8, device=DEVICE)


@pytest.mark.parametrize(
    "residual, message",
    [
        (X[:1], r"residual: got shape \(1, 8\), expected \(2, 8\), the shape of x"),
        (X.half(), "residual: got dtype float16, expected one of float32"),
        (X.to("meta"), "residual: got device meta"),
        (None, "residual: got NoneType"),
    ],
)
def test_bad_residuals_name_themselves(residual, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        add_rmsnorm(X, residual, W)


@pytest.mark.parametrize(
    "x, weight, eps, message",
    [
        ([1.0], W, 1e-6, "x: got list, expected a torch.Tensor"),
        (X, W[:7], 1e-6, r"weight: got shape \(7,\), expected \(8,\), the last dimension of x"),
        (X, W, -1e-6, "eps: got -1e-06, expected a number of at least 0"),
        (X[:, :1].expand(2, MAX_COLS + 1), W, 1e-6, "x: got a last dimension of 1,048,577, expected 1 to 1,048,576"),
    ],
)
def test_other_bad_arguments_are_named_as_rmsnorm_names_them(x, weight, eps, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        add_rmsnorm(x, x, weight, eps)


# ---------------------------------------------------------------- bytes and machine code


SHAPES = [
    (5, 1, BF16),
    (41, 100, BF16),
    (17, 256, FP32),
    (3, 1000, FP16),
    (4, 4096, BF16),
    (3, 8193, FP32),
    (2, 20_000, BF16),
]


@pytest.mark.parametrize("rows, cols, dtype", SHAPES, ids=str)
def test_traffic_is_what_the_meter_counts(rows, cols, dtype):
    report = meter(add_rmsnorm, *inputs(rows, cols, dtype))
    assert_counts(report, add_rmsnorm_traffic(rows, cols, dtype, path=None, cached=False))
    shared = add_rmsnorm_traffic(rows, cols, dtype)
    assert report.unique.written == shared.written and report.unique.read["weight"] == shared.read["weight"]
    if row_plan(PATHS, cols, dtype.itemsize).passes == 1:
        assert report.unique.read == shared.read


@pytest.mark.parametrize("rows, cols, dtype", [*SHAPES, (131, 40, FP32), (3, 9000, FP32)], ids=str)
def test_backward_traffic_is_what_the_meter_counts(rows, cols, dtype):
    x, residual, weight = (t.requires_grad_() for t in inputs(rows, cols, dtype))
    outputs = add_rmsnorm(x, residual.detach(), weight)
    report = meter(torch.autograd.grad, outputs, (x, weight), [torch.ones_like(x), torch.full_like(x, 2)])
    gpu = device_of(x.device)
    assert_counts(report, rmsnorm_backward_traffic(rows, cols, dtype, cached=False, dsum=True, gpu=gpu))


def test_what_fusing_saves():
    full = 64 * 1000 * 2
    unfused = add_rmsnorm_traffic(64, 1000, BF16, path="unfused")
    assert unfused.launches == 2 and unfused.bytes - add_rmsnorm_traffic(64, 1000, BF16).bytes == full
    assert add_rmsnorm_traffic(64, 1000, BF16, path="streaming").bytes == unfused.bytes
    with pytest.raises(ValueError, match="path: got 'two_pass' for rows of 1, expected"):
        add_rmsnorm_traffic(1, 1, BF16, path="two_pass")


@pytest.mark.parametrize("arch", [80, 90, 100])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_no_spills_in_the_default_configs(arch, dtype):
    for cols in compile_widths(PATHS, dtype):
        x, weight = torch.ones(2, cols, dtype=dtype, device=DEVICE), torch.ones(cols, dtype=dtype, device=DEVICE)
        for binary in compiled(add_rmsnorm, x, x, weight, arch=arch):
            assert binary.spills <= SPILLS, (binary, cols)


def test_one_row_one_column_and_one_size_of_one_compile():
    for shape in ((1, 1), (1, 1000), (1000, 1), (1, 20_000)):
        assert compiled(add_rmsnorm, *inputs(*shape, BF16))[0].ptx
