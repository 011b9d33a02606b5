"""Kept plans give what new ones give, and on a GPU remembered launches what Triton's own give, whatever changed since:
views, shapes, options, streams, graphs."""

from functools import partial

import pytest
import torch

from instruments import backend
from kernels.attention import attention_decode, flash_attention
from kernels.grouped_matmul import grouped_matmul
from kernels.low_precision import scaled_matmul, weight_only_matmul
from kernels.matmul import matmul
from kernels.moe import moe_layer
from kernels.norms import rmsnorm
from kernels.quantization.schemes import quantize_reference
from kernels.softmax import softmax
from tests.kernels.tools import BF16, DEVICE

on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def random(*shape, shift=0):
    """Normally distributed bf16 numbers; shift: elements by which their address is off 16 bytes."""
    flat = torch.randn(torch.Size(shape).numel() + shift, device=DEVICE).to(BF16)
    return flat[shift:].view(shape)


def attention(shift, more):
    q, k, v = (random(1, 4, 64 + more, 128, shift=shift) for _ in range(3))
    return lambda: flash_attention(q, k, v, causal=True)


def decode(shift, more):
    q, k, v = random(2, 4, 1, 64, shift=shift), random(2, 2, 100 + more, 64), random(2, 2, 100 + more, 64)
    return lambda: attention_decode(q, k, v)


def scaled(shift, more):
    x, weight = (quantize_reference(random(rows, 256), "fp8_row") for rows in (64 + more, 128))
    return lambda: scaled_matmul(x, weight)


def weight_only(shift, more):
    x, weight = random(4 + more, 256, shift=shift), quantize_reference(random(128, 256), "int4_g128")
    return lambda: weight_only_matmul(x, weight)


def grouped(shift, more):
    x, weight = random(96 + more, 64, shift=shift), random(3, 64, 128)
    offsets = torch.tensor([0, 30, 30, 96], dtype=torch.int32, device=DEVICE)
    return lambda: grouped_matmul(x, weight, offsets)[:96]


def experts(shift, more):
    x, router, up, down = random(32 + more, 128), random(128, 8), random(8, 128, 256) / 16, random(8, 128, 128) / 16
    return lambda: moe_layer(x, router, up, down, 2)


def rows(function):
    def make(shift, more):
        x, weight = random(8 + more, 1000, shift=shift), random(1000)
        return lambda: function(x, weight)

    return make


def squares(shift, more):
    a, b = random(64 + more, 64, shift=shift), random(64, 128)
    return lambda: matmul(a, b)


MAKERS = {
    "rmsnorm": rows(rmsnorm),
    "softmax": rows(lambda x, _: softmax(x)),
    "matmul": squares,
    "attention": attention,
    "decode": decode,
    "scaled": scaled,
    "weight_only": weight_only,
    "grouped": grouped,
    "moe": experts,
}


#: By function: options that a plan has to tell apart.
OPTIONS = {
    flash_attention: ({}, {"causal": True}, {"window": 3}, {"scale": 0.5}, {"path": "plain"}, {"path": "fast"}),
    moe_layer: (
        {"top_k": 2},
        {"top_k": 2, "capacity": 3},
        {"top_k": 2, "order": "topk"},
        {"top_k": 2, "renormalize": False},
        {"top_k": 1},
    ),
}


def calls_of(name):
    """The same call with other tensors, or, by the name of a function, with other options."""
    torch.manual_seed(0)
    if name in MAKERS:
        return [MAKERS[name](shift, more) for shift, more in ((0, 0), (1, 0), (0, 1), (8, 0), (0, 0))]
    function = {function.__name__: function for function in OPTIONS}[name]
    if function is flash_attention:
        arguments = [random(1, 2, 20, 64) for _ in range(3)]
    else:
        arguments = random(16, 64), random(64, 8), random(8, 64, 64) / 8, random(8, 32, 64) / 8
    return [partial(function, *arguments, **more) for more in OPTIONS[function]]


@pytest.mark.parametrize("name", [*MAKERS, *(function.__name__ for function in OPTIONS)])
def test_kept_plans_give_the_same_bits(name, monkeypatch):
    """Where nothing is redirected, as on a GPU, plans are kept."""
    calls = calls_of(name)
    monkeypatch.setattr(backend, "redirects", lambda: True)
    expected = [call() for call in calls]
    monkeypatch.setattr(backend, "redirects", lambda: False)
    for _ in range(2):
        for call, right in zip(calls, expected):
            assert torch.equal(call(), right)


@on_gpu
@pytest.mark.parametrize("name", MAKERS)
def test_remembered_launches_give_the_same_bits(name):
    torch.manual_seed(0)
    calls = [MAKERS[name](shift, more) for shift, more in ((0, 0), (1, 0), (0, 1), (0, 16), (8, 0), (0, 0))]
    with backend.triton_launches():
        expected = [call() for call in calls]
    for _ in range(2):  # in the second round every launch is remembered
        for call, right in zip(calls, expected):
            assert torch.equal(call(), right)


@on_gpu
@pytest.mark.parametrize("name", MAKERS)
def test_in_a_graph_and_on_another_stream(name):
    call = MAKERS[name](0, 0)
    with backend.triton_launches():
        expected = call()
    call()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        assert torch.equal(call(), expected)
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = call()
    result.fill_(float("nan"))
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(result, expected)
