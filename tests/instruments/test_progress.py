"""How far a learner is: sums, minutes, what comes next, links that lead somewhere, and a sheet for paper."""

import re

import pytest

from grading import progress
from grading.tasks import exercises
from grading.tasks import tasks_of as declared
from instruments import contents, diary
from instruments.progress import cells_of, tasks_of
from instruments.start import notebook_of

pytestmark = [
    pytest.mark.each,  # every set takes milliseconds, and most say something of their own
    pytest.mark.usefixtures("own_diary"),
]


def row(found, path):
    return next(row for row in found.rows if row.path == path)


@pytest.mark.parametrize("exercise", exercises())
def test_an_exercise_says_what_its_tasks_say(exercise):
    found = {task.id: task for task in tasks_of(contents.ROOT / notebook_of(exercise, "exercises"))}
    assert {task.id: task.max_points for task in declared(exercise)} == {id_: t.points for id_, t in found.items()}
    assert all(task.title and task.minutes for task in found.values())


def test_progress_adds_up_and_says_what_is_next():
    for task, most in (("01.1", 3), ("01.2", 3)):
        diary.keep_task(task, diary.Points("passed", most, 0, most))
    diary.keep_guess("01 zeros", diary.Guess("How many <MB>?", 30.0, 33.6, "MB", "close, 11% too low"))
    found = progress()
    text, page = repr(found), found._repr_html_()
    total = sum(task.max_points for exercise in exercises() for task in declared(exercise))
    for words in (
        "6 of 19 points",
        f"6 of {total} points",
        "Next: 01.3",
        "close, 11% too low",
        "1 guess: 1 close.",
        "hours",
    ):
        assert words in text and words in page, text
    assert "How many <MB>?" in text and "How many &lt;MB&gt;?" in page
    assert "✓ 01.1  ✓ 01.2  · 01.3" in text
    exercise, lesson = row(found, "exercises/01_roofline_exercise.ipynb"), row(found, "lessons/01_roofline.ipynb")
    assert exercise.share == 6 / 19 and (lesson.share, lesson.words) == (1 / 4, "1 of 4 guesses")
    minutes = {task.id: task.minutes for task in tasks_of(contents.ROOT / exercise.path)}
    assert exercise.minutes_left == sum(minutes.values()) - minutes["01.1"] - minutes["01.2"]
    assert lesson.minutes_left == round(0.75 * contents.described(contents.ROOT / lesson.path).minutes)
    diary.keep_task("02.2", diary.Points("failed", 0, 0, 4))
    assert "Next: 02.2" in repr(progress())  # what was begun comes first
    for task in declared("02_execution_model"):
        diary.keep_task(task.id, diary.Points("passed", task.max_points, 0, task.max_points))
    assert "Next: 03.1" in repr(progress())  # not back to what was left out before


def test_the_end_is_said():
    for exercise in exercises():
        for task in declared(exercise):
            pending = int(task.max_points > 1)
            diary.keep_task(task.id, diary.Points("pending", task.max_points - pending, pending, task.max_points))
    found = progress()
    assert "Every task is done." in found.next and "pending, which need a GPU" in found.total
    assert all(row.share == 1 and not row.minutes_left for row in found.rows if row.signs)


def test_every_guess_of_a_lesson_counts():
    """By its key in the call, which has to be a string that stands there."""
    found = progress()
    for path in sorted((contents.ROOT / "lessons").glob("*.ipynb")):
        calls = sum(len(re.findall(r"(?<!def )\bpredict\(", c.text)) for c in cells_of(path) if c.cell_type == "code")
        words = row(found, f"lessons/{path.name}").words
        assert words == (f"0 of {calls} guess{'es' * (calls != 1)}" if calls else ""), path.name


def test_the_page_in_work_has_no_links_and_prints_its_summary_alone(monkeypatch, tmp_path):
    assert "Kept for this session only" in progress().next and "to print" not in progress()._repr_html_()
    (tmp_path / "work" / "exercises").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "work" / "exercises")
    diary.keep_task("05.3", diary.Points("failed", 0, 0, 5))
    found = progress()
    assert 'href="../progress.html"' in found._repr_html_() and "session only" not in found.next
    page = (diary.FILE.parent / "progress.html").read_text(encoding="utf-8")
    for link in re.findall(r'href="([^"]+)"', found._repr_html_().replace("../progress.html", "../README.md")):
        assert (contents.ROOT / "lessons" / link).is_file(), link
    screen, summary = page.split("<div class=summary>")
    assert "@media print" in screen and ".screen { display: none }" in screen and "<div class=screen>" in screen
    assert f"0 of {len(exercises())} exercises are complete" in summary and "Exercise 05: Gemma's RMSNorm" in summary
    assert "href" not in page, "JupyterLab shows a file in a frame that may not follow a link"
    assert "<script" not in page


def test_a_page_that_cannot_be_written_stops_no_one(monkeypatch):
    diary.FILE.parent.mkdir()
    monkeypatch.setattr("instruments.progress.write_whole", lambda *_: (_ for _ in ()).throw(OSError("full")))
    assert progress().file is None
