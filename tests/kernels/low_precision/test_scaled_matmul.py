"""FP8 products with a scale per tensor or row: the plain kernel, and what is refused."""

import dataclasses

import pytest
import torch

from instruments.compiled import compiled
from instruments.meter import meter
from kernels.low_precision import scaled as kernels
from kernels.low_precision.scaled import SMALL_TILE, TILE, scaled_matmul, scaled_matmul_reference, scaled_matmul_traffic
from kernels.quantization.schemes import SCHEMES, empty, quantize_reference
from tests.kernels.tools import BF16, DEVICE, FP16, FP32, assert_close, assert_counts, randn, worst_row

E4M3 = torch.float8_e4m3fn
RAGGED = [(1, 1, 1), (3, 5, 7), (65, 130, 200), (130, 257, 300)]  # M, N, K


def quantized(rows, cols, scheme, seed=0, scale=1.0):
    return quantize_reference(randn(rows, cols, seed=seed, scale=scale), scheme)


def operands(M, N, K, x_scheme="fp8_row", weight_scheme="fp8_row"):
    return quantized(M, K, x_scheme, seed=1), quantized(N, K, weight_scheme, seed=2, scale=0.02)


def plan(arch):
    """What `plan_of` gives for a GPU of an architecture."""
    return TILE if arch in (90, 100) else SMALL_TILE, arch < 89


def check(x, weight, **options):
    assert_close(scaled_matmul(x, weight, **options), scaled_matmul_reference(x, weight))


@pytest.mark.parametrize("schemes", [("fp8_tensor", "fp8_tensor"), ("fp8_row", "fp8_row"), ("fp8_row", "fp8_tensor")])
@pytest.mark.parametrize("shape", RAGGED)
def test_ragged_sizes(shape, schemes):
    for path in (None, "plain"):
        check(*operands(*shape, *schemes), path=path)


@pytest.mark.parametrize("out_dtype", [BF16, FP16, FP32])
def test_rounded_once_to_the_type_asked_for(out_dtype):
    x, weight = operands(17, 33, 260)
    y = scaled_matmul(x, weight, out_dtype=out_dtype, path="plain")
    assert y.dtype == out_dtype
    if out_dtype != FP32:
        assert_close(y, scaled_matmul_reference(x, weight))
    else:  # on Hopper the matrix unit loses bits of every 128 products
        assert worst_row(y, scaled_matmul_reference(x, weight)) < 5e-4


def test_scales_of_rows_stay_with_their_rows():
    """Rows of very different sizes, on both sides: a scale along the wrong axis, or applied twice, is far off."""
    x, weight = randn(40, 96, seed=1), randn(50, 96, seed=2)
    x *= torch.logspace(-6, 6, 40, device=DEVICE)[:, None]
    weight *= torch.logspace(5, -5, 50, device=DEVICE)[:, None]
    x, weight = quantize_reference(x, "fp8_row"), quantize_reference(weight, "fp8_row")
    y, reference = scaled_matmul(x, weight), scaled_matmul_reference(x, weight)
    assert ((y.double() - reference).abs() <= reference.abs() * 2**-8 + 1e-3 * reference.abs().mean(1, True)).all()


def test_a_nan_stays_in_its_row():
    x, weight = operands(130, 20, 140)
    x.codes.view(torch.uint8)[7, 100] = 0x7F
    y = scaled_matmul(x, weight)
    assert y[7].isnan().all() and not torch.cat([y[:7], y[8:]]).isnan().any()


def test_leading_dimensions_are_kept():
    x, weight = quantize_reference(randn(2, 3, 40), "fp8_row"), quantized(16, 40, "fp8_tensor")
    y = scaled_matmul(x, weight)
    assert y.shape == (2, 3, 16)
    assert_close(y, scaled_matmul_reference(x, weight))


def test_empty():
    for rows, cols in ((0, 0), (3, 0), (0, 8)):
        y = scaled_matmul(quantized(rows, cols, "fp8_row"), quantized(4, cols, "fp8_tensor"))
        assert y.shape == (rows, 4) and not y.any()


@pytest.mark.parametrize("schemes", [("fp8_tensor", "fp8_row"), ("fp8_1x128", "fp8_128x128")])
@pytest.mark.parametrize("M, N, K", [(33, 40, 64), (130, 140, 200)])
def test_traffic_is_what_the_meter_counts(M, N, K, schemes):
    from kernels.low_precision.block_scaled import block_scaled_matmul

    function = block_scaled_matmul if "128" in schemes[0] else scaled_matmul
    report = meter(function, *operands(M, N, K, *schemes), path="plain")
    assert_counts(report, scaled_matmul_traffic(M, N, K, *schemes, path=None))
    once = scaled_matmul_traffic(M, N, K, *schemes)
    assert (report.unique.read, report.unique.written) == (once.read, once.written)


@pytest.mark.parametrize(
    "arch, instruction",
    [
        pytest.param(80, "mma.sync", marks=pytest.mark.once),
        pytest.param(89, "mma.sync (fp8)", marks=pytest.mark.once),
        (90, "wgmma (fp8)"),
        pytest.param(100, "tcgen05", marks=pytest.mark.once),
    ],
)
def test_the_matrix_instruction_of_each_generation(arch, instruction, monkeypatch):
    monkeypatch.setattr(kernels, "plan_of", lambda device: plan(arch))
    x, weight = (empty((256, 512), SCHEMES["fp8_row"], DEVICE) for _ in range(2))
    for accumulate in ("fast", "promoted"):
        (kernel,) = compiled(scaled_matmul, x, weight, accumulate=accumulate, path="plain", arch=arch)
        assert kernel.matrix_instruction == instruction and kernel.spills == 0
        if arch == 90:
            assert "wgmma.mma_async.sync.aligned.m64n128k32.f32.e4m3.e4m3" in kernel.ptx
            adds = kernel.opcodes.get("FADD", 0)
            assert adds >= 64 if accumulate == "promoted" else adds == 0  # 128 x 128 sums of 256 threads


@pytest.mark.parametrize(
    "capability, arch", [((7, 5), 75), ((8, 0), 80), ((8, 9), 89), ((9, 0), 90), ((10, 0), 100), ((12, 0), 120)]
)
def test_the_gpu_is_asked_what_it_has(capability, arch, monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    assert kernels.plan_of.__wrapped__(torch.device("cuda", 0)) == plan(arch)
    assert kernels.plan_of(torch.device("cpu")) == (TILE, False)


def test_without_fp8_codes_become_fp16_and_results_stay(monkeypatch):
    x, weight = operands(70, 40, 200)
    x.codes.view(torch.uint8)[0, :254] = torch.arange(254, dtype=torch.uint8, device=DEVICE)[:200] % 127
    want = scaled_matmul(x, weight, path="plain", out_dtype=FP32)
    monkeypatch.setattr(kernels, "plan_of", lambda device: plan(80))
    got = scaled_matmul(x, weight, path="plain", out_dtype=FP32)
    assert worst_row(got, scaled_matmul_reference(x, weight)) < 1e-6 and worst_row(got, want.double()) < 5e-4


def changed(q, **fields):
    return dataclasses.replace(q, **fields)


@pytest.mark.parametrize(
    "make, name",
    [
        (lambda x, w: ((x.codes, w), {}), "x: got Tensor"),
        (lambda x, w: ((quantized(3, 8, "int8_row"), w), {}), "x: got scheme 'int8_row'"),
        (lambda x, w: ((x, quantized(4, 8, "fp8_128x128")), {}), "weight: got scheme 'fp8_128x128'"),
        (lambda x, w: ((x, quantized(4, 9, "fp8_row")), {}), r"weight: got shape \(4, 9\), expected \(N, 8\)"),
        (lambda x, w: ((changed(x, codes=x.codes.view(torch.uint8)), w), {}), "x.codes: got dtype uint8"),
        (lambda x, w: ((changed(x, scales=x.scales[:1]), w), {}), r"x.scales: got shape \(1, 1\)"),
        (lambda x, w: ((changed(x, scales=x.scales.double()), w), {}), "x.scales: got dtype float64"),
        (lambda x, w: ((x, changed(w, codes=w.codes.t().contiguous().t())), {}), "weight.codes: got strides"),
        (lambda x, w: ((x, w), {"out_dtype": torch.float64}), "out_dtype: got torch.float64"),
        (lambda x, w: ((x, w), {"accumulate": "exact"}), "accumulate: got 'exact'"),
        (lambda x, w: ((x, w), {"path": "tensor cores"}), "path: got 'tensor cores'"),
    ],
)
def test_bad_arguments_are_named(make, name):
    args, options = make(*operands(3, 4, 8))
    with pytest.raises(ValueError, match=f"^{name}"):
        scaled_matmul(*args, **options)


def test_traffic_refuses_another_path():
    with pytest.raises(ValueError, match="^path: got 'hopper'"):
        scaled_matmul_traffic(1, 1, 1, path="hopper")
