import numpy as np
import pytest
import torch

from tests.widgets.tools import moves
from widgets import number_line
from widgets.panels.number_line import FAR, NAMES, all_values, rounded

pytestmark = pytest.mark.each  # every set takes milliseconds, and most say something of their own

TORCH = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2, "fp16": torch.float16, "bf16": torch.bfloat16}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("scale", [1.0, 2.0**-9])
def test_x_becomes_the_nearest_value(name, scale):
    x = np.random.default_rng(0).uniform(-FAR, FAR, 200).astype(np.float32)
    line = all_values(name).astype(float) * scale
    x = x[np.abs(x) < line[-1]][: len(x) // 2 * 2]
    x = np.append(x, x[: len(x) % 2])
    nearest = np.abs(line[:, None] - x).min(0)
    assert np.abs(rounded(x, name, scale) - x) == pytest.approx(nearest, abs=1e-7 * scale)


@pytest.mark.parametrize("name", TORCH)
def test_floats_round_as_torchs_do(name):
    x = np.linspace(-FAR, FAR, 1000, dtype=np.float32)
    assert (rounded(x, name, 0.25) == (torch.from_numpy(x) * 4).to(TORCH[name]).float().numpy() / 4).all()


def test_the_sentence_by_hand():
    panel = number_line()
    assert panel.alt == (
        "e4m3 at scale 2⁰ = 1: 253 values from −448 to 448. x = 3.3 becomes 3.25, 1.52% off. What is no larger than "
        "9.77 × 10⁻⁴ becomes 0; what would round to more than 448 becomes 448."
    )
    said = panel.set(format="e2m1", scale=-2).alt
    assert "e2m1 at scale 2⁻² = 0.25: 15 values from −1.5 to 1.5. x = 3.3 becomes 1.5, 54.5% off." in said
    assert "x = 1.5 becomes 1.5, exactly. What is no larger than 0.0625" in panel.set(x=1.5).alt
    assert "15 values from −1.75 to 1.75" in panel.set(format="int4").alt
    said = panel.set(format="e5m2", scale=-16, x=-3).alt
    assert "x = −3 becomes −infinity. " in said and "would round to more than 0.875 becomes infinity." in said


def test_what_rounds_alike_is_the_band_around_it():
    """E2M1 around 4: halfway to 3, and halfway to 6."""
    panel = number_line("e2m1", 0, 4.3)
    band = next(patch for patch in panel.figure.axes[0].patches)
    assert (band.get_x(), band.get_x() + band.get_width()) == (3.5, 5.0)
    panel.set(x=7.5)
    assert (band.get_x(), band.get_x() + band.get_width()) == (5.0, FAR)
    panel.set(format="e5m2", scale=-15, x=-7)  # beyond -1.75 by half a step
    assert (band.get_x(), band.get_x() + band.get_width()) == (-FAR, -1.875)


@pytest.mark.parametrize("name", NAMES)
def test_how_far_rounding_moves(name):
    """Half a step of what it rounds to is at most this of a normal number."""
    panel = number_line(name, 0)
    most = {"e2m1": 1 / 5, "e4m3": 1 / 17, "e5m2": 1 / 9, "fp16": 1 / 2049, "bf16": 1 / 257}.get(name)
    said = " ".join(text.get_text() for text in panel.figure.axes[1].texts)
    assert f" {100 * most:.3g}%" in said if most else "%" not in said


def test_every_control_moves_the_picture():
    moves(number_line(), scale=3, x=-1.1, format="int8")


@pytest.mark.parametrize(
    "arguments, said",
    [
        (dict(format="fp64"), "format: got 'fp64', expected one of e2m1"),
        (dict(scale=9), "scale: got 9, expected -16 to 8"),
        (dict(x=9), "x: got 9, expected -8 to 8"),
    ],
)
def test_bad_arguments_name_themselves(arguments, said):
    with pytest.raises(ValueError, match=said):
        number_line(**arguments)
