"""Row sum against fp64."""

import pytest
import torch

from instruments.compiled import compiled
from instruments.meter import meter
from kernels.reductions.row_sum import MAX_COLS_IN_PIECES, PATHS, PIECE, row_sum, row_sum_reference, row_sum_traffic
from kernels.shared.rows import MAX_COLS
from tests.kernels.tools import (
    BATCHED,
    BF16,
    DEVICE,
    DTYPES,
    FP16,
    FP32,
    LAYOUTS,
    assert_close,
    assert_counts,
    randn,
    widths,
)


def check(x, **kwargs):
    y = row_sum(x, **kwargs)
    assert y.dtype == FP32 and y.shape == x.shape[:-1] and y.is_contiguous()
    reference = row_sum_reference(x.double())
    assert_close(y.reshape(-1, 1), reference.reshape(-1, 1), floor=x.double().reshape(-1, x.shape[-1]))
    return y


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_width(dtype):
    for cols in widths(PATHS[:-1], dtype):
        check(randn(3, cols, dtype=dtype))
    for rows in (1, 15, 41):
        check(randn(rows, 100, dtype=dtype))


def test_the_widest_row_in_one_step():
    x = randn(1, MAX_COLS, dtype=BF16)
    check(x)
    assert meter(row_sum, x).kernels == ["row_sum_streaming_kernel"]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("cols", [PIECE + 1, 2 * PIECE - 1, 2 * PIECE, 3 * PIECE + 8193])
def test_rows_in_pieces(cols, dtype):
    """At widths for which another path would be chosen: a piece is a piece, and they take no minutes."""
    x = randn(2, cols, dtype=dtype)
    x[1, -1] = 1000  # in the last lane that counts
    y = check(x, path="pieces")
    assert torch.equal(y, row_sum(x, path="pieces")), "the same bits every time"
    report = meter(row_sum, x, path="pieces")
    assert_counts(report, row_sum_traffic(2, cols, dtype, path="pieces"))
    assert report.unique.read["x"] == row_sum_traffic(2, cols, dtype).read["x"]
    assert report.kernels[0] == "row_sum_pieces_kernel" and report.launches == 2


def test_the_narrowest_row_that_has_to_be_cut():
    x = randn(1, MAX_COLS + 1, dtype=BF16)
    check(x)
    assert meter(row_sum, x).kernels[0] == "row_sum_pieces_kernel"


def test_rows_in_pieces_of_any_layout_with_a_gradient():
    cols = 3 * PIECE + 12_345
    wide = randn(2, 2 * cols, dtype=FP16)
    x = wide[:, ::2].unsqueeze(1).detach().requires_grad_()
    check(x.detach(), path="pieces")
    y = row_sum(x, path="pieces")
    assert y.shape == (2, 1)
    (dx,) = torch.autograd.grad(y, x, torch.tensor([[2.0], [3.0]], device=DEVICE))
    assert dx.shape == x.shape and (dx[0] == 2).all() and (dx[1] == 3).all()


def test_an_outlier_and_a_nan_stay_in_their_row_of_pieces():
    cols = 5 * PIECE + 5
    x = torch.ones(3, cols, dtype=FP16, device=DEVICE)
    x[1, 3 * PIECE] = float("nan")
    x[2, -1] = 6e4
    y = row_sum(x, path="pieces")
    assert y[0] == cols and y[1].isnan() and y[2] == float(x[2, -1]) + cols - 1


@pytest.mark.parametrize("path", ["narrow", "resident", "streaming", "pieces"])
@pytest.mark.parametrize("cols", [1, 255, 1000, 1024])
def test_every_path_at_widths_that_others_are_chosen_for(path, cols):
    x = randn(5, cols, dtype=BF16)
    assert torch.equal(check(x, path=path), check(x, path=path))
    assert meter(row_sum, x, path=path).kernels[0] == f"row_sum_{path}_kernel"


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("cols", [200, 1000, 9001])
def test_layouts(layout, cols):
    x = LAYOUTS[layout](randn(4, cols, dtype=BF16))
    before = x.clone()
    check(x)
    assert torch.equal(x, before)


@pytest.mark.parametrize("layout", BATCHED)
def test_batches(layout):
    check(BATCHED[layout](randn(3, 4, 300, dtype=BF16)))


@pytest.mark.parametrize("shape", [(7,), (1, 1), (2, 3, 5), (2, 1, 3, 1, 10)])
def test_any_number_of_leading_dimensions(shape):
    check(randn(*shape, dtype=FP16))


@pytest.mark.parametrize("shape", [(0,), (0, 8), (3, 0), (2, 0, 8)])
def test_the_sum_of_nothing_is_zero(shape):
    x = torch.empty(shape, dtype=BF16, device=DEVICE).requires_grad_()
    y = row_sum(x)
    assert y.shape == shape[:-1] and y.dtype == FP32 and (y == 0).all()
    y.sum().backward()
    assert x.grad.shape == shape


@pytest.mark.parametrize("cols", [200, 2048, 20_011])
def test_hard_values(cols):
    x = torch.ones(4, cols, dtype=FP16, device=DEVICE)
    x[1] = 6e4  # far beyond fp16
    x[2] = 0
    x[2, cols - 1] = 200
    x[3, 5] = float("nan")
    y = row_sum(x)
    assert y[0] == cols and y[2] == 200 and y[3].isnan()  # a 16-bit accumulator would stop at 2,048
    assert abs(float(y[1]) / (float(x[1, 0]) * cols) - 1) < 1e-6


def test_the_gradient_is_the_upstream_one_of_the_row():
    x = randn(2, 3, 50, dtype=BF16).requires_grad_()
    upstream = randn(2, 3, seed=1)
    (dx,) = torch.autograd.grad(row_sum(x), x, upstream)
    assert dx.dtype == BF16 and torch.equal(dx, upstream.bfloat16()[..., None].expand(2, 3, 50))


@pytest.mark.parametrize(
    "arguments, kwargs, message",
    [
        ((None,), {}, "x: got NoneType, expected a torch.Tensor"),
        ((torch.ones(2, dtype=torch.int64),), {}, "x: got dtype int64"),
        ((torch.ones((), device=DEVICE),), {}, "x: got a scalar"),
        (
            (torch.ones(1, 1, device=DEVICE).expand(1, MAX_COLS_IN_PIECES + 1),),
            {},
            "x: got a last dimension of 2,147,483,649, expected 1 to 2,147,483,648",
        ),
        (
            (torch.ones(2, 8, device=DEVICE),),
            {"path": "two_pass"},
            "path: got 'two_pass' for rows of 8, expected None or one of narrow",
        ),
        ((torch.ones(1, 40_000, device=DEVICE),), {"path": "resident"}, "path: got 'resident' for rows of 40,000"),
    ],
)
def test_bad_arguments_name_themselves(arguments, kwargs, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        row_sum(*arguments, **kwargs)


@pytest.mark.parametrize(
    "rows, cols, dtype",
    [
        (5, 1, BF16),
        (41, 100, BF16),
        (17, 256, FP32),
        (3, 1000, FP16),
        (4, 4096, BF16),
        (3, 9001, FP32),
        (2, 20_000, BF16),
    ],
    ids=str,
)
def test_traffic_is_what_the_meter_counts(rows, cols, dtype):
    report = meter(row_sum, randn(rows, cols, dtype=dtype))
    model = row_sum_traffic(rows, cols, dtype)
    assert_counts(report, model)
    assert row_sum_traffic(rows, cols, dtype, path=None) == model
    assert (report.unique.read, report.unique.written) == (model.read, model.written)


@pytest.mark.parametrize("arch", [80, 90, 100])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_no_spills_and_loads_of_16_bytes(arch, dtype):
    for cols in (256, 512, 1024, 4096, 8192, 16_384, 131_072):
        (binary,) = compiled(row_sum, torch.ones(64, cols, dtype=dtype, device=DEVICE), arch=arch)
        assert binary.spills == 0 and set(binary.loads) == {128}, (binary, cols, binary.loads)
    x = torch.ones(1, MAX_COLS + 8192, dtype=dtype, device=DEVICE)
    pieces, _ = compiled(row_sum, x, arch=arch)
    assert pieces.spills == 0 and set(pieces.loads) == {128}
    for cols in (1, 1001, 8191, 16_383, 100_001):
        (binary,) = compiled(row_sum, torch.ones(64, cols, dtype=dtype, device=DEVICE), arch=arch)
        assert binary.spills == 0, (binary, cols)


def test_sizes_of_one_compile():
    for shape in ((1, 1), (1, 1000), (1000, 1), (1, 40_000), (1, MAX_COLS + 1)):
        assert compiled(row_sum, torch.ones(shape, device=DEVICE))[0].ptx
