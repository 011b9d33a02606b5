"""`check` inside a notebook: the same checks as `grade`, with a public seed, in the notebook's own process."""

import os
import sys
import tempfile
from pathlib import Path

from grading import cases, probe
from grading.checks import PUBLIC_SEED, Task, task as find_task
from grading.judge import Verdict, judge


def verdict(task: Task, functions: tuple, module: str, seed: int = PUBLIC_SEED) -> Verdict:
    """The verdict on `functions`, given in the task's order; `module` is where the learner's kernels are defined."""
    namespace = {"__name__": module, **dict(zip(task.functions, functions))}
    with tempfile.TemporaryDirectory(prefix="check-") as folder:
        cases.prepare(task, seed, Path(folder))
        probe.run(task.id, namespace, folder)
        return judge(task, seed, Path(folder))


def check(task_id: str, *functions) -> None:
    """Check a task's functions here and now, and print what was proved, what was not, and a hint where one is due."""
    task = find_task(task_id)
    if len(functions) != len(task.functions):
        raise ValueError(f"check: {task_id} takes {len(task.functions)} function(s), {', '.join(task.functions)}; "
                         f"got {len(functions)}")
    found = verdict(task, functions, sys._getframe(1).f_globals.get("__name__", "__main__"))
    print(found)
    if found.status in ("passed", "pending"):
        print("  checked with the public seed; `grade` runs the same checks with another.")
    if os.environ.get("NBGRADER_EXECUTION") and found.status not in ("passed", "pending"):
        raise AssertionError(found.hint or found.status)  # how nbgrader's validate and autograde learn of a failure
