"""Grades one submission, from a file to a record: the pure step that a class is made of."""

import json
import math
import os
import secrets
import shutil
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import nbformat

from grading import cases, jail
from grading.again import confirmed
from grading.checks import exercises, tasks_of
from grading.diagnose import Finding
from grading.intake import Handed, Unreadable, alone, exercise_of, mended, read
from grading.judge import Verdict, judge, load, simple
from grading.likeness import likeness, of_solution
from grading.release import exercise_id, released
from grading.transplant import transplant

ROOT = Path(__file__).resolve().parents[1]
START_SECONDS = 60  # a kernel and the course's imports, beside what the cells take
SUBMISSION_SECONDS = 900  # for everything: a notebook whose every task hangs must not hold up the class
GPU_LOCK = f"/tmp/bytes-first-gpu-{os.getuid() if hasattr(os, 'getuid') else 0}.lock"


class Missing(ValueError):
    """The course lacks what grading this submission needs."""


@dataclass
class Budget:
    """When the time of a whole submission is over (time.monotonic)."""

    end: float


def pristine(exercise: str, root: Path = ROOT) -> nbformat.NotebookNode:
    """The exercise as released: from its solution where that is at hand, else from exercises/."""
    for folder in ("solutions", "exercises"):
        for path in sorted((root / folder).glob("*.ipynb")):
            nb = nbformat.read(path, as_version=4)
            if exercise_id(nb) == exercise:
                return released(nb)
    raise Missing(f"exercise {exercise!r}: its notebook is missing from both solutions/ and exercises/ of {root}")


def grade(handed: Handed | Path, cell_seconds: float, root: Path = ROOT, seed: int | None = None,
          seconds: float = SUBMISSION_SECONDS) -> dict:
    """The record of one submission, as results.json holds it. Raises Unreadable or Missing.

    cell_seconds: what one cell may take. seconds: what the whole submission may take. seed: of the inputs; secret and
    drawn here by default.
    """
    begun = time.monotonic()
    handed = handed if isinstance(handed, Handed) else alone(Path(handed))
    nb, notes = read(handed)
    exercise = exercise_of(nb, handed.path, notes)
    tasks = tasks_of(exercise)
    original = pristine(exercise, root)
    nb, mends = mended(nb, original, {task.id: task.functions for task in tasks})
    seed = secrets.randbits(63) if seed is None else seed
    verdicts, more, environment = _verdicts(nb, original, tasks, cell_seconds, seed, Budget(begun + seconds))
    record = record_of(handed, exercise, [verdicts[task.id] for task in tasks], [*notes, *mends, *more])
    plan = transplant(original, nb, "", {task.id: task.functions for task in tasks})
    solved = of_solution(exercise, root)
    for task in record["tasks"]:
        if task["id"] not in plan.untouched:
            task["likeness"] = likeness(plan.answers[task["id"]])
            if solved:  # else there is nothing to compare with
                task["like_solution"] = task["likeness"] == solved.get(task["id"])
    return {**record, "environment": environment, "seed": str(seed), "seconds": round(time.monotonic() - begun, 1)}


def graded(handed: Handed, cell_seconds: float, root: Path = ROOT, seed: int | None = None,
           seconds: float = SUBMISSION_SECONDS) -> dict:
    """The record of one submission, whatever happens: the file's faults and the grader's own are told in it.

    A fault of the grader's is tried once more; after that the submission is ungraded, which is not a zero.
    """
    for attempt in (1, 2):
        try:
            return grade(handed, cell_seconds, root, seed, seconds)
        except Unreadable as error:
            return ungraded(handed, str(error), status="unreadable")
        except Missing as error:
            return ungraded(handed, str(error))
        except Exception as error:  # a fault of the grader's must not cost the others their grades
            reason = f"{handed.path}: the grader failed, twice ({type(error).__name__}: {error})"
    return ungraded(handed, reason, _exercise(handed))


def _exercise(handed: Handed) -> str:
    try:
        return exercise_of(read(handed)[0], handed.path)
    except Exception:
        return ""


def record_of(handed: Handed | Path, exercise: str, verdicts: list, notes: list) -> dict:
    """A submission's record from its verdicts."""
    handed = handed if isinstance(handed, Handed) else alone(Path(handed))
    states = {v.status for v in verdicts}
    return {
        "path": handed.path, "file": handed.place, "learner": handed.learner, "exercise": exercise,
        "status": "ungraded" if "ungraded" in states or not verdicts else "pending" if "pending" in states else "graded",
        "points": sum(v.points for v in verdicts), "pending_points": sum(v.pending_points for v in verdicts),
        "max_points": sum(v.max_points for v in verdicts), "gradable_points": _gradable(exercise) if verdicts else 0,
        "isolation": jail.level(), "notes": notes,
        "tasks": [_plain(asdict(v)) for v in verdicts],
    }


def _gradable(exercise: str) -> int:
    """The points that can be earned on this machine: without a GPU, all but those for speed."""
    return sum(task.max_points if has_gpu() else task.points for task in tasks_of(exercise))


def _plain(value):
    """The same without NaN and infinity, which JSON does not have: they become words."""
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def ungraded(handed: Handed | Path, reason: str, exercise: str = "", status: str = "ungraded") -> dict:
    """The record of a submission that could not be graded; it says why, and it is not a zero.

    status: "unreadable" where the file is at fault, "ungraded" where the grader or its machine is.
    """
    tasks = exercises().get(exercise, ())
    return {**record_of(handed, exercise, [simple(task, "ungraded", reason) for task in tasks], [reason]),
            "status": status, "environment": {}, "seed": "", "seconds": 0.0}


def _verdicts(submitted, exercise, tasks: tuple, cell_seconds: float, seed: int,
              budget: Budget) -> tuple[dict, list, dict]:
    """{task id: Verdict}, notes, and the environment the code ran in."""
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
        if time.monotonic() > budget.end:
            late = Finding("stopped", "the time for the whole submission was used up before this task's turn"
                           + (f", by {', '.join(sorted(without))}" if without else ""), "Repair the tasks that take so long.")
            verdicts |= {task.id: simple(task, "failed", late.hint(task), late.kind) for task in left}
            break
        with tempfile.TemporaryDirectory(prefix="grade-", ignore_cleanup_errors=True) as place:
            folder = Path(place).resolve()
            finished, log = _run(exercise, submitted, functions, left, without, seed, folder, cell_seconds, budget)
            stopped = _stopped(log, finished, left)
            answered = {r["task"]: r for r in log if r["event"] == "end" and r["role"] == "answer"}
            checked = {r["task"] for r in log if r["event"] == "end" and r["role"] == "check" and r["status"] == "ok"}
            for task in left:
                result = load(folder, task)
                environment = environment or (result or {}).get("environment", {})
                why = stopped.get(task.id, "")
                broken = answered.get(task.id, {}).get("status") == "error"
                if answered.get(task.id, {}).get("status") == "timeout":  # whatever it had defined until then
                    finding = Finding("stopped", f"your answer cell did not end within {cell_seconds:g} s", "A loop at "
                                      "its top level never ends, or it does work that belongs into the function.")
                    verdicts[task.id] = simple(task, "failed", finding.hint(task), finding.kind)
                elif broken and (not result or _undefined(result)):
                    verdicts[task.id] = _broken(task, answered[task.id])
                elif not result and not why and (task.id in checked or (folder / "results" / task.id).is_symlink()):
                    finding = Finding("stopped", "its check cell left no result", "Answer cells must leave IPython and "
                                      "the files of the grading run alone.")
                    verdicts[task.id] = simple(task, "failed", finding.hint(task), finding.kind)
                elif why or (result and result["finished"]):
                    verdicts[task.id] = judge(task, seed, folder, why)
            with _turn(left, budget):
                verdicts |= confirmed(left, verdicts, seed, folder, plan.notebook.cells, ROOT)
        if all(task.id not in verdicts for task in left):
            trouble += 1  # nothing came of it: the machine's fault, not the learner's
            if trouble == 2:
                said = " ".join(finished.said.split())[-300:]
                for task in left:
                    verdicts[task.id] = simple(task, "ungraded", f"the grader could not run this task, twice: {said}")
        without |= set(stopped)
    return verdicts, notes, environment


def _run(exercise, submitted, functions: dict, left: list, without: frozenset, seed: int, folder: Path,
         cell_seconds: float, budget: Budget) -> tuple:
    """Run the notebook once for the tasks that are left; what nbval's plugin logged."""
    _furnish(folder)
    for task in left:
        cases.prepare(task, seed, folder)
    plan = transplant(exercise, submitted, str(folder), functions, {task.id for task in left}, without)
    nbformat.write(plan.notebook, folder / "submission.ipynb")
    log = folder / "log.jsonl"
    with _turn(left, budget):
        deadline = min(START_SECONDS + cell_seconds * (len(left) + 1), max(budget.end - time.monotonic(), 1))
        finished = jail.run([sys.executable, "-P", str(ROOT / "grading" / "plugin.py"), str(folder / "submission.ipynb"),
                             str(log), "--cell-seconds", str(cell_seconds),
                             "--enter", json.dumps(jail.inner(folder, ROOT, deadline))], folder, ROOT, deadline)
    return finished, _records(log)


def has_gpu() -> bool:
    """Whether this machine shows an NVIDIA GPU, and is not told to hide it; known without torch, which takes seconds."""
    if os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1"):
        return False
    return any(Path(sign).exists() for sign in ("/dev/nvidiactl", "/dev/nvidia0", "/proc/driver/nvidia/version", "/dev/dxg"))


@contextmanager
def exclusive(timed: bool):
    """Alone on the GPU, as far as graders on this machine go, while something is timed there."""
    if not timed or not has_gpu() or os.name != "posix":
        yield
        return
    import fcntl

    with open(GPU_LOCK, "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # given back when the file is closed, or its process ends
        yield


@contextmanager
def _turn(tasks: list, budget: Budget):
    """Alone on the GPU where one of the tasks is timed; waiting for others is not the learner's time."""
    asked = time.monotonic()
    with exclusive(any(task.speed for task in tasks)):
        budget.end += time.monotonic() - asked
        yield


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
    if finished.code is None:  # the whole run was ended: the cell that had begun is to blame
        begun = [r for r in log if r["event"] == "start"]
        ended = [r for r in log if r["event"] == "end"]
        if len(begun) > len(ended) and begun[-1]["task"]:
            stopped[begun[-1]["task"]] = finished.why or "the time for the whole notebook ran out"
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
