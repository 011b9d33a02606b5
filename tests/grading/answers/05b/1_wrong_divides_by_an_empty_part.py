# wrong, exception: empty
import torch
from instruments.backend import tl, triton


def merge(count_a, mean_a, deviations_a, count_b, mean_b, deviations_b):
    apart = (mean_b - mean_a) ** 2 / (1 / count_a + 1 / count_b)
    count = count_a + count_b
    return count, (count_a * mean_a + count_b * mean_b) / count, deviations_a + deviations_b + apart
