"""What is left of a sum: the model of Hopper's accumulator by hand, and, on such a GPU, against it."""

import pytest
import torch

from kernels.low_precision.ablation import (
    INTERVALS,
    LARGEST_RATIO,
    fp8_sums,
    missing_share,
    one_large,
    random_codes,
    relative_error,
    simulated_sums,
)
from kernels.low_precision.hopper import takes
from tests.kernels.tools import DEVICE

E4M3 = torch.float8_e4m3fn
SOME = torch.empty(16, 16, dtype=E4M3, device=DEVICE)
on_hopper = pytest.mark.skipif(not takes(SOME, SOME, SOME), reason="needs a Hopper GPU")


def on_device(*codes):
    return [c.to(DEVICE) for c in codes]


def test_small_products_vanish_at_once():
    for ratio in range(LARGEST_RATIO + 1):
        operands = one_large(ratio, 32)
        lost = missing_share(simulated_sums(*operands), ratio, 32)
        assert lost == (0 if ratio <= 13 else 1)
    assert missing_share(simulated_sums(*one_large(14, 32), bits=14), 14, 32) == 0


def test_promotion_loses_only_the_neighbours_of_the_large_one():
    for every in (32, 64, 128):
        lost = missing_share(simulated_sums(*one_large(15, 1024), every), 15, 1024)
        assert lost == pytest.approx((every - 1) / 1023)


def test_what_is_cut_off_is_cut_off_towards_zero():
    x = torch.tensor([[1.0] + [0.0] * 31, [-1.0] + [0.0] * 31])
    x[:, 1] = 2.0**-7
    weight = torch.zeros(5, 32)
    weight[:, 0], weight[:, 1] = 1, torch.tensor([-5, -3, 0, 3, 5]) * 2.0**-8  # in units of 2^-15
    sums = simulated_sums(x.to(E4M3), weight.to(E4M3)) * 2**13
    assert (sums[0] - 2**13).tolist() == [-1, 0, 0, 0, 1] and (sums[1] + 2**13).tolist() == [-1, 0, 0, 0, 1]


def test_the_error_grows_with_k_unless_promoted():
    errors = {}
    for K in (128, 2048):
        x, weight = (random_codes(8, K, "positive", seed) for seed in (1, 2))
        errors[K] = [relative_error(simulated_sums(x, weight, every), x, weight) for every in (None, 128)]
    assert errors[2048][0] > 20 * errors[128][0] and errors[2048][1] < 1.2 * errors[128][1]


def test_sums_of_the_matrix_unit():
    """In fp32 in the interpreter; on Hopper with what `simulated_sums` loses."""
    x, weight = on_device(random_codes(70, 300, "normal", 1), random_codes(40, 300, "normal", 2))
    for every in INTERVALS:
        assert relative_error(fp8_sums(x, weight, every), x, weight) < 4e-4


@on_hopper
@pytest.mark.parametrize("data", ["normal", "positive"])
def test_the_model_is_the_gpu(data):
    x, weight = on_device(random_codes(32, 2048, data, 1), random_codes(32, 2048, data, 2))
    for every in INTERVALS:
        assert torch.equal(fp8_sums(x, weight, every).double(), simulated_sums(x, weight, every))


@pytest.mark.parametrize(
    "x, every, message",
    [
        (torch.zeros(2, 8), None, "x: got dtype"),
        (torch.zeros(2, 9).to(E4M3), None, r"weight: got shape \(2, 8\), expected \[rows, 9\]"),
        (torch.zeros(2, 8).to(E4M3), 16, "promote_every: got 16, expected one of None, 128, 64, 32"),
    ],
)
def test_bad_arguments_are_named(x, every, message):
    weight = torch.zeros(2, 8).to(E4M3)
    with pytest.raises(ValueError, match=f"^{message}"):
        fp8_sums(*on_device(x, weight), every)


def test_experiments_name_what_they_take():
    with pytest.raises(ValueError, match="^ratio: got 21"):
        one_large(21, 32)
    with pytest.raises(ValueError, match="^data: got 'zeros'"):
        random_codes(1, 32, "zeros", 0)
