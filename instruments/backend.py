"""Where kernels run: compiled on a GPU, or in the interpreter, chosen per launch and by itself.

Importing this module is all a kernel file does about it. With a GPU, launches are Triton's own. Without one, and inside
`interpret()`, they are redirected to instruments/interpreter/. The environment variable TRITON_INTERPRET is never
set: under it nothing could be compiled any more. Where triton is missing (it has wheels for Linux only), stand-ins let
the kernel files be imported, so that traffic models and panels work, and a launch says what to do.
"""

import os
import threading
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch

NO_TRITON = (
    'Triton is not installed here, and kernels need it: on Linux run `pip install "triton>=3.6,<3.10"`; on macOS '
    "use Colab, a Linux container or a remote machine, on Windows use WSL2."
)

if os.environ.pop("TRITON_INTERPRET", "0") not in ("", "0"):  # the course interprets launch by launch instead
    import sys

    if "triton" in sys.modules:
        raise ImportError(
            "TRITON_INTERPRET was set when triton was imported; unset it and restart the kernel: "
            "the course chooses the interpreter by itself."
        )
os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")  # what Triton did before 3.9, without its warning

try:
    import triton
    import triton.language as tl
    from triton.runtime.autotuner import Autotuner
    from triton.runtime.jit import JITFunction
except ImportError:
    triton = None

TRIED = ("3.6", "3.7", "3.9")


@dataclass(frozen=True)
class LaunchRecord:
    """One launch as it was asked for. args: parameter name -> value, constexprs included; options: num_warps and such.

    others: the same launch with the other configs of an autotuner, where `recording` was asked for it. restored: the
    arguments that the autotuner puts back after each try; None where hooks of its own see to that.
    """

    kernel: Any
    grid: tuple
    args: dict
    options: dict
    others: tuple = ()
    restored: tuple | None = ()

    @property
    def name(self) -> str:
        return self.kernel.fn.__name__


#: (thread, launcher, identity), innermost last: called instead of Triton's own way to launch
_launchers: list[tuple] = []
_observers: list[Callable] = []
_alternatives: dict | None = None  # inside `recording`: what an autotuner's next launch is told of the other configs


def _launcher() -> Callable | None:
    """The innermost launcher of this thread, None for Triton's own.

    A panel may meter in one thread while a cell runs kernels in another. Threads that Python did not start are
    autograd's, which run the backward of GPU tensors on behalf of whoever asked.
    """
    thread = threading.current_thread()
    foreign = isinstance(thread, threading._DummyThread)
    return next((launcher for owner, launcher, _ in reversed(_launchers) if foreign or owner in (None, thread)), None)


def redirects() -> bool:
    """Whether launches are redirected or observed now, as on a machine without a GPU, under a meter or `watch`."""
    return bool(_launchers or _observers)


def triton_launches():
    """A context inside which compiled launches go Triton's own way, without instruments/launcher.py; bench/host.py
    compares the two."""
    raise RuntimeError(NO_TRITON)


def _route():
    """Put the redirecting run in place, or Triton's own, as _launchers and _observers ask; `_install` makes it."""


def _record(kernel, grid, args, kwargs) -> LaunchRecord:
    names = set(kernel.arg_names)
    bound = kernel.signature.bind(*args, **{k: v for k, v in kwargs.items() if k in names})
    bound.apply_defaults()
    grid = grid(bound.arguments) if callable(grid) else grid
    grid = (grid,) if isinstance(grid, int) else tuple(grid)
    return LaunchRecord(kernel, grid, dict(bound.arguments), {k: v for k, v in kwargs.items() if k not in names})


def _interpreted(kernel, grid, args, kwargs, **how):
    from instruments import interpreter

    interpreter.launch(kernel, grid, args, kwargs, **how)


def _install():
    """Let launches be redirected and observed, and interpreted kernels call each other and skip tuning.

    While nothing redirects or observes, JITFunction.run is Triton's own, and a launch costs what it costs anywhere.
    """
    global _route, triton_launches
    from instruments.launcher import quick

    compiled_run, compiled_call, tuned_run = JITFunction.run, JITFunction.__call__, Autotuner.run
    quick_run = quick(compiled_run)

    def run(self, *args, grid, warmup, **kwargs):
        if warmup:
            return compiled_run(self, *args, grid=grid, warmup=warmup, **kwargs)
        for observer in list(_observers):
            observer(_record(self, grid, args, kwargs))
        launcher = _launcher()
        if launcher is not None:
            return launcher(self, grid, args, kwargs)
        from instruments import interpreter

        with interpreter.language_lock:  # another thread may be interpreting
            return compiled_run(self, *args, grid=grid, warmup=warmup, **kwargs)

    def call(self, *args, **kwargs):
        from instruments import interpreter

        if interpreter.running():
            return interpreter.call_device_function(self, *args, **kwargs)
        return compiled_call(self, *args, **kwargs)

    def autotuned(self, *args, **kwargs):
        if _launcher() is None:
            return tuned_run(self, *args, **kwargs)
        config = self.configs[0]  # nothing to time here; every config is tested on the GPU
        if _alternatives is not None:
            with captured() as others:
                for other in self.configs[1:]:
                    self.fn.run(*args, **kwargs, **other.all_kwargs())
            hooked = self.user_defined_pre_hook or self.user_defined_post_hook
            restored = None if hooked else (*self.restore_value, *self.reset_to_zero)
            _alternatives.update(others=tuple(others), restored=restored)
        chosen = {**dict(zip(self.arg_names, args)), **kwargs, **config.all_kwargs()}
        if config.pre_hook is not None:
            config.pre_hook({k: v for k, v in chosen.items() if k in self.arg_names})
        return self.fn.run(*args, **kwargs, **config.all_kwargs())

    def _route():
        JITFunction.run = run if redirects() else quick_run

    @contextmanager
    def triton_launches():
        nonlocal quick_run
        quick_run, before = compiled_run, quick_run
        _route()
        try:
            yield
        finally:
            quick_run = before
            _route()

    JITFunction.__call__, Autotuner.run = call, autotuned


def _stand_ins():
    """What kernel files see where triton is missing: everything imports, launching says what to do."""

    class Kernel:
        run = None

        def __init__(self, fn):
            self.fn, self.__name__, self.__doc__ = fn, fn.__name__, fn.__doc__

        def __getitem__(self, grid):
            raise RuntimeError(NO_TRITON)

    def jit(fn=None, **options):
        return Kernel(fn) if fn is not None else jit

    class constexpr:
        def __init__(self, value):
            self.value = value

    language = SimpleNamespace(constexpr=constexpr, dtype=object)
    return SimpleNamespace(
        jit=jit,
        autotune=lambda *a, **k: lambda kernel: kernel,
        heuristics=lambda *a, **k: lambda kernel: kernel,
        Config=lambda *a, **k: None,
        language=language,
        __version__="missing",
        cdiv=cdiv,
        next_power_of_2=next_power_of_2,
    ), language


def cdiv(a: int, b: int) -> int:
    """a / b, rounded up, on the host: `triton.cdiv` without its handling of constexprs, which takes microseconds."""
    return -(-a // b)


def next_power_of_2(n: int) -> int:
    """The smallest power of two that is at least n, on the host: `triton.next_power_of_2` in less time."""
    return 1 << max(0, n - 1).bit_length()


def mode() -> str:
    """'compiled' with a GPU, 'interpreted' without one or inside `interpret()`, 'unavailable' without triton."""
    if triton.__version__ == "missing":
        return "unavailable"
    return "interpreted" if _launcher() else "compiled"


def device() -> str:
    """Where the course puts its tensors: 'cuda' with a usable GPU, else 'cpu'."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def describe() -> str:
    """One sentence on what this machine can do."""
    if mode() == "unavailable":
        return f"torch {torch.__version__}, no triton: models and panels work. {NO_TRITON}"
    versions = f"triton {triton.__version__}, torch {torch.__version__}"
    if device() == "cuda":
        major, minor = torch.cuda.get_device_capability()
        return (
            f"{torch.cuda.get_device_name()} (sm_{major}{minor}), {versions}: kernels are compiled and run on the GPU."
        )
    return (
        f"No GPU, {versions}: kernels run in the interpreter, which proves results and counts bytes; speed is shown "
        f"as recorded on an H200."
    )


@contextmanager
def interpret(backwards: bool = False, large: bool = False):
    """Launches inside this block run in the interpreter, on any machine; a meter around the block still counts them.

    backwards: programs run from the last to the first, and so do the lanes of an atomic. A GPU promises no order of
    either, so a result that this changes is none to rely on. large: masked lanes of loads without `other`, which a GPU
    leaves undefined, hold the largest finite numbers, of either sign, and not NaN, which a maximum drops. (A meter
    around the block does neither.)
    """
    if mode() == "interpreted" and not backwards and not large:
        yield
    else:
        with launching(partial(_interpreted, backwards=backwards, large=large)):
            yield


@contextmanager
def launching(launcher: Callable):
    """This thread's launches inside this block call `launcher(kernel, grid, args, kwargs)` instead of running."""
    if mode() == "unavailable":
        raise RuntimeError(NO_TRITON)
    entry = (threading.current_thread(), launcher, object())  # equal to no other, however blocks nest
    _launchers.append(entry)
    _route()
    try:
        yield
    finally:
        _launchers.remove(entry)
        _route()


@contextmanager
def observe(callback: Callable):
    """`callback` gets a LaunchRecord before each launch inside this block, however the launch then runs."""
    _observers.append(callback)
    _route()
    try:
        yield
    finally:
        _observers.remove(callback)
        _route()


@contextmanager
def recording(callback: Callable):
    """Launches inside this block run nowhere: `callback` gets a LaunchRecord of each, an autotuner's other configs in
    `others`. Outputs are left unwritten."""
    global _alternatives

    def launcher(kernel, grid, args, kwargs):
        alternatives = dict(_alternatives)
        _alternatives.clear()
        callback(replace(_record(kernel, grid, args, kwargs), **alternatives))

    before, _alternatives = _alternatives, {}
    try:
        with launching(launcher):
            yield
    finally:
        _alternatives = before


@contextmanager
def captured():
    """Record launches without running them: yields the list of LaunchRecords. Outputs are left unwritten."""
    records = []
    with launching(lambda kernel, grid, args, kwargs: records.append(_record(kernel, grid, args, kwargs))):
        yield records


def _self_test():
    """Interpret, compile, interpret: on a Triton that the course was not tried with, one sentence says what breaks."""
    from instruments import compiler

    def step(name, ok):
        if not ok:
            raise RuntimeError(
                f"Triton {triton.__version__} is newer than the course was tried with ({', '.join(TRIED)}) "
                f"and fails its self-test: {name}. Install triton>=3.6,<3.10."
            )

    x = torch.arange(6, dtype=torch.float32).to(torch.bfloat16) / 3
    for attempt in ("interpreting", "interpreting after compiling"):
        y = torch.full_like(x, float("nan"))
        with interpret():
            _probe_kernel[(1,)](x, y, 6, BLOCK=8)
        step(attempt, torch.equal(y, x + x.float().sum().to(x.dtype)))
        with captured() as records:
            _probe_kernel[(1,)](x, y, 6, BLOCK=8)
        step("compiling for sm_80", bool(compiler.binary(records[0], arch=80).asm["ptx"]))


if triton is None:
    triton, tl = _stand_ins()
else:
    _install()
    if device() == "cpu":
        _launchers.append((None, _interpreted, None))
    _route()


@triton.jit
def _probe_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n, other=0.0)
    total = tl.sum(x.to(tl.float32) + tl.zeros([BLOCK], dtype=tl.float32))
    tl.store(y_ptr + offsets, x + total.to(x.dtype), mask=offsets < n)


if triton.__version__ != "missing" and not triton.__version__.startswith(TRIED):
    _self_test()

__all__ = [
    "LaunchRecord",
    "captured",
    "cdiv",
    "describe",
    "device",
    "interpret",
    "launching",
    "mode",
    "next_power_of_2",
    "observe",
    "recording",
    "redirects",
    "tl",
    "triton",
]
