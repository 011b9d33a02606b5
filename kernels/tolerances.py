"""The one place where it is said how close is close enough.

An error is ||out - ref|| / ||ref|| of one row (the last axis) against an fp64 oracle; the worst row counts, so that one
wrong row cannot hide among many right ones. Correct results sit near 5e-8 (fp32), 2.1e-4 (fp16) and 1.7e-3 (bf16),
the error of rounding the output once.
"""

#: Largest error of a row by the dtype of the output.
LIMITS = {"fp64": 1e-12, "fp32": 1e-6, "fp16": 4e-4, "bf16": 3e-3}

#: A row of fewer elements than this has too few roundings to average: its limit is one rounding at its worst.
SHORT_ROW = 64
WORST_ROUNDING = {"fp64": 1e-12, "fp32": 1e-6, "fp16": 6e-4, "bf16": 4e-3}

#: Nor do long rows average where a few numbers outweigh the rest, as squares may. So many times the error of the row of
#: the oracle, rounded once, is accepted in any case.
OF_ORACLE_ROUNDED = 1.2


def limit(dtype: str, row_length: int) -> float:
    """Largest error accepted of a row of this many elements of this dtype."""
    return (LIMITS if row_length >= SHORT_ROW else WORST_ROUNDING)[dtype]
