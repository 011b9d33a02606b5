"""Runs the corpora that grade the grader, and prints what held: `make corpora`.

Right answers in several styles have to keep their marks, wrong ones to fail with the hint made for them, and attacks to
gain nothing. The answers stand in test_NN.py, a file for each exercise, the attacks in attacks/corpus.py. Answers are
tried twice: over all seeds as `check` judges them; and handed in, through all of `grade` with its jail and its replay.
apart/ holds more of each, and odd files, written apart from the grader.
"""

import argparse
import datetime
import os
import platform
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import torch
import triton
from tqdm import tqdm

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from apart import running  # noqa: E402
from apart.attacks import ATTACKS  # noqa: E402
from apart.files import FILES  # noqa: E402
from apart.right import RIGHT  # noqa: E402
from apart.wrong import WRONG  # noqa: E402
from attacks import stopping  # noqa: E402
from grading_tools import Answer, fault, handed_in, right_answers, tables, verdict_of, wrong_answers  # noqa: E402

from grading import jail, submission  # noqa: E402

WORKERS = max(2, os.cpu_count() or 2)
PARTS = ("check", "grade", "attacks", "apart")
CELL_SECONDS = 120


def submissions(exercise: str, answers: list, again: bool) -> list:
    """[(exercise, [Answer, at most one for each task])]: the k-th submission holds the k-th answer to each task.

    again: where a task has no k-th answer, begin with its first once more.
    """
    by_task = {task: [a for a in answers if a.task == task] for task in sorted({a.task for a in answers})}
    return [
        (exercise, [found[k % len(found)] for found in by_task.values() if again or k < len(found)])
        for k in range(max(map(len, by_task.values())))
    ]


def checked(job: tuple) -> list:
    """[(answer, what is wrong with the verdict that `check` gives it)]."""
    answer, seed = job
    try:
        said = fault(answer, verdict_of(answer.task, answer.source, seed))
    except Exception as error:
        said = f"{answer}: {type(error).__name__}: {error}"
    return [(answer, f"seed {seed}: {said}")] if said else []


def graded(job: tuple) -> list:
    """[(answer, what is wrong with the verdict that `grade` gives it)], of one submission and nothing beside it."""
    (exercise, answers), seed = job
    with tempfile.TemporaryDirectory(prefix="corpora-") as place:
        changes = {answer.task: answer.source for answer in answers}
        path = handed_in(exercise, changes, Path(place) / f"{exercise}.ipynb", base="exercises")
        try:
            record = submission.grade(path, CELL_SECONDS, seed=seed)
        except Exception as error:
            return [(answer, f"seed {seed}: {type(error).__name__}: {error}") for answer in answers]
    found = {verdict.id: verdict for verdict in record.tasks}
    said = [(answer, fault(answer, found[answer.task])) for answer in answers]
    return [(answer, f"seed {seed}: {words}") for answer, words in said if words]


def counted(said: str, judge, things: list, answers: list, seeds: range) -> bool:
    """Judge each thing with each seed and print `said n/n`: an answer counts where no verdict on it is wrong."""
    begun = time.monotonic()
    jobs = [(thing, seed) for thing in things for seed in seeds]
    with ProcessPoolExecutor(WORKERS, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        found = pool.map(judge, jobs, chunksize=4 if judge is checked else 1)
        faults = [fault for faults in tqdm(found, said, len(jobs), file=sys.stderr, leave=False) for fault in faults]
    bad = {str(answer) for answer, _ in faults}
    print(
        f"{said} {len(answers) - len(bad)}/{len(answers)}  ({len(seeds)} seed{'s' * (len(seeds) != 1)} each, "
        f"{time.monotonic() - begun:.0f} s)",
        flush=True,
    )
    for about, words in faults:
        print(f"  {words}" if isinstance(about, Answer) else f"  {about}: {words}")
    return not bad


def apart_right(job: tuple) -> list:
    (name, (_, task, source)), seed = job
    said = _tried(running.right, task, source, seed)
    return [(name, said)] if said else []


def apart_wrong(job: tuple) -> list:
    (name, (_, task, source, words)), seed = job
    said = _tried(running.wrong, task, source, words, seed)
    return [(name, said)] if said else []


def apart_attack(job: tuple) -> list:
    said = _tried(running.attack, job[0])
    return [(job[0], said)] if said else []


def apart_file(job: tuple) -> list:
    said = _tried(running.file, job[0])
    return [(job[0], said)] if said else []


def _tried(function, *arguments) -> str:
    try:
        return function(*arguments)
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:1000]


def main(argv: list | None = None) -> int:
    parser = argparse.ArgumentParser(prog="corpora.py", description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="what to run; all by default")
    options = parser.parse_args(argv)
    if options.seeds < 1:
        parser.error(f"--seeds: got {options.seeds}, expected 1 or more")
    print(
        f"{datetime.date.today().isoformat()}, Python {platform.python_version()}, torch {torch.__version__}, triton "
        f"{triton.__version__}, {os.cpu_count()} cores, isolation: {jail.level()}\n",
        flush=True,
    )

    right, wrong, whole_right, whole_wrong = [], [], [], []
    for table in tables():
        these = right_answers(table.SOLUTION, table.RIGHT), wrong_answers(table.SOLUTION, table.WRONG)
        right += these[0]
        wrong += these[1]
        whole_right += submissions(table.EXERCISE, these[0], again=True)
        whole_wrong += submissions(table.EXERCISE, these[1], again=False)
        counts = ", ".join(
            f"{task} {sum(a.task == task for a in these[0])} and {sum(a.task == task for a in these[1])}"
            for task in sorted(table.SOLUTION)
        )
        print(f"right and wrong answers to {counts}", flush=True)
    print()

    all_seeds = range(1, options.seeds + 1)
    good = True
    if "check" in options.parts:
        good &= counted("right variants accepted", checked, right, right, all_seeds)
        good &= counted("mutants rejected with the intended hint", checked, wrong, wrong, all_seeds)
    if "grade" in options.parts:
        good &= counted("right variants accepted by all of grade", graded, whole_right, right, all_seeds[::10])
        good &= counted("mutants rejected by all of grade, hint and all", graded, whole_wrong, wrong, all_seeds[:1])
    if "attacks" in options.parts:
        begun = time.monotonic()
        missed = stopping.run(workers=max(2, WORKERS // 2))
        total = len(stopping.ATTACKS)
        print(f"attacks stopped {total - len(missed)}/{total}  ({time.monotonic() - begun:.0f} s)")
        good &= not missed
    if "apart" in options.parts:
        few = all_seeds[: max(1, options.seeds // 25)]
        good &= counted("apart: right answers accepted", apart_right, [*RIGHT.items()], [*RIGHT], few)
        good &= counted("apart: wrong answers rejected", apart_wrong, [*WRONG.items()], [*WRONG], few)
        good &= counted("apart: attacks stopped", apart_attack, [*ATTACKS], [*ATTACKS], range(1, 2))
        good &= counted("apart: odd files as they have to be", apart_file, [*FILES], [*FILES], range(1, 2))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
