"""Tensors of dtypes that NumPy lacks: code by code what torch has."""

import numpy as np
import pytest
import torch

from grading import probe
from grading.arrays import EIGHT_BITS, decode, encode, tensor


@pytest.mark.parametrize("dtype", EIGHT_BITS)
def test_eight_bits_are_torchs(dtype):
    codes = np.arange(256, dtype=np.uint8)
    values = torch.from_numpy(codes).view(probe.DTYPES[dtype]).double().numpy()
    np.testing.assert_array_equal(decode(codes, dtype), values)
    finite = np.isfinite(values)
    np.testing.assert_array_equal(encode(values[finite], dtype), codes[finite])
    ordered = np.unique(values[finite])
    near = np.concatenate([ordered, (ordered[1:] + ordered[:-1]) / 2, np.random.default_rng(0).normal(0, 30, 5000)])
    near = np.concatenate([near, np.nextafter(near.astype(np.float32), np.float32(np.inf))]).astype(np.float32)
    near = near[np.abs(near) < ordered[-1]]
    by_torch = torch.from_numpy(near).to(probe.DTYPES[dtype]).view(torch.uint8).numpy()
    np.testing.assert_array_equal(encode(near, dtype), by_torch)


def test_what_is_too_large_saturates_and_nan_stays():
    assert decode(encode([1e9, -1e9, np.inf], "e4m3"), "e4m3").tolist() == [448, -448, 448]
    assert decode(encode([1e9], "e5m2"), "e5m2").tolist() == [57344] and np.isnan(tensor([np.nan], "e5m2").values).all()
