import pytest
import torch

from instruments import backend
from kernels.shared.arguments import check_eps, check_tensor, check_width, wants_grad


def test_what_is_right_passes():
    x = torch.ones(2, 3, device=backend.device())
    check_tensor("x", x, shape=x.shape, like=x)
    check_tensor("x", x, shape=(2, 3), dtypes=(torch.float32,))
    check_width("x", x, 3)
    check_width("x", x[:, :0], 3)
    for eps in (0, 1e-6, 1):
        check_eps(eps)


def test_a_cpu_tensor_where_kernels_are_compiled_is_explained(monkeypatch):
    monkeypatch.setattr(backend, "mode", lambda: "compiled")
    with pytest.raises(ValueError, match=r"x: got device cpu, expected a CUDA tensor .*with backend.interpret\(\)"):
        check_tensor("x", torch.ones(2))


@pytest.mark.parametrize("eps", [-1, float("nan"), None, "0", torch.tensor(1.0), 1j])
def test_eps(eps):
    with pytest.raises(ValueError, match="^eps: got .*, expected a number of at least 0"):
        check_eps(eps)


def test_wants_grad():
    x, w = torch.ones(2), torch.ones(2, requires_grad=True)
    assert wants_grad(x, w) and not wants_grad(x) and not wants_grad(x, None)
    with torch.no_grad():
        assert not wants_grad(x, w)
