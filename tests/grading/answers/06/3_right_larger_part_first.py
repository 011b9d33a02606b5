# right
import torch
from instruments.backend import tl, triton

from math import exp


def merge(m_a, l_a, o_a, m_b, l_b, o_b):
    if m_a < m_b:
        return merge(m_b, l_b, o_b, m_a, l_a, o_a)
    if not l_b:
        return m_a, l_a, o_a
    factor = exp(m_b - m_a)
    return m_a, l_a + factor * l_b, o_a + factor * o_b
