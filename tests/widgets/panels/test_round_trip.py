import pytest

from widgets import round_trip
from widgets.panels.round_trip import FUSED, LAST, UNFUSED


def passes(way):
    return [(tensor, written) for *_, tensor, written, _ in way if tensor]


def test_fusing_saves_the_write_and_the_read_of_silu():
    assert set(passes(UNFUSED)) - set(passes(FUSED)) == {("silu", True), ("silu", False)}
    assert (len(passes(UNFUSED)), len(passes(FUSED))) == (5, 3)


def test_every_step_draws_and_counts():
    pictures = set()
    for step in range(1, LAST + 1):
        panel = round_trip(step)
        assert panel.error == "" and f"Step {step} of {LAST}" in panel.alt and panel.caption
        pictures.add(panel.png)
    assert len(pictures) == LAST
    assert "Passes so far: 5 unfused, 3 fused" in panel.alt


def test_a_step_beyond_the_last_is_refused():
    with pytest.raises(ValueError, match="step"):
        round_trip("three")
