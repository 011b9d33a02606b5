"""Runs the kernels of an answer by themselves, on numbers that no learner's code has seen, in a process of its own.

    python grading/replay.py FOLDER fork|spawn   waits for claims/go.json, and plays the tasks that it names
    python grading/replay.py FOLDER one TASK SECONDS   plays one

What the learner's process left is only a claim: which functions under @triton.jit were launched, with which arguments,
and what came back (probe.py's trace). Here these functions, held to plain Triton (plain.py), are launched as the claim
says, in the interpreter and metered, on fresh inputs: other numbers in tensors of the same form. New tensors start as
NaN or constant; what torch or Python put into them is taken over, but it was made from other numbers. So a result that
is right here was computed by these kernels. Every specialisation goes through Triton's front end, and one for each
kernel and its dtypes is compiled for the task's architectures. On a GPU the kernels are launched compiled too, and
timed, by a clock that no learner's code can reach. Each task is played in a process of its own, forked from one that
has Triton loaded, which can write to that task's results alone.
"""

import ast
import inspect
import json
import linecache
import math
import os
import signal
import sys
import time
import types
from pathlib import Path

if __name__ == "__main__":  # a copy of this file, in the grading/ of a run's own folder
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

from grading import plain, record

SHARED = {
    80: 166_912,
    89: 101_376,
    90: 232_448,
}  # bytes of shared memory that a program may have, from CUDA's programming guide
MAX_WARPS, MAX_GRID = 32, 65_535  # of a program; programs on the second and third axis of a grid
LAUNCH_OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")
MAX_STORAGE = 1 << 30  # bytes of one tensor
MAX_TOLD = 20  # out-of-bounds accesses, races and broken promises told
MAX_SHAPES = 64  # of tiles, the largest
MAX_PROGRAMS = 1000  # of which it is told what they stored
FEW_PROGRAMS = 64  # of a call that is played once more with large numbers in undefined lanes
SIDE_BY_SIDE = 2  # tasks played at once


# ---------------------------------------------------------------- the kernels


def functions_of(trace: record.Trace) -> list:
    """The functions of a trace, made anew from their sources; plain.NotPlain where one is not plain Triton."""
    from instruments.backend import triton

    plain.check(trace.functions)
    made = []
    for number, told in enumerate(trace.functions):
        function = _function(told, f"<answer_kernel_{number}_{told.name}>")
        made.append(triton.constexpr_function(function) if told.constexpr else triton.jit(function))
    for told, kernel in zip(trace.functions, made):
        used = {name for name in _names(ast.parse(_without_annotations(told.source))) if not name.startswith("__")}
        for name, value in told.globals.items():
            if name in used:
                kernel.fn.__globals__[name] = _constant(value, made)
    return made


def _function(told: record.Source, file: str):
    """A Python function from its source, whose lines are numbered as in the learner's cell."""
    source = "\n" * (max(told.line, 1) - 1) + _without_annotations(told.source)
    signature = _names(ast.parse(source).body[0].args) - {name for name in told.globals if name.startswith("__")}
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    namespace = {"__builtins__": plain.BUILTINS, "__name__": "answer_kernels", "__file__": file}
    module = types.ModuleType("answer_kernels")
    module.__file__ = file
    sys.modules["answer_kernels"] = module  # by which inspect finds a source
    for name, value in told.globals.items():  # for default values
        if name in signature:
            namespace[name] = _constant(value, [])
    exec(compile(source, file, "exec"), namespace)
    return namespace[told.name]


def _names(tree) -> set:
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def _without_annotations(source: str) -> str:
    """A source with every annotation but constexpr's taken out: they are for people, and would be evaluated."""
    tree = ast.parse(source).body[0]
    lines = source.splitlines(keepends=True)
    notes = [a.annotation for a in ast.walk(tree) if isinstance(a, ast.arg) and a.annotation]
    notes += [tree.returns] if tree.returns else []
    for note in sorted(notes, key=lambda note: (note.lineno, note.col_offset), reverse=True):
        text = ast.get_source_segment(source, note) or ""
        word = text.strip("'\"")
        if word.endswith("constexpr") and word.replace(".", "").isidentifier():
            continue  # Triton reads it; any other hint is for people
        line = lines[note.lineno - 1].encode()
        lines[note.lineno - 1] = (line[: note.col_offset] + b"None" + line[note.end_col_offset :]).decode()
    return "".join(lines)


def _constant(value, made: list):
    """A global of a kernel, or an argument that is no tensor."""
    from instruments.backend import tl

    if isinstance(value, record.Number):
        return tl.constexpr(value.value) if value.constexpr else value.value
    if isinstance(value, record.Items):
        items = tuple(_constant(item, made) for item in value.items)
        return tl.constexpr(items) if value.constexpr else items
    if isinstance(value, record.DType):
        from grading.probe import DTYPES

        found = DTYPES.get(value.name) if value.torch else getattr(tl, _LONG.get(value.name, value.name), None)
        if found is None or not value.torch and not isinstance(found, tl.dtype):
            raise ValueError("a dtype that Triton does not have")
        return found
    if isinstance(value, record.Language):
        return plain.language(value.name)
    if isinstance(value, record.Function):
        return made[value.number]
    raise plain.NotPlain(f"an argument of type {getattr(value, 'name', '?')} cannot be handed to a kernel")


_LONG = {
    "fp64": "float64",
    "fp32": "float32",
    "fp16": "float16",
    "bf16": "bfloat16",
    "fp8e4nv": "float8e4nv",
    "fp8e5": "float8e5",
}


# ---------------------------------------------------------------- the launches, again


class Player:
    """The launches of one call as a function of its inputs.

    poison: whether new tensors are filled with what the answer's own were: needed to see what stays unwritten, and no
    part of the time. chosen: {number of a launch: that config of its autotuner}. tries: whether a launch comes after
    those with which its autotuner would have tried its configs, on the same tensors.
    """

    def __init__(self, call: record.Call, names: list, claims: Path, kernels: list, poison: bool = True):
        self.call, self.names, self.claims, self.kernels, self.poison = call, names, claims, kernels, poison
        self.chosen: dict = {}
        self.tries = False
        self.content: dict = {}  # file: its bytes on the device

    def __call__(self, *arguments):
        import torch

        storages: dict = {}
        given = {name: value for name, value in zip(self.names, arguments) if isinstance(value, torch.Tensor)}
        for number, launch in enumerate(self.call.launches):
            self.launch(self.chosen.get(number, launch), launch, storages, given)
        items = [self._value(item, storages) for item in self.call.returned]
        return tuple(items)

    def launch(self, launch: record.Launch, first: record.Launch, storages: dict, given: dict) -> None:
        """One launch; `first` is the config that was recorded, and knows what the storages held."""
        for storage, state in {**first.before, **launch.before}.items():
            self._fill(storages, storage, state, given)
        if self.tries and first.others and first.restored is not None:
            back = [self._value(first.args[name], storages) for name in first.restored if name in first.args]
            before = [tensor.clone() for tensor in back]
            for choice in (first, first.others[0]):
                self._start(choice, storages)
                for tensor, content in zip(back, before):
                    tensor.copy_(content)
        self._start(launch, storages)

    def _start(self, launch: record.Launch, storages: dict) -> None:
        values = {name: self._value(value, storages) for name, value in launch.args.items()}
        options = {k: v for k, v in launch.options.items() if k in LAUNCH_OPTIONS and v is not None}
        self.kernels[launch.kernel][tuple(launch.grid)](**values, **options)

    def _fill(self, storages: dict, number: int, state: record.State, given: dict) -> None:
        """A storage as it was before a launch: an input, a constant, or what something other than a kernel had put
        there."""
        import torch

        from grading.probe import DTYPES
        from instruments import backend

        if state.argument:
            storages[number] = given[state.argument].untyped_storage()
            return
        dtype = DTYPES[state.dtype]
        size = torch.empty(0, dtype=dtype).element_size()
        if not 0 <= state.nbytes <= MAX_STORAGE:
            raise ValueError("a storage of an impossible size")
        if number not in storages:
            fresh = torch.empty(state.nbytes // size, dtype=dtype, device=backend.device())
            storages[number] = fresh.untyped_storage()
        flat = torch.empty(0, dtype=dtype, device=backend.device()).set_(storages[number])
        if state.fill:
            item = torch.frombuffer(bytearray.fromhex(state.fill), dtype=dtype)
            poison = state.first and (
                item.isnan().all()
                if dtype.is_floating_point
                else dtype != torch.bool and item == torch.iinfo(dtype).max
            )
            if self.poison or not poison:
                flat.fill_(item.item())
        elif state.file:
            if state.file not in self.content:
                content = record.inside(self.claims, self.claims / Path(state.file).name, 1 << 24)
                self.content[state.file] = torch.from_numpy(np.frombuffer(content, np.uint8).copy()).to(flat.device)
            flat.view(torch.uint8).copy_(self.content[state.file])
        elif state.first:  # too large to be told; whatever it is made of, it is none of the task's tensors
            flat.fill_(float("nan") if dtype.is_floating_point else 0)

    def _value(self, value, storages: dict):
        import torch

        from grading.probe import DTYPES
        from instruments import backend

        if isinstance(value, record.View):
            dtype = DTYPES[value.dtype]
            if value.storage not in storages:  # nothing that a kernel had to do with
                if np.prod(value.shape, dtype=float) > MAX_STORAGE:
                    raise ValueError("a tensor of an impossible size")
                return torch.full(
                    value.shape, float("nan") if dtype.is_floating_point else 0, dtype=dtype, device=backend.device()
                )
            last = value.offset + sum((n - 1) * s for n, s in zip(value.shape, value.stride)) if all(value.shape) else 0
            if (
                min(value.offset, last, *value.stride, 0) < 0
                or (last + 1) * dtype.itemsize > storages[value.storage].nbytes()
            ):
                raise ValueError("a view of more than its storage")
            return torch.empty(0, dtype=dtype, device=backend.device()).set_(
                storages[value.storage], value.offset, value.shape, value.stride
            )
        if isinstance(value, record.Descriptor):
            from triton.tools.tensor_descriptor import TensorDescriptor

            return TensorDescriptor(self._value(value.base, storages), value.shape, value.strides, value.block_shape)
        if isinstance(value, record.Items):
            return tuple(self._value(item, storages) for item in value.items)
        return _constant(value, self.kernels)


# ---------------------------------------------------------------- metered


def metered(player: Player, arguments: dict, out: Path, name: str, compiling: "Compiling") -> tuple:
    """(what the kernels returned, record.Metered) of one call in the interpreter."""
    import torch

    from grading import probe
    from instruments import backend
    from instruments.meter import meter

    kernels, names, taken, python = [], {}, set(), set()  # names: tensor as launched -> the meter's name for it

    def seen(launch):
        kernels.append((launch.name, [int(n) for n in launch.grid]))
        compiling.launch(launch)
        python.update(_python(launch.kernel))
        for label, value in launch.args.items():
            value = getattr(value, "base", value)
            if isinstance(value, torch.Tensor):
                key = (value.data_ptr(), tuple(value.shape), tuple(value.stride()), value.dtype)
                if key not in names:
                    stem = label = label.removesuffix("_ptr")
                    number = 2
                    while label in taken:
                        label, number = f"{stem} ({number})", number + 1
                    taken.add(label)
                    names[key] = label

    with probe.poisoned(), backend.observe(seen):
        report = meter(player, *arguments.values())
    known = {**{f"returned {i}": item for i, item in enumerate(report.result)}, **arguments}
    roles = {
        label: next((role for fits in (_is, _within) for role, t in known.items() if fits(key, t)), "")
        for key, label in names.items()
    }
    tensors = [
        record.Counts(
            name=t.name,
            role=roles.get(t.name, ""),
            shape=list(t.shape),
            read=t.read,
            written=t.written,
            unique_read=t.unique_read,
            unique_written=t.unique_written,
            unwritten=t.unwritten,
            sectors=t.sectors_read + t.sectors_written,
            first_unwritten=list(t.first_unwritten or ()),
            stored_by=[[*program, *ends] for program, ends in [*t.stored_by.items()][:MAX_PROGRAMS]],
            strays=[
                record.Stray(kind=a.kind, program=list(a.program), index=a.index, count=a.count, text=str(a))
                for a in t.out_of_bounds[:MAX_TOLD]
            ],
        )
        for t in report.tensors.values()
    ]
    return report.result, record.Metered(
        tensors=tensors,
        kernels=kernels[:1000],
        programs=report.programs,
        shapes=sorted(map(list, report.widths), key=math.prod)[-MAX_SHAPES:],
        python=sorted(python) if report.truths else [],
        races=report.races[:MAX_TOLD],
        promises=report.promises[:MAX_TOLD],
        undefined=report.undefined > 0,
    )


def _is(key: tuple, tensor) -> bool:
    """Whether a kernel's argument is this tensor. key: its address, shape and strides."""
    return hasattr(tensor, "data_ptr") and key[:3] == (tensor.data_ptr(), tuple(tensor.shape), tuple(tensor.stride()))


def _within(key: tuple, tensor) -> bool:
    """Whether a kernel's argument begins in this tensor, so that it is a view of it."""
    if not hasattr(tensor, "data_ptr") or not tensor.numel():
        return False
    span = 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride()))
    return tensor.data_ptr() <= key[0] < tensor.data_ptr() + span * tensor.element_size()


def _python(kernel) -> set:
    """Words of Python that stand in a kernel and see a tile as one value: max, min, and, or."""
    tree = ast.parse(kernel.src)
    tests = {id(node.test) for node in ast.walk(tree) if isinstance(node, (ast.If, ast.While, ast.IfExp, ast.Assert))}
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("max", "min"):
            found.add(node.func.id)
        elif isinstance(node, ast.BoolOp) and id(node) not in tests:
            found.add("and" if isinstance(node.op, ast.And) else "or")
    return found


class Compiling:
    """Puts every specialisation that is launched through Triton's front end, and compiles the first of each kernel on
    tensors of each dtype.

    ieee: on nothing but fp32, or "always", no kernel may multiply in TF32; the interpreter never does. architectures:
    the first one takes every specialisation. products: what the PTX for the first one has to say where a kernel takes
    8-bit floats.
    """

    def __init__(self, ieee: bool | str, architectures: tuple, products: str):
        self.ieee, self.architectures, self.products = ieee, architectures, products
        self.waiting, self.known, self.compiled = [], set(), {}

    def launch(self, launch) -> None:
        values = tuple(
            (name, str(value) if isinstance(value, (str, float)) else self._form(value))
            for name, value in launch.args.items()
        )
        constants = tuple((p.name, repr(launch.args.get(p.name))) for p in launch.kernel.params if p.is_constexpr)
        key = (launch.kernel.fn, values, constants)
        if key not in self.known:
            self.known.add(key)
            self.waiting.append(launch)

    def _form(self, value):
        """What of an argument a specialisation depends on."""
        value = getattr(value, "base", value)
        if hasattr(value, "data_ptr"):
            return str(value.dtype), value.data_ptr() % 16 == 0
        return (value == 1, value % 16 == 0, abs(value) < 1 << 31) if type(value) is int else str(type(value))

    def _dtypes(self, launch) -> tuple:
        tensors = [getattr(value, "base", value) for value in launch.args.values()]
        return tuple(str(t.dtype) for t in tensors if hasattr(t, "data_ptr"))

    def errors(self, whole: bool) -> list:
        """record.Compile of what did not compile since the last call. whole: beyond the front end too."""
        waiting, self.waiting = self.waiting, []
        failed = []
        for launch in waiting:
            dtypes = self._dtypes(launch)
            known = self.compiled.setdefault(launch.kernel.fn, set())
            archs = self.architectures if not known else self.architectures[:1]
            error = self._launchable(launch) or self._front_end(launch)
            if error is None and whole and dtypes not in known:
                known.add(dtypes)
                error = next(filter(None, (self._whole(launch, arch, dtypes) for arch in archs)), None)
            failed += [error] if error else []
        return failed

    def _launchable(self, launch) -> record.Compile | None:
        """What no GPU launches, however it compiles."""
        warps, grid = launch.options.get("num_warps") or 4, launch.grid
        said = (
            f"num_warps={warps} makes {32 * warps:,} threads, and a program has at most {32 * MAX_WARPS:,}"
            if warps > MAX_WARPS
            else f"a grid of {tuple(grid)}, of which only the first number may be above {MAX_GRID:,}"
            if any(n > MAX_GRID for n in grid[1:])
            else ""
        )
        return record.Compile(kernel=launch.name, arch=self.architectures[0], text=said) if said else None

    def _front_end(self, launch) -> record.Compile | None:
        from instruments.compiled import front_end

        try:
            front_end(launch, self.architectures[0])
        except Exception as error:
            return record.Compile(kernel=launch.name, arch=self.architectures[0], text=_last_line(error))

    def _whole(self, launch, arch: int, dtypes: tuple) -> record.Compile | None:
        from instruments.compiled import compile_launch

        try:
            compiled = compile_launch(launch, arch)
        except Exception as error:
            if not type(error).__module__.startswith("triton"):
                return None  # the front end took it, so this is not about the kernel: a tool that is missing, say
            return record.Compile(kernel=launch.name, arch=arch, text=_last_line(error))
        if compiled.shared > SHARED[arch]:
            return record.Compile(
                kernel=launch.name,
                arch=arch,
                text=f"it takes {compiled.shared:,} bytes of shared memory, and a program may have {SHARED[arch]:,}",
            )
        if (
            self.ieee
            and ".tf32" in compiled.ptx
            and (self.ieee == "always" or {dtype for dtype in dtypes if "float" in dtype} == {"torch.float32"})
        ):
            return record.Compile(kernel=launch.name, arch=arch, text="", tf32=True)
        eight = arch == self.architectures[0] and any("float8" in dtype for dtype in dtypes)
        if eight and self.products not in compiled.ptx:
            return record.Compile(kernel=launch.name, arch=arch, text="", products=self.products)


def _last_line(error: BaseException) -> str:
    """The last words of an error, or of its cause."""
    said = [line for line in str(error).strip().splitlines() if line.strip()]
    while error.__cause__ is not None:
        error = error.__cause__
    said = [line for line in str(error).strip().splitlines() if line.strip()] or said or [type(error).__name__]
    return said[-1].strip()[:300]


# ---------------------------------------------------------------- one task


def play(task_id: str, folder: Path) -> None:
    """Play one task; write results/<task>/played.msgpack."""
    spec = json.loads((folder / "tasks" / task_id / "task.json").read_text(encoding="utf-8"))
    claims, out = folder / "claims" / task_id, folder / "results" / task_id
    out.mkdir(parents=True, exist_ok=True)
    found = record.Played()
    try:
        trace = record.read(record.Trace, claims, claims / "trace.msgpack")
        if trace is None:
            raise plain.NotPlain("the launches of the answer were not recorded")
        kernels = functions_of(trace)
        compiling = Compiling(spec["ieee"], spec["architectures"], spec["products"])
        returned: set = set()
        for number, case in enumerate(spec["cases"]):
            calls = trace.calls.get(str(number), [])
            found.fault = found.fault or around(number, calls, returned, spec["no_readback"])
            found.cases[number] = [
                _case(
                    f"case{number}.{which}.{config}",
                    calls[which],
                    case,
                    spec,
                    which,
                    folder,
                    out,
                    kernels,
                    compiling,
                    config,
                )
                for which in to_play(calls)
                for config in configs(calls[which], number)
            ]
            record.write(out / "played.msgpack", found)
        wrong = found.fault or any(c.error or c.compile for calls in found.cases.values() for c in calls)
        if spec["speed"] and compiled_runs(spec) and trace.calls.get("speed") and not wrong:
            found.speed = timed(spec["speed"], trace.calls["speed"][0], claims, kernels, out)
    except plain.NotPlain as error:
        found.refused = str(error)
    except Exception as error:  # a claim that makes no sense
        found.refused = f"the recorded launches cannot be run again ({type(error).__name__}: {error})"[:500]
    found.finished = True
    record.write(out / "played.msgpack", found)


def to_play(calls: list) -> list:
    """Which of a case's calls have to be run: the second, and the first too where it was not the same but for its
    numbers."""
    if len(calls) < 2:
        return list(range(len(calls)))
    return [1] if _form(calls[0]) == _form(calls[1]) else [0, 1]


def _form(call: record.Call):
    """A call without what differs from call to call: contents and identities."""
    import msgspec

    def stripped(value):
        if isinstance(value, dict):
            return {k: stripped(v) for k, v in value.items() if k not in ("file", "storages", "fill", "touched")}
        return [stripped(item) for item in value] if isinstance(value, (list, tuple)) else value

    return stripped(msgspec.to_builtins(call, str_keys=True))


def configs(call: record.Call, number: int) -> list:
    """Which configs of its autotuners a call is played with: the first, and another one in each case, in turn."""
    most = max((len(launch.others) for launch in call.launches), default=0)
    return [0, 1 + number % most] if most else [0]


def around(number: int, calls: list, returned: set, no_readback: bool = False) -> tuple | None:
    """(case, kind of failure, words) where a function did around its launches what it must not: kept something from
    call to call, changed a result after the last launch, or (no_readback) launched as the numbers say.

    returned: storages that calls have returned so far; those of these calls are added.
    """
    for turn, call in enumerate(calls):
        if turn and calls[0].launches and not call.launches:
            return number, "kept", "called again with other numbers, it launches nothing: it returns what it kept"
        if returned & set(call.storages.values()):
            return (
                number,
                "kept",
                "called again with other numbers, it writes into a tensor that it had returned before, "
                "which its caller still holds",
            )
        if call.touched:
            return (
                number,
                "torch_work",
                f"returned {call.touched[0]} was changed by something other than a kernel after the last launch",
            )
        if no_readback and _form(call) != _form(calls[0]):
            return (
                number,
                "readback",
                "called again with tensors of the same shapes and other numbers, it launches other programs, or hands "
                "them other plain numbers",
            )
        returned |= {
            call.storages[view.storage]
            for view in call.returned
            if isinstance(view, record.View) and view.storage in call.storages
        }
    return None


def _case(
    name: str,
    call: record.Call,
    case: dict,
    spec: dict,
    which: int,
    folder: Path,
    out: Path,
    kernels: list,
    compiling: Compiling,
    config: int = 0,
) -> record.Replayed:
    """One call: metered in the interpreter, compiled, and run on a GPU where there is one."""
    from grading import probe
    from instruments import backend

    source = folder / "tasks" / spec["task"]
    turn = case["turns"][which]
    told = record.Replayed(turn=spec["turns"][which])
    player = Player(call, [a["name"] for a in turn], folder / "claims" / spec["task"], kernels)
    player.chosen = {
        i: launch.others[(config - 1) % len(launch.others)]
        for i, launch in enumerate(call.launches)
        if config and launch.others
    }
    with probe._telling(told):
        arguments = probe.load_arguments(turn, source)
        result, told.metered = metered(player, arguments, out, name, compiling)
        told.returned = probe.export(result, out, name)
        told.after = probe.export_arguments(arguments, out, name)
        told.metered.prepared = any(
            state.file or state.first and not (state.fill or state.argument)
            for launch in call.launches
            for state in launch.before.values()
        )
        if player.chosen:
            told.tuned = _tuned(player, turn, source, out, f"{name}.tuned")
        if spec["any_order"] and any("atomic" in inspect.getsource(kernel.fn) for kernel in kernels):
            with backend.interpret(backwards=True):
                told.backwards = _played(player, turn, source, out, f"{name}.backwards")
        if told.metered.undefined and told.metered.programs <= FEW_PROGRAMS:
            with backend.interpret(large=True):
                told.large = _played(player, turn, source, out, f"{name}.large")
        wide = too_wide(told.metered.shapes, spec["max_tile"])
        told.compile = compiling.errors(whole=not wide)  # what is refused anyway may compile for minutes
        # what strays would corrupt the GPU's memory, and with it every later case
        strays = any(t.strays for t in told.metered.tensors)
        if compiled_runs(spec) and not wide and not told.compile and not strays:
            told.compiled = _played(player, turn, source, out, f"{name}.gpu")
    return told


def compiled_runs(spec: dict) -> bool:
    """Whether this machine's GPU is one that a task's kernels are compiled for."""
    import torch

    from grading import probe

    return probe.on_gpu() and torch.cuda.get_device_capability() >= divmod(min(spec["architectures"]), 10)


def too_wide(shapes: list, most) -> list:
    """The shape of an access that is wider than `most`; [] for none. most: of any side, or the two sides of a tile,
    which an access of one dimension may take flat; None for no limit."""
    for shape in shapes if most is not None else []:
        sides = sorted((side for side in shape if side > 1), reverse=True)
        allowed = (
            [most] * len(sides)
            if isinstance(most, int)
            else [math.prod(most)]
            if len(sides) == 1
            else sorted(most, reverse=True)
        )
        if len(sides) > len(allowed) or any(side > limit for side, limit in zip(sides, allowed)):
            return shape
    return []


def _played(player: Player, turn: list, source: Path, out: Path, name: str) -> record.Replayed:
    """One call, not metered, wherever kernels run."""
    from grading import probe

    told = record.Replayed()
    with probe._telling(told):
        arguments = probe.load_arguments(turn, source)
        with probe.poisoned():
            returned = player(*arguments.values())
        told.returned = probe.export(returned, out, name)
        told.after = probe.export_arguments(arguments, out, name)
    return told


def _tuned(player: Player, turn: list, source: Path, out: Path, name: str) -> record.Replayed:
    """One call in the interpreter whose launches come after their autotuner's tries."""
    from instruments import backend

    player.tries = True
    try:
        with backend.interpret():
            return _played(player, turn, source, out, name)
    finally:
        player.tries = False


def timed(spec: dict, call: record.Call, claims: Path, kernels: list, out: Path) -> record.Speed:
    """Median seconds of a call from a graph, the copy roof of this run, and sample rows of one more call."""
    import torch

    from grading import probe
    from instruments import backend
    from instruments.timing import copy_roof, from_graphs

    told = record.Speed()
    with probe._telling(told):
        arguments = probe.random_arguments(spec)
        names = [a["name"] for a in spec["arguments"]]
        player = Player(call, names, claims, kernels, poison=False)
        tune(player, arguments)
        told.seconds = from_graphs({"answer": player}, tuple(arguments.values()), spec["bytes"])["answer"].median
        arguments = probe.random_arguments(spec)
        rows = torch.tensor(spec["rows"], device=backend.device())
        for name, value in arguments.items():
            if isinstance(value, torch.Tensor):
                part = value[rows] if value.ndim > 1 else value
                told.sampled[name] = probe.export_array(part, out, f"speed.{name}.bin")
        checked = Player(call, names, claims, kernels)
        checked.chosen = player.chosen
        with probe.poisoned():
            returned = checked(*arguments.values())
        torch.cuda.synchronize()
        told.returned = probe.export(tuple(item[rows] for item in returned), out, "speed")
        for name, value in arguments.items():
            if isinstance(value, torch.Tensor) and value.ndim > 1:
                told.after[name] = f"speed.after.{name}.bin"
                (out / told.after[name]).write_bytes(probe.storage_of(value[rows]))
        del arguments, returned
        told.roof = copy_roof(1 << 30)
    torch.cuda.empty_cache()
    return told


def tune(player: Player, arguments: dict) -> None:
    """Choose the fastest config of every autotuned launch, one launch after the other."""
    from instruments.timing import from_graphs

    for number, launch in enumerate(player.call.launches):
        seconds = {}
        for choice in [launch, *launch.others] if launch.others else []:
            player.chosen[number] = choice
            try:
                player(*arguments.values())
                seconds[id(choice)] = (
                    from_graphs({"it": player}, tuple(arguments.values()), 1 << 28)["it"].median,
                    choice,
                )
            except Exception:  # a config that this GPU refuses
                continue
        if seconds:
            player.chosen[number] = min(seconds.values(), key=lambda pair: pair[0])[1]


# ---------------------------------------------------------------- the process


def main(folder: Path, spawn: bool) -> int:
    """Wait for claims/go.json, and play the tasks that it names, each in a child of its own, for as
    much of a processor's time as it says; how long that takes is the machine's affair, within its patience.

    spawn: a child starts afresh, as a GPU needs it, for CUDA does not survive a fork, and is alone, for it may be
    timed. Otherwise it is a fork of this process, which loads Triton while the notebook still runs.
    """
    if not spawn:
        from grading import probe  # noqa: F401
        from instruments import compiled, meter  # noqa: F401
    go = folder / "claims" / "go.json"
    while not go.exists():
        time.sleep(0.02)
    asked = json.loads(go.read_text(encoding="utf-8"))
    waiting, running = list(asked["tasks"]), {}
    while waiting or running:
        while waiting and len(running) < (1 if spawn else SIDE_BY_SIDE):
            name = waiting.pop(0)
            (folder / "results" / name).mkdir(parents=True, exist_ok=True)
            running[_child(name, folder, spawn, asked["seconds"])] = time.monotonic() + asked["patience"]
        for pid, end in list(running.items()):
            if os.waitpid(pid, os.WNOHANG)[0]:
                del running[pid]
            elif time.monotonic() > end:
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)
    return 0


def _child(name: str, folder: Path, spawn: bool, seconds: float) -> int:
    """Start a child that plays one task; its process id."""
    if spawn:
        return os.spawnv(
            os.P_NOWAIT, sys.executable, [sys.executable, "-P", __file__, str(folder), "one", name, str(seconds)]
        )
    child = os.fork()
    if child == 0:
        try:
            alone(folder, name, seconds)
        finally:
            os._exit(0)
    return child


def alone(folder: Path, name: str, seconds: float) -> int:
    """Play one task where nothing but its own results can be written."""
    import resource

    from grading import enter

    seconds = math.ceil(seconds + time.process_time())
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    own = folder / "results" / name
    os.environ.update(dict.fromkeys(("HOME", "TMPDIR", "TRITON_CACHE_DIR"), str(own)))
    enter.narrow(str(own))
    nowhere = os.open(os.devnull, os.O_WRONLY)  # what kernels print is no one's to read
    os.dup2(nowhere, 1), os.dup2(nowhere, 2)
    play(name, folder)
    return 0


if __name__ == "__main__":
    place, how, *one = sys.argv[1:]
    sys.exit(alone(Path(place), one[0], float(one[1])) if how == "one" else main(Path(place), how == "spawn"))
