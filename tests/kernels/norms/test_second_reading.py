"""RMSNorm's second reading, its variants against fp64 and against each other."""

import pytest

from instruments.meter import meter
from kernels.norms.ablation import RESIDENT, Variant, second_reading, variants
from kernels.norms.rmsnorm import rmsnorm, rmsnorm_reference, rmsnorm_traffic
from tests.kernels.tools import BF16, DTYPES, FP32, assert_close, assert_counts, randn


def inputs(rows, cols, dtype):
    return randn(rows, cols, dtype=dtype), randn(cols, dtype=dtype, seed=1)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("cols", [1, 1000, 4097])
def test_every_variant(cols, dtype):
    x, weight = inputs(2, cols, dtype)
    for name in (*variants(cols, x.itemsize), *RESIDENT):
        y = second_reading(x, weight, name)
        assert y.dtype == x.dtype and y.shape == x.shape
        assert_close(y, rmsnorm_reference(x.double(), weight.double(), 1e-6))


@pytest.mark.parametrize("cols", [8192, 32768])
def test_variants_differ_from_plain_or_from_all_in_one_thing(cols):
    table = variants(cols, 2)
    for name, variant in table.items():
        base = table["all" if name.startswith("all") else "plain"]
        changed = {field for field in Variant.__dataclass_fields__ if getattr(variant, field) != getattr(base, field)}
        assert len(changed) == (name not in ("plain", "all")) or changed == {"tile", "warps"}, name
    assert len(set(table.values())) == len(table)


@pytest.mark.parametrize("name, path", [("plain", "two_pass"), ("all", "streaming")])
def test_the_ends_are_rmsnorms_own_kernels(name, path):
    x, weight = inputs(2, 5000, FP32)
    assert second_reading(x, weight, name).equal(rmsnorm(x, weight, path=path))


def test_it_reads_each_row_twice():
    x, weight = inputs(4, 5000, BF16)
    assert_counts(
        meter(second_reading, x, weight, "backwards"), rmsnorm_traffic(4, 5000, BF16, "two_pass", cached=False)
    )


def test_bad_arguments_are_named():
    x, weight = inputs(2, 8, BF16)
    with pytest.raises(ValueError, match="variant: got 'forwards', expected one of: plain, backwards"):
        second_reading(x, weight, "forwards")
    with pytest.raises(ValueError, match="x: got shape .* expected contiguous"):
        second_reading(x.t(), weight)
