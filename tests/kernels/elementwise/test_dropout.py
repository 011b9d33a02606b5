"""Bias, GELU and dropout: the mask by its statistics, the values against fp64."""

import pytest
import torch

from instruments.backend import tl, triton
from instruments.meter import meter
from kernels.elementwise.bias_gelu import bias_gelu, bias_gelu_reference, bias_gelu_traffic
from kernels.elementwise.dropout import ROUNDS as PHILOX_ROUNDS
from kernels.elementwise.dropout import (
    bias_gelu_dropout,
    bias_gelu_dropout_ops,
    bias_gelu_dropout_traffic,
    dropout_mask,
    keep,
)
from tests.kernels.tools import BF16, DEVICE, ELEMENTWISE_SHAPES, FP16, FP32, assert_counts, bias_of, close, randn


def one(*shape, dtype=BF16, **kwargs):
    return randn(*shape, dtype=dtype, **kwargs)


@pytest.mark.parametrize("dtype", [BF16, FP16], ids=str)
def test_an_fp32_bias_beside_16_bit_rows(dtype):
    x = one(5, 300, dtype=dtype)
    bias = torch.stack([bias_of(x, FP32)] * 2, dim=1)[:, 0]
    close(bias_gelu_dropout(x, bias, 0, 1), bias_gelu_reference(x.double(), bias.double()))


@pytest.mark.parametrize("seed", [0, 1, 16, 123, (1 << 40) + 3, (1 << 63) - 1])
def test_a_seed_gives_a_mask_and_the_next_another(seed):
    mask = dropout_mask((20, 1000), 0.3, seed)
    assert torch.equal(mask, dropout_mask((20, 1000), 0.3, seed))
    assert not torch.equal(mask, dropout_mask((20, 1000), 0.3, seed - 1 if seed else 1))
    x = torch.ones(20, 1000, dtype=FP16, device=DEVICE)
    y = bias_gelu_dropout(x, x[0], 0.3, seed)
    assert torch.equal(y != 0, mask)
    assert torch.equal(y, bias_gelu_dropout(x, x[0], 0.3, seed))


@pytest.mark.parametrize("p", [0.0, 0.1, 0.5, 0.9])
@pytest.mark.parametrize("shape", [(64, 1024), (999, 63)])
def test_as_many_are_kept_as_asked_and_neighbours_do_not_follow_each_other(p, shape):
    mask = dropout_mask(shape, p, 11).double()
    noise = 5 * (p * (1 - p) / mask.numel()) ** 0.5
    assert abs(float(mask.mean()) - (1 - p)) <= noise
    for shift in ((0, 1), (0, 2), (0, 4), (1, 0), (8, 0)):
        together = (mask * mask.roll(shift, (0, 1))).mean()
        assert abs(float(together) - (1 - p) ** 2) <= 3 * noise


def test_the_mask_does_not_depend_on_the_layout():
    x = one(6, 300)
    bias = bias_of(x)
    assert torch.equal(bias_gelu_dropout(x, bias, 0.5, 3), bias_gelu_dropout(x.T.contiguous().T, bias, 0.5, 3))
    batch = bias_gelu_dropout(x.view(2, 3, 300), bias, 0.5, 3)
    assert torch.equal(bias_gelu_dropout(x, bias, 0.5, 3).view(2, 3, 300), batch)
    assert torch.equal(bias_gelu_dropout(x, bias, 0.0, 3), bias_gelu(x, bias))


@triton.jit
def keep_at_kernel(mask_ptr, row, cols, ROUNDS: tl.constexpr, BLOCK: tl.constexpr):
    row = row.to(tl.int64) + tl.arange(0, 1)[:, None]
    tl.store(mask_ptr + tl.arange(0, BLOCK)[None, :], keep(row, cols, 0.5, 5, ROUNDS, 1, BLOCK))


def test_the_counters_of_the_mask_have_64_bits():
    masks = []
    for row in (0, 1 << 24, 1 << 25):  # 2^32 and 2^33 groups of four further
        masks.append(torch.zeros(1024, dtype=torch.bool, device=DEVICE))
        keep_at_kernel[(1,)](masks[-1], row, 1024, PHILOX_ROUNDS, 1024)
        for earlier in masks[:-1]:
            assert 400 < (masks[-1] != earlier).sum() < 624


X, P = torch.ones(2, 8, device=DEVICE), torch.ones(8, device=DEVICE)


@pytest.mark.parametrize(
    "function, arguments, message",
    [
        (bias_gelu_dropout, (X, P, 1, 0), "p: got 1, expected a number from 0 to below 1"),
        (bias_gelu_dropout, (X, P, 0.5, -1), r"seed: got -1, expected an integer from 0 to 2\^63 - 1"),
        (bias_gelu_dropout, (X, P, 0.5, 0.5), "seed: got 0.5"),
        (bias_gelu_dropout, (X, P.clone().requires_grad_(), 0.5, 0), "bias: got a tensor that requires a gradient"),
        (dropout_mask, ((), 0.5, 0), "shape: got a scalar's, expected at least one dimension"),
        (dropout_mask, ((2,), float("nan"), 0), "p: got nan"),
    ],
)
def test_bad_arguments_name_themselves(function, arguments, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        function(*arguments)


@pytest.mark.parametrize("rows, cols, dtype", ELEMENTWISE_SHAPES, ids=str)
def test_traffic_is_what_the_meter_counts(rows, cols, dtype):
    x = one(rows, cols, dtype=dtype)
    report = meter(bias_gelu_dropout, x, bias_of(x), 0.5, 1)
    assert_counts(report, bias_gelu_dropout_traffic(rows, cols, dtype, cached=False))
    assert report.unique.bytes == bias_gelu_traffic(rows, cols, dtype).bytes, "the mask costs no bytes"


def test_the_naive_path():
    rows, cols = 64, 1000
    full, bias = rows * cols * 2, cols * 2
    ops = bias_gelu_dropout_ops(rows, cols, BF16)
    assert len(ops) == 11 and sum(ops.values()).bytes == 25 * full + full // 2 + bias
    assert sum(ops.values()) == bias_gelu_dropout_traffic(rows, cols, BF16, "naive")
