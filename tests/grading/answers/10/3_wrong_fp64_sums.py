# wrong, mistake: Round after every addition
import numpy as np


def distinct_sums(values):
    from itertools import permutations

    sums = set()
    for order in permutations(values):
        total = np.float32(0)
        for value in order:
            total = float(total) + value
        sums.add(float(total))
    return len(sums)


def bits_change(reduction, accumulator, parts, parts_from_rows):
    if accumulator == "int32":
        return "never"  # adding integers is exact
    if reduction == "atomics" and parts > 2:
        return "between runs"
    return "between batches" if parts_from_rows else "never"
