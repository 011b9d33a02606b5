"""Grouped matmul in Gluon: the compiled code, on any machine; the results, on a Hopper GPU."""

import itertools
import re

import pytest
import torch

from instruments import backend
from instruments.compiled import compiled
from kernels.grouped_matmul.forward import grouped_matmul, grouped_matmul_reference, grouped_plan
from kernels.grouped_matmul.hopper import plan_call, takes
from kernels.grouped_matmul.persistent import RAGGED, describable, ragged
from kernels.shared.device import INTERPRETED
from tests.kernels.tools import BF16, DEVICE, FP16, SPILLS, assert_close, randn

SOME = torch.empty(16, 16, 16, dtype=BF16, device=DEVICE)
SHARED = 232_448  # bytes that a program may have on Hopper
on_hopper = pytest.mark.skipif(not takes(SOME[0], SOME, SOME[0]), reason="needs a Hopper GPU")


def launch(x, weight, offsets, rows, y, swiglu, plan):
    """The kernel alone."""
    plan_call(x, weight, rows is not None, y, swiglu, plan)(x, weight, offsets, rows, y)


def compile_kernel(transposed, swiglu, gathered):
    x, y = torch.empty(512, 256, dtype=BF16), torch.empty(512, 256 if swiglu else 512, dtype=BF16)
    weight = torch.empty(3, 512, 256, dtype=BF16).mT if transposed else torch.empty(3, 256, 512, dtype=BF16)
    rows = torch.zeros(512, dtype=torch.int32) if gathered else None
    plan = grouped_plan(512, 3, y.shape[1], swiglu, 2, "hopper", INTERPRETED)
    (kernel,) = compiled(launch, x, weight, torch.zeros(4, dtype=torch.int32), rows, y, swiglu, plan)
    return kernel


def loops(kernel):
    """The opcodes of each loop over K: from a matmul to the branch back."""
    opcodes = re.findall(r"/\*[0-9a-f]+\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]+)", kernel.sass)
    place = 0
    while any(opcode.startswith("HGMMA") for opcode in opcodes[place:]):
        start = next(i for i in range(place, len(opcodes)) if opcodes[i].startswith("HGMMA"))
        place = next(i for i in range(start, len(opcodes)) if opcodes[i] == "BRA")
        yield opcodes[start:place]


@pytest.mark.parametrize(
    "transposed, swiglu, gathered",
    [
        (False, False, False),
        (False, True, True),
        pytest.param(True, True, False, marks=pytest.mark.once),
        pytest.param(True, False, True, marks=pytest.mark.once),
    ],
)
def test_accumulators_stay_in_the_tensor_core(transposed, swiglu, gathered):
    kernel = compile_kernel(transposed, swiglu, gathered)
    assert kernel.matrix_instruction == "wgmma" and kernel.spills <= SPILLS and kernel.shared <= SHARED
    widths = {256} if swiglu else {256, 128}  # half of a tile where the last columns end
    columns = re.findall(r"wgmma\.mma_async\.sync\.aligned\.m64n(\d+)k16\.f32\.bf16\.bf16", kernel.ptx)
    assert {int(n) for n in columns} == widths
    assert "cp.async.bulk.tensor.3d.shared" in kernel.ptx and "cp.async.bulk.tensor.4d.global" in kernel.ptx
    assert ("LDGSTS.E.BYPASS.128" in str(kernel.opcodes)) == gathered  # 16 bytes a thread
    bodies = list(loops(kernel))
    assert len(bodies) == 2 * len(widths)  # two warpgroups
    for body in bodies:
        assert sum(opcode.startswith("HGMMA") for opcode in body) == 4  # 64 columns, 16 each
        assert not any(opcode.startswith(("FADD", "FFMA", "FMUL", "LDG", "LDL", "STL")) for opcode in body)


@pytest.mark.parametrize("rows, N, pitch", [(300, 136, 136), (7, 8, 8), (4096, 1408, 2816)])
def test_a_ragged_descriptor_ends_where_an_access_says(rows, N, pitch):
    y = torch.empty(rows, pitch, dtype=BF16)[:, :N]
    shape, strides = ragged(y)
    for row, end, col in ((0, 1, 0), (rows - 1, rows, N - 1), (3, 5, 7)):
        at = (RAGGED.value, end, RAGGED.value - end + row, col)
        offset = sum(index * stride for index, stride in zip(at, strides)) * y.element_size()
        assert offset % (1 << 64) == (row * pitch + col) * y.element_size()
        assert all(index < size for index, size in zip(at, shape))
        behind = at[2] + (end - row)  # of row `end`
        assert behind == shape[2]
    assert all(stride * y.element_size() < 1 << 40 for stride in strides)  # TMA's limit


def test_tma_addresses_rows_on_16_bytes_with_either_dimension_inside():
    weight = torch.empty(3, 64, 24, dtype=BF16)
    assert describable(weight) and not describable(weight.mT)
    assert describable(weight[:, :, :8]) and describable(weight[:1]) and describable(weight.transpose(0, 1))
    assert not describable(weight[:, :, 1:9])  # begins in the midst of 16 bytes
    assert not describable(torch.empty(3, 64, 20, dtype=BF16))
    assert not describable(torch.empty(1, 64, 24, dtype=BF16).expand(3, -1, -1))


def test_it_is_refused_elsewhere():
    x, offsets = torch.randn(16, 16).to(BF16).to(DEVICE), torch.tensor([0, 16], dtype=torch.int32).to(DEVICE)
    with backend.interpret(), pytest.raises(ValueError, match="^path: got 'hopper' for torch.bfloat16"):
        grouped_matmul(x, x[None], offsets, path="hopper")


def test_it_is_never_interpreted():
    x, offsets = torch.randn(16, 16).to(BF16), torch.tensor([0, 16], dtype=torch.int32)
    with backend.interpret(), pytest.raises(RuntimeError, match="grouped_hopper_kernel is written in Gluon"):
        plan = grouped_plan(16, 1, 16, False, 2, "hopper", INTERPRETED)
        launch(x, x[None], offsets, None, torch.empty(16, 16, dtype=BF16), False, plan)


COUNTS = {
    "random": [100, 130, 61, 89, 204],
    "skewed": [0, 1, 63, 64, 65, 0, 127, 128, 129, 300, 0],
    "one": [0, 0, 777, 0],
    "few": [1] * 7 + [0] * 9 + [2] * 5,
}


def operands(counts, K, N, transposed, dtype):
    """x with 5 rows of no group, weight, and offsets."""
    x, weight = randn(sum(counts) + 5, K, dtype=dtype), randn(len(counts), K, N, dtype=dtype, scale=K**-0.5, seed=1)
    if transposed:
        weight = weight.mT.contiguous().mT
    offsets = torch.tensor([0, *counts]).cumsum(0).to(torch.int32).to(DEVICE)
    return x, weight, offsets


@on_hopper
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("counts", COUNTS.values(), ids=COUNTS)
def test_results(counts, transposed):
    for dtype, K, N in ((BF16, 200, 528), (FP16, 1024, 1408), (BF16, 64, 112), (BF16, 8, 16)):
        x, weight, offsets = operands(counts, K, N, transposed, dtype)
        some = torch.randint(0, len(x), (len(x),), dtype=torch.int32).to(DEVICE)
        for activation, rows in itertools.product((None, "swiglu"), (None, some)):
            y = grouped_matmul(x, weight, offsets, rows=rows, activation=activation, path="hopper")
            expected = grouped_matmul_reference(x.double(), weight.double(), offsets, rows=rows, activation=activation)
            assert_close(y[:-5], expected[:-5])
            assert y[-5:].isnan().all()  # rows of no group stay as they were, poisoned


@on_hopper
def test_programs_take_tiles_in_any_order_and_the_bits_stay():
    x, weight, offsets = operands([700, 3, 900, 411, 2000, 64], 512, 1408, False, BF16)
    results = [grouped_matmul(x, weight, offsets, path="hopper", sms=132 - 13 * run) for run in range(10)]
    assert all(torch.equal(results[0][:-5], y[:-5]) for y in results)


@on_hopper
def test_it_is_chosen_for_many_rows_that_tma_can_address():
    x, weight, offsets = operands([200, 300], 64, 64, False, BF16)
    y = grouped_matmul(x, weight, offsets, path="hopper")
    assert torch.equal(grouped_matmul(x, weight, offsets)[:-5], y[:-5])
    with pytest.raises(ValueError, match="^path: got 'hopper' for torch.bfloat16"):
        grouped_matmul(x[:, 1:], weight[:, 1:], offsets, path="hopper")
