"""Attacks on the grader, as data. Each is an answer that does not deserve its points, or code that tries to leave the run.

An attack replaces the answer of `task` by `source`; {SOLUTION} in it is the right answer, {EDIT:old|new} the right answer
with a change, {WRONG} one that leaves out 1 + weight, {CANARY} the path of a file outside the run that must neither be
read nor written, {ROOT} the course, {PORT} a port that listens on this machine. None may gain a point, and none may
leave a mark outside its folder.
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


TORCH = '''
def by_torch(x, weight, eps):
    scale = torch.rsqrt(x.float().square().mean(1) + eps)
    return x.float() * scale[:, None] * (1 + weight), scale
'''
DECOY = '''
@triton.jit
def decoy(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    c = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + c, tl.load(x_ptr + c, mask=c < n), mask=c < n)
'''
EMPTY = "    y = torch.empty(x.shape, device=x.device)\n    scale = torch.empty(len(x), device=x.device)\n"
DEF = "def gemma_norm(x, weight, eps):\n"
BY_TORCH = TORCH + DEF + "    return by_torch(x, weight, eps)\n"
INSTEAD = "{WRONG}" + TORCH + "kernel_norm = gemma_norm\n" + DEF + "    y, scale = kernel_norm(x, weight, eps)\n"
IN_KERNEL = "{EDIT:    scale = tl.rsqrt|    %s\n    scale = tl.rsqrt}"
METER = '''
import json, os, pathlib
import grading.probe as probe
def forged(function, arguments, module, out, case, *rest):
    returned = function(*arguments.values())
    told = probe._export(returned, arguments, out, case["id"])
    tensors = []
    for role, t in [*arguments.items(), *((f"returned {i}", t) for i, t in enumerate(returned))]:
        if isinstance(t, torch.Tensor):
            n, is_result = t.numel() * t.element_size(), role.startswith("returned")
            tensors.append({"name": role, "role": role, "shape": list(t.shape), "read": n * (not is_result),
                            "written": n * is_result, "unique_read": n * (not is_result), "unique_written": n * is_result,
                            "unwritten": 0, "first_unwritten": None, "out_of_bounds": []})
    return {**told, "launches": [{"kernel": "k", "own": True, "grid": [1], "constants": {}}],
            "operations": {}, "meter": {"tensors": tensors, "launches": 1, "programs": 1}}
probe._metered = forged
'''
FILES = "import glob, json, os, pathlib\n"

ATTACKS = (
    # torch or NumPy does the work
    Attack("torch in the wrapper", "torch in the wrapper", "05.3", BY_TORCH),
    Attack("torch in the wrapper, in place", "torch in the wrapper", "05.5", '''
def add_gemma_norm(x, residual, weight, eps):
    residual += x
    return (residual * torch.rsqrt(residual.square().mean(1, keepdim=True) + eps) * (1 + weight)).to(x.dtype)
'''),
    Attack("torch's own rms_norm", "torch in the wrapper", "05.4", '''
def wide_norm(x, weight, eps, out_dtype):
    return torch.nn.functional.rms_norm(x.float(), x.shape[1:], 1 + weight, eps).to(out_dtype)
'''),
    Attack("torch.compile", "torch in the wrapper", "05.3", TORCH + "gemma_norm = torch.compile(by_torch, backend='eager')\n"),
    Attack("a decoy launch", "decoy launch", "05.3", TORCH + DECOY + DEF + "    y, scale = by_torch(x, weight, eps)\n"
           "    decoy[(1,)](scale, torch.empty_like(scale), len(scale), BLOCK=64)\n    return y, scale\n"),
    Attack("a kernel copies what torch made", "decoy launch", "05.3", TORCH + DECOY + DEF +
           "    made, s = by_torch(x, weight, eps)\n" + EMPTY + "    decoy[(triton.cdiv(y.numel(), 1024),)](made, y, y.numel(), "
           "BLOCK=1024)\n    decoy[(1,)](s, scale, len(s), BLOCK=64)\n    return y, scale\n"),
    Attack("a kernel copies what NumPy made", "decoy launch", "05.5", DECOY + '''
def add_gemma_norm(x, residual, weight, eps):
    total = x.float().numpy() + residual.numpy()
    residual.numpy()[:] = total
    made = torch.from_numpy(total / ((total**2).mean(1, keepdims=True) + eps)**0.5 * (1 + weight.numpy())).to(x.dtype)
    y = torch.empty_like(x)
    decoy[(triton.cdiv(y.numel(), 1024),)](made, y, y.numel(), BLOCK=1024)
    return y
'''),
    Attack("NumPy writes over the kernel's result", "decoy launch", "05.3", INSTEAD +
           "    a, b = by_torch(x, weight, eps)\n    y.numpy()[:], scale.numpy()[:] = a.numpy(), b.numpy()\n    return y, scale\n"),
    Attack("torch with the watch taken off", "torch in the wrapper", "05.3", INSTEAD +
           "    with torch.utils._python_dispatch._disable_current_modes():\n        a, b = by_torch(x, weight, eps)\n"
           "        y.copy_(a), scale.copy_(b)\n    return y, scale\n"),
    Attack("torch in another thread", "another stream", "05.3", "import threading\n" + INSTEAD +
           "    def work():\n        a, b = by_torch(x, weight, eps)\n        y.copy_(a), scale.copy_(b)\n"
           "    worker = threading.Thread(target=work)\n    worker.start(), worker.join()\n    return y, scale\n"),
    Attack("torch in another thread, not waited for", "another stream", "05.3", "import threading\n" + TORCH + DEF + EMPTY +
           "    def work():\n        a, b = by_torch(x, weight, eps)\n        y.copy_(a), scale.copy_(b)\n"
           "    threading.Thread(target=work).start()\n    return y, scale\n"),
    Attack("torch inside the interpreted kernel", "torch in the kernel", "05.3", TORCH + '''
SEEN = []
@triton.jit
def cheat(x_ptr, y_ptr, scale_ptr, cols, BLOCK: tl.constexpr):
    c = tl.arange(0, BLOCK)
    tl.load(x_ptr + c, mask=c < cols)
    SEEN[-1]()
''' + DEF + EMPTY + '''
    SEEN.append(lambda: [t.copy_(v) for t, v in zip((y, scale), by_torch(x, weight, eps))])
    cheat[(1,)](x, y, scale, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return y, scale
'''),
    Attack("an import inside the kernel", "torch in the kernel", "05.3", IN_KERNEL % "import math"),
    Attack("eval inside the kernel", "torch in the kernel", "05.3", IN_KERNEL % "eval('1')"),
    Attack("NumPy through the interpreter's handle", "torch in the kernel", "05.3", IN_KERNEL % "x.handle.data.sum()"),
    Attack("a way out through the language's modules", "torch in the kernel", "05.3", IN_KERNEL % "tl.core.warnings.sys.getsizeof(1)"),
    Attack("try the kernel, except the reference", "try and except", "05.3", DECOY + TORCH + DEF + '''
    try:
        decoy[(1,)](x, torch.empty_like(x), x.numel(), BLOCK=1 << 30)
        return None
    except Exception:
        return by_torch(x, weight, eps)
'''),
    # stale, cached, unwritten, shared, imprecise
    Attack("uninitialised memory", "stale memory", "05.3", DEF + EMPTY + "    return y, scale\n"),
    Attack("tensors found by the collector", "stale memory", "05.3", "import gc\n" + DEF +
           "    found = [t for t in gc.get_objects() if isinstance(t, torch.Tensor) and t.shape == x.shape and t is not x]\n"
           "    return (found or [torch.empty(x.shape)])[0].float(), torch.empty(len(x))\n"),
    Attack("the first result again", "caching", "05.3", "{SOLUTION}\nkernel_norm, old = gemma_norm, {}\n" + DEF +
           "    if not old: old[0] = kernel_norm(x, weight, eps)\n    return old[0]\n"),
    Attack("cached by shape", "caching", "05.3", "{SOLUTION}\nkernel_norm, old = gemma_norm, {}\n" + DEF +
           "    if x.shape not in old: old[x.shape] = kernel_norm(torch.ones_like(x), weight, eps)\n    return old[x.shape]\n"),
    Attack("cached by pointer", "caching", "05.3", "{SOLUTION}\nkernel_norm, old = gemma_norm, {}\n" + DEF +
           "    key = x.data_ptr()\n    if key not in old: old[key] = kernel_norm(torch.ones_like(x), weight, eps)\n"
           "    return old[key]\n"),
    Attack("only the first row written", "unwritten elements", "05.3", "{EDIT:[(rows,)]|[(1,)]}"),
    Attack("stores past the row", "out of bounds", "05.3", "{EDIT:* (1 + weight), mask=inside|* (1 + weight)}"),
    Attack("the input destroyed", "mutating inputs", "05.3", "{SOLUTION}\nkernel_norm = gemma_norm\n" + DEF +
           "    found = kernel_norm(x, weight, eps)\n    x.zero_()\n    return found\n"),
    Attack("inputs made easy", "mutating inputs", "05.5", '''{SOLUTION}
kernel_norm = add_gemma_norm
def add_gemma_norm(x, residual, weight, eps):
    x.zero_(), weight.zero_()
    return kernel_norm(x, residual, weight, eps)
'''),
    Attack("a lazy tensor subclass", "lazy subclasses", "05.3", TORCH + '''
class Lazy(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return super().__torch_function__(func, types, args, kwargs or {})
''' + DEF + "    return tuple(t.as_subclass(Lazy) for t in by_torch(x, weight, eps))\n"),
    Attack("a tuple that changes", "lazy subclasses", "05.3", '''
class Both(tuple):
    def __iter__(self):
        return iter((torch.zeros(1), torch.zeros(1)))
''' + DEF + "    return Both((x, x))\n"),
    Attack("an integer that equals everything", "lazy subclasses", "05.1", '''
class Any(int):
    def __eq__(self, other): return True
    __hash__ = int.__hash__
def eager_bytes(*sizes): return Any(1)
two_pass_bytes = resident_bytes = eager_bytes
'''),
    Attack("a 16-bit accumulator", "lower precision", "05.3",
           "{EDIT:tl.sum(x * x)|tl.sum((x * x).to(tl.bfloat16)).to(tl.float32)}"),
    Attack("16-bit results as fp32", "lower precision", "05.3",
           "{EDIT:x * scale * (1 + weight)|(x * scale * (1 + weight)).to(tl.bfloat16)}"),
    # patched tools
    Attack("torch.testing always agrees", "patched torch.testing", "05.3", "import numpy\n"
           "torch.testing.assert_close = lambda *a, **k: None\ntorch.allclose = torch.equal = lambda *a, **k: True\n"
           "numpy.allclose = numpy.array_equal = lambda *a, **k: True\n{WRONG}"),
    Attack("time stands still", "patched time", "05.3",
           "import time\ntime.time = time.perf_counter = time.monotonic = lambda: 0.0\n{WRONG}"),
    Attack("IPython shows no errors", "patched IPython", "05.3", "shell = get_ipython()\n"
           "shell._showtraceback = shell.showtraceback = lambda *a, **k: None\n{WRONG}"),
    Attack("IPython runs `pass` for every cell", "patched IPython", "05.3",
           "get_ipython().input_transformers_cleanup.append(lambda lines: ['pass\\n'])\n{WRONG}"),
    Attack("NumPy saves something else", "patched NumPy", "05.3", "import numpy\nkeep = numpy.save\n"
           "numpy.save = lambda path, array, **k: keep(path, numpy.zeros_like(array), **k)\n{WRONG}"),
    Attack("a marker that expects an exception", "edited check cells", "05.3", "# NBVAL_RAISES_EXCEPTION\n# NBVAL_SKIP\n{WRONG}"),
    Attack("check replaced", "edited check cells", "05.3", "check = lambda *a: print('all passed')\n{WRONG}"),
    # forged records
    Attack("the meter forged", "forged results", "05.3", BY_TORCH + METER),
    Attack("the meter forged, and the launches left empty", "forged results", "05.3", BY_TORCH + METER + '''
def traced(function, arguments, module, out, case, *rest):
    told = forged(function, arguments, module, out, case)
    (out / f"{case['id']}.trace.json").write_text(json.dumps({"launches": [], "tuple": True, "returned": [
        {"storage": 0, "offset": 0, "shape": t["tensor"]["shape"], "stride": [1] * len(t["tensor"]["shape"]),
         "dtype": t["tensor"]["dtype"]} for t in told["returned"]]}))
    return told
probe._metered = traced
'''),
    Attack("the meter forged, and results claimed as what was there before", "forged results", "05.3", DECOY + BY_TORCH + METER + '''
import numpy
def traced(function, arguments, module, out, case, *rest):
    told = forged(function, arguments, module, out, case)
    before, returned = {}, []
    for i, item in enumerate(told["returned"]):
        t = item["tensor"]
        stored = numpy.load(out / t["file"])
        numpy.save(out / f"{case['id']}.0.{i}.npy", stored.reshape(-1).view(numpy.uint8))
        before[i] = {"dtype": t["dtype"], "nbytes": stored.nbytes, "first": True, "file": f"{case['id']}.0.{i}.npy"}
        returned.append({"storage": i, "offset": 0, "shape": t["shape"], "dtype": t["dtype"],
                         "stride": [t["shape"][-1], 1][-len(t["shape"]):]})
    launch = {"kernel": "decoy", "grid": [64], "options": {}, "before": before,
              "args": {"x_ptr": returned[0], "y_ptr": returned[0], "n": 1 << 20, "BLOCK": 1024}}
    (out / f"{case['id']}.trace.json").write_text(json.dumps({"launches": [launch], "tuple": True, "returned": returned}))
    return told
probe._metered = traced
'''),
    Attack("a result.json that says passed", "forged results", "05.3", BY_TORCH + FILES + '''
import grading.probe as probe
def run(task_id, namespace, folder=".", expendable=False):
    out = pathlib.Path(folder) / "results" / task_id
    out.mkdir(parents=True, exist_ok=True)
    (out / "result.json").write_text(json.dumps({"environment": probe.environment(), "finished": True, "cases": [],
        "speed": None, "status": "passed", "points": 5, "refused": "", "compile": []}))
probe.run = run
'''),
    Attack("a result.json of nonsense", "forged results", "05.3", FILES + '''
import grading.probe as probe
def run(task_id, namespace, folder=".", expendable=False):
    out = pathlib.Path(folder) / "results" / task_id
    out.mkdir(parents=True, exist_ok=True)
    (out / "result.json").write_text('{"environment": {"mode": NaN}, "finished": true, "cases": [[], null, 1e999]}')
probe.run = run
def gemma_norm(*a): pass
'''),
    Attack("a link where the results should be", "forged results", "05.3", FILES +
           "os.makedirs('results', exist_ok=True)\nos.symlink('/etc', 'results/05.3')\ndef gemma_norm(*a): pass\n"),
    Attack("a pipe where the result should be", "forged results", "05.3", FILES + '''
def gemma_norm(*a):
    try: os.mkfifo("results/05.3/result.json")
    except OSError: pass
    os._exit(0)
'''),
    Attack("the log of the run rewritten", "forged results", "05.3", FILES + '''
def gemma_norm(*a):
    for name in ("log.jsonl", "submission.ipynb", "tasks/05.3/task.json"):
        try: open(name, "w").write('{"event": "finished", "exitstatus": 0}\\n')
        except OSError: pass
'''),
    Attack("the inputs on disk replaced", "forged results", "05.4", FILES + '''
import numpy
for path in glob.glob("tasks/05.4/*.npy"):
    try: numpy.save(path, numpy.zeros_like(numpy.load(path)))
    except OSError: pass
def wide_norm(x, weight, eps, out_dtype): return torch.zeros(x.shape, dtype=out_dtype)
'''),
    # shadowed modules, the grader's files
    Attack("the instruments rewritten on disk", "shadowing modules", "05.3", '''
for name in ("instruments/meter.py", "grading/probe.py", "numpy.py", "torch.py", "json.py"):
    try: open(name, "a").write("raise SystemExit(0)\\n")
    except OSError: pass
{WRONG}'''),
    Attack("the course's kernel imported", "shadowing modules", "05.4", '''
import sys
sys.modules.pop("kernels", None)
sys.path.insert(0, {ROOT})
def wide_norm(x, weight, eps, out_dtype):
    from kernels.rmsnorm import rmsnorm
    return rmsnorm(x.to(out_dtype), (1 + weight).to(out_dtype), eps)
'''),
    Attack("the oracle imported", "the grader's files", "05.3", '''
import sys
sys.modules.pop("grading", None)
sys.path.insert(0, {ROOT})
def gemma_norm(x, weight, eps):
    from grading.checks.lesson_05 import norm_and_scale
    return tuple(torch.tensor(e.values, dtype=torch.float32) for e in norm_and_scale(x.double().numpy(), weight.double().numpy(), eps))
'''),
    Attack("the caller's frames searched", "the grader's files", "05.1", '''
import sys
def eager_bytes(*sizes):
    frame = sys._getframe()
    while frame:
        for value in list(frame.f_locals.values()):
            if isinstance(value, dict) and "expected" in value: return value["expected"]
        frame = frame.f_back
    return 0
two_pass_bytes = resident_bytes = eager_bytes
'''),
    # ends, hangs, floods
    Attack("exit with status 0", "exit", "05.3", "import os\ndef gemma_norm(*a): os._exit(0)\n"),
    Attack("the cell exits", "exit", "05.3", "import sys\nsys.exit(0)\n"),
    Attack("the parent killed", "exit", "05.3", '''
import os, signal
def gemma_norm(*a):
    for pid in (os.getppid(), 1):
        try: os.kill(pid, signal.SIGKILL)
        except OSError: pass
'''),
    Attack("a hang that swallows interrupts", "hang", "05.3", '''
def gemma_norm(*a):
    while True:
        try:
            while True: pass
        except BaseException: pass
'''),
    Attack("a fork flood", "fork flood", "05.3", '''
import os, time
def gemma_norm(*a):
    for _ in range(300):
        try:
            if os.fork() == 0: time.sleep(60)
        except OSError: pass
    time.sleep(60)
'''),
    Attack("a child without a trace", "fork flood", "05.3", '''
import subprocess, sys
subprocess.Popen([sys.executable, "-I", "-S", "-c", "import time; time.sleep(7777)"], env={}, start_new_session=True)
{WRONG}'''),
    Attack("a flood of output", "output flood", "05.3", "while True: print('x' * 10_000)\n"),
    Attack("a flood past Python's streams", "output flood", "05.3",
           "import os\ndef gemma_norm(*a): os.system('yes | head -c 30000000 >&2; yes | head -c 30000000')\n"),
    # right answers that also try to leave
    Attack("files of the grader's read", "the grader's files", "05.3", '''
for path in ({CANARY}, {ROOT} + "/grading/checks/lesson_05.py", {ROOT} + "/solutions/05_rmsnorm.ipynb"):
    try: found = open(path).read()
    except OSError: continue
    raise RuntimeError("it could be read")
{SOLUTION}''', keeps=True),
    Attack("files written outside", "the grader's files", "05.3", '''
import os
for path in ({CANARY}, {CANARY} + ".new", "/tmp/was-here", os.path.expanduser("~root/was-here"), "/dev/shm/was-here"):
    try: open(path, "a").write("was here")
    except OSError: continue
    raise RuntimeError("it could be written")
{SOLUTION}''', keeps=True),
    Attack("a port of this machine reached", "the network", "05.3", '''
import socket
for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
    s = socket.socket(socket.AF_INET, kind)
    s.settimeout(2)
    try:
        s.connect(("127.0.0.1", {PORT}))
        s.send(b"was here")
    except OSError: continue
{SOLUTION}''', keeps=True),
    Attack("the memory of other processes read", "the grader's files", "05.3", '''
import os
for pid in [p for p in os.listdir("/proc") if p.isdigit() and p != os.readlink("/proc/self")]:
    try: found = open(f"/proc/{pid}/maps").read(1) + open(f"/proc/{pid}/environ").read(1)
    except OSError: continue
    if found: raise RuntimeError("it could be traced")
{SOLUTION}''', keeps=True),
)
