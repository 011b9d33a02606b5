"""The book's panels say the numbers of the notebook's panels, and stay small."""

import json
import re

import pytest

import widgets
from book.panels import PANELS, specification, table
from widgets.panels.attention_memory import CAUSAL, FULL
from widgets.panels.decoder_layer import DECODE, PREFILL

#: (panel, its sliders, pieces of the book's words that the notebook's panel says too at the same sliders)
SAME = [
    ("launch_lanes", {"kernel": 3, "how": "eager"}, ["64%", "3 µs"]),
    ("launch_lanes", {"kernel": 11, "how": "CUDA graph"}, ["7%", "11 µs"]),
    ("fusion_savings", {"rows": 8192, "cols": 8192}, ["268 MB", "940 MB", "196 µs", "55.9 µs", "403 MB"]),
    ("fusion_savings", {"rows": 64, "cols": 131072}, ["33.8 MB", "118 MB", "7.05 µs", "24.5 µs", "50.6 MB"]),
    ("softmax_passes", {"cols": 8192}, ["268 MB", "55.9 µs"]),
    (
        "attention_memory",
        {"sequence": 16384, "mask": CAUSAL, "dtype": "bf16"},
        ["34.6 GB", "336 MB", "21.6 ms", "69.9 µs"],
    ),
    ("attention_memory", {"sequence": 1024, "mask": FULL, "dtype": "fp32"}, ["294 MB", "41.9 MB", "121 µs", "8.74 µs"]),
    ("decoder_layer", {"phase": DECODE, "batch": 8, "tokens": 4096}, ["200 µs", "40 launches", "119 µs", "55 µs"]),
    ("decoder_layer", {"phase": PREFILL, "batch": 1, "tokens": 1024}, ["588 µs", "499 µs", "11 launches"]),
    ("in_flight", {"loads": 8, "bytes_each": 512}, ["4 KiB", "1,528 GB/s"]),
    ("tile_intensity", {"block_m": 256, "block_n": 64, "block_k": 32, "stages": 4}, ["51.2"]),
    ("roofline_sizes", {"step": 7}, ["60%", "12%", "48%", "49%", "9.4%", "8.4 MB", "6.29 MB"]),
]


@pytest.mark.parametrize("name, values, pieces", SAME, ids=lambda value: value if isinstance(value, str) else "")
def test_a_panel_says_what_the_notebooks_panel_says(name, values, pieces):
    panel = getattr(widgets, name)()
    panel.set(**{{"bytes_each": "size"}.get(slider, slider): value for slider, value in values.items()})
    words = [words for chart in PANELS[name].rows(**values).values() for _, words in chart.values()]
    for piece in pieces:
        whole = rf"(?<![\d.,]){re.escape(piece)}(?![\d])"
        assert any(re.search(whole, line) for line in words), f"{piece!r} is not in {words}"
        assert re.search(whole, panel.alt), f"{piece!r} is not in {panel.alt!r}"


def test_rmsnorms_passes_add_up_to_the_notebooks():
    panel = widgets.rmsnorm_passes(form="six kernels")
    panel.set(step=4)
    read, written = (value for value, _ in PANELS["rmsnorm_passes"].rows("six kernels", 4).popitem()[1].values())
    assert "so far 3 of 7 passes" in panel.alt and round(read + written, 2) == 3


@pytest.mark.parametrize("name", PANELS)
def test_a_panel_is_small_and_its_sliders_begin_where_there_is_data(name):
    panel, drawn = PANELS[name], specification(PANELS[name])
    assert len(json.dumps(drawn, ensure_ascii=False, separators=(",", ":")).encode()) < 300_000
    start = {parameter["name"]: parameter["value"] for parameter in drawn["params"]}
    rows = [row for row in table(panel) if all(row[slider] == value for slider, value in start.items())]
    assert {row["chart"] for row in rows} == set(range(len(panel.charts)))
    assert {row["line"] for row in rows} <= {line for chart in panel.charts for line in chart.lines}
    assert callable(getattr(widgets, name))


def test_a_page_has_at_most_300_kb_of_data():
    """Lesson 05 shows the most: two panels."""
    sizes = {name: len(json.dumps(specification(panel), ensure_ascii=False)) for name, panel in PANELS.items()}
    assert sizes["fusion_savings"] + sizes["rmsnorm_passes"] < 300_000
    assert sum(sizes[name] for name in ("launch_lanes", "roofline_sizes")) < 300_000
