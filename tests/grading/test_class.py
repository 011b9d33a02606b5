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

from grading import batch, cli, likeness, report
from grading.intake import Handed, found_in
from grading.release import ROOT

KINDS = ("untouched", "broken", "odd", "hang", "flood")


def grade(*arguments, root=ROOT, **options):
    return subprocess.Popen(
        [sys.executable, "-m", "grading.cli", *map(str, arguments)],
        cwd=root,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        **options,
    )


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
            if (
                entry.name.isdigit()
                and entry.name != str(os.getpid())
                and f"{folder}/grade-".encode() in (entry / "environ").read_bytes()
            ):
                found.append(entry.name)
        except OSError:
            continue
    return found


def test_a_class_killed_half_way_repeats_nothing(tmp_path):
    """One learner of each kind; the run is killed outright after two records, and started again."""
    kinds = synthetic_class.write(tmp_path / "class", len(KINDS), seed=3, kinds=KINDS, exercises=("01_roofline",))
    place, records = tmp_path / "r", tmp_path / "r" / "records"
    options = ["--report", place, "--jobs", "2", "--timeout", "8"]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    root = course(tmp_path / "course")
    first = grade(
        tmp_path / "class",
        *options,
        root=root,
        env=environment,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
    )  # as a shell starts what ends in &
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
    said, _ = third.communicate(timeout=600)
    assert f"{len(KINDS)} done before" in said and "per minute" not in said


@pytest.fixture
def handed(tmp_path):
    synthetic_class.write(tmp_path / "class", 1, kinds=("untouched",))
    return found_in(tmp_path / "class")[0][0]


def test_the_same_content_is_graded_once_and_found_under_every_name(handed, tmp_path):
    twin = Handed("twin", "class/twin/x.ipynb", handed.file)
    outcome = batch.many([handed, twin], tmp_path / "r", batch.Limits(), jobs=1)
    assert outcome.run == 1 and [r.learner for r in outcome.records] == ["learner_000", "twin"]
    assert batch.many([twin], tmp_path / "r", batch.Limits(), jobs=1).done_before == 1


@pytest.mark.parametrize(
    "change", ["grader_version", "exercise_version", "solution_version", "place", "limits", "content"]
)
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


@pytest.fixture
def versions(tmp_path, monkeypatch):
    """versions() -> {exercise: versions of what its grades depend on}, of a copy of the course at `versions.root`."""
    root, module_of = course(tmp_path / "course"), batch.module_of
    monkeypatch.setattr(batch, "ROOT", root)
    monkeypatch.setattr(batch, "module_of", lambda name: module_of(name) and root / module_of(name).relative_to(ROOT))

    def found():
        for cached in (batch._uses, batch.grader_version, batch.solution_version, likeness.solution_answers):
            cached.cache_clear()
        names = ("01_roofline", "04_fusion")
        return {name: (batch.grader_version(name), batch.solution_version(name)) for name in names}

    found.root = root
    yield found
    batch.grader_version.cache_clear()
    batch.solution_version.cache_clear()


@pytest.mark.parametrize(
    "file, concerns",
    [
        ("grading/tasks/lesson_04.py", {"04_fusion"}),
        ("grading/tasks/lesson_01.py", {"01_roofline"}),
        ("grading/tasks/__init__.py", {"01_roofline", "04_fusion"}),
        ("grading/likeness.py", {"01_roofline", "04_fusion"}),
        ("grading/transplant.py", {"01_roofline", "04_fusion"}),
        ("grading/enter.py", {"01_roofline", "04_fusion"}),
        ("grading/plugin.py", {"01_roofline", "04_fusion"}),
        ("instruments/interpreter.py", {"01_roofline", "04_fusion"}),
        ("instruments/meter.py", {"01_roofline", "04_fusion"}),
        ("grading/batch.py", set()),
        ("grading/cli.py", set()),
        ("grading/pages.py", set()),
        ("grading/report.py", set()),
        ("grading/formats.py", set()),
        ("kernels/matmul.py", set()),
        ("instruments/occupancy.py", set()),
        ("instruments/results.py", set()),
        ("instruments/notebooks.py", set()),
        ("solutions/04_fusion.ipynb", {"04_fusion"}),
    ],
)
def test_a_change_regrades_what_depends_on_it_and_nothing_else(file, concerns, versions):
    before, path = versions(), versions.root / file
    text = path.read_text()
    mine = text.replace("### BEGIN SOLUTION", "### BEGIN SOLUTION\\n    # mine")
    path.write_text(mine if path.suffix == ".ipynb" else text + "\n# a comment\n")
    after = versions()
    assert {name for name in before if before[name] != after[name]} == concerns


def test_what_a_learner_imports_of_the_instruments_counts(handed, tmp_path):
    nb = json.loads(handed.file.read_bytes())
    code = next(cell for cell in nb["cells"] if cell["cell_type"] == "code")
    code["source"] = "from instruments import inductor"
    before = batch.made_from(handed, batch.Limits())
    handed.file.write_text(json.dumps(nb))
    assert batch.made_from(handed, batch.Limits()).grader != before.grader


def _kept(**fields) -> str:
    record = dict(path="x", file="x", learner="x", exercise="05_rmsnorm", status="graded")
    made = dict.fromkeys(("content", "exercise", "released", "solution", "grader"), "") | {"place": {}, "limits": []}
    return json.dumps({"key": "k", "made_from": made, "record": {**record, **fields.pop("record", {})}, **fields})


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{}",
        "[]",
        '{"key": 1}',
        "[" * 100_000,
        _kept(key="other"),
        _kept(more=1),
        _kept(record={"points": "5"}),
        _kept(record={"points": -5}),
        _kept(record={"status": "passed"}),
        _kept(record={"tasks": [{"id": "05.1"}]}),
        _kept(record={"mark": 1}),
        _kept(record={"status": "ungraded"}),
    ],
)
def test_a_damaged_or_foreign_record_is_not_trusted(content, handed, tmp_path):
    (tmp_path / "records").mkdir()
    (tmp_path / "records" / "k.json").write_text(_kept())
    assert batch.stored(tmp_path, "k", handed).learner == handed.learner
    (tmp_path / "records" / "k.json").write_text(content)
    assert batch.stored(tmp_path, "k", handed) is None


def test_what_the_grader_failed_at_is_tried_again_and_is_no_zero(handed, tmp_path, monkeypatch):
    tries = []

    def child(self, handed, key):
        tries.append(key)
        return "exit status -9"

    monkeypatch.setattr(batch._Runner, "_child", child)
    outcome = batch.many([handed], tmp_path, batch.Limits(), jobs=1)
    assert len(tries) == 2 and outcome.records[0].status == "ungraded"
    assert "exit status -9" in outcome.records[0].notes[0]
    monkeypatch.undo()
    assert batch.many([handed], tmp_path, batch.Limits(), jobs=1).records[0].status == "graded"


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
    (line,) = capsys.readouterr().out.splitlines()
    words = shlex.split(line)
    assert words[:2] == ["grade", "one"] and "--member=my work/a b.ipynb" in words
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
    known = batch.heads(tmp_path)
    assert batch.instead(handed, batch.Limits(), known) == "graded in another place (gpu none, here T4)"
    monkeypatch.setattr(batch, "grader_version", lambda *_: "next")
    assert batch.instead(handed, batch.Limits(), known).endswith("by another version of the grader")


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
    with batch._Runner(tmp_path, batch.Limits()) as running:
        killed = tmp_path / "grade-class-old"
        for name in ("grade-class-old", "grade-class-young"):
            (tmp_path / name).mkdir()
            (tmp_path / name / "lock").touch()
        for folder in (killed, running.place):
            os.utime(folder, (1, 1))
        batch.sweep()
        assert not killed.exists() and running.place.exists() and (tmp_path / "grade-class-young").exists()
    assert not running.place.exists()


#: A child that leaves folders in each other, takes its own rights away and dies; any other grades.
TRASH = """
import os, sys
if "--learner=joe" in sys.argv:
    place = os.environ["TMPDIR"]
    os.chdir(place)
    for _ in range(2000):
        os.mkdir("d"); os.chdir("d")
    os.chmod(place + "/d", 0)
    os._exit(3)
"""


def test_what_one_submission_leaves_is_removed_and_costs_the_others_nothing(handed, tmp_path, monkeypatch):
    monkeypatch.setattr(batch.tempfile, "tempdir", str(tmp_path / "t"))
    monkeypatch.setattr(batch, "START", TRASH + batch.START)
    (tmp_path / "t").mkdir()
    (tmp_path / "joe.ipynb").write_bytes(handed.file.read_bytes() + b" ")
    joe = Handed("joe", "joe.ipynb", tmp_path / "joe.ipynb")
    outcome = batch.many([joe, handed], tmp_path / "r", batch.Limits(), jobs=2)
    assert [record.status for record in outcome.records] == ["ungraded", "graded"]
    assert "exit status 3" in outcome.records[0].notes[0] and not list((tmp_path / "t").iterdir())


def test_a_fault_around_one_submission_is_its_own(handed, tmp_path, monkeypatch):
    joe = Handed("joe", "joe.ipynb", tmp_path / "joe.ipynb")
    joe.file.write_bytes(handed.file.read_bytes() + b" ")
    child, read = batch._Runner._child, Handed.read

    def fails(self, handed, key):
        if handed.learner == "joe":
            raise RecursionError("too deep")
        return child(self, handed, key)

    def unread(handed):
        if handed.learner == "joe":
            raise MemoryError()
        return read(handed)

    monkeypatch.setattr(batch._Runner, "_child", fails)
    monkeypatch.setattr(Handed, "read", unread)
    outcome = batch.many([joe, handed], tmp_path / "r", batch.Limits(), jobs=1)
    assert [record.status for record in outcome.records] == ["ungraded", "graded"]


def test_learners_of_every_name_are_graded_and_shown_without_harm(handed, tmp_path, capsys):
    learners = ["-x", "--seed", "a\nb", "\x1b[31mred\x07"]
    for number, learner in enumerate(learners, 1):
        (tmp_path / "all" / learner).mkdir(parents=True)
        (tmp_path / "all" / learner / "-final.ipynb").write_bytes(handed.file.read_bytes() + b" " * number)
    arguments = [str(tmp_path / "all"), "--report", str(tmp_path / "r")]
    assert cli.main([*arguments, "--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4 and all(map(str.isprintable, lines))
    words = [
        subprocess.run(["bash", "-c", f"printf '%s\\0' {line}"], capture_output=True, check=True).stdout.decode()
        for line in lines
    ]
    assert [word.split("\0")[2:4] for word in words] == [
        [str(tmp_path / "all" / learner / "-final.ipynb"), f"--learner={learner}"] for learner in sorted(learners)
    ]
    assert cli.main(arguments) == 0
    out, err = capsys.readouterr()
    assert all(line.isprintable() for line in (out + err).split("\n")) and "4 graded" in out
    results = json.loads((tmp_path / "r" / "results.json").read_text())
    assert len({record["learner"] for record in results["submissions"]}) == 4


def test_a_folder_of_ones_own_work_ends_with_a_total(tmp_path, capsys):
    for name in ("01_roofline", "05_rmsnorm"):
        shutil.copy(ROOT / "exercises" / f"{name}.ipynb", tmp_path)
    assert cli.main([str(tmp_path), "--report", str(tmp_path / "r")]) == 0
    results = json.loads((tmp_path / "r" / "results.json").read_text())["submissions"]
    points = sum(record["max_points"] for record in results)
    assert {record["learner"] for record in results} == {tmp_path.name}
    assert len(list((tmp_path / "r" / "learners").iterdir())) == 1
    assert capsys.readouterr().out.splitlines()[-1] == f"2 graded; in all 0 of {points} points"


@pytest.mark.skipif(sys.platform == "win32", reason="terminals of POSIX")
def test_a_terminal_without_a_size_shows_how_far_a_run_is():
    """As under `script`, in some containers and CI: 0 columns and 0 rows. No learner's name reaches it raw."""
    ours, theirs = os.openpty()
    code = (
        "from grading.batch import Progress\nfrom grading.record import Submission\n"
        "record = Submission(path='', file='', learner='a\\x1b]\\n', exercise='', status='graded', points=1, "
        "max_points=2)\n"
        "with Progress(4, 1) as progress:\n    progress.one_more(record)\n    progress.refresh()"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, stderr=theirs, check=True)
    os.close(theirs)
    said = os.read(ours, 10_000).decode()
    os.close(ours)
    assert "0/4" in said and "1/4" in said and r"a\x1b]\n: 1 of 2" in said


def test_a_seed_repeats_a_grading(handed, tmp_path):
    first, _ = batch.one(handed, tmp_path / "a", batch.Limits(seed=5))
    assert first.seed == "5"


def test_an_interrupt_leaves_what_was_done(tmp_path):
    synthetic_class.write(tmp_path / "class", 2, kinds=("untouched", "hang"))
    run = grade(
        tmp_path / "class", "--report", tmp_path / "r", "--jobs", "1", env={**os.environ, "TMPDIR": str(tmp_path)}
    )
    deadline = time.monotonic() + 60
    while not list((tmp_path / "r" / "records").glob("*.json")) and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(1)
    run.send_signal(signal.SIGTERM)
    _, said = run.communicate(timeout=600)
    assert run.returncode == 1 and "interrupted" in said and "Traceback" not in said
    assert len(list((tmp_path / "r" / "records").glob("*.json"))) == 1 and not alive(tmp_path)
