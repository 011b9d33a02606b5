"""The schemes of quantization in plain PyTorch, against a computation of single blocks in fp64 and NumPy's fp32."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from kernels.quantization.formats import FORMATS, pack_fp4, unpack_fp4, values
from kernels.quantization.schemes import (
    INTEGERS,
    SCHEMES,
    SMALLEST_SCALE,
    Scheme,
    dequantize_reference,
    quantize_reference,
    scale_values,
)
from tests.kernels.tools import randn

NAMES = list(SCHEMES)
ALL = [*SCHEMES.values(), *(replace(SCHEMES[name], scale_rounding="up") for name in ("mxfp8", "mxfp4"))]
RAGGED = (150, 300)


def heavy(*shape, seed=0) -> torch.Tensor:
    """Values of very different size, a few of them large."""
    return randn(*shape, seed=seed).cpu() * randn(*shape, seed=seed + 1).cpu().mul(2).exp()


def grid_of(scheme: Scheme) -> torch.Tensor:
    """Every value that a code may have."""
    top = INTEGERS.get(scheme.format)
    return torch.arange(-top, top + 1).double() if top else values(scheme.format).double()


def codes_as_values(q) -> torch.Tensor:
    codes = unpack_fp4(q.codes) if q.scheme.bits == 4 else q.codes
    if q.scheme.format == "e2m1":
        return torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6])[codes.long()]
    if q.scheme.format == "int4":
        return torch.where(codes < 8, codes.int(), codes.int() - 16).float()
    return codes.float()


def expected_scale(amax: np.float32, scheme: Scheme) -> float:
    """The scale of one block before E4M3 has rounded it, from the rule as it is written."""
    if scheme.scale_format != "e8m0":
        return float(amax * np.float32(1 / scheme.largest))
    if scheme.scale_rounding == "up":
        return 2.0 ** math.ceil(math.log2(float(amax) / scheme.largest))
    return 2.0 ** (math.floor(math.log2(float(amax))) - math.floor(math.log2(scheme.largest)))


@pytest.mark.parametrize("scheme", ALL, ids=lambda s: f"{s.name} {s.scale_rounding}")
def test_each_block_has_its_scale_and_the_nearest_codes(scheme):
    x = heavy(*RAGGED)
    q = quantize_reference(x, scheme)
    assert q.codes.dtype == scheme.code_dtype and q.scales.dtype == scheme.scale_dtype and q.shape == RAGGED
    assert (q.tensor_scale is None) == (scheme.name != "nvfp4")
    worth, stored = codes_as_values(q), scale_values(q.scales, None, scheme)
    tensor_scale = np.float32(1)
    if scheme.name == "nvfp4":
        tensor_scale = np.float32(q.tensor_scale.item())
        assert tensor_scale == x.abs().max().numpy() * np.float32(1 / 2688)
    rows, cols = scheme.block[0] or RAGGED[0], scheme.block[1] or RAGGED[1]
    grid = grid_of(scheme)
    for i in range(0, RAGGED[0], max(rows, 25)):  # some rows of the narrow blocks
        for j in range(0, RAGGED[1], cols):
            block = x[i : i + rows, j : j + cols]
            scale, wanted = stored[i // rows, j // cols].item(), expected_scale(block.abs().max().numpy(), scheme)
            if scheme.name == "nvfp4":
                ratio = np.float32(wanted) * (np.float32(1) / tensor_scale)
                wanted = torch.tensor(ratio).clamp(min=2**-9).to(torch.float8_e4m3fn).item()
            assert scale == wanted
            scaled = block * (np.float32(1) / (np.float32(scale) * tensor_scale)).item()
            scaled = scaled.double().clamp(-scheme.largest, scheme.largest)[..., None]
            nearest = (grid - scaled).abs().amin(-1)
            assert torch.equal((worth[i : i + rows, j : j + cols].double() - scaled[..., 0]).abs(), nearest)
    assert torch.equal(dequantize_reference(q).double().isfinite(), torch.ones(RAGGED, dtype=torch.bool))


@pytest.mark.parametrize("name, most", list(zip(NAMES, (0.05, 0.04, 0.04, 0.05, 0.06, 0.2, 0.12, 0.02, 0.01, 0.15))))
def test_errors_of_normal_numbers(name, most):
    """A wrong axis, a scale applied twice or swapped nibbles cost much more than rounding does."""
    x = randn(256, 512).cpu() * torch.logspace(-3, 2, 256)[:, None]
    q = quantize_reference(x, name)
    error = (dequantize_reference(q) - x).norm(dim=1) / x.norm(dim=1)
    assert error[-1] < most
    if name not in ("fp8_tensor", "fp8_128x128", "nvfp4"):  # elsewhere small rows have scales of their own
        assert error.max() < most
    elif name == "fp8_tensor":
        assert error[0] > 2 * most


def test_mx_scales_round_down_by_the_standard_and_saturate_or_up():
    x = torch.zeros(4, 32)
    x[:, 0] = torch.tensor([6.0, 7.9, 4.0, 8.0])
    x[:, 1] = 0.5
    down = quantize_reference(x, "mxfp4")
    up = quantize_reference(x, replace(SCHEMES["mxfp4"], scale_rounding="up"))
    assert (down.scales[:, 0].int() - 127).tolist() == [0, 0, 0, 1]
    assert (up.scales[:, 0].int() - 127).tolist() == [0, 1, 0, 1]
    assert dequantize_reference(down)[:, :2].tolist() == [[6, 0.5], [6, 0.5], [4, 0.5], [8, 0]]
    assert dequantize_reference(up)[:, :2].tolist() == [[6, 0.5], [8, 0], [4, 0.5], [8, 0]]
    y = torch.zeros(3, 32)
    y[:, 0] = torch.tensor([448.0, 449.0, 512.0])
    assert (quantize_reference(y, "mxfp8").scales[:, 0].int() - 127).tolist() == [0, 0, 1]
    up = quantize_reference(y, replace(SCHEMES["mxfp8"], scale_rounding="up"))
    assert (up.scales[:, 0].int() - 127).tolist() == [0, 1, 1]


@pytest.mark.parametrize("name", NAMES)
def test_zeros_are_zeros_and_no_scale_is(name):
    x = torch.zeros(3, 256)
    x[1] = randn(256).cpu()
    for each in (x, torch.zeros(3, 256), -torch.zeros(3, 256)):
        q = quantize_reference(each, name)
        y = dequantize_reference(q)
        assert (y[0] == 0).all() and (y[2] == 0).all() and y.isfinite().all()
        assert (scale_values(q.scales, q.tensor_scale, q.scheme) >= SMALLEST_SCALE * 2**-9 / 2).all()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_shares_a_scale_with_a_nan_or_an_infinity_is_nan(name, bad):
    x = randn(140, 270).cpu()
    x[1, 200] = bad
    scheme = SCHEMES[name]
    y = dequantize_reference(quantize_reference(x, scheme))
    rows, cols = scheme.block_of(*x.shape)
    spoilt = torch.ones_like(x, dtype=torch.bool)
    if name != "nvfp4":  # there all share the tensor's scale
        row, col = torch.arange(140)[:, None], torch.arange(270)[None]
        spoilt = (row // rows == 1 // rows) & (col // cols == 200 // cols)
    assert torch.equal(y.isnan(), spoilt)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("size", [3e38, 1e30, 1e-30, 2e-38, 1e-44])
def test_the_ends_of_fp32(name, size):
    x = torch.full((2, 128), size)
    y = dequantize_reference(quantize_reference(x, name))
    assert y.isfinite().all()
    if size > 1e-33:  # below, SMALLEST_SCALE keeps a scale from following
        assert ((y - x).abs() <= 0.26 * size).all()
    assert (y <= size * 1.2 + 1e-36).all()


def test_a_block_of_nvfp4_far_below_the_tensor_keeps_the_smallest_scale():
    x = torch.zeros(1, 32)
    x[0, 0], x[0, 16], x[0, 17] = 2688.0, 6 * 2.0**-9, 2.0**-12
    q = quantize_reference(x, "nvfp4")
    assert q.tensor_scale == 1 and q.scales.float().tolist() == [[448, 2**-9]]
    assert dequantize_reference(q)[0, [0, 16, 17]].tolist() == [2688, 6 * 2**-9, 0]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("shape", [(1, 2), (3, 62), (2, 3, 130), (5, 256), (129, 258), (0, 8), (4, 0), (6,)])
def test_shapes_and_bytes(name, shape):
    x = heavy(*shape)
    q = quantize_reference(x, name)
    cols, rows = shape[-1], math.prod(shape[:-1])
    stored = {"codes": q.codes, "scales": q.scales, "tensor_scale": q.tensor_scale}
    assert {n: t.numel() * t.itemsize for n, t in stored.items() if t is not None} == q.scheme.nbytes(rows, cols)
    assert q.codes.shape == (rows, cols // 2 if q.scheme.bits == 4 else cols)
    assert dequantize_reference(q).shape == shape


def test_the_even_column_lies_in_the_low_nibble_and_negative_int4_in_twos_complement():
    x = torch.zeros(1, 128)
    x[0, :4] = torch.tensor([7.0, -7.0, -1.0, 2.0])
    assert quantize_reference(x, "int4_g128").codes[0, :2].tolist() == [0x97, 0x2F]
    x[0, :4] = torch.tensor([6.0, -0.5, 1.0, 4.0])
    assert quantize_reference(x, "mxfp4").codes[0, :2].tolist() == [0x97, 0x62]
    assert torch.equal(quantize_reference(x, "nvfp4").codes, pack_fp4(torch.tensor([[7, 9, 2, 6] + [0] * 124])))


def test_16_bit_inputs_are_the_fp32_numbers_they_are():
    x = randn(4, 256, dtype=torch.bfloat16).cpu()
    a, b = quantize_reference(x, "mxfp4"), quantize_reference(x.float(), "mxfp4")
    assert torch.equal(a.codes, b.codes) and torch.equal(a.scales, b.scales)


def test_bits_per_value_in_the_docstrings_table():
    import kernels.quantization.schemes as module

    lines = {line.split()[0]: line.split()[-1] for line in module.__doc__.splitlines() if line.startswith("    ")}
    for name, scheme in SCHEMES.items():
        bits = 8 * sum(scheme.nbytes(1 << 14, 1 << 14).values()) / (1 << 28)
        assert float(lines[name]) == pytest.approx(bits, abs=3e-3)


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: quantize_reference(torch.zeros(2, 3), "mxfp4"), r"x: got 3 columns, expected an even number: mxfp4"),
        (lambda: quantize_reference(torch.tensor(1.0), "fp8_row"), "x: got a scalar"),
        (lambda: quantize_reference(torch.zeros(2, 4), "fp6"), "scheme: got 'fp6', expected a Scheme or one of fp8_"),
        (lambda: Scheme("x", "e2m1", (1, 32), "e8m0", "down"), "scale_rounding: got 'down', expected floor or up"),
    ],
)
def test_bad_arguments_name_themselves(call, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        call()


def test_formats_are_known():
    assert {s.format for s in SCHEMES.values()} <= {*FORMATS, *INTEGERS}
