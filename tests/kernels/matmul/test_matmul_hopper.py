"""The steps of the Hopper matmul: what the compiler made of them, anywhere; what they compute, on a Hopper GPU."""

import re
from functools import cache

import pytest
import torch

from bench.cases.matmul_hopper import STEPS
from instruments import backend
from instruments.compiled import compiled
from kernels.matmul import descriptors, hopper, hopper_steps
from kernels.shared.device import is_hopper
from tests.kernels.tools import assert_close, randn

DEVICE = torch.device(backend.device())
on_hopper = pytest.mark.skipif(not is_hopper(DEVICE), reason="needs a Hopper GPU")
BF16 = torch.bfloat16


@cache
def compile_step(name: str):
    """The kernel that a step launches, compiled for Hopper without one."""
    a, b, c = (torch.empty(512, 512, dtype=BF16) for _ in range(3))
    (kernel,) = compiled(STEPS[name], a, b, c)
    return kernel


@pytest.mark.parametrize("name", [name for name in STEPS if name != "specialized"])
def test_each_step_multiplies_with_wgmma_what_tma_copied_and_spills_nothing(name):
    kernel = compile_step(name)
    assert kernel.matrix_instruction == "wgmma" and kernel.spills == 0
    assert "cp.async.bulk.tensor.2d.shared" in kernel.ptx and "cp.async.bulk.tensor.2d.global" in kernel.ptx
    assert kernel.shared <= 232_448  # bytes that a program may have


@pytest.mark.parametrize("specialized", [False, True])
@pytest.mark.parametrize("M, N, K", [(130, 520, 72), (8, 8, 8)])
def test_the_triton_steps_multiply_in_the_interpreter_too(M, N, K, specialized):
    """Two tiles in each direction, the last of them ragged, and a matrix smaller than a tile."""
    a, b = (randn(*shape, dtype=BF16, seed=seed).cpu() for seed, shape in enumerate(((M, K), (K, N))))
    c = torch.full((M, N), float("nan"), dtype=BF16)
    with backend.interpret():
        descriptors.launch(a, b, c, specialized)
    assert_close(c, a.double() @ b.double())


@pytest.mark.parametrize("name", ["producer", "hopper"])
def test_the_producer_gives_its_registers_to_the_consumers(name):
    kernel = compile_step(name)
    registers = {int(n) for n in re.findall(r"setmaxnreg\.\w+\.sync\.aligned\.u32\s+(\d+)", kernel.ptx)}
    assert {24, 240} <= registers and kernel.num_warps == 12


def test_only_the_ring_leaves_a_matmul_running_while_copies_start():
    """Before the last wait, `one slot` waits for every matmul; the ring waits for all but one."""
    waits = {
        name: re.findall(r"wgmma\.wait_group\.sync\.aligned (\d)", compile_step(name).ptx)
        for name in ("one slot", "ring", "hopper")
    }
    assert set(waits["one slot"]) == {"0"} and "1" in waits["ring"] and "1" in waits["hopper"]


def test_other_steps_are_refused():
    x = torch.empty(128, 128, dtype=BF16)
    with pytest.raises(ValueError, match="^step: got 'rings', expected 'one slot', 'ring' or 'producer'$"):
        hopper_steps.launch("rings", x, x, x)


@pytest.mark.parametrize("plan", [hopper.PLAN, *hopper.VARIANTS.values()], ids=["default", *hopper.VARIANTS])
def test_a_plans_slots_and_output_tiles_fit_into_shared_memory(plan):
    slots = plan.slots * plan.block_k * (hopper.BLOCK_M + plan.block_n)
    out = 2 * hopper.WARPGROUPS.value * hopper.ROWS.value * hopper.OUT_N
    assert 2 * (slots + out) + 16 * plan.slots <= 232_448


#: K below one slot, one tile, uneven tiles, more tiles than SMs with an odd number of slots each, a short last group
SHAPES = ((128, 256, 64), (128, 256, 40), (8, 8, 8), (136, 264, 72), (1000, 1000, 1000), (5000, 2056, 328))


@on_hopper
@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", [torch.float16, BF16])
def test_every_element_is_right_and_written(name, shape, dtype):
    M, N, K = shape
    generator = torch.Generator(DEVICE).manual_seed(M * N)
    a = torch.randn(M, K, generator=generator, device=DEVICE).to(dtype)
    b = torch.randn(K, N, generator=generator, device=DEVICE).to(dtype)
    c = torch.full((M, N), float("nan"), dtype=dtype, device=DEVICE)
    STEPS[name](a, b, c)
    assert_close(c, a.double() @ b.double())


@on_hopper
@pytest.mark.parametrize("shape", SHAPES[3:], ids=str)
def test_the_last_step_takes_a_transposed_b_and_a_trace(shape):
    M, N, K = shape
    a, b = torch.randn(M, K, device=DEVICE).to(BF16), torch.randn(N, K, device=DEVICE).to(BF16).T
    c = torch.full((M, N), float("nan"), dtype=BF16, device=DEVICE)
    trace = torch.zeros(3, 8, 5, dtype=torch.int64, device=DEVICE)
    hopper.launch(a, b, c, trace=trace)
    assert_close(c, a.double() @ b.double())
    stamps = trace[:, :, :3]
    assert (stamps[:, :1] > 0).all() and (stamps.diff(dim=2)[:, 0] >= 0).all()


@on_hopper
@pytest.mark.parametrize("M, N, K", [(8192, 512, 64), (128, 8192, 4096)])
def test_programs_with_many_tiles_and_with_one_repeat_their_answer(M, N, K):
    """A barrier that is one phase off gives other numbers from run to run."""
    a, b = torch.randn(M, K, device=DEVICE).to(BF16), torch.randn(K, N, device=DEVICE).to(BF16)
    results = []
    for _ in range(20):
        c = torch.full((M, N), float("nan"), dtype=BF16, device=DEVICE)
        hopper.launch(a, b, c)
        results.append(c)
    assert all(torch.equal(results[0], c) for c in results[1:])
    assert_close(results[0], a.double() @ b.double())


@pytest.mark.skipif(is_hopper(DEVICE), reason="needs another device")
def test_other_devices_are_not_taken():
    x = torch.empty(128, 128, dtype=BF16, device=DEVICE)
    assert not hopper.takes(x, x, x) and descriptors.BLOCKS["BLOCK_M"] == hopper.BLOCK_M
