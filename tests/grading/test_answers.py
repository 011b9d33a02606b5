"""Every answer under answers/: right ones get full marks, wrong ones none, with the hint that their first line quotes.

answers/NN/K_right_name.py is an answer to task NN.K whose first line is `# right`; of K_wrong_name.py it is
`# wrong, DIAGNOSIS: a part of the hint`.
"""

import re
from dataclasses import dataclass
from pathlib import Path

import pytest
from grading_tools import full_marks, stub, verdict_of

from grading.tasks import DIAGNOSES, exercises, tasks_of
from grading.tasks import task as find_task

HERE = Path(__file__).parent / "answers"
FIRST_LINE = re.compile(r"# (?:right|wrong, (\w+)(?:: (.+))?)")


@dataclass(frozen=True)
class Answer:
    """An answer in a file: its task, the diagnosis that it has to get ('' for full marks) and a part of its hint."""

    path: Path
    task: str
    diagnosis: str
    words: str

    def __str__(self):
        return f"{self.path.parent.name}/{self.path.stem}"


def read(path: Path) -> Answer:
    """The answer in a file; ValueError where its name and its first line do not fit together."""
    number, kind = re.match(r"(\d+)_(right|wrong)_", path.name).groups()
    first = path.read_text(encoding="utf-8").partition("\n")[0]
    match = FIRST_LINE.fullmatch(first)
    if not match or first.startswith("# right") != (kind == "right") or match[1] not in (None, *DIAGNOSES):
        raise ValueError(f"{path}: its first line is {first!r}")
    return Answer(path, f"{path.parent.name}.{number}", match[1] or "", match[2] or "")


ANSWERS = [read(path) for path in sorted(HERE.glob("[0-9]*/*.py"))]


@pytest.mark.parametrize("answer", ANSWERS, ids=str)
def test_answer(answer):
    verdict = verdict_of(answer.task, answer.path.read_text(encoding="utf-8"))
    if not answer.diagnosis:  # on a GPU a right one may be slow, in a style that is slow, or beside other work
        assert full_marks(verdict) or verdict.diagnosis == "slow", str(verdict)
        return
    assert (verdict.status, verdict.points, verdict.pending_points) == ("failed", 0, 0), str(verdict)
    assert verdict.diagnosis == answer.diagnosis and answer.words in verdict.hint, str(verdict)


@pytest.mark.parametrize("exercise", sorted(exercises()))
def test_an_untouched_stub_is_not_attempted(exercise):
    for task in tasks_of(exercise):
        verdict = verdict_of(task.id, stub(task.id))
        assert (verdict.status, verdict.points, verdict.hint) == ("not_attempted", 0, "")


@pytest.mark.parametrize("number", sorted({answer.path.parent.name for answer in ANSWERS}))
def test_each_task_has_right_answers_and_wrong_ones(number):
    for task in {answer.task for answer in ANSWERS if answer.path.parent.name == number}:
        verdicts = [bool(answer.diagnosis) for answer in ANSWERS if answer.task == task]
        assert verdicts.count(False) >= 2 and verdicts.count(True) >= 3, find_task(task).title
