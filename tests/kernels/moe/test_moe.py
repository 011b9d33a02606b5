"""A mixture-of-experts layer against a loop over the experts in fp64, for balanced and skewed loads, with and without a
capacity."""

from dataclasses import astuple

import pytest
import torch
import torch.nn.functional as F

from instruments import backend
from instruments.gpus import GPUS, dtype_name
from instruments.meter import meter
from kernels.grouped_matmul.backward import grouped_matmul_weight_gradient
from kernels.moe import layer as moe
from kernels.moe.balance import router_losses
from kernels.moe.combine import combine, combine_backward, gather_rows
from kernels.moe.layer import (
    experts,
    experts_reference,
    experts_traffic,
    moe_layer,
    moe_layer_reference,
    moe_steps,
    moe_traffic,
)
from kernels.moe.permute import permute
from kernels.moe.router import Routing, route
from kernels.shared.device import device_of
from kernels.shared.tolerances import limit
from tests.kernels.tools import AGAIN, BF16, DEVICE, FP16, FP32, gradients, randn, worst_row

#: Kinds of routing: what is added to the logits of 6 experts.
BIAS = {
    "random": [0, 0, 0, 0, 0, 0],
    "skewed": [6, 3, 1, 0, 0, 0],
    "all to one": [0, 99, 0, 0, 0, 0],
    "empty experts": [-99, 0, 0, -99, 0, -99],
}


def layer(tokens, hidden=40, inter=24, count=6, dtype=FP32, kind="random"):
    """x, router, w_gate_up, w_down; the last feature of x is 1, by which the router prefers some."""
    x, router = randn(tokens, hidden, dtype=dtype), randn(hidden, count, dtype=dtype, seed=1, scale=hidden**-0.5)
    x[:, -1], router[-1] = 1, torch.tensor((BIAS[kind] * count)[:count]).to(router)
    w_gate_up = randn(count, hidden, 2 * inter, dtype=dtype, seed=2, scale=hidden**-0.5)
    return x, router, w_gate_up, randn(count, inter, hidden, dtype=dtype, seed=3, scale=inter**-0.5)


def wide(arguments):
    return [tensor.double() for tensor in arguments]


def check(arguments, top_k, roundings=3, **options):
    """roundings: of what reaches memory on the way, each as large as a result's own: hidden, an expert's, the sum."""
    y = moe_layer(*arguments, top_k, **options)
    x, router, w_gate_up, w_down = arguments
    capacity = options.pop("capacity", None)
    routing = route(x, router, top_k, **options)  # its own: where two logits are as good as equal, either is right
    routing = Routing(routing.experts, routing.gates.double(), routing.logits)
    expected = experts_reference(x.double(), w_gate_up.double(), w_down.double(), routing, capacity)
    error, allowed = worst_row(y, expected), limit(dtype_name(y.dtype), y.shape[1]) * roundings**0.5
    assert error <= allowed, f"error {error:.1e}, expected at most {allowed:.1e}"


def test_the_reference_is_the_weighted_sum_of_chosen_experts():
    x, router, w_gate_up, w_down = wide(layer(7))
    gates, chosen = (x @ router).softmax(dim=1).topk(2)
    gates = gates / gates.sum(dim=1, keepdim=True)
    for t in range(7):
        expected = 0
        for gate, expert in zip(gates[t], chosen[t]):
            projected = x[t] @ w_gate_up[expert]
            expected += gate * ((F.silu(projected[:24]) * projected[24:]) @ w_down[expert])
        assert torch.allclose(moe_layer_reference(x, router, w_gate_up, w_down, 2)[t], expected)


@pytest.mark.parametrize("kind", BIAS)
@pytest.mark.parametrize("dtype", [FP32, BF16, pytest.param(FP16, marks=pytest.mark.once)])
def test_layer(dtype, kind):
    """With many rows for an expert, and so few that 16 bits have tiles of their own."""
    for tokens in (53, 20):
        check(layer(tokens, dtype=dtype, kind=kind, hidden=80, inter=72), 2)


@pytest.mark.parametrize("capacity", [None, 9])
def test_rows_gathered_before_the_matmul_give_the_same(monkeypatch, capacity):
    monkeypatch.setattr(backend, "redirects", lambda: True)  # or plans would be kept
    arguments, upstream = layer(31), randn(31, 40, seed=4)
    results = []
    for first in (False, True):
        monkeypatch.setattr(moe, "gathers_first", lambda *_, first=first: first)
        y = moe_layer(*arguments, 2, capacity=capacity)
        results.append((y, *gradients(lambda *a: moe_layer(*a, 2, capacity=capacity), arguments, upstream)))
    assert all(torch.equal(*pair) for pair in zip(*results))


@pytest.mark.parametrize("top_k, count", [(1, 1), (1, 5), (3, 7), (8, 8)])
def test_numbers_of_experts(top_k, count):
    check(layer(19, count=count), top_k)


@pytest.mark.parametrize("options", [{"order": "topk"}, {"renormalize": False}], ids=str)
def test_gates(options):
    check(layer(17), 2, **options)
    assert torch.allclose(
        moe_layer(*layer(17), 2, **options).double(), moe_layer_reference(*wide(layer(17)), 2, **options), atol=1e-5
    )


@pytest.mark.parametrize("tokens", [1, 2, 130])
def test_few_tokens_and_more_than_a_tile(tokens):
    check(layer(tokens, dtype=BF16, hidden=72), 2)


@pytest.mark.parametrize("capacity", [1, 9, 1000])
def test_capacity_drops_the_last_tokens(capacity):
    arguments = layer(40, kind="skewed")
    check(arguments, 2, capacity=capacity)
    full = moe_layer(*arguments, 2)
    cut = moe_layer(*arguments, 2, capacity=capacity)
    assert cut.equal(full) == (capacity == 1000)
    assert torch.equal(cut[0], full[0])


def test_strides():
    x, router, w_gate_up, w_down = layer(21)
    x = torch.cat([x, x], dim=1).repeat_interleave(2, dim=0)[::2, :40]
    check((x, router.T.contiguous().T, w_gate_up.mT.contiguous().mT, w_down.mT.contiguous().mT), 2)


def test_a_token_of_nans_leaves_the_others_alone():
    x, *weights = layer(30)
    whole = moe_layer(x, *weights, 2)
    x[11] = torch.nan
    y = moe_layer(x, *weights, 2)
    keep = torch.arange(30, device=DEVICE) != 11
    assert y[11].isnan().all() and torch.allclose(y[keep], whole[keep], atol=1e-6)


def test_no_tokens():
    assert moe_layer(*layer(0), 2).shape == (0, 40)


@pytest.mark.parametrize("kind, capacity", [("random", None), ("empty experts", None), ("skewed", 7)])
def test_gradients(kind, capacity):
    arguments, dy = layer(45, kind=kind), randn(45, 40, seed=4)
    actual = gradients(lambda *tensors: moe_layer(*tensors, 2, capacity=capacity), arguments, dy)
    expected_gradients = gradients(
        lambda *tensors: moe_layer_reference(*tensors, 2, capacity=capacity), wide(arguments), dy.double()
    )
    for name, gradient, expected in zip(("x", "router", "w_gate_up", "w_down"), actual, expected_gradients):
        assert gradient.shape == expected.shape and gradient.dtype == FP32
        error = (gradient - expected).norm() / expected.norm().clamp(min=1e-9)
        assert error < 5e-6, f"{name}: {error:.1e}"  # the router's are differences of larger terms


def test_gradients_of_16_bits_are_as_close_as_torchs():
    """At most twice the error of the same loop run by torch, which rounds more often."""
    arguments, dy = layer(45, hidden=72, dtype=BF16), randn(45, 72, dtype=BF16, seed=4)

    def loop(x, router, *weights):
        return experts_reference(x, *weights, route(x, router, 2))

    actual = gradients(lambda *tensors: moe_layer(*tensors, 2), arguments, dy)
    eager = gradients(loop, arguments, dy)
    exact = gradients(lambda *tensors: moe_layer_reference(*tensors, 2), wide(arguments), dy.double())
    for gradient, other, expected in zip(actual, eager, exact):
        assert (gradient - expected).norm() <= 2 * (other - expected).norm() + 1e-3 * expected.norm()


def test_weights_without_requires_grad_get_no_gradient():
    x, router, w_gate_up, w_down = layer(20)
    dx = torch.autograd.grad(moe_layer(x.requires_grad_(), router, w_gate_up, w_down, 2).sum(), x)[0]
    every = gradients(lambda *tensors: moe_layer(*tensors, 2), (x, router, w_gate_up, w_down), torch.ones_like(x))
    assert torch.equal(dx, every[0])


def test_ten_runs_give_the_same_bits():
    """The layer, its backward, and each of their kernels that has no such test beside its others. It is on a GPU that
    programs run side by side; the interpreter runs them in one order."""
    arguments = x, router, *weights = layer(70, hidden=72, dtype=BF16, kind="skewed")
    few, long_router = randn(3, 1032, dtype=BF16), randn(1032, 6, dtype=BF16, seed=1)
    routing = route(x, router, 2)
    permutation = permute(routing.experts, 6)
    rows, counts, offsets = gather_rows(x, permutation), permutation.counts, permutation.offsets
    one = torch.ones([], device=DEVICE)
    calls = {
        "layer": lambda: [moe_layer(*arguments, 2)],
        "gradients": lambda: gradients(lambda *tensors: moe_layer(*tensors, 2), arguments, x),
        "gradients with a capacity": lambda: gradients(lambda *a: moe_layer(*a, 2, capacity=9), arguments, x),
        "experts": lambda: [experts(x, *weights, permutation)],
        "route": lambda: astuple(route(x, router, 2)),
        "route, hidden shared out": lambda: astuple(route(few, long_router, 2)),
        "permute": lambda: astuple(permute(routing.experts, 6))[:4],
        "permute, one program": lambda: astuple(permute(routing.experts[:9], 6))[:4],
        "gather_rows": lambda: [gather_rows(x, permutation)],
        "combine": lambda: [combine(rows, permutation, routing.gates)],
        "combine's gradients": lambda: combine_backward(x, rows, permutation, routing.gates),
        "losses": lambda: router_losses(routing.logits, counts),
        "losses' gradient": lambda: gradients(lambda a: sum(router_losses(a, counts)), (routing.logits,), one),
        "weight's gradient": lambda: [grouped_matmul_weight_gradient(rows, rows, offsets)],
        "weight's gradient, plain": lambda: [grouped_matmul_weight_gradient(rows, rows, offsets, path="plain")],
    }
    for name, call in calls.items():
        first = call()
        for _ in range(AGAIN):
            assert all(torch.equal(again, before) for again, before in zip(call(), first, strict=True)), name


@pytest.mark.skipif(DEVICE != "cuda", reason="graphs are of GPUs")
def test_runs_in_a_graph():
    arguments, graph = layer(64, dtype=BF16), torch.cuda.CUDAGraph()
    moe_layer(*arguments, 2)
    with torch.cuda.graph(graph):
        y = moe_layer(*arguments, 2)
    other = layer(64, dtype=BF16, kind="skewed")
    for tensor, new in zip(arguments, other):
        tensor.copy_(new)
    graph.replay()
    assert torch.equal(y, moe_layer(*other, 2))


@pytest.mark.parametrize("tokens, kind", [(1, "random"), (50, "empty experts")])
def test_traffic_is_what_the_meter_counts(tokens, kind):
    x, router, w_gate_up, w_down = layer(tokens, kind=kind)
    report = meter(moe_layer, x, router, w_gate_up, w_down, 2)
    counts = permute(route(x, router, 2).experts, 6).counts.tolist()
    sizes, options = (tokens, counts, 40, 24, FP32), {"path": None, "gpu": device_of(x.device)}
    model, steps = moe_traffic(*sizes, **options), moe_steps(*sizes, **options)
    assert report.clean, report.findings()
    assert report.traffic.bytes_read == model.bytes_read and report.traffic.bytes_written == model.bytes_written
    assert report.launches == model.launches == sum(step.launches for step in steps.values())


def test_traffic_of_mixtral():
    """A layer of eight experts in bf16, counted by hand."""
    hidden, inter, tokens = 4096, 14336, 8192
    least = moe_traffic(tokens, [2048] * 8, hidden, inter, BF16)
    one = hidden * inter * 2  # a matrix
    assert least.read == {"x": tokens * 8192, "router": 65_536, "w_gate_up": 16 * one, "w_down": 8 * one}
    assert least.written == {"y": tokens * 8192}
    products = 2 * tokens * 2 * 3 * hidden * inter
    assert products < least.flops < 1.001 * products
    decode = moe_traffic(1, [1, 1, 0, 0, 0, 0, 0, 0], hidden, inter, BF16)
    assert decode.bytes == 6 * one + 65_536 + 2 * 8192
    loop = moe_traffic(tokens, [2048] * 8, hidden, inter, BF16, path="naive")
    assert loop.launches == 6 + 8 * 8 and least.bytes < loop.bytes
    both = experts_traffic([2048] * 8, hidden, inter, BF16, tokens=tokens, gpu=GPUS["H200"])
    assert both["down"].read["x"] == both["gate and up"].written["y"] == 16384 * inter * 2
    with pytest.raises(ValueError, match="path: got 'loop'"):
        moe_traffic(tokens, [2048] * 8, hidden, inter, BF16, path="loop")


def test_experts_are_the_layer_without_its_router():
    x, router, w_gate_up, w_down = layer(12)
    routing = route(x, router, 1, renormalize=True)  # a gate of 1
    permutation = permute(routing.experts, 6)
    y = experts(x, w_gate_up, w_down, permutation)
    assert torch.equal(y[permutation.rows[:, 0].long()], moe_layer(x, router, w_gate_up, w_down, 1))


X, ROUTER, UP, DOWN = layer(4, hidden=8, inter=6, count=3)


@pytest.mark.parametrize(
    "arguments, options, message",
    [
        ((X.double(), ROUTER, UP, DOWN, 1), {}, "x: got dtype float64"),
        ((X[0], ROUTER, UP, DOWN, 1), {}, r"x: got shape \(8,\), expected \(tokens, hidden\)"),
        ((X, ROUTER, UP, DOWN[:, :, 1:], 1), {}, r"w_down: got shape \(3, 6, 7\), expected \(experts, inter, 8\)"),
        ((X, ROUTER, UP[:, :, 1:], DOWN, 1), {}, r"w_gate_up: got shape \(3, 8, 11\), expected \(3, 8, 12\), w_d"),
        ((X, ROUTER, UP[1:], DOWN, 1), {}, r"w_gate_up: got shape \(2, 8, 12\), expected \(3, 8, 12\)"),
        ((X, ROUTER[:, 1:], UP, DOWN, 1), {}, r"router: got shape \(8, 2\), expected \(8, 3\)"),
        ((X, ROUTER.half(), UP, DOWN, 1), {}, "router: got dtype float16"),
        ((X, ROUTER, UP, DOWN, 4), {}, "top_k: got 4"),
        ((X, ROUTER, UP, DOWN, 1), {"order": "sigmoid"}, "order: got 'sigmoid'"),
        ((X, ROUTER, UP, DOWN, 1), {"capacity": 0}, "capacity: got 0"),
    ],
)
def test_bad_arguments_are_named(arguments, options, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        moe_layer(*arguments, **options)
