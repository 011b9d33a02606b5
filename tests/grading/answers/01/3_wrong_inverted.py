# wrong, values: launch time
import torch
from instruments.backend import tl, triton


def break_even(bytes_per_element, bandwidth, launch_us):
    bytes_during_launch = launch_us * 1e-6 * bandwidth * 1e12
    return bytes_per_element / bytes_during_launch
