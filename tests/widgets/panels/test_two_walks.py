import pytest

from kernels.norms.models import BACKWARDS, FORWARDS, TILE_KIB, read_twice
from widgets import two_walks
from widgets.panels.two_walks import ROWS_KIB


@pytest.mark.parametrize("tiles", [4, 16, 32])
@pytest.mark.parametrize("room", [1, 4, 8, 31, 32])
def test_forwards_finds_all_or_nothing_and_backwards_what_there_is_room_for(tiles, room):
    hits = {order: [found for _, found, _ in read_twice(tiles, room, order)] for order in (FORWARDS, BACKWARDS)}
    assert not any(hits[FORWARDS][:tiles]) and not any(hits[BACKWARDS][:tiles])
    assert sum(hits[FORWARDS]) == (tiles if room >= tiles else 0)
    assert sum(hits[BACKWARDS]) == min(room, tiles)


def test_the_walks_go_where_they_say():
    assert [tile for tile, _, _ in read_twice(4, 2, BACKWARDS)] == [0, 1, 2, 3, 3, 2, 1, 0]
    assert [tile for tile, _, _ in read_twice(3, 2, FORWARDS)] == [0, 1, 2, 0, 1, 2]
    assert [held for _, _, held in read_twice(3, 2, BACKWARDS)] == [(0,), (0, 1), (1, 2), (1, 2), (2, 1), (1, 0)]


def test_the_sentence_says_what_is_found():
    panel = two_walks()
    assert "Backwards, the second read hits L1 for 8 of 16 tiles and requests 8 from L2," in panel.alt
    before = panel.png
    assert "Forwards again, the second read hits L1 for 0 of 16" in panel.set(order=FORWARDS).alt
    assert panel.png != before
    assert "hits L1 for 16 of 16 tiles" in panel.set(l1_kib=64).alt
    assert "Step 3 of 32: the first read takes tile 3 of 16, an L1 miss" in panel.set(step=3).alt
    assert "Step 19 of 32: the second read takes tile 3 of 16, an L1 hit" in panel.set(step=19).alt


def test_corners_draw():
    for row in ROWS_KIB:
        for l1 in (4, 128):
            for order in (FORWARDS, BACKWARDS):
                panel = two_walks(row, l1, order)
                assert panel.set(step=1).error == panel.set(step=panel.controls["step"].max).error == ""


def test_a_narrower_row_ends_sooner():
    panel = two_walks(128)
    assert panel.values["step"] == 2 * 128 // TILE_KIB
    panel.controls["row_kib"].value = 16
    assert panel.error == "" and panel.values["step"] == 8


@pytest.mark.parametrize(
    "arguments, said",
    [
        (dict(row_kib=48), "row_kib: got 48, expected one of 16, 32, 64, 128"),
        (dict(l1_kib=6), "l1_kib: got 6, expected a multiple of 4 from 4 to 128"),
        (dict(l1_kib=132), "l1_kib: got 132"),
        (dict(order="zigzag"), "order: got 'zigzag', expected one of forwards again, backwards"),
        (dict(step=33), "step: got 33, expected a whole number from 1 to 32"),
    ],
)
def test_bad_arguments_name_themselves(arguments, said):
    with pytest.raises(ValueError, match=said):
        two_walks(**arguments)
