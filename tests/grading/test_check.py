"""`check` in a notebook: what it prints and shows, and how it tells nbgrader."""

import pytest
import torch
from grading_tools import answers, edited, module_of, stub

from grading import check, inputs, notebook
from grading.card import Card
from grading.tasks import PUBLIC_SEED, Inputs, task
from widgets import Panel

SOLUTION = {**answers("05_rmsnorm"), **answers("05b_layernorm")}
RIGHT, WRONG = SOLUTION["05b.1"], SOLUTION["05b.1"].replace("apart * count_b / count", "apart / 2")


def checked(task_id, source):
    """Call `check` as a cell of a notebook would: from the module in which the answer is defined."""
    scope = vars(module_of(source))
    scope["check"] = check
    exec(f"check({task_id!r}, {', '.join(task(task_id).functions)})", scope)


def test_a_right_answer_is_told_what_was_proved_and_what_is_pending(capsys):
    checked("05.3", SOLUTION["05.3"])
    printed = capsys.readouterr().out
    cases = len(task("05.3").cases)
    for words in (f"{cases} cases right", "no access out of bounds", "public seed", "this exercise so far"):
        assert words in printed, printed
    if not torch.cuda.is_available():
        assert "pending, 4 of 5 points, 1 pending" in printed and "needs a GPU" in printed


def test_what_only_shows_a_check_is_not_kept(monkeypatch, capsys):
    kept = []
    monkeypatch.setattr(notebook.diary, "keep_task", lambda *points: kept.append(points))
    wrong = lambda bytes_per_element, bandwidth, launch_us: 1.0  # noqa: E731
    check("01.3", wrong, keep=False)
    printed = capsys.readouterr().out
    assert not kept and "01.3" in printed and "this exercise so far" not in printed
    check("01.3", wrong)
    assert [task_id for task_id, _ in kept] == ["01.3"] and "this exercise so far" in capsys.readouterr().out


def test_a_solution_earns_a_learner_nothing(monkeypatch, tmp_path):
    kept = []
    monkeypatch.setattr(notebook.diary, "keep_task", lambda *points: kept.append(points))
    (tmp_path / "solutions").mkdir()
    monkeypatch.chdir(tmp_path / "solutions")
    check("01.3", lambda bytes_per_element, bandwidth, launch_us: 1.0)
    assert not kept


def test_a_wrong_answer_gets_its_hint_and_a_stub_none(capsys):
    checked("05b.1", WRONG)
    printed = capsys.readouterr().out
    assert "failed, 0 of 3 points" in printed and "averaged without their counts" in printed
    checked("05b.1", stub("05b.1"))
    assert capsys.readouterr().out == "05b.1  Merge two parts of a row: not attempted, 0 of 3 points\n"


def test_a_stub_among_several_functions_is_named(capsys):
    checked("05.1", f"{SOLUTION['05.1']}\n\n\ndef two_pass_bytes(*sizes):\n    raise NotImplementedError()\n")
    printed = capsys.readouterr().out
    assert "failed, 0 of 3" in printed and "In `two_pass_bytes`: " in printed and "is still the stub" in printed


@pytest.fixture
def ipython(monkeypatch):
    """A shell that runs cells as a notebook's kernel does."""
    import sys

    import IPython
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets.config import Config

    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    monkeypatch.setattr("builtins.get_ipython", None, raising=False)
    shell = InteractiveShell(config=Config(HistoryManager={"hist_file": ":memory:"}))
    monkeypatch.setattr(IPython, "get_ipython", lambda: shell)
    return lambda source: shell.run_cell(source, store_history=True)


def test_an_answer_that_did_not_compile_is_not_called_untouched(ipython, capsys):
    """The stub, or an older answer, is still defined then."""
    check_cell = "from grading import check\ncheck('05b.1', merge)"

    def printed(*cells):
        for cell in cells:
            ipython(cell)
        return capsys.readouterr().out

    broken = edited(RIGHT, ("apart**2 *", "apart**2 * * "))
    assert "not attempted" in printed(stub("05b.1"), check_cell)
    for before in ("", RIGHT):
        words = printed(before, broken, check_cell).split("05b.1  Merge")[1]
        assert "failed, 0 of 3" in words and "did not run: invalid syntax (line 7 of the cell)" in words
    assert "passed, 3 of 3" in printed(f"%time None\n{RIGHT}", check_cell)


# ---------------------------------------------------------------- what a notebook shows


def displayed(monkeypatch, source) -> list:
    """What `check` of an answer to 05.3 displays in a notebook."""
    from IPython import display

    shown = []
    monkeypatch.setattr(notebook, "in_notebook", lambda: True)
    monkeypatch.setattr(display, "display", shown.append)
    checked("05.3", source)
    return shown


STORE = "tl.store(y_ptr + row * cols + columns, y, mask=inside)"


@pytest.mark.parametrize(
    "change, words",
    [
        (("triton.next_power_of_2(cols)", "1024"), "no program stores y[0, 1024]. This store is nearest."),
        ((STORE, f"{STORE[:-1]} & (row < 2))"), "no program stores y[2, 0]"),
        ((", mask=inside)\n    tl.store(largest", ")\n    tl.store(largest"), "OUTSIDE the tensor"),
    ],
)
def test_where_a_part_is_wrong_a_panel_shows_it(change, words, monkeypatch):
    card, panel = displayed(monkeypatch, edited(SOLUTION["05.3"], change))
    assert isinstance(card, Card) and isinstance(panel, Panel) and words in panel.alt


@pytest.mark.parametrize("change", [("1 + weight", "weight"), ("return y, largest", "return y")])
def test_what_is_wrong_everywhere_or_in_form_opens_no_panel(change, monkeypatch):
    (card,) = displayed(monkeypatch, edited(SOLUTION["05.3"], change))
    assert card.verdict.status == "failed"


def test_nbgrader_learns_of_a_failure_by_an_exception(monkeypatch):
    monkeypatch.setenv("NBGRADER_EXECUTION", "validate")
    checked("05b.1", RIGHT)
    for source in (WRONG, stub("05b.1")):
        with pytest.raises(AssertionError):
            checked("05b.1", source)


def test_inputs_are_those_of_a_case(monkeypatch):
    the_task = task("05.3")
    for number, case in enumerate(the_task.cases):
        expected = Inputs(the_task, PUBLIC_SEED).arguments(number)
        x, weight, eps = inputs("05.3", case.name)
        assert (tuple(x.shape), x.stride(), eps) == (expected["x"].shape, expected["x"].stride, expected["eps"])
        assert torch.equal(x.double().cpu(), torch.from_numpy(expected["x"].values))
    with pytest.raises(ValueError, match="inputs: 05.3 has no case 'x', expected one of: .*; "):
        inputs("05.3", "x")
    monkeypatch.setattr(notebook.child, "load_arguments", lambda forms: {"x": len(forms), "eps": 2})
    assert inputs("05.3", "timed") == (3, 2)


def test_wrong_calls_are_explained():
    with pytest.raises(ValueError, match="05.1 takes 3 function"):
        check("05.1", len)
    with pytest.raises(ValueError, match="05.99.*05.1"):
        check("05.99", len)
