import re

import numpy as np
import pytest

from kernels.moe import routing
from tests.widgets.tools import moves
from widgets import router_load
from widgets.panels.router_load import CAPACITIES


def told(pattern: str, panel) -> float:
    return float(re.search(pattern, panel.alt.replace(",", ""))[1])


def by_hand(tokens: int, experts: int, top_k: int, skew: float) -> list:
    """Rows of each expert, token by token."""
    rows = [0] * experts
    for token in routing.choices(experts, skew)[:tokens, :top_k]:
        assert len(set(token.tolist())) == top_k, "no expert twice"
        for expert in token:
            rows[expert] += 1
    return rows


@pytest.mark.parametrize("tokens, experts, top_k, skew", [(8192, 8, 2, 0.5), (300, 64, 6, 1.2), (7, 256, 8, 0)])
def test_the_sentence_counts_as_by_hand(tokens, experts, top_k, skew):
    rows = by_hand(tokens, experts, top_k, skew)
    panel = router_load(tokens, experts, top_k, skew, capacity="1.25", ranks=4)
    assert told(r"each: (\d+) rows", panel) == sum(rows) == tokens * top_k
    assert told(r"gets most (\d+)", panel) == max(rows) and told(r"Expert (\d+) gets", panel) == rows.index(max(rows))
    assert (f"{rows.count(0)} of {experts} get none" in panel.alt) == (0 in rows)
    room = -(-5 * tokens * top_k // (4 * experts))
    kept = [min(count, room) for count in rows]
    assert told(r"Capacity for (\d+)", panel) == room and told(r"drops (\d+) rows? \(", panel) == sum(rows) - sum(kept)
    assert told(r"leaves (\d+)% of the buffers", panel) == pytest.approx(
        100 * (1 - sum(kept) / experts / room), abs=0.51
    )
    ranks = [sum(kept[first : first + experts // 4]) for first in range(0, experts, experts // 4)]
    assert told(r"has most (\d+)", panel) == max(ranks)
    assert told(r"idle (\d+)%", panel) == pytest.approx(100 * (1 - sum(ranks) / 4 / max(ranks)), abs=0.51)


def test_choices_follow_the_popularity():
    """Of a first choice the popularity itself; of skew 0 every expert alike; a second never is the first."""
    for experts, skew in ((8, 0.0), (16, 1.0), (256, 0.7)):
        shares = routing.counts(8192, experts, 1, skew) / 8192
        expected = routing.popularity(experts, skew)
        assert np.abs(shares - expected).max() < 5 * np.sqrt(expected.max() / 8192) and expected.sum() == pytest.approx(
            1
        )
    two = routing.choices(16, 1.0)[:, :2]
    first, second = routing.popularity(16, 1.0)[two[:, 0]], np.bincount(two[:, 1], minlength=16) / 8192
    shares = routing.popularity(16, 1.0)
    drawn = [shares[e] * sum(p / (1 - p) for other, p in enumerate(shares) if other != e) for e in range(16)]
    assert np.abs(second - drawn).max() < 0.02 and (first > 0).all()


def test_tokens_are_a_ring():
    whole, part = routing.counts(8192, 8, 2, 0.5), routing.counts(5000, 8, 2, 0.5, first=8000)
    assert (part == routing.counts(192, 8, 2, 0.5, first=8000) + routing.counts(4808, 8, 2, 0.5)).all()
    assert (routing.counts(8192, 8, 2, 0.5, first=77) == whole).all()
    assert (routing.counts(3 * 8192 + 5000, 8, 2, 0.5, first=8000) == 3 * whole + part).all()


def test_all_experts_chosen_are_even():
    panel = router_load(4096, 8, 8, 2, ranks=8)
    assert "4,096 for each expert" in panel.alt and "none waits" in panel.alt
    assert "One rank computes 32,768 rows" in panel.set(ranks=1).alt


def test_loads_that_are_nearly_even_are_told_so():
    panel = router_load(8192, 8, 7, 0, ranks=2)
    rows = by_hand(8192, 8, 7, 0)
    assert 1 < max(rows) / (8192 * 7 / 8) < 1.005 and f"{max(rows):,}, hardly more than the mean; " in panel.alt
    assert "hardly more than the mean: until it is done, the ranks are idle less than 1% of the time" in panel.alt


def test_more_room_drops_less():
    panel = router_load(skew=1.5)
    sentences = [panel.set(capacity=name).alt for name, room in CAPACITIES.items() if room]
    dropped = [float(found[1]) if (found := re.search(r"\(([\d.]+)%\)", said)) else 0 for said in sentences]
    assert dropped == sorted(dropped, reverse=True) and dropped[0] > 30
    assert "drops" not in panel.set(capacity="none, all kept").alt


def test_one_rank_shows_what_a_capacity_costs():
    """Several ranks show their idle time instead; each way back leaves nothing of the other."""
    panel = router_load(experts=64, top_k=6, capacity="1.25", ranks=1)
    before = panel.png
    assert panel.set(ranks=4).png != before and panel.set(ranks=1).png == before
    assert panel.set(capacity="1").png != before


def test_every_control_moves_the_picture():
    moves(router_load(), tokens=4096, experts=64, top_k=3, skew=1.2, capacity="1", ranks=8)


@pytest.mark.parametrize(
    "arguments, said",
    [
        (dict(experts=48), "experts: got 48|power of 2 from 8 to 256"),
        (dict(capacity="3"), "capacity: got '3', expected one of none"),
        (dict(ranks=3), "ranks: got 3, expected one of 1, 2, 4, 8"),
    ],
)
def test_bad_arguments_name_themselves(arguments, said):
    with pytest.raises(Exception, match=said):
        router_load(**arguments)
