import random

import pytest
import torch

from widgets import float_bits
from widgets.panels.float_bits import FORMS, FP32, TF32, code_of, fields

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
NEXT = torch.tensor(torch.inf)


@pytest.mark.parametrize("name", DTYPES)
def test_value_and_gap_are_torchs(name):
    """Of numbers of all sizes, the last of an exponent among them."""
    panel = float_bits(format=name)
    lot = random.Random(0)
    values = [lot.uniform(1, 2) * 2.0 ** lot.randint(-14, 14) for _ in range(20)] + [2.0**-14, 1 - 2.0**-24, 65000.0]
    for value in values:
        held = torch.tensor(value, dtype=DTYPES[name])
        gap = torch.nextafter(held, NEXT.to(held)) - held
        panel.set(code=code_of(value, FORMS[name]))
        shown = panel.figure.findobj(lambda artist: getattr(artist, "get_text", str)().count(" = "))[0].get_text()
        assert f"{held.item():.6g}" == f"{number(shown.split(' = ')[1]):.6g}"
        told = panel.alt.split("the next larger is ")[1].split(" away")[0]
        assert number(told) == pytest.approx(gap.item(), rel=1e-5)


def number(said: str) -> float:
    said = said.replace("−", "-").replace(",", "").translate(str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-"))
    return float(said.replace(" × 10", "e"))


def test_the_sentence_by_hand():
    panel = float_bits(3.14159265, "e4m3")
    assert panel.alt == (
        "e4m3, code 69: sign 0, exponent 1000 = 8, mantissa 101 = 5. +2¹ × (1 + 5/8) = 3.25; the next larger is 0.25 "
        "away, 7.69% of it."
    )
    assert "NaN, not a number; of e4m3 only where the mantissa is all ones" in panel.set(code=255).alt
    assert "+2⁸ × (1 + 6/8) = 448, the largest of e4m3." in panel.set(code=126).alt
    assert "−2⁻⁶ × (0 + 3/8) = −0.005859375, a subnormal; the next larger" in panel.set(code=131).alt
    assert "(0 + 0/8) = 0; the next larger is 0.001953125 away." in panel.set(code=0).alt
    assert "−2² × (1 + 1/2) = −6, the largest of e2m1." in float_bits(-9.0, "e2m1").alt
    assert "minus infinity" in float_bits(-70000.0, "fp16").alt


def test_another_format_rounds_the_number():
    panel = float_bits(3.14159265)
    assert "= 3.14159274" in panel.alt
    for name, held in dict(tf32=3.140625, bf16=3.140625, e4m3=3.25, e5m2=3.0, e2m1=3.0, fp32=3.0).items():
        assert f" = {held:g}" in panel.set(format=name).alt, name


def test_tf32_is_fp32_without_its_last_thirteen_bits():
    for value in (1.0, -2.5, 1 + 2.0**-10, 2.0**127, 2.0**-136):
        assert code_of(value, TF32) << 13 == code_of(value, FP32)
    assert code_of(1 + 2.0**-11, TF32) == code_of(1.0, TF32)  # halfway: to even


def test_buttons_slider_and_code_are_one():
    panel = float_bits(1.0, "e4m3")
    bits = panel.controls["code"]
    before = panel.png
    bits._buttons[-8].value = True  # the sign
    assert panel.values["code"] == 0b10111000 and "= −1;" in panel.alt and panel.png != before
    assert bits._slider.value == 0b10111000 and bits._buttons[-8].description == "1"
    bits._slider.value = 1
    assert [button.value for button in bits._buttons] == [False] * 31 + [True]
    assert [button.layout.display for button in bits._buttons] == ["none"] * 24 + [""] * 8
    assert panel.set(code=256 + 7).values["code"] == 7
    with pytest.raises(ValueError, match="code: got -1, expected 0 to 255"):
        panel.set(code=-1)


@pytest.mark.parametrize("name", FORMS)
def test_every_bit_changes_the_picture(name):
    form = FORMS[name]
    panel = float_bits(1.0, name)
    pictures = {panel.png}
    for bit in range(form.bits):
        pictures.add(panel.set(code=code_of(1.0, form) ^ 1 << bit).png)
    assert len(pictures) == form.bits + 1 and panel.error == ""
    assert fields((1 << form.bits) - 1, form) == (1, (1 << form.exponent) - 1, (1 << form.mantissa) - 1)


@pytest.mark.parametrize(
    "arguments, said",
    [(dict(format="fp64"), "format: got 'fp64', expected one of fp32"), (dict(value="1"), "value: got '1'")],
)
def test_bad_arguments_name_themselves(arguments, said):
    with pytest.raises(ValueError, match=said):
        float_bits(**arguments)
