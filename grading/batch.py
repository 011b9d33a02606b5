"""A class at once: which submissions are done already, and the others side by side, each in a process of its own.

A submission's record lies in `records/` of the report's folder, under the hash of everything that its grade depends on:
the file's content, the grader, the exercise, the versions, the GPU and the limits. Whoever writes a record there, this
machine or a cluster's, has graded that submission; a second run reads it and runs nothing.
"""

import hashlib
import importlib.metadata
import json
import os
import platform
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from grading import jail
from grading.formats import standing
from grading.intake import Handed, Unreadable, exercise_of, parse
from grading.submission import ROOT, SUBMISSION_SECONDS, Missing, graded, has_gpu, pristine, ungraded

CELL_SECONDS = 120.0
WIDTH = 80  # columns, of a terminal that does not say
PARENT_DEATH_SIGNAL = 1  # of prctl
PLACES = "grade-class-"  # folders for temporary files; each holds a file that its owner has locked
YOUNG = 60  # seconds within which such a folder may not be locked yet
GRACE = 180  # seconds over a submission's own limit after which its process is ended from here
NOT_JUDGING = {"batch.py", "cli.py", "formats.py", "likeness.py", "pages.py", "report.py"}  # files that change no grade
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
        return ["--timeout", f"{self.cell_seconds:g}", "--total", f"{self.seconds:g}", *seed]


# ---------------------------------------------------------------- what is done already


def _hash(*parts) -> str:
    found = hashlib.sha256()
    for part in parts:
        content = part if isinstance(part, bytes) else json.dumps(part, sort_keys=True).encode()
        found.update(len(content).to_bytes(8, "big") + content)
    return found.hexdigest()


@cache
def grader_version() -> str:
    """A hash of the files that decide about grades."""
    files = [*(ROOT / "grading").glob("*.py"), *(ROOT / "grading" / "checks").glob("*.py"),
             *(ROOT / "instruments").glob("*.py"), ROOT / "kernels" / "tolerances.py"]
    return _hash(*((f"{p.relative_to(ROOT)}", p.read_bytes().hex()) for p in sorted(files)
                   if p.parent.name != "grading" or p.name not in NOT_JUDGING))[:16]


@cache
def exercise_version(exercise: str) -> str:
    """A hash of the exercise as released; '' for none."""
    try:
        return _hash([(cell.cell_type, cell.source, cell.metadata) for cell in pristine(exercise).cells])[:16]
    except Missing:
        return ""


@cache
def place() -> dict:
    """Where grading happens, as far as grades depend on it."""
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = ""
    return {"python": platform.python_version(), "machine": platform.machine(), "gpu": _gpu_name(),
            "isolation": jail.level(), **versions}


def _gpu_name() -> str:
    if not has_gpu():
        return ""
    try:
        return subprocess.run(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"], capture_output=True, text=True,
                              timeout=30).stdout.strip() or "unknown"
    except (OSError, subprocess.SubprocessError):
        return "unknown"


def made_from(handed: Handed, limits: Limits) -> dict:
    """All that a submission's grade depends on, but for the exercise."""
    try:
        content = handed.read()
    except Unreadable as error:
        content = str(error).encode()
    return {"content": _hash(content), "grader": grader_version(), "place": place(),
            "limits": [float(limits.cell_seconds), float(limits.seconds), limits.seed]}


def key_of(handed: Handed, limits: Limits) -> str:
    """The name of a submission's record: the hash of its content and of what the grade depends on."""
    return _hash(made_from(handed, limits))[:32]


def stored(folder: Path, key: str, handed: Handed) -> dict | None:
    """The record of a submission that was graded before, with this file's names; None where there is none to trust.

    An ungraded one counts as not done: its cause may have passed.
    """
    try:
        kept = json.loads((folder / "records" / f"{key}.json").read_text(encoding="utf-8"))
        record = kept["record"]
        if kept["key"] != key or kept["exercise_version"] != exercise_version(record["exercise"]):
            return None
        return None if record["status"] == "ungraded" else _named(record, handed)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def instead(folder: Path, handed: Handed, limits: Limits) -> str:
    """What else the records know of a submission that has none under these limits, here and with this grader."""
    wanted, found = made_from(handed, limits), {}
    for path in sorted((folder / "records").glob("*.json")):
        try:
            made = json.loads(path.read_text(encoding="utf-8"))["made_from"]
            if made["content"] == wanted["content"]:
                other = [name for name in ("limits", "place", "grader") if made[name] != wanted[name]]
                found[len(other)] = (other, made)
        except (OSError, ValueError, KeyError, TypeError):
            continue
    if not found:
        return "not graded yet"
    other, made = found[min(found)]
    said = {"limits": lambda: f"with other limits ({' '.join(Limits(*made['limits']).options())})",
            "place": lambda: "in another place (" + ", ".join(
                f"{name} {made['place'].get(name) or 'none'}, here {here or 'none'}"
                for name, here in wanted["place"].items() if made["place"].get(name) != here) + ")",
            "grader": lambda: "by another version of the grader"}
    return "graded " + ", ".join(said[name]() for name in other) if other else "not graded yet"


def keep(folder: Path, key: str, record: dict, made: dict) -> None:
    """Write a record, whole or not at all. made: what it was made from."""
    place_of = folder / "records"
    place_of.mkdir(parents=True, exist_ok=True)
    part = place_of / f".{key}.{os.getpid()}.part"
    try:
        with open(part, "w", encoding="utf-8") as file:
            json.dump({"key": key, "made_from": made, "exercise_version": exercise_version(record["exercise"]),
                       "record": record}, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, place_of / f"{key}.json")
    finally:
        part.unlink(missing_ok=True)


def _named(record: dict, handed: Handed) -> dict:
    notes = [note.replace(record["path"], handed.path) for note in record["notes"]]  # the same file, handed in elsewhere
    return {**record, "path": handed.path, "file": handed.place, "learner": handed.learner, "notes": notes}


# ---------------------------------------------------------------- one, and many


def one(handed: Handed, folder: Path, limits: Limits, again: bool = False, key: str = "") -> tuple[dict, bool]:
    """Grade one submission and keep its record, under `key` if it is known; (record, whether it was done before)."""
    key = key or key_of(handed, limits)
    record = None if again else stored(folder, key, handed)
    if record:
        return record, True
    record = graded(handed, limits.cell_seconds, seed=limits.seed, seconds=limits.seconds)
    keep(folder, key, record, made_from(handed, limits))
    return record, False


def command(handed: Handed, folder: Path, limits: Limits) -> str:
    """The line for a cluster's queue that grades one submission."""
    member = ["--member", handed.member] if handed.member else []
    options = [] if limits == Limits() else limits.options()
    return shlex.join(["grade", "one", os.path.abspath(handed.file), *member, "--learner", handed.learner, "--report",
                       os.path.abspath(folder), *options])


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
    """A run over many submissions. records: in the order of `handed`; done_before, run: how many; seconds: of the run."""

    records: list = field(default_factory=list)
    done_before: int = 0
    run: int = 0
    seconds: float = 0.0

    @property
    def per_minute(self) -> float:
        return 60 * self.run / self.seconds if self.seconds else 0.0


def many(handed: list, folder: Path, limits: Limits, jobs: int, again: bool = False) -> Class:
    """Grade what is not done yet, `jobs` at a time, and show how far it is. jobs=0 takes what is there.

    again: grade everything anew. The same content is graded once, whoever handed it in.
    """
    begun = time.monotonic()
    outcome, found, todo = Class(), {}, {}
    keys = [key_of(h, limits) for h in handed]
    for h, key in zip(handed, keys):
        record = None if again else stored(folder, key, h)
        if record:
            found[key] = record
        else:
            todo.setdefault(key, h)
    outcome.done_before = sum(key in found for key in keys)
    if jobs == 0:
        for key, h in todo.items():
            why = unreadable(h)
            found[key] = (ungraded(h, why, status="unreadable") if why
                          else ungraded(h, f"{h.path}: {instead(folder, h, limits)}"))
        todo = {}
    runner = _Runner(folder, limits)
    pool = ThreadPoolExecutor(max_workers=max(jobs, 1))
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
        runner.stop()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
        runner.close()
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
        self.bar = tqdm(total=total, desc="grading", unit="submission", disable=None if total else True, leave=False,
                        ncols=_columns(), nrows=24)
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

    def one_more(self, record: dict) -> None:
        self.done += 1
        said = f"{record['learner']}: {standing(record)}"
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
                shutil.rmtree(place_of, ignore_errors=True)
        except OSError:  # held, gone, or not one of ours
            continue


class _Runner:
    """Runs `grade one` for each submission. A child lives on a leash: when this process ends, so does the child."""

    def __init__(self, folder: Path, limits: Limits):
        self.folder, self.limits = folder, limits
        sweep()
        self.place = tempfile.TemporaryDirectory(prefix=PLACES, ignore_cleanup_errors=True)
        self.owned = open(Path(self.place.name) / "lock", "w")
        if os.name == "posix":
            import fcntl

            fcntl.flock(self.owned, fcntl.LOCK_EX)  # until this process ends, however it ends
        self.lock, self.children, self.stopping = threading.Lock(), set(), False

    def grade(self, key: str, handed: Handed) -> dict:
        """The record that the child wrote; where it wrote none, once more, and then the submission is ungraded."""
        if handed.problem:  # nothing to run
            record = graded(handed, self.limits.cell_seconds)
            keep(self.folder, key, record, made_from(handed, self.limits))
            return record
        said, record = "", None
        for _ in (1, 2):
            (self.folder / "records" / f"{key}.json").unlink(missing_ok=True)
            said = self._child(handed, key)
            if self.stopping:
                break
            try:
                record = json.loads((self.folder / "records" / f"{key}.json").read_text(encoding="utf-8"))["record"]
            except (OSError, ValueError, KeyError) as error:
                said = said or f"its record cannot be read ({type(error).__name__})"
                continue
            break
        return record or ungraded(handed, f"{handed.path}: the grader failed, twice: {said}")

    def _child(self, handed: Handed, key: str) -> str:
        """Run one child to its end; what it said, for the case that it left no record."""
        command = [sys.executable, "-c", START.format(root=str(ROOT)), "one", str(handed.file), "--report", str(self.folder),
                   "--leash", "--key", key, "--learner", handed.learner, "--shown", handed.path, *self.limits.options()]
        if handed.member:
            command += ["--member", handed.member]
        with tempfile.TemporaryFile() as output:
            with self.lock:
                if self.stopping:
                    return "stopped"
                child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=output, stderr=subprocess.STDOUT,
                                         start_new_session=True, env={**os.environ, "TMPDIR": self.place.name})
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

    def close(self) -> None:
        self.place.cleanup()
        self.owned.close()


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
