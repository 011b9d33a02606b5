"""Watches what torch does while a learner's function runs: which operations, and on how many elements."""

import threading
from contextlib import contextmanager

import torch
from torch.utils._python_dispatch import TorchDispatchMode

#: What hands a whole tensor to Python or NumPy
TO_PYTHON = ("tolist", "numpy", "__array__", "__dlpack__", "__repr__", "__format__")


class Operations(TorchDispatchMode):
    """What torch does while the mode is on.

    Attributes:
        counts: {torch operation: elements of its largest operand}; views do not count.
        read: operations that return a tensor's number to Python, or a result whose size depends on one: on a GPU the
            host waits for them.
        written: {address of a storage: the value of `clock()` when an operation last wrote to it}.
    """

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """False, or torch would import its compiler first, seconds of each check: nothing is compiled in a mode."""
        return False

    def __init__(self, clock=lambda: 0):
        super().__init__()
        self.counts, self.read, self.written, self.clock = {}, [], {}, clock

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        own = getattr(torch._library.custom_ops, "OPDEFS", {}).get(func._schema.name)
        if own is not None:  # an operation that the learner registered: what it does inside counts
            with self:
                return own._init_fn(*args, **(kwargs or {}))
        result = func(*args, **(kwargs or {}))
        if _gives_numbers(func, args, kwargs or {}):
            name = func._schema.name.split("::")[-1].strip("_")
            self.read.append("item" if name == "local_scalar_dense" else name)
        if func._schema.is_mutable:
            for place, argument in enumerate(func._schema.arguments):
                value = args[place] if place < len(args) else (kwargs or {}).get(argument.name)
                if argument.alias_info is not None and argument.alias_info.is_write and isinstance(value, torch.Tensor):
                    self.written[value.untyped_storage().data_ptr()] = self.clock()
        if not any(r.alias_info is not None and not r.alias_info.is_write for r in func._schema.returns):
            flat = torch.utils._pytree.tree_leaves((args, kwargs, result))
            self.count(func._schema.name.split("::")[-1], flat)
        return result

    def count(self, name: str, operands) -> None:
        elements = max((t.numel() for t in operands if isinstance(t, torch.Tensor)), default=0)
        self.counts[name] = max(elements, self.counts.get(name, 0))


class Handovers(torch.overrides.TorchFunctionMode):
    """Counts what hands a tensor to Python or NumPy, where torch no longer sees what is done with it."""

    def __init__(self, operations: Operations):
        super().__init__()
        self.operations = operations

    def __torch_function__(self, func, types, args=(), kwargs=None):
        name = getattr(func, "__name__", "")
        if name in TO_PYTHON or name == "tensor_split" and any(isinstance(a, torch.Tensor) for a in args[1:]):
            self.operations.count(name.strip("_"), args[:1])
            self.operations.read.append(name.strip("_"))
        return func(*args, **(kwargs or {}))


def _gives_numbers(func, args: tuple, kwargs: dict) -> bool:
    if func._schema.name == "aten::index":  # by numbers its size is known, by a mask it is not
        return any(i is not None and i.dtype in (torch.bool, torch.uint8) for i in args[1])
    if func._schema.name == "aten::repeat_interleave" and kwargs.get("output_size") is not None:
        return False
    return bool({torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape} & set(func.tags))


@contextmanager
def watched(clock=lambda: 0):
    """Yields the Operations of the block, those of threads that it starts included."""
    operations, run = Operations(clock), threading.Thread.run

    def run_watched(self):
        with operations, Handovers(operations):
            run(self)

    threading.Thread.run = run_watched
    try:
        with operations, Handovers(operations):
            yield operations
    finally:
        threading.Thread.run = run


@contextmanager
def poisoned():
    """New tensors hold NaN (the largest integer) instead of whatever the memory held before."""
    before = torch.get_deterministic_debug_mode(), torch.utils.deterministic.fill_uninitialized_memory
    torch.set_deterministic_debug_mode("warn")  # torch.use_deterministic_algorithms imports Inductor: seconds
    torch.utils.deterministic.fill_uninitialized_memory = True
    try:
        yield
    finally:
        torch.set_deterministic_debug_mode(before[0])
        torch.utils.deterministic.fill_uninitialized_memory = before[1]
