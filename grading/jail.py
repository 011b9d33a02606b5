"""The process that runs learner code: own folder, clean environment, limits, and as much isolation as the host allows.

Two rings. The outer one holds the whole run, nbval included: a session and, where the host allows, namespaces without a
network. The inner one holds the kernel in which learner code runs: resource limits, and Landlock, under which it reads
Python, the system's libraries and its inputs, writes to two folders, and can neither signal nor trace anything outside;
and, where there are namespaces, mounts that are read-only but for those two folders, because Landlock knows nothing of
modes, owners and times. `level()` probes what the host allows; grading/enter.py does it. What a run uses is looked at
from outside, again and again; what learner code leaves behind is removed by `workplace`, whatever it is.
"""

import ctypes
import json
import os
import secrets
import shutil
import signal
import site
import stat
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

#: Isolation, the weakest first; each holds what those before it hold.
LEVELS = ("process", "limits", "files", "network")
WALLS = ("namespaces", "mounts")  # what `network` has beside Landlock
ENTER = Path(__file__).with_name("enter.py")
WRITABLE = ("home", "results")  # folders of a run that learner code may write to
MAX_FILE = 1 << 30  # bytes of one file that learner code may write
MAX_FOLDER = 2 << 30  # bytes of all of them, those without a name and memory that is a file included
MAX_NAMES = 50_000  # files and folders
MAX_DEPTH = 32  # folders in each other
MAX_OPEN = 1024  # files that one process may hold open
MAX_HELD = 200_000  # files that all of them hold, open or mapped: so many can be looked at in a second
MAX_SAID = 64 << 20  # bytes that a run may print past nbval
MAX_ENVIRONMENT = 1 << 16  # bytes of a process's environment that are looked at
MAX_PROCESSES = 128
MAX_THREADS = 2048
LOOK = 0.3  # seconds between two looks at what a run uses
PARENT_DEATH_SIGNAL = 1  # of prctl
LIBC = ctypes.CDLL(None) if sys.platform.startswith("linux") else None
TOKEN = "BYTES_FIRST_RUN"  # environment variable by which every process of a run is known
KEPT = (
    "PATH",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "TZ",
    "LD_LIBRARY_PATH",
    "CUDA_HOME",
    "CUDA_VISIBLE_DEVICES",
    "NVIDIA_VISIBLE_DEVICES",
    "OMP_NUM_THREADS",
    "CC",
    "VIRTUAL_ENV",
)
SYSTEM = (
    "/usr",
    "/lib",
    "/lib64",
    "/bin",
    "/sbin",
    "/proc",
    "/sys",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/passwd",
    "/etc/group",
    "/etc/nsswitch.conf",
    "/etc/localtime",
    "/etc/timezone",
    "/etc/ssl",
    "/etc/mime.types",
    "/etc/alternatives",
    "/etc/OpenCL",
    "/run/nvidia-persistenced",
)
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/nvidia-caps")


@dataclass(frozen=True)
class Finished:
    """How a run ended. code: exit status, None where it was killed, and `why` says for what. said: its output's end."""

    code: int | None
    said: str
    seconds: float
    why: str = ""


def environment(folder: Path, root: Path) -> dict:
    """What a run inherits: a short list of variables, and every place to write inside its folder."""
    kept = {name: os.environ[name] for name in KEPT if name in os.environ}
    paths = _packages(root)
    if paths:
        kept["PYTHONPATH"] = os.pathsep.join(paths)
    for name in WRITABLE:
        (folder / name).mkdir(exist_ok=True)
    home = folder / "home"
    places = (
        "HOME",
        "TMPDIR",
        "IPYTHONDIR",
        "JUPYTER_CONFIG_DIR",
        "JUPYTER_DATA_DIR",
        "JUPYTER_RUNTIME_DIR",
        "TRITON_CACHE_DIR",
        "XDG_CACHE_HOME",
        "XDG_CONFIG_HOME",
        "MPLCONFIGDIR",
    )
    kept["PYTHONUSERBASE"] = os.environ.get("PYTHONUSERBASE") or site.getuserbase()  # packages installed for the user
    return {
        **kept,
        **{place: str(home) for place in places},
        "PYTHONDONTWRITEBYTECODE": "1",
        "MPLBACKEND": "Agg",
        "PYTHONUNBUFFERED": "1",
        "JUPYTER_PLATFORM_DIRS": "1",
    }


def _packages(root: Path) -> list:
    return [
        p
        for p in os.environ.get("PYTHONPATH", "").split(os.pathsep)
        if p and not Path(p).resolve().is_relative_to(root)
    ]


# ---------------------------------------------------------------- what the host allows


def at_least(level: str) -> bool:
    """Whether this host reaches a level of LEVELS."""
    if level not in LEVELS:
        raise ValueError(f"level: got {level!r}, expected one of {', '.join(LEVELS)}")
    return LEVELS.index(globals()["level"]()) >= LEVELS.index(level)


@cache
def level() -> str:
    """The isolation that learner code gets on this host, found by trying it on a small process."""
    if not sys.platform.startswith("linux"):
        return "process"
    return {None: "limits", WALLS: "network"}.get(_walls(), "files")


@cache
def _walls() -> tuple | None:
    """Those of WALLS that stand on this host, beside Landlock; None where that does not."""
    tried = (WALLS, WALLS[:1], ()) if sys.platform.startswith("linux") else ()
    return next((walls for walls in tried if _stand(walls)), None)


def _stand(walls: tuple) -> bool:
    """Whether a process behind Landlock and these walls can do nothing that it should not, and what it should."""
    with workplace("probe-") as folder:
        secret, home = folder / "secret", folder / "home"
        secret.write_text("x")
        home.mkdir()
        inner = {"read": [*SYSTEM, *_python(folder)], "write": [str(home)], "limits": {"CORE": 0}}
        if "mounts" in walls:
            inner["open"] = [str(home)]
        look = (
            "import os, json\n"
            "def barred(act, *to):\n try: act(*to)\n except OSError: return True\n return False\n"
            f"secret, home = {str(secret)!r}, {str(home)!r}\n"
            "files = os.listdir(home) == [] and barred(open, secret) and barred(open, secret + '.new', 'w')\n"
            "open(home + '/new', 'w').close()\n"
            "mounts = barred(os.chmod, secret, 0o600) and barred(os.utime, secret)\n"
            "routes = open('/proc/net/route').read().splitlines()[1:]\n"
            "alone = not routes and os.getpid() < 10\n"
            "print(json.dumps({'files': files, 'mounts': mounts, 'namespaces': alone}))\n"
        )
        outer = _enter({"namespaces": True}) if "namespaces" in walls else []
        try:
            done = subprocess.run(
                [*outer, *_enter(inner), sys.executable, "-I", "-S", "-c", look],
                capture_output=True,
                text=True,
                timeout=30,
                cwd=folder,
            )
            found = json.loads(done.stdout)
        except (OSError, ValueError, subprocess.SubprocessError):
            return False
    return all(found[wall] for wall in ("files", *walls))


def _enter(spec: dict) -> list:
    return [sys.executable, "-I", "-S", str(ENTER), json.dumps(spec)]


def _compiler() -> list:
    """Where the C compiler lies, with which Triton builds a launcher for each kernel on a GPU machine."""
    found = [shutil.which(name) for name in (os.environ.get("CC"), "gcc", "clang", "cc") if name]
    binaries = [place for path in found if path for place in (Path(path), Path(path).resolve())]
    return [str(binary.parent.parent) for binary in binaries if binary.parent.parent != Path("/")]


def _python(root: Path) -> list:
    """Where this Python, its packages and what they need lie."""
    places = [
        *_compiler(),
        sys.prefix,
        sys.base_prefix,
        site.getuserbase(),
        os.environ.get("CUDA_HOME", ""),
        *os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep),
        *_packages(root),
    ]
    return list(dict.fromkeys(str(Path(p).resolve()) for p in places if p))


def inner(folder: Path, root: Path, seconds: float) -> list:
    """The words before a command that runs learner code in `folder`; [] where the host allows nothing."""
    if not sys.platform.startswith("linux"):
        return []
    limits = {"CORE": 0, "FSIZE": MAX_FILE, "CPU": int(seconds * (os.cpu_count() or 1)) + 60, "NOFILE": MAX_OPEN}
    walls = _walls() or ()
    if "namespaces" in walls:  # counted per user namespace; elsewhere the user's other processes would count
        limits["NPROC"] = MAX_THREADS
    readable = [folder / name for name in ("instruments", "grading", "tasks", "claims", "submission.ipynb")]
    own = [str(folder / name) for name in WRITABLE]
    gpus = [str(p) for p in Path("/dev").glob("nvidia*")] if Path("/dev").is_dir() else []
    if gpus:  # CUDA writes the names of its threads. Of /proc the walls open what belongs to the processes behind them;
        # without them it is the kernel's own folder (enter.py becomes it), and CUDA starts in none that it forks
        own.append("/proc" if "mounts" in walls else "/proc/self/task")
    return _enter(
        {
            "read": [*SYSTEM, *_python(root), *map(str, readable)],
            "names": [str(folder)],
            "limits": limits,
            "write": [*own, *DEVICES, *gpus],
            **({"open": own} if "mounts" in walls else {}),
        }
    )


# ---------------------------------------------------------------- a run


def run(command: list, folder: Path, root: Path, seconds: float) -> Finished:
    """Run `command` in `folder`; at the deadline, and at the end, nothing that it started lives on."""
    token = secrets.token_hex(8)
    begun = time.monotonic()
    outer = _enter({"namespaces": True}) if "namespaces" in (_walls() or ()) else []
    process = subprocess.Popen(
        [*outer, *command],
        cwd=folder,
        env={TOKEN: token, **environment(folder, root)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        preexec_fn=_limits if os.name == "posix" else None,
    )
    output = _Output(process.stdout)
    try:
        code, why = _wait(process, token, folder, begun + seconds, output)
    finally:
        _end(process, token)
    output.join(1)
    return Finished(code, output.end.decode("utf-8", "replace"), time.monotonic() - begun, why)


class _Output(threading.Thread):
    """Takes what a run prints, and keeps its end. A file in its place would be one that learner code holds open."""

    def __init__(self, stream):
        super().__init__(daemon=True)
        self.stream, self.size, self.end = stream, 0, b""
        self.start()

    def run(self):
        with self.stream:
            while said := self.stream.read1(1 << 16):
                self.size += len(said)
                self.end = (self.end + said)[-4000:]


def _wait(process: subprocess.Popen, token: str, folder: Path, deadline: float, output: _Output) -> tuple:
    """(exit status, ''), or (None, why it has to be killed)."""
    look = 0
    while True:
        try:
            return process.wait(timeout=LOOK), ""
        except subprocess.TimeoutExpired:
            if time.monotonic() > deadline:
                return None, "the time for the whole notebook ran out"
            if output.size > MAX_SAID:
                return None, f"it printed more than {MAX_SAID >> 20} MiB"
            look += 1
            try:
                _look(token, folder if look % 4 == 0 else None)
            except Excess as excess:
                return None, str(excess)


class Excess(Exception):
    """What a run uses too much of."""


def _look(token: str, folder: Path | None) -> None:
    """Raise Excess where a run uses too much. A look at its folder too takes longer: at most about a second."""
    running = _carrying(token)
    if len(running) > MAX_PROCESSES:
        raise Excess(f"it started more than {MAX_PROCESSES} processes")
    if sum(map(_resident, running)) > _most_memory():
        raise Excess(f"it used more than {_most_memory() >> 30} GiB of memory")
    if folder and _named(folder) + _nameless(running) > MAX_FOLDER:
        raise Excess(f"it wrote more than {MAX_FOLDER >> 30} GiB of files")


@cache
def _most_memory() -> int:
    return max(4 << 30, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2)


def _resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        return 0


def _named(folder: Path) -> int:
    """Bytes of the files below the folders that learner code writes to; it stops as soon as there are too many."""
    size = names = 0
    left = [(folder / name, 1) for name in WRITABLE]
    while left:
        place, depth = left.pop()
        if depth > MAX_DEPTH:
            raise Excess(f"it made more than {MAX_DEPTH} folders in each other")
        try:
            with os.scandir(place) as entries:
                for entry in entries:
                    names += 1
                    if names > MAX_NAMES:
                        raise Excess(f"it made more than {MAX_NAMES:,} files and folders")
                    with suppress(FileNotFoundError):
                        size += entry.stat(follow_symlinks=False).st_blocks * 512
                        if entry.is_dir(follow_symlinks=False):
                            left.append((entry.path, depth + 1))
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise Excess("it made a folder that cannot be looked into") from error
    return size


def _nameless(running: list) -> int:
    """Bytes of the files that have no name, or lie in memory: processes hold them, open or mapped.

    Of those that are mapped and no longer open, only root is told.
    """
    size, held, seen = 0, 0, set()
    for pid in running:
        for kind in ("fd", "map_files"):
            with suppress(OSError), os.scandir(f"/proc/{pid}/{kind}") as entries:
                for entry in entries:
                    held += 1
                    if held > MAX_HELD:
                        raise Excess(f"it held more than {MAX_HELD:,} files")
                    with suppress(OSError):
                        found = os.stat(entry.path)
                        which = (found.st_dev, found.st_ino)
                        if not found.st_nlink and stat.S_ISREG(found.st_mode) and which not in seen:
                            seen.add(which)
                            size += found.st_blocks * 512
    return size


def _limits():
    import resource

    if LIBC:  # a run ends with its grader, even where that is killed outright
        LIBC.prctl(PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (MAX_FILE, MAX_FILE))


def _end(process: subprocess.Popen, token: str) -> None:
    """End the process, its group, and whatever else belongs to the run, in whatever session.

    With namespaces, killing the first process ends all the others; elsewhere they are known by the token.
    """
    for _ in range(5):
        if process.poll() is None:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except (OSError, AttributeError):
                process.kill()
            process.wait()
        others = _carrying(token)
        for pid in others:
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass
        if not others:
            return
        time.sleep(0.05)


def _carrying(token: str) -> list:
    """Processes of the run with this token: those whose environment holds it, those in the namespace of one of them,
    and their descendants (Linux; elsewhere the process group has to do)."""
    if not sys.platform.startswith("linux"):
        return []
    mark, found, parents, spaces = f"{TOKEN}={token}".encode(), set(), {}, {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            pid = int(entry.name)
            try:
                parents[pid] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                spaces[pid] = os.readlink(entry / "ns" / "pid")
                with open(entry / "environ", "rb") as file:
                    if mark in file.read(MAX_ENVIRONMENT).split(b"\0"):
                        found.add(pid)
            except (OSError, ValueError, IndexError):
                continue
    own = os.readlink("/proc/self/ns/pid")
    theirs = {spaces[pid] for pid in found if spaces.get(pid, own) != own}
    found |= {pid for pid, space in spaces.items() if space in theirs}
    while True:
        more = {pid for pid, parent in parents.items() if parent in found} - found
        if not more:
            return sorted(found)
        found |= more


# ---------------------------------------------------------------- what a run leaves behind


@contextmanager
def workplace(prefix: str):
    """A temporary folder that no other user can enter; at the end it is removed, whatever was left in it."""
    folder = Path(tempfile.mkdtemp(prefix=prefix)).resolve()
    try:
        yield folder
    finally:
        remove(folder)


def remove(folder: Path) -> None:
    """Remove a folder with all that learner code can leave in it, as far as that is possible; never an error.

    Folders in each other, however many, are moved to the top one by one: neither calls nor paths get longer with depth,
    as they do in shutil.rmtree. Links are removed, not followed.
    """
    if os.name != "posix":
        with suppress(RecursionError):
            shutil.rmtree(folder, ignore_errors=True)
        return
    with suppress(OSError):
        if os.path.islink(folder):
            return os.unlink(folder)
        top = _opened(folder)
        try:
            left = os.listdir(top)
            while left:
                with suppress(OSError):
                    left += _flattened(left.pop(), top)
        finally:
            os.close(top)
        os.rmdir(folder)


def _flattened(name: str, top: int) -> list:
    """Remove `name` of the folder `top`; the folders in it lie in `top` then, under the names that come back."""
    if _unlinked(name, top):
        return []
    moved, inside = [], _opened(name, top)
    try:
        for below in os.listdir(inside):
            with suppress(OSError):
                if not _unlinked(below, inside):
                    os.close(_opened(below, inside))  # a folder moves only if it may be written to
                    new = secrets.token_hex(8)
                    os.rename(below, new, src_dir_fd=inside, dst_dir_fd=top)
                    moved.append(new)
    finally:
        os.close(inside)
    with suppress(OSError):
        os.rmdir(name, dir_fd=top)
    return moved


def _unlinked(name: str, where: int) -> bool:
    """Whether it was removed; a folder that holds something is not."""
    if not stat.S_ISDIR(os.lstat(name, dir_fd=where).st_mode):
        os.unlink(name, dir_fd=where)
        return True
    with suppress(OSError):
        os.rmdir(name, dir_fd=where)
        return True
    return False


def _opened(name, where: int | None = None) -> int:
    """A folder, opened, with every right of its owner."""
    os.chmod(name, 0o700, dir_fd=where)
    return os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=where)
