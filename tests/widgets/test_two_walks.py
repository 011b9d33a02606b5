import pytest

from widgets import two_walks
from widgets.two_walks import BACKWARDS, FORWARDS, ROWS_KIB, TILE_KIB, walk


@pytest.mark.parametrize("tiles", [4, 16, 32])
@pytest.mark.parametrize("room", [1, 4, 8, 31, 32])
def test_forwards_finds_all_or_nothing_and_backwards_what_there_is_room_for(tiles, room):
    hits = {order: [found for _, found, _ in walk(tiles, room, order)] for order in (FORWARDS, BACKWARDS)}
    assert not any(hits[FORWARDS][:tiles]) and not any(hits[BACKWARDS][:tiles])
    assert sum(hits[FORWARDS]) == (tiles if room >= tiles else 0)
    assert sum(hits[BACKWARDS]) == min(room, tiles)


def test_the_walks_go_where_they_say():
    assert [tile for tile, _, _ in walk(4, 2, BACKWARDS)] == [0, 1, 2, 3, 3, 2, 1, 0]
    assert [tile for tile, _, _ in walk(3, 2, FORWARDS)] == [0, 1, 2, 0, 1, 2]
    assert [held for _, _, held in walk(3, 2, BACKWARDS)] == [(0,), (0, 1), (1, 2), (1, 2), (2, 1), (1, 0)]


def test_the_sentence_says_what_is_found():
    panel = two_walks()
    assert "Backwards, the second reading finds 8 of 16 tiles in L1 and asks L2 for 8," in panel.sentence
    before = panel.png
    assert "Forwards again, the second reading finds 0 of 16" in panel.set(order=FORWARDS).sentence
    assert panel.png != before
    assert "finds 16 of 16 tiles" in panel.set(l1_kib=64).sentence
    assert "step 3 of 32: the first reading takes tile 3 of 16, which L2 must deliver" in panel.set(step=3).sentence
    assert "step 19 of 32: the second reading takes tile 3 of 16, from L1" in panel.set(step=19).sentence


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
