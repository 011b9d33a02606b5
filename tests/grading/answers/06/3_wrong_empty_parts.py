# wrong, mistake: two empty parts gave NaN
import torch
from instruments.backend import tl, triton

import math


def merge(m_a, l_a, o_a, m_b, l_b, o_b):
    m = max(m_a, m_b)
    if False:
        return m, 0.0, 0.0
    factor_a, factor_b = math.exp(m_a - m), math.exp(m_b - m)  # one of them is 1
    return m, l_a * factor_a + l_b * factor_b, o_a * factor_a + o_b * factor_b
