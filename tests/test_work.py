"""work/: what is copied there, what is renewed, and that nothing a learner did is ever lost."""

import getpass
import json
import os
import re
import shutil
from pathlib import Path

import nbformat
import pytest
from nbformat.sign import NotebookNotary

from grading import intake
from instruments import notebooks, start, work

ROOT = Path(__file__).resolve().parents[1]
EXERCISE, LESSON = "exercises/05_rmsnorm_exercise.ipynb", "lessons/05_rmsnorm.ipynb"
SOLUTION, NEW = "solutions/05_rmsnorm_solution.ipynb", EXERCISE.replace(".ipynb", " (new).ipynb")


def release(root: Path, name: str, *sources: str, output: str = "") -> None:
    """Store a notebook of the course: a title with links, and a code cell for each source."""
    title = "# RMSNorm\n[sibling](../lessons/05_rmsnorm.ipynb), [glossary](../docs/glossary.md#warp)"
    nb = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell(title, id="title")])
    nb.metadata.update(notebooks.METADATA)
    for i, source in enumerate(sources):
        nb.cells.append(nbformat.v4.new_code_cell(source, id=f"cell-{i}"))
        nb.cells[-1].outputs = [nbformat.v4.new_output("stream", text=output)] if output else []
    (root / name).parent.mkdir(exist_ok=True)
    nbformat.write(nb, root / name)


@pytest.fixture(autouse=True)
def jupyter(tmp_path, monkeypatch):
    """Jupyter's own folder, in which it remembers the notebooks that it trusts."""
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "jupyter"))


@pytest.fixture
def course(tmp_path) -> Path:
    """A course of three notebooks, copied once into its work/."""
    release(tmp_path, LESSON, "1 + 1")
    release(tmp_path, EXERCISE, "def f():\n    raise NotImplementedError()", "check(f)")
    release(tmp_path, SOLUTION, "def f():\n    return 1")
    assert str(work.update(tmp_path)) == f"work/: copied {LESSON}, {EXERCISE}, {SOLUTION}."
    return tmp_path


def edit(path: Path, source: str) -> None:
    """Change the last cell, as a learner does, and save."""
    nb = nbformat.read(path, as_version=4)
    nb.cells[-1].source = source
    nbformat.write(nb, path)


def run(path: Path) -> None:
    """What running all cells and saving leaves behind: outputs, counts, metadata, and an empty cell at the end."""
    nb = nbformat.read(path, as_version=4)
    for count, cell in enumerate(c for c in nb.cells if c.cell_type == "code"):
        cell.outputs, cell.execution_count = [nbformat.v4.new_output("stream", text="hers")], count + 1
        cell.metadata["scrolled"] = True
    nb.cells.append(nbformat.v4.new_code_cell(""))
    nb.metadata["kernelspec"]["display_name"] = "Another name"
    nbformat.write(nb, path)


def files(root: Path) -> dict:
    """Everything below work/ but what it remembers: {path: bytes}."""
    found = {p.relative_to(root / "work").as_posix(): p.read_bytes() for p in root.glob("work/**/*") if p.is_file()}
    found.pop(work.MANIFEST, None)
    return found


# Copying and renewing


def test_a_second_update_changes_nothing(course):
    before = files(course)
    assert set(before) == {LESSON, EXERCISE, SOLUTION}
    assert str(work.update(course)) == "work/: up to date."
    assert files(course) == before


def test_a_new_version_replaces_what_was_not_changed(course):
    release(course, LESSON, "2 + 2")
    assert str(work.update(course)) == f"work/: renewed {LESSON}."
    assert b"2 + 2" in files(course)[LESSON]


def test_running_and_saving_is_no_change(course):
    run(course / "work" / LESSON)
    hers = files(course)[LESSON]
    assert str(work.update(course)) == "work/: up to date."
    release(course, LESSON, "1 + 1", output="the course's")  # stored anew with other outputs, the same sources
    assert str(work.update(course)) == "work/: up to date."
    assert files(course)[LESSON] == hers
    release(course, LESSON, "2 + 2")
    assert work.update(course).renewed == [LESSON]
    assert b"2 + 2" in files(course)[LESSON]


def test_outputs_stored_anew_reach_a_copy_that_was_never_saved(course):
    release(course, LESSON, "1 + 1", output="the course's")
    assert str(work.update(course)) == "work/: up to date."
    assert b"the course's" in files(course)[LESSON]


def test_a_changed_copy_is_kept_and_the_new_version_put_beside_it_once(course):
    edit(course / "work" / EXERCISE, "check(f)  # mine")
    mine = files(course)[EXERCISE]
    assert str(work.update(course)) == "work/: up to date."  # the course has nothing newer
    release(course, EXERCISE, "def f(x):\n    raise NotImplementedError()", "check(f)")
    told = str(work.update(course))
    assert told == f"work/: kept {EXERCISE} as you changed it, with the new version beside it as {NEW!r}."
    assert files(course)[EXERCISE] == mine and b"def f(x)" in files(course)[NEW]
    assert str(work.update(course)) == "work/: up to date."
    (course / "work" / NEW).unlink()  # seen, and not wanted
    assert str(work.update(course)) == "work/: up to date."
    assert NEW not in files(course)


def test_a_new_version_beside_is_replaced_unless_it_was_changed(course):
    edit(course / "work" / EXERCISE, "mine")
    for version in ("second", "third"):
        release(course, EXERCISE, version)
        assert work.update(course).beside == {EXERCISE: NEW}
        assert version.encode() in files(course)[NEW]
    edit(course / "work" / NEW, "begun here")
    release(course, EXERCISE, "fourth")
    assert work.update(course).beside == {EXERCISE: NEW.replace("new", "new 2")}
    assert b"begun here" in files(course)[NEW] and b"mine" in files(course)[EXERCISE]


def test_taking_the_new_version_over_makes_it_the_copy(course):
    edit(course / "work" / EXERCISE, "mine")
    release(course, EXERCISE, "second")
    work.update(course)
    os.replace(course / "work" / NEW, course / "work" / EXERCISE)
    assert str(work.update(course)) == "work/: up to date."
    release(course, EXERCISE, "third")
    assert work.update(course).renewed == [EXERCISE]


def test_a_notebook_that_is_new_in_the_course_is_copied(course):
    release(course, "lessons/06_online_softmax.ipynb", "1")
    assert work.update(course).copied == ["lessons/06_online_softmax.ipynb"]


def test_a_deleted_copy_stays_away_until_it_is_asked_for(course):
    (course / "work" / LESSON).unlink()
    release(course, LESSON, "2 + 2")
    told = str(work.update(course))
    assert told == f"work/: left out {LESSON}, which you deleted (make work RESTORE=1 copies again)."
    assert LESSON not in files(course)
    assert work.update(course, restore=True).copied == [LESSON]
    assert b"2 + 2" in files(course)[LESSON]


def test_many_notebooks_are_counted_not_listed(course):
    for number in range(6, 12):
        release(course, f"lessons/{number:02}_name.ipynb", "1")
    assert str(work.update(course)) == "work/: copied 6 notebooks."
    for number in range(6, 12):
        edit(course / f"work/lessons/{number:02}_name.ipynb", "mine")
        release(course, f"lessons/{number:02}_name.ipynb", "2")
    assert str(work.update(course)).startswith("work/: kept 6 that you changed, each with the new version beside it")


# Odd states


@pytest.mark.parametrize("content", ["", "{", "[]", '{"lessons/05_rmsnorm.ipynb": 3}', None])
def test_a_damaged_memory_loses_nothing(course, content):
    edit(course / "work" / EXERCISE, "mine")
    (course / "work" / work.MANIFEST).unlink()
    if content is not None:
        (course / "work" / work.MANIFEST).write_text(content)
    assert work.update(course).beside == {EXERCISE: NEW}  # for all it knows, the course has moved on
    assert b"mine" in files(course)[EXERCISE]
    assert str(work.update(course)) == "work/: up to date."
    release(course, LESSON, "2 + 2")
    assert work.update(course).renewed == [LESSON]


@pytest.mark.parametrize("content", [b"not a notebook", b"\xff\xfe\x00", b"", b'{"cells": 3}', b"[" * 100_000])
def test_a_copy_that_is_no_notebook_is_kept(course, content):
    (course / "work" / LESSON).write_bytes(content)
    release(course, LESSON, "2 + 2")
    done = work.update(course)
    assert done.beside == {LESSON: "lessons/05_rmsnorm (new).ipynb"} and not done.renewed
    assert files(course)[LESSON] == content


def test_a_link_or_a_folder_in_a_copy_s_place_is_kept(course, tmp_path):
    (course / "work" / LESSON).unlink()
    (course / "work" / LESSON).mkdir()
    (course / "elsewhere.ipynb").write_bytes(files(course)[EXERCISE])
    (course / "work" / EXERCISE).unlink()
    (course / "work" / EXERCISE).symlink_to(course / "elsewhere.ipynb")
    for name in (LESSON, EXERCISE):
        release(course, name, "2 + 2")
    assert set(work.update(course).beside) == {LESSON, EXERCISE}
    assert (course / "work" / LESSON).is_dir() and (course / "work" / EXERCISE).is_symlink()
    assert b"2 + 2" not in (course / "elsewhere.ipynb").read_bytes()


def test_files_of_one_s_own_are_left_alone(course):
    own = {"notes.txt": b"x", "lessons/05_rmsnorm-Copy1.ipynb": b"{}", NEW: b"her own, of that name"}
    for name, content in own.items():
        (course / "work" / name).write_bytes(content)
    edit(course / "work" / EXERCISE, "mine")
    release(course, EXERCISE, "second")
    assert work.update(course, restore=True).beside == {EXERCISE: NEW.replace("new", "new 2")}
    assert {name: files(course)[name] for name in own} == own


def test_a_notebook_withdrawn_from_the_course_stays_with_the_learner(course):
    (course / LESSON).unlink()
    assert str(work.update(course)) == "work/: up to date."
    assert LESSON in files(course)


def test_a_damaged_notebook_of_the_course_is_passed_over(course):
    before = files(course)
    (course / LESSON).write_text("<<<<<<< HEAD\n{}")
    release(course, EXERCISE, "second")
    done = work.update(course)
    assert done.unreadable == [LESSON] and done.renewed == [EXERCISE]
    assert f"passed over {LESSON}, damaged in the course's own folder" in str(done)
    assert files(course)[LESSON] == before[LESSON]


@pytest.mark.parametrize("steps", range(5))
def test_a_crash_in_the_middle_leaves_whole_files_and_the_next_run_finishes(course, monkeypatch, steps):
    """Power fails after some replacements: nothing after them happens, not even writing down what was done."""
    edit(course / "work" / SOLUTION, "mine")
    before, replace, left = files(course), os.replace, iter(range(steps))
    for name in (LESSON, EXERCISE, SOLUTION):
        release(course, name, "second")

    def fails(*paths):
        if next(left, None) is None:
            raise OSError("no power")
        replace(*paths)

    monkeypatch.setattr(work.os, "replace", fails)
    if steps < 4:
        with pytest.raises(OSError, match="no power"):
            work.update(course)
    else:
        work.update(course)
    monkeypatch.setattr(work.os, "replace", replace)
    after = files(course)
    assert not [name for name in after if Path(name).name.startswith(".")]
    assert all(content == before.get(name) or b"second" in content for name, content in after.items())
    work.update(course)
    beside = SOLUTION.replace(".ipynb", " (new).ipynb")
    assert set(files(course)) == {*before, beside}
    assert all(b"second" in files(course)[name] for name in (LESSON, EXERCISE, beside))
    assert files(course)[SOLUTION] == before[SOLUTION]
    assert str(work.update(course)) == "work/: up to date."


def test_the_command_says_what_was_done_and_what_went_wrong(course, monkeypatch, capsys):
    monkeypatch.setattr(work, "ROOT", course)
    assert work.main([]) == 0 and capsys.readouterr().out == "work/: up to date.\n"
    shutil.rmtree(course / "work")
    (course / "work").write_text("a file")
    assert work.main(["--restore"]) == 1
    assert capsys.readouterr().err.startswith("work/ could not be brought up to date")


# Names from before exercises and solutions had their own

OLD = {EXERCISE: "exercises/05_rmsnorm.ipynb", SOLUTION: "solutions/05_rmsnorm.ipynb"}


@pytest.fixture
def older(course) -> Path:
    """The course whose work/ was made when its three notebooks had one name."""
    manifest = (course / "work" / work.MANIFEST).read_text()
    for name, old in OLD.items():
        (course / "work" / name).rename(course / "work" / old)
        manifest = manifest.replace(name, old)
    (course / "work" / work.MANIFEST).write_text(manifest)
    return course


def test_a_copy_of_the_old_name_is_moved_and_that_is_said(older):
    edit(older / "work" / OLD[EXERCISE], "check(f)  # mine")
    before = files(older)
    moved = "; ".join(f"moved {old} to {name}, its new name" for name, old in OLD.items())
    assert str(work.update(older)) == f"work/: {moved}."
    assert files(older) == {LESSON: before[LESSON], **{name: before[old] for name, old in OLD.items()}}
    assert str(work.update(older)) == "work/: up to date."
    for name in OLD:
        release(older, name, "second")
    done = work.update(older)  # what was copied is still known
    assert done.renewed == [SOLUTION] and done.beside == {EXERCISE: NEW}


def test_a_run_that_ended_after_the_move_is_no_change_of_the_copy(older):
    manifest = (older / "work" / work.MANIFEST).read_bytes()
    work.update(older)
    (older / "work" / work.MANIFEST).write_bytes(manifest)
    release(older, EXERCISE, "second")
    assert str(work.update(older)) == f"work/: renewed {EXERCISE}."


def test_a_copy_of_the_old_name_never_replaces_one_of_the_new(older):
    shutil.copy(older / EXERCISE, older / "work" / EXERCISE)
    edit(older / "work" / OLD[EXERCISE], "an older try")
    edit(older / "work" / EXERCISE, "mine")
    before = files(older)
    work.update(older)
    assert {name: files(older)[name] for name in (EXERCISE, OLD[EXERCISE])} == {
        name: before[name] for name in (EXERCISE, OLD[EXERCISE])
    }


def test_what_was_deleted_under_the_old_name_stays_away(older):
    (older / "work" / OLD[SOLUTION]).unlink()
    assert work.update(older).deleted == [SOLUTION] and SOLUTION not in files(older)
    assert work.update(older, restore=True).copied == [SOLUTION]


def test_many_moves_are_counted(older):
    for number in range(10, 14):
        release(older, f"exercises/{number}_x_exercise.ipynb", "1")
        shutil.copy(older / f"exercises/{number}_x_exercise.ipynb", older / f"work/exercises/{number}_x.ipynb")
    told = str(work.update(older))
    assert "moved 6 to the course's new names, such as exercises/05_rmsnorm_exercise.ipynb" in told


# Working there


def test_the_folders_are_those_of_the_stored_form():
    assert sorted(start.FOLDERS) == sorted(notebooks.EXECUTED + notebooks.UNEXECUTED)
    assert "/work/" in (ROOT / ".gitignore").read_text().splitlines()


@pytest.mark.parametrize("path", notebooks.notebooks(), ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_links_of_a_copy_lead_somewhere(path):
    """A link may lead to another copy in work/ or out of it, into the course."""
    nb = json.loads(work.copy_of(path))
    texts = ["".join(cell["source"]) for cell in nb["cells"] if cell["cell_type"] == "markdown"]
    for cell in nb["cells"]:
        texts += [
            "".join(o["data"]["text/markdown"]) for o in cell.get("outputs", []) if "text/markdown" in o.get("data", {})
        ]
    for target in re.findall(r"\]\(([^)#]+)", "\n".join(texts)):
        if not target.startswith("https://"):
            place = os.path.normpath(Path("work", path.parent.name, target))
            course = Path(place).relative_to("work") if place.startswith("work/") else Path(place)
            assert (ROOT / course).exists(), f"{path.name} links to {target}"
            assert not place.startswith("work/") or course.parts[0] in start.FOLDERS, f"{place} is not copied"


def test_a_copy_is_as_nbformat_writes_it_and_differs_in_links_and_language_only(course):
    text = (course / "work" / EXERCISE).read_text()
    copy = nbformat.reads(text, as_version=4)
    assert nbformat.writes(copy) + "\n" == text
    nbformat.validate(copy)
    stored = nbformat.read(course / EXERCISE, as_version=4)
    assert "[sibling](../lessons/05_rmsnorm.ipynb), [glossary](../../docs/glossary.md#warp)" in copy.cells[0].source
    assert copy.cells[1:] == stored.cells[1:]
    assert copy.metadata.pop("language_info")["version"] and copy.metadata == {
        key: value for key, value in stored.metadata.items() if key != "language_info"
    }


def test_jupyter_trusts_a_copy_until_somebody_else_changes_it(course, monkeypatch):
    def is_trusted(name):
        return NotebookNotary().check_signature(nbformat.read(course / "work" / name, as_version=4))

    assert is_trusted(LESSON) and is_trusted(EXERCISE)
    release(course, LESSON, "1 + 2")
    work.update(course)
    assert is_trusted(LESSON)
    edit(course / "work" / LESSON, "from elsewhere")
    assert not is_trusted(LESSON)
    monkeypatch.setenv("JUPYTER_DATA_DIR", "/dev/null/nowhere")
    release(course, "lessons/06_new.ipynb", "1")
    assert str(work.update(course)) == "work/: copied lessons/06_new.ipynb."


def test_grade_takes_work_as_one_learner_s_exercises(course, monkeypatch):
    monkeypatch.setattr(intake, "ROOT", course)
    edit(course / "work" / EXERCISE, "mine")
    release(course, EXERCISE, "second")
    work.update(course)
    for given in ("work", "work/exercises"):
        found, aside = intake.collect(course / given, label="")
        assert [(h.learner, h.file) for h in found] == [(getpass.getuser(), course / "work" / EXERCISE)]
        assert aside == [Path(NEW).name]
