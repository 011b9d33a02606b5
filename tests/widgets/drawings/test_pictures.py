import pytest

from widgets.drawings.pictures import counts, curves, merges, neighbours, passes, picture, way_to_registers
from widgets.toolkit.panel import LINE, canvas


def test_a_caption_that_would_not_be_shown_is_refused():
    long = "x" * LINE
    assert picture("T", canvas(), f"{long[1:]}. More.").caption == f"{long[1:]}."
    assert picture("T", canvas(), "Bars", f"a {long}").caption == "Bars."
    for about, numbers in ((f"{long}. More.", ""), (long, "a 1")):
        with pytest.raises(
            ValueError, match=f"about: got a first sentence of {LINE + 1} characters, expected 1 to {LINE}"
        ):
            picture("T", canvas(), about, numbers)


def test_names_of_curves_that_end_together_do_not_overlap():
    ticks = {1: "1", 100: "100"}
    lines = {"one": [1, 50], "two": [2, 51], "three": [3, 50.5], "gone": [99, None]}
    panel = curves([1, 100], lines, "Four", "Four lines.", ("x", ticks), ("y", ticks))
    assert panel.png and panel.alt == "Four lines."
    (axes,) = panel.figure.axes
    boxes = [text.get_window_extent() for text in axes.texts]
    assert [text.get_text() for text in axes.texts] == ["y", "one", "three", "two", "gone"]
    assert not any(a.overlaps(b) for a in boxes for b in boxes if a is not b)


def test_neighbours_are_fp32_numbers():
    panel = neighbours({"exact": 1e8, "one more": 1e8 + 1}, "Apart", "Numbers near 100,000,000 are 8 apart.")
    said = [text.get_text() for text in panel.figure.axes[0].texts]
    assert {"99,999,992", "100,000,000", "100,000,008", "8 apart", "exact", "one more"} <= set(said)


def test_passes_and_counts():
    panel = passes({"kept": ["read", "write y"], "streamed": ["read", "read", "write y"]}, "Passes", "Two and three.")
    assert [bar.get_x() for bar in panel.figure.axes[0].patches] == [0, 1, 0, 1, 2] and panel.png
    assert counts({-8: 3, 0: 4}, (1, "all seven"), "Counts", "None is 1.", "value", "rows").png


def test_merges_draws_a_dot_for_each():
    panel = merges({"in turn": (((0, 1), 2), 3), "in pairs": ((0, 1), (2, 3))}, list("abcd"), "all", "T", "Two ways.")
    (axes,) = panel.figure.axes
    dots = [line.get_xydata()[0] for line in axes.lines if len(line.get_xdata()) == 1]
    assert [y for _, y in dots] == [1, 2, 3, 1, 1, 2] and len(axes.patches) == 8 and panel.alt == "Two ways."


def test_the_way_to_registers_is_said():
    panel = way_to_registers({"kept": (1.0, 1.0, 2.0, "517 µs"), "twice": (1.1, 2.0, 3.0, "661 µs")}, "T", "A")
    assert panel.png and panel.alt == (
        "A. kept 1.00 |x| from DRAM to L2, 1.00 from L2 to L1, 2.00 from L1 to registers, 517 µs; "
        "twice 1.10 |x| from DRAM to L2, 2.00 from L2 to L1, 3.00 from L1 to registers, 661 µs."
    )


def test_an_upright_line_is_named_at_its_foot():
    ticks = {1: "1", 100: "100"}
    panel = curves([1, 100], {"a": [1, 2]}, "T", "Alt.", ("x", ticks), ("y", None), uprights={"L2": 10})
    assert "L2" in [text.get_text() for text in panel.figure.axes[0].texts]
