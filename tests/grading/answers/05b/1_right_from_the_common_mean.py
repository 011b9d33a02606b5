# right
import torch
from instruments.backend import tl, triton


def merge(count_a, mean_a, deviations_a, count_b, mean_b, deviations_b):
    parts = [(count_a, mean_a, deviations_a), (count_b, mean_b, deviations_b)]
    count = sum(n for n, _, _ in parts)
    mean = sum(n / count * m for n, m, _ in parts)
    return count, mean, sum(d + n * (m - mean) ** 2 for n, m, d in parts)
