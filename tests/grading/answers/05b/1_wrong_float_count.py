# wrong, form: expected an int
import torch
from instruments.backend import tl, triton


def merge(count_a, mean_a, deviations_a, count_b, mean_b, deviations_b):
    count = count_a + count_b
    apart = mean_b - mean_a
    mean = mean_a + apart * count_b / count  # moves towards b by b's share of the elements
    between = apart**2 * count_a * count_b / count  # what each part lacks, measured from the common mean
    return float(count), mean, deviations_a + deviations_b + between
