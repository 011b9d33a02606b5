import pytest
import torch

from instruments import inductor
from kernels.elementwise.bias_gelu import bias_gelu_reference
from kernels.elementwise.swiglu import swiglu_reference
from kernels.norms.rmsnorm import rmsnorm_reference

X, WEIGHT, BIAS = torch.randn(64, 128), torch.randn(128, 128), torch.randn(128)


@pytest.mark.parametrize(
    "function, args, ops, groups",
    [
        (bias_gelu_reference, (X, BIAS), 10, ["add mul tanh"]),
        (swiglu_reference, (X, X + 1), 5, ["neg exp add div mul"]),
        (rmsnorm_reference, (X, BIAS), 6, ["mul mean add rsqrt"]),
        (lambda x, w: (torch.exp(x), torch.sin(w)), (X, WEIGHT), 2, ["exp", "sin"]),  # unrelated: nothing to join
        (lambda x: torch.softmax(x, -1).T.contiguous() + 1, (X,), 8, ["amax sub exp sum", "div permute clone add"]),
        (lambda x, w, b: bias_gelu_reference(x @ w, b), (X, WEIGHT, BIAS), 11, ["mm, a library's", "add mul tanh"]),
    ],
)
def test_what_shares_a_kernel(function, args, ops, groups):
    found = inductor.groups(function, *args)
    assert (found.ops, found.groups, found.problem) == (ops, groups, "")
    assert str(found) == f"{ops:2} ops -> {len(groups)}: {'; '.join(groups)}"


def test_what_a_forward_keeps():
    kept = {
        partition: inductor.saved_for_backward(bias_gelu_reference, X, BIAS, partition=partition)
        for partition in ("default_partition", "min_cut_rematerialization_partition")
    }
    assert len(kept["default_partition"].groups) == 5
    assert kept["min_cut_rematerialization_partition"].groups == ["primals_1", "tanh"]


def test_what_cannot_be_asked_is_said(monkeypatch):
    monkeypatch.setattr("torch._inductor.graph.GraphLowering.codegen", None)
    assert str(inductor.groups(bias_gelu_reference, X, BIAS)).startswith(
        "This PyTorch does not let its compiler be asked"
    )
    found = inductor.saved_for_backward(bias_gelu_reference, X, BIAS, partition="moved")
    assert str(found) == "This PyTorch does not let its partitioner be asked (AttributeError)."
    monkeypatch.setattr("torch._inductor.compile_fx.compile_fx", None)
    assert str(inductor.after_patterns(attention, *torch.randn(3, 1, 2, 64, 64))).startswith(
        "This PyTorch does not let"
    )


def attention(q, k, v, cap=None):
    scores = q @ k.mT / 8
    scores = scores if cap is None else cap * torch.tanh(scores / cap)
    return torch.softmax(scores, dim=-1) @ v


def test_attention_that_inductor_knows_becomes_a_library_call():
    q, k, v = torch.randn(3, 1, 2, 64, 64)
    plain = inductor.after_patterns(attention, q, k, v)
    assert plain.problem == "" and len(plain.groups) == 1 and "attention" in plain.groups[0]
    capped = inductor.after_patterns(attention, q, k, v, 20.0)
    assert capped.groups == ["bmm", "tanh", "exp", "bmm"]
