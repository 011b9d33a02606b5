"""Turns facts into findings: what is wrong, where, what was expected, and one thing to look at.

A hint never guesses a cause from the shape of an error. It names a common mistake only where the reference, called with
that mistake's flag, gives the learner's results in most of the cases that are wrong.
"""

import itertools
import math
import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from grading import facts
from grading.compare import explained, form_fault, matches, wrong_place
from grading.record import Place
from grading.tasks import BYTES_FACTOR, DIAGNOSES, RandomTensor, Task, Tensor, mistaken, plain, takes
from grading.tasks.arrays import STORAGE

SMALL_CHANGE = 1024  # bytes over the minimum that do not count: partial sums and the like weigh on tiny cases only
MAX_WIDTHS = 8  # of tiles that mistakes are tried with
KINDS = list(DIAGNOSES)
MEANINGS = tomllib.loads(Path(__file__).with_name("meanings.toml").read_text(encoding="utf-8"))["meaning"]
OF_NUMBERS = ("values", "out_of_bounds", "unwritten", "form")  # diagnoses that a case's own hint may explain
ALLOCATIONS = ("empty", "new_", "zero", "full", "fill_", "ones")  # beside a kernel torch may make tensors of any size


@dataclass
class Finding:
    """One fault. text: what is wrong, as a sentence without its full stop. advice: what to do. case: its name."""

    diagnosis: str
    text: str
    advice: str = ""
    case: str = ""
    place: Place = field(default_factory=Place)
    index: int = 0

    def hint(self, task: Task) -> str:
        """The fault and what to do, as one paragraph."""
        advice = self.advice or task.hints.get(self.diagnosis) or DIAGNOSES[self.diagnosis]
        advice = advice[task.function(self.index)] if isinstance(advice, dict) else advice
        at = f'Case "{self.case}": ' if self.case else ""
        if self.case and len(task.functions) > 1:
            at = f"In `{task.function(self.index)}`: {at}"
        ends = "" if self.text.endswith(("?", "!")) else "."
        return f"{at}{self.text.rstrip('.')}{ends} {advice}".strip()


def most_telling(task: Task, findings: list) -> Finding:
    """The finding to show: of the first function that is wrong, which later ones may use, and there the most telling
    diagnosis in the first case that has it."""
    first = min((task.function(f.index) for f in findings), key=list(task.functions).index)
    here = [f for f in findings if task.function(f.index) == first]
    finding = min(here, key=lambda f: (KINDS.index(f.diagnosis), f.index))
    hint = task.cases[finding.index].hint
    if hint and finding.diagnosis in OF_NUMBERS and all(task.cases[f.index].hint == hint for f in findings):
        finding.advice = hint
    return finding


def meaning(text: str, line: str = "", kernel: bool = True) -> tuple[str, str]:
    """(the fault, what to do) of an error with this text, raised in this line of the learner's code; "" where nothing
    is known beyond the error's own words. kernel: whether the task asks for one."""
    for entry in (each for each in MEANINGS if kernel or each.get("host")):
        in_text, in_line = re.search(entry["error"], text), re.search(entry.get("line", ""), line)
        if in_text and in_line:
            groups = [group for match in (in_text, in_line) for group in match.groups() if group]
            return entry.get("fault", "").format(*groups), entry["advice"].format(*groups)
    return "", ""


def of_error(task: Task, index: int, error: facts.Error, stub: bool = False) -> Finding:
    """An exception."""
    function = task.function(index)
    if error.type == "NameError" and error.text == f"{function} is not defined":
        return Finding("missing", f"the function {function} does not exist")
    if error.type == "NotImplementedError" and not error.text:
        what = f"the kernel {error.kernel}" if error.kernel not in ("", function) else function
        state = "is still the stub" if stub else "still ends in the stub's `raise NotImplementedError()`"
        return Finding("missing", f"{what} {state}")
    lines = error.text.strip().splitlines() or [""]
    last = error.type not in ("NameError", "IndexError", "ValueError", "TypeError") and len(lines) > 1
    fault, advice = meaning(error.text, error.where, task.kernel)
    if error.type == "NameError":
        advice = "Whatever an answer needs has to be in an answer cell: only those are taken over."
    elif error.type in ("ModuleNotFoundError", "ImportError"):
        advice = "Only instruments, torch, triton and numpy can be imported here; write the kernel yourself."
    where = f" ({error.where})" if error.where else ""
    words = f"{error.type}: {fault or lines[-1 if last else 0]}"
    return Finding("exception", f"{error.kernel or function} raised {words[:400]}{where}", advice)


def of_call(task: Task, arguments: dict, call: facts.Call) -> list:
    """What a call in the learner's process did beside its results."""
    findings = [Finding("state", f"the call changed its input {name}") for name in call.changed]
    if not call.held:
        findings.append(Finding("state", "called again, it changes a tensor that it returned before"))
    if task.kernel and call.read:
        text = f"the host reads a tensor, by `{call.read[0]}`, and waits for the GPU each time"
        findings.append(Finding("state", text, "Take grids and sizes from shapes alone; let the kernel read the rest."))
    return findings + of_operations(task, arguments, call.operations)


def of_operations(task: Task, arguments: dict, operations: dict) -> list:
    """What torch itself did: more than a tile at once, or, beside a kernel, more than a vector."""
    operations = {name: count for name, count in operations.items() if not name.startswith(ALLOCATIONS)}
    name, elements = max(operations.items(), key=lambda item: item[1], default=("", 0))
    if callable(task.max_tile):
        most = task.max_tile(**plain(arguments))
        text = f"`{name}` worked on {elements:,} elements at once, and a tile has {most:,}"
        finding = Finding("traffic", text, task.hints.get("traffic") or "Slice a tile first, and work on that alone.")
    else:
        tensors = [t for t in arguments.values() if isinstance(t, (Tensor, RandomTensor)) and t.shape]
        most = max((t.shape[0] for t in tensors), default=0) if task.kernel else elements
        finding = Finding("torch_work", f"torch's `{name}` worked on {elements:,} elements outside the kernel")
    return [finding] if elements > most else []


def of_form(task: Task, function: str, results: list, expected: list) -> Finding | None:
    """Whether results are as many as asked for, each of the type, shape, dtype and strides that it has to have."""
    returned = [e for e in expected if not e.argument]
    if len(results) == 1 and results[0].values is None and not results[0].other:
        return Finding("form", f"{function} returned None", "Does its last line say `return`?")
    if len(results) != len(returned):
        many, names = f"{len(results)} value{'s' * (len(results) != 1)}", ", ".join(e.name for e in returned)
        return Finding("form", f"{function} returned {many}, expected {len(returned)}: {names}")
    faults = (form_fault(result, e, task.kernel or e.contiguous) for result, e in zip(results, returned))
    return next((Finding("form", fault) for fault in faults if fault), None)


def of_values(function: str, arguments: dict, pairs: list) -> Finding | None:
    """The first wrong one of a call's results, [(Result, Expected)]: its first wrong element."""
    wrong = [(result, e) for result, e in pairs if not matches(result, e)]
    if not wrong:
        return None
    result, e = wrong[0]
    if isinstance(e.values, np.ndarray):
        words, place = wrong_place(result, e)
        return Finding("values", words, place=place)
    plain_values = {n: v for n, v in arguments.items() if isinstance(v, (int, float, str)) and not n.startswith("_")}
    call = ", ".join(f"{name}={value}" for name, value in plain_values.items())
    named = f" as {e.name}" if len(pairs) > 1 else ""
    return Finding("values", f"{function}({call}) gives {result.values!r}{named}, expected {e.values!r}")


@dataclass
class Outcome:
    """The results of one case, beside what was expected: what a mistake has to explain. pairs: [(Result, Expected)]."""

    index: int
    arguments: dict
    pairs: list
    widths: list

    @property
    def is_right(self) -> bool:
        return all(matches(result, e) for result, e in self.pairs)

    @property
    def is_finite(self) -> bool:
        return all(np.isfinite(result.values).all() for result, e in self.pairs if isinstance(e.values, np.ndarray))


def named_mistakes(task: Task, findings: list, outcomes: list) -> None:
    """Where one way of a common mistake gives a function's results in most of the cases in which they are wrong (where
    results are plain values: in all cases), put the mistake in place of the findings about those values."""
    for function in task.functions:
        mine = [o for o in outcomes if task.function(o.index) == function]
        mistake = None if all(o.is_right for o in mine) else _mistake(task, task.functions[function], mine)
        for finding in findings if mistake else ():
            if finding.diagnosis == "values" and task.function(finding.index) == function:
                finding.diagnosis, finding.text, finding.advice = "mistake", mistake.fault, mistake.hint


def _mistake(task: Task, reference, outcomes: list):
    """The mistake that explains most of the outcomes, and more than half of them; None for none."""
    wrong = [o for o in outcomes if not o.is_right]
    plain_values = all(not isinstance(e.values, np.ndarray) for o in outcomes for _, e in o.pairs)
    finite = [o for o in wrong if o.is_finite]
    compared = sorted(outcomes, key=lambda o: o.is_right) if plain_values else finite or wrong
    best, fewest = None, 1 if plain_values else (len(compared) + 1) // 2  # misses that rule a mistake out
    for mistake in task.mistakes:
        for way in mistake.ways if fewest else ():
            if takes(reference, way):
                misses = _misses(reference, way, mistake.results, compared, fewest)
                best, fewest = (mistake, misses) if misses < fewest else (best, fewest)
    return best


def _misses(reference, way: dict, names: tuple, outcomes: list, most: int) -> int:
    """In how many outcomes a way of a mistake does not give what came back; counted up to `most`."""
    misses = 0
    for outcome in outcomes:
        wrong = [(result, e) for result, e in outcome.pairs if not matches(result, e)] or outcome.pairs
        candidates = mistaken(reference, way, outcome.arguments, outcome.widths)
        by_name = [{e.name: e for e in c if not names or e.name in names} for c in candidates]
        misses += not any(all(e.name in c and explained(result, e, c[e.name]) for result, e in wrong) for c in by_name)
        if misses == most:
            break
    return misses


def of_kernels(task: Task, arguments: dict, expected: list, played: facts.Played) -> list:
    """What the kernels of one call did, but for values."""
    metered = played.metered
    findings = []
    for text in played.errors[:1]:
        fault, advice = meaning(text)
        words, advice = f"{text}: {fault}".removesuffix(": "), advice or " " * text.startswith("compiled for")
        findings.append(Finding("compile", words, advice))
    if not metered:
        return findings
    findings += [Finding("race", text) for text in (*metered.promises[:1], *metered.races[:1])]
    outside = [(t, text) for t in metered.tensors for text in t.outside]
    if outside:
        tensor, text = outside[0]
        kind = "store" if "writes" in text else "load"
        text = re.sub(r"\((\d+) element(s?) of this access\)$", rf"(\1 element\2 of one {kind})", text)
        text += f", and {len(outside) - 1} more such access{'es' * (len(outside) > 2)}" if len(outside) > 1 else ""
        findings.append(Finding("out_of_bounds", text, place=Place(tensor=tensor.name, first=[tensor.outside_at])))
    if wide := too_wide(metered.widest, task.max_tile):
        shape = " x ".join(f"{side:,}" for side in wide)
        text = f"a load or store takes a tile of {shape} elements, and the task allows at most {widest(task)}"
        findings.append(Finding("traffic", text, "Loop over tiles of a fixed size."))
    if played.returned is not None:
        findings += _stored(expected, metered) if expected else []
        findings += _traffic(task, arguments, metered.tensors) if task.minimum_bytes else []
    return findings


def too_wide(tiles: list, most) -> list:
    """The shape of a tile that is wider than `most`; [] for none. most: of any side, or the two sides of a tile, which
    an access of one dimension may take flat; None for no limit."""
    for shape in tiles if most is not None and not callable(most) else []:
        sides = sorted((side for side in shape if side > 1), reverse=True)
        if isinstance(most, int):
            allowed = [most] * len(sides)
        else:
            allowed = [math.prod(most)] if len(sides) == 1 else sorted(most, reverse=True)
        if len(sides) > len(allowed) or any(side > limit for side, limit in zip(sides, allowed)):
            return shape
    return []


def widest(task: Task) -> str:
    """The largest tile that a task allows, in words."""
    if callable(task.max_tile):
        return "the task allows"
    return f"{task.max_tile:,}" if isinstance(task.max_tile, int) else " x ".join(map(str, task.max_tile))


def roles_of(expected: list) -> list:
    """The role of each result: the argument that holds it, or its place among those that are returned."""
    places = itertools.count()
    return [e.argument or f"returned {next(places)}" for e in expected]


def _stored(expected: list, metered: facts.Metered) -> list:
    """Whether each result is in a tensor of which a kernel stored every element."""
    if not metered.programs:
        grid = tuple(metered.kernels[0][1]) if metered.kernels else ()
        return [Finding("unwritten", f"no program ran: the grid is {grid}", "Round the number of programs up.")]
    findings = []
    for e, role in zip(expected, roles_of(expected)):
        if not isinstance(e.values, np.ndarray) or not e.values.size:
            continue
        tensors = [t for t in metered.tensors if t.role == role]
        stored = sum(t.unique_written for t in tensors)
        t = max(tensors, key=lambda t: t.unique_written, default=None)
        if t is None:
            findings.append(Finding("torch_work", f"no kernel stored {e.name}"))
        elif not stored:
            findings.append(Finding("unwritten", f"no program stores anything to {e.name}"))
        elif t.unwritten and stored < e.values.size * STORAGE[e.dtype].itemsize:
            part = f"{t.unwritten:,} of {math.prod(t.shape):,} elements of {e.name}"
            text = f"{part} are never written, the first at {t.unwritten_at}"
            findings.append(Finding("unwritten", text, place=Place(tensor=t.name, first=t.unwritten_at)))
    return findings


def _traffic(task: Task, arguments: dict, tensors: list) -> list:
    """The bytes requested, and the sectors touched, beside the task's minimum."""
    minimum = task.minimum_bytes(**arguments)
    least = sum(minimum.values())
    requested = sum(t.read + t.written for t in tensors)
    sectors = 32 * sum(t.sectors for t in tensors)
    if requested > BYTES_FACTOR * least + SMALL_CHANGE:
        excess = {t.name: t.read + t.written - minimum.get(t.role, 0) for t in tensors}
        worst = max(tensors, key=lambda t: excess[t.name])
        times = worst.read / worst.unique_read if worst.unique_read else 0
        if not worst.role:
            what = f"{worst.name}, a tensor between your kernels, moves {worst.read + worst.written:,} bytes of it"
        elif times > BYTES_FACTOR:
            what = f"{worst.name} is read {times:.1f} times"
        else:
            what = f"most of the excess is {worst.name}, {excess[worst.name]:,} bytes too many"
        words = f"the kernels request {requested:,} bytes, {requested / least:.2f} times the minimum of {least:,}"
        return [Finding("traffic", f"{words}: {what}")]
    if task.coalesced and sectors > 2 * least + SMALL_CHANGE:
        worst = max(tensors, key=lambda t: t.sectors)
        words = f"the accesses touch {sectors:,} bytes of sectors, {sectors / least:.1f} times the minimum of {least:,}"
        text = f"{words}: {worst.read + worst.written:,} bytes of {worst.name} lie in {worst.sectors:,} sectors of 32"
        advice = "Give neighboring elements of a tile neighboring addresses, to load and to store."
        return [Finding("traffic", text, advice)]
    return []


def widths_of(arguments: dict, metered: facts.Metered | None) -> list:
    """How wide a tile may be: the sides of the kernels' tiles, or plain numbers of the call."""
    if metered:
        return sorted({side for shape in metered.widest for side in shape if side > 1})[-MAX_WIDTHS:]
    return sorted({n for n in arguments.values() if type(n) is int and n > 1})


def name_tensor(finding: Finding, expected: list, metered: facts.Metered | None) -> None:
    """Where a part of a result is wrong, add the kernel's name for it, by which `watch` shows it."""
    if metered and 0 < finding.place.wrong < 0.5:
        names = {t.role: t.name for t in sorted(metered.tensors, key=lambda t: t.unique_written)}
        results = {e.name: names.get(role, "") for e, role in zip(expected, roles_of(expected))}
        finding.place.tensor = results.get(finding.place.output, "")


def unchanged_inputs(arguments: dict, after: dict, in_place: set) -> list:
    """Findings about inputs that a call changed. after: {argument: Tensor}."""
    findings = []
    for name, now in after.items():
        before = arguments[name].storage
        same = name in in_place or np.array_equal(now.storage, before, equal_nan=before.dtype.kind == "f")
        findings += [] if same else [Finding("state", f"the call changed its input {name}")]
    return findings
