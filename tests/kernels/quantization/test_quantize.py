"""Quantize and dequantize: bit by bit the reference's, at minimum traffic."""

import math
import re
import sys
from dataclasses import replace

import pytest
import torch

from instruments import backend
from instruments.compiled import compiled
from instruments.meter import meter
from kernels.quantization.codes import has_fp8
from kernels.quantization.dequantize import dequantize, dequantize_traffic
from kernels.quantization.formats import decode, encode
from kernels.quantization.quantize import granularity, quantize, quantize_ops, quantize_traffic
from kernels.quantization.schemes import SCHEMES, Scheme, codes_of, dequantize_reference, fp32_scale, quantize_reference
from kernels.shared.rows import RESIDENT_COLS
from tests.kernels.tools import BF16, DEVICE, DTYPES, FP16, FP32, LAYOUTS, SPILLS, assert_counts, randn

NAMES = list(SCHEMES)
ALL = [*SCHEMES.values(), *(replace(SCHEMES[name], scale_rounding="up") for name in ("mxfp8", "mxfp4"))]
OF_TENSOR = ("fp8_tensor", "nvfp4")


def heavy(*shape, dtype=BF16, seed=0) -> torch.Tensor:
    """Values of very different size, of either sign, zeros among them."""
    x = randn(*shape, seed=seed) * randn(*shape, seed=seed + 1).mul(2).exp()
    x[..., ::7] = 0
    return x.clamp(-6e4, 6e4).to(dtype)


def same(a: torch.Tensor | None, b: torch.Tensor | None) -> bool:
    """Bit by bit, the sign of zero included; one NaN is like the other."""
    if a is None or b is None:
        return a is b
    assert a.dtype == b.dtype and a.shape == b.shape
    nan = a.isnan() if a.is_floating_point() else torch.zeros_like(a, dtype=torch.bool)
    bits = {1: torch.uint8, 2: torch.int16, 4: torch.int32}[a.itemsize]
    wrong = a.view(bits) != b.view(bits)
    return not (wrong & ~(nan & b.isnan() if nan.any() else nan)).any()


def check(x, scheme, **given):
    """x quantized is the reference's, unless a scale is given, and back; returned."""
    q, r = quantize(x, scheme, **given), quantize_reference(x, scheme)
    if not given:
        assert same(q.codes, r.codes) and same(q.scales, r.scales) and same(q.tensor_scale, r.tensor_scale)
    assert q.shape == x.shape and q.scheme == r.scheme
    expected = dequantize_reference(q)
    for dtype in (FP32, BF16):
        assert same(dequantize(q, dtype), expected.to(dtype))
    return q


@pytest.mark.parametrize("scheme", ALL, ids=lambda s: f"{s.name} {s.scale_rounding}")
def test_bit_by_bit_the_reference(scheme):
    """Rows of whole groups in one tile and in several, and ragged ones; and every dtype."""
    for shape, dtype in (((9, 512), BF16), ((5, 130), BF16), ((1, 2), FP16), ((3, 1282), FP32)):
        check(heavy(*shape, dtype=dtype), scheme)


@pytest.mark.parametrize("name", NAMES)
def test_any_bits_of_fp32(name):
    generator = torch.Generator().manual_seed(3)
    x = torch.randint(-(2**31), 2**31, (4, 512), generator=generator).to(torch.int32).view(FP32)
    check(torch.where(x.isfinite(), x, 1.0).to(DEVICE), name)


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith(("fp8", "mxfp8", "nvfp4"))])
def test_the_gpus_conversion_and_the_sum_round_alike(name, monkeypatch):
    """Both ways to FP8, whichever is chosen here; the interpreter converts as a GPU does."""
    generator = torch.Generator().manual_seed(4)
    x = torch.randint(-(2**31), 2**31, (3, 512), generator=generator).to(torch.int32).view(FP32)
    x = torch.cat([torch.where(x.isfinite(), x, 0.0).to(DEVICE), heavy(2, 512, dtype=FP32)])
    both = backend.mode() == "interpreted" or has_fp8(torch.device(DEVICE))
    for native in (False, True) if both else (False,):
        monkeypatch.setattr("kernels.quantization.codes.has_fp8", lambda device, native=native: native)
        for each in (x, heavy(2, 512)):
            check(each, name)


def test_squares_with_ragged_edges():
    for shape in ((130, 258), (1, 300), (257, 1)):
        check(heavy(*shape), "fp8_128x128")


@pytest.mark.parametrize("name", NAMES)
def test_ties_of_the_rounding(name):
    """Midpoints of neighbouring codes and what lies next to them, in blocks whose scale is 1."""
    step = {8: 1 / 16, 4: 1 / 8}[SCHEMES[name].bits]
    x = torch.arange(-256, 256, device=DEVICE).float().mul(step / 2).repeat(2, 1)
    x = x.nextafter(torch.tensor([[math.inf], [-math.inf]], device=DEVICE))
    x = torch.cat([x, torch.arange(-256, 256, device=DEVICE).float()[None] * step / 2])
    x[:, ::16] = SCHEMES[name].largest
    check(x, name)


@pytest.mark.parametrize("largest", [4.0, 6.0, 7.96875])
def test_every_bf16_magnitude_two_at_a_time(largest):
    """All that a block whose scale is 1 may hold, next to all that it may have as its largest."""
    x = torch.arange(0x7F80, dtype=torch.int32).to(torch.int16).view(BF16)
    x = x[x <= largest]
    x = torch.nn.functional.pad(x, (0, -len(x) % 30)).view(-1, 30)
    x = torch.cat([x, torch.full((len(x), 2), largest, dtype=BF16)], 1)
    x[:, ::3] *= -1
    x = x.to(DEVICE)
    assert meter(quantize, x, "mxfp4").kernels == ["quantize_pairs_kernel"]
    for rounding in ("floor", "up"):
        check(x, replace(SCHEMES["mxfp4"], scale_rounding=rounding))
    apart = torch.empty(65, dtype=BF16, device=DEVICE)[1:].view(2, 32).copy_(x[:2])  # no whole words
    check(apart, "mxfp4")


@pytest.mark.parametrize("name", ["mxfp4", "nvfp4"])
def test_gpus_without_bf16_take_the_other_kernel(name, monkeypatch):
    monkeypatch.setattr(sys.modules[quantize.__module__], "has_bf16", lambda device: False)
    x = heavy(3, 64)
    assert meter(quantize, x, name).kernels[-1] == "quantize_groups_kernel"
    check(x, name)


@pytest.mark.parametrize("tensor_scale", [1.0, 0.7, 2.0**-105 / 3, 1e33])
def test_every_bf16_magnitude_under_every_scale_of_nvfp4(tensor_scale):
    """Six octaves down from what each of E4M3's scales makes a 6, and 64 times that, where the last one saturates."""
    given = torch.tensor(tensor_scale, device=DEVICE)
    scales = decode(torch.arange(1, 127), "e4m3") * given.cpu()
    top = (6 * scales).bfloat16().view(torch.int16)
    down = (top[:, None] - torch.arange(1, 766)).clamp(min=0).to(torch.int16).view(126, 51, 15)
    x = torch.cat([top[:, None, None].expand(126, 51, 1), down], 2).view(-1, 16).view(BF16)
    x[:, ::3] *= -1
    x = torch.cat([x, 64 * x]).to(DEVICE)
    ratio = fp32_scale(x.float().abs().amax(1), 6) * (1 / given)
    expected = encode(ratio.clamp(min=2**-9), "e4m3")
    inverse = 1 / (decode(expected, "e4m3") * given)
    q = quantize(x, "nvfp4", tensor_scale=given)
    assert same(q.codes, codes_of(x.float() * inverse[:, None], SCHEMES["nvfp4"]))
    assert q.scales.view(torch.uint8).flatten().equal(expected) and len(expected.unique()) == 126
    check(x, "nvfp4")
    for each, kernel in ((x[:1], "groups"), (x[:2], "pairs")):  # sixteen values, and a thread's whole
        assert meter(quantize, each, "nvfp4", tensor_scale=given).kernels == [f"quantize_{kernel}_kernel"]
        check(each, "nvfp4")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_nan_or_an_infinity_spoils_its_block_alone(name, bad):
    x = heavy(3, 300)
    x[1, 200] = bad
    q, r = quantize(x, name), quantize_reference(x, name)
    assert same(q.scales, r.scales) and same(q.tensor_scale, r.tensor_scale)
    assert same(dequantize(q, FP32), dequantize_reference(r))


@pytest.mark.parametrize("name", NAMES)
def test_zeros(name):
    for x in (torch.zeros(3, 256, device=DEVICE), -torch.zeros(3, 256, device=DEVICE)):
        q = check(x, name)
        assert (dequantize(q) == 0).all()


def test_every_power_of_two_as_a_scale():
    """Among them 2^-127, which fp32 holds only as a subnormal number, and NaN."""
    q = quantize(torch.full((256, 32), 448.0, device=DEVICE), "mxfp8")
    scales = torch.arange(256, dtype=torch.uint8, device=DEVICE)[:, None]
    values = dequantize(replace(q, scales=scales), torch.float32)[:, 0].double().cpu()
    powers = 2.0 ** (torch.arange(255, dtype=torch.float64) - 127)
    largest = torch.finfo(torch.float32).max
    assert torch.equal(values[:255], (448 * powers).where(448 * powers <= largest, torch.inf)) and values[255].isnan()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", ["fp8_tensor", "fp8_row", "mxfp4", "nvfp4", "fp8_128x128"])
def test_layouts(layout, name):
    x = LAYOUTS[layout](heavy(4, 200))
    before = x.clone()
    check(x, name)
    assert torch.equal(x, before) and meter(quantize, x, name).clean


@pytest.mark.parametrize("shape", [(64,), (2, 3, 32), (0, 8), (4, 0), (0,)])
@pytest.mark.parametrize("name", NAMES)
def test_leading_dimensions_and_empty_tensors(name, shape):
    if math.prod(shape):
        check(heavy(*shape), name)
    else:
        q = quantize(torch.empty(shape, device=DEVICE), name)
        assert q.shape == shape and dequantize(q).shape == shape


@pytest.mark.parametrize("name", ["fp8_row", "int8_row"])
def test_rows_that_registers_do_not_hold(name):
    x = heavy(2, RESIDENT_COLS + 3)
    x[1, -1] = 3e4
    assert granularity(SCHEMES[name], x.shape[1]) == "wide rows"
    check(x, name)
    assert_counts(meter(quantize, x, name), quantize_traffic(2, x.shape[1], BF16, name, None))


@pytest.mark.parametrize("name", OF_TENSOR)
def test_a_given_scale_saves_the_first_reading_and_saturates(name):
    x, scale = heavy(5, 320), torch.tensor(0.25, device=DEVICE)
    q = check(x, name, tensor_scale=scale)
    if name == "fp8_tensor":
        assert q.scales.shape == (1, 1) and q.scales == 0.25
        assert same(dequantize(q, FP32), (x.float() * 4).clamp(-448, 448).to(torch.float8_e4m3fn).float() * 0.25)
    else:
        assert q.tensor_scale is scale
    model = quantize_traffic(5, 320, BF16, name, None, cached=False, static_scale=True)
    assert_counts(meter(quantize, x, name, tensor_scale=scale), model)
    own = quantize_reference(x, name)
    again = quantize(x, name, tensor_scale=own.scales.view(()) if name == "fp8_tensor" else own.tensor_scale)
    assert same(again.codes, own.codes) and same(again.scales, own.scales)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("shape", [(20, 512), (5, 258)])
def test_traffic_is_what_the_meter_counts(name, shape):
    x = heavy(*shape)
    assert_counts(meter(quantize, x, name), quantize_traffic(*shape, BF16, name, None, cached=False))
    q = quantize(x, name)
    assert_counts(meter(dequantize, q), dequantize_traffic(*shape, BF16, name, None, cached=False))


@pytest.mark.parametrize("name", NAMES)
def test_the_minimum_is_each_byte_once(name):
    least = quantize_traffic(64, 512, BF16, name)
    assert least.read == {"x": 64 * 512 * 2} and least.written == SCHEMES[name].nbytes(64, 512) and least.launches == 1
    passes = 2 if name in OF_TENSOR else 1
    assert quantize_traffic(64, 512, BF16, name, None).read["x"] == passes * least.read["x"]
    back = dequantize_traffic(64, 512, BF16, name)
    assert back.read == least.written and back.written == {"y": least.bytes_read}


def test_what_eager_ops_move():
    ops = quantize_ops(64, 512, BF16, "fp8_row")
    assert len(ops) == 4 and quantize_traffic(64, 512, BF16, "fp8_row", "naive").bytes == 64 * (512 * 17 + 8)


@pytest.mark.once
@pytest.mark.parametrize(
    "name, arch",
    [*((name, 90) for name in NAMES), *((name, arch) for name in ("fp8_1x128", "nvfp4") for arch in (80, 100))],
)
def test_nothing_spills(name, arch, monkeypatch):
    """At a width of whole groups and a ragged one; FP8 asks for no type that sm_80 lacks."""
    monkeypatch.setattr("kernels.quantization.codes.has_fp8", lambda device: arch >= 89)
    for shape in ((4, 1002), (4, RESIDENT_COLS)):
        x = torch.empty(shape, dtype=BF16, device=DEVICE)
        for binary in compiled(lambda: dequantize(quantize(x, name)), arch=arch):
            assert binary.spills <= SPILLS, (binary, shape)
            if binary.name.startswith("quantize_") and SCHEMES[name].format == "e4m3":
                assert ("F2FP.SATFINITE.E4M3" in binary.sass) == (arch >= 89)


@pytest.mark.once
@pytest.mark.parametrize("name, most", [("mxfp4", 11), ("nvfp4", 15)])
def test_words_of_two_values_take_few_instructions(name, most, monkeypatch):
    """For each of a thread's 32 values, all but what divisions call where numbers are extreme; no thread asks another,
    and codes and values go 16 bytes at a time."""
    monkeypatch.setattr("kernels.quantization.codes.has_fp8", lambda device: True)
    x = torch.empty(64, 4096, dtype=BF16, device=DEVICE)
    given = {"tensor_scale": torch.ones((), device=DEVICE)} if name in OF_TENSOR else {}
    (binary,) = compiled(lambda: quantize(x, name, **given))
    before_exit = binary.sass[: binary.sass.rindex("EXIT")]
    assert len(re.findall(r"/\*[0-9a-f]{4,}\*/ +[@A-Z]", before_exit)) <= 32 * most
    assert binary.shared == 0 and binary.loads[128] == 4 and binary.stores[128] == 1


X = torch.ones(2, 8, device=DEVICE)
ONE = torch.tensor(1.0, device=DEVICE)


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: quantize(X.double(), "fp8_row"), "x: got dtype float64"),
        (lambda: quantize(X, "fp9"), "scheme: got 'fp9', expected a Scheme or one of fp8_tensor"),
        (lambda: quantize(X[:, :3], "nvfp4"), "x: got 3 columns, expected an even number"),
        (lambda: quantize(torch.tensor(1.0, device=DEVICE), "fp8_row"), "x: got a scalar"),
        (lambda: quantize(X, "mxfp4", tensor_scale=ONE), "tensor_scale: got one for mxfp4, expected None"),
        (lambda: quantize(X, "nvfp4", tensor_scale=ONE.double()), "tensor_scale: got dtype float64"),
        (lambda: quantize(X, "nvfp4", tensor_scale=ONE[None]), r"tensor_scale: got shape \(1,\), expected \(\)"),
        (lambda: quantize(X, Scheme("odd", "e4m3", (1, 48))), r"scheme: got blocks of \(1, 48\)"),
        (lambda: quantize(X.clone().requires_grad_(), "fp8_row"), "x: got a tensor that requires a gradient"),
        (lambda: dequantize(quantize(X, "fp8_row"), torch.float64), "dtype: got torch.float64"),
        (
            lambda: dequantize(replace(quantize(X, "fp8_row"), scales=X)),
            r"q.scales: got shape \(2, 8\), expected \(2, 1\)",
        ),
        (lambda: quantize_traffic(2, 8, BF16, "fp8_row", "fast"), "path: got 'fast', expected minimum, naive or None"),
        (lambda: dequantize_traffic(2, 8, BF16, "fp8_row", "naive"), "path: got 'naive', expected minimum or None"),
    ],
)
def test_bad_arguments_name_themselves(call, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        call()


def test_other_powers_of_two_and_dtypes():
    check(heavy(4, 256), Scheme("e4m3 by 64", "e4m3", (1, 64)))
    for block, scale in ((16, "e8m0"), (128, "e8m0"), (32, "e4m3"), (256, "e4m3"), (16, "fp32")):
        check(heavy(6, 256), Scheme(f"e2m1 by {block}", "e2m1", (1, block), scale))
    check(heavy(70, 100), Scheme("squares of 32", "e4m3", (32, 32), "e8m0"))
    assert [dequantize(quantize(X, "mxfp8"), dtype).dtype for dtype in DTYPES] == list(DTYPES)
