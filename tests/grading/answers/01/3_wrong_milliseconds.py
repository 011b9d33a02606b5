# wrong, mistake: launch_us * 1e-6
import torch
from instruments.backend import tl, triton


def break_even(bytes_per_element, bandwidth, launch_us):
    return launch_us * bandwidth * 1e9 / bytes_per_element
