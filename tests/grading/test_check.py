"""`check` in a notebook: what it prints and shows, and how it tells nbgrader."""

import re

import pytest
import torch
from grading_tools import answers, edited, module_of

from grading import check, inputs, notebook
from grading.arrays import STORAGE
from grading.card import Card
from grading.record import Verdict
from grading.tasks import PUBLIC_SEED, Given, exercise_with, exercises, task, tasks_of
from widgets import Panel, portrait, watch

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
        "its bytes and times: portrait(gemma_norm, *inputs('05.3', '4 x 256 fp32, one tile'), like='rmsnorm'), from",
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


STORE = "tl.store(y_ptr + row * cols + columns, x * scale * (1 + weight), mask=inside)"
#: {what is wrong with the answer to 05.3: (edits, `at` in the call to make, words of the panel)}
SHOWN = {
    "columns never written": (
        [("triton.next_power_of_2(cols)", "1024")],
        "('y', (0, 1024))",
        "No program stores y[0, 1024]: this store comes nearest.",
    ),
    "a tail": ([("(1 + weight)", "(1 + weight) * (columns < 200)")], "('y', (", "] is stored here. Program"),
    "rows": (
        [(STORE, f"{STORE[:-1]} & (row < 2))")],
        "('y', (2, 0))",
        "No program stores y[2, 0]: here its lane is masked off.",
    ),
    "outside": ([(", mask=inside)\n    tl.store(scale", ")\n    tl.store(scale")], "'outside'", "OUTSIDE the tensor"),
}


def displayed(monkeypatch, source) -> list:
    """What `check("05.3", gemma_norm)` displays in a notebook."""
    from IPython import display

    shown = []
    monkeypatch.setattr(notebook, "in_notebook", lambda: True)
    monkeypatch.setattr(display, "display", shown.append)
    checked("05.3", source, "gemma_norm")
    return shown


@pytest.mark.parametrize("name", SHOWN)
def test_where_a_part_is_wrong_the_report_opens_watch_on_it(name, capsys, monkeypatch):
    changes, at, words = SHOWN[name]
    source = edited(SOLUTION["05.3"], *changes)
    checked("05.3", source, "gemma_norm")
    call = re.search(r"watch it: (watch\(gemma_norm, .*\)), from widgets and grading", capsys.readouterr().out)[1]
    assert at in call
    by_hand = eval(call, {"watch": watch, "inputs": inputs, "gemma_norm": module_of(source).gemma_norm})
    card, panel = displayed(monkeypatch, source)
    assert isinstance(card, Card) and "Watch it: " in card._repr_html_()
    assert isinstance(panel, Panel) and words in panel.sentence and panel.sentence == by_hand.sentence

    monkeypatch.setenv("NBGRADER_EXECUTION", "validate")  # a run that grades has no reader
    with pytest.raises(AssertionError):
        displayed(monkeypatch, source)


@pytest.mark.parametrize(
    "change", [("1 + weight", "weight"), ("* scale * (1", "* 2 * (1"), ("return y, scale", "return y")]
)
def test_what_is_wrong_everywhere_or_in_form_opens_nothing(change, monkeypatch):
    (card,) = displayed(monkeypatch, edited(SOLUTION["05.3"], change))
    assert card.verdict.status == "failed" and "atch it" not in repr(card) + card._repr_html_()


def test_a_panel_that_cannot_be_made_leaves_the_card(monkeypatch):
    source = edited(SOLUTION["05.3"], *SHOWN["rows"][0])
    monkeypatch.setattr(notebook, "inputs", lambda *_: 1 / 0)
    (card,) = displayed(monkeypatch, source)
    assert "Watch it: " in card._repr_html_()


def test_inputs_are_those_of_a_case():
    the_task = task("05.3")
    for number, case in enumerate(the_task.cases):
        given = Given(the_task, PUBLIC_SEED).arguments(number)
        x, weight, eps = inputs("05.3", case.name)
        assert (tuple(x.shape), x.stride(), eps) == (given["x"].shape, given["x"].stride, given["eps"])
        assert x.element_size() == STORAGE[given["x"].dtype].itemsize and tuple(weight.shape) == (x.shape[1],)
        assert torch.equal(x.double().cpu(), torch.from_numpy(given["x"].values))
    assert inputs("05.3", case.name)[0] is not x
    with pytest.raises(ValueError, match="inputs: 05.3 has no case 'x', expected one of: .*; "):
        inputs("05.3", "x")


def test_nbgrader_learns_of_a_failure_by_an_exception(monkeypatch, capsys):
    monkeypatch.setenv("NBGRADER_EXECUTION", "validate")
    checked("05.2", SOLUTION["05.2"], "tile_loop")
    with pytest.raises(AssertionError):
        checked("05.2", "def tile_loop(x, weight, eps, block):\n    raise NotImplementedError()", "tile_loop")


KERNEL_TASKS = [task for exercise in sorted(exercises()) for task in tasks_of(exercise) if task.kernel]


def portrait_call(task, status="passed"):
    found = Verdict(id=task.id, title=task.title, status=status, points=0, pending_points=0, max_points=task.max_points)
    return notebook.portrait_call(task, found)


@pytest.mark.parametrize("task", KERNEL_TASKS, ids=lambda task: task.id)
def test_the_portrait_that_a_pass_names_can_be_drawn(task):
    """With the learner's kernel in it; its model is of the very bytes of the answer."""
    scope = {**vars(module_of(answers(exercise_with(task.id))[task.id])), "portrait": portrait, "inputs": inputs}
    call = portrait_call(task)
    sentence = eval(call.removesuffix(", from widgets and grading"), scope).sentence
    assert next(iter(task.functions)) in call and "requested " in sentence
    if task.like:
        assert f"predicted for {task.like} 1.00" in sentence and "recorded on the H200" in sentence
        unique = float(re.search(r"unique ([\d.]+) times", sentence)[1])
        assert 0.99 < unique < 1.01, "the model fits the task"


def test_a_portrait_is_named_for_right_kernels_alone(monkeypatch):
    kernel, plain = task("05.3"), task("05.2")
    for status in ("failed", "not_attempted", "ungraded"):
        assert not portrait_call(kernel, status)
    assert portrait_call(kernel, "pending") and not portrait_call(plain)
    monkeypatch.setattr(notebook.backend, "device", lambda: "cuda")
    small = "inputs('05.3', '4 x 256 fp32, one tile')"
    assert f"(gemma_norm, *inputs('05.3', 'timed'), counted={small}, like='rmsnorm')" in portrait_call(kernel)
    assert "timed" not in portrait_call(task("02.2")), "no GPU times that one"


def test_inputs_of_the_timed_call(monkeypatch):
    made = []
    monkeypatch.setattr(notebook.probe, "random_arguments", lambda spec: made.append(spec) or {"x": 1, "eps": 2})
    assert inputs("05.3", "timed") == (1, 2) and made[0]["bytes"] == task("05.3").speed.bytes
    with pytest.raises(ValueError, match="02.2 has no case 'timed'"):
        inputs("02.2", "timed")


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
