"""FP8 products in Gluon: what the compiler made of them, anywhere; what they compute, on a Hopper GPU."""

import re

import pytest
import torch

from instruments import backend
from instruments.compiled import compiled
from kernels.low_precision import hopper
from kernels.low_precision.block_scaled import block_scaled_matmul
from kernels.low_precision.hopper import FAST, PROMOTED, Fp8HopperPlan, choose_plan, launch, takes
from kernels.low_precision.scaled import scaled_matmul, scaled_matmul_reference
from kernels.quantization.schemes import SCHEMES, empty, quantize_reference
from tests.kernels.tools import BF16, DEVICE, FP16, FP32, assert_close, randn, worst_row

SOME = torch.empty(16, 16, dtype=torch.float8_e4m3fn, device=DEVICE)
SHARED = 232_448  # bytes that a program may have on Hopper
on_hopper = pytest.mark.skipif(not takes(SOME, SOME, SOME), reason="needs a Hopper GPU")


def compile_plan(plan, promote, schemes=("fp8_row", "fp8_row"), out_dtype=BF16):
    x, weight = (empty((512, 1024), SCHEMES[scheme], "cpu") for scheme in schemes)
    (kernel,) = compiled(launch, x, weight, torch.empty(512, 512, dtype=out_dtype), promote, plan)
    return kernel


def loop(kernel):
    """The opcodes of the loop over K of the first warpgroup: from its first product to the branch back."""
    opcodes = re.findall(r"/\*[0-9a-f]+\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]+)", kernel.sass)
    start = next(i for i, opcode in enumerate(opcodes) if opcode.startswith("QGMMA"))
    return opcodes[start : next(i for i in range(start, len(opcodes)) if opcodes[i] == "BRA")]


@pytest.mark.parametrize("plan", FAST)
def test_fast_sums_stay_in_the_matrix_unit(plan):
    kernel = compile_plan(plan, promote=False)
    assert kernel.matrix_instruction == "wgmma (fp8)" and kernel.spills == 0
    assert f"wgmma.mma_async.sync.aligned.m64n{plan.block_n}k32.f32.e4m3.e4m3" in kernel.ptx
    assert "cp.async.bulk.tensor.2d.shared" in kernel.ptx and "cp.async.bulk.tensor.2d.global" in kernel.ptx
    body = loop(kernel)
    assert sum(opcode.startswith("QGMMA") for opcode in body) == 4  # 128 columns, 32 each
    assert not any(opcode.startswith(("FADD", "FFMA", "FMUL")) for opcode in body)


@pytest.mark.parametrize("schemes", [("fp8_row", "fp8_row"), ("fp8_1x128", "fp8_128x128")])
@pytest.mark.parametrize("plan", PROMOTED)
def test_promoted_sums_are_added_in_registers(plan, schemes):
    kernel = compile_plan(plan, True, schemes)
    assert kernel.matrix_instruction == "wgmma (fp8)" and kernel.spills == 0
    assert kernel.num_warps == 4 * (plan.warpgroups + 1)
    registers = {int(n) for n in re.findall(r"setmaxnreg\.\w+\.sync\.aligned\.u32\s+(\d+)", kernel.ptx)}
    assert {24, plan.registers} <= registers
    adding = "FADD" if schemes[0] == "fp8_row" else "FFMA"
    assert sum(opcode.startswith(adding) for opcode in loop(kernel)) == 64 * plan.block_n // 128  # sums of a thread


@pytest.mark.once
@pytest.mark.parametrize("out_dtype", [BF16, FP32])
def test_shared_memory_suffices(out_dtype):
    for plan in FAST:
        assert compile_plan(plan, False, out_dtype=out_dtype).shared <= SHARED
    for plan in PROMOTED:
        assert compile_plan(plan, True, ("fp8_1x128", "fp8_128x128"), out_dtype).shared <= SHARED


def test_a_plan_is_chosen_by_its_waves():
    plan = Fp8HopperPlan(2, 128, 1, 64, 240, 1.0)
    assert plan.cost(256, 256, 4) == 256 and plan.cost(257, 256, 4) == 512
    assert choose_plan(8192, 8192, 132, promote=True) == PROMOTED[0]


@pytest.mark.parametrize("rows, blocks", [(8, 3), (7, 3), (1, 1)])
def test_columns_of_scales_begin_where_tma_can_copy(rows, blocks):
    scales = torch.arange(1.0, 1 + rows * blocks).view(rows, blocks)
    columns, pitch = hopper._columns(scales), hopper._pitch(rows)
    assert pitch % 4 == 0 and columns.data_ptr() % 16 == 0
    assert torch.equal(columns.view(blocks, pitch)[:, :rows], scales.t())


def test_it_is_never_interpreted():
    x = quantize_reference(torch.randn(16, 16), "fp8_row")
    with backend.interpret(), pytest.raises(RuntimeError, match="fp8_hopper_kernel is written in Gluon"):
        launch(x, x, torch.empty(16, 16, dtype=BF16))


def test_the_public_functions_refuse_it_elsewhere(monkeypatch):
    monkeypatch.setattr(hopper, "takes", lambda *tensors: False)
    x = quantize_reference(randn(16, 16), "fp8_row")
    with pytest.raises(ValueError, match=r"^path: got 'hopper' for \(16, 16\) by \(16, 16\) on .*, expected None or"):
        scaled_matmul(x, x, path="hopper")


@on_hopper
@pytest.mark.parametrize("plan", FAST + PROMOTED)
@pytest.mark.parametrize("shape", [(1, 8, 16), (130, 272, 304), (200, 1032, 2064), (1000, 2056, 640)])
def test_results(shape, plan):
    M, N, K = shape
    for x_scheme, weight_scheme in (("fp8_tensor", "fp8_row"), ("fp8_row", "fp8_tensor"), ("fp8_1x128", "fp8_128x128")):
        promote = plan in PROMOTED
        if x_scheme == "fp8_1x128" and not promote:
            continue
        x = quantize_reference(randn(M, K, seed=1), x_scheme)
        weight = quantize_reference(randn(N, K, seed=2), weight_scheme)
        reference = scaled_matmul_reference(x, weight)
        for out_dtype in (BF16, FP16, FP32):
            y = torch.full((M, N), float("nan"), dtype=out_dtype, device=DEVICE)
            launch(x, weight, y, promote, plan)
            if promote and out_dtype != FP32:
                assert_close(y, reference)
            else:  # what the matrix unit keeps of the sum
                assert worst_row(y, reference) < (5e-4 if promote else 3e-3)


@on_hopper
def test_promotion_pays():
    """Positive numbers over a long K: what is not promoted loses a share of the sum."""
    x, weight = (quantize_reference(randn(64, 16_384, seed=seed).abs(), "fp8_row") for seed in (1, 2))
    reference = scaled_matmul_reference(x, weight)
    fast, promoted = (
        worst_row(scaled_matmul(x, weight, accumulate=accumulate, out_dtype=FP32), reference)
        for accumulate in ("fast", "promoted")
    )
    assert promoted < 1e-3 < 0.1 < fast
    blocks = block_scaled_matmul(
        quantize_reference(randn(64, 16_384, seed=1).abs(), "fp8_1x128"),
        quantize_reference(randn(64, 16_384, seed=2).abs(), "fp8_128x128"),
    )
    assert blocks.isfinite().all()


@on_hopper
def test_the_plain_kernel_takes_what_tma_cannot_address():
    x, weight = (
        quantize_reference(randn(20, 24, seed=1), "fp8_row"),
        quantize_reference(randn(9, 24, seed=2), "fp8_row"),
    )
    assert not takes(x.codes, weight.codes, torch.empty(20, 9, dtype=BF16, device=DEVICE))
    assert_close(scaled_matmul(x, weight), scaled_matmul_reference(x, weight))
