"""A hash of the kernels that a call may launch, which tells a record made with them from one of older kernels.

`kernel_hash(function, ...)` follows names from a Python function to every function, class and table of the course that
it mentions, and collects the `@triton.jit` functions among them, those that kernels call included. The hash covers
their syntax trees without docstrings, comments and positions, and the constants that they take from their modules. It
is the same in every version of Python, and does not depend on the file that a kernel stands in.

Note:
    Names are followed, nothing is run. So a kernel counts that a call might launch on another GPU or for another size,
    and so does the backward of an autograd function. Tile sizes and warps that Python code chooses do not count.
"""

import ast
import functools
import hashlib
import importlib
import inspect
import textwrap
from collections.abc import Iterator
from types import CodeType, FunctionType, MethodType, ModuleType

PACKAGES = ("kernels", "bench", "__main__")  # whose names are followed; a script of bench/ runs as __main__
DIGITS = 12


def kernel_hash(*roots) -> str:
    """The hash of all jit functions that can be reached.

    Args:
        roots: functions, or containers of functions.

    Returns:
        12 hexadecimal digits; an empty string where no jit function is reached.
    """
    trees = sorted({_text(kernel) for kernel in jit_functions(*roots)})
    return hashlib.sha256("\n".join(trees).encode()).hexdigest()[:DIGITS] if trees else ""


def jit_functions(*roots) -> list:
    """The jit functions of the course that can be reached from `roots`, in no order that means something."""
    waiting, visited, kernels = list(roots), {}, []
    while waiting:
        value = waiting.pop()
        if id(value) in visited:
            continue
        visited[id(value)] = value  # keeps it alive, so that its id stays its own
        if _is_kernel(value):
            kernels.append(value)
        waiting.extend(_next(value))
    return kernels


def _is_kernel(value) -> bool:
    """Whether this is a jit function of the course."""
    return type(value).__name__ in ("JITFunction", "GluonJITFunction", "Kernel") and _is_ours(value.fn)


def _is_ours(value) -> bool:
    """Whether a function, class or module is the course's own."""
    name = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None) or ""
    return name.partition(".")[0] in PACKAGES


def _next(value) -> Iterator:
    """What a value leads to."""
    if isinstance(value, (list, tuple, set, frozenset)):
        yield from value
    elif isinstance(value, dict):
        yield from value.values()
    elif isinstance(value, functools.partial):
        yield from (value.func, value.args, value.keywords)
    elif isinstance(value, MethodType):
        yield from (value.__func__, value.__self__)
    elif isinstance(value, (staticmethod, classmethod)):
        yield value.__func__
    elif isinstance(value, property):
        yield value.fget
    elif isinstance(value, FunctionType):
        if _is_ours(value):
            yield from _mentions(value)
            yield getattr(value, "__wrapped__", None)
    elif isinstance(value, type):
        if _is_ours(value):
            yield from (vars(value).values(), value.__bases__)
    elif not isinstance(value, ModuleType):
        yield getattr(value, "fn", None)  # of a jit function, and what autotune and heuristics wrap
        yield getattr(value, "__wrapped__", None)  # of functools.cache
        if _is_ours(type(value)):
            yield from (type(value), getattr(value, "__dict__", None))


def _mentions(function: FunctionType) -> Iterator:
    """The values that a function's names stand for: globals, attributes of modules, what it closes over, defaults."""
    yield from _cells(function)
    yield from (function.__defaults__, function.__kwdefaults__)
    names = set(_names(function.__code__))
    values = [function.__globals__[name] for name in names if name in function.__globals__]
    values += [importlib.import_module(name) for name in names if name.partition(".")[0] in ("kernels", "bench")]
    yield from values
    for module in _modules(values):
        yield from (getattr(module, name) for name in names if hasattr(module, name))


def _modules(values: list) -> Iterator[ModuleType]:
    """The course's modules among values, and in the tables among them."""
    for value in values:
        if isinstance(value, dict):
            yield from _modules(list(value.values()))
        elif isinstance(value, (list, tuple)):
            yield from _modules(value)
        elif isinstance(value, ModuleType) and _is_ours(value):
            yield value


def _cells(function: FunctionType) -> Iterator:
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # empty: a name that is not bound yet
            continue


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


@functools.cache
def _text(kernel) -> str:
    """A jit function as text: its tree, and the constants that it takes from its module."""
    function = kernel.fn
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    names = sorted(set(_names(function.__code__)) & function.__globals__.keys())
    constants = {name: getattr(function.__globals__[name], "value", None) for name in names}
    constants = {name: value for name, value in constants.items() if isinstance(value, (bool, int, float, str))}
    return f"{_tree(tree.body[0])} {constants}"


def _tree(node) -> str:
    """A syntax tree without docstrings, positions and empty fields, of which versions of Python have different ones."""
    if isinstance(node, list):
        return f"[{', '.join(map(_tree, node))}]"
    if not isinstance(node, ast.AST):
        return repr(node)
    fields = {name: value for name, value in ast.iter_fields(node) if value not in (None, []) and name != "kind"}
    if isinstance(node, (ast.FunctionDef, ast.Module)) and ast.get_docstring(node, clean=False) is not None:
        fields["body"] = node.body[1:]
    if isinstance(node, ast.Constant):
        fields = {"value": node.value}
    return f"{type(node).__name__}({', '.join(f'{name}={_tree(value)}' for name, value in fields.items())})"
