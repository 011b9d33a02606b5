import pytest
import torch

from instruments.compiled import compiled
from instruments.meter import meter
from kernels.toy.twice import BLOCK, twice, twice_reference, twice_traffic
from tests.kernels.tools import BF16, DEVICE, DTYPES, FP32, assert_counts, close, randn


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("size", [1, 17, BLOCK, BLOCK + 1])
def test_results_and_bytes(dtype, size):
    x = randn(size, dtype=dtype)
    report = meter(twice, x)
    close(report.result, twice_reference(x.double()))
    assert_counts(report, twice_traffic(size, dtype))


@pytest.mark.parametrize("shape", [(), (3, 4, 5), (3, 0)])
def test_shapes(shape):
    x = randn(*shape)
    assert torch.equal(twice(x), 2 * x)


def test_a_nan_stays_where_it_is():
    x = randn(BLOCK + 3)
    x[5] = float("nan")
    assert twice(x).isnan().nonzero().flatten().tolist() == [5]


@pytest.mark.parametrize(
    "x, message",
    [
        (torch.ones(2, dtype=torch.int64), "x: got dtype int64"),
        (torch.ones(2, 3, device=DEVICE).T, r"x: got strides \(1, 3\)"),
        (torch.ones(2, device=DEVICE, requires_grad=True), "x: got a tensor that requires a gradient"),
    ],
)
def test_bad_arguments_name_themselves(x, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        twice(x)


@pytest.mark.parametrize("arch", [80, 90, 100])
@pytest.mark.parametrize("dtype", [BF16, FP32], ids=str)
def test_compiled_without_spills(arch, dtype):
    (binary,) = compiled(twice, torch.ones(BLOCK, dtype=dtype, device=DEVICE), arch=arch)
    assert binary.spills == 0
