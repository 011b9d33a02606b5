"""`grade` from a file to a report: real notebooks under nbval, and everything that a submission can do wrong."""

import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec
import nbformat
import pytest
from grading_tools import answers, edited, handed_in, verdict_of
from nbformat.v4 import new_code_cell, new_notebook

from grading import cli, report, submission
from grading import tasks as declared
from grading.record import Submission
from grading.release import ROOT

SOLUTION, EXERCISE = ROOT / "solutions" / "05_rmsnorm.ipynb", ROOT / "exercises" / "05_rmsnorm.ipynb"
ANSWERS = answers("05_rmsnorm")


def graded(*paths, folder, options=()):
    status = cli.main([*map(str, paths), "--report", str(folder), *options])
    return status, json.loads((folder / "results.json").read_text(encoding="utf-8"))


def by_id(found):
    """{task id: its verdict as results.json holds it} of one submission."""
    found = msgspec.to_builtins(found) if isinstance(found, Submission) else found
    return {task["id"]: task for task in found["tasks"]}


def test_solution_and_exercise(tmp_path, capsys):
    renamed = tmp_path / "my homework (2).ipynb"
    renamed.write_bytes(SOLUTION.read_bytes())
    status, results = graded(renamed, EXERCISE, folder=tmp_path / "report")
    assert status == 0 and results["schema_version"] == report.SCHEMA_VERSION
    solved, untouched = results["submissions"]
    assert solved["path"] == renamed.name and solved["file"] == str(renamed) and solved["exercise"] == "05_rmsnorm"
    assert solved["points"] + solved["pending_points"] == solved["max_points"] == 25
    assert {task["status"] for task in solved["tasks"]} <= {"passed", "pending"}
    assert solved["points"] == sum(task["points"] for task in solved["tasks"])
    assert untouched["points"] == untouched["pending_points"] == 0 and untouched["max_points"] == 25
    assert [task["status"] for task in untouched["tasks"]] == ["not_attempted"] * 6
    for task in solved["tasks"] + untouched["tasks"]:
        assert {"id", "status", "points", "max_points", "hint", "pending_points"} <= set(task)
    page = (tmp_path / "report" / "index.html").read_text(encoding="utf-8")
    assert "not attempted" in page and "my homework (2)" in page
    assert sorted(p.name for p in (tmp_path / "report").iterdir()) == [
        "classroom.b64",
        "classroom.json",
        "grades.csv",
        "gradescope",
        "index.html",
        "junit.xml",
        "learners",
        "records",
        "results.json",
    ]
    said = capsys.readouterr()
    assert "25 points" in said.out and "2 graded" in said.out.splitlines()[-1] and str(tmp_path / "my") not in page
    assert "grading 2 submissions" in said.err and "2 of 2  " in said.err  # off a terminal, a line for each


def test_one_bad_task_costs_no_other(tmp_path):
    """A magic that does not exist, a hang, a missing mask, an exit, a syntax error, and a right answer at the end."""
    path = handed_in(
        "05_rmsnorm",
        {
            "05.1": "%%nosuchmagic\n" + ANSWERS["05.1"],
            "05.2": edited(ANSWERS["05.2"], ("    rows, cols = x.shape", "    while True: pass")),
            "05.3": edited(ANSWERS["05.3"], (", mask=inside, other=0.0", ""), (", mask=inside", "")),
            "05.4": edited(ANSWERS["05.4"], ("    rows, cols = x.shape", "    import os; os._exit(0)")),
            "05.5": edited(ANSWERS["05.5"], ("return y", "return y)")),
        },
        tmp_path / "trouble.ipynb",
    )
    status, results = graded(path, folder=tmp_path / "r", options=["--timeout", "20"])
    tasks = by_id(results["submissions"][0])
    assert status == 0 and [t["status"] for t in tasks.values()] == ["failed"] * 5 + ["passed"]
    for task, words in {
        "05.1": "UsageError",
        "05.2": "longer than 20 s",
        "05.3": "of one load)",
        "05.4": "process",
        "05.5": "SyntaxError",
    }.items():
        assert words in tasks[task]["hint"]
    assert results["submissions"][0]["points"] == 3
    in_the_notebook = verdict_of(
        "05.3", edited(ANSWERS["05.3"], (", mask=inside, other=0.0", ""), (", mask=inside", ""))
    )
    assert in_the_notebook.hint == tasks["05.3"]["hint"]


def test_an_answer_cell_without_end_is_called_that(tmp_path):
    """Whether the loop stands before the function, which then does not exist, or behind it, when it works."""
    path = handed_in(
        "05_rmsnorm",
        {
            **dict.fromkeys(ANSWERS, "pass"),
            "05.1": ANSWERS["05.1"] + "\nwhile True: pass",
            "05.2": "while True: pass\n" + ANSWERS["05.2"],
        },
        tmp_path / "loops.ipynb",
    )
    tasks = by_id(submission.grade(path, 10))
    for task in ("05.1", "05.2"):
        assert tasks[task]["status"] == "failed"
        assert "did not end within 10 s. A loop at its top level" in tasks[task]["hint"]
    assert "gemma_norm does not exist" in tasks["05.3"]["hint"]


def test_answers_that_attack_the_run_do_not_stop_it(tmp_path, monkeypatch):
    """Swallowed interrupts, floods, forks that outlive their parent, forbidden imports, and a helper left elsewhere."""
    fork = "import os, time\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(600)\n"
    path = handed_in(
        "05_rmsnorm",
        {
            "05.1": "def eager_bytes(*sizes):\n    while True:\n        try:\n            while True: pass\n"
            "        except BaseException: pass\ntwo_pass_bytes = resident_bytes = eager_bytes",
            "05.2": "while True: print('x' * 10_000)",
            "05.3": fork + ANSWERS["05.3"],
            "05.4": "from kernels.rmsnorm import rmsnorm\ndef wide_norm(x, w, e, d): return rmsnorm(x, w + 1, e).to(d)",
            "05.5": "get_ipython()._showtraceback = lambda *a: None\n"
            + edited(ANSWERS["05.5"], ("(1 + weight)", "weight")),
            "05.6": "helper()\n" + ANSWERS["05.6"],
        },
        tmp_path / "attack.ipynb",
    )
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    status, results = graded(path, folder=tmp_path / "r", options=["--timeout", "20"])
    tasks = by_id(results["submissions"][0])
    assert status == 0 and [t["status"] for t in tasks.values()] == [
        "failed",
        "failed",
        "pending",
        "failed",
        "failed",
        "failed",
    ]
    for task, words in {
        "05.1": "longer than 20 s",
        "05.2": "printed more",
        "05.4": "write the kernel",
        "05.5": "1 + weight",
        "05.6": "helper",
    }.items():
        assert words in tasks[task]["hint"], tasks[task]
    assert not alive(tmp_path)


def alive(folder) -> list:
    """Processes of runs whose temporary folders lie in `folder`."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and f"HOME={folder}/".encode() in (entry / "environ").read_bytes():
                found.append(entry.name)
        except OSError:
            continue
    return found


def test_the_kernel_gets_no_seed_no_grader_and_a_clean_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("SECRET_OF_THE_GRADER", "1")
    look = (
        "import os, sys, importlib.util\n"
        "assert 'SECRET_OF_THE_GRADER' not in os.environ\n"
        "for name in ('judge', 'tasks', 'cases', 'diagnose', 'submission'):\n"
        "    assert not importlib.util.find_spec(f'grading.{name}'), name\n"
        f"assert {str(ROOT)!r} not in sys.path\n"
        "assert os.environ['HOME'].startswith(os.getcwd())\n"
    )
    path = handed_in(
        "05_rmsnorm", {**dict.fromkeys(ANSWERS, "pass"), "05.1": look + ANSWERS["05.1"]}, tmp_path / "a.ipynb"
    )
    tasks = by_id(submission.grade(path, 20))
    assert tasks["05.1"]["status"] == "passed", tasks["05.1"]["hint"]
    assert tasks["05.3"]["status"] == "failed" and "gemma_norm" in tasks["05.3"]["hint"]


# ---------------------------------------------------------------- wrong use, and damage


def foreign(tmp_path):
    nbformat.write(new_notebook(cells=[new_code_cell("1 + 1")]), tmp_path / "foreign.ipynb")
    return tmp_path / "foreign.ipynb"


def unknown(tmp_path):
    nbformat.write(new_notebook(metadata={"bytes_first": {"exercise": "99_none"}}), tmp_path / "unknown.ipynb")
    return tmp_path / "unknown.ipynb"


def written(name, content):

    def make(tmp_path):
        (tmp_path / name).write_bytes(content)
        return tmp_path / name

    return make


@pytest.mark.parametrize(
    "make, words",
    [
        (lambda t: t / "absent.ipynb", "no such file"),
        (lambda t: t, "no notebook in this folder"),
        (foreign, "not an exercise of this course"),
        (unknown, "'99_none' is unknown"),
        (written("a.ipynb", b""), "damaged"),
        (written("a.ipynb", b"\x89PNG\x00\xff"), "not text"),
        (written("a.ipynb", SOLUTION.read_bytes()[:5000]), "damaged"),
        (written("a.ipynb", b"[1, 2]"), "not a notebook"),
        (written("a.ipynb", b"{}"), "not a notebook"),
        (written("a.ipynb", b'{"cells": 3, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}'), "not a notebook"),
        (written("a.ipynb", b"[" * 100_000), "not a notebook"),
        (written("notes.txt", b"hello"), "damaged"),
    ],
)
def test_wrong_use_is_one_sentence_and_status_2(make, words, tmp_path, capsys):
    path = make(tmp_path)
    assert cli.main([str(path), "--report", str(tmp_path / "r")]) == 2
    said = capsys.readouterr().err
    assert words in said and said.startswith("grade: ") and said.count("\n") == 1 and "Traceback" not in said
    assert not (tmp_path / "r").exists()


def test_options_are_checked(tmp_path, capsys, monkeypatch):
    assert cli.main([str(EXERCISE), "--report", str(tmp_path / "r"), "--timeout", "0"]) == 2
    assert "--timeout" in capsys.readouterr().err
    (tmp_path / "file").write_text("")
    assert cli.main([str(EXERCISE), "--report", str(tmp_path / "file")]) == 2
    assert "--report: cannot write" in capsys.readouterr().err
    monkeypatch.setattr(cli, "gpu", lambda: False)
    assert cli.main([str(EXERCISE), "--report", str(tmp_path / "r"), "--require-gpu"]) == 2
    assert "no GPU" in capsys.readouterr().err


@pytest.mark.parametrize("missing", ["triton", "nbval"])
def test_a_missing_package_is_named(missing, tmp_path, capsys, monkeypatch):
    find = cli.importlib.util.find_spec
    monkeypatch.setattr(cli.importlib.util, "find_spec", lambda name: None if name == missing else find(name))
    assert cli.main([str(EXERCISE), "--report", str(tmp_path / "r")]) == 2
    assert missing in capsys.readouterr().err


def test_a_missing_exercise_is_named(tmp_path):
    with pytest.raises(submission.Missing, match="05_rmsnorm"):
        submission.pristine("05_rmsnorm", tmp_path)


def test_a_broken_file_in_a_folder_costs_the_others_nothing(tmp_path, capsys):
    folder = tmp_path / "class"
    (folder / ".ipynb_checkpoints").mkdir(parents=True)
    (folder / ".ipynb_checkpoints" / "old.ipynb").write_text("{")
    (folder / "a.ipynb").write_bytes(EXERCISE.read_bytes())
    (folder / "b.ipynb").write_text("{")
    status, results = graded(folder, folder=tmp_path / "r")
    first, second = results["submissions"]
    assert status == 1 and len(results["submissions"]) == 2
    assert first["max_points"] == 25 and second["tasks"] == [] and "damaged" in second["notes"][0]
    assert "not graded" in capsys.readouterr().out


def test_a_fault_of_the_grader_is_ungraded_and_no_zero(tmp_path, monkeypatch):
    finished = submission.jail.Finished(3, "no kernel could start", 0.0)
    monkeypatch.setattr(submission.Grading, "_run", lambda *a: (finished, []))
    found = submission.grade(SOLUTION, 5)
    assert {task.status for task in found.tasks} == {"ungraded"} and found.status == "ungraded"
    assert "no kernel could start" in found.tasks[0].hint


def broken_oracle(task):
    """The task with an oracle that raises."""

    def oracle(**arguments):
        raise ZeroDivisionError("of the oracle's own")

    oracle.results, oracle.in_place = next(iter(task.functions.values())).results, ()
    return dataclasses.replace(task, functions=dict.fromkeys(task.functions, oracle), slips=())


def broken_inputs(task, turns=1):
    """The task with a case whose inputs cannot be made, from the so-many-th turn on."""
    made, make = [], task.cases[0].make

    def breaking(rng):
        made.append(rng)
        if len(made) >= turns:
            raise ZeroDivisionError("of the case's own")
        return make(rng)

    return dataclasses.replace(task, cases=(dataclasses.replace(task.cases[0], make=breaking), *task.cases[1:]))


@pytest.mark.parametrize(
    "name, breaking",
    [
        ("05.2", broken_oracle),
        ("05.3", broken_oracle),
        ("05.3", broken_inputs),
        ("05.3", lambda task: broken_inputs(task, turns=3)),
    ],
    ids=("an oracle", "a kernel's oracle", "inputs", "inputs of the replay"),
)
def test_a_fault_of_one_tasks_checks_costs_no_other_a_point(name, breaking, tmp_path, monkeypatch):
    solved = {task: ANSWERS[task] for task in ("05.1", "05.2", "05.3")}
    path = handed_in("05_rmsnorm", solved, tmp_path / "a.ipynb", base="exercises")
    known = tuple(breaking(task) if task.id == name else task for task in declared.tasks_of("05_rmsnorm"))
    monkeypatch.setattr(submission, "tasks_of", lambda exercise: known)
    found = submission.grade(path, 60)
    assert found.status == "ungraded"
    for task in found.tasks:
        if task.id == name:
            assert (task.status, task.points) == ("ungraded", 0) and "ZeroDivisionError" in task.hint, task
        elif task.id in solved:
            assert task.points + task.pending_points == task.max_points, task


def test_a_full_disk_leaves_the_last_report(tmp_path, monkeypatch, capsys):
    status, results = graded(EXERCISE, folder=tmp_path / "r")
    before = {p: p.read_bytes() for p in (tmp_path / "r").rglob("*") if p.is_file()}

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(report.os, "fsync", full)
    assert cli.main([str(EXERCISE), "--report", str(tmp_path / "r")]) == 1
    assert "No space left" in capsys.readouterr().err
    assert {p: p.read_bytes() for p in (tmp_path / "r").rglob("*") if p.is_file()} == before


def test_an_interrupt_ends_the_run_and_writes_nothing(tmp_path):
    path = handed_in("05_rmsnorm", {"05.1": "import time; time.sleep(500)"}, tmp_path / "slow.ipynb")
    process = subprocess.Popen(
        [sys.executable, "-m", "grading.cli", str(path), "--report", str(tmp_path / "r")],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 300
    while not alive(tmp_path) and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=600)
    assert process.returncode == 1 and "interrupted" in said and "Traceback" not in said
    assert not (tmp_path / "r" / "results.json").exists()
    assert not alive(tmp_path)


@pytest.mark.parametrize(
    "constants",
    [
        None,
        "import math\nONE = tl.constexpr(math.sqrt(1.0))\nNONE = tl.constexpr(0.0)",
        "ONE, NONE = tl.constexpr(1.0), tl.constexpr(torch.finfo(torch.float32).tiny)",
    ],
)
def test_a_task_solved_after_one_that_was_skipped_keeps_its_points(constants, tmp_path):
    source = answers("05_rmsnorm")["05.3"]
    if constants:
        source = constants + "\n\n" + source.replace("(1 + weight)", "(ONE + NONE + weight)")
    path = handed_in("05_rmsnorm", {"05.3": source}, tmp_path / "a.ipynb", base="exercises")
    found = by_id(submission.grade(path, 60))
    assert found["05.3"]["points"] == 4, found["05.3"]
    assert all(task["status"] == "not_attempted" for name, task in found.items() if name != "05.3")


@pytest.mark.parametrize("before", ["raise ValueError('no')", "def eager_bytes(:", "import no_such"])
def test_a_task_solved_after_an_answer_that_raises_keeps_its_points(before, tmp_path):
    changes = {
        "05.1": before,
        "05.2": f"{before}\n" + ANSWERS["05.2"],
        "05.3": ANSWERS["05.3"],
        "05.6": ANSWERS["05.6"],
    }
    found = by_id(submission.grade(handed_in("05_rmsnorm", changes, tmp_path / "a.ipynb", base="exercises"), 60))
    assert [task["points"] for task in found.values()] == [0, 0, 4, 0, 0, 3], found
    assert [task["status"] for task in found.values()][:2] == ["failed", "failed"]


MIXED = {
    "right": {},
    "wrong": {
        "05.1": ANSWERS["05.1"] + "\n\nright = eager_bytes\n\n\n"
        "def eager_bytes(*sizes):\n    return right(*sizes) + 1\n",
        "05.2": edited(ANSWERS["05.2"], ("(1 + weight[", "(0 + weight[")),
        "05.3": edited(ANSWERS["05.3"], (", mask=inside, other=0.0", ""), (", mask=inside", "")),
        "05.4": edited(ANSWERS["05.4"], ("(1 + weight)", "weight")),
        "05.5": edited(ANSWERS["05.5"], ("triton.next_power_of_2(cols)", "1024")),
        "05.6": "def show_wrong(cols):\n    return 'tree', torch.ones(cols)",
    },
    "broken": {
        "05.1": "def eager_bytes(rows, cols, itemsize):\n    return None\n\n\n"
        "def two_pass_bytes(*a):\n    raise NotImplementedError()\n\n\nresident_bytes = eager_bytes",
        "05.2": "def tile_loop(x, weight, eps, block):\n    return x.nothing",
        "05.3": edited(ANSWERS["05.3"], ("tl.rsqrt(", "tl.nothing(")),
        "05.4": edited(ANSWERS["05.4"], ("    rows, cols = x.shape", "    rows, cols = x.shape\n    x = x * 1.0")),
        "05.5": edited(ANSWERS["05.5"], ("    return y", "    return x")),
        "05.6": "def show_wrong(cols):\n    raise NotImplementedError()\n",
    },
}


@pytest.mark.parametrize("changes", MIXED.values(), ids=MIXED)
def test_check_and_grade_say_the_same(changes, tmp_path):
    """With the same seed, word for word; but for the line of the cell, whose preamble is longer in the tests."""
    path = handed_in("05_rmsnorm", {**ANSWERS, **changes}, tmp_path / "a.ipynb")
    found = by_id(submission.grade(path, 60, seed=7))
    for task, source in {**ANSWERS, **changes}.items():
        source = "TILE = 64\n\n\n" + source if task == "05.6" else source  # which a given cell defines
        said = msgspec.to_builtins(verdict_of(task, source, 7))
        for one in (said, found[task]):
            one["hint"] = re.sub(r"line \d+ of", "line of", one["hint"])
            one["likeness"] = one["like_solution"] = None
        assert said == found[task]


def test_a_name_of_a_kernels_own_is_not_what_another_cell_calls_so(tmp_path):
    """`total` is a function of one answer and a number in the kernel of another."""
    published = answers("05_rmsnorm")
    first = f"def total(*sizes):\n    return sum(sizes)\n\n\n{published['05.1']}"
    record = submission.grade(
        handed_in("05_rmsnorm", {"05.1": first, "05.5": published["05.5"]}, tmp_path / "a.ipynb", base="exercises"), 60
    )
    assert {v.id: v.points for v in record.tasks if v.points} == {"05.1": 3, "05.5": 5}, record
