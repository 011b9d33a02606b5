import pytest

from widgets import backward_steps
from widgets.panels.backward_steps import COLUMNS, ONE, ROWS, TILES, WAYS, visited


@pytest.mark.parametrize("way", WAYS)
def test_every_tile_on_or_below_the_diagonal_is_visited_once(way):
    seen = [tile for step in range(1, TILES + 1) for tile in visited(way, step)]
    assert sorted(seen) == [(row, column) for row in range(TILES) for column in range(row + 1)]


def test_the_matmuls_of_two_loops_and_of_one():
    counts = {way: backward_steps(TILES, way).alt for way in WAYS}
    assert "84 so far" in counts[COLUMNS] and "63 so far" in counts[ROWS] and "105 so far" in counts[ONE]  # 21 tiles


def test_every_control_changes_the_picture():
    panel = backward_steps(0)
    pictures = [panel.set(step=step).png for step in range(TILES + 1)]
    pictures += [panel.set(step=3, way=way).png for way in (ROWS, ONE)]
    assert len(set(pictures)) == len(pictures)
