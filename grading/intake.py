"""What was handed in: finds the files in a notebook, a folder or a zip, and reads them whatever their state.

Nothing is unpacked onto the disk, no link is followed out of a learner's folder, only plain files are read, and
everything is bounded: a file takes about two seconds at most, whatever it holds. What can be repaired is repaired and
told in a note; what cannot be read raises Unreadable, with a sentence for the learner.
"""

import gc
import getpass
import json
import os
import re
import stat
import zipfile
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path

from nbformat import NotebookNode

from grading.release import ROOT, exercise_id, grade_id, task_id
from grading.tasks import exercise_with, exercises

MAX_FILE = 16 << 20  # bytes of one notebook; 2 s of reading at worst
MAX_CELLS = 2_000  # of one notebook
MAX_NOTEBOOKS = 20  # of one learner
MAX_ENTRIES = 20_000  # files and folders of one learner, or members of one zip
MAX_DIRECTORY = 4 << 20  # bytes of a zip's table of contents
MAX_NAME = 1_000  # characters of a member's name
MAX_DEPTH = 32  # folders in each other
LARGE_OUTPUTS = 5 << 20  # characters beside the sources from which on it is worth a note
MAYBE = {"", ".txt", ".json"}  # what browsers and mail programs make of a notebook's name
HIDDEN = {"__MACOSX", "__pycache__"}
OWN = ("exercises", "work/exercises")  # the course's folders in which whoever reads it works


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
        return text("/".join(filter(None, (os.path.abspath(self.file), self.member))))

    def read(self) -> bytes:
        """Its bytes; Unreadable where that fails."""
        if self.problem:
            raise Unreadable(self.problem)
        try:
            with opened(self.file) as file:
                if self.member:
                    with _archive(file) as archive, _member(archive, self.member) as inside:
                        content = inside.read(MAX_FILE + 1)  # the size that a zip states may be a lie
                else:
                    content = file.read(MAX_FILE + 1)
        except OSError as error:
            raise Unreadable(f"{self.path}: cannot be read ({error.strerror or error})") from None
        except Exception as error:  # zipfile and zlib have errors of their own
            raise Unreadable(f"{self.path}: cannot be read from the zip ({error})") from None
        if len(content) > MAX_FILE:
            raise Unreadable(f"{self.path}: larger than {MAX_FILE >> 20} MiB; clear the outputs and hand it in again")
        return content


def opened(file: Path):
    """A plain file, open for reading; OSError for all else. A link is not followed, a pipe not waited for."""
    _plain(os.lstat(file).st_mode)
    flags = ("O_NOFOLLOW", "O_NONBLOCK", "O_BINARY")  # in case it is another file by now
    descriptor = os.open(file, os.O_RDONLY | sum(getattr(os, flag, 0) for flag in flags))
    try:
        _plain(os.fstat(descriptor).st_mode)
        return os.fdopen(descriptor, "rb")
    except OSError:
        os.close(descriptor)
        raise


def _plain(mode: int) -> None:
    if not stat.S_ISREG(mode):
        raise OSError(
            None,
            "a link, and links are not followed: hand in the file itself"
            if stat.S_ISLNK(mode)
            else "a folder, not a notebook"
            if stat.S_ISDIR(mode)
            else "a pipe, a socket or a device, not a file",
        )


def text(path: Path | str) -> str:
    """A name as text. Bytes that are no UTF-8, as old zips leave them, are written out, so that names stay apart."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


# ---------------------------------------------------------------- finding the files


def alone(path: Path, shown: str = "") -> Handed:
    """A notebook that was named on its own; here, whoever grades has chosen what a link leads to."""
    return Handed(text(path.stem), shown or text(path), Path(os.path.realpath(path)))


def labels(paths: list) -> list:
    """How each of the given paths is called for people: by its name, or as much more as tells it from the others. A
    folder given alone has no need of a name."""
    if len(paths) == 1 and paths[0].is_dir():
        return [""]
    names = [path.resolve().name for path in paths]
    if len(set(names)) < len(names):
        above = os.path.commonpath([path.resolve().parent for path in paths])
        names = [os.path.relpath(path.resolve(), above) for path in paths]
    return list(map(text, names))


def found_in(path: Path, leave_out: Path | None = None, label: str | None = None) -> tuple[list, list]:
    """What a path holds, in the order of its names: a file itself; of a folder or a zip, everything handed in; and the
    names of files beside the submissions that are none.

    Each child of a folder (or of a zip with more than one) is one learner's: a notebook, a folder or a zip. But where
    all there is are notebooks called like exercises, they are one learner's. The course's own work/ is its exercises,
    of which only those called like exercises count. A folder or zip without any notebook is listed with its problem.
    leave_out: a folder to pass over (the report's own). label: what the path is called for
    people; as it was given by default.
    """
    label, real = text(path) if label is None else label, Path(os.path.realpath(path))
    if real == ROOT / "work" and (real / "exercises").is_dir():
        real, label = real / "exercises", label and f"{label}/exercises"
    if real.is_dir():
        return _folder(real, label and f"{label}/", leave_out and leave_out.resolve())
    if path.suffix.lower() == ".zip":
        return _zip(real, text(path.stem), label, split=True)
    return [alone(path, label)], []


def _folder(folder: Path, label: str, leave_out: Path | None) -> tuple[list, list]:
    found, aside = [], []
    for child in sorted(folder.iterdir()):
        shown, suffix = label + text(child.name), child.suffix.lower()
        if _hidden(child.name) or child == leave_out:
            continue
        if child.is_symlink() and suffix != ".zip":  # never followed here; reading it says why
            found.append(Handed(text(child.stem), shown, child))
        elif child.is_dir():
            found += _of_learner(child, shown)
        elif suffix == ".zip":
            found += _zip(child, text(child.stem), shown, split=False)[0]
        elif _candidate(suffix, partial(_begins, child)):
            found.append(Handed(text(child.stem), shown, child))
        else:
            aside.append(shown)
    named = [h for h in found if h.file.parent == folder and h.file.suffix == ".ipynb" and h.file.stem in exercises()]
    if named and _own(folder):  # what else is there are copies, and new versions of the exercises
        aside += [h.path for h in found if h not in named]
        found = named
    if found == named:
        found = [replace(h, learner=_owner(folder)) for h in found]
    return found, sorted(aside)


def _own(folder: Path) -> bool:
    return any(folder == ROOT / name for name in OWN)


def _owner(folder: Path) -> str:
    """Whose a folder is that holds one learner's notebooks."""
    try:
        return getpass.getuser() if _own(folder) else text(folder.name)
    except (OSError, KeyError, ImportError):  # a user without a name
        return text(folder.name)


def _of_learner(folder: Path, shown: str) -> list:
    """What one learner's folder holds, at any depth that people make."""
    learner, found = text(folder.name), {}
    files, many = _below(folder)
    for file in files:
        path, suffix = f"{shown}/{text(file.relative_to(folder))}", file.suffix.lower()
        if file.is_symlink() and suffix in (".ipynb", ".zip", *MAYBE):
            target = Path(os.path.realpath(file))
            if target.is_relative_to(folder.resolve()):
                file = target  # which may be found by its own name as well
            elif suffix in MAYBE:
                continue
        if suffix == ".zip":
            inside = _zip(file, learner, path, split=False)[0]
        else:
            inside = [Handed(learner, path, file)] if _candidate(suffix, partial(_begins, file)) else []
        for handed in inside:
            found.setdefault(handed.place, handed)
        if len(found) > MAX_NOTEBOOKS:
            break
    if many:
        why = f"{shown}: more than {MAX_ENTRIES:,} files, too many to look at"
        found[shown] = Handed(learner, shown, folder, "", why)
    return _few(list(found.values()), shown) or [Handed(learner, shown, folder, "", _nothing(shown, files))]


def _below(folder: Path) -> tuple[list, bool]:
    """Files below a folder, sorted, and whether there are more than are looked at. Links are listed, not entered."""
    files, seen, todo = [], 0, [(folder, 0)]
    while todo and seen <= MAX_ENTRIES:
        place, depth = todo.pop()
        try:
            with os.scandir(place) as entries:
                for entry in islice(entries, MAX_ENTRIES + 1 - seen):
                    seen += 1
                    if not entry.is_dir(follow_symlinks=False):
                        files.append(Path(entry.path))
                    elif depth < MAX_DEPTH and not _hidden(entry.name):
                        todo.append((Path(entry.path), depth + 1))
        except OSError:
            continue
    return sorted(file for file in files if not _hidden(file.name)), seen > MAX_ENTRIES


def _few(found: list, shown: str) -> list:
    """No more notebooks of one learner than are graded; in the place of the others, why."""
    if len(found) > MAX_NOTEBOOKS:
        first = found[0]
        where = first.file if first.member else first.file.parent
        found = [
            *found[:MAX_NOTEBOOKS],
            Handed(
                first.learner,
                shown,
                where,
                "",
                f"{shown}: more than {MAX_NOTEBOOKS} "
                "notebooks, of which only the first are graded; hand in one for each exercise",
            ),
        ]
    return found


def _zip(file: Path, learner: str, shown: str, split: bool) -> tuple[list, list]:
    """What a zip holds, and what lies beside that. split: its children are learners, when there is more than one; else
    all of it is `learner`'s."""
    try:
        with opened(file) as stream, _archive(stream) as archive:
            parts = {
                info.filename: [part for part in re.split(r"[/\\]", info.filename) if part not in ("", ".")]
                for info in archive.infolist()
                if not info.is_dir()
            }
            parts = {name: below for name, below in sorted(parts.items()) if below and not any(map(_hidden, below))}
            inside = {
                name: below
                for name, below in parts.items()
                if _candidate(Path(below[-1]).suffix.lower(), partial(_zipped, archive, name))
            }
    except Exception as error:  # zipfile trips over strange files in its own ways
        why = getattr(error, "strerror", None) or error
        return [Handed(learner, shown, file, "", f"{shown}: not a zip that can be read ({why})")], []
    if not inside:
        return [Handed(learner, shown, file, "", _nothing(shown, list(parts)))], []
    above = os.path.commonprefix([below[:-1] for below in inside.values()])  # the class is what these folders hold
    depth = len(above)
    one = all(len(below) == depth + 1 and below[-1].removesuffix(".ipynb") in exercises() for below in inside.values())
    if not split or one or len(inside) == 1:
        return _few([Handed(learner, f"{shown}/{name}", file, name) for name in inside], shown), []
    found, aside, children = [], [], {}
    for name, below in parts.items():
        children.setdefault(below[depth] if below[:depth] == above else "", []).append(name)
    aside += [f"{shown}/{name}" for name in children.pop("", [])]
    for child, names in children.items():
        single = len(parts[names[0]]) == depth + 1  # a file, not a folder
        whose, place = Path(child).stem if single else child, "/".join([shown, *above, child])
        notebooks = [Handed(whose, f"{shown}/{name}", file, name) for name in names if name in inside]
        if notebooks:
            found += _few(notebooks, place)
        elif child.lower().endswith(".zip"):
            found.append(Handed(whose, place, file, "", f"{place}: a zip inside a zip; unpack {shown} first"))
        elif single:
            aside.append(place)
        else:
            found.append(Handed(whose, place, file, "", _nothing(place, names)))
    return found, aside


def _archive(file) -> zipfile.ZipFile:
    """A zip whose table of contents takes no time to read."""
    end = zipfile._EndRecData(file)  # what ZipFile itself goes by; it reads the whole table at once
    if end and end[5] > MAX_DIRECTORY:
        raise zipfile.BadZipFile(f"more than {MAX_ENTRIES:,} members")
    archive = zipfile.ZipFile(file)
    if len(archive.infolist()) > MAX_ENTRIES:
        raise zipfile.BadZipFile(f"more than {MAX_ENTRIES:,} members")
    if any(len(name) > MAX_NAME for name in archive.namelist()):
        raise zipfile.BadZipFile(f"a name of more than {MAX_NAME:,} characters")
    return archive


def _member(archive: zipfile.ZipFile, name: str):
    if archive.getinfo(name).compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):  # others have no bound
        raise NotImplementedError("compressed in an uncommon way; make an ordinary zip of it")
    return archive.open(name)


def _hidden(name: str) -> bool:
    return name.startswith((".", "~$")) or name in HIDDEN


def _candidate(suffix: str, begins) -> bool:
    """Whether a file is worth reading as a notebook: by its name, or by how it begins."""
    return suffix == ".ipynb" or suffix in MAYBE and begins().lstrip(b"\xef\xbb\xbf \r\n\t").startswith(b"{")


def _begins(file: Path) -> bytes:
    try:
        with opened(file) as stream:
            return stream.read(64)
    except OSError:
        return b""


def _zipped(archive: zipfile.ZipFile, name: str) -> bytes:
    try:
        with _member(archive, name) as stream:
            return stream.read(64)
    except Exception:  # damaged or encrypted: told when it is read
        return b""


def _nothing(shown: str, held: list) -> str:
    names = [re.split(r"[/\\]", text(name))[-1] for name in held[:5]]
    listed = ", ".join(names) + (", ..." if len(held) > 5 else "")
    return f"{shown}: no notebook in it" + (f" (it holds {listed})" if held else " (it is empty)")


# ---------------------------------------------------------------- reading one


def read(handed: Handed | Path) -> tuple[NotebookNode, list]:
    """The notebook and notes on what was odd about the file; Unreadable says in one sentence what is wrong with it."""
    handed = handed if isinstance(handed, Handed) else alone(Path(handed))
    return parse(handed.read(), handed.path)


def parse(content: bytes, path: str) -> tuple[NotebookNode, list]:
    """The notebook that some bytes hold: its cells' types, sources and grade ids, and its exercise."""
    notes: list[str] = []
    try:
        if content[:2] in (b"\xff\xfe", b"\xfe\xff"):
            decoded = content.decode("utf-16")
            notes.append("the file was UTF-16 and was read as such")
        else:
            decoded = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise Unreadable(f"{path}: not a notebook (not text)") from None
    data = _decoded(decoded, path)
    cells, old = data.get("cells"), data.get("worksheets")
    if cells is None and isinstance(old, list):
        if not all(isinstance(sheet, dict) and isinstance(sheet.get("cells"), list) for sheet in old):
            raise Unreadable(f"{path}: not a notebook (an old notebook format that cannot be converted)")
        cells = [cell for sheet in old for cell in sheet["cells"]]
        notes.append("the notebook format is older than 4; it was converted")
    elif data.get("nbformat") != 4:
        given = data.get("nbformat")
        given = given if isinstance(given, (int, str)) else type(given).__name__
        notes.append(f"the notebook format is given as {str(given)[:20]!r}; it was read as format 4")
    if not isinstance(cells, list):
        raise Unreadable(f"{path}: not a notebook (JSON, but without a notebook's cells)")
    if len(cells) > MAX_CELLS:
        raise Unreadable(f"{path}: {len(cells):,} cells, and more than {MAX_CELLS:,} are not graded")
    nb = NotebookNode(
        nbformat=4,
        nbformat_minor=5,
        cells=_cells(cells, notes),
        metadata=NotebookNode(bytes_first=NotebookNode(exercise=exercise_id(_only(data, "bytes_first")))),
    )
    outputs = len(decoded) - sum(len(cell.source) for cell in nb.cells)
    if outputs > LARGE_OUTPUTS:
        notes.append(f"{outputs >> 20} MB of outputs were left behind; clear them before handing in")
    return nb, notes


def _decoded(decoded: str, path: str) -> dict:
    collecting = gc.isenabled()
    gc.disable()  # which would look at millions of small objects time and again, and find nothing
    try:
        data = json.loads(decoded)
    except (ValueError, RecursionError, MemoryError):
        if re.search(r"^<<<<<<< ", decoded, re.MULTILINE):
            raise Unreadable(f"{path}: not a notebook (git left the marks of a merge conflict in it)") from None
        raise Unreadable(f"{path}: not a notebook (damaged, or not JSON)") from None
    finally:
        if collecting:
            gc.enable()
    if not isinstance(data, dict):
        raise Unreadable(f"{path}: not a notebook (JSON, but without a notebook's cells)")
    return data


def _only(holder: dict, name: str) -> dict:
    """A notebook or a cell with nothing of its metadata but this: the rest is what a learner's tools made of it."""
    metadata = holder.get("metadata")
    return {"metadata": {name: metadata.get(name)} if isinstance(metadata, dict) else {}}


def _cells(given: list, notes: list) -> list:
    """The cells that can be read, made by hand: nbformat's own functions hold them to a schema, and take their time."""
    cells, odd = [], 0
    for cell in given:
        source = cell.get("source", cell.get("input", "")) if isinstance(cell, dict) else None
        if isinstance(source, list) and all(isinstance(line, str) for line in source):
            source = "".join(source)
        if not isinstance(source, str):
            odd += 1
            continue
        source = source.replace("\r\n", "\n").encode("utf-8", "replace").decode()  # halves of a character have no bytes
        kind, name = cell.get("cell_type"), grade_id(_only(cell, "nbgrader"))
        metadata = NotebookNode(nbgrader=NotebookNode(grade_id=name)) if name else NotebookNode()
        kind = kind if kind in ("code", "markdown") else "raw"
        cells.append(NotebookNode(cell_type=kind, source=source, metadata=metadata))
    if odd:
        notes.append(f"{odd} cell{'s' * (odd != 1)} could not be read and {'were' if odd != 1 else 'was'} left out")
    return cells


def exercise_of(nb: NotebookNode, path, notes: list | None = None) -> str:
    """The exercise of a submission, by its metadata, whatever the file is called; failing that, by its cells."""
    found = exercise_id(nb)
    if not found:
        names = {exercise_with(task_id(grade_id(cell))) for cell in nb.cells} - {""}
        if len(names) != 1:
            raise Unreadable(f"{path}: not an exercise of this course (its metadata names none)")
        (found,) = names
        if notes is not None:
            notes.append("the notebook had lost its exercise id and was known by its cells")
    if found not in exercises():
        raise Unreadable(
            f"{path}: exercise {found[:40]!r} is unknown here, expected one of: {', '.join(sorted(exercises()))}"
        )
    return found


def mended(nb: NotebookNode, pristine: NotebookNode, functions: dict) -> tuple[NotebookNode, list]:
    """The notebook, and notes on cells that were moved and check cells that were edited, copied or deleted.

    What became of the answers is transplant.py's to find and to tell.
    """
    notes: list[str] = []
    wanted = [grade_id(cell) for cell in pristine.cells if grade_id(cell)]
    order = list(dict.fromkeys(grade_id(cell) for cell in nb.cells if grade_id(cell) in wanted))
    if order != [name for name in wanted if name in order]:
        notes.append("cells stand in another order than in the exercise; answers were matched by their ids")
    original = {grade_id(cell): cell.source.strip() for cell in pristine.cells}
    checks = {name: [c for c in nb.cells if grade_id(c) == name] for name in wanted if name.startswith("check_")}
    for words, odd in (
        ("missing", [n for n, c in checks.items() if not c]),
        ("there more than once", [n for n, c in checks.items() if len(c) > 1]),
        ("edited", [n for n, c in checks.items() if any(x.source.strip() != original[n] for x in c)]),
    ):
        if odd:
            notes.append(
                f"check cell{'s' * (len(odd) != 1)} {', '.join(task_id(n) for n in odd)} "
                f"{'are' if len(odd) != 1 else 'is'} {words}; that changes nothing, the grader uses its own"
            )
    return nb, notes
