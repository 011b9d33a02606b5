# right
import torch
from instruments.backend import tl, triton


def break_even(bytes_per_element, bandwidth, launch_us):
    elements_per_microsecond = bandwidth * 1e6 / bytes_per_element
    return elements_per_microsecond * launch_us
