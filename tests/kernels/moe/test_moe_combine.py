"""Dispatch: a token's row, copied to its slots. Combine: those rows, weighted and summed in one pass."""

import pytest
import torch

from instruments.compiled import compiled
from instruments.meter import meter
from kernels.moe.combine import (
    combine,
    combine_backward,
    combine_reference,
    combine_traffic,
    gather_rows,
    gather_traffic,
)
from kernels.moe.permute import permute
from tests.kernels.moe.test_moe_permute import choices
from tests.kernels.tools import BF16, BF16_FIRST, DEVICE, FP32, LAYOUTS, SPILLS, assert_close, assert_counts, randn


def make(tokens, top_k, hidden, dtype, capacity=None, num_experts=8):
    permutation = permute(choices(tokens, top_k, num_experts, 1), num_experts, capacity)
    y = randn(tokens * top_k, hidden, dtype=dtype)
    y[int(permutation.offsets[-1]) :] = float("nan")  # rows that nobody has
    return y, permutation, randn(tokens, top_k, seed=2).softmax(1)


@pytest.mark.parametrize("capacity", [None, 4])
@pytest.mark.parametrize("dtype", BF16_FIRST)
@pytest.mark.parametrize("tokens, top_k, hidden", [(1, 1, 1), (13, 2, 70), (20, 3, 1100), (9, 8, 33)])
def test_against_fp64(tokens, top_k, hidden, dtype, capacity):
    y, permutation, gates = make(tokens, top_k, hidden, dtype, capacity)
    reference = combine_reference(y.double(), permutation, gates.double())
    floor = torch.full((tokens, hidden), 0.1)
    assert_close(combine(y, permutation, gates), reference, floor=floor)
    assert_close(combine(y, permutation), combine_reference(y.double(), permutation), floor=floor)


def test_sums_are_fp32():
    """A large row and its opposite leave a small one, which 16 bits would have lost."""
    experts = torch.tensor([[0, 1, 2]], dtype=torch.int32, device=DEVICE)
    y = torch.tensor([[256.0], [1.0], [-256.0]], device=DEVICE).to(BF16).expand(3, 8)
    assert (combine(y, permute(experts, 3), torch.ones(1, 3, device=DEVICE)) == 1).all()


def test_a_bad_row_spoils_its_token_alone():
    y, permutation, gates = make(12, 2, 40, BF16)
    good = combine(y, permutation, gates)
    y[permutation.rows[5, 1].long()] = float("nan")
    result = combine(y, permutation, gates)
    others = torch.arange(12, device=DEVICE) != 5
    assert result[5].isnan().all() and torch.equal(result[others], good[others])


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(layout):
    y, permutation, gates = make(6, 3, 40, FP32)
    y = LAYOUTS[layout](y)
    assert_close(combine(y, permutation, gates), combine_reference(y.double(), permutation, gates.double()))
    assert_close(
        combine(y, permutation, LAYOUTS["transposed"](gates)),
        combine_reference(y.double(), permutation, gates.double()),
    )


@pytest.mark.parametrize("capacity", [None, 4])
@pytest.mark.parametrize("dtype", BF16_FIRST)
def test_gradients(dtype, capacity):
    y, permutation, gates = make(13, 3, 1100, dtype, capacity)
    dout = randn(13, 1100, dtype=dtype, seed=3)
    exact = y.double().nan_to_num(0).requires_grad_(), gates.double().requires_grad_()
    expected = torch.autograd.grad(combine_reference(exact[0], permutation, exact[1]), exact, dout.double())
    y.requires_grad_(), gates.requires_grad_()
    dy, dgates = torch.autograd.grad(combine(y, permutation, gates), (y, gates), dout)
    assert dgates.dtype == FP32 and dy.dtype == dtype
    assert_close(dy, expected[0])
    assert_close(dgates, expected[1], floor=torch.full((13, 3), 10.0))
    (dy,) = torch.autograd.grad(combine(y, permutation), y, dout)
    full = permutation.tokens >= 0
    assert torch.equal(dy[full], dout[permutation.tokens[full].long()]) and (dy[~full] == 0).all()


@pytest.mark.parametrize("hidden", [70, 1100])
def test_traffic_is_what_the_meter_counts(hidden):
    y, permutation, gates = make(12, 3, hidden, BF16)
    assert_counts(meter(combine, y, permutation, gates), combine_traffic(12, 3, hidden, BF16, None))
    minimum = combine_traffic(12, 3, hidden, BF16)
    assert minimum.bytes == 12 * hidden * 2 * (3 + 1) + 36 * 8 and minimum.launches == 1
    assert combine_traffic(12, 3, hidden, BF16, "naive").launches == 3
    report = meter(combine_backward, randn(12, hidden, dtype=BF16), y, permutation, gates)
    assert report.clean and report.launches == 1
    assert report.traffic.read["y"] == report.traffic.written["dy"] == 36 * hidden * 2


def test_dropped_rows_are_not_read():
    y, permutation, gates = make(30, 2, 64, BF16, capacity=3)
    gates[permutation.rows < 0] = float("nan")
    assert combine(y, permutation, gates).isfinite().all()
    report = meter(combine, y, permutation, gates)
    assert report.clean and report.traffic.read["y"] == int(permutation.offsets[-1]) * 64 * 2


@pytest.mark.parametrize("layout", [None, *LAYOUTS])
def test_gather_rows(layout):
    x = randn(30, 70, dtype=BF16)
    x = LAYOUTS[layout](x) if layout else x
    permutation = permute(choices(30, 3, 8), 8)
    assert torch.equal(gather_rows(x, permutation), x[permutation.tokens.long()])


def test_gather_rows_leaves_zeros_where_a_capacity_leaves_rows():
    x, permutation = randn(30, 1100, dtype=BF16), permute(choices(30, 3, 8), 8, 5)
    y, rows = gather_rows(x, permutation), int(permutation.offsets[-1])
    assert rows < 90 and (y[rows:] == 0).all() and torch.equal(y[:rows], x[permutation.tokens[:rows].long()])
    assert meter(gather_rows, x, permutation).tensors["x"].out_of_bounds == []


def test_gather_rows_has_a_gradient():
    x, permutation = randn(30, 70, dtype=FP32).requires_grad_(), permute(choices(30, 3, 8), 8, 5)
    dy = randn(90, 70, seed=1)
    (dx,) = torch.autograd.grad(gather_rows(x, permutation), x, dy)
    rows = int(permutation.offsets[-1])
    expected = torch.zeros(30, 70, dtype=torch.float64, device=DEVICE)
    expected.index_add_(0, permutation.tokens[:rows].long(), dy[:rows].double())
    assert torch.allclose(dx.double(), expected, atol=1e-6)


def test_gather_traffic_is_what_the_meter_counts():
    permutation = permute(choices(12, 3, 8), 8)
    for hidden in (70, 1100):
        report = meter(gather_rows, randn(12, hidden, dtype=BF16), permutation)
        assert_counts(report, gather_traffic(12, 3, hidden, BF16, None))
    assert gather_traffic(12, 3, 70, BF16).bytes == 12 * 70 * 2 * 4 + 4 * 36


def test_nothing_to_combine():
    none = permute(torch.empty(0, 2, dtype=torch.int32, device=DEVICE), 4)
    assert combine(torch.empty(0, 8, device=DEVICE), none, torch.empty(0, 2, device=DEVICE)).shape == (0, 8)


@pytest.mark.once
@pytest.mark.parametrize("top_k, hidden", [(2, 4096), (6, 2048), (8, 7168), (3, 1001)])
def test_nothing_spills(top_k, hidden):
    permutation = permute(torch.zeros(2, top_k, dtype=torch.int32, device=DEVICE), 8)
    y = torch.ones(2 * top_k, hidden, dtype=BF16, device=DEVICE).requires_grad_()
    gates = torch.ones(2, top_k, device=DEVICE)
    for binary in compiled(lambda: combine(y, permutation, gates).sum().backward(), arch=90):
        assert binary.spills <= SPILLS, binary


P = permute(torch.zeros(4, 2, dtype=torch.int32, device=DEVICE), 4)
Y, G = torch.ones(8, 16, device=DEVICE), torch.ones(4, 2, device=DEVICE)


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: combine(Y.double(), P, G), "y: got dtype float64"),
        (lambda: combine(Y[:4], P, G), r"y: got shape \(4, 16\), expected \(8, hidden\), a row for each of the slots"),
        (lambda: combine(Y, G, P), "permutation: got Tensor, expected a Permutation"),
        (lambda: combine(Y, P, G.half()), "gates: got dtype float16, expected one of float32"),
        (lambda: combine(Y, P, G[:, :1]), r"gates: got shape \(4, 1\), expected \(4, 2\), a gate for each slot"),
        (lambda: combine_traffic(4, 2, 8, BF16, "fast"), "path: got 'fast', expected minimum or None"),
    ],
)
def test_bad_arguments_name_themselves(call, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        call()
