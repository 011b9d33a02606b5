"""`check` inside a notebook: the same path as `grade`, with a public seed, in the notebook's own process and without a
sandbox."""

import ast
import os
import re
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from grading import child, facts
from grading.card import Card
from grading.hints import Finding
from grading.judge import Evidence, failed, judge
from grading.record import Verdict
from grading.tasks import PLAYED, PUBLIC_SEED, RECORDED, Inputs, Task, exercise_with
from grading.tasks import task as find_task
from grading.tasks.files import prepare, timed_call, write
from instruments import diary


def verdict(task: Task, functions: tuple, module: str = "", seed: int = PUBLIC_SEED) -> Verdict:
    """The verdict on `functions`, in the task's order. module: the name of the one whose kernels they launch."""
    namespace = {**vars(sys.modules.get(module, sys)), **dict(zip(task.functions, functions))}
    with tempfile.TemporaryDirectory(prefix="check-") as place:
        run_home, play_home, inputs = Path(place) / "run", Path(place) / "play", Inputs(task, seed)
        prepare(inputs, run_home, RECORDED)
        trace = child.run(task.id, namespace, run_home)
        results = run_home / "results" / task.id
        evidence = Evidence(facts.read(facts.Run, run_home, results / "run.msgpack"), results)
        if evidence.is_playable:
            from grading import player

            prepare(inputs, play_home, PLAYED)
            player.play(task.id, play_home, trace)
            evidence.play_home = play_home / "results" / task.id
            evidence.play = facts.read(facts.Play, play_home, evidence.play_home / "play.msgpack")
        return judge(inputs, evidence)


def inputs(task_id: str, case: str) -> tuple:
    """What `check` calls a task's function with in a case, given by its name, or 'timed' for the call that a GPU
    times: fresh tensors where kernels run, and plain values, in the order of the call."""
    task = find_task(task_id)
    if case == "timed" and task.speed:
        return tuple(child.load_arguments(timed_call(task, PUBLIC_SEED, RECORDED)["arguments"]).values())
    names = [known.name for known in task.cases]
    if case not in names:
        raise ValueError(f"inputs: {task_id} has no case {case!r}, expected one of: {'; '.join(names)}")
    with tempfile.TemporaryDirectory(prefix="inputs-") as place:
        arguments = write(Inputs(task, PUBLIC_SEED), names.index(case), RECORDED[0], Path(place))
        return tuple(child.load_arguments(arguments, Path(place)).values())


def check(task_id: str, *functions, keep: bool = True) -> None:
    """Check a task's functions here and now: what was proved, what was not, and a hint where something is wrong; in a
    notebook also the panel widgets.watch, at what is wrong. keep: the points, in the learner's progress; never those of
    solutions/, where a notebook's kernel runs in its folder."""
    task = find_task(task_id)
    if len(functions) != len(task.functions):
        names = ", ".join(task.functions)
        raise ValueError(f"check: {task_id} takes {len(task.functions)} function(s), {names}; got {len(functions)}")
    result = of_syntax(task) or verdict(task, functions, sys._getframe(1).f_globals.get("__name__", "__main__"))
    own = keep and Path.cwd().name != "solutions"  # a solution's answers are not the learner's
    if own and result.status not in ("not_attempted", "ungraded"):
        points = diary.Points(result.status, result.points, result.pending_points, result.max_points)
        diary.keep_task(task.id, points)
    card, by_nbgrader = Card(result, exercise_with(task_id) if own else None), os.environ.get("NBGRADER_EXECUTION")
    if in_notebook():
        from IPython.display import display

        display(card)
        if result.place.tensor and not by_nbgrader:
            show_panel(task, result, functions, display)
    else:
        print(card)
    if by_nbgrader and result.status not in ("passed", "pending"):
        raise AssertionError(result.hint or result.status)  # how nbgrader's validate and autograde learn of a failure


def of_syntax(task: Task) -> Verdict | None:
    """The verdict where the answer, when it was last run, did not compile: what is defined then is an older version."""
    defines = re.compile(rf"^def ({'|'.join(task.functions)})\b", re.MULTILINE)
    cells = shell().history_manager.input_hist_parsed if shell() else []
    last = next(filter(defines.search, reversed(cells)), "")
    try:
        compile(last, "answer", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        return None
    except SyntaxError as error:
        text = f"the answer cell did not run: {error.msg} (line {error.lineno} of the cell)"
        return failed(task, Finding("exception", text, "Run it again once it is mended, then this cell."))


def shell():
    """The IPython shell that runs this code; None outside of one."""
    return sys.modules.get("IPython") and sys.modules["IPython"].get_ipython()


def in_notebook() -> bool:
    """Whether what is displayed reaches a page."""
    return hasattr(shell(), "kernel")


def show_panel(task: Task, result: Verdict, functions: tuple, display) -> None:
    """Display the panel widgets.watch at the part of a case that went wrong."""
    from widgets import watch

    place = result.place
    index = [case.name for case in task.cases].index(place.case)
    at = "outside" if result.diagnosis == "out_of_bounds" else (place.tensor, tuple(place.first))
    function = dict(zip(task.functions, functions))[task.function(index)]
    with suppress(Exception):  # a learner's function may do anything; the card stands without a picture
        display(watch(function, *inputs(task.id, place.case), at=at))
