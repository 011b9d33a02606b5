"""`check` inside a notebook: the same path as `grade`, with a public seed, in the notebook's own process and without a
jail; and `sample`, a task's arguments to try a function on."""

import os
import shutil
import sys
import tempfile
from pathlib import Path

from grading import cases, probe, replay
from grading.card import Card
from grading.judge import add_play, judge, launches, left_by
from grading.record import PLAYED, RUN, Verdict
from grading.tasks import PUBLIC_SEED, Given, Task, exercise_with
from grading.tasks import task as find_task
from instruments import backend, diary


def verdict(task: Task, functions: tuple, module: str, seed: int = PUBLIC_SEED) -> Verdict:
    """The verdict on `functions`, given in the task's order; `module` is where the learner's kernels are defined."""
    namespace = {"__name__": module, **dict(zip(task.functions, functions))}
    with tempfile.TemporaryDirectory(prefix="check-") as place:
        run, play, given = Path(place) / "run", Path(place) / "play", Given(task, seed)
        cases.prepare(given, run, RUN)
        probe.run(task.id, namespace, run)
        left = left_by(task, run)
        if launches(left):
            cases.prepare(given, play, PLAYED)
            shutil.copytree(run / "results" / task.id, play / "claims" / task.id)
            replay.play(task.id, play)
            add_play(task, left, play)
        return judge(given, left)


def check(task_id: str, *functions) -> None:
    """Check a task's functions here and now, and show what was proved, what was not, and a hint where one is due."""
    task = find_task(task_id)
    if len(functions) != len(task.functions):
        raise ValueError(
            f"check: {task_id} takes {len(task.functions)} function(s), {', '.join(task.functions)}; "
            f"got {len(functions)}"
        )
    found = verdict(task, functions, sys._getframe(1).f_globals.get("__name__", "__main__"))
    if found.status not in ("not_attempted", "ungraded"):
        points = diary.Points(found.status, found.points, found.pending_points, found.max_points)
        diary.keep_task(task.id, points)
    show(Card(found, exercise_with(task_id), offer(task)))
    if os.environ.get("NBGRADER_EXECUTION") and found.status not in ("passed", "pending"):
        raise AssertionError(found.hint or found.status)  # how nbgrader's validate and autograde learn of a failure


def sample(task_id: str, timed: bool = False) -> tuple:
    """The arguments of a task's first case, where kernels run; timed: those of the call that a GPU times.

    Raises ValueError for a task that is not there, or is not timed.
    """
    task = find_task(task_id)
    if timed and task.speed is None:
        raise ValueError(f"timed: {task_id} has no timed call, expected False")
    with tempfile.TemporaryDirectory(prefix="sample-") as place:
        spec = cases.prepare(Given(task, PUBLIC_SEED), Path(place), (0,))
        if timed:
            return tuple(probe.random_arguments(spec["speed"]).values())
        return tuple(probe.load_arguments(spec["cases"][0]["turns"][0], Path(place) / "tasks" / task.id).values())


def offer(task: Task) -> str:
    """What shows the portrait of a kernel task's first function, as code; '' for other tasks."""
    if not task.kernel:
        return ""
    arguments = f'*sample("{task.id}")'
    if task.speed and backend.device() == "cuda":
        arguments = f'*sample("{task.id}", timed=True), counted=sample("{task.id}")'
    like = f', like="{task.like}"' if task.like else ""
    return (
        "from grading import sample; from widgets import portrait; "
        f"portrait({next(iter(task.functions))}, {arguments}{like})"
    )


def show(card: Card) -> None:
    """The card in a notebook, its plain text elsewhere."""
    shell = sys.modules.get("IPython") and sys.modules["IPython"].get_ipython()
    if shell is not None and hasattr(shell, "kernel"):
        from IPython.display import display

        display(card)
    else:
        print(card)
