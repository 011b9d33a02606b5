"""Cases by property: the shapes that every kernel over rows, vectors or tiles has to get right, from one named set.

A test holds every kernel task to it: more programs than any GPU has SMs, sizes around a power of two, a
single element, and operands as far from contiguous as the task's card lets them be. PROGRAMS and cancelling_halves are
for the cases that a task writes itself.
"""

import numpy as np

from grading.tasks import Case

PROGRAMS = 151  # more programs than any GPU has SMs, and no more, for each takes milliseconds
MANY = 211  # rows, or tiles: more than any GPU has SMs, and a prime, so that no loop divides it

#: name: rows, columns, dtype, elements from row to row beyond the columns
ROWS = {
    "one tile": (4, 256, "fp32", 0),
    "ragged": (3, 1000, "bf16", 0),
    "one column": (5, 1, "fp32", 0),
    "one less than a power of two": (2, 1023, "fp16", 0),
    "one more than a power of two": (2, 1025, "fp32", 0),
    "a multiple of 128": (2, 384, "fp16", 0),
    "padded rows": (3, 777, "fp32", 223),
    "a wide row": (2, 4099, "bf16", 0),
    "more rows than a GPU has SMs": (MANY, 48, "fp32", 0),
}
PADDED = (
    "This input has padded rows: the next row starts .stride(0) elements on, not cols. "
    "What you allocate has rows of its own."
)


def row_cases(make, function: str = "", leave_out: tuple = (), **dtypes: str) -> tuple:
    """The cases of ROWS for a kernel that takes a matrix row by row. make(rows, cols, dtype, row_stride) -> a Case's
    `make`, row_stride None for contiguous rows. dtypes: {name of a case, blanks as _: another dtype}."""
    cases = []
    for name, (rows, cols, dtype, pad) in ROWS.items():
        if name in leave_out:
            continue
        dtype = dtypes.get(name.replace(" ", "_"), dtype)
        label = f"{rows} x {cols} {dtype}, {name}"
        cases.append(
            Case(
                f"{function}, {label}" if function else label,
                make(rows, cols, dtype, cols + pad if pad else None),
                function,
                hint=PADDED if pad else "",
            )
        )
    return tuple(cases)


#: name: shape and dtype of contiguous tensors of any shape, for a kernel that takes them element by element
SHAPES = {
    "one tile": ((4, 256), "fp32"),
    "ragged": ((3, 1000), "bf16"),
    "one element": ((1, 1), "bf16"),
    "one dimension, one less than a power of two": ((1023,), "fp16"),
    "one more than a power of two": ((1, 8193), "bf16"),
    "primes": ((11, 911), "fp16"),
    "three dimensions": ((3, 5, 67), "fp32"),
    "whole tiles, however wide": ((2, 8192), "fp16"),
    "more tiles of 4,096 than a GPU has SMs": ((MANY, 4099), "bf16"),
}


def shape_cases(make) -> tuple:
    """The cases of SHAPES. make(shape, dtype) -> a Case's `make`."""
    return tuple(
        Case(f"{' x '.join(map(str, shape))} {dtype}, {name}", make(shape, dtype))
        for name, (shape, dtype) in SHAPES.items()
    )


def cancelling_halves(rng, m: int, n: int, k: int) -> tuple:
    """Operands [m, k] and [n, k] of a matmul: the second half of K takes nearly all of the first one away."""
    x, w = rng.normal(0.5, 1, (m, k // 2)), rng.normal(0.5, 1, (n, k // 2))
    return np.hstack((x, -x)), np.hstack((w, w + rng.normal(0, 0.125, w.shape)))
