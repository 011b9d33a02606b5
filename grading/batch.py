"""A class at once: a map over submissions, on this machine or on the workers of a Dask scheduler.

A record is one file in `records/` of the report's folder, named by a hash of what the grade depends on. A run that was
ended and is started again grades only what has no record.
"""

import hashlib
import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from dataclasses import astuple
from functools import cache
from pathlib import Path

import msgspec
from tqdm import tqdm

from grading import intake, sandbox
from grading.record import Submission, stored
from grading.submission import Limits, graded, has_gpu, ungraded
from grading.tasks import modules_of
from grading.wording import clean
from instruments.files import write_whole
from instruments.start import ROOT, notebook_of

MARGIN = 180  # seconds over a submission's own limit after which its process is killed
WORKER = [sys.executable, "-m", "grading.batch"]
REPORTING = "adapters batch cli pages report tables wording".split()  # they decide about no grade
running = set()  # processes of this one


def machine() -> list:
    """[GPU name, isolation level] of the machine that grades."""
    command, name = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"], "unknown"
    with suppress(OSError):
        name = subprocess.run(command, capture_output=True, text=True).stdout.strip()
    return [name if has_gpu() else "", sandbox.level()]


@cache
def version(exercise: str) -> str:
    """A hash of the code that grades an exercise, and of its notebook."""
    files = [path for name in ("grading", "instruments", "kernels") for path in (ROOT / name).rglob("*.py")]
    files = {path for path in files if not path.name.startswith("lesson_")} | modules_of(exercise)
    files |= {ROOT / notebook_of(exercise, folder) for folder in ("exercises", "solutions")}
    files.add(ROOT / "grading" / "meanings.toml")
    content = [path.read_bytes() for path in sorted(files) if path.stem not in REPORTING and path.exists()]
    return hashlib.sha256(b"".join(content)).hexdigest()


def end_on_signal() -> None:
    """Let SIGTERM end this process as an interrupt does, so that what it runs is ended too."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)


@contextmanager
def pool_of(jobs: int, scheduler: str | None):
    """An executor: threads that wait for a process each, or a Dask cluster's, whose workers need the same files."""
    if scheduler:
        from distributed import Client

        with Client(scheduler) as client:  # its end cancels what an interrupted run still waits for
            client.wait_for_workers(1, timeout=60)
            yield client.get_executor(pure=False)
        return
    with ThreadPoolExecutor(jobs) as pool:
        try:
            yield pool
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in list(running):
                process.terminate()
            raise


def many(handed: list, folder: Path, limits: Limits, pool, machine: list, regrade: bool = False) -> list:
    """The records of all submissions, in their order; graded is what has no record yet, each content once.

    regrade: grade everything, whether it has a record or not. What could not be graded is tried again next time.
    """
    records, keys, todo = {}, [], {}
    for one in handed:
        try:
            exercise = intake.exercise_of(intake.read(one)[0], one.path, [])
            parts = [hashlib.sha256(one.read()).hexdigest(), version(exercise), limits.seed, machine]
            key = hashlib.sha256(msgspec.json.encode(parts)).hexdigest()[:32]
            record = None if regrade else stored(folder / "records" / f"{key}.json", Submission)
        except intake.Unreadable as error:
            key, record = one.place, ungraded(one, str(error), status="unreadable")
        keys.append(key)
        if record:
            records[key] = record
        else:
            todo.setdefault(key, one)
    futures = {pool.submit(alone, one, limits): key for key, one in todo.items()}
    with tqdm(None, "grading", len(futures), unit="submission", disable=None, leave=False) as bar:
        for future in as_completed(futures):
            key = futures.pop(future)
            try:
                record = future.result()
            except Exception as error:  # of the pool: costs the others nothing
                record = ungraded(todo[key], f"{todo[key].path}: {type(error).__name__}: {error}")
            if record.status != "ungraded":
                write_whole(folder / "records" / f"{key}.json", msgspec.json.encode(record))
            records[key] = record
            bar.update()
            del future  # whose result a Dask scheduler would have made again where the worker that holds it dies
    return [named(records[key], one) for key, one in zip(keys, handed)]


def named(record: Submission, one: intake.Handed) -> Submission:
    """A record with the names of this file, which may have been handed in elsewhere too."""
    notes = [note.replace(record.path, one.path) for note in record.notes]
    return msgspec.structs.replace(record, path=one.path, file=one.place, learner=one.learner, notes=notes)


def alone(one: intake.Handed, limits: Limits) -> Submission:
    """The record of one submission, graded in a process of its own that is killed where it does not end."""
    job = json.dumps([one.learner, one.path, os.path.abspath(one.file), one.member, *astuple(limits)])
    process = subprocess.Popen(WORKER, cwd=ROOT, **dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE))
    running.add(process)
    try:
        output, errors = process.communicate(job.encode(), limits.seconds + MARGIN)
        return msgspec.json.decode(output.splitlines()[-1], type=Submission)
    except subprocess.TimeoutExpired:
        process.terminate()  # which ends what it started
        with suppress(subprocess.TimeoutExpired):
            process.wait(10)
        why = f"no end within {limits.seconds + MARGIN:g} s"
    except (ValueError, IndexError):
        why = f"exit status {process.returncode}: {errors.decode('utf-8', 'replace').strip()[-300:]}"
    finally:
        process.kill()
        running.discard(process)
    return ungraded(one, f"{one.path}: the grader failed ({why})")


if __name__ == "__main__":
    end_on_signal()
    learner, path, file, member, *rest = json.loads(sys.stdin.buffer.read())
    record = graded(intake.Handed(learner, path, Path(file), member), Limits(*rest))
    print(msgspec.json.encode(clean(record)).decode())
