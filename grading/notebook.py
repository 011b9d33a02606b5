"""`check` inside a notebook: the same path as `grade`, with a public seed, in the notebook's own process and without a
jail."""

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

TIMED = "timed"


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


def inputs(task_id: str, case: str) -> tuple:
    """What `check` calls a task's function with in a case, given by its name, or 'timed' for the call that a GPU
    times: fresh tensors where kernels run, and plain values, in the order of the call."""
    task = find_task(task_id)
    if case == TIMED and task.speed:
        return tuple(probe.random_arguments(cases.timed(task, PUBLIC_SEED, RUN)).values())
    names = [known.name for known in task.cases]
    if case not in names:
        raise ValueError(f"inputs: {task_id} has no case {case!r}, expected one of: {'; '.join(names)}")
    with tempfile.TemporaryDirectory(prefix="inputs-") as place:
        told = cases.written(Given(task, PUBLIC_SEED), names.index(case), RUN[0], Path(place))
        return tuple(probe.load_arguments(told, Path(place)).values())


def check(task_id: str, *functions) -> None:
    """Check a task's functions here and now, and show what was proved, what was not, and a hint where one is due.

    Where a part of a case went wrong, a notebook shows that in the panel widgets.watch, and plain text the call.
    """
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
    card = Card(found, exercise_with(task_id), watch_call(task, found), portrait_call(task, found))
    if in_notebook():
        from IPython.display import display

        display(card)
        if not os.environ.get("NBGRADER_EXECUTION") and (panel := watched(task, found, functions)):
            display(panel)
    else:
        print(card)
    if os.environ.get("NBGRADER_EXECUTION") and found.status not in ("passed", "pending"):
        raise AssertionError(found.hint or found.status)  # how nbgrader's validate and autograde learn of a failure


def in_notebook() -> bool:
    """Whether what is displayed reaches a page."""
    shell = sys.modules.get("IPython") and sys.modules["IPython"].get_ipython()
    return shell is not None and hasattr(shell, "kernel")


def place_of(task: Task, found: Verdict) -> tuple | None:
    """(the function's name, the case's, what `at` of widgets.watch is) where a part of a case went wrong, or None."""
    place = found.place
    if not place.tensor:
        return None
    index = [case.name for case in task.cases].index(place.case)
    at = "outside" if found.kind == "out_of_bounds" else (place.tensor, tuple(place.first))
    return task.function(index), place.case, at


def watch_call(task: Task, found: Verdict) -> str:
    """What to call to see in widgets.watch what went wrong; '' where no part of a case shows it."""
    if not (where := place_of(task, found)):
        return ""
    function, case, at = where
    return f"watch({function}, *inputs({task.id!r}, {case!r}), at={at!r}), from widgets and grading"


def portrait_call(task: Task, found: Verdict) -> str:
    """What to call to see a right kernel in widgets.portrait, the first of a task; '' for anything else."""
    if not task.kernel or found.status not in ("passed", "pending"):
        return ""
    arguments = f"*inputs({task.id!r}, {task.cases[0].name!r})"
    if task.speed and backend.device() == "cuda":
        arguments = f"*inputs({task.id!r}, {TIMED!r}), counted={arguments[1:]}"
    like = f", like={task.like!r}" if task.like else ""
    return f"portrait({task.function(0)}, {arguments}{like}), from widgets and grading"


def watched(task: Task, found: Verdict, functions: tuple):
    """The panel that `watch_call` makes, or None."""
    if not (where := place_of(task, found)):
        return None
    from widgets import watch

    name, case, at = where
    try:
        return watch(dict(zip(task.functions, functions))[name], *inputs(task.id, case), at=at)
    except Exception:  # a learner's function may do anything; the card stands without a picture
        return None
