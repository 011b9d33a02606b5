import re

from tests.widgets.tools import moves
from widgets import ring_timing


def units(**values) -> float:
    return float(re.search(r"take ([\d.]+) units", ring_timing(**values).alt)[1])


def test_every_control_moves_the_picture():
    moves(ring_timing(), slots=4, latency=4.0, store=1.0)


def test_more_slots_hide_more_latency_until_the_matmuls_are_the_limit():
    times = [units(slots=slots, latency=3.0, store=0.0) for slots in (2, 3, 4, 5, 6)]
    assert times == sorted(times, reverse=True) and times[0] > 1.4 * times[-1]
    assert units(slots=4, latency=0.5, store=0.0) == units(slots=6, latency=0.5, store=0.0)


def test_an_epilogue_costs_its_own_time_per_tile():
    assert round(units(slots=6, latency=1.0, store=2.0) - units(slots=6, latency=1.0, store=0.0), 1) == 4.0
