import pytest

from tests.widgets.tools import moves
from widgets import threshold_steps
from widgets.panels.threshold_steps import BITS, KEYS, search


@pytest.mark.parametrize("k", range(1, len(KEYS) + 1))
def test_the_threshold_is_the_kth_largest_number(k):
    threshold = search(k)[-1][-1]
    assert threshold == sorted(KEYS, reverse=True)[k - 1]
    assert f"The threshold is {threshold}, and {sum(key >= threshold for key in KEYS)} numbers reach it" in (
        threshold_steps(len(BITS), k).alt
    )


def test_every_step_changes_the_picture():
    panel = threshold_steps(0)
    assert len({panel.set(step=step).png for step in range(len(BITS) + 1)}) == len(BITS) + 1
    moves(panel, step=2, k=2)
