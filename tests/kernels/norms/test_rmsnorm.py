"""RMSNorm against fp64: forward, its paths and its arguments."""

import pytest
import torch

from instruments.backend import triton
from instruments.compiled import compiled
from instruments.meter import meter
from kernels.norms.rmsnorm import PATHS, rmsnorm, rmsnorm_ops, rmsnorm_reference, rmsnorm_traffic
from kernels.shared.rows import MAX_COLS, MAX_COLS_BACKWARD, row_plan
from kernels.shared.tolerances import limit
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
    worst_row,
)


def inputs(rows, cols, dtype, weight_dtype=None, **kwargs):
    return randn(rows, cols, dtype=dtype, **kwargs), randn(cols, dtype=weight_dtype or dtype, seed=1)


def check(x, weight, eps=1e-6, **kwargs):
    y = rmsnorm(x, weight, eps, **kwargs)
    assert y.dtype == x.dtype and y.shape == x.shape and y.is_contiguous() and not y.requires_grad
    assert_close(y, rmsnorm_reference(x.double(), weight.double(), eps))
    return y


@pytest.mark.parametrize("dtype", BF16_FIRST, ids=str)
def test_forward_at_every_width(dtype):
    for cols in widths(PATHS, dtype):
        check(*inputs(3, cols, dtype))
    for cols in (1, 100, 256):
        for rows in (1, 15, 17, 41):
            check(*inputs(rows, cols, dtype))


@pytest.mark.parametrize("path", ["narrow", "resident", "streaming", "two_pass"])
@pytest.mark.parametrize("cols", [1, 255, 1000, 1024])
def test_every_path_at_widths_that_others_are_chosen_for(path, cols):
    x, weight = inputs(5, cols, BF16)
    assert torch.equal(check(x, weight, path=path), check(x, weight, path=path))
    assert meter(rmsnorm, x, weight, path=path).kernels == [f"rmsnorm_{path}_kernel"]


def test_a_path_whose_tile_cannot_hold_the_row_is_refused():
    x, weight = inputs(1, 40_000, BF16)
    paths = r"narrow \(to 1,024 columns\), resident \(to 32,768 columns\), streaming \(to 1,048,576 columns\), two_pass"
    for path in ("resident", "fast"):
        with pytest.raises(ValueError, match=f"path: got '{path}' for rows of 40,000, expected None or one of {paths}"):
            rmsnorm(x, weight, path=path)


def test_the_widest_row():
    check(*inputs(1, MAX_COLS, BF16))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("cols", [200, 1000, 9001])
def test_layouts(layout, cols):
    x, weight = inputs(4, cols, BF16)
    x = LAYOUTS[layout](x)
    before = x.clone()
    check(x, weight)
    assert torch.equal(x, before)
    assert meter(rmsnorm, x, weight).clean


@pytest.mark.parametrize("layout", BATCHED)
def test_batches(layout):
    x = BATCHED[layout](randn(3, 4, 300, dtype=BF16))
    check(x, randn(x.shape[-1], dtype=BF16, seed=1))


@pytest.mark.parametrize("shape", [(7,), (1, 1), (2, 3, 5), (2, 1, 3, 1, 10)])
def test_any_number_of_leading_dimensions(shape):
    x, weight = randn(*shape, dtype=FP16), randn(shape[-1], dtype=FP16, seed=1)
    check(x, weight)


@pytest.mark.parametrize("shape", [(0,), (0, 8), (3, 0), (2, 0, 8), (0, 2, 0)])
def test_empty_in_empty_out(shape):
    x = torch.empty(shape, dtype=BF16, device=DEVICE)
    weight = randn(shape[-1], dtype=BF16)
    assert rmsnorm(x, weight).shape == shape
    x.requires_grad_(), weight.requires_grad_()
    rmsnorm(x, weight).sum().backward()
    assert x.grad.shape == shape and (weight.grad == 0).all()


@pytest.mark.parametrize("dtype", [BF16, FP16], ids=str)
@pytest.mark.parametrize("cols", [100, 1000, 20_000])
def test_fp32_weight_beside_16_bit_rows(dtype, cols):
    x, weight = inputs(3, cols, dtype, weight_dtype=FP32)
    check(x, weight)
    check(x, torch.stack([weight, weight], dim=1)[:, 0])  # and a strided one


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("cols", [200, 1000, 20_011])
def test_hard_values(dtype, cols):
    x, weight = inputs(6, cols, dtype)
    x[0] = 0  # eps alone
    x[1] = 300  # squares to 90,000, beyond fp16
    x[2] = 0
    x[2, cols - 1] = 200  # an outlier in the last lane, alone
    x[3] *= 1e-3
    x[4, cols * 3 // 4] = 6e4
    x[5] = -1
    y = check(x, weight)
    assert (y[0] == 0).all()
    check(x, weight, eps=0.1)


def test_zero_rows_with_eps_zero_are_nan_as_in_the_reference():
    x, weight = torch.zeros(2, 8, device=DEVICE), torch.ones(8, device=DEVICE)
    assert rmsnorm(x, weight, 0.0).isnan().all() and rmsnorm_reference(x, weight, 0.0).isnan().all()


def test_a_nan_or_an_infinity_stays_in_its_row():
    for cols in (100, 1000, 20_000):
        x, weight = inputs(3, cols, BF16)
        x[1, 5] = float("nan")
        y = rmsnorm(x, weight)
        assert y[1].isnan().all() and not y[[0, 2]].isnan().any()


def test_the_limit_tells_a_16_bit_accumulator_apart():
    x, weight = inputs(2, 20_480, FP32)
    squares = torch.zeros(2, 512, dtype=BF16, device=DEVICE)
    for chunk in x.square().bfloat16().split(512, dim=1):
        squares += chunk
    wrong = x * torch.rsqrt(squares.double().sum(1, keepdim=True) / 20_480 + 1e-6) * weight
    assert worst_row(wrong, rmsnorm_reference(x.double(), weight.double())) > 100 * limit("fp32", 20_480)


# ---------------------------------------------------------------- arguments


X, W = torch.ones(2, 8, device=DEVICE), torch.ones(8, device=DEVICE)


@pytest.mark.parametrize(
    "arguments, message",
    [
        (([1.0], W), "x: got list, expected a torch.Tensor"),
        ((X.double(), W.double()), "x: got dtype float64, expected one of float32, bfloat16, float16"),
        ((X.int(), W), "x: got dtype int32"),
        ((X[0, 0], W), "x: got a scalar, expected at least one dimension"),
        ((X, W[:7]), r"weight: got shape \(7,\), expected \(8,\), the last dimension of x"),
        ((X, W[None]), r"weight: got shape \(1, 8\), expected \(8,\)"),
        ((X, W.half()), "weight: got dtype float16, expected one of float32"),
        ((X.half(), W.bfloat16()), "weight: got dtype bfloat16, expected one of float16, float32"),
        ((X, W.to("meta")), "weight: got device meta, expected c"),
        ((X, None), "weight: got NoneType"),
        ((X, W, -1e-6), "eps: got -1e-06, expected a number of at least 0"),
        ((X, W, float("nan")), "eps: got nan"),
        ((X, W, "1e-6"), "eps: got '1e-6'"),
        (
            (torch.ones(1, MAX_COLS + 1, device=DEVICE), torch.ones(MAX_COLS + 1, device=DEVICE)),
            "x: got a last dimension of 1,048,577, expected 1 to 1,048,576",
        ),
        (
            (
                torch.ones(1, MAX_COLS_BACKWARD + 1, device=DEVICE),
                torch.ones(MAX_COLS_BACKWARD + 1, device=DEVICE, requires_grad=True),
            ),
            "x: got a last dimension of 131,073, expected 1 to 131,072",
        ),
    ],
)
def test_bad_arguments_name_themselves(arguments, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        rmsnorm(*arguments)


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
    x, weight = inputs(rows, cols, dtype)
    report = meter(rmsnorm, x, weight)
    assert_counts(report, rmsnorm_traffic(rows, cols, dtype, path=None, cached=False))
    shared = rmsnorm_traffic(rows, cols, dtype, path=None)
    assert report.unique.written == shared.written and report.unique.read["weight"] == shared.read["weight"]
    if row_plan(PATHS, cols, dtype.itemsize).passes == 1:
        assert report.unique.read == shared.read == rmsnorm_traffic(rows, cols, dtype).read


@pytest.mark.parametrize("path", ["resident", "two_pass", "streaming"])
def test_traffic_of_a_path_that_is_chosen(path):
    x, weight = inputs(7, 100, BF16, weight_dtype=FP32)
    model = rmsnorm_traffic(7, 100, BF16, path=path, cached=False, weight_dtype=FP32)
    report = meter(rmsnorm, x, weight, path=path)
    assert (report.traffic.read, report.traffic.written) == (model.read, model.written)


def test_the_naive_path_and_what_fusing_saves():
    ops = rmsnorm_ops(64, 1000, BF16)
    assert list(ops) == ["x * x", "mean", "+ eps", "rsqrt", "x * scale", "* weight"]
    naive = rmsnorm_traffic(64, 1000, BF16, path="naive")
    full = 64 * 1000 * 2
    assert naive.launches == 6 and naive.bytes == 7 * full + 6 * 64 * 2 + 2000
    assert rmsnorm_traffic(64, 1000, BF16).bytes == 2 * full + 2000
    assert rmsnorm_traffic(64, 1000, BF16, path="two_pass").bytes == 3 * full + 2000
    assert rmsnorm_traffic(4096, 65_536, BF16).bytes == 2 * 4096 * 65_536 * 2 + 65_536 * 2, "the least, at any width"
    for path in ("fast", "unfused"):
        with pytest.raises(ValueError, match=f"path: got '{path}' for rows of 1, expected"):
            rmsnorm_traffic(1, 1, BF16, path=path)
    with pytest.raises(ValueError, match="path: got 'resident' for rows of 65,536"):
        rmsnorm_traffic(1, 65_536, BF16, path="resident")


@pytest.mark.parametrize("arch", [80, 90, 100])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_no_spills_in_the_default_configs(arch, dtype):
    for cols in compile_widths(PATHS, dtype):
        x, weight = inputs(2, 1, dtype)
        x, weight = x.expand(2, cols).contiguous(), weight.expand(cols).contiguous()
        for binary in compiled(rmsnorm, x, weight, arch=arch):
            assert binary.spills <= SPILLS, (binary, cols)


def test_rows_of_a_multiple_of_16_are_loaded_16_bytes_at_a_time():
    for cols, width in ((1024, 128), (1008, 128), (1000, 16)):
        x, weight = inputs(2, cols, BF16)
        (binary,) = compiled(rmsnorm, x, weight, arch=90)
        assert set(binary.loads) == set(binary.stores) == {width}
    x, weight = inputs(2, 20_480, BF16)
    (binary,) = compiled(rmsnorm, x, weight, arch=90)
    assert set(binary.loads) == set(binary.stores) == {128}


def test_one_row_one_column_and_one_size_of_one_compile():
    for shape in ((1, 1), (1, 1000), (1000, 1), (1, 20_000)):
        assert compiled(rmsnorm, *inputs(*shape, BF16))[0].ptx


def test_the_narrow_tile_is_a_power_of_two_at_every_width():
    for cols in range(1, 257):
        config = row_plan(PATHS, cols, BF16.itemsize).config
        assert config["BLOCK"] == triton.next_power_of_2(cols) and config["ROWS"] & (config["ROWS"] - 1) == 0
