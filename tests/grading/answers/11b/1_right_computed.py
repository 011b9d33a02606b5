# right
import torch
from instruments.backend import tl, triton

import math


def by_hand():
    loads = [3072, 512, 1024, 1024, 1024, 512, 768, 256]
    capacity = math.ceil(1.25 * sum(loads) / 8)
    pairs = [sum(loads[i : i + 2]) for i in range(0, 8, 2)]
    sent = 2048 * 8192 * 3 / 4
    return [
        capacity,
        sum(max(0, n - capacity) for n in loads),
        max(pairs),
        max(pairs) / (sum(pairs) / 4),
        max(loads) + min(loads),
        sent,
        sent / 450e9 * 1e6,
        1 - 1 / 8,
    ]
