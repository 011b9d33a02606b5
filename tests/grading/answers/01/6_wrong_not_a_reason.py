# wrong, values: two strings
import torch
from instruments.backend import tl, triton


def wrong_claim(claims, l2):
    return "A", 1
