"""The weight's gradient of a grouped matmul, whose sums are ragged."""

import pytest
import torch

from instruments.compiled import compiled
from instruments.meter import meter
from kernels.grouped_matmul.backward import (
    grouped_matmul_weight_gradient,
    grouped_matmul_weight_gradient_reference,
    grouped_matmul_weight_gradient_traffic,
)
from kernels.grouped_matmul.forward import grouped_matmul, grouped_matmul_reference
from kernels.grouped_matmul.persistent import SHARED
from tests.kernels.grouped_matmul.test_grouped_matmul import COUNTS, offsets_of
from tests.kernels.tools import BF16, DEVICE, DTYPES, FP32, assert_close, assert_counts, randn


def operands(counts, K, N, dtype=BF16, tokens=None):
    """x, dy, offsets, rows."""
    slots = sum(counts)
    rows = None if tokens is None else torch.arange(slots, device=DEVICE).int() % tokens
    x = randn(slots if tokens is None else tokens, K, dtype=dtype, seed=1)
    return x, randn(slots, N, dtype=dtype, seed=2), offsets_of(counts), rows


def check(x, dy, offsets, rows=None, path=None):
    dweight = grouped_matmul_weight_gradient(x, dy, offsets, rows=rows, path=path)
    assert_close(dweight, grouped_matmul_weight_gradient_reference(x.double(), dy.double(), offsets, rows=rows))
    return dweight


@pytest.mark.parametrize("counts", COUNTS)
@pytest.mark.parametrize("path, tokens", [("plain", None), ("plain", 40), ("persistent", None)])
def test_ragged_and_empty_groups(counts, path, tokens):
    """Groups without rows, whose gradient nothing but the kernel writes, are zero, and not what memory held."""
    dweight = check(*operands(counts, 136, 72, tokens=tokens), path=path)
    for group, count in enumerate(counts):
        assert count or not dweight[group].any()


@pytest.mark.parametrize("dtype", DTYPES)
def test_even_sizes_and_strides(dtype):
    x, dy, offsets, rows = operands(COUNTS[0], 128, 256, dtype, tokens=40)
    check(x, dy, offsets, rows)
    check(x.T.contiguous().T, dy.repeat_interleave(2, dim=1)[:, ::2], offsets, rows)


def test_it_is_what_autograd_gives():
    x, dy, offsets, _ = operands([3, 0, 20], 24, 40, FP32)
    weight = randn(3, 24, 40).requires_grad_()
    (expected,) = torch.autograd.grad(grouped_matmul_reference(x, weight, offsets), weight, dy)
    assert_close(grouped_matmul_weight_gradient(x, dy, offsets), expected.double())
    x, weight = x.requires_grad_(), weight.detach()
    (expected,) = torch.autograd.grad(grouped_matmul_reference(x, weight, offsets), x, dy)
    assert_close(grouped_matmul(dy, weight.mT, offsets), expected.double())


def test_rows_of_no_group_and_the_next_group_stay_out():
    x, dy, _, _ = operands([20, 30], 64, 64)
    x[41:], dy[41:] = torch.nan, torch.nan
    offsets = torch.tensor([0, 20, 41], dtype=torch.int32, device=DEVICE)
    for path in ("plain", "persistent"):
        assert check(x, dy, offsets, path=path).isfinite().all()
        x[19, 3] = torch.nan
        dweight = grouped_matmul_weight_gradient(x, dy, offsets, path=path)
        assert dweight[0, 3].isnan().all() and dweight.isnan().sum() == 64
        x[19, 3] = 0


@pytest.mark.parametrize("path, tokens", [("plain", None), ("plain", 40), ("persistent", None)])
def test_traffic_is_what_the_meter_counts(path, tokens):
    counts, K, N = COUNTS[0], 136, 152
    x, dy, offsets, rows = operands(counts, K, N, tokens=tokens)
    report = meter(grouped_matmul_weight_gradient, x, dy, offsets, rows=rows, path=path)
    assert_counts(report, grouped_matmul_weight_gradient_traffic(counts, K, N, BF16, path=path, tokens=tokens))
    once = grouped_matmul_weight_gradient_traffic(counts, K, N, BF16, tokens=tokens)
    assert (report.unique.read, report.unique.written) == (once.read, once.written)
    with pytest.raises(ValueError, match="^path: got 'naive'"):
        grouped_matmul_weight_gradient_traffic(counts, K, N, BF16, path="naive")


def test_empty():
    for counts, K, N in (([0, 0], 4, 4), ([2, 1], 0, 4), ([2, 1], 4, 0)):
        dweight = grouped_matmul_weight_gradient(*operands(counts, K, N)[:3])
        assert dweight.shape == (2, K, N) and not dweight.any()


@pytest.mark.parametrize("arch", [pytest.param(80, marks=pytest.mark.once), 90])
def test_nothing_is_spilled(arch):
    x, dy, offsets, rows = (torch.empty(s, dtype=BF16, device=DEVICE) for s in ((512, 2048), (512, 1408), (9,), (512,)))
    for index in (None, rows.int()):
        path = "persistent" if arch == 90 and index is None else "plain"
        (kernel,) = compiled(grouped_matmul_weight_gradient, x, dy, offsets.int(), rows=index, path=path, arch=arch)
        assert kernel.spills == 0 and kernel.shared <= SHARED
        assert kernel.matrix_instruction == {80: "mma.sync", 90: "wgmma"}[arch]


X, DY, BOUNDS = randn(4, 8), randn(4, 6), torch.tensor([0, 1, 4], dtype=torch.int32, device=DEVICE)


@pytest.mark.parametrize(
    "arguments, name",
    [
        ((X.double(), DY, BOUNDS), "x: got dtype float64"),
        ((X[0], DY, BOUNDS), "x: got 1 dimensions"),
        ((X, DY.half(), BOUNDS), "dy: got dtype float16"),
        ((X, DY[1:], BOUNDS), "dy: got 3 rows, expected 4"),
        ((X, DY, BOUNDS[None]), "offsets: got shape"),
        ((X, DY, BOUNDS.repeat_interleave(2)[::2]), "offsets: got strides"),
        ((X, DY, BOUNDS.long()), "offsets: got dtype int64"),
    ],
)
def test_bad_arguments_are_named(arguments, name):
    with pytest.raises(ValueError, match=f"^{name}"):
        grouped_matmul_weight_gradient(*arguments)


def test_bad_options_are_named():
    with pytest.raises(ValueError, match="^rows: got dtype float32"):
        grouped_matmul_weight_gradient(X, DY, BOUNDS, rows=X)
    for path in ("persistent", "padded"):
        with pytest.raises(ValueError, match=f"^path: got '{path}' for torch.float32"):
            grouped_matmul_weight_gradient(X, DY, BOUNDS, path=path)
