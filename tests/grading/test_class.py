"""A class at once: every submission graded or told why not, nothing run twice, whatever ends the run half-way."""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import jsonschema
import pytest
import synthetic_class

from grading import batch, cli, report
from grading.intake import Handed, found_in
from grading.release import ROOT

KINDS = ("untouched", "broken", "odd", "hang", "flood")


def grade(*arguments, root=ROOT, **options):
    return subprocess.Popen([sys.executable, "-m", "grading.cli", *map(str, arguments)], cwd=root, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)


def course(folder) -> Path:
    """A copy of what grades, so that editing the course while the test runs does not make a new grader of it."""
    for name in ("grading", "instruments", "kernels", "exercises", "solutions"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def alive(folder) -> list:
    """Processes whose environment names `folder`."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and entry.name != str(os.getpid()) and \
                    f"{folder}/grade-".encode() in (entry / "environ").read_bytes():
                found.append(entry.name)
        except OSError:
            continue
    return found


def test_a_class_killed_half_way_repeats_nothing(tmp_path):
    """One learner of each kind; the run is killed outright after two records, and started again."""
    kinds = synthetic_class.write(tmp_path / "class", len(KINDS), seed=3, kinds=KINDS, exercises=("01_roofline", ))
    place, records = tmp_path / "r", tmp_path / "r" / "records"
    options = ["--report", place, "--jobs", "2", "--timeout", "8"]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    root = course(tmp_path / "course")
    first = grade(tmp_path / "class", *options, root=root, env=environment,
                  preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN))  # as a shell starts what ends in &
    deadline = time.monotonic() + 120
    while len(list(records.glob("*.json"))) < 2 and time.monotonic() < deadline and first.poll() is None:
        time.sleep(0.05)
    first.kill()
    first.communicate()
    while alive(tmp_path) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not alive(tmp_path)  # the children saw that they were alone
    done = {p: p.stat().st_mtime_ns for p in records.glob("*.json")}
    assert len(done) >= 2 and not (place / "results.json").exists()

    second = grade(tmp_path / "class", *options, root=root, env=environment)
    said, errors = second.communicate(timeout=300)
    results = json.loads((place / "results.json").read_text())
    jsonschema.validate(results, json.loads(report.SCHEMA.read_text()))
    by_learner = {record["learner"]: record for record in results["submissions"]}
    assert set(by_learner) == set(kinds), errors
    assert {p: p.stat().st_mtime_ns for p in done} == done  # nothing was done twice
    assert "submissions per minute" in said and f"{len(done)} done before" in said
    left = len(KINDS) - len(done)
    assert f"grading {left} submission" in errors and f"{left} of {left}  " in errors
    for learner, kind in kinds.items():
        record = by_learner[learner]
        states = [task["status"] for task in record["tasks"]]
        if kind == "broken":
            assert record["status"] == "unreadable" and record["notes"] and not states
        else:
            assert record["status"] in ("graded", "pending") and "ungraded" not in states, (kind, record)
        if kind == "odd":
            assert record["notes"], record
        if kind in ("hang", "flood", "leaves"):
            assert "failed" in states and states.count("failed") < len(states), (kind, states)
    assert second.returncode == 1 and not alive(tmp_path)
    third = grade(tmp_path / "class", *options, root=root, env=environment)
    said, _ = third.communicate(timeout=60)
    assert f"{len(KINDS)} done before" in said and "per minute" not in said


@pytest.fixture
def handed(tmp_path):
    synthetic_class.write(tmp_path / "class", 1, kinds=("untouched", ))
    return found_in(tmp_path / "class")[0][0]


def test_the_same_content_is_graded_once_and_found_under_every_name(handed, tmp_path):
    twin = Handed("twin", "class/twin/x.ipynb", handed.file)
    outcome = batch.many([handed, twin], tmp_path / "r", batch.Limits(), jobs=1)
    assert outcome.run == 1 and [r["learner"] for r in outcome.records] == ["learner_000", "twin"]
    assert batch.many([twin], tmp_path / "r", batch.Limits(), jobs=1).done_before == 1


@pytest.mark.parametrize("change", ["grader_version", "exercise_version", "place", "limits", "content"])
def test_a_record_is_trusted_only_for_what_it_was_made_from(change, handed, tmp_path, monkeypatch):
    limits = batch.Limits()
    record, before = batch.one(handed, tmp_path, limits)
    assert not before and batch.one(handed, tmp_path, limits) == (record, True)
    if change == "limits":
        limits = batch.Limits(cell_seconds=7)
    elif change == "content":
        handed.file.write_bytes(handed.file.read_bytes() + b"\n")
    else:
        monkeypatch.setattr(batch, change, lambda *_: {"gpu": "another"} if change == "place" else "another")
    assert batch.stored(tmp_path, batch.key_of(handed, limits), handed) is None


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"key": 1}', '{"key": "k", "exercise_version": "", "record": {}}'])
def test_a_damaged_record_is_not_trusted(content, handed, tmp_path):
    (tmp_path / "records").mkdir()
    (tmp_path / "records" / "k.json").write_text(content)
    assert batch.stored(tmp_path, "k", handed) is None


def test_what_the_grader_failed_at_is_tried_again_and_is_no_zero(handed, tmp_path, monkeypatch):
    tries = []

    def child(self, handed, key):
        tries.append(key)
        return "exit status -9"

    monkeypatch.setattr(batch._Runner, "_child", child)
    outcome = batch.many([handed], tmp_path, batch.Limits(), jobs=1)
    assert len(tries) == 2 and outcome.records[0]["status"] == "ungraded"
    assert "exit status -9" in outcome.records[0]["notes"][0]
    monkeypatch.undo()
    assert batch.many([handed], tmp_path, batch.Limits(), jobs=1).records[0]["status"] == "graded"


def test_one_submission_is_one_command_whose_record_the_class_takes(handed, tmp_path, capsys):
    """As a cluster's queue would: `grade one` for each, then `grade FOLDER --jobs 0` for the report."""
    place = tmp_path / "r"
    assert cli.main([str(tmp_path / "class"), "--report", str(place), "--jobs", "0"]) == 1
    assert "not graded yet" in capsys.readouterr().out
    assert cli.main(["one", str(handed.file), "--report", str(place)]) == 0
    assert cli.main(["one", str(handed.file), "--report", str(place)]) == 0
    assert "graded before" in capsys.readouterr().out
    assert cli.main([str(tmp_path / "class"), "--report", str(place), "--jobs", "0"]) == 0
    assert json.loads((place / "results.json").read_text())["submissions"][0]["learner"] == "learner_000"


def test_the_lines_for_a_queue_are_those_that_are_missing(tmp_path, capsys):
    """`--list` prints them, and what they leave behind is the report of `--jobs 0`, with what cannot be read."""
    (tmp_path / "class" / "kim").mkdir(parents=True)
    (tmp_path / "class" / "kim" / "scan.pdf").write_text("")
    (tmp_path / "class" / "lee.ipynb").write_text("{")
    with zipfile.ZipFile(tmp_path / "class" / "joe.zip", "w") as archive:
        archive.write(ROOT / "exercises" / "01_roofline.ipynb", "my work/a b.ipynb")
    command = [str(tmp_path / "class"), "--report", str(tmp_path / "r"), "--timeout", "50"]
    assert cli.main([*command, "--list"]) == 0 and not (tmp_path / "r").exists()
    line, = capsys.readouterr().out.splitlines()
    words = shlex.split(line)
    assert words[:2] == ["grade", "one"] and words[words.index("--member") + 1] == "my work/a b.ipynb"
    assert "--timeout 50" in line
    assert cli.main(words[1:]) == 0
    capsys.readouterr()
    assert cli.main([*command, "--list"]) == 0 and capsys.readouterr().out == ""
    assert cli.main([*command, "--jobs", "0"]) == 1
    said = capsys.readouterr().out
    results = json.loads((tmp_path / "r" / "results.json").read_text())
    states = {record["learner"]: record["status"] for record in results["submissions"]}
    assert states == {"joe": "graded", "kim": "unreadable", "lee": "unreadable"}
    assert "1 graded, 2 could not be read: kim (no notebook in it), lee (not a notebook" in said.splitlines()[-1]
    assert cli.main([*command, "--jobs", "0", "--total", "60"]) == 1
    assert "graded with other limits (--timeout 50 --total 900)" in capsys.readouterr().out


def test_a_record_made_elsewhere_is_told(handed, tmp_path, monkeypatch):
    batch.one(handed, tmp_path, batch.Limits())
    here = batch.place()
    monkeypatch.setattr(batch, "place", lambda: {**here, "gpu": "T4"})
    assert batch.instead(tmp_path, handed, batch.Limits()) == "graded in another place (gpu none, here T4)"
    monkeypatch.setattr(batch, "grader_version", lambda: "next")
    assert batch.instead(tmp_path, handed, batch.Limits()).endswith("by another version of the grader")


def test_a_report_of_others_is_not_replaced(handed, tmp_path, capsys):
    """Told before anything is graded; a report of one submission may go, its record stays."""
    place = tmp_path / "r"
    (tmp_path / "class" / "zoe").mkdir()
    assert cli.main([str(tmp_path / "class"), "--report", str(place), "--jobs", "0"]) == 1
    before = {p: p.read_bytes() for p in place.rglob("*") if p.is_file()}
    assert cli.main([str(handed.file.parent), "--report", str(place)]) == 2
    said = capsys.readouterr().err
    assert "holds a report of 2 submissions, and 1 of them (zoe) is not among those given" in said
    assert {p: p.read_bytes() for p in place.rglob("*") if p.is_file()} == before
    (place / "results.json").unlink()
    assert cli.main([str(handed.file), "--report", str(place), "--jobs", "0"]) == 1
    assert cli.main([str(ROOT / "exercises" / "05_rmsnorm.ipynb"), "--report", str(place), "--jobs", "0"]) == 1


def test_what_lies_beside_submissions_is_no_learner(handed, tmp_path, capsys):
    for name in ("index.html", "README.pdf"):
        (tmp_path / "class" / name).write_text("")
    assert cli.main([str(tmp_path / "class"), "--report", str(tmp_path / "r"), "--jobs", "0"]) == 1
    assert "left aside: README.pdf, index.html\n" in capsys.readouterr().out
    results = json.loads((tmp_path / "r" / "results.json").read_text())
    assert len(results["submissions"]) == 1 and results["left_aside"] == ["README.pdf", "index.html"]
    jsonschema.validate(results, json.loads(report.SCHEMA.read_text()))
    handed.file.unlink()
    handed.file.parent.rmdir()
    assert cli.main([str(tmp_path / "class"), "--report", str(tmp_path / "r2")]) == 2


def test_folders_of_runs_that_were_killed_are_swept(tmp_path, monkeypatch):
    monkeypatch.setattr(batch.tempfile, "tempdir", str(tmp_path))
    running, killed = batch._Runner(tmp_path, batch.Limits()), tmp_path / "grade-class-old"
    for name in ("grade-class-old", "grade-class-young"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "lock").touch()
    for folder in (killed, running.place.name):
        os.utime(folder, (1, 1))
    batch.sweep()
    assert not killed.exists() and Path(running.place.name).exists() and (tmp_path / "grade-class-young").exists()
    running.close()


@pytest.mark.skipif(sys.platform == "win32", reason="terminals of POSIX")
def test_a_terminal_without_a_size_shows_how_far_a_run_is():
    """As under `script`, in some containers and CI: 0 columns and 0 rows."""
    ours, theirs = os.openpty()
    code = ("from grading.batch import Progress\nwith Progress(4, 1) as progress:\n    progress.one_more({'learner': 'ann', "
            "'status': 'graded', 'points': 1, 'max_points': 2, 'pending_points': 0})\n    progress.refresh()")
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, stderr=theirs, check=True)
    os.close(theirs)
    said = os.read(ours, 10_000).decode()
    os.close(ours)
    assert "0/4" in said and "1/4" in said and "ann: 1 of 2" in said


def test_a_seed_repeats_a_grading(handed, tmp_path):
    first, _ = batch.one(handed, tmp_path / "a", batch.Limits(seed=5))
    assert first["seed"] == "5"


def test_an_interrupt_leaves_what_was_done(tmp_path):
    synthetic_class.write(tmp_path / "class", 2, kinds=("untouched", "hang"))
    run = grade(tmp_path / "class", "--report", tmp_path / "r", "--jobs", "1", env={**os.environ, "TMPDIR": str(tmp_path)})
    deadline = time.monotonic() + 60
    while not list((tmp_path / "r" / "records").glob("*.json")) and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(1)
    run.send_signal(signal.SIGTERM)
    _, said = run.communicate(timeout=60)
    assert run.returncode == 1 and "interrupted" in said and "Traceback" not in said
    assert len(list((tmp_path / "r" / "records").glob("*.json"))) == 1 and not alive(tmp_path)
