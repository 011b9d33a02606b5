"""Forms the verdict on a task, once, from the facts that the sandbox reports; references never entered it."""

import importlib.util
import math
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from grading import facts, hints
from grading.compare import Result, matches
from grading.facts import Undecodable
from grading.hints import Finding
from grading.record import Verdict
from grading.tasks import BYTES_FACTOR, PLAYED, RECORDED, Inputs, RandomTensor, Task, expected, plain
from grading.tasks.arrays import STORAGE, Tensor

MAX_BYTES = 1 << 28  # of all that one call returned
MAX_DIMENSIONS = 32


@dataclass
class Evidence:
    """What the sandbox left of one task. run, run_home: the learner's process's report, and where its files are; play,
    play_home: the player's. stopped: why the run of this task ended early, if it did; unplayed: why there is no
    play."""

    run: facts.Run | None
    run_home: Path
    play: facts.Play | None = None
    play_home: Path | None = None
    stopped: str = ""
    unplayed: str = ""

    @property
    def is_playable(self) -> bool:
        return bool(self.run and self.run.launched and not self.run.refused and not self.stopped)


def without_points(task: Task, status: str, hint: str = "") -> Verdict:
    return Verdict(id=task.id, title=task.title, status=status, max_points=task.max_points, hint=hint)


def failed(task: Task, finding: Finding, right: int | None = None) -> Verdict:
    """The verdict on a task with this fault. right: the number of cases that are right, for the hint."""
    verdict = without_points(task, "failed", finding.hint(task))
    if right is not None:
        verdict.hint += f" {right} of {len(task.cases)} cases {'is' if right == 1 else 'are'} right; all have to be."
    verdict.diagnosis, verdict.place = finding.diagnosis, finding.place
    verdict.place.case = finding.case
    return verdict


def unreadable(task: Task, error: Exception) -> Verdict:
    """The verdict where learner code left something else than reports."""
    text = f"what this task left behind cannot be read ({str(error)[:300]})"
    return failed(task, Finding("stopped", text, "Answer cells must leave the files of the grading run alone."))


def judge(inputs: Inputs, evidence: Evidence) -> Verdict:
    """The verdict on a task. What does not decode, or lacks what the course's own code writes, is the learner's fault;
    any exception is the grader's."""
    try:
        return _judge(inputs, evidence)
    except (Undecodable, MemoryError) as error:
        return unreadable(inputs.task, error)


def _judge(inputs: Inputs, evidence: Evidence) -> Verdict:
    task, run = inputs.task, evidence.run
    cases = run.cases[: len(task.cases)] if run else []
    if evidence.stopped:  # the interrupt that ends a cell reaches the function that runs
        cases = [case for case in cases if not case.error or case.error.type != "KeyboardInterrupt"]
    elif cases and all(case.stub for case in cases):
        return without_points(task, "not_attempted")
    if task.kernel and run and run.environment.mode == "unavailable" and not importlib.util.find_spec("triton"):
        verdict = without_points(task, "pending")
        verdict.pending_points = task.max_points
        verdict.unproved = ["anything: kernels need Triton, which runs on Linux (or Colab, a container, WSL2)"]
        return verdict
    findings, on_gpu = _findings(inputs, evidence, cases)
    findings = findings or _unfinished(task, evidence, len(cases))
    if findings:
        wrong = {finding.index for finding in findings if finding.case}
        return failed(task, hints.most_telling(task, findings), len(cases) - len(wrong))
    return _passed(inputs, evidence, len(cases), on_gpu)


def _unfinished(task: Task, evidence: Evidence, cases: int) -> list:
    """[Finding] where not every case was called."""
    if not evidence.stopped and cases == len(task.cases) and evidence.run.finished:
        return []
    at = f"after {cases} of {len(task.cases)} cases" if cases else "before its first case ended"
    return [Finding("stopped", f"the task stopped {at}: {evidence.stopped or 'its process ended'}")]


def _findings(inputs: Inputs, evidence: Evidence, cases: list) -> tuple[list, int]:
    """([Finding] of every case, how many cases were right compiled on a GPU)."""
    task, home, findings, outcomes, on_gpu = inputs.task, evidence.run_home, [], [], 0
    for index, case in enumerate(cases):
        arguments = inputs.arguments(index)
        here = hints.of_call(task, arguments, case)
        if case.error:
            here.append(hints.of_error(task, index, case.error, case.stub))
        elif task.kernel:
            here += hints.unchanged_inputs(arguments, _after(home, case.after, arguments), set())
        else:
            here += _values(inputs, index, RECORDED[0], home, case, outcomes)
            if case.second is not None and not here:
                here += _values(inputs, index, RECORDED[1], home, facts.Outcome(returned=case.second), outcomes)
        findings += _named(here, task, index)
    launching = [index for index, case in enumerate(cases) if not case.error and not case.stub]
    if task.kernel and launching and not evidence.stopped:
        if whole := _whole(task, evidence):
            return [*findings, whole], 0
        for index, played in sorted(evidence.play.cases.items()):
            if 0 <= index < len(cases):
                here, compiled = _played(inputs, index, played, evidence.play_home, outcomes)
                findings += _named(here, task, index)
                on_gpu += compiled
        for index in {*launching} - {*evidence.play.cases}:
            findings += _named([Finding("no_kernel", "no Triton kernel was launched")], task, index)
    hints.named_mistakes(task, findings, outcomes)
    return findings, on_gpu


def _named(findings: list, task: Task, index: int) -> list:
    for finding in findings:
        finding.case, finding.index = task.cases[index].name, index
    return findings


def _whole(task: Task, evidence: Evidence) -> Finding | None:
    """What is wrong with the kernels of a task as a whole."""
    run, play = evidence.run, evidence.play
    if run.refused:
        return Finding("no_kernel", run.refused, "Define kernels in the answer cell, outside of functions.")
    if not run.launched:
        return Finding("no_kernel", "no Triton kernel was launched")
    if play is None:
        text = f"the kernels of this task could not be run to their end: {evidence.unplayed}"
        return Finding("stopped", text, "Look for a loop that never ends, or for sizes that are far too large.")
    if play.refused:
        return Finding("stopped", play.refused)
    if play.state and 0 <= play.state[0] < len(task.cases):
        return Finding("state", play.state[1], case=task.cases[play.state[0]].name, index=play.state[0])
    return None


def _played(inputs: Inputs, index: int, played: facts.Played, home: Path, outcomes: list) -> tuple[list, bool]:
    """([Finding] of one case's launches, whether it was right compiled on a GPU)."""
    task, turn = inputs.task, PLAYED[0]
    arguments = inputs.arguments(index, turn)
    right = inputs.expected(index, turn) if task.functions[task.function(index)] else []
    here = hints.of_kernels(task, arguments, right, played)
    here += _values(inputs, index, turn, home, played, outcomes, played.metered)
    if played.stale and any(finding.diagnosis == "values" for finding in here):
        return [Finding("torch_work", "a kernel reads what torch or Python made of an input's numbers")], False
    for condition, outcome in played.again.items():
        again = [] if here else _values(inputs, index, turn, home, outcome, [], played.metered)
        if again and condition == "gpu":
            for finding in again:
                finding.text = f"right in the interpreter and wrong on the GPU: {finding.text}"
                finding.place.tensor = ""  # the interpreter has nothing to show
            here = again
        elif again:
            here = [Finding("race", f"right in the interpreter's own order, and wrong with {condition}")]
    return here, "gpu" in played.again and not here


def _values(inputs: Inputs, index: int, turn: int, home: Path, outcome, outcomes: list, metered=None) -> list:
    """What is wrong with the results of one call, and with its inputs after it; adds to `outcomes` what a mistake may
    explain."""
    task, function, second = inputs.task, inputs.task.function(index), turn == RECORDED[1]
    if outcome.error:
        return [hints.of_error(task, index, outcome.error)]
    if outcome.returned is None:
        raise Undecodable("a case came back without results")
    arguments = inputs.arguments(index, turn)
    results = results_of(home, outcome.returned)
    changed = {} if second else _after(home, outcome.after, arguments)
    if task.verdict:
        return _by_verdict(task, arguments, results, metered) + hints.unchanged_inputs(arguments, changed, set())
    right = inputs.expected(index, turn)
    findings = hints.unchanged_inputs(arguments, changed, {e.argument for e in right})
    if wrong := hints.of_form(task, function, results, right):
        return [wrong, *findings]
    pairs = _pairs(right, results, changed)
    outcomes.append(hints.Outcome(index, arguments, pairs, hints.widths_of(arguments, metered)))
    wrong = hints.of_values(function, arguments, pairs)
    if wrong and second and all(matches(result, e) for result, e in zip(results, inputs.expected(index, RECORDED[0]))):
        text = "called again with other numbers, it returns what it returned before"
        wrong = Finding("state", text, "Compute anew in every call.")
    if not wrong:
        return findings
    hints.name_tensor(wrong, right, metered)
    return [wrong, *findings]


def _by_verdict(task: Task, arguments: dict, results: list, metered: facts.Metered | None) -> list:
    """[Finding] of the task's own verdict on a call's results."""
    more = {"_dtypes": [result.dtype for result in results], "_metered": metered}
    fault = task.verdict({**plain(arguments), **more}, [result.values for result in results])
    return [Finding("values", fault, advice=" ")] if fault else []


def _pairs(right: list, results: list, changed: dict) -> list:
    """[(Result, Expected)]: what a call returned or left in an argument, beside what is right."""
    returned = iter(results)
    inputs = {name: Result(tensor.values, tensor.dtype) for name, tensor in changed.items()}
    return [(inputs[e.argument] if e.argument else next(returned), e) for e in right]


def results_of(home: Path, returned: list) -> list:
    """What came back, as [Result]; Undecodable where its files do not fit."""
    arrays = [item for item in returned if isinstance(item, facts.Array)]
    if sum(_count_of(item) * STORAGE[item.dtype].itemsize for item in arrays) > MAX_BYTES:
        raise Undecodable(f"a case returned more than {MAX_BYTES >> 20} MiB")
    return [
        Result(_tensor(home, item).values, item.dtype, strides=tuple(item.strides))
        if isinstance(item, facts.Array)
        else Result(None, other=item.name)
        if isinstance(item, facts.Other)
        else Result(item.value)
        for item in returned
    ]


def _count_of(item: facts.Array) -> int:
    if item.dtype not in STORAGE or min(item.shape, default=0) < 0 or len(item.shape) > MAX_DIMENSIONS:
        raise Undecodable(f"{item.file} is of {item.dtype} and shape {item.shape}")
    return math.prod(item.shape)


def _tensor(home: Path, item: facts.Array) -> Tensor:
    stride = tuple(math.prod(item.shape[axis + 1 :]) for axis in range(len(item.shape)))
    storage = _raw(home, item.file, STORAGE[item.dtype], _count_of(item))
    return Tensor(storage, item.dtype, tuple(item.shape), stride)


def _after(home: Path, files: dict, arguments: dict) -> dict:
    """{argument: the Tensor that a call left of it}, of every matrix among them at least."""
    tensors = {name: value for name, value in arguments.items() if isinstance(value, Tensor) and name[0] != "_"}
    if not {name for name, value in tensors.items() if len(value.shape) > 1} <= set(files) <= set(tensors):
        raise Undecodable("a call came back without its inputs")
    after = {}
    for name, file in files.items():
        storage = tensors[name].storage
        after[name] = replace(tensors[name], storage=_raw(home, file, storage.dtype, storage.size))
    return after


def _raw(home: Path, file: str, dtype: np.dtype, count: int) -> np.ndarray:
    content = facts.inside(home.parents[1], home / Path(file).name, MAX_BYTES)
    if len(content) != count * dtype.itemsize:
        raise Undecodable(f"{file} holds {len(content):,} bytes, not {count * dtype.itemsize:,}")
    return np.frombuffer(content, dtype)


def _passed(inputs: Inputs, evidence: Evidence, cases: int, on_gpu: int) -> Verdict:
    """The verdict on a right answer: what was proved, and what was not."""
    task = inputs.task
    verdict = without_points(task, "passed")
    verdict.points = task.points
    also = ", also compiled on the GPU" if on_gpu else ""
    verdict.proved = [f"{cases} case{'s' * (cases != 1)} right against the reference{also}"]
    if task.kernel:
        verdict.proved.append(
            "every element stored by your kernels, played by themselves on other numbers; no access out of bounds, no "
            "race between programs, inputs unchanged; every kernel compiles"
        )
    if task.minimum_bytes:
        verdict.proved.append(f"at most {BYTES_FACTOR:g} times the minimum bytes requested")
    if task.coalesced:
        verdict.proved.append("at most twice the minimum bytes in the sectors touched")
    if task.max_tile:
        verdict.proved.append(f"no tile larger than {hints.widest(task)}")
    if task.speed:
        _add_speed(inputs, evidence, verdict)
    if task.kernel and not on_gpu:
        verdict.unproved.append("what only a compiled kernel shows: the GPU's own rounding, races of its threads")
    verdict.proved += filter(None, [task.hints.get("passed")])
    return verdict


def _add_speed(inputs: Inputs, evidence: Evidence, verdict: Verdict) -> None:
    """Add the points for speed to a verdict, or say why not. Without a GPU they are pending."""
    task, speed = inputs.task, inputs.task.speed
    measured = evidence.play.speed if evidence.play else None
    wrong = _wrong_when_timed(task, evidence, measured)
    share = speed.work / measured.seconds / measured.roof if measured and measured.seconds else 0
    if not wrong and not measured:
        verdict.status, verdict.pending_points = "pending", speed.points
        asked = f"at least {speed.share:.0%} of {speed.yardstick} at {speed.shape}"
        verdict.unproved.append(f"speed, {speed.points} point{'s' * (speed.points != 1)}: {asked}; needs a GPU")
    elif not wrong and share >= speed.share:
        verdict.points += speed.points
        reached = f"{speed.work / measured.seconds / 1e9:,.0f} {speed.unit} at {speed.shape}"
        verdict.proved.append(f"{reached}, {share:.0%} of {speed.yardstick} in the same run")
    else:
        slow = f"right, and {share:.0%} of {speed.yardstick} at {speed.shape}; the task asks for {speed.share:.0%}"
        finding = wrong or Finding("slow", slow)
        finding.case = f"timed at {speed.shape}"
        verdict.status, verdict.hint, verdict.diagnosis = "failed", finding.hint(task), finding.diagnosis
        if finding.diagnosis not in ("slow", "exception"):  # wrong results at that size are wrong results
            verdict.points, verdict.proved = 0, []


def _wrong_when_timed(task: Task, evidence: Evidence, measured: facts.Speed | None) -> Finding | None:
    """What is wrong with the timed call, but for its speed."""
    timed = evidence.run.timed
    for report in (timed, measured):
        if report and report.error:
            return hints.of_error(task, 0, report.error)
    arguments = task.speed.make()
    beside = hints.of_operations(task, arguments, timed.operations) if timed else []
    if beside or not measured:
        return next(iter(beside), None)
    arguments |= {name: _tensor(evidence.play_home, item) for name, item in measured.sampled.items()}
    if any(isinstance(value, RandomTensor) for value in arguments.values()):
        raise Undecodable("the timed call came back without its inputs")
    function = next(iter(task.functions))
    right = expected(task.functions[function], arguments)
    after = _after(evidence.play_home, measured.after, arguments)
    pairs = _pairs(right, results_of(evidence.play_home, measured.returned), after)
    return hints.of_values(function, arguments, pairs)
