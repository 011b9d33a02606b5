"""The jail's two rings, and the replay's view of what a kernel may be."""

import os
import sys

import pytest

from grading import jail
from grading.again import confirmed
from grading.judge import inside
from grading.release import ROOT
from grading.replay import NotPlain, kernels_of, plain


def held(tmp_path, code, seconds=30):
    jail.environment(tmp_path, ROOT)
    return jail.run([*jail.inner(tmp_path, ROOT, seconds), sys.executable, "-I", "-S", "-c", code], tmp_path, ROOT, seconds)


needs_files = pytest.mark.skipif(not jail.at_least("files"), reason="no Landlock here")


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
    finished = held(tmp_path, "import os, time\nfor _ in range(200):\n if os.fork() == 0: time.sleep(30)\ntime.sleep(30)", 25)
    assert finished.code is None and "processes" in finished.why


@needs_files
def test_only_its_own_folders_are_open(tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("x")
    code = ("def barred(path, mode):\n try: open(path, mode)\n except PermissionError: return True\n"
            f"print([barred(*a) for a in (({str(secret)!r}, 'r'), ({str(ROOT / 'grading' / 'judge.py')!r}, 'r'), "
            "('new', 'w'), ('home/new', 'w'), ('results/new', 'w'))])")
    assert "[True, True, True, None, None]" in held(tmp_path, code).said


@needs_files
def test_no_signal_and_no_look_reaches_another_process(tmp_path):
    code = f"import os\nfor f in (lambda: os.kill({os.getpid()}, 0), lambda: open('/proc/{os.getpid()}/environ').read(1)):\n" \
           " try: f(); print('reached')\n except OSError: print('barred')"
    assert "reached" not in held(tmp_path, code).said


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


def test_a_task_without_points_is_not_run_again(tmp_path):
    assert confirmed([], {}, 1, tmp_path, [], ROOT) == {}


def test_of_the_cells_only_kernels_and_constants_are_taken():
    source = kernels_of(["import os\nTILE = 64\nHIDDEN = os.getpid()\ndef host(): pass\n"
                         "@triton.jit\ndef k(x, BLOCK: tl.constexpr):\n    tl.store(x, BLOCK)\n", "%time\nbroken(", "f = triton.jit(g)\n"
                         "def g(x):\n    tl.store(x, 1)\n"])
    assert "TILE = 64" in source and "def k" in source and "def g" in source
    assert "os" not in source.replace("constexpr", "") and "host" not in source


@pytest.mark.parametrize("line", ["import os", "eval('1')", "tl.core.warnings.sys", "x.handle", "x.__class__", "open('a')",
                                  "(lambda: 1)()", "triton.runtime.driver", "lang.core.warnings", "m = tl", "tl.math.core", "getattr(tl, 'core')"])
def test_kernels_that_are_not_plain_triton_are_refused(line):
    with pytest.raises(NotPlain):
        plain(kernels_of([f"import triton.language as lang\n@triton.jit\ndef k(x):\n    {line}\n"]))


def test_plain_kernels_pass():
    plain(kernels_of(["import triton.language as lang\n@triton.jit\ndef k(x_ptr, n, BLOCK: lang.constexpr):\n"
                      "    for start in range(0, n, BLOCK):\n        c = start + tl.arange(0, BLOCK)\n"
                      "        x = tl.load(x_ptr + c, mask=c < n, other=float('-inf')).to(lang.float32)\n"
                      "        tl.store(x_ptr + c, tl.math.exp(x), mask=c < n)\n"]))
