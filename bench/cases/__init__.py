"""What is timed, and what runs under the memory checker: a file for each family of kernels.

A file needs no entry anywhere: every file in this folder is imported. It has

    cases()                 what bench/run.py times: a list of Case, one for each kernel and shape, with the course's
                            function and every peer that computes the same
    RAGGED                  awkward sizes, a tuple of tuples; SHAPES serves kernels that take rows and columns
    sanitize(*size, dtype)  launches every kernel of the family on tensors of such a size, for bench/sanitize.py

and may have

    counter_calls()         a list of Call, whose DRAM bytes bench/counters.py reads
    peak_calls()            a list of Call, whose peak memory bench/memory.py measures
"""

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass, field
from types import ModuleType

import torch

from instruments.backend import device
from instruments.gpus import dtype_name
from instruments.kernel_hash import kernel_hash
from instruments.results import case_name
from instruments.traffic import Traffic

#: Rows and columns that end inside a tile, on the way from one plan of a kernel to the next.
SHAPES = (
    (1, 1),
    (3, 5),
    (7, 127),
    (33, 129),
    (5, 1000),
    (3, 4097),
    (2, 8191),
    (3, 8193),
    (2, 16385),
    (3, 33333),
    (2, 65537),
)

#: Rows and columns of norms whose width is no power of two, as in models that people run.
ODD_WIDTHS = ((65536, 768), (32768, 1536), (8192, 5120), (8192, 7168), (4096, 14336))


@dataclass(frozen=True)
class Case:
    """One kernel at one shape.

    Attributes:
        arguments: function that makes them, at random, 16-bit unless a family says otherwise.
        traffic: minimum traffic.
        reference: function of the arguments that computes the result in fp64; it is compared with the first tensor of
            an implementation's result.
        implementations: {name: factory of a function of the arguments}; the factory raises ImportError where a peer is
            not installed.
        others: {name of an implementation that computes something else, such as a matmul without its epilogue:
            reference for it}.
    """

    kernel: str
    shape: tuple
    dtype: torch.dtype
    arguments: Callable
    traffic: Traffic
    reference: Callable
    implementations: dict = field(default_factory=dict)
    others: dict = field(default_factory=dict)

    @property
    def name(self) -> str:
        return case_name(self.kernel, self.shape, dtype_name(self.dtype))

    @property
    def kernel_hash(self) -> str:
        """The hash of the kernels that the implementations may launch, as they are today."""
        return kernel_hash(self.implementations)


@dataclass(frozen=True)
class Call:
    """A call whose DRAM bytes or peak memory are measured.

    Attributes:
        variant: which way of the kernel.
        make: function that makes the arguments and returns the call, a function without arguments.
    """

    kernel: str
    variant: str
    shape: tuple
    make: Callable

    @property
    def kernel_hash(self) -> str:
        """The hash of the kernels that the call may launch, as they are today."""
        return kernel_hash(self.make)


def launch_of(case: Case, name: str = "bytes-first") -> Call:
    """An implementation of a case, as a call for the counters or for peak memory."""

    def make():
        function, args = case.implementations[name](), case.arguments()
        return lambda: function(*args)

    return Call(case.kernel, name, case.shape, make)


def random(*shape, dtype) -> torch.Tensor:
    """Normally distributed numbers on the device where the course puts its tensors."""
    return torch.randn(*shape, device=device()).to(dtype)


def with_gradients(*tensors: torch.Tensor) -> tuple:
    """The tensors, with requires_grad set."""
    return tuple(tensor.requires_grad_() for tensor in tensors)


def by_columns(x: torch.Tensor) -> torch.Tensor:
    """A copy of a matrix in column-major order."""
    return x.detach().t().contiguous().t()


def compiled(function, **options):
    """The function compiled by torch.compile, for these sizes alone."""
    torch._dynamo.reset()
    return torch.compile(function, dynamic=False, **options)


def minimum(read: dict, written: dict, rows, cols, dtype) -> Traffic:
    """What a norm's backward moves: {name: how many tensors of rows x cols}, a weight read and its gradient written."""
    full = rows * cols * dtype.itemsize
    weight = cols * dtype.itemsize
    return Traffic(
        {**{n: k * full for n, k in read.items()}, "weight": weight},
        {**{n: k * full for n, k in written.items()}, "dweight": weight},
    )


def names_in(only: str) -> tuple[str, ...]:
    """The names in a script's --only, separated by commas; an empty tuple means all."""
    return tuple(name.strip() for name in only.split(",") if name.strip())


def families() -> dict[str, ModuleType]:
    """{name of a file in this folder: its module}, in the order of the names."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    return {name: importlib.import_module(f"{__name__}.{name}") for name in names}


def cases() -> list[Case]:
    """Every case, family by family, in the order of timing."""
    return [case for family in families().values() for case in family.cases()]


def counter_calls() -> list[Call]:
    """Every call whose DRAM bytes are read, in the order of profiling."""
    return [
        launch
        for family in families().values()
        if hasattr(family, "counter_calls")
        for launch in family.counter_calls()
    ]


def peak_calls() -> list[Call]:
    """Every call whose peak memory is measured, in that order."""
    return [call for family in families().values() if hasattr(family, "peak_calls") for call in family.peak_calls()]
