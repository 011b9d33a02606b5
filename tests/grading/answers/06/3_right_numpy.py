# right
import torch
from instruments.backend import tl, triton

import numpy as np


def merge(*state):
    m, l, o = np.array(state).reshape(2, 3).T
    weights = np.exp(m - max(m.max(), -1e300))
    return float(m.max()), float(weights @ l), float(weights @ o)
