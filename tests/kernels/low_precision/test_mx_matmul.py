"""Products of block-scaled operands: the numbers, and the instruction that the compiler makes for Blackwell."""

import itertools

import pytest
import torch

from instruments.compiled import compiled
from instruments.meter import meter
from kernels.low_precision import mx as kernels
from kernels.low_precision.mx import mx_matmul, mx_matmul_reference, mx_matmul_traffic
from kernels.quantization.schemes import SCHEMES, empty, quantize_reference
from tests.kernels.tools import BF16, DEVICE, FP32, assert_close, assert_counts, randn

PAIRS = [("mxfp8", "mxfp8"), ("mxfp8", "mxfp4"), ("mxfp4", "mxfp8"), ("mxfp4", "mxfp4"), ("nvfp4", "nvfp4")]
PAIRS += [("bf16", scheme) for scheme in ("mxfp8", "mxfp4", "nvfp4")]
#: What the instruction is called in PTX, by pair.
KINDS = {
    ("mxfp8", "mxfp8"): "kind::mxf8f6f4.block_scale",
    ("mxfp8", "mxfp4"): "kind::mxf8f6f4.block_scale",
    ("mxfp4", "mxfp4"): "kind::mxf4.block_scale",
    ("nvfp4", "nvfp4"): "kind::mxf4nvf4.block_scale",
}


def operand(rows, cols, scheme, seed):
    """Rows and blocks of very different sizes."""
    x = randn(rows, cols, seed=seed)
    x *= torch.exp2(torch.arange(rows, device=DEVICE) % 5)[:, None]
    x *= torch.exp2(torch.arange(cols, device=DEVICE) // 16 * 3 % 7)
    return x.bfloat16() if scheme == "bf16" else quantize_reference(x, scheme)


def abstract(rows, cols, scheme):
    if scheme == "bf16":
        return torch.empty(rows, cols, dtype=BF16, device=DEVICE)
    return empty((rows, cols), SCHEMES[scheme], DEVICE)


@pytest.mark.parametrize("pair", PAIRS)
def test_ragged_sizes(pair):
    for M, N, K in ((1, 1, 2), (3, 5, 34), (65, 70, 200)):
        x, weight = operand(M, K, pair[0], 1), operand(N, K, pair[1], 2)
        for out_dtype in (BF16, FP32):
            assert_close(mx_matmul(x, weight, out_dtype=out_dtype), mx_matmul_reference(x, weight))


def test_scales_far_apart():
    """E8M0 reaches from 2^-127 to 2^127; products of such numbers are exact, and sums are of one size here."""
    x, weight = randn(4, 64, seed=1), randn(6, 64, seed=2)
    x, weight = x * 2.0**100, weight * 2.0**-90
    x, weight = quantize_reference(x, "mxfp4"), quantize_reference(weight, "mxfp8")
    assert_close(mx_matmul(x, weight, out_dtype=FP32), mx_matmul_reference(x, weight))


def test_leading_dimensions_and_nothing():
    x, weight = quantize_reference(randn(2, 3, 64), "mxfp8"), quantize_reference(randn(8, 64), "mxfp4")
    y = mx_matmul(x, weight)
    assert y.shape == (2, 3, 8)
    assert_close(y, mx_matmul_reference(x, weight))
    assert mx_matmul(randn(0, 64, dtype=BF16), weight).shape == (0, 8)


@pytest.mark.parametrize("pair", [("mxfp8", "mxfp4"), ("nvfp4", "nvfp4"), ("bf16", "mxfp4")])
def test_traffic_is_what_the_meter_counts(pair):
    M, N, K = 70, 33, 100
    schemes = [BF16 if scheme == "bf16" else scheme for scheme in pair]
    report = meter(mx_matmul, operand(M, K, pair[0], 1), operand(N, K, pair[1], 2))
    assert_counts(report, mx_matmul_traffic(M, N, K, *schemes, path="emulated"))
    once = mx_matmul_traffic(M, N, K, *schemes)
    assert (report.unique.read, report.unique.written) == (once.read, once.written)
    with pytest.raises(ValueError, match="^path: got 'native'"):
        mx_matmul_traffic(M, N, K, *schemes, path="native")


@pytest.mark.parametrize("pair", KINDS)
def test_blackwell_takes_the_scales_into_the_instruction(pair, monkeypatch):
    monkeypatch.setattr(kernels, "has_block_scales", lambda device: True)
    (kernel,) = compiled(mx_matmul, abstract(256, 512, pair[0]), abstract(256, 512, pair[1]), arch=100)
    assert kernel.matrix_instruction == "tcgen05" and kernel.spills == 0
    assert KINDS[pair] in kernel.ptx and "kind::f16" not in kernel.ptx


@pytest.mark.once
@pytest.mark.parametrize("arch, instruction", [(80, "mma.sync"), (90, "wgmma")])
def test_elsewhere_numbers_are_multiplied_in_bf16(arch, instruction):
    for pair in (("mxfp8", "mxfp4"), ("nvfp4", "nvfp4"), ("bf16", "mxfp4")):
        (kernel,) = compiled(mx_matmul, abstract(256, 512, pair[0]), abstract(256, 512, pair[1]), arch=arch)
        assert kernel.matrix_instruction == instruction and kernel.spills == 0


@pytest.mark.parametrize(
    "x, weight, options, message",
    [
        ("bf16", "fp8_row", {}, "weight: got scheme 'fp8_row', expected one of mxfp8, mxfp4, nvfp4"),
        ("nvfp4", "mxfp4", {}, "x: got scheme 'nvfp4', expected one of mxfp8, mxfp4"),
        ("mxfp8", "nvfp4", {}, "x: got scheme 'mxfp8', expected one of nvfp4"),
        ("bf16", "mxfp4", {"out_dtype": torch.float8_e4m3fn}, "out_dtype: got torch.float8_e4m3fn"),
    ],
)
def test_bad_arguments_are_named(x, weight, options, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        mx_matmul(operand(3, 64, x, 1), operand(4, 64, weight, 2), **options)


def test_bad_tensors_are_named():
    weight = operand(4, 64, "mxfp4", 2)
    for x, message in (
        (randn(3, 64), "x: got dtype float32"),
        (randn(3, 66, dtype=BF16), r"weight: got shape \(4, 64\), expected \(N, 66\)"),
        (randn(64, 3, dtype=BF16).T, "x: got strides"),
        (randn(3, 64, dtype=BF16).requires_grad_(), "x: got a tensor that requires a gradient"),
    ):
        with pytest.raises(ValueError, match=f"^{message}"):
            mx_matmul(x, weight)


def test_pairs_are_those_of_the_docstring():
    for x, weight in itertools.product(("mxfp8", "mxfp4", "nvfp4"), repeat=2):
        if (x, weight) not in PAIRS:
            with pytest.raises(ValueError, match="^x: got scheme"):
                mx_matmul(operand(1, 32, x, 1), operand(1, 32, weight, 2))
