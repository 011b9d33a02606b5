"""A class at once: which submissions are done already, and the others side by side, each in a process of its own.

A submission's record lies in `records/` of the report's folder, under the hash of everything that its grade depends on.
Whoever writes a record there, this machine or a cluster's, has graded that submission; a second run reads it and runs
nothing.
"""

import ast
import fnmatch
import hashlib
import importlib.metadata
import itertools
import os
import platform
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import msgspec
from nbformat import NotebookNode

from grading import formats, jail
from grading.intake import Handed, Unreadable, exercise_of, parse
from grading.likeness import solution_answers
from grading.record import Record, Submission
from grading.submission import ROOT, SUBMISSION_SECONDS, Missing, graded, has_gpu, pristine, ungraded
from grading.tasks import module_of
from instruments.files import write_whole

CELL_SECONDS = 120.0
WIDTH = 80  # columns, of a terminal that does not say
PARENT_DEATH_SIGNAL = 1  # of prctl
PLACES = "grade-class-"  # folders for temporary files; each holds a file that its owner has locked
YOUNG = 60  # seconds within which such a folder may not be locked yet
GRACE = 180  # seconds over a submission's own limit after which its process is ended from here
COURSE = ("grading", "instruments", "kernels")  # whose files a grade may depend on
#: What is imported on the way, and decides about no grade.
NOT_JUDGING = (
    "grading/batch.py",
    "grading/cli.py",
    "grading/formats.py",
    "grading/notebook.py",
    "grading/pages.py",
    "grading/report.py",
    "grading/tally.py",
    "instruments/notebooks.py",
)
LESSONS = "grading/tasks/lesson_*.py"
PACKAGES = ("torch", "triton", "numpy", "nbval", "ipykernel", "nbformat")
START = "import sys; sys.path.insert(0, {root!r}); from grading.cli import main; sys.exit(main())"


@dataclass(frozen=True)
class Limits:
    """What a grade depends on beside the file. seed: of the inputs; None draws a secret one for each submission."""

    cell_seconds: float = CELL_SECONDS
    seconds: float = SUBMISSION_SECONDS
    seed: int | None = None

    def options(self) -> list:
        """As options of the command line."""
        seed = [] if self.seed is None else ["--seed", str(self.seed)]
        return ["--timeout", f"{self.cell_seconds:.15g}", "--total", f"{self.seconds:.15g}", *seed]


# ---------------------------------------------------------------- what a grade depends on


class Made(Record):
    """What a record was made from. content, released, solution, grader: hashes of the file, of the exercise, of the
    solution's answers, and of the code that judges this exercise. limits: as options."""

    content: str
    exercise: str
    released: str
    solution: str
    grader: str
    place: dict[str, str]
    limits: list[str]


class Kept(Record):
    """A file of records/."""

    key: str
    made_from: Made
    record: Submission


class Head(msgspec.Struct):
    """What is asked of a file of records/ where the record does not matter."""

    made_from: Made


def _hash(*parts) -> str:
    found = hashlib.sha256()
    for part in parts:
        content = part if isinstance(part, bytes) else msgspec.json.encode(part, order="deterministic")
        found.update(len(content).to_bytes(8, "big") + content)
    return found.hexdigest()


@cache
def _uses(path: Path) -> frozenset:
    """The files of the course that one of them imports, wherever it does so, or names, to run or to read them."""
    if path.suffix != ".py":
        return frozenset()
    found, described, package = set(), set(), path.relative_to(ROOT).parent.parts
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            found.update(*(_module(alias.name) for alias in node.names))
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) + 1 - node.level] if node.level else ()
            base = ".".join([*above, *filter(None, [node.module])])
            found.update(*(_module(f"{base}.{alias.name}") for alias in node.names))
        elif isinstance(node, ast.Expr):
            described.add(id(node.value))  # a docstring uses nothing; ast.walk comes to it later
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in described:
            found.update(
                *map(_module, re.findall(rf"(?:import |from |^)((?:{'|'.join(COURSE)})(?:\.\w+)+)(?:\s|$)", node.value))
            )
            if re.fullmatch(r"\w[\w./-]*\.\w+", node.value):
                places = [path.parent, ROOT, *(ROOT / name for name in COURSE)]
                found.update(place / node.value for place in places if (place / node.value).is_file())
    return frozenset(found)


def _module(name: str) -> set:
    """The files that importing a dotted name runs, as far as they are the course's."""
    parts, found = name.split("."), set()
    for end in range(1, len(parts) + 1 if parts[0] in COURSE else 0):
        place = ROOT.joinpath(*parts[:end])
        found |= {file for file in (place / "__init__.py", place.with_name(f"{place.name}.py")) if file.is_file()}
    return found


def _closure(files: set, *left_out: str) -> set:
    """Files of the course with all that they use, and that they use in turn. left_out: patterns of paths below ROOT."""
    found, todo = set(), set(files)
    while todo:
        found |= todo
        todo = {file for path in todo for file in _uses(path)} - found
        todo = {file for file in todo if not any(fnmatch.fnmatch(str(file.relative_to(ROOT)), p) for p in left_out)}
    return found


@cache
def grader_version(exercise: str, imported: frozenset = frozenset()) -> str:
    """A hash of the files that decide about an exercise's grade. imported: those that a learner's cells name."""
    files = {ROOT / "grading" / "submission.py", *imported}
    if exercise_version(exercise):
        files |= _imported(pristine(exercise))
    files = _closure(files, *NOT_JUDGING, LESSONS)
    if module_of(exercise):
        files |= _closure({module_of(exercise)}, *NOT_JUDGING)
    return _hash(*(part for file in sorted(files) for part in (str(file.relative_to(ROOT)), file.read_bytes())))[:16]


def _imported(nb: NotebookNode) -> frozenset:
    """The instruments that a notebook's cells name."""
    code = "\n".join(cell.source for cell in nb.cells if cell.cell_type == "code")
    named = re.findall(r"\binstruments\.(\w+)|\bfrom instruments import ([\w, ]+)", code)
    names = {name for pair in named for name in re.findall(r"\w+", " ".join(pair))}
    return frozenset(file for name in names for file in _module(f"instruments.{name}"))


@cache
def exercise_version(exercise: str) -> str:
    """A hash of the exercise as released; '' for none."""
    try:
        return _hash([(cell.cell_type, cell.source, cell.metadata) for cell in pristine(exercise).cells])[:16]
    except Missing:
        return ""


@cache
def solution_version(exercise: str) -> str:
    """A hash of the solution's answers, with which answers are compared."""
    return _hash(solution_answers(exercise, ROOT))[:16]


@cache
def place() -> dict:
    """Where grading happens, as far as grades depend on it."""
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = ""
    return {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "gpu": _gpu_name(),
        "isolation": jail.level(),
        **versions,
    }


def _gpu_name() -> str:
    if not has_gpu():
        return ""
    try:
        said = subprocess.run(
            ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"], capture_output=True, text=True, timeout=30
        )
        return said.stdout.strip() or "unknown"
    except (OSError, subprocess.SubprocessError):
        return "unknown"


def made_from(handed: Handed, limits: Limits) -> Made:
    """All that a submission's grade depends on."""
    exercise, imported = "", frozenset()
    try:
        content = handed.read()
        nb = parse(content, handed.path)[0]
        exercise, imported = exercise_of(nb, handed.path), _imported(nb)
    except Exception as error:  # of whatever kind: it is this submission's own, and grading will meet and tell it
        content = str(error).encode("utf-8", "replace")
    return Made(
        content=_hash(content),
        exercise=exercise,
        released=exercise_version(exercise),
        solution=solution_version(exercise),
        grader=grader_version(exercise, imported),
        place=place(),
        limits=limits.options(),
    )


def key_of(handed: Handed, limits: Limits) -> str:
    """The name of a submission's record: the hash of what the grade depends on."""
    return _hash(made_from(handed, limits))[:32]


# ---------------------------------------------------------------- what is done already


def _read(folder: Path, key: str) -> Submission | None:
    """The record under a key; None where there is none, or anything but a record of this grader's."""
    try:
        kept = msgspec.json.decode((folder / "records" / f"{key}.json").read_bytes(), type=Kept)
    except (OSError, ValueError, msgspec.MsgspecError, RecursionError):
        return None
    return kept.record if kept.key == key else None


def stored(folder: Path, key: str, handed: Handed) -> Submission | None:
    """The record of a submission that was graded before, with this file's names; None where there is none to trust.

    An ungraded one counts as not done: its cause may have passed.
    """
    record = _read(folder, key)
    return _named(record, handed) if record and record.status != "ungraded" else None


def heads(folder: Path) -> list:
    """What the records in a folder were made from."""
    found = []
    for path in sorted((folder / "records").glob("*.json")):
        try:
            found.append(msgspec.json.decode(path.read_bytes(), type=Head).made_from)
        except (OSError, ValueError, msgspec.MsgspecError, RecursionError):
            continue
    return found


def instead(handed: Handed, limits: Limits, known: list) -> str:
    """What else is known of a submission that has no record under these limits, here and with this grader. known: what
    the records were made from."""
    wanted, found = made_from(handed, limits), {}
    for made in known:
        if made.content == wanted.content:
            names = ("limits", "place", "grader", "released", "solution")
            other = [name for name in names if getattr(made, name) != getattr(wanted, name)]
            found[len(other)] = (other, made)
    if not found:
        return "not graded yet"
    other, made = found[min(found)]
    places = ", ".join(
        f"{name} {made.place.get(name) or 'none'}, here {here or 'none'}"
        for name, here in wanted.place.items()
        if made.place.get(name) != here
    )
    said = {"limits": f"with other limits ({' '.join(made.limits)})", "place": f"in another place ({places})"}
    return (
        "graded " + ", ".join(dict.fromkeys(said.get(name, "by another version of the grader") for name in other))
        if other
        else "not graded yet"
    )


def keep(folder: Path, key: str, record: Submission, made: Made) -> None:
    """Write a record, whole or not at all. made: what it was made from."""
    try:
        content = msgspec.json.encode(Kept(key=key, made_from=made, record=record))
    except UnicodeEncodeError:  # it quotes halves of characters
        content = msgspec.json.encode(Kept(key=key, made_from=made, record=formats.told([record])[0]))
    place_of = folder / "records"
    place_of.mkdir(parents=True, exist_ok=True)
    write_whole(place_of / f"{key}.json", msgspec.json.format(content, indent=1))


def _named(record: Submission, handed: Handed) -> Submission:
    notes = [note.replace(record.path, handed.path) for note in record.notes]  # the same file, handed in elsewhere
    return msgspec.structs.replace(record, path=handed.path, file=handed.place, learner=handed.learner, notes=notes)


# ---------------------------------------------------------------- one, and many


def one(handed: Handed, folder: Path, limits: Limits, anew: bool = False, key: str = "") -> tuple[Submission, bool]:
    """Grade one submission and keep its record, under `key` if it is known; (record, whether it was done before)."""
    key = key or key_of(handed, limits)
    record = None if anew else stored(folder, key, handed)
    if record:
        return record, True
    record = graded(handed, limits.cell_seconds, seed=limits.seed, seconds=limits.seconds)
    keep(folder, key, record, made_from(handed, limits))
    return record, False


def command(handed: Handed, folder: Path, limits: Limits) -> str:
    """The line for a cluster's queue that grades one submission."""
    member = [f"--member={handed.member}"] if handed.member else []
    options = [] if limits == Limits() else limits.options()
    words = [
        "grade",
        "one",
        os.path.abspath(handed.file),
        *member,
        f"--learner={handed.learner}",
        f"--report={os.path.abspath(folder)}",
        *options,
    ]
    return " ".join(shlex.quote(word) if word.isprintable() else f"$'{_escaped(word)}'" for word in words)


def _escaped(word: str) -> str:
    """A word for $'...' of a shell, printable and on one line."""
    return "".join(
        c if c.isprintable() and c not in "\\'" else "".join(f"\\{byte:03o}" for byte in os.fsencode(c)) for c in word
    )


def missing(handed: list, folder: Path, limits: Limits) -> list:
    """Those that can be read and have no record yet, each content once."""
    todo = {}
    for h in handed:
        key = key_of(h, limits)
        if not unreadable(h) and not stored(folder, key, h):
            todo.setdefault(key, h)
    return list(todo.values())


def unreadable(handed: Handed) -> str:
    """Why a file cannot be graded, whatever the grader does; '' where it can."""
    try:
        exercise_of(parse(handed.read(), handed.path)[0], handed.path)
    except Unreadable as error:
        return str(error)
    return ""


@dataclass
class Class:
    """A run over many submissions. records: in the order of `handed`; done_before, run: how many; seconds: it took."""

    records: list = field(default_factory=list)
    done_before: int = 0
    run: int = 0
    seconds: float = 0.0

    @property
    def per_minute(self) -> float:
        return 60 * self.run / self.seconds if self.seconds else 0.0


def many(handed: list, folder: Path, limits: Limits, jobs: int, anew: bool = False) -> Class:
    """Grade what is not done yet, `jobs` at a time, and show how far it is. jobs=0 takes what is there.

    anew: grade everything, done or not. The same content is graded once, whoever handed it in.
    """
    begun = time.monotonic()
    outcome, found, todo = Class(), {}, {}
    keys = [key_of(h, limits) for h in handed]
    for h, key in zip(handed, keys):
        record = None if anew else stored(folder, key, h)
        if record:
            found[key] = record
        else:
            todo.setdefault(key, h)
    outcome.done_before = sum(key in found for key in keys)
    if jobs == 0:
        known = heads(folder)
        for key, h in todo.items():
            why = unreadable(h)
            found[key] = (
                ungraded(h, why, status="unreadable") if why else ungraded(h, f"{h.path}: {instead(h, limits, known)}")
            )
        todo = {}
    with _Runner(folder, limits) as runner, ThreadPoolExecutor(max_workers=max(jobs, 1)) as pool:
        try:
            running = {pool.submit(runner.grade, key, h): key for key, h in todo.items()}
            with Progress(len(todo), jobs) as progress:
                while running:
                    done, _ = wait(running, timeout=1, return_when=FIRST_COMPLETED)
                    for future in done:
                        found[running.pop(future)] = future.result()
                        progress.one_more(future.result())
                    progress.refresh()
            outcome.run = len(todo)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            runner.stop()
            raise
    outcome.records = [_named(found[key], h) for h, key in zip(handed, keys)]
    outcome.seconds = time.monotonic() - begun
    return outcome


def _columns() -> int:
    """The terminal's width. On one that calls itself 0 wide and high tqdm would show nothing."""
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or WIDTH
    except (OSError, ValueError, AttributeError):
        return WIDTH


class Progress:
    """How far a run is: on a terminal a bar, elsewhere (a log, a queue's output) a line for each submission."""

    def __init__(self, total: int, jobs: int):
        from tqdm import tqdm

        self.total, self.done = total, 0
        self.bar = tqdm(
            total=total,
            desc="grading",
            unit="submission",
            disable=None if total else True,
            leave=False,
            ncols=_columns(),
            nrows=24,
        )
        if total and self.bar.disable:
            self.line(f"grading {total} submission{'s' * (total != 1)}, {jobs} at a time")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.bar.close()

    def line(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    def refresh(self) -> None:
        """Show that time passes."""
        self.bar.refresh()

    def one_more(self, record: Submission) -> None:
        self.done += 1
        said = f"{formats.line(record.learner)}: {formats.standing(record)}"
        self.bar.set_postfix_str(said, refresh=False)
        self.bar.update()
        if self.bar.disable:
            self.line(f"{self.done} of {self.total}  {said}")


def sweep() -> None:
    """Remove the folders of runs that were killed: those whose lock no one holds."""
    if os.name != "posix":
        return
    import fcntl

    for place_of in Path(tempfile.gettempdir()).glob(f"{PLACES}*"):
        try:
            if time.time() - place_of.stat().st_mtime < YOUNG or place_of.stat().st_uid != os.getuid():
                continue
            with open(place_of / "lock", "r+") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                jail.remove(place_of)
        except OSError:  # held, gone, or not one of ours
            continue


class _Runner:
    """Runs `grade one` for each submission. A child lives on a leash: when this process ends, so does the child."""

    def __init__(self, folder: Path, limits: Limits):
        self.folder, self.limits = folder, limits
        self.lock, self.children, self.stopping = threading.Lock(), set(), False
        self.numbers, self.held = itertools.count(1), ExitStack()

    def __enter__(self):
        sweep()
        self.place = self.held.enter_context(jail.workplace(PLACES))
        owned = self.held.enter_context(open(self.place / "lock", "w"))
        if os.name == "posix":
            import fcntl

            fcntl.flock(owned, fcntl.LOCK_EX)  # until this process ends, however it ends
        return self

    def __exit__(self, *_):
        self.held.close()

    def grade(self, key: str, handed: Handed) -> Submission:
        """A submission's record, whatever happens: what goes wrong here costs the others nothing."""
        try:
            return self._graded(key, handed)
        except Exception as error:
            return ungraded(handed, f"{handed.path}: the grader failed ({type(error).__name__}: {error})")

    def _graded(self, key: str, handed: Handed) -> Submission:
        """The record that the child wrote; where it wrote none, once more, and then the submission is ungraded."""
        if handed.problem:  # nothing to run
            record = graded(handed, self.limits.cell_seconds)
            keep(self.folder, key, record, made_from(handed, self.limits))
            return record
        said = ""
        for _ in (1, 2):
            (self.folder / "records" / f"{key}.json").unlink(missing_ok=True)
            said = self._child(handed, key)
            record = _read(self.folder, key)
            if record or self.stopping:
                break
        return record or ungraded(handed, f"{handed.path}: the grader failed, twice: {said}")

    def _child(self, handed: Handed, key: str) -> str:
        """Run one child to its end; what it said, for the case that it left no record."""
        command = [
            sys.executable,
            "-c",
            START.format(root=str(ROOT)),
            "one",
            os.path.abspath(handed.file),
            "--leash",
            f"--report={self.folder}",
            f"--key={key}",
            f"--learner={handed.learner}",
            f"--shown={handed.path}",
            f"--member={handed.member}",
            *self.limits.options(),
        ]
        place_of = self.place / str(next(self.numbers))  # its own: what it leaves there is nobody else's
        place_of.mkdir()
        with open(self.place / f"{place_of.name}.txt", "w+b") as output:
            with self.lock:
                if self.stopping:
                    return "stopped"
                child = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    env={**os.environ, "TMPDIR": str(place_of)},
                )
                self.children.add(child)
            try:
                # waiting for the GPU is no fault, so there the child's own limit has to do
                child.wait(timeout=None if has_gpu() else self.limits.seconds + GRACE)
                words = f"exit status {child.returncode}"
            except subprocess.TimeoutExpired:
                _end(child)
                words = f"no end within {self.limits.seconds + GRACE:g} s"
            finally:
                child.stdin.close()
                with self.lock:
                    self.children.discard(child)
                jail.remove(place_of)
            output.seek(max(output.seek(0, os.SEEK_END) - 300, 0))
            tail = " ".join(output.read().decode("utf-8", "replace").split())
        return f"{words}; {tail}" if tail else words

    def stop(self) -> None:
        """End every child, each of which ends what it started."""
        with self.lock:
            self.stopping = True
            children = list(self.children)
        for child in children:
            child.send_signal(signal.SIGTERM)
        for child in children:
            try:
                child.wait(timeout=15)
            except subprocess.TimeoutExpired:
                _end(child)


def _end(child: subprocess.Popen) -> None:
    child.send_signal(signal.SIGTERM)  # it ends what it started
    try:
        child.wait(timeout=10)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def leash() -> None:
    """End this process, with all it started, when whoever started it is gone: on Linux the system says so, elsewhere
    standard input ends. By SIGTERM, because what a shell starts in the background ignores SIGINT."""
    if sys.platform.startswith("linux"):
        import ctypes

        ctypes.CDLL(None).prctl(PARENT_DEATH_SIGNAL, signal.SIGTERM, 0, 0, 0)

    def watch():
        while os.read(0, 1024):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()
