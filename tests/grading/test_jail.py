"""The jail's two rings, and what they leave behind."""

import json
import os
import shutil
import stat
import sys

import nbformat
import pytest

from grading import jail
from grading.record import inside
from grading.release import ROOT


def held(tmp_path, code, seconds=30):
    jail.environment(tmp_path, ROOT)
    words = [*jail.inner(tmp_path, ROOT, seconds), sys.executable, "-I", "-S", "-c", code]
    return jail.run(words, tmp_path, ROOT, seconds)


needs_files = pytest.mark.skipif(not jail.at_least("files"), reason="no Landlock here")
needs_network = pytest.mark.skipif(not jail.at_least("network"), reason="no namespaces here")
on_linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")
TRIED = "def tried(act, *to):\n try: act(*to)\n except OSError: return False\n return True\n"


def in_cells(folder, *sources, cell_seconds=20):
    """What the plugin logs of answer cells with these sources: (status, text, line) of each."""
    about = {"bytes_first": {"role": "answer", "task": "1"}}
    cells = [nbformat.v4.new_code_cell(source, metadata=about) for source in sources]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), folder / "submission.ipynb")
    words = [sys.executable, "-P", ROOT / "grading" / "plugin.py", folder / "submission.ipynb", folder / "log.jsonl"]
    options = ["--cell-seconds", str(cell_seconds), "--enter", json.dumps(jail.inner(folder, ROOT, 90))]
    jail.run([*map(str, words), *options], folder, ROOT, 90)
    log = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    return [(r["status"], r["text"], r.get("line")) for r in log if r["event"] == "end"]


def test_the_level_is_one_of_the_list():
    assert jail.level() in jail.LEVELS and jail.at_least("process")
    with pytest.raises(ValueError, match="level: got 'fort'"):
        jail.at_least("fort")


def test_status_and_words_come_back(tmp_path):
    finished = held(tmp_path, "print('hello'); raise SystemExit(7)")
    assert (finished.code, finished.why) == (7, "") and "hello" in finished.said


def test_the_deadline_ends_a_run(tmp_path):
    finished = held(tmp_path, "while True: pass", seconds=1.5)
    assert finished.code is None and "time" in finished.why and finished.seconds < 10


def test_a_flood_of_processes_ends_a_run(tmp_path):
    code = "import os, time\nfor _ in range(200):\n if os.fork() == 0: time.sleep(30)\ntime.sleep(30)"
    finished = held(tmp_path, code, 25)
    assert finished.code is None and "processes" in finished.why


@needs_files
def test_only_its_own_folders_are_open(tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("x")
    closed = [
        (str(secret), "r"),
        (str(ROOT / "grading" / "judge.py"), "r"),
        ("new", "w"),
        ("/dev/shm/new", "w"),
        ("/dev/ptmx", "r"),
    ]
    code = TRIED + f"print([tried(open, *to) for to in {[*closed, ('home/new', 'w'), ('results/new', 'w')]}])"
    assert f"{[False] * len(closed) + [True] * 2}" in held(tmp_path, code).said


@needs_files
def test_no_signal_and_no_look_reaches_another_process(tmp_path):
    pid = os.getpid()
    code = TRIED + f"import os\nprint(tried(os.kill, {pid}, 0), tried(lambda: open('/proc/{pid}/environ').read(1)))"
    assert "False False" in held(tmp_path, code).said


@needs_network
def test_nothing_about_a_file_outside_can_be_changed(tmp_path):
    log = tmp_path / "log.jsonl"
    log.write_text("x")
    before = log.stat()
    code = (
        TRIED
        + f"""
import os, stat
log, own = {str(log)!r}, 'home/own'
open(own, 'w').close()
through = [f'/proc/{{pid}}/cwd/log.jsonl' for pid in os.listdir('/proc') if pid.isdigit()]
same = lambda of: stat.S_IMODE(os.stat(of).st_mode)  # harmless, should it be possible
acts = [(os.chmod, place, same('home')) for place in through]
acts += [(os.chmod, place, same(place)) for place in (log, '.', '/dev/null', '/proc/version')]
acts += [(os.utime, log), (os.chown, log, os.getuid(), os.getgid()), (os.setxattr, log, 'user.x', b'x')]
acts += [(os.link, log, 'home/l'), (os.rename, 'results', 'home/r'), (os.rename, 'home', 'h'), (os.rmdir, 'results')]
acts += [(os.fchmod, fd, same(fd)) for fd in range(3) if not stat.S_ISFIFO(os.fstat(fd).st_mode)]
print('done:', [(act.__name__, *to) for act, *to in acts if tried(act, *to)], tried(os.chmod, own, 0o755))"""
    )
    assert "done: [] True" in held(tmp_path, code).said
    assert log.stat() == before


@needs_network
def test_the_walls_and_what_lies_behind_them_are_out_of_reach(tmp_path):
    code = """
import ctypes, os
libc = ctypes.CDLL(None)
print(os.getppid(), [libc.unshare(flag) for flag in (0x10000000, 0x20000)], libc.mount(None, b"/", None, 0x1020, None),
      libc.umount2(os.path.realpath("home").encode(), 2), libc.shmget(0, 4096, 0o1600), libc.msgget(0, 0o1600))"""
    assert "0 [-1, -1] -1 -1 -1 -1" in held(tmp_path, code).said


#: what learner code does, which limit it is set, and what is said
EATERS = (
    ("os.chdir('home')\nwhile True: os.mkdir('a'); os.chdir('a')", "MAX_DEPTH", 32, "folders in each other"),
    ("while True: n += 1; open(f'home/{n}', 'w').close()", "MAX_NAMES", 1000, "files and folders"),
    ("f = open('home/a', 'wb', 0); os.unlink('home/a'); f.write(bytes(9 << 20))", "MAX_FOLDER", 4 << 20, "of files"),
    ("f = os.memfd_create('a'); os.write(f, bytes(9 << 20))", "MAX_FOLDER", 4 << 20, "of files"),
    ("fs = [os.memfd_create('a') for _ in range(900)]", "MAX_HELD", 800, "it held more than 800 files"),
    ("while True: os.write(1, bytes(65536))", "MAX_SAID", 4 << 20, "it printed more than 4 MiB"),
)


@on_linux
@pytest.mark.parametrize("does, limit, value, why", EATERS)
def test_what_learner_code_takes_has_an_end(monkeypatch, does, limit, value, why):
    monkeypatch.setattr(jail, limit, value)
    with jail.workplace("eater-") as folder:  # pytest cannot remove what some of them leave
        finished = held(folder, f"import os, time\nn = 0\n{does}\ntime.sleep(20)", 15)
    assert finished.code is None and why in finished.why and not folder.exists()


def test_whatever_is_left_behind_is_removed(tmp_path):
    (tmp_path / "kept").write_text("x")
    with jail.workplace("left-") as folder:
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        for links in ("home", "results"):
            (folder / links).mkdir()
            (folder / links / "file").symlink_to(tmp_path / "kept")
            (folder / links / "folder").symlink_to(tmp_path)
        deep = os.open(folder / "home", os.O_RDONLY)
        for _ in range(3000):
            os.mkdir("a" * 30, dir_fd=deep)
            below = os.open("a" * 30, os.O_RDONLY, dir_fd=deep)
            os.close(deep)
            deep = below
        os.close(deep)
        for closed in ("results/a/b/c", "results/a/b", "results/a", "results"):
            (folder / closed).mkdir(parents=True, exist_ok=True)
            os.chmod(folder / closed, 0)
    assert not folder.exists() and (tmp_path / "kept").read_text() == "x"
    jail.remove(folder)  # no error where there is nothing
    (tmp_path / "link").symlink_to(tmp_path / "kept")
    jail.remove(tmp_path / "link")
    assert [p.name for p in tmp_path.iterdir()] == ["kept"]


@needs_files
def test_a_child_that_is_narrowed_writes_to_its_own_folder_alone(tmp_path):
    (tmp_path / "grading").mkdir()
    shutil.copy(jail.ENTER, tmp_path / "grading" / "enter.py")  # all that a process in the jail has of it
    code = (
        TRIED
        + """
import os, sys
sys.path.insert(0, "grading")
import enter
for name in ("mine", "yours"): os.mkdir(f"results/{name}")
if not os.fork():
    enter.narrow("results/mine")
    places = ("results/mine/a", "/dev/null", "results/yours/a", "results/a", "home/a")
    print([tried(open, place, "w") for place in places], tried(os.rename, "results/yours", "results/gone"),
          tried(os.replace, "results/mine/a", "results/mine/b"))
else:
    os.wait()
    print("parent", tried(open, "results/yours/a", "w"))"""
    )
    said = held(tmp_path, code).said
    assert "[True, True, False, False, False] False True" in said and "parent True" in said


@pytest.mark.parametrize("walls", [(jail._walls() or ()), ()][: 1 + jail.at_least("network")])
def test_lines_for_the_shell_run_at_every_level(tmp_path, monkeypatch, walls):
    monkeypatch.setattr(jail, "_walls", lambda: walls)
    log = in_cells(
        tmp_path, "!echo hello > results/a", "x = !echo hello\nassert x == ['hello']", "!exit 3\nassert _exit_code == 3"
    )
    assert [status for status, *_ in log] == ["ok"] * 3, log
    assert (tmp_path / "results" / "a").read_text() == "hello\n"


def test_what_a_kernel_sends_is_cut_and_has_an_end(tmp_path):
    forever = (
        "import time\nwhile True:\n try:\n  while True: print('x', flush=True); time.sleep(0.3)\n"
        " except BaseException: pass"
    )
    (_, long, line), *log = in_cells(
        tmp_path, "a = 1\nraise ValueError('x' * 500_000)", "print('a\\rb\\r' * 250_000)", forever, cell_seconds=4
    )
    assert long.startswith("ValueError: xxx") and len(long) == 2000 and line == 2
    assert [status for status, *_ in log] == ["ok", "timeout"]
    place = tmp_path / "flood"
    place.mkdir()
    assert [status for status, *_ in in_cells(place, "raise ValueError('x' * 30_000_000)", "1")] == ["flood", "not_run"]


def test_links_and_pipes_are_not_read(tmp_path):
    (tmp_path / "results").mkdir()
    (tmp_path / "a").write_text("secret")
    for make in (lambda p: os.symlink(tmp_path / "a", p), os.mkfifo):
        path = tmp_path / "results" / make.__name__.strip("<>")
        make(path)
        with pytest.raises((OSError, ValueError)):
            inside(tmp_path, path, 100)
    with pytest.raises(ValueError, match="at most 3 bytes"):
        inside(tmp_path, tmp_path / "a", 3)
