"""The set-up: what gets installed, the first cell of every notebook, the stored form, and the README."""

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import nbformat
import pytest
import yaml

from instruments import contents, notebooks, start

pytestmark = pytest.mark.each  # every set takes milliseconds, and most say something of their own

ROOT = Path(__file__).resolve().parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


# What gets installed


def requirement(line: str) -> tuple[str, str]:
    """'triton>=3.6; sys_platform == "linux"' -> ('triton', "sys_platform=='linux'")"""
    name, _, marker = line.partition(";")
    return re.match(r"[\w.-]+", name)[0].lower(), marker.replace('"', "'").replace(" ", "")


def pins() -> list[str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def test_environment_lists_exactly_the_dependencies():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))
    assert environment["channels"] == ["conda-forge"]
    (pip,) = [item["pip"] for item in environment["dependencies"] if isinstance(item, dict)]
    assert pip[:2] == ["-c constraints.txt", "-e ."]
    assert sorted(map(requirement, pip[2:])) == sorted(map(requirement, PYPROJECT["project"]["dependencies"]))


def test_every_dependency_is_pinned_with_its_marker():
    pinned = dict(map(requirement, pins()))
    for line in PYPROJECT["project"]["dependencies"] + PYPROJECT["project"]["optional-dependencies"]["test"]:
        name, marker = requirement(line)
        assert pinned.get(name) == marker, f"constraints.txt does not pin {line}"


def test_pins_lie_in_the_ranges_that_pyproject_allows():
    from packaging.requirements import Requirement

    allowed = {r.name: r for r in map(Requirement, PYPROJECT["project"]["dependencies"])}
    for pin in map(Requirement, pins()):
        (version,) = [spec.version for spec in pin.specifier]
        if pin.name in allowed:
            assert version in allowed[pin.name].specifier, pin


def test_the_ranges_admit_colab():
    from packaging.requirements import Requirement

    colab = {"torch": "2.11.0", "triton": "3.6.0", "numpy": "2.1.3", "ipywidgets": "7.7.1"}
    allowed = {r.name: r for r in map(Requirement, PYPROJECT["project"]["dependencies"])}
    assert all(version in allowed[name].specifier for name, version in colab.items())
    assert {"3.11", "3.12", "3.13"} == {
        v
        for v in ("3.10", "3.11", "3.12", "3.13", "3.14")
        if v in Requirement("p" + PYPROJECT["project"]["requires-python"]).specifier
    }


def test_the_makefile_is_understood_and_lists_its_commands():
    shown = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for command in ("setup", "lab", "work", "test", "lessons", "bench"):
        assert f"make {command} " in shown


def test_setup_without_a_suitable_python_says_so(tmp_path):
    shutil.copy(ROOT / "Makefile", tmp_path)
    for name in ("pyproject.toml", "constraints.txt"):
        (tmp_path / name).touch()
    made = subprocess.run(["make", "setup", "PYTHON="], cwd=tmp_path, capture_output=True, text=True)
    assert made.returncode != 0
    assert "needs Python 3.11, 3.12 or 3.13" in made.stderr
    assert not (tmp_path / ".venv").exists()


def stand_in(tmp_path, *made: str, python: str = "") -> None:
    """A course that is only a Makefile, with stand-ins for Python and Jupyter that say how they were called. made: the
    set-ups that were made before. python: what Python does beside."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    for name in ("pyproject.toml", "constraints.txt", *made):
        (tmp_path / name).touch()
    for name in ("python", "jupyter"):
        program = tmp_path / ".venv" / "bin" / name
        program.write_text(f'#!/bin/sh\necho "{name}: $@"\n{python}\n')
        program.chmod(0o755)


def make(tmp_path, *words: str) -> subprocess.CompletedProcess:
    return subprocess.run(["make", *words], cwd=tmp_path, capture_output=True, text=True)


def test_setup_says_one_line_a_step_and_what_comes_next(tmp_path):
    stand_in(tmp_path)
    done = make(tmp_path, "setup")
    assert done.returncode == 0 and done.stderr == ""
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["Installing", "The"]
    assert done.stdout.endswith("Next: make lab\n")
    assert "python: -m pip install -c constraints.txt -e ." in (tmp_path / ".venv/setup.log").read_text()
    assert make(tmp_path, "setup").stdout.startswith("The course is installed")  # nothing to do


@pytest.mark.parametrize("target, log", [("setup", ".venv/setup.log"), ("test", ".venv/test.log")])
def test_a_set_up_that_fails_shows_the_end_of_what_it_said_and_the_way_out(tmp_path, target, log):
    made = [".venv/setup"] if target == "test" else []
    stand_in(tmp_path, *made, python="seq 100; echo 'ERROR: no network' >&2; exit 1")
    done = make(tmp_path, target)
    assert done.returncode != 0
    assert "ERROR: no network" in done.stderr and log in done.stderr and "goes on from here" in done.stderr
    assert len(done.stdout.splitlines()) == 1 and "\n50\n" not in done.stderr
    assert not (tmp_path / log).with_suffix("").exists()


def test_a_triton_that_could_not_be_installed_leaves_nothing_that_looks_installed(tmp_path):
    broken = "for a; do case $a in .venv/triton*) mkdir -p $a;; esac; done; exit 1"
    stand_in(tmp_path, ".venv/setup", ".venv/test", python=broken)
    assert make(tmp_path, "test-triton").returncode != 0
    assert not [p for p in (tmp_path / ".venv").glob("triton-*") if p.is_dir()]


def test_work_brings_the_copies_up_to_date(tmp_path):
    stand_in(tmp_path, ".venv/setup")
    assert make(tmp_path, "work").stdout == "python: -m instruments.work\n"
    assert make(tmp_path, "work", "RESTORE=1").stdout == "python: -m instruments.work --restore\n"


def lab_command(tmp_path, **environment) -> str:
    """What `make lab` would start, read from a stand-in for jupyter."""
    stand_in(tmp_path, ".venv/setup")
    (tmp_path / "work" / "lessons").mkdir(parents=True)
    (tmp_path / "work" / "lessons" / "00_start_here.ipynb").touch()
    bare = {key: value for key, value in os.environ.items() if key not in ("DISPLAY", "WAYLAND_DISPLAY")}
    return subprocess.run(
        ["make", "lab"], cwd=tmp_path, capture_output=True, text=True, check=True, env={**bare, **environment}
    ).stdout


@pytest.mark.skipif(sys.platform != "linux", reason="a Mac always has a screen")
def test_lab_without_a_screen_prints_the_address(tmp_path):
    shown = lab_command(tmp_path)
    assert "--no-browser" in shown and "No screen here" in shown
    assert shown.index("instruments.work") < shown.index("/lab/tree/work/lessons/00_start_here.ipynb")
    assert ("--allow-root" in shown) == (os.getuid() == 0)


def test_lab_with_a_screen_opens_the_browser(tmp_path):
    assert "--no-browser" not in lab_command(tmp_path, DISPLAY=":0")


@pytest.mark.parametrize("ci, outcome", [("true", "error"), ("", "skipped")])
def test_a_missing_browser_is_a_failure_in_ci_only(tmp_path, ci, outcome):
    shutil.copy(ROOT / "tests" / "conftest.py", tmp_path)
    (tmp_path / "test_it.py").write_text("def test_it(chromium): pass")
    shown = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rs", "--rootdir", tmp_path, tmp_path],
        capture_output=True,
        text=True,
        env={**os.environ, "PATH": "/nowhere", "CI": ci},
    ).stdout
    assert f"1 {outcome}" in shown and "Chromium is not installed" in shown


# The first cell


@pytest.fixture
def course(tmp_path) -> Path:
    """A copy of as much of the course as the first cell needs, with the folders a notebook may lie in."""
    root = tmp_path / "somewhere" / "course"
    for folder in ("lessons", "work/lessons"):
        (root / folder).mkdir(parents=True)
    shutil.copy(ROOT / "pyproject.toml", root)
    shutil.copytree(ROOT / "instruments", root / "instruments", ignore=shutil.ignore_patterns("__pycache__"))
    return root


def run_first_cell(cwd: Path, before: str = "", after: str = "", address: str = "", **environment):
    """Run the first cell in a fresh Python that has the course's dependencies but not the course on its path."""
    clean = {k: v for k, v in os.environ.items() if k not in ("BYTES_FIRST", "PYTHONPATH")}
    # This environment's own editable install must not help the cell find the course, nor must the script's folder.
    installed = {"", str(ROOT), *(p for p in sys.path if (Path(p) / "instruments" / "start.py").is_file())}
    hide = f"import sys; sys.path[:] = [p for p in sys.path if p not in {installed!r}]\n"
    code = hide + before + "\n" + notebooks.first_cell(address).source + "\n" + after
    return subprocess.run(
        [sys.executable, "-c", code], cwd=cwd, capture_output=True, text=True, timeout=120, env={**clean, **environment}
    )


def in_course(place: Path) -> str:
    return f"import instruments.gpus; assert instruments.__file__.startswith({str(place)!r}), instruments.__file__"


@pytest.mark.parametrize("below", ["", "lessons", "work/lessons"])
def test_first_cell_finds_the_course_from_its_folders(course, below):
    ran = run_first_cell(course / below, after=in_course(course) + f"\nassert sys.path[0] == {str(course)!r}")
    assert ran.returncode == 0, ran.stderr
    assert len(ran.stdout.splitlines()) == 1  # one line about the machine, nothing else


def test_first_cell_leaves_only_what_it_must_in_the_notebook(course):
    after = (
        "names = {n for n in globals() if not n.startswith('_')} - {'sys'}\n"
        "assert names == {'REPOSITORY', 'find_course', 'runpy'}, names"
    )
    ran = run_first_cell(course, after=after)
    assert ran.returncode == 0, ran.stderr


def test_first_cell_finds_the_course_by_environment_and_through_vs_code(course, tmp_path):
    given = run_first_cell(tmp_path, after=in_course(course), BYTES_FIRST=str(course))
    assert given.returncode == 0, given.stderr
    notebook = f"__vsc_ipynb_file__ = {str(course / 'lessons' / '05_rmsnorm.ipynb')!r}"
    assert run_first_cell(tmp_path, before=notebook, after=in_course(course)).returncode == 0


def test_first_cell_finds_an_installed_course_and_puts_it_first(course, tmp_path):
    """A notebook kept elsewhere, and another package called kernels ahead on the path but not yet loaded."""
    (tmp_path / "other" / "kernels").mkdir(parents=True)
    (tmp_path / "other" / "kernels" / "__init__.py").touch()
    (course / "kernels").mkdir()
    (course / "kernels" / "__init__.py").touch()
    before = f"sys.path[:0] = [{str(tmp_path / 'other')!r}, {str(course)!r}]"
    after = f"import kernels; assert kernels.__file__.startswith({str(course)!r}), kernels.__file__"
    ran = run_first_cell(tmp_path, before, after)
    assert ran.returncode == 0, ran.stderr


def test_first_cell_can_be_run_again(course):
    cell = notebooks.first_cell("").source
    ran = run_first_cell(course, after=cell + f"\nassert sys.path.count({str(course)!r}) == 1")
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize("name", start.PACKAGES)
def test_a_loaded_module_of_another_project_is_named(course, tmp_path, name):
    (tmp_path / "other" / name).mkdir(parents=True)
    (tmp_path / "other" / name / "__init__.py").touch()
    ran = run_first_cell(course, before=f"sys.path.insert(0, {str(tmp_path / 'other')!r}); import {name}")
    assert ran.returncode != 0
    told = ran.stderr.splitlines()[-1]
    assert (
        told.startswith(f"ImportError: {name}: ") and str(tmp_path / "other") in told and "restart the kernel" in told
    )


def test_a_module_from_nowhere_is_named_too(course):
    ran = run_first_cell(course, before="import types; sys.modules['kernels'] = types.ModuleType('kernels')")
    assert "ImportError: kernels: " in ran.stderr and "unknown place" in ran.stderr


def test_a_missing_dependency_is_named(course):
    """As with a kernel that is not the one of .venv."""
    before = (
        "import importlib.util\nfind = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name, *rest: None if name == 'ipywidgets' else find(name, *rest)"
    )
    told = run_first_cell(course, before).stderr.splitlines()[-1]
    assert told.startswith("ImportError: ipywidgets: not installed") and "make setup" in told


def test_without_the_course_or_an_address_the_cell_says_how_to_give_it(tmp_path):
    for before in ("", "import types; sys.modules['google.colab'] = types.ModuleType('google.colab')"):
        ran = run_first_cell(tmp_path, before)
        told = ran.stderr.splitlines()[-1]
        assert told.startswith("FileNotFoundError: ") and "REPOSITORY" in told and "BYTES_FIRST" in told


def test_a_wrong_bytes_first_is_not_passed_over(course):
    assert "BYTES_FIRST" in run_first_cell(course, BYTES_FIRST="/nowhere").stderr.splitlines()[-1]


#: Said before the first cell: nothing has to be installed, so that no test waits for a network.
NOTHING_MISSING = (
    "\nimport importlib.util\nfind = importlib.util.find_spec\n"
    f"importlib.util.find_spec = lambda name, *rest: sys if name in {start.MISSING_ON_COLAB} else find(name, *rest)"
)


@pytest.mark.skipif(not shutil.which("git"), reason="git is not installed")
def test_on_colab_the_cell_fetches_the_course_once(course, tmp_path):
    def git(*words):
        subprocess.run(
            ["git", "-c", "user.name=t", "-c", "user.email=t@t", *words], cwd=course, check=True, capture_output=True
        )

    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "course")
    content = tmp_path / "content"
    content.mkdir()
    colab = "import types; sys.modules['google.colab'] = types.ModuleType('google.colab')"
    for _ in range(2):
        ran = run_first_cell(content, colab + NOTHING_MISSING, in_course(content / "bytes-first"), course.as_uri())
        assert ran.returncode == 0, ran.stderr
        assert ran.stdout.partition("\n")[2] == f"{start.ON_COLAB}\n"
    missing = run_first_cell(tmp_path, colab, address=(tmp_path / "absent").as_uri())
    told = missing.stderr.partition("RuntimeError: ")[2]
    assert told.startswith("git could not fetch the course from") and "absent" in told and "does not" in told


def test_on_colab_only_what_is_missing_gets_installed(monkeypatch, capsys):
    commands, missing = [], set(start.MISSING_ON_COLAB)

    def run(command, **_):
        commands.append(command)
        return subprocess.CompletedProcess(command, 1, stderr="WARNING: slow\nERROR: no network\n")

    monkeypatch.setattr(start.subprocess, "run", run)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *_: None if name in missing else object())
    monkeypatch.setenv("PYTHONPATH", "/env/python")  # as Colab has it
    allowed = PYPROJECT["project"]["dependencies"]
    for _ in range(2):
        start.complete_colab()
    told = capsys.readouterr().out
    assert commands[0][:-4] == [sys.executable, "-m", "pip", "install", "--quiet"]
    assert [requirement(line)[0] for line in commands[0][-4:]] == ["triton", "nbval", "msgspec", "junitparser"]
    assert set(commands[0][-4:]) <= set(allowed)
    assert "triton, nbval, msgspec, junitparser could not be installed; when pip can, run this cell again" in told
    assert "no network" in told and os.environ["PYTHONPATH"] == f"{ROOT}{os.pathsep}/env/python"

    missing.remove("triton")  # a runtime with a GPU: its triton stays
    start.complete_colab()
    assert not [word for word in commands[-1] if "triton" in word]
    missing.clear()
    start.complete_colab()
    assert len(commands) == 3


def test_on_colab_every_notebook_is_linked_if_the_repository_is_on_github(monkeypatch):
    from IPython import display

    shown = []
    monkeypatch.setattr(display, "display", lambda page: shown.append(page.data))
    start.show_links("")
    start.show_links("https://gitlab.com/owner/name")
    assert shown == []
    start.show_links("https://github.com/owner/name.git")
    for path in notebooks.notebooks():
        address = f"https://colab.research.google.com/github/owner/name/blob/main/{path.relative_to(ROOT).as_posix()}"
        assert f'href="{address}"' in shown[0]
    for file in ("docs/glossary.md", "README.md"):
        assert f'href="https://github.com/owner/name/blob/main/{file}"' in shown[0]


def test_what_is_said_on_colab_grades_a_notebook(tmp_path):
    """The command, run elsewhere, with nothing but PYTHONPATH to find the course by, as complete_colab leaves it."""
    command = re.search(r"!python (-m grading.cli) NAME.ipynb --report report", start.ON_COLAB)[1].split()
    shown = subprocess.run(
        [sys.executable, *command, "--help"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert shown.returncode == 0 and "--report DIR" in shown.stdout


# The stored form


@pytest.mark.parametrize("path", notebooks.notebooks(), ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_notebook_is_stored_as_it_should_be(path):
    assert notebooks.faults(path) == []


def small_notebook() -> nbformat.NotebookNode:
    nb = nbformat.v4.new_notebook()
    nb.cells = [
        nbformat.v4.new_markdown_cell("# A title", id="title"),
        nbformat.v4.new_code_cell("1 + 1", id="sum"),
        nbformat.v4.new_code_cell("1 / 0", id="fault", metadata={"tags": ["raises-exception"]}),
    ]
    return nb


def test_canonical_form_is_a_fixed_point_and_drops_litter(tmp_path):
    path = tmp_path / "lessons" / "99_test.ipynb"
    nb = small_notebook()
    nb.metadata.update(
        {"widgets": {"x": 1}, "kernelspec": {"name": "mine", "display_name": "Mine"}, "bytes_first": {"exercise": "05"}}
    )
    code = nb.cells[1]
    code.metadata.update({"execution": {"iopub.execute_input": "now"}, "tags": ["keep"]})
    view = {notebooks.WIDGET_VIEW: {"model_id": "a1"}, "text/plain": "a panel", "image/png": "AAAA"}
    code.outputs = [
        nbformat.v4.new_output("stream", name="stderr", text=" 10%|#\r"),
        nbformat.v4.new_output("stream", name="stderr", text="100%|##########\n"),
        nbformat.v4.new_output("stream", text=f"{ROOT}/kernels/elementwise/copy.py and /tmp/ipykernel_12/345.py\n"),
        nbformat.v4.new_output("display_data", data=view),
    ]
    text = notebooks.dumps(nb, path)
    assert text == notebooks.dumps(nbformat.reads(text, as_version=4), path)
    stored = json.loads(text)
    assert "widgets" not in stored["metadata"] and stored["metadata"]["bytes_first"] == {"exercise": "05"}
    assert stored["metadata"]["kernelspec"]["name"] == "python3"
    title, first, cell, _ = stored["cells"]
    assert first["id"] == notebooks.FIRST_CELL_ID and first["metadata"]["cellView"] == "form"
    assert cell["metadata"] == {"tags": ["keep"]}
    bar, printed, panel = cell["outputs"]
    assert bar["text"] == ["100%|##########\n"]
    assert printed["text"] == ["kernels/elementwise/copy.py and <cell>\n"]
    assert panel["data"] == {"text/plain": ["a panel"], "image/png": "AAAA"}


def test_exercises_lose_their_outputs_and_the_first_cell_is_replaced(tmp_path):
    nb = small_notebook()
    nb.cells[1].outputs = [nbformat.v4.new_output("stream", text="2")]
    nb.cells.insert(0, nbformat.v4.new_code_cell("an older first cell", id=notebooks.FIRST_CELL_ID))
    stored = nbformat.reads(notebooks.dumps(nb, tmp_path / "exercises" / "a.ipynb"), as_version=4)
    assert [c.source for c in stored.cells[1:3]] == [notebooks.first_cell().source, "1 + 1"]
    assert all(not c.outputs and c.execution_count is None for c in stored.cells if c.cell_type == "code")


def test_the_repository_s_address_goes_into_the_cell_and_the_badge(tmp_path):
    path = tmp_path / "lessons" / "05_rmsnorm.ipynb"
    address = "https://github.com/owner/name"
    nb = nbformat.reads(notebooks.dumps(small_notebook(), path, address), as_version=4)
    assert nb.cells[0].id == notebooks.BADGE_ID
    assert "colab.research.google.com/github/owner/name/blob/main/lessons/05_rmsnorm.ipynb" in nb.cells[0].source
    assert f'REPOSITORY = "{address}"' in nb.cells[2].source
    without = nbformat.reads(notebooks.dumps(nb, path, ""), as_version=4)
    assert without.cells[0].id == "title" and 'REPOSITORY = ""' in without.cells[1].source


def test_faults_are_found_and_named(tmp_path, monkeypatch):
    path = tmp_path / "lessons" / "99_test.ipynb"
    path.parent.mkdir()
    nb = small_notebook()
    nb.cells[1].outputs = [nbformat.v4.new_output("error", ename="E", evalue="e", traceback=[])]
    nbformat.write(nb, path)
    found = " ".join(notebooks.faults(path))
    for words in ("first code cell", "python3", "stores an error in cell sum", "one run", "canonical"):
        assert words in found
    path.write_text("not a notebook")
    assert "not a valid notebook" in notebooks.faults(path)[0]


def test_running_stores_outputs_and_a_failing_notebook_is_left_alone(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(notebooks, "ROOT", tmp_path)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    monkeypatch.setenv("BYTES_FIRST", str(ROOT))
    lessons = tmp_path / "lessons"
    lessons.mkdir()
    nbformat.write(small_notebook(), lessons / "01_good.ipynb")
    failing = small_notebook()
    failing.cells[1].source = "raise RuntimeError('boom')"
    nbformat.write(failing, lessons / "02_bad.ipynb")
    before = (lessons / "02_bad.ipynb").read_bytes()
    assert notebooks.main([]) == 1
    assert "02_bad.ipynb was left as it is" in capsys.readouterr().err
    assert (lessons / "02_bad.ipynb").read_bytes() == before
    assert notebooks.faults(lessons / "01_good.ipynb") == []
    assert notebooks.main(["--check", "--only", "good"]) == 0
    assert sorted(p.name for p in lessons.iterdir()) == ["01_good.ipynb", "02_bad.ipynb"]


def test_only_names_what_does_not_exist(capsys):
    with pytest.raises(SystemExit) as stopped:
        notebooks.main(["--check", "--only", "no_such_lesson"])
    assert stopped.value.code == 2
    assert "no_such_lesson" in capsys.readouterr().err


# README and docs

DOCUMENTS = [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md")), *sorted(ROOT.glob("*/README.md"))]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(document):
    text = re.sub(r"`[^`\n]*`", "", document.read_text(encoding="utf-8"))  # a launch, kernel[grid](...), is no link
    targets = re.findall(r"\]\(([^)\s]+)\)|(?:src|href)=\"([^\"]+)\"", text)
    for target in (a or b for a, b in targets):
        if not re.match(r"https?://|#", target):
            assert (document.parent / target.split("#")[0]).exists(), f"{target} does not exist"


def test_links_into_the_glossary_lead_to_a_term_or_a_group():
    text = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    terms = re.findall(r'<a id="([^"]+)"></a>', text)
    assert len(terms) == len(set(terms))
    headings = {title.lower().replace(" ", "-") for title in re.findall(r"^#+ (.+)$", text, re.M)}
    for path in [*notebooks.notebooks(), *DOCUMENTS]:
        inside = r"\]\(#([\w-]+)" if path.name == "glossary.md" else r"glossary\.md#([\w-]+)"
        missing = set(re.findall(inside, path.read_text(encoding="utf-8"))) - headings - set(terms)
        assert not missing, f"{path.relative_to(ROOT)}: the glossary has no {', '.join(sorted(missing))}"


def test_readme_lists_every_notebook():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for path in notebooks.notebooks():
        assert f"({path.relative_to(ROOT).as_posix()})" in text


def test_readme_shows_the_lessons_as_they_are(capsys):
    assert contents.main(["--check"]) == 0, capsys.readouterr().out


def test_a_lesson_builds_on_lessons_that_come_before_it():
    paths = sorted((ROOT / "lessons").glob("*.ipynb"))
    numbers = [path.name.partition("_")[0] for path in paths]
    for place, path in enumerate(paths):
        lesson = contents.described(path)
        assert set(lesson.needs) <= set(numbers[:place]), path.name
        assert lesson.minutes, f"{path.name}: say 'about N minutes', or minutes in the metadata"


def test_results_show_the_recorded_figures():
    subprocess.run([sys.executable, ROOT / "bench" / "table.py", "--check"], check=True)


def test_readme_says_where_to_report_a_mistake():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    address = notebooks.repository()
    assert (address if address else "no public address yet") in text


def test_a_dev_container_sets_the_course_up_and_forwards_the_port_of_make_lab():
    """As far as that can be known without pulling its image."""
    container = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text(encoding="utf-8"))
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    program, target = container["postCreateCommand"].split()
    assert program == "make" and f"\n{target}: " in makefile
    assert all(f"localhost:{port} " in makefile for port in container["forwardPorts"])
    assert f"python{container['image'].rpartition(':')[2]} " in makefile  # among those that make setup looks for


def test_jupyterlab_asks_for_no_news_and_wraps_long_lines():
    """`make setup` writes these settings where JupyterLab looks for those of its environment."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    words = re.search(r"^LAB_SETTINGS := ((?:.+\\\n)*.+)$", makefile, re.MULTILINE)[1]
    settings = json.loads(words.replace("\\\n", ""))
    assert settings["@jupyterlab/apputils-extension:notification"]["fetchNews"] == "false"
    assert settings["@jupyter-widgets/jupyterlab-manager:plugin"]["saveState"] is True, "a reopened notebook shows them"
    assert settings["@jupyterlab/notebook-extension:tracker"]["codeCellConfig"]["lineWrap"] is True
    assert "'$(LAB_SETTINGS)' >.venv/share/jupyter/lab/settings/overrides.json" in makefile
