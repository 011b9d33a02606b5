"""Softmax against fp64: forward, its paths and its arguments."""

import pytest
import torch

from instruments.compiled import compiled
from instruments.meter import meter
from kernels.shared.rows import MAX_COLS, TILED_COLS
from kernels.softmax.forward import PATHS, softmax, softmax_ops, softmax_reference, softmax_traffic
from tests.kernels.tools import (
    BATCHED,
    BF16,
    DEVICE,
    DTYPES,
    FP16,
    FP32,
    LAYOUTS,
    SPILLS,
    assert_close,
    assert_counts,
    assert_rounded_once,
    compile_widths,
    randn,
    widths,
)

INF, NAN = float("inf"), float("nan")


def check(x, **kwargs):
    y = softmax(x, **kwargs)
    assert y.dtype == x.dtype and y.shape == x.shape and y.is_contiguous() and not y.requires_grad
    assert_close(y, softmax_reference(x.double()))
    return y


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_forward_at_every_width(dtype):
    for cols in widths(PATHS, dtype):
        check(randn(2, cols, dtype=dtype, scale=3))
    for cols in (1, 100):
        for rows in (1, 17, 41):
            check(randn(rows, cols, dtype=dtype))


@pytest.mark.parametrize("path", ["narrow", "resident", "tiled", "streaming", "unaligned"])
@pytest.mark.parametrize("cols", [1, 255, 1000])
def test_every_path_at_widths_that_others_are_chosen_for(path, cols):
    x = randn(5, cols, dtype=BF16)
    assert torch.equal(check(x, path=path), softmax(x, path=path))
    assert meter(softmax, x, path=path).kernels == [f"softmax_{path}_kernel"]


@pytest.mark.parametrize("shape, offset", [((3, 5003), 0), ((3, 5003), 1), ((7, 6), 3), ((20, 9), 0)])
def test_unaligned_rows_wherever_they_begin(shape, offset):
    """Rows of fewer elements than a vector too; nothing is read or written beyond a row, or twice in a pass."""
    flat = randn(offset + shape[0] * shape[1], dtype=BF16)
    x = flat[offset:].view(shape)
    check(x, path="unaligned")
    check(x.T, path="unaligned")
    report = meter(softmax, x.clone(), path="unaligned")
    assert_counts(report, softmax_traffic(*shape, BF16, path="unaligned"))


@pytest.mark.parametrize("cols, path", [(200, "narrow"), (50_257, "unaligned"), (2049, "unaligned")])
def test_rows_of_odd_widths_are_loaded_16_bytes_at_a_time(cols, path):
    (kernel,) = compiled(softmax, torch.empty(16, cols, dtype=BF16, device=DEVICE))
    assert kernel.name == f"softmax_{path}_kernel" and kernel.loads[128] >= 2 and kernel.stores[128] >= 2
    assert kernel.loads.get(16, 0) <= 2 and kernel.spills == 0  # the edges


def test_a_path_whose_tile_cannot_hold_the_row_is_refused():
    paths = r"narrow \(to 1,024 columns\), unaligned \(to 1,048,576 columns\), resident \(to 32,768 columns\), tiled"
    for path in ("resident", "fast"):
        with pytest.raises(ValueError, match=f"path: got '{path}' for rows of 40,000, expected None or one of {paths}"):
            softmax(randn(1, 40_000), path=path)


def test_the_widest_row():
    check(randn(1, MAX_COLS, dtype=BF16))


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


@pytest.mark.parametrize("shape", [(7,), (1, 1), (2, 1, 3, 1, 10)])
def test_any_number_of_leading_dimensions(shape):
    check(randn(*shape, dtype=FP16))


@pytest.mark.parametrize("shape", [(0,), (0, 8), (2, 0), (0, 2, 0)])
def test_empty_in_empty_out(shape):
    x = torch.empty(shape, dtype=BF16, device=DEVICE).requires_grad_()
    y = softmax(x)
    y.sum().backward()
    assert y.shape == x.grad.shape == shape


@pytest.mark.parametrize(
    "path, cols", [("narrow", 300), ("resident", 1000), ("tiled", 1000), ("streaming", 17_001), ("unaligned", 5003)]
)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_hard_values(dtype, path, cols):
    """Among them rows whose largest value comes late, so that a streamed sum must be repaired."""
    x = randn(7, cols, dtype=dtype)
    x[0, cols - 1] = 60
    x[1] = torch.linspace(-80, 80, cols)
    x[2] = torch.linspace(80, -80, cols)
    x[3, : cols - 1] = -INF  # whole tiles of -inf before the one number
    x[4, 1:] = -INF
    x[5] += 1000
    x[6, ::3] = -INF
    y = softmax(x, path=path)
    assert_rounded_once(y, softmax_reference(x.double()))
    assert (y[3, :-1] == 0).all() and y[3, -1] == 1 and y[4, 0] == 1 and (y[6, ::3] == 0).all()


@pytest.mark.parametrize(
    "path, cols", [("narrow", 300), ("resident", 1000), ("tiled", 1000), ("streaming", 17_001), ("unaligned", 5003)]
)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_equal_values_however_large(dtype, path, cols):
    """The largest there are overflow when they are multiplied by log2(e), and their difference does too."""
    highest = torch.finfo(dtype).max
    x = torch.full((3, cols), highest, dtype=dtype, device=DEVICE)
    x[1] = -highest
    x[2, ::2] = -highest
    assert_rounded_once(softmax(x, path=path), softmax_reference(x.double()))


@pytest.mark.parametrize(
    "path, cols", [("narrow", 300), ("resident", 1000), ("tiled", 1000), ("streaming", 17_001), ("unaligned", 5003)]
)
def test_what_has_no_softmax_is_nan_as_in_torch_and_stays_in_its_row(path, cols):
    x = randn(8, cols, dtype=BF16)
    x[0] = -INF
    x[1, 0] = x[2, cols - 1] = x[3] = INF
    x[4, 0] = x[5, cols - 1] = NAN
    x[6, 1:], x[6, 0] = -INF, INF
    y = softmax(x, path=path)
    assert torch.equal(y.isnan(), torch.softmax(x, -1).isnan())
    assert y[:7].isnan().all() and not y[7].isnan().any()


# ---------------------------------------------------------------- arguments


X = torch.ones(2, 8, device=DEVICE)


@pytest.mark.parametrize(
    "x, message",
    [
        ([1.0], "x: got list, expected a torch.Tensor"),
        (X.double(), "x: got dtype float64, expected one of float32, bfloat16, float16"),
        (X[0, 0], "x: got a scalar, expected at least one dimension"),
        (X[:1, :1].expand(1, MAX_COLS + 1), "x: got a last dimension of 1,048,577, expected 1 to 1,048,576"),
    ],
)
def test_bad_arguments_name_themselves(x, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        softmax(x)


# ---------------------------------------------------------------- bytes and machine code


@pytest.mark.parametrize("rows, cols, dtype", [(41, 100, BF16), (17, 256, FP32), (3, 1000, FP16), (2, 40_000, BF16)])
def test_traffic_is_what_the_meter_counts(rows, cols, dtype):
    report = meter(softmax, randn(rows, cols, dtype=dtype))
    assert_counts(report, softmax_traffic(rows, cols, dtype, path=None))
    least = softmax_traffic(rows, cols, dtype)
    assert (report.unique.read, report.unique.written) == (least.read, least.written)


def test_traffic_of_a_path_that_is_chosen():
    report = meter(softmax, randn(7, 100, dtype=BF16), path="streaming")
    assert_counts(report, softmax_traffic(7, 100, BF16, path="streaming"))


def test_the_naive_path_reads_five_times_and_writes_three():
    assert list(softmax_ops(64, 1000, BF16)) == ["amax", "x - max", "exp", "sum", "/ sum"]
    naive, full = softmax_traffic(64, 1000, BF16, path="naive"), 64 * 1000 * 2
    assert naive.launches == 5 and naive.bytes_read == 5 * full + 2 * 128 and naive.bytes_written == 3 * full + 2 * 128
    assert softmax_traffic(4096, 65_536, BF16).bytes == 2 * 4096 * 65_536 * 2, "the least, at any width"
    assert softmax_traffic(64, 1000, BF16, path="streaming").bytes == 3 * full
    with pytest.raises(ValueError, match="path: got 'fast' for rows of 1, expected"):
        softmax_traffic(1, 1, BF16, path="fast")


@pytest.mark.parametrize("arch, dtype", [(80, FP32), (90, BF16), (90, FP32), (100, BF16)])
def test_no_spills_in_the_default_configs(arch, dtype):
    for cols in (*compile_widths(PATHS, dtype), TILED_COLS):
        (binary,) = compiled(softmax, randn(1, 1, dtype=dtype).expand(2, cols).contiguous(), arch=arch)
        assert binary.spills <= SPILLS, (binary, cols)


@pytest.mark.parametrize("cols, dtype", [(256, BF16), (1024, BF16), (1040, BF16), (65_536, BF16), (65_536, FP32)])
def test_rows_of_a_multiple_of_16_are_loaded_16_bytes_at_a_time(cols, dtype):
    (binary,) = compiled(softmax, randn(1, cols, dtype=dtype), arch=90)
    assert set(binary.loads) == set(binary.stores) == {128}


def test_one_row_one_column_and_one_size_of_one_compile():
    for shape in ((1, 1), (1, 1000), (1000, 1), (1, 40_000)):
        assert compiled(softmax, randn(*shape, dtype=BF16))[0].ptx
