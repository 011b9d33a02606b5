import dataclasses

import pytest
import torch

from instruments.compiled import compiled
from instruments.meter import meter
from kernels.low_precision import weight_only as module
from kernels.low_precision.weight_only import WEIGHT_SCHEMES, plan, weight_only_matmul, weight_only_matmul_traffic
from kernels.quantization.schemes import SCHEMES, Quantized, dequantize_reference, quantize_reference
from kernels.shared.device import INTERPRETED, Device
from tests.kernels.tools import BF16, DEVICE, FP16, SPILLS, assert_close, assert_counts, randn

A100, H200 = Device(108, 167_936), Device(132, 233_472)
PER_TYPE = [(scheme, dtype) for scheme in WEIGHT_SCHEMES for dtype in (BF16, FP16)]
#: Of each way to unpack one scheme in bf16, the rest with one version of Triton.
FIRST = (("int4_g128", BF16), ("mxfp4", BF16))
SOME = [*FIRST, *(pytest.param(*pair, marks=pytest.mark.once) for pair in PER_TYPE if pair not in FIRST)]


def quantized(N, K, scheme, seed=1) -> Quantized:
    return quantize_reference(randn(N, K, seed=seed), scheme)


def reference(x, weight):
    return x.double() @ dequantize_reference(weight).double().T


def identity(K, dtype):
    """x that picks the columns of a weight, so that y^T is the weight."""
    return torch.eye(K, dtype=dtype, device=DEVICE)


@pytest.fixture
def many_programs(monkeypatch):
    """As many as on an H200, so that K is shared out."""
    monkeypatch.setattr(module, "device_of", lambda device: H200)


@pytest.mark.parametrize("scheme, dtype", SOME)
@pytest.mark.parametrize("M, N, K, path", [(1, 70, 264, None), (17, 33, 200, None), (5, 130, 136, "prefill")])
def test_against_fp64(M, N, K, path, scheme, dtype):
    """N and K end inside tiles and groups."""
    x, weight = randn(M, K, dtype=dtype), quantized(N, K, scheme)
    assert_close(weight_only_matmul(x, weight, path=path), reference(x, weight))


@pytest.mark.parametrize("scheme", WEIGHT_SCHEMES)
def test_apart_the_weight_is_rounded_and_multiplied(scheme):
    """As for many rows of x; with a K that ends inside a group, and rows of codes that are no whole words."""
    x, weight = randn(40, 130, dtype=BF16), quantized(33, 130, scheme)
    out = weight_only_matmul(x, weight, path="apart")
    assert_close(out, x.double() @ dequantize_reference(weight).to(BF16).double().T)
    assert plan(4096, 33, 130, SCHEMES[scheme], None, H200).path == "apart"
    assert weight_only_matmul_traffic(40, 33, 130, scheme, path="apart") == weight_only_matmul_traffic(
        40, 33, 130, scheme, path="naive"
    )


@pytest.mark.parametrize("M", [1, 2, 7, 8, 9, 15, 16, 17, 65])
def test_every_number_of_rows(M):
    x, weight = randn(M, 128, dtype=BF16), quantized(20, 128, "int4_g128")
    assert_close(weight_only_matmul(x, weight), reference(x, weight))


@pytest.mark.parametrize("K", [1, 2, 3, 5, 6, 31, 130])
def test_rows_of_codes_that_are_no_whole_words(K):
    x = randn(3, K, dtype=BF16)
    for scheme in WEIGHT_SCHEMES if K % 2 == 0 else ("int8_row", "int8_g128"):
        weight = quantized(9, K, scheme)
        assert_close(weight_only_matmul(x, weight), reference(x, weight))


@pytest.mark.parametrize("dtype", [BF16, FP16])
@pytest.mark.parametrize("path", ["decode", "prefill"])
@pytest.mark.parametrize("scheme", WEIGHT_SCHEMES)
def test_every_code_exactly(scheme, path, dtype):
    """Each of 256 bytes in each place of a word, scales of one: what comes out is the code's value, to the bit."""
    K = 256 if SCHEMES[scheme].bits == 8 else 512
    codes = torch.stack([torch.arange(256).roll(i) for i in range(4)]).to(torch.uint8).to(DEVICE)
    weight = quantized(4, K, scheme)
    one = {"fp32": 1.0, "e8m0": 127, "e4m3": 1.0}[weight.scheme.scale_format]
    weight = dataclasses.replace(
        weight,
        codes=codes.view(weight.codes.dtype),
        scales=torch.full_like(weight.scales.float(), one).to(weight.scales.dtype),
        tensor_scale=None if weight.tensor_scale is None else torch.ones_like(weight.tensor_scale),
    )
    for first in (0, K - 16):
        rows = identity(K, dtype)[first : first + 16]
        out = weight_only_matmul(rows, weight, path=path)
        assert out.equal(dequantize_reference(weight)[:, first : first + 16].T.to(dtype))


@pytest.mark.parametrize("scheme", WEIGHT_SCHEMES)
def test_a_scale_is_its_groups_own(scheme):
    """Powers of two, another for each group and row: a neighbour's scale would be a factor of two or more."""
    weight = quantized(6, 384, scheme)
    power = torch.arange(weight.scales.numel(), device=DEVICE).view(weight.scales.shape) * 5 % 12
    scales = power + 120 if weight.scheme.scale_format == "e8m0" else torch.exp2(power - 6.0)
    weight = dataclasses.replace(weight, scales=scales.to(weight.scales.dtype))
    for first in (0, 120, 250, 368):
        for path in ("decode", "prefill"):
            out = weight_only_matmul(identity(384, BF16)[first : first + 16], weight, path=path)
            assert_close(out, dequantize_reference(weight)[:, first : first + 16].T.double())


@pytest.mark.parametrize("dtype, codes", [(BF16, [[20, 60], [100, 144]]), (FP16, [[112, 120], [127, 136]])])
def test_the_range_of_scales_of_mx(dtype, codes):
    """From 2^-107 to 2^17 in bf16, from 2^-15 to 2^9 in fp16; what is larger becomes infinite."""
    weight = quantized(2, 64, "mxfp4")
    extreme = dataclasses.replace(weight, scales=torch.tensor(codes, dtype=torch.uint8, device=DEVICE))
    x = identity(64, dtype)[24:40]
    for path in ("decode", "prefill"):
        assert weight_only_matmul(x, extreme, path=path).equal(dequantize_reference(extreme)[:, 24:40].T.to(dtype))
        beyond = dataclasses.replace(weight, scales=torch.full_like(weight.scales, codes[1][1] + 1))
        assert not weight_only_matmul(x, beyond, path=path).isfinite().all()


@pytest.mark.parametrize("scheme", WEIGHT_SCHEMES)
def test_a_nan_scale_stays_in_its_row(scheme):
    weight = quantized(5, 256, scheme)
    scales = weight.scales.clone()
    scales[2, -1] = 255 if weight.scheme.scale_format == "e8m0" else float("nan")
    weight = dataclasses.replace(weight, scales=scales)
    for path in ("decode", "prefill"):
        out = weight_only_matmul(randn(2, 256, dtype=BF16), weight, path=path)
        broken = ~out.isfinite()
        assert broken.all(dim=0).tolist() == broken.any(dim=0).tolist() == [False, False, True, False, False]


@pytest.mark.parametrize("scheme", WEIGHT_SCHEMES)
def test_shared_out_over_k(scheme, many_programs):
    """The last part is shorter, and the sum of parts is the same each time."""
    x, weight = randn(2, 1100, dtype=BF16), quantized(70, 1100, scheme)
    assert plan(2, 70, 1100, weight.scheme, None, H200).splits > 2
    out = weight_only_matmul(x, weight)
    assert_close(out, reference(x, weight))
    assert out.equal(weight_only_matmul(x, weight))


def test_strides():
    weight = quantized(40, 144, "int4_g128")
    wide = randn(9, 300, dtype=BF16)
    for x in (wide[::2, 5:149], wide[:, 1:289:2], wide.T.contiguous().T[:, :144], wide[:1, :144].expand(4, -1)):
        for path in ("decode", "prefill"):
            assert_close(weight_only_matmul(x, weight, path=path), reference(x, weight))


@pytest.mark.parametrize("scheme", ["int8_g128", "mxfp4"])
def test_codes_and_scales_of_any_strides(scheme):
    x, weight = randn(3, 144, dtype=BF16), quantized(24, 144, scheme)
    expected = weight_only_matmul(x, weight)
    size = weight.codes.shape[1]
    for wider, first in ((size + 4, 4), (size + 3, 1), (2 * size, 0)):
        codes = torch.empty(24, wider, dtype=weight.codes.dtype, device=DEVICE)[:, first : first + size]
        codes.copy_(weight.codes)
        assert weight_only_matmul(x, dataclasses.replace(weight, codes=codes)).equal(expected)
    transposed = dataclasses.replace(weight, codes=weight.codes.T.contiguous().T, scales=weight.scales.T.contiguous().T)
    assert weight_only_matmul(x, transposed).equal(expected)


@pytest.mark.parametrize("scheme", WEIGHT_SCHEMES)
@pytest.mark.parametrize("M, path", [(3, "decode"), (20, None), (65, None)])
def test_traffic_is_what_the_meter_counts(M, path, scheme):
    N, K = 130, 256
    x, weight = randn(M, K, dtype=FP16), quantized(N, K, scheme)
    report = meter(weight_only_matmul, x, weight, path=path)
    assert_counts(report, weight_only_matmul_traffic(M, N, K, scheme, FP16, path=path, gpu=INTERPRETED))
    once = weight_only_matmul_traffic(M, N, K, scheme, FP16)
    assert {name: report.unique.read[name] for name in once.read} == once.read
    assert report.unique.written["y"] == once.written["y"]


def test_traffic_of_shares(many_programs):
    x, weight = randn(1, 1100, dtype=BF16), quantized(70, 1100, "int8_row")
    assert_counts(
        meter(weight_only_matmul, x, weight), weight_only_matmul_traffic(1, 70, 1100, "int8_row", path=None, gpu=H200)
    )


def test_traffic_of_a_dequantised_weight():
    naive = weight_only_matmul_traffic(1, 64, 128, "int4_g128", path="naive")
    once = weight_only_matmul_traffic(1, 64, 128, "int4_g128")
    assert naive.bytes == once.bytes + 2 * 2 * 64 * 128 and naive.launches == 2


@pytest.mark.parametrize("scheme", WEIGHT_SCHEMES)
def test_a_plan_covers_k_once(scheme):
    for N in (1, 64, 4096, 28_672):
        for K in (1, 130, 4096, 8192, 14_336):
            for gpu in (INTERPRETED, H200):
                chosen = plan(1, N, K, SCHEMES[scheme], None, gpu)
                words = -(-K // module.per_word(SCHEMES[scheme]))
                assert (chosen.splits - 1) * chosen.split_words < words <= chosen.splits * chosen.split_words


def test_few_rows_of_int4_get_the_smaller_step():
    """Six programs for each multiprocessor of an H200 are 792, of 32 rows each; an A100 has fewer to fill."""
    for N, gpu, slices in ((4096, H200, 4), (25_312, H200, 4), (25_344, H200, 8), (20_736, A100, 8)):
        assert plan(1, N, 14_336, SCHEMES["int4_g128"], None, gpu).tile["SLICES"] == slices


def empty_weight(N, K, scheme) -> Quantized:
    scheme = SCHEMES[scheme]
    stored = ((scheme.codes_shape(N, K), scheme.code_dtype), (scheme.scales_shape(N, K), scheme.scale_dtype))
    codes, scales = (torch.empty(shape, dtype=dtype, device=DEVICE) for shape, dtype in stored)
    return Quantized(codes, scales, torch.ones((), device=DEVICE) if scheme.has_tensor_scale else None, scheme, (N, K))


@pytest.mark.parametrize(
    "scheme, dtype, arch",
    [
        ("int4_g128", BF16, 90),
        ("mxfp4", BF16, 90),
        *(
            pytest.param(scheme, dtype, arch, marks=pytest.mark.once)
            for scheme, dtype in (("int8_row", BF16), ("int8_g128", FP16), ("int4_g128", FP16), ("nvfp4", BF16))
            for arch in (80, 90, 100)
        ),
    ],
)
def test_compiled_without_spills(scheme, dtype, arch, monkeypatch):
    """On Hopper, prefill's products are wgmma's, their left operand from registers."""
    monkeypatch.setattr(module, "device_of", lambda device: A100 if arch == 80 else H200)
    weight = empty_weight(4096, 4096, scheme)
    for M, path in ((1, "decode"), (8, "decode"), (16, "decode"), (33, None), (200, None), (2048, "prefill")):
        x = torch.empty(M, 4096, dtype=dtype, device=DEVICE)
        kernel = next(k for k in compiled(weight_only_matmul, x, weight, path=path, arch=arch) if "weight" in k.name)
        expected = "mma.sync" if arch == 80 or M <= 16 else {90: "wgmma", 100: "tcgen05"}[arch]
        assert kernel.spills <= SPILLS and kernel.matrix_instruction == expected
        assert 128 in kernel.loads, "the codes of a row come 16 bytes a thread"


def test_empty():
    weight = quantized(4, 128, "int4_g128")
    assert weight_only_matmul(randn(0, 128, dtype=BF16), weight).shape == (0, 4)
    assert weight_only_matmul(randn(2, 128, dtype=BF16), quantized(0, 128, "mxfp4")).shape == (2, 0)
    assert (weight_only_matmul(randn(2, 0, dtype=BF16), quantized(3, 0, "int8_row")) == 0).all()


X, WEIGHT = randn(2, 128, dtype=BF16), quantized(3, 128, "int4_g128")


@pytest.mark.parametrize(
    "arguments, message",
    [
        ((X.float(), WEIGHT), "x: got dtype float32"),
        ((X[0], WEIGHT), r"x: got shape \(128,\)"),
        ((X[:, :64], WEIGHT), r"x: got shape \(2, 64\) and a weight of \(3, 128\)"),
        ((X, WEIGHT.codes), "weight: got Tensor"),
        ((X, quantized(3, 128, "fp8_row")), "weight: got scheme fp8_row, expected one of int8_row"),
        ((X, dataclasses.replace(WEIGHT, codes=WEIGHT.codes[:, :3])), "weight.codes: got shape"),
        ((X, dataclasses.replace(WEIGHT, scales=WEIGHT.scales.half())), "weight.scales: got dtype float16"),
        ((X.clone().requires_grad_(), WEIGHT), "x: got a tensor that requires a gradient"),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        weight_only_matmul(*arguments)


def test_bad_paths_are_named():
    with pytest.raises(ValueError, match="^path: got 'fast'"):
        weight_only_matmul(X, WEIGHT, path="fast")
    with pytest.raises(ValueError, match=r"^path: got 'decode' for 20 rows of x.*decode \(to 16 rows\)"):
        weight_only_matmul(X[:1].expand(20, -1), WEIGHT, path="decode")
