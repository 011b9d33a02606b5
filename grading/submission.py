"""Grades one submission: submission -> sandbox -> child -> facts -> compare -> hints -> record.

The exercise is run as a notebook, with the learner's answers in their places and check cells that call child.py. What
its kernels launched is played in a second sandbox by player.py. References and tolerances stay in this process.
"""

import json
import os
import re
import secrets
import shutil
import sys
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from pathlib import Path

import nbformat

from grading import facts, intake, sandbox
from grading.facts import Undecodable
from grading.hints import Finding
from grading.intake import Handed, Unreadable
from grading.judge import Evidence, failed, judge, unreadable, without_points
from grading.record import Submission, Verdict
from grading.tasks import PLAYED, RECORDED, Inputs, Task, tasks_of
from grading.tasks.files import prepare
from instruments.files import write_whole
from instruments.release import ROOT, Missing, grade_id, pristine, task_id

START_SECONDS = 60  # a kernel and the course's imports, beside what the cells take
SUBMISSION_SECONDS = 900  # for everything: a notebook whose every task hangs must not hold up the class
PATIENCE = 3  # times the seconds that the kernels of a task may take: on a busy machine they wait for a processor
GPU_SIGNS = ("/dev/nvidiactl", "/dev/nvidia0", "/proc/driver/nvidia/version", "/dev/dxg")
LOG_FIELDS = ("event", "role", "task", "status", "text", "line")
LEFT_OUT_TAG = "notebook-only"
CHILD = ("facts.py", "child.py")  # files of grading/ in the sandbox
PLAYER = (*CHILD, "player.py")
ADVICE = (
    "Run the notebook from top to bottom in a fresh kernel. Only answer cells are taken over, and only instruments, "
    "torch, triton and numpy can be imported."
)

#: The first cell of a run: only what lies beside the notebook is the course here, and solutions cannot be imported.
START = """\
import os, sys
sys.path[:] = [{folder!r}] + [p for p in sys.path if not os.path.exists(os.path.join(p, "grading", "judge.py"))]
sys.modules.update(dict.fromkeys(("kernels", "widgets", "solutions", "lessons", "exercises", "bench")))
"""
CHECK = "import grading.child as _child\n_ = _child.run({task!r}, globals(), {folder!r})"
MAGIC = re.compile(r"^([ \t]*+)(?:[%!?]|[\w.]++\?{1,2}[ \t]*$|[\w, ]++=[ \t]*+[%!]).*$", re.MULTILINE)


@dataclass(frozen=True)
class Limits:
    """What one cell and one submission may take, and the seed of the inputs (None: a secret one for each)."""

    cell_seconds: float
    seconds: float = SUBMISSION_SECONDS
    seed: int | None = None


def grade(handed: Handed | Path, limits: Limits) -> Submission:
    """The record of one submission, as results.json holds it; Unreadable where the file is at fault, Missing where the
    course is."""
    begun = time.monotonic()
    handed = handed if isinstance(handed, Handed) else intake.alone(Path(handed))
    nb, notes = intake.read(handed)
    exercise = intake.exercise_of(nb, handed.path, notes)
    tasks = tasks_of(exercise)
    original = pristine(exercise)
    answers = intake.answers(original, nb, {task.id: tuple(task.functions) for task in tasks})
    seed = secrets.randbits(63) if limits.seed is None else limits.seed
    grading = Grading(original, answers, tasks, seed, limits.cell_seconds, begun + limits.seconds)
    verdicts = grading.verdicts()
    states = {verdict.status for verdict in verdicts}
    return Submission(
        path=handed.path,
        file=handed.place,
        learner=handed.learner,
        exercise=exercise,
        status="ungraded" if "ungraded" in states else "pending" if "pending" in states else "graded",
        points=sum(verdict.points for verdict in verdicts),
        pending_points=sum(verdict.pending_points for verdict in verdicts),
        max_points=sum(verdict.max_points for verdict in verdicts),
        gradable_points=sum(task.max_points if has_gpu() else task.points for task in tasks),
        isolation=sandbox.level(),
        notes=[*notes, *answers.notes],
        tasks=verdicts,
        environment=grading.environment,
        seed=str(seed),
        seconds=round(time.monotonic() - begun, 1),
    )


def graded(handed: Handed, limits: Limits) -> Submission:
    """The record of one submission, whatever happens: the file's faults and the grader's own are in it.

    A fault of the grader's is tried once more; after that the submission is ungraded, which is not a zero.
    """
    for _attempt in (1, 2):
        try:
            return grade(handed, limits)
        except Unreadable as error:
            return ungraded(handed, str(error), status="unreadable")
        except Missing as error:
            return ungraded(handed, str(error))
        except Exception as error:  # a fault of the grader's must not cost the others their grades
            reason = f"{handed.path}: the grader failed, twice ({type(error).__name__}: {str(error)[:300]})"
    return ungraded(handed, reason)


def ungraded(handed: Handed, reason: str, status: str = "ungraded") -> Submission:
    """The record of a submission that could not be graded; it says why, and it is not a zero.

    status: "unreadable" where the file is at fault, "ungraded" where the grader or its machine is.
    """
    about = dict(path=handed.path, file=handed.place, learner=handed.learner, exercise="", status=status)
    return Submission(**about, isolation=sandbox.level(), notes=[reason])


@dataclass
class Grading:
    """The verdicts on one submission. end: when its time is over (time.monotonic)."""

    original: nbformat.NotebookNode
    answers: intake.Answers
    tasks: tuple
    seed: int
    cell_seconds: float
    end: float

    def __post_init__(self):
        self.environment, self.done = None, {}
        self.inputs = {task.id: Inputs(task, self.seed) for task in self.tasks}

    @property
    def seconds_left(self) -> float:
        return max(self.end - time.monotonic(), 1)

    def verdicts(self) -> list:
        """The verdicts in the tasks' order. Where a task ends the run, the notebook is run again without its answer for
        the tasks after it."""
        for task in self.tasks:
            if task.id in self.answers.untouched:
                self.done[task.id] = without_points(task, "not_attempted")
        excluded, fruitless = set(), 0
        while remaining := [task for task in self.tasks if task.id not in self.done]:
            if time.monotonic() > self.end:
                by = f", by {', '.join(sorted(excluded))}" if excluded else ""
                late = Finding("stopped", f"the time for the whole submission was used up before this task{by}")
                self.done |= {task.id: failed(task, late) for task in remaining}
                break
            with sandbox.workplace("grade-") as place:
                stopped, output = self._round(remaining, excluded, place)
            if all(task.id not in self.done for task in remaining):
                fruitless += 1  # the machine's fault, not the learner's
                if fruitless == 2:
                    why = f"the grader could not run this task, twice: {' '.join(output.split())[-300:]}"
                    self.done |= {task.id: without_points(task, "ungraded", why) for task in remaining}
            excluded |= set(stopped)
        return [self.done[task.id] for task in self.tasks]

    def _round(self, remaining: list, excluded: set, place: Path) -> tuple:
        """Run the notebook once, play what it launched, and judge what can be judged; ({task: why it ended the run},
        the end of what the run printed)."""
        run_folder, play_folder = place / "run", place / "play"
        furnish(run_folder, CHILD)
        for task in remaining:
            with self._guard(task):
                prepare(self.inputs[task.id], run_folder, RECORDED)
        ready = [task for task in remaining if task.id not in self.done]
        cells = self._cells(run_folder, excluded, {task.id for task in ready})
        with self._player(play_folder, len(ready)) as play:
            log, finished = self._run_notebook(cells, run_folder, len(ready))
            own = takewhile(lambda entry: entry["role"] != "answer", log)  # cells before any of the learner's
            if faults := [entry["text"] for entry in own if entry["status"] not in ("", "ok")]:
                return {}, f"a cell of the exercise itself failed: {faults[0]}"
            stopped = stopped_by(log, finished)
            evidence = self._evidence(ready, run_folder, log, stopped)
            play(evidence, [cell for cell in cells if cell[1] not in stopped], run_folder)
        for task in ready:
            if task.id in evidence and task.id not in self.done:
                with self._guard(task):
                    self.done[task.id] = judge(self.inputs[task.id], evidence[task.id])
        return stopped, finished.output

    def _cells(self, folder: Path, excluded: set, checked: set) -> list:
        """The exercise's code cells as (role, task, source). The learner's answers, but for those of `excluded`, are in
        their places, and the check cells of `checked` call child.py. role: "start", "given", "answer" or "check"."""
        cells = [("start", "", START.format(folder=str(folder)))]
        for cell in [cell for cell in self.original.cells if cell.cell_type == "code"][1:]:  # START is in its place
            task = task_id(grade_id(cell))
            if not task and LEFT_OUT_TAG not in cell.metadata.get("tags", []):
                cells.append(("given", "", cell.source))
            elif task and cell.metadata["nbgrader"]["solution"]:
                cells += [] if task in excluded else [("answer", task, self.answers.sources[task])]
            elif task in checked:
                cells.append(("check", task, CHECK.format(task=task, folder=str(folder))))
        return cells

    def _evidence(self, tasks: list, folder: Path, log: list, stopped: dict) -> dict:
        """{task id: what the learner's process left}, but for tasks whose cells give the verdict or left nothing."""
        evidence = {}
        for task in tasks:
            with self._guard(task):
                home = folder / "results" / task.id
                run = facts.read(facts.Run, folder, home / "run.msgpack")
                self.environment = self.environment or (run and run.environment)
                if early := verdict_of_cells(task, run, log, task.id in stopped, self.cell_seconds):
                    self.done[task.id] = early
                elif task.id in stopped or run and run.cases:
                    evidence[task.id] = Evidence(run, home, stopped=stopped.get(task.id, ""))
        return evidence

    @contextmanager
    def _guard(self, task: Task):
        """Work for one task: where its files cannot be read, or the grader fails, that is the verdict on it alone."""
        try:
            yield
        except Undecodable as error:
            self.done[task.id] = unreadable(task, error)
        except Exception as error:
            why = f"the grader failed on this task ({type(error).__name__}: {str(error)[:300]}), not the answer"
            self.done[task.id] = without_points(task, "ungraded", why)

    def _run_notebook(self, cells: list, folder: Path, tasks: int) -> tuple:
        """Run the notebook under nbval in the sandbox: (what plugin.py logged, how the run ended)."""
        nb, cell = nbformat.v4.new_notebook(), nbformat.v4.new_code_cell
        nb.cells = [cell(text, metadata={"bytes_first": {"role": role, "task": task}}) for role, task, text in cells]
        nbformat.write(nb, folder / "submission.ipynb")
        shutil.copy(ROOT / "grading" / "plugin.py", folder / "plugin.py")
        log = folder / "results" / "log.jsonl"
        seconds = min(START_SECONDS + self.cell_seconds * (tasks + 1), self.seconds_left)
        command = [sys.executable, "-P", "plugin.py", "submission.ipynb", "results/log.jsonl"]
        finished = sandbox.run([*command, "--cell-seconds", str(self.cell_seconds)], folder, seconds)
        return records_in(log, folder), finished

    @contextmanager
    def _player(self, folder: Path, tasks: int):
        """player.py in a sandbox of its own, started now, as it takes seconds to load; yields the function that has it
        play."""
        furnish(folder, PLAYER)
        seconds = min(2 * START_SECONDS + (1 + PATIENCE) * self.cell_seconds * (tasks + 1), self.seconds_left)
        command = [sys.executable, "-P", "grading/player.py", ".", str(self.cell_seconds)]
        with ThreadPoolExecutor(1) as pool:
            finished = pool.submit(sandbox.run, command, folder, seconds)
            try:
                yield partial(self._play, finished, folder)
            finally:
                start_playing(folder, [])

    def _play(self, finished: Future, folder: Path, evidence: dict, cells: list, run_folder: Path) -> None:
        """Have what was launched played, and add that to the evidence. finished: the player's run."""
        names = []
        for task in [task for task in self.tasks if task.id in evidence and evidence[task.id].is_playable]:
            with self._guard(task):
                prepare(self.inputs[task.id], folder, PLAYED)
                home = folder / "tasks" / task.id
                trace = facts.inside(run_folder, run_folder / "results" / task.id / "trace.pickle", 1 << 26)
                (home / "trace.pickle").write_bytes(trace)
                (home / "cells.json").write_bytes(json.dumps(cells_before(task, cells)).encode())
                names.append(task.id)
        start_playing(folder, names)
        for each in (evidence[name] for name in names):
            why = finished.result().why
            each.play_home = folder / "results" / each.run_home.name
            each.unplayed = why or f"they took more than {self.cell_seconds:g} s, or their process ended"
            try:
                each.play = facts.read(facts.Play, folder, each.play_home / "play.msgpack")
            except Undecodable as error:
                each.unplayed = str(error)


def cells_before(task: Task, cells: list) -> list:
    """[(name, source)] of what defines the kernels that a task's check cell launches."""
    check = [cell[:2] for cell in cells].index(("check", task.id))
    return [(f"{role}_{name}", MAGIC.sub(r"\1pass", text)) for role, name, text in cells[1:check] if role != "check"]


def start_playing(folder: Path, tasks: list) -> None:
    """Tell the player in `folder` which tasks to play, unless it was told before; none end it."""
    start = folder / "tasks" / "start.json"
    if not start.exists():
        write_whole(start, json.dumps(tasks).encode())


def furnish(folder: Path, files: tuple) -> None:
    """What code in the sandbox may import of the course: the instruments, and these files of grading/."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copytree(ROOT / "instruments", folder / "instruments", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("grading", "tasks"):
        (folder / name).mkdir()
    for name in files:
        shutil.copy(ROOT / "grading" / name, folder / "grading" / name)
    (folder / "grading" / "__init__.py").write_text('def check(*_):\n    """`grade` checks by itself."""\n')


def records_in(log: Path, folder: Path) -> list:
    """What plugin.py logged, as far as it can be read: the learner's process may have written there too."""
    try:
        lines = facts.inside(folder, log, 1 << 24).decode("utf-8", "replace").splitlines()
    except Undecodable:
        return []
    entries = []
    for line in lines:
        with suppress(ValueError, RecursionError):
            entries.append(json.loads(line))
    events = [entry for entry in entries if isinstance(entry, dict) and "event" in entry]
    return [{name: str(entry.get(name, "")) for name in LOG_FIELDS} for entry in events]


def stopped_by(log: list, finished: sandbox.Finished) -> dict:
    """{task id: why it ended the run}: the task whose cell hung or died."""
    ended = [r for r in log if r["event"] == "end"]
    stopped = {r["task"]: r["text"] for r in ended if r["status"] in ("died", "timeout") and r["task"]}
    begun = [r for r in log if r["event"] == "start"]
    if finished.code != 0 and len(begun) > len(ended) and begun[-1]["task"]:  # the cell that had begun ended the run
        why = "the process that ran it was ended" if finished.code else "the time for the whole notebook ran out"
        stopped[begun[-1]["task"]] = finished.why or why
    return stopped


def verdict_of_cells(task: Task, run: facts.Run | None, log: list, stopped: bool, seconds: float) -> Verdict | None:
    """The verdict that a task's cells give before any result is looked at; None for none."""
    ends = {r["role"]: r for r in log if r["event"] == "end" and r["task"] == task.id}
    answer = ends.get("answer", {"status": ""})
    if answer["status"] == "timeout":  # whatever it had defined until then
        text = f"your answer cell did not end within {seconds:g} s"
        return failed(task, Finding("stopped", text, "Move what takes long into the function."))
    undefined = not run or run.cases and run.cases[0].error and run.cases[0].error.type == "NameError"
    if answer["status"] == "error" and undefined:
        line = f" (line {answer['line']} of the cell)" if answer["line"] not in ("", "0") else ""
        return failed(task, Finding("exception", f"the answer cell did not run: {answer['text'][:500]}{line}", ADVICE))
    if not run and not stopped and ends.get("check", {"status": ""})["status"] in ("ok", "error"):
        text = "its check cell left no result"
        return failed(task, Finding("stopped", text, "Answer cells must leave IPython and the grading run alone."))
    return None


def has_gpu() -> bool:
    """Whether this machine shows an NVIDIA GPU and is not told to hide it. Known without torch, which takes seconds."""
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1")
    return not hidden and any(map(os.path.exists, GPU_SIGNS))
