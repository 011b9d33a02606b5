"""`check` in a notebook: what it prints, and how it tells nbgrader."""

import re

import pytest
import torch
from grading_tools import answers, edited, module_of

from grading import check, notebook, sample
from grading.notebook import offer
from grading.tasks import exercise_with, exercises, task, tasks_of

SOLUTION = answers("05_rmsnorm")


def checked(task, source, *names):
    """Call `check` as a cell of a notebook would: from the module in which the answer is defined."""
    module = module_of(source)
    scope = vars(module)
    scope["check"] = check
    exec(f"check({task!r}, {', '.join(names)})", scope)


def test_a_right_answer_is_told_what_was_proved_and_what_waits(capsys):
    checked("05.3", SOLUTION["05.3"], "gemma_norm")
    said = capsys.readouterr().out
    cases = len(task("05.3").cases)
    for words in (
        "05.3  The resident kernel",
        "4 of 5 points, 1 pending",
        f"{cases} cases right",
        "no access out of bounds",
        "needs a GPU",
        "public seed",
        'portrait(gemma_norm, *sample("05.3"), like="rmsnorm")',
    ):
        assert words in said, said


def test_a_wrong_answer_gets_its_hint(capsys):
    checked("05.3", edited(SOLUTION["05.3"], ("triton.next_power_of_2(cols)", "1024")), "gemma_norm")
    said = capsys.readouterr().out
    assert "failed, 0 of 5 points" in said and "columns from 1,024 on of y are never written" in said


def test_an_untouched_task_passes_quietly(capsys):
    checked("05.2", "def tile_loop(x, weight, eps, block):\n    raise NotImplementedError()", "tile_loop")
    assert capsys.readouterr().out == "05.2  The tile loop, in PyTorch: not attempted, 0 of 3 points\n"


def test_a_stub_among_several_functions_is_named(capsys):
    """A task is not untouched because its first function is, and what is written is judged beside the stub."""
    names = ("eager_bytes", "two_pass_bytes", "resident_bytes")
    for name in (names[0], names[2]):
        stub = f"\n\n\ndef {name}(*sizes):\n    raise NotImplementedError()\n"
        checked("05.1", SOLUTION["05.1"] + stub, *names)
        said = capsys.readouterr().out
        assert (
            "failed, 0 of 3" in said and f"hint: {name} is still the stub; this task needs all three functions." in said
        )
    checked("05.1", SOLUTION["05.1"] + stub + "\n\ndef eager_bytes(*sizes):\n    return 1\n", *names)
    said = capsys.readouterr().out
    assert (
        'Case "eager_bytes' in said and "resident_bytes is still the stub" in said and "2 of 6 cases are right" in said
    )
    checked("05.1", "".join(f"def {name}(*sizes):\n    raise NotImplementedError()\n" for name in names), *names)
    assert "not attempted" in capsys.readouterr().out


def test_nbgrader_learns_of_a_failure_by_an_exception(monkeypatch, capsys):
    monkeypatch.setenv("NBGRADER_EXECUTION", "validate")
    checked("05.2", SOLUTION["05.2"], "tile_loop")
    with pytest.raises(AssertionError):
        checked("05.2", "def tile_loop(x, weight, eps, block):\n    raise NotImplementedError()", "tile_loop")


KERNEL_TASKS = [task for exercise in sorted(exercises()) for task in tasks_of(exercise) if task.kernel]


@pytest.mark.parametrize("task", KERNEL_TASKS, ids=lambda task: task.id)
def test_the_portrait_that_a_pass_offers_can_be_drawn(task):
    """As a learner would have it, from the cell that the card shows; its model is of the very bytes of the answer."""
    scope = vars(module_of(answers(exercise_with(task.id))[task.id]))
    *imports, shown = offer(task).split("; ")
    for line in imports:
        exec(line, scope)
    sentence = eval(shown, scope).sentence
    assert next(iter(task.functions)) in shown and "requested " in sentence
    if task.like:
        assert f"predicted for {task.like} 1.00" in sentence and "recorded on the H200" in sentence
        unique = float(re.search(r"unique ([\d.]+) times", sentence)[1])
        assert 0.99 < unique < 1.01, "the model fits the task"


def test_a_right_plain_answer_is_offered_none(capsys):
    checked("05.2", SOLUTION["05.2"], "tile_loop")
    assert "portrait" not in capsys.readouterr().out


def test_a_sample_is_the_first_case_or_the_timed_call(monkeypatch):
    x, weight, eps = sample("05.3")
    assert (x.shape, x.dtype, weight.shape, eps) == ((4, 256), torch.float32, (256,), 1e-6)
    assert torch.equal(x, sample("05.3")[0]), "the same each time"
    assert sample("05.4")[-1] is torch.float32
    with pytest.raises(ValueError, match="timed: 02.2 has no timed call"):
        sample("02.2", timed=True)
    monkeypatch.setattr(notebook.backend, "device", lambda: "cuda")
    assert 'portrait(gemma_norm, *sample("05.3", timed=True), counted=sample("05.3")' in offer(task("05.3"))
    assert "timed" not in offer(task("02.2")) and not offer(task("05.2"))


def test_wrong_calls_are_explained():
    with pytest.raises(ValueError, match="05.1 takes 3 function"):
        check("05.1", len)
    with pytest.raises(ValueError, match="05.99"):
        check("05.99", len)


def test_a_kernel_from_elsewhere_does_not_count(capsys):
    source = SOLUTION["05.3"].split("def gemma_norm(")[0]
    other = module_of(source).__name__
    answer = (
        f"import sys\ngemma_norm_kernel = sys.modules[{other!r}].gemma_norm_kernel\n\n\ndef gemma_norm("
        + SOLUTION["05.3"].split("def gemma_norm(")[1]
    )
    checked("05.3", answer, "gemma_norm")
    assert "comes from outside your answer" in capsys.readouterr().out
