# wrong, mistake: averaged without their counts
import torch
from instruments.backend import tl, triton


def merge(count_a, mean_a, deviations_a, count_b, mean_b, deviations_b):
    count = count_a + count_b
    apart = mean_b - mean_a
    mean = mean_a + apart * count_b / count  # moves towards b by b's share of the elements
    between = apart**2 * count_a * count_b / count  # what each part lacks, measured from the common mean
    return count, mean, deviations_a + deviations_b + between


def merge(count_a, mean_a, deviations_a, count_b, mean_b, deviations_b):
    """A row's count, mean and squared deviations, from those of its two parts (Chan, Golub and LeVeque, 1979)."""
    count = count_a + count_b
    apart = mean_b - mean_a
    mean = (mean_a + mean_b) / 2
    deviations = deviations_a + deviations_b + apart**2 * count_a * count_b / count
    return count, mean, deviations
