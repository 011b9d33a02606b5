"""The losses that balance a router, and their gradients, in one pass over the logits each."""

import pytest
import torch

from instruments.compiled import compiled
from instruments.meter import meter
from kernels.moe.balance import balance_loss, losses_reference, losses_traffic, router_losses
from kernels.shared.device import device_of
from tests.kernels.tools import BF16, DEVICE, SPILLS, assert_close, assert_counts, randn


def make(tokens, experts, shift=0.0, seed=0):
    """(logits, counts of the two largest, or the largest, of each token)."""
    logits = randn(tokens, experts, seed=seed, scale=3, shift=shift)
    chosen = logits.topk(min(2, experts), dim=1).indices.flatten()
    return logits, torch.bincount(chosen, minlength=experts).int()


@pytest.mark.parametrize("tokens, experts, shift", [(1, 1, 2), (20, 5, 0), (700, 64, 3), (3000, 8, -2), (130, 300, 0)])
def test_against_fp64(tokens, experts, shift):
    """Losses and the gradients of either and of both, over several programs and steps."""
    logits, counts = make(tokens, experts, shift)
    logits.requires_grad_()
    exact = logits.detach().double().requires_grad_()
    ours, theirs = router_losses(logits, counts), losses_reference(exact, counts)
    for a, b in zip(ours, theirs):
        assert a.dim() == 0 and a.dtype == torch.float32 and abs(a.item() - b.item()) <= 2e-6 * abs(b.item())
    for weights in ((1.0, 0.0), (0.0, 1.0), (0.7, -2.0)):
        ours, theirs = (
            torch.autograd.grad(sum(w * loss for w, loss in zip(weights, losses) if w), x)[0]
            for losses, x in ((router_losses(logits, counts), logits), (losses_reference(exact, counts), exact))
        )
        assert_close(ours, theirs, floor=torch.full((tokens, experts), 1 / tokens / experts**0.5))


def test_one_where_all_is_even_and_as_many_as_experts_at_worst():
    even = torch.zeros(12, 4, device=DEVICE)
    assert balance_loss(even, torch.full((4,), 6, dtype=torch.int32, device=DEVICE)) == 1
    all_to_one = torch.tensor([[50.0, 0, 0, 0]], device=DEVICE).expand(12, 4)
    assert balance_loss(all_to_one, torch.tensor([12, 0, 0, 0], device=DEVICE)).item() == pytest.approx(4)


def test_large_logits_and_a_nan():
    logits, counts = make(20, 5)
    assert torch.isfinite(torch.stack(router_losses(logits * 1e15, counts))).all()
    beyond = router_losses(logits * 1e25, counts)
    assert beyond.balance.isfinite() and beyond.z.isinf()
    logits[3, 2] = float("nan")
    logits.requires_grad_()
    losses = router_losses(logits, counts)
    assert losses.balance.isnan() and losses.z.isnan()
    (gradient,) = torch.autograd.grad(losses.z, logits)
    assert gradient[3].isnan().all() and gradient[torch.arange(20, device=DEVICE) != 3].isfinite().all()


def test_logits_of_other_strides():
    logits, counts = make(30, 6)
    assert router_losses(logits.T.contiguous().T, counts) == router_losses(logits, counts)


@pytest.mark.parametrize("tokens, experts", [(20, 5), (3000, 64)])
def test_traffic_is_what_the_meter_counts(tokens, experts):
    logits, counts = make(tokens, experts)
    report = meter(router_losses, logits, counts)
    assert_counts(report, losses_traffic(tokens, experts, None, device_of(logits.device)))
    minimum = losses_traffic(tokens, experts)
    assert report.traffic.read["logits"] == minimum.read["logits"] == logits.nbytes


@pytest.mark.once
@pytest.mark.parametrize("experts", [8, 64, 256])
def test_nothing_spills(experts):
    logits, counts = make(64, experts)
    logits.requires_grad_()
    for binary in compiled(lambda: sum(router_losses(logits, counts)).backward(), arch=90):
        assert binary.spills <= SPILLS, binary


L, C = torch.ones(4, 6, device=DEVICE), torch.ones(6, dtype=torch.int32, device=DEVICE)


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: router_losses(L.to(BF16), C), "logits: got dtype bfloat16, expected one of float32"),
        (lambda: router_losses(L[0], C), r"logits: got shape \(6,\), expected \(tokens, experts\)"),
        (lambda: router_losses(L[:0], C), r"logits: got shape \(0, 6\)"),
        (lambda: router_losses(L, C[:4]), r"counts: got shape \(4,\), expected \(6,\)"),
        (lambda: balance_loss(L, C.float()), "counts: got dtype float32, expected one of int32, int64"),
        (lambda: losses_traffic(4, 8, "fast"), "path: got 'fast', expected minimum or None"),
    ],
)
def test_bad_arguments_name_themselves(call, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        call()
