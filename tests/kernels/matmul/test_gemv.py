import pytest
import torch

from instruments.compiled import compiled
from instruments.meter import meter
from kernels.matmul.gemv import gemv, gemv_plan, gemv_traffic
from kernels.shared.device import INTERPRETED, Device
from tests.kernels.tools import BF16, BF16_FIRST, DEVICE, FP16, LAYOUTS, assert_close, randn

H200 = Device(132, 233_472)


def check(x, b):
    assert_close(gemv(x, b), x.double() @ b.double())


@pytest.mark.parametrize("by_columns", [False, True])
@pytest.mark.parametrize("dtype", BF16_FIRST)
@pytest.mark.parametrize("N, K", [(1, 1), (257, 15), (9, 513), (70, 1100), (300, 3000)])
def test_ragged_sizes_in_both_orders(N, K, dtype, by_columns):
    b = randn(N, K, dtype=dtype).T if by_columns else randn(K, N, dtype=dtype)
    check(randn(K, dtype=dtype, seed=1), b)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(layout):
    b = LAYOUTS[layout](randn(90, 70, dtype=FP16))
    check(randn(2 * len(b), dtype=FP16, seed=1)[::2], b)


def test_accumulates_in_fp32_over_a_long_k():
    check(torch.full((20_000,), 0.1, dtype=FP16, device=DEVICE), torch.ones(20_000, 3, dtype=FP16, device=DEVICE))


def test_one_nan_stays_in_its_column():
    b = randn(1500, 300, dtype=FP16)
    b[700, 5] = float("nan")
    y = gemv(randn(1500, dtype=FP16, seed=1), b)
    assert y[5].isnan() and y.isnan().sum() == 1


@pytest.mark.parametrize("N, K, by_columns", [(256, 64, False), (512, 1024, False), (8, 1024, True), (16, 512, True)])
def test_traffic_is_what_the_meter_counts(N, K, by_columns):
    b = randn(N, K, dtype=FP16).T if by_columns else randn(K, N, dtype=FP16)
    report = meter(gemv, randn(K, dtype=FP16), b)
    model = gemv_traffic(N, K, FP16, gemv_plan(N, K, by_columns, INTERPRETED))
    assert report.clean and report.traffic.launches == model.launches
    assert sum(report.traffic.read.values()) == sum(model.read.values())
    assert sum(report.traffic.written.values()) == sum(model.written.values())


def test_plans_cover_k_once_and_fill_the_gpu():
    for N, K in ((28672, 8192), (8192, 28672), (64, 65536), (1, 100_000), (7, 3)):
        for by_columns in (False, True):
            plan = gemv_plan(N, K, by_columns, H200)
            assert (plan.parts - 1) * plan.part_k < K <= plan.parts * plan.part_k
            assert plan.columns * plan.parts >= 132 or K // plan.parts < 1024


@pytest.mark.parametrize("by_columns", [False, True])
@pytest.mark.parametrize("arch", [75, 80, 90, 100])
def test_loads_of_16_bytes_and_no_spills(arch, by_columns):
    x, b = (
        torch.empty(4096, dtype=FP16 if arch == 75 else BF16, device=DEVICE),
        torch.empty(4096, 4096, dtype=FP16 if arch == 75 else BF16, device=DEVICE),
    )
    kernel = compiled(gemv, x, b.T if by_columns else b, arch=arch)[0]
    wide = [code for code in kernel.opcodes if code.startswith(("LDG", "LDGSTS")) and "128" in code]
    assert wide and not kernel.spills and not kernel.matrix_instruction


def test_empty_and_bad_arguments():
    assert gemv(randn(3), randn(3, 0)).shape == (0,)
    assert (gemv(randn(0), randn(0, 4)) == 0).all()
    x, b = randn(3), randn(3, 2)
    for arguments, name in (
        ((x.double(), b), "x"), ((b, b), "x"), ((x, b.half()), "b"), ((x, randn(4, 2)), "b"), ((x, x), "b"),
        ((randn(3).requires_grad_(), b), "x"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=f"^{name}: "):
            gemv(*arguments)
