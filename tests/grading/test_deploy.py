"""What instructors copy elsewhere: the workflow, Gradescope's folder and the container's recipe name things that
exist."""

import base64
import json
import os
import re
import stat
import subprocess
import sys
import zipfile

import pytest
import yaml

from grading.tasks import tasks_of
from instruments.release import ROOT

DEPLOY = ROOT / "grading" / "deploy"
EXERCISE = ROOT / "exercises" / "05_rmsnorm_exercise.ipynb"


def test_the_classroom_workflow_hands_the_reporter_what_it_reads(tmp_path):
    workflow = yaml.safe_load((DEPLOY / "github_classroom.yml").read_text())
    steps = workflow["jobs"]["autograding"]["steps"]
    grade = next(step for step in steps if step.get("id") == "grade")
    reporter = next(step for step in steps if "autograding-grading-reporter" in step.get("uses", ""))
    runner = reporter["with"]["runners"]
    assert reporter["env"] == {f"{runner.upper()}_RESULTS": "${{ steps.grade.outputs.result }}"}
    assert re.fullmatch(r"[a-zA-Z0-9]+", runner) and int(workflow["env"]["POINTS"]) > 0
    (tmp_path / "handed-in" / "submission").mkdir(parents=True)
    environment = {**os.environ, "SUBMISSION": "submission", "POINTS": "19", "GITHUB_OUTPUT": "out.txt"}
    script = grade["run"].replace("python -m", f"{sys.executable} -m")
    environment["PYTHONPATH"] = str(ROOT)
    for notebook, status, most in (("", "error", 19), (EXERCISE, "fail", 25)):
        if notebook:
            (tmp_path / "handed-in" / "submission" / "05_rmsnorm.ipynb").write_bytes(notebook.read_bytes())
        subprocess.run(["bash", "-e", "-c", script], cwd=tmp_path, env=environment, check=True, capture_output=True)
        line = (tmp_path / "out.txt").read_text().splitlines()[-1]
        form = json.loads(base64.b64decode(line.removeprefix("result=")))
        assert (form["status"], form["max_score"]) == (status, most) and form["tests"][0]["message"]
    assert workflow["permissions"]["checks"] == "write"


@pytest.mark.parametrize("script", ["setup.sh", "run_autograder", "make_zip.sh"])
def test_scripts_parse_and_can_be_run(script):
    path = DEPLOY / "gradescope" / script
    assert os.stat(path).st_mode & stat.S_IXUSR
    subprocess.run(["bash", "-n", str(path)], check=True)


def run_autograder(place, uploaded):
    """Gradescope's result.json for some files, as its container would make it; None for none."""
    (place / "source").mkdir(parents=True)
    (place / "source" / "course").symlink_to(ROOT)
    python = place / "venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    (place / "submission").mkdir()
    for name, content in uploaded.items():
        (place / "submission" / name).parent.mkdir(exist_ok=True)
        (place / "submission" / name).write_bytes(content)
    run = subprocess.run(
        ["bash", str(DEPLOY / "gradescope" / "run_autograder")],
        capture_output=True,
        text=True,
        env={**os.environ, "AUTOGRADER": str(place)},
    )
    result = place / "results" / "results.json"
    assert run.returncode == 0, run.stdout + run.stderr
    return json.loads(result.read_text())


def test_gradescope_grades_the_one_notebook_whatever_lies_beside_it(tmp_path):
    notebook = (ROOT / "exercises" / "01_roofline_exercise.ipynb").read_bytes()
    form = run_autograder(
        tmp_path / "a", {"mine.ipynb": notebook, "README.pdf": b"", "old/notes.txt": b"x", "bad.ipynb": b"{"}
    )
    assert len(form["tests"]) == len(tasks_of("01_roofline")) and "More than one" not in form["output"]
    assert "left aside: bad.ipynb" in form["output"]
    form = run_autograder(tmp_path / "b", {"README.pdf": b""})
    assert form["score"] == 0 and "no notebook" in form["output"]


def test_gradescopes_zip_goes_where_it_is_told(tmp_path):
    script = str(DEPLOY / "gradescope" / "make_zip.sh")
    run = subprocess.run(["bash", script, "a.zip"], cwd=tmp_path, check=True, capture_output=True, text=True)
    assert run.stdout.strip() == str(tmp_path / "a.zip") and zipfile.is_zipfile(tmp_path / "a.zip")
    run = subprocess.run(["bash", script, "absent/a.zip"], cwd=tmp_path, capture_output=True, text=True)
    assert run.returncode == 2 and "no folder" in run.stderr


def test_gradescopes_zip_holds_a_course_that_grades(tmp_path):
    subprocess.run(
        ["bash", str(DEPLOY / "gradescope" / "make_zip.sh"), str(tmp_path / "autograder.zip")],
        check=True,
        capture_output=True,
    )
    with zipfile.ZipFile(tmp_path / "autograder.zip") as archive:
        archive.extractall(tmp_path / "source")
    assert {"setup.sh", "run_autograder", "course"} == {p.name for p in (tmp_path / "source").iterdir()}
    command = [sys.executable, "-m", "grading.cli", str(EXERCISE), "--report", str(tmp_path / "r")]
    run = subprocess.run(command, cwd=tmp_path / "source" / "course", capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
    form = json.loads((tmp_path / "r" / "gradescope" / "05_rmsnorm" / "05_rmsnorm.json").read_text())
    assert form["score"] == 0 and len(form["tests"]) == 6


def test_the_container_copies_what_exists():
    recipe = (DEPLOY / "Dockerfile").read_text()
    for line in re.findall(r"^COPY (.+) \S+$", recipe, re.MULTILINE):
        for name in line.split():
            assert (ROOT / name).exists(), name
    assert 'ENTRYPOINT ["grade"]' in recipe
