"""Grades one submission, from a file to a record: the pure step that a class is made of."""

import json
import secrets
import shutil
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

import nbformat

from grading import cases, jail
from grading.checks import exercises, tasks_of
from grading.diagnose import Finding
from grading.judge import Verdict, judge, load, simple
from grading.release import exercise_id, released
from grading.transplant import transplant

ROOT = Path(__file__).resolve().parents[1]
START_SECONDS = 60  # a kernel and the course's imports, beside what the cells take


class Unreadable(ValueError):
    """The file cannot be graded whatever the grader does: not a notebook, or of no exercise. The text is for people."""


class Missing(ValueError):
    """The course lacks what grading this submission needs."""


def read(path: Path) -> nbformat.NotebookNode:
    """The notebook at `path`; Unreadable says in one sentence what is wrong with the file."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise Unreadable(f"{path}: no such file") from None
    except IsADirectoryError:
        raise Unreadable(f"{path}: a folder, not a notebook") from None
    except UnicodeDecodeError:
        raise Unreadable(f"{path}: not a notebook (not text)") from None
    except OSError as error:
        raise Unreadable(f"{path}: cannot be read ({error.strerror})") from None
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        raise Unreadable(f"{path}: not a notebook (damaged, or not JSON)") from None
    try:
        nb = nbformat.reads(text, as_version=4)
        sound = all(isinstance(cell.source, str) and isinstance(cell.metadata, dict) for cell in nb.cells)
    except Exception:  # nbformat raises whatever a strange file makes it trip over
        sound = False
    if not isinstance(data, dict) or not sound:
        raise Unreadable(f"{path}: not a notebook (JSON, but without a notebook's cells)")
    return nb


def exercise_of(nb: nbformat.NotebookNode, path: Path) -> str:
    """The exercise a submission belongs to, by its metadata, whatever the file is called."""
    found = exercise_id(nb)
    if not found:
        raise Unreadable(f"{path}: not an exercise of this course (its metadata names none)")
    if found not in exercises():
        raise Unreadable(f"{path}: exercise {found!r} is unknown here, expected one of: {', '.join(sorted(exercises()))}")
    return found


def pristine(exercise: str, root: Path = ROOT) -> nbformat.NotebookNode:
    """The exercise as released: from its solution where that is at hand, else from exercises/."""
    for folder in ("solutions", "exercises"):
        for path in sorted((root / folder).glob("*.ipynb")):
            nb = nbformat.read(path, as_version=4)
            if exercise_id(nb) == exercise:
                return released(nb)
    raise Missing(f"exercise {exercise!r}: its notebook is missing from both solutions/ and exercises/ of {root}")


def grade(path: Path, cell_seconds: float, root: Path = ROOT) -> dict:
    """The record of one submission, as results.json holds it. Raises Unreadable or Missing."""
    begun = time.monotonic()
    nb = read(path)
    exercise = exercise_of(nb, path)
    tasks = tasks_of(exercise)
    verdicts, notes, environment = _verdicts(nb, pristine(exercise, root), tasks, cell_seconds)
    record = record_of(path, exercise, [verdicts[task.id] for task in tasks], notes)
    record["environment"] = environment
    record["seconds"] = round(time.monotonic() - begun, 1)
    return record


def record_of(path: Path, exercise: str, verdicts: list, notes: list) -> dict:
    """A submission's record from its verdicts."""
    return {
        "path": str(path), "exercise": exercise,
        "points": sum(v.points for v in verdicts), "pending_points": sum(v.pending_points for v in verdicts),
        "max_points": sum(v.max_points for v in verdicts), "isolation": jail.LEVEL, "notes": notes,
        "tasks": [asdict(v) for v in verdicts],
    }


def ungraded(path: Path, reason: str, exercise: str = "") -> dict:
    """The record of a submission that could not be graded; it says why, and it is not a zero."""
    tasks = exercises().get(exercise, ())
    return {**record_of(path, exercise, [simple(task, "ungraded", reason) for task in tasks], [reason]),
            "environment": {}, "seconds": 0.0}


def _verdicts(submitted, exercise, tasks: tuple, cell_seconds: float) -> tuple[dict, list, dict]:
    """{task id: Verdict}, notes, and the environment the code ran in."""
    seed = secrets.randbits(64)
    functions = {task.id: task.functions for task in tasks}
    verdicts: dict[str, Verdict] = {}
    environment: dict = {}
    without: frozenset = frozenset()
    plan = transplant(exercise, submitted, "", functions)
    notes = plan.notes
    for task in tasks:
        if task.id in plan.untouched:
            verdicts[task.id] = simple(task, "not_attempted")
    trouble = 0
    while len(verdicts) < len(tasks):
        left = [task for task in tasks if task.id not in verdicts]
        with tempfile.TemporaryDirectory(prefix="grade-", ignore_cleanup_errors=True) as place:
            folder = Path(place).resolve()
            finished, log = _run(exercise, submitted, functions, left, without, seed, folder, cell_seconds)
            stopped = _stopped(log, finished, left)
            answered = {r["task"]: r for r in log if r["event"] == "end" and r["role"] == "answer"}
            for task in left:
                result = load(folder, task)
                environment = environment or (result or {}).get("environment", {})
                why = stopped.get(task.id, "")
                broken = answered.get(task.id, {}).get("status") == "error"
                if broken and (not result or _undefined(result)):
                    verdicts[task.id] = _broken(task, answered[task.id])
                elif why or (result and result["finished"]):
                    verdicts[task.id] = judge(task, seed, folder, why)
        if all(task.id not in verdicts for task in left):
            trouble += 1  # nothing came of it: the machine's fault, not the learner's
            if trouble == 2:
                said = " ".join(finished.said.split())[-300:]
                for task in left:
                    verdicts[task.id] = simple(task, "ungraded", f"the grader could not run this task, twice: {said}")
        without |= set(stopped)
    return verdicts, notes, environment


def _run(exercise, submitted, functions: dict, left: list, without: frozenset, seed: int, folder: Path,
         cell_seconds: float) -> tuple:
    """Run the notebook once for the tasks that are left; what nbval's plugin logged."""
    _furnish(folder)
    for task in left:
        cases.prepare(task, seed, folder)
    plan = transplant(exercise, submitted, str(folder), functions, {task.id for task in left}, without)
    nbformat.write(plan.notebook, folder / "submission.ipynb")
    log = folder / "log.jsonl"
    deadline = START_SECONDS + cell_seconds * (len(left) + 1)
    finished = jail.run([sys.executable, "-P", str(ROOT / "grading" / "plugin.py"), str(folder / "submission.ipynb"),
                         str(log), "--cell-seconds", str(cell_seconds)], folder, ROOT, deadline)
    return finished, _records(log)


def _furnish(folder: Path) -> None:
    """What learner code may import of the course: the instruments, the probe, and a `check` that does nothing."""
    shutil.copytree(ROOT / "instruments", folder / "instruments", ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "grading").mkdir()
    shutil.copy(ROOT / "grading" / "probe.py", folder / "grading" / "probe.py")
    (folder / "grading" / "__init__.py").write_text("def check(*_):\n    \"\"\"`grade` checks by itself.\"\"\"\n")


def _records(log: Path) -> list:
    try:
        lines = log.read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        try:
            record = json.loads(line)
            if isinstance(record, dict) and {"event"} <= set(record):
                found.append({"role": "", "task": "", "status": "", "text": "", **record})
        except ValueError:
            continue
    return found


def _stopped(log: list, finished: jail.Finished, left: list) -> dict:
    """{task id: why it ended the run}: the task whose cell hung, died or flooded."""
    stopped = {r["task"]: r["text"] for r in log
               if r["event"] == "end" and r["status"] in ("died", "timeout", "flood") and r["task"]}
    if finished.code is None:  # the whole run hit its deadline: the cell that had begun is to blame
        begun = [r for r in log if r["event"] == "start"]
        ended = [r for r in log if r["event"] == "end"]
        if len(begun) > len(ended) and begun[-1]["task"]:
            stopped[begun[-1]["task"]] = "the time for the whole notebook ran out"
    return stopped


def _undefined(result: dict) -> bool:
    return bool(result["cases"]) and (result["cases"][0]["error"] or {}).get("type") == "NameError"


def _broken(task, record: dict) -> Verdict:
    """An answer cell that did not even run."""
    line = f" (line {record['line']} of the cell)" if record.get("line") else ""
    name = record["text"].split(":")[0]
    advice = {
        "NameError": "Whatever an answer needs has to stand in an answer cell: only those are carried over.",
        "ModuleNotFoundError": "While grading only instruments, torch, triton and numpy can be imported; write the kernel "
                               "yourself.",
        "NotImplementedError": "Keep the answer inside functions, so that the cell runs before it is complete.",
    }.get(name, "Run the notebook from top to bottom in a fresh kernel before you hand it in.")
    finding = Finding("exception", f"the answer cell did not run: {record['text']}{line}", advice)
    return simple(task, "failed", finding.hint(task), finding.kind)
