"""Launches that cost the host less: a compiled kernel is kept and launched again without Triton's lookup.

Each `kernel[grid](...)` costs Triton about 20 µs on the host of an H200 (bench/host.py): it reads its settings, works
out how every argument specializes the kernel, builds a key and looks the kernel up. `quick` keeps the compiled kernel
under a key that is cheaper to build and at least as fine:

- the current device;
- the type and value of every argument that is not a tensor, so whatever Triton may specialize on is in the key;
- of a tensor its dtype and whether its address is a multiple of 16 bytes, as in Triton's own key;
- of a tensor descriptor its dtype, block, layout and padding, as in Triton's own key.

Pointers, the grid and the stream are no part of the key: they are passed at each launch. Everything else takes Triton's
own way: another package's kernels (so that peers are timed as they are), grids that are functions (autotuning), hooks
of profilers, keyword arguments that are tensors. `TRITON_DEBUG` counts where a kernel is first launched.
"""

from collections.abc import Callable

import torch

PACKAGE = "kernels."  # whose kernels these are
MOST = 4096  # launches remembered per kernel, after which all are forgotten
PLAIN = (int, float, bool, type(None), str)


def quick(triton_run: Callable) -> Callable:
    """A `JITFunction.run` that keeps what it launched. triton_run: Triton's own."""
    from triton import knobs
    from triton.runtime import driver

    settings, current_device, stream_of = knobs.runtime, torch.cuda.current_device, None
    plain, tensor = frozenset(PLAIN), torch.Tensor

    def part(value):
        """What an argument that is neither a plain value nor a plain tensor adds to the key."""
        if type(value) is tuple:
            return tuple([item if type(item) in plain else part(item) for item in value])
        if isinstance(value, tensor):
            return value.dtype, value.data_ptr() % 16 == 0
        if hasattr(value, "block_shape"):  # a tensor descriptor, Triton's or Gluon's
            return value.base.dtype, *value.block_shape, getattr(value, "layout", None), value.padding
        return value

    def hooked(kernel) -> bool:
        """Whether a hook, of the kernel or of a profiler, has to see its launches."""
        enter, leave = settings.launch_enter_hook, settings.launch_exit_hook
        return bool(kernel.pre_run_hooks or getattr(enter, "calls", enter) or getattr(leave, "calls", leave))

    def run(self, *args, grid, warmup, **kwargs):
        if warmup or not self.module.startswith(PACKAGE) or callable(grid) or hooked(self):
            return triton_run(self, *args, grid=grid, warmup=warmup, **kwargs)
        try:
            launches = self.launches
        except AttributeError:
            launches = self.launches = {}
        device = current_device()
        try:
            values = [
                value
                if type(value) in plain
                else (value.dtype, value.data_ptr() % 16 == 0)
                if type(value) is tensor
                else part(value)
                for value in args
            ]
            key = (device, *values, *map(type, args), *kwargs.items())
            launch = launches.get(key)
        except TypeError:
            return triton_run(self, *args, grid=grid, warmup=warmup, **kwargs)
        if launch is None:
            nonlocal stream_of
            stream_of = driver.active.get_current_stream
            compiled = triton_run(self, *args, grid=grid, warmup=warmup, **kwargs)
            if compiled is not None and not any(map(holds_memory, kwargs.values())):
                if len(launches) >= MOST:
                    launches.clear()
                launches[key] = launch_of(self, compiled, args, kwargs)
            return compiled
        compiled, start, function, metadata, rest = launch
        size = len(grid)
        x, y, z = grid[0], grid[1] if size > 1 else 1, grid[2] if size > 2 else 1
        start(x, y, z, stream_of(device), function, metadata, None, None, None, *args, *rest)
        return compiled

    def planned(launch: Launch, tensors: tuple):
        """What a Launch does while launches go to the GPU."""
        device, kernel = current_device(), launch.kernel
        known = launch.known.get(device)
        if known is None or hooked(kernel):
            compiled = kernel[launch.grid](*tensors, *launch.sizes, **launch.options)
            if compiled is not None:
                _, start, *handles, rest = launch_of(kernel, compiled, (*tensors, *launch.sizes), launch.options)
                stream_of = driver.active.get_current_stream
                launch.known[device] = start, stream_of, (*handles, None, None, None), (*launch.sizes, *rest)
            return
        start, stream_of, handles, rest = known
        start(*launch.blocks, stream_of(device), *handles, *tensors, *rest)

    run.planned = planned
    return run


class Launch:
    """A kernel's launch in which everything but the tensors is fixed, to be part of a plan that is kept by metadata.

    Args:
        kernel: takes tensors first, then sizes, then constexprs.
        grid: numbers of programs.
        *sizes: the arguments behind the tensors.
        **options: constexprs, num_warps and such; no tensors.

    Note:
        It is called with the tensors alone: tensors, None and tensor descriptors. From call to call they may differ in
        address and elements, but not in dtype, in the address modulo 16, nor in what is None; a descriptor also not in
        block, layout and padding.
    """

    __slots__ = "kernel", "grid", "blocks", "sizes", "options", "known"

    def __init__(self, kernel, grid: tuple, *sizes, **options):
        self.kernel, self.grid, self.sizes, self.options = kernel, grid, sizes, options
        self.blocks = (*grid, 1, 1)[:3]
        self.known = {}  # device -> the compiled kernel's start and the arguments around the tensors

    def __call__(self, *tensors):
        planned = getattr(type(self.kernel).run, "planned", None)
        if planned is None:  # redirected, observed, or Triton's own way
            self.kernel[self.grid](*tensors, *self.sizes, **self.options)
        else:
            planned(self, tensors)


def holds_memory(value) -> bool:
    """Whether an argument is a tensor or a tensor descriptor, or may hold one."""
    return isinstance(value, (torch.Tensor, tuple)) or hasattr(value, "block_shape")


def launch_of(kernel, compiled, args: tuple, kwargs: dict) -> tuple:
    """(compiled, its launcher, function, metadata, what follows `args` in the kernel's signature)."""
    names = kernel.arg_names[len(args) :]
    defaults = {name: parameter.default for name, parameter in kernel.signature.parameters.items()}
    rest = tuple(kwargs[name] if name in kwargs else defaults[name] for name in names)
    return compiled, compiled.run, compiled.function, compiled.packed_metadata, rest
