import pytest
import torch

from instruments import backend
from instruments.backend import tl, triton
from kernels import codes as c
from kernels.formats import decode


@triton.jit
def values_kernel(codes_ptr, values_ptr, VALUE: tl.constexpr, COUNT: tl.constexpr):
    at = tl.arange(0, COUNT)
    tl.store(values_ptr + at, VALUE(tl.load(codes_ptr + at)).to(tl.float32))


@pytest.mark.parametrize("name, bits", [("e4m3", 8), ("e2m1", 4), ("e8m0", 8)])
def test_every_code_as_formats_has_it(name, bits):
    codes = torch.arange(256, dtype=torch.uint8, device=backend.device())
    values = torch.empty(256, device=backend.device())
    values_kernel[(1,)](codes, values, getattr(c, f"{name}_value"), 256)
    expected = decode(codes & ((1 << bits) - 1), name)
    assert torch.equal(values.nan_to_num(-1), expected.nan_to_num(-1))
    assert torch.equal(values.signbit(), expected.signbit()) or name == "e4m3"  # a NaN has no sign to keep
