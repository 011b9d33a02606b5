"""Plays the launches of an answer in a process of its own, on numbers that the learner's process never saw.

    python player.py FOLDER SECONDS    wait for the list of tasks in FOLDER/tasks/start.json and play them, for so many
                                       seconds of a processor each

Each call is metered in the interpreter, its kernels are compiled for the GPUs that the task is for, and on such a GPU
they run compiled and are timed by this process's clock. Kernels are those that the cells of the notebook define
(FOLDER/tasks/TASK/cells.json), run again here in the order of the notebook.
"""

import contextlib
import inspect
import json
import linecache
import math
import multiprocessing
import os
import sys
import time
import types
from functools import partial
from pathlib import Path

if __name__ == "__main__":  # a copy of this file, in the grading/ of a run's own folder
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch

from grading import facts
from grading.child import export, export_arguments, export_array, load_arguments, on_gpu, reporting, storage_of
from instruments import backend
from instruments.compiled import Launchable
from instruments.launches import Player, load
from instruments.meter import meter
from instruments.operations import poisoned

MAX_LISTED = 20  # accesses outside, races and broken promises listed
MAX_TILES = 64  # shapes of tiles listed, the largest
MAX_COMPILED = 1 << 15  # elements of a tile up to which a kernel is compiled: a larger one takes minutes
MAX_PROGRAMS = 1000  # whose stores are listed
PATIENCE = 3  # times the processor's time that a task may take: on a busy machine it waits
FEW_PROGRAMS = 64  # of a call that is played once more with large numbers in masked-out elements
OTHER_LAUNCHES = "with other numbers, it launches other programs or passes other plain numbers: the host read a tensor"


def play(task_id: str, folder: Path, trace: dict) -> None:
    """Play one task's trace; write results/TASK/play.msgpack."""
    spec = json.loads((folder / "tasks" / task_id / "task.json").read_text(encoding="utf-8"))
    out = folder / "results" / task_id
    out.mkdir(parents=True, exist_ok=True)
    result = facts.Play()
    compiler = Launchable(spec["instruction"])
    returned: set = set()
    try:
        for number, case in enumerate(spec["cases"]):
            calls = trace.get(str(number), [])
            result.state = result.state or state_of(number, calls, returned)
            if calls and calls[-1].launches:
                result.cases[number] = _case(number, calls, case["turns"][0], folder / "tasks" / task_id, out, compiler)
        wrong = result.state or any(case.error or case.errors for case in result.cases.values())
        if spec["speed"] and on_gpu() and compiler.runs_here and trace.get("speed") and not wrong:
            result.speed = _timed(spec["speed"], trace["speed"][0], out)
    except Exception as error:  # a trace that makes no sense
        result.refused = f"the recorded launches cannot be played ({type(error).__name__}: {error})"[:500]
    facts.write(out / "play.msgpack", result)


def state_of(number: int, calls: list, returned: set) -> tuple | None:
    """(case, words) where a function keeps something from call to call, launches as the numbers in its tensors say, or
    changes a result after the last launch. returned: storages that calls returned so far; those of these are added."""
    for turn, call in enumerate(calls):
        if turn and calls[0].launches and not call.launches:
            return number, "called again with other numbers, it launches nothing: it returns what it kept"
        if returned & call.new_storages:
            return number, "called again, it writes into a tensor that it returned before, which its caller still holds"
        if call.touched:
            return number, "a result was changed by something other than a kernel after the last launch"
        if call.form() != calls[0].form():
            return number, OTHER_LAUNCHES
        returned |= call.new_storages
    return None


def _case(number: int, calls: list, turn: list, source: Path, out: Path, compiler: Launchable) -> facts.Played:
    """The last of the calls: metered, compiled, and run on a GPU where there is one."""
    played = facts.Played(stale=calls[0].filled_otherwise(calls[-1]))
    call, name = calls[-1], f"case{number}.played"
    player = Player(call, [argument["name"] for argument in turn])
    player.choices = {  # of an autotuner's configs another one in each case
        i: [launch, *launch.configs][number % (1 + len(launch.configs))] for i, launch in enumerate(call.launches)
    }
    again = partial(_again, player, turn, source, out)
    with reporting(played):
        arguments = load_arguments(turn, source)
        result, played.metered, undefined = _metered(player, arguments, compiler)
        played.returned = export(result, out, name)
        played.after = export_arguments(arguments, out, name)
        if any("atomic" in inspect.getsource(launch.kernel.fn) for launch in call.launches):
            with backend.interpret(backwards=True):
                played.again["programs in the reverse order"] = again(f"{name}.reverse")
        if undefined and played.metered.programs <= FEW_PROGRAMS:
            condition = "large numbers in the masked-out elements of loads without `other=`"
            with backend.interpret(large=True):
                played.again[condition] = again(f"{name}.large")
        widest = max(map(math.prod, played.metered.widest), default=1)
        played.errors = compiler.errors(widest <= MAX_COMPILED)[:3]
        outside = any(t.outside for t in played.metered.tensors)  # it would corrupt the GPU's memory
        if on_gpu() and compiler.runs_here and not played.errors and not outside:
            played.again["gpu"] = again(f"{name}.gpu")
    return played


def _again(player: Player, turn: list, source: Path, out: Path, name: str) -> facts.Outcome:
    """One call, not metered, wherever kernels run."""
    outcome = facts.Outcome()
    with reporting(outcome):
        arguments = load_arguments(turn, source)
        with poisoned():
            returned = player(*arguments.values())
        outcome.returned = export(returned, out, name)
        outcome.after = export_arguments(arguments, out, name)
    return outcome


def _metered(player: Player, arguments: dict, compiler: Launchable) -> tuple:
    """(what the kernels returned, facts.Metered, whether a load left masked-out elements undefined) of one call."""
    kernels = []

    def launched(launch):
        kernels.append((launch.name, [int(n) for n in launch.grid]))
        compiler.launch(launch)

    with poisoned(), backend.observe(launched):
        report = meter(player, *arguments.values())
    candidates = {**{f"returned {i}": item for i, item in enumerate(report.result)}, **arguments}
    metered = facts.Metered(
        tensors=[_counts(t, candidates) for t in report.tensors.values()],
        kernels=kernels[:1000],
        programs=report.programs,
        widest=sorted(map(list, report.widths), key=math.prod)[-MAX_TILES:],
        races=report.races[:MAX_LISTED],
        promises=report.promises[:MAX_LISTED],
    )
    return report.result, metered, report.undefined > 0


def _counts(t, candidates: dict) -> facts.Counts:
    """What instruments.meter counted for one tensor, with its role among the inputs and results."""
    return facts.Counts(
        name=t.name,
        role=_role(t.tensor, candidates),
        shape=list(t.shape),
        read=t.read,
        written=t.written,
        unique_read=t.unique_read,
        unique_written=t.unique_written,
        sectors=t.sectors_read + t.sectors_written,
        atomics=t.atomics,
        unwritten=t.unwritten,
        unwritten_at=list(t.first_unwritten or ()),
        stored_by=[[*program, *ends] for program, ends in [*t.stored_by.items()][:MAX_PROGRAMS]],
        outside=list(map(str, t.out_of_bounds[:MAX_LISTED])),
        outside_at=t.out_of_bounds[0].index if t.out_of_bounds else 0,
    )


def _role(tensor: torch.Tensor, candidates: dict) -> str:
    """The input or the result that a tensor is, or that it begins in; '' for none."""
    begins_in = ""
    for role, other in candidates.items():
        if isinstance(other, torch.Tensor) and other.numel():
            span = 1 + sum((n - 1) * s for n, s in zip(other.shape, other.stride()))
            offset = tensor.data_ptr() - other.data_ptr()
            if (offset, tensor.shape, tensor.stride()) == (0, other.shape, other.stride()):
                return role
            if 0 <= offset < span * other.element_size():
                begins_in = begins_in or role
    return begins_in


def _timed(speed: dict, call, out: Path) -> facts.Speed:
    """Median seconds of a call from a graph, torch's own roof in this run, and sampled rows of one more call."""
    from instruments.timing import copy_roof, from_graphs, matmul_roof

    timed = facts.Speed()
    with reporting(timed):
        names = {argument["name"]: argument.get("whole", False) for argument in speed["arguments"]}
        arguments = load_arguments(speed["arguments"])
        player = Player(call, list(names), poison=False)
        player.tune(arguments)
        timed.seconds = from_graphs({"answer": player}, tuple(arguments.values()), speed["bytes"])["answer"].median
        arguments = load_arguments(speed["arguments"])
        rows, height = torch.tensor(speed["rows"], device=backend.device()), speed["height"]
        for name, value in arguments.items():
            if isinstance(value, torch.Tensor):
                sample = value if names[name] else value[rows]
                timed.sampled[name] = export_array(sample, out, f"speed.{name}.bin")
        checked = Player(call, list(names))
        checked.choices = player.choices
        with poisoned():
            returned = checked(*arguments.values())
        torch.cuda.synchronize()
        timed.returned = export(tuple(item[(rows * len(item) // height).unique()] for item in returned), out, "speed")
        for name, value in arguments.items():
            if isinstance(value, torch.Tensor):
                timed.after[name] = f"speed.after.{name}.bin"
                (out / timed.after[name]).write_bytes(storage_of(value if names[name] else value[rows]))
        del arguments, returned
        timed.roof = matmul_roof() if speed["flops"] else copy_roof(1 << 30)
    torch.cuda.empty_cache()
    return timed


def namespace_of(cells: list) -> dict:
    """What the notebook's cells define, [(name, source)], run in their order; Triton reads sources by their files.

    As in a notebook, a cell that raises keeps no later one from running.
    """
    module = types.ModuleType("__main__")
    for name, source in cells:
        file = f"<{name}>"
        linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
        module.__file__ = file
        sys.modules["__main__"] = module  # by which inspect finds the source of a class or function
        with contextlib.suppress(Exception, SystemExit):
            exec(compile(source, file, "exec"), module.__dict__)
    return module.__dict__


def alone(folder: Path, task_id: str, seconds: float) -> None:
    """Play one task in this process, for so many seconds of a processor, and end the process."""
    import resource  # not on Windows, where only `check` runs

    limit = math.ceil(seconds + time.process_time())
    resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 1))
    home, out = folder / "tasks" / task_id, folder / "results" / task_id
    out.mkdir(parents=True, exist_ok=True)
    cells = json.loads((home / "cells.json").read_text(encoding="utf-8"))
    try:
        trace = load(home / "trace.pickle", namespace_of(cells))
    except BaseException as error:
        refused = f"its cells cannot be run again by themselves ({type(error).__name__}: {error})"[:500]
        facts.write(out / "play.msgpack", facts.Play(refused=refused))
    else:
        play(task_id, folder, trace)
    finally:
        os._exit(0)  # threads of the cells may still run


def main(folder: Path, seconds: float) -> None:
    """Play the tasks of start.json, each in a process of its own, two at a time; where there is a GPU one at a time,
    which may be timed. A process that takes much longer than its share of a processor's time is killed."""
    start = folder / "tasks" / "start.json"
    while not start.exists():  # the notebook still runs
        time.sleep(0.02)
    context = multiprocessing.get_context("spawn" if on_gpu() else "fork")  # a GPU does not survive a fork
    waiting, running = json.loads(start.read_text(encoding="utf-8")), {}
    while waiting or running:
        while waiting and len(running) < (1 if on_gpu() else 2):
            process = context.Process(target=alone, args=(folder, waiting.pop(0), seconds))
            process.start()
            running[process] = time.monotonic() + PATIENCE * seconds
        for process, end in list(running.items()):
            if not process.is_alive():
                del running[process]
            elif time.monotonic() > end:
                process.kill()
        time.sleep(0.01)


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]))
