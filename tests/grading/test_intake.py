"""Whatever is handed in is found, read as far as it goes, and told about; answers are found by their ids."""

import getpass
import io
import json
import os
import zipfile

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from grading import intake
from instruments.release import ROOT, grade_id, released, task_id

pytestmark = pytest.mark.each  # every set takes milliseconds, and most say something of their own

BYTES = (ROOT / "solutions" / "05_rmsnorm_solution.ipynb").read_bytes()
SOLUTION = nbformat.reads(BYTES.decode(), as_version=4)
PRISTINE = released(SOLUTION)
WHOLE = {task_id(grade_id(cell)): cell.source for cell in SOLUTION.cells if grade_id(cell).startswith("answer_")}
FUNCTIONS = {
    "05.1": ("eager_bytes", "two_pass_bytes", "resident_bytes"),
    "05.2": ("tile_loop",),
    "05.3": ("gemma_norm",),
    "05.4": ("wide_norm",),
    "05.5": ("add_gemma_norm",),
    "05.6": ("show_wrong",),
}


def zipped(files: dict) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return out.getvalue()


def lay(folder, **files):
    """Write files, whose names hold / and no suffix but a last _word."""
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def read(content: bytes, folder):
    (folder / "x.ipynb").write_bytes(content)
    return intake.read(intake.alone(folder / "x.ipynb"))


def answers(nb):
    return intake.answers(PRISTINE, nb, FUNCTIONS)


# ---------------------------------------------------------------- finding

CLASS = {
    "ann/saved.ipynb.txt": BYTES,
    "bob.zip": zipped({"w/one.ipynb": BYTES, "w/data/two.ipynb": BYTES, "__MACOSX/._one.ipynb": b""}),
    "eve/week5/05_rmsnorm.ipynb": BYTES,  # as nbgrader collects them
    "eve/week5/timestamp.txt": b"2025-10-01",
    "eve/.ipynb_checkpoints/a.ipynb": BYTES,
    "joe.ipynb": BYTES,
    "kim/notes.docx": b"x",
}


def test_a_child_of_a_folder_is_one_learner(tmp_path):
    lay(tmp_path, **CLASS, **{"roster.csv": b"x", ".hidden": b"x", "report/index.html": b"x", "bad.zip": b"PK\x03\x04"})
    (tmp_path / "lee").mkdir()
    handed, aside = intake.collect(tmp_path, tmp_path / "report", "")
    problems = {(h.learner, h.path): h.problem for h in handed}
    assert [name for name, problem in problems.items() if not problem] == [
        ("ann", "ann/saved.ipynb.txt"),
        ("bob", "bob.zip/w/data/two.ipynb"),
        ("bob", "bob.zip/w/one.ipynb"),
        ("eve", "eve/week5/05_rmsnorm.ipynb"),
        ("joe", "joe.ipynb"),
    ]
    assert aside == ["roster.csv"] and len(handed) == 8
    assert all(one.read() == BYTES for one in handed if not one.problem)
    assert "not a zip" in problems["bad", "bad.zip"] and "it holds notes.docx" in problems["kim", "kim"]
    assert "it holds nothing" in problems["lee", "lee"]
    assert handed[0].place == str(tmp_path / "ann" / "saved.ipynb.txt")


@pytest.mark.parametrize("above", ["", "hw/"])
def test_a_zip_of_a_class_loses_no_learner(above, tmp_path):
    names = {**CLASS, "lee.zip": CLASS["bob.zip"], "readme.md": b""}
    del names["bob.zip"]
    lay(tmp_path, **{"all.zip": zipped({above + name: content for name, content in names.items()})})
    handed, aside = intake.collect(tmp_path / "all.zip", label="all.zip")
    problems = {h.learner: h.problem for h in handed}
    assert list(problems) == ["ann", "eve", "joe", "kim", "lee"] and aside == [f"all.zip/{above}readme.md"]
    assert not problems["ann"] + problems["eve"] + problems["joe"]
    assert "it holds notes.docx" in problems["kim"] and "a zip inside a zip" in problems["lee"]


def test_notebooks_called_like_exercises_are_one_learners(tmp_path):
    names = ("01_roofline_exercise.ipynb", "05_rmsnorm.ipynb", "06_online_softmax_solution.ipynb")  # new, old, solved
    lay(tmp_path, **{f"jane/{name}": BYTES for name in names})
    lay(tmp_path, **{"ann.zip": zipped({f"mine/{name}": BYTES for name in names})})
    lay(tmp_path, **{"max.zip": zipped({"final.ipynb": BYTES})})
    assert [(h.learner, h.path) for h in intake.collect(tmp_path / "jane", label="")[0]] == [
        ("jane", name) for name in names
    ]
    assert {h.learner for h in intake.collect(tmp_path / "ann.zip")[0]} == {"ann"}
    assert [h.learner for h in intake.collect(tmp_path / "max.zip")[0]] == ["max"]
    assert {h.learner for h in intake.collect(tmp_path, label="")[0]} == {"jane", "ann", "max"}


def test_work_is_its_users_exercises(tmp_path, monkeypatch):
    monkeypatch.setattr(intake, "ROOT", tmp_path)
    names = ("05_rmsnorm_exercise (copy).ipynb", "05_rmsnorm_exercise.ipynb", "06_online_softmax.ipynb")
    lay(tmp_path / "work" / "exercises", **dict.fromkeys(names, BYTES))
    handed, aside = intake.collect(tmp_path / "work", label="")
    assert [(h.learner, h.path) for h in handed] == [(getpass.getuser(), name) for name in names[1:]]
    assert aside == [names[0]]


@pytest.mark.parametrize("name", ["05_rmsnorm", "05_rmsnorm_exercise", "05_rmsnorm_solution"])
def test_a_notebook_named_on_its_own_is_called_after_its_exercise(name, tmp_path):
    lay(tmp_path, **{f"{name}.ipynb": BYTES})
    one = intake.alone(tmp_path / f"{name}.ipynb")
    assert one.learner == "05_rmsnorm" and intake.exercise_of(intake.read(one)[0], one.path, []) == "05_rmsnorm"


def test_links_are_not_followed_and_pipes_not_waited_for(tmp_path):
    room = lay(tmp_path / "class", **{"jane/hw.ipynb": BYTES})
    (room / "joe").mkdir()
    (room / "joe" / "hw.ipynb").symlink_to("../jane/hw.ipynb")
    (room / "joe" / "all").symlink_to("../jane")
    (room / "joe" / "zero.ipynb").symlink_to("/dev/zero")
    (room / "lee.zip").symlink_to("nowhere")
    (room / "max.ipynb").symlink_to("jane/hw.ipynb")
    os.mkfifo(room / "joe" / "pipe.ipynb")
    handed = intake.collect(room, label="")[0]
    assert [h.path for h in handed] == [
        *("jane/hw.ipynb", "joe/hw.ipynb", "joe/pipe.ipynb", "joe/zero.ipynb", "lee.zip", "max.ipynb")
    ]
    assert handed[0].read() == BYTES
    for one in handed[1:]:
        with pytest.raises(intake.Unreadable, match="a link, a pipe or a device|No such file"):
            one.read()
    (tmp_path / "given.ipynb").symlink_to("class/jane/hw.ipynb")
    assert intake.collect(tmp_path / "given.ipynb")[0][0].read() == BYTES  # chosen by whoever grades


def test_reading_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(intake, "MAX_FILE", 1000)
    bomb, many = {"a.ipynb": b"{" + b" " * 100_000}, {f"{n:03d}.ipynb": b"{" for n in range(25)}
    lay(tmp_path, **{"bomb.zip": zipped(bomb), "large.ipynb": bomb["a.ipynb"], "many.zip": zipped(many)})
    handed = intake.collect(tmp_path, label="")[0]
    by = {h.learner: h for h in handed}
    for learner in ("bomb", "large"):
        with pytest.raises(intake.Unreadable, match="larger than"):
            by[learner].read()
    assert sum(h.learner == "many" for h in handed) == intake.MAX_NOTEBOOKS + 1
    assert "more than 20 notebooks" in by["many"].problem


def test_names_of_every_kind_stay_apart(tmp_path):
    for name in (b"-x", b"M\xfcller", b"M\xf6ller", b"a\nb"):
        os.mkdir(os.fsencode(tmp_path) + b"/" + name)
        with open(os.fsencode(tmp_path) + b"/" + name + b"/hw.ipynb", "wb") as file:
            file.write(BYTES)
    found = intake.collect(tmp_path, label="")[0]
    assert {h.learner for h in found} == {"-x", r"M\xfcller", r"M\xf6ller", "a\nb"}
    for handed in found:
        assert (handed.learner + handed.path + handed.place).encode() and handed.read() == BYTES


def test_folders_in_each_other_without_end_are_looked_through(tmp_path, monkeypatch):
    (tmp_path / "class" / "joe").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "class" / "joe")
    for _ in range(300):
        os.mkdir("d")
        os.chdir("d")
    os.chdir(tmp_path)
    assert "no notebook in it" in intake.collect(tmp_path / "class", label="")[0][0].problem


# ---------------------------------------------------------------- reading

JSON = json.loads(BYTES)
ODD = {"cell_type": ["code"], "metadata": {"tags": 3, "nbgrader": {"grade_id": ["a"]}}, "source": "'\ud800'", "id": 7}


@pytest.mark.parametrize(
    "content, words",
    [
        (BYTES.decode().encode("utf-16"), ""),
        (b"\xef\xbb\xbf" + BYTES, ""),
        (json.dumps({**JSON, "nbformat": "four", "nbformat_minor": None}), ""),
        (json.dumps({**JSON, "metadata": {}}), "lost its exercise id"),
        (json.dumps({**JSON, "cells": [*JSON["cells"], 3, {"source": 7}]}), "could not be read and were left out: 2"),
        (json.dumps({**JSON, "cells": [*JSON["cells"], ODD]}), ""),
        (json.dumps(nbformat.convert(nbformat.reads(BYTES.decode(), as_version=4), 3)), "older than 4"),
    ],
    ids=["utf-16", "bom", "format", "no metadata", "odd cells", "odd metadata", "format 3"],
)
def test_what_can_be_repaired_is_repaired_and_told(content, words, tmp_path):
    nb, notes = read(content if isinstance(content, bytes) else content.encode(), tmp_path)
    assert intake.exercise_of(nb, "x", notes) == "05_rmsnorm"
    assert len(notes) == bool(words) and all(words in note for note in notes)
    if words != "older than 4":  # format 3 has no metadata in which ids could be kept
        assert answers(nb) == intake.Answers(WHOLE)
    assert json.dumps(nb, ensure_ascii=False).encode()


@pytest.mark.parametrize(
    "content, words",
    [
        (b"", "damaged"),
        (b"\x89PNG\xff", "not JSON"),
        (BYTES[:9000], "damaged"),
        (b"[1]", "without a notebook's"),
        (b'{"worksheets": [3]}', "without a notebook's"),
        (b'{"cells": [], "metadata": 3}', "without a notebook's"),
        (b'{"cells": {"a": 1}}', "metadata names none"),
        (b"<<<<<<< HEAD\n{}\n=======\n", "merge conflict"),
        (b"[" * 100_000, "damaged"),
        (b'{"cells": [' + b"9" * 5000 + b"]}", "damaged"),
        (b'{"cells": [], "metadata": {"bytes_first": {"exercise": "99_x"}}}', "'99_x' is unknown"),
    ],
)
def test_what_cannot_be_read_is_one_sentence(content, words, tmp_path):
    with pytest.raises(intake.Unreadable, match=words):
        intake.exercise_of(read(content, tmp_path)[0], "x", [])


# ---------------------------------------------------------------- answers


def copy(nb=SOLUTION):
    return nbformat.reads(nbformat.writes(nb), as_version=4)


def cell_of(nb, task):
    return next(cell for cell in nb.cells if grade_id(cell) == "answer_" + task.replace(".", "_"))


def test_the_solution_is_taken_whole_and_nothing_else():
    nb = copy()
    nb.cells.reverse()
    nb.cells.insert(0, new_code_cell("raise SystemExit"))
    assert answers(nb) == intake.Answers(WHOLE)


def test_a_pristine_exercise_is_called_that():
    nb = copy(PRISTINE)
    for cell in nb.cells:
        cell.source = "\n" + cell.source.replace("\n", "  \n") + "\n\n"  # as editors leave it
    found = answers(nb)
    assert found.untouched == set(WHOLE) and found.notes == [intake.PRISTINE]
    cell_of(nb, "05.2").source = "def tile_loop(): pass"
    found = answers(nb)
    assert "05.2" not in found.untouched and not found.notes


def test_of_several_cells_with_one_id_the_last_changed_one_counts():
    nb, cell = copy(), cell_of(SOLUTION, "05.1")
    second = new_code_cell("# again\n" + cell.source, metadata=cell.metadata)
    nb.cells += [second, cell_of(PRISTINE, "05.1")]
    found = answers(nb)
    assert found.sources["05.1"] == second.source and "2 cells carry the answer's id" in found.notes[0]


def test_a_missing_answer_is_the_stub():
    nb = copy()
    nb.cells.remove(cell_of(nb, "05.3"))
    found = answers(nb)
    assert found.untouched == {"05.3"} and "05.3: the answer cell is missing" in found.notes
    assert found.sources["05.3"] == cell_of(PRISTINE, "05.3").source


@pytest.mark.parametrize("missing", [False, True, "remark"], ids=["untouched", "missing", "remark"])
@pytest.mark.parametrize("where", ["own", "other"])
def test_an_answer_elsewhere_is_taken_as_it_stands_and_told(where, missing):
    nb = copy(PRISTINE)
    own = cell_of(nb, "05.3")
    if where == "own":
        source = "# mine\n" + WHOLE["05.3"]
        nb.cells += [new_code_cell("gemma_norm = 'an older try'"), new_code_cell(source)]
        nb.cells.append(new_markdown_cell(WHOLE["05.3"]))  # text is no code
    else:
        source = cell_of(nb, "05.4").source = WHOLE["05.3"] + "\n\n" + WHOLE["05.4"]
    if missing == "remark":
        own.source += "\n# my answer is elsewhere"
    elif missing:
        nb.cells.remove(own)
    found = answers(nb)
    assert found.sources["05.3"] == source and "05.3" not in found.untouched
    words = "a cell of its own" if where == "own" else "the answer cell of 05.4"
    assert len(found.notes) == 1 and words in found.notes[0]


def test_a_given_cell_does_not_hide_an_answer_elsewhere():
    own = new_code_cell("def mine(): ...", metadata={"nbgrader": {"grade_id": "answer_05_1"}})
    source = "def mine():\n    return 1"
    elsewhere = new_notebook(cells=[new_code_cell(source)])
    found = intake.answers(new_notebook(cells=[own]), elsewhere, {"05.1": ("mine", "given")})
    assert found.sources == {"05.1": source}


def test_fragments_are_not_put_together():
    nb, names = copy(PRISTINE), FUNCTIONS["05.1"]
    nb.cells += [new_code_cell(f"def {name}(rows, cols, itemsize): return 1") for name in names]
    assert "05.1" in answers(nb).untouched


def test_an_endless_answer_is_not_graded():
    nb = copy()
    cell_of(nb, "05.2").source = "1" * (intake.MAX_ANSWER + 1)
    assert answers(nb).sources["05.2"] == intake.TOO_LONG
