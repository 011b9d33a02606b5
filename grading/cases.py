"""Writes a task's inputs as files for grading/probe.py and grading/replay.py: all that the jail gets to know of
them."""

import json
from pathlib import Path

import numpy as np

from grading.tasks import DType, Given, RandomTensor, Task, Tensor

SPEED_ROWS = 16  # rows of a timed call's result that are judged


def prepare(given: Given, folder: Path, turns: tuple) -> None:
    """Write tasks/<id>/ under `folder`: the inputs of every case at these turns, and task.json saying how to call
    what."""
    task = given.task
    home = Path(folder) / "tasks" / task.id
    home.mkdir(parents=True, exist_ok=True)
    cases = [
        {"function": task.function(index), "turns": [written(given, index, turn, home) for turn in turns]}
        for index in range(len(task.cases))
    ]
    spec = {
        "task": task.id,
        "kernel": task.kernel,
        "watch_operations": task.tile_elements is not None,
        "cases": cases,
        "ieee": task.ieee,
        "architectures": task.architectures,
        "products": task.products,
        "max_tile": task.max_tile,
        "any_order": task.any_order,
        "turns": list(turns),
        "speed": timed(task, given.seed, turns),
    }
    (home / "task.json").write_text(json.dumps(spec), encoding="utf-8")


def written(given: Given, index: int, turn: int, home: Path) -> list:
    """Write the inputs of one case at one turn under `home`; how to load them, for probe.load_arguments."""
    arguments = []
    for name, value in given.arguments(index, turn).items():
        if name.startswith("_"):
            continue
        if isinstance(value, Tensor):
            file = f"case{index}.{turn}.{name}.npy"
            np.save(home / file, value.storage, allow_pickle=False)
            arguments.append(
                {
                    "name": name,
                    "tensor": {
                        "file": file,
                        "dtype": value.dtype,
                        "shape": list(value.shape),
                        "stride": list(value.stride),
                    },
                }
            )
        else:
            arguments.append(_plain(name, value))
    return arguments


def _plain(name: str, value) -> dict:
    if isinstance(value, DType):
        return {"name": name, "dtype": value.name}
    if isinstance(value, RandomTensor):
        return {
            "name": name,
            "random": {"shape": list(value.shape), "dtype": value.dtype, "mean": value.mean, "std": value.std},
        }
    return {"name": name, "value": value}


def timed(task: Task, seed: int, turns: tuple) -> dict | None:
    """How the timed call is made. Which numbers it gets and which rows of its results are judged differ with the turns:
    a learner's process is told other ones than its replay."""
    if task.speed is None:
        return None
    arguments = task.speed.make()
    rows = next(v.shape[0] for v in arguments.values() if isinstance(v, RandomTensor) and len(v.shape) > 1)
    rng = np.random.default_rng([seed, *map(ord, task.id), *turns])
    return {
        "function": next(iter(task.functions)),
        "bytes": task.speed.bytes,
        "seed": int(rng.integers(1 << 31)),
        "rows": sorted(int(r) for r in rng.choice(rows, SPEED_ROWS, replace=False)),
        "arguments": [_plain(name, value) for name, value in arguments.items() if not name.startswith("_")],
    }
