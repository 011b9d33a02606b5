# right
import torch
from instruments.backend import tl, triton

from fractions import Fraction


def merge(count_a, mean_a, deviations_a, count_b, mean_b, deviations_b):
    mean_a, mean_b = Fraction(mean_a), Fraction(mean_b)
    total = count_a * mean_a + count_b * mean_b
    count = count_a + count_b
    squares = count_a * mean_a**2 + count_b * mean_b**2 - total**2 / count
    return count, float(total / count), deviations_a + deviations_b + float(squares)
