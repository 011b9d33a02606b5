"""Runs the corpora that grade the grader, and prints what held: `make corpora`.

Right answers in several styles have to keep their marks, wrong ones to fail with the hint made for them, and attacks to
gain nothing. The answers stand in the tests of each lesson, the attacks in attacks/corpus.py.
"""

import argparse
import datetime
import os
import platform
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))


def right_answers() -> list:
    """(name, task, source) of every right variant."""
    import test_01
    import test_05

    found = [(f"solution of {task}", task, source) for task, source in sorted(test_05.SOLUTION.items())]
    found += [(f"{name}", task, source) for name, (task, source) in test_05.RIGHT.items()]
    return found + [(f"{task} variant {i}", task, source) for i, (task, source) in enumerate(test_01.RIGHT)]


def wrong_answers() -> list:
    """(name, task, source, kinds or None, words of the hint) of every wrong variant."""
    import test_01
    import test_05
    from grading_tools import edited

    found = [(name, task, edited(test_05.SOLUTION[task], *changes), kind if isinstance(kind, tuple) else (kind, ), words)
             for name, (task, changes, kind, words) in test_05.WRONG.items()]
    for i, (task, source, changes, hint) in enumerate(test_01.WRONG):
        found.append((f"{task} wrong {i}", task, edited(source, *changes), None, [hint]))
    return found


def is_right(job: tuple) -> str:
    """'' where a right answer keeps its marks with this seed."""
    from grading_tools import verdict_of

    (name, task, source), seed = job
    verdict = verdict_of(task, source, seed)
    good = verdict.status in ("passed", "pending") and verdict.points + verdict.pending_points == verdict.max_points
    return "" if good else f"{name}, seed {seed}: {verdict.status}: {verdict.hint}"


def is_wrong(job: tuple) -> str:
    """'' where a wrong answer fails with its own hint."""
    from grading_tools import verdict_of

    (name, task, source, kinds, words), seed = job
    verdict = verdict_of(task, source, seed)
    good = verdict.status == "failed" and verdict.points == 0 and (kinds is None or verdict.kind in kinds)
    return "" if good and all(word in verdict.hint for word in words) else f"{name}, seed {seed}: {verdict}"


def counted(said: str, check, answers: list, seeds: int) -> bool:
    """Print `said n/n`; an answer counts when every seed agrees."""
    begun = time.monotonic()
    jobs = [(answer, seed) for answer in answers for seed in range(1, seeds + 1)]
    with ProcessPoolExecutor(2) as pool:
        faults = [(job[0][0], fault) for job, fault in zip(jobs, pool.map(check, jobs, chunksize=4)) if fault]
    bad = {name for name, _ in faults}
    print(f"{said} {len(answers) - len(bad)}/{len(answers)}  ({seeds} seeds each, {time.monotonic() - begun:.0f} s)", flush=True)
    for _, fault in faults:
        print(f"  {fault}")
    return not bad


def main(argv: list | None = None) -> int:
    parser = argparse.ArgumentParser(prog="corpora.py", description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, default=50)
    options = parser.parse_args(argv)
    if options.seeds < 1:
        parser.error(f"--seeds: got {options.seeds}, expected 1 or more")
    import torch
    import triton

    from attacks import stopping
    from grading import jail

    print(f"{datetime.date.today().isoformat()}, Python {platform.python_version()}, torch {torch.__version__}, triton "
          f"{triton.__version__}, {os.cpu_count()} cores, isolation: {jail.level()}", flush=True)
    good = counted("right variants accepted", is_right, right_answers(), options.seeds)
    good &= counted("mutants rejected with the intended hint", is_wrong, wrong_answers(), options.seeds)
    begun = time.monotonic()
    missed = stopping.run()
    total = len(stopping.ATTACKS)
    print(f"attacks stopped {total - len(missed)}/{total}  ({time.monotonic() - begun:.0f} s)")
    return 0 if good and not missed else 1


if __name__ == "__main__":
    sys.exit(main())
