"""Grade exercise notebooks of the course, and folders and zips of them: `grade PATH... --report DIR`.

Exit status: 0 everything was graded, whatever the marks; 1 something could not be graded, or the report could not be
written; 2 wrong use.
"""

import argparse
import importlib.util
import os
import sys
from dataclasses import replace
from pathlib import Path

from grading import batch, intake, report, sandbox, tables
from grading.pages import names
from grading.submission import SUBMISSION_SECONDS, has_gpu
from grading.wording import WORDS, by_hand, clean, line, reason, standing, who
from instruments.diary import score
from instruments.files import BadTable


class Usage(Exception):
    """Wrong use; the text is the sentence that is printed."""


def main(argv: list | None = None) -> int:
    options = parser().parse_args(argv)
    batch.end_on_signal()
    try:
        return run(options)
    except (Usage, BadTable) as error:
        print(f"grade: {line(str(error))}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"grade: {line(f'no report was written to {options.report} ({error})')}", file=sys.stderr)
    except KeyboardInterrupt:
        print("grade: interrupted; no report was written, and the next run keeps what was graded", file=sys.stderr)
    return 1


def parser() -> argparse.ArgumentParser:
    """The options of `grade`. On a GPU one submission is graded at a time, since others would change its timings."""
    about, statuses = __doc__.split("\n\n")
    parser = argparse.ArgumentParser(prog="grade", description=about, epilog=statuses)
    add, jobs = parser.add_argument, 1 if has_gpu() else max((os.cpu_count() or 2) // 2, 1)
    add("paths", nargs="+", metavar="PATH", type=Path, help="a notebook, or a folder or zip with a child per learner")
    add("--report", required=True, metavar="DIR", type=Path, help="folder for the results")
    add("--roster", metavar="CSV", type=Path, help="the class: who handed in nothing, and who is not in it")
    add("--jobs", metavar="N", type=int, default=jobs, help="submissions graded side by side (here %(default)s)")
    add("--scheduler", metavar="ADDRESS", help="grade on the workers of this Dask scheduler")
    add("--timeout", metavar="S", type=float, default=120.0, help="seconds per cell (default %(default)g)")
    add("--total", metavar="S", type=float, default=SUBMISSION_SECONDS, help="per submission (default %(default)g)")
    add("--seed", metavar="N", type=int, help="seed of the inputs, to repeat a grading (default: secret)")
    add("--regrade", action="store_true", help="grade these anew; what else the report holds stays as it is")
    levels = sandbox.LEVELS
    add("--require-isolation", choices=levels, default=levels[0], help="refuse to grade with less isolation")
    add("--require-gpu", action="store_true", help="refuse to grade where there is no GPU")
    return parser


def run(options) -> int:
    """Grade what the options name and write the report."""
    check(options)
    handed, aside = submissions(options.paths, options.report)
    old = report.earlier(options.report)
    handed, others = beside(options, handed, old.submissions)
    remarks, learners = tables.remarks(options.report / "remarks.csv"), [one.learner for one in (*handed, *others)]
    roster = tables.roster(options.roster, learners) if options.roster else old.roster
    records = list(map(clean, records_of(options, handed)))
    if all(record.status == "unreadable" for record in records):
        raise Usage("; ".join(f"{record.path}: {reason(record)}" for record in records[:5]))
    results = tables.results(records + others, aside, roster, remarks)
    report.write(options.report, results)
    mine = {record.file for record in records}
    records = [record for record in results.submissions if record.file in mine]
    for record in records:
        say(record)
    for what in ("left_aside", "handed_in_nothing", "not_on_the_roster", "remarks_without_a_mark"):
        if listed := getattr(results, what):
            print(f"{what.replace('_', ' ')}: {', '.join(map(line, listed))}")
    learners = names(results.submissions)
    page = f"learners/{min(learners.values())}.html" if len(learners) == 1 else "index.html"
    print(f"report: {options.report / page}")
    print(summary(records))
    return 0 if all(record.is_graded for record in records) else 1


def check(options) -> None:
    """Raise Usage for an option out of range, and for a package that is missing."""
    for name, value in (("--timeout", options.timeout), ("--total", options.total), ("--jobs", options.jobs)):
        if not value > 0:
            raise Usage(f"{name}: got {value:g}, expected more than 0")
    if options.seed is not None and options.seed < 0:
        raise Usage(f"--seed: got {options.seed}, expected 0 or more")
    course = "'.[dask]'" if options.scheduler else "."
    for name in ("nbval", "torch", "triton", *(["distributed"] if options.scheduler else [])):
        if importlib.util.find_spec(name) is None:
            raise Usage(f"{name} is missing: pip install -e {course} (on Linux; elsewhere Colab, a container or WSL2)")


def records_of(options, handed: list) -> list:
    """Grade what was handed in; Usage where the machine that grades offers less than is required."""
    (options.report / "records").mkdir(parents=True, exist_ok=True)
    limits = batch.Limits(options.timeout, options.total, options.seed)
    with batch.pool_of(options.jobs, options.scheduler) as pool:
        gpu, level = machine = pool.submit(batch.machine).result()
        if options.require_gpu and not gpu:
            raise Usage("--require-gpu: the machine that grades has no GPU that torch can use")
        if sandbox.LEVELS.index(level) < sandbox.LEVELS.index(options.require_isolation):
            raise Usage(f"--require-isolation: this machine gives {level!r}, not {options.require_isolation!r}")
        return batch.many(handed, options.report, limits, pool, machine, options.regrade)


def beside(options, handed: list, old: list) -> tuple[list, list]:
    """(the submissions, named as an earlier report names its `old` ones; what else that holds and this run keeps)."""
    paths = list(map(os.path.realpath, options.paths))
    others = [record for record in old if not any(Path(record.file).is_relative_to(path) for path in paths)]
    if not others or len(old) == 1 and not options.regrade:
        return handed, []
    if not options.regrade:
        raise Usage(
            f"--report {options.report} holds a report of {len(old)} submissions, and {len(others)} of them "
            f"({line(others[0].learner)}{', ...' * (len(others) > 1)}) are not among those given: name another folder, "
            "or grade these anew and keep the others with --regrade"
        )
    known = {record.file: record for record in old if record not in others}
    owners, named = {record.learner for record in known.values()}, []
    for one in handed:
        owner = min(owners) if len(owners) == 1 else one.learner
        before = known.get(line(one.place), replace(one, learner=owner, path=f"{owner}/{one.path}"))
        named.append(replace(one, learner=before.learner, path=before.path))
    return named, others


def submissions(paths: list, folder: Path) -> tuple[list, list]:
    """What the arguments name, and the files that are no submissions; Usage where they name nothing."""
    handed, aside = {}, []
    for path in paths:
        if not path.exists():
            raise Usage(f"{path}: no such file or folder")
        inside, others = intake.collect(path, folder, "" if len(paths) == 1 and path.is_dir() else None)
        if not inside:
            raise Usage(f"{path}: no notebook in this folder")
        handed |= {one.place: one for one in inside if one.place not in handed}
        aside += others
    return list(handed.values()), aside


def say(record) -> None:
    """Print a submission's points, notes and hints."""
    print(f"{who(record)}: {standing(record)}" + ("" if record.is_graded else f" ({reason(record)})"))
    for note in record.notes if record.is_graded else ():
        print(f"  note: {note}")
    for task in record.tasks if any(task.status != "not_attempted" for task in record.tasks) else ():
        hint = task.hint or ("right; waits for a GPU" if task.pending_points else "")
        print(f"  {task.id}  {WORDS[task.status]:13} {task.points} of {task.max_points}  {hint}".rstrip())
    for remark in record.remarks:
        print(f"  by hand: {by_hand(remark)}")


def summary(records: list) -> str:
    """How many submissions have a mark, and who has none; of one learner's, the sum of the points."""
    marks, others = ([r for r in records if r.is_graded is graded] for graded in (True, False))
    words = f"{len(marks)} graded"
    if others:
        words += f"; {len(others)} without a mark: {'; '.join(map(who, others[:10]))}" + "; ..." * (len(others) > 10)
    one_learner = len({record.learner for record in records}) == 1
    if one_learner and len({record.exercise for record in marks}) == len(marks) > 0:
        totals = (sum(getattr(r, name) for r in marks) for name in ("points", "pending_points", "max_points"))
        words += f"; in all {score(*totals)}"
    return words


if __name__ == "__main__":
    sys.exit(main())
