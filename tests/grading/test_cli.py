"""The command: what it prints, its exit status, and one learner graded anew within a class's report."""

import json
import sys
from pathlib import Path

import pytest
from grading_tools import notebook

from grading import batch, cli, intake, report, sandbox
from instruments.release import ROOT


@pytest.fixture
def log(tmp_path, monkeypatch):
    """Grades by the fake worker; the file that names whom it graded."""
    worker = Path(__file__).with_name("fake_worker.py")
    monkeypatch.setattr(batch, "WORKER", [sys.executable, str(worker), str(tmp_path / "log")])
    monkeypatch.setattr(batch, "machine", lambda: ["", "limits"])
    return tmp_path / "log"


def grade(*words, place):
    """(exit status, {learner: record})."""
    status = cli.main([*map(str, words), "--report", str(place)])
    found = json.loads((place / "results.json").read_text()) if (place / "results.json").exists() else {}
    return status, {record["learner"]: record for record in found.get("submissions", ())}


def test_a_class_is_told_by_learner_and_notebook(log, tmp_path, capsys):
    for learner, word in {"ann": "a", "bob": "hint", "dora": "dies"}.items():
        notebook(tmp_path / "class" / learner / "homework.ipynb", word)
    (tmp_path / "class" / "kim").mkdir()
    (tmp_path / "class" / "roster.csv").write_text("")
    status, records = grade(tmp_path / "class", place=tmp_path / "r")
    assert status == 1
    assert {learner: record["status"] for learner, record in records.items()} == {
        "ann": "graded",
        "bob": "graded",
        "dora": "ungraded",
        "kim": "unreadable",
    }
    out, err = capsys.readouterr()
    assert "ann, 01_roofline: 0 of 2 points" in out and "left aside: roster.csv" in out
    assert r"01.1  failed        0 of 2  <b>the tail</b> \x1b[31m of `y`" in out and "\x1b" not in out + err
    assert "dora, dora/homework.ipynb: not graded (the grader failed (exit status 3" in out
    assert "\nkim: cannot be read (no notebook in it (it holds nothing))" in out
    assert out.splitlines()[-1] == "2 graded; 2 without a mark: dora, dora/homework.ipynb; kim"


def test_ones_own_work_is_told_by_notebook_and_has_a_total(log, tmp_path, monkeypatch, capsys):
    """All notebooks of work/ are one user's."""
    monkeypatch.setattr(intake, "ROOT", tmp_path)
    monkeypatch.setattr(intake.getpass, "getuser", lambda: "me")
    for name in ("01_roofline", "05_rmsnorm"):
        notebook(tmp_path / "work" / "exercises" / f"{name}.ipynb", name, name)
    status, _ = grade(tmp_path / "work", place=tmp_path / "r")
    out = capsys.readouterr().out
    assert status == 0 and out.splitlines()[-1].startswith("2 graded; in all 0 of 4 points")
    assert "me, 01_roofline: 0 of 2 points" in out and "me, 05_rmsnorm: 0 of 2 points" in out


@pytest.mark.parametrize("name", ["01_roofline_exercise.ipynb", "01_roofline.ipynb"])
def test_an_untouched_exercise_is_called_that(name, tmp_path, capsys):
    """By the real grader, which runs nothing of it; under the name of a notebook that was handed out before, too."""
    file = tmp_path / name
    file.write_bytes((ROOT / "exercises" / "01_roofline_exercise.ipynb").read_bytes())
    status, _ = grade(file, "--timeout", "20", place=tmp_path / "r")
    out = capsys.readouterr().out
    assert status == 0 and f"note: {intake.PRISTINE}" in out and "not attempted" not in out


@pytest.fixture
def graded_class(log, tmp_path):
    """A class's report of three learners, two of whom called their notebooks as they liked."""
    for learner, name in {"ann": "homework", "eve": "my homework", "joe": "01_roofline"}.items():
        notebook(tmp_path / "class" / learner / f"{name}.ipynb", learner)
    assert grade(tmp_path / "class", place=tmp_path / "r")[0] == 0
    log.unlink()
    return tmp_path / "r"


@pytest.mark.parametrize("given", ["class/eve", "class/eve/my homework.ipynb", "class/joe"])
def test_one_learner_is_graded_anew_within_a_class(given, graded_class, log, tmp_path):
    before = json.loads((graded_class / "results.json").read_text())["submissions"]
    learner = given.split("/")[1]
    status, records = grade(tmp_path / given, "--regrade", place=graded_class)
    assert status == 0 and log.read_text().split() == [learner]
    assert list(records) == ["ann", "eve", "joe"] and list(records.values()) == before
    assert sorted(path.stem for path in (graded_class / "learners").iterdir()) == ["ann", "eve", "joe"]


def test_a_new_file_replaces_the_learners_old_one(graded_class, log, tmp_path):
    (tmp_path / "class" / "eve" / "my homework.ipynb").unlink()
    notebook(tmp_path / "class" / "eve" / "second.ipynb", "eve again")
    _, records = grade(tmp_path / "class" / "eve", "--regrade", place=graded_class)
    assert list(records) == ["ann", "eve", "joe"] and records["eve"]["path"] == "eve/second.ipynb"


def test_a_class_s_report_is_not_replaced_by_accident(graded_class, tmp_path, capsys):
    before = {path: path.read_bytes() for path in graded_class.rglob("*") if path.is_file()}
    status, _ = grade(tmp_path / "class" / "eve", place=graded_class)
    assert status == 2 and {path: path.read_bytes() for path in before} == before
    said = capsys.readouterr().err
    assert "3 submissions, and 2 of them (ann, ...)" in said and "--regrade" in said


def test_a_report_of_one_may_go(log, tmp_path):
    for name in "ab":
        status, records = grade(notebook(tmp_path / f"{name}.ipynb", name), place=tmp_path / "r")
        assert status == 0 and list(records) == [name]


@pytest.mark.parametrize(
    "words, said",
    [
        (["absent.ipynb"], "no such file"),
        (["empty"], "no notebook in this folder"),
        (["bad.ipynb"], "damaged, or not JSON"),
        (["good.ipynb", "--timeout", "0"], "--timeout: got 0"),
        (["good.ipynb", "--jobs", "-1"], "--jobs: got -1"),
        (["good.ipynb", "--seed", "-1"], "--seed: got -1"),
        (["good.ipynb", "--roster", "twice.csv"], "--roster twice.csv, line 2: 'ann' is there already"),
        (["good.ipynb", "--roster", "absent.csv"], "--roster absent.csv: cannot be read as CSV"),
        (["good.ipynb", "--require-gpu"], "no GPU"),
        (["good.ipynb", "--require-isolation", "network"], "gives 'limits', not 'network'"),
        (["good.ipynb", "--scheduler", "tcp://localhost:1"], "pip install -e '.[dask]'"),
    ],
)
def test_wrong_use_is_one_sentence_and_leaves_no_report(words, said, log, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    notebook(Path("good.ipynb"), "a")
    Path("bad.ipynb").write_text("{")
    Path("empty").mkdir()
    Path("twice.csv").write_text("ann\nann\n")
    found = cli.importlib.util.find_spec
    monkeypatch.setattr(cli.importlib.util, "find_spec", lambda name: None if name == "distributed" else found(name))
    status, records = grade(*words, place=tmp_path / "r")
    lines = capsys.readouterr().err.splitlines()
    assert status == 2 and not records and not log.exists()
    assert len(lines) == 1 and lines[0].startswith("grade: ") and said in lines[0]


def test_a_roster_shows_who_is_missing_and_is_kept(graded_class, tmp_path, capsys):
    (tmp_path / "class.csv").write_text("Name\nann\nEve\nzoe\n")
    assert grade(tmp_path / "class", "--roster", tmp_path / "class.csv", place=graded_class)[0] == 0
    assert "handed in nothing: zoe\nnot on the roster: joe\n" in capsys.readouterr().out
    for _ in range(2):
        page, table = ((graded_class / name).read_text() for name in ("index.html", "grades.csv"))
        assert "2 of 3 handed in" in page and "Handed in nothing: zoe." in page and "Not on the roster: joe." in page
        assert "\nzoe,,missing,,,,,,,," in table and "joe/01_roofline.ipynb,not on the roster" in table
        assert grade(tmp_path / "class" / "ann", "--regrade", place=graded_class)[0] == 0


def test_remarks_outlive_a_regrade_and_a_bad_line_loses_nothing(graded_class, tmp_path, log, capsys):
    remarks = graded_class / "remarks.csv"
    remarks.write_text("learner,on,points,comment\neve,01.1,2,Neat.\nzoe,01.1,1,\n")
    for given in ("class", "class/eve", "class/joe"):
        _, records = grade(tmp_path / given, "--regrade", place=graded_class)
        assert records["eve"]["points"] == records["eve"]["manual_points"] == 2 and records["joe"]["points"] == 0
        assert "remarks without a mark: zoe, 01.1: +1 point" in (said := capsys.readouterr().out)
        assert ("  by hand: 01.1: +2 points. Neat." in said) == (given != "class/joe")
    assert "2 of 2 points, +2 by hand included" in (graded_class / "learners" / "eve.html").read_text()
    assert "01.1: +2 points. Neat." in (graded_class / "index.html").read_text()
    assert "eve,01_roofline,graded,2,2,0,2,2," in (graded_class / "grades.csv").read_text()
    remarks.write_text("eve,01.1,2,Neat.\neve,01.7,2\n")
    before = {path: path.read_bytes() for path in graded_class.rglob("*") if path.is_file()}
    log.unlink()
    assert grade(tmp_path / "class", place=graded_class)[0] == 2 and not log.exists()
    assert f"grade: {remarks}, line 2: '01.7' is no task" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in graded_class.rglob("*") if path.is_file()} == before


def test_an_unknown_level_of_isolation_is_wrong_use(capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(["x", "--report", "r", "--require-isolation", "total"])
    said = capsys.readouterr().err
    assert ended.value.code == 2 and all(level in said for level in sandbox.LEVELS)


def test_a_report_that_cannot_be_written_leaves_the_last_one(graded_class, tmp_path, monkeypatch, capsys):
    before = (graded_class / "results.json").read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(report.os, "replace", full)
    monkeypatch.setattr(batch, "write_whole", lambda *_: None)
    assert cli.main([str(tmp_path / "class"), "--report", str(graded_class)]) == 1
    assert "No space left" in capsys.readouterr().err and (graded_class / "results.json").read_bytes() == before
    assert not list(graded_class.glob(".report*"))


def test_learners_of_every_name_are_shown_without_harm(log, tmp_path, capsys):
    learners = ["-x", "--seed", "a\nb", "\x1b[31mred\x07", "a‮b"]
    for number, learner in enumerate(learners):
        notebook(tmp_path / "class" / learner / "-final.ipynb", str(number))
    status, records = grade(tmp_path / "class", place=tmp_path / "r")
    out, err = capsys.readouterr()
    assert status == 0 and len(records) == 5 and "5 graded" in out
    assert all(line.isprintable() for line in (out + err).split("\n"))
