"""Work that depends on tensors' metadata alone is done once: argument checks, the choice of a path, tiles, the grid.

An eager call of a small kernel costs what its host code costs, and most of that is the same each time: a training loop
or a decoder calls with the same shapes again and again. `by_metadata` keeps what a function returned for them.
"""

from collections.abc import Callable
from functools import wraps

import torch

from instruments import backend
from instruments.launcher import PLAIN

MOST = 1024  # results kept per function, after which all are forgotten

_kept: list[dict] = []  # the results of each function


def forget():
    """Forget all results: for tests that change what a plan depends on besides metadata, such as a table."""
    for results in _kept:
        results.clear()


def metadata(value):
    """What a launch may depend on besides the elements: of a tensor shape, strides, dtype, device, whether it wants a
    gradient, and its address modulo 16; of an object with a `metadata` method what that returns; else the value."""
    if isinstance(value, torch.Tensor):
        return value.shape, value.stride(), value.dtype, value.device, value.requires_grad, value.data_ptr() % 16
    of = getattr(value, "metadata", None)
    return of() if of else value


def by_metadata(function: Callable) -> Callable:
    """`function`, called once for arguments with the same metadata; its result is kept and returned again.

    Args:
        function: looks at its arguments' metadata alone, never at elements, and returns nothing that holds a tensor.
            An exception is raised anew each time.

    Returns:
        The function. It is called each time while launches are redirected (interpreter, meter, watch), since a plan
        may depend on that, and where an argument cannot be hashed.
    """
    results = {}
    _kept.append(results)
    grad_enabled, tensor, plain = torch.is_grad_enabled, torch.Tensor, frozenset(PLAIN)

    @wraps(function)
    def call(*args):
        if backend.redirects():
            return function(*args)
        parts = [grad_enabled()]
        for x in args:
            kind = type(x)
            if kind is tensor:  # as `metadata` has it, in less time
                parts += kind, x.shape, x.stride(), x.dtype, x.device, x.requires_grad, x.data_ptr() % 16
            else:
                parts += kind, x if kind in plain else metadata(x)
        key = tuple(parts)
        try:
            return results[key]
        except KeyError:
            pass
        except TypeError:
            return function(*args)
        result = function(*args)
        if len(results) >= MOST:
            results.clear()
        results[key] = result
        return result

    return call
