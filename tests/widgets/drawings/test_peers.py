import pytest

from widgets.drawings.peers import grouped

PEERS = grouped(
    {"small\ngraph": {"torch": 10.0, "ours": 5.0}, "large\ngraph": {"torch": 1000.0, "ours": 980.0}},
    "Ours is faster",
    "Times",
    "µs",
    marks={"at copy bandwidth": 900.0},
)


def test_bars_stand_on_one_scale_with_their_numbers():
    axes = PEERS.figure.axes[0]
    assert sorted(bar.get_height() for bar in axes.patches) == [5, 10, 980, 1000]
    assert [text.get_text() for text in axes.texts] == ["10", "5", "1,000", "980"]
    assert PEERS.alt == "Times. small graph: torch 10, ours 5; large graph: torch 1,000, ours 980."
    assert PEERS.figure.texts[-1].get_text() == "ours" and "dashed: at copy bandwidth" in {
        text.get_text() for text in PEERS.figure.texts
    }


def test_a_series_may_lack_in_a_group():
    one = grouped({"a": {"x": 1.0}, "b": {"x": 2.0, "y": 3.0}}, "t", "About", "µs", form="{:.1f}")
    assert one.alt == "About. a: x 1.0; b: x 2.0, y 3.0." and len(one.figure.axes[0].patches) == 3


@pytest.mark.parametrize("series", (2, 3, 4))
def test_no_words_lie_on_others(series):
    names = ("bf16, torch", "int8", "int4", "FP8, course")[:series]
    groups = {f"1 x 28,672 x {n:,}\nCUDA graph": dict.fromkeys(names, 1234.0) for n in (1024, 8192, 512)}
    panel = grouped(groups, "t", "a", "µs", marks={"copy": 1.0})
    texts = panel.figure.texts + list(panel.figure.axes[0].texts)
    boxes = [text.get_window_extent() for text in texts]
    assert not any(one.overlaps(other) for at, one in enumerate(boxes) for other in boxes[:at])
    assert all(panel.figure.bbox.x0 <= box.x0 and box.x1 <= panel.figure.bbox.x1 for box in boxes)
