import pytest

from instruments.results import Span, Timeline
from widgets.drawings.moe import (
    PART_LOOKS,
    busy_share,
    exchange,
    gaps_of,
    launches_over_time,
    recorded_lanes,
    tile_schedule,
    time_of,
    timeline,
    token_path,
)
from widgets.toolkit.panel import PURPLE

APART = {"link": [(0, 1e-3, "dispatch"), (3e-3, 4e-3, "combine")], "experts": [(1e-3, 3e-3, "matmuls")]}
CHUNKS = {
    "link": [(0, 5e-4, "dispatch"), (5e-4, 1e-3, "dispatch"), (1.5e-3, 2e-3, "combine"), (2.5e-3, 3e-3, "combine")],
    "experts": [(5e-4, 1.5e-3, "matmuls"), (1.5e-3, 2.5e-3, "matmuls")],
}


@pytest.mark.parametrize("given", [{}, {"experts": 4, "chosen": (3, 0), "gates": (0.6, 0.4)}])
def test_a_token_goes_to_its_experts_alone(given):
    panel = token_path(**given)
    named = "3 and 0" if given else "1 and 4"
    assert f"those of experts {named}. Only these" in panel.alt and panel.png


@pytest.mark.parametrize(
    "counts, tile, padded, tiled, tiles",
    [
        ((9, 14, 0, 6), 4, 56, 36, 9),
        ((1, 3, 2, 0, 1, 1, 40, 2), 16, 320, 144, 9),
        ((5,), 1, 5, 5, 5),
        ((0, 7), 8, 14, 8, 1),
    ],
)
def test_the_schedule_counts_rows_as_by_hand(counts, tile, padded, tiled, tiles):
    said = tile_schedule(counts, tile).alt
    assert f"multiplies {padded} rows, tiles of {tile} rows {tiled};" in said and f"take the {tiles} tiles" in said


def test_a_loop_of_launches_leaves_sms_idle():
    said = launches_over_time().alt
    assert "busy 58% of the time drawn" in said and "busy 100%. The" in said
    full = launches_over_time((4, 4), between=0)
    assert "busy 100% of the time drawn" in full.alt and "busy 100%. The" in full.alt and full.png


def test_rows_between_ranks_add_up():
    panel = exchange([[5, 3, 0], [1, 0, 7], [2, 2, 0]], "Rank 2 receives most", "Three ranks")
    assert panel.alt == (
        "Three ranks. rank 0 has 8 and receives 8; rank 1 has 8 and receives 5; rank 2 has 4 and receives 7. "
        "15 of 20 rows (75%) go over the link; hatched ones stay."
    )
    eight = [[(3 * a + 5 * b) % 7 * 100 + 30 for b in range(8)] for a in range(8)]
    assert exchange(eight, "T", "A").png


def test_the_timeline_says_how_long_and_how_busy():
    panel = timeline({"one after the other": APART, "two chunks": CHUNKS}, "T", "A step")
    assert panel.alt == (
        "A step. one after the other 4 ms, link busy 50%, experts busy 50%; two chunks 3 ms, link busy 67%, experts "
        "busy 67%."
    )
    assert timeline({"a": APART}, "T", "A", numbers="half").alt == "A. half."


def test_what_runs_twice_at_once_is_busy_once():
    assert busy_share([(0, 2), (1, 3), (5, 6), (5.5, 5.75)], 8) == 0.5


def test_many_short_intervals_draw():
    parts = [(at * 3e-5, at * 3e-5 + 2e-5, f"kind {at % 4}") for at in range(200)]
    assert timeline({"w": {"GPU 0, compute": parts, "GPU 0, link": []}}, "T", "A").png


def test_too_many_kinds_are_named():
    parts = [(at, at + 1, f"kind {at}") for at in range(7)]
    with pytest.raises(ValueError, match="ways: got kinds kind 0, .*, expected at most 4 beside dispatch"):
        timeline({"w": {"lane": parts}}, "T", "A")


def test_a_kind_looks_the_same_in_every_picture(monkeypatch):
    drawn = {}
    monkeypatch.setattr("widgets.drawings.moe.box", lambda axes, x, y, w, h, colour, **look: drawn.setdefault(colour))
    alone, beside = [(0, 1, "counts")], [(1, 2, "routing and moving rows")]
    for parts in (alone, beside, alone + beside, beside + alone):
        drawn.clear()
        timeline({"w": {"lane": parts}}, "T", "A")
        assert (PURPLE in drawn) == (alone[0] in parts) and ("#8a8a8a" in drawn) == (beside[0] in parts)


def test_a_recorded_step_becomes_lanes():
    names = (("link", "dispatch 0"), ("experts", "gate and up 0"), ("rows", "route_kernel"), ("link", "combine 1"))
    spans = [Span(lane=lane, name=name, start=100.0 * at, us=50.0) for at, (lane, name) in enumerate(names)]
    step = Timeline(model="M", routing="even", link="NVLink", chunks=2, sms=0, rows=(1, 1), ranks=[spans, spans[:1]])
    lanes = recorded_lanes(step)
    spans = lanes["link of rank 0"]
    assert [kind for *_, kind in spans] == ["dispatch", "combine"]
    assert [time for *times, _ in spans for time in times] == pytest.approx([0, 5e-5, 3e-4, 3.5e-4])
    assert lanes["matmuls of rank 0"][0][2] == "matmuls" and lanes["rows of rank 0"][0][2].startswith("routing")
    assert lanes["matmuls of rank 1"] == [] and len(recorded_lanes(step, ranks=[1])) == 3
    assert timeline({"M": lanes}, "T", "A").alt.startswith("A. M 350 µs, link of rank 0 busy 29%")


def test_the_time_of_a_step_is_shared_out():
    """Rank 0 is ready at 10, rank 1 at 30; rows travel to 50; the second rank's matmul runs while rows come back."""

    def spans(*parts):
        return [Span(lane=lane, name=lane, start=float(start), us=float(end - start)) for lane, start, end in parts]

    first = spans(("rows", 0, 5), ("link", 10, 49), ("experts", 55, 70), ("link", 72, 100))
    second = spans(("rows", 20, 28), ("link", 30, 50), ("experts", 55, 90), ("link", 80, 99))
    step = Timeline(model="M", routing="even", link="NVLink", chunks=1, sms=0, rows=(1, 1), ranks=[first, second])
    names = "matmuls", "rows in transit", "routing and moving rows", "waiting for the other rank", "no kernel"
    for rank, times in enumerate(((15, 19 + 20, 5, 20 + 8, 5 + 6 + 2), (35, 20 + 9, 8, 0, 20 + 2 + 5 + 1))):
        assert time_of(step, rank) == dict(zip(names, times))
        gaps = gaps_of(step, rank)
        assert sum(end - start for start, end in gaps) == times[-1] and list(PART_LOOKS) == list(names)
        drawn = recorded_lanes(step, gaps=True)[f"gaps of rank {rank}"]
        assert [kind for *_, kind in drawn] == ["no kernel"] * len(gaps)
