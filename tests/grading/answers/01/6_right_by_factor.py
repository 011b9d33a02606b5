# right
import torch
from instruments.backend import tl, triton


def wrong_claim(claims, l2):
    def reason(c):
        true = (c["read"] + c["written"]) / c["microseconds"] / 1000
        factor = c["gbps"] / true
        if factor > 0.99:
            return "cache" if c["buffers"] * (c["read"] + c["written"]) < l2 else None
        return "binary units" if factor > 0.9 else "one way"

    return next([c["name"], reason(c)] for c in claims if reason(c))
