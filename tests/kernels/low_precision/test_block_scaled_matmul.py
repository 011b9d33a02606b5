"""FP8 products with scales for blocks: the plain kernel, and what is refused. Its traffic: test_scaled_matmul.py."""

import pytest
import torch

from instruments.compiled import compiled
from kernels.low_precision import block_scaled as kernels
from kernels.low_precision.block_scaled import (
    block_scaled_matmul,
    block_scaled_matmul_reference,
    block_scaled_matmul_traffic,
)
from kernels.low_precision.scaled import scaled_matmul_traffic
from kernels.quantization.schemes import SCHEMES, empty, quantize_reference
from tests.kernels.low_precision.test_scaled_matmul import plan
from tests.kernels.tools import BF16, DEVICE, FP32, assert_close, randn, worst_row


def operands(M, N, K, spread=0):
    """x and weight whose blocks differ by up to 2**spread in size, both ways along K and along rows."""
    x, weight = randn(M, K, seed=1), randn(N, K, seed=2)
    k, m, n = (torch.arange(size, device=DEVICE) // 128 for size in (K, M, N))
    x *= torch.exp2((k[None, :] * 5 + torch.arange(M, device=DEVICE)[:, None]) % 7 * spread / 6)
    weight *= torch.exp2((k[None, :] * 3 + n[:, None]) % 5 * spread / 4)
    return quantize_reference(x, "fp8_1x128"), quantize_reference(weight, "fp8_128x128")


@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 5, 7), (65, 130, 200), (130, 257, 300), (16, 128, 128)])
def test_ragged_sizes(shape):
    x, weight = operands(*shape, spread=6)
    for path in (None, "plain"):
        assert_close(block_scaled_matmul(x, weight, path=path), block_scaled_matmul_reference(x, weight))


def test_a_scale_meets_its_own_block():
    """Where one block of K outweighs the rest by far, its neighbour's scale is far off."""
    x, weight = randn(140, 520, seed=1), randn(300, 520, seed=2)
    for block in range(5):
        for tensor, rows in ((x, 140), (weight, 300)):
            tensor[rows // 2 :, block * 128 : (block + 1) * 128] *= 2.0 ** (block * 3 % 5 * 4)
    x, weight = quantize_reference(x, "fp8_1x128"), quantize_reference(weight, "fp8_128x128")
    assert_close(block_scaled_matmul(x, weight), block_scaled_matmul_reference(x, weight))


def test_blocks_hold_an_outlier_back():
    """One outlier a row: with a scale for each block its neighbours keep their digits, with one for the tensor not."""
    x, weight = randn(64, 1024, seed=1), randn(64, 1024, seed=2)
    x[:, 5] = 3e5
    weight[:, 5] = 0
    exact = x.double() @ weight.double().T

    def error(x_scheme, weight_scheme):
        return worst_row(
            block_scaled_matmul_reference(quantize_reference(x, x_scheme), quantize_reference(weight, weight_scheme)),
            exact,
        )

    assert error("fp8_1x128", "fp8_128x128") < 0.5 * error("fp8_tensor", "fp8_tensor")


def test_empty_and_leading_dimensions():
    weight = quantize_reference(randn(20, 130), "fp8_128x128")
    assert block_scaled_matmul(quantize_reference(randn(0, 130), "fp8_1x128"), weight).shape == (0, 20)
    x = quantize_reference(randn(2, 3, 130), "fp8_1x128")
    y = block_scaled_matmul(x, weight)
    assert y.shape == (2, 3, 20)
    assert_close(y, block_scaled_matmul_reference(x, weight))


def test_traffic_is_that_of_its_schemes():
    assert block_scaled_matmul_traffic(256, 384, 512) == scaled_matmul_traffic(
        256, 384, 512, "fp8_1x128", "fp8_128x128", BF16
    )
    assert block_scaled_matmul_traffic(256, 384, 512).read["weight_scale"] == 3 * 4 * 4


@pytest.mark.parametrize(
    "arch, instruction",
    [
        pytest.param(80, "mma.sync", marks=pytest.mark.once),
        pytest.param(89, "mma.sync (fp8)", marks=pytest.mark.once),
        (90, "wgmma (fp8)"),
        pytest.param(100, "tcgen05", marks=pytest.mark.once),
    ],
)
def test_the_matrix_instruction_of_each_generation(arch, instruction, monkeypatch):
    monkeypatch.setattr(kernels, "plan_of", lambda device: plan(arch))
    x = empty((256, 512), SCHEMES["fp8_1x128"], DEVICE)
    weight = empty((256, 512), SCHEMES["fp8_128x128"], DEVICE)
    (kernel,) = compiled(block_scaled_matmul, x, weight, path="plain", arch=arch)
    assert kernel.matrix_instruction == instruction and kernel.spills == 0


def test_without_fp8_results_stay(monkeypatch):
    monkeypatch.setattr(kernels, "plan_of", lambda device: plan(80))
    x, weight = operands(70, 140, 300, spread=6)
    y = block_scaled_matmul(x, weight, path="plain", out_dtype=FP32)
    assert_close(y, block_scaled_matmul_reference(x, weight))


@pytest.mark.parametrize(
    "x_scheme, weight_scheme, options, message",
    [
        ("fp8_row", "fp8_128x128", {}, "x: got scheme 'fp8_row', expected one of fp8_1x128"),
        ("fp8_1x128", "fp8_1x128", {}, "weight: got scheme 'fp8_1x128', expected one of fp8_128x128"),
        ("fp8_1x128", "fp8_128x128", {"path": "fast"}, "path: got 'fast'"),
        ("fp8_1x128", "fp8_128x128", {"out_dtype": torch.int8}, "out_dtype: got torch.int8"),
    ],
)
def test_bad_arguments_are_named(x_scheme, weight_scheme, options, message):
    x, weight = quantize_reference(randn(3, 130), x_scheme), quantize_reference(randn(4, 130), weight_scheme)
    with pytest.raises(ValueError, match=f"^{message}"):
        block_scaled_matmul(x, weight, **options)
