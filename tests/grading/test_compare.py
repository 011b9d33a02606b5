"""What came back from a call beside what is right: form, numbers by row, and what is not finite."""

import numpy as np
import pytest

from grading.compare import Result, explained, form_fault, matches, wrong_place
from grading.tasks import Expected
from grading.tasks.arrays import rounded
from kernels.shared.tolerances import limit, row_errors

pytestmark = pytest.mark.each  # every set takes milliseconds, and most say something of their own

Y = np.random.default_rng(0).normal(size=(6, 64))
FP32 = Expected("y", Y, "fp32")


def changed(place, value, values=Y):
    values = np.array(values, copy=True)
    values[place] = value
    return values


# ---------------------------------------------------------------- form


def tensor(values=Y, dtype="fp32", strides=(64, 1)):
    return Result(values, dtype, strides=strides)


@pytest.mark.parametrize(
    "result, expected, words",
    [
        (tensor(), FP32, ""),
        (tensor(Y[:, :32]), FP32, "y has shape [6, 32], expected [6, 64]"),
        (tensor(Y[None]), FP32, "y has shape [1, 6, 64], expected [6, 64]"),
        (tensor(dtype="bf16"), FP32, "y is bf16, expected fp32"),
        (tensor(strides=(1, 6)), FP32, "y is not contiguous: its strides are (1, 6), expected (64, 1)"),
        (tensor(Y[:1], strides=(999, 1)), Expected("y", Y[:1], "fp32"), ""),  # a single row has no neighbor
        (Result(1.5), FP32, "y is a float, expected a tensor"),
        (Result(None, other="ndarray"), FP32, "y is a ndarray, expected a tensor"),
        (Result(3), Expected("n", 3.0), ""),
        (Result(3.0), Expected("n", 3), "n is a float, expected an int"),
        (tensor(), Expected("n", 3), "n is a tensor, expected an int"),
        (Result(None), Expected("n", "sum"), "n is None, expected a str"),
    ],
)
def test_a_fault_of_form_is_put_in_words(result, expected, words):
    assert form_fault(result, expected, contiguous=True) == words


# ---------------------------------------------------------------- numbers


def test_the_error_of_a_row_is_relative_to_that_row():
    values = Y * [[1], [1.5], [1], [1], [1], [1]]
    assert np.allclose(row_errors(values, Y), [0, 0.5, 0, 0, 0, 0])
    assert np.allclose(row_errors(np.array([2.0, 3.0]), np.array([2.0, 4.0])), [0, 0.25])  # of a vector each element
    zeros = np.zeros((2, 4))
    assert np.array_equal(row_errors(changed((1, 1), 1e-30, zeros), zeros), [0, np.inf])


def test_one_slightly_wrong_row_among_many_is_wrong():
    reference = np.random.default_rng(0).normal(size=(10_000, 64))
    assert not matches(tensor(changed(777, reference[777] * 1.01, reference), "bf16"), Expected("y", reference, "bf16"))


@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32"])
@pytest.mark.parametrize("cols", [1, 63, 1000])
def test_rounding_once_is_right_and_four_limits_off_is_wrong(dtype, cols):
    reference = np.random.default_rng(cols).normal(size=(500, cols))
    right, expected = rounded(reference, dtype), Expected("y", reference, dtype)
    assert row_errors(right, reference).max() < limit(dtype, cols) and matches(tensor(right, dtype), expected)
    assert not matches(tensor(reference * (1 + 4 * limit(dtype, cols)), dtype), expected)


def test_the_limit_follows_rows_whose_rounding_is_unusually_large():
    reference = np.maximum(np.random.default_rng(0).normal(size=(5000, 64)), 0) ** 2
    reference[::2, 0] *= 30
    right = rounded(reference, "bf16")
    assert row_errors(right, reference).max() > limit("bf16", 64)
    assert matches(tensor(right, "bf16"), Expected("y", reference, "bf16"))
    assert not matches(tensor(2 * right - reference, "bf16"), Expected("y", reference, "bf16"))


@pytest.mark.parametrize("dtype", ["uint8", "int32"])
def test_integers_are_exact_and_do_not_wrap_around(dtype):
    right = np.array([[1, 2, 3, 4] * 4, [100, 0, 255, 7] * 4], dtype=dtype)
    expected = Expected("codes", right.astype(np.int64), dtype)
    assert matches(tensor(right, dtype), expected)
    for wrong in (right + np.eye(2, 16, dtype=dtype), right[::-1], 0 * right):
        assert not matches(tensor(wrong, dtype), expected)


def test_what_is_not_finite_has_to_be_so_in_both():
    reference = np.array([1.0, -np.inf, np.nan, 2.0])  # of an empty row the log-sum-exp is -inf
    assert matches(tensor(reference.copy()), Expected("lse", reference, "fp32"))
    for place, value in ((0, np.nan), (0, -np.inf), (1, 0.0), (1, np.inf), (1, np.nan), (2, 0.0), (3, 2.1)):
        result = tensor(changed(place, value, reference))
        assert not matches(result, Expected("lse", reference, "fp32"))
        assert wrong_place(result, Expected("lse", reference, "fp32"))[1].first == [place]


@pytest.mark.parametrize(
    "right, accepted, refused",
    [
        (3, [3], [4, 3.0, True, "3", None]),
        (1, [1], [True]),
        (True, [True], [1, False]),
        ("sum", ["sum"], ["Sum", None]),
        (2.0, [2.0, 2, 2 + 1e-7], [2 + 1e-5, "2", np.nan]),
        (1.0, [1.0, 1], [True]),
        (0.0, [0.0, 0, 1e-7], [1e-5]),
        (1e-9, [1e-9], [0.0, 2e-9]),
        (-np.inf, [-np.inf], [np.inf, np.nan, -1e300]),
        (np.nan, [np.nan], [0.0]),
    ],
)
def test_plain_values(right, accepted, refused):
    assert all(matches(Result(value), Expected("n", right)) for value in accepted)
    assert not any(matches(Result(value), Expected("n", right)) for value in refused)
    assert not matches(Result(None, other="complex"), Expected("n", right))


# ---------------------------------------------------------------- where it is wrong, and what explains it


def test_the_first_wrong_element_is_named_with_both_values_and_the_share():
    words, place = wrong_place(tensor(changed((2, slice(32, None)), 9.0)), FP32)
    assert (place.output, place.first, place.actual, place.expected) == ("y", [2, 32], 9.0, Y[2, 32])
    assert place.wrong == pytest.approx(32 / Y.size) and place.error > place.limit > 0
    assert words.startswith(f"y[2, 32] is 9, expected {Y[2, 32]:.6g}; 8% of y is off, the worst row by")
    words, place = wrong_place(tensor(changed((0, 3), np.inf)), FP32)
    assert (place.actual, place.error) == (np.inf, np.inf) and "1 of 384 elements of y is wrong" in words


def test_a_mistake_explains_what_it_gives_and_not_what_lies_between():
    def mistaken(values):
        return Expected("y", values)

    assert explained(tensor(rounded(2 * Y, "fp32")), FP32, mistaken(2 * Y))
    assert not explained(tensor(2.01 * Y), FP32, mistaken(2 * Y))
    nearly = Y * (1 + 2e-6)  # as near to what is right
    assert not explained(tensor(Y * (1 + 1e-6)), FP32, mistaken(nearly))
    assert not explained(tensor(Y * np.nan), FP32, mistaken(Y * np.nan))  # there are many ways to NaN
    assert not explained(tensor(2 * Y), FP32, mistaken(2 * Y[:3]))
    assert explained(Result(7), Expected("n", 5), Expected("n", 7))
    assert not explained(Result(8), Expected("n", 5), Expected("n", 7))
