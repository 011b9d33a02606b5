import re

import numpy as np
import pytest

from instruments.gpus import GPUS, LINKS
from kernels.moe import routing
from tests.widgets.tools import moves
from widgets import expert_parallel
from widgets.panels.expert_parallel import Chunk, schedule

UNITS = {"ns": 1e-9, "µs": 1e-6, "ms": 1e-3, "s": 1}


def seconds(pattern: str, panel) -> float:
    value, unit = re.search(pattern.replace("T", r"([\d.]+) (ns|µs|ms|s)\b"), panel.alt).groups()
    return float(value) * UNITS[unit]


@pytest.mark.parametrize(
    "tokens, ranks, experts, top_k, sizes, skew, link",
    [
        (8192, 2, 8, 2, (4096, 14336), 0, "NVLink 4"),
        (3000, 8, 64, 6, (2048, 1408), 1.2, "PCIe 5 x16"),
        (1, 4, 64, 6, (2048, 1408), 0.5, "InfiniBand NDR"),
    ],
)
def test_the_sentence_counts_as_by_hand(tokens, ranks, experts, top_k, sizes, skew, link):
    """Row by row: which rank each row comes from and goes to."""
    hidden, inter = sizes
    panel = expert_parallel(tokens, ranks, f"{experts}, top-{top_k}", hidden, inter, skew, link, 1)
    sent, received, mine = np.zeros(ranks), np.zeros(ranks), np.zeros(experts)
    chosen = routing.choices(experts, skew)[:, :top_k]
    for token in range(ranks * tokens):
        source = token // tokens
        for expert in chosen[token % routing.TOKENS]:
            to = expert // (experts // ranks)
            mine[expert] += 1
            sent[source] += (to != source) * hidden * 2
            received[to] += (to != source) * hidden * 2
    travel = 2 * max(sent.max(), received.max()) / LINKS[link].rate
    assert seconds("at least T, latency", panel) == pytest.approx(travel, rel=0.006)
    gpu, matmuls = GPUS["H200"], []
    for own in mine.reshape(ranks, -1):
        used, rows = (own > 0).sum(), own.sum()
        for K, N, out in ((hidden, 2 * inter, inter), (inter, hidden, hidden)):
            nbytes = 2 * (rows * (K + out) + used * K * N)
            matmuls.append(max(nbytes / gpu.bandwidth, 2 * rows * K * N / gpu.peak("bf16")))
    matmuls = np.array(matmuls).reshape(ranks, 2).sum(1)
    assert seconds("T on the slowest rank", panel) == pytest.approx(matmuls.max(), rel=0.01)
    assert seconds("One after the other: T", panel) == pytest.approx(matmuls.max() + travel, rel=0.01)


def test_chunks_hide_what_has_room_beside_the_products():
    even = [Chunk(1.0, np.array([2.0, 2.0]))] * 4
    step = schedule(even)
    assert step.dispatch == [(0, 1), (1, 2), (2, 3), (3, 4)] and step.combine == [(4, 5), (5, 6), (7, 8), (9, 10)]
    assert step.seconds == 10 and step.exposed == 2, "the first dispatch and the last combine"
    one = schedule([Chunk(4.0, np.array([8.0, 8.0]))])
    assert one.seconds == 16 and one.exposed == 8
    thin = schedule([Chunk(1.0, np.array([0.25, 0.0]))] * 2)
    assert thin.combine == [(2, 3), (3, 4)] and thin.exposed == 3.5, "a link that is never free"


def test_a_combine_waits_for_the_slowest_rank():
    step = schedule([Chunk(1.0, np.array([1.0, 5.0])), Chunk(1.0, np.array([1.0, 5.0]))])
    begin, end = step.matmuls
    assert begin.tolist() == [[1, 1], [2, 6]] and end.tolist() == [[2, 6], [3, 11]]
    assert step.combine == [(6, 7), (11, 12)] and step.exposed == 2


def test_chunks_are_at_most_a_ranks_experts():
    panel = expert_parallel(experts="8, top-2", ranks=8, chunks=4)
    assert "is waiting for rows. 1 expert a rank can be cut into at most 1 chunk." in panel.alt
    assert "In 2 chunks, if" in panel.set(ranks=4).alt and "2 experts a rank can be" in panel.alt
    assert panel.set(chunks=2).alt.endswith("is waiting for rows.")
    many = panel.set(ranks=32).alt
    assert many.startswith("8 ranks") and "8 experts go to at most 8 ranks. 1 expert a rank" in many


def test_a_slow_link_cannot_be_hidden():
    panel = expert_parallel(link="NVLink 4", chunks=8)
    fast = int(re.search(r"\((\d+)%\)", panel.alt)[1])
    assert fast < 20 < 80 < int(re.search(r"\((\d+)%\)", panel.set(link="InfiniBand NDR").alt)[1])


def test_every_control_moves_the_picture():
    values = dict(tokens=4096, ranks=4, experts="256, top-8", hidden=4096, inter=2048, skew=0.8, link="NVLink 5")
    moves(expert_parallel(), **values, chunks=2)


@pytest.mark.parametrize(
    "arguments, said",
    [
        (dict(ranks=3), "ranks: got 3, expected one of 2, 4, 8"),
        (dict(link="Ethernet"), "link: got 'Ethernet', expected one of PCIe 3 x16"),
        (dict(hidden=100), "hidden: got 100|expected 1,024 to 8,192"),
    ],
)
def test_bad_arguments_name_themselves(arguments, said):
    with pytest.raises(Exception, match=said):
        expert_parallel(**arguments)
