"""A whole notebook through `grade`: the sandbox, the run, the player, the judge and the record."""

import json
import types

import pytest
from grading_tools import answers, edited, handed_in

from grading import intake, sandbox, submission
from grading.submission import Limits, grade, graded, records_in, stopped_by, verdict_of_cells
from grading.tasks import task as find_task
from instruments.release import ROOT

TWO = answers("05b_layernorm")
FIVE = answers("11b_expert_parallel")
BROKEN = edited(TWO["05b.1"], ("apart**2 *", "apart**2 * *"))


def by_id(record) -> dict:
    return {verdict.id: verdict for verdict in record.tasks}


def test_the_solution_gets_every_point(tmp_path):
    path = tmp_path / "my homework (2).ipynb"
    path.write_bytes((ROOT / "solutions" / "05b_layernorm_solution.ipynb").read_bytes())
    record = grade(path, Limits(60))
    assert (record.status, record.points, record.max_points) == ("graded", 13, 13), record
    assert {v.status for v in record.tasks} == {"passed"} and record.notes == []
    assert (record.exercise, record.learner, record.isolation) == ("05b_layernorm", path.stem, sandbox.level())
    assert record.environment.torch and int(record.seed) >= 0 and record.gradable_points == 13


@pytest.mark.parametrize(
    "answer, diagnosis, words",
    [
        (BROKEN, "exception", "(line 7 of the cell)"),
        (f"{TWO['05b.1']}\nwhile True: pass", "stopped", "did not end within"),
    ],
    ids=["a syntax error", "a cell without end"],
)
def test_a_cell_that_fails_costs_its_own_task_alone(answer, diagnosis, words, tmp_path):
    """Neither stands in the way when the kernels of a later task are played by themselves."""
    record = grade(handed_in("05b_layernorm", {"05b.1": answer}, tmp_path / "odd.ipynb"), Limits(30, seed=1))
    failed, *right = record.tasks
    assert (failed.status, failed.diagnosis) == ("failed", diagnosis) and words in failed.hint, str(failed)
    assert [(verdict.status, verdict.points) for verdict in right] == [("passed", 5)] * 2, str(record)


def test_one_bad_task_costs_no_other(tmp_path):
    """A wrong answer, one that hangs, one that ends its process, one that does not compile, and right ones."""
    wrong = (ROOT / "tests/grading/answers/11b/1_wrong_seconds.py").read_text(encoding="utf-8")
    changes = {
        "11b.1": wrong,
        "11b.2": FIVE["11b.2"].replace("### BEGIN SOLUTION", "while True: pass"),
        "11b.3": FIVE["11b.3"].replace("### BEGIN SOLUTION", "import os; os._exit(0)"),
        "11b.4": "def place",
    }
    record = grade(handed_in("11b_expert_parallel", changes, tmp_path / "trouble.ipynb"), Limits(30, seed=1))
    verdicts = by_id(record)
    assert [v.status for v in record.tasks] == ["failed"] * 4 + ["passed"] * 3, str(record)
    assert record.points == sum(find_task(f"11b.{n}").points for n in (5, 6, 7)) and record.status == "graded"
    assert verdicts["11b.1"].diagnosis in ("mistake", "values")
    assert "out of time" in verdicts["11b.2"].hint and "process" in verdicts["11b.3"].hint
    assert [verdicts[f"11b.{n}"].diagnosis for n in (2, 3, 4)] == ["stopped", "stopped", "exception"]


def test_the_same_seed_gives_the_same_record_and_an_untouched_task_is_not_attempted(tmp_path):
    wrong = edited(TWO["05b.1"], ("+ between", "+ 1.5 * between"))
    path = handed_in("05b_layernorm", {"05b.1": wrong}, tmp_path / "wrong.ipynb", base="exercises")
    first, again, other = (grade(path, Limits(60, seed=seed)) for seed in (1, 1, 2))
    first.seconds = again.seconds = 0
    assert first == again and first.seed == "1"
    assert [v.status for v in other.tasks] == ["failed", "not_attempted", "not_attempted"]
    assert other.tasks[0].hint != first.tasks[0].hint, "other numbers"


# ---------------------------------------------------------------- whose fault it is


def test_a_file_that_cannot_be_read_is_the_files_fault(tmp_path):
    path = tmp_path / "odd.ipynb"
    path.write_text("{", encoding="utf-8")
    record = graded(intake.alone(path), Limits(5))
    assert (record.status, record.points, record.tasks) == ("unreadable", 0, []) and record.notes
    assert not record.is_graded


def nothing(*_, **__):
    """A run that leaves nothing."""
    return sandbox.Finished(1, "no kernel could be started")


def test_a_run_that_cannot_be_made_is_nobodys_zero(monkeypatch):
    monkeypatch.setattr(sandbox, "run", nothing)
    record = grade(ROOT / "solutions" / "05b_layernorm_solution.ipynb", Limits(5))
    assert record.status == "ungraded" and not record.is_graded
    assert all(v.status == "ungraded" and "no kernel could be started" in v.hint for v in record.tasks)


def test_a_machine_without_torch_is_nobodys_zero(monkeypatch):
    monkeypatch.setattr(submission, "START", submission.START + 'sys.modules["torch"] = None\n')
    record = grade(ROOT / "solutions" / "05b_layernorm_solution.ipynb", Limits(60))
    assert record.status == "ungraded" and {v.status for v in record.tasks} == {"ungraded"}, record
    assert "a cell of the exercise itself failed: ModuleNotFoundError: import of torch" in record.tasks[0].hint


def test_a_grader_that_raises_is_tried_twice(monkeypatch):
    calls = []
    monkeypatch.setattr(submission, "pristine", lambda exercise: calls.append(exercise) or 1 / 0)
    record = graded(intake.alone(ROOT / "solutions" / "05b_layernorm_solution.ipynb"), Limits(5))
    assert len(calls) == 2 and record.status == "ungraded" and "ZeroDivisionError" in record.notes[0]


def test_the_time_for_a_whole_submission_ends_it(monkeypatch):
    monkeypatch.setattr(sandbox, "run", lambda *_, **__: pytest.fail("a run was started"))
    record = grade(ROOT / "solutions" / "05b_layernorm_solution.ipynb", Limits(5, seconds=0))
    assert record.status == "graded" and record.points == 0
    assert all("the whole submission was used up" in v.hint for v in record.tasks)


# ---------------------------------------------------------------- the log


def entry(event, role="check", task="05b.1", status="ok", text="", line=""):
    return {"event": event, "role": role, "task": task, "status": status, "text": text, "line": line}


def test_a_log_that_others_wrote_into_is_read_as_far_as_it_goes(tmp_path):
    log = tmp_path / "log.jsonl"
    lines = ['{"event": "start", "role": 3}', "[" * 100_000, "garbage", "[1]", '{"task": "05b.1"}', '{"event": "end"}']
    log.write_text("\n".join(lines), encoding="utf-8")
    assert [(r["event"], r["role"]) for r in records_in(log, tmp_path)] == [("start", "3"), ("end", "")]
    log.unlink()
    log.symlink_to("/etc/passwd")
    assert records_in(log, tmp_path) == [] == records_in(tmp_path / "none", tmp_path)


def test_the_cell_that_ended_a_run_is_to_blame():
    finished, killed = types.SimpleNamespace(code=0, why=""), types.SimpleNamespace(code=None, why="too much memory")
    died = [entry("start"), entry("end", status="died", text="its process ended")]
    assert stopped_by(died, finished) == {"05b.1": "its process ended"}
    begun = [entry("start"), entry("end"), entry("start", task="05b.2")]
    assert stopped_by(begun, killed) == {"05b.2": "too much memory"} and stopped_by(begun, finished) == {}
    assert stopped_by(begun[:2], killed) == {}


def test_a_check_cell_that_ran_and_left_no_result_was_tampered_with():
    task = find_task("05b.1")
    log = json.loads(json.dumps([entry("end", "answer"), entry("end")]))
    assert "left no result" in verdict_of_cells(task, None, log, False, 5).hint
    assert verdict_of_cells(task, None, log, True, 5) is None
    failed = [entry("end", "answer", status="error", text="NameError: name 'F'", line="3")]
    assert (
        "did not run: NameError: name 'F' (line 3 of the cell)" in verdict_of_cells(task, None, failed, False, 5).hint
    )
