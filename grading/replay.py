"""Runs the kernels of an answer again, by themselves: a process in which no other learner code runs.

    python grading/replay.py FOLDER TASK...

What the learner's process left is only a claim: which kernel was launched with which arguments, and what came back
(probe.py's trace). Here the kernels come from the source of the answer cells: functions under `@triton.jit`, and plain
constants, nothing else of the cells. They have to be plain Triton, to compile for sm_80 and sm_90, and are launched, in
the interpreter and metered, on the true inputs. New tensors start as NaN or constant; of what torch or Python put into
them before a launch, only vectors are taken over, at most as long as the longest first dimension of the inputs. So a
result that is right here was computed by these kernels. On a GPU they are launched compiled too, and timed, by a clock
that no learner code can reach. The record is written as probe.py writes its own, and judged by the same rules.
"""

import ast
import builtins
import importlib
import importlib.util
import json
import re
import sys
import textwrap
import types
from pathlib import Path

ALLOWED_BUILTINS = {"range", "len", "min", "max", "abs", "int", "float", "bool", "print", "tuple", "list", "sum", "slice",
                    "True", "False", "None"}
BARRED_NODES = (ast.Import, ast.ImportFrom, ast.Lambda, ast.ClassDef, ast.Global, ast.Nonlocal, ast.Try, ast.With,
                ast.Yield, ast.YieldFrom, ast.Await, ast.AsyncFunctionDef, ast.NamedExpr, ast.JoinedStr, ast.Delete)
BARRED_ATTRIBUTES = {"handle", "data", "fn", "func", "base", "ctypes", "interpreter", "builder"}
ROOTS = ("triton", "tl")  # what instruments.backend offers
MODULES = re.compile(r"triton(\.language(\.math|\.extra(\.cuda)?(\.libdevice)?)?)?$")
COMPILED_FOR = (80, 90)


class NotPlain(ValueError):
    """A kernel that is not plain Triton; the text says why."""


# ---------------------------------------------------------------- the kernels' source


def kernels_of(sources: list, launched: set | None = None) -> str:
    """A module's source: the jitted functions and plain constants of the answer cells, in their order.

    launched: names of kernels; only what they use is kept then, so that nothing else in the notebook matters to them.
    """
    parts: list[tuple] = []  # (the name that is bound, code, names that the code uses)
    imports = ["import triton", "import triton.language as tl"]
    for source in sources:
        source = re.sub(r"^[%!].*$", "", source, flags=re.MULTILINE)
        try:
            tree = ast.parse(source)
        except SyntaxError:
            continue
        lines = source.splitlines()
        wrapped = {call.args[0].id for call in ast.walk(tree) if isinstance(call, ast.Call) and _is_jit(call.func)
                   and call.args and isinstance(call.args[0], ast.Name)}
        for node in _in_order(tree):
            if isinstance(node, ast.FunctionDef) and (node.name in wrapped or any(map(_is_jit, node.decorator_list))):
                text = textwrap.dedent("\n".join(lines[node.lineno - 1:node.end_lineno]))
                parts.append((node.name, "@triton.jit\n" + text, _names(node)))
            elif isinstance(node, (ast.Import, ast.ImportFrom)):
                imports += _imports(node)
            elif isinstance(node, (ast.Assign, ast.AnnAssign)) and node in tree.body and node.value is not None:
                parts += _constants(node)
    wanted = {name for name, _, _ in parts} if launched is None else set(launched)
    while launched is not None:
        more = {used for name, _, names in parts if name in wanted for used in names} - wanted
        if not more:
            break
        wanted |= more
    kept = [code for name, code, _ in parts if name in wanted]
    kernels = [code for code in kept if code.startswith("@triton.jit")]
    constants = [code for code in kept if code not in kernels]
    # what constants are made with is gone before a kernel could reach it
    return "\n\n".join([*imports, "import math, torch", *constants, "del math, torch", *kernels]) + "\n"


def _names(node) -> set:
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}


def _constants(node) -> list:
    """The plain constants that an assignment binds, one part each; several may be unpacked from a tuple."""
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    pairs = [(target, node.value) for target in targets]
    for target, value in list(pairs):
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
            pairs += zip(target.elts, value.elts)
    note = ": tl.constexpr" if isinstance(node, ast.AnnAssign) else ""
    return [(target.id, f"{target.id}{note} = {ast.unparse(value)}", _names(value)) for target, value in pairs
            if isinstance(target, ast.Name) and _is_plain(value)]


def _in_order(tree):
    return sorted((n for n in ast.walk(tree) if hasattr(n, "lineno")), key=lambda n: n.lineno)


def _is_jit(node) -> bool:
    node = node.func if isinstance(node, ast.Call) else node
    return isinstance(node, ast.Attribute) and node.attr == "jit" or isinstance(node, ast.Name) and node.id == "jit"


def _imports(node) -> list:
    if isinstance(node, ast.Import):
        return [f"import {a.name}" + (f" as {a.asname}" if a.asname else "") for a in node.names if MODULES.match(a.name)]
    names = [a for a in node.names if a.name != "*" and not a.name.startswith("_")]
    if node.module == "instruments.backend":
        return [f"{a.asname} = {a.name}" for a in names if a.name in ROOTS and a.asname]
    if node.module and MODULES.match(node.module) and names:
        return [f"from {node.module} import {a.name}" + (f" as {a.asname}" if a.asname else "") for a in names]
    return []


CALLS = re.compile(r"tl\.constexpr|float|int|triton\.(next_power_of_2|cdiv)|math\.\w+|torch\.finfo|torch\.iinfo")
CONSTANTS = re.compile(r"tl\.(float|int|uint|bfloat)\w*|math\.\w+|torch\.(b?float|u?int)\d+|"
                       r"torch\.[fi]info\([\w.]+\)\.(min|max|eps|tiny|smallest_normal)")
ROOTS_OF_CONSTANTS = ("tl", "triton", "float", "int", "math", "torch")


def _is_plain(node) -> bool:
    """Whether an expression is a constant: numbers, strings, tuples, other names' arithmetic, tl.constexpr of them, what
    `math` computes and what a dtype's limits are."""
    for part in ast.walk(node):
        if isinstance(part, ast.Call):
            if not CALLS.fullmatch(ast.unparse(part.func)):
                return False
        elif isinstance(part, ast.Attribute):
            if not CALLS.fullmatch(ast.unparse(part)) and not CONSTANTS.fullmatch(ast.unparse(part)):
                return False
        elif isinstance(part, ast.Name):
            if part.id not in ROOTS_OF_CONSTANTS and not part.id.isupper():
                return False
        elif not isinstance(part, (ast.Constant, ast.Tuple, ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop, ast.Load)):
            return False
    return True


def plain(source: str) -> None:
    """NotPlain where a kernel does what a compiled kernel cannot, and an interpreted one could."""
    tree = ast.parse(source)
    modules = _modules(tree)
    for function in (node for node in tree.body if isinstance(node, ast.FunctionDef)):
        roots = {id(node.value) for node in ast.walk(function) if isinstance(node, ast.Attribute)}
        for node in ast.walk(function):
            if isinstance(node, ast.Name) and node.id in modules and id(node) not in roots:
                raise NotPlain(f"the kernel {function.name} hands on `{node.id}`")
            if isinstance(node, BARRED_NODES) or isinstance(node, ast.FunctionDef) and node is not function:
                raise NotPlain(f"the kernel {function.name} holds `{ast.unparse(node).splitlines()[0]}`")
            if isinstance(node, ast.Name) and (node.id.startswith("__") or hasattr(builtins, node.id)
                                               and node.id not in ALLOWED_BUILTINS and isinstance(node.ctx, ast.Load)
                                               and node.id not in _bound(function)):
                raise NotPlain(f"the kernel {function.name} uses `{node.id}`")
            if isinstance(node, ast.Attribute):
                if node.attr.startswith("_") or node.attr in BARRED_ATTRIBUTES:
                    raise NotPlain(f"the kernel {function.name} uses `{ast.unparse(node)}`")
                _in_language(function.name, node, modules)


def _bound(function: ast.FunctionDef) -> set:
    return {a.arg for a in ast.walk(function) if isinstance(a, ast.arg)} | {
        n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}


def _modules(tree: ast.Module) -> dict:
    """{name: module} of what the source imports; NotPlain where that is not Triton's language."""
    found = {}
    for node in tree.body:
        if isinstance(node, ast.Import):
            for alias in node.names:
                module = importlib.import_module(alias.name)
                found[alias.asname or alias.name.split(".")[0]] = module if alias.asname else sys.modules[
                    alias.name.split(".")[0]]
        elif isinstance(node, ast.ImportFrom):
            module = importlib.import_module(node.module)
            for alias in node.names:
                value = getattr(module, alias.name, None)
                _offered(f"{node.module}.{alias.name}", value)
                if isinstance(value, types.ModuleType):
                    found[alias.asname or alias.name] = value
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Name) and node.value.id in found:
            found[node.targets[0].id] = found[node.value.id]
    return found


def _in_language(kernel: str, node: ast.Attribute, modules: dict) -> None:
    """A dotted name that begins at a module has to stay in Triton's language."""
    names = []
    part = node
    while isinstance(part, ast.Attribute):
        names.insert(0, part.attr)
        part = part.value
    if not isinstance(part, ast.Name) or part.id not in modules:
        return
    value = modules[part.id]
    for name in names:
        value = getattr(value, name, None)
        _offered(ast.unparse(node), value, kernel)


def _offered(dotted: str, value, kernel: str = "") -> None:
    barred = isinstance(value, types.ModuleType) and not MODULES.match(value.__name__)
    if isinstance(value, types.FunctionType):
        barred = not value.__module__.startswith("triton.")
    if barred:
        raise NotPlain(f"{f'the kernel {kernel} uses ' if kernel else ''}`{dotted}`, which is not Triton's language")


# ---------------------------------------------------------------- the launches, again


class Player:
    """The launches of one case as a function of its inputs, which probe.py meters and times like any other.

    most: elements up to which the content of a tensor that no kernel filled is taken over. poison: whether new tensors
    are filled with what the answer's own were: needed to see what stays unwritten, and no part of the time.
    """

    def __init__(self, trace: dict, claims: Path, kernels, most: int, poison: bool = True):
        self.trace, self.claims, self.kernels, self.most, self.poison = trace, claims, kernels, most, poison
        self.refused = ""
        self.vectors = {}  # file: its content on the device

    def __call__(self, *arguments):
        import torch

        storages = {}
        given = {name: value for name, value in zip(self.trace["arguments"], arguments) if isinstance(value, torch.Tensor)}
        for launch in self.trace["launches"]:
            for number, state in launch["before"].items():
                self._fill(storages, int(number), state, given)
            kernel = getattr(self.kernels, launch["kernel"], None)
            if not hasattr(kernel, "arg_names"):
                self.refused = f"the kernel {launch['kernel']} does not stand under @triton.jit in an answer cell"
                return None
            values = {name: self._value(value, storages) for name, value in launch["args"].items()}
            options = {k: v for k, v in launch["options"].items() if k in ("num_warps", "num_stages", "num_ctas", "maxnreg")}
            kernel[tuple(int(n) for n in launch["grid"])](**values, **options)
        items = [self._value(item, storages) for item in self.trace["returned"]]
        return tuple(items) if self.trace["tuple"] or len(items) != 1 else items[0]

    def _fill(self, storages: dict, number: int, state: dict, given: dict) -> None:
        """A storage as it was before a launch: an input, a constant, or a vector that was claimed."""
        import numpy as np
        import torch

        from grading.probe import DTYPES
        from instruments import backend

        if "argument" in state:
            storages[number] = given[state["argument"]].untyped_storage()
            return
        dtype = DTYPES[state["dtype"]]
        size = torch.empty(0, dtype=dtype).element_size()
        count = int(state["nbytes"]) // size
        if not 0 <= count <= 1 << 28:
            raise ValueError("a storage of an impossible size")
        if number not in storages:
            fresh = torch.empty(count, dtype=dtype, device=backend.device())
            storages[number] = fresh.untyped_storage()
        flat = torch.empty(0, dtype=dtype, device=backend.device()).set_(storages[number])
        if "fill" in state:
            item = torch.frombuffer(bytearray.fromhex(state["fill"]), dtype=dtype)
            poison = state["first"] and (item.isnan().all() if dtype.is_floating_point else
                                         dtype != torch.bool and item == torch.iinfo(dtype).max)
            if (state["first"] or count <= self.most) and (self.poison or not poison):
                flat.fill_(item.item())
        elif count <= self.most and state.get("file"):
            file = Path(state["file"]).name
            if file not in self.vectors:
                stored = np.load(self.claims / file, allow_pickle=False)
                self.vectors[file] = torch.from_numpy(stored.view(np.uint8)).to(flat.device)
            flat.view(torch.uint8).copy_(self.vectors[file])
        elif state["first"]:
            self.refused = (f"a tensor of {count:,} elements was filled by something other than a kernel before "
                            f"{state.get('kernel', 'a kernel')} got it")

    def _value(self, value, storages: dict):
        import torch

        from grading.probe import DTYPES
        from instruments import backend
        import triton.language as tl

        if not isinstance(value, dict):
            return value
        if "storage" in value:
            dtype = DTYPES[value["dtype"]]
            if value["storage"] not in storages:
                unknown = float("nan") if dtype.is_floating_point else 0
                return torch.full(value["shape"], unknown, dtype=dtype, device=backend.device())
            return torch.empty(0, dtype=dtype, device=backend.device()).set_(
                storages[value["storage"]], value["offset"], value["shape"], value["stride"])
        if "dtype" in value:
            found = getattr(tl, value["dtype"], None)
            if not isinstance(found, tl.dtype):
                raise ValueError("a dtype that Triton does not have")
            return found
        if "torch_dtype" in value:
            return DTYPES[value["torch_dtype"]]
        if "items" in value:
            return tuple(self._value(item, storages) for item in value["items"])
        if "kernel" in value:
            return getattr(self.kernels, value["kernel"])
        if "descriptor" in value:
            from triton.tools.tensor_descriptor import TensorDescriptor

            return TensorDescriptor(self._value(value["descriptor"], storages), value["shape"], value["strides"],
                                    value["block_shape"])
        self.refused = f"an argument of type {value.get('other', '?')} cannot be handed to a kernel again"
        return None


def play(task_id: str, folder: Path) -> None:
    """Replay one task; write results/<task>/result.json."""
    from grading import probe

    spec = json.loads((folder / "tasks" / task_id / "task.json").read_text(encoding="utf-8"))
    claims, out = folder / "claims" / task_id, folder / "results" / task_id
    out.mkdir(parents=True, exist_ok=True)
    result = {"environment": probe.environment(), "finished": False, "cases": [], "refused": "", "speed": None}
    try:
        source = (claims / "kernels.py").read_text(encoding="utf-8")
        plain(source)
        kernels = _module(claims / "kernels.py")
        compiling = probe.Compiling(spec["ieee"], spec["max_tile"])
        for case in spec["cases"]:
            player = _player(case, case["id"], probe._arguments(case, folder / "tasks" / task_id), claims, kernels)
            result["cases"].append(probe._case(case, {**spec, "again": compiling}, {
                case["function"]: player, "__name__": kernels.__name__}, folder / "tasks" / task_id, out))
            result["refused"] = result["refused"] or player.refused
        timed = spec["speed"]
        if timed and probe.on_gpu() and not result["refused"] and not any(c["error"] for c in result["cases"]):
            player = _player(timed, "speed", probe._random_arguments(timed), claims, kernels, poison=False)
            result["speed"] = probe.speed(timed, player, out)
            result["refused"] = player.refused
    except NotPlain as error:
        result["refused"] = str(error)
    except FileNotFoundError:
        result["refused"] = "the launches of the answer were not recorded"
    except Exception as error:  # a claim that makes no sense
        result["refused"] = f"the recorded launches cannot be run again ({type(error).__name__}: {error})"[:500]
    result["finished"] = True
    probe._write(out / "result.json", result)


def _player(spec: dict, name: str, arguments: dict, claims: Path, kernels, poison: bool = True) -> Player:
    trace = json.loads((claims / f"{name}.trace.json").read_text(encoding="utf-8"))
    trace["arguments"] = [a["name"] for a in spec["arguments"]]
    most = max((v.shape[0] for v in arguments.values() if hasattr(v, "shape") and v.ndim), default=0)
    return Player(trace, claims, kernels, most, poison)


def _module(path: Path):
    spec = importlib.util.spec_from_file_location("answer_kernels_" + re.sub(r"\W", "_", path.parent.name), path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def main(argv: list) -> int:
    folder = Path(argv[0])
    sys.path.insert(0, str(folder))
    for name in argv[1:]:
        play(name, folder)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
