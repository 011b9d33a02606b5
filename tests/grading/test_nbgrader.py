"""An instructor who uses nbgrader gets the same exercises from the solutions; skipped where nbgrader is not installed.

pip install -e '.[nbgrader]'
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from instruments.start import ROOT, lesson_of, notebook_of

pytest.importorskip("nbgrader")

SOLUTIONS = sorted((ROOT / "solutions").glob("*.ipynb"))


def course(folder):
    """A temporary course with the configuration that docs/grading.md gives."""
    readme = (ROOT / "docs" / "grading.md").read_text(encoding="utf-8")
    folder.mkdir()
    (folder / "nbgrader_config.py").write_text(
        "c = get_config()\n" + re.search(r"```python\n(.*?)```", readme, re.DOTALL)[1]
    )
    return folder


@pytest.mark.parametrize("path", SOLUTIONS, ids=lambda p: p.stem)
def test_generate_assignment_writes_the_exercise(path, tmp_path):
    place = course(tmp_path / "course")
    (place / "source" / path.stem).mkdir(parents=True)
    (place / "source" / path.stem / path.name).write_bytes(path.read_bytes())
    run = subprocess.run(
        [sys.executable, "-m", "nbgrader", "generate_assignment", path.stem, "--create"],
        cwd=place,
        capture_output=True,
        text=True,
        env={**os.environ, "PATH": os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))},
    )  # it calls alembic by name
    assert run.returncode == 0, run.stderr
    made = nbformat.read(place / "release" / path.stem / path.name, as_version=4)
    ours = nbformat.read(ROOT / notebook_of(lesson_of(path.name), "exercises"), as_version=4)
    assert [(c.cell_type, c.source) for c in made.cells] == [(c.cell_type, c.source) for c in ours.cells]


@pytest.mark.parametrize("path", SOLUTIONS, ids=lambda p: p.stem)
def test_validate_accepts_the_solution(path):
    run = subprocess.run(
        [sys.executable, "-m", "nbgrader", "validate", str(path)], cwd=path.parent, capture_output=True, text=True
    )
    assert "Success! Your notebook passes all the tests." in run.stdout, (
        run.stdout + run.stderr
    )  # its status is always 0
