import pytest

from instruments import diary
from widgets import predict, predictions
from widgets.toolkit import panel
from widgets.toolkit.predict import RECORD, closeness, parse

pytestmark = pytest.mark.each  # every set takes milliseconds, and most say something of their own


@pytest.fixture(autouse=True)
def fresh():
    RECORD.clear()
    yield
    RECORD.clear()


@pytest.mark.parametrize(
    "guess, answer, said",
    [
        (33.6, 33.6, "right"),
        (32, 33.6, "right"),
        (30, 33.6, "close, 11% too low"),
        (60, 33.6, "off, 1.8 times too high"),
        (40_022, 80_044, "off, 2 times too low"),
        (10, 33.6, "off, 3.4 times too low"),
        (33600, 33.6, "far off, 1,000 times too high: 3 powers of ten"),
        (0, 5, "off by 5"),
        (5, 0, "off by 5"),
        (0, 0, "right"),
        (-5, 5, "off by 10"),
        (-4, -5, "close, 20% too low"),
        (-4.9, -5, "right"),
    ],
)
def test_closeness(guess, answer, said):
    assert closeness(guess, answer) == said


def test_parse():
    assert [parse(t) for t in ("33.6", " 33,600,000 ", "33_600", "3.4e7")] == [33.6, 33.6e6, 33600, 3.4e7]
    for text in ("", "many", "nan", "inf", "1.2.3"):
        with pytest.raises(ValueError, match="guess: got"):
            parse(text)


def _type(prediction, text):
    row = prediction.box.children[1]
    row.children[0].value = text
    row.children[-1].click()
    return prediction.box.children[2].value


def test_a_guess_locks_and_shows_the_answer():
    asked = predict("bytes", "How many MB?", 33.6, unit="MB")
    assert "33.6" not in asked.box.children[2].value and "33.6" not in repr(asked)
    assert "Your guess: 30 MB. Answer: 33.6 MB. Close, 11% too low." in _type(asked, "30")
    entry, _, button = asked.box.children[1].children
    assert entry.disabled and button.description == "Locked"
    button.click()
    asked.lock(33.6)
    assert asked.guess == 30, "a second guess changes nothing"


def test_enter_locks_and_typing_takes_an_error_away():
    asked = predict("bytes", "How many MB?", 33.6)
    entry, reply = asked.box.children[1].children[0], asked.box.children[2]
    entry.value = "many"
    entry._handle_string_msg(None, {"event": "submit"}, [])  # what the page sends on Enter
    assert "expected a number" in reply.value and asked.guess is None
    entry.value = "3"
    assert reply.value == ""
    entry._handle_string_msg(None, {"event": "submit"}, [])
    assert asked.guess == 3 and "Answer: 33.6" in reply.value


def test_a_guess_outlives_the_session(tmp_path, monkeypatch):
    monkeypatch.setattr(diary, "FILE", tmp_path / "progress.json")
    predict("bytes", "How many MB?", 33.6).lock(30)
    RECORD.clear()
    assert predict("bytes", "How many MB?", 33.6).guess == 30
    RECORD.clear()
    assert predict("bytes", "How many GB?", 0.0336).guess is None, "another question is asked anew"


def test_a_kept_guess_waits_for_an_answer_that_a_later_cell_computes(tmp_path, monkeypatch):
    monkeypatch.setattr(diary, "FILE", tmp_path / "progress.json")
    later = {"answer": 33.6}
    predict("bytes", "How many MB?", lambda: later["answer"]).lock(30)
    RECORD.clear()
    later.clear()
    asked = predict("bytes", "How many MB?", lambda: later["answer"])
    assert asked.guess is None and asked.box.children[1].children[0].value == "30"


def test_the_question_says_what_counts_as_right():
    assert "10%" in predict("bytes", "How many MB?", 33.6, within=0.1).box.children[0].value


def test_what_is_no_number_locks_nothing():
    asked = predict("bytes", "How many MB?", 33.6)
    assert "expected a number" in _type(asked, "<many>") and "&lt;many&gt;" in asked.box.children[2].value
    assert asked.guess is None and not asked.box.children[1].children[-1].disabled
    assert "Answer: 33.6" in _type(asked, "33")


def test_running_the_cell_again_keeps_the_guess_but_a_new_question_does_not():
    predict("bytes", "How many MB?", 33.6).lock(30)
    assert predict("bytes", "How many MB?", 33.6).guess == 30
    assert predict("bytes", "How many KB?", 33600).guess is None


def test_a_callable_answers_once_when_needed():
    calls = []
    asked = predict("late", "How many?", lambda: calls.append(1) or 12)
    assert calls == []
    asked.lock(10)
    assert asked.verdict
    assert asked.answer == 12 and calls == [1]


def test_a_callable_that_fails_is_reported_and_locks_nothing():
    asked = predict("late", "How many?", lambda: 1 / 0)
    assert "ZeroDivisionError" in _type(asked, "10")
    assert asked.guess is None


def test_stored_runs_fold_the_answer(monkeypatch):
    shown = []
    monkeypatch.setattr(panel, "display", lambda bundle, **kwargs: shown.append(bundle))
    predict("bytes", "How many < 100?", 33.6, unit="MB")._ipython_display_()
    predict("late", "How many?", lambda: not_yet)._ipython_display_()  # noqa: F821
    assert shown[0]["text/html"] == (
        "<p><b>Predict.</b> How many &lt; 100?</p><details><summary>Answer</summary>33.6 MB</details>"
    )
    assert "33.6" not in shown[0]["text/plain"]
    assert "a later cell computes it" in shown[1]["text/html"]


def test_predictions_show_guesses_beside_answers_and_hide_the_rest():
    assert "No predictions yet" in predictions()._repr_html_()
    predict("a", "How many MB?", 33.6, unit="MB").lock(30)
    predict("b", "How many µs?", 7.0, unit="µs")
    table = predictions()
    assert table.rows == [
        ("How many MB?", "30 MB", "33.6 MB", "close, 11% too low"),
        ("How many µs?", "", "", "not guessed"),
    ]
    assert "<td" in table._repr_html_() and "7 µs" not in table._repr_html_() + repr(table)


def test_bad_answers_name_themselves():
    with pytest.raises(ValueError, match="answer: got 'many'"):
        predict("a", "How many?", "many")
    import torch

    assert predict("a", "How many?", torch.tensor(3.0)).answer == 3.0
