"""Runs in the learner's process: calls the task's functions on given inputs and reports what came back.

It judges nothing and knows no reference, no tolerance and no seed: inputs are files that tasks/files.py wrote, results
are files and a facts.Run. Each case is called twice, with other numbers. Kernels do not run here: their launches are
recorded (launches.py), and player.py plays them in another process, on numbers that this one never sees.
"""

import copy
import inspect
import json
import math
import re
import traceback
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

import numpy as np
import torch

from grading import facts
from instruments import backend, gpus
from instruments.launches import Recorder, Refused, save
from instruments.operations import poisoned, watched

DTYPES = {name: getattr(torch, name) for name in ("int64", "int32", "int16", "int8", "uint8", "bool")}
DTYPES |= {**gpus.DTYPES, "fp64": torch.float64, "e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}
NAMES = {dtype: name for name, dtype in DTYPES.items()}
MAX_ERRORS = 3  # exceptions after which the remaining cases are left out
MAX_TEXT = 1500


def run(task_id: str, namespace: dict, folder: Path | str) -> dict:
    """Call the task's functions, by their names in `namespace`, on every case; write results/TASK/run.msgpack.

    Returns:
        The trace of the launches, {case: its calls}; where there are any, it is in results/TASK/trace.pickle too.
    """
    folder = Path(folder)
    spec = json.loads((folder / "tasks" / task_id / "task.json").read_text(encoding="utf-8"))
    out = folder / "results" / task_id
    out.mkdir(parents=True, exist_ok=True)
    environment = facts.Environment(
        mode=backend.mode(),
        device=torch.cuda.get_device_name() if backend.device() == "cuda" else "cpu",
        torch=str(torch.__version__),
        triton=str(backend.triton.__version__),
    )
    run, recorder, errors = facts.Run(environment=environment), Recorder(), 0
    for number, case in enumerate(spec["cases"]):
        call = _case(number, case, spec, namespace.get(case["function"]), folder / "tasks" / task_id, out, recorder)
        run.cases.append(call)
        facts.write(out / "run.msgpack", run)
        errors += call.error is not None and not call.stub
        if errors == MAX_ERRORS or call.error and call.error.type == "KeyboardInterrupt":
            break
    if spec["speed"] and on_gpu() and not errors:
        run.timed = facts.Call()
        with reporting(run.timed):
            function, forms = namespace[spec["speed"]["function"]], spec["speed"]["arguments"]
            run.timed.operations = recorder.call("speed", function, load_arguments(forms))[1].counts
        torch.cuda.empty_cache()
    run.launched = any(call.launches for calls in recorder.trace.values() for call in calls)
    if run.launched:
        try:
            save(recorder.trace, namespace, out / "trace.pickle")
        except Refused as error:
            run.refused = str(error)
    run.finished = len(run.cases) == len(spec["cases"])
    facts.write(out / "run.msgpack", run)
    return recorder.trace


def on_gpu() -> bool:
    """Whether kernels are compiled and run on a GPU."""
    return backend.device() == "cuda" and backend.mode() == "compiled"


def _case(number: int, case: dict, spec: dict, function, source: Path, out: Path, recorder) -> facts.Call:
    call = facts.Call()
    if not callable(function):
        call.error = facts.Error(type="NameError", text=f"{case['function']} is not defined")
        return call
    call.stub = is_stub(function)
    with reporting(call):
        arguments = [load_arguments(turn, source) for turn in case["turns"]]
        before = [_state(each) for each in arguments]
        if spec["kernel"]:
            for each in arguments:
                _, operations = recorder.call(str(number), function, each)
                call.operations |= operations.counts
                call.read = operations.read[:3]
        else:
            _call_twice(function, arguments, spec["tile"], call, out, f"case{number}")
        pairs = zip(before, map(_state, arguments))
        call.changed = [name for old, new in pairs for name in old if old[name] != new[name]]
        if spec["kernel"]:  # by torch or Python, for no kernel ran
            call.after = export_arguments(arguments[0], out, f"case{number}")
    launches = [launch for each in recorder.trace.get(str(number), []) for launch in each.launches]
    call.stub |= bool(launches) and all(is_stub(launch.kernel.fn) for launch in launches)
    call.stub |= bool(call.error) and (call.error.type, call.error.text) == ("NotImplementedError", "")  # of a helper
    return call


def _call_twice(function, arguments: list, tile: bool, call: facts.Call, out: Path, name: str) -> None:
    """Call a function in plain PyTorch or Python, and once more on other tensors: a result that it holds on to would
    change. tile: whether what torch does is of interest."""
    with poisoned(), watched() if tile else nullcontext() as operations:  # torch.compile does nothing while watched
        first = function(*arguments[0].values())
    call.operations = operations.counts if tile else {}
    call.returned = export(first, out, name)
    if any(isinstance(value, torch.Tensor) for value in arguments[0].values()):
        with poisoned():
            call.second = export(function(*arguments[1].values()), out, f"{name}.second")
        later = export(first, out, f"{name}.later")
        call.held = [_content(out, item) for item in later] == [_content(out, item) for item in call.returned]
    call.after = export_arguments(arguments[0], out, name)


def _content(out: Path, item):
    return (out / item.file).read_bytes() if isinstance(item, facts.Array) else item


def is_stub(function) -> bool:
    """Whether a function's body does nothing but raise NotImplementedError, as in the exercise."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return code is not None and code.co_names == ("NotImplementedError",)


@contextmanager
def reporting(record):
    """Put an exception of the block into a record: its type, its text, and the line of the learner's code that it came
    through last. What ends the process on purpose counts as one."""
    try:
        yield
    except (Exception, KeyboardInterrupt, SystemExit, GeneratorExit) as error:
        chain = [error]
        while chain[-1].__cause__ is not None and len(chain) < 5:
            chain.append(chain[-1].__cause__)
        root, where, kernel, text = chain[-1], "", "", ""
        for frame in (frame for link in chain for frame in traceback.extract_tb(link.__traceback__)):
            if re.search("^<ipython|ipykernel_|answer", frame.filename):
                where = f"line {frame.lineno} of its cell: {(frame.line or '').strip()[:200]}"
                kernel = frame.name
        with suppress(Exception):  # a class of the learner's own
            text = str(root)[-MAX_TEXT:]
        record.error = facts.Error(type=type(root).__name__[:100], text=text, where=where, kernel=kernel)


def load_arguments(case: list, source: Path = Path()) -> dict:
    """{name: what the function gets}, fresh, on the device where kernels run."""
    arguments = {}
    for argument in case:
        value = copy.deepcopy(argument.get("value"))
        if "tensor" in argument:
            t = argument["tensor"]
            flat = torch.from_numpy(np.load(source / t["file"], allow_pickle=False)).view(DTYPES[t["dtype"]])
            value = flat.to(backend.device(), copy=True).as_strided(t["shape"], t["stride"])
        elif "random" in argument:
            r = argument["random"]
            generator = torch.Generator(backend.device()).manual_seed(r["seed"])
            where, dtype = {"generator": generator, "device": backend.device()}, DTYPES[r["dtype"]]
            if dtype.is_floating_point:
                value = torch.randn(r["shape"], dtype=torch.float32, **where).mul_(r["std"]).add_(r["mean"]).to(dtype)
            else:
                value = torch.randperm(math.prod(r["shape"]), dtype=dtype, **where).view(r["shape"])
        elif "dtype" in argument:
            value = DTYPES[argument["dtype"]]
        arguments[argument["name"]] = value
    return arguments


def _state(arguments: dict) -> dict:
    """{words: what a call must not change}: of plain values their text, of tensors whether they require a gradient."""
    state = {}
    for name, value in arguments.items():
        if isinstance(value, torch.Tensor):
            state[f"{name}, which requires a gradient now"] = value.requires_grad
        else:
            state[name] = repr(value)
    return state


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
    if type(item) in (int, str) and len(text := str(item)) > 18:  # longer than any right answer
        return facts.Value(value=text[:1000])
    if item is None or type(item) in (bool, int, float, str):
        return facts.Value(value=item)
    return facts.Other(name=type(item).__name__[:100])


def export_array(tensor: torch.Tensor, out: Path, file: str) -> facts.Array:
    """A tensor as a file of raw bytes."""
    (out / file).write_bytes(storage_of(tensor))
    return facts.Array(file=file, dtype=NAMES[tensor.dtype], shape=list(tensor.shape), strides=list(tensor.stride()))


def export_arguments(arguments: dict, out: Path, prefix: str) -> dict:
    """{argument: file with its whole storage}, of the tensors among a call's arguments."""
    after = {}
    for name, value in arguments.items():
        if isinstance(value, torch.Tensor):
            after[name] = f"{prefix}.after.{name}.bin"
            whole = value.as_strided((value.untyped_storage().nbytes() // value.element_size(),), (1,), 0)
            (out / after[name]).write_bytes(storage_of(whole))
    return after
