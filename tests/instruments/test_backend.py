"""Where kernels run: chosen per launch, in one process, with and without triton."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch

from instruments import backend
from instruments.backend import tl, triton
from instruments.compiled import compiled

ROOT = Path(__file__).parents[2]


def python(code: str, **environment) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env={**os.environ, **environment}, text=True, capture_output=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@triton.jit
def fill_kernel(y_ptr, n, value, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, value, mask=i < n)


def fill(n: int, value: float, **options):
    y = torch.zeros(n, device=backend.device())
    fill_kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](y, n, value, BLOCK=4, **options)
    return y


def test_a_plain_kernel_runs_and_describe_says_how():
    assert (fill(10, 3.0) == 3).all()
    assert backend.mode() == ("compiled" if torch.cuda.is_available() else "interpreted")
    sentence = backend.describe()
    assert triton.__version__ in sentence and torch.__version__ in sentence
    assert ("interpreter" in sentence) == (backend.device() == "cpu")


def test_interpret_runs_cpu_tensors_anywhere_and_nests():
    with backend.interpret(), backend.interpret():
        assert backend.mode() == "interpreted"
        y = torch.zeros(10)
        fill_kernel[(3,)](y, 10, 3.0, 4)
    assert (y == 3).all()


def test_observe_sees_every_launch_as_it_was_asked_for():
    seen = []
    with backend.observe(seen.append):
        y = fill(10, 3.0, num_warps=2)
    fill(10, 3.0)
    (launch,) = seen
    assert (launch.name, launch.grid, launch.options) == ("fill_kernel", (3,), {"num_warps": 2})
    assert launch.kernel is fill_kernel
    assert launch.args["n"] == 10 and launch.args["BLOCK"] == 4 and launch.args["y_ptr"] is y
    assert (y == 3).all()


def test_captured_runs_nothing():
    with backend.captured() as launches:
        y = fill(10, 3.0)
    assert [launch.grid for launch in launches] == [(3,)] and (y == 0).all()
    assert (fill(4, 1.0) == 1).all()


def test_what_another_thread_captures_or_meters_stays_its_own():
    entered, leave = threading.Event(), threading.Event()
    theirs = []

    def capture():
        with backend.captured() as launches:
            entered.set()
            leave.wait(10)
            fill(4, 5.0)
        theirs.extend(launches)

    thread = threading.Thread(target=capture)
    thread.start()
    assert entered.wait(10)
    mine = fill(10, 3.0)
    leave.set()
    thread.join()
    assert (mine == 3).all() and [launch.args["n"] for launch in theirs] == [4]


def test_blocks_that_do_not_nest_neatly():
    outer, inner = [], []
    with backend.launching(lambda *launch: outer.append(launch)):
        with backend.launching(lambda *launch: inner.append(launch)):
            with backend.launching(outer.append), pytest.raises(ZeroDivisionError):
                raise ZeroDivisionError
            fill(4, 1.0)
        fill(4, 1.0)
    assert (len(outer), len(inner)) == (1, 1)


def hook(arguments):
    arguments["y_ptr"].fill_(-1)


@triton.autotune(
    configs=[
        triton.Config({"BLOCK": 4}, num_warps=2, pre_hook=hook),
        triton.Config({"BLOCK": 8}, num_warps=4),
        triton.Config({"BLOCK": 16}),
    ],
    key=["n"],
)
@triton.jit
def tuned_kernel(y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, BLOCK, mask=i < n - 1)


@triton.heuristics({"BLOCK": lambda arguments: triton.next_power_of_2(arguments["n"])})
@triton.jit
def heuristic_kernel(y_ptr, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(y_ptr + i, BLOCK, mask=i < n)


def test_an_autotuned_kernel_uses_its_first_config_and_its_hook():
    seen, y = [], torch.zeros(10)
    with backend.interpret(), backend.observe(seen.append):
        tuned_kernel[lambda meta: (triton.cdiv(10, meta["BLOCK"]),)](y, 10)
    assert y.tolist() == [4.0] * 9 + [-1.0]
    assert [(launch.grid, launch.options["num_warps"]) for launch in seen] == [((3,), 2)]
    (binary,) = compiled(lambda: tuned_kernel[(1,)](y, 10), arch=80)
    assert binary.num_warps == 2


def test_heuristics():
    y = torch.zeros(10)
    with backend.interpret():
        heuristic_kernel[(1,)](y, 10)
    assert (y == 16).all()


def test_a_kernel_called_outside_a_launch_is_still_tritons_error():
    with pytest.raises(RuntimeError, match="kernel"):
        fill_kernel(torch.zeros(1), 1, 1.0, 4)


def test_triton_interpret_in_the_environment_changes_nothing():
    code = """
from instruments import backend
from instruments.compiled import compiled
from kernels.norms.rmsnorm import rmsnorm
import os, torch
assert "TRITON_INTERPRET" not in os.environ
x, w = torch.ones(2, 8), torch.ones(8)
with backend.interpret():
    assert torch.allclose(rmsnorm(x, w), x)
print(compiled(rmsnorm, x.to(backend.device()), w.to(backend.device()), arch=90)[0].registers > 0, backend.mode())
"""
    out = python(code, TRITON_INTERPRET="1")
    assert out.split() == ["True", backend.mode()]


def test_triton_imported_under_triton_interpret_is_explained():
    code = """
import triton
try:
    import instruments.backend
except ImportError as error:
    print(error)
"""
    assert "unset it and restart" in python(code, TRITON_INTERPRET="1")


WITHOUT_TRITON = """
import importlib, pkgutil
from importlib.machinery import PathFinder

find = PathFinder.find_spec
PathFinder.find_spec = lambda name, *more: None if name.partition(".")[0] == "triton" else find(name, *more)
import torch
import kernels
from instruments import backend
for module in pkgutil.walk_packages(kernels.__path__, "kernels."):
    importlib.import_module(module.name)
"""


def test_without_triton_everything_imports_and_models_work():
    out = python(
        WITHOUT_TRITON
        + """
from instruments.traffic import Traffic
from kernels.norms.rmsnorm import rmsnorm_traffic
from kernels.norms.rmsnorm_backward import rmsnorm_backward_traffic
from kernels.norms.layernorm import layernorm_traffic
from kernels.elementwise.copy import copy_traffic
print(rmsnorm_traffic(64, 1000, torch.bfloat16).bytes, copy_traffic(8, torch.float32).bytes,
      rmsnorm_traffic(64, 100, torch.bfloat16, cached=False).launches,
      rmsnorm_backward_traffic(4, 9000, torch.float32).launches,
      layernorm_traffic(2, 2, torch.float16).launches, backend.mode(), backend.device())
"""
    )
    assert out.split()[:2] == ["258000", "64"] and out.split()[5] == "unavailable"


@pytest.mark.parametrize(
    "statement",
    [
        "rmsnorm(torch.ones(2, 8), torch.ones(8))",
        "meter(rmsnorm, torch.ones(2, 8), torch.ones(8))",
        "compiled(rmsnorm, torch.ones(2, 8), torch.ones(8))",
        "backend.interpret().__enter__()",
        "tuned[(1, )](1)",
    ],
)
def test_without_triton_launching_says_what_to_do_in_one_sentence(statement):
    out = python(
        WITHOUT_TRITON
        + f"""
from instruments.backend import tl, triton
from instruments.compiled import compiled
from instruments.meter import meter
from kernels.norms.rmsnorm import rmsnorm

@triton.autotune(configs=[triton.Config({{"BLOCK": 8}}, num_warps=4)], key=["n"])
@triton.heuristics({{"EVEN": lambda a: True}})
@triton.jit(do_not_specialize=["n"])
def tuned(n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    pass

try:
    {statement}
except RuntimeError as error:
    print(error)
print(backend.describe())
"""
    )
    first, described = out.strip().splitlines()
    assert first == backend.NO_TRITON
    assert described.endswith(first) and "models and panels work" in described


def test_the_self_test_passes_here_and_names_the_step_that_fails(monkeypatch):
    from instruments import compiler

    backend._self_test()
    monkeypatch.setattr(compiler, "binary", lambda launch, arch: type("Empty", (), {"asm": {"ptx": ""}}))
    with pytest.raises(RuntimeError, match=r"fails its self-test: compiling for sm_80\. Install triton>=3\.6"):
        backend._self_test()
