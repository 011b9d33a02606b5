"""The decoder layer: both ways agree, and the counts are those of its kernels."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from instruments.meter import meter
from kernels.decoder import layer
from kernels.decoder.layer import LLAMA_3_8B, LayerWeights, Model
from kernels.elementwise.rope import rope_tables
from tests.kernels.tools import BF16, DEVICE

TINY = Model("tiny", hidden=64, inter=96, heads=4, kv_heads=2, head_dim=16, layers=2)


def arguments(batch, queries, keys):
    torch.manual_seed(0)
    x, residual = (torch.randn(batch, queries, TINY.hidden, device=DEVICE).to(BF16) for _ in range(2))
    caches = [torch.randn(batch, TINY.kv_heads, keys, TINY.head_dim, device=DEVICE).to(BF16) for _ in range(2)]
    positions = torch.arange(keys - queries, keys, device=DEVICE)
    weights = LayerWeights.random(TINY, BF16, DEVICE)
    return x, residual, weights, *rope_tables(positions, TINY.head_dim, BF16), *caches, positions, TINY


def converted(arguments, dtype):
    return [each.to(dtype) if getattr(each, "dtype", None) == BF16 else each for each in arguments]


@pytest.mark.parametrize("sizes", [(2, 1, 9), (1, 7, 7)], ids=str)
def test_fused_and_unfused_layers_agree(sizes):
    inputs = arguments(*sizes)
    precise = converted(inputs, torch.float64)
    precise[2] = inputs[2].to(torch.float64)
    expected = layer.decoder_layer_reference(*precise)
    for function, options in (
        (layer.decoder_layer_reference, {}),
        (layer.decoder_layer, {"joined": True}),
        (layer.decoder_layer, {"joined": False}),
    ):
        actual = function(*inputs, **options)
        for a, b in zip(actual, expected):
            assert a.dtype == BF16 and (a.double() - b).norm() < 0.01 * b.norm()
    for cache, precise_cache in zip(inputs[5:7], precise[5:7]):
        assert torch.allclose(cache.double(), precise_cache, rtol=0.05, atol=0.05)


def test_the_fused_kernels_request_what_the_counts_say():
    inputs = arguments(1, 6, 6)
    report = meter(layer.decoder_layer, *inputs)
    fused = layer.fused_ops(TINY, 1, 6)
    kernels = {name: count for name, count in layer.COUNTS.items() if name != "KV cache"}  # those are torch's copies
    assert report.launches == sum(kernels.values())
    weights = 2 * (6 - 1) * TINY.hidden * 2  # two norms whose programs each read the weight, counted once
    assert report.traffic.bytes <= sum(kernels[name] * fused[name].bytes for name in kernels) + weights


def test_the_counts_of_llama_3_8b():
    assert sum(inputs * outputs for inputs, outputs in LLAMA_3_8B.matmuls.values()) == 218_103_808
    ops = layer.layer_ops(LLAMA_3_8B, 1, 4096)
    hidden = 4096 * 4096 * 2
    assert len(ops["add and norm"]) == 9 and len(ops["RoPE"]) == 10 and len(ops["SwiGLU"]) == 2
    assert round(sum(t.bytes for t in ops["add and norm"].values()) / hidden, 1) == 21.0
    joined = layer.matmul_ops(LLAMA_3_8B, 4096, joined=True)
    assert len(joined) == 4
    assert sum(t.flops for t in joined.values()) == sum(t.flops for t in layer.matmul_ops(LLAMA_3_8B, 4096).values())


class Kernels(TorchDispatchMode):
    """Counts the ops of a call that compute or copy something."""

    VIEWS = (
        "t",
        "view",
        "_unsafe_view",
        "transpose",
        "split_with_sizes",
        "split",
        "slice",
        "detach",
        "expand",
        "unsqueeze",
        "alias",
    )

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        name = op.overloadpacket.__name__
        self.names += [name] if name not in self.VIEWS else []
        return op(*args, **(kwargs or {}))


@torch.no_grad()
def test_the_unfused_layer_has_as_many_kernels_as_the_counts_say():
    inputs = [each.cpu() if isinstance(each, torch.Tensor) else each for each in arguments(1, 1, 9)]
    with Kernels() as kernels:
        layer.decoder_layer_reference(*inputs)
    names = [name for name in kernels.names if "scaled_dot_product" not in name]
    order = layer.launch_order(fused=False)
    assert len(names) == len(order) - 1 == 39
    assert sum(name in ("mm", "addmm", "linear") for name in names) == sum(kind == "matmul" for _, kind, _ in order)
    fused = layer.launch_order(fused=True)
    assert len(fused) == 11 and sum(ops for *_, ops in fused) == 40
