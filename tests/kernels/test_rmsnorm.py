"""RMSNorm, alone and behind a residual add, forward and backward, against fp64."""

import pytest
import torch

from instruments import backend
from instruments.backend import triton
from instruments.compiled import compiled
from instruments.meter import meter
from kernels import rmsnorm as module
from kernels.rmsnorm import (
    add_rmsnorm,
    add_rmsnorm_reference,
    add_rmsnorm_traffic,
    rmsnorm,
    rmsnorm_backward_traffic,
    rmsnorm_ops,
    rmsnorm_reference,
    rmsnorm_traffic,
)
from kernels.rows import MAX_COLS, MAX_COLS_BACKWARD, RESIDENT_BLOCK_BACKWARD, forward_plan, multiprocessors
from kernels.tolerances import limit
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
    worst_row,
)


def plan(cols, dtype):
    return forward_plan(cols, dtype, module.RESIDENT_BYTES)


def plan_add(cols, dtype):
    return forward_plan(cols, dtype, module.RESIDENT_BYTES_ADD)


def inputs(rows, cols, dtype, weight_dtype=None, **kwargs):
    return randn(rows, cols, dtype=dtype, **kwargs), randn(cols, dtype=weight_dtype or dtype, seed=1)


def check(x, weight, eps=1e-6, **kwargs):
    y = rmsnorm(x, weight, eps, **kwargs)
    assert y.dtype == x.dtype and y.shape == x.shape and y.is_contiguous() and not y.requires_grad
    assert_close(y, rmsnorm_reference(x.double(), weight.double(), eps))
    return y


def check_add(x, residual, weight, eps=1e-6):
    y, new_residual = add_rmsnorm(x, residual, weight, eps)
    assert y.dtype == new_residual.dtype == x.dtype and y.is_contiguous() and new_residual.is_contiguous()
    assert torch.equal(new_residual, x + residual), "the sum is not the one that torch rounds"
    assert_close(y, rmsnorm_reference((x + residual).double(), weight.double(), eps))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_forward_at_every_width(dtype):
    for cols in widths(plan, dtype):
        check(*inputs(3, cols, dtype))
    for cols in (1, 100, 256):
        for rows in (1, 15, 17, 41):
            check(*inputs(rows, cols, dtype))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_add_at_every_width(dtype):
    for cols in widths(plan_add, dtype):
        check_add(randn(3, cols, dtype=dtype), randn(3, cols, dtype=dtype, seed=2), randn(cols, dtype=dtype, seed=1))
    for rows in (1, 17, 41):
        check_add(randn(rows, 100, dtype=dtype), randn(rows, 100, dtype=dtype, seed=2), randn(100, dtype=dtype, seed=1))


@pytest.mark.parametrize("path", ["narrow", "resident", "streaming", "two_pass"])
@pytest.mark.parametrize("cols", [1, 255, 1000, 2047])
def test_every_path_at_widths_that_others_are_chosen_for(path, cols):
    x, weight = inputs(5, cols, BF16)
    assert torch.equal(check(x, weight, path=path), check(x, weight, path=path))
    assert meter(rmsnorm, x, weight, path=path).kernels == [f"rmsnorm_{path}_kernel"]


def test_a_path_whose_tile_cannot_hold_the_row_is_refused():
    x, weight = inputs(1, 40_000, BF16)
    with pytest.raises(ValueError, match="path: got 'resident' for rows of 40,000, expected rows of at most 32,768"):
        rmsnorm(x, weight, path="resident")
    with pytest.raises(
        ValueError, match="path: got 'fast', expected None or one of narrow, resident, streaming, two_pass"
    ):
        rmsnorm(x, weight, path="fast")


def test_the_widest_row():
    check(*inputs(1, MAX_COLS, BF16))
    check_add(
        randn(1, MAX_COLS, dtype=BF16), randn(1, MAX_COLS, dtype=BF16, seed=2), randn(MAX_COLS, dtype=BF16, seed=1)
    )


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("cols", [200, 1000, 9001])
def test_layouts(layout, cols):
    x, weight = inputs(4, cols, BF16)
    x, residual = LAYOUTS[layout](x), randn(4, cols, dtype=BF16, seed=2)
    before = x.clone()
    check(x, weight)
    check_add(x, residual, weight)
    check_add(residual, x, weight)
    assert torch.equal(x, before)
    assert meter(rmsnorm, x, weight).clean and meter(add_rmsnorm, x, residual, weight).clean


@pytest.mark.parametrize("layout", BATCHED)
def test_batches(layout):
    x = BATCHED[layout](randn(3, 4, 300, dtype=BF16))
    check(x, randn(x.shape[-1], dtype=BF16, seed=1))
    check_add(x, randn(*x.shape, dtype=BF16, seed=2), randn(x.shape[-1], dtype=BF16, seed=1))


@pytest.mark.parametrize("shape", [(7,), (1, 1), (2, 3, 5), (2, 1, 3, 1, 10)])
def test_any_number_of_leading_dimensions(shape):
    x, weight = randn(*shape, dtype=FP16), randn(shape[-1], dtype=FP16, seed=1)
    check(x, weight)
    check_add(x, randn(*shape, dtype=FP16, seed=2), weight)


@pytest.mark.parametrize("shape", [(0,), (0, 8), (3, 0), (2, 0, 8), (0, 2, 0)])
def test_empty_in_empty_out(shape):
    x = torch.empty(shape, dtype=BF16, device=DEVICE)
    weight = randn(shape[-1], dtype=BF16)
    assert rmsnorm(x, weight).shape == shape
    assert [t.shape for t in add_rmsnorm(x, x, weight)] == [torch.Size(shape)] * 2
    x.requires_grad_(), weight.requires_grad_()
    (rmsnorm(x, weight).sum() + add_rmsnorm(x, x, weight)[0].sum()).backward()
    assert x.grad.shape == shape and (weight.grad == 0).all()


@pytest.mark.parametrize("dtype", [BF16, FP16], ids=str)
@pytest.mark.parametrize("cols", [100, 1000, 20_000])
def test_fp32_weight_beside_16_bit_rows(dtype, cols):
    x, weight = inputs(3, cols, dtype, weight_dtype=FP32)
    check(x, weight)
    check_add(x, randn(3, cols, dtype=dtype, seed=2), weight)
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
    check_add(x, torch.zeros_like(x), weight)


def test_zero_rows_with_eps_zero_are_nan_as_in_the_reference():
    x, weight = torch.zeros(2, 8, device=DEVICE), torch.ones(8, device=DEVICE)
    assert rmsnorm(x, weight, 0.0).isnan().all() and rmsnorm_reference(x, weight, 0.0).isnan().all()


def test_a_nan_or_an_infinity_stays_in_its_row():
    for cols in (100, 1000, 20_000):
        x, weight = inputs(3, cols, BF16)
        x[1, 5] = float("nan")
        y = rmsnorm(x, weight)
        assert y[1].isnan().all() and not y[[0, 2]].isnan().any()


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


def test_the_limit_tells_a_16_bit_accumulator_apart():
    x, weight = inputs(2, 20_480, FP32)
    squares = torch.zeros(2, 512, dtype=BF16, device=DEVICE)
    for chunk in x.square().bfloat16().split(512, dim=1):
        squares += chunk
    wrong = x * torch.rsqrt(squares.double().sum(1, keepdim=True) / 20_480 + 1e-6) * weight
    assert worst_row(wrong, rmsnorm_reference(x.double(), weight.double())) > 100 * limit("fp32", 20_480)


# ---------------------------------------------------------------- backward


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
@pytest.mark.parametrize("layout", LAYOUTS)
def test_backward_of_layouts(layout, cols):
    x, weight = inputs(4, cols, BF16)
    check_backward(LAYOUTS[layout](x), weight)


@pytest.mark.parametrize("cols", [300, RESIDENT_BLOCK_BACKWARD + 1])
def test_backward_with_fp32_weight_and_hard_rows(cols):
    x, weight = inputs(5, cols, FP16, weight_dtype=FP32)
    x[0] = 0.01
    x[1] = 300
    x[2, cols - 1] = 1000
    check_backward(x, weight)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("cols", [17, 1000, RESIDENT_BLOCK_BACKWARD + 1])
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
    for function in (rmsnorm, lambda x, w: add_rmsnorm(x, x, w)[0]):
        leaf = x.clone().requires_grad_()
        (dx,) = torch.autograd.grad(function(leaf, weight).square().sum(), leaf, create_graph=True)
        with pytest.raises(RuntimeError):
            dx.sum().backward()


@pytest.mark.parametrize("cols", [40, 1000, 9000])
def test_the_same_bits_every_time(cols):
    x, weight = inputs(67, cols, BF16)
    dy = randn(67, cols, dtype=BF16, seed=3)
    first, second = (gradients(rmsnorm, (x, weight), (dy,)) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, second))
    assert torch.equal(rmsnorm(x, weight), rmsnorm(x, weight))


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
    with pytest.raises(ValueError, match=f"^{message}"):
        add_rmsnorm(arguments[0], *arguments)


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
    path, _ = plan(cols, dtype)
    report = meter(rmsnorm, x, weight)
    assert report.clean
    model = rmsnorm_traffic(rows, cols, dtype, path=path, cached=False)
    assert (report.traffic.read, report.traffic.written, report.launches) == (model.read, model.written, model.launches)
    shared = rmsnorm_traffic(rows, cols, dtype, path=path)
    assert report.unique.written == shared.written and report.unique.read["weight"] == shared.read["weight"]
    if path in ("narrow", "resident"):
        assert report.unique.read == shared.read

    path, _ = plan_add(cols, dtype)
    report = meter(add_rmsnorm, x, x.clone(), weight)
    model = add_rmsnorm_traffic(rows, cols, dtype, path=path, cached=False)
    assert report.clean
    assert (report.traffic.read, report.traffic.written, report.launches) == (model.read, model.written, model.launches)


@pytest.mark.parametrize("path", ["resident", "two_pass", "streaming"])
def test_traffic_of_a_path_that_is_chosen(path):
    x, weight = inputs(7, 100, BF16, weight_dtype=FP32)
    model = rmsnorm_traffic(7, 100, BF16, path=path, cached=False, weight_dtype=FP32)
    report = meter(rmsnorm, x, weight, path=path)
    assert (report.traffic.read, report.traffic.written) == (model.read, model.written)


@pytest.mark.parametrize("rows, cols, dtype", [*SHAPES, (131, 40, FP32), (3, 9000, FP32)], ids=str)
@pytest.mark.parametrize("add", [False, True])
def test_backward_traffic_is_what_the_meter_counts(rows, cols, dtype, add):
    x, weight = (t.requires_grad_() for t in inputs(rows, cols, dtype))
    ones = torch.ones_like(x)
    outputs = add_rmsnorm(x, torch.zeros_like(x), weight) if add else (rmsnorm(x, weight),)
    report = meter(torch.autograd.grad, outputs, (x, weight), [ones + i for i in range(len(outputs))])
    model = rmsnorm_backward_traffic(rows, cols, dtype, cached=False, dsum=add)
    assert report.clean
    assert (report.traffic.read, report.traffic.written, report.launches) == (model.read, model.written, model.launches)


def test_the_naive_path_and_what_fusing_saves():
    ops = rmsnorm_ops(64, 1000, BF16)
    assert list(ops) == ["x * x", "mean", "+ eps", "rsqrt", "x * scale", "* weight"]
    naive = rmsnorm_traffic(64, 1000, BF16, path="naive")
    full = 64 * 1000 * 2
    assert naive.launches == 6 and naive.bytes == 7 * full + 6 * 64 * 2 + 2000
    assert rmsnorm_traffic(64, 1000, BF16).bytes == 2 * full + 2000
    assert rmsnorm_traffic(64, 1000, BF16, path="two_pass").bytes == 3 * full + 2000
    unfused = add_rmsnorm_traffic(64, 1000, BF16, path="unfused")
    assert unfused.launches == 2 and unfused.bytes - add_rmsnorm_traffic(64, 1000, BF16).bytes == full
    for function in (rmsnorm_traffic, add_rmsnorm_traffic):
        with pytest.raises(ValueError, match="path: got 'fast', expected"):
            function(1, 1, BF16, path="fast")


def compile_widths(plan, dtype):
    """The widest row of each forward tile, and one odd one: where registers are scarcest."""
    tiles = {}
    for cols in (1, 256, 512, *(1 << p for p in range(10, 18)), 1001):
        path, config = plan(cols, dtype)
        tiles[path, tuple(config.items()), cols % 16 == 0] = cols
    return sorted(set(tiles.values()))


@pytest.mark.parametrize("arch", [80, 90, 100])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_no_spills_in_the_default_configs(arch, dtype):
    for cols in compile_widths(plan, dtype):
        x, weight = inputs(2, 1, dtype)
        x, weight = x.expand(2, cols).contiguous(), weight.expand(cols).contiguous()
        for binary in compiled(rmsnorm, x, weight, arch=arch):
            assert binary.spills <= SPILLS, (binary, cols)
    for cols in compile_widths(plan_add, dtype):
        x, weight = torch.ones(2, cols, dtype=dtype, device=DEVICE), torch.ones(cols, dtype=dtype, device=DEVICE)
        for binary in compiled(add_rmsnorm, x, x, weight, arch=arch):
            assert binary.spills <= SPILLS, (binary, cols)


@pytest.mark.parametrize("arch", [80, 90, 100])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_no_spills_in_the_backward(arch, dtype):
    for cols, allowed in SPILLS_BACKWARD.items():
        x, weight = torch.ones(2, cols, dtype=dtype, device=DEVICE), torch.ones(cols, dtype=dtype, device=DEVICE)
        for dsum in (None, x):
            for binary in compiled(module.rmsnorm_backward, x, x, weight, 1e-6, dsum, arch=arch):
                assert binary.spills <= allowed, (binary, cols)


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
        x, weight = inputs(*shape, BF16)
        assert compiled(rmsnorm, x, weight)[0].ptx and compiled(add_rmsnorm, x, x, weight)[0].ptx
        assert len(compiled(module.rmsnorm_backward, x, x, weight)) >= 2


def test_the_narrow_tile_is_a_power_of_two_at_every_width():
    for cols in range(1, 257):
        _, config = plan(cols, BF16)
        assert config["BLOCK"] == triton.next_power_of_2(cols) and config["ROWS"] & (config["ROWS"] - 1) == 0


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("rows, cols", [(1, 1), (7, 127), (20, 1000), (13, 2048), (5, 8191)])
def test_pipelined_rows(rows, cols, dtype):
    x, weight = randn(rows, cols, dtype=dtype), randn(cols, dtype=dtype, seed=1)
    report = meter(rmsnorm, x, weight, path="pipelined")
    assert report.clean
    assert_close(report.result, rmsnorm_reference(x.double(), weight.double(), 1e-6))
    model = rmsnorm_traffic(rows, cols, dtype, "pipelined", cached=False)
    assert (report.traffic.read, report.traffic.written) == (model.read, model.written)


def test_pipelining_is_chosen_for_a_few_rows_per_multiprocessor():
    weight = randn(4096, dtype=BF16)
    chosen = []
    for rows in (multiprocessors(), 8 * multiprocessors(), 17 * multiprocessors()):
        with backend.captured() as launches:
            rmsnorm(torch.zeros(rows, 4096, dtype=BF16, device=DEVICE), weight)
        chosen.append(launches[0].name)
    assert [name == "rmsnorm_pipelined_kernel" for name in chosen] == [False, True, False]
