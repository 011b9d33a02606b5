"""Compares what came back from a call with what the reference expects: form first, then numbers, row by row."""

from dataclasses import dataclass

import numpy as np

from grading.record import Place
from grading.tasks import Expected
from grading.tasks.arrays import rounded
from kernels.shared.tolerances import ROUNDED_REFERENCE_FACTOR, agreed, limit, row_errors


@dataclass
class Result:
    """One item that a call returned: a float64 array or a plain value, and of a tensor its dtype's name and strides.

    other: the name of its type where it is neither.
    """

    values: object
    dtype: str = ""
    other: str = ""
    strides: tuple = ()

    @property
    def is_tensor(self) -> bool:
        return isinstance(self.values, np.ndarray)

    @property
    def kind(self) -> str:
        """What it is, in words."""
        if self.is_tensor:
            return "a tensor"
        if self.values is None and not self.other:
            return "None"
        return article(self.other or type(self.values).__name__)


def article(word: str) -> str:
    return f"{'an' if word[0] in 'aeiou' else 'a'} {word}"


def form_fault(result: Result, expected: Expected, contiguous: bool) -> str:
    """What is wrong with the type, shape, dtype or strides of a result, as a sentence; '' for nothing."""
    name, values = expected.name, expected.values
    if not isinstance(values, np.ndarray):
        types = (int, float) if isinstance(values, float) else type(values)
        fits = not (result.is_tensor or result.other) and isinstance(result.values, types)
        return "" if fits else f"{name} is {result.kind}, expected {article(type(values).__name__)}"
    if not result.is_tensor:
        return f"{name} is {result.kind}, expected a tensor"
    if result.values.shape != values.shape:
        return f"{name} has shape {list(result.values.shape)}, expected {list(values.shape)}"
    if result.dtype != expected.dtype:
        return f"{name} is {result.dtype}, expected {expected.dtype}"
    rows = tuple(int(np.prod(values.shape[axis + 1 :])) for axis in range(values.ndim))
    if contiguous and any(n > 1 and s != r for n, s, r in zip(values.shape, result.strides, rows)):
        return f"{name} is not contiguous: its strides are {result.strides}, expected {rows}"
    return ""


def is_integer(dtype: str) -> bool:
    """Whether values of this dtype are integers, codes say, which have to be exact."""
    return dtype.startswith(("int", "uint", "bool"))


def limits(reference: np.ndarray, dtype: str) -> np.ndarray:
    """The largest error that each row of a result of this dtype may have."""
    error = row_errors(rounded(reference, dtype), reference)
    if is_integer(dtype):
        return np.zeros_like(error)
    most = limit(dtype, reference.shape[-1] if reference.ndim > 1 else 1)
    return np.maximum(most, np.where(np.isfinite(error), ROUNDED_REFERENCE_FACTOR * error, 0))


def matches(result: Result, expected: Expected, slack: float = 1.0) -> bool:
    """Whether one result is right, or within `slack` times the limit."""
    values = expected.values
    if isinstance(values, np.ndarray):
        if not result.is_tensor or result.values.shape != values.shape:
            return False
        within = row_errors(result.values, values) <= slack * limits(values, result.dtype) if values.size else True
        return bool(np.all(within))
    if result.is_tensor or result.other or isinstance(result.values, bool) != isinstance(values, bool):
        return False
    if isinstance(values, float) and isinstance(result.values, (int, float)):
        return bool(np.isclose(result.values, values, 1e-6 * slack, 1e-36 if values else 1e-6, equal_nan=True))
    return type(result.values) is type(values) and result.values == values


def explained(result: Result, expected: Expected, mistaken: Expected) -> bool:
    """Whether a wrong result is what a mistake gives: near to it, and nearer to it than to what is right."""
    if not isinstance(expected.values, np.ndarray):
        return matches(result, mistaken)
    if mistaken.values.size and not np.isfinite(mistaken.values).any():
        return False  # there are many ways to NaN
    if not matches(result, Expected(mistaken.name, mistaken.values, expected.dtype), slack=3):
        return False
    dtype = expected.dtype
    right, wrong = (row_errors(result.values, rounded(of.values, dtype)).max() for of in (expected, mistaken))
    return right > 3 * wrong


def wrong_place(result: Result, expected: Expected) -> tuple:
    """(words, Place) of a tensor with wrong values: the first wrong element, and how much is wrong."""
    values, reference = (of.astype(np.float64) for of in (result.values, expected.values))
    columns = values.shape[-1] if values.ndim else 1
    table, right = agreed(values.reshape(-1, columns), reference.reshape(-1, columns))
    errors, most = row_errors(values, reference), limits(reference, expected.dtype)
    worst = int(np.argmax(errors - most))
    typical = np.sqrt(np.mean(right**2, axis=1, keepdims=True))
    with np.errstate(invalid="ignore"):
        far = np.abs(table - right) > 10 * most[worst] * np.maximum(np.abs(right), 0.1 * typical)
    wrong = (far | ~np.isfinite(table) | ~np.isfinite(right)) & (table != right)
    if not wrong.any():
        wrong = np.abs(table - right) == np.abs(table - right).max()
    flat = int(np.argmax(wrong))
    place = Place(
        output=expected.name,
        first=[int(i) for i in np.unravel_index(flat, values.shape)],
        expected=float(right.flat[flat]),
        actual=float(table.flat[flat]),
        wrong=float(wrong.mean()),
        error=float(errors[worst]),
        limit=float(most[worst]),
    )
    share = f"{wrong.mean():.0%}" if wrong.mean() >= 0.005 else f"{wrong.sum():,} of {wrong.size:,} elements"
    verb = "are" if wrong.mean() < 0.005 and wrong.sum() > 1 else "is"
    words = f"{expected.name}{place.first} is {table.flat[flat]:.6g}, expected {right.flat[flat]:.6g}; {share} of"
    if is_integer(expected.dtype) or not np.isfinite(errors[worst]):
        return f"{words} {expected.name} {verb} wrong", place
    off = f"the worst {'row' if values.ndim > 1 else 'element'} by {errors[worst]:.1e} (limit {most[worst]:.0e})"
    return f"{words} {expected.name} {verb} off, {off}", place
