import re

import pytest

from instruments.gpus import GPUS
from kernels.moe import routing
from tests.widgets.tools import moves
from widgets import grouped_waste
from widgets.panels.grouped_waste import SHAPES

UNITS = {"ns": 1e-9, "µs": 1e-6, "ms": 1e-3, "s": 1}


def told(pattern: str, panel) -> float:
    return float(re.search(pattern, panel.alt.replace(",", ""))[1])


def seconds(words: str, panel) -> float:
    value, unit = re.search(rf"([\d.]+) (ns|µs|ms|s){words}", panel.alt).groups()
    return float(value) * UNITS[unit]


@pytest.mark.parametrize(
    "tokens, experts, top_k, skew, tile, shape",
    [(8192, 64, 6, 0.5, 128, "2048 x 1408"), (8, 64, 6, 0, 16, "2048 x 1408"), (8192, 8, 2, 1.2, 256, "4096 x 14336")],
)
def test_the_sentence_counts_as_by_hand(tokens, experts, top_k, skew, tile, shape):
    panel, (K, N) = grouped_waste(tokens, experts, top_k, skew, tile, shape), SHAPES[shape]
    counts = [0] * experts
    for token in routing.choices(experts, skew)[:tokens, :top_k]:
        for expert in token:
            counts[expert] += 1
    rows = sum(counts)
    tiled = sum((count + tile - 1) // tile * tile for count in counts)
    padded = experts * ((max(counts) + tile - 1) // tile * tile)
    assert told(r"each: (\d+) rows", panel) == rows == tokens * top_k
    assert told(r"largest group (\d+)", panel) == max(counts)
    assert told(r"multiply (\d+) rows", panel) == tiled
    assert told(r"same tiles (\d+)", panel) == padded
    flops, bandwidth = GPUS["H200"].peak("bf16"), GPUS["H200"].bandwidth
    used, most = sum(count > 0 for count in counts), max(counts)
    least = 2 * (rows * (K + N) + used * K * N) / bandwidth
    batch = 2 * experts * (most * (K + N) + K * N) / bandwidth
    expected = max(least, 2 * tiled * K * N / flops), max(batch, 2 * padded * K * N / flops)
    assert seconds(" in tiles", panel) == pytest.approx(expected[0], rel=0.006)
    assert seconds(" padded", panel) == pytest.approx(expected[1], rel=0.006)


def test_in_decode_padding_of_tiles_costs_rows_but_no_time():
    panel = grouped_waste(8, tile=64)
    assert told(r"rows ([\d.]+) per row; a", panel) > 20
    assert "bound by bytes" in panel.alt and "costs no time" in panel.alt
    assert "costs no time" not in panel.set(tokens=8192).alt


def test_every_control_moves_the_picture():
    values = dict(tokens=4096, experts=128, top_k=3, skew=1.2, tile=64, shape="7168 x 2048", gpu="B200")
    moves(grouped_waste(), **values)


@pytest.mark.parametrize(
    "arguments, said",
    [
        (dict(tile=96), "tile: got 96|power of 2 from 16 to 256"),
        (dict(shape="4096 x 4096"), "shape: got '4096 x 4096', expected one of 4096 x 14336"),
        (dict(gpu="T4"), "gpu: got 'T4', expected one of L4, A100"),
    ],
)
def test_bad_arguments_name_themselves(arguments, said):
    with pytest.raises(Exception, match=said):
        grouped_waste(**arguments)
