# right
import numpy as np


def distinct_sums(values):
    numbers = np.array(values, dtype=np.float32)
    reachable = {0: {np.float32(0).tobytes()}}  # sums by the set of values that are in them
    full = (1 << len(numbers)) - 1
    for used in range(full + 1):
        for stored in reachable.get(used, ()):
            total = np.frombuffer(stored, np.float32)[0]
            for i, number in enumerate(numbers):
                if not used >> i & 1:
                    reachable.setdefault(used | 1 << i, set()).add(np.float32(total + number + np.float32(0)).tobytes())
    return len(reachable[full])


def bits_change(reduction, accumulator, parts, parts_from_rows):
    table = {("atomics", "fp32"): "between runs" if parts > 2 else ""}
    by_batch = "between batches" if parts_from_rows and accumulator != "int32" else "never"
    return table.get((reduction, accumulator)) or by_batch
