"""Work that depends on metadata alone is done once."""

import dataclasses

import pytest
import torch

from instruments import backend
from kernels.quantization.quantize import quantize
from kernels.quantization.schemes import SCHEMES
from kernels.shared import metadata
from kernels.shared.metadata import by_metadata

pytestmark = pytest.mark.each  # every set takes milliseconds and is another part of the key


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
        (torch.ones(2, 3, device="meta"),),
    ],
    ids=str,
)
def test_other_metadata_is_looked_at_again(counted, other):
    plan, calls = counted
    plan(torch.ones(2, 3))
    plan(*other)
    assert len(calls) == 2


def test_equal_options_of_two_types_are_two(counted):
    plan, calls = counted
    assert [plan(torch.ones(2, 3), causal) for causal in (False, 0)] == [(2, False), (2, 0)] and len(calls) == 2


@pytest.mark.parametrize("part", ["codes", "scales", "tensor_scale", "scheme"])
def test_a_quantized_tensor_is_known_by_each_of_its_parts(part):
    q = quantize(torch.ones(4, 32, device=backend.device()), "nvfp4")
    other = SCHEMES["mxfp4"] if part == "scheme" else torch.empty_like(getattr(q, part), device="meta")
    assert metadata.metadata(q) == metadata.metadata(dataclasses.replace(q))
    assert metadata.metadata(q) != metadata.metadata(dataclasses.replace(q, **{part: other}))


def test_results_that_are_kept_have_a_limit(counted, monkeypatch):
    plan, calls = counted
    monkeypatch.setattr(metadata, "MOST", 2)
    for rows in (1, 2, 3, 1):  # the third forgets the first two
        plan(torch.ones(rows, 3))
    assert len(calls) == 4


def test_results_can_be_forgotten(counted):
    plan, calls = counted
    plan(torch.ones(2, 3))
    metadata.forget()
    plan(torch.ones(2, 3))
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
