"""Has the kernels of right answers run again by themselves (grading/replay.py), and says which verdicts that confirms."""

import json
import shutil
import sys
from pathlib import Path

from grading import jail
from grading.judge import inside, judge_again, load, simple
from grading.replay import kernels_of

MAX_CLAIMS = 64 << 20  # bytes of recorded launches of one task
TASK_SECONDS = 60


def confirmed(tasks: list, verdicts: dict, seed: int, folder: Path, cells: list, root: Path) -> dict:
    """{task id: Verdict} of the kernel tasks among `tasks` that have points, as they stand after the replay.

    folder: the finished run. cells: those of the notebook that was run, with their roles (transplant.py).
    """
    todo = [task for task in tasks if task.kernel and task.id in verdicts and verdicts[task.id].points]
    if not todo:
        return {}
    place = folder / "again"
    place.mkdir()
    for name in ("instruments", "tasks"):
        shutil.copytree(folder / name, place / name)
    (place / "grading").mkdir()
    (place / "grading" / "__init__.py").touch()
    for name in ("probe.py", "replay.py"):
        shutil.copy(root / "grading" / name, place / "grading" / name)
    for task in todo:
        _claim(task, folder, place, cells)
    for left in (todo, *[[task] for task in todo]):  # together, and those of which nothing came once more, alone
        left = [task for task in left if not load(place, task)]
        if left:
            seconds = TASK_SECONDS * (len(left) + 1)
            jail.run([*jail.inner(place, root, seconds), sys.executable, "-P", str(place / "grading" / "replay.py"),
                      str(place), *[task.id for task in left]], place, root, seconds)
    return {task.id: judge_again(task, seed, place, verdicts[task.id]) for task in todo}


def _claim(task, folder: Path, place: Path, cells: list) -> None:
    """Copy what a run recorded of its launches, and write the source of the kernels that it may have launched."""
    home = place / "claims" / task.id
    home.mkdir(parents=True)
    sources = []
    for cell in cells:
        about = cell.metadata["bytes_first"]
        if about["role"] == "check" and about["task"] == task.id:
            break
        if about["role"] in ("answer", "given"):
            sources.append(cell.source)
    left = MAX_CLAIMS
    names = {"speed", *(f"case{index}" for index in range(len(task.cases)))}
    source = folder / "results" / task.id
    for path in sorted(source.iterdir()):
        if path.name.split(".")[0] in names and (path.name.endswith(".trace.json") or path.name.count(".") == 3):
            if "returned" in path.name or "after" in path.name:
                continue
            try:
                data = inside(folder, path, left)
            except (OSError, ValueError):
                continue
            left -= len(data)
            (home / path.name).write_bytes(data)
    (home / "kernels.py").write_text(kernels_of(sources, _launched(home)), encoding="utf-8")


def _launched(home: Path) -> set:
    """The names of the kernels that a task's recorded launches name, as far as they can be read."""
    found = set()
    for path in home.glob("*.trace.json"):
        try:
            launches = json.loads(path.read_bytes())["launches"]
            found |= {launch["kernel"] for launch in launches}
            found |= {value["kernel"] for launch in launches for value in launch["args"].values()
                      if isinstance(value, dict) and "kernel" in value}
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            continue
    return found
