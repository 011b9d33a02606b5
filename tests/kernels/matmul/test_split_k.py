import itertools

import pytest
import torch

from instruments.compiled import SHARED, compiled
from instruments.meter import meter
from kernels.matmul import split_k
from kernels.matmul.split_k import TILES, matmul_split_k, matmul_split_k_traffic, split_plan, sum_parts
from kernels.matmul.tiled import matmul_reference
from kernels.shared.device import INTERPRETED, Device
from tests.kernels.tools import AGAIN, BF16, BF16_FIRST, DEVICE, FP16, FP32, assert_close, randn

H200 = Device(132, 233_472)


def check(a, b, **options):
    assert_close(matmul_split_k(a, b, **options), matmul_reference(a.double(), b.double()))


@pytest.mark.parametrize("reduction", split_k.REDUCTIONS)
@pytest.mark.parametrize("dtype", BF16_FIRST)
@pytest.mark.parametrize("M, N, K, parts", [(1, 1, 1, 1), (3, 65, 600, 2), (17, 70, 1025, 3), (65, 130, 400, 4)])
def test_ragged_sizes_in_every_tile(M, N, K, parts, dtype, reduction):
    check(
        randn(M, K, dtype=dtype), randn(K, N, dtype=dtype, seed=1), reduction=reduction, parts=parts
    )  # the last part of K is shorter, and at 400 elements in 4 parts of 128 nearly empty


def test_layouts():
    wide = randn(40, 1300, dtype=FP16)
    check(wide[::2, 5:1200], randn(1195, 33, dtype=FP16, seed=3).T.contiguous().T, parts=3)
    check(wide[:1].expand(20, -1), randn(1300, 3, dtype=FP16)[:, :1].expand(-1, 9), parts=3)


def test_accumulates_in_fp32_and_rounds_once():
    """Parts that were rounded to fp16 before their sum would cancel to something else."""
    a = torch.cat([torch.full((2, 512), 30.0), torch.full((2, 512), -30.0), torch.full((2, 512), 0.01)], 1)
    a, b = a.half().to(DEVICE), torch.full((1536, 4), 9.1, dtype=FP16, device=DEVICE)
    for reduction in split_k.REDUCTIONS:
        check(a, b, parts=3, reduction=reduction)


def test_two_launches_give_the_same_bits_again():
    a, b = randn(16, 4000, dtype=BF16), randn(4000, 70, dtype=BF16, seed=1)
    first = matmul_split_k(a, b, parts=9)
    for _ in range(AGAIN):
        assert torch.equal(matmul_split_k(a, b, parts=9), first)


@pytest.mark.parametrize("parts", [1, 2, 15, 16, 17, 40])
def test_parts_are_added_up_in_chunks(parts):
    partial, c = randn(parts, 5, 33), torch.empty(5, 33, dtype=FP16, device=DEVICE)
    sum_parts(partial, c)
    assert_close(c, partial.double().sum(0))


@pytest.mark.parametrize("M, N, K, parts", [(5, 128, 512, 2), (64, 64, 1024, 3), (128, 128, 192, 2), (33, 40, 256, 1)])
def test_traffic_is_what_the_meter_counts(M, N, K, parts):
    report = meter(matmul_split_k, randn(M, K, dtype=FP16), randn(K, N, dtype=FP16), parts=parts)
    plan = split_plan(M, N, K, INTERPRETED, parts)
    tile = plan.tile["BLOCK_M"], plan.tile["BLOCK_N"]
    model = matmul_split_k_traffic(M, N, K, FP16, tile, plan.parts)
    assert report.clean and plan.parts == parts
    assert (sum(report.traffic.read.values()), sum(report.traffic.written.values())) == (
        sum(model.read.values()), sum(model.written.values())
    )  # fmt: skip
    assert report.traffic.launches == model.launches


def test_a_plan_covers_k_once_and_fills_the_gpu():
    for M, N, K in itertools.product((1, 16, 17, 64, 65, 3000), (1, 64, 8192, 28672), (1, 100, 8192, 65536)):
        plan = split_plan(M, N, K, H200)
        assert (plan.parts - 1) * plan.part_k < K <= plan.parts * plan.part_k
        assert plan.part_k % plan.tile["BLOCK_K"] == 0
        assert plan.parts == 1 or plan.part_k >= split_k.PART_K // 2
    assert split_plan(64, 64, 65536, H200).parts > 100 and split_plan(8192, 8192, 8192, H200).parts == 1


@pytest.mark.parametrize("rows, by_columns", [(16, False), (16, True), (64, False), (128, False)])
@pytest.mark.parametrize("arch", [80, 90, 100])
def test_no_tile_spills(arch, rows, by_columns):
    a, b = torch.empty(rows, 8192, dtype=BF16, device=DEVICE), torch.empty(8192, 64, dtype=BF16, device=DEVICE)
    b = b.T.contiguous().T if by_columns else b
    kernel, reduction = compiled(matmul_split_k, a, b, parts=8, arch=arch)
    assert kernel.matrix_instruction and not kernel.spills and not reduction.spills
    assert kernel.shared <= SHARED.get(arch, SHARED[90])


def test_empty_and_bad_arguments():
    assert matmul_split_k(randn(0, 3), randn(3, 4)).shape == (0, 4)
    assert (matmul_split_k(randn(2, 0), randn(0, 4)) == 0).all()
    a, b = randn(2, 3), randn(3, 2)
    for arguments, options, name in (
        ((a.double(), b), {}, "a"), ((a[0], b), {}, "a"), ((a, b.half()), {}, "b"), ((a, a), {}, "b"),
        ((a, b), {"reduction": "sum"}, "reduction"), ((a, b), {"parts": 0}, "parts"), ((a, b), {"parts": 1.5}, "parts"),
        ((a, b), {"precision": "fp8"}, "precision"), ((randn(2, 3).requires_grad_(), b), {}, "a"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=f"^{name}: "):
            matmul_split_k(*arguments, **options)


def test_fp32_is_exact_unless_tf32_is_asked_for():
    check(randn(32, 700, dtype=FP32), randn(700, 32, dtype=FP32, seed=1), parts=3)
    assert [rows for rows, _ in TILES] == [64, None]
