"""One launch in the interpreter: the kernel rewritten, its arguments typed, its programs run one after the other.

What the stock interpreter does instead (3.6 to 3.9, unless said otherwise):

* An environment variable decides once per process whether kernels are compiled or interpreted, and a helper's call
  leaves triton.language patched. Here it is patched while a launch runs, under `language_lock`, and restored.
* Its rewriter pours its own module into the kernel's globals. Here the rewritten kernel has a copy of them.
* A kernel's arguments have types of its own. Here they have those that the compiler gives them: int1 for True (3.9 has
  that too), int64 for a large int, fp32 for a float. The integer 1 is folded in as a Python number, so that
  `size.to(...)` fails for a size of 1, as on a GPU.
* A loop's variable is a Python int; here it is a tensor, as in compiled code. Another name for one of the language's
  functions (`exp = tl.exp`), members such as `x.sum(0)` and a constexpr before a tensor work as when compiled.
* `if tile:` is always true, as when compiled. Here the launch's guard is called as well, so that a check can say so.
* With NumPy 2.4, 3.6 cannot take a tensor as an index.
"""

import sys
import types

import numpy as np
import torch
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import make_backend
from triton.runtime import interpreter as stock
from triton.runtime.jit import JITFunction, create_function_from_signature

from instruments.interpreter.caches import CACHES
from instruments.interpreter.floats import narrow
from instruments.interpreter.memory import HINTS, LAUNCHES, Argument, Guard, Launch, check_hint, language_lock

TensorHandle = stock.TensorHandle

_REWRITER_NAMES = [n for n in ("interpreter_semantic", "_InterpreterComparison") if hasattr(stock, n)]


class _Rewriter(stock.FunctionRewriter):
    """Triton's rewriter, but the rewritten kernel gets a copy of its globals, refreshed for each launch."""

    def _compile_and_exec(self, transformed_ast):
        code = compile(transformed_ast, filename=self.filename, mode="exec")
        namespace = {}
        exec(code, {**self.fn.__globals__, **{name: getattr(stock, name) for name in _REWRITER_NAMES}}, namespace)
        return namespace[self.fn.__name__]


def _range(arg1, arg2=None, step=None, **options):
    """`range` and `tl.range` inside a kernel: the loop variable is a tensor, as it is when compiled."""
    start, end = (0, arg1) if arg2 is None else (arg1, arg2)
    numbers = range(int(start), int(end), 1 if step is None else int(step))
    return map(stock.interpreter_semantic.to_tensor, numbers)


class _Alias:
    """A function of triton.language under a name of the learner's own (`exp = tl.exp`): looked up when it is called,
    for the interpreter puts its own in the language's place while it runs."""

    def __init__(self, module, name: str):
        self.module, self.name = module, name

    def __call__(self, *args, **kwargs):
        return getattr(self.module, self.name)(*args, **kwargs)


#: {identity of a function of the language: where to look it up}
_ALIASES = {
    id(value): _Alias(module, name)
    for module in (tl.math, tl)
    for name, value in vars(module).items()
    if not name.startswith("_") and callable(value) and not isinstance(value, type)
}

_rewrites: dict = {}  # function -> what the rewriter makes of it


def _rewrite(kernel: JITFunction):
    """The kernel as Triton's rewriter leaves it, with today's globals."""
    fn = kernel.fn
    if fn not in _rewrites:
        _rewrites[fn] = _Rewriter(fn).rewrite_ast()
    rewrite = _rewrites[fn]
    rewrite.__globals__.update(fn.__globals__)  # later definitions and changed helpers are seen
    rewrite.__globals__.update(
        {name: _ALIASES[id(value)] for name, value in fn.__globals__.items() if id(value) in _ALIASES}
    )
    rewrite.__globals__.update({name: getattr(stock, name) for name in _REWRITER_NAMES}, range=_range)
    if fn.__closure__:
        rewrite.__globals__.update(
            {name: cell.cell_contents for name, cell in zip(fn.__code__.co_freevars, fn.__closure__)}
        )
    return rewrite


def call_device_function(kernel: JITFunction, *args, **kwargs):
    """A @triton.jit function called from inside an interpreted kernel."""
    return _rewrite(kernel)(*args, **kwargs)


def running() -> bool:
    """Whether a program of an interpreted launch is running right now."""
    return bool(LAUNCHES)


def line() -> tuple[str, int]:
    """File and number of the line that the running program is at, in the kernel or in a helper that it calls."""
    frame = sys._getframe(1)
    while not _is_kernel(frame):
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno


def _is_kernel(frame) -> bool:
    """Whether a frame is a kernel's or that of a helper it calls, and none of Triton's own."""
    return frame.f_globals.get("range") is _range and not frame.f_globals["__name__"].startswith("triton.")


#: Functions of the language that tensors have too (`x.sum(0)`): unbound where a kernel would be compiled
_MEMBERS = [
    name for name, value in vars(tl.core.tensor).items() if isinstance(value, JITFunction) and hasattr(tl, name)
]


def _member(name: str):
    return lambda self, *args, **kwargs: getattr(tl, name)(self, *args, **kwargs)


_OPERATORS = [
    f"__{r}{name}__"
    for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "and", "or", "xor", "lshift", "rshift")
    for r in ("", "r")
] + ["__lt__", "__le__", "__gt__", "__ge__", "__eq__", "__ne__"]


def _defer_to_tensor(method):
    """An operator of constexpr that leaves a tensor's to the tensor, as the compiler does."""

    def operator(self, other):
        return NotImplemented if isinstance(other, tl.core.tensor) else method(self, other)

    return operator


_LANGUAGE = types.SimpleNamespace(__globals__={"tl": tl, "core": tl.core})


def _argument_types(kernel: JITFunction, args, kwargs) -> list:
    """What the compiler makes of each argument: '*bf16', 'i32', 'fp32', ..., a tuple of these, or 'constexpr' for what
    is folded in: a tl.constexpr, None and, unless the kernel says do_not_specialize, the integer 1."""
    bind = create_function_from_signature(kernel.signature, kernel.params, make_backend(GPUTarget("cuda", 90, 32)))
    return [kind for kind, _ in bind(*args, **kwargs)[1]]


def _scalar(value, kind: str):
    """A number as the scalar of that type which a compiled kernel gets."""
    dtype = tl.str_to_ty(kind, None)
    data = np.array([value]).astype(np.float32 if dtype == tl.bfloat16 else stock._get_np_dtype(dtype))
    return tl.core.tensor(TensorHandle(narrow(data) if dtype == tl.bfloat16 else data, dtype), dtype)


class _Grid(stock.GridExecutor):
    """Runs a rewritten kernel over its grid, one program after the other, under a guard."""

    def run(self, kernel: JITFunction, guard: Guard, args, kwargs, backwards: bool, large: bool):
        parameters = set(self.arg_names)
        kwargs = {k: v for k, v in kwargs.items() if k in parameters}
        host_args, host_kwargs = self._init_args_hst(args, kwargs)
        bound = kernel.signature.bind(*host_args, **host_kwargs)
        passed = kernel.signature.bind(*args, **kwargs)
        for b in (bound, passed):
            b.apply_defaults()
        arguments: list[Argument] = []

        def convert(name, host, device, kind):
            if kind == "constexpr":
                return host
            if isinstance(host, tuple):
                items = enumerate(zip(host, device, kind))
                return _tuple(host, [convert(f"{name}[{i}]", *item) for i, item in items])
            if isinstance(host, stock.TensorDescriptor):
                desc = stock._implicit_cvt(host)
                desc.handle.base = convert(name, host.base, device.base, None).handle
                return desc
            if not hasattr(host, "data_ptr"):
                return _scalar(host, kind)
            pointer = stock._implicit_cvt(host)
            argument = Argument(len(arguments) + 1, name, stock._unwrap_tensor(host), stock._unwrap_tensor(device))
            arguments.append(argument)
            pointer.handle.data = np.array([argument.tagged], dtype=np.uint64)
            return pointer

        values = {
            name: convert(name, value, passed.arguments[name], kind)
            for (name, value), kind in zip(bound.arguments.items(), _argument_types(kernel, args, kwargs))
        }
        grid = self.grid(values) if callable(self.grid) else self.grid
        grid = tuple(int(n) for n in ((grid,) if isinstance(grid, int) else grid))
        if not 1 <= len(grid) <= 3:
            raise ValueError(f"grid: got {grid}, expected one to three numbers of programs")
        grid += (1,) * (3 - len(grid))
        launch = Launch(kernel, grid, arguments, guard, backwards, large)
        guard.begin(launch)
        builder = stock.interpreter_builder
        builder.set_grid_dim(*grid)
        LAUNCHES.append(launch)
        scope = stock._patch_lang(_LANGUAGE)
        scope.set_attr(tl, "range", _range)
        for name in _MEMBERS:
            scope.set_attr(tl.tensor, name, _member(name))
        for name in _OPERATORS:
            if hasattr(tl.constexpr, name):
                scope.set_attr(tl.constexpr, name, _defer_to_tensor(getattr(tl.constexpr, name)))
        scope.set_attr(tl.constexpr, "__rmod__", lambda self, other: tl.constexpr(other % self.value))  # has none
        for name, check in HINTS.items():
            scope.set_attr(tl, name, check_hint(getattr(tl, name), check))
        for kind, init in CACHES.items():
            scope.set_attr(kind, "__init__", init)
        scope.set_attr(tl.tensor, "__bool__", _truth)
        scope.set_attr(tl.tensor, "__index__", lambda self: self.handle.data.item())  # 3.6 with numpy 2.4 needs it
        try:
            with np.errstate(all="ignore"):  # a GPU does not warn either
                xs, ys, zs = (range(n)[::-1] if backwards else range(n) for n in grid)
                for x in xs:
                    for y in ys:
                        for z in zs:
                            builder.set_grid_idx(x, y, z)
                            launch.program = x, y, z
                            self.fn(**values)
        finally:
            scope.restore()
            LAUNCHES.pop()
            self._restore_args_dev(args, host_args, kwargs, host_kwargs)


def _truth(tile) -> bool:
    """Whether a tensor is true: a tile of several elements always is, as when compiled."""
    if tile.handle.data.size == 1:
        return bool(tile.handle.data)
    if _is_kernel(sys._getframe(1)):  # Triton's own code asks too: `if mask`
        LAUNCHES[-1].guard.truth()
    return True


def _tuple(original, items):
    return type(original)(*items) if hasattr(original, "_fields") else type(original)(items)


def launch(
    kernel: JITFunction,
    grid,
    args: tuple,
    kwargs: dict,
    guard: Guard | None = None,
    backwards: bool = False,
    large: bool = False,
):
    """Run every program of a launch, one after the other, on the CPU.

    Args:
        kernel: a @triton.jit function.
        grid: a tuple, or a function of the arguments that returns one.
        args: as passed to `kernel[grid]`.
        kwargs: as passed to `kernel[grid]`; compile options such as num_warps are ignored.
        guard: sees every access and may refuse it. None refuses what lies outside the storage of every argument.
        backwards: run the programs in the reverse order, and the lanes of an atomic too. A GPU promises no order of
            either.
        large: fill the masked lanes of loads without `other` with the largest finite numbers, of either sign, not NaN.

    Raises:
        RuntimeError: for a kernel in Gluon, which has no interpreter, and for a launch inside a running kernel.

    Note:
        Tensors on a GPU are copied to the host and back.
    """
    if kernel.is_gluon():
        raise RuntimeError(f"{kernel.fn.__name__} is written in Gluon, which has no interpreter: it needs its GPU")
    with language_lock:
        if LAUNCHES:
            raise RuntimeError("a kernel cannot be launched from inside a running kernel")
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        _Grid(_rewrite(kernel), kernel.arg_names, grid).run(kernel, guard or Guard(), args, kwargs, backwards, large)
