# right
import torch
from instruments.backend import tl, triton


def near(x, mantissa, least, largest):
    step = 2.0 ** (max(least, torch.frexp(torch.tensor(x)).exponent.item() - 1) - mantissa)
    return min(round(x / step) * step, largest)


def by_hand():
    fp4, fp8 = (1, 0, 6.0), (3, -6, 448.0)
    found = [near(float(x), *fp4) for x in (2.5, 5, 1.75, 100)]
    found += [near(float(x), *fp8) for x in (0.3, 17, 1000, 0.01, 0.0009)]
    return [*found, 2, 2 * near(3.5, *fp4), 2 * near(0.25, *fp4)]
