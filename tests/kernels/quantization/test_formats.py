"""Formats of few bits: every code and many values against torch and ml_dtypes, and the corners of each standard."""

import math

import numpy as np
import pytest
import torch

from kernels.quantization.formats import FORMATS, decode, encode, pack_fp4, table, unpack_fp4, values

INF, NAN = math.inf, math.nan
TORCH = {
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
    "e5m2": torch.float8_e5m2,
    "e4m3": torch.float8_e4m3fn,
    "e8m0": torch.float8_e8m0fnu,
}
ML = {
    "fp16": "float16",
    "bf16": "bfloat16",
    "e5m2": "float8_e5m2",
    "e4m3": "float8_e4m3fn",
    "e2m1": "float4_e2m1fn",
    "e8m0": "float8_e8m0fnu",
}
ROUNDED = [name for name in FORMATS if name != "e8m0"]


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Bit by bit, signs of zero included; one NaN is like the other."""
    assert a.dtype == b.dtype == torch.float32
    return torch.equal(
        torch.where(a.isnan(), NAN, a).view(torch.int32), torch.where(b.isnan(), NAN, b).view(torch.int32)
    )


def codes_of(name: str) -> torch.Tensor:
    return torch.arange(1 << FORMATS[name].bits)


def by_ml_dtypes(name: str):
    """The format as NumPy has it, and the unsigned integer of its width."""
    ml_dtypes = pytest.importorskip("ml_dtypes")
    return getattr(np if name == "fp16" else ml_dtypes, ML[name]), np.uint16 if FORMATS[name].bits == 16 else np.uint8


def every_kind(name: str, count: int = 200_000) -> torch.Tensor:
    """Any bits of fp32, values of the format's size, its values, their midpoints, and both neighbours of these."""
    generator = torch.Generator().manual_seed(1)
    of = FORMATS[name]
    any_bits = torch.randint(-(2**31), 2**31, (count,), generator=generator).to(torch.int32).view(torch.float32)
    low, high = math.log2(of.smallest_normal) - 12, math.log2(of.largest) + 1
    size = torch.rand(count, generator=generator, dtype=torch.float64) * (high - low) + low
    sized = (2.0**size).float() * torch.randn(count, generator=generator).sign()
    own = values(name)
    middle = ((own[1:].double() + own[:-1].double()) / 2).float()
    edges = torch.cat([own, middle, middle.nextafter(torch.tensor(INF)), middle.nextafter(torch.tensor(-INF))])
    overflow = (of.largest + (of.largest - own[-2].item()) / 2) * torch.tensor([1, 1 - 2**-23, 1 + 2**-22, 8])
    x = torch.cat([any_bits, sized, edges, -edges, overflow, -overflow, torch.tensor([0.0, -0.0, INF, -INF, NAN])])
    return x if of.signed else x[(x > of.smallest_normal * 1.5) & (x < of.largest * 1.5)]  # as the docstring has it


@pytest.mark.parametrize("name", FORMATS)
def test_every_code_is_worth_what_torch_and_ml_dtypes_say(name):
    codes, worth = codes_of(name), decode(codes_of(name), name)
    if name in TORCH:
        raw = codes.to(torch.uint8) if FORMATS[name].bits == 8 else codes.to(torch.int16)
        assert same(worth, raw.view(TORCH[name]).float())
    dtype, raw = by_ml_dtypes(name)
    assert same(worth, torch.from_numpy(codes.numpy().astype(raw).view(dtype).astype("float32")))


@pytest.mark.parametrize("name", FORMATS)
def test_every_code_is_its_values_own(name):
    codes, worth = codes_of(name), decode(codes_of(name), name)
    number = ~worth.isnan()
    again = encode(worth, name, saturate=False)
    assert torch.equal(again[number].long(), codes[number]) and again.dtype == FORMATS[name].code_dtype
    assert decode(again[~number], name).isnan().all()


@pytest.mark.parametrize("name", FORMATS)
def test_rounding_is_ml_dtypes_own(name):
    dtype, raw = by_ml_dtypes(name)
    x = every_kind(name)
    x = x[~x.isnan()] if name == "e2m1" else x  # ml_dtypes makes -0 of it
    with np.errstate(all="ignore"):
        theirs = torch.from_numpy(x.numpy().astype(dtype).astype("float32"))
    assert same(decode(encode(x, name, saturate=False), name), theirs)


@pytest.mark.parametrize("name", TORCH)
def test_rounding_is_torchs_own(name):
    x = every_kind(name)
    x = x[x.abs() <= 448] if name == "e4m3" else x  # beyond, versions of torch differ
    assert same(decode(encode(x, name, saturate=False), name), x.to(TORCH[name]).float())


@pytest.mark.parametrize("name", ROUNDED)
def test_the_nearest_value_by_search(name):
    """Not by bits, but by distance: no value is nearer, and of two that are as near, the code is even."""
    x = every_kind(name, 2000)
    x = x[x.abs() <= FORMATS[name].largest]
    own = values(name).double()
    codes = encode(x, name)
    got = decode(codes, name).double()
    above = torch.searchsorted(own, x.double()).clamp(max=len(own) - 1)
    pair = torch.stack([own[(above - 1).clamp(min=0)], own[above]])
    distance = (pair - x.double()).abs()
    assert torch.equal((got - x.double()).abs(), distance.amin(0))
    tie = (distance[0] == distance[1]) & (pair[0] != pair[1])
    assert tie.any() and (codes[tie] & 1 == 0).all()


def test_what_each_standard_does_beyond_the_largest():
    x = torch.tensor([448, 464, 464.01, 1e9, INF, NAN])
    assert decode(encode(x, "e4m3"), "e4m3").tolist()[:5] == [448] * 5
    assert decode(encode(-x, "e4m3"), "e4m3").tolist()[:5] == [-448] * 5
    assert encode(x, "e4m3", saturate=False).tolist() == [0x7E, 0x7E, 0x7F, 0x7F, 0x7F, 0x7F]
    y = torch.tensor([57344, 61439.9, 61440, INF, NAN])
    assert encode(y, "e5m2").tolist()[:4] == [0x7B, 0x7B, 0x7C, 0x7C]
    assert encode(y, "e5m2", saturate=True).tolist()[:4] == [0x7B] * 4
    assert decode(encode(torch.tensor([NAN]), "e5m2", saturate=True), "e5m2").isnan().all()
    for saturate in (None, True, False):
        assert encode(torch.tensor([5.0, 5.01, 7.0, INF, -INF, NAN]), "e2m1", saturate).tolist() == [6, 7, 7, 7, 15, 7]
    z = torch.tensor([0.0, -0.0, 1e-45, 1.0, 1.4999, 1.5, 3.4e38, INF, NAN, -1.0])
    assert encode(z, "e8m0").tolist() == [0, 0, 0, 127, 127, 128, 254, 254, 255, 255]
    assert encode(z, "e8m0", saturate=False).tolist() == [0, 0, 0, 127, 127, 128, 255, 255, 255, 255]


@pytest.mark.parametrize(
    "name, bits, largest, normal, subnormal, count",
    [
        ("fp16", 16, 65504, 2**-14, 2**-24, 63_487),
        ("bf16", 16, (2 - 2**-7) * 2.0**127, 2**-126, 2**-133, 65_279),
        ("e5m2", 8, 57344, 2**-14, 2**-16, 247),
        ("e4m3", 8, 448, 2**-6, 2**-9, 253),
        ("e2m1", 4, 6, 1, 0.5, 15),
        ("e8m0", 8, 2.0**127, 2.0**-127, None, 255),
    ],
)
def test_the_tables_of_the_standards(name, bits, largest, normal, subnormal, count):
    of, own = FORMATS[name], values(name)
    assert (of.bits, of.largest, of.smallest_normal, of.smallest_subnormal) == (bits, largest, normal, subnormal)
    assert len(own) == count and own.max() == largest and own.dtype == torch.float32
    assert own[own > 0].min() == (subnormal or normal)


def test_all_of_e2m1():
    assert table("e2m1").tolist() == [0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6]


def test_packing_puts_the_even_index_into_the_low_nibble():
    assert pack_fp4(torch.tensor([[1, 2, 15, 0]], dtype=torch.uint8)).tolist() == [[0x21, 0x0F]]
    assert pack_fp4(torch.tensor([-1, 7], dtype=torch.int8)).tolist() == [0x7F]  # int4 in two's complement
    codes = torch.randint(0, 16, (3, 5, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    assert torch.equal(unpack_fp4(pack_fp4(codes)), codes) and pack_fp4(codes).shape == (3, 5, 4)
    assert torch.equal(decode(codes, "e2m1"), decode(unpack_fp4(pack_fp4(codes)), "e2m1"))


@pytest.mark.parametrize(
    "function, arguments, message",
    [
        (encode, (torch.zeros(2), "e3m4"), "format: got 'e3m4', expected one of fp16, bf16"),
        (encode, (torch.zeros(2).double(), "e4m3"), "values: got dtype torch.float64, expected torch.float32"),
        (decode, (torch.zeros(2), "fp4"), "format: got 'fp4'"),
        (pack_fp4, (torch.zeros(2, 3).byte(),), r"codes: got shape \(2, 3\), expected an even number of columns"),
    ],
)
def test_bad_arguments_name_themselves(function, arguments, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        function(*arguments)


def test_strides_and_empty_tensors():
    x = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))
    assert torch.equal(encode(x.T, "e4m3"), encode(x, "e4m3").T)
    assert encode(torch.zeros(0, 4), "e2m1").shape == (0, 4) and decode(torch.zeros(0).byte(), "e4m3").shape == (0,)
