"""What torch does while a function runs is counted by its largest operand, wherever it does it."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch

from instruments.operations import watched

pytestmark = pytest.mark.each  # every set takes milliseconds, and most say something of their own


def done(function) -> dict:
    """What `function` makes torch do."""
    with watched() as operations:
        function()
    return operations.counts


X = torch.ones(4, 6)


@pytest.mark.parametrize(
    "function, expected",
    [
        (lambda: (X + 1, X[0] + 1), {"add": 24}),
        (lambda: X.sum(), {"sum": 24}),  # the operand, not the result
        (lambda: X[:1].expand(50, 6) * 1, {"mul": 300}),
        (lambda: (X.t(), X[1:3], X.view(-1), X.unsqueeze(0), X.expand(2, 4, 6)), {}),
        (lambda: X.clone().add_(1), {"clone": 24, "add_": 24}),
        (lambda: torch.stack([X, X]), {"stack": 48}),
        (lambda: X.tolist(), {"tolist": 24}),
        (lambda: X[0].numpy(), {"numpy": 6}),
        (lambda: sum(X[0].__array__()), {"array": 6}),
    ],
)
def test_an_operation_counts_by_its_largest_operand(function, expected):
    assert done(function) == expected


def test_a_thread_of_its_own_hides_nothing():
    def elsewhere():
        thread = threading.Thread(target=lambda: X.exp())
        thread.start()
        thread.join()

    assert done(elsewhere) == {"exp": 24} and done(lambda: None) == {}


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_what_torch_compiles_counts_too(backend):
    compiled = torch.compile(lambda x: (x.sin() + 1).relu_(), backend=backend)
    assert done(lambda: compiled(X)) == {"sin": 24, "add": 24, "relu_": 24}


@pytest.mark.parametrize(
    "function, expected",
    [
        (lambda: int(X[0, 0]), ["item"]),
        (lambda: X[X > 0], ["index"]),
        (lambda: torch.equal(X, X), ["equal"]),
        (lambda: X.nonzero(), ["nonzero"]),
        (lambda: f"{X}", ["format"]),
        (lambda: X[torch.tensor([1, 2])], []),
        (lambda: torch.where(X > 0, X, 0), []),
    ],
)
def test_what_the_host_waits_for_is_listed(function, expected):
    with watched() as operations:
        function()
    assert operations.read[:1] == expected


def test_writes_are_stamped_with_the_clock():
    x, y, now = torch.ones(4), torch.ones(4), [3]
    with watched(lambda: now[0]) as operations:
        x[1:].zero_()
        now[0] = 5
        torch.add(x, 1, out=y)
        y + 1
    assert operations.written == {x.untyped_storage().data_ptr(): 3, y.untyped_storage().data_ptr(): 5}


def test_watching_does_not_import_torchs_compiler():
    """It takes as long as torch itself, in every process."""
    watch = "from instruments.operations import *\nwith poisoned(), watched(): torch.empty(2)"
    code = f"import sys\n{watch}\nprint([name for name in sys.modules if name.startswith('torch._dynamo')])"
    assert subprocess.check_output([sys.executable, "-c", code], text=True, cwd=Path(__file__).parents[2]) == "[]\n"
