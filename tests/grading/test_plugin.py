"""What plugin.py logs of the cells of a notebook."""

import json
import shutil
import sys

import nbformat
import pytest

from grading import sandbox
from instruments.release import ROOT

FOREVER = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass"


def log_of(*sources, cell_seconds=20):
    """[(status, text, line)] of answer cells with these sources, and how the run ended."""
    cells = [
        nbformat.v4.new_code_cell(source, metadata={"bytes_first": {"role": "answer", "task": str(number)}})
        for number, source in enumerate(sources)
    ]
    with sandbox.workplace("plugin-") as folder:
        nbformat.write(nbformat.v4.new_notebook(cells=cells), folder / "submission.ipynb")
        shutil.copy(ROOT / "grading" / "plugin.py", folder)
        words = [sys.executable, "-P", "plugin.py", "submission.ipynb", "results/log.jsonl"]
        finished = sandbox.run([*words, "--cell-seconds", str(cell_seconds)], folder, 90)
        records = [json.loads(line) for line in (folder / "results" / "log.jsonl").read_text().splitlines()]
    starts = [(r["role"], r["task"]) for r in records if r["event"] == "start"]
    ends = [r for r in records if r["event"] == "end"]
    assert starts == [("answer", r["task"]) for r in ends] and finished.code is not None, finished
    return [(r["status"], r["text"], r["line"]) for r in ends]


def test_errors_fail_their_cells_also_those_that_print_nothing():
    ok, error, usage, syntax, later = log_of("a = 1", "a\nraise ValueError('no')", "%nonsense", "a +", "assert a == 1")
    assert ok == later == ("ok", "", "0")
    assert error == ("error", "ValueError: no", "2")
    assert usage[0] == "error" and "nonsense" in usage[1]
    assert syntax == ("error", "SyntaxError: invalid syntax", "1")


def test_markers_have_no_say():
    skipped, expected = log_of("# NBVAL_SKIP\n1 / 0", "# NBVAL_RAISES_EXCEPTION\n1 / 0")
    assert skipped[:2] == expected[:2] == ("error", "ZeroDivisionError: division by zero")


def test_long_texts_are_cut():
    ((status, text, _),) = log_of("raise ValueError('x' * 500_000)")
    assert status == "error" and len(text) == 2000


def test_a_cell_that_runs_out_of_time_is_interrupted_and_the_next_ones_run():
    log = log_of("import time\ntime.sleep(60)", "1 / 0", "1", cell_seconds=3)
    assert [status for status, *_ in log] == ["timeout", "error", "ok"]


@pytest.mark.parametrize("source, status", [("import os\nos._exit(0)", "died"), (FOREVER, "timeout")])
def test_a_cell_that_ends_the_process_is_the_one_to_blame(source, status):
    log = log_of("1", source, "1", "1", cell_seconds=3)
    assert [status for status, *_ in log] == ["ok", status, "not_run", "not_run"]


def test_lines_for_the_shell_run():
    log = log_of("x = !echo hello\nassert x == ['hello'], x", "!exit 3\nassert _exit_code == 3")
    assert [status for status, *_ in log] == ["ok", "ok"], log
