import pytest
import torch

from instruments.compiled import compiled
from instruments.meter import meter
from kernels.linear import (
    fold_norm_weight,
    interleave_gate_up,
    linear_bias_act,
    linear_ops,
    linear_reference,
    linear_residual_rmsnorm,
    linear_swiglu,
    linear_traffic,
    qkv_projection,
    rmsnorm_linear,
)
from kernels.linear.forward import ACTIVATIONS, FEW_ROWS, PATHS, PLAIN, linear_plan
from kernels.matmul import persistent
from kernels.norms.rmsnorm import rmsnorm_reference
from tests.kernels.tools import BF16, BF16_FIRST, DEVICE, FP16, FP32, assert_close, randn

SHAPES = [(1, 8, 1), (65, 72, 40), (130, 264, 72)]  # M, N, K; y's columns are a multiple of 8, as TMA needs


def operands(M, N, K, dtype):
    """x, weight of variance 1 / K, bias, residual."""
    tensors = (M, K), (N, K), (N,), (M, N)
    x, weight, bias, residual = (randn(*shape, dtype=FP32, seed=seed) for seed, shape in enumerate(tensors))
    return tuple(t.to(dtype) for t in (x, weight * K**-0.5, bias, residual))


def doubles(*tensors):
    return tuple(None if t is None else t.double() for t in tensors)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("activation", [None, *ACTIVATIONS])
@pytest.mark.parametrize("dtype", [BF16, FP16])
@pytest.mark.parametrize("shape", SHAPES)
def test_bias_activation_scale_and_residual(shape, dtype, activation, path):
    x, weight, bias, residual = operands(*shape, dtype)
    y = linear_bias_act(x, weight, bias, activation=activation, residual=residual, alpha=0.7, beta=-1.3, path=path)
    expected = linear_reference(*doubles(x, weight, bias), activation, residual.double(), 0.7, -1.3)
    parts = linear_reference(*doubles(x, weight, bias), activation, None, 0.7)
    assert_close(y, expected, floor=parts.abs() + 1.3 * residual.double().abs())


@pytest.mark.parametrize("path", PATHS)
def test_every_part_may_be_missing(path):
    x, weight, bias, residual = operands(33, 40, 24, FP16)
    assert_close(linear_bias_act(x, weight, path=path), linear_reference(*doubles(x, weight)))
    assert_close(linear_bias_act(x, weight, bias.float(), path=path), linear_reference(*doubles(x, weight, bias)))
    y = linear_bias_act(x, weight, residual=residual.T.contiguous().T, path=path)
    assert_close(y, linear_reference(*doubles(x, weight), residual=residual.double()))


def test_fp32_and_columns_that_tma_cannot_address_take_the_plain_kernel():
    x, weight, bias, _ = operands(33, 37, 70, FP32)
    assert_close(
        linear_bias_act(x, weight, bias, activation="silu"), linear_reference(*doubles(x, weight, bias), "silu")
    )
    with pytest.raises(ValueError, match="^path: got 'persistent' for 2-byte elements and 37 columns"):
        linear_bias_act(x.half(), weight.half(), path="persistent")


def test_the_activation_is_of_the_fp32_accumulator():
    """Rounded to bf16 before the bias, 257.0 would be 256 or 258, and the sum with -256 off by its own size."""
    x, weight = torch.ones(4, 257, dtype=BF16, device=DEVICE), torch.ones(8, 257, dtype=BF16, device=DEVICE)
    y = linear_bias_act(x, weight, torch.full((8,), -256.0, device=DEVICE), activation="relu")
    assert (y == 1).all()


def test_a_nan_stays_in_its_row():
    x, weight, bias, _ = operands(5, 16, 24, FP16)
    x[2, 3] = float("nan")
    for activation in (None, *ACTIVATIONS):
        y = linear_bias_act(x, weight, bias, activation=activation)
        assert y[2].isnan().all() and y.isnan().sum() == 16, activation


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("dtype", BF16_FIRST)
@pytest.mark.parametrize("M, N, K", [(1, 8, 1), (65, 40, 33), (130, 136, 72)])
def test_swiglu(M, N, K, dtype, path):
    if path == "persistent" and dtype == FP32:
        pytest.skip("16 bits alone")
    x, gate, up = randn(M, K, dtype=dtype), randn(N, K, dtype=dtype, seed=1), randn(N, K, dtype=dtype, seed=2)
    x = x * K**-0.5
    y = linear_swiglu(x, interleave_gate_up(gate, up), path=path)
    x, gate, up = doubles(x, gate, up)
    assert_close(y, torch.nn.functional.silu(x @ gate.T) * (x @ up.T))


@pytest.mark.parametrize("path", PATHS)
def test_queries_keys_and_values_are_three_views(path):
    x, weight = (
        randn(33, 40, dtype=BF16),
        randn(8 * 16, 40, dtype=BF16, seed=1),
    )  # 4 query heads, 2 of keys, head_dim 16
    q, k, v = qkv_projection(x, weight, heads=4, kv_heads=2, path=path)
    rows = weight.double().split((64, 32, 32))
    for view, part, heads in zip((q, k, v), rows, (4, 2, 2), strict=True):
        assert view.shape == (33, heads, 16) and view.stride() == (128, 16, 1)
        assert_close(view.flatten(1), x.double() @ part.T)
    assert q.untyped_storage().data_ptr() == v.untyped_storage().data_ptr()


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("M, N, K", [(1, 8, 1), (65, 72, 40), (130, 264, 4096)])
def test_rmsnorm_commutes_with_the_matmul(M, N, K, path):
    """Rows of very different sizes: a scale of another row, or of a part of K, would show. A long K: in Triton 3.6 a
    kernel that read a tile in registers too, while TMA loaded the next ones, went wrong only after many steps."""
    x = randn(M, K, dtype=FP16) * torch.logspace(-2, 2, M, device=DEVICE)[:, None].half()
    weight, norm_weight = randn(N, K, dtype=FP16, seed=1, scale=K**-0.5), randn(K, dtype=FP16, seed=2, shift=1)
    folded = fold_norm_weight(weight, norm_weight)
    y = rmsnorm_linear(x, folded, 1e-5, path=path)
    ones = torch.ones(K, dtype=torch.float64, device=DEVICE)
    assert_close(y, rmsnorm_reference(x.double(), ones, 1e-5) @ folded.double().T)


def test_squares_of_large_values_do_not_overflow():
    x = torch.full((3, 64), 300.0, dtype=FP16, device=DEVICE)  # 300 squared is infinite in fp16
    y = rmsnorm_linear(x, torch.eye(64, dtype=FP16, device=DEVICE))
    assert torch.allclose(y, torch.ones_like(y))


def test_a_residual_and_a_norm_after_the_matmul():
    x, weight, norm_weight, residual = operands(9, 48, 24, FP16)
    y, h = linear_residual_rmsnorm(x, weight, residual, norm_weight)
    assert_close(h, linear_reference(*doubles(x, weight), residual=residual.double()))
    assert_close(y, rmsnorm_reference(h.double(), norm_weight.double()))
    assert meter(linear_residual_rmsnorm, x, weight, residual, norm_weight).traffic.launches == 2


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("bias, residual, swiglu", [(False, False, False), (True, True, False), (False, False, True)])
def test_traffic_is_what_the_meter_counts(bias, residual, swiglu, path):
    M, N, K = 128, 128, 128
    x, weight, b, r = operands(M, N, K, FP16)
    options = {"bias": b if bias else None, "residual": r if residual else None, "path": path}
    report = meter(linear_swiglu, x, weight, path=path) if swiglu else meter(linear_bias_act, x, weight, **options)
    tile = linear_plan(M, N, x.device, 2, N // 2 if swiglu else N, path).tile
    model = linear_traffic(M, N, K, FP16, bias=bias, residual=residual, swiglu=swiglu, tile=tile)
    assert report.clean and report.traffic.launches == 1
    assert (report.traffic.read, report.traffic.written) == (model.read, model.written)
    once = linear_traffic(M, N, K, FP16, bias=bias, residual=residual, swiglu=swiglu)
    assert (report.unique.read, report.unique.written) == (once.read, once.written)


def test_unfused_ops_move_what_the_epilogue_saves():
    """Bias, GELU and residual of 8,192 x 8,192 in bf16: three more reads and writes of y, less bias and residual."""
    M, dtype = 8192, BF16
    ops = linear_ops(M, M, M, dtype, bias=True, activation=True, residual=True)
    fused = linear_traffic(M, M, M, dtype, bias=True, residual=True)
    assert list(ops) == ["matmul", "bias", "activation", "add"]
    assert sum(op.bytes for op in ops.values()) - fused.bytes == 6 * M * M * 2
    ops = linear_ops(1, 2 * 14336, 4096, dtype, swiglu=True, norm=True)
    assert list(ops) == ["norm", "matmul", "silu", "multiply"] and ops["multiply"].bytes == 3 * 14336 * 2


@pytest.mark.parametrize("activation", ["gelu", "swiglu", "norm"])
@pytest.mark.parametrize("arch, path", [(80, "plain"), (90, "persistent"), (100, "persistent")])
def test_no_epilogue_spills(arch, path, activation):
    x, bias = torch.empty(1024, 1024, dtype=BF16, device=DEVICE), torch.empty(1024, dtype=BF16, device=DEVICE)
    if activation == "gelu":
        (kernel,) = compiled(linear_bias_act, x, x, bias, activation="gelu", residual=x, path=path, arch=arch)
    else:
        *_, kernel = compiled(linear_swiglu if activation == "swiglu" else rmsnorm_linear, x, x, path=path, arch=arch)
    assert kernel.matrix_instruction and not kernel.spills
    if (path, activation) == ("persistent", "gelu"):  # one SFU instruction per element
        assert "MUFU.TANH" in kernel.opcodes and "MUFU.EX2" not in kernel.opcodes


def test_tiles_by_the_number_of_programs(monkeypatch):
    device = torch.device("cpu")
    assert linear_plan(64, 64, device, 2, 64, None).tile == PLAIN
    assert linear_plan(16, 64, device, 2, 64, None).tile == FEW_ROWS
    assert linear_plan(64, 64, device, 2, 64, "persistent").tile == persistent.SMALL
    assert linear_plan(512, 512, device, 2, 512, "persistent").tile == persistent.LARGE


def test_empty_and_bad_arguments():
    x, weight = randn(2, 8, dtype=FP16), randn(16, 8, dtype=FP16)
    assert linear_bias_act(x[:0], weight).shape == (0, 16)
    for call, name in (
        (lambda: linear_bias_act(x.double(), weight), "x"),
        (lambda: linear_bias_act(x, weight[:, :4]), "weight\\^T"),
        (lambda: linear_bias_act(x, weight[0]), "weight"),
        (lambda: linear_bias_act(x, weight, torch.zeros(8, dtype=FP16, device=DEVICE)), "bias"),
        (lambda: linear_bias_act(x, weight, torch.zeros(32, dtype=FP16, device=DEVICE)[::2]), "bias"),
        (lambda: linear_bias_act(x, weight, residual=x), "residual"),
        (lambda: linear_bias_act(x, weight, activation="tanh"), "activation"),
        (lambda: linear_bias_act(x, weight, activation="swiglu"), "activation"),
        (lambda: linear_bias_act(x, weight, path="fast"), "path"),
        (lambda: linear_bias_act(x[:, :0], weight[:, :0]), "x"),
        (lambda: linear_bias_act(x.requires_grad_(), weight), "x"),
        (lambda: linear_swiglu(x.detach(), weight[:15]), "weight"),
        (lambda: interleave_gate_up(weight, weight[:8]), "up"),
        (lambda: qkv_projection(x.detach(), weight, heads=3, kv_heads=2), "kv_heads"),
        (lambda: qkv_projection(x.detach(), weight, heads=4, kv_heads=0), "heads"),
        (lambda: qkv_projection(x.detach(), weight, heads=3, kv_heads=1), "weight"),
        (lambda: rmsnorm_linear(x.detach(), weight, -1.0), "eps"),
        (lambda: fold_norm_weight(weight, weight[0, :4]), "norm_weight"),
    ):
        with pytest.raises(ValueError, match=f"^{name}: "):
            call()
