"""The router: exact choices, gates of either order, in one pass over x."""

import pytest
import torch

from instruments.backend import triton
from instruments.compiled import compiled
from instruments.meter import meter
from kernels.moe.router import plan_operands, route, router_ops, router_plan, router_reference, router_traffic
from kernels.shared.device import INTERPRETED, device_of
from kernels.shared.tolerances import limit
from tests.kernels.tools import BF16, DEVICE, FP16, FP32, LAYOUTS, SPILLS, assert_close, assert_counts, randn, worst_row

#: Of fp32 sums of products of 16-bit numbers: tensor cores truncate what an addition loses, and do not round.
ADDED_UP = 5e-5
GPU = device_of(torch.device(DEVICE))
#: (order, renormalize): every kind of gates
KINDS = (("softmax", True), ("softmax", False), ("topk", True))


def operands(tokens, hidden, experts, dtype=BF16):
    return randn(tokens, hidden, dtype=dtype), randn(hidden, experts, dtype=dtype, seed=1, scale=hidden**-0.5)


def check(x, router, top_k, order="softmax", renormalize=True):
    """Logits are fp64's within fp32; experts and gates are those that an exact choice among these logits gives."""
    result = route(x, router, top_k, order=order, renormalize=renormalize)
    exact = x.double() @ router.double()
    error = worst_row(result.logits, exact, floor=torch.full(exact.shape, 0.3))
    assert error <= (limit("fp32", 64) if x.dtype == FP32 else ADDED_UP)
    exact = router_reference(
        result.logits.double(), torch.eye(router.shape[1], dtype=torch.float64, device=DEVICE), top_k
    )
    assert torch.equal(result.experts, exact.experts)
    over = (
        result.logits.double()
        if order == "softmax" and not renormalize
        else result.logits.double().gather(1, exact.experts.long())
    )
    exact_gates = (result.logits.double().gather(1, exact.experts.long()) - over.logsumexp(1, keepdim=True)).exp()
    assert_close(result.gates, exact_gates)
    return result


@pytest.mark.parametrize(
    "tokens, hidden, experts, top_k, dtype",
    [
        (5, 64, 8, 2, BF16),
        (70, 300, 60, 6, BF16),  # several tiles of tokens, the last ragged; no power of two
        (1, 1032, 256, 8, BF16),  # one token: shares of the hidden dimension
        (130, 40, 1, 1, FP16),
        (33, 100, 7, 3, FP32),
        (200, 72, 17, 8, BF16),
        (20, 136, 100, 8, BF16),
    ],
)
def test_against_fp64(tokens, hidden, experts, top_k, dtype):
    x, router = operands(tokens, hidden, experts, dtype)
    for order, renormalize in KINDS:
        check(x, router, top_k, order, renormalize)


def test_both_split_k_and_whole_sums_are_tested():
    """Few tokens are shared out over the hidden dimension, many are not."""
    assert router_plan(1, 1032, 256, 2, INTERPRETED).splits > 1 and router_plan(200, 72, 17, 2, INTERPRETED).splits == 1


@pytest.mark.parametrize("experts", [8, 20, 60, 100, 200])
@pytest.mark.parametrize("tokens, hidden, dtype", [(2, 520, BF16), (20, 80, BF16), (70, 80, BF16), (20, 80, FP32)])
def test_every_tile_for_any_preference(tokens, hidden, dtype, experts):
    """One expert by all, a few, all but one, none: over all widths and heights of tiles, and hidden dimensions that are
    shared out or whole."""
    x, router = operands(tokens, hidden, experts, dtype)
    for preferred, by in ((slice(2, 3), 60), (slice(0, 3), 4), (slice(1, 2), -60), (slice(0), 0)):
        x[:, -1], router[-1] = 1, 0
        router[-1, preferred] = by
        check(x, router, 3)


def of_logits(logits, top_k, **kind):
    """The router's choice where its logits are given: x holds them, and the router is the identity."""
    logits = torch.tensor(logits, device=DEVICE, dtype=FP32)
    return route(logits, torch.eye(logits.shape[1], device=DEVICE), top_k, **kind)


def test_ties_go_to_the_lower_index():
    result = of_logits([[1, 3, 3, 2, 3], [0, 0, 0, 0, 0], [-5, -1, -1, -7, -1], [0.0, -0.0, 0.0, -0.0, -1]], 4)
    assert result.experts.tolist() == [[1, 2, 4, 3], [0, 1, 2, 3], [1, 2, 4, 0], [0, 1, 2, 3]]


def test_neighbors_in_fp32_are_distinguished():
    """Also where their exponentials are equal, or zero."""
    near = torch.tensor([1.0, -30.0, -200.0])
    for value in near.tolist():
        next_up = torch.nextafter(torch.tensor(value), torch.tensor(float("inf"))).item()
        result = of_logits([[value, next_up, 3.0]], 3, renormalize=False)
        assert result.experts.tolist() == [[2, 1, 0]]


def test_orders_agree_exactly_with_renormalized_gates():
    x, router = operands(40, 64, 12)
    one, other = (route(x, router, 3, order=order) for order in ("softmax", "topk"))
    assert torch.equal(one.gates, other.gates) and torch.equal(one.experts, other.experts)
    plain = route(x, router, 3, renormalize=False)
    assert torch.equal(plain.experts, one.experts)
    assert (plain.gates.sum(1) < 0.99).all() and torch.allclose(one.gates.sum(1), torch.ones(40, device=DEVICE))


@pytest.mark.parametrize("bad", ["nan", "-nan", "inf"])
def test_a_bad_token_stays_alone(bad):
    x, router = operands(20, 64, 6)
    good = route(x, router, 3)
    x[7] = -float("nan") if bad == "-nan" else float(bad)
    for renormalize in (True, False):
        result = route(x, router, 3, renormalize=renormalize)
        assert result.gates[7].isnan().all()
        chosen = result.experts[7].tolist()
        assert len(set(chosen)) == 3 and set(chosen) <= set(range(6))
        others = torch.arange(20, device=DEVICE) != 7
        assert torch.equal(result.experts[others], good.experts[others]) and result.gates[others].isfinite().all()


def test_infinities_and_nans_among_logits():
    """As many experts as are asked for, each once, NaNs first, what is -inf last; padding is never chosen."""
    inf, nan = float("inf"), float("nan")
    x = torch.tensor([[-inf, 1.0, -inf], [2.0, -inf, nan], [-inf, -inf, -inf]], device=DEVICE)
    router = torch.eye(3, device=DEVICE)
    assert route(x, router, 3).gates.isnan().all()  # 0 * inf: every logit is a NaN
    large = of_logits([[-3e38, 1.0, -3e38], [3e38, -3e38, 0.0]], 3)
    assert large.experts.tolist() == [[1, 0, 2], [0, 2, 1]] and large.gates.tolist() == [[1, 0, 0], [1, 0, 0]]


@pytest.mark.parametrize("nan", [0x7FC00000, -0x400000])
def test_a_nan_of_one_expert_is_every_tokens_first_choice(nan):
    """Of either sign, as in torch.topk: it is not lost."""
    x, router = operands(20, 64, 6, FP32)
    router[:, 2] = torch.tensor(nan, dtype=torch.int32, device=DEVICE).view(FP32)
    result = route(x, router, 3)
    assert (result.experts[:, 0] == 2).all() and result.gates.isnan().all()
    assert all(len(set(chosen)) == 3 for chosen in result.experts.tolist())


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(layout):
    x, router = operands(18, 40, 6)
    check(LAYOUTS[layout](x), LAYOUTS[layout](router), 2)
    assert meter(route, LAYOUTS[layout](x), LAYOUTS[layout](router), 2).clean


@pytest.mark.parametrize("tokens, hidden, experts, top_k", [(130, 72, 60, 6), (3, 1032, 8, 2)])
def test_traffic_is_what_the_meter_counts(tokens, hidden, experts, top_k):
    x, router = operands(tokens, hidden, experts)
    model = router_traffic(tokens, hidden, experts, top_k, BF16, None, gpu=GPU)
    assert model.read["x"] == x.nbytes
    report = meter(route, x, router, top_k)
    if model.launches == 1:
        assert_counts(report, model)
    else:
        assert report.clean and report.traffic.bytes == model.bytes and report.launches == model.launches


def test_the_minimum_is_each_byte_once():
    minimum = router_traffic(64, 512, 8, 2, BF16)
    assert minimum.bytes_read == 64 * 512 * 2 + 512 * 8 * 2 and minimum.bytes_written == 64 * (2 * 8 + 8 * 4)
    assert minimum.launches == 1 and minimum.flops == 2 * 64 * 512 * 8
    assert router_traffic(64, 512, 8, 2, BF16, "naive").launches == len(router_ops(64, 512, 8, 2, BF16)) == 6


@pytest.mark.parametrize("order, renormalize", KINDS)
@pytest.mark.parametrize("dtype", [BF16, FP32])
def test_gradients(order, renormalize, dtype):
    """From gates and logits together, and from either alone; for 16 bits as good as autograd's in that dtype."""
    x, router = (t.requires_grad_() for t in operands(21, 70, 9, dtype))
    exact = [t.detach().double().requires_grad_() for t in (x, router)]
    dgates, dlogits = randn(21, 4, seed=3), randn(21, 9, seed=4)
    kind = {"order": order, "renormalize": renormalize}
    for parts in (("gates", "logits"), ("gates",), ("logits",)):
        upstream = {"gates": dgates, "logits": dlogits}
        result, expected = route(x, router, 4, **kind), router_reference(*exact, 4, **kind)
        assert torch.equal(result.experts, expected.experts)
        actual, exact_gradients = (
            torch.autograd.grad(
                [getattr(r, part) for part in parts], operands_, [upstream[part].to(r.gates.dtype) for part in parts]
            )
            for r, operands_ in ((result, (x, router)), (expected, exact))
        )
        for a, b in zip(actual, exact_gradients):
            error = (a.double() - b).norm() / b.norm()
            assert a.dtype == dtype and error < (1e-6 if dtype == FP32 else 4e-3)  # 16 bits: rounded twice


def test_nothing_to_route():
    result = route(torch.empty(0, 8, device=DEVICE), torch.ones(8, 4, device=DEVICE), 2)
    assert result.experts.shape == result.gates.shape == (0, 2) and result.logits.shape == (0, 4)


@pytest.mark.once
@pytest.mark.parametrize("arch, experts, top_k", [(80, 64, 6), (90, 8, 2), (90, 256, 8), (100, 64, 6)])
def test_nothing_spills(arch, experts, top_k):
    for tokens, hidden in ((4096, 2048), (1, 7168))[: 2 if arch == 90 else 1]:
        x = torch.empty(tokens, hidden, dtype=BF16, device=DEVICE).requires_grad_()
        router = torch.empty(hidden, experts, dtype=BF16, device=DEVICE)
        for binary in compiled(lambda: route(x, router, top_k).gates.sum().backward(), arch=arch):
            assert binary.spills <= SPILLS, (binary, experts)
            if binary.name == "route_kernel":
                assert binary.matrix_instruction


X, W = torch.ones(4, 16, device=DEVICE), torch.ones(16, 6, device=DEVICE)


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: route(X.double(), W, 2), "x: got dtype float64"),
        (lambda: route(X, W.half(), 2), "router: got dtype float16, expected one of float32"),
        (lambda: route(X[0], W, 2), r"x: got shape \(16,\), expected \(tokens, hidden\)"),
        (lambda: route(X, W[:8], 2), r"router: got shape \(8, 6\), expected \(16, experts\)"),
        (lambda: route(X, W.repeat(1, 50), 2), r"router: got shape \(16, 300\)"),
        (lambda: route(X, W, 0), "top_k: got 0, expected a whole number from 1 to 6"),
        (lambda: route(X, W, 7), "top_k: got 7, expected a whole number from 1 to 6"),
        (lambda: route(X, W.repeat(1, 3), 9), "top_k: got 9, expected a whole number from 1 to 8"),
        (lambda: route(X, W, 2, order="both"), "order: got 'both', expected softmax or topk"),
        (lambda: router_traffic(4, 16, 6, 2, BF16, "fast"), "path: got 'fast', expected minimum, naive or None"),
    ],
)
def test_bad_arguments_name_themselves(call, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        call()


def test_block_sizes_are_powers_of_two():
    for tokens in (1, 3, 100, 8192, 65_536):
        for experts in (1, 8, 60, 256):
            plan = router_plan(tokens, 4096, experts, 2, INTERPRETED)
            for name in ("BLOCK_T", "BLOCK_K", "BLOCK_E"):
                assert plan.config[name] == triton.next_power_of_2(plan.config[name]) >= 16
            assert plan.splits * plan.share >= 4096 > (plan.splits - 1) * plan.share


def test_many_experts_by_descriptors_and_without():
    """A router as it is, transposed, and with rows that no descriptor takes."""
    x, router = operands(70, 200, 160)
    config = router_plan(70, 200, 160, 2, GPU).config
    routers = {
        "rows": router,
        "columns": router.T.contiguous().T,
        None: torch.cat([router, router[:, :1]], dim=1)[:, :160],
    }
    for tma, other in routers.items():
        assert plan_operands(x, other, config)[2] == tma
        check(x, other, 8)
        assert meter(route, x, other, 8).clean
    report = meter(route, x, router, 8)
    assert report.traffic.bytes == router_traffic(70, 200, 160, 8, BF16, None, gpu=GPU).bytes
