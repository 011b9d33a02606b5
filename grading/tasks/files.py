"""Writes a task's inputs as files, for child.py and player.py: all that the sandbox gets to know of them."""

import json
from pathlib import Path

import numpy as np

from grading.tasks import DType, Inputs, RandomTensor, Task, Tensor

SPEED_ROWS = 16  # rows of a timed call's result that are judged


def prepare(inputs: Inputs, folder: Path, turns: tuple) -> None:
    """Write tasks/ID/ under `folder`: the inputs of every case at these turns, and task.json, how to call what."""
    task = inputs.task
    home = Path(folder) / "tasks" / task.id
    home.mkdir(parents=True, exist_ok=True)
    spec = {
        "kernel": task.kernel,
        "tile": callable(task.max_tile),
        "instruction": task.instruction,
        "cases": [
            {"function": task.function(index), "turns": [write(inputs, index, turn, home) for turn in turns]}
            for index in range(len(task.cases))
        ],
        "speed": timed_call(task, inputs.seed, turns),
    }
    (home / "task.json").write_text(json.dumps(spec), encoding="utf-8")


def write(inputs: Inputs, index: int, turn: int, home: Path) -> list:
    """Write the inputs of one case at one turn under `home`; how to load them, for child.load_arguments."""
    arguments = []
    for name, value in inputs.arguments(index, turn).items():
        if isinstance(value, Tensor) and not name.startswith("_"):
            file = f"case{index}.{turn}.{name}.npy"
            np.save(home / file, value.storage, allow_pickle=False)
            form = {"file": file, "dtype": value.dtype, "shape": list(value.shape), "stride": list(value.stride)}
            arguments.append({"name": name, "tensor": form})
        elif not name.startswith("_"):
            arguments.append(_plain(name, value))
    return arguments


def _plain(name: str, value) -> dict:
    if isinstance(value, DType):
        return {"name": name, "dtype": value.name}
    if isinstance(value, RandomTensor):
        form = {"shape": list(value.shape), "dtype": value.dtype, "mean": value.mean, "std": value.std}
        return {"name": name, "random": form, "whole": value.whole}
    return {"name": name, "value": value}


def judged_rows(rng, rows: int, block: int) -> list:
    """So many rows at random, or the rows of two blocks where rows of the result belong to whole blocks."""
    if block == 1:
        return sorted(int(row) for row in rng.choice(rows, SPEED_ROWS, replace=False))
    first = sorted(int(number) * block for number in rng.choice(rows // block, 2, replace=False))
    return [row for start in first for row in range(start, start + block)]


def timed_call(task: Task, seed: int, turns: tuple) -> dict | None:
    """How the timed call is made. The numbers of its matrices and the rows of its results that are judged differ with
    the turns: the player gets others than the learner's process. Of a vector, such as a weight, torch may prepare
    something before the launch, so both get the same."""
    if task.speed is None:
        return None
    arguments = task.speed.make()
    made = [value for value in arguments.values() if isinstance(value, RandomTensor)]
    dims = max(len(value.shape) for value in made)
    rows = next(value.shape[0] for value in made if len(value.shape) == dims and not value.whole)
    paired, rng = (np.random.default_rng([seed, *map(ord, task.id), *more]) for more in ((), turns))
    forms = [_plain(name, value) for name, value in arguments.items() if not name.startswith("_")]
    for form in forms:
        if "random" in form:
            vector = len(form["random"]["shape"]) < dims
            form["whole"] |= vector
            form["random"]["seed"] = int((paired if vector else rng).integers(1 << 31))
    return {
        "function": next(iter(task.functions)),
        "bytes": task.speed.bytes,
        "flops": task.speed.flops,
        "height": rows,
        "rows": judged_rows(rng, rows, task.speed.block),
        "arguments": forms,
    }
