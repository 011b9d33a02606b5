"""The sandbox: what a run reaches, what it may use, and what it leaves behind."""

import os
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from grading import sandbox
from instruments.release import ROOT

TRIED = "def tried(act, *to):\n try: act(*to)\n except OSError: return False\n return True\n"
isolated = pytest.mark.skipif(not sandbox.at_least("network"), reason="no bubblewrap here")
linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")


def finished(code, seconds=30):
    """How a run of this Python code ended; its folder is removed."""
    with sandbox.workplace("test-") as folder:
        end = sandbox.run([sys.executable, "-I", "-S", "-c", code], folder, seconds)
    assert not folder.exists()
    return end


def alive(word):
    """The processes whose command line holds a word, once those that are ending have ended."""
    for _attempt in range(20):
        processes = [
            p for p in psutil.process_iter(["cmdline"]) if any(word in part for part in p.info["cmdline"] or ())
        ]
        if not processes:
            break
        time.sleep(0.1)
    return processes


@pytest.fixture(params=sandbox.LEVELS[1:])
def each_level(request, monkeypatch):
    """Both with isolation and without, where the host has it."""
    if not sandbox.at_least(request.param):
        pytest.skip("no bubblewrap here")
    monkeypatch.setattr(sandbox, "level", lambda: request.param)


def test_without_bubblewrap_limits_remain(monkeypatch):
    monkeypatch.setattr(sandbox, "_bubblewrap", lambda *_: ["/nowhere/bwrap"])
    assert sandbox.level.__wrapped__() in ("limits", "process")


def test_status_and_the_end_of_the_output_come_back():
    end = finished("print('x' * 9000, 'hello'); raise SystemExit(7)")
    assert (end.code, end.why, len(end.output)) == (7, "", 4000) and end.output.endswith("hello\n")


def test_the_environment_is_short_and_its_home_is_the_runs(monkeypatch):
    monkeypatch.setenv("A_SECRET", "x")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), "/opt/packages"]))
    end = finished("import os; print('A_SECRET' in os.environ, os.environ['PYTHONPATH'], os.path.expanduser('~'))")
    assert end.output.startswith("False /opt/packages ") and end.output.endswith("/home\n")


def test_at_the_deadline_nothing_lives_on(each_level):
    code = "import os, time\nos.fork() or os.setsid()\nwhile True: time.sleep(7101)"
    begin = time.monotonic()
    end = finished(code, seconds=1)
    assert time.monotonic() - begin < 20
    assert end.code is None and "time" in end.why and not alive("sleep(7101)")


@pytest.mark.parametrize("session", [False, True])
def test_what_a_run_leaves_alive_is_ended(each_level, session):
    code = (
        "import subprocess, sys\nsubprocess.Popen([sys.executable, '-I', '-S', '-c', 'import time; time.sleep(7102)'], "
        f"start_new_session={session})"
    )
    assert finished(code).code == 0 and not alive("sleep(7102)")


@isolated
def test_only_the_runs_own_files_are_in_sight(tmp_path):
    (tmp_path / "secret").write_text("x")
    hidden = [str(tmp_path / "secret"), str(ROOT / "grading" / "judge.py"), "/root", "/home", "/run", "/var", "/sys"]
    hidden = [path for path in hidden if Path(path).exists() and not sys.base_prefix.startswith(f"{path}/")]
    code = f"import os\nprint([path for path in {hidden} if os.path.exists(path)], os.listdir('/dev/shm'))"
    assert finished(code).output == "[] []\n"


@isolated
def test_home_and_results_are_all_that_can_be_written():
    paths = ["new", "/new", "/usr/new", "/dev/new", "/proc/sys/kernel/core_pattern"]
    paths += ["/dev/null", "/dev/shm/new", "home/new", "results/new"]
    code = TRIED + f"print([tried(open, path, 'w') for path in {paths}])"
    assert finished(code).output == f"{[False] * 5 + [True] * 4}\n"
    remount = "mount -o remount,rw,bind /usr; mount -o remount,rw,bind .; touch /usr/local/new new"
    assert finished(f"import os; os.system({remount!r}); print('new:', os.path.exists('new'))").output.endswith(
        "False\n"
    )


@isolated
def test_no_other_process_is_in_sight_and_no_port_is_reached():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        code = (
            TRIED
            + f"""
import os, socket
pids = [int(pid) for pid in os.listdir('/proc') if pid.isdigit()]
print(len(pids), tried(os.kill, {os.getpid()}, 0), tried(socket.create_connection, ('127.0.0.1', {port}), 2))
print(open('/proc/self/status').read().partition('CapEff:')[2].split()[0].strip('0'), 'no capability')"""
        )
        assert finished(code).output == "2 False False\n no capability\n"


#: What a run does, which limit is set, and why it ends.
EATERS = (
    ("for _ in range(40):\n if not os.fork(): time.sleep(20)", "MAX_PROCESSES", 30, "more than 30 processes"),
    ("while True: n += 1; open(f'home/{n}', 'w').close()", "MAX_FILES", 1000, "more than 1,000 files"),
    ("os.chdir('home')\nwhile True: os.mkdir('a' * 99); os.chdir('a' * 99)", "MAX_FILES", 10**9, "files"),
    ("open('home/a', 'wb').write(bytes(9 << 20))", "MAX_FOLDER", 4 << 20, "wrote more than"),
    ("f = open('home/a', 'wb', 0); os.unlink('home/a'); f.write(bytes(9 << 20))", "MAX_FOLDER", 4 << 20, "wrote more"),
    ("f = os.memfd_create('a'); os.write(f, bytes(9 << 20))", "MAX_FOLDER", 4 << 20, "wrote more than"),
    ("while True: os.write(1, bytes(65536))", "MAX_OUTPUT", 4 << 20, "printed more than 4 MiB"),
)


@linux
@pytest.mark.parametrize("does, limit, value, why", EATERS)
def test_what_a_run_uses_has_an_end(monkeypatch, does, limit, value, why):
    monkeypatch.setattr(sandbox, limit, value)
    end = finished(f"import os, time\nn = 0\n{does}\ntime.sleep(20)", 25)
    assert end.code is None and why in end.why


@linux
def test_memory_has_an_end(monkeypatch):
    monkeypatch.setattr(psutil, "virtual_memory", lambda: type("Memory", (), {"total": 0}))
    monkeypatch.setattr(psutil.Process, "memory_info", lambda p: type("Info", (), {"rss": 5 << 30, "shared": 1 << 29}))
    end = finished("import time; time.sleep(20)", 15)
    assert end.code is None and end.why == "it used more than 4 GiB of memory"


@linux
def test_whatever_is_left_behind_is_removed(tmp_path):
    (tmp_path / "kept").write_text("x")
    with sandbox.workplace("left-") as folder:
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        (folder / "file").symlink_to(tmp_path / "kept")
        (folder / "folder").symlink_to(tmp_path)
        os.mkfifo(folder / "pipe")
        deep = "import os\nfor _ in range(1500): os.mkdir('d'), os.chdir('d')"
        subprocess.run([sys.executable, "-c", deep], cwd=folder, check=True)
        (folder / "a" / "b").mkdir(parents=True)
        for closed in ("a/b", "a", "."):
            os.chmod(folder / closed, 0)
    assert not folder.exists() and (tmp_path / "kept").read_text() == "x"
    assert stat.S_IMODE((tmp_path / "kept").stat().st_mode) & 0o600 == 0o600
