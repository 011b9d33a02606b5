"""What the source of a kernel may hold: Triton's language and nothing else of Python.

The interpreter runs a kernel as Python, in a process of which the verdict depends. So a function is held to a list
before it runs there: its names are its own, those of its globals (numbers, dtypes, other such functions, Triton's
language) or a few of Python's words; its attributes are those that tensors and dtypes have in Triton. grading/replay.py
runs what passes, with these builtins and no others.
"""

import ast
import builtins
import re
import types

from grading import record

WORDS = (
    "range",
    "len",
    "min",
    "max",
    "abs",
    "int",
    "float",
    "bool",
    "print",
    "tuple",
    "list",
    "sum",
    "any",
    "all",
    "slice",
    "zip",
    "enumerate",
    "isinstance",
    "str",
    "NotImplementedError",
    "ValueError",
    "AssertionError",
)
BUILTINS = {name: getattr(builtins, name) for name in WORDS}
NODES = (
    ast.FunctionDef,
    ast.arguments,
    ast.arg,
    ast.keyword,
    ast.Expr,
    ast.Assign,
    ast.AugAssign,
    ast.AnnAssign,
    ast.For,
    ast.While,
    ast.If,
    ast.IfExp,
    ast.Return,
    ast.Pass,
    ast.Break,
    ast.Continue,
    ast.Assert,
    ast.Raise,
    ast.Call,
    ast.Attribute,
    ast.Subscript,
    ast.Slice,
    ast.Name,
    ast.Constant,
    ast.Tuple,
    ast.List,
    ast.Starred,
    ast.BinOp,
    ast.UnaryOp,
    ast.BoolOp,
    ast.Compare,
    ast.JoinedStr,
    ast.FormattedValue,
    ast.ListComp,
    ast.comprehension,
    ast.expr_context,
    ast.operator,
    ast.unaryop,
    ast.boolop,
    ast.cmpop,
)
OF_TRITON = {"cdiv", "next_power_of_2", "language"}  # that kernels use; the rest of the module compiles and launches
MODULES = re.compile(r"triton\.language(\.math|\.extra(\.cuda)?(\.libdevice)?)?$")
INNER = ("member", "semantic", "generator")  # keywords by which the language's functions call each other
CLASSES = (
    "constexpr",
    "range",
    "static_range",
    "tensor",
    "dtype",
    "block_type",
    "pointer_type",
    "tensor_descriptor",
    "PropagateNan",
    "tuple",
    "slice",
)
MAX_FUNCTIONS = 64  # of one task


class NotPlain(ValueError):
    """A kernel that is not plain Triton; the text says why."""


def attributes() -> set:
    """What values have in Triton: the public names of tensors, dtypes and descriptors."""
    import triton.language as tl

    kinds = (tl.tensor, tl.dtype, tl.block_type, tl.pointer_type, tl.tensor_descriptor)
    named = {name for kind in kinds for name in dir(kind) if not name.startswith("_")}
    mere = {
        "to_ir",
        "codegen_name",
        "cache_key_part",
        "mangle",
        "item",
    }  # the compiler's own; `item` is Python's way out
    return named - mere | {
        "type",
        "shape",
        "dtype",
        "element_ty",
        "value",
        "numel",
        "primitive_bitwidth",
        "load",
        "strides",
        "store",
        "data_ptr",
    } - {"data_ptr"}


def check(functions: list) -> None:
    """NotPlain where one of these record.Source does what a compiled kernel cannot, and an interpreted one could."""
    if len(functions) > MAX_FUNCTIONS:
        raise NotPlain(f"{len(functions)} functions take part, at most {MAX_FUNCTIONS} may")
    offered = attributes()
    for function in functions:
        try:
            tree = ast.parse(function.source).body
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise NotPlain(f"the source of {function.name} cannot be read ({type(error).__name__})") from None
        if len(tree) != 1 or not isinstance(tree[0], ast.FunctionDef) or tree[0].name != function.name:
            raise NotPlain(f"the kernel {function.name} does not stand under @triton.jit as a function of its own")
        _check(function, tree[0], offered)


def _check(function: record.Source, tree: ast.FunctionDef, offered: set) -> None:
    kernel = f"the kernel {function.name}"
    own = (
        {a.arg for a in ast.walk(tree) if isinstance(a, ast.arg)}
        | {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        | {function.name}
    )
    roots = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for node in _evaluated(tree):
        if not isinstance(node, NODES) or isinstance(node, ast.FunctionDef) and node is not tree:
            raise NotPlain(f"{kernel} holds `{_shown(function, node)}`")
        if isinstance(node, ast.keyword) and (not node.arg or node.arg.startswith("_") or node.arg in INNER):
            raise NotPlain(f"{kernel} passes `{node.arg or '**'}`, which is the language's own")
        if (
            isinstance(node, ast.Subscript)
            and isinstance(node.slice, ast.Constant)
            and isinstance(node.slice.value, str)
        ):
            raise NotPlain(f"{kernel} holds `{_shown(function, node)}`")
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id not in own:
            value = function.globals.get(node.id)
            if value is None and node.id not in BUILTINS or node.id.startswith("__"):
                raise NotPlain(f"{kernel} uses `{node.id}`, which Triton's language does not have")
            if isinstance(value, record.Language):
                if isinstance(language(value.name, kernel), types.ModuleType) and id(node) not in roots:
                    raise NotPlain(f"{kernel} hands on `{node.id}`")
            elif isinstance(value, record.Other):
                raise NotPlain(
                    f"{kernel} uses `{node.id}`, a {value.name}: a kernel uses numbers, tl.constexpr, dtypes and "
                    "functions under @triton.jit"
                )
        elif isinstance(node, ast.Name) and node.id.startswith("__"):
            raise NotPlain(f"{kernel} uses `{node.id}`")
        if isinstance(node, ast.Attribute):
            _attribute(function, node, own, offered, kernel)


def _evaluated(tree: ast.FunctionDef):
    """Every node but those of annotations, which the replay leaves out; NotPlain for one that it cannot leave out."""
    notes = [a.annotation for a in ast.walk(tree) if isinstance(a, ast.arg) and a.annotation]
    notes += [tree.returns] if tree.returns else []
    if any(note.lineno != note.end_lineno for note in notes):
        raise NotPlain(f"the kernel {tree.name} has a hint of several lines")
    left_out = {id(part) for note in notes for part in ast.walk(note)}
    return [node for node in ast.walk(tree) if id(node) not in left_out]


def _attribute(function: record.Source, node: ast.Attribute, own: set, offered: set, kernel: str) -> None:
    names, root = [], node
    while isinstance(root, ast.Attribute):
        names.insert(0, root.attr)
        root = root.value
    value = function.globals.get(root.id) if isinstance(root, ast.Name) and root.id not in own else None
    if isinstance(value, record.Language):
        language(".".join((value.name, *names)), kernel, offered)
    elif isinstance(value, record.Function) or any(name.startswith("_") or name not in offered for name in names):
        raise NotPlain(f"{kernel} uses `{_shown(function, node)}`, which Triton's language does not have")


def _shown(function: record.Source, node) -> str:
    return (ast.get_source_segment(function.source, node) or type(node).__name__).splitlines()[0][:80]


def language(dotted: str, kernel: str = "a kernel", offered: set | None = None):
    """The object of Triton's language by this name: a function of it, a dtype or one of a few classes, or what a dtype
    has; NotPlain where it is not of the language."""
    import triton

    refused = NotPlain(f"{kernel} uses `{dotted}`, which is not Triton's language")
    words = dotted.split(".")
    if words[0] == "math":
        raise NotPlain(
            f"{kernel} uses `{dotted}`: let Python compute it before, as a global tl.constexpr or an argument"
        )
    if words[0] != "triton" or len(words) > 8 or any(word.startswith("_") for word in words):
        raise refused
    if len(words) == 1:
        return triton
    if words[-1] in OF_TRITON and words[1] != "language":
        return getattr(triton, words[-1])
    if words[1] != "language":
        raise refused
    module, rest = triton.language, words[2:]
    if rest and rest[0] in ("core", "standard", "math", "random"):  # where functions of the language say they come from
        if hasattr(triton.language, rest[-1]) and len(rest) == 2 and rest[0] != "math":
            rest = rest[1:]
    while rest and isinstance(getattr(module, rest[0], None), types.ModuleType):
        module, rest = getattr(module, rest[0]), rest[1:]
        if not MODULES.match(module.__name__):
            raise refused
    if not rest:
        return module
    value = getattr(module, rest[0], None)
    if not (
        triton.language.core.is_builtin(value)
        or isinstance(value, (triton.JITFunction, triton.language.dtype))
        or module is triton.language
        and rest[0] in CLASSES
        or rest[0] in OF_TRITON
    ):
        raise refused
    for word in rest[1:]:
        if word not in (offered or attributes()) and rest[0] != "PropagateNan":
            raise refused
        value = getattr(value, word, None)
    return value
