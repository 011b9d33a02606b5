# right
import torch
from instruments.backend import tl, triton


def merge(count_a, mean_a, deviations_a, count_b, mean_b, deviations_b):
    if not count_a:
        return count_b, mean_b, deviations_b
    if not count_b:
        return count_a, mean_a, deviations_a
    share = count_b / (count_a + count_b)
    apart = mean_a - mean_b
    between = apart * apart * share * count_a
    return count_a + count_b, mean_b + apart * (1 - share), deviations_a + deviations_b + between
