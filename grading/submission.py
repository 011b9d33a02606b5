"""Grades one submission, from a file to a record: the pure step that a class is made of."""

import ast
import json
import os
import re
import secrets
import shutil
import sys
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import nbformat

from grading import cases, jail, judge, record
from grading.diagnose import Finding, tree_of
from grading.intake import Handed, Unreadable, alone, exercise_of, mended, read
from grading.likeness import likeness, of_solution
from grading.record import PLAYED, RUN, Submission, Undecodable, Verdict
from grading.release import exercise_id, released
from grading.tasks import Given, Task, exercises, tasks_of
from grading.transplant import transplant

ROOT = Path(__file__).resolve().parents[1]
START_SECONDS = 60  # a kernel and the course's imports, beside what the cells take
SUBMISSION_SECONDS = 900  # for everything: a notebook whose every task hangs must not hold up the class
PATIENCE = 5  # times the seconds that the kernels of a task may take: on a busy machine they wait for a processor
MAX_CLAIMS = 64 << 20  # bytes of recorded launches of one task
PROBE = ("probe.py", "record.py")  # files of grading/ beside a learner's code
REPLAY = (*PROBE, "replay.py", "plain.py", "enter.py")
GPU_LOCK = f"/tmp/bytes-first-gpu-{os.getuid() if hasattr(os, 'getuid') else 0}.lock"


class Missing(ValueError):
    """The course lacks what grading this submission needs."""


@dataclass
class Budget:
    """When the time of a whole submission is over (time.monotonic)."""

    end: float

    @property
    def left(self) -> float:
        return max(self.end - time.monotonic(), 1)


def pristine(exercise: str, root: Path = ROOT) -> nbformat.NotebookNode:
    """The exercise as released: from its solution where that is at hand, else from exercises/."""
    for folder in ("solutions", "exercises"):
        for path in sorted((root / folder).glob("*.ipynb")):
            nb = nbformat.read(path, as_version=4)
            if exercise_id(nb) == exercise:
                return released(nb)
    raise Missing(f"exercise {exercise!r}: its notebook is missing from both solutions/ and exercises/ of {root}")


def grade(
    handed: Handed | Path,
    cell_seconds: float,
    root: Path = ROOT,
    seed: int | None = None,
    seconds: float = SUBMISSION_SECONDS,
) -> Submission:
    """The record of one submission, as results.json holds it. Raises Unreadable or Missing.

    cell_seconds: what one cell, or the kernels of one task, may take. seconds: what the whole submission may take.
    seed: of the inputs; secret and drawn here by default.
    """
    begun = time.monotonic()
    handed = handed if isinstance(handed, Handed) else alone(Path(handed))
    nb, notes = read(handed)
    exercise = exercise_of(nb, handed.path, notes)
    tasks = tasks_of(exercise)
    original = pristine(exercise, root)
    nb, mends = mended(nb, original, {task.id: tuple(task.functions) for task in tasks})
    seed = secrets.randbits(63) if seed is None else seed
    grading = Grading(original, nb, tasks, seed, cell_seconds, Budget(begun + seconds))
    verdicts = grading.verdicts()
    solved = of_solution(exercise, root)
    for name, verdict in verdicts.items():
        if name not in grading.plan.untouched:
            verdict.likeness = likeness(grading.plan.answers[name])
            if solved:  # else there is nothing to compare with
                verdict.like_solution = verdict.likeness == solved.get(name)
    found = record_of(handed, exercise, [verdicts[task.id] for task in tasks], [*notes, *mends, *grading.plan.notes])
    found.environment, found.seed, found.seconds = grading.environment, str(seed), round(time.monotonic() - begun, 1)
    return found


def graded(
    handed: Handed, cell_seconds: float, root: Path = ROOT, seed: int | None = None, seconds: float = SUBMISSION_SECONDS
) -> Submission:
    """The record of one submission, whatever happens: the file's faults and the grader's own are told in it.

    A fault of the grader's is tried once more; after that the submission is ungraded, which is not a zero.
    """
    for _attempt in (1, 2):
        try:
            return grade(handed, cell_seconds, root, seed, seconds)
        except Unreadable as error:
            return ungraded(handed, str(error), status="unreadable")
        except Missing as error:
            return ungraded(handed, str(error))
        except Exception as error:  # a fault of the grader's must not cost the others their grades
            reason = f"{handed.path}: the grader failed, twice ({type(error).__name__}: {str(error)[:300]})"
    return ungraded(handed, reason, _exercise(handed))


def _exercise(handed: Handed) -> str:
    try:
        return exercise_of(read(handed)[0], handed.path)
    except Exception:
        return ""


def record_of(handed: Handed | Path, exercise: str, verdicts: list, notes: list) -> Submission:
    """A submission's record from its verdicts."""
    handed = handed if isinstance(handed, Handed) else alone(Path(handed))
    states = {v.status for v in verdicts}
    return Submission(
        path=handed.path,
        file=handed.place,
        learner=handed.learner,
        exercise=exercise,
        status="ungraded" if "ungraded" in states or not verdicts else "pending" if "pending" in states else "graded",
        points=sum(v.points for v in verdicts),
        pending_points=sum(v.pending_points for v in verdicts),
        max_points=sum(v.max_points for v in verdicts),
        gradable_points=_gradable(exercise) if verdicts else 0,
        isolation=jail.level(),
        notes=notes,
        tasks=verdicts,
    )


def _gradable(exercise: str) -> int:
    """The points that can be earned on this machine: without a GPU, all but those for speed."""
    return sum(task.max_points if has_gpu() else task.points for task in tasks_of(exercise))


def ungraded(handed: Handed | Path, reason: str, exercise: str = "", status: str = "ungraded") -> Submission:
    """The record of a submission that could not be graded; it says why, and it is not a zero.

    status: "unreadable" where the file is at fault, "ungraded" where the grader or its machine is.
    """
    tasks = tasks_of(exercise) if exercise in exercises() else ()
    found = record_of(handed, exercise, [judge.simple(task, "ungraded", reason) for task in tasks], [reason])
    found.status = status
    return found


# ---------------------------------------------------------------- one submission, task by task


class Grading:
    """One submission on its way: its notebook is run, its kernels are played, and each task is judged once.

    Where a task ends or hangs the run, the others are run again without it. plan: the notebook that is run.
    """

    def __init__(self, original, submitted, tasks: tuple, seed: int, cell_seconds: float, budget: Budget):
        self.original, self.submitted, self.tasks = original, submitted, tasks
        self.cell_seconds, self.budget = cell_seconds, budget
        self.given = {task.id: Given(task, seed) for task in tasks}
        self.functions = {task.id: tuple(task.functions) for task in tasks}
        self.plan = transplant(original, submitted, "", self.functions)
        self.found: dict[str, Verdict] = {}
        self.environment: record.Environment | None = None
        self.defined = Defined([cell.source for cell in self.plan.notebook.cells])

    def verdicts(self) -> dict:
        """{task id: Verdict}, in the tasks' order."""
        for task in self.tasks:
            if task.id in self.plan.untouched:
                self.found[task.id] = judge.simple(task, "not_attempted")
        without: frozenset = frozenset()
        trouble = 0
        while left := [task for task in self.tasks if task.id not in self.found]:
            if time.monotonic() > self.budget.end:
                late = Finding(
                    "stopped",
                    "the time for the whole submission was used up before this task's turn"
                    + (f", by {', '.join(sorted(without))}" if without else ""),
                    "Repair the tasks that take so long.",
                )
                self.found |= {task.id: judge.failed(task, late) for task in left}
                break
            with jail.workplace("grade-") as place, _turn(left, self.budget):
                stopped, said = self._round(left, without, place)
            if all(task.id not in self.found for task in left):
                trouble += 1  # nothing came of it: the machine's fault, not the learner's
                if trouble == 2:
                    self.found |= {
                        task.id: judge.simple(
                            task,
                            "ungraded",
                            "the grader could not run this task, twice: " + " ".join(said.split())[-300:],
                        )
                        for task in left
                    }
            without |= set(stopped)
        return {task.id: self.found[task.id] for task in self.tasks}

    def _round(self, left: list, without: frozenset, place: Path) -> tuple:
        """Run the notebook once, play what it launched, and judge what can be judged; ({task: why it ended the run},
        the end of what the run printed)."""
        ready = [task for task in left if self._prepared(task, place)]
        play = Play(place / "play", self.budget) if any(task.kernel for task in ready) else None
        finished, log = self._run(ready, without, place)
        stopped = stopped_by(log, finished, ready)
        ends = {(r["role"], r["task"]): r for r in log if r["event"] == "end"}
        traces = {}
        for task in ready:
            try:
                traces[task.id] = judge.left_by(task, place)
            except (Undecodable, MemoryError) as error:
                self.found[task.id] = judge.unreadable(task, error)
                continue
            run = traces[task.id].run
            self.environment = self.environment or (run.environment if run else None)
            verdict = _of_the_cells(task, run, ends, task.id in stopped, self.cell_seconds)
            if verdict:
                self.found[task.id] = verdict
        judged = [
            task
            for task in ready
            if task.id not in self.found
            and (
                task.id in stopped
                or (traces[task.id].run and (traces[task.id].run.finished or traces[task.id].run.cases))
            )
        ]
        if play:
            faults = play.play(
                [task for task in judged if judge.launches(traces[task.id])], self.given, traces, self.cell_seconds
            )
            self.found |= {task.id: _fault(task, faults[task.id]) for task in judged if task.id in faults}
        for task in judged:
            if task.id not in self.found:
                self.found[task.id] = self._judged(task, traces[task.id], stopped.get(task.id, ""))
        return stopped, finished.said

    def _prepared(self, task: Task, place: Path) -> bool:
        """Write a task's inputs; where that fails, the task alone is ungraded."""
        try:
            cases.prepare(self.given[task.id], place, RUN)
            return True
        except Exception as error:
            self.found[task.id] = _fault(task, error)
            return False

    def _judged(self, task: Task, left: judge.Left, stopped: str) -> Verdict:
        try:
            return judge.judge(self.given[task.id], left, stopped, self.defined)
        except Exception as error:  # the judge's own: it costs no point
            return _fault(task, error)

    def _run(self, left: list, without: frozenset, folder: Path) -> tuple:
        """Run the notebook once for the tasks that are left; what nbval's plugin logged."""
        furnish(folder, PROBE)
        plan = transplant(
            self.original, self.submitted, str(folder), self.functions, {task.id for task in left}, without
        )
        nbformat.write(plan.notebook, folder / "submission.ipynb")
        log = folder / "log.jsonl"
        deadline = min(START_SECONDS + self.cell_seconds * (len(left) + 1), self.budget.left)
        finished = jail.run(
            [
                sys.executable,
                "-P",
                str(ROOT / "grading" / "plugin.py"),
                str(folder / "submission.ipynb"),
                str(log),
                "--cell-seconds",
                str(self.cell_seconds),
                "--enter",
                json.dumps(jail.inner(folder, ROOT, deadline)),
            ],
            folder,
            ROOT,
            deadline,
        )
        return finished, _records(log)


def _fault(task: Task, error: Exception) -> Verdict:
    return judge.simple(
        task,
        "ungraded",
        f"the grader failed on this task ({type(error).__name__}: {str(error)[:300]}); that is no fault of the answer",
    )


def _of_the_cells(task: Task, run: record.Run | None, ends: dict, stopped: bool, cell_seconds: float) -> Verdict | None:
    """The verdict that a task's cells give before any result is looked at; None for none."""
    answer = ends.get(("answer", task.id), {})
    if answer.get("status") == "timeout":  # whatever it had defined until then
        return judge.failed(
            task,
            Finding(
                "stopped",
                f"your answer cell did not end within {cell_seconds:g} s",
                "A loop at its top level never ends, or it does work that belongs into the function.",
            ),
        )
    if answer.get("status") == "error" and (
        not run or run.cases and run.cases[0].error and run.cases[0].error.type == "NameError"
    ):
        return _broken(task, answer)
    checked = ends.get(("check", task.id), {}).get("status") in ("ok", "error")
    if not run and not stopped and checked:
        return judge.failed(
            task,
            Finding(
                "stopped",
                "its check cell left no result",
                "Answer cells must leave IPython and the files of the grading run alone.",
            ),
        )
    return None


def _broken(task: Task, end: dict) -> Verdict:
    """An answer cell that did not even run."""
    line = f" (line {end['line']} of the cell)" if end.get("line") else ""
    advice = {
        "NameError": "Whatever an answer needs has to stand in an answer cell: only those are carried over.",
        "ModuleNotFoundError": "While grading only instruments, torch, triton and numpy can be imported; write the "
        "kernel yourself.",
        "NotImplementedError": "Keep the answer inside functions, so that the cell runs before it is complete.",
    }.get(end["text"].split(":")[0], "Run the notebook from top to bottom in a fresh kernel before you hand it in.")
    return judge.failed(task, Finding("exception", f"the answer cell did not run: {end['text'][:500]}{line}", advice))


class Defined:
    """Whether a function, by its name and source, stands in some cells: what IPython alone reads, blanks, comments and
    decorators aside."""

    SAME = 20  # functions of one name that are looked at, the last ones
    #: A line such as `%time f()`, `!ls`, `files = !ls`, `?torch.empty` or `torch.empty?`.
    IPYTHON = re.compile(r"^([ \t]*)(?:[%!?]|[^#'\"\n=]*=[ \t]*[%!]|[\w.]+\?{1,2}[ \t]*$).*$", re.MULTILINE)

    def __init__(self, sources: list):
        self.nodes: dict = {}
        for source in sources:
            try:
                tree = ast.parse(self.IPYTHON.sub(r"\1pass", source))
            except (SyntaxError, ValueError, RecursionError, MemoryError):
                continue
            for node in ast.walk(tree):
                if isinstance(node, ast.FunctionDef):
                    self.nodes.setdefault(node.name, []).append(node)

    def __call__(self, name: str, source: str) -> bool:
        wanted = tree_of(source)
        for node in reversed(self.nodes.get(name, [])[-self.SAME :]):
            node.decorator_list = []
            try:
                if wanted and ast.dump(node) == wanted:
                    return True
            except RecursionError:
                continue
        return False


# ---------------------------------------------------------------- the replay


class Play:
    """The process that plays kernels by themselves, in a jail of its own. It loads Triton while the notebook still
    runs."""

    def __init__(self, folder: Path, budget: Budget):
        self.folder, self.budget = folder, budget
        furnish(folder, REPLAY)
        for name in ("tasks", "claims", *jail.WRITABLE):
            (folder / name).mkdir()
        self.finished: jail.Finished | None = None
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        seconds = self.budget.left + START_SECONDS
        self.finished = jail.run(
            [
                *jail.inner(self.folder, ROOT, seconds),
                sys.executable,
                "-P",
                str(self.folder / "grading" / "replay.py"),
                str(self.folder),
                "spawn" if has_gpu() else "fork",
            ],
            self.folder,
            ROOT,
            seconds,
        )

    def play(self, tasks: list, given: dict, traces: dict, seconds: float) -> dict:
        """Play what these tasks launched, and add what came of it to `traces`; {task id: what kept the grader from
        it}."""
        faults = {}
        for task in tasks:
            try:
                cases.prepare(given[task.id], self.folder, PLAYED)
                claim(traces[task.id], self.folder / "claims" / task.id)
            except Exception as error:  # the grader's own fault, which is that task's alone
                faults[task.id] = error
        tasks = [task for task in tasks if task.id not in faults]
        go = self.folder / "claims" / "go.json"
        patience = min(PATIENCE * seconds, self.budget.left)
        go.with_suffix(".part").write_text(
            json.dumps({"tasks": [task.id for task in tasks], "seconds": seconds, "patience": patience})
        )
        os.replace(go.with_suffix(".part"), go)
        self.thread.join()
        for task in tasks:
            judge.add_play(
                task,
                traces[task.id],
                self.folder,
                f"they did not end within {seconds:g} s of a processor's time, or their process ended",
            )
        return faults


def claim(left: judge.Left, home: Path) -> None:
    """Copy what a run recorded of its launches, and the content of tensors that it names, to the replay."""
    home.mkdir(parents=True)
    record.write(home / "trace.msgpack", left.trace)
    room = MAX_CLAIMS
    launches = [launch for calls in left.trace.calls.values() for call in calls for launch in call.launches]
    files = {
        Path(state.file).name
        for launch in launches
        for each in (launch, *launch.others)
        for state in each.before.values()
        if state.file
    }
    for name in sorted(files):
        try:
            content = record.inside(left.home.parents[1], left.home / name, room)
        except Undecodable:
            continue
        room -= len(content)
        (home / name).write_bytes(content)


def furnish(folder: Path, files: tuple) -> None:
    """What code in the jail may import of the course: the instruments, and these files of grading/."""
    folder.mkdir(exist_ok=True)
    shutil.copytree(ROOT / "instruments", folder / "instruments", ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "grading").mkdir()
    for name in files:
        shutil.copy(ROOT / "grading" / name, folder / "grading" / name)
    (folder / "grading" / "__init__.py").write_text('def check(*_):\n    """`grade` checks by itself."""\n')


# ---------------------------------------------------------------- the machine, and the log


def has_gpu() -> bool:
    """Whether this machine shows an NVIDIA GPU, and is not told to hide it; known without torch, which takes
    seconds."""
    if os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1"):
        return False
    return any(
        Path(sign).exists() for sign in ("/dev/nvidiactl", "/dev/nvidia0", "/proc/driver/nvidia/version", "/dev/dxg")
    )


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


def _records(log: Path) -> list:
    try:
        lines = log.read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        try:
            entry = json.loads(line)
            if isinstance(entry, dict) and {"event"} <= set(entry):
                found.append({"role": "", "task": "", "status": "", "text": "", **entry})
        except ValueError:
            continue
    return found


def stopped_by(log: list, finished: jail.Finished, left: list) -> dict:
    """{task id: why it ended the run}: the task whose cell hung, died or flooded."""
    stopped = {
        r["task"]: r["text"]
        for r in log
        if r["event"] == "end" and r["status"] in ("died", "timeout", "flood") and r["task"]
    }
    if finished.code is None:  # the whole run was ended: the cell that had begun is to blame
        begun = [r for r in log if r["event"] == "start"]
        ended = [r for r in log if r["event"] == "end"]
        if len(begun) > len(ended) and begun[-1]["task"]:
            stopped[begun[-1]["task"]] = finished.why or "the time for the whole notebook ran out"
    return stopped
