"""Turns the shape of a failure into words: what is wrong, where it shows, and what to do about it.

Each finding has a kind; where a task's `hints` has an entry of that kind, it replaces the advice written here. Of all
findings the most telling one is shown: an access out of bounds explains a wrong number, not the other way round.
"""

import ast
import itertools
import re
from dataclasses import dataclass, field, replace

import numpy as np

from grading import record
from grading.arrays import STORAGE, rounded
from grading.raised import meaning
from grading.record import Place
from grading.replay import too_wide
from grading.tasks import KINDS, Expected, Given, RandomTensor, Slip, Task, Tensor, guesses, plain
from kernels.tolerances import OF_ORACLE_ROUNDED, limit

ADVICE = {
    "left_over": "Take the line `raise NotImplementedError()` out of the answer.",
    "refused": "A kernel holds Triton's language alone. Numbers that Python computes go in as arguments or as a global "
    "tl.constexpr, and functions under @triton.jit in the answer cell do the rest.",
    "promise": "tl.multiple_of and the like are promises: the compiler loads several elements at once where they "
    "hold, and reads the wrong ones where they do not. Promise what is so for every input, or nothing.",
    "race": "On a GPU programs run side by side, in any order. Let each element be written by the program that reads "
    "it, add up with tl.atomic_add, or use a second launch.",
    "kept": "Make what is returned anew in every call: the caller may hold the old one, and the numbers are others.",
    "readback": "What the host is to know of a tensor it has to wait for, each time: its numbers, and how large a "
    "result is that depends on them. Make the grid for any numbers, from the shapes alone, and let the kernel read "
    "the rest.",
    "order": "A GPU promises no order of programs, nor of the lanes of an atomic: what an atomic hands out (the next "
    "free place, say) depends on who comes first. Count first, and compute every place from the counts.",
    "undefined": "tl.load(..., mask=mask) alone leaves masked lanes as they happen to be, and on a GPU that is any "
    "number (NaN, which the interpreter puts there, is dropped by a maximum). Give it other=, or use tl.where before "
    "a reduction.",
    "tuned": "To time its configs, triton.autotune runs the kernel many times on the same tensors. Name each one that "
    "the kernel reads as well as writes in `restore_value=[...]`, and each one that it adds to in "
    "`reset_to_zero=[...]`.",
    "not_defined": "Define it in the answer cell of this task; other cells are not carried over.",
    "no_kernel": "The task asks for a Triton kernel that does the work: write one and launch it.",
    "foreign_kernel": "Only kernels defined in your answer cells count.",
    "out_of_bounds": "A tile that reaches past the end needs a mask in every load and store. Where there is one, the "
    "index is wrong: strides, the start of the tile, the order of the grid's axes.",
    "unwritten": "Every element of a result has to be stored by the kernel.",
    "compile": "The interpreter is more lenient than the compiler; on a GPU this kernel would not run.",
    "tf32": "tl.dot rounds fp32 to TF32 on a GPU unless it is asked not to: tl.dot(..., input_precision='ieee').",
    "products": "Hand tiles of 8-bit floats to tl.dot as they were loaded: what was converted before is multiplied "
    "in the wider type, at that type's rate.",
    "count": "Return exactly what the task lists, in that order.",
    "type": "Return exactly what the task lists, in that order.",
    "dtype": "Allocate the result in the dtype that the task asks for.",
    "shape": "Allocate the result in the shape that the task asks for.",
    "strides": "The result is a view of a tensor with another order of elements: allocate it in the shape that the "
    "task asks for, and let the kernel store every element at its place.",
    "overflow": "fp16 ends at 65,504, and a square overflows from 256 on: convert to fp32 right after the load, before "
    "any arithmetic, and keep every accumulator in fp32.",
    "infinite": "Infinity comes from masked lanes that hold it (`other=`), from a division by zero, from an "
    "exponential that overflows, or from a conversion to fp16 on the way.",
    "nan": "NaN comes from masked lanes loaded without `other=`, from memory that was never written, from padding "
    "between rows, from 0/0 or from inf - inf: "
    "use the row's stride, mask the loads with a neutral `other=`, and write every element.",
    "divisor": "Divide by the number of columns of the row, `cols`, not by the width of the tile.",
    "sixteen_bit": "A statistic of the row was rounded to 16 bits on the way: convert to fp32 right after the load, "
    "and keep every sum, every accumulator and what is computed from them in fp32.",
    "rounded_output": "The result passed through 16 bits before it was stored. Keep it in fp32 up to the store.",
    "row_scale": "All of a row is off by the same factor: look at what is one number for the row, or for all (a sum, a "
    "divisor, a constant), before the elementwise part.",
    "tail": "The end is wrong and the rest is right: look at the last tile, its mask and its `other=` value.",
    "some_rows": "Whole rows are wrong and others right: look at how the row's address is formed (program id, row "
    "stride).",
    "wrong": "Compare with the formula step by step on a small input.",
    "not_by_kernel": "A torch operation produced it: let the kernel store the final values.",
    "not_read": "The kernel has to compute its results from the inputs themselves, not from something made of them "
    "before.",
    "torch_work": "Allocate with torch.empty and let the kernel do the rest: what torch does is memory traffic too.",
    "input_changed": "Write into tensors of your own; the caller still needs its inputs.",
    "tile_too_wide": "Loop over tiles of a fixed width instead of making the tile as wide as the row.",
    "whole_tensor": "Work on one slice of columns at a time.",
    "bytes": "Read each element once and keep it in registers until it is used for the last time.",
    "sectors": "Give neighbouring lanes of a tile neighbouring addresses, in the loads and in the stores.",
    "slow": "Check the tile's width, num_warps, and that each program's loads are contiguous.",
}


#: Kinds that a word of Python in a kernel may explain, and what to write there instead
VALUES = ("out_of_bounds", "unwritten", "slip", "infinite", "nan", "tail", "some_rows", "row_scale", "wrong")
INSTEAD = {"max": "tl.maximum", "min": "tl.minimum", "and": "&", "or": "|"}

#: What 16-bit rounding changes in a row's scale at most; a larger change has another cause.
SIXTEEN_BIT_ROUNDING = 2e-2

SMALL_CHANGE = 1024  # bytes over the minimum that no one minds: partial sums and the like weigh on tiny cases only

FP16_MOST = 65504

INDEX = "look at the index (strides, start, order of the grid's axes)"

FAR = f". That is too far outside for a missing mask alone: {INDEX}"

CONSTANT = (
    "Rounding would differ from row to row. A constant with too few digits does this, or a small term that is missing "
    "or stands in another place."
)

MAX_WIDTHS = 8  # of tiles that slips are tried with

FEW = 8  # columns below which any row looks like a multiple of the right one


@dataclass
class Finding:
    """One fault. text: the fault in words. advice: what to do. case: the case's name. place: numbers for the page."""

    kind: str
    text: str
    advice: str = ""
    case: str = ""
    place: Place = field(default_factory=Place)
    factors: tuple = ()  # lowest and highest factor of rows, and their number
    factor: float = 1.0

    @property
    def rank(self) -> int:
        return KINDS.index(self.kind)

    def hint(self, task: Task) -> str:
        """The fault and what to do, as one paragraph."""
        advice = self.advice or task.hints.get(self.kind) or ADVICE.get(self.kind, "")
        at = f'Case "{self.case}": ' if self.case else ""
        functions = {task.function(i) for i, case in enumerate(task.cases) if case.name == self.case}
        if len(task.functions) > 1 and len(functions) == 1 and self.kind not in ("compile", "tf32", "products"):
            at = f"In `{functions.pop()}`: {at}"
        ends = "" if self.text.endswith(("?", "!")) else "."
        return f"{at}{self.text.rstrip('.')}{ends} {advice}".strip()


@dataclass
class Got:
    """One returned item as it came out: values (float64 array or plain value), dtype name, strides in elements."""

    values: object
    dtype: str = ""
    other: str = ""
    strides: tuple = ()

    @property
    def is_tensor(self) -> bool:
        return isinstance(self.values, np.ndarray)


# ---------------------------------------------------------------- numbers


def settled(values: np.ndarray, reference: np.ndarray) -> tuple:
    """Both with 0 where they agree on what is not finite: the log-sum-exp of nothing is -inf, and so it has to be."""
    with np.errstate(invalid="ignore"):
        agree = ~np.isfinite(reference) & ((values == reference) | (np.isnan(values) & np.isnan(reference)))
    return (np.where(agree, 0, values), np.where(agree, 0, reference)) if agree.any() else (values, reference)


def row_errors(values: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """||out - ref|| / ||ref|| of every row (last axis); inf where one is NaN or infinite and not both alike, or where a
    row of zeros is not zero."""
    rows = values.reshape(-1, values.shape[-1]) if values.ndim > 1 else values.reshape(-1, 1)
    rows, right = settled(*(of.astype(np.float64) for of in (rows, reference.reshape(rows.shape))))
    with np.errstate(all="ignore"):
        size = np.linalg.norm(right, axis=1)
        distance = np.linalg.norm(rows - right, axis=1)
        error = np.where(size > 0, distance / np.where(size > 0, size, 1), np.where(distance == 0, 0, np.inf))
    return np.where(np.isnan(error), np.inf, error)  # whatever is NaN is wrong


def is_whole(dtype: str) -> bool:
    """Whether values of this dtype are integers."""
    return dtype.startswith(("int", "uint", "bool"))


def allowed(reference: np.ndarray, dtype: str) -> np.ndarray:
    """The limit for each row of this result; integers, codes say, are exact."""
    error = row_errors(reference if is_whole(dtype) else rounded(reference, dtype), reference)
    if is_whole(dtype):
        return np.zeros_like(error)
    most = limit(dtype, reference.shape[-1] if reference.ndim > 1 else 1)
    return np.maximum(most, np.where(np.isfinite(error), OF_ORACLE_ROUNDED * error, 0))


def matches(got: Got, expected: Expected, slack: float = 1.0) -> bool:
    """Whether one item is right, or within `slack` times the limit."""
    if isinstance(expected.values, np.ndarray):
        if not got.is_tensor or got.values.shape != expected.values.shape:
            return False
        if not expected.values.size:
            return True
        return bool((row_errors(got.values, expected.values) <= slack * allowed(expected.values, got.dtype)).all())
    if got.is_tensor or got.other or isinstance(got.values, bool) != isinstance(expected.values, bool):
        return False
    if isinstance(expected.values, float):
        if not isinstance(got.values, (int, float)):
            return False
        if not np.isfinite(expected.values):
            return got.values == expected.values or got.values != got.values and expected.values != expected.values
        return abs(got.values - expected.values) <= 1e-6 * slack * max(abs(expected.values), 1e-30)
    return type(got.values) is type(expected.values) and got.values == expected.values


# ---------------------------------------------------------------- one case


def of_run(given: Given, index: int, case: record.Case) -> list:
    """What the learner's process tells about one case, but for values."""
    task, arguments = given.task, given.arguments(index)
    found = [*_error(task, index, case.error, case.stub)]
    found += operations(task, arguments, case.operations)
    found += [Finding("input_changed", f"the call changed its input {name}") for name in case.changed]
    if not case.held:
        found.append(
            Finding(
                "kept",
                "called again with other numbers, it writes into what it had returned before, which its "
                "caller still holds",
            )
        )
    return _named(found, task.cases[index].name)


#: Kinds of failure that concern a task as a whole, and no case of it
WHOLE = ("no_kernel", "foreign_kernel", "refused", "stopped")


def of_kernels(
    task: Task, trace: record.Trace | None, played: record.Played | None, playing: str, launched: bool, defined
) -> list:
    """[(case index, Finding)] about a task's kernels as a whole: where they come from, and whether they ran by
    themselves."""
    foreign = (
        [told.name for told in trace.functions if not told.own or defined and not defined(told.name, told.source)]
        if trace
        else []
    )
    if not launched:
        return [(0, Finding("no_kernel", "no Triton kernel was launched"))]
    if foreign:
        return [(0, Finding("foreign_kernel", f"the kernel {foreign[0]} comes from outside your answer"))]
    if played is None:
        return [
            (
                0,
                Finding(
                    "stopped",
                    f"the kernels of this task could not be run to their end: {playing}",
                    "Look for a loop without end, or for sizes that are far too large.",
                ),
            )
        ]
    if played.refused:
        return [(0, Finding("refused", played.refused))]
    if played.fault and 0 <= played.fault[0] < len(task.cases) and played.fault[1] in KINDS:
        index, kind, text = played.fault
        return [(index, *_named([Finding(kind, text)], task.cases[index].name))]
    return []


def tree_of(source: str) -> str:
    """A function's source without what does not matter: blanks, comments, decorators, its margin. '' for none."""
    try:
        tree = ast.parse(source).body[0]
        tree.decorator_list = []
        return ast.dump(tree)
    except (SyntaxError, ValueError, RecursionError, MemoryError, IndexError, AttributeError):
        return ""


def of_replay(given: Given, index: int, replayed: record.Replayed, arguments: dict) -> list:
    """What a call's kernels did by themselves, but for values."""
    task = given.task
    found = [*_error(task, index, replayed.error)]
    found += _compiled(replayed.compile)
    if replayed.metered:
        found += _metered(task, arguments, replayed)
        if replayed.returned is not None and not any(f.kind == "no_kernel" for f in found) and not task.verdict:
            found += _stored(given.expected(index, replayed.turn), replayed.metered, task.no_readback)
    return _named(found, task.cases[index].name)


def of_values(given: Given, index: int, where, returned: list, after: dict, metered: record.Metered | None) -> list:
    """What is wrong with what a call returned ([Got]) and left of its inputs ({argument: Tensor}). where: the turn
    whose inputs it got, or the inputs themselves."""
    task, function = given.task, given.task.function(index)
    arguments = given.arguments(index, where) if isinstance(where, int) else where
    expected = []
    if task.verdict:
        told = {**plain(arguments), "_dtypes": [got.dtype for got in returned]}
        if metered:
            told["_stored_by"] = {t.role: t.stored_by for t in metered.tensors}
        fault = task.verdict(told, [g.values if not g.other else None for g in returned])
        found = [Finding("verdict", fault, advice=" ")] if fault else []
    else:
        expected = given.expected(index, where) if isinstance(where, int) else expected_of(task, function, arguments)
        found = [*_values(task, function, arguments, expected, returned, after, widths_of(arguments, metered))]
    if metered:
        _name_tensors(found, expected, metered)
    in_place = {e.argument for e in expected}
    for name, left in after.items():
        before = arguments[name].storage
        if name not in in_place and not np.array_equal(left.storage, before, equal_nan=before.dtype.kind == "f"):
            found.append(Finding("input_changed", f"the call changed its input {name}"))
    _add_python(found, metered)
    if metered and metered.prepared:
        for finding in found:
            if finding.kind in VALUES:
                finding.advice += (
                    " Something that torch or Python had put into a tensor went into a kernel here; what is made "
                    "from the inputs beforehand does not count, the kernel has to compute it."
                )
    return _named(found, task.cases[index].name)


def repeated(given: Given, index: int, second: list) -> list:
    """Whether a second call gave tensors ([Got]) that were right for the first one's numbers."""
    before = [e for e in given.expected(index, 0) if not e.argument]
    if given.task.verdict or not all(got.is_tensor and matches(got, e) for got, e in zip(second, before)):
        return []
    return _named(
        [Finding("kept", "called again with other numbers of the same form, it returns what it had returned before")],
        given.task.cases[index].name,
    )


def one_mistake(given: Given, found: list, returned: dict) -> list:
    """`found`, [(case index, Finding)], where a function returns plain values, of which each alone fits many a mistake:
    with the first slip that gives all of them, the right ones too. returned: {case index: what it returned, [Got]}."""
    task = given.task
    for name in task.functions:
        cases = [index for index in range(len(task.cases)) if task.function(index) == name]
        if task.verdict or not set(cases) <= set(returned):
            continue
        right = {i: all(map(matches, returned[i], given.expected(i))) for i in cases}
        if all(right.values()) or any(isinstance(e.values, np.ndarray) for i in cases for e in given.expected(i)):
            continue
        cases.sort(key=right.get)  # wrong ones first: most slips fail there
        for slip in task.slips:
            if all(_gives(given, i, slip, returned[i]) for i in cases):
                wrong = {i for i in cases if not right[i]}
                named = Finding("slip", slip.fault, slip.hint)
                return [
                    (i, replace(named, case=f.case, place=f.place) if i in wrong and f.kind in ("slip", "wrong") else f)
                    for i, f in found
                ]
    return found


def _gives(given: Given, index: int, slip: Slip, returned: list) -> bool:
    """Whether one way of a slip gives what the call of a case returned."""
    ways = guesses(given.task, slip, given.task.function(index), given.arguments(index), [])
    results = dict(zip((e.name for e in given.expected(index)), returned))
    return any(all(matches(results[g.name], g) for g in guess if g.name in results) for guess in ways)


def _name_tensors(found: list, expected: list, metered: record.Metered) -> None:
    """Where what is wrong is a part of a result, add the kernel's name for it."""
    names = {t.role: t.name for t in sorted(metered.tensors, key=lambda t: t.unique_written)}
    results = {e.name: names.get(role, "") for e, role in zip(expected, _roles(expected))}
    for finding in found:
        if finding.kind == "some_rows" or 0 < finding.place.wrong < 0.5:
            finding.place.tensor = results.get(finding.place.output, "")


def expected_of(task: Task, function: str, arguments: dict) -> list:
    """What has to come out of a call with these arguments."""
    from grading.tasks import expected

    return expected(task.functions[function], arguments)


def widths_of(arguments: dict, metered: record.Metered | None) -> list:
    """What a tile may be wide: the sides of the kernels' accesses, or plain numbers of the call."""
    if metered:
        return sorted({side for shape in metered.shapes for side in shape if side > 1})[-MAX_WIDTHS:]
    return sorted({n for n in arguments.values() if type(n) is int and n > 1})


def _named(found: list, name: str) -> list:
    for finding in found:
        finding.case = finding.case or name
    return found


def _add_python(found: list, metered: record.Metered | None) -> None:
    """Say where a kernel's Python words take a tile as one value."""
    words = metered.python if metered else ()
    for finding in found:
        if words and finding.kind in VALUES:
            finding.text += (
                f". The kernel says {' and '.join(f'`{word}`' for word in words)}, which in Python takes "
                f"a tile as one value: on tiles use {' and '.join(INSTEAD[word] for word in words)}"
            )


def manner(given: Given) -> str:
    """How a task's cases are right: what was compared, and with what."""
    if given.task.verdict:
        return "judged right"
    exact = True
    for index in range(len(given.task.cases)):
        for e in given.expected(index):
            if isinstance(e.values, np.ndarray) and not is_whole(e.dtype):
                return "right against an fp64 reference"
            exact &= not isinstance(e.values, float)
    return "exactly right" if exact else "right"


#: Kinds of failure whose own advice says more than the hint of a case
TELLING = "kept undefined slip bytes no_kernel exception compile count type dtype shape".split()


def most_telling(task: Task, found: list) -> Finding:
    """The finding to show, out of [(case index, Finding)] of a whole task."""
    names = list(task.functions)
    order = [task.function(i) for i, _ in found]
    first = min(order, key=names.index)  # what is wrong there may be all that is wrong in a later function
    here = [pair for pair, function in zip(found, order) if function == first]
    big = any(f.kind == "row_scale" and abs(f.factor - 1) > SIXTEEN_BIT_ROUNDING for _, f in here)
    big = big or any(f.advice == CONSTANT for _, f in here)
    kept = [
        (i, f) for i, f in here if not (big and f.kind == "sixteen_bit")
    ] or here  # rounding is neither large nor equal
    _constant(kept)
    zero = [f.kind for _, f in kept if f.text.startswith(f"{f.place.output} is zero")]
    if 2 * zero.count("wrong") > len(zero):  # zero in any dtype: no overflow
        kept = [
            (i, f) for i, f in kept if not (f.kind == "overflow" and f.text.startswith(f"{f.place.output} is zero"))
        ]
    # a mistaken formula shows in every case that it spoils; one match among many other failures is a coincidence
    slips = [f.text for _, f in kept if f.kind == "slip"]
    others = [
        f
        for _, f in kept
        if f.kind in ("divisor", "sixteen_bit", "rounded_output", "row_scale", "wrong")
        and f.place.output
        and not f.text.startswith(f"{f.place.output} is zero")
    ]
    if any(f.kind in ("torch_work", "not_by_kernel") for _, f in kept):  # which explains a case without any launch
        kept = [(i, f) for i, f in kept if f.kind != "no_kernel" or not f.case]
    kept = [(i, f) for i, f in kept if f.kind != "slip" or 2 * slips.count(f.text) > len(others)]
    index, finding = min(kept, key=lambda pair: (pair[1].rank, pair[0]))
    case = task.cases[index]
    if case.hint and all(task.cases[i].hint == case.hint for i, _ in found) and finding.kind not in TELLING:
        finding.advice = case.hint
        finding.text = finding.text.replace(FAR, "")
    return finding


def _constant(found: list) -> None:
    """Small factors that are the same in every row of every case are no rounding, which differs from row to row."""
    small = [f for _, f in found if f.kind == "sixteen_bit" and f.factors]
    low = min((f.factors[0] for f in small), default=1)
    high = max((f.factors[1] for f in small), default=1)
    rows = sum(f.factors[2] for f in small)
    far = max(abs(low - 1), abs(high - 1))
    if rows < 3 or (low - 1) * (high - 1) <= 0 or high - low > max(0.02 * far, 2e-6):
        return
    for f in small:
        f.kind, f.text = "row_scale", f"all of {f.place.output} is off by one factor, {f.factor:.6g}"
        f.advice = CONSTANT


def _outside(access: record.Stray) -> str:
    """An access outside a tensor, in words that need no lesson on lanes."""
    kind = {"read": "load", "write": "store"}.get(access.kind, "access")
    return re.sub(r"\((\d+) lane(s?) of this access\)$", rf"(\1 element\2 of one {kind})", access.text)


def _error(task: Task, index: int, error: record.Error | None, stub: bool = False):
    function = task.function(index)
    if error is None:
        return
    if error.type == "NameError" and error.text == f"{function} is not defined":
        yield Finding("not_defined", f"the function {function} does not exist")
        return
    if error.type == "NotImplementedError" and not error.text:
        what = f"the kernel {error.kernel}" if error.kernel else function
        yield Finding(
            "not_defined" if stub else "left_over",
            f"{what} is still the stub" if stub else f"{what} still ends in the stub's `raise NotImplementedError()`",
        )
        return
    text = error.text.strip().splitlines()
    said = f"{error.type}: {text[0] if text else ''}"
    if error.type not in ("NameError", "IndexError", "ValueError", "TypeError") and len(text) > 1:
        said = f"{error.type}: {text[-1]}"
    where = f" ({error.where})" if error.where else ""
    fault, advice = meaning(error.text, error.where)
    if fault:
        said = f"{error.type}: {fault}"
    if error.type == "NameError":
        advice = "Whatever an answer needs has to stand in an answer cell: only those are carried over."
    elif error.type in ("ModuleNotFoundError", "ImportError"):
        advice = "While grading only instruments, torch, triton and numpy can be imported; write the kernel yourself."
    yield Finding("exception", f"{error.kernel or function} raised {said[:400]}{where}", advice)


def _compiled(errors: list):
    for error in errors[:1]:
        if error.tf32:
            yield Finding(
                "tf32",
                f"compiled for sm_{error.arch}, the kernel {error.kernel} multiplies fp32 in TF32, "
                "with 10 bits of mantissa",
            )
            continue
        if error.products:
            yield Finding(
                "products",
                f"compiled for sm_{error.arch}, the kernel {error.kernel} has no matrix instruction on 8-bit floats "
                f"({error.products})",
            )
            continue
        fault, advice = meaning(error.text)
        yield Finding(
            "compile", f"the kernel {error.kernel} does not compile for sm_{error.arch}: {fault or error.text}", advice
        )


def _metered(task: Task, arguments: dict, replayed: record.Replayed):
    metered = replayed.metered
    tensors, whole = metered.tensors, replayed.returned is not None
    if not metered.kernels:
        if whole:
            yield Finding("no_kernel", "no Triton kernel was launched")
        return
    strays = [access for t in tensors for access in t.strays]
    if strays:
        more = f", and {len(strays) - 1} more such access{'es' * (len(strays) > 2)}" if len(strays) > 1 else ""
        t = next(t for t in tensors if t.strays)
        text, advice = _stray(task, arguments, t, metered)
        found = Finding(
            "out_of_bounds",
            _outside(strays[0]) + more + text,
            advice,
            place=Place(tensor=t.name, first=[strays[0].index]),
        )
        _add_python([found], metered)
        yield found
    yield from (Finding("promise", text) for text in metered.promises[:1])
    yield from (Finding("race", text) for text in metered.races[:1])
    for name, value in arguments.items():
        if isinstance(value, Tensor) and len(value.shape) > 1 and value.nbytes and not strays and whole:
            needed = task.reads(**arguments)[name] if task.reads else value.nbytes
            if sum(t.unique_read for t in tensors if t.role == name) < needed:
                yield Finding("not_read", f"the kernels do not read all of {name}" + " that counts" * bool(task.reads))
    wide = too_wide(metered.shapes, task.max_tile)
    if wide:
        yield Finding(
            "tile_too_wide",
            f"a load or store takes {' x '.join(f'{side:,}' for side in wide)} elements side by side, "
            f"and the task allows tiles of at most {widest(task)}",
        )
    if task.minimum_bytes and whole:
        yield from _bytes(task, arguments, tensors)
        if task.sector_factor:
            yield from _sectors(task, arguments, tensors)


def widest(task: Task) -> str:
    """The widest tile that a task allows, in words."""
    return f"{task.max_tile:,}" if isinstance(task.max_tile, int) else " x ".join(map(str, task.max_tile))


def _stray(task: Task, arguments: dict, t: record.Counts, metered: record.Metered) -> tuple[str, str]:
    """What an access out of bounds tells beyond itself: (words, what to do); "" where a missing mask may explain it."""
    access, shape = t.strays[0], t.shape
    size = int(np.prod(shape))
    if access.kind == "write" and len(shape) == 1 and access.count >= size and _per_row(shape[0], arguments):
        return (
            f": {t.name} holds one number per row, and a tile is stored there",
            "Reduce the tile to one number (tl.sum, tl.max) before it is stored.",
        )
    tile = max((int(np.prod(shape)) for shape in metered.shapes), default=1)
    grid = next((grid for name, grid in metered.kernels if f" of {name} " in access.text), [])
    inner = grid and all(at < n // 2 for at, n in zip(access.program, grid) if n > 3) and any(n > 3 for n in grid)
    if t.role in arguments:
        size = arguments[t.role].storage.size
    far = size + tile + (shape[-1] if shape else 1)
    if any(not 0 <= a.index < far for a in t.strays):
        known = "mask" not in task.hints.get("out_of_bounds", "mask").lower()  # the task itself names another cause
        return "" if known else FAR, ""
    if inner and len(shape) > 1:
        return f". That program is not at the end of the grid: {INDEX}", ""
    return "", ""


def _per_row(count: int, arguments: dict) -> bool:
    """Whether `count` is the number of rows of an input: then a result of that length holds one number per row."""
    return any(isinstance(t, Tensor) and len(t.shape) > 1 and t.shape[0] == count for t in arguments.values())


def _bytes(task: Task, arguments: dict, tensors: list):
    minimum = task.minimum_bytes(**arguments)
    requested = sum(t.read + t.written for t in tensors)
    if requested <= task.bytes_factor * sum(minimum.values()) + SMALL_CHANGE:
        return
    excess = {t.name: t.read + t.written - minimum.get(t.role, 0) for t in tensors}
    worst = max(tensors, key=lambda t: excess[t.name])
    times = worst.read / worst.unique_read if worst.unique_read else 0
    if not worst.role:
        what = f"{worst.name}, a tensor between your kernels, moves {worst.read + worst.written:,} bytes of it"
    elif times > 1.05:
        what = f"{worst.name} is read {times:.1f} times over"
    else:
        what = f"most of the excess is {worst.name}, {excess[worst.name]:,} bytes too many"
    yield Finding(
        "bytes",
        f"the kernels ask for {requested:,} bytes, {requested / sum(minimum.values()):.2f} times the "
        f"minimum of {sum(minimum.values()):,}: {what}",
    )


def _sectors(task: Task, arguments: dict, tensors: list):
    minimum = sum(task.minimum_bytes(**arguments).values())
    moved = 32 * sum(t.sectors for t in tensors)
    if moved > task.sector_factor * minimum + SMALL_CHANGE:
        worst = max(tensors, key=lambda t: t.sectors)
        asked = worst.read + worst.written
        yield Finding(
            "sectors",
            f"the accesses touch {moved:,} bytes of sectors, {moved / minimum:.1f} times the minimum of "
            f"{minimum:,}: of {worst.name}, {asked:,} bytes are asked for in {worst.sectors:,} sectors of 32",
        )


def _stored(expected: list, metered: record.Metered, by_numbers: bool = False):
    """Each result in a tensor that a kernel stored, every element of it. by_numbers: which rows a program takes is in
    the numbers of a tensor."""
    if metered.kernels and not metered.programs:
        yield Finding(
            "unwritten",
            f"no program ran: the grid is {tuple(metered.kernels[0][1])}",
            "A number of programs that is rounded down can be 0: round it up.",
        )
        return
    for e, role in zip(expected, _roles(expected)):
        if not isinstance(e.values, np.ndarray) or not e.values.size:
            continue
        launched = [t for t in metered.tensors if t.role == role]
        if not launched:
            yield Finding("not_by_kernel", f"no kernel stored {e.name}")
            continue
        t = max(launched, key=lambda t: t.unique_written)
        if t.unique_written and not t.unwritten and len(launched) == 1:
            continue
        if sum(t.unique_written for t in launched) >= e.values.size * STORAGE[e.dtype].itemsize and len(launched) > 1:
            continue  # stored through several views of it
        if not t.unique_written:
            yield Finding(
                "unwritten",
                f"no program stores anything to {e.name}",
                "Pass it to the kernel and store every element of it.",
            )
            continue
        found = _holes(e, t, metered.kernels)
        if by_numbers and _enough(t.shape[0], metered):
            found.advice = ""
        found.place = Place(tensor=t.name, first=list(t.first_unwritten))
        yield found


def _roles(expected: list) -> list:
    """The role of each result: the argument that holds it, or its place among those that are returned."""
    places = itertools.count()
    return [e.argument or f"returned {next(places)}" for e in expected]


def _enough(rows: int, metered: record.Metered) -> bool:
    """Whether the programs along one axis of a grid are enough for so many rows, by the lowest tile."""
    low = min((shape[0] for shape in metered.shapes if len(shape) == 2 and shape[0] > 1), default=1)
    return low * max((n for _, grid in metered.kernels for n in grid), default=0) >= rows


def _holes(e: Expected, t: record.Counts, kernels: list) -> Finding:
    """Elements that no program wrote: columns, rows, or scattered."""
    shape, first, count = t.shape, t.first_unwritten, t.unwritten
    axes = any(n > 1 for _, grid in kernels for n in grid[1:])
    axes = " Check which axis of the grid counts rows and which columns." if axes else ""
    if len(shape) == 2 and first[0] == 0 and first[1] > 0 and count == shape[0] * (shape[1] - first[1]):
        text = f"columns from {first[1]:,} on of {e.name} are never written, and a row has {shape[1]:,}"
        if first[1] & (first[1] - 1) == 0:
            return Finding("unwritten", f"{text}: the tiles cover {first[1]:,} columns.{axes}")
        return Finding("unwritten", text, "The mask of the store, the range of its loop, or the grid ends too early.")
    if len(shape) == 2 and first[1] == 0 and count == (shape[0] - first[0]) * shape[1]:
        return Finding(
            "unwritten",
            f"rows from {first[0]} on of {e.name} are never written, and there are {shape[0]}",
            f"Launch a program for every row, or loop over rows until all are done.{axes}",
        )
    if len(shape) == 1 and first and count == shape[0] - first[0]:
        return Finding(
            "unwritten", f"elements from {first[0]:,} on of {e.name} are never written, and there are {shape[0]:,}"
        )
    size = int(np.prod(shape))
    text = f"{count:,} of {size:,} elements of {e.name} are never written, the first at {first}"
    if len(shape) == 2 and tuple(first) == (0, 1) and 8 * (size - count) <= size:
        return Finding(
            "unwritten",
            text,
            "If the offsets of rows and of columns are both of one dimension, they pair up lane by "
            "lane and only a diagonal is stored: make them a matrix, with [:, None] and [None, :].",
        )
    return Finding("unwritten", text)


ITEM = "_local_scalar_dense"  # what `.item()`, `int(...)`, `if` and the like all come down to


def operations(task: Task, arguments: dict, done: dict):
    """What torch itself did: more than a tile at once, or, beside a kernel, more than a vector's worth; what the host
    read, where it must not."""
    read = [name.removeprefix(record.READ) for name in done if name.startswith(record.READ)]
    if task.no_readback and read:
        by = "a mask as index" if read[0] == "index" else f"`{read[0].strip('_')}`"
        yield Finding("readback", f"the host reads {'a number of a tensor' if ITEM in read else f'a tensor, by {by}'}")
    done = {
        name: count
        for name, count in done.items()
        if name not in (*task.torch_operations, ITEM) and not name.startswith(record.READ)
    }
    if not done:
        return
    operation, elements = max(done.items(), key=lambda item: item[1])
    if task.tile_elements:
        most = task.tile_elements(**plain(arguments))
        if elements > most:
            yield Finding(
                "whole_tensor", f"`{operation}` worked on {elements:,} elements at once, and one tile has {most:,}"
            )
    elif task.kernel:
        most = max(
            (t.shape[0] for t in arguments.values() if isinstance(t, (Tensor, RandomTensor)) and t.shape), default=0
        )
        if elements > most:
            yield Finding("torch_work", f"torch's `{operation}` worked on {elements:,} elements outside the kernel")


# ---------------------------------------------------------------- wrong values


def _values(task: Task, function: str, arguments: dict, expected: list, returned: list, after: dict, widths: list):
    wanted = [e for e in expected if not e.argument]
    if len(returned) == 1 and returned[0].values is None and not returned[0].other:
        yield Finding("count", f"{function} returned None", "Does its last line say `return`?")
        return
    if len(returned) != len(wanted):
        names = ", ".join(e.name for e in wanted)
        yield Finding(
            "count",
            f"{function} returned {len(returned)} value{'s' * (len(returned) != 1)}, expected {len(wanted)}: {names}",
        )
        return
    pairs = list(zip(returned, wanted))
    for e in expected:
        if e.argument:
            left = after[e.argument]
            pairs.append((Got(left.values, left.dtype), e))
    for got, e in pairs:
        fault = _form(got, e) or (_order(got, e) if task.contiguous and task.kernel else None)
        if fault:
            yield fault
            return
    wrong = [(got, e) for got, e in pairs if not matches(got, e)]
    if not wrong:
        return
    slip = _slip(task, function, arguments, pairs, {e.name for _, e in wrong}, widths)
    if slip:
        slip.place = _scalars(function, arguments, pairs)
        yield slip
        return
    wrong.sort(key=lambda pair: not isinstance(pair[1].values, np.ndarray) or pair[1].values.ndim < 2)
    got, e = wrong[0]
    if not isinstance(e.values, np.ndarray):
        call = ", ".join(f"{name}={value}" for name, value in arguments.items() if isinstance(value, (int, float, str)))
        named = f" as {e.name}" if len(pairs) > 1 else ""
        yield Finding(
            "wrong",
            f"{function}({call}) gives {got.values!r}{named}, expected {e.values!r}",
            place=_scalars(function, arguments, pairs),
        )
        return
    yield _shape_of_failure(got, e, arguments, widths)
    # what the first result hides (a row scaled by 0 is no longer a scale), another may tell
    for got, e in wrong[1:]:
        yield _shape_of_failure(got, e, arguments, widths)


def _scalars(function: str, arguments: dict, pairs: list) -> Place:
    """A call of plain values, what it gave and what is right, for the page; nothing where tensors take part."""
    values = [*arguments.values(), *(v for got, e in pairs for v in (got.values, e.values))]
    if not all(isinstance(value, (int, float, str)) for value in values):
        return Place()
    inputs = ", ".join(f"{name}={value}" for name, value in arguments.items())
    return Place(
        call=f"{function}({inputs})",
        yours={e.name: got.values for got, e in pairs},
        right={e.name: e.values for _, e in pairs},
    )


def _form(got: Got, e: Expected):
    if isinstance(e.values, np.ndarray):
        if not got.is_tensor:
            return Finding("type", f"{e.name} is {_kind(got)}, expected a tensor")
        if got.values.shape != e.values.shape:
            return Finding("shape", f"{e.name} has shape {list(got.values.shape)}, expected {list(e.values.shape)}")
        if got.dtype != e.dtype:
            return Finding("dtype", f"{e.name} is {got.dtype}, expected {e.dtype}")
    elif (
        got.is_tensor
        or got.other
        or not isinstance(got.values, (int, float) if isinstance(e.values, float) else type(e.values))
    ):
        return Finding("type", f"{e.name} is {_kind(got)}, expected {_article(type(e.values).__name__)}")


def _order(got: Got, e: Expected):
    shape = got.values.shape if got.is_tensor else ()
    rows = tuple(int(np.prod(shape[axis + 1 :])) for axis in range(len(shape)))
    if got.strides and any(n > 1 and s != r for n, s, r in zip(shape, got.strides, rows)):
        return Finding("strides", f"{e.name} is not contiguous: its strides are {got.strides}, expected {rows}")


def _kind(got: Got) -> str:
    return (
        "a tensor"
        if got.is_tensor
        else "None"
        if got.values is None and not got.other
        else _article(got.other or type(got.values).__name__)
    )


def _article(word: str) -> str:
    return f"{'an' if word[0] in 'aeiou' else 'a'} {word}"


def _slip(task: Task, function: str, arguments: dict, pairs: list, wrong: set, widths: list):
    """The first slip whose results are the learner's, wherever those are wrong."""
    for slip in task.slips:
        for guess in guesses(task, slip, function, arguments, widths):
            by_name = {g.name: g for g in guess}
            if wrong <= set(by_name) and all(_explains(got, e, by_name[e.name]) for got, e in pairs if e.name in wrong):
                return Finding("slip", slip.fault, slip.hint)
    return None


def _explains(got: Got, e: Expected, guess: Expected) -> bool:
    if not isinstance(e.values, np.ndarray):
        return matches(got, guess)
    if guess.values.size and not np.isfinite(guess.values).any():
        return False  # there are many ways to NaN
    if not matches(got, Expected(guess.name, guess.values, e.dtype), slack=3):
        return False
    # nearer to the guess than to the truth, both rounded as the result is, or it explains nothing
    with np.errstate(all="ignore"):
        truth, guessed = (row_errors(got.values, rounded(values, e.dtype)).max() for values in (e.values, guess.values))
    return truth > 3 * guessed


def _shape_of_failure(got: Got, e: Expected, arguments: dict | None = None, widths: list = ()) -> Finding:
    """Read the pattern of a wrong tensor. widths: what a tile may be wide."""
    whole = is_whole(e.dtype)
    values, reference = (of.astype(np.float64) for of in (got.values, e.values))
    tensors = [t for t in (arguments or {}).values() if isinstance(t, Tensor)]
    dtypes = {e.dtype, *(t.dtype for t in tensors)} if tensors else {"fp16"}
    per_row = values.ndim == 1 and (not tensors or _per_row(len(values), arguments))
    table = values.reshape(-1, 1) if per_row else values.reshape(-1, values.shape[-1] if values.ndim else 1)
    table, right = settled(table, reference.reshape(table.shape))
    errors, limits = row_errors(values, reference), allowed(reference, e.dtype)
    worst = int(np.argmax(errors - limits))
    most = float(limits[worst])
    with np.errstate(invalid="ignore"):
        element = ~np.isfinite(table) | ~np.isfinite(right) | (np.abs(table - right) > _elementwise(most, right))
    if not element.any():
        element = np.abs(table - right) == np.abs(table - right).max()
    first = tuple(int(i) for i in np.unravel_index(int(np.argmax(element)), table.shape))
    at = first if values.ndim > 1 else first[:1] if per_row else first[1:]
    along = "columns" if values.ndim > 1 else "elements"
    place = Place(
        output=e.name,
        first=list(at),
        expected=float(right[first]),
        got=float(table[first]),
        wrong=float(element.mean()),
        error=float(errors[worst]),
        limit=most,
        shape=list(table.shape),
        map=picture(element),
    )
    seen = f"{e.name}{list(at)} is {table[first]:.6g}, expected {right[first]:.6g}; {_share(element)} of {e.name} is "
    seen += (
        "wrong" if whole else f"off, the worst {'row ' * (values.ndim > 1)}by {errors[worst]:.1e} (limit {most:.0e})"
    )
    rows, columns = element.any(axis=1), element.any(axis=0)
    wide = table.shape[1] > 1

    bad = ~np.isfinite(table) & (np.isfinite(right) | np.isnan(table))
    if bad.any():
        what = "NaN" if np.isnan(table).any() else "infinite"
        start = int(np.argmax(bad.any(axis=0)))
        seen = f"{_share(bad)} of {e.name} is {what}, first at {list(at)}"
        to_the_end = wide and 0 < start and bad[bad.any(axis=1)][:, start:].all()
        if to_the_end:
            seen = f"{along} from {start} on of {e.name} are {what}"
        if to_the_end and _late(start, bad):
            return Finding("tail", seen, place=place, advice="" if bad.any(axis=1).all() else ADVICE["nan"])
        if what == "NaN":
            return Finding("nan", seen, place=place)
        if (table[bad] < 0).all() and (np.abs(right[bad]) < FP16_MOST).all():
            return Finding(
                "infinite",
                f"{seen}: minus infinity got into it",
                place=place,
                advice="In a sum: lanes masked with other=-inf, as a maximum wants, have to count as 0. "
                "In a maximum: nothing was compared with the value that it starts from.",
            )
        return Finding("overflow" if "fp16" in dtypes else "infinite", seen, place=place)
    if not table.any() and right.any():
        if "fp16" in dtypes and not whole:
            return Finding(
                "overflow",
                f"{e.name} is zero everywhere: a square or a sum that overflowed to infinity, in a divisor, does that",
                place=place,
            )
        return Finding(
            "wrong", f"{e.name} is zero everywhere, as if nothing was added to it, or infinity divided it", place=place
        )
    if e.dtype == "fp32" and errors.max() < SIXTEEN_BIT_ROUNDING:
        for sixteen in ("bf16", "fp16"):
            if np.array_equal(rounded(table, sixteen), table) and not np.array_equal(rounded(right, sixteen), right):
                return Finding("rounded_output", f"every value of {e.name} is a {sixteen} number: {seen}", place=place)
    told = (table.shape[1] >= FEW or per_row) and np.isfinite(right).all() and not whole
    factors = _row_factors(table, right, most) if told else None
    if factors is not None:
        cols = max((t.shape[-1] for t in tensors if len(t.shape) > 1), default=1) if per_row else table.shape[1]
        scaled = _scaled(factors, e, cols, most, place, widths, per_row)
        if scaled:
            return scaled
    start = int(np.argmax(columns))
    if wide and start > 0 and columns[start:].mean() > 0.5 and rows.mean() > 0.5 and _late(start, element):
        return Finding("tail", f"only {along} from {start} on are wrong: {seen}", place=place)
    telling = ~rows & right.any(axis=1)  # a row of zeros comes out right by itself
    if wide and telling.any() and element[rows].mean() > 0.5:
        listed = ", ".join(str(int(r)) for r in np.flatnonzero(rows)[:5])
        return Finding("some_rows", f"only rows {listed}{'...' * int(rows.sum() > 5)} are wrong: {seen}", place=place)
    if errors.max() < SIXTEEN_BIT_ROUNDING and not whole and e.dtype != "fp64":
        seen += _manner(table, right, e.dtype)
    return Finding("wrong", seen, place=place)


def _late(start: int, wrong: np.ndarray) -> bool:
    """Whether what is wrong is the end of the columns: it begins in their second half and is the smaller part."""
    return 2 * start >= wrong.shape[1] and wrong.mean() < 0.5


def _share(wrong: np.ndarray) -> str:
    return f"{wrong.mean():.0%}" if wrong.mean() >= 0.005 else f"{wrong.sum():,} of {wrong.size:,} elements"


def _manner(table: np.ndarray, right: np.ndarray, dtype: str) -> str:
    """How a small error behaves: rounding is noise around zero, a wrong constant or formula goes with the value."""
    either = (
        ". So small an error comes from an intermediate result that is rounded to 16 bits (keep it in fp32), or "
        "from a constant or a formula that is a little off"
    )
    typical = np.sqrt(np.mean(right**2, axis=1, keepdims=True))
    off = (np.abs(right) > 0.1 * typical) & (table != right)
    relative = ((table - right)[off] / right[off])[np.argsort(right[off], kind="stable")]
    if dtype != "fp32" or len(relative) < 100 or not relative.std():
        return either
    with np.errstate(all="ignore"):
        smooth = np.corrcoef(relative[1:], relative[:-1])[0, 1]
    below = (relative < 0).mean()
    if smooth > 0.5 or not 0.05 < below < 0.95:
        return (
            ". The error goes with the value, as rounding does not: a constant has too few digits, or the formula "
            "is another"
        )
    if abs(smooth) < 0.2 and 0.3 < below < 0.7 and np.median(np.abs(relative)) > 5e-5:
        return ". The error is noise around zero, of the size of 16-bit or TF32 rounding on the way"
    return either


def picture(wrong: np.ndarray, most: tuple = (16, 32)) -> list:
    """The share of wrong elements in each field of a small grid laid over a table, for the page."""
    rows, cols = (np.array_split(np.arange(n), min(n, limit)) for n, limit in zip(wrong.shape, most))
    return [[round(float(wrong[r[0] : r[-1] + 1, c[0] : c[-1] + 1].mean()), 2) for c in cols] for r in rows]


def _elementwise(most: float, right: np.ndarray) -> np.ndarray:
    """What one element may be off by before it is called wrong in a picture of the failure."""
    typical = np.sqrt(np.mean(right**2, axis=1, keepdims=True)) if right.size else 0
    return 10 * most * np.maximum(np.abs(right), 0.1 * typical)


def _row_factors(table: np.ndarray, right: np.ndarray, most: float):
    """The factor of each row where every row is a multiple of the right one and that is its error; None where not."""
    with np.errstate(all="ignore"):
        size = (right * right).sum(axis=1)
        factors = (table * right).sum(axis=1) / size
        rest = np.linalg.norm(table - factors[:, None] * right, axis=1) / np.linalg.norm(table, axis=1)
    usable = (size > 0) & np.isfinite(factors) & (factors > 0)
    wrong = usable & (np.hypot(rest, factors - 1) > most)
    if not wrong.any() or (rest[usable] > 3 * most).any() or (rest > np.abs(factors - 1))[wrong].any():
        return None
    return factors[usable]


def _scaled(factors: np.ndarray, e: Expected, cols: int, most: float, place: Place, widths: list, per_row: bool):
    """The finding about rows that are each off by a factor; None where single numbers are off by any factors."""
    low, high = float(factors.min()), float(factors.max())
    far = low if abs(low - 1) > abs(high - 1) else high
    by = {"place": place, "factor": far}
    constant = high - low < 5 * most * high
    seen = f"each row of {e.name} is off by a factor ({low:.6g}{'' if constant else f' to {high:.6g}'})"
    if constant and cols > 1 and e.dtype == "fp32":
        for width in ({1 << (cols - 1).bit_length()} | set(widths)) - {cols}:
            if abs(high / (width / cols) ** 0.5 - 1) < 3 * most:
                return Finding("divisor", f"{seen}: the square root of {width}/{cols}", **by)
            if abs(high * width / cols - 1) < 3 * most:
                return Finding("divisor", f"{seen}: {cols}/{width}", **by)
    if abs(far - 1) < SIXTEEN_BIT_ROUNDING and len(factors) > 2 and high - low <= max(0.02 * abs(far - 1), 2e-6):
        return Finding("row_scale", f"{seen}, one and the same", advice=CONSTANT, **by)
    if abs(far - 1) < SIXTEEN_BIT_ROUNDING and e.dtype == "fp32":
        return Finding(
            "sixteen_bit",
            f"{seen}: the size of 16-bit rounding, in a result that is fp32",
            factors=(low, high, len(factors)),
            **by,
        )
    if per_row and (len(factors) < 2 or low < 1 < high):
        return None
    if constant and len(factors) > 1:
        return Finding("row_scale", f"{seen}, one and the same", **by)
    if abs(far - 1) > SIXTEEN_BIT_ROUNDING and not low < 1 < high:
        return Finding(
            "row_scale",
            seen,
            **by,
            advice="Look at what is one number for the row, such as a sum "
            "or its divisor: part of the row was left out, or a 16-bit running sum stopped growing.",
        )
    return Finding("row_scale", seen, **by)
