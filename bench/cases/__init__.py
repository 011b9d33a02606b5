"""What is timed, and what runs under the memory checker: a file for each family of kernels, found by being here.

Such a file has

    cases()                 what bench/run.py times: a list of Case, one for each kernel and shape, with the course's
                            function and every peer that computes the same
    RAGGED                  awkward sizes, a tuple of tuples; SHAPES serves what takes rows and columns
    sanitize(*size, dtype)  launches every kernel of the family on tensors of such a size, for bench/sanitize.py

and may have

    counted()               a list of Counted: calls whose DRAM bytes bench/counters.py reads
    grown()                 a list of Counted: calls whose peak of memory bench/memory.py measures
"""

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass, field
from types import ModuleType

import torch

from instruments.backend import device
from instruments.gpus import dtype_name
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

    arguments: makes them, at random, 16-bit unless said otherwise. traffic: the least that has to move. reference:
    computes the result in fp64; the first tensor of an implementation's result is compared with it. implementations:
    name -> factory of a function of the arguments, which raises ImportError where the peer is not installed.
    """

    kernel: str
    shape: tuple
    dtype: torch.dtype
    arguments: Callable
    traffic: Traffic
    reference: Callable
    implementations: dict = field(default_factory=dict)

    @property
    def name(self) -> str:
        return case_name(self.kernel, self.shape, dtype_name(self.dtype))


@dataclass(frozen=True)
class Counted:
    """A call whose DRAM bytes are read, or whose peak of memory. variant: which way of the kernel;
    make: gives the call."""

    kernel: str
    variant: str
    shape: tuple
    make: Callable


def launch_of(case: Case, name: str = "bytes-first") -> Counted:
    """An implementation of a case, to be counted as well as timed."""

    def make():
        function, args = case.implementations[name](), case.arguments()
        return lambda: function(*args)

    return Counted(case.kernel, name, case.shape, make)


def random(*shape, dtype) -> torch.Tensor:
    """Normal numbers, where the course puts its tensors."""
    return torch.randn(*shape, device=device()).to(dtype)


def with_gradients(*tensors: torch.Tensor) -> tuple:
    """The tensors, asked to gather gradients."""
    return tuple(tensor.requires_grad_() for tensor in tensors)


def by_columns(x: torch.Tensor) -> torch.Tensor:
    """A copy of a matrix whose columns lie together in memory, not its rows."""
    return x.detach().t().contiguous().t()


def compiled(function, **options):
    """The function as torch.compile makes it, for these sizes and no others."""
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


def wanted(only: str) -> tuple[str, ...]:
    """The names that a script's --only gives, with commas between them; none for all."""
    return tuple(name.strip() for name in only.split(",") if name.strip())


def families() -> dict[str, ModuleType]:
    """{name of a file in this folder: its module}, in the order of the names."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    return {name: importlib.import_module(f"{__name__}.{name}") for name in names}


def cases() -> list[Case]:
    """Every case, family by family, in the order they are timed."""
    return [case for family in families().values() for case in family.cases()]


def counted() -> list[Counted]:
    """Every call whose bytes are read, in the order they are profiled."""
    return [launch for family in families().values() if hasattr(family, "counted") for launch in family.counted()]


def grown() -> list[Counted]:
    """Every call whose peak of memory is measured, in that order."""
    return [call for family in families().values() if hasattr(family, "grown") for call in family.grown()]
