"""Launches that are remembered: the same kernel with the same arguments as Triton's own way, on a stand-in of a GPU."""

import pytest
import torch

from instruments import backend, launcher
from instruments.backend import tl, triton

pytestmark = pytest.mark.each  # every set takes milliseconds, and most say something of their own


class Compiled:
    """What Triton returns of a launch."""

    function, packed_metadata = "function", "metadata"

    def __init__(self, started: list):
        self.run = lambda *args: started.append(args)


@triton.jit
def add_kernel(x_ptr, y_ptr, sizes, n, scale, DOUBLE: tl.constexpr, BLOCK: tl.constexpr = 8):
    pass


@pytest.fixture
def run(monkeypatch):
    """launch(*args, grid=..., **kwargs) of add_kernel, with the lists of launches by Triton and of remembered ones."""
    from triton.runtime import driver

    class Driver:
        get_current_stream = staticmethod(lambda device: 7)

    monkeypatch.setattr(driver, "_active", Driver(), raising=False)
    monkeypatch.setattr(type(driver), "active", property(lambda self: Driver()))
    device = [0]
    monkeypatch.setattr(torch.cuda, "current_device", lambda: device[0])
    monkeypatch.setattr(add_kernel, "module", "kernels.toy")
    monkeypatch.delattr(add_kernel, "launches", raising=False)
    by_triton, remembered = [], []

    def triton_run(self, *args, grid, warmup, **kwargs):
        by_triton.append((args, grid, kwargs))
        return Compiled(remembered)

    quick = launcher.quick(triton_run)

    def launch(*args, grid=(3,), warmup=False, **kwargs):
        return quick(add_kernel, *args, grid=grid, warmup=warmup, **kwargs)

    launch.by_triton, launch.remembered, launch.device = by_triton, remembered, device
    monkeypatch.setattr(type(add_kernel), "run", quick)  # as on a GPU, for the launches of plans
    return launch


def test_the_second_launch_passes_the_arguments_of_its_own_call(run):
    x, y, z = torch.ones(8), torch.ones(8), torch.ones(8)
    run(x, y, (1, 2), 8, 0.5, DOUBLE=True)
    run(z, x, (1, 2), 8, 0.5, DOUBLE=True, grid=(5, 2))
    assert len(run.by_triton) == 1
    (start,) = run.remembered
    assert start[:9] == (5, 2, 1, 7, "function", "metadata", None, None, None)
    assert start[9] is z and start[10] is x and start[11:] == ((1, 2), 8, 0.5, True, 8)


def test_a_launch_is_remembered_for_its_device_alone(run):
    args = torch.ones(8), torch.ones(8), (1, 2), 8, 0.5
    for device in (0, 1, 0):
        run.device[0] = device
        run(*args, DOUBLE=True)
    assert len(run.by_triton) == 2 and len(run.remembered) == 1


@pytest.mark.parametrize(
    "change",
    [
        {"x": torch.ones(9)[1:]},  # another alignment
        {"x": torch.ones(8, dtype=torch.float64)},
        {"sizes": (1, 3)},
        {"n": 1},
        {"n": 16},
        {"scale": 1},  # an integer, equal to the float of before
        {"DOUBLE": False},
        {"num_warps": 8},
        {"BLOCK": 16},
    ],
    ids=str,
)
def test_what_triton_may_compile_anew_goes_triton_s_way(run, change):
    first = {"x": torch.ones(8), "sizes": (1, 2), "n": 8, "scale": 1.0, "DOUBLE": True}
    for call in (first, first | change):
        call = dict(call)
        run(call.pop("x"), torch.ones(8), call.pop("sizes"), call.pop("n"), call.pop("scale"), **call)
    assert len(run.by_triton) == 2 and not run.remembered


def test_what_is_not_remembered(run, monkeypatch):
    args = torch.ones(8), torch.ones(8), (1, 2), 8, 0.5
    for _ in range(2):
        run(*args, DOUBLE=True, grid=lambda meta: (1,))  # an autotuner's
        run(*args, DOUBLE=True, warmup=True)
        run(args[0], y_ptr=args[1], sizes=(1, 2), n=8, scale=0.5, DOUBLE=True)  # a tensor by keyword
    assert len(run.by_triton) == 6 and not run.remembered
    monkeypatch.setattr(add_kernel, "module", "liger_kernel.ops")
    for _ in range(2):
        run(*args, DOUBLE=True)
    assert len(run.by_triton) == 8


def test_a_profiler_s_hook_sees_every_launch(run, monkeypatch):
    from triton import knobs

    args = torch.ones(8), torch.ones(8), (1, 2), 8, 0.5
    run(*args, DOUBLE=True)
    monkeypatch.setattr(knobs.runtime, "launch_enter_hook", lambda metadata: None)
    run(*args, DOUBLE=True)
    assert len(run.by_triton) == 2


def test_memory_is_bounded(run, monkeypatch):
    monkeypatch.setattr(launcher, "MOST", 4)
    for n in range(20):
        run(torch.ones(8), torch.ones(8), (1, 2), n, 0.5, DOUBLE=True)
        assert len(add_kernel.launches) <= 4


def test_a_tensor_descriptor_counts_by_its_block_and_dtype(run):
    from triton.tools.tensor_descriptor import TensorDescriptor

    x = torch.ones(16, 16)
    for rows, shape in ((8, [16, 16]), (8, [8, 16]), (4, [16, 16])):
        run(TensorDescriptor(x, shape, [16, 1], [rows, 16]), x, (1, 2), 8, 0.5, DOUBLE=True)
    assert len(run.by_triton) == 2 and len(run.remembered) == 1
    assert run.remembered[0][9].shape == [8, 16]


def test_a_planned_launch_is_the_remembered_one(run):
    x, y, z = torch.ones(8), torch.ones(8), torch.ones(8)
    launch = launcher.Launch(add_kernel, (5, 2), (1, 2), 8, 0.5, DOUBLE=True, num_warps=8)
    launch(x, y)
    launch(z, x)
    ((args, grid, options),) = run.by_triton
    assert args[0] is x and args[1] is y and args[2:] == ((1, 2), 8, 0.5) and grid == (5, 2)
    assert options == {"DOUBLE": True, "num_warps": 8}
    (start,) = run.remembered
    assert start[:9] == (5, 2, 1, 7, "function", "metadata", None, None, None)
    assert start[9] is z and start[10] is x and start[11:] == ((1, 2), 8, 0.5, True, 8)


def test_a_planned_launch_is_compiled_for_each_device(run):
    launch = launcher.Launch(add_kernel, (3,), (1, 2), 8, 0.5, DOUBLE=True)
    for device in (0, 1, 0, 1):
        run.device[0] = device
        launch(torch.ones(8), torch.ones(8))
    assert len(run.by_triton) == len(run.remembered) == 2


def test_hooks_and_redirections_see_every_planned_launch(run, monkeypatch):
    from triton import knobs

    x, calls = torch.ones(8), []
    launch = launcher.Launch(add_kernel, (3,), (1, 2), 8, 0.5, DOUBLE=True)
    launch(x, x)
    with monkeypatch.context() as hooked:
        hooked.setattr(knobs.runtime, "launch_enter_hook", lambda metadata: None)
        launch(x, x)
    assert len(run.by_triton) == 2 and not run.remembered
    with backend.launching(lambda *call: calls.append(call)):
        launch(x, x)
    assert calls == [(add_kernel, (3,), (x, x, (1, 2), 8, 0.5), {"DOUBLE": True})] and not run.remembered


def test_a_planned_descriptor_is_triton_s(run):
    from triton.tools.tensor_descriptor import TensorDescriptor

    from kernels.shared.device import DescriptorPlan

    x, y = torch.ones(16, 16), torch.zeros(16, 16)
    plan = DescriptorPlan(x.shape, x.stride(), [8, 16])
    for base in (x, y):
        assert plan(base) == TensorDescriptor(base, [16, 16], [16, 1], [8, 16]) and plan(base).base is base
