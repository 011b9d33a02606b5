import pytest

from kernels.attention.decode_models import HEADS, PERSISTENT, SMS, SPLIT, WAYS, WORKLOADS, parts_of, schedule
from widgets import kv_split


@pytest.mark.parametrize("caches", WORKLOADS)
@pytest.mark.parametrize("way", WAYS)
def test_every_tile_is_read_once_and_no_sm_does_two_things_at_once(way, caches):
    work = WORKLOADS[caches]
    programs = schedule(way, work)
    read = sorted(tile for program in programs for tile in program.tiles)
    assert read == [(pair, tile) for pair in range(work.sequences) for tile in range(work.tiles)]
    for sm in range(SMS):
        own = sorted((p for p in programs if p.sm == sm), key=lambda p: p.start)
        assert all(later.start >= before.end for before, later in zip(own, own[1:]))
    if way == PERSISTENT:
        assert len(programs) <= SMS and all(p.start == 0 for p in programs)
    if way == HEADS:
        assert set(parts_of(programs).values()) == {1}


def test_the_sentence_says_when_a_step_is_done():
    panel = kv_split(13)
    assert "2 programs for 6 SMs, 13 units of time, and nothing to merge" in panel.alt
    assert "6 programs for 6 SMs, 6 units of time, the last one for merging" in panel.set(way=SPLIT).alt
    panel.set(caches="7 short caches", way=HEADS, step=8)
    assert "Time 8: 1 of 6 SMs are busy, 26 of 28 tiles" in panel.alt and "10 units of time" in panel.alt
    assert "the parts of 4 caches" in panel.set(way=PERSISTENT, step=7).alt


def test_every_control_changes_the_picture():
    panel = kv_split(3)
    pictures = {panel.png}
    for change in ({"step": 4}, {"way": SPLIT}, {"caches": "7 short caches"}, {"way": PERSISTENT}):
        before = len(pictures)
        pictures.add(panel.set(**change).png)
        assert len(pictures) == before + 1, change
