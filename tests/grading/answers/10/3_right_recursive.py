# right
import torch


def distinct_sums(values):
    found = set()

    def go(total, rest):
        if not rest:
            found.add(total.item())
        for i in range(len(rest)):
            go(total + torch.tensor(rest[i], dtype=torch.float32), rest[:i] + rest[i + 1 :])

    go(torch.zeros((), dtype=torch.float32), list(values))
    return len(found)


def bits_change(reduction, accumulator, parts, parts_from_rows):
    rounds = accumulator == "fp32"
    if rounds and reduction == "atomics" and parts >= 3:
        return "between runs"
    if rounds and parts_from_rows:
        return "between batches"
    return "never"
