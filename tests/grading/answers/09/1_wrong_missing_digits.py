# wrong, values: write it as a fraction
import torch
from instruments.backend import tl, triton


def by_hand():
    a = 2  # 2 is 1.0 * 2, and 3 is 1.1 * 2 in binary: the tie goes to the mantissa that ends in 0
    b = 4
    c = 2
    d = 6
    e = 10 / 32  # between 0.25 and 0.5 the numbers are 1/32 apart: 0.3 is 9.6 of these
    f = 16
    g = 448
    h = 0.009766  # subnormal: 1/512 apart, and 0.01 is 5.12 of these
    i = 0  # 0.46 of 1/512
    j = 2  # 7 / 1 would be above 6
    k = 8  # 7 / 2 = 3.5, a tie between 3 and 4
    l = 0  # 0.5 / 2 = 0.25, a tie between 0 and 0.5
    return a, b, c, d, e, f, g, h, i, j, k, l
