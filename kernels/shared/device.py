"""The properties of a GPU that launch plans depend on."""

from dataclasses import dataclass
from functools import cache

import torch

from instruments import backend
from instruments.gpus import GPUS


@dataclass(frozen=True)
class Device:
    """The figures of a GPU that plans depend on, by the names of instruments/gpus.py.

    Args:
        sms: number of SMs.
        shared_per_sm: bytes of shared memory per SM.
    """

    sms: int
    shared_per_sm: int


#: The interpreter's: few SMs, so that even on small tensors a persistent program has several tiles.
INTERPRETED = Device(3, GPUS["H200"].shared_per_sm)


@cache
def device_of(device: torch.device) -> Device:
    """The figures of a device; INTERPRETED for the CPU."""
    if device.type != "cuda":
        return INTERPRETED
    properties = torch.cuda.get_device_properties(device)
    return Device(properties.multi_processor_count, properties.shared_memory_per_multiprocessor)


@cache
def has_descriptors(device: torch.device, shared_bytes: int = 0) -> bool:
    """Whether kernels can load tiles through tensor descriptors (TMA, since Hopper) and have `shared_bytes` of shared
    memory per program. In the interpreter they can."""
    if device.type != "cuda":
        return True
    properties = torch.cuda.get_device_properties(device)
    return properties.major >= 9 and properties.shared_memory_per_block_optin >= shared_bytes


@cache
def is_hopper(device: torch.device) -> bool:
    """Whether a device is a Hopper GPU, which the Gluon kernels are written for."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) == (9, 0)


def has_dependent_launch(device: torch.device) -> bool:
    """Whether a kernel can be launched before the kernel that it depends on ends (programmatic dependent launch, since
    Hopper). Not in the interpreter."""
    return device.type == "cuda" and backend.mode() == "compiled" and has_descriptors(device)


class DescriptorPlan:
    """A TensorDescriptor without its tensor, to be part of a plan: Triton's, or with a layout Gluon's.

    Args:
        shape: sizes, all positive.
        strides: in elements, all but the last multiples of 16 bytes, the last 1. The caller has checked.
        block_shape: sizes of the tile that one load or store moves, powers of two.
        layout: of the tile in shared memory, for Gluon.
    """

    __slots__ = "kind", "fields"

    def __init__(self, shape, strides, block_shape, layout=None):
        if layout is None:
            from triton.tools.tensor_descriptor import TensorDescriptor
        else:
            from instruments.gluon import TensorDescriptor

        self.kind, self.fields = TensorDescriptor, {"shape": list(shape), "strides": list(strides)}
        self.fields |= {"block_shape": list(block_shape), "padding": "zero"}
        if layout is not None:
            self.fields["layout"] = layout

    def __call__(self, base: torch.Tensor):
        """The descriptor of a tensor on 16 bytes, with zeros for loads beyond the shape; without Triton's checks, which
        take the host microseconds."""
        descriptor = object.__new__(self.kind)
        descriptor.__dict__.update(self.fields, base=base)
        return descriptor


def tensor_descriptor(base: torch.Tensor, shape, strides, block_shape, layout=None):
    """The descriptor of `base` by a DescriptorPlan of the other arguments, where no plan is kept."""
    return DescriptorPlan(shape, strides, block_shape, layout)(base)
