"""The card that `check` shows: states told apart by sign, word and colour, with a twin in plain text; `progress`."""

import pytest

from grading.card import LOOKS, Card
from grading.record import Verdict
from grading.tally import progress
from instruments import diary

STATES = {
    "passed": dict(points=5, pending_points=0, proved=["14 cases right"]),
    "pending": dict(points=4, pending_points=1, proved=["14 cases right"], unproved=["speed <1 point>"]),
    "failed": dict(points=0, pending_points=0, hint="Look at <the mask>."),
    "not_attempted": dict(points=0, pending_points=0),
    "ungraded": dict(points=0, pending_points=0, hint="The oracle failed."),
}


@pytest.fixture(autouse=True)
def own(tmp_path, monkeypatch):
    monkeypatch.setattr(diary, "FILE", tmp_path / "progress.json")
    monkeypatch.setattr(diary, "_session", diary.Diary())


def card(status, portrait=""):
    verdict = Verdict(id="05.3", title="The resident kernel", status=status, max_points=5, **STATES[status])
    if status != "not_attempted":
        diary.keep_task("05.3", diary.Points(status, verdict.points, verdict.pending_points, 5))
    return Card(verdict, "05_rmsnorm", portrait=portrait)


@pytest.mark.parametrize("status", STATES)
def test_states(status):
    page, text = card(status)._repr_html_(), repr(card(status))
    sign, word, colour, ground = LOOKS[status]
    assert f"{sign} {word}".replace("'", "&#x27;") in page and colour in page and ground in page
    for words in ("05.3", "The resident kernel", "of 5 points"):
        assert words in page and words in text
    assert "<the mask>" not in page and "<1 point>" not in page, "what a learner's code says is text"
    assert ("this exercise so far" in text) == (status != "not_attempted")


def test_calls_that_show_more_are_written_out():
    shown = card("passed", 'portrait(f, like="<b>")')
    assert '  its bytes and times: portrait(f, like="<b>")\n' in repr(shown)
    assert (
        "Its bytes and times: <code" in shown._repr_html_()
        and "portrait(f, like=&quot;&lt;b&gt;&quot;)" in shown._repr_html_()
    )
    assert "portrait" not in repr(card("passed")) + card("passed")._repr_html_()


def test_no_two_states_look_alike():
    assert len({look[:2] for look in LOOKS.values()}) == len(LOOKS)


def test_progress_adds_up_and_says_what_is_next():
    for task, most in (("01.1", 4), ("01.2", 2)):
        diary.keep_task(task, diary.Points("passed", most, 0, most))
    diary.keep_guess("bytes", diary.Guess("How many MB?", 30.0, 33.6, "MB", "close, 11% too low"))
    text, page = repr(progress()), progress()._repr_html_()
    for words in ("01_roofline", "6 of ", "Next: 01.3", "How many MB?", "close, 11% too low"):
        assert words in text and words in page, text
    assert "01.1 ✓ 01.2 ✓ 01.3 ·" in text
    diary.keep_task("02.2", diary.Points("failed", 0, 0, 4))
    assert "Next: 02.2" in repr(progress())  # what was begun comes first


def test_from_grading_import():
    from grading import check, progress
    from grading import progress as once_more

    assert callable(check) and callable(progress) and once_more is progress
