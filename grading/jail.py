"""The process that runs learner code: its own folder, a clean environment, limits, and as much isolation as the host allows.

Two rings. The outer one holds the whole run, nbval included: a session and, where the host allows, namespaces without a
network. The inner one holds the kernel in which learner code runs: resource limits, and Landlock, under which it reads
Python, the system's libraries and its inputs, writes to two folders, and can neither signal nor trace anything outside.
`level()` probes what the host allows; grading/enter.py does it.
"""

import ctypes
import json
import os
import secrets
import shutil
import signal
import site
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path

#: Isolation, the weakest first; each holds what those before it hold.
LEVELS = ("process", "limits", "files", "network")
ENTER = Path(__file__).with_name("enter.py")
WRITABLE = ("home", "results")  # folders of a run that learner code may write to
MAX_FILE = 1 << 30  # bytes of one file that learner code may write
MAX_FOLDER = 2 << 30  # bytes of all of them
MAX_PROCESSES = 128
MAX_THREADS = 2048
LOOK = 0.3  # seconds between two looks at what a run uses
PARENT_DEATH_SIGNAL = 1  # of prctl
LIBC = ctypes.CDLL(None) if sys.platform.startswith("linux") else None
TOKEN = "BYTES_FIRST_RUN"  # environment variable by which every process of a run is known
KEPT = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_VISIBLE_DEVICES",
        "NVIDIA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "CC", "VIRTUAL_ENV")
SYSTEM = ("/usr", "/lib", "/lib64", "/bin", "/sbin", "/proc", "/sys", "/etc/ld.so.cache", "/etc/ld.so.conf",
          "/etc/ld.so.conf.d", "/etc/passwd", "/etc/group", "/etc/nsswitch.conf", "/etc/localtime", "/etc/timezone",
          "/etc/ssl", "/etc/mime.types", "/etc/alternatives", "/etc/OpenCL", "/run/nvidia-persistenced")
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/nvidia-caps")


@dataclass(frozen=True)
class Finished:
    """How a run ended. code: exit status, None where it was killed, and `why` says for what. said: the end of its output."""

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
    places = ("HOME", "TMPDIR", "IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR",
              "TRITON_CACHE_DIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "MPLCONFIGDIR")
    kept["PYTHONUSERBASE"] = os.environ.get("PYTHONUSERBASE") or site.getuserbase()  # packages installed for the user
    return {**kept, **{place: str(home) for place in places}, "PYTHONDONTWRITEBYTECODE": "1", "MPLBACKEND": "Agg",
            "PYTHONUNBUFFERED": "1", "JUPYTER_PLATFORM_DIRS": "1"}


def _packages(root: Path) -> list:
    return [p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep)
            if p and not Path(p).resolve().is_relative_to(root)]


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
    with tempfile.TemporaryDirectory(prefix="probe-") as place:
        folder = Path(place).resolve()
        secret = folder / "secret"
        secret.write_text("x")
        (folder / "home").mkdir()
        inner = {"read": [*SYSTEM, *_python(folder)], "write": [str(folder / "home")], "limits": {"CORE": 0}}
        look = ("import os, json\n"
                "def barred(path, mode):\n try: open(path, mode).close()\n except PermissionError: return True\n return False\n"
                f"own = set(os.listdir({str(folder / 'home')!r})) == set()\n"
                f"files = own and barred({str(secret)!r}, 'r') and barred({str(folder / 'new')!r}, 'w')\n"
                "routes = open('/proc/net/route').read().splitlines()[1:]\n"
                "print(json.dumps([files, not routes and os.getpid() < 10]))\n")
        command = [*_enter({"namespaces": True}), *_enter(inner), sys.executable, "-I", "-S", "-c", look]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=30, cwd=folder)
            files, alone = json.loads(done.stdout)
        except (OSError, ValueError, subprocess.SubprocessError):
            return "limits"
    return "network" if files and alone else "files" if files else "limits"


def _enter(spec: dict) -> list:
    return [sys.executable, "-I", "-S", str(ENTER), json.dumps(spec)]


def _compiler() -> list:
    """Where the C compiler lies, with which Triton builds a launcher for each kernel on a GPU machine."""
    found = [shutil.which(name) for name in (os.environ.get("CC"), "gcc", "clang", "cc") if name]
    binaries = [place for path in found if path for place in (Path(path), Path(path).resolve())]
    return [str(binary.parent.parent) for binary in binaries if binary.parent.parent != Path("/")]


def _python(root: Path) -> list:
    """Where this Python, its packages and what they need lie."""
    places = [*_compiler(), sys.prefix, sys.base_prefix, site.getuserbase(), *os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep),
              os.environ.get("CUDA_HOME", ""), *_packages(root)]
    return list(dict.fromkeys(str(Path(p).resolve()) for p in places if p))


def inner(folder: Path, root: Path, seconds: float) -> list:
    """The words before a command that runs learner code in `folder`; [] where the host allows nothing."""
    if not sys.platform.startswith("linux"):
        return []
    limits = {"CORE": 0, "FSIZE": MAX_FILE, "CPU": int(seconds * (os.cpu_count() or 1)) + 60}
    if level() == "network":  # counted per user namespace; elsewhere the user's other processes would count
        limits["NPROC"] = MAX_THREADS
    readable = [folder / name for name in ("instruments", "grading", "tasks", "claims", "submission.ipynb")]
    gpus = [str(p) for p in Path("/dev").glob("nvidia*")] if Path("/dev").is_dir() else []
    if gpus:  # CUDA writes the names of its threads; enter.py becomes the kernel, so this is the kernel's own folder
        gpus.append("/proc/self/task")
    return _enter({"read": [*SYSTEM, *_python(root), *map(str, readable)], "names": [str(folder)], "limits": limits,
                   "write": [*(str(folder / name) for name in WRITABLE), *DEVICES, *gpus]})


# ---------------------------------------------------------------- a run


def run(command: list, folder: Path, root: Path, seconds: float) -> Finished:
    """Run `command` in `folder`; at the deadline, and at the end, nothing that it started lives on."""
    token = secrets.token_hex(8)
    begun = time.monotonic()
    said = folder / "output.txt"
    outer = _enter({"namespaces": True}) if level() == "network" else []
    with open(said, "wb") as output:
        process = subprocess.Popen([*outer, *command], cwd=folder, env={**environment(folder, root), TOKEN: token},
                                   stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                                   start_new_session=True, preexec_fn=_limits if os.name == "posix" else None)
        try:
            code, why = _wait(process, token, folder, begun + seconds)
        finally:
            _end(process, token)
    with open(said, "rb") as file:
        file.seek(max(0, said.stat().st_size - 4000))
        told = file.read().decode("utf-8", "replace")
    return Finished(code, told, time.monotonic() - begun, why)


def _wait(process: subprocess.Popen, token: str, folder: Path, deadline: float) -> tuple:
    """(exit status, ''), or (None, why it has to be killed)."""
    look = 0
    while True:
        try:
            return process.wait(timeout=LOOK), ""
        except subprocess.TimeoutExpired:
            if time.monotonic() > deadline:
                return None, "the time for the whole notebook ran out"
            look += 1
            why = _excess(token, folder if look % 4 == 0 else None)
            if why:
                return None, why


def _excess(token: str, folder: Path | None) -> str:
    """What a run uses too much of; '' for nothing."""
    running = _carrying(token)
    if len(running) > MAX_PROCESSES:
        return f"it started more than {MAX_PROCESSES} processes"
    if sum(map(_resident, running)) > _most_memory():
        return f"it used more than {_most_memory() >> 30} GiB of memory"
    if folder and _size(folder) > MAX_FOLDER:
        return f"it wrote more than {MAX_FOLDER >> 30} GiB of files"
    return ""


@cache
def _most_memory() -> int:
    return max(4 << 30, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2)


def _resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        return 0


def _size(folder: Path) -> int:
    total = 0
    for name in WRITABLE:
        for place, _, files in os.walk(folder / name):
            for file in files:
                try:
                    total += os.lstat(os.path.join(place, file)).st_blocks * 512
                except OSError:
                    continue
    return total


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
    """Processes of the run with this token: those whose environment holds it, those in the namespace of one of them, and
    their descendants (Linux; elsewhere the process group has to do)."""
    if not sys.platform.startswith("linux"):
        return []
    mark, found, parents, spaces = f"{TOKEN}={token}".encode(), set(), {}, {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            pid = int(entry.name)
            try:
                parents[pid] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                spaces[pid] = os.readlink(entry / "ns" / "pid")
                if mark in (entry / "environ").read_bytes().split(b"\0"):
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
