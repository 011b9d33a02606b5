"""A hint says what is wrong, where, what was expected, and one thing to look at; it names a cause only where one is
proved."""

import dataclasses

import numpy as np
import pytest
from grading_tools import answers, edited, verdict_of

from grading import facts, hints
from grading.compare import Result
from grading.hints import Finding, meaning, most_telling, named_mistakes, of_kernels, of_operations, too_wide
from grading.tasks import DIAGNOSES, TILE, Case, Expected, Mistake, Task, returns, tensor
from grading.tasks import task as find_task
from grading.tasks.arrays import Tensor, rounded

pytestmark = pytest.mark.each  # every set takes milliseconds, and most say something of their own

X = np.random.default_rng(0).normal(size=(6, 64))


@returns(y="x")
def scaled(x, *, by=2.0, padding=64):
    return x * by * 64 / padding


TWICE, WIDE = Mistake("x was squared", "", by=-2.0), Mistake("divided by the tile", "Divide by cols.", padding=TILE)


def task(**more) -> Task:
    cases = (Case("one", dict), Case("two", dict), Case("three", dict, hint="Look at the last row."))
    return Task(**{"id": "00.1", "title": "", "points": 1, "functions": {"scaled": scaled}, "cases": cases, **more})


def outcome(index, values, expected=2 * X, widths=()):
    x = tensor(X, "fp32")
    pair = Result(rounded(values, "fp32"), "fp32"), Expected("y", expected, "fp32")
    return hints.Outcome(index, {"x": x}, [pair], list(widths))


def findings_of(the_task, *outcomes) -> list:
    """What `outcomes` are found to be, common mistakes named."""
    faults = [(o, hints.of_values("scaled", o.arguments, o.pairs)) for o in outcomes]
    findings = [fault for o, fault in faults if fault and not setattr(fault, "index", o.index)]
    named_mistakes(the_task, findings, [*outcomes])
    return findings


# ---------------------------------------------------------------- values


def test_a_wrong_value_is_told_by_its_case_its_first_wrong_element_and_both_values():
    values = 2 * X
    values[3, 5:] = 7
    (finding,) = findings_of(task(), outcome(1, values))
    finding.case = "two"
    hint = finding.hint(task(hints={"values": "Try one row."}))
    assert hint.startswith(f'Case "two": y[3, 5] is 7, expected {2 * X[3, 5]:.6g}; 15% of y is off')
    assert hint.endswith(" Try one row.") and finding.hint(task()).endswith(DIAGNOSES["values"])


def test_a_plain_value_is_told_by_the_call():
    pairs = [(Result(3), Expected("rows", 3)), (Result(7), Expected("bytes", 8))]
    finding = hints.of_values("count", {"n": 4, "x": tensor(X), "_key": 1}, pairs)
    assert finding.text == "count(n=4) gives 7 as bytes, expected 8"
    assert hints.of_values("count", {}, pairs[:1]) is None


@pytest.mark.parametrize(
    "change",
    [
        lambda y: y * 1.5,
        lambda y: y * np.sqrt(128 / 64),
        lambda y: y * (np.arange(64) < 60),
        lambda y: rounded(y, "bf16"),
        lambda y: y * np.where(np.arange(6) == 2, np.inf, 1)[:, None],
        lambda y: 0 * y,
    ],
)
def test_no_cause_is_read_off_the_shape_of_an_error(change):
    (finding,) = findings_of(task(mistakes=(TWICE, WIDE)), outcome(0, change(2 * X), widths=[256]))
    words = finding.hint(task()).lower()
    assert finding.diagnosis == "values" and "expected" in words
    for cause in ("fp16", "bf16", "16 bits", "overflow", "rounding", "mask", "constant", "tile", "because", "probably"):
        assert cause not in words


def test_a_mistake_is_named_only_where_it_explains_most_wrong_cases():
    the_task = task(mistakes=(WIDE, TWICE))
    both = findings_of(the_task, outcome(0, -2 * X), outcome(1, 2 * X), outcome(2, -2 * X))
    assert [(f.diagnosis, f.text, f.index) for f in both] == [("mistake", "x was squared", i) for i in (0, 2)]
    half = findings_of(the_task, outcome(0, -2 * X), outcome(1, 3 * X))
    assert [f.diagnosis for f in half] == ["values", "values"]
    most = findings_of(the_task, outcome(0, -2 * X), outcome(1, -2 * X), outcome(2, 3 * X))
    assert [f.diagnosis for f in most] == ["mistake"] * 3


def test_a_mistake_leaves_other_findings_as_they_are():
    findings = [Finding("values", "y is wrong"), Finding("race", "an element is written twice")]
    named_mistakes(task(mistakes=(TWICE,)), findings, [outcome(0, -2 * X)])
    assert [f.diagnosis for f in findings] == ["mistake", "race"]


def test_a_mistake_may_depend_on_the_width_of_a_tile():
    the_task = task(mistakes=(WIDE,))
    (finding,) = findings_of(the_task, outcome(0, 2 * X * 64 / 128, widths=[64, 128]))
    assert (finding.text, finding.advice) == ("divided by the tile", "Divide by cols.")
    (finding,) = findings_of(the_task, outcome(0, 2 * X * 64 / 128, widths=[64, 256]))
    assert finding.diagnosis == "values"


def test_of_plain_values_a_mistake_has_to_give_the_right_cases_too():
    @returns("n")
    def count(n, *, once=False):
        return n if once or n < 10 else 2 * n

    once = Mistake("counted once", "", once=True)
    the_task = task(functions={"count": count}, mistakes=(once,))

    def diagnoses(*calls):
        outcomes = [hints.Outcome(i, {"n": n}, [(Result(v), Expected("n", count(n)))], []) for i, (n, v) in calls]
        return {f.diagnosis for f in findings_of(the_task, *outcomes)}

    assert diagnoses((0, (20, 20)), (1, (3, 3))) == {"mistake"}
    assert diagnoses((0, (20, 20)), (1, (30, 60))) == {"values"}  # right where the mistake would be wrong


# ---------------------------------------------------------------- which one is shown


def test_the_most_telling_finding_is_shown():
    order = ["missing", "out_of_bounds", "unwritten", "race", "compile", "form", "state", "mistake", "values", "slow"]
    assert sorted(order, key=list(DIAGNOSES).index) == order
    findings = [Finding(name, name, index=i) for name, i in (("values", 0), ("unwritten", 2), ("unwritten", 1))]
    shown = most_telling(task(), findings)
    assert (shown.text, shown.index) == ("unwritten", 1)


def test_a_cases_own_hint_is_given_where_no_other_case_fails():
    assert most_telling(task(), [Finding("values", "wrong", index=2)]).hint(task()).endswith("Look at the last row.")
    both = [Finding("values", "wrong", index=i) for i in (2, 0)]
    assert "last row" not in most_telling(task(), both).hint(task())
    assert "last row" not in most_telling(task(), [Finding("race", "a race", index=2)]).hint(task())


def test_of_several_functions_the_first_wrong_one_is_shown_and_named():
    cases = (Case("a", dict, "forward"), Case("b", dict, "backward"))
    the_task = task(functions={"forward": scaled, "backward": scaled}, cases=cases)
    late, early = Finding("exception", "late", case="b", index=1), Finding("values", "early", case="a")
    shown = most_telling(the_task, [late, early])
    assert shown.hint(the_task).startswith('In `forward`: Case "a": early.')


# ---------------------------------------------------------------- exceptions


@pytest.mark.parametrize(
    "error, diagnosis, words",
    [
        (facts.Error(type="NameError", text="scaled is not defined"), "missing", "the function scaled does not exist"),
        (facts.Error(type="NotImplementedError", text="", kernel="scaled"), "missing", "scaled still ends in the stub"),
        (facts.Error(type="NotImplementedError", text="", kernel="k"), "missing", "the kernel k still ends in"),
        (facts.Error(type="NameError", text="name 'F' is not defined"), "exception", "has to be in an answer cell"),
        (facts.Error(type="ImportError", text="no kernels"), "exception", "Only instruments, torch, triton and numpy"),
        (facts.Error(type="KeyError", text="3", where="line 2 of its cell: a[3]"), "exception", "KeyError: 3 (line 2"),
    ],
)
def test_an_exception_is_told_with_its_place(error, diagnosis, words):
    finding = hints.of_error(task(), 0, error)
    assert finding.diagnosis == diagnosis and words in finding.hint(task())


def test_a_task_in_pytorch_gets_no_advice_about_kernels():
    error = facts.Error(type="RuntimeError", text="size 1 is wrong", where="line 2 of its cell: torch.cat((q, k))")
    assert "tiles of a kernel" in hints.of_error(task(kernel=True), 0, error).hint(task())
    assert "kernel" not in hints.of_error(task(), 0, error).hint(task())


@pytest.mark.parametrize(
    "error, line, words",
    [
        ("'float' object cannot be interpreted as an integer", "m = tl.max(x, 0.0)", "tl.maximum"),
        ("'tensor' object is not iterable", "m = max(x)", "tl.maximum"),
        ("can only convert an array of size 1 to a Python scalar", "y = math.exp(x)", "math knows no tiles"),
        ("Loop-carried variable m has initial type fp32 but is re-assigned to <['64'], fp32>", "", "tl.full([BLOCK]"),
        ("Loop-carried variable l has initial type int32 but is re-assigned to fp32 in loop!", "", "0.0 is fp32"),
        ("Expected dtype ['fp32', 'fp64'] but got bf16", "y = tl.sigmoid(x)", ".to(tl.float32)"),
        ("Cannot access global variable CUBIC from within @jit'ed function.", "", "pass CUBIC"),
        ("list index out of range", "y = x[max(a, b)]", ""),
    ],
)
def test_what_triton_says_is_put_in_plain_words(error, line, words):
    known = " ".join(meaning(error, f"line 3 of its cell: {line}"))
    assert words in known and bool(words) == bool(known.strip())


# ---------------------------------------------------------------- what kernels did


def counts(name, role, shape=(6, 64), **more):
    size = 4 * int(np.prod(shape))
    used = {"read": size, "unique_read": size} if role == "x" else {"written": size, "unique_written": size}
    unused = dict.fromkeys(("read", "written", "unique_read", "unique_written", "unwritten"), 0)
    lists = {"unwritten_at": [], "stored_by": [], "outside": []}
    fields = {"name": name, "role": role, "shape": list(shape), "sectors": size // 32}
    return facts.Counts(**{**unused, **lists, **fields, **used, **more})


def hints_of(*tensors, programs=6, widest=(), **more):
    """The hint of each finding about kernels that met these tensors."""
    met = {"tensors": [*tensors], "kernels": [("k", [programs])], "widest": [*widest]}
    the_task = task(kernel=True, minimum_bytes=lambda x: {"x": x.nbytes, "returned 0": x.nbytes}, **more)
    played = facts.Played(metered=facts.Metered(programs=programs, **met), returned=[])
    findings = of_kernels(the_task, {"x": tensor(X)}, [Expected("y", X, "fp32")], played)
    return {f.diagnosis: f.hint(the_task) for f in findings}


GOOD = counts("x", "x"), counts("y", "returned 0")


def test_kernels_that_do_what_they_should_have_no_findings():
    assert hints_of(*GOOD) == {}


def test_an_error_of_the_compiler_is_told_with_what_it_means():
    error = "k does not compile: Loop-carried variable m has initial type fp32 but is re-assigned to <['64'], fp32>"
    (finding,) = of_kernels(task(), {}, [], facts.Played(errors=[error]))
    assert finding.text.startswith(error) and "m starts as one number and becomes a tile" in finding.text
    assert finding.advice.startswith("Start with a tile")


def test_elements_that_no_kernel_stored():
    part = counts("y", "returned 0", unwritten=64, unwritten_at=[5, 0], unique_written=5 * 256, written=5 * 256)
    words = "64 of 384 elements of y are never written, the first at [5, 0]. "
    assert hints_of(GOOD[0], part)["unwritten"] == words + DIAGNOSES["unwritten"]
    assert "no kernel stored y" in hints_of(GOOD[0])["torch_work"]
    assert "the grid is (0,)" in hints_of(*GOOD, programs=0)["unwritten"]


def test_accesses_outside_a_tensor():
    text = ["program (5, 0, 0) of k reads x[384], 1 past its end (3 elements of this access)", "another"]
    hint = hints_of(counts("x", "x", outside=text, outside_at=384), GOOD[1], hints={"out_of_bounds": "Mask it."})
    start = "program (5, 0, 0) of k reads x[384], 1 past its end (3 elements of one load), and 1 more such access."
    assert hint["out_of_bounds"] == f"{start} Mask it."


def test_bytes_requested_beside_the_minimum():
    hint = hints_of(counts("x", "x", read=3 * 1536), GOOD[1])["traffic"]
    assert "request 6,144 bytes, 2.00 times the minimum of 3,072: x is read 3.0 times" in hint
    between = hints_of(*GOOD, counts("h", "", written=1536, read=1536))["traffic"]
    assert "h, a tensor between your kernels, moves 3,072 bytes of it" in between
    assert hints_of(*GOOD, counts("sums", "", shape=(128,), read=512)) == {}, "a small change"
    strided = counts("x", "x", sectors=500), GOOD[1]
    assert hints_of(*strided) == {}
    assert (
        "8,896 bytes of sectors, 2.9 times"
        in hints_of(counts("x", "x", sectors=230), GOOD[1], coalesced=True)["traffic"]
    )
    assert hints_of(counts("x", "x", sectors=160), GOOD[1], coalesced=True) == {}
    assert "1,536 bytes of x lie in 500 sectors of 32" in hints_of(*strided, coalesced=True)["traffic"]


def test_tiles_wider_than_the_task_allows():
    assert hints_of(*GOOD, widest=[[16, 64]], max_tile=64) == {}
    hint = hints_of(*GOOD, widest=[[16, 128]], max_tile=64)["traffic"]
    assert "a tile of 16 x 128 elements, and the task allows at most 64" in hint
    for shape, wide in (
        ([64, 32], False),
        ([32, 64], False),
        ([1, 2048], False),
        ([64, 64], True),
        ([4096], True),
        ([4, 64, 32], True),
    ):
        assert bool(too_wide([shape], (64, 32))) == wide
    assert too_wide([[9999]], None) == []


def test_torchs_own_work_beside_a_kernel():
    x = {"x": tensor(X)}

    def words(operations, **more):
        return [f.text for f in of_operations(task(**more), x, operations)]

    assert words({"mul": 384, "empty": 384, "sum": 6}, kernel=True) == [
        "torch's `mul` worked on 384 elements outside the kernel"
    ]
    assert words({"empty": 384, "zeros": 384, "cumsum": 6}, kernel=True) == []  # a vector, and what is new
    assert words({"mul": 384}) == []
    tile = words({"mul": 384, "add": 60}, max_tile=lambda x: 2 * x.shape[1])
    assert tile == ["`mul` worked on 384 elements at once, and a tile has 128"]


def test_inputs_that_a_call_changed():
    x, ids = tensor(X), tensor(np.arange(3), "int32")
    nan = tensor(np.full(3, np.nan))
    after = {
        "x": dataclasses.replace(x, storage=x.storage + 1),
        "ids": ids,
        "nan": Tensor(nan.storage.copy(), "fp32", (3,), (1,)),
    }
    arguments = {"x": x, "ids": ids, "nan": nan}
    assert [f.text for f in hints.unchanged_inputs(arguments, after, set())] == ["the call changed its input x"]
    assert hints.unchanged_inputs(arguments, after, {"x"}) == []


def test_a_wrong_kernels_hint_from_end_to_end():
    right = answers("02_execution_model")["02.2"]
    verdict = verdict_of("02.2", edited(right, ("triton.cdiv(x.numel(), BLOCK)", "x.numel() // BLOCK")))
    assert verdict.diagnosis == "unwritten" and "cases are right; all have to be." in verdict.hint
    assert verdict.place.case in {case.name for case in find_task("02.2").cases}
