"""Work that depends on metadata alone is done once."""

import pytest
import torch

from instruments import backend
from kernels.shared.metadata import by_metadata


@pytest.fixture
def counted(monkeypatch):
    """A function of a tensor and an option, and how often it ran."""
    monkeypatch.setattr(backend, "redirects", lambda: False)
    calls = []

    @by_metadata
    def plan(x, causal=False):
        calls.append(x.shape)
        if x.dim() != 2:
            raise ValueError("x: expected 2 dimensions")
        return x.shape[0], causal

    return plan, calls


def test_the_same_metadata_is_looked_at_once(counted):
    plan, calls = counted
    assert plan(torch.ones(2, 3)) == plan(torch.zeros(2, 3)) == (2, False) and len(calls) == 1


@pytest.mark.parametrize(
    "other",
    [
        (torch.ones(3, 2),),
        (torch.ones(3, 2).T,),
        (torch.ones(2, 3, dtype=torch.float64),),
        (torch.ones(2, 3, requires_grad=True),),
        (torch.ones(7)[1:].view(2, 3),),
        (torch.ones(2, 3), False),
        (torch.ones(2, 3), 0),
        (torch.ones(2, 3, device="meta"),),
    ],
    ids=str,
)
def test_other_metadata_is_looked_at_again(counted, other):
    plan, calls = counted
    plan(torch.ones(2, 3))
    plan(*other)
    assert len(calls) == 2


def test_an_error_is_raised_each_time(counted):
    plan, calls = counted
    for _ in range(2):
        with pytest.raises(ValueError, match="expected 2 dimensions"):
            plan(torch.ones(2))
    assert len(calls) == 2


def test_with_and_without_gradients_and_redirected(counted, monkeypatch):
    plan, calls = counted
    x = torch.ones(2, 3, requires_grad=True)
    plan(x)
    with torch.no_grad():
        plan(x)
    assert len(calls) == 2
    monkeypatch.setattr(backend, "redirects", lambda: True)
    plan(x)
    plan(x)
    assert len(calls) == 4
