"""The process that runs learner code: a session of its own, its own folder, a clean environment, limits, and an end.

Level reached so far: `process`. It stops accidents (hangs, forks, floods, dead kernels, stray files of the working
directory), not malice: network, other files and the rest of the machine are within reach. A stronger level replaces
`command` by one that enters namespaces first; nothing else has to change.
"""

import os
import secrets
import signal
import site
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

LEVEL = "process"
MAX_FILE = 1 << 30  # bytes of one file that learner code may write
TOKEN = "BYTES_FIRST_RUN"  # environment variable by which every process of a run is known
KEPT = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_VISIBLE_DEVICES",
        "NVIDIA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "CC", "VIRTUAL_ENV")


@dataclass(frozen=True)
class Finished:
    """How a run ended. code: exit status, None where it was killed at the deadline. said: the end of its output."""

    code: int | None
    said: str
    seconds: float


def environment(folder: Path, root: Path) -> dict:
    """What a run inherits: a short list of variables, and every place to write inside its folder."""
    kept = {name: os.environ[name] for name in KEPT if name in os.environ}
    paths = [p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep)
             if p and not Path(p).resolve().is_relative_to(root)]
    if paths:
        kept["PYTHONPATH"] = os.pathsep.join(paths)
    home = folder / "home"
    home.mkdir(exist_ok=True)
    places = ("HOME", "TMPDIR", "IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR",
              "TRITON_CACHE_DIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "MPLCONFIGDIR")
    kept["PYTHONUSERBASE"] = os.environ.get("PYTHONUSERBASE") or site.getuserbase()  # packages installed for the user
    return {**kept, **{place: str(home) for place in places}, "PYTHONDONTWRITEBYTECODE": "1", "MPLBACKEND": "Agg",
            "PYTHONUNBUFFERED": "1", "JUPYTER_PLATFORM_DIRS": "1"}


def run(command: list, folder: Path, root: Path, seconds: float) -> Finished:
    """Run `command` in `folder`; at the deadline, and at the end, nothing that it started lives on."""
    token = secrets.token_hex(8)
    begun = time.monotonic()
    said = folder / "output.txt"
    with open(said, "wb") as output:
        process = subprocess.Popen(command, cwd=folder, env={**environment(folder, root), TOKEN: token},
                                   stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                                   start_new_session=True, preexec_fn=_limits if os.name == "posix" else None)
        try:
            code = process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            _end(process, token)
    return Finished(code, said.read_bytes()[-4000:].decode("utf-8", "replace"), time.monotonic() - begun)


def _limits():
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (MAX_FILE, MAX_FILE))


def _end(process: subprocess.Popen, token: str) -> None:
    """End the process, its group, and whatever else carries the run's token, in whatever session."""
    for _ in range(3):
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
    """Processes whose environment holds the token (Linux; elsewhere the process group has to do)."""
    if not sys.platform.startswith("linux"):
        return []
    mark, found = f"{TOKEN}={token}".encode(), []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if mark in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
            except OSError:
                continue
    return found
