"""Sectors, by hand and from kernels that nobody changed."""

import numpy as np
import pytest
import torch

from instruments import backend
from instruments.backend import tl, triton
from instruments.meter import meter
from instruments.sectors import Requests, bank_passes, request, sectors, touched

pytestmark = pytest.mark.each  # every set takes milliseconds, and most say something of their own


@triton.jit
def strided_kernel(x_ptr, y_ptr, size, stride, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < size
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets * stride, mask=mask), mask=mask)


@triton.jit
def tile_kernel(x_ptr, y_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(y_ptr + i[None, :] * N + i[:, None], tl.load(x_ptr + i[:, None] * N + i[None, :]))


def strided(x, size, stride):
    y = torch.empty(size, dtype=x.dtype)
    strided_kernel[(triton.cdiv(size, 128),)](x, y, size, stride, 128)
    return y


@pytest.mark.parametrize(
    "first, stride, size, expected",
    [
        (0, 1, 4, 4),
        (4, 1, 4, 5),
        (0, 2, 4, 8),
        (0, 8, 4, 32),
        (0, 0, 4, 1),
        (0, 1, 2, 2),
        (16, 1, 2, 3),
        (0, 16, 2, 32),
        (0, 1, 1, 1),
        (31, 1, 1, 2),
    ],
)
def test_by_hand(first, stride, size, expected):
    assert touched(first + np.arange(32) * stride * size, size).size == expected


def test_an_element_may_lie_in_two_sectors():
    assert touched([30], 4).tolist() == [0, 1]
    assert touched([], 4).size == 0


def test_shares():
    assert request(np.arange(32) * 4, 4) == Requests(1, 4, 128)
    assert request(np.arange(40) * 4, 4) == Requests(2, 5, 160)
    assert request(np.zeros(32), 4).share == 1 / 8, "a broadcast wants its four bytes once"
    assert request([], 4) == Requests() and Requests().share == 0
    assert str(request(np.arange(32) * 8, 4)) == "1 requests, 8.00 sectors each, 50% of their bytes useful"


@pytest.mark.skipif(backend.mode() == "unavailable", reason="needs triton")
@pytest.mark.parametrize("stride, per_request", [(1, 4), (2, 8), (8, 32)])
def test_of_a_kernel(stride, per_request):
    found = sectors(strided, torch.randn(256 * stride), 256, stride)
    assert found["x"]["read"].per_request == per_request and found["x"]["read"].requests == 8
    assert found["y"]["write"].per_request == 4
    assert meter(strided, torch.randn(256 * stride), 256, stride)["x"].sectors_read == 8 * per_request


@pytest.mark.skipif(backend.mode() == "unavailable", reason="needs triton")
def test_where_a_tensor_starts_counts():
    x = torch.randn(300)
    assert sectors(strided, x[1:], 256, 1)["x"]["read"].per_request == 5
    assert meter(strided, x[8:], 128, 1)["x"].sectors_read == 16
    assert meter(strided, x[1:], 128, 1)["x"].sectors_read == 17


@pytest.mark.skipif(backend.mode() == "unavailable", reason="needs triton")
def test_the_meter_takes_a_tile_as_one():
    x, y = torch.randn(32, 32), torch.empty(32, 32)
    report = meter(lambda: tile_kernel[(1,)](x, y, 32))
    assert report["x"].sectors_read == report["y"].sectors_written == 128
    assert sectors(lambda: tile_kernel[(1,)](x, y, 32))["y"]["write"].per_request == 32


@pytest.mark.parametrize("words, passes", [(1, 1), (2, 2), (32, 32), (33, 1), (3, 1), (0, 1), (16, 16), (36, 4)])
def test_banks(words, passes):
    assert bank_passes(np.arange(32) * words * 4) == passes
