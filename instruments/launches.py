"""Records the kernels that a function launches, and plays them once more with other numbers in its inputs.

While a call is recorded no kernel runs. A launch is its kernel, its grid and its arguments; a tensor among them is a
view of a storage, which is either an input's or was made by the call, and then its content is recorded too: what torch
or Python had put there. A player launches the same kernels on fresh storages of that content and on other inputs, so a
result that is right then was computed by the kernels.
"""

import copy
import pickle
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from instruments import backend
from instruments.operations import poisoned, watched

MAX_LAUNCHES = 10_000  # of one call
MAX_CONFIGS = 64  # of an autotuner
SMALL, ALL = 1 << 20, 1 << 25  # bytes of one storage whose content is recorded, and of all of a task
OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")


class Refused(ValueError):
    """Launches that cannot be recorded or played; the text says why."""


@dataclass
class View:
    """A tensor as a view of a storage, by its number."""

    storage: int
    dtype: torch.dtype
    offset: int
    shape: tuple
    stride: tuple


@dataclass
class State:
    """What a storage held before a launch. argument: the input whose storage it is. fresh: no launch met it before.
    content: its bytes, a row per element, one row where all are alike; None where it is too large to be recorded."""

    dtype: torch.dtype
    nbytes: int
    fresh: bool
    argument: str = ""
    content: torch.Tensor | None = None


@dataclass
class Launch:
    """One launch. before: {storage: State}, where something other than a kernel changed it. configs: the same launch
    with the autotuner's other configs."""

    kernel: Any
    grid: tuple
    args: dict
    options: dict
    before: dict
    configs: list = field(default_factory=list)


@dataclass
class Call:
    """A recorded call.

    Attributes:
        returned: what it returned, tensors as views.
        new_storages: addresses of the storages that it allocated.
        touched: whether something other than a kernel changed a returned tensor after the last launch.
    """

    launches: list = field(default_factory=list)
    returned: list = field(default_factory=list)
    new_storages: set = field(default_factory=set)
    touched: bool = False

    def form(self) -> str:
        """What two calls that differ in their numbers alone have in common."""

        def of(value):
            if isinstance(value, dict):
                return {name: of(item) for name, item in value.items()}
            if isinstance(value, Launch):
                return (id(value.kernel), value.grid, of(value.args), value.options, of(value.configs))
            return [of(item) for item in value] if isinstance(value, (list, tuple)) else repr(value)

        return repr((of(self.launches), of(self.returned)))

    def filled_otherwise(self, other: "Call") -> bool:
        """Whether before a launch a tensor that is no input held other bytes than in the other call: as a rule torch
        or Python computed them from the inputs' numbers."""
        pairs = [
            (state.content, theirs.before[storage].content)
            for ours, theirs in zip(self.launches, other.launches)
            for storage, state in ours.before.items()
            if storage in theirs.before
        ]
        return any(a is not None and b is not None and not torch.equal(a, b) for a, b in pairs)


class Recorder:
    """Records the calls of one task: trace holds {case: its calls}."""

    def __init__(self):
        self.trace: dict[str, list] = {}
        self.recorded_bytes = 0
        self.storages: list = []  # kept, so that no address is handed out twice

    def call(self, case: str, function, arguments: dict) -> tuple:
        """(what `function` returned, instruments.operations.Operations); adds the call to the trace."""
        recording = _Recording(self, arguments)
        with (
            poisoned(),
            watched(lambda: len(recording.call.launches)) as operations,
            backend.recording(recording.launch),
        ):
            recording.written = operations.written
            returned = function(*arguments.values())
        recording.end(returned)
        self.trace.setdefault(case, []).append(recording.call)
        return returned, operations


class _Recording:
    """One call while it is recorded."""

    def __init__(self, recorder: Recorder, arguments: dict):
        self.recorder, self.call = recorder, Call()
        self.arguments = {
            value.untyped_storage().data_ptr(): name
            for name, value in arguments.items()
            if isinstance(value, torch.Tensor) and value.numel()
        }
        self.numbers, self.contents = {}, {}  # of storages: address -> number, number -> content at the last launch
        self.met: dict[int, int] = {}  # number of a storage -> the last launch that met it
        self.written: dict[int, int] = {}  # address of a storage -> launches before torch last wrote to it

    def launch(self, launch) -> None:
        if len(self.call.launches) >= MAX_LAUNCHES:
            raise RuntimeError(f"more than {MAX_LAUNCHES:,} kernels were launched in one call")
        with torch.utils._python_dispatch._disable_current_modes(), torch._C.DisableTorchFunction():
            self.call.launches.append(self._described(launch))

    def _described(self, launch) -> Launch:
        before: dict = {}
        args = {name: self._value(value, before) for name, value in launch.args.items()}
        options = {k: v for k, v in launch.options.items() if k in OPTIONS and v is not None}
        others = [self._described(other) for other in launch.others[:MAX_CONFIGS]]
        return Launch(launch.kernel, tuple(int(n) for n in launch.grid), args, options, before, others)

    def end(self, returned) -> None:
        items = list(returned)[:100] if isinstance(returned, (tuple, list)) else [returned]
        self.call.returned = [self._value(item, None) for item in items]
        self.call.new_storages = set(self.numbers) - set(self.arguments)
        self.call.touched = any(self._touched(item) for item in items)

    def _value(self, value, before: dict | None):
        """An argument with its tensors as views. before: gets the state of their storages."""
        if isinstance(value, torch.Tensor):
            number = self._storage(value, before)
            return View(number, value.dtype, value.storage_offset(), tuple(value.shape), tuple(value.stride()))
        if isinstance(value, (tuple, list)):
            return tuple(self._value(item, before) for item in value)
        return _with_base(value, lambda base: self._value(base, before))

    def _storage(self, tensor: torch.Tensor, before: dict | None) -> int:
        storage = tensor.untyped_storage()
        key = storage.data_ptr()
        if before is None:
            return self.numbers.get(key, -1)
        fresh = key not in self.numbers
        if fresh:
            self.numbers[key] = len(self.numbers)
            self.recorder.storages.append(storage)
        number = self.numbers[key]
        if number not in before:
            state = State(tensor.dtype, storage.nbytes(), fresh, self.arguments.get(key, ""))
            if state.argument or self._changed(state, storage, number):
                before[number] = state
        self.met[number] = len(self.call.launches)
        return number

    def _changed(self, state: State, storage, number: int) -> bool:
        """Put the content of a storage into its state; whether it changed since the last launch that met it."""
        flat = torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
        items = flat[: len(flat) // state.dtype.itemsize * state.dtype.itemsize].view(-1, state.dtype.itemsize)
        alike = len(items) > 0 and bool((items == items[0]).all())
        if not alike and len(flat) > SMALL:
            return state.fresh
        state.content = items[: 1 if alike else None].cpu().clone()
        last = self.contents.get(number)
        rewritten = self.written.get(storage.data_ptr(), -1) > self.met.get(number, 0)
        if not state.fresh and not rewritten and last is not None and torch.equal(last, state.content):
            return False
        self.contents[number] = state.content
        self.recorder.recorded_bytes += state.content.numel()
        if self.recorder.recorded_bytes > ALL:
            state.content = None
        return True

    def _touched(self, value) -> bool:
        key = value.untyped_storage().data_ptr() if isinstance(value, torch.Tensor) else None
        if key not in self.numbers or key in self.arguments:
            return False
        if self.written.get(key, -1) == len(self.call.launches):
            return True
        storage = value.untyped_storage()
        return self._changed(State(value.dtype, storage.nbytes(), False), storage, self.numbers[key])


# ---------------------------------------------------------------- between two processes


def save(trace: dict, namespace: dict, path: Path) -> None:
    """Write a trace; kernels and functions go by their names in `namespace`. Refused where one has none."""
    names = {id(value): name for name, value in namespace.items()}
    for name, value in namespace.items():
        while hasattr(value, "fn"):  # the function inside an autotuner, or inside heuristics
            value = value.fn
            names.setdefault(id(value), name)

    class Pickler(pickle.Pickler):
        def persistent_id(self, value):
            if hasattr(value, "fn") or callable(value) and getattr(value, "__module__", "") == "__main__":
                if id(value) not in names:
                    name = getattr(getattr(value, "fn", value), "__name__", "?")
                    raise Refused(f"{name} is not defined at the top level of the answer cell")
                return names[id(value)]
            return None

    try:
        with path.open("wb") as file:
            Pickler(file).dump(trace)
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        raise Refused(f"an argument of a launch cannot be recorded: {error}") from None


def load(path: Path, namespace: dict) -> dict:
    """The trace at `path`, with the kernels of `namespace`."""

    class Unpickler(pickle.Unpickler):
        def persistent_load(self, name):
            return kernel_of(namespace[name])

    with path.open("rb") as file:
        return Unpickler(file).load()


def kernel_of(value):
    """The function under @triton.jit inside an autotuner or heuristics."""
    while hasattr(value, "fn") and hasattr(value.fn, "fn"):
        value = value.fn
    return value


# ---------------------------------------------------------------- playing


class Player:
    """The launches of a recorded call as a function of its inputs.

    Attributes:
        names: of the inputs.
        poison: fill new tensors with what they held when they were recorded, and with NaN where they were not
            initialized; only a timed call does without.
        choices: {number of a launch: the config of an autotuner to launch}.
    """

    def __init__(self, call: Call, names: list, poison: bool = True):
        self.call, self.names, self.poison = call, names, poison
        self.choices: dict[int, Launch] = {}
        self.contents: dict = {}  # of states, on the device: a CUDA graph cannot copy from the host

    def __call__(self, *arguments) -> tuple:
        storages: dict = {}
        inputs = {name: value for name, value in zip(self.names, arguments) if isinstance(value, torch.Tensor)}
        for number, launch in enumerate(self.call.launches):
            for storage, state in launch.before.items():
                self._fill(storages, storage, state, inputs)
            launch = self.choices.get(number, launch)
            values = {name: self._value(value, storages) for name, value in launch.args.items()}
            launch.kernel[launch.grid](**values, **launch.options)
        return tuple(self._value(item, storages) for item in self.call.returned)

    def tune(self, arguments: dict) -> None:
        """Choose the fastest config of every autotuned launch, one launch after the other; for a GPU."""
        from instruments.timing import from_graphs

        for number, launch in enumerate(self.call.launches):
            seconds = {}
            for choice, config in enumerate([launch, *launch.configs] if launch.configs else []):
                self.choices[number] = config
                try:
                    self(*arguments.values())
                    seconds[choice] = from_graphs({"": self}, tuple(arguments.values()), 1 << 28)[""].median
                except Exception:  # this GPU refuses the config
                    continue
            if seconds:
                self.choices[number] = [launch, *launch.configs][min(seconds, key=seconds.get)]

    def _fill(self, storages: dict, number: int, state: State, inputs: dict) -> None:
        if state.argument:
            storages[number] = inputs[state.argument].untyped_storage()
            return
        if number not in storages:
            fresh = torch.empty(state.nbytes, dtype=torch.uint8, device=backend.device())
            storages[number] = fresh.untyped_storage()
        flat = torch.empty(0, dtype=torch.uint8, device=backend.device()).set_(storages[number])
        if state.content is None:  # too large to be recorded, and none of the task's tensors
            flat.fill_(0xFF) if state.fresh else None
        elif self.poison or not (state.fresh and _is_poison(state.content.view(state.dtype))):
            size = state.dtype.itemsize
            if id(state) not in self.contents:
                self.contents[id(state)] = state.content.to(flat.device)
            flat[: len(flat) // size * size].view(-1, size).copy_(self.contents[id(state)])

    def _value(self, value, storages: dict):
        if isinstance(value, View):
            if value.storage not in storages:  # no kernel had to do with it
                return torch.full(value.shape, _poison(value.dtype), dtype=value.dtype, device=backend.device())
            empty = torch.empty(0, dtype=value.dtype, device=backend.device())
            return empty.set_(storages[value.storage], value.offset, value.shape, value.stride)
        if isinstance(value, tuple):
            return tuple(self._value(item, storages) for item in value)
        return _with_base(value, lambda base: self._value(base, storages))


def _with_base(value, change):
    """A tensor descriptor made on the host, with its tensor changed; anything else as it is."""
    if not (hasattr(value, "block_shape") and hasattr(value, "base")):
        return value
    value = copy.copy(value)
    value.base = change(value.base)
    return value


def _poison(dtype: torch.dtype):
    return float("nan") if dtype.is_floating_point else 0


def _is_poison(items: torch.Tensor) -> bool:
    if items.dtype.is_floating_point:
        return bool(items.isnan().all())
    return items.dtype != torch.bool and bool((items == torch.iinfo(items.dtype).max).all())
