"""The card that `check` shows: states told apart by sign, word and color, with a twin in plain text."""

import pytest

from grading.card import LOOKS, Card
from grading.record import Verdict
from instruments import diary

pytestmark = [
    pytest.mark.each,  # every set takes milliseconds, and most say something of their own
    pytest.mark.usefixtures("own_diary"),
]

STATES = {
    "passed": {"points": 5, "proved": ["14 cases right"]},
    "pending": {"points": 4, "pending_points": 1, "unproved": ["speed <1 point>"]},
    "failed": {"hint": "Look at <the mask>."},
    "not_attempted": {},
    "ungraded": {"hint": "The reference failed."},
}


@pytest.mark.parametrize("status", STATES)
def test_states(status):
    verdict = Verdict(id="05.3", title="The resident kernel", status=status, max_points=5, **STATES[status])
    diary.keep_task("05.3", diary.Points(status, verdict.points, verdict.pending_points, 5))
    card = Card(verdict, "05_rmsnorm")
    page, text = card._repr_html_(), repr(card)
    sign, word, color, ground = LOOKS[status]
    assert f"{sign} {word}".replace("'", "&#39;") in page and color in page and ground in page
    for words in ("05.3", "The resident kernel", f"{verdict.points} of 5 points"):
        assert words in page and words in text
    assert "<the mask>" not in page and "<1 point>" not in page, "what a learner's code says is text"
    assert (f"this exercise so far: {verdict.points} of" in text) == (status != "not_attempted")


def test_no_two_states_look_alike():
    assert set(LOOKS) == set(STATES) and len({look[:2] for look in LOOKS.values()}) == len(LOOKS)
