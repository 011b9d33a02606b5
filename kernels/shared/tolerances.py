"""Tolerances, in one place for the tests, the grader and the benchmarks.

The error of a row (the last axis) is ||actual - expected|| / ||expected||, where `expected` is an fp64 reference. The
worst row decides, so that one wrong row cannot hide among many right ones. Correct results have errors near 5e-8
(fp32), 2.1e-4 (fp16) and 1.7e-3 (bf16), from rounding the output once.
"""

import numpy as np

#: Largest error of a row by the dtype of the output.
LIMITS = {"fp64": 1e-12, "fp32": 1e-6, "fp16": 4e-4, "bf16": 3e-3}

#: Roundings do not average over a row of fewer elements than this: its limit is the worst case of one rounding.
SHORT_ROW = 64
WORST_ROUNDING = {"fp64": 1e-12, "fp32": 1e-6, "fp16": 6e-4, "bf16": 4e-3}

#: Nor do they average over a long row in which a few numbers outweigh the rest, as squares may. An error of up to this
#: many times that of the reference, rounded once to the output's dtype, is accepted in any case.
ROUNDED_REFERENCE_FACTOR = 1.2


def limit(dtype: str, row_length: int) -> float:
    """The largest error that a row of this many elements of this dtype may have."""
    return (LIMITS if row_length >= SHORT_ROW else WORST_ROUNDING)[dtype]


def agreed(values: np.ndarray, reference: np.ndarray) -> tuple:
    """Both with 0 where they agree on what is not finite: the log-sum-exp of nothing is -inf, and so it has to be."""
    with np.errstate(invalid="ignore"):
        same = ~np.isfinite(reference) & ((values == reference) | (np.isnan(values) & np.isnan(reference)))
    return (np.where(same, 0, values), np.where(same, 0, reference)) if same.any() else (values, reference)


def row_errors(values: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """||actual - expected|| / ||expected|| of every row (last axis); inf where only one of them is NaN or infinite, or
    where a row of zeros is not zero."""
    rows = values.reshape(-1, values.shape[-1]) if values.ndim > 1 else values.reshape(-1, 1)
    rows, right = agreed(*(of.astype(np.float64) for of in (rows, reference.reshape(rows.shape))))
    with np.errstate(all="ignore"):
        size = np.linalg.norm(right, axis=1)
        distance = np.linalg.norm(rows - right, axis=1)
        error = np.where(size > 0, distance / np.where(size > 0, size, 1), np.where(distance == 0, 0, np.inf))
    return np.where(np.isnan(error), np.inf, error)
