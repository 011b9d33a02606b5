import pytest

from widgets import l2_order


def test_groups_read_less():
    panel = l2_order(group=1)
    assert panel.caption == "In groups of 1 row a and b are read from DRAM 8.5 times."
    assert "Wave 1 needs 1 strip of a and 16 of b." in panel.alt
    before = panel.png
    panel.set(group=4)
    assert panel.caption.endswith("4 rows a and b are read from DRAM 2.5 times, row by row 8.5 times: 71% less.")
    assert "needs 4 strips of a and 4 of b." in panel.alt
    assert panel.png != before
    assert "no change" in panel.set(group=16).alt


def test_the_waves_are_stepped_through():
    panel = l2_order(group=16, in_flight=24)
    assert panel.controls["wave"].max == 11  # 256 tiles, 24 at once
    pictures = {panel.set(wave=wave).png for wave in range(1, 12)}
    assert len(pictures) == 11 and "Wave 11 needs 16 strips of a and 1 of b." in panel.alt


def test_a_cache_that_holds_everything_makes_order_idle():
    panel = l2_order(strips=64)
    for group in (4, 8, 11, 16):
        assert "a and b are read from DRAM once, row by row once: no change" in panel.set(group=group).alt
    assert "L2 holds 34 strips, a and b have 32" in panel.set(group=8, strips=34).alt  # tiles of c take room too
    assert "50% more" in panel.alt


def test_all_of_it_draws():
    panel = l2_order()
    for group in (1, 5, 16):
        for in_flight in (1, 64):
            for strips in (1, 64):
                panel.set(group=group, in_flight=in_flight, strips=strips)
                assert f"In groups of {group} row" in panel.alt


def test_bad_arguments_name_themselves():
    with pytest.raises(
        ValueError, match="group_height: .* has no such control, expected one of group, wave, in_flight, strips"
    ):
        l2_order().set(group_height=3)
