"""Runs a learner's functions on given inputs and hands back raw arrays, counts and errors; it judges nothing.

This file runs in the learner's process and knows no reference, no tolerance and no seed: inputs come as files that
grading/cases.py wrote, results go back as `.npy` and JSON, and the verdict is formed elsewhere (grading/judge.py). It
imports nothing of grading/.
"""

import ast
import json
import os
import sys
import textwrap
import traceback
from contextlib import contextmanager, nullcontext
from pathlib import Path

import numpy as np
import torch

from instruments import backend

DTYPES = {"fp64": torch.float64, "fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16,
          "int64": torch.int64, "int32": torch.int32, "int16": torch.int16, "int8": torch.int8, "uint8": torch.uint8,
          "bool": torch.bool}
NAMES = {dtype: name for name, dtype in DTYPES.items()}

MAX_ERRORS = 3  # exceptions after which the remaining cases are left out
MAX_RECORDS = 20  # out-of-bounds accesses and launches told in full
MAX_PROGRAMS = 1000  # of which it is told what they stored
MAX_TEXT = 1500


def run(task_id: str, namespace: dict, folder: Path | str = ".", expendable: bool = False) -> None:
    """Call the task's functions, found in `namespace` by name, on every case; write results/<task>/result.json.

    expendable: end the process where a kernel has broken the GPU's context, so that the tasks after it get a fresh one.
    """
    folder = Path(folder)
    spec = json.loads((folder / "tasks" / task_id / "task.json").read_text(encoding="utf-8"))
    out = folder / "results" / task_id
    out.mkdir(parents=True, exist_ok=True)
    result = {"environment": environment(), "finished": False, "cases": [], "speed": None}
    errors, stubs, asked = 0, set(), {case["function"] for case in spec["cases"]}
    if not expendable and spec["kernel"]:
        spec["compiling"] = Compiling(spec["ieee"], spec["max_tile"])  # while grading, replay.py does it
    for case in spec["cases"]:
        record = _case(case, spec, namespace, folder / "tasks" / task_id, out)
        result["cases"].append(record)
        _write(out / "result.json", result)
        if (record["error"] or {}).get("not_implemented"):
            stubs.add(case["function"])
        else:
            errors += record["error"] is not None
        if record["error"] and expendable and _gpu_is_lost():
            os._exit(1)
        if errors == MAX_ERRORS or stubs == asked:
            break
    if spec.get("speed") and not errors and not stubs and on_gpu():
        timed = traced if expendable else speed  # while grading, replay.py takes the time
        result["speed"] = timed(spec["speed"], namespace[spec["speed"]["function"]], out)
    result["finished"] = True
    _write(out / "result.json", result)


def environment() -> dict:
    """What this process runs on."""
    cuda = backend.device() == "cuda"
    return {"mode": backend.mode(), "device": torch.cuda.get_device_name() if cuda else "cpu",
            "torch": torch.__version__, "triton": backend.triton.__version__}


def on_gpu() -> bool:
    """Whether kernels are compiled and run on a GPU."""
    return backend.device() == "cuda" and backend.mode() == "compiled"


def _gpu_is_lost() -> bool:
    """Whether the GPU's context is broken: after an illegal access every later call fails too."""
    if backend.device() != "cuda":
        return False
    try:
        torch.cuda.synchronize()
        return False
    except RuntimeError:
        return True


def _write(path: Path, value) -> None:
    temporary = path.with_suffix(".part")
    temporary.write_text(json.dumps(value), encoding="utf-8")
    os.replace(temporary, path)


# ---------------------------------------------------------------- one case


def _case(case: dict, spec: dict, namespace: dict, source: Path, out: Path) -> dict:
    record = {"error": None, "returned": None, "after": {}, "meter": None, "launches": [], "operations": None,
              "compiled": None, "compile": []}
    function = namespace.get(case["function"])
    if not callable(function):
        record["error"] = {"type": "NameError", "text": f"{case['function']} is not defined", "where": "",
                           "not_implemented": False}
        return record
    again = spec.get("again")  # the replay's: kernels by themselves
    compiling = again or spec.get("compiling")
    try:
        if spec["kernel"]:
            arguments = _arguments(case, source)
            record.update(_metered(function, arguments, namespace.get("__name__"), out, case, compiling))
            if compiling is not None:
                record["compile"] = compiling.errors()
            clean = not any(t["out_of_bounds"] for t in record["meter"]["tensors"])
            wide = any(_too_wide(launch["constants"], spec.get("max_tile")) for launch in record["launches"])
            # what strays would corrupt the GPU's memory and with it every later task; a tile that is refused anyway may
            # take minutes to compile
            if on_gpu() and clean and not wide:
                arguments = _arguments(case, source)
                with _poisoned(), _Operations() as watch, _Kernels(not again) as ran:
                    returned = function(*arguments.values())
                    torch.cuda.synchronize()
                record["compiled"] = {**_export(returned, arguments, out, f"{case['id']}.gpu"),
                                      "operations": watch.done, "kernels": ran.names}
        else:
            arguments = _arguments(case, source)
            watch = _Operations() if spec["watch_operations"] else None
            with _poisoned(), watch or nullcontext():
                returned = function(*arguments.values())
            record["operations"] = watch and watch.done
            record.update(_export(returned, arguments, out, case["id"]))
    except Exception as error:
        record["error"] = _told(error)
    return record


def _arguments(case: dict, source: Path) -> dict:
    """{name: what the function gets}, fresh, on the device where kernels run."""
    arguments = {}
    for a in case["arguments"]:
        if "tensor" in a:
            t = a["tensor"]
            storage = np.load(source / t["file"], allow_pickle=False)
            flat = torch.from_numpy(storage.view(np.int16) if t["dtype"] == "bf16" else storage)
            flat = flat.view(DTYPES[t["dtype"]]).to(backend.device(), copy=True)
            arguments[a["name"]] = flat.as_strided(t["shape"], t["stride"])
        elif "dtype" in a:
            arguments[a["name"]] = DTYPES[a["dtype"]]
        else:
            arguments[a["name"]] = a["value"]
    return arguments


@contextmanager
def _poisoned():
    """New tensors hold NaN (the largest integer) instead of whatever the memory held before."""
    before = (torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled(),
              torch.utils.deterministic.fill_uninitialized_memory)
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = True
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])
        torch.utils.deterministic.fill_uninitialized_memory = before[2]


def _told(error: Exception) -> dict:
    """An exception as type, text and the line of the learner's code that it came through last."""
    where = ""
    chain = [error]
    while chain[-1].__cause__ is not None and len(chain) < 5:
        chain.append(chain[-1].__cause__)
    for link in chain:
        for frame in traceback.extract_tb(link.__traceback__):
            if "ipykernel_" in frame.filename or frame.filename.startswith("<ipython") or "answer" in frame.filename:
                where = f"line {frame.lineno} of its cell: {(frame.line or '').strip()}"
    root = chain[-1]
    return {"type": type(root).__name__, "text": str(root)[-MAX_TEXT:], "where": where,
            "not_implemented": isinstance(root, NotImplementedError) and not str(root)}


# ---------------------------------------------------------------- what comes back


def _storage(tensor: torch.Tensor) -> np.ndarray:
    """A tensor's elements in row-major order, flat, in the storage that arrays.py reads."""
    flat = tensor.detach().to("cpu").contiguous().reshape(-1)
    return flat.view(torch.int16).numpy().view(np.uint16) if flat.dtype == torch.bfloat16 else flat.numpy()


def _export(returned, arguments: dict, out: Path, prefix: str) -> dict:
    items = list(returned) if isinstance(returned, (tuple, list)) else [returned]
    told = []
    for i, item in enumerate(items):
        if type(item) in (torch.Tensor, torch.nn.Parameter) and item.dtype in NAMES:
            file = f"{prefix}.returned{i}.npy"
            np.save(out / file, _storage(item), allow_pickle=False)
            told.append({"tensor": {"file": file, "dtype": NAMES[item.dtype], "shape": list(item.shape),
                                    "strides": list(item.stride())}})
        elif item is None or isinstance(item, (bool, int, float, str)):
            told.append({"value": item if not isinstance(item, (int, str)) or len(str(item)) < 1000 else str(item)[:1000]})
        else:
            told.append({"other": type(item).__name__})
    after = {}
    for name, value in arguments.items():
        if isinstance(value, torch.Tensor):
            after[name] = f"{prefix}.after.{name}.npy"
            whole = value.as_strided((value.untyped_storage().nbytes() // value.element_size(), ), (1, ), 0)
            np.save(out / after[name], _storage(whole), allow_pickle=False)
    return {"returned": told, "tuple": isinstance(returned, (tuple, list)), "after": after}


# ---------------------------------------------------------------- kernels: metered, and who stored what


def _metered(function, arguments: dict, module: str, out: Path, case: dict, compiling=None) -> dict:
    from instruments.meter import meter

    launches, names, taken = [], {}, set()  # names: tensor as launched -> the meter's name for it
    trace = Trace(arguments, out, case["id"])

    def seen(launch):
        trace.launch(launch)
        if compiling is not None:
            compiling.launch(launch)
        if len(launches) < MAX_RECORDS or launch.name not in {told["kernel"] for told in launches}:
            launches.append({"kernel": launch.name, "own": launch.kernel.fn.__module__ == module,
                             "grid": list(launch.grid), "constants": _constants(launch), "python": _python(launch.kernel)})
        for name, value in launch.args.items():
            value = getattr(value, "base", value)
            if isinstance(value, torch.Tensor):
                key = (value.data_ptr(), tuple(value.shape), tuple(value.stride()), value.dtype)
                if key not in names:
                    stem = label = name.removesuffix("_ptr")
                    number = 2
                    while label in taken:
                        label, number = f"{stem} ({number})", number + 1
                    taken.add(label)
                    names[key] = label

    with _poisoned(), backend.observe(seen), _Operations() as watch:
        report = meter(function, *arguments.values())
    returned = list(report.result) if isinstance(report.result, (tuple, list)) else [report.result]
    known = {**{f"returned {i}": item for i, item in enumerate(returned)}, **arguments}
    roles = {label: next((role for role, t in known.items() if _within(key[0], t)), "") for key, label in names.items()}
    tensors = []
    for t in report.tensors.values():
        tensors.append({
            "name": t.name, "role": roles.get(t.name, ""), "shape": list(t.shape), "read": t.read, "written": t.written,
            "unique_read": t.unique_read, "unique_written": t.unique_written, "unwritten": t.unwritten,
            "sectors": t.sectors_read + t.sectors_written,
            "first_unwritten": list(t.first_unwritten) if t.first_unwritten else None,
            "stored_by": [[*program, *ends] for program, ends in [*t.stored_by.items()][:MAX_PROGRAMS]],
            "out_of_bounds": [{"kind": a.kind, "program": list(a.program), "index": a.index, "count": a.count,
                               "text": str(a)} for a in t.out_of_bounds[:MAX_RECORDS]],
        })
    told = _export(report.result, arguments, out, case["id"])
    trace.write(report.result)
    return {**told, "launches": launches, "operations": watch.done,
            "meter": {"tensors": tensors, "launches": report.launches, "programs": report.programs}}


def _python(kernel) -> list:
    """Words of Python that stand in a kernel and see a tile as one value: max, min, and, or."""
    try:
        tree = ast.parse(textwrap.dedent(kernel.src))
    except (AttributeError, TypeError, SyntaxError):
        return []
    tests = {id(node.test) for node in ast.walk(tree) if isinstance(node, (ast.If, ast.While, ast.IfExp, ast.Assert))}
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("max", "min"):
            found.add(node.func.id)
        elif isinstance(node, ast.BoolOp) and id(node) not in tests:
            found.add("and" if isinstance(node.op, ast.And) else "or")
    return sorted(found)


def _constants(launch) -> dict:
    """{name: value} of a launch's constexprs that are plain."""
    values = {p.name: getattr(launch.args.get(p.name), "value", launch.args.get(p.name))
              for p in launch.kernel.params if p.is_constexpr}
    return {name: value for name, value in values.items() if type(value) in (bool, int, float, str)}


def _too_wide(constants: dict, most: int | None) -> bool:
    """Whether a power of two above `most` is among a launch's constexprs: the width of a tile."""
    return most is not None and any(type(value) is int and value > most and value & (value - 1) == 0
                                    for value in constants.values())


class Compiling:
    """Compiles the first launch of each kernel on tensors of each dtype for a real GPU, which needs none; the first of
    all for every one of ARCHITECTURES.

    ieee: on nothing but fp32, it must not multiply in TF32; the interpreter never does. max_tile: a tile that is wider
    fails the task, and would be compiled for minutes.
    """

    ARCHITECTURES = (80, 90)

    def __init__(self, ieee: bool = False, max_tile: int | None = None):
        self.ieee, self.max_tile = ieee, max_tile
        self.waiting, self.known = [], set()

    def launch(self, launch) -> None:
        key = (launch.kernel.fn, self._dtypes(launch))
        if key not in self.known and not _too_wide(_constants(launch), self.max_tile):
            archs = self.ARCHITECTURES if launch.kernel.fn not in {fn for fn, _ in self.known} else self.ARCHITECTURES[:1]
            self.known.add(key)
            self.waiting.append((launch, archs))

    def _dtypes(self, launch) -> tuple:
        tensors = [getattr(value, "base", value) for value in launch.args.values()]
        return tuple(t.dtype for t in tensors if isinstance(t, torch.Tensor))

    def _in_tf32(self, launch, ptx: str) -> bool:
        floats = {dtype for dtype in self._dtypes(launch) if dtype.is_floating_point}
        return self.ieee and floats == {torch.float32} and ".tf32" in ptx

    def errors(self) -> list:
        """What did not compile since the last call: kernel, architecture, text; or, compiled, rounds to TF32."""
        from instruments.compiled import compile_launch

        waiting, self.waiting = self.waiting, []
        failed = []
        for launch, archs in waiting:
            for arch in archs:
                try:
                    if self._in_tf32(launch, compile_launch(launch, arch).ptx):
                        failed.append({"kernel": launch.name, "arch": arch, "text": "", "tf32": True})
                        break
                except Exception as error:
                    if not type(error).__module__.startswith("triton"):
                        continue  # not about the kernel: a tool that is missing, say
                    text = [line for line in str(error).strip().splitlines() if line.strip()] or [""]
                    while error.__cause__ is not None:
                        error = error.__cause__
                    text = [line for line in str(error).strip().splitlines() if line.strip()] or text
                    failed.append({"kernel": launch.name, "arch": arch, "text": text[-1].strip()[:300]})
                    break
        return failed


class Trace:
    """Which kernels were launched on what, for replay.py to do it again without the code around them."""

    SMALL, ALL = 1 << 20, 1 << 25  # bytes of one storage that are kept, and of all

    def __init__(self, arguments: dict, out: Path, case: str):
        self.arguments = {value.untyped_storage().data_ptr(): name for name, value in arguments.items()
                          if isinstance(value, torch.Tensor) and value.numel()}
        self.out, self.case = out, case
        self.numbers, self.kept, self.launches, self.saved = {}, [], [], 0

    def launch(self, launch) -> None:
        if len(self.launches) > 10_000:
            return
        before: dict = {}
        with torch.utils._python_dispatch._disable_current_modes():
            args = {name: self._told(value, before) for name, value in launch.args.items()}
        options = {k: v for k, v in launch.options.items() if isinstance(v, (bool, int, str))}
        self.launches.append({"kernel": launch.name, "grid": [int(n) for n in launch.grid], "args": args,
                              "options": options, "before": before})

    def write(self, result) -> None:
        items = list(result) if isinstance(result, (tuple, list)) else [result]
        told = [self._told(item, None) for item in items]
        _write(self.out / f"{self.case}.trace.json", {"launches": self.launches, "returned": told,
                                                      "tuple": isinstance(result, (tuple, list))})

    def _told(self, value, before: dict | None):
        value = getattr(value, "value", value) if type(value).__name__ == "constexpr" else value
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        if isinstance(value, (tuple, list)):
            return {"items": [self._told(item, before) for item in value]}
        if isinstance(value, torch.Tensor) and value.dtype in NAMES:
            return {"storage": self._storage(value, before), "offset": value.storage_offset(), "shape": list(value.shape),
                    "stride": list(value.stride()), "dtype": NAMES[value.dtype]}
        if isinstance(value, torch.dtype) and value in NAMES:
            return {"torch_dtype": NAMES[value]}
        if hasattr(value, "block_shape") and isinstance(getattr(value, "base", None), torch.Tensor):
            return {"descriptor": self._told(value.base, before), "shape": list(value.shape),
                    "strides": list(value.strides), "block_shape": list(value.block_shape)}
        if hasattr(value, "primitive_bitwidth"):
            return {"dtype": getattr(value, "name", "") .replace("fp", "float").replace("bf16", "bfloat16")}
        if hasattr(value, "arg_names") and hasattr(value, "fn"):
            return {"kernel": value.fn.__name__}
        return {"other": type(value).__name__}

    def _storage(self, tensor: torch.Tensor, before: dict | None) -> int:
        storage = tensor.untyped_storage()
        key = storage.data_ptr()
        first = key not in self.numbers
        if before is None:
            return self.numbers.get(key, -1)
        if first:
            self.numbers[key] = len(self.numbers)
            self.kept.append(storage)  # so that its address is not handed out again
        number = self.numbers[key]
        if key in self.arguments:
            before[number] = {"argument": self.arguments[key]}
        elif number not in before and (first or storage.nbytes() <= self.SMALL):
            before[number] = self._content(storage, tensor.dtype, number, first)
        return number

    def _content(self, storage, dtype, number: int, first: bool) -> dict:
        state = {"dtype": NAMES[dtype], "nbytes": storage.nbytes(), "first": first}
        flat = torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
        size = torch.empty(0, dtype=dtype).element_size()
        flat = flat[:len(flat) // size * size]
        items = flat.view(-1, size)
        if len(items) and bool((items == items[0]).all()):
            state["fill"] = items[0].cpu().numpy().tobytes().hex()
        elif len(flat) <= self.SMALL and self.saved + len(flat) <= self.ALL:
            self.saved += len(flat)
            state["file"] = f"{self.case}.{len(self.launches)}.{number}.npy"
            np.save(self.out / state["file"], flat.cpu().numpy(), allow_pickle=False)
        return state


def _within(address: int, tensor) -> bool:
    """Whether an address lies in a tensor, so that a kernel's argument is the tensor or a view of it."""
    if not isinstance(tensor, torch.Tensor) or not tensor.numel():
        return False
    span = 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride()))
    return tensor.data_ptr() <= address < tensor.data_ptr() + span * tensor.element_size()


# ---------------------------------------------------------------- torch: what ran beside the kernels


class _Operations(torch.utils._python_dispatch.TorchDispatchMode):
    """{torch operation: elements of its largest operand}; views and what a launch does do not count."""

    def __init__(self):
        super().__init__()
        self.done = {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        name = func._schema.name.split("::")[-1]
        if not _is_view(func) and not _launching():
            flat = torch.utils._pytree.tree_leaves((args, kwargs, result))
            elements = max((t.numel() for t in flat if isinstance(t, torch.Tensor)), default=0)
            self.done[name] = max(elements, self.done.get(name, 0))
        return result


class _Kernels:
    """Names of the kernels that the GPU ran inside the block, by torch's profiler; [] where it cannot tell."""

    def __init__(self, wanted: bool):
        self.names = []
        gpu = torch.profiler.ProfilerActivity.CUDA
        can = wanted and gpu in torch.profiler.supported_activities()
        self.profile = torch.profiler.profile(activities=[gpu]) if can else None

    def __enter__(self):
        if self.profile is not None:
            self.profile.__enter__()
        return self

    def __exit__(self, *raised):
        if self.profile is not None:
            self.profile.__exit__(*raised)
            on_device = torch.autograd.DeviceType.CUDA
            self.names = sorted({e.name for e in self.profile.events() if e.device_type == on_device})[:MAX_RECORDS]


def _launching() -> bool:
    """Whether the instruments are at work below us: the interpreter moves tensors to the host and back."""
    frame = sys._getframe(2)
    while frame is not None:
        if frame.f_globals.get("__name__", "").startswith(("instruments.", "triton.")):
            if frame.f_globals["__name__"] != "instruments.meter" or frame.f_code.co_name != "meter":
                return True
        frame = frame.f_back
    return False


def _is_view(func) -> bool:
    return any(r.alias_info is not None and not r.alias_info.is_write for r in func._schema.returns)


# ---------------------------------------------------------------- speed, on a GPU


def traced(spec: dict, function, out: Path) -> dict:
    """One call at the timed size: what it launched, which replay.py times, and what torch did beside it."""
    try:
        function(*_random_arguments(spec).values())  # compiles, and tunes
        arguments = _random_arguments(spec)
        trace = Trace(arguments, out, "speed")
        with _poisoned(), backend.observe(trace.launch), _Operations() as watch:
            returned = function(*arguments.values())
        torch.cuda.synchronize()
        trace.write(returned)
        return {"error": None, "operations": watch.done}
    except Exception as error:
        return {"error": _told(error)}
    finally:
        torch.cuda.empty_cache()


def speed(spec: dict, function, out: Path) -> dict:
    """Median seconds of the function from a graph, the copy roof of this run, and sample rows of one more call."""
    from instruments.timing import copy_roof, from_graphs

    try:
        arguments = _random_arguments(spec)
        seconds = from_graphs({"answer": function}, tuple(arguments.values()), spec["bytes"])["answer"].median
        arguments = _random_arguments(spec)
        rows = torch.tensor(spec["rows"], device=backend.device())
        sampled = {}
        for name, value in arguments.items():
            if isinstance(value, torch.Tensor):
                part = value[rows] if value.ndim > 1 else value
                file = f"speed.{name}.npy"
                np.save(out / file, _storage(part), allow_pickle=False)
                sampled[name] = {"file": file, "dtype": NAMES[value.dtype], "shape": list(part.shape)}
        with _poisoned(), _Operations() as watch:
            returned = function(*arguments.values())
        torch.cuda.synchronize()
        items = list(returned) if isinstance(returned, (tuple, list)) else [returned]
        told = _export(tuple(item[rows] for item in items), {}, out, "speed")
        after = {name: value[rows] for name, value in arguments.items() if isinstance(value, torch.Tensor) and
                 value.ndim > 1}
        told["after"] = {}
        for name, part in after.items():
            told["after"][name] = f"speed.after.{name}.npy"
            np.save(out / told["after"][name], _storage(part), allow_pickle=False)
        del arguments, returned, items
        roof = copy_roof(1 << 30)
        return {"error": None, "seconds": seconds, "roof": roof, "sampled": sampled, "operations": watch.done, **told}
    except Exception as error:
        return {"error": _told(error)}
    finally:
        torch.cuda.empty_cache()


def _random_arguments(spec: dict) -> dict:
    generator = torch.Generator(backend.device()).manual_seed(spec["seed"])
    arguments = {}
    for a in spec["arguments"]:
        if "random" in a:
            r = a["random"]
            values = torch.randn(r["shape"], generator=generator, device=backend.device(), dtype=torch.float32)
            arguments[a["name"]] = values.mul_(r["std"]).add_(r["mean"]).to(DTYPES[r["dtype"]])
        elif "dtype" in a:
            arguments[a["name"]] = DTYPES[a["dtype"]]
        else:
            arguments[a["name"]] = a["value"]
    return arguments
