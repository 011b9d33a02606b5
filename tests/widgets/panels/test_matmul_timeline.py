import pytest

from widgets import matmul_timeline
from widgets.panels.matmul_timeline import SHAPES, SPLIT, STREAM, TILES, WAYS, programs_of

#: (shape, way): units of time, the sum of parts included, by hand on six SMs.
UNITS = {
    ("1 tile of 24 steps", TILES): 24, ("1 tile of 24 steps", SPLIT): 5, ("1 tile of 24 steps", STREAM): 5,
    ("7 tiles of 6 steps", TILES): 12, ("7 tiles of 6 steps", SPLIT): 10, ("7 tiles of 6 steps", STREAM): 8,
    ("6 tiles of 6 steps", TILES): 6, ("6 tiles of 6 steps", SPLIT): 7, ("6 tiles of 6 steps", STREAM): 6,
}  # fmt: skip


@pytest.mark.parametrize("shape, way", UNITS)
def test_units_of_time_by_hand(shape, way):
    assert f"on 6 SMs, {UNITS[shape, way]} units of time" in matmul_timeline(0, way, shape).alt


def test_every_step_is_multiplied_once():
    for shape, (tiles, steps, _) in SHAPES.items():
        for way in WAYS:
            done = sorted(step for program in programs_of(way, shape) for step in program)
            assert done == [(tile, step) for tile in range(tiles) for step in range(steps)]


def test_every_control_changes_the_picture():
    panel = matmul_timeline(3, TILES, "7 tiles of 6 steps")
    pictures = {panel.png}
    for change in ({"step": 5}, {"way": SPLIT}, {"way": STREAM}, {"shape": "1 tile of 24 steps"}):
        before = len(pictures)
        pictures.add(panel.set(**change).png)
        assert len(pictures) == before + 1, change
    assert "Time 3: 6 of 6 SMs are busy, 18 of 42 steps" in matmul_timeline(3).alt
    # shares of 7 steps: only tiles 0 and 6 are whole
    assert "adds the parts of 5 tiles" in matmul_timeline(8, STREAM).alt
