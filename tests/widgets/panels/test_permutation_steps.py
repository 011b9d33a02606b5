import itertools
import re

import numpy as np
import pytest
from matplotlib.transforms import Bbox

from tests.widgets.corners import texts_of
from widgets import permutation_steps
from widgets.panels.permutation_steps import LAST, ROUTINGS, SLOTS, SUM


@pytest.mark.parametrize("routing", ROUTINGS)
def test_slots_go_where_a_stable_sort_puts_them(routing):
    chosen = [expert for token in ROUTINGS[routing] for expert in token]
    expected = sorted(range(SLOTS), key=lambda slot: chosen[slot])  # Python's sort is stable
    panel = permutation_steps(routing=routing)
    for slot in range(SLOTS):
        said = panel.set(step=SUM + 1 + slot).alt
        row = int(re.search(r"= (\d+);", said)[1])
        assert expected[row] == slot and f"token {slot // 2}'s" in said and f"is expert {chosen[slot]}," in said


def test_counts_and_offsets_are_told():
    panel = permutation_steps(1)
    assert "chosen 4, 2, 7, 3 times" in panel.alt
    assert "offsets 0, 4, 6, 13, 16" in panel.set(step=2).alt
    assert "offsets 0, 5, 5, 12, 16" in panel.set(routing="expert 1 empty").alt
    assert "the sort is stable" in panel.set(step=LAST).alt


def test_every_step_changes_the_picture():
    panel = permutation_steps(0)
    pictures = [panel.set(step=step).png for step in range(LAST + 1)]
    assert len(set(pictures)) == LAST + 1 and panel.set(routing="expert 2 for all").png not in pictures
    with pytest.raises(Exception, match="routing: got 'even'"):
        permutation_steps(routing="even")


def test_the_way_to_a_row_passes_no_words():
    panel = permutation_steps()
    (way,) = (line for line in panel.figure.axes[0].lines if line.get_animated())
    for routing in ROUTINGS:
        ways = [panel.set(step=SUM + 1 + slot, routing=routing) and way.get_xydata() for slot in range(SLOTS)]
        words = [text for text in texts_of(panel.figure) if text.get_text()]  # of the last step, which has them all
        boxes = [text.get_window_extent().shrunk(0.9, 0.9) for text in words]
        for slot, corners in enumerate(ways):
            for part in itertools.pairwise(way.get_transform().transform(corners)):
                line = Bbox([np.minimum(*part), np.maximum(*part)])
                assert [text.get_text() for text, box in zip(words, boxes) if line.overlaps(box)] == [], (routing, slot)
