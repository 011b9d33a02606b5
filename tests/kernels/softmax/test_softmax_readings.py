"""Softmax of streamed rows, its forms against fp64."""

import pytest
import torch

from instruments.meter import meter
from kernels.softmax.ablation import PASSES, THREE, softmax_readings, softmax_readings_traffic
from tests.kernels.tools import BF16, DTYPES, FP16, assert_close, assert_counts, randn


@pytest.mark.parametrize("form", PASSES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_form(form, dtype):
    x = randn(2, 20_000, dtype=dtype, scale=4)
    x[0, 19_000], x[1, :16_384] = 60.0, -float("inf")  # a larger maximum in the last tile, and a first tile of -inf
    y = softmax_readings(x, form)
    assert y.dtype == x.dtype and y.shape == x.shape
    assert_close(y, torch.softmax(x.double(), -1))


@pytest.mark.parametrize("form", PASSES)
def test_rows_that_have_no_softmax_are_nan_and_stay_alone(form):
    x = randn(4, 9, dtype=FP16)
    x[0], x[1, 3], x[2, 3] = -float("inf"), float("nan"), float("inf")
    y = softmax_readings(x, form)
    assert y[:3].isnan().all()
    assert_close(y[3:], torch.softmax(x[3:].double(), -1))


@pytest.mark.parametrize("form", PASSES)
def test_it_reads_a_row_as_often_as_it_says(form):
    x = randn(2, 20_000, dtype=BF16)
    assert_counts(meter(softmax_readings, x, form), softmax_readings_traffic(2, 20_000, BF16, form))


def test_bad_arguments_are_named():
    with pytest.raises(ValueError, match="form: got 'one', expected one of: three readings; two, a maximum per lane;"):
        softmax_readings(randn(2, 8), "one")
    with pytest.raises(ValueError, match="x: got shape .* expected contiguous"):
        softmax_readings(randn(2, 8).t(), THREE)
