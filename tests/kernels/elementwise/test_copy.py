import pytest
import torch

from instruments.compiled import compiled
from instruments.meter import meter
from kernels.elementwise.copy import BLOCK, copy, copy_reference, copy_traffic
from tests.kernels.tools import BF16, DEVICE, DTYPES, FP16, FP32, randn


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("size", [1, 17, 1009, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 5])
def test_every_bit_is_copied_and_counted(dtype, size):
    x = randn(size, dtype=dtype)
    x[::5] = float("nan")
    x[::7] = -0.0
    report = meter(copy, x)
    bits = torch.int16 if dtype.itemsize == 2 else torch.int32
    assert torch.equal(report.result.view(bits), copy_reference(x).view(bits))
    assert report.result.data_ptr() != x.data_ptr() and report.clean
    model = copy_traffic(size, dtype)
    for counted in (report.traffic, report.unique):
        assert (counted.read, counted.written, counted.launches) == (model.read, model.written, model.launches)
    assert model.bytes == 2 * size * dtype.itemsize


@pytest.mark.parametrize("shape", [(), (3, 4, 5), (0,), (3, 0)])
def test_shapes(shape):
    x = randn(*shape)
    assert copy(x).shape == shape and torch.equal(copy(x), x)


def test_an_offset_that_is_not_aligned():
    x = randn(100, dtype=FP16)[3:]
    assert torch.equal(copy(x), x)


@pytest.mark.parametrize(
    "x, message",
    [
        (None, "x: got NoneType, expected a torch.Tensor"),
        (torch.ones(2, dtype=torch.int64), "x: got dtype int64, expected one of float32, bfloat16, float16"),
        (
            torch.ones(2, 3, device=DEVICE).T,
            r"x: got strides \(1, 3\) for shape \(3, 2\), expected a contiguous tensor",
        ),
    ],
)
def test_bad_arguments_name_themselves(x, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        copy(x)


@pytest.mark.parametrize("arch", [80, 90, 100])
@pytest.mark.parametrize(
    "size, dtype, width", [(BLOCK, BF16, 128), (BLOCK, FP32, 128), (1000, BF16, 16), (1, FP32, 32)]
)
def test_compiled_without_spills_and_as_wide_as_the_size_allows(arch, size, dtype, width):
    (binary,) = compiled(copy, torch.ones(size, dtype=dtype, device=DEVICE), arch=arch)
    assert binary.spills == 0 and set(binary.loads) == set(binary.stores) == {width}
