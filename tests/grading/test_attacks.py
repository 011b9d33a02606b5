"""Attacks on the grader, each through all of `grade`.

answers/attacks/NAME.py is an answer whose first line is `# attack on TASK: what it tries`. It gains no point; one whose
first line ends with `# keeps` is a right answer that tries to leave the sandbox beside it, and keeps its points.
{SOLUTION} in it stands for the right answer, {CANARY} for a file outside the run, {ROOT} for the course, {PORT} for a
port that listens on this machine.
"""

import re
import socket
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from grading_tools import answers, full_marks, handed_in, stub

from grading import sandbox, submission
from instruments.release import ROOT

HERE = Path(__file__).parent / "answers" / "attacks"
FIRST_LINE = re.compile(r"# attack on (05\.\d): [^#]+?(  # keeps)?")
BESIDE = {"05.1", "05.6"}  # right answers to these are handed in with the attack, where it is not on them
SOLUTION = answers("05_rmsnorm")
CELL_SECONDS = 30


@dataclass(frozen=True)
class Attack:
    """An attack in a file. keeps: it is a right answer too."""

    path: Path
    task: str
    keeps: bool

    def source(self, canary: Path, port: int) -> str:
        text = self.path.read_text(encoding="utf-8")
        values = {
            "SOLUTION": SOLUTION[self.task],
            "CANARY": repr(str(canary)),
            "ROOT": repr(str(ROOT)),
            "PORT": str(port),
        }
        for name, value in values.items():
            text = text.replace(f"{{{name}}}", value)
        return text


def read(path: Path) -> Attack:
    """The attack in a file; ValueError where its first line is another."""
    first = path.read_text(encoding="utf-8").partition("\n")[0]
    match = FIRST_LINE.fullmatch(first)
    if not match:
        raise ValueError(f"{path}: its first line is {first!r}")
    return Attack(path, match[1], bool(match[2]))


ATTACKS = [read(path) for path in sorted(HERE.glob("*.py"))]


@contextmanager
def listener():
    """A TCP and a UDP port of this machine: yields its number and a function that says whether anything arrived."""
    with socket.socket() as tcp, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        tcp.bind(("127.0.0.1", 0))
        udp.bind(tcp.getsockname())
        tcp.listen()
        tcp.setblocking(False)
        udp.setblocking(False)

        def arrived() -> bool:
            for take in (tcp.accept, lambda: udp.recv(10)):
                try:
                    take()
                    return True
                except BlockingIOError:
                    pass
            return False

        yield tcp.getsockname()[1], arrived


@pytest.fixture
def low_limits(monkeypatch):
    """Limits that are reached soon."""
    monkeypatch.setattr(sandbox, "MAX_FOLDER", 256 << 20)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: type("Memory", (), {"total": 0}))  # 4 GiB


@pytest.mark.skipif(not sandbox.at_least("network"), reason="no bubblewrap here")
@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.path.stem)
def test_attack(attack, tmp_path, low_limits):
    canary = tmp_path / "canary"
    canary.write_text("alive")
    outside = {path: path.stat().st_mode for path in tmp_path.iterdir()}
    before = set(psutil.pids())
    with listener() as (port, arrived):
        cells = {task: SOLUTION[task] if task in BESIDE else stub(task) for task in SOLUTION}
        cells[attack.task] = attack.source(canary, port)
        path = handed_in("05_rmsnorm", cells, tmp_path / "a.ipynb")
        record = submission.grade(path, submission.Limits(CELL_SECONDS, seed=7))
        assert not arrived()
    for verdict in record.tasks:
        if verdict.id == attack.task and not attack.keeps:
            assert (verdict.status, verdict.points, verdict.pending_points) == ("failed", 0, 0), str(verdict)
        elif verdict.id in BESIDE or verdict.id == attack.task:
            assert full_marks(verdict), str(verdict)
        else:
            assert verdict.status == "not_attempted", str(verdict)
    path.unlink()
    assert canary.read_text() == "alive" and {p: p.stat().st_mode for p in tmp_path.iterdir()} == outside
    assert not any("7777" in word for p in psutil.process_iter(["cmdline"]) for word in p.info["cmdline"] or ())
    assert not [p for p in psutil.Process().children(recursive=True) if p.pid not in before]
