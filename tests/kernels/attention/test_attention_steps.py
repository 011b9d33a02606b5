"""Lesson 08c's steps: each computes causal attention, and changes in machine code what its name says."""

import pytest
import torch

from instruments.compiled import compiled
from instruments.meter import meter
from kernels.attention import attention_reference, flash_attention
from kernels.attention.forward_steps import STEPS, attention_steps
from tests.kernels.tools import BF16, DEVICE, FP16, SPILLS, assert_close, randn


@pytest.mark.parametrize("sequence, head_dim, dtype", [(200, 64, BF16), (128, 128, FP16)])
def test_every_step_computes_causal_attention(sequence, head_dim, dtype):
    q, k, v = (randn(1, 2, sequence, head_dim, dtype=dtype, seed=seed) for seed in range(3))
    reference, _ = attention_reference(q.double(), k.double(), v.double(), causal=True)
    for step in STEPS:
        out = attention_steps(q, k, v, step)
        assert out.dtype == dtype and out.shape == q.shape
        assert_close(out.flatten(), reference.flatten())


def test_each_step_changes_one_thing():
    steps = [vars(step) for step in STEPS.values()]
    assert all(sum(old[field] != new[field] for field in new) == 1 for old, new in zip(steps, steps[1:]))


def code(step=None, path=None):
    """Registers per thread and the loops of a step's kernel, or of flash_attention's, for Hopper."""
    q, k, v = (torch.empty(1, 2, 256, 128, dtype=BF16, device=DEVICE) for _ in range(3))
    call = (lambda: flash_attention(q, k, v, True, path=path)) if path else (lambda: attention_steps(q, k, v, step))
    kernel = compiled(call, arch=90)[0]
    assert kernel.spills == 0
    return kernel.registers, kernel.loops


def test_machine_code_per_tile_of_keys():
    """64 x 64 scores for 128 threads: 32 each, and 64 of the output's 64 x 128 elements."""
    loops = {step: code(step)[1] for step in STEPS}
    assert [len(each) for each in loops.values()][:6] == [1, 1, 1, 2, 2, 2]
    assert {each[0]["HGMMA"] for each in loops.values()} == {12}
    main = {step: each[0] for step, each in loops.items()}
    assert "LDG" in main["plain"] and "LDGSTS" not in main["plain"]
    assert "LDGSTS" in main["three stages"] and "LDG" not in main["three stages"]
    assert "UTMALDG" in main["descriptors"] and "LDGSTS" not in main["descriptors"]
    assert main["descriptors"]["FSEL"] == 32 and "FSEL" not in main["split loop"]
    assert loops["split loop"][1]["FSEL"] == 32  # the diagonal's loop
    assert main["split loop"]["FMUL"] == 96 == main["scale folded"]["FMUL"] + 30
    assert all(loop["MUFU"] == 34 for loop in main.values())
    own = code(path="fast")[1][0]  # flash_attention's own
    arithmetic = {"HGMMA", "MUFU", "FMUL", "FFMA", "FADD", "FSEL", "FMNMX", "UTMALDG"}  # of moves, 3.9 makes four more
    assert {op: main["longest first"].get(op) for op in arithmetic} == {op: own.get(op) for op in arithmetic}
    assert abs(sum(main["longest first"].values()) - sum(own.values())) <= (0 if SPILLS == 0 else 8)


def test_what_it_asks_for():
    q, k, v = (randn(1, 1, 128, 64, dtype=BF16, seed=seed) for seed in range(3))
    for step in STEPS:
        report = meter(lambda q, k, v: attention_steps(q, k, v, step), q, k, v)
        assert report.clean and report["q"].read == q.nbytes and report["out"].written == q.nbytes
        assert report["k"].read == report["v"].read == 1.5 * k.nbytes  # of two tiles of queries, one skips a tile


def test_bad_arguments_are_named():
    q, k, v = (randn(1, 1, 64, 64, dtype=BF16, seed=seed) for seed in range(3))
    with pytest.raises(ValueError, match="step: got 'none', expected one of: plain, three stages"):
        attention_steps(q, k, v, "none")
    with pytest.raises(ValueError, match=r"q: got shape .* expected \[batch, heads, sequence, 64 or 128\]"):
        attention_steps(q[..., :32], k, v)
    with pytest.raises(ValueError, match="v: got strides .* expected a contiguous tensor"):
        attention_steps(q, k, v.mT.contiguous().mT)
