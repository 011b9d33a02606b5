"""Forms the verdict on a task, once, from what the jail left behind; references never entered it."""

import importlib.util
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from grading import diagnose, record
from grading.arrays import STORAGE, Tensor, decode
from grading.diagnose import Finding, Got
from grading.record import RUN, Undecodable, Verdict
from grading.tasks import Given, RandomTensor, Task

ALL = {2: "both", 3: "all three", 4: "all four"}
MAX_BYTES = 1 << 28  # of all that one call returned
MAX_DIMENSIONS = 32
KINDS_OF_TIMING = ("slow", "exception")  # of a failure at the timed size that says nothing against the results
#: Where a call that was right is wrong when it is played once more: {field of record.Replayed: (kind of failure, text)}
ONCE_MORE = {
    "tuned": ("tuned", "right when the kernel is launched once, and wrong after its autotuner has tried its configs"),
    "backwards": ("order", "right when the programs run from the first to the last, and wrong in another order"),
    "large": ("undefined", "wrong where masked lanes of a load without `other=` hold something other than NaN"),
}


def simple(task: Task, status: str, hint: str = "", kind: str = "") -> Verdict:
    """A verdict without points."""
    return Verdict(
        id=task.id,
        title=task.title,
        status=status,
        points=0,
        pending_points=0,
        max_points=task.max_points,
        hint=hint,
        kind=kind,
    )


def failed(task: Task, finding: Finding, more: str = "") -> Verdict:
    """The verdict on a task in which this was found."""
    found = simple(task, "failed", " ".join(filter(None, (finding.hint(task), more))), finding.kind)
    found.place = finding.place
    found.place.case = finding.case
    return found


@dataclass
class Left:
    """What the jail left of one task: the records, and where their files lie.

    run: grading/probe.py's; trace: of the kernels; played: grading/replay.py's, `playing` says why there is none.
    """

    home: Path
    run: record.Run | None
    trace: record.Trace | None = None
    play: Path | None = None
    played: record.Played | None = None
    playing: str = ""


def left_by(task: Task, folder: Path) -> Left:
    """The records of the learner's process in `folder`; Undecodable where they are none."""
    home = folder / "results" / task.id
    trace = record.read(record.Trace, folder, home / "trace.msgpack") if task.kernel else None
    return Left(home, record.read(record.Run, folder, home / "run.msgpack"), trace)


def add_play(task: Task, left: Left, folder: Path, why: str = "") -> None:
    """Add the records of the replay in `folder`. why: what is known of a replay that left none."""
    left.play = folder / "results" / task.id
    try:
        left.played = record.read(record.Played, folder, left.play / "played.msgpack")
    except Undecodable as error:
        why = str(error)
    if left.played is None or not left.played.finished:
        left.played, left.playing = None, why or "the process in which they ran ended"


def launches(left: Left) -> bool:
    """Whether there is anything to play."""
    return bool(left.trace and any(call.launches for calls in left.trace.calls.values() for call in calls))


def unreadable(task: Task, error: Exception) -> Verdict:
    """The verdict where learner code left something else than records."""
    return failed(
        task,
        Finding(
            "stopped",
            f"what this task left behind cannot be read ({str(error)[:300]})",
            "Answer cells must leave the files of the grading run alone.",
        ),
    )


def judge(given: Given, left: Left, stopped: str = "", defined=None) -> Verdict:
    """The verdict on a task. What does not decode, or lacks what the course's own code writes, is the learner's fault;
    any exception is the grader's.

    stopped: why the run of this task ended early, when it did. defined(name, source): whether such a function stands in
    the notebook's cells, where that is known.
    """
    try:
        return _judge(given, left, stopped, defined)
    except (Undecodable, MemoryError) as error:
        return unreadable(given.task, error)


def _judge(given: Given, left: Left, stopped: str, defined) -> Verdict:
    task, run = given.task, left.run
    if stopped and run:  # the interrupt that ends a cell reaches the function that runs
        run.cases = [case for case in run.cases if not case.error or case.error.type != "KeyboardInterrupt"]
    cases = run.cases if run else []
    stubs = set() if stopped else _stubs(task, cases)
    if stubs and stubs >= {task.function(index) for index in range(len(task.cases))}:
        return simple(task, "not_attempted")
    if task.kernel and run and run.environment.mode == "unavailable" and not importlib.util.find_spec("triton"):
        verdict = simple(task, "pending")
        verdict.pending_points = task.max_points
        verdict.unproved = [
            "anything: kernels need Triton, which is not installed here (Linux, Colab, a container or WSL2 have it)"
        ]
        return verdict
    found, compiled = _findings(given, left, defined)
    wrong = {index for index, _ in found}
    unwritten = ""
    if stubs:
        found = [(index, finding) for index, finding in found if task.function(index) not in stubs]
        unwritten = (
            f"{', '.join(sorted(stubs))} {'is' if len(stubs) == 1 else 'are'} still the stub; this task needs "
            f"{ALL.get(len(task.functions), 'all')} functions."
        )
        if not found:
            return simple(task, "failed", unwritten, "not_defined")
    missing = stopped or not run or not run.finished or len(cases) != len(task.cases)
    if missing and not found:
        at = f"after {len(cases)} of {len(task.cases)} cases" if cases else "before its first case ended"
        return failed(
            task,
            Finding(
                "stopped",
                f"the task stopped {at}: {stopped or 'its process ended'}",
                "Look for a loop without end, or for a call that ends the process.",
            ),
            _count(task, len(cases)),
        )
    if found:
        finding = diagnose.most_telling(task, found)
        right = 0 if finding.kind in diagnose.WHOLE else len(cases) - len(wrong)
        return failed(task, finding, " ".join(filter(None, (unwritten, _count(task, right)))))
    verdict = Verdict(
        id=task.id,
        title=task.title,
        status="passed",
        points=task.points,
        pending_points=0,
        max_points=task.max_points,
        proved=_proved(given, cases, compiled),
    )
    if task.speed:
        _speed(given, left, verdict)
    if task.kernel and not compiled:
        verdict.unproved.append("what only a compiled kernel shows (the GPU's own rounding, races of its threads)")
    return verdict


def _count(task: Task, right: int) -> str:
    """How many of a task's cases are right."""
    return f"{right} of {len(task.cases)} cases {'is' if right == 1 else 'are'} right; all have to be."


def _stubs(task: Task, cases: list) -> set:
    """The functions of which every case says that they are not written yet."""
    told: dict = {}
    for index, case in enumerate(cases[: len(task.cases)]):
        told.setdefault(task.function(index), []).append(case.stub)
    return {name for name, unwritten in told.items() if all(unwritten)}


def _findings(given: Given, left: Left, defined) -> tuple[list, int]:
    """[(case index, Finding)] of every case, and how many cases were right when compiled."""
    task, found, compiled = given.task, [], 0
    cases = (left.run.cases if left.run else [])[: len(task.cases)]
    for index, case in enumerate(cases):
        here = diagnose.of_run(given, index, case)
        if task.kernel:
            here += _untouched(given, index, left, case) if left.played else []
        elif not case.error:
            here += _of_values(given, index, 0, left.home, case)
            if case.second is not None and not here:
                second = [_got(left.home, item) for item in case.second]
                if wrong := diagnose.of_values(given, index, 1, second, {}, None):
                    here = diagnose.repeated(given, index, second) or wrong
        found += [(index, finding) for finding in here]
    if not task.kernel:
        told = {i: [_got(left.home, item) for item in case.returned] for i, case in enumerate(cases) if case.returned}
        found = diagnose.one_mistake(given, found, told)
    if not task.kernel or not cases or all(case.error or case.stub for case in cases):
        return found, compiled
    whole = diagnose.of_kernels(task, left.trace, left.played, left.playing, launches(left), defined)
    found += [(index, finding) for index, finding in whole if index < len(cases)]
    if left.played is None or left.played.refused:
        return found, compiled
    for index, case in enumerate(cases):
        if not case.error and (
            not left.played.cases.get(index) or len(left.trace.calls.get(str(index), [])) != len(RUN)
        ):
            raise Undecodable("the launches of a case are missing")
        for replayed in left.played.cases.get(index, []):
            arguments = given.arguments(index, replayed.turn)
            here = diagnose.of_replay(given, index, replayed, arguments)
            if not replayed.error:
                here += _of_values(given, index, replayed.turn, left.play, replayed)
            for how, (kind, text) in ONCE_MORE.items():
                again = getattr(replayed, how)
                if again and not here:
                    if again.error or _of_values(given, index, replayed.turn, left.play, again, replayed.metered):
                        here = [Finding(kind, text, case=task.cases[index].name)]
            if replayed.compiled and not here:
                here = diagnose.of_replay(given, index, replayed.compiled, arguments)
                if not replayed.compiled.error:
                    here += _of_values(given, index, replayed.turn, left.play, replayed.compiled, replayed.metered)
                for finding in here:
                    finding.text = f"right in the interpreter and wrong on the GPU, {finding.text}"
                    finding.place.tensor = ""  # nothing to watch in the interpreter
                compiled += not here
            found += [(index, finding) for finding in here]
    if left.played.fault:  # a call that returns what it kept launches nothing
        found = [(index, finding) for index, finding in found if finding.kind != "no_kernel"]
    return found, compiled


def _untouched(given: Given, index: int, left: Left, case: record.Case) -> list:
    """Inputs that a kernel task's function changed by itself: where it only launches, every one is as it was."""
    if case.error:
        return []
    arguments = given.arguments(index, RUN[0])
    return [
        Finding(
            "input_changed",
            f"something other than a kernel changed the input {name}",
            case=given.task.cases[index].name,
        )
        for name, left_of in _after(left.home, case.after, arguments).items()
        if left_of.storage.tobytes() != arguments[name].storage.tobytes()
    ]


def _of_values(given: Given, index: int, turn: int, home: Path, told, metered=None) -> list:
    """What is wrong with the results of one call, and with what it left of its inputs."""
    if told.returned is None:
        raise Undecodable("a case came back without results")
    arguments = given.arguments(index, turn)
    arrays = [item for item in told.returned if isinstance(item, record.Array) and item.dtype in STORAGE]
    if sum(max(math.prod(item.shape), 0) * STORAGE[item.dtype].itemsize for item in arrays) > MAX_BYTES:
        raise Undecodable(f"a case returned more than {MAX_BYTES >> 20} MiB")
    return diagnose.of_values(
        given,
        index,
        turn,
        [_got(home, item) for item in told.returned],
        _after(home, told.after, arguments),
        getattr(told, "metered", None) or metered,
    )


def _got(home: Path, item) -> Got:
    if isinstance(item, record.Array):
        return Got(_array(home, item), item.dtype, strides=tuple(item.strides))
    return Got(None, other=item.name) if isinstance(item, record.Other) else Got(item.value)


def _after(home: Path, files: dict, arguments: dict) -> dict:
    """{argument: the Tensor that a call left of it}, of every matrix among them at least."""
    matrices = {
        name
        for name, value in arguments.items()
        if isinstance(value, Tensor) and len(value.shape) > 1 and not name.startswith("_")
    }
    if not matrices <= set(files):
        raise Undecodable("a call came back without its inputs")
    found = {}
    for name, file in files.items():
        before = arguments.get(name)
        if not isinstance(before, Tensor):
            raise Undecodable(f"{name} is no tensor")
        found[name] = before.after(_raw(home, file, before.storage.dtype, before.storage.size))
    return found


def _raw(home: Path, file: str, dtype: np.dtype, count: int) -> np.ndarray:
    content = record.inside(home.parents[1], home / Path(file).name, MAX_BYTES)
    if len(content) != count * dtype.itemsize:
        raise Undecodable(f"{file} holds {len(content):,} bytes, not {count * dtype.itemsize:,}")
    return np.frombuffer(content, dtype)


def _array(home: Path, item: record.Array) -> np.ndarray:
    if item.dtype not in STORAGE or min(item.shape, default=0) < 0 or len(item.shape) > MAX_DIMENSIONS:
        raise Undecodable(f"{item.file} is of {item.dtype} and shape {item.shape}")
    return decode(_raw(home, item.file, STORAGE[item.dtype], math.prod(item.shape)), item.dtype).reshape(item.shape)


def _proved(given: Given, cases: list, compiled: int) -> list:
    task = given.task
    sentences = [f"{len(cases)} case{'s' * (len(cases) != 1)} {diagnose.manner(given)}"]
    if compiled:
        sentences[0] += ", in the interpreter and compiled on the GPU"
    if task.kernel:
        sentences.append(
            "every element stored by your kernels alone, run by themselves on other numbers; no access out of "
            "bounds, no race between programs, inputs left as they were"
        )
        sentences.append(
            "every specialisation goes through Triton's front end, and the kernels compile for "
            + " and ".join(f"sm_{arch}" for arch in task.architectures)
        )
    if task.minimum_bytes:
        sentences.append(f"at most {task.bytes_factor:g} times the minimum bytes requested")
    if task.sector_factor:
        sentences.append(f"at most {task.sector_factor:g} times the minimum bytes in the sectors touched")
    if task.max_tile:
        sentences.append(f"no tile wider than {diagnose.widest(task)}")
    if task.tile_elements:
        sentences.append("no operation worked on more than one tile")
    return [*sentences, *filter(None, [task.success])]


# ---------------------------------------------------------------- speed


def _speed(given: Given, left: Left, verdict: Verdict) -> None:
    """Add the points for speed to a verdict, or say why not. Without a measurement they are pending: there was no
    GPU."""
    task, speed = given.task, given.task.speed
    finding = _timed_beside(task, left.run.timed)
    measured = left.played.speed if left.played else None
    if finding is None and measured is None:
        verdict.status, verdict.pending_points = "pending", speed.points
        verdict.unproved.append(
            f"speed, {speed.points} point{'s' * (speed.points != 1)}: at least {speed.share:.0%} of the GPU's own "
            f"copy at {speed.shape}; needs a GPU"
        )
        return
    finding = finding or _measured(given, left, measured)
    if finding is None:
        rate = speed.bytes / measured.seconds
        verdict.points += speed.points
        verdict.proved.append(
            f"{rate / 1e9:,.0f} GB/s of minimum traffic at {speed.shape}, {rate / measured.roof:.0%} "
            "of the copy in the same run"
        )
        return
    finding.case = f"timed at {speed.shape}"
    verdict.status, verdict.hint, verdict.kind = "failed", finding.hint(task), finding.kind
    if finding.kind not in KINDS_OF_TIMING:  # wrong results at that size are wrong results
        verdict.points, verdict.proved = 0, []


def _timed_beside(task: Task, timed: record.Case | None) -> Finding | None:
    """What the learner's process tells about the call at the timed size: an error, or work of torch beside the
    kernels."""
    if timed is None:
        return None
    if timed.error:
        return Finding("exception", f"{timed.error.type}: {timed.error.text[-300:]}")
    return next(diagnose.operations(task, task.speed.make(), timed.operations), None)


def _measured(given: Given, left: Left, measured: record.Speed) -> Finding | None:
    speed = given.task.speed
    if any(call.touched for call in left.trace.calls.get("speed", [])):
        return Finding("not_by_kernel", "a result was changed by something other than a kernel after the last launch")
    if measured.error:
        return Finding("exception", f"{measured.error.type}: {measured.error.text[-300:]}")
    arguments = speed.make()
    for name, item in measured.sampled.items():
        if item.dtype not in STORAGE:
            raise Undecodable(f"{item.file} is of {item.dtype}")
        storage = _raw(left.play, item.file, STORAGE[item.dtype], math.prod(item.shape))
        stride = tuple(math.prod(item.shape[axis + 1 :]) for axis in range(len(item.shape)))
        arguments[name] = Tensor(storage, item.dtype, tuple(item.shape), stride)
    if any(isinstance(value, RandomTensor) for value in arguments.values()):
        raise Undecodable("the timed call came back without its inputs")
    found = diagnose.of_values(
        given,
        0,
        arguments,
        [_got(left.play, item) for item in measured.returned],
        _after(left.play, measured.after, arguments),
        None,
    )
    if found:
        return min(found, key=lambda finding: finding.rank)
    share = speed.bytes / measured.seconds / measured.roof
    if share >= speed.share:
        return None
    return Finding(
        "slow", f"right, and {share:.0%} of the GPU's own copy at {speed.shape}; {speed.share:.0%} are asked for"
    )
