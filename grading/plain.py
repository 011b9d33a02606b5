"""What the source of a kernel may hold: Triton's language and nothing else of Python.

The interpreter runs a kernel as Python, in a process of which the verdict depends. So a function is held to a list before
it runs there: its names are its own, those of its globals (numbers, dtypes, other such functions, Triton's language) or a
few of Python's words; its attributes are those that tensors and dtypes have in Triton. grading/replay.py runs what passes,
with these builtins and no others.
"""

import ast
import builtins
import importlib
import re
import types

from grading import record

WORDS = ("range", "len", "min", "max", "abs", "int", "float", "bool", "print", "tuple", "list", "sum", "any", "all", "slice",
         "zip", "enumerate", "isinstance", "str", "NotImplementedError", "ValueError", "AssertionError")
BUILTINS = {name: getattr(builtins, name) for name in WORDS}
BARRED = (ast.Import, ast.ImportFrom, ast.Lambda, ast.ClassDef, ast.Global, ast.Nonlocal, ast.Try, ast.With, ast.Yield,
          ast.YieldFrom, ast.Await, ast.AsyncFunctionDef, ast.Delete, ast.AsyncFor, ast.AsyncWith)
OF_TRITON = {"cdiv", "next_power_of_2", "language"}  # that kernels use; the rest of the module compiles and launches
MODULES = re.compile(r"triton\.language(\.math|\.extra(\.cuda)?(\.libdevice)?)?$")
MAX_SOURCE, MAX_FUNCTIONS = 100_000, 64  # characters of one function; functions of one task


class NotPlain(ValueError):
    """A kernel that is not plain Triton; the text says why."""


def attributes() -> set:
    """What values have in Triton: the public names of tensors, dtypes and descriptors."""
    import triton.language as tl

    kinds = (tl.tensor, tl.dtype, tl.block_type, tl.pointer_type, tl.tensor_descriptor)
    named = {name for kind in kinds for name in dir(kind) if not name.startswith("_")}
    mere = {"to_ir", "codegen_name", "cache_key_part", "mangle", "item"}  # the compiler's own; `item` is Python's way out
    return named - mere | {"type", "shape", "dtype", "element_ty", "value", "numel", "primitive_bitwidth", "load", "strides",
                           "store", "data_ptr"} - {"data_ptr"}


def check(functions: list) -> None:
    """NotPlain where one of these record.Source does what a compiled kernel cannot, and an interpreted one could."""
    if len(functions) > MAX_FUNCTIONS:
        raise NotPlain(f"{len(functions)} functions take part, at most {MAX_FUNCTIONS} may")
    offered = attributes()
    for function in functions:
        if len(function.source) > MAX_SOURCE:
            raise NotPlain(f"the kernel {function.name} has more than {MAX_SOURCE:,} characters")
        try:
            tree = ast.parse(function.source).body
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise NotPlain(f"the source of {function.name} cannot be read ({type(error).__name__})") from None
        if len(tree) != 1 or not isinstance(tree[0], ast.FunctionDef) or tree[0].name != function.name:
            raise NotPlain(f"the kernel {function.name} does not stand under @triton.jit as a function of its own")
        _check(function, tree[0], offered)


def _check(function: record.Source, tree: ast.FunctionDef, offered: set) -> None:
    kernel = f"the kernel {function.name}"
    own = {a.arg for a in ast.walk(tree) if isinstance(a, ast.arg)} | {
        n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)} | {function.name}
    roots = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for node in _evaluated(tree):
        if isinstance(node, BARRED) or isinstance(node, ast.FunctionDef) and node is not tree:
            raise NotPlain(f"{kernel} holds `{_shown(function, node)}`")
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str):
            raise NotPlain(f"{kernel} holds `{_shown(function, node)}`")
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id not in own:
            value = function.globals.get(node.id)
            if value is None and node.id not in BUILTINS or node.id.startswith("__"):
                raise NotPlain(f"{kernel} uses `{node.id}`, which Triton's language does not have")
            if isinstance(value, record.Language):
                if isinstance(language(value.name, kernel), types.ModuleType) and id(node) not in roots:
                    raise NotPlain(f"{kernel} hands on `{node.id}`")
            elif isinstance(value, record.Other):
                raise NotPlain(f"{kernel} uses `{node.id}`, a {value.name}: a kernel uses numbers, tl.constexpr, dtypes and "
                               "functions under @triton.jit")
        elif isinstance(node, ast.Name) and node.id.startswith("__"):
            raise NotPlain(f"{kernel} uses `{node.id}`")
        if isinstance(node, ast.Attribute):
            _attribute(function, node, own, offered, kernel)


def _evaluated(tree: ast.FunctionDef):
    """Every node but those of annotations, which are left out before the function is made."""
    notes = {id(part) for a in ast.walk(tree) if isinstance(a, ast.arg) and a.annotation for part in ast.walk(a.annotation)}
    if tree.returns:
        notes |= {id(part) for part in ast.walk(tree.returns)}
    return [node for node in ast.walk(tree) if id(node) not in notes]


def _attribute(function: record.Source, node: ast.Attribute, own: set, offered: set, kernel: str) -> None:
    names, root = [], node
    while isinstance(root, ast.Attribute):
        names.insert(0, root.attr)
        root = root.value
    value = function.globals.get(root.id) if isinstance(root, ast.Name) and root.id not in own else None
    if isinstance(value, record.Language):
        language(".".join((value.name, *names)), kernel)
    elif isinstance(value, record.Function) or any(name.startswith("_") or name not in offered for name in names):
        raise NotPlain(f"{kernel} uses `{_shown(function, node)}`, which Triton's language does not have")


def _shown(function: record.Source, node) -> str:
    return (ast.get_source_segment(function.source, node) or type(node).__name__).splitlines()[0][:80]


def language(dotted: str, kernel: str = "a kernel"):
    """The object of Triton's language by this name; NotPlain where it is not of the language."""
    if dotted == "triton" or dotted.startswith("triton.") and dotted.split(".")[-1] in OF_TRITON - {"language"}:
        import triton

        return triton if dotted == "triton" else getattr(triton, dotted.split(".")[-1])
    words = dotted.split(".")
    if words[0] == "math":
        raise NotPlain(f"{kernel} uses `{dotted}`: let Python compute it before, as a global tl.constexpr or an argument")
    if words[0] != "triton" or len(words) > 8 or any(word.startswith("_") for word in words):
        raise NotPlain(f"{kernel} uses `{dotted}`, which is not Triton's language")
    value, known = None, ""
    for count in range(len(words), 0, -1):
        try:
            value, known = importlib.import_module(".".join(words[:count])), ".".join(words[:count])
            break
        except ImportError:
            continue
    if not known.startswith("triton.language"):
        raise NotPlain(f"{kernel} uses `{dotted}`, which is not Triton's language")
    for word in words[len(known.split(".")):]:
        value = getattr(value, word, None)
        home = getattr(getattr(value, "fn", value), "__module__", "") or "triton.language"
        if isinstance(value, types.ModuleType):
            home = value.__name__ if MODULES.match(value.__name__) else ""
        if value is None or not str(home).startswith("triton.language"):
            raise NotPlain(f"{kernel} uses `{dotted}`, which is not Triton's language")
    if isinstance(value, types.ModuleType) and not MODULES.match(value.__name__):
        raise NotPlain(f"{kernel} uses `{dotted}`, which is not Triton's language")
    return value
