"""Tensors as they travel: what NumPy lacks is rounded and decoded as torch does it."""

import numpy as np
import pytest
import torch

from grading.child import DTYPES
from grading.tasks import tensor
from grading.tasks.arrays import LARGEST, decode, encode


def test_bf16_rounds_as_torch_does():
    random = [np.random.default_rng(0).normal(0, 10.0**k, 1000) for k in range(-30, 30, 6)]
    values = np.concatenate([*random, [0.0, -0.0, np.inf, -np.inf, np.nan, 3.4e38]]).astype(np.float32)
    by_torch = torch.from_numpy(values).bfloat16().view(torch.int16).numpy().view(np.uint16)
    numbers = ~np.isnan(values)
    np.testing.assert_array_equal(encode(values, "bf16")[numbers], by_torch[numbers])
    assert np.isnan(decode(encode(values, "bf16"), "bf16")[~numbers]).all()


@pytest.mark.parametrize("dtype", LARGEST)
def test_eight_bits_are_torchs(dtype):
    codes = np.arange(256, dtype=np.uint8)
    values = torch.from_numpy(codes).view(DTYPES[dtype]).double().numpy()
    np.testing.assert_array_equal(decode(codes, dtype), values)
    finite = np.isfinite(values)
    np.testing.assert_array_equal(encode(values[finite], dtype), codes[finite])
    ordered = np.unique(values[finite])
    near = np.concatenate([ordered, (ordered[1:] + ordered[:-1]) / 2, np.random.default_rng(0).normal(0, 30, 5000)])
    near = np.concatenate([near, np.nextafter(near.astype(np.float32), np.float32(np.inf))]).astype(np.float32)
    near = near[np.abs(near) < ordered[-1]]
    by_torch = torch.from_numpy(near).to(DTYPES[dtype]).view(torch.uint8).numpy()
    np.testing.assert_array_equal(encode(near, dtype), by_torch)


def test_what_is_too_large_saturates_and_nan_stays():
    assert decode(encode([1e9, -1e9, np.inf], "e4m3"), "e4m3").tolist() == [448, -448, 448]
    assert decode(encode([1e9], "e5m2"), "e5m2").tolist() == [57344] and np.isnan(tensor([np.nan], "e5m2").values).all()


def test_a_strided_tensor_shows_its_values_and_poisons_its_padding():
    t = tensor(np.arange(6.0).reshape(2, 3), "fp32", row_stride=5)
    assert np.array_equal(t.values, [[0, 1, 2], [3, 4, 5]]) and np.isnan(t.storage).sum() == 4
    assert (t.nbytes, t.itemsize) == (24, 4)
    with pytest.raises(ValueError, match="row_stride"):
        tensor(np.zeros((2, 3)), "fp32", row_stride=2)
