"""Hints name the cause that the failure shows, and no other."""

import numpy as np
import pytest
from grading_tools import answers, edited, verdict_of

from grading import record
from grading.arrays import rounded, tensor
from grading.diagnose import ADVICE, Finding, Got, _metered, _shape_of_failure, _stored, most_telling
from grading.raised import meaning
from grading.tasks import Case, Expected, Task

ROWS = answers("02_execution_model")["02.4"]
ADD = answers("02_execution_model")["02.2"]
LARGEST = 'tl.maximum(largest, tl.where(mask, x, float("-inf")))'


def reading(change, shape=(8, 1000), inputs=("fp32",), dtype="fp32", widths=frozenset(), positive=False):
    """What is read off a result that `change` spoils."""
    rng = np.random.default_rng(0)
    right = rng.uniform(1, 2, shape) if positive else rng.normal(size=shape)
    values = change(right.copy())
    arguments = {f"input {i}": tensor(np.zeros((shape[0], 16) if positive else shape), t) for i, t in enumerate(inputs)}
    return _shape_of_failure(Got(values, dtype), Expected("y", right, dtype), arguments, widths)


def spoiled(y, columns, value=7.0):
    y[..., columns] = value
    return y


@pytest.mark.parametrize("first, kind", [(1, "wrong"), (300, "wrong"), (600, "tail"), (960, "tail")])
def test_the_end_is_blamed_only_where_the_end_alone_is_wrong(first, kind):
    assert reading(lambda y: spoiled(y, slice(first, None))).kind == kind
    assert reading(lambda y: spoiled(y, slice(first, None)), shape=(1000,)).kind == kind  # a vector has an end too
    other = "nan" if kind == "wrong" else "tail"
    found = reading(lambda y: spoiled(y, slice(first, None), np.nan))
    assert found.kind == other and f"columns from {first} on" in found.text


def test_small_errors_are_read_as_rounding_only_where_they_are_noise():
    noise = reading(lambda y: y * (1 + 2e-3 * np.random.default_rng(1).uniform(-1, 1, y.shape)))
    assert noise.kind == "wrong" and "noise" in noise.text and "constant" not in noise.text
    formula = reading(lambda y: y + 1e-4 * np.tanh(y) ** 2)
    assert formula.kind == "wrong" and "rounding does not" in formula.text and "another" in formula.text
    neither = reading(lambda y: y * (1 + 1e-4 * np.random.default_rng(1).normal(1, 1, y.shape)))
    assert "rounded to 16 bits (keep it in fp32), or" in neither.text
    off = 1 + 5e-3 * np.random.default_rng(1).normal(size=(8, 1000))
    short = reading(lambda y: rounded(y * off, "bf16"), dtype="bf16")
    assert "rounded to 16 bits (keep it in fp32), or" in short.text


def told(*changes):
    """The finding shown of a task in which each case's result is spoiled by one of `changes`."""
    found = [(i, reading(change, shape=(4, 1000))) for i, change in enumerate(changes)]
    cases = tuple(Case(str(i), dict) for i in range(len(changes)))
    return most_telling(Task(id="00.1", title="", points=1, functions={"f": None}, cases=cases), found)


def test_one_factor_everywhere_is_a_constant_and_a_factor_for_each_row_is_rounding():
    factors = [1 + 1e-3 * np.random.default_rng(i).normal(size=(4, 1)) for i in range(2)]
    assert told(*[lambda y, f=f: y * f for f in factors]).kind == "sixteen_bit"
    constant = told(lambda y: y * 1.00003, lambda y: y * 1.00003)
    assert constant.kind == "row_scale" and "too few digits" in constant.advice


def test_a_factor_is_a_tile_for_the_columns_only_where_a_tile_is_that_wide():
    assert reading(lambda y: y * np.sqrt(1024 / 1000)).kind == "divisor"
    assert reading(lambda y: y * 1000 / 1024).kind == "divisor"
    assert reading(lambda y: y * 2, shape=(8, 256)).kind == "row_scale"
    assert reading(lambda y: y * 2, shape=(8, 256), widths={1024}).kind == "divisor"


def test_single_numbers_that_are_wrong_anyhow_are_no_scaled_rows():
    assert reading(lambda y: y * np.linspace(0.5, 1.5, len(y)), shape=(9,), positive=True).kind == "wrong"
    assert reading(lambda y: y * np.linspace(1.1, 1.5, len(y)), shape=(9,), positive=True).kind == "row_scale"
    assert reading(lambda y: 2 * y + 1, shape=(1000,)).kind == "wrong"


def test_a_row_of_zeros_that_comes_out_right_does_not_make_the_others_special():
    right = np.random.default_rng(0).normal(size=(4, 1000))
    right[0] = 0
    for rows, kind in ((slice(None), "wrong"), (slice(2, None), "some_rows")):
        values = right.copy()
        values[rows] **= 2
        assert _shape_of_failure(Got(values, "fp32"), Expected("y", right, "fp32")).kind == kind


@pytest.mark.parametrize(
    "inputs, value, kind",
    [
        (("fp16",), np.inf, "overflow"),
        (("bf16",), np.inf, "infinite"),
        (("fp32", "bf16"), np.inf, "infinite"),
        (("bf16",), -np.inf, "infinite"),
        (("fp16",), -np.inf, "infinite"),
    ],
)
def test_fp16_is_blamed_only_where_there_is_fp16(inputs, value, kind):
    found = reading(lambda y: spoiled(y, slice(10, 11), value), inputs=inputs)
    assert found.kind == kind and ("a maximum" in found.advice) == (value < 0)
    assert reading(lambda y: 0 * y, inputs=inputs).kind == ("overflow" if "fp16" in inputs else "wrong")


def test_minus_infinity_in_a_sum_is_told():
    found = verdict_of("02.4", edited(ROWS, ("other=0.0", 'other=float("-inf")')))
    assert found.kind == "infinite" and "minus infinity got into it" in found.hint and "fp16" not in found.hint


def test_words_for_a_task_without_a_sum_name_none():
    for kind in ("sixteen_bit", "row_scale", "divisor", "overflow", "tail", "wrong"):
        assert "sum of squares" not in ADVICE[kind] and "eps" not in ADVICE[kind] and "running sum" not in ADVICE[kind]
    assert not any("cols" in ADVICE[kind] and "`cols`" not in ADVICE[kind] for kind in ADVICE)


# ---------------------------------------------------------------- what the meter saw


def metered(tensors, grid=(8,), programs=8, widths=((64,),)):
    return record.Metered(
        tensors=tensors, kernels=[("k", list(grid))], programs=programs, shapes=[list(w) for w in widths]
    )


def stray(shape, index, program=(7, 0, 0), kind="read", count=1, hints=None):
    access = record.Stray(
        kind=kind, program=list(program), index=index, count=count, text=f"program {program} of k {kind}s x[{index}]"
    )
    t = record.Counts(
        name="x",
        role="x",
        shape=list(shape),
        read=0,
        written=0,
        unique_read=0,
        unique_written=0,
        sectors=0,
        unwritten=0,
        first_unwritten=[],
        stored_by=[],
        strays=[access],
    )
    x = tensor(np.zeros(shape if len(shape) > 1 else (*shape, 50)), "fp32")
    task = Task(
        id="00.1", title="", points=1, functions={"f": None}, cases=(Case("a", dict),), kernel=True, hints=hints or {}
    )
    replayed = record.Replayed(returned=[], metered=metered([t]))
    return next(f for f in _metered(task, {"x": x}, replayed) if f.kind == "out_of_bounds")


def test_an_access_far_outside_is_the_index_and_one_near_the_end_may_be_the_mask():
    assert "the index" not in stray((8, 50), 400).text
    assert "too far outside" in stray((8, 50), 400 + 64 + 50).text and "too far outside" in stray((8, 50), -1).text
    assert "not at the end of the grid" in stray((8, 50), 410, program=(2, 0, 0)).text
    assert "columns" not in ADVICE["out_of_bounds"] and "index" in ADVICE["out_of_bounds"]


def test_a_tile_stored_where_one_number_belongs():
    found = stray((8,), 8, program=(0, 0, 0), kind="write", count=56)
    assert "one number per row" in found.text and "mask" not in found.advice and "Reduce" in found.advice


def test_an_empty_grid_is_told():
    e = Expected("y", np.ones(3), "fp32")
    [found] = _stored([e], metered([], grid=(0,), programs=0))
    assert found.kind == "unwritten" and "the grid is (0,)" in found.text and "Pass it" not in found.advice
    found = verdict_of("02.2", edited(ADD, ("triton.cdiv(x.numel(), BLOCK)", "x.numel() // BLOCK")))
    assert "no program ran" in found.hint


def test_an_earlier_function_is_told_first():
    cases = (Case("a", dict, "forward"), Case("b", dict, "backward"))
    task = Task(id="00.1", title="", points=1, functions={"forward": None, "backward": None}, cases=cases)
    assert most_telling(task, [(1, Finding("exception", "late")), (0, Finding("wrong", "early"))]).text == "early"


# ---------------------------------------------------------------- exceptions


@pytest.mark.parametrize(
    "error, line, words",
    [
        ("axis [1.93 3.53 ... 0.] out of bounds for shape ['constexpr[2048]']", "m = tl.max(m, x)", "tl.maximum"),
        ("'float' object cannot be interpreted as an integer", "m = tl.max(x, 0.0)", "an axis"),
        ("'tensor' object is not iterable", "m = max(x)", "tl.maximum"),
        ("can only convert an array of size 1 to a Python scalar", "y = math.exp(x)", "math knows no tiles"),
        (
            "Loop-carried variable m has initial type fp32 but is re-assigned to <['64'], fp32> in loop!",
            "",
            "tl.full([BLOCK]",
        ),
        ("Loop-carried variable m has initial type int32 but is re-assigned to fp32 in loop!", "", "0.0 is fp32"),
        ("Expected dtype ['fp32', 'fp64'] but got bf16", "y = tl.sigmoid(x)", ".to(tl.float32)"),
        (
            "Value argument cannot be block type if pointer argument is not a block",
            "tl.store(m_ptr + row, m)",
            "Reduce the tile",
        ),
        ("Cannot access global variable CUBIC from within @jit'ed function.", "", "pass CUBIC"),
        ("Ternary expression with dynamic condition", "", "tl.where"),
    ],
)
def test_an_exception_is_put_in_words(error, line, words):
    fault, advice = meaning(error, f"line 3 of its cell: {line}")
    assert words in f"{fault}. {advice}" and "1.93" not in fault


def test_an_unknown_exception_speaks_for_itself():
    assert meaning("list index out of range", "line 3 of its cell: y = x[max(a, b)]") == ("", "")


def test_constexpr_is_named_only_where_it_is_the_fault():
    assert "constexpr" not in ADVICE["compile"]
    found = verdict_of("02.4", edited(ROWS, ("tl.zeros([BLOCK], dtype=tl.float32)", "0.0")))
    assert found.kind == "compile" and "becomes a tile" in found.hint and "constexpr" not in found.hint


def test_a_word_of_python_in_a_kernel_is_named():
    found = verdict_of("02.4", edited(ROWS, (LARGEST, LARGEST.replace("tl.maximum", "max"))))
    assert found.status == "failed" and "`max`" in found.hint and "tl.maximum" in found.hint


def test_a_word_of_python_on_plain_numbers_is_not_held_against_a_kernel():
    found = verdict_of("02.4", edited(ROWS, ("tl.range(0, cols, BLOCK)", "tl.range(0, min(cols, 2048), BLOCK)")))
    assert found.status == "failed" and "`min`" not in found.hint


# ---------------------------------------------------------------- what a verdict says


def test_right_cases_of_a_failed_task_are_counted_in_its_hint():
    found = verdict_of("02.2", edited(ADD, ("triton.cdiv(x.numel(), BLOCK)", "x.numel() // BLOCK")))
    assert "all have to be" in found.hint and found.proved == [] and "proved" not in str(found)
    none = verdict_of("02.2", ADD + "\n\ndef add_short(x, y):\n    return None\n")
    assert none.hint.endswith("0 of 10 cases are right; all have to be.") and none.hint.count("all have to be") == 1


def test_a_task_of_several_functions_names_the_one_that_is_wrong():
    right = answers("02_execution_model")["02.1"]
    found = verdict_of("02.1", right + "\n\ndef programs_per_sm(registers, shared, warps):\n    return 33\n")
    assert found.hint.startswith("In `programs_per_sm`: ") and found.place.right["programs"] < 33
    assert found.place.yours == {"programs": 33} and found.place.call.startswith("programs_per_sm(registers=")


def test_the_index_is_not_guessed_at_where_the_task_names_the_cause():
    own = stray((8, 50), 4000, hints={"out_of_bounds": "The last group may be lower."})
    assert "too far outside" not in own.text
    assert "too far outside" in stray((8, 50), 4000, hints={"out_of_bounds": "Mask every load."}).text


@pytest.mark.parametrize(
    "exercise, task, words",
    [
        ("02_execution_model", "02.1", "cases exactly right"),
        ("02_execution_model", "02.2", "right against an fp64 reference"),
        ("09_low_precision", "09.2", "cases exactly right"),  # tensors of codes
    ],
)
def test_what_is_counted_is_exactly_right(exercise, task, words):
    assert words in verdict_of(task, answers(exercise)[task]).proved[0]
