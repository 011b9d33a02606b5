"""Attacks on the grader, as data. Each is an answer that does not deserve its points, or code that tries to leave the
run.

An attack replaces the answer of `task` by `source`; {SOLUTION} in it is the right answer, {EDIT:old|new} the right
answer with a change, {WRONG} one that leaves out 1 + weight, {CANARY} the path of a file outside the run that must
neither be read nor written, {ROOT} the course, {PORT} a port that listens on this machine. None may gain a point, and
none may leave a mark outside its folder.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Attack:
    """One attack: its name, the trick it uses, the task, its answer. keeps: the answer itself is right and keeps its
    points; what has to fail is the escape that is tried beside it."""

    name: str
    trick: str
    task: str
    source: str
    keeps: bool = False


TORCH = """
def by_torch(x, weight, eps):
    scale = torch.rsqrt(x.float().square().mean(1) + eps)
    return x.float() * scale[:, None] * (1 + weight), scale
"""
DECOY = """
@triton.jit
def decoy(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    c = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + c, tl.load(x_ptr + c, mask=c < n), mask=c < n)
"""
EMPTY = "    y = torch.empty(x.shape, device=x.device)\n    scale = torch.empty(len(x), device=x.device)\n"
DEF = "def gemma_norm(x, weight, eps):\n"
BY_TORCH = TORCH + DEF + "    return by_torch(x, weight, eps)\n"
INSTEAD = "{WRONG}" + TORCH + "kernel_norm = gemma_norm\n" + DEF + "    y, scale = kernel_norm(x, weight, eps)\n"
IN_KERNEL = "{EDIT:    scale = tl.rsqrt|    %s\n    scale = tl.rsqrt}"
WIDE = "{EDIT:triton.next_power_of_2(cols)|256}"  # right where a row has 256 columns, or fewer
# Instead of the probe: every case went well, and `claim` says what was launched in each of its calls.
FORGE = """
import json, pathlib
import grading.probe as probe
from grading import record
def run(task_id, namespace, folder="."):
    source, out = pathlib.Path(folder) / "tasks" / task_id, pathlib.Path(folder) / "results" / task_id
    out.mkdir(parents=True, exist_ok=True)
    spec = json.loads((source / "task.json").read_text())
    told = record.Run(environment=probe.environment(), finished=True)
    recorder = probe.Recorder(out, namespace["__name__"])
    for number, case in enumerate(spec["cases"]):
        told.cases.append(record.Case())
        given = [probe.load_arguments(turn, source) for turn in case["turns"]]
        recorder.trace.calls[str(number)] = [claim(recorder, f"{number}.{i}", *a.values()) for i, a in enumerate(given)]
    record.write(out / "run.msgpack", told)
    if spec["kernel"]:
        record.write(out / "trace.msgpack", recorder.trace)
probe.run = run
def seen(storage, t):
    return record.View(storage=storage, dtype=probe.NAMES[t.dtype], offset=0, shape=list(t.shape),
                       stride=list(t.stride()))
def state(t, **of):
    return record.State(dtype=probe.NAMES[t.dtype], nbytes=t.numel() * t.element_size(), first=True, **of)
def put(recorder, name, t):
    (recorder.out / name).write_bytes(probe.storage_of(t))
    return name
def copied(recorder, source, target, n, before, kernel=None):
    args = {"x_ptr": source, "y_ptr": target, "n": record.Number(value=n), "BLOCK": record.Number(value=1024)}
    return record.Launch(kernel=recorder.function(decoy) if kernel is None else kernel, grid=[n // 1024 + 1], args=args,
                         before=before)
"""
# The answer's kernel as it ran, and a trace that `change` has gone over before it is written.
RETOLD = """
import grading.probe as probe
from grading import record
written = probe.Recorder.write
def write(self):
    change(self.trace)
    written(self)
probe.Recorder.write = write
def launches(trace):
    return [launch for calls in trace.calls.values() for call in calls for launch in call.launches]
"""
SMUGGLED = (
    TORCH
    + """
@triton.jit
def PUT
def gemma_norm(x, weight, eps):
    a, b = by_torch(x, weight, eps)
    y, scale = torch.empty(a.shape, device=x.device), torch.empty(len(x), device=x.device)
"""
)
FILES = "import glob, json, os, pathlib\n"

ATTACKS = (
    # torch or NumPy does the work
    Attack("torch in the wrapper", "torch in the wrapper", "05.3", BY_TORCH),
    Attack(
        "torch in the wrapper, in place",
        "torch in the wrapper",
        "05.5",
        """
def add_gemma_norm(x, residual, weight, eps):
    residual += x
    return (residual * torch.rsqrt(residual.square().mean(1, keepdim=True) + eps) * (1 + weight)).to(x.dtype)
""",
    ),
    Attack(
        "torch's own rms_norm",
        "torch in the wrapper",
        "05.4",
        """
def wide_norm(x, weight, eps, out_dtype):
    return torch.nn.functional.rms_norm(x.float(), x.shape[1:], 1 + weight, eps).to(out_dtype)
""",
    ),
    Attack(
        "torch.compile",
        "torch in the wrapper",
        "05.3",
        TORCH + "gemma_norm = torch.compile(by_torch, backend='eager')\n",
    ),
    Attack(
        "a decoy launch",
        "decoy launch",
        "05.3",
        TORCH + DECOY + DEF + "    y, scale = by_torch(x, weight, eps)\n"
        "    decoy[(1,)](scale, torch.empty_like(scale), len(scale), BLOCK=64)\n    return y, scale\n",
    ),
    Attack(
        "a kernel copies what torch made",
        "decoy launch",
        "05.3",
        TORCH
        + DECOY
        + DEF
        + "    made, s = by_torch(x, weight, eps)\n"
        + EMPTY
        + "    decoy[(triton.cdiv(y.numel(), 1024),)](made, y, y.numel(), "
        "BLOCK=1024)\n    decoy[(1,)](s, scale, len(s), BLOCK=64)\n    return y, scale\n",
    ),
    Attack(
        "a kernel copies what NumPy made",
        "decoy launch",
        "05.5",
        DECOY
        + """
def add_gemma_norm(x, residual, weight, eps):
    total = x.float().numpy() + residual.numpy()
    residual.numpy()[:] = total
    made = torch.from_numpy(total / ((total**2).mean(1, keepdims=True) + eps)**0.5 * (1 + weight.numpy())).to(x.dtype)
    y = torch.empty_like(x)
    decoy[(triton.cdiv(y.numel(), 1024),)](made, y, y.numel(), BLOCK=1024)
    return y
""",
    ),
    Attack(
        "NumPy writes over the kernel's result",
        "decoy launch",
        "05.3",
        INSTEAD
        + "    a, b = by_torch(x, weight, eps)\n    y.numpy()[:], scale.numpy()[:] = a.numpy(), b.numpy()\n"
        + "    return y, scale\n",
    ),
    Attack(
        "torch with the watch taken off",
        "torch in the wrapper",
        "05.3",
        INSTEAD
        + "    with torch.utils._python_dispatch._disable_current_modes():\n        a, b = by_torch(x, weight, eps)\n"
        "        y.copy_(a), scale.copy_(b)\n    return y, scale\n",
    ),
    Attack(
        "torch in another thread",
        "another stream",
        "05.3",
        "import threading\n"
        + INSTEAD
        + "    def work():\n        a, b = by_torch(x, weight, eps)\n        y.copy_(a), scale.copy_(b)\n"
        "    worker = threading.Thread(target=work)\n    worker.start(), worker.join()\n    return y, scale\n",
    ),
    Attack(
        "torch in another thread, not waited for",
        "another stream",
        "05.3",
        "import threading\n"
        + TORCH
        + DEF
        + EMPTY
        + "    def work():\n        a, b = by_torch(x, weight, eps)\n        y.copy_(a), scale.copy_(b)\n"
        "    threading.Thread(target=work).start()\n    return y, scale\n",
    ),
    Attack(
        "torch inside the interpreted kernel",
        "torch in the kernel",
        "05.3",
        TORCH
        + """
SEEN = []
@triton.jit
def cheat(x_ptr, y_ptr, scale_ptr, cols, BLOCK: tl.constexpr):
    c = tl.arange(0, BLOCK)
    tl.load(x_ptr + c, mask=c < cols)
    SEEN[-1]()
"""
        + DEF
        + EMPTY
        + """
    SEEN.append(lambda: [t.copy_(v) for t, v in zip((y, scale), by_torch(x, weight, eps))])
    cheat[(1,)](x, y, scale, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return y, scale
""",
    ),
    Attack("an import inside the kernel", "torch in the kernel", "05.3", IN_KERNEL % "import math"),
    Attack("eval inside the kernel", "torch in the kernel", "05.3", IN_KERNEL % "eval('1')"),
    Attack("NumPy through the interpreter's handle", "torch in the kernel", "05.3", IN_KERNEL % "x.handle.data.sum()"),
    Attack(
        "a way out through the language's modules",
        "torch in the kernel",
        "05.3",
        IN_KERNEL % "tl.core.warnings.sys.getsizeof(1)",
    ),
    Attack(
        "try the kernel, except the reference",
        "try and except",
        "05.3",
        DECOY
        + TORCH
        + DEF
        + """
    try:
        decoy[(1,)](x, torch.empty_like(x), x.numel(), BLOCK=1 << 30)
        return None
    except Exception:
        return by_torch(x, weight, eps)
""",
    ),
    Attack(
        "a function of the language's way to its globals",
        "torch in the kernel",
        "05.3",
        IN_KERNEL % "tl.load.__globals__['__builtins__']['exec']('1')",
    ),
    Attack(
        "the kernel's own Python function",
        "torch in the kernel",
        "05.3",
        IN_KERNEL % "gemma_norm_kernel.fn.__globals__['__builtins__'].exec('1')",
    ),
    Attack(
        "from a tuple to all classes",
        "torch in the kernel",
        "05.3",
        IN_KERNEL % "().__class__.__base__.__subclasses__()",
    ),
    Attack(
        "from a word to all classes",
        "torch in the kernel",
        "05.3",
        IN_KERNEL % "'%s'.__class__.__mro__[1].__subclasses__()",
    ),
    Attack(
        "a default value that runs code",
        "torch in the kernel",
        "05.3",
        "{EDIT:BLOCK: tl.constexpr)|BLOCK: tl.constexpr, SPARE: tl.constexpr = exec('import os') or 1)}",
    ),
    Attack(
        "a constexpr_function that runs code",
        "torch in the kernel",
        "05.3",
        """
@triton.constexpr_function
def out(n):
    import gc
    return n
"""
        + IN_KERNEL % "tl.static_assert(out(BLOCK) > 0)",
    ),
    # results through what a launch is told beside its tensors
    Attack(
        "results as floats",
        "results as arguments",
        "05.3",
        SMUGGLED.replace(
            "PUT",
            """put(y_ptr, scale_ptr, value, s):
    tl.store(y_ptr, value)
    tl.store(scale_ptr, s)
""",
        )
        + """
    for r, row in enumerate(a.tolist()):
        for c, value in enumerate(row): put[(1,)](y[r, c:], scale[r:], value, b[r].item())
    return y, scale
""",
    ),
    Attack(
        "results as tuples",
        "results as arguments",
        "05.3",
        SMUGGLED.replace(
            "PUT",
            """put(y_ptr, values):
    for i in tl.static_range(len(values)):
        tl.store(y_ptr + i, values[i])
""",
        )
        + """
    for target, made in ((y, a), (scale, b)):
        flat = made.flatten().tolist()
        for first in range(0, len(flat), 32): put[(1,)](target.view(-1)[first:], tuple(flat[first:first + 32]))
    return y, scale
""",
    ),
    Attack(
        "results as constexprs",
        "results as arguments",
        "05.3",
        SMUGGLED.replace(
            "PUT",
            """put(y_ptr, values: tl.constexpr):
    for i in tl.static_range(len(values)):
        tl.store(y_ptr + i, values[i])
""",
        )
        + """
    for target, made in ((y, a), (scale, b)):
        flat = made.flatten().tolist()
        for first in range(0, len(flat), 32): put[(1,)](target.view(-1)[first:], values=tuple(flat[first:first + 32]))
    return y, scale
""",
    ),
    Attack(
        "results in a global constexpr",
        "results as arguments",
        "05.3",
        "VALUES = tl.constexpr((0.0,))\n"
        + SMUGGLED.replace(
            "PUT",
            """put(y_ptr):
    for i in tl.static_range(len(VALUES)):
        tl.store(y_ptr + i, VALUES[i])
""",
        )
        + """
    global VALUES
    VALUES = tl.constexpr(tuple(a.flatten().tolist()[:64]))
    put[(1,)](y)
    return y, scale
""",
    ),
    Attack(
        "results in the digits of an integer",
        "results as arguments",
        "05.3",
        SMUGGLED.replace(
            "PUT",
            """put(y_ptr, BITS: tl.constexpr, COUNT: tl.constexpr):
    for i in tl.static_range(COUNT):
        bits = tl.full([1], (BITS >> (32 * i)) & 0xFFFFFFFF, dtype=tl.uint32)
        tl.store(y_ptr + i + tl.arange(0, 1), bits.to(tl.float32, bitcast=True))
""",
        )
        + """
    for target, made in ((y, a), (scale, b)):
        flat = made.flatten()
        for first in range(0, len(flat), 32):
            part = flat[first:first + 32]
            put[(1,)](target.view(-1)[first:], int.from_bytes(part.numpy().tobytes(), "little"), len(part))
    return y, scale
""",
    ),
    Attack(
        "a result as the size of the grid",
        "results as arguments",
        "05.3",
        """
@triton.jit
def put(scale_ptr, unit):
    tl.store(scale_ptr, tl.load(scale_ptr) + unit * (tl.num_programs(0) - 1), mask=tl.program_id(0) == 0)
"""
        + "{EDIT:    tl.store(scale_ptr + row, scale)|    tl.store(scale_ptr + row, 0.0 * scale)}"
        + TORCH
        + """
kernel_norm = gemma_norm
def gemma_norm(x, weight, eps):
    found, (_, s) = kernel_norm(x, weight, eps), by_torch(x, weight, eps)
    for row, value in enumerate(s.tolist()[:8]):
        bits = int(value * (1 << 20))
        for part in range(4): put[(1 + (bits >> (8 * part)) % 256,)](found[1][row:], 2.0**(8 * part - 20))
    return found
""",
    ),
    Attack(
        "results as the place where a view begins",
        "results as arguments",
        "05.3",
        DECOY
        + SMUGGLED.replace(
            "PUT",
            """put(y_ptr, ramp_ptr):
    tl.store(y_ptr, tl.load(ramp_ptr))
""",
        )
        + """
    ramp = torch.zeros(8192)
    ramp.numpy()[:] = range(8192)
    for target, made in ((y.view(-1), a.flatten()), (scale, b)):
        for i, value in enumerate(made[:256].tolist()): put[(1,)](target[i:], ramp[int(1024 * (value + 4)) % 8192:])
    return y, scale
""",
    ),
    Attack(
        "a kernel written for these inputs",
        "kernels from elsewhere",
        "05.3",
        TORCH
        + """
import linecache
def gemma_norm(x, weight, eps):
    a, b = by_torch(x, weight, eps)
    y, scale = torch.empty(a.shape), torch.empty(len(b))
    lines = ["@triton.jit", "def put(y_ptr):"]
    lines += [f"    tl.store(y_ptr + {i}, {v!r})" for i, v in enumerate(a.flatten().tolist()[:64])]
    text = "\\n".join(lines) + "\\n"
    linecache.cache["<written>"] = len(text), None, text.splitlines(True), "<written>"
    exec(compile(text, "<written>", "exec"), globals())
    put[(1,)](y)
    return y, scale
""",
    ),
    Attack(
        "a kernel of the course",
        "kernels from elsewhere",
        "05.4",
        """
import sys, types
sys.path.insert(0, {ROOT})
import triton
def wide_norm(x, weight, eps, out_dtype):
    made = torch.empty(x.shape, dtype=out_dtype)
    import kernels.rmsnorm as course
    for kernel in vars(course).values():
        if isinstance(kernel, triton.runtime.JITFunction):
            kernel.fn.__module__ = __name__
            kernel[(len(x),)](x, 1 + weight, made, x.stride(0), x.shape[1], eps, BLOCK=4096)
    return made
""",
    ),
    # stale, cached, unwritten, shared, imprecise
    Attack("uninitialised memory", "stale memory", "05.3", DEF + EMPTY + "    return y, scale\n"),
    Attack(
        "tensors found by the collector",
        "stale memory",
        "05.3",
        "import gc\n"
        + DEF
        + "    found = [t for t in gc.get_objects() if isinstance(t, torch.Tensor) "
        + "and t.shape == x.shape and t is not x]\n"
        "    return (found or [torch.empty(x.shape)])[0].float(), torch.empty(len(x))\n",
    ),
    Attack(
        "the first result again",
        "caching",
        "05.3",
        "{SOLUTION}\nkernel_norm, old = gemma_norm, {}\n"
        + DEF
        + "    if not old: old[0] = kernel_norm(x, weight, eps)\n    return old[0]\n",
    ),
    Attack(
        "cached by shape",
        "caching",
        "05.3",
        "{SOLUTION}\nkernel_norm, old = gemma_norm, {}\n"
        + DEF
        + "    if x.shape not in old: old[x.shape] = kernel_norm(torch.ones_like(x), weight, eps)\n"
        + "    return old[x.shape]\n",
    ),
    Attack(
        "cached by pointer",
        "caching",
        "05.3",
        "{SOLUTION}\nkernel_norm, old = gemma_norm, {}\n"
        + DEF
        + "    key = x.data_ptr()\n    if key not in old: old[key] = kernel_norm(torch.ones_like(x), weight, eps)\n"
        "    return old[key]\n",
    ),
    Attack("only the first row written", "unwritten elements", "05.3", "{EDIT:[(rows,)]|[(1,)]}"),
    Attack("stores past the row", "out of bounds", "05.3", "{EDIT:* (1 + weight), mask=inside|* (1 + weight)}"),
    Attack(
        "the input destroyed",
        "mutating inputs",
        "05.3",
        "{SOLUTION}\nkernel_norm = gemma_norm\n"
        + DEF
        + "    found = kernel_norm(x, weight, eps)\n    x.zero_()\n    return found\n",
    ),
    Attack(
        "inputs made easy",
        "mutating inputs",
        "05.5",
        """{SOLUTION}
kernel_norm = add_gemma_norm
def add_gemma_norm(x, residual, weight, eps):
    x.zero_(), weight.zero_()
    return kernel_norm(x, residual, weight, eps)
""",
    ),
    Attack(
        "a lazy tensor subclass",
        "lazy subclasses",
        "05.3",
        TORCH
        + """
class Lazy(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return super().__torch_function__(func, types, args, kwargs or {})
"""
        + DEF
        + "    return tuple(t.as_subclass(Lazy) for t in by_torch(x, weight, eps))\n",
    ),
    Attack(
        "a tuple that changes",
        "lazy subclasses",
        "05.3",
        """
class Both(tuple):
    def __iter__(self):
        return iter((torch.zeros(1), torch.zeros(1)))
"""
        + DEF
        + "    return Both((x, x))\n",
    ),
    Attack(
        "an integer that equals everything",
        "lazy subclasses",
        "05.1",
        """
class Any(int):
    def __eq__(self, other): return True
    __hash__ = int.__hash__
def eager_bytes(*sizes): return Any(1)
two_pass_bytes = resident_bytes = eager_bytes
""",
    ),
    Attack(
        "a 16-bit accumulator",
        "lower precision",
        "05.3",
        "{EDIT:tl.sum(x * x)|tl.sum((x * x).to(tl.bfloat16)).to(tl.float32)}",
    ),
    Attack(
        "16-bit results as fp32",
        "lower precision",
        "05.3",
        "{EDIT:x * scale * (1 + weight)|(x * scale * (1 + weight)).to(tl.bfloat16)}",
    ),
    # patched tools
    Attack(
        "torch.testing always agrees",
        "patched torch.testing",
        "05.3",
        "import numpy\n"
        "torch.testing.assert_close = lambda *a, **k: None\ntorch.allclose = torch.equal = lambda *a, **k: True\n"
        "numpy.allclose = numpy.array_equal = lambda *a, **k: True\n{WRONG}",
    ),
    Attack(
        "time stands still",
        "patched time",
        "05.3",
        "import time\ntime.time = time.perf_counter = time.monotonic = lambda: 0.0\n{WRONG}",
    ),
    Attack(
        "IPython shows no errors",
        "patched IPython",
        "05.3",
        "shell = get_ipython()\nshell._showtraceback = shell.showtraceback = lambda *a, **k: None\n{WRONG}",
    ),
    Attack(
        "IPython runs `pass` for every cell",
        "patched IPython",
        "05.3",
        "get_ipython().input_transformers_cleanup.append(lambda lines: ['pass\\n'])\n{WRONG}",
    ),
    Attack(
        "files get something else",
        "patched NumPy",
        "05.3",
        "import pathlib\nkeep = pathlib.Path.write_bytes\n"
        "pathlib.Path.write_bytes = lambda path, data: keep(path, bytes(len(data)))\n{WRONG}",
    ),
    Attack(
        "msgspec decodes something else",
        "patched NumPy",
        "05.3",
        "import msgspec\nkeep = msgspec.msgpack.encode\n"
        "msgspec.msgpack.encode = lambda thing, **k: keep({'passed': True, 'points': 5})\n{WRONG}",
    ),
    Attack(
        "a marker that expects an exception",
        "edited check cells",
        "05.3",
        "# NBVAL_RAISES_EXCEPTION\n# NBVAL_SKIP\n{WRONG}",
    ),
    Attack("check replaced", "edited check cells", "05.3", "check = lambda *a: print('all passed')\n{WRONG}"),
    # forged records
    Attack(
        "a forged trace: results copied out of a file",
        "forged traces",
        "05.3",
        DECOY
        + TORCH
        + FORGE
        + """
def claim(recorder, name, x, weight, eps):
    call = record.Call()
    for i, made in enumerate(by_torch(x, weight, eps)):
        source, target = seen(2 * i, made), seen(2 * i + 1, made)
        before = {2 * i: state(made, file=put(recorder, f"{name}.{i}.bin", made)),
                  2 * i + 1: state(made, fill="0000c07f")}
        call.launches.append(copied(recorder, source, target, made.numel(), before))
        call.returned.append(target)
    return call
""",
    ),
    Attack(
        "a forged trace: the results were there before",
        "forged traces",
        "05.3",
        DECOY
        + TORCH
        + FORGE
        + """
def claim(recorder, name, x, weight, eps):
    call = record.Call()
    for i, made in enumerate(by_torch(x, weight, eps)):
        before = {i: state(made, file=put(recorder, f"{name}.{i}.bin", made))}
        call.launches.append(copied(recorder, seen(i, made), seen(i, made), made.numel(), before))
        call.returned.append(seen(i, made))
    return call
""",
    ),
    Attack(
        "a forged trace: no launches",
        "forged traces",
        "05.3",
        TORCH
        + FORGE
        + """
def claim(recorder, name, x, weight, eps):
    return record.Call(returned=[seen(i, made) for i, made in enumerate(by_torch(x, weight, eps))])
""",
    ),
    Attack(
        "a forged trace: a launch of no program",
        "forged traces",
        "05.3",
        DECOY
        + TORCH
        + FORGE
        + """
def claim(recorder, name, x, weight, eps):
    y, scale = by_torch(x, weight, eps)
    launch = copied(recorder, seen(0, y), seen(0, y), y.numel(), {0: state(y, file=put(recorder, name, y))})
    launch.grid = [0]
    return record.Call(launches=[launch], returned=[seen(0, y), seen(1, scale)])
""",
    ),
    Attack(
        "a forged trace: the replay's own inputs as content",
        "forged traces",
        "05.3",
        DECOY
        + TORCH
        + FORGE
        + """
def claim(recorder, name, x, weight, eps):
    call, case = record.Call(), name.split(".")[0]
    for i, made in enumerate(by_torch(x, weight, eps)):
        before = {i: state(made, file=f"../../tasks/05.3/case{case}.3.x.npy")}
        call.launches.append(copied(recorder, seen(i, made), seen(i, made), made.numel(), before))
        call.returned.append(seen(i, made))
    return call
""",
    ),
    Attack(
        "a forged trace: the results are the input",
        "forged traces",
        "05.3",
        DECOY
        + TORCH
        + FORGE
        + """
def claim(recorder, name, x, weight, eps):
    x = x.contiguous()
    launch = copied(recorder, seen(0, x), seen(0, x), x.numel(), {0: state(x, argument="x")})
    return record.Call(launches=[launch], returned=[seen(0, x), seen(0, x[:, 0])])
""",
    ),
    Attack(
        "a forged trace: another kernel's source",
        "forged traces",
        "05.3",
        DECOY
        + TORCH
        + FORGE
        + """
def claim(recorder, name, x, weight, eps):
    y, scale = by_torch(x, weight, eps)
    source = "def decoy(x_ptr, y_ptr, n, BLOCK):\\n    import os\\n    os._exit(0)\\n"
    recorder.trace.functions[:] = [record.Source(name="decoy", source=source, line=1)]
    launch = copied(recorder, seen(0, y), seen(0, y), y.numel(), {0: state(y, file=put(recorder, name, y))}, kernel=0)
    return record.Call(launches=[launch], returned=[seen(0, y), seen(1, scale)])
""",
    ),
    Attack(
        "a forged trace: the first case alone",
        "forged traces",
        "05.3",
        WIDE
        + RETOLD
        + """
def change(trace):
    for case in [*trace.calls][1:]: del trace.calls[case]
""",
    ),
    Attack(
        "a forged trace: the hard cases as empty lists",
        "forged traces",
        "05.3",
        WIDE
        + RETOLD
        + """
def change(trace):
    for case in [*trace.calls][1:]: trace.calls[case] = []
""",
    ),
    Attack(
        "a forged trace: every case is the first",
        "forged traces",
        "05.3",
        WIDE
        + RETOLD
        + """
def change(trace):
    for case in trace.calls: trace.calls[case] = trace.calls["0"]
""",
    ),
    Attack(
        "a forged trace: three calls",
        "forged traces",
        "05.3",
        "{WRONG}"
        + RETOLD
        + """
def change(trace):
    for case in trace.calls: trace.calls[case] = trace.calls[case] * 2
""",
    ),
    Attack(
        "a forged trace: a word of the kernel means a module",
        "forged traces",
        "05.3",
        IN_KERNEL % "(way.out)"
        + RETOLD
        + """
class way: out = 1
def change(trace):
    for told in trace.functions: told.globals["way"] = record.Language(name="triton.language.core.warnings.sys")
""",
    ),
    Attack(
        "a forged trace: a word of the kernel means the launcher",
        "forged traces",
        "05.3",
        IN_KERNEL % "way(1)"
        + RETOLD
        + """
def way(*a): pass
def change(trace):
    for told in trace.functions:
        told.globals["way"] = record.Language(name="triton.runtime.driver.active.get_current_device")
""",
    ),
    Attack(
        "a forged trace: numbers without end",
        "forged traces",
        "05.3",
        "{WRONG}"
        + RETOLD
        + """
def change(trace):
    for launch in launches(trace): launch.grid = [1 << 40, 1 << 40, 1 << 40]
""",
    ),
    Attack(
        "a forged trace: terabytes",
        "forged traces",
        "05.3",
        "{WRONG}"
        + RETOLD
        + """
def change(trace):
    for launch in launches(trace):
        for state in launch.before.values(): state.nbytes = 1 << 42
""",
    ),
    Attack(
        "a forged trace: tuples in tuples",
        "forged traces",
        "05.3",
        "{WRONG}"
        + RETOLD
        + """
def change(trace):
    for launch in launches(trace):
        deep = record.Items(items=[])
        for _ in range(300): deep = record.Items(items=[deep])
        launch.args["eps"] = deep
""",
    ),
    Attack(
        "a forged trace: arguments named like the launcher's",
        "forged traces",
        "05.3",
        "{WRONG}"
        + RETOLD
        + """
def change(trace):
    for launch in launches(trace): launch.args["warmup"] = launch.args["grid"] = record.Number(value=1)
""",
    ),
    Attack(
        "a forged record: no Triton on this machine",
        "forged results",
        "05.3",
        BY_TORCH
        + """
import grading.probe as probe
from grading import record
probe.environment = lambda: record.Environment(mode="unavailable", device="cpu", torch="2", triton="missing")
""",
    ),
    Attack(
        "a forged record: nothing came back",
        "forged results",
        "05.2",
        FORGE
        + """
def claim(*a): return record.Call()
def tile_loop(x, weight, eps, block): pass
""",
    ),
    Attack(
        "a forged record: a verdict that nothing came back for",
        "forged results",
        "05.6",
        FORGE
        + """
def claim(*a): return record.Call()
def show_wrong(cols): pass
""",
    ),
    Attack(
        "a forged record: other tasks' too",
        "forged results",
        "05.1",
        FORGE
        + """
def claim(*a): return record.Call()
def run_all(task_id, namespace, folder="."):
    for name in ("05.1", "05.2", "05.3", "05.6"):
        try: run(name, namespace, folder)
        except OSError: pass
probe.run = run_all
def eager_bytes(*a): return 1
two_pass_bytes = resident_bytes = eager_bytes
""",
    ),
    Attack(
        "a replay's record left beside the run's",
        "forged results",
        "05.3",
        BY_TORCH
        + FORGE
        + """
def claim(recorder, name, *a):
    played = record.Played(finished=True, cases={n: [] for n in range(13)})
    for place in (recorder.out, recorder.out.parents[1] / "play/results/05.3", recorder.out.parents[1] / "claims/05.3"):
        try:
            place.mkdir(parents=True, exist_ok=True)
            record.write(place / "played.msgpack", played)
        except OSError: pass
    return record.Call()
""",
    ),
    Attack(
        "a record that says passed",
        "forged results",
        "05.3",
        BY_TORCH
        + FILES
        + """
import msgspec
import grading.probe as probe
def run(task_id, namespace, folder="."):
    out = pathlib.Path(folder) / "results" / task_id
    out.mkdir(parents=True, exist_ok=True)
    told = probe.record.Run(environment=probe.environment(), finished=True)
    said = {**msgspec.to_builtins(told), "status": "passed", "points": 5}
    (out / "run.msgpack").write_bytes(msgspec.msgpack.encode(said))
probe.run = run
""",
    ),
    Attack(
        "a record of nonsense",
        "forged results",
        "05.3",
        FILES
        + """
import grading.probe as probe
def run(task_id, namespace, folder="."):
    out = pathlib.Path(folder) / "results" / task_id
    out.mkdir(parents=True, exist_ok=True)
    (out / "run.msgpack").write_bytes(b"\\x91" * 1_000_000)
    (out / "trace.msgpack").write_bytes(b"\\xdf\\xff\\xff\\xff\\xff")
probe.run = run
def gemma_norm(*a): pass
""",
    ),
    Attack(
        "a trace of nonsense",
        "forged results",
        "05.3",
        "{WRONG}"
        + """
import grading.probe as probe
probe.Recorder.write = lambda self: (self.out / "trace.msgpack").write_bytes(b"[" * 1000)
""",
    ),
    Attack(
        "a trace of a hundred megabytes",
        "forged results",
        "05.3",
        "{WRONG}"
        + """
import grading.probe as probe
probe.Recorder.write = lambda self: (self.out / "trace.msgpack").write_bytes(bytes(100 << 20))
""",
    ),
    Attack(
        "a link where the trace should be",
        "forged results",
        "05.3",
        "{WRONG}"
        + """
import os
import grading.probe as probe
probe.Recorder.write = lambda self: os.symlink("/dev/zero", self.out / "trace.msgpack")
""",
    ),
    Attack(
        "a link where the results should be",
        "forged results",
        "05.3",
        FILES + "os.makedirs('results', exist_ok=True)\nos.symlink('/etc', 'results/05.3')\ndef gemma_norm(*a): pass\n",
    ),
    Attack(
        "a pipe where the result should be",
        "forged results",
        "05.3",
        FILES
        + """
def gemma_norm(*a):
    try: os.mkfifo("results/05.3/run.msgpack")
    except OSError: pass
    os._exit(0)
""",
    ),
    Attack(
        "the log of the run rewritten",
        "forged results",
        "05.3",
        FILES
        + """
def gemma_norm(*a):
    for name in ("log.jsonl", "submission.ipynb", "tasks/05.3/task.json"):
        try: open(name, "w").write('{"event": "finished", "exitstatus": 0}\\n')
        except OSError: pass
""",
    ),
    Attack(
        "the inputs on disk replaced",
        "forged results",
        "05.4",
        FILES
        + """
import numpy
for path in glob.glob("tasks/05.4/*.npy"):
    try: numpy.save(path, numpy.zeros_like(numpy.load(path)))
    except OSError: pass
def wide_norm(x, weight, eps, out_dtype): return torch.zeros(x.shape, dtype=out_dtype)
""",
    ),
    # shadowed modules, the grader's files
    Attack(
        "the instruments rewritten on disk",
        "shadowing modules",
        "05.3",
        """
for name in ("instruments/meter.py", "grading/probe.py", "numpy.py", "torch.py", "json.py"):
    try: open(name, "a").write("raise SystemExit(0)\\n")
    except OSError: pass
{WRONG}""",
    ),
    Attack(
        "the course's kernel imported",
        "shadowing modules",
        "05.4",
        """
import sys
sys.modules.pop("kernels", None)
sys.path.insert(0, {ROOT})
def wide_norm(x, weight, eps, out_dtype):
    from kernels.rmsnorm import rmsnorm
    return rmsnorm(x.to(out_dtype), (1 + weight).to(out_dtype), eps)
""",
    ),
    Attack(
        "the oracle imported",
        "the grader's files",
        "05.3",
        """
import sys
sys.modules.pop("grading", None)
sys.path.insert(0, {ROOT})
def gemma_norm(x, weight, eps):
    from grading.tasks.lesson_05 import norm_and_scale
    right = norm_and_scale(x.double().numpy(), weight.double().numpy(), eps)
    return tuple(torch.tensor(e, dtype=torch.float32) for e in right)
""",
    ),
    Attack(
        "the caller's frames searched",
        "the grader's files",
        "05.1",
        """
import sys
def eager_bytes(*sizes):
    frame = sys._getframe()
    while frame:
        for value in list(frame.f_locals.values()):
            if isinstance(value, dict) and "expected" in value: return value["expected"]
        frame = frame.f_back
    return 0
two_pass_bytes = resident_bytes = eager_bytes
""",
    ),
    # ends, hangs, floods
    Attack("exit with status 0", "exit", "05.3", "import os\ndef gemma_norm(*a): os._exit(0)\n"),
    Attack("the cell exits", "exit", "05.3", "import sys\nsys.exit(0)\n"),
    Attack(
        "the parent killed",
        "exit",
        "05.3",
        """
import os, signal
def gemma_norm(*a):
    for pid in (os.getppid(), 1):
        try: os.kill(pid, signal.SIGKILL)
        except OSError: pass
""",
    ),
    Attack(
        "a hang that swallows interrupts",
        "hang",
        "05.3",
        """
def gemma_norm(*a):
    while True:
        try:
            while True: pass
        except BaseException: pass
""",
    ),
    Attack(
        "a fork flood",
        "fork flood",
        "05.3",
        """
import os, time
def gemma_norm(*a):
    for _ in range(300):
        try:
            if os.fork() == 0: time.sleep(60)
        except OSError: pass
    time.sleep(60)
""",
    ),
    Attack(
        "a child without a trace",
        "fork flood",
        "05.3",
        """
import subprocess, sys
subprocess.Popen([sys.executable, "-I", "-S", "-c", "import time; time.sleep(7777)"], env={}, start_new_session=True)
{WRONG}""",
    ),
    Attack("a flood of output", "output flood", "05.3", "while True: print('x' * 10_000)\n"),
    Attack(
        "a flood past Python's streams",
        "output flood",
        "05.3",
        "import os\ndef gemma_norm(*a): os.system('yes | head -c 30000000 >&2; yes | head -c 30000000')\n",
    ),
    # right answers that also try to leave
    Attack(
        "files of the grader's read",
        "the grader's files",
        "05.3",
        """
for path in ({CANARY}, {ROOT} + "/grading/tasks/lesson_05.py", {ROOT} + "/solutions/05_rmsnorm.ipynb"):
    try: found = open(path).read()
    except OSError: continue
    raise RuntimeError("it could be read")
{SOLUTION}""",
        keeps=True,
    ),
    Attack(
        "files written outside",
        "the grader's files",
        "05.3",
        """
import os
for path in ({CANARY}, {CANARY} + ".new", "/tmp/was-here", os.path.expanduser("~root/was-here"), "/dev/shm/was-here"):
    try: open(path, "a").write("was here")
    except OSError: continue
    raise RuntimeError("it could be written")
{SOLUTION}""",
        keeps=True,
    ),
    Attack(
        "a port of this machine reached",
        "the network",
        "05.3",
        """
import socket
for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
    s = socket.socket(socket.AF_INET, kind)
    s.settimeout(2)
    try:
        s.connect(("127.0.0.1", {PORT}))
        s.send(b"was here")
    except OSError: continue
{SOLUTION}""",
        keeps=True,
    ),
    Attack(
        "the memory of other processes read",
        "the grader's files",
        "05.3",
        """
import os
for pid in [p for p in os.listdir("/proc") if p.isdigit() and p != os.readlink("/proc/self")]:
    try: found = open(f"/proc/{pid}/maps").read(1) + open(f"/proc/{pid}/environ").read(1)
    except OSError: continue
    if found: raise RuntimeError("it could be traced")
{SOLUTION}""",
        keeps=True,
    ),
)
