"""Whatever is handed in is found, read as far as it goes, and told about; nothing of it aborts a class."""

import getpass
import io
import json
import os
import socket
import time
import zipfile

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell
from synthetic_class import functions_of

from grading import intake, jail
from grading.release import ROOT, grade_id, released
from grading.transplant import transplant

SOLUTION = (ROOT / "solutions" / "05_rmsnorm.ipynb").read_bytes()
PRISTINE = released(nbformat.reads(SOLUTION.decode(), as_version=4))
FUNCTIONS = functions_of(PRISTINE)


def zipped(files: dict) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return out.getvalue()


def changed(**fields) -> bytes:
    return json.dumps({**json.loads(SOLUTION), **fields}).encode()


def planted(nb):
    """(sources of the answers, all notes) as grading would have them."""
    nb, notes = intake.mended(nb, PRISTINE, FUNCTIONS)
    plan = transplant(PRISTINE, nb, "", FUNCTIONS)
    return plan.answers, notes + plan.notes


WHOLE, _ = planted(intake.parse(SOLUTION, "x")[0])


# ---------------------------------------------------------------- finding


def test_a_folder_is_a_class_and_a_child_of_it_one_learners(tmp_path):
    for name in (
        "jane/deep/a.ipynb",
        "jane/.ipynb_checkpoints/a.ipynb",
        "joe.ipynb",
        "roster.csv",
        ".hidden",
        "kim.pdf",
        "lee/notes.docx",
        "ann/saved.ipynb.txt",
        "report/index.html",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(SOLUTION if "ipynb" in name else b"x")
    (tmp_path / "max.zip").write_bytes(
        zipped({"w/one.ipynb": SOLUTION, "w/two.ipynb": SOLUTION, "__MACOSX/._one.ipynb": b""})
    )
    (tmp_path / "bad.zip").write_bytes(b"PK\x03\x04")
    handed, aside = intake.found_in(tmp_path, tmp_path / "report", "")
    found = {(h.learner, h.path): h.problem for h in handed}
    assert [key for key, problem in found.items() if not problem] == [
        ("ann", "ann/saved.ipynb.txt"),
        ("jane", "jane/deep/a.ipynb"),
        ("joe", "joe.ipynb"),
        ("max", "max.zip/w/one.ipynb"),
        ("max", "max.zip/w/two.ipynb"),
    ]
    assert "not a zip" in found["bad", "bad.zip"] and aside == ["kim.pdf", "roster.csv"]
    assert "notes.docx" in found["lee", "lee"] and len(found) == 7


def test_a_zip_of_a_class(tmp_path):
    (tmp_path / "all.zip").write_bytes(
        zipped({"hw/jane/x.ipynb": SOLUTION, "hw/joe.ipynb": SOLUTION, "hw/readme.md": b""})
    )
    found, aside = intake.found_in(tmp_path / "all.zip", label="all.zip")
    assert [h.learner for h in found] == ["jane", "joe"] and found[0].read() == SOLUTION
    assert aside == ["all.zip/hw/readme.md"]


def test_no_learner_of_a_zipped_class_is_lost(tmp_path):
    (tmp_path / "all.zip").write_bytes(
        zipped(
            {
                "jane/x.ipynb": SOLUTION,
                "joe.ipynb": SOLUTION,
                "kim/scan.pdf": b"",
                "lee.zip": zipped({"a.ipynb": SOLUTION}),
                "roster.csv": b"",
            }
        )
    )
    found, aside = intake.found_in(tmp_path / "all.zip", label="all.zip")
    problems = {h.learner: h.problem for h in found}
    assert list(problems) == ["jane", "joe", "kim", "lee"] and not problems["jane"] + problems["joe"]
    assert "it holds scan.pdf" in problems["kim"] and "a zip inside a zip" in problems["lee"]
    assert aside == ["all.zip/roster.csv"]


def test_nbgraders_folder_is_a_class(tmp_path):
    """What nbgrader collects: submitted/LEARNER/ASSIGNMENT/notebook, with a time stamp beside it."""
    for name in ("ada/week5/05_rmsnorm.ipynb", "bob/week5/05_rmsnorm.ipynb", "ada/week5/timestamp.txt"):
        (tmp_path / "submitted" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "submitted" / name).write_bytes(SOLUTION if "ipynb" in name else b"2025-10-01 12:00:00 UTC")
    found, aside = intake.found_in(tmp_path / "submitted", label="")
    assert [(h.learner, h.path, h.problem) for h in found] == [
        (name, f"{name}/week5/05_rmsnorm.ipynb", "") for name in ("ada", "bob")
    ] and not aside


def test_a_path_is_shown_as_seen_from_what_was_given(tmp_path):
    for name in ("a/hw", "b/hw", "c"):
        (tmp_path / name).mkdir(parents=True)
    a, b, c = tmp_path / "a" / "hw", tmp_path / "b" / "hw", tmp_path / "c"
    assert intake.labels([a]) == [""] and intake.labels([a, c]) == ["hw", "c"]
    assert intake.labels([a, b]) == ["a/hw", "b/hw"]
    (c / "jane.ipynb").write_bytes(SOLUTION)
    assert intake.labels([c / "jane.ipynb"]) == ["jane.ipynb"]
    handed = intake.found_in(c, label="")[0][0]
    assert (handed.path, handed.place) == ("jane.ipynb", str(c / "jane.ipynb"))


def test_a_zip_that_lies_about_its_size_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(intake, "MAX_FILE", 1000)
    (tmp_path / "bomb.zip").write_bytes(zipped({"a.ipynb": b"{" + b" " * 100_000}))
    with pytest.raises(intake.Unreadable, match="larger than"):
        intake.found_in(tmp_path / "bomb.zip")[0][0].read()


def test_notebooks_called_like_exercises_are_one_learners(tmp_path):
    for name in ("05_rmsnorm", "01_roofline"):
        (tmp_path / f"{name}.ipynb").write_bytes(SOLUTION)
    (tmp_path / "notes.txt").write_text("x")
    (tmp_path / ".ipynb_checkpoints").mkdir()
    found, aside = intake.found_in(tmp_path, label="")
    assert [(h.learner, h.path) for h in found] == [
        (tmp_path.name, "01_roofline.ipynb"),
        (tmp_path.name, "05_rmsnorm.ipynb"),
    ]
    assert aside == ["notes.txt"]
    files = {f"mine/{name}.ipynb": SOLUTION for name in ("05_rmsnorm", "01_roofline")}
    (tmp_path / "ann.zip").write_bytes(zipped(files))
    assert {h.learner for h in intake.found_in(tmp_path / "ann.zip")[0]} == {"ann"}
    a_class = intake.found_in(tmp_path, label="")[0]
    assert {h.learner for h in a_class} == {"01_roofline", "05_rmsnorm", "ann"}
    assert {h.learner for h in intake.found_in(ROOT / "exercises", label="")[0]} == {getpass.getuser()}


def test_links_are_not_followed_out_of_a_learners_folder(tmp_path):
    for name in ("jane", "joe", "kim/.own"):
        (tmp_path / "class" / name).mkdir(parents=True)
    (tmp_path / "class" / "jane" / "hw.ipynb").write_bytes(SOLUTION)
    (tmp_path / "class" / "joe" / "hw.ipynb").symlink_to("../jane/hw.ipynb")
    (tmp_path / "class" / "joe" / "all").symlink_to("../jane")
    (tmp_path / "class" / "lee").symlink_to("jane")
    (tmp_path / "class" / "max.ipynb").symlink_to("jane/hw.ipynb")
    (tmp_path / "class" / "kim" / ".own" / "hw.ipynb").write_bytes(SOLUTION)
    for name in ("a.ipynb", "b.ipynb"):
        (tmp_path / "class" / "kim" / name).symlink_to(".own/hw.ipynb")  # one notebook of their own, twice
    found = intake.found_in(tmp_path / "class", label="")[0]
    assert [h.learner for h in found] == ["jane", "joe", "kim", "lee", "max"]
    for handed in found:
        if handed.learner in ("jane", "kim"):
            assert handed.read() == SOLUTION
        else:
            with pytest.raises(intake.Unreadable, match="links are not followed"):
                handed.read()
    (tmp_path / "given.ipynb").symlink_to("class/jane/hw.ipynb")
    assert intake.found_in(tmp_path / "given.ipynb")[0][0].read() == SOLUTION  # chosen by whoever grades


def test_what_is_no_plain_file_is_never_waited_for(tmp_path, monkeypatch):
    (tmp_path / "joe").mkdir()
    monkeypatch.chdir(tmp_path / "joe")
    os.mkfifo("pipe.ipynb")
    os.mkfifo("pipe.zip")
    os.mkfifo("pipe.txt")
    with socket.socket(socket.AF_UNIX) as ours:
        ours.bind("socket.ipynb")
        (tmp_path / "joe" / "device.ipynb").symlink_to("/dev/zero")
        found = intake.found_in(tmp_path, label="")[0]
        assert [h.path for h in found] == ["joe/device.ipynb", "joe/pipe.ipynb", "joe/pipe.zip", "joe/socket.ipynb"]
        for handed in found:
            with pytest.raises(intake.Unreadable, match="a pipe, a socket or a device|a link"):
                handed.read()
    swapped = intake.Handed("joe", "x", tmp_path / "joe" / "pipe.ipynb")
    plain = os.stat(__file__)
    monkeypatch.setattr(intake.os, "lstat", lambda _: plain)  # it was a file when it was looked at
    with pytest.raises(intake.Unreadable, match="a pipe"):
        swapped.read()


def test_a_learner_has_a_bounded_number_of_files(tmp_path, monkeypatch):
    monkeypatch.setattr(intake, "MAX_ENTRIES", 100)
    for learner, count in (("joe", 25), ("kim", 300)):
        (tmp_path / "class" / learner).mkdir(parents=True)
        for number in range(count):
            (tmp_path / "class" / learner / f"{number:03d}.{'ipynb' if learner == 'joe' else 'txt'}").write_text("x")
    (tmp_path / "class" / "lee.zip").write_bytes(zipped({f"{n:03d}.ipynb": b"{" for n in range(25)}))
    (tmp_path / "class" / "max.zip").write_bytes(zipped({f"{n:03d}.txt": b"{" for n in range(101)}))
    found = intake.found_in(tmp_path / "class", label="")[0]
    for learner in ("joe", "lee"):
        theirs = [h for h in found if h.learner == learner]
        assert [bool(h.problem) for h in theirs] == [False] * 20 + [True]
        assert "more than 20 notebooks" in theirs[-1].problem
    assert "more than 100 files" in next(h.problem for h in found if h.learner == "kim")
    assert "more than 100 members" in next(h.problem for h in found if h.learner == "max")


def test_names_of_every_kind_stay_apart(tmp_path):
    names = [b"-x", b"M\xfcller", b"M\xf6ller", b"a\nb", b"\x1b[31mred"]
    for name in names:
        os.mkdir(os.fsencode(tmp_path) + b"/" + name)
        with open(os.fsencode(tmp_path) + b"/" + name + b"/hw.ipynb", "wb") as file:
            file.write(SOLUTION)
    found = intake.found_in(tmp_path, label="")[0]
    assert {h.learner for h in found} == {"-x", r"M\xfcller", r"M\xf6ller", "a\nb", "\x1b[31mred"}
    for handed in found:
        assert (handed.learner + handed.path + handed.place).encode() and handed.read() == SOLUTION


def test_folders_in_each_other_without_end_are_looked_through(tmp_path, monkeypatch):
    (tmp_path / "class" / "joe").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "class" / "joe")
    for _ in range(1500):
        os.mkdir("d")
        os.chdir("d")
    os.chdir(tmp_path)
    assert "no notebook in it" in intake.found_in(tmp_path / "class", label="")[0][0].problem
    jail.remove(tmp_path / "class")


# ---------------------------------------------------------------- reading


@pytest.mark.parametrize(
    "content, words",
    [
        (changed(nbformat=9), "'9'"),
        (changed(nbformat="four"), "'four'"),
        (changed(nbformat_minor="x", metadata=json.loads(SOLUTION)["metadata"]), ""),
        (
            changed(cells=[*json.loads(SOLUTION)["cells"], 3, {"cell_type": "code", "source": 7}]),
            "2 cells could not be",
        ),
        (SOLUTION.decode().encode("utf-16"), "UTF-16"),
        (b"\xef\xbb\xbf" + SOLUTION, ""),
        (changed(metadata=3), "lost its exercise id"),
        (
            changed(
                cells=[
                    *json.loads(SOLUTION)["cells"],
                    {
                        "cell_type": "code",
                        "source": "",
                        "metadata": {},
                        "outputs": [{"output_type": "stream", "text": "x" * (6 << 20)}],
                    },
                ]
            ),
            "6 MB of outputs",
        ),
        (
            changed(
                cells=[
                    {**cell, "cell_type": ["code"]} if i == 0 else cell
                    for i, cell in enumerate(json.loads(SOLUTION)["cells"])
                ]
            ),
            "",
        ),
    ],
    ids=["format 9", "format word", "minor", "odd cells", "utf-16", "bom", "no metadata", "outputs", "cell type"],
)
def test_what_can_be_repaired_is_repaired_and_told(content, words):
    nb, notes = intake.parse(content, "x")
    assert intake.exercise_of(nb, "x", notes) == "05_rmsnorm"
    assert planted(nb)[0] == WHOLE
    assert any(words in note for note in notes) if words else not notes, notes


@pytest.mark.parametrize(
    "odd",
    [
        {"tags": ["a", "a"]},
        {"name": ""},
        {"collapsed": "x"},
        {"nbgrader": {"grade_id": ["a"]}, "jupyter": 3},
        {"deep": json.loads("[" * 900 + "]" * 900)},
        {"number": 10**4000},
        {"half": "\ud800"},
    ],
    ids=lambda odd: [*odd][0],
)
def test_metadata_is_not_held_to_a_schema(odd):
    strange = {
        "cell_type": "code",
        "metadata": odd,
        "source": "'\ud800'",
        "id": "§" * 99,
        "attachments": 3,
        "outputs": [{"output_type": "no"}],
    }
    cells = [*json.loads(SOLUTION)["cells"], strange]
    nb, notes = intake.parse(changed(cells=cells), "x")
    assert planted(nb)[0] == WHOLE and not notes
    assert nbformat.writes(transplant(PRISTINE, nb, "", FUNCTIONS).notebook).encode()


@pytest.mark.parametrize("unit", ["[],", "{},", "1,", '{"source":""},', "[[[[]]]],", '{"metadata":{"a":1}},'])
def test_no_file_takes_long(unit):
    content = ('{"cells": [' + unit * (intake.MAX_FILE // len(unit) - 10) + "1]}").encode()
    begun = time.process_time()
    with pytest.raises(intake.Unreadable, match="cells, and more than 2,000 are not graded"):
        intake.parse(content, "x")
    assert time.process_time() - begun < 60  # against hanging: it is over in seconds


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_zip_is_unpacked_only_where_that_is_bounded(method, tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w", method) as archive:
        archive.writestr("a.ipynb", SOLUTION)
        archive.writestr("b.txt", b" " * 1000)
    with pytest.raises(intake.Unreadable, match="uncommon way"):
        intake.found_in(tmp_path / "a.zip")[0][0].read()


def test_a_zip_with_endless_names_is_not_read(tmp_path):
    (tmp_path / "a.zip").write_bytes(zipped({"n" * 60_000 + ".ipynb": SOLUTION}))
    assert "name of more than" in intake.found_in(tmp_path / "a.zip")[0][0].problem
    (tmp_path / "b.zip").write_bytes(zipped({f"{'n' * 60_000}{n}": b"" for n in range(80)}))
    assert "members" in intake.found_in(tmp_path / "b.zip")[0][0].problem


def test_format_3_is_converted():
    nb = nbformat.reads(SOLUTION.decode(), as_version=4)
    cells = len(nb.cells)
    new, notes = intake.parse(json.dumps(nbformat.convert(nb, 3)).encode(), "x")
    assert "converted" in notes[0] and len(new.cells) == cells


@pytest.mark.parametrize(
    "content, words",
    [
        (b"", "damaged"),
        (b"\x89PNG\xff", "not text"),
        (SOLUTION[:9000], "damaged"),
        (b"[1]", "without a notebook's"),
        (b"<<<<<<< HEAD\n{}\n=======\n", "merge conflict"),
        (b"[" * 100_000, "damaged"),
        (b'{"worksheets": [3]}', "old notebook"),
        (b'{"cells": [' + b"9" * 5000 + b"]}", "damaged"),
    ],
)
def test_what_cannot_be_read_is_one_sentence(content, words):
    with pytest.raises(intake.Unreadable, match=words):
        intake.parse(content, "x")


# ---------------------------------------------------------------- cells


def cell(nb, name):
    return next(c for c in nb.cells if grade_id(c) == name)


def parts(nb, keep_id):
    """The answer to 05.3, split after its first kernel."""
    whole = cell(nb, "answer_05_3")
    lines = whole.source.split("\n")
    at = next(i for i, line in enumerate(lines) if line.startswith("def gemma_norm("))
    second = new_code_cell("\n".join(lines[at:]), metadata=whole.metadata if keep_id else {})
    whole.source = "\n".join(lines[:at])
    nb.cells.insert(nb.cells.index(whole) + 1, second)


@pytest.mark.parametrize("keep_id", [True, False])
def test_a_split_answer_is_put_together(keep_id):
    nb, _ = intake.parse(SOLUTION, "x")
    parts(nb, keep_id)
    answers, notes = planted(nb)
    assert answers == WHOLE and any("05.3: the answer stood in 2 cells" in note for note in notes), notes


def test_moved_deleted_doubled_and_edited_cells_are_told():
    nb, _ = intake.parse(SOLUTION, "x")
    nb.cells.reverse()
    nb.cells.remove(cell(nb, "check_05_1"))
    nb.cells.append(nbformat.from_dict(cell(nb, "check_05_2")))
    cell(nb, "check_05_4").source = "print('passed')"
    old = cell(nb, "answer_05_5")
    nb.cells[nb.cells.index(old)] = new_markdown_cell(old.source, metadata=old.metadata)
    last = cell(nb, "answer_05_6")
    nb.cells.append(nbformat.from_dict({**last, "source": "# mine\n" + last.source}))
    nb.cells.remove(cell(nb, "answer_05_2"))
    _, notes = planted(nb)
    said = "\n".join(notes)
    for words in (
        "another order",
        "check cell 05.1 is missing",
        "check cell 05.2 is there more than once",
        "05.4 is edited",
        "05.5: the answer cell was not a code cell",
        "05.6: 2 cells carry",
        "05.2: the answer cell is missing",
    ):
        assert words in said, said


def test_an_untouched_submission_gets_no_note():
    assert planted(intake.parse(SOLUTION, "x")[0])[1] == []
