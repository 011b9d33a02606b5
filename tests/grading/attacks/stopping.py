"""Runs attacks through the whole of `grade`, and says which of them were stopped."""

import re
import socket
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

from attacks.corpus import ATTACKS, Attack
from grading_tools import answers, edited, handed_in, stub
from tqdm import tqdm

from grading import jail, submission
from grading.release import ROOT

CELL_SECONDS = 20
MARK = "was here"
SOLUTION = answers("05_rmsnorm")
OUTSIDE = (Path("/tmp/was-here"), Path.home() / "was-here")


@contextmanager
def listener():
    """A TCP and a UDP port of this machine: yields the number and a function that says what arrived."""
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
                except OSError:
                    pass
            return False

        yield tcp.getsockname()[1], arrived


def source_of(attack: Attack, canary: Path, port: int) -> str:
    """The answer cell of an attack, its placeholders filled in."""
    right = SOLUTION[attack.task]
    text = attack.source
    if "{WRONG}" in text:
        text = text.replace("{WRONG}", edited(right, ("(1 + weight)", "weight")))
    text = re.sub(r"\{EDIT:([\s\S]*?)\|([\s\S]*?)\}", lambda m: edited(right, (m[1], m[2])), text)
    for name, value in {
        "{SOLUTION}": right,
        "{CANARY}": repr(str(canary)),
        "{ROOT}": repr(str(ROOT)),
        "{PORT}": str(port),
    }.items():
        text = text.replace(name, value)
    return text


def stopped(attack: Attack) -> str:
    """Grade a submission that holds nothing but this attack: '' where it was stopped, else what it achieved."""
    with tempfile.TemporaryDirectory(prefix="attack-") as place, listener() as (port, arrived):
        canary = Path(place) / "canary"
        canary.write_text("alive")
        others = {task: stub(task) for task in SOLUTION}
        path = handed_in(
            "05_rmsnorm", {**others, attack.task: source_of(attack, canary, port)}, Path(place) / "a.ipynb"
        )
        begun = time.monotonic()
        record = submission.grade(path, CELL_SECONDS)
        task = next(t for t in record.tasks if t.id == attack.task)
        if time.monotonic() - begun > 180:
            return "it held up the grader"
        full = task.points + task.pending_points == task.max_points
        if task.points + task.pending_points and not attack.keeps:
            return f"it gained {task.points} points, and {task.pending_points} pending"
        if attack.keeps and not full and jail.at_least("network"):
            return f"the right answer beside it lost its points: {task.hint}"
        if any(t.points or t.pending_points or t.status == "ungraded" for t in record.tasks if t.id != attack.task):
            return "it touched another task"
        if task.status == "ungraded":
            return f"it left the task ungraded: {task.hint}"
        if jail.at_least("files") and (canary.read_text() != "alive" or len(list(Path(place).iterdir())) != 2):
            return "it wrote outside its folder"
        if jail.at_least("files") and any(p.exists() for p in OUTSIDE):
            return "it wrote outside its folder"
        if jail.at_least("network") and arrived():
            return "it reached the network"
        if "7777" in attack.source and _alive(b"7777"):
            return "a process of it lives on"
    return ""


def _alive(word: bytes) -> bool:
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and b"sleep(" + word in (entry / "cmdline").read_bytes():
                return True
        except OSError:
            continue
    return False


def run(attacks=ATTACKS, workers: int = 2, said=print) -> list:
    """[(attack, what it achieved)] of those that were not stopped."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(workers) as pool:
        results = zip(attacks, tqdm(pool.map(stopped, attacks), "attacks", len(attacks), leave=False))
        missed = []
        for attack, why in results:
            if why:
                said(f"  not stopped: {attack.name}: {why}")
                missed.append((attack, why))
    return missed
