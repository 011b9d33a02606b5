"""A class at once: every submission has a record or a reason, nothing is graded twice, whatever ends the run."""

import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from grading_tools import notebook

from grading import batch, intake, tasks
from grading.intake import Handed
from instruments.release import ROOT

LIMITS = batch.Limits(cell_seconds=5, seconds=60)
MACHINE = ["", "network"]


@pytest.fixture
def log(tmp_path, monkeypatch):
    """Grades by the fake worker; the file that names whom it graded."""
    worker = Path(__file__).with_name("fake_worker.py")
    monkeypatch.setattr(batch, "WORKER", [sys.executable, str(worker), str(tmp_path / "log")])
    (tmp_path / "r" / "records").mkdir(parents=True)
    return tmp_path / "log"


def graded(log) -> list:
    """Whom the fake worker graded since it was last asked."""
    found = sorted(log.read_text().split()) if log.exists() else []
    log.unlink(missing_ok=True)
    return found


def many(handed, tmp_path, limits=LIMITS, machine=MACHINE, regrade=False, jobs=2):
    with batch.pool_of(jobs, None) as pool:
        return batch.many(handed, tmp_path / "r", limits, pool, machine, regrade)


def until(true) -> None:
    """Wait until a function says yes, at most a minute."""
    deadline = time.monotonic() + 60
    while not true() and time.monotonic() < deadline:
        time.sleep(0.05)


def hand_in(tmp_path, **words) -> list:
    """A class whose notebooks hold these words."""
    for learner, word in words.items():
        notebook(tmp_path / "class" / f"{learner}.ipynb", word)
    return intake.collect(tmp_path / "class", label="")[0]


def test_what_has_a_record_is_not_graded_again(log, tmp_path):
    handed = hand_in(tmp_path, ann="a", bob="b", twin="a")
    (tmp_path / "class" / "zip.ipynb").write_text("{")
    handed = intake.collect(tmp_path / "class", label="")[0]
    records = many(handed, tmp_path)
    assert [record.status for record in records] == ["graded"] * 3 + ["unreadable"]
    assert [record.learner for record in records] == ["ann", "bob", "twin", "zip"]
    assert [Path(record.file).stem for record in records] == ["ann", "bob", "twin", "zip"]
    assert len(graded(log)) == 2 and len(list((tmp_path / "r" / "records").iterdir())) == 2  # one content, one run
    assert many(handed, tmp_path) == records and graded(log) == []
    assert many([Handed("eve", "eve/x.ipynb", handed[1].file)], tmp_path)[0].path == "eve/x.ipynb" and not graded(log)


@pytest.mark.each
@pytest.mark.parametrize("change", ["content", "seed", "machine", "course", "damage"])
def test_a_record_is_used_only_for_what_it_was_made_from(change, log, tmp_path, monkeypatch):
    handed = hand_in(tmp_path, ann="a")
    many(handed, tmp_path)
    graded(log)
    limits, machine = LIMITS, MACHINE
    if change == "content":
        hand_in(tmp_path, ann="b")
    elif change == "seed":
        limits = batch.Limits(5, 60, seed=7)
    elif change == "machine":
        machine = ["H100", "network"]
    elif change == "course":
        monkeypatch.setattr(batch, "version", lambda exercise: "another")
    else:
        for path in (tmp_path / "r" / "records").iterdir():
            path.write_text('{"learner": "ann"}')
    many(handed, tmp_path, limits, machine)
    assert graded(log) == ["ann"]
    many(handed, tmp_path, batch.Limits(50, 600, limits.seed), machine)  # limits change no right answer's grade
    assert graded(log) == []


def test_the_version_is_that_of_what_grades_the_exercise(tmp_path, monkeypatch):
    """Its tasks' module, and what that imports from other exercises' modules."""
    files = dict.fromkeys(
        (
            "grading/judge.py",
            "grading/cli.py",
            "grading/meanings.toml",
            "instruments/meter.py",
            "kernels/elementwise/copy.py",
            "solutions/01_roofline_solution.ipynb",
            "solutions/04_fusion_solution.ipynb",
        ),
        "",
    )
    files["grading/tasks/lesson_01.py"] = 'EXERCISE = "01_roofline"\n'
    files["grading/tasks/lesson_04.py"] = 'from grading.tasks.lesson_01 import ceil\n\nEXERCISE = "04_fusion"\n'
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(batch, "ROOT", tmp_path)
    monkeypatch.setattr(tasks, "__file__", str(tmp_path / "grading" / "tasks" / "__init__.py"))
    lessons = {"01_roofline": "lesson_01", "04_fusion": "lesson_04"}
    monkeypatch.setattr(tasks, "exercises", lambda: lessons)

    def versions():
        batch.version.cache_clear()
        return {name: batch.version(name) for name in lessons}

    for name, concerned in {
        "grading/judge.py": set(lessons),
        "instruments/meter.py": set(lessons),
        "kernels/elementwise/copy.py": set(lessons),
        "grading/meanings.toml": set(lessons),
        "grading/tasks/lesson_01.py": set(lessons),
        "grading/tasks/lesson_04.py": {"04_fusion"},
        "solutions/01_roofline_solution.ipynb": {"01_roofline"},
        "grading/cli.py": set(),
    }.items():
        before = versions()
        (tmp_path / name).write_text("changed")
        after = versions()
        assert {exercise for exercise in lessons if before[exercise] != after[exercise]} == concerned, name
    batch.version.cache_clear()


def test_one_hostile_submission_costs_the_others_nothing(log, tmp_path, monkeypatch):
    monkeypatch.setattr(batch, "MARGIN", 1)
    handed = hand_in(tmp_path, ann="a", dora="dies", hans="hangs")
    records = {record.learner: record for record in many(handed, tmp_path, batch.Limits(1, 1))}
    assert {learner: record.status for learner, record in records.items()} == {
        "ann": "graded",
        "dora": "ungraded",
        "hans": "ungraded",
    }
    assert "exit status 3" in records["dora"].notes[0] and "a word before the end" in records["dora"].notes[0]
    assert "no end within 2 s" in records["hans"].notes[0]
    assert sorted(graded(log)) == ["ann", "dora", "hans"]
    hand_in(tmp_path, hans="b")
    many(handed, tmp_path)
    assert graded(log) == ["dora", "hans"]  # what was not graded is tried again


def test_regrade_grades_those_named(log, tmp_path):
    handed = hand_in(tmp_path, ann="a", bob="b")
    many(handed, tmp_path)
    graded(log)
    many(handed[1:], tmp_path, regrade=True)
    assert graded(log) == ["bob"]


RUN = """
import sys
from grading import batch, cli
batch.WORKER = [sys.executable, {worker!r}, {log!r}]
sys.exit(cli.main([{room!r}, "--report", {report!r}, "--jobs", "1"]))
"""


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGTERM])
def test_a_run_that_was_ended_half_way_is_resumed(ending, log, tmp_path):
    hand_in(tmp_path, ann="a", bob="b", carl="waits", dave="d")
    worker, room, report = Path(__file__).with_name("fake_worker.py"), tmp_path / "class", tmp_path / "r"
    code = RUN.format(worker=str(worker), log=str(log), room=str(room), report=str(report))
    command, options = [sys.executable, "-c", code], dict(cwd=ROOT, text=True, stderr=subprocess.PIPE)
    first = subprocess.Popen(command, **options)
    until(lambda: log.exists() and "carl" in log.read_text())
    first.send_signal(ending)
    said = first.communicate(timeout=60)[1]
    assert "Traceback" not in said and ("interrupted" in said) == (ending == signal.SIGTERM)
    assert len(list((report / "records").iterdir())) == 2 and not (report / "results.json").exists()
    assert graded(log) == ["ann", "bob", "carl"]
    Path(f"{log}.go").touch()
    second = subprocess.run(command, stdout=subprocess.PIPE, **options)
    assert second.returncode == 0, second.stderr
    assert graded(log) == ["carl", "dave"]
    submissions = json.loads((report / "results.json").read_text())["submissions"]
    assert [record["learner"] for record in submissions] == ["ann", "bob", "carl", "dave"]


def test_a_process_of_its_own_grades_one_submission(tmp_path):
    """The real worker, on an exercise that nobody touched, in a file whose name is no UTF-8."""
    file = Path(os.fsdecode(os.fsencode(tmp_path) + b"/M\xfcller.ipynb"))
    file.write_bytes((ROOT / "exercises" / "01_roofline_exercise.ipynb").read_bytes())
    record = batch.alone(intake.alone(file), batch.Limits(20, 60, seed=5))
    assert record.exercise == "01_roofline" and record.status == "graded" and record.seed == "5", record
    assert {task.status for task in record.tasks} == {"not_attempted"} and record.notes == [intake.PRISTINE]


def test_dask_grades_as_this_machine_does(log, tmp_path):
    distributed = pytest.importorskip("distributed")
    handed = hand_in(tmp_path, ann="a", dora="dies")
    with distributed.LocalCluster(1, threads_per_worker=2, processes=False, dashboard_address=None) as cluster:
        with batch.pool_of(0, cluster.scheduler_address) as pool:
            assert pool.submit(batch.machine).result() == batch.machine()
            records = batch.many(handed, tmp_path / "r", LIMITS, pool, MACHINE)
    assert [record.status for record in records] == ["graded", "ungraded"]


def test_a_dask_worker_that_dies_takes_no_finished_result_with_it(log, tmp_path):
    """A scheduler that is asked for a result any longer would have it made again."""
    distributed = pytest.importorskip("distributed")
    handed, records = hand_in(tmp_path, ann="a", bob="b", carl="waits"), tmp_path / "r" / "records"
    with (
        distributed.LocalCluster(1, threads_per_worker=3, processes=False, dashboard_address=None) as cluster,
        batch.pool_of(0, cluster.scheduler_address) as pool,
        ThreadPoolExecutor(1) as aside,
    ):
        run = aside.submit(batch.many, handed, tmp_path / "r", LIMITS, pool, MACHINE)
        until(lambda: len(list(records.iterdir())) == 2)
        until(lambda: len(cluster.scheduler.tasks) == 1)
        asked_for = [task.state for task in cluster.scheduler.tasks.values()]
        Path(f"{log}.go").touch()
    assert asked_for == ["processing"] and [record.status for record in run.result()] == ["graded"] * 3


def wait_for_go(folder: Path) -> None:
    """Work of a Dask worker that ends when `go` is there; `late` tells that it never came."""
    until((folder / "go").exists)
    if not (folder / "go").exists():
        (folder / "late").touch()


def test_an_interrupted_run_on_dask_does_not_wait_for_the_workers(tmp_path):
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(1, threads_per_worker=1, processes=False, dashboard_address=None) as cluster:
        with pytest.raises(KeyboardInterrupt), batch.pool_of(0, cluster.scheduler_address) as pool:
            pool.submit(wait_for_go, tmp_path)
            raise KeyboardInterrupt
        (tmp_path / "go").touch()
    assert not (tmp_path / "late").exists()
