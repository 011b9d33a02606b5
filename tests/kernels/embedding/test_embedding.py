import pytest
import torch

from instruments.meter import meter
from kernels.embedding import (
    embedding,
    embedding_backward,
    embedding_bag,
    embedding_bag_reference,
    embedding_bag_traffic,
    embedding_reference,
    embedding_traffic,
)
from tests.kernels.tools import AGAIN, BF16, BF16_FIRST, DEVICE, FP16, FP32, LAYOUTS, assert_close, randn


def integers(*shape, high, seed=0):
    return torch.randint(0, high, shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE)


def long(values):
    return torch.tensor(values, dtype=torch.int64, device=DEVICE)


@pytest.mark.parametrize("dtype", BF16_FIRST)
@pytest.mark.parametrize("rows, cols, shape", [(1, 1, (3,)), (37, 5, (4, 9)), (50, 1100, (7,)), (9, 64, ())])
def test_rows_by_any_index(rows, cols, shape, dtype):
    table, indices = randn(rows, cols, dtype=dtype), integers(*shape, high=rows)
    y = embedding(table, indices.int() if cols == 5 else indices)
    assert torch.equal(y, embedding_reference(table, indices)) and y.is_contiguous()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(layout):
    table = LAYOUTS[layout](randn(20, 70, dtype=FP16))
    indices = integers(33, high=len(table)).repeat_interleave(2)[::2]
    assert torch.equal(embedding(table, indices), table[indices])


def test_an_index_outside_is_refused_or_gives_nan():
    table = randn(5, 70)
    for wrong in (5, -1):
        indices = long([1, wrong, 4])
        with pytest.raises(ValueError, match=f"^indices: got {wrong}, expected 0 to 4, a row of table$"):
            embedding(table, indices)
        report = meter(embedding, table, indices, check_range=False)
        assert report.result[1].isnan().all() and torch.equal(report.result[0], table[1])
        assert not any("outside" in finding for finding in report.findings())


@pytest.mark.parametrize("method", ["sorted", "atomics"])
@pytest.mark.parametrize("dtype", BF16_FIRST)
def test_repeated_and_unused_rows_of_the_backward(dtype, method):
    """Index 3 stands there 400 times: in 16 bits its sum would stop growing; rows 5 to 8 are never named."""
    table = randn(9, 1050, dtype=dtype).requires_grad_()
    indices = torch.cat([integers(60, high=5), long([3] * 400)])
    dy = randn(460, 1050, dtype=dtype, seed=1, shift=1)
    embedding(table, indices, backward=method).backward(dy)
    expected = torch.zeros(9, 1050, dtype=torch.float64, device=DEVICE).index_add_(0, indices, dy.double())
    assert_close(table.grad, expected)
    assert not table.grad[5:].any()


def test_the_sorted_backward_repeats_its_bits():
    indices, dy = integers(500, high=7), randn(500, 33)
    first = embedding_backward(dy, indices, 7)
    for _ in range(AGAIN):
        assert torch.equal(embedding_backward(dy, indices, 7), first)


def test_traffic_is_what_the_meter_counts():
    report = meter(embedding, randn(50, 1100, dtype=FP16), integers(32, high=50))
    distinct = len(integers(32, high=50).unique())
    requested, once = embedding_traffic(32, 32, 1100, FP16), embedding_traffic(32, distinct, 1100, FP16)
    assert report.clean and (report.traffic.read, report.traffic.written) == (requested.read, requested.written)
    assert report.unique.read["table"] == once.read["table"]
    bag = meter(embedding_bag, randn(50, 1100, dtype=FP16), integers(32, high=50), long([0, 5, 5, 32]))
    model = embedding_bag_traffic(32, 3, 1100, FP16)
    assert bag.clean and (bag.traffic.read, bag.traffic.written) == (model.read, model.written)


@pytest.mark.parametrize("mode", ["sum", "mean"])
@pytest.mark.parametrize("dtype", BF16_FIRST)
def test_bags_and_their_gradients(dtype, mode):
    """Bags of 0, 1 and 300 rows; the last is empty too."""
    table = randn(20, 1030, dtype=dtype, shift=0.5).requires_grad_()
    offsets, indices = long([0, 0, 1, 301, 310, 310]), integers(310, high=19)
    y = embedding_bag(table, indices, offsets, mode=mode)
    double = table.detach().double().requires_grad_()
    expected = embedding_bag_reference(double, indices, offsets, mode)
    assert_close(y.detach(), expected.detach())
    assert not y[[0, 4]].any()
    dy = randn(5, 1030, dtype=dtype, seed=2)
    y.backward(dy)
    expected.backward(dy.double())
    worst = {FP32: 1e-6, FP16: 1e-3, BF16: 8e-3}[dtype]  # of a mean, the gradient of an index is rounded before the sum
    assert (table.grad.double() - double.grad).norm() <= worst * double.grad.norm()


def test_empty_and_bad_arguments():
    table, indices = randn(5, 4), long([0, 1])
    assert embedding(table, indices[:0]).shape == (0, 4)
    assert not embedding_backward(randn(0, 4), indices[:0], 3).any()
    assert embedding_bag(table, indices[:0], long([0])).shape == (0, 4)
    for call, name in (
        (lambda: embedding(table[0], indices), "table"),
        (lambda: embedding(table, indices.float()), "indices"),
        (lambda: embedding(table, indices, backward="sort"), "backward"),
        (lambda: embedding_backward(randn(2, 4), indices, 5, "sort"), "method"),
        (lambda: embedding_bag(table, indices, long([0, 2]), mode="max"), "mode"),
        (lambda: embedding_bag(table, indices, long([0, 1])), "offsets"),
        (lambda: embedding_bag(table, indices, long([1, 2])), "offsets"),
        (lambda: embedding_bag(table, indices, long([0, 2, 1, 2])), "offsets"),
        (lambda: embedding_bag(table, indices, long([])), "offsets"),
        (lambda: embedding_bag(table, indices[None], long([0, 2])), "indices"),
        (lambda: embedding_bag(table[0], indices, long([0, 2])), "table"),
    ):
        with pytest.raises(ValueError, match=f"^{name}: "):
            call()
