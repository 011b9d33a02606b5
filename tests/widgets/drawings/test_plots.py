from widgets.drawings.plots import columns, dots, lines, pairs, stacks


def test_columns_say_every_number_and_leave_gaps_out():
    table = {"kept": {"asked for": 2, "µs": 517.1}, "changed": {}, "twice": {"asked for": 3}}
    panel = columns(table, "Found", "About", form={"asked for": "{:.2f}", "µs": "{:.0f}"})
    assert repr(panel) == "Found. About. kept asked for 2.00, µs 517; twice asked for 3.00."


def test_columns_show_what_is_marked_strong_spread_and_shared():
    table = {"a": {"x": 1.0, "y": 4.0}, "b": {"x": 2.0, "y": 3.0}}
    more = (
        {},
        {"marks": {"x": 1.5}},
        {"marks": {"x": 1.5}, "marked": "a limit"},
        {"marks": {"x": {"a": 1.5}}, "marked": "a limit"},
        {"marks": {"x": {"a": 1.5, "b": 9.0}}, "marked": "a limit"},
        {"strong": ["a"]},
        {"spread": {"a": {"x": (0.5, 1.5)}}},
        {"shared": True},
    )
    assert len({columns(table, "T", "A", **options).png for options in more}) == len(more)


def test_shared_columns_have_one_scale_however_long_their_numbers_are():
    panel = columns({"a": {"x": 800, "y": 800}, "b": {"y": 12_345}}, "T", "A", form="{:,.0f}", shared=True)
    assert len({axes.get_xlim() for axes in panel.figure.axes}) == 1


def test_a_bar_beyond_the_cut_is_broken_off_and_keeps_its_number():
    panel = columns({"a": {"x": 1.7}, "b": {"x": 9.15}}, "T", "A", cut=3.0)
    (axes,) = panel.figure.axes
    assert [bar.get_width() for bar in axes.patches] == [1.7, 3.0] and panel.alt == "A. a x 1.70; b x 9.15."


def test_a_column_of_zeros_draws():
    assert columns({"a": {"spilled": 0}}, "T", "A", form="{:.0f}").alt == "A. a spilled 0."


def test_lines_say_every_point():
    series = {"ours": [(2, 4000.0), (16, 4100.0)], "theirs": [(2, 3900.0)]}
    panel = lines(series, "T", "A", "KiB", "GB/s", {2: "2", 16: "16"}, form="{:,.0f}", marks={"roof": 4289})
    assert panel.alt == "A. ours 4,000 at 2, 4,100 at 16; theirs 3,900 at 2."
    assert panel.png != lines(series, "T", "A", "KiB", "GB/s", {2: "2", 16: "16"}).png


def test_what_is_said_takes_the_place_of_the_numbers():
    assert columns({"a": {"x": 1.0}}, "T", "A", numbers="one").alt == "A. one."
    assert lines({"a": [(1, 2.0)]}, "T", "A", "x", "y", {1: "1"}, numbers="two").alt == "A. two."


def test_dots_say_every_number():
    panel = dots({"naive": 1500.0, "tiled": 2.5}, "T", "A", "ms", {1: "1", 1e4: "10 s"}, strong=["tiled"])
    assert panel.png and panel.alt == "A. naive 1500.00; tiled 2.50."


def test_pairs_say_every_number():
    rows = {"norm": {"torch": 2.0, "ours": 4.0}, "attention": {"torch": 9.0, "ours": 8.0}}
    panel = pairs(rows, "T", "A", "speedup", (1, "1 = unfused"), range(0, 11, 5))
    assert panel.png and panel.alt == "A. norm torch 2.0, ours 4.0; attention torch 9.0, ours 8.0."


def test_stacks_say_every_part_and_the_sum():
    rows = {"before": {"copies": 30, "arithmetic": 70}, "after": {"copies": 2, "arithmetic": 70}}
    panel = stacks(rows, "T", "A", mark=(50, "the limit"))
    assert panel.alt == "A. before 100 (copies 30, arithmetic 70); after 72 (copies 2, arithmetic 70)."
    assert stacks({"all": {"copies": 0, "arithmetic": 70}}, "T", "A").alt == "A. all 70."
    others = [stacks(rows, "T", "A", **more) for more in ({}, {"most": 300}, {"inside": False})]
    assert len({each.png for each in (panel, *others)}) == 4
