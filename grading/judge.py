"""Forms the verdict on a task from what a learner's process left behind; references never entered that process."""

import io
import json
import os
import stat
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from grading import diagnose
from grading.arrays import STORAGE, Tensor, decode
from grading.checks import RandomTensor, Task, plain
from grading.diagnose import Finding, Got

STATUSES = ("passed", "failed", "not_attempted", "pending", "ungraded")
MAX_BYTES = 1 << 30  # of one returned array
ALL = {2: "both", 3: "all three", 4: "all four"}
MAX_RESULT = 32 << 20  # of result.json
UNREADABLE = (KeyError, TypeError, AttributeError, IndexError, OSError, ValueError, OverflowError, RecursionError)


@dataclass
class Verdict:
    """What is known about one task.

    status: passed (every point earned), pending (nothing wrong, and `pending_points` wait for a GPU), failed (something
    checked is wrong; `points` may be above 0 where only speed is missing), not_attempted, ungraded (the grader's own
    fault, told in `hint`). proved, unproved: sentences. place: numbers of the failure, for the page.
    """

    id: str
    title: str
    status: str
    points: int
    pending_points: int
    max_points: int
    hint: str = ""
    kind: str = ""
    proved: list = field(default_factory=list)
    unproved: list = field(default_factory=list)
    place: dict = field(default_factory=dict)

    def __str__(self):
        points = f"{self.points} of {self.max_points} points"
        if self.pending_points:
            points += f", {self.pending_points} pending"
        lines = [f"{self.id}  {self.title}: {self.status.replace('_', ' ')}, {points}"]
        lines += [f"  proved: {sentence}" for sentence in self.proved]
        lines += [f"  not proved here: {sentence}" for sentence in self.unproved]
        if self.hint:
            lines.append(f"  hint: {self.hint}")
        return "\n".join(lines)


def simple(task: Task, status: str, hint: str = "", kind: str = "") -> Verdict:
    """A verdict without points."""
    return Verdict(task.id, task.title, status, 0, 0, task.max_points, hint, kind)


def load(folder: Path, task: Task) -> dict | None:
    """What the probe wrote about a task; None where it wrote nothing that can be read."""
    try:
        found = json.loads(inside(folder, folder / "results" / task.id / "result.json", MAX_RESULT))
    except (OSError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else {"cases": [], "finished": True, "environment": {}, "speed": None}


def inside(folder: Path, path: Path, most: int) -> bytes:
    """The content of a plain file that really lies in `folder`: learner code may have left a link or a pipe instead."""
    if path.parent.resolve() != path.parent.absolute() and not path.resolve().is_relative_to(folder.resolve()):
        raise ValueError(f"{path.name} does not lie in the run's folder")
    opened = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    with os.fdopen(opened, "rb") as file:
        status = os.fstat(opened)
        if not stat.S_ISREG(status.st_mode) or status.st_size > most:
            raise ValueError(f"{path.name} is not a plain file of at most {most:,} bytes")
        return file.read()


def judge(task: Task, seed: int, folder: Path, stopped: str = "") -> Verdict:
    """The verdict from results/<task>/ under `folder`, for inputs made with `seed`.

    stopped: why the run of this task ended early ("it took longer than 60 s"), when it did.
    """
    result = load(folder, task)
    try:
        return _judge(task, seed, Path(folder), result, stopped)
    except UNREADABLE as error:
        finding = Finding("stopped", f"the results of this task cannot be read ({type(error).__name__}: {error})",
                          "Answer cells must leave the files of the grading run alone.")
        return simple(task, "failed", finding.hint(task), finding.kind)


def _judge(task: Task, seed: int, folder: Path, result: dict | None, stopped: str) -> Verdict:
    home = folder / "results" / task.id
    cases = result["cases"] if result else []
    stubs = set() if stopped else _stubs(task, cases)
    if stubs and stubs >= {case.function or task.functions[0] for case in task.cases}:
        return simple(task, "not_attempted")
    if task.kernel and result and result["environment"]["mode"] == "unavailable":
        verdict = simple(task, "pending")
        verdict.pending_points = task.max_points
        verdict.unproved = ["anything: kernels need Triton, which is not installed here (Linux, Colab, a container or WSL2 "
                            "have it)"]
        return verdict
    findings, compiled = _findings(task, seed, home, cases)
    wrong = {index for index, _ in findings}
    left = ""
    if stubs:
        findings = [(index, finding) for index, finding in findings if _function(task, index) not in stubs]
        left = (f"{', '.join(sorted(stubs))} {'is' if len(stubs) == 1 else 'are'} still the stub; this task needs "
                f"{ALL.get(len(task.functions), 'all')} functions.")
        if not findings:
            return simple(task, "failed", left, "not_defined")
    missing = stopped or not result or not result["finished"] or len(cases) != len(task.cases)
    if missing and not findings:
        at = f"after {len(cases)} of {len(task.cases)} cases" if cases else "before its first case ended"
        finding = Finding("stopped", f"the task stopped {at}: {stopped or 'its process ended'}",
                          "Look for a loop without end, or for a call that ends the process.")
        return simple(task, "failed", f"{finding.hint(task)} {_count(task, len(cases))}", finding.kind)
    if findings:
        finding = diagnose.most_telling(task, findings)
        verdict = simple(task, "failed", finding.hint(task), finding.kind)
        verdict.place = finding.place
        verdict.hint = " ".join(filter(None, (verdict.hint, left, _count(task, len(cases) - len(wrong)))))
        return verdict
    verdict = Verdict(task.id, task.title, "passed", task.points, 0, task.max_points)
    verdict.proved = _proved(task, seed, cases, compiled)
    if task.success:
        verdict.proved.append(task.success)
    if task.speed:
        _speed(task, home, result["speed"], verdict)
    if task.kernel and not compiled:
        verdict.unproved.append("what only a compiled kernel shows (races, the GPU's own rounding)")
    return verdict


def _count(task: Task, right: int) -> str:
    """How many of a task's cases are right."""
    return f"{right} of {len(task.cases)} cases {'is' if right == 1 else 'are'} right; all have to be."


def _function(task: Task, index: int) -> str:
    return task.cases[index].function or task.functions[0]


def _stubs(task: Task, cases: list) -> set:
    """The functions of which every case says that they are not written yet."""
    told: dict = {}
    for index, record in enumerate(cases):
        told.setdefault(_function(task, index), []).append(bool((record["error"] or {}).get("not_implemented")))
    return {name for name, unwritten in told.items() if all(unwritten)}


def _findings(task: Task, seed: int, home: Path, cases: list) -> tuple[list, int]:
    """[(case index, Finding)] of every case, and how many cases were right when compiled."""
    findings, compiled = [], 0
    for index, record in enumerate(cases):
        arguments = task.arguments(index, seed)
        returned, after = _load(home, record["returned"], record["after"], arguments)
        found = diagnose.case_findings(task, index, arguments, record, returned, after)
        if record["compiled"] and not found:
            again = {**record, **record["compiled"], "meter": None}
            returned, after = _load(home, again["returned"], again["after"], arguments)
            found = diagnose.case_findings(task, index, arguments, again, returned, after)
            for finding in found:
                finding.text = f"right in the interpreter and wrong on the GPU, {finding.text}"
            compiled += not found
        findings += [(index, finding) for finding in found]
    return findings, compiled


def judge_again(task: Task, seed: int, again: Path, verdict: Verdict) -> Verdict:
    """A kernel task's verdict after the replay in the folder `again`: a failure where the kernels by themselves do not
    give the results."""
    try:
        return _judge_again(task, seed, again, verdict)
    except UNREADABLE as error:
        return simple(task, "ungraded", f"the replay of the kernels cannot be read ({type(error).__name__}: {error})")


def _judge_again(task: Task, seed: int, again: Path, verdict: Verdict) -> Verdict:
    result = load(again, task)
    if not result or not result.get("finished"):
        return simple(task, "ungraded", "the grader could not run the kernels of this task by themselves")
    finding = None
    if result["refused"]:
        finding = Finding("replay", result["refused"])
    elif len(result["cases"]) != len(task.cases):
        finding = Finding("replay", "not every case could be run again")
    else:
        for record in result["cases"]:  # what torch does here is the replay's own work
            record["operations"] = None
            record["compiled"] = record["compiled"] and {**record["compiled"], "operations": None}
        found, _ = _findings(task, seed, again / "results" / task.id, result["cases"])
        if found:
            finding = diagnose.most_telling(task, found)
            if finding.kind not in ("compile", "tf32"):
                finding = Finding("replay", f"run again without the code around them, the kernels fail: {finding.text}",
                                  case=finding.case)
    if finding is None:
        verdict.proved.append("the kernels alone, taken from the answer cells, gave these results again, and compile for "
                              "sm_80 and sm_90")
        if result["speed"]:
            verdict.status, verdict.points, verdict.pending_points = "passed", task.points, 0
            verdict.unproved.remove(_untimed(task))
            _speed(task, again / "results" / task.id, {**result["speed"], "operations": None}, verdict)
        return verdict
    failed = simple(task, "failed", finding.hint(task), finding.kind)
    failed.place = finding.place
    return failed


def _load(home: Path, returned: list | None, after: dict, arguments: dict) -> tuple[list, dict]:
    items = []
    for item in returned or []:
        if "tensor" in item:
            t = item["tensor"]
            items.append(Got(_array(home, t["file"], t["dtype"], t["shape"]), t["dtype"], strides=tuple(t["strides"])))
        else:
            items.append(Got(item.get("value"), other=item.get("other", "")))
    left = {}
    for name, file in after.items():
        before = arguments[name]
        storage = _numpy(home, file)
        if storage.dtype != before.storage.dtype or storage.shape != before.storage.shape:
            raise ValueError(f"{name} came back with another size")
        left[name] = before.after(storage)
    return items, left


def _numpy(home: Path, file: str) -> np.ndarray:
    return np.load(io.BytesIO(inside(home.parents[1], home / Path(file).name, MAX_BYTES)), allow_pickle=False)


def _array(home: Path, file: str, dtype: str, shape: list) -> np.ndarray:
    stored = _numpy(home, file)
    if stored.dtype != STORAGE[dtype]:
        raise ValueError(f"{file} holds {stored.dtype}, not {dtype}")
    return decode(stored, dtype).reshape(shape)


def _proved(task: Task, seed: int, cases: list, compiled: int) -> list:
    sentences = [f"{len(cases)} case{'s' * (len(cases) != 1)} {diagnose.manner(task, seed)}"]
    if compiled:
        sentences[0] += ", in the interpreter and compiled on the GPU"
    if task.kernel:
        sentences.append("every element stored by a kernel of yours, no access out of bounds, inputs left as they were")
    if task.minimum_bytes:
        sentences.append(f"at most {task.bytes_factor:g} times the minimum bytes requested")
    if task.sector_factor:
        sentences.append(f"at most {task.sector_factor:g} times the minimum bytes in the sectors touched")
    if task.tile_elements:
        sentences.append("no operation worked on more than one tile")
    return sentences


def _untimed(task: Task) -> str:
    speed = task.speed
    return (f"speed, {speed.points} point{'s' * (speed.points != 1)}: at least {speed.share:.0%} of the GPU's own copy at "
            f"{speed.shape}; needs a GPU")


def _speed(task: Task, home: Path, measured: dict | None, verdict: Verdict) -> None:
    """Add the points for speed to a verdict, or say why not. Without a measurement they are pending: there was no GPU,
    or the kernels were traced at that size and are timed in the replay."""
    speed = task.speed
    if measured is None or not measured["error"] and "seconds" not in measured and not list(_beside(task, measured)):
        verdict.status, verdict.pending_points = "pending", speed.points
        verdict.unproved.append(_untimed(task))
        return
    finding = _speed_finding(task, home, measured)
    if finding is None:
        rate = speed.bytes / measured["seconds"]
        verdict.points += speed.points
        verdict.proved.append(f"{rate / 1e9:,.0f} GB/s of minimum traffic at {speed.shape}, {rate / measured['roof']:.0%} "
                              "of the copy in the same run")
        return
    verdict.status, verdict.hint, verdict.kind = "failed", finding.hint(task), finding.kind
    if finding.kind not in ("slow", "exception"):  # wrong results at that size are wrong results
        verdict.points, verdict.proved = 0, []


def _beside(task: Task, measured: dict):
    """Findings about what torch did beside the kernels in the timed call."""
    return diagnose.operations(task, task.speed.make(), measured)


def _speed_finding(task: Task, home: Path, measured: dict) -> Finding | None:
    speed = task.speed
    at = f"timed at {speed.shape}"
    if measured["error"]:
        error = measured["error"]
        return Finding("exception", f"{error['type']} when {at}: {error['text'][-300:]}", case=at)
    beside = list(_beside(task, measured))
    if beside:
        beside[0].case = at
        return beside[0]
    arguments = speed.make()
    for name, t in measured["sampled"].items():
        values = _array(home, t["file"], t["dtype"], t["shape"])
        stride = tuple(int(np.prod(values.shape[axis + 1:])) for axis in range(values.ndim))
        arguments[name] = Tensor(_numpy(home, t["file"]), t["dtype"], values.shape, stride)
    if any(isinstance(value, RandomTensor) for value in arguments.values()):
        raise ValueError("the timed call came back without its inputs")
    record = {"error": None, "returned": measured["returned"], "meter": None, "operations": None, "launches": []}
    returned, after = _load(home, measured["returned"], measured["after"], arguments)
    found = diagnose.case_findings(task, 0, arguments, record, returned, after)
    if found:
        finding = min(found, key=lambda f: f.rank)
        finding.case = at
        return finding
    share = speed.bytes / measured["seconds"] / measured["roof"]
    if share >= speed.share:
        return None
    return Finding("slow", f"right, and {share:.0%} of the GPU's own copy at {speed.shape}; {speed.share:.0%} are asked for")
