"""What `portrait` and other tools have to know of an operator beyond its function: how its sizes are called.

Each family declares its operators in its `operators.py`, as {name: Operator}.
"""

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch

from instruments.traffic import Traffic


@dataclass(frozen=True)
class Operator:
    """A public function of kernels/, its `..._traffic`, and how the sizes of one follow from a call of the other.

    Attributes:
        function: The public function.
        traffic: Its model.
        sizes: Called with the function's arguments; returns what they say of `traffic`'s parameters, by name.
            What the function and `traffic` call alike, such as path or causal, need not be returned.
        record: What the operator's records in bench/results are called, with the names of parameters in braces, such
            as "quantize_{scheme}"; "{causal}" stands for "_causal" or nothing.
        lengths: What a record's shape lists, by names of `traffic`'s parameters; where it lists something else, the
            shape of the function's first argument is shown in its place.
        from_lengths: Called with a record's shape; returns the sizes. By default these are `lengths`.
        reference: Plain PyTorch, where a call of it takes the same arguments.
    """

    function: Callable
    traffic: Callable[..., Traffic]
    sizes: Callable[..., dict]
    record: str
    lengths: tuple[str, ...] = ()
    from_lengths: Callable[..., dict] | None = None
    reference: Callable | None = None

    def sizes_of_call(self, arguments: tuple, options: dict) -> dict:
        """The sizes of a call.

        Args:
            arguments: Positional arguments of the function, or of one that takes the same tensors in the same order.
            options: Its keyword arguments.

        Raises:
            ValueError: The sizes cannot be taken from these arguments.
        """
        try:
            return self.sizes(*arguments, **options)
        except (TypeError, AttributeError, IndexError, ValueError) as error:
            call = f"{self.function.__name__}{inspect.signature(self.function)}"
            raise ValueError(f"arguments: got none to take sizes from ({error}), expected those of {call}") from None

    def sizes_of_record(self, shape: tuple[int, ...]) -> dict:
        """The sizes of a recorded shape."""
        if self.from_lengths:
            return self.from_lengths(*shape)
        return dict(zip(self.lengths, shape, strict=True))


ROWS = ("rows", "cols")
MATMUL = ("M", "N", "K")


def element_sizes(x: torch.Tensor, *_, **__) -> dict:
    """Of elementwise operators on tensors like the first, of any shape."""
    return {"size": x.numel(), "dtype": x.dtype}


def elements(*shape: int) -> dict:
    """The sizes of an elementwise operator's record."""
    return {"size": math.prod(shape)}


def row_sizes(x: torch.Tensor, *_, **__) -> dict:
    """Of operators on the rows of the first tensor, [..., cols]."""
    return {"rows": x.numel() // x.shape[-1], "cols": x.shape[-1], "dtype": x.dtype}


def even_counts(tokens: int, groups: int, top_k: int) -> list[int]:
    """Rows of each group where tokens * top_k rows are spread evenly."""
    each, more = divmod(tokens * top_k, groups)
    return [each + (group < more) for group in range(groups)]
