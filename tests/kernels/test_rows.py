"""How rows are tiled."""

import pytest
import torch

from instruments.meter import meter
from kernels import rows as module
from kernels.rows import (
    MAX_COLS_BACKWARD,
    NARROW_TILE,
    PATHS,
    as_rows,
    backward_plan,
    forward_counts,
    forward_plan,
    sum_partials,
    wide_plan,
)
from tests.kernels.tools import BF16, DEVICE, DTYPES, FP32, assert_close, randn


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_forward_plan_holds_its_row(dtype):
    for cols in (1, 2, 255, 256, 257, 511, 512, 1000, 4096, 4097, 8192, 8193, 16_384, 32_768, 32_769, 1 << 20):
        path, config = forward_plan(cols, dtype, 1 << 14)
        block = config["BLOCK"]
        assert block & (block - 1) == 0 and 1 <= config["num_warps"] <= 32
        assert path in PATHS
        if path in ("narrow", "resident"):
            assert cols <= block < max(2, 2 * cols)
        if path == "narrow":
            assert config["ROWS"] * block == NARROW_TILE


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("count", [1, 2, 7, 100_000])
def test_every_backward_plan_covers_rows_and_columns(dtype, count):
    for cols in (1, 100, 1024, 4097, 8192):
        programs, config = backward_plan(count, cols, dtype, tensors=3)
        assert 1 <= programs <= count and config["BLOCK"] >= cols and config["STAGES"] >= 1
    for cols in (8193, 20_000, MAX_COLS_BACKWARD):
        (blocks, groups), config = wide_plan(count, cols)
        assert (blocks - 1) * config["BLOCK"] < cols <= blocks * config["BLOCK"]
        assert 1 <= groups <= count


def test_prefetched_rows_fit_the_shared_memory(monkeypatch):
    for shared in (64 * 1024, 100 * 1024, 164 * 1024, 228 * 1024):
        monkeypatch.setattr(module, "_multiprocessor", lambda: (132, shared))
        for dtype in DTYPES:
            for cols in (64, 300, 1024, 2048, 4096, 8192):
                for tensors in (2, 3):
                    backward_plan.cache_clear()
                    _, config = backward_plan(1000, cols, dtype, tensors)
                    stages = config["STAGES"]
                    assert stages == 1 or stages * tensors * config["BLOCK"] * dtype.itemsize <= shared
    backward_plan.cache_clear()


def test_as_rows_copies_only_where_it_must():
    x = randn(4, 3, 8)
    views = [x, x[:, :1], x[::2, 0], x[0], x[0, 0], x[:1].expand(5, -1, -1)[:, 0], x.permute(0, 2, 1)[0]]
    for view in views:
        rows = as_rows(view)
        assert rows.dim() == 2 and rows.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
        assert torch.equal(rows, view.reshape(-1, view.shape[-1]))
    permuted = as_rows(x.permute(1, 0, 2))
    assert permuted.untyped_storage().data_ptr() != x.untyped_storage().data_ptr()
    assert torch.equal(permuted, x.permute(1, 0, 2).reshape(-1, 8))


def test_rows_that_32_bit_offsets_cannot_reach_are_copied():

    class FarApart:  # three columns, 2^30 elements from each to the next
        shape = (1, 3)
        stride = staticmethod(lambda dim: 1 << 30)
        contiguous = staticmethod(lambda: torch.ones(1, 3))

    assert as_rows(FarApart()).stride() == (3, 1)


def test_forward_counts():
    assert forward_counts(41, 100, "narrow") == (1, -(-41 // (NARROW_TILE // 128)))
    assert forward_counts(3, 1, "narrow") == (1, 1)
    assert forward_counts(41, 1000, "resident") == (1, 41)
    assert forward_counts(41, 1000, "two_pass") == forward_counts(41, 1000, "streaming") == (2, 41)
    with pytest.raises(ValueError, match="path: got 'wide', expected one of narrow, resident, streaming, two_pass"):
        forward_counts(1, 1, "wide")


@pytest.mark.parametrize("count", [1, 3, 31, 32, 33, 100])
@pytest.mark.parametrize("cols", [1, 63, 64, 65, 1000])
def test_sum_partials(count, cols):
    partial = randn(count, cols)
    for dtype in (FP32, BF16):
        total = torch.full((cols,), float("nan"), dtype=dtype, device=DEVICE)
        assert meter(sum_partials, partial, total).clean
        assert_close(total, partial.double().sum(0), floor=partial.double().norm(dim=0))


def test_sum_partials_of_strided_outputs_is_not_needed():
    assert torch.zeros_like(torch.ones(8)[::2]).is_contiguous()  # what the backwards rely on for dweight
