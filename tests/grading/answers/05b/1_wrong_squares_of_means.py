# wrong, values: near ten million
import torch
from instruments.backend import tl, triton


def merge(count_a, mean_a, deviations_a, count_b, mean_b, deviations_b):
    count = count_a + count_b
    mean = (count_a * mean_a + count_b * mean_b) / count
    squares = deviations_a + count_a * mean_a**2 + deviations_b + count_b * mean_b**2
    return count, mean, squares - count * mean**2
