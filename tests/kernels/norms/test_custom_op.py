import pytest
import torch

from kernels.norms.custom_op import rmsnorm_op
from kernels.norms.rmsnorm import rmsnorm, rmsnorm_reference
from tests.kernels.tools import BF16, FP16, FP32, assert_close, randn

FORMS = [
    lambda dtype: (randn(5, 70, dtype=dtype), randn(70, dtype=dtype, seed=1)),
    lambda dtype: (randn(2, 3, 64, dtype=dtype).transpose(0, 1), randn(64, seed=1)),  # strided x, fp32 weight
    lambda dtype: (randn(0, 8, dtype=dtype), randn(8, dtype=dtype)),
]


@pytest.mark.parametrize("dtype", [FP32, FP16])
@pytest.mark.parametrize("form", range(len(FORMS)))
def test_pytorch_accepts_the_op(form, dtype):
    """Schema, fake results, autograd, and tracing with unknown sizes."""
    tensors = FORMS[form](dtype)
    torch.library.opcheck(rmsnorm_op, (*tensors, 1e-5))
    torch.library.opcheck(rmsnorm_op, tuple(t.clone().requires_grad_() for t in tensors))


@pytest.mark.parametrize("dtype", [BF16, FP32])
def test_results_and_gradients_are_rmsnorms(dtype):
    x, weight = (t.requires_grad_() for t in FORMS[0](dtype))
    dy = randn(5, 70, dtype=dtype, seed=2)
    y, again = rmsnorm_op(x, weight), rmsnorm(x, weight)
    assert torch.equal(y, again)
    for own, other in zip(
        torch.autograd.grad(y, (x, weight), dy), torch.autograd.grad(again, (x, weight), dy), strict=True
    ):
        assert torch.equal(own, other)
    assert_close(y.detach(), rmsnorm_reference(x.detach().double(), weight.detach().double()))


def test_a_compiled_model_has_one_graph_and_the_same_gradients():
    """Without the op, torch.compile would trace into the checks, the plan and the launch."""

    def model(norm):
        return lambda x, weight: (2 * norm(x * 3, weight) + x).sum()

    x, weight = (t.requires_grad_() for t in FORMS[0](FP32))
    torch._dynamo.reset()
    compiled = torch.compile(model(rmsnorm_op), fullgraph=True, backend="aot_eager")
    own = torch.autograd.grad(compiled(x, weight), (x, weight))
    plain = torch.autograd.grad(model(rmsnorm)(x, weight), (x, weight))
    for one, other in zip(own, plain, strict=True):
        assert torch.allclose(one, other, rtol=1e-5, atol=1e-6)
    torch._dynamo.reset()
    graphs = torch._dynamo.explain(model(rmsnorm_op))(x, weight)
    assert graphs.graph_count == 1 and graphs.graph_break_count == 0


def test_errors_are_rmsnorms():
    with pytest.raises(ValueError, match="^weight: "):
        rmsnorm_op(randn(2, 8), randn(7))
