import pytest

from widgets import l2_order


def test_groups_read_less():
    panel = l2_order(group=1)
    assert "the first wave needs 1 strip of a and 16 of b; DRAM delivers a and b 8.5 times" in panel.sentence
    before = panel.png
    panel.set(group=4)
    assert (
        "needs 4 strips of a and 4 of b; DRAM delivers a and b 2.5 times, against 8.5 times row by row: 71% less"
        in panel.sentence
    )
    assert panel.png != before
    assert "no change" in panel.set(group=16).sentence


def test_a_cache_that_holds_everything_makes_order_idle():
    panel = l2_order(strips=64)
    for group in (4, 8, 11, 16):
        assert "a and b once, against once row by row: no change" in panel.set(group=group).sentence
    assert "L2 holds 34 strips, a and b have 32" in panel.set(group=8, strips=34).sentence  # tiles of c take room too
    assert "50% more" in panel.sentence


def test_all_of_it_draws():
    panel = l2_order()
    for group in (1, 5, 16):
        for in_flight in (1, 64):
            for strips in (1, 64):
                panel.set(group=group, in_flight=in_flight, strips=strips)
                assert f"In groups of {group} row" in panel.sentence


def test_bad_arguments_name_themselves():
    with pytest.raises(
        ValueError, match="group_height: .* has no such control, expected one of group, in_flight, strips"
    ):
        l2_order().set(group_height=3)
