"""What was handed in: finds the files in a notebook, a folder or a zip, and reads them whatever their state.

Nothing is unpacked onto the disk. Whatever can be repaired is repaired and told in a note; what cannot be read raises
Unreadable, with a sentence for the learner.
"""

import json
import os
import re
import zipfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import nbformat
from nbformat import NotebookNode

from grading.checks import exercises
from grading.release import exercise_id, grade_id, task_id

MAX_FILE = 256 << 20  # bytes of one notebook
LARGE_OUTPUTS = 5 << 20  # characters of outputs from which on it is worth a note
MAYBE = {"", ".txt", ".json"}  # what browsers and mail programs make of a notebook's name
HIDDEN = {"__MACOSX", "__pycache__"}


class Unreadable(ValueError):
    """The file cannot be graded whatever the grader does: not a notebook, or of no exercise. The text is for people."""


@dataclass(frozen=True)
class Handed:
    """One file. learner: whose, as far as its place tells. path: for people, seen from what was given. file, member:
    where its bytes lie (member: the name inside the zip `file`). problem: why it cannot be graded, where that is known
    already."""

    learner: str
    path: str
    file: Path
    member: str = ""
    problem: str = ""

    @property
    def place(self) -> str:
        """Where it lies, whatever it was seen from."""
        return "/".join(filter(None, (os.path.abspath(self.file), self.member)))

    def read(self) -> bytes:
        """Its bytes; Unreadable where that fails."""
        if self.problem:
            raise Unreadable(self.problem)
        try:
            if self.member:
                with zipfile.ZipFile(self.file) as archive:
                    _bounded(archive.getinfo(self.member).file_size, self.path)
                    with archive.open(self.member) as inside:
                        content = inside.read(MAX_FILE + 1)  # the size that a zip states may be a lie
                        _bounded(len(content), self.path)
                        return content
            if self.file.is_dir():
                raise Unreadable(f"{self.path}: a folder, not a notebook")
            _bounded(self.file.stat().st_size, self.path)
            return self.file.read_bytes()
        except FileNotFoundError:
            raise Unreadable(f"{self.path}: no such file") from None
        except OSError as error:
            raise Unreadable(f"{self.path}: cannot be read ({error.strerror or error})") from None
        except (zipfile.BadZipFile, RuntimeError, NotImplementedError, KeyError, EOFError, ValueError) as error:
            if isinstance(error, Unreadable):
                raise
            raise Unreadable(f"{self.path}: cannot be read from the zip ({error})") from None
        except Exception as error:  # zlib and lzma have errors of their own
            raise Unreadable(f"{self.path}: cannot be read ({type(error).__name__}: {error})") from None


def _bounded(size: int, path: str) -> None:
    if size > MAX_FILE:
        raise Unreadable(f"{path}: larger than {MAX_FILE >> 20} MiB; clear the outputs and hand it in again")


# ---------------------------------------------------------------- finding the files


def alone(path: Path, shown: str = "") -> Handed:
    """A notebook named on its own."""
    return Handed(path.stem, shown or str(path), path)


def labels(paths: list) -> list:
    """How each of the given paths is called for people: by its name, or as much more as tells it from the others. A
    folder given alone has no need of a name."""
    if len(paths) == 1 and paths[0].is_dir():
        return [""]
    names = [path.resolve().name for path in paths]
    if len(set(names)) == len(names):
        return names
    above = os.path.commonpath([path.resolve().parent for path in paths])
    return [os.path.relpath(path.resolve(), above) for path in paths]


def found_in(path: Path, leave_out: Path | None = None, label: str | None = None) -> tuple[list, list]:
    """What a path holds, in the order of its names: a file itself; of a folder or a zip, everything handed in; and the
    names of files beside the submissions that are none.

    Each child of a folder (or of a zip with more than one) is one learner's: a notebook, a folder or a zip. A folder
    or zip without any notebook is listed with its problem. leave_out: a folder to pass over (the report's own). label:
    what the path is called for people; as it was given by default.
    """
    label = str(path) if label is None else label
    if path.is_dir():
        return _folder(path, label and f"{label}/", leave_out)
    if path.suffix.lower() == ".zip":
        return _zip(path, path.stem, label, split=True)
    return [alone(path, label)], []


def _folder(folder: Path, label: str, leave_out: Path | None) -> tuple[list, list]:
    found, aside = [], []
    for child in sorted(folder.iterdir()):
        if _hidden(child.name) or (leave_out and child.resolve() == leave_out.resolve()):
            continue
        shown = label + child.name
        if child.is_dir():
            found += _of_learner(child, shown)
        elif child.suffix.lower() == ".zip":
            found += _zip(child, child.stem, shown, split=False)[0]
        elif _candidate(child.suffix, lambda: _begins(child)):
            found.append(Handed(child.stem, shown, child))
        elif child.is_symlink() and not child.exists():
            found.append(Handed(child.stem, shown, child, "", f"{shown}: a link to nothing"))
        else:
            aside.append(shown)
    return found, aside


def _of_learner(folder: Path, shown: str) -> list:
    """What one learner's folder holds, at any depth."""
    inside, held = [], []
    for file in sorted(p for p in folder.rglob("*") if p.is_file()):
        below = file.relative_to(folder)
        held.append(file.name)
        if any(_hidden(part) for part in below.parts):
            continue
        if file.suffix.lower() == ".zip":
            inside += _zip(file, folder.name, f"{shown}/{below}", split=False)[0]
        elif _candidate(file.suffix, lambda: _begins(file)):
            inside.append(Handed(folder.name, f"{shown}/{below}", file))
    return inside or [Handed(folder.name, shown, folder, "", _nothing(shown, held))]


def _zip(file: Path, learner: str, shown: str, split: bool) -> tuple[list, list]:
    """What a zip holds, and what lies beside that. split: its children are learners, when there is more than one; else
    all of it is `learner`'s."""
    try:
        with zipfile.ZipFile(file) as archive:
            names = sorted({info.filename for info in archive.infolist() if not info.is_dir()
                            and not any(_hidden(part) for part in PurePosixPath(info.filename).parts)})
            inside = {name for name in names if _candidate(PurePosixPath(name).suffix, lambda: _zipped(archive, name))}
    except (OSError, zipfile.BadZipFile, ValueError, RuntimeError, NotImplementedError) as error:
        return [Handed(learner, shown, file, "", f"{shown}: not a zip that can be read ({error})")], []
    if not inside:
        return [Handed(learner, shown, file, "", _nothing(shown, names))], []
    parts = {name: PurePosixPath(name).parts for name in names}
    tops = {parts[name][0] for name in inside}
    while split and len(inside) > 1 and len(tops) == 1 and all(len(parts[name]) > 1 for name in inside):
        parts = {name: p[1:] for name, p in parts.items() if p[0] in tops}  # one folder: the class is what it holds
        tops = {parts[name][0] for name in inside}
    if not split or len(tops) == 1:
        return [Handed(learner, f"{shown}/{name}", file, name) for name in sorted(inside)], []
    found, aside = [], [f"{shown}/{name}" for name in names if not parts.get(name)]
    parts = {name: p for name, p in parts.items() if p}
    for child in dict.fromkeys(p[0] for p in parts.values()):
        theirs = [name for name in parts if parts[name][0] == child]
        first = theirs[0]
        alone_here = len(parts[first]) == 1  # a file, not a folder
        whose = PurePosixPath(child).stem if alone_here else child
        place = f"{shown}/{first}".removesuffix("/".join(parts[first][1:])).rstrip("/")
        notebooks = [name for name in theirs if name in inside]
        found += [Handed(whose, f"{shown}/{name}", file, name) for name in notebooks]
        if not notebooks and child.lower().endswith(".zip"):
            found.append(Handed(whose, place, file, "", f"{place}: a zip inside a zip; unpack {shown} first"))
        elif not notebooks and alone_here:
            aside.append(place)
        elif not notebooks:
            held = [PurePosixPath(name).name for name in theirs]
            found.append(Handed(whose, place, file, "", _nothing(place, held)))
    return found, aside


def _hidden(name: str) -> bool:
    return name.startswith((".", "~$")) or name in HIDDEN


def _candidate(suffix: str, begins) -> bool:
    """Whether a file is worth reading as a notebook: by its name, or by how it begins."""
    if suffix.lower() == ".ipynb":
        return True
    return suffix.lower() in MAYBE and begins().lstrip(b"\xef\xbb\xbf \r\n\t").startswith(b"{")


def _begins(file: Path) -> bytes:
    try:
        with open(file, "rb") as opened:
            return opened.read(64)
    except OSError:
        return b""


def _zipped(archive: zipfile.ZipFile, name: str) -> bytes:
    try:
        with archive.open(name) as opened:
            return opened.read(64)
    except Exception:  # damaged or encrypted: told when it is read
        return b""


def _nothing(shown: str, held: list) -> str:
    listed = ", ".join(held[:5]) + (", ..." if len(held) > 5 else "")
    return f"{shown}: no notebook in it" + (f" (it holds {listed})" if held else " (it is empty)")


# ---------------------------------------------------------------- reading one


def read(handed: Handed | Path) -> tuple[NotebookNode, list]:
    """The notebook and notes on what was odd about the file; Unreadable says in one sentence what is wrong with it."""
    handed = handed if isinstance(handed, Handed) else alone(Path(handed))
    return parse(handed.read(), handed.path)


def parse(content: bytes, path: str) -> tuple[NotebookNode, list]:
    """The notebook that some bytes hold, without its outputs."""
    notes: list[str] = []
    try:
        if content[:2] in (b"\xff\xfe", b"\xfe\xff"):
            text = content.decode("utf-16")
            notes.append("the file was UTF-16 and was read as such")
        else:
            text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise Unreadable(f"{path}: not a notebook (not text)") from None
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        if re.search(r"^<<<<<<< ", text, re.MULTILINE):
            raise Unreadable(f"{path}: not a notebook (git left the marks of a merge conflict in it)") from None
        raise Unreadable(f"{path}: not a notebook (damaged, or not JSON)") from None
    if not isinstance(data, dict):
        raise Unreadable(f"{path}: not a notebook (JSON, but without a notebook's cells)")
    if isinstance(data.get("worksheets"), list) and "cells" not in data:
        data = _old(data, path, notes)
    if not isinstance(data.get("cells"), list):
        raise Unreadable(f"{path}: not a notebook (JSON, but without a notebook's cells)")
    if data.get("nbformat") != 4 and not any("notebook format" in note for note in notes):
        notes.append(f"the notebook format is given as {str(data.get('nbformat'))[:20]!r}; it was read as format 4")
    nb = nbformat.v4.new_notebook()
    nb.metadata = nbformat.from_dict(data["metadata"] if isinstance(data.get("metadata"), dict) else {})
    nb.cells = _cells(data["cells"], notes)
    return nb, notes


def _old(data: dict, path: str, notes: list) -> dict:
    """Format 3 or older, brought to format 4."""
    try:
        new = nbformat.convert(nbformat.reader.reads(json.dumps(data)), 4)
    except Exception:  # nbformat raises whatever a strange file makes it trip over
        raise Unreadable(f"{path}: not a notebook (an old notebook format that cannot be converted)") from None
    notes.append(f"the notebook format is {str(data.get('nbformat'))[:20]}; it was converted to 4")
    return json.loads(json.dumps(new))


def _cells(given: list, notes: list) -> list:
    """The cells that can be read, without outputs, as far as the form of each allows."""
    cells, odd, outputs = [], 0, 0
    for cell in given:
        source = cell.get("source", cell.get("input", "")) if isinstance(cell, dict) else None
        if isinstance(source, list) and all(isinstance(line, str) for line in source):
            source = "".join(source)
        if not isinstance(source, str):
            odd += 1
            continue
        if cell.get("outputs"):
            outputs += len(str(cell["outputs"]))
        kind = cell.get("cell_type")
        make = {"code": nbformat.v4.new_code_cell, "markdown": nbformat.v4.new_markdown_cell}.get(
            kind if isinstance(kind, str) else "", nbformat.v4.new_raw_cell)
        metadata = cell.get("metadata") if isinstance(cell.get("metadata"), dict) else {}
        cells.append(make(source.replace("\r\n", "\n"), metadata=nbformat.from_dict(metadata)))
    if odd:
        notes.append(f"{odd} cell{'s' * (odd != 1)} could not be read and {'were' if odd != 1 else 'was'} left out")
    if outputs > LARGE_OUTPUTS:
        notes.append(f"{outputs >> 20} MB of outputs were left behind; clear them before handing in")
    return cells


def exercise_of(nb: NotebookNode, path, notes: list | None = None) -> str:
    """The exercise a submission belongs to, by its metadata, whatever the file is called; failing that, by its cells."""
    found = exercise_id(nb)
    if not found:
        lessons = {task_id(grade_id(cell)).split(".")[0] for cell in nb.cells} - {""}
        names = [name for name in exercises() if name[:2] in lessons]
        if len(names) != 1:
            raise Unreadable(f"{path}: not an exercise of this course (its metadata names none)")
        found = names[0]
        if notes is not None:
            notes.append("the notebook had lost its exercise id and was known by its cells")
    if found not in exercises():
        raise Unreadable(f"{path}: exercise {found!r} is unknown here, expected one of: {', '.join(sorted(exercises()))}")
    return found


# ---------------------------------------------------------------- what was done to the cells


def mended(nb: NotebookNode, pristine: NotebookNode, functions: dict) -> tuple[NotebookNode, list]:
    """The notebook with split answers joined again, and notes on cells that were moved, edited, copied or deleted.

    functions: {task id: names that its answer defines}. What transplant.py says by itself (answers missing, copied,
    retyped) is not said here.
    """
    notes: list[str] = []
    nb.cells = _joined(nb.cells, pristine, functions, notes)
    wanted = [grade_id(cell) for cell in pristine.cells if task_id(grade_id(cell))]
    seen = [grade_id(cell) for cell in nb.cells if grade_id(cell) in set(wanted)]
    order = list(dict.fromkeys(seen))
    if order != [name for name in wanted if name in set(order)]:
        notes.append("cells stand in another order than in the exercise; answers were matched by their ids")
    original = {grade_id(cell): cell.source.strip() for cell in pristine.cells}
    checks = {name: [cell for cell in nb.cells if grade_id(cell) == name] for name in wanted if name.startswith("check_")}
    for words, odd in (("missing", [n for n, c in checks.items() if not c]),
                       ("there more than once", [n for n, c in checks.items() if len(c) > 1]),
                       ("edited", [n for n, c in checks.items() if any(x.source.strip() != original[n] for x in c)])):
        if odd:
            notes.append(f"check cell{'s' * (len(odd) != 1)} {', '.join(task_id(n) for n in odd)} "
                         f"{'are' if len(odd) != 1 else 'is'} {words}; that changes nothing, the grader uses its own")
    return nb, notes


def _joined(cells: list, pristine: NotebookNode, functions: dict, notes: list) -> list:
    """Cells with each answer that was split put together: parts that define different things, and all that is asked for
    only together. Copies of an answer define the same things and are left alone."""
    cells = list(cells)
    stubs = {grade_id(cell): cell.source.strip() for cell in pristine.cells}
    for name in [n for n in stubs if n.startswith("answer_")]:
        names = functions.get(task_id(name), ())
        first = next((i for i, c in enumerate(cells) if grade_id(c) == name and c.source.strip() != stubs[name]), None)
        if first is None or not names or defines(cells[first].source, names):
            continue
        last, parts = first, [cells[first].source]
        while last + 1 < len(cells) and cells[last + 1].cell_type == "code" and grade_id(cells[last + 1]) in ("", name):
            if defines("\n".join(parts), names) and grade_id(cells[last + 1]) != name:
                break
            last += 1
            parts.append(cells[last].source)
        whole = "\n".join(parts)
        made = [d for part in parts for d in re.findall(r"^(?:async )?def (\w+)\(", part, re.MULTILINE)]
        if len(parts) > 1 and defines(whole, names) and len(made) == len(set(made)) and _compiles(whole):
            cells[first].source = whole
            del cells[first + 1:last + 1]
            notes.append(f"{task_id(name)}: the answer stood in {len(parts)} cells and was put together")
    return cells


def defines(source: str, names: tuple) -> bool:
    """Whether a source defines every one of some functions at its left margin."""
    return all(re.search(rf"^(?:async )?def {re.escape(name)}\(", source, re.MULTILINE) for name in names)


def _compiles(source: str) -> bool:
    try:
        compile(source, "answer", "exec")
    except (SyntaxError, ValueError):
        return False
    return True
