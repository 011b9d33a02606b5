"""Writes a task's cases as files for grading/probe.py: everything a learner's process gets to know of them."""

import json
from pathlib import Path

import numpy as np

from grading.checks import DType, RandomTensor, Task, Tensor

SPEED_ROWS = 16  # rows of a timed call's result that are judged


def prepare(task: Task, seed: int, folder: Path) -> None:
    """Write tasks/<id>/ under `folder`: the inputs of every case, and task.json saying how to call what."""
    home = Path(folder) / "tasks" / task.id
    home.mkdir(parents=True, exist_ok=True)
    cases = []
    for index, case in enumerate(task.cases):
        name = f"case{index}"
        arguments = []
        for argument, value in task.arguments(index, seed).items():
            if argument.startswith("_"):
                continue
            if isinstance(value, Tensor):
                file = f"{name}.{argument}.npy"
                np.save(home / file, value.storage, allow_pickle=False)
                arguments.append({"name": argument, "tensor": {"file": file, "dtype": value.dtype,
                                                               "shape": list(value.shape), "stride": list(value.stride)}})
            else:
                arguments.append(_plain(argument, value))
        cases.append({"id": name, "function": case.function or task.functions[0], "arguments": arguments})
    spec = {"task": task.id, "kernel": task.kernel, "watch_operations": task.tile_elements is not None, "cases": cases,
            "ieee": task.ieee, "max_tile": task.max_tile, "speed": _speed(task, seed)}
    (home / "task.json").write_text(json.dumps(spec), encoding="utf-8")


def _plain(name: str, value) -> dict:
    if isinstance(value, DType):
        return {"name": name, "dtype": value.name}
    if isinstance(value, RandomTensor):
        return {"name": name, "random": {"shape": list(value.shape), "dtype": value.dtype, "mean": value.mean,
                                         "std": value.std}}
    return {"name": name, "value": value}


def _speed(task: Task, seed: int) -> dict | None:
    if task.speed is None:
        return None
    arguments = task.speed.make()
    rows = next(v.shape[0] for v in arguments.values() if isinstance(v, RandomTensor) and len(v.shape) > 1)
    rng = np.random.default_rng([seed, *map(ord, task.id)])
    return {"function": task.functions[0], "bytes": task.speed.bytes, "seed": int(rng.integers(1 << 31)),
            "rows": sorted(int(r) for r in rng.choice(rows, SPEED_ROWS, replace=False)),
            "arguments": [_plain(name, value) for name, value in arguments.items() if not name.startswith("_")]}
