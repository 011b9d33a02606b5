import pytest
import torch

from instruments.compiled import compiled
from instruments.meter import meter
from kernels.optimizers import adamw, adamw_many, adamw_ops, adamw_reference, adamw_traffic
from kernels.optimizers.adamw import CHUNK, _launch_many
from tests.kernels.tools import BF16, BF16_FIRST, FP16, FP32, assert_close, randn

OPTIONS = {"lr": 1e-2, "betas": (0.9, 0.99), "eps": 1e-6, "weight_decay": 0.1}


def states(size, dtype=FP32, grad_dtype=None, seed=0):
    """param, grad, m, v."""
    kinds = dtype, grad_dtype or dtype, FP32, FP32
    param, grad, m, v = (randn(size, dtype=kind, seed=seed + i) for i, kind in enumerate(kinds))
    return param, grad, m * 0.1, v.abs() * 0.01


@pytest.mark.parametrize("dtype", BF16_FIRST)
@pytest.mark.parametrize("size", [1, 1023, 1024, 5000])
def test_five_steps_are_the_references(size, dtype):
    param, _, m, v = states(size, dtype)
    expected = [t.double() for t in (param, m, v)]
    for step in range(1, 6):
        grad = randn(size, dtype=dtype, seed=10 + step)
        adamw(param, grad, m, v, step=step, **OPTIONS)
        expected = list(adamw_reference(expected[0], grad.double(), *expected[1:], step, **OPTIONS))
        assert_close(param, expected[0])
        expected[0] = param.double()  # which has been rounded
    assert (m.double() - expected[1]).norm() <= 1e-6 * expected[1].norm()
    assert (v.double() - expected[2]).norm() <= 1e-6 * expected[2].norm()


def test_it_is_torchs_adamw():
    param, _, m, v = states(3000)
    peer = torch.nn.Parameter(param.clone())
    optimizer = torch.optim.AdamW([peer], **OPTIONS)
    m.zero_(), v.zero_()
    for step in range(1, 5):
        peer.grad = randn(3000, seed=20 + step)
        optimizer.step()
        adamw(param, peer.grad, m, v, step=step, **OPTIONS)
    assert_close(param, peer.detach().double())


def test_decay_is_decoupled_and_zero_gradients_shrink_the_parameter():
    param, _, m, v = states(100)
    before = param.double()
    adamw(param, torch.zeros_like(param), m.zero_(), v.zero_(), step=1, **OPTIONS)
    assert_close(param, before * (1 - 1e-2 * 0.1))


def test_denormal_moments_do_not_overflow():
    """v underflows to 0 where the gradient is 1e-25: eps alone is left in the denominator."""
    param, _, m, v = states(64)
    m.zero_(), v.zero_()
    grad = torch.full_like(param, 1e-25)
    expected = adamw_reference(param.double(), grad.double(), m.double(), v.double(), 1, **OPTIONS)[0]
    adamw(param, grad, m, v, step=1, **OPTIONS)
    assert_close(param, expected)


@pytest.mark.parametrize("dtype, grad_dtype", [(FP32, FP32), (BF16, FP32), (FP32, FP16)])
def test_many_parameters_in_one_launch_give_the_same_bits(dtype, grad_dtype):
    sizes = (1, 1025, CHUNK - 1, CHUNK + 3, 0, 7)
    together = [states(size, dtype, grad_dtype, seed=3 * size) for size in sizes]
    alone = [tuple(t.clone() for t in tensors) for tensors in together]
    adamw_many(*map(list, zip(*together, strict=True)), step=3, **OPTIONS)
    for tensors, copies in zip(together, alone, strict=True):
        adamw(*copies, step=3, **OPTIONS)
        assert all(map(torch.equal, tensors, copies))


@pytest.mark.parametrize("dtype, grad_dtype, bytes_each", [(FP32, FP32, 28), (BF16, BF16, 22), (BF16, FP32, 24)])
def test_traffic_is_what_the_meter_counts(dtype, grad_dtype, bytes_each):
    report = meter(lambda *tensors: adamw(*tensors, step=1, **OPTIONS), *states(5000, dtype, grad_dtype))
    model = adamw_traffic(5000, dtype, grad_dtype)
    assert sum(report.traffic.read.values()) == sum(model.read.values())
    assert sum(report.traffic.written.values()) == sum(model.written.values())
    assert model.bytes == 5000 * bytes_each


def test_unfused_ops_move_twenty_tensors():
    ops = adamw_ops(1000, FP32)
    assert sum(op.bytes for op in ops.values()) == 20 * 4000 and len(ops) == 8


@pytest.mark.parametrize("arch", [80, 90])
def test_loads_of_16_bytes_and_no_spills(arch):
    (kernel,) = compiled(lambda *tensors: adamw(*tensors, step=1, **OPTIONS), *states(4096), arch=arch)
    assert not kernel.spills and any("LDG" in code and "128" in code for code in kernel.opcodes)


@pytest.mark.parametrize("arch", [80, 90])
def test_the_launch_for_many_compiles_to_the_same_loads(arch):
    """It runs on a GPU alone: the interpreter lets no kernel read an address from a table."""
    tensors = [[t] for t in states(4096, BF16)]
    numbers = 0.9, 1e-3, 1e-6, 0.9, 0.99, 1.0
    (kernel,) = compiled(lambda: _launch_many(*tensors, (4096,), numbers), arch=arch)
    assert not kernel.spills and sum(count for code, count in kernel.opcodes.items() if "STG" in code) >= 3


def test_empty_and_bad_arguments():
    param, grad, m, v = states(6)
    adamw(*(t[:0] for t in (param, grad, m, v)), step=1, lr=0.1)
    adamw_many([], [], [], [], step=1, lr=0.1)
    for arguments, options, name in (
        ((param.double(), grad, m, v), {}, "param"),
        ((param, grad[:3], m, v), {}, "grad"),
        ((param, grad, m.half(), v), {}, "m"),
        ((param, grad, m, torch.cat([v, v])[::2]), {}, "v"),
        ((param, grad, m, v), {"step": 0}, "step"),
        ((param, grad, m, v), {"lr": -1}, "lr"),
        ((param, grad, m, v), {"betas": (0.9, 1.0)}, "betas"),
    ):
        with pytest.raises(ValueError, match=f"^{name}: "):
            adamw(*arguments, **({"step": 1, "lr": 0.1} | options))
    for lists, name in (
        (([param], [grad], [m], []), "params"),
        (([param, param.half()], [grad, grad.half()], [m, m], [v, v]), "params"),
        (([param], [grad[:3]], [m], [v]), "grads\\[0\\]"),
    ):
        with pytest.raises(ValueError, match=f"^{name}: "):
            adamw_many(*lists, step=1, lr=0.1)
