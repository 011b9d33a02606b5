"""Calls a learner's functions on given inputs and hands back raw arrays, errors and what was launched; it judges
nothing.

This file runs in the learner's process and knows no reference, no tolerance and no seed: inputs come as files that
grading/cases.py wrote, results go back as records (grading/record.py), and the verdict is formed elsewhere. Of grading/
it imports record.py alone. Kernels do not run here: their launches are written down, and grading/replay.py runs them in
a process of its own, on numbers that this process never sees. Each case is called twice, with other numbers.
"""

import ast
import copy
import inspect
import json
import traceback
import types
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch

from grading import record
from instruments import backend

DTYPES = {
    "fp64": torch.float64,
    "fp32": torch.float32,
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
    "int64": torch.int64,
    "int32": torch.int32,
    "int16": torch.int16,
    "int8": torch.int8,
    "uint8": torch.uint8,
    "e4m3": torch.float8_e4m3fn,
    "e5m2": torch.float8_e5m2,
    "bool": torch.bool,
}
NAMES = {dtype: name for name, dtype in DTYPES.items()}

MAX_ERRORS = 3  # exceptions after which the remaining cases are left out
MAX_TEXT = 1500
MAX_LAUNCHES = 10_000  # of one call
MAX_CONFIGS = 64  # of an autotuner


def run(task_id: str, namespace: dict, folder: Path | str = ".") -> None:
    """Call the task's functions, found in `namespace` by name, on every case; write results/<task>/run.msgpack, and
    trace.msgpack where kernels were launched."""
    folder = Path(folder)
    spec = json.loads((folder / "tasks" / task_id / "task.json").read_text(encoding="utf-8"))
    out = folder / "results" / task_id
    out.mkdir(parents=True, exist_ok=True)
    found = record.Run(environment=environment())
    recorder = Recorder(out, namespace.get("__name__", "")) if spec["kernel"] else None
    errors = 0
    for number, case in enumerate(spec["cases"]):
        function = namespace.get(case["function"])
        told = _case(number, case, spec, function, folder / "tasks" / task_id, out, recorder)
        found.cases.append(told)
        record.write(out / "run.msgpack", found)
        errors += told.error is not None and not told.stub
        if errors == MAX_ERRORS or told.error and told.error.type == "KeyboardInterrupt":
            break
    timed = spec["speed"]
    if timed and recorder and on_gpu() and not any(told.error for told in found.cases):
        found.timed = record.Case()
        with _telling(found.timed):
            arguments = random_arguments(timed)
            _, found.timed.operations = recorder.call("speed", namespace[timed["function"]], arguments)
            del arguments
        torch.cuda.empty_cache()
    if recorder:
        recorder.write()
    found.finished = len(found.cases) == len(spec["cases"])
    record.write(out / "run.msgpack", found)


def environment() -> record.Environment:
    """What this process runs on."""
    cuda = backend.device() == "cuda"
    return record.Environment(
        mode=backend.mode(),
        device=torch.cuda.get_device_name() if cuda else "cpu",
        torch=str(torch.__version__),
        triton=str(backend.triton.__version__),
    )


def on_gpu() -> bool:
    """Whether kernels are compiled and run on a GPU."""
    return backend.device() == "cuda" and backend.mode() == "compiled"


# ---------------------------------------------------------------- one case


def _case(number: int, case: dict, spec: dict, function, source: Path, out: Path, recorder) -> record.Case:
    told = record.Case()
    if not callable(function):
        told.error = record.Error(type="NameError", text=f"{case['function']} is not defined")
        return told
    told.stub = is_stub(function)
    with _telling(told):
        arguments = [load_arguments(turn, source) for turn in case["turns"]]
        before = [_plain_arguments(given) for given in arguments]
        if recorder:
            for given in arguments:
                _, done = recorder.call(str(number), function, given)
                told.operations = {**done, **told.operations}
        else:
            _call_twice(function, arguments, spec["watch_operations"], told, out, f"case{number}")
        told.changed = sorted(
            {
                name
                for given, were in zip(arguments, before)
                for name, value in were.items()
                if not _same(value, given[name])
            }
            | {
                f"{name}, which now asks for a gradient"
                for given in arguments
                for name, value in given.items()
                if isinstance(value, torch.Tensor) and value.requires_grad
            }
        )
        if recorder:  # by torch, for no kernel ran
            told.after = export_arguments(arguments[0], out, f"case{number}")
    if recorder and not told.stub:
        told.stub = recorder.only_stubs(str(number))
    return told


def _call_twice(function, arguments: list, watched: bool, told: record.Case, out: Path, name: str) -> None:
    """Call a function in plain PyTorch or Python; what it returns first is exported when it was called once more, and
    so shows whether it is held."""
    with poisoned(), Operations() if watched else Operations(off=True) as watch:
        first = function(*arguments[0].values())
    if any(isinstance(value, torch.Tensor) for value in arguments[0].values()):
        kept = export(first, out, f"{name}.first")
        with poisoned():
            told.second = export(function(*arguments[1].values()), out, f"{name}.second")
        told.returned = export(first, out, name)
        if [_content(out, item) for item in kept] != [_content(out, item) for item in told.returned]:
            told.held, told.returned = False, kept
    else:
        told.returned = export(first, out, name)
    told.operations = watch.done
    told.after = export_arguments(arguments[0], out, name)


def _content(out: Path, item):
    return (out / item.file).read_bytes() if isinstance(item, record.Array) else item


def is_stub(function) -> bool:
    """Whether a function's body does nothing but raise NotImplementedError, as released."""
    code = getattr(inspect.unwrap(function) if callable(function) else function, "__code__", None)
    return code is not None and code.co_names == ("NotImplementedError",)


@contextmanager
def _telling(told):
    """Put an exception of the block into a record; what ends the process on purpose counts as one."""
    try:
        yield
    except (Exception, KeyboardInterrupt, SystemExit, GeneratorExit) as error:
        told.error = error_of(error)


def error_of(error: BaseException) -> record.Error:
    """An exception as type, text and the line of the learner's code that it came through last."""
    where = kernel = ""
    chain = [error]
    while chain[-1].__cause__ is not None and len(chain) < 5:
        chain.append(chain[-1].__cause__)
    for link in chain:
        for frame in traceback.extract_tb(link.__traceback__):
            if "ipykernel_" in frame.filename or frame.filename.startswith("<ipython") or "answer" in frame.filename:
                where = f"line {frame.lineno} of its cell: {(frame.line or '').strip()[:200]}"
                kernel = frame.name if "answer_kernel" in frame.filename else ""
    root = chain[-1]
    try:
        text = str(root)
    except Exception:  # a class of the learner's own
        text = ""
    return record.Error(type=type(root).__name__[:100], text=text[-MAX_TEXT:], where=where, kernel=kernel)


def load_arguments(case: list, source: Path) -> dict:
    """{name: what the function gets}, fresh, on the device where kernels run."""
    arguments = {}
    for a in case:
        if "tensor" in a:
            t = a["tensor"]
            storage = np.load(source / t["file"], allow_pickle=False)
            flat = torch.from_numpy(storage.view(np.int16) if t["dtype"] == "bf16" else storage)
            flat = flat.view(DTYPES[t["dtype"]]).to(backend.device(), copy=True)
            arguments[a["name"]] = flat.as_strided(t["shape"], t["stride"])
        elif "dtype" in a:
            arguments[a["name"]] = DTYPES[a["dtype"]]
        else:
            arguments[a["name"]] = copy.deepcopy(a["value"])
    return arguments


def random_arguments(spec: dict) -> dict:
    """The inputs of a timed call."""
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


def _plain_arguments(arguments: dict) -> dict:
    return {name: copy.deepcopy(value) for name, value in arguments.items() if not isinstance(value, torch.Tensor)}


def _same(before, after) -> bool:
    try:
        return bool(before == after)
    except Exception:  # an object of the learner's own in it
        return False


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


# ---------------------------------------------------------------- what comes back


def storage_of(tensor: torch.Tensor) -> bytes:
    """A tensor's elements in row-major order, as bytes."""
    flat = tensor.detach().to("cpu").reshape(-1).clone(memory_format=torch.contiguous_format)
    return flat.view(torch.uint8).numpy().tobytes()


def export(returned, out: Path, prefix: str) -> list:
    """What a call returned, tensors as files of raw bytes."""
    items = list(returned) if isinstance(returned, (tuple, list)) else [returned]
    return [_export(item, out, f"{prefix}.returned{i}.bin") for i, item in enumerate(items[:100])]


def _export(item, out: Path, file: str):
    if type(item) in (torch.Tensor, torch.nn.Parameter) and item.dtype in NAMES:
        return export_array(item, out, file)
    if isinstance(item, np.generic) and type(item).__module__ == "numpy":
        item = item.item()
    if type(item) in (int, str) and len(text := str(item)) > 18:  # whatever is longer than any right answer
        return record.Value(value=text[:1000])
    if item is None or type(item) in (bool, int, float, str):
        return record.Value(value=item)
    return record.Other(name=type(item).__name__[:100])


def export_array(tensor: torch.Tensor, out: Path, file: str) -> record.Array:
    """A tensor as a file of raw bytes."""
    (out / file).write_bytes(storage_of(tensor))
    return record.Array(file=file, dtype=NAMES[tensor.dtype], shape=list(tensor.shape), strides=list(tensor.stride()))


def export_arguments(arguments: dict, out: Path, prefix: str) -> dict:
    """{argument: file with its whole storage}, of the tensors among a call's arguments."""
    after = {}
    for name, value in arguments.items():
        if isinstance(value, torch.Tensor):
            after[name] = f"{prefix}.after.{name}.bin"
            whole = value.as_strided((value.untyped_storage().nbytes() // value.element_size(),), (1,), 0)
            (out / after[name]).write_bytes(storage_of(whole))
    return after


# ---------------------------------------------------------------- launches, written down


class Recorder:
    """Which kernels a task's functions launch, and on what; none of them runs.

    module: the name under which the learner's own kernels are defined.
    """

    SMALL, ALL = 1 << 20, 1 << 25  # bytes of one storage that are kept, and of all

    def __init__(self, out: Path, module: str):
        self.out, self.module = out, module
        self.trace, self.saved = record.Trace(), 0
        self.numbers: dict = {}  # function: its place in the trace
        self.storages: dict = {}  # address: (number, storage), kept so that its address is not handed out again

    def call(self, case: str, function, arguments: dict) -> tuple:
        """(what `function` returned, {torch operation: elements}); the call is added to the trace of the case."""
        call = _Call(self, f"{case}.{len(self.trace.calls.get(case, []))}", arguments)
        with (
            poisoned(),
            Operations(lambda: len(call.launches)) as watch,
            Readings(watch.done),
            backend.recording(call.launch),
        ):
            returned = function(*arguments.values())
        items = list(returned)[:100] if isinstance(returned, (tuple, list)) else [returned]
        told = record.Call(
            launches=call.launches,
            returned=[call.told(item) for item in items],
            storages=call.storages(),
            touched=[i for i, item in enumerate(items) if call.touched(item, watch.written)],
        )
        self.trace.calls.setdefault(case, []).append(told)
        return returned, watch.done

    def write(self) -> None:
        record.write(self.out / "trace.msgpack", self.trace)

    def only_stubs(self, case: str) -> bool:
        """Whether all that a case launches are kernels that are not written yet."""
        numbers = {launch.kernel for call in self.trace.calls.get(case, []) for launch in call.launches}
        by_number = {number: function for function, number in self.numbers.items()}
        return bool(numbers) and all(is_stub(by_number[number]) for number in numbers)

    def function(self, kernel) -> int:
        """The number of a function under @triton.jit (or constexpr_function), written down with all it uses."""
        fn = kernel.fn
        if fn not in self.numbers:
            self.numbers[fn] = len(self.trace.functions)
            told = record.Source(
                name=fn.__name__,
                source="",
                line=1,
                own=fn.__module__ == self.module,
                constexpr=type(kernel).__name__ == "ConstexprFunction",
            )
            self.trace.functions.append(told)
            told.source, told.line = _source(fn)
            for name, value in _globals(fn, told.source).items():
                told.globals[name] = self.constant(value)
        return self.numbers[fn]

    def constant(self, value):
        """A global of a kernel, as data."""
        is_constexpr = type(value).__name__ == "constexpr"
        value = value.value if is_constexpr else value
        if value is None or type(value) in (bool, int, float, str):
            return record.Number(value=_bounded(value), constexpr=is_constexpr)
        if isinstance(value, (tuple, list)) and len(value) <= 64:
            return record.Items(items=[self.constant(item) for item in value], constexpr=is_constexpr)
        if type(value) is torch.dtype and value in NAMES:
            return record.DType(name=NAMES[value], torch=True)
        if hasattr(value, "primitive_bitwidth"):
            return record.DType(name=str(getattr(value, "name", "")))
        if isinstance(value, types.ModuleType):
            return record.Language(name=value.__name__)
        module = str(getattr(getattr(value, "fn", value), "__module__", "") or "")
        name = str(getattr(getattr(value, "fn", value), "__name__", ""))
        if module.split(".")[0] == "triton":
            return record.Language(name=f"{module}.{name}")
        if hasattr(value, "fn") and hasattr(value.fn, "__code__"):
            return record.Function(number=self.function(value))
        return record.Other(name=type(value).__name__[:100])


def _bounded(value):
    return value if not isinstance(value, int) or -1 << 63 <= value < 1 << 64 else None


def _source(fn) -> tuple[str, int]:
    """A function's source from `def` on, and the line of the cell where that stands."""
    lines, first = inspect.getsourcelines(fn)
    at = next((i for i, line in enumerate(lines) if line.lstrip().startswith("def ")), 0)
    indent = len(lines[at]) - len(lines[at].lstrip())
    return "".join(line[indent:] if line[:indent].isspace() or not indent else line for line in lines[at:]), first + at


def _globals(fn, source: str) -> dict:
    """{name: value} of what a function uses beside its parameters, its own names and Python's words: in its body, its
    closure, its defaults and its hints."""
    scope = {
        **fn.__globals__,
        **{name: cell.cell_contents for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or ())},
    }
    tree = ast.parse(source).body[0]
    signature = {node.id for node in ast.walk(tree.args) if isinstance(node, ast.Name)}
    named = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    own = {node.id for node in named if isinstance(node.ctx, ast.Store)} | {
        a.arg for a in ast.walk(tree.args) if isinstance(a, ast.arg)
    }
    names = signature | {node.id for node in named} - own
    return {name: scope[name] for name in sorted(names) if name in scope and not name.startswith("__")}


class _Call:
    """One call: its launches so far, and which storages they met."""

    def __init__(self, recorder: Recorder, name: str, arguments: dict):
        self.recorder, self.name, self.launches = recorder, name, []
        self.arguments = {
            value.untyped_storage().data_ptr(): name
            for name, value in arguments.items()
            if isinstance(value, torch.Tensor) and value.numel()
        }
        self.numbers, self.contents = {}, {}

    def launch(self, launch) -> None:
        """Write a launch down; `launch.others` are the same launch with an autotuner's other configs."""
        if len(self.launches) >= MAX_LAUNCHES:
            raise RuntimeError(f"more than {MAX_LAUNCHES:,} kernels were launched in one call")
        with torch.utils._python_dispatch._disable_current_modes(), torch._C.DisableTorchFunction():
            self.launches.append(self._launch(launch))

    def _launch(self, launch) -> record.Launch:
        before: dict = {}
        args = {name: self.told(value, before) for name, value in launch.args.items()}
        options = {k: v for k, v in launch.options.items() if v is None or type(v) in (bool, int, str)}
        return record.Launch(
            kernel=self.recorder.function(launch.kernel),
            grid=[int(n) for n in launch.grid],
            args=args,
            options=options,
            before=before,
            others=[self._launch(o) for o in launch.others[:MAX_CONFIGS]],
            restored=None if launch.restored is None else list(launch.restored),
        )

    def storages(self) -> dict:
        """{number of a storage here: its number across calls}, of those that are no argument's."""
        return {
            number: self.recorder.storages[key][0] for key, number in self.numbers.items() if key not in self.arguments
        }

    def touched(self, value, written: dict) -> bool:
        """Whether something other than a kernel changed a returned tensor after the last launch."""
        key = value.untyped_storage().data_ptr() if isinstance(value, torch.Tensor) else None
        if key not in self.numbers or key in self.arguments:
            return False
        by_torch = written.get(key, -1) == len(self.launches)
        with torch.utils._python_dispatch._disable_current_modes():
            return by_torch or self._content(value.untyped_storage(), value.dtype, self.numbers[key], False) is not None

    def told(self, value, before: dict | None = None):
        """A value as data."""
        if isinstance(value, torch.Tensor) and value.dtype in NAMES:
            return record.View(
                storage=self._storage(value, before),
                offset=value.storage_offset(),
                shape=list(value.shape),
                stride=list(value.stride()),
                dtype=NAMES[value.dtype],
            )
        if isinstance(value, (tuple, list)):
            return record.Items(items=[self.told(item, before) for item in value[:64]])
        if hasattr(value, "block_shape") and isinstance(getattr(value, "base", None), torch.Tensor):
            return record.Descriptor(
                base=self.told(value.base, before),
                shape=list(value.shape),
                strides=list(value.strides),
                block_shape=list(value.block_shape),
            )
        return self.recorder.constant(value)

    def _storage(self, tensor: torch.Tensor, before: dict | None) -> int:
        storage = tensor.untyped_storage()
        key = storage.data_ptr()
        if before is None:
            return self.numbers.get(key, -1)
        first = key not in self.numbers
        if first:
            self.numbers[key] = len(self.numbers)
            self.recorder.storages.setdefault(key, (len(self.recorder.storages), storage))
        number = self.numbers[key]
        if number in before:
            return number
        if key in self.arguments:
            before[number] = record.State(
                dtype=NAMES[tensor.dtype], nbytes=storage.nbytes(), first=first, argument=self.arguments[key]
            )
        elif first or storage.nbytes() <= Recorder.SMALL:
            state = self._content(storage, tensor.dtype, number, first)
            if state is not None:
                before[number] = state
        return number

    def _content(self, storage, dtype, number: int, first: bool) -> record.State | None:
        """What a storage holds, told where it is new; None where nothing but kernels touched it since the last
        launch."""
        state = record.State(dtype=NAMES[dtype], nbytes=storage.nbytes(), first=first)
        flat = torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
        size = torch.empty(0, dtype=dtype).element_size()
        flat = flat[: len(flat) // size * size]
        items = flat.view(-1, size)
        recorder = self.recorder
        if len(items) and bool((items == items[0]).all()):
            state.fill = items[0].cpu().numpy().tobytes().hex()
            content = state.fill
        elif len(flat) <= recorder.SMALL:
            content = flat.cpu().numpy().tobytes()
        else:
            return state if first else None
        if not first and self.contents.get(number) == content:
            return None
        self.contents[number] = content
        if not state.fill and recorder.saved + len(flat) <= recorder.ALL:
            recorder.saved += len(flat)
            state.file = f"{self.name}.{len(self.launches)}.{number}.bin"
            (recorder.out / state.file).write_bytes(content)
        return state


# ---------------------------------------------------------------- torch: what ran beside the kernels


class Operations(torch.utils._python_dispatch.TorchDispatchMode):
    """{torch operation: elements of its largest operand}; views do not count, and of an operation that a learner has
    registered its inside does. What hands numbers to Python is told once more, as record.READ and its name.

    clock: tells the time, in launches. written: {address of a storage: when an operation last wrote to it}.
    """

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """False, or torch would import its compiler first, seconds of each check: nothing is compiled in a mode."""
        return False

    def __init__(self, clock=lambda: 0, off: bool = False):
        super().__init__()
        self.done, self.written, self.clock, self.off = {}, {}, clock, off

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func._schema.name.split("::")
        own = getattr(torch._library.custom_ops, "OPDEFS", {}).get(func._schema.name)
        if own is not None:
            with self:
                return own._init_fn(*args, **(kwargs or {}))
        result = func(*args, **(kwargs or {}))
        if func._schema.is_mutable:
            for argument, value in zip(func._schema.arguments, args):
                if argument.alias_info is not None and argument.alias_info.is_write and isinstance(value, torch.Tensor):
                    self.written[value.untyped_storage().data_ptr()] = self.clock()
        if not self.off and _reads(func, args, kwargs or {}):
            self.done[record.READ + name[-1]] = 1
        if not self.off and not _is_view(func):
            flat = torch.utils._pytree.tree_leaves((args, kwargs, result))
            elements = max((t.numel() for t in flat if isinstance(t, torch.Tensor)), default=0)
            self.done[name[-1]] = max(elements, self.done.get(name[-1], 0))
        return result


class Readings(torch.overrides.TorchFunctionMode):
    """Adds to `done`, as record.READ and a name, what hands a tensor to Python and is no operation of torch's."""

    NAMES = ("tolist", "numpy", "__array__", "__dlpack__", "__repr__", "__format__")

    def __init__(self, done: dict):
        super().__init__()
        self.done = done

    def __torch_function__(self, func, types, args=(), kwargs=None):
        name = getattr(func, "__name__", "")
        if name in self.NAMES or name == "tensor_split" and any(isinstance(a, torch.Tensor) for a in args[1:]):
            self.done[record.READ + name.strip("_")] = 1
        return func(*args, **(kwargs or {}))


def _reads(func, args, kwargs) -> bool:
    """Whether an operation gives Python a number of a tensor, or a result whose size is one: on a GPU it waits."""
    name = func._schema.name
    if name == "aten::index":  # by numbers it knows the size, by a mask it does not
        return any(i is not None and i.dtype in (torch.bool, torch.uint8) for i in args[1])
    if name == "aten::repeat_interleave" and kwargs.get("output_size") is not None:
        return False
    return bool({torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape} & set(func.tags))


def _is_view(func) -> bool:
    return any(r.alias_info is not None and not r.alias_info.is_write for r in func._schema.returns)
