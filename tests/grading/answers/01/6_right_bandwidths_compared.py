# right
import torch
from instruments.backend import tl, triton


def wrong_claim(claims, l2):
    for claim in claims:
        moved, time = claim["read"] + claim["written"], claim["microseconds"] * 1e-6
        if abs(claim["gbps"] * 1e9 * time / claim["read"] - 1) < 0.01:
            return claim["name"], "one way"
        if abs(claim["gbps"] * 2**30 * time / moved - 1) < 0.01:
            return claim["name"], "binary units"
        if claim["buffers"] * moved <= l2:
            return claim["name"], "cache"
