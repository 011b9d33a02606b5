import pytest

from instruments.results import Span
from kernels.decoder import launch_order
from widgets.drawings.fusion import kernel_strips, kernel_timeline, pair_regions
from widgets.panels.fusible_pairs import PAIRS


def test_strips_say_what_they_are_told():
    panel = kernel_strips(
        {"unfused": launch_order(False), "fused": launch_order(True)}, "Fewer kernels", "Forty, eleven."
    )
    assert panel.alt == "Forty, eleven." and panel.error == ""


def test_ways_of_different_lengths_are_refused():
    with pytest.raises(ValueError, match="ways: got"):
        kernel_strips({"unfused": launch_order(False), "fused": launch_order(True)[1:]}, "", "")


def test_the_timeline_adds_up_what_ran():
    spans = [Span(lane=lane, name=lane, start=10.0 * at, us=4.0) for at, lane in enumerate(("elementwise", "matmul"))]
    panel = kernel_timeline({"eager": spans, "graph": spans[:1]}, "Gaps", "One layer")
    assert "eager: 2 kernels, the last one ends after 14 µs, their times add up to 8 µs; graph: 1 kernels" in panel.alt


def test_labels_belong_to_kernels():
    spans = [Span(lane="matmul", name="matmul", start=0.0, us=4.0)]
    assert kernel_timeline({"graph": spans}, "One", "A matmul", {"graph": ["q"]}).error == ""
    with pytest.raises(ValueError, match="zip"):
        kernel_timeline({"graph": spans}, "One", "A matmul", {"graph": ["q", "k"]})


def test_all_pairs_are_drawn():
    assert pair_regions(PAIRS, "Pairs", "Seven pairs.").alt == "Seven pairs."
