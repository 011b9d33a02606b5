# wrong, values: Both directions count
import torch
from instruments.backend import tl, triton


def wrong_claim(claims, l2):
    for c in claims:
        if abs(c["gbps"] / (c["read"] / c["microseconds"] / 1e3) - 1) > 0.01:
            return c["name"], "binary units"
