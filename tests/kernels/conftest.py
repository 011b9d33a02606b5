import pytest
import torch

from kernels.shared import metadata


@pytest.fixture(autouse=True)
def forgotten():
    """A test may change tables and devices; on a GPU its plans would be kept, and those of the tests before it."""
    metadata.forget()
    yield
    metadata.forget()


@pytest.fixture(autouse=True)
def poisoned(monkeypatch):
    """Memory handed out by torch.empty and torch.empty_like is full of NaN, so that an element never written shows."""
    for name in ("empty", "empty_like"):
        original = getattr(torch, name)

        def filled(*args, _original=original, **kwargs):
            tensor = _original(*args, **kwargs)
            return tensor.fill_(float("nan")) if tensor.is_floating_point() else tensor

        monkeypatch.setattr(torch, name, filled)
