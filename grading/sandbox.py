"""Runs a command on behalf of a learner: in a folder of its own, with limits, isolated as far as the host allows.

bubblewrap (`bwrap`, 0.7 or newer, a package of every Linux distribution) gives the isolation: the command sees Python,
its packages, the system's libraries and its own folder, writes below two folders of that, and has no network and no
other process in sight. Where bwrap is missing or forbidden, limits remain: there, grade notebooks of strangers in a
container or a virtual machine. `level()` tries what the host allows.
"""

import os
import resource
import secrets
import shutil
import site
import stat
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import psutil

from instruments.release import ROOT

#: Isolation, the weakest first; each level holds what those before it hold.
LEVELS = ("process", "limits", "network")
TOKEN = "BYTES_FIRST_RUN"  # environment variable by which every process of a run is known
MAX_FILE = 1 << 30  # bytes of one file
MAX_FOLDER = 2 << 30  # bytes of all files that a run writes
MAX_MEMORY_FILES = 1 << 28  # bytes of all files below /tmp, which are in memory and vanish with the run
MAX_FILES = 50_000
MAX_OPEN = 1024  # files that one process may hold open
MAX_OUTPUT = 64 << 20  # bytes printed
MAX_PROCESSES = 128
MAX_THREADS = 1000  # more than before on the whole machine: a fork bomb, ended before it is counted
LOOK = 0.5  # seconds between two looks at what a run uses
VARIABLES = "PATH LANG LC_ALL LC_CTYPE TZ LD_LIBRARY_PATH OMP_NUM_THREADS CC CUDA_HOME CUDA_VISIBLE_DEVICES".split()
SYSTEM = "/usr /lib /lib64 /bin /sbin /etc/alternatives /etc/ld.so.cache /etc/passwd /etc/group".split()
SYSTEM += "/proc/sys /proc/sysrq-trigger /proc/irq /proc/bus /proc/fs /proc/acpi /proc/scsi".split()  # root's to write

#: Exits with 0 where it sees no file outside, can write to home/ alone, and shares no namespace with who started it.
ATTEMPT = """
import os, sys
outside, *namespaces = sys.argv[1:]
open("home/new", "w").close()
shared = {os.readlink(f"/proc/self/ns/{name}") for name in os.listdir("/proc/self/ns")} & set(namespaces)
sys.exit(bool(os.path.exists(outside) or os.access(".", os.W_OK) or shared))
"""


@dataclass(frozen=True)
class Finished:
    """How a run ended. code: exit status, None where it was killed, and `why` says for what. output: the end of what it
    printed."""

    code: int | None
    output: str
    why: str = ""


def at_least(wanted: str) -> bool:
    """Whether this host reaches a level of LEVELS."""
    return LEVELS.index(level()) >= LEVELS.index(wanted)


@cache
def level() -> str:
    """The isolation that learner code gets on this host, found by trying it on a small process."""
    if not sys.platform.startswith("linux"):
        return "process"
    with workplace("probe-") as outside, workplace("probe-") as folder:
        (folder / "home").mkdir()
        try:
            namespaces = [os.readlink(f"/proc/self/ns/{name}") for name in ("ipc", "net", "pid")]
            words = [sys.executable, "-I", "-S", "-c", ATTEMPT, str(outside), *namespaces]
            subprocess.run([*_bubblewrap(folder, ("home",)), *words], check=True, capture_output=True, timeout=30)
        except (OSError, subprocess.SubprocessError):
            return "limits"
    return "network"


def _bubblewrap(folder: Path, writable: tuple) -> list:
    """The words before a command that runs in `folder`, isolated."""
    words = "bwrap --unshare-all --cap-drop ALL --die-with-parent --new-session --proc /proc --dev /dev".split()
    for place in ("/tmp", "/dev/shm"):
        words += ["--size", str(MAX_MEMORY_FILES), "--tmpfs", place]
    bound = []
    for place in [*SYSTEM, *_python()]:
        if not any(Path(place).is_relative_to(other) for other in bound):  # it would fail on a link there
            bound.append(place)
            words += ["--ro-bind-try", place, place]
    words += ["--ro-bind", str(folder), str(folder)]
    for name in writable:
        words += ["--bind", str(folder / name), str(folder / name)]
    for device in map(str, [*Path("/dev").glob("nvidia*"), "/dev/dxg"]):  # GPUs
        words += ["--dev-bind-try", device, device]
    return [*words, "--remount-ro", "/dev", "--remount-ro", "/", "--chdir", str(folder)]


def _python() -> list:
    """Where this Python, its packages and a compiler for Triton's launchers are; nothing that holds the course or the
    user's home."""
    compilers = filter(None, map(shutil.which, (os.environ.get("CC", "cc"), "gcc", "clang")))
    places = [sys.prefix, sys.base_prefix, site.getusersitepackages(), os.environ.get("CUDA_HOME", "")]
    places += [*_paths("PYTHONPATH"), *_paths("LD_LIBRARY_PATH")]
    places += [Path(compiler).resolve().parents[1] for compiler in compilers]
    places = [path for place in places if place for path in (Path(place).absolute(), Path(place).resolve())]
    private = (ROOT, Path.home())
    return [str(place) for place in places if not any(path.is_relative_to(place.resolve()) for path in private)]


def _paths(variable: str) -> list:
    """The folders that an environment variable lists, without those of a copy of the course."""
    paths = [Path(path).resolve() for path in os.environ.get(variable, "").split(os.pathsep) if path]
    return [str(p) for p in paths if not p.is_relative_to(ROOT) and not (p / "grading" / "sandbox.py").exists()]


@contextmanager
def workplace(prefix: str):
    """A fresh folder that only this user can enter; it is removed whatever it holds, and links are not followed."""
    folder = Path(tempfile.mkdtemp(prefix=prefix)).resolve()
    try:
        yield folder
    finally:
        for command in (["chmod", "-R", "u+rwX"], ["rm", "-rf"]):  # shutil.rmtree cannot recurse as deep
            subprocess.run([*command, folder], capture_output=True)


def run(command: list, folder: Path, seconds: float, writable: tuple = ("home", "results")) -> Finished:
    """Run `command` in `folder`, below which it writes to `writable` alone; nothing that it started outlives it."""
    for name in writable:
        (folder / name).mkdir(exist_ok=True)
    token, begin = secrets.token_hex(8), time.monotonic()
    environment = {
        **{name: os.environ[name] for name in VARIABLES if name in os.environ},
        **dict.fromkeys(("HOME", "TMPDIR"), str(folder / writable[0])),  # caches and settings are below them
        **dict.fromkeys(("PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED", "JUPYTER_PLATFORM_DIRS"), "1"),
        TOKEN: token,
        "PYTHONPATH": os.pathsep.join(_paths("PYTHONPATH")),
        "MPLBACKEND": "Agg",
    }
    with tempfile.TemporaryFile(dir=folder) as output:
        process = subprocess.Popen(
            [*(_bubblewrap(folder, writable) if at_least("network") else []), *command],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=partial(_limit, seconds),
        )
        code, why, look, most = None, "", 0, _threads() + MAX_THREADS
        try:
            while not why:
                with suppress(subprocess.TimeoutExpired):
                    code = process.wait(timeout=LOOK / 10)
                    break
                look += 1
                if _threads() > most:
                    why = f"it started more than {MAX_PROCESSES} processes"
                elif (printed := os.fstat(output.fileno()).st_size) > MAX_OUTPUT or look % 10 == 0:
                    why = _excess(_processes(process, token), [folder / name for name in writable], printed)
                if time.monotonic() > begin + seconds:
                    why = "the time for it ran out"
        finally:
            _kill(process, token)
        output.seek(max(0, os.fstat(output.fileno()).st_size - 4000))
        end = output.read(4000).decode("utf-8", "replace")
    return Finished(code, end, why)


def _threads() -> int:
    """Threads of the whole machine: known at once, however many there are."""
    return int(Path("/proc/loadavg").read_text().split()[3].partition("/")[2])


def _limit(seconds: float) -> None:
    """Limit this process, before it becomes the command; whoever watches it comes before it on a busy machine."""
    os.nice(10)
    limits = {"CORE": 0, "FSIZE": MAX_FILE, "NOFILE": MAX_OPEN, "CPU": int(seconds * (os.cpu_count() or 1)) + 60}
    if at_least("network"):  # counted by user namespace: elsewhere the user's other processes would count, root's never
        limits["NPROC"] = 4 * MAX_THREADS
    for name, most in limits.items():
        kind = getattr(resource, f"RLIMIT_{name}")
        most = min(most, resource.getrlimit(kind)[1] % (1 << 63))  # -1 stands for no limit
        resource.setrlimit(kind, (most, most))


def _kill(process, token: str) -> None:
    """End a run's processes, also those that they start meanwhile."""
    process.kill()  # with bubblewrap that is all of them
    for _attempt in range(20):
        processes = _processes(process, token)
        for each in (process, *processes):
            with suppress(OSError, psutil.Error):
                each.kill()
        process.wait()
        if not processes:
            return
        psutil.wait_procs(processes, timeout=1)


def _processes(process, token: str) -> list:
    """The processes of a run: the children of its first one, and those that carry its token."""
    processes = {}
    with suppress(psutil.Error):
        processes = {p.pid: p for p in psutil.Process(process.pid).children(recursive=True)}
    if not at_least("network"):  # in a sandbox, what leaves the family ends with its namespace
        for p in psutil.process_iter():
            with suppress(psutil.Error):
                if p.environ().get(TOKEN) == token:
                    processes[p.pid] = p
    return list(processes.values())


def _excess(processes: list, folders: list, printed: int) -> str:
    """What a run uses too much of; '' for nothing."""
    most_memory = max(4 << 30, psutil.virtual_memory().total // 2)
    memory = 0
    for p in processes:
        with suppress(psutil.Error):
            memory += p.memory_info().rss - getattr(p.memory_info(), "shared", 0)
    size, count = _files(folders)
    limits = {
        f"it printed more than {MAX_OUTPUT >> 20} MiB": printed > MAX_OUTPUT,
        f"it started more than {MAX_PROCESSES} processes": len(processes) > MAX_PROCESSES,
        f"it used more than {most_memory >> 30} GiB of memory": memory > most_memory,
        f"it wrote more than {MAX_FOLDER >> 30} GiB": size + _nameless_files(processes) > MAX_FOLDER,
        f"it made more than {MAX_FILES:,} files": count > MAX_FILES,
    }
    return next((words for words, passed in limits.items() if passed), "")


def _files(folders: list) -> tuple[int, float]:
    """Bytes and number of the files below the folders; too many where they cannot be counted."""
    size, count, waiting = 0, 0, [str(folder) for folder in folders]
    try:
        while waiting and count <= MAX_FILES:
            with suppress(FileNotFoundError):  # removed meanwhile
                for entry in os.scandir(waiting.pop()):
                    count += 1
                    with suppress(FileNotFoundError):
                        size += entry.stat(follow_symlinks=False).st_blocks * 512
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
    except OSError:  # made unreadable, or too deep
        count = float("inf")
    return size, count


def _nameless_files(processes: list) -> int:
    """Bytes of the files that are open and have no name any more, in memory or on disk."""
    sizes = {}
    for p in processes:
        with suppress(OSError):
            for entry in os.scandir(f"/proc/{p.pid}/fd"):
                with suppress(OSError):
                    status = entry.stat()
                    if stat.S_ISREG(status.st_mode) and not status.st_nlink:
                        sizes[status.st_dev, status.st_ino] = status.st_blocks * 512
    return sum(sizes.values())
