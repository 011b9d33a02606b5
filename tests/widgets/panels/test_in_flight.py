import pytest

from instruments.results import load
from tests.widgets.tools import moves
from widgets import in_flight
from widgets.panels.in_flight import MOST, SIZES, needed


def test_bandwidth_is_bytes_in_flight_over_latency():
    h200 = load("h200")
    wait = h200.machine.latency[-1].ns
    panel = in_flight(4, 1024)
    assert f"4 KiB in flight per SM: at most {4 * 1024 * 132 / wait:,.0f} GB/s" in panel.alt
    enough = needed(wait * 1e-9, h200.copy_gbps * 1e9) / 132
    for size in SIZES:
        for loads in (1, 5, 12, MOST):
            assert ("enough for copy bandwidth" in panel.set(loads=loads, size=size).alt) == (loads * size >= enough)


def test_every_control_moves_it():
    moves(in_flight(), loads=5, size=256)


def test_bad_arguments_name_themselves():
    with pytest.raises(ValueError, match="size: got 100, expected one of 256"):
        in_flight(size=100)
