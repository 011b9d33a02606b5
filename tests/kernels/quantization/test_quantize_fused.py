"""RMSNorm and SwiGLU that leave as codes: against the operator in fp64, quantized by the reference."""

import pytest
import torch

from instruments.compiled import compiled
from instruments.meter import meter
from kernels.elementwise.swiglu import swiglu_reference
from kernels.norms.rmsnorm import rmsnorm_reference
from kernels.quantization.fused import (
    NORM_RESIDENT_COLS,
    rmsnorm_quantize,
    rmsnorm_quantize_traffic,
    swiglu_quantize,
    swiglu_quantize_traffic,
)
from kernels.quantization.schemes import SCHEMES, Quantized, dequantize_reference, quantize_reference, scale_values
from kernels.shared.rows import RESIDENT_COLS
from tests.kernels.tools import BATCHED, BF16, DEVICE, FP16, FP32, LAYOUTS, SPILLS, assert_counts, randn

NAMES = [name for name in SCHEMES if name != "fp8_128x128"]
OF_TENSOR = ("fp8_tensor", "nvfp4")
FUNCTIONS = {
    "rmsnorm": (rmsnorm_quantize, rmsnorm_reference, rmsnorm_quantize_traffic),
    "swiglu": (swiglu_quantize, swiglu_reference, swiglu_quantize_traffic),
}
both = pytest.mark.parametrize("function", FUNCTIONS)


def inputs(function: str, *shape, dtype=BF16) -> tuple:
    """Rows of different size, with an outlier; and a weight, or another such tensor."""
    x = (randn(*shape) * torch.logspace(-1, 1, shape[-1], device=DEVICE)).to(dtype)
    x[..., shape[-1] // 3] *= 20
    return x, randn(*shape[-1:] if function == "rmsnorm" else shape, dtype=dtype, seed=1)


def given(name: str, scale: float = 0.5) -> dict:
    return {"tensor_scale": torch.tensor(scale, device=DEVICE)} if name in OF_TENSOR else {}


def check(function: str, args: tuple, name: str, **more) -> Quantized:
    """The scales are the reference's but for fp32's last bits, and what these decide; and each value is within half a
    step of its format of what the operator gives in fp64."""
    run, reference, _ = FUNCTIONS[function]
    scheme = SCHEMES[name]
    y = reference(*(x.double() for x in args))
    q = run(*args, scheme, **given(name), **more)
    assert q.shape == args[0].shape and q.scheme == scheme
    rows = y.reshape(-1, y.shape[-1])
    if name in OF_TENSOR:
        assert (q.scales if name == "fp8_tensor" else q.tensor_scale) == 0.5
    else:
        least, most = (quantize_reference((y * size).float(), scheme).scales for size in (1 - 1e-5, 1 + 1e-5))
        least, mine, most = (scale_values(scales, None, scheme) for scales in (least, q.scales, most))
        assert ((least <= mine) & (mine <= most)).all()
    step = {"e4m3": 2.0**-3, "e2m1": 2.0**-1}.get(scheme.format, 0) / 2  # half a step, relative to a normal value
    scales = scale_values(q.scales, q.tensor_scale, scheme).double()
    if name == "fp8_tensor":
        scales = torch.full_like(rows[:1, :1], 0.5)
    cols = scheme.block[1] or rows.shape[1]
    scales = scales.expand(len(rows), -1).repeat_interleave(cols, 1)[:, : rows.shape[1]]
    smallest = {"e4m3": 2.0**-9, "e2m1": 0.5}.get(scheme.format, 1.0) / 2  # half the step of subnormal values
    error = (dequantize_reference(q).double().reshape(rows.shape) - rows).abs()
    allowed = torch.maximum(rows.abs() * step, smallest * scales) * (1 + 1e-4)
    saturated = rows.abs() > scheme.largest * scales * (1 - 1e-4)
    allowed = torch.where(saturated, rows.abs() - scheme.largest * scales + 1e-3 * rows.abs(), allowed)
    assert (error <= allowed + 1e-5 * scales).all()
    return q


@both
@pytest.mark.parametrize("name", NAMES)
def test_results(function, name):
    for shape, dtype in (((5, 512), BF16), ((3, 130), FP16), ((2, 2, 62), FP32), ((1, 4100), BF16)):
        check(function, inputs(function, *shape, dtype=dtype), name)


@both
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(function, layout):
    x, more = inputs(function, 4, 200)
    x = LAYOUTS[layout](x)
    before = x.clone()
    for name in ("fp8_row", "mxfp4"):
        check(function, (x, more), name)
        assert meter(FUNCTIONS[function][0], x, more, name).clean
    assert torch.equal(x, before)


@pytest.mark.parametrize("layout", BATCHED)
def test_batches_and_the_two_halves_of_a_projection(layout):
    x = BATCHED[layout](randn(3, 4, 300, dtype=BF16))
    check("rmsnorm", (x, randn(x.shape[-1], dtype=BF16)), "fp8_row")
    gate, up = randn(6, 512, dtype=BF16).chunk(2, dim=1)
    check("swiglu", (gate, up), "fp8_1x128")
    check("swiglu", (gate, up), "fp8_row")


@both
@pytest.mark.parametrize("name", NAMES)
def test_traffic_is_what_the_meter_counts(function, name):
    run, _, traffic = FUNCTIONS[function]
    for shape in ((6, 512), (5, 130)):
        report = meter(run, *inputs(function, *shape), name, **given(name))
        assert_counts(report, traffic(*shape, BF16, name, None, cached=False))


@both
def test_the_result_never_leaves_in_16_bits(function):
    traffic = FUNCTIONS[function][2]
    values, reads = 64 * 4096, {"rmsnorm": 2, "swiglu": 4}[function]
    fused, unfused = (traffic(64, 4096, BF16, "fp8_row", path).bytes for path in ("minimum", "unfused"))
    weight = 4096 * 2 if function == "rmsnorm" else 0
    assert fused == (reads + 1) * values + 64 * 4 + weight and unfused == fused + 4 * values


@pytest.mark.parametrize("name", NAMES)
def test_both_paths_of_rmsnorm_give_the_same_but_for_the_sums_order(name):
    x, weight = inputs("rmsnorm", 2, 5002)
    kept, streamed = (rmsnorm_quantize(x, weight, name, path=path, **given(name)) for path in ("resident", "streaming"))
    a, b = dequantize_reference(kept), dequantize_reference(streamed)
    assert ((a - b).norm() / a.norm()) < 5e-3
    assert torch.equal(b, dequantize_reference(check("rmsnorm", (x, weight), name, path="streaming")))
    for path in ("resident", "streaming"):
        report = meter(rmsnorm_quantize, x, weight, name, path=path, **given(name))
        assert_counts(report, rmsnorm_quantize_traffic(2, 5002, BF16, name, path, cached=False))


def test_a_wide_row():
    check("rmsnorm", inputs("rmsnorm", 1, 2 * NORM_RESIDENT_COLS + 2), "fp8_row")


@both
@pytest.mark.parametrize("name", NAMES)
def test_a_nan_spoils_its_own_row_alone_and_zeros_are_zeros(function, name):
    args = inputs(function, 3, 256)
    args[0][1, 7] = float("nan")
    args[0][2] = 0
    y = dequantize_reference(FUNCTIONS[function][0](*args, name, **given(name)))
    assert y[0].isfinite().all() and (y[2] == 0).all()
    if name not in OF_TENSOR:  # a given scale is a number
        assert y[1, 7].isnan()


@both
@pytest.mark.parametrize("shape", [(0,), (0, 8), (3, 0)])
def test_empty_in_empty_out(function, shape):
    x = torch.empty(shape, device=DEVICE)
    q = FUNCTIONS[function][0](x, torch.empty(shape[-1:] if function == "rmsnorm" else shape, device=DEVICE), "mxfp8")
    assert q.shape == shape and dequantize_reference(q).shape == shape


@pytest.mark.once
@both
@pytest.mark.parametrize(
    "name, arch", [("fp8_row", 80), ("fp8_row", 90), ("fp8_tensor", 90), ("nvfp4", 90), ("mxfp4", 100)]
)
def test_nothing_spills(function, name, arch, monkeypatch):
    monkeypatch.setattr("kernels.quantization.codes.has_fp8", lambda device: arch >= 89)
    for cols in (1002, NORM_RESIDENT_COLS, RESIDENT_COLS):
        x = torch.empty(4, cols, dtype=BF16, device=DEVICE)
        more = x[0] if function == "rmsnorm" else x
        for binary in compiled(FUNCTIONS[function][0], x, more, name, arch=arch, **given(name)):
            assert binary.spills <= SPILLS, (binary, cols)


X, W = torch.ones(2, 8, device=DEVICE), torch.ones(8, device=DEVICE)
WIDE = torch.ones(1, RESIDENT_COLS + 2, device=DEVICE)


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: rmsnorm_quantize(X, W[:7], "fp8_row"), r"weight: got shape \(7,\)"),
        (lambda: rmsnorm_quantize(X, W, "fp8_128x128"), "scheme: got fp8_128x128, expected one whose scales"),
        (lambda: rmsnorm_quantize(X, W, "fp8"), "scheme: got 'fp8'"),
        (lambda: rmsnorm_quantize(X, W, "nvfp4"), "tensor_scale: got None, expected the tensor's scale, which nvfp4"),
        (lambda: rmsnorm_quantize(WIDE, WIDE[0], "mxfp8", path="resident"), "path: got 'resident' for rows of 32,770"),
        (lambda: rmsnorm_quantize(X, W, "mxfp8", -1), "eps: got -1"),
        (lambda: rmsnorm_quantize(X, W.clone().requires_grad_(), "mxfp8"), "weight: got a tensor that requires"),
        (lambda: swiglu_quantize(X, X[:1], "fp8_row"), r"up: got shape \(1, 8\), expected \(2, 8\)"),
        (lambda: swiglu_quantize(WIDE, WIDE, "fp8_row"), "gate: got 32,770 columns for fp8_row"),
        (lambda: swiglu_quantize(X, X, "fp8_tensor"), "tensor_scale: got None"),
        (lambda: swiglu_quantize(X[:, :3], X[:, :3], "mxfp4"), "gate: got 3 columns, expected an even number"),
        (
            lambda: swiglu_quantize_traffic(2, 8, BF16, "fp8_row", "naive"),
            "path: got 'naive', expected minimum, unfused",
        ),
    ],
)
def test_bad_arguments_name_themselves(call, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        call()
