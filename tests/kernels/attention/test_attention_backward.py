import pytest
import torch

from instruments.backend import triton
from instruments.compiled import compiled
from instruments.gpus import dtype_name
from instruments.meter import meter
from kernels.attention import (
    attention_backward,
    attention_backward_ops,
    attention_backward_traffic,
    attention_reference,
    flash_attention,
)
from kernels.shared.tolerances import limit
from tests.kernels.attention.test_attention import PATHS, tensors
from tests.kernels.tools import BF16, DEVICE, FP16, assert_counts, gradients, randn, worst_row

#: As for the forward: tiles that end early, rows that attend to no key, shared heads, windows.
SHAPES = [
    ((1, 1, 1, 1, 1, 32), {}),
    ((2, 2, 2, 65, 70, 40), {}),
    ((1, 4, 2, 40, 90, 32), {"causal": True}),
    ((1, 2, 1, 100, 70, 64), {"causal": True, "scale": 0.3}),
    ((1, 1, 1, 150, 150, 16), {"causal": True, "window": 70}),
    ((1, 2, 2, 75, 70, 24), {"window": 20}),
    ((1, 1, 1, 70, 290, 16), {"causal": True, "window": 200}),
    ((1, 1, 1, 66, 270, 16), {"window": 150}),
    ((1, 1, 1, 33, 40, 128), {"causal": True}),
]


def check(results, q, k, v, dout, options):
    """The error of each gradient, head by head, is at most a rounding's, or twice that of torch in the same dtype; of
    gradients that all but cancel, as a share of the others'."""

    def reference(*inputs):
        return attention_reference(*inputs, **options)[0]

    expected = gradients(reference, tuple(x.double() for x in (q, k, v)), dout.double())
    torchs = gradients(reference, (q, k, v), dout)
    floor = max(x.norm() for x in expected).view(1, 1, 1) / 100
    for name, result, right, peer in zip("qkv", results, expected, torchs):
        assert result.shape == right.shape and result.is_contiguous() and result.dtype == q.dtype
        error, peers = (worst_row(x.flatten(2), right.flatten(2), floor) for x in (result, peer))
        assert error <= max(limit(dtype_name(q.dtype), 64), 2 * peers), f"d{name}: error {error:.1e}, torch {peers:.1e}"


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("shape, options", SHAPES)
def test_against_fp64(shape, options, path):
    q, k, v = tensors(*shape, FP16 if shape[3] % 2 else BF16)
    dout = randn(*q.shape, dtype=q.dtype, seed=4)
    out, lse = flash_attention(q, k, v, **options, return_lse=True)
    check(attention_backward(dout, q, k, v, out, lse, **options, path=path), q, k, v, dout, options)


@pytest.mark.each
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("options", [{"causal": True}, {"causal": True, "window": 66}], ids=str)
def test_where_a_mask_begins(options, path):
    """As for the forward: the first query stands before, at and past the end of a tile of keys. Heads share keys."""
    for more in (62, 63, 64):
        q, k, v = tensors(1, 4, 2, 4, 4 + more, 16)
        dout = randn(*q.shape, dtype=q.dtype, seed=4)
        out, lse = flash_attention(q, k, v, **options, return_lse=True)
        check(attention_backward(dout, q, k, v, out, lse, **options, path=path), q, k, v, dout, options)


def test_through_autograd():
    q, k, v = tensors(1, 4, 2, 40, 50, 32)
    dout = randn(1, 4, 40, 32, dtype=BF16, seed=4)
    strided = [x.mT.contiguous().mT for x in (q, k, v)]
    for inputs, upstream in (((q, k, v), dout), (strided, dout), ((q, k, v), dout[:, :1].expand(-1, 4, -1, -1))):
        results = gradients(lambda *x: flash_attention(*x, causal=True), tuple(inputs), upstream)
        check(results, q, k, v, upstream, {"causal": True})


def test_some_gradients_alone():
    q, k, v = tensors(1, 1, 1, 20, 20, 16)
    k.requires_grad_()
    flash_attention(q, k, v).sum().backward()
    assert k.grad is not None and q.grad is None


@pytest.mark.parametrize("path", PATHS)
def test_planted_scores(path):
    """Weights near one, rows of equal weights, and scores whose exponentials leave fp32 but for the log-sum-exp."""
    q, k, v = tensors(1, 3, 3, 70, 140, 32)
    k[:, 0, 100] = 4 * q[:, 0, -1]
    q[:, 1] = 0
    q[:, 2] *= 30
    dout = randn(*q.shape, dtype=BF16, seed=4)
    out, lse = flash_attention(q, k, v, return_lse=True)
    results = attention_backward(dout, q, k, v, out, lse, path=path)
    check(results, q, k, v, dout, {})
    assert all(x.isfinite().all() for x in results)


@pytest.mark.parametrize("path", PATHS)
def test_the_same_every_time(path):
    q, k, v = tensors(1, 4, 1, 70, 70, 16)
    out, lse = flash_attention(q, k, v, return_lse=True)
    first, second = (attention_backward(out, q, k, v, out, lse, path=path) for _ in range(2))
    assert all(torch.equal(x, y) for x, y in zip(first, second))


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("shape, options", SHAPES[1:8])
def test_traffic_is_what_the_meter_counts(shape, options, path):
    q, k, v = tensors(*shape)
    dout = randn(*q.shape, dtype=BF16, seed=4)
    out, lse = flash_attention(q, k, v, **options, return_lse=True)
    report = meter(attention_backward, dout, q, k, v, out, lse, **options, path=path)
    batch, heads, kv_heads, queries, keys, head_dim = shape
    sizes, options = (batch, heads, queries, keys, head_dim, BF16), {**options, "kv_heads": kv_heads}
    options.pop("scale", None)
    assert_counts(report, attention_backward_traffic(*sizes, **options, path=path))
    minimum = attention_backward_traffic(*sizes, **options)
    assert {name: n for name, n in report.unique.read.items() if name not in ("delta", "shift")} == minimum.read
    assert {name: n for name, n in report.unique.written.items() if name not in ("delta", "shift")} == minimum.written


def test_naive_is_the_sum_of_its_ops():
    sizes = 2, 4, 512, 256, 64, BF16
    ops = attention_backward_ops(*sizes, causal=True)
    assert sum(ops.values()) == attention_backward_traffic(*sizes, causal=True, path="naive") and len(ops) == 6
    minimum = attention_backward_traffic(*sizes)
    assert minimum.flops == 5 * 2 * 2 * 4 * 512 * 256 * 64
    assert attention_backward_traffic(*sizes, path="plain").flops * 5 == minimum.flops * 7


@pytest.mark.parametrize("path, arch, head_dim", [("plain", 80, 128), ("fast", 90, 64), ("fast", 90, 128)])
def test_compiled(path, arch, head_dim):
    """Two programs share an SM. Causal heads of 128 fill all registers: a few bytes may spill, with the
    ptxas of Triton 3.9 more of them."""
    spilled = 160 if triton.__version__.startswith("3.9.") else 32
    q, lse = torch.empty(1, 2, 256, head_dim, dtype=BF16, device=DEVICE), torch.empty(1, 2, 256, device=DEVICE)
    for kernel in compiled(attention_backward, q, q, q, q, q, lse, causal=True, path=path, arch=arch)[1:]:
        assert kernel.spills <= spilled, kernel
        assert 2 * (kernel.shared + 1024) <= 233_472 and 2 * kernel.registers * 32 * kernel.num_warps <= 65_536


def test_a_path_that_is_none():
    q, lse = torch.empty(1, 1, 4, 256, dtype=BF16, device=DEVICE), torch.empty(1, 1, 4, device=DEVICE)
    with pytest.raises(ValueError, match="^path: got 'fast' for a head_dim of 256"):
        attention_backward(q, q, q, q, q, lse, path="fast")
    with pytest.raises(ValueError, match="^path: got 'atomic'"):
        attention_backward_traffic(1, 1, 8, 8, 16, BF16, path="atomic")
