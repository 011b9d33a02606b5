"""Runs what was written apart through the grader, and says what did not come out as it has to: '' where it did."""

import hashlib
import json
import os
import re
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from grading_tools import answers, handed_in, stub, verdict_of

from apart.attacks import ATTACKS
from apart.files import EXPECT, build
from grading import jail, submission
from grading.release import ROOT
from grading.tasks import exercise_with, tasks_of

CELL_SECONDS = 60
# `grade` with lower limits than the jail's own, in its workers too, so that an answer need not fill the machine.
LOWER = "from grading import jail; jail.MAX_FOLDER = {files}; jail._most_memory = lambda: {memory}; "
LIMITED = (
    "import sys; from grading import batch; from grading.cli import main; "
    "batch.START = batch.START.replace('from grading.cli', {lower!r} + 'from grading.cli'); sys.exit(main())"
)


def right(task: str, source: str, seed: int) -> str:
    """A right answer gets full marks."""
    found = verdict_of(task, source, seed)
    good = found.status in ("passed", "pending") and found.points + found.pending_points == found.max_points
    return "" if good else f"{found.kind}: {found}"


def wrong(task: str, source: str, words: tuple, seed: int) -> str:
    """A wrong answer gets nothing, and a hint that holds one of the patterns."""
    found = verdict_of(task, source, seed)
    if (found.status, found.points, found.pending_points) != ("failed", 0, 0):
        return f"it has {found}"
    return "" if not words or any(re.search(word, found.hint) for word in words) else f"its hint says {found.hint}"


def attack(name: str) -> str:
    """An attack gains no point and leaves no blank, in its task and in any other; what was right beside it stays
    right."""
    _, task, source = ATTACKS[name]
    exercise = exercise_with(task)
    published = answers(exercise)
    beside = next(t.id for t in tasks_of(exercise) if t.id != task and (t.kernel or t.id > task))
    given = {**{t.id: stub(t.id) for t in tasks_of(exercise)}, beside: published[beside]}
    given[task] = source.replace("{SOLUTION}", published[task])
    with tempfile.TemporaryDirectory(prefix="attack-") as place:
        record = submission.grade(handed_in(exercise, given, Path(place) / "a.ipynb"), CELL_SECONDS)
    by_id = {verdict.id: verdict for verdict in record.tasks}
    if record.status == "ungraded" or any(v.status == "ungraded" for v in record.tasks):
        return "it left a blank: " + "; ".join(f"{v.id} {v.hint}" for v in record.tasks if v.status == "ungraded")[:300]
    full = {v.id: v.points + v.pending_points == v.max_points for v in record.tasks}
    if by_id[task].points + by_id[task].pending_points and "of a right answer" not in name:
        return f"it gained {by_id[task].points} points"
    if not full[beside]:
        return f"{beside} beside it lost its points: {by_id[beside].hint}"
    others = [v.id for v in record.tasks if v.id not in (task, beside) and v.points]
    return f"it gained points in {others}" if others else ""


# ---------------------------------------------------------------- whole notebooks, names and folders


def _canary(place: Path) -> dict:
    """What lies in a folder: content, mode, times, extended attributes."""
    found = {}
    for path in sorted(place.rglob("*")):
        status = path.lstat()
        content = path.read_bytes() if stat.S_ISREG(status.st_mode) else b""
        found[str(path)] = (
            hashlib.sha1(content).hexdigest(),
            status.st_mode,
            status.st_uid,
            status.st_mtime_ns,
            tuple(os.listxattr(path)),
        )
    return found


def file(name: str) -> str:
    """What `grade` does with an odd file or folder."""
    wanted = EXPECT[name]
    if "isolation" in wanted and not jail.at_least(wanted["isolation"]):
        return ""
    with jail.workplace("odd-") as place:
        given, report, canary, temporary = place / "class", place / "report", place / "canary", place / "tmp"
        for folder in (canary, temporary):
            folder.mkdir()
        for kind in ("one", "two"):
            (canary / kind).write_text("alive")
        build(name, given, ROOT / "exercises", canary)
        before, begun = _canary(canary), time.monotonic()
        start = [sys.executable, "-m", "grading.cli"]
        if "limits" in wanted:
            limits = {"files": jail.MAX_FOLDER, "memory": jail._most_memory(), **wanted["limits"]}
            start = [sys.executable, "-c", LIMITED.format(lower=LOWER.format(**limits))]
        done = subprocess.run(
            [*start, str(given / wanted.get("single", ".")), "--report", str(report), "--timeout", "60"],
            cwd=ROOT,
            capture_output=True,
            env={**os.environ, "TMPDIR": str(temporary)},
            timeout=900,
        )
        said = (done.stdout + done.stderr).decode("utf-8", "replace")
        faults = []
        if time.monotonic() - begun > wanted.get("max_seconds", 600):
            faults.append(f"it took {time.monotonic() - begun:.0f} s")
        if done.returncode not in wanted.get("exit", (0, 1)):
            faults.append(f"exit status {done.returncode}: {said[-300:]}")
        if wanted.get("report") and not all(
            (report / n).exists() for n in ("index.html", "results.json", "grades.csv")
        ):
            faults.append(f"no report: {said[-300:]}")
        if wanted.get("no_traceback") and "Traceback" in said:
            faults.append("a traceback: " + said[-300:])
        if wanted.get("clean_output") and re.search(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]", said):
            faults.append("control characters reached the terminal")
        if wanted.get("canary") and _canary(canary) != before:
            faults.append("files outside were changed")
        if wanted.get("no_trash") and any(temporary.iterdir()):
            faults.append(f"left in {temporary}: {[p.name for p in temporary.iterdir()]}")
        size = sum(p.stat().st_size for p in report.rglob("*") if p.is_file())
        if size > wanted.get("max_report", 1 << 40):
            faults.append(f"a report of {size:,} bytes")
        records = (
            json.loads((report / "results.json").read_text())["submissions"]
            if (report / "results.json").exists()
            else []
        )
        return "; ".join([*faults, *_learners(wanted, records)])


def _learners(wanted: dict, records: list):
    """What is wrong with the records of an odd class."""
    learners = {**wanted.get("learners", {})}
    if wanted.get("one_name") and len({r["learner"] for r in records}) == 1:
        learners = {records[0]["learner"]: next(iter(learners.values()))}
    if wanted.get("others_unharmed"):
        learners["well"] = {"full": True}
    for learner, must in learners.items():
        theirs = [r for r in records if r["learner"] == learner]
        if not theirs:
            yield f"no submission of {learner!r}, only of {sorted({r['learner'] for r in records})}"
            continue
        tasks = {t["id"]: t for r in theirs for t in r["tasks"]}
        notes = " ".join(note for r in theirs for note in r["notes"])
        got = {name: t["points"] + t["pending_points"] for name, t in tasks.items()}
        if must.get("full") and any(got[name] != t["max_points"] for name, t in tasks.items()):
            yield f"{learner} lost points: {[t['hint'] for t in tasks.values() if t['hint']]}"
        for name, points in must.get("points", {}).items():
            if got.get(name, 0) != points:  # what cannot be read has no tasks, and no points
                yield f"{learner}: {got.get(name)} points for {name}, not {points}: {tasks.get(name, {}).get('hint')}"
        for name, points in must.get("points_or_note", {}).items():
            if got.get(name) != points and not notes:
                yield f"{learner}: {got.get(name)} points for {name}, and no note"
        for name, states in must.get("status", {}).items():
            if tasks.get(name, {}).get("status") not in states:
                yield f"{learner}: {name} is {tasks.get(name, {}).get('status')}: {tasks.get(name, {}).get('hint')}"
        if "notes" in must and not re.search(must["notes"], notes, re.IGNORECASE):
            yield f"{learner}: notes are {notes!r}"
        if "submission" in must and theirs[0]["status"] not in must["submission"]:
            yield f"{learner}: the submission is {theirs[0]['status']}"
