# wrong, mistake: each value is added to the accumulator by itself
import numpy as np


def distinct_sums(values):
    n = len(values)
    reach = {1 << i: {np.float32(values[i])} for i in range(n)}
    for taken in range(1, 1 << n):
        if taken not in reach:
            reach[taken] = {
                np.float32(s + t) for a in range(1, taken) if a & taken == a for s in reach[a] for t in reach[taken ^ a]
            }
    return len(reach[(1 << n) - 1])


def bits_change(reduction, accumulator, parts, parts_from_rows):
    if accumulator.startswith("int"):
        return "never"
    if reduction == "atomics" and not parts < 3:
        return "between runs"
    return "between batches" if parts_from_rows else "never"
