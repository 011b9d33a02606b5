"""Causal softmax against fp64 and torch."""

import pytest
import torch

import kernels.softmax.causal
from instruments.compiled import compiled
from instruments.meter import meter
from kernels.shared.rows import MAX_COLS, RowPath, always
from kernels.softmax.causal import PATHS, causal_softmax, causal_softmax_reference, causal_softmax_traffic
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
    gradients,
    randn,
    widths,
)

INF, NAN = float("inf"), float("nan")
WAYS = [path.name for path in PATHS]
WIDEST = (512, 8192, 131_072)  # of each kernel, where its registers are scarcest


def later(queries, keys):
    """[queries, keys]: which keys a query may not see, counted one by one."""
    return torch.tensor([[j > i + keys - queries for j in range(keys)] for i in range(queries)], device=DEVICE)


def check(scores, **kwargs):
    y = causal_softmax(scores, **kwargs)
    assert y.dtype == scores.dtype and y.shape == scores.shape and y.is_contiguous()
    hidden = later(*scores.shape[-2:])
    expected = torch.softmax(scores.double().masked_fill(hidden, -INF), -1)
    assert_rounded_once(y, expected)
    assert (y.masked_select(hidden) == 0).all()
    return y


@pytest.fixture
def short_steps(monkeypatch):
    """Streaming in steps of 16, so that a small matrix has whole steps on each side of its diagonal."""
    config = {"VECTOR": 4, "BLOCK": 16, "num_warps": 1}
    streaming = RowPath("streaming", MAX_COLS, always, lambda cols, itemsize: {"config": config}, 2)
    monkeypatch.setattr(kernels.softmax.causal, "PATHS", (*PATHS[:-1], streaming))


@pytest.mark.parametrize("path", WAYS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_as_many_queries_as_keys(dtype, path, short_steps):
    for size in (1, 2, 17, 50):
        check(randn(2, size, size, dtype=dtype, scale=2), path=path)


@pytest.mark.parametrize("dtype", [BF16, FP32], ids=str)
def test_the_last_queries_at_every_width(dtype):
    for keys in widths(PATHS, dtype):
        check(randn(min(3, keys), keys, dtype=dtype, scale=2))


def test_the_reference_is_torchs_softmax_of_masked_scores():
    for queries, keys in ((5, 5), (2, 7), (7, 2)):
        scores = randn(2, queries, keys)
        expected = torch.softmax(scores.masked_fill(later(queries, keys), -INF), -1)
        torch.testing.assert_close(causal_softmax_reference(scores), expected, equal_nan=True)


@pytest.mark.parametrize("path", WAYS)
def test_fewer_keys_than_queries_leave_the_first_queries_nothing(path, short_steps):
    y = causal_softmax(randn(2, 40, 38, dtype=BF16), path=path)
    assert y[:, :2].isnan().all() and not y[:, 2:].isnan().any()
    assert torch.equal(y[:, 2], torch.eye(1, 38).expand(2, -1).to(y))


@pytest.mark.parametrize("layout", BATCHED)
def test_batches(layout):
    check(BATCHED[layout](randn(3, 40, 300, dtype=BF16)))
    check(BATCHED[layout](randn(3, 40, 300, dtype=BF16))[None, :, None])


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("keys", [200, 1000, 9001])
def test_layouts(layout, keys):
    check(LAYOUTS[layout](randn(4, keys, dtype=BF16)))


@pytest.mark.parametrize("shape", [(0, 8), (8, 0), (0, 2, 3), (2, 0, 0)])
def test_empty_in_empty_out(shape):
    assert causal_softmax(torch.empty(shape, dtype=BF16, device=DEVICE)).shape == shape


@pytest.mark.parametrize("path", WAYS)
def test_minus_infinity_among_the_keys_that_are_seen(path, short_steps):
    scores = randn(6, 100, dtype=FP16, scale=3)
    scores[0, :94] = -INF  # whole steps before the only number
    scores[1, 1:] = -INF
    scores[2, ::2] = -INF
    check(scores, path=path)
    scores[3] = -INF
    scores[4, 7] = INF
    scores[5, 7] = NAN
    y = causal_softmax(scores, path=path)
    assert y[3:].isnan().all() and not y[:3].isnan().any()


@pytest.mark.parametrize("path", WAYS)
def test_what_lies_above_the_diagonal_is_never_read(path, short_steps):
    scores = randn(2, 40, 40, dtype=BF16)
    clean = check(scores, path=path)
    scores[:, later(40, 40)] = NAN
    report = meter(causal_softmax, scores, path=path)
    assert torch.equal(report.result, clean)
    assert_counts(report, causal_softmax_traffic(2, 40, 40, BF16, path=path))


def test_traffic():
    size = 100
    least = causal_softmax_traffic(3, size, size, BF16)
    assert least.bytes_read == 3 * 2 * sum(range(1, size + 1)) and least.bytes_written == 3 * 2 * size * size
    for queries, keys in ((2, 7), (7, 2), (1, 40), (9, 600), (2, 40_000)):
        pairs = 2 * int((~later(queries, keys)).sum())
        assert causal_softmax_traffic(2, queries, keys, FP16).bytes_read == 2 * pairs
        report = meter(causal_softmax, randn(2, queries, keys, dtype=FP16))
        assert_counts(report, causal_softmax_traffic(2, queries, keys, FP16, path=None))
    assert causal_softmax_traffic(3, size, size, BF16, path="streaming").bytes_read == 2 * least.bytes_read
    full, naive = 3 * 2 * size * size, causal_softmax_traffic(3, size, size, BF16, path="naive")
    assert naive.bytes == 4 * full + size * size and naive.launches == 2
    with pytest.raises(ValueError, match="path: got 'fast' for rows of 4, expected"):
        causal_softmax_traffic(1, 4, 4, BF16, path="fast")


@pytest.mark.parametrize("keys", [40, 1000])
def test_gradients_are_the_references_and_zero_above_the_diagonal(keys):
    scores, dy = randn(2, 40, keys), randn(2, 40, keys, seed=3)
    (dx,) = gradients(causal_softmax, (scores,), dy)
    (expected,) = gradients(causal_softmax_reference, (scores.double(),), dy.double())
    mask = ~later(40, keys)
    assert (dx * ~mask == 0).all()
    floor = (causal_softmax_reference(scores.double()) * dy.double()).detach()  # a row of one key has no gradient
    assert_close(dx, expected, floor=floor)


@pytest.mark.parametrize(
    "scores, message",
    [
        (None, "scores: got NoneType, expected a torch.Tensor"),
        (torch.ones(3, 3, device=DEVICE).int(), "scores: got dtype int32"),
        (torch.ones(8, device=DEVICE), r"scores: got shape \(8,\), expected \[\.\.\., queries, keys\]"),
        (
            torch.ones(1, 1, device=DEVICE).expand(1, MAX_COLS + 1),
            "scores: got a last dimension of 1,048,577, expected 1 to 1,048,576",
        ),
    ],
)
def test_bad_arguments_name_themselves(scores, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        causal_softmax(scores)


@pytest.mark.parametrize("dtype", [BF16, FP32], ids=str)
def test_no_spills_in_the_default_configs(dtype):
    for keys in WIDEST:
        (binary,) = compiled(causal_softmax, randn(1, 1, dtype=dtype).expand(32, keys).contiguous(), arch=90)
        assert binary.spills <= SPILLS and set(binary.stores) == {128}, (binary, keys)
