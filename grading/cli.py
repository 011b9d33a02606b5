"""`grade PATH... --report DIR`: grade notebooks, folders and zips of them; `grade one FILE --report DIR` grades a
single submission and writes no more than its record, so that a cluster's queue can run it.

Exit status: 0 everything was graded, whatever the marks; 1 something could not be graded, or the report could not be
written; 2 wrong use, told in one sentence.
"""

import argparse
import importlib.util
import os
import signal
import sys
from pathlib import Path

from grading import batch, intake, jail, report
from grading.formats import WORDS, line, reason, shown, standing, waiting
from grading.pages import total as total_of
from grading.submission import Missing, pristine

EPILOG = (
    "Exit status: 0 everything was graded, whatever the marks; 1 something was not; 2 wrong use. "
    "`grade one FILE --report DIR` grades one submission into DIR/records, for a cluster's queue."
)


class Usage(Exception):
    """Wrong use; the text is the sentence that is printed."""


def main(argv: list | None = None) -> int:
    argv = sys.argv[1:] if argv is None else list(argv)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # hints quote learners, who may print anything
    try:
        signal.signal(signal.SIGTERM, _interrupt)  # ended politely, a run ends what it started
    except ValueError:  # not in the main thread
        pass
    try:
        return run_one(parser_of_one().parse_args(argv[1:])) if argv[:1] == ["one"] else run(parser().parse_args(argv))
    except Usage as error:
        print(f"grade: {line(str(error))}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(
            "grade: interrupted; no report was written, and what was graded is kept for the next run", file=sys.stderr
        )
        return 1


def _interrupt(*_):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second one must not cut short what ends the run
    raise KeyboardInterrupt


def parser() -> argparse.ArgumentParser:
    """The options of `grade PATH...`."""
    made = argparse.ArgumentParser(prog="grade", description="Grade exercise notebooks of the course.", epilog=EPILOG)
    made.add_argument(
        "paths",
        nargs="+",
        metavar="PATH",
        help="a notebook, or a folder or zip of them (a child of it is one learner's)",
    )
    made.add_argument(
        "--jobs",
        metavar="N",
        type=int,
        default=max((os.cpu_count() or 2) // 2, 1),
        help="submissions graded side by side (default: half the processors, here %(default)s); 0 grades "
        "nothing and reports what is there",
    )
    made.add_argument(
        "--list",
        action="store_true",
        help="grade nothing; print the line `grade one ...` of each submission that is not graded yet",
    )
    _shared(made)
    return made


def parser_of_one() -> argparse.ArgumentParser:
    """The options of `grade one FILE`."""
    made = argparse.ArgumentParser(
        prog="grade one", epilog=EPILOG, description="Grade one submission into DIR/records."
    )
    made.add_argument("file", metavar="FILE", type=Path, help="a notebook, or the zip that holds it")
    made.add_argument("--member", metavar="NAME", default="", help="the notebook's name inside the zip FILE")
    made.add_argument("--learner", metavar="NAME", default="", help="whose it is (default: the file's name)")
    made.add_argument("--shown", metavar="PATH", default="", help="the file's name in reports (default: FILE)")
    made.add_argument("--leash", action="store_true", help=argparse.SUPPRESS)  # end when standard input closes
    made.add_argument("--key", default="", help=argparse.SUPPRESS)  # from `grade`, which has hashed the file already
    _shared(made)
    return made


def _shared(made: argparse.ArgumentParser) -> None:
    made.add_argument("--report", required=True, metavar="DIR", type=Path, help="folder for the results")
    made.add_argument(
        "--timeout",
        metavar="S",
        type=float,
        default=batch.CELL_SECONDS,
        help="seconds that one cell may take (default %(default)g)",
    )
    made.add_argument(
        "--total",
        metavar="S",
        type=float,
        default=batch.SUBMISSION_SECONDS,
        help="seconds that one submission may take (default %(default)g)",
    )
    made.add_argument("--seed", metavar="N", type=int, help="seed of the inputs, to repeat a grading (default: secret)")
    made.add_argument("--regrade", dest="anew", action="store_true", help="grade anew what was graded before")
    made.add_argument(
        "--require-isolation",
        metavar="LEVEL",
        default="",
        help="refuse to grade where learner code is isolated less: process, limits, files or network",
    )
    made.add_argument("--require-gpu", action="store_true", help="refuse to grade where there is no GPU")


def run(options) -> int:
    """Grade what the options name and write the report."""
    limits = limits_of(options)
    if options.jobs < 0:
        raise Usage(f"--jobs: got {options.jobs}, expected 0 or more")
    handed, aside = submissions(options.paths, options.report)
    if options.list:
        for submission in batch.missing(handed, options.report, limits):
            print(batch.command(submission, options.report, limits))
        return 0
    keeps(options.report, handed)
    writable(options.report)
    outcome = batch.many(handed, options.report, limits, options.jobs, options.anew)
    return deliver(outcome, options.report, aside)


def run_one(options) -> int:
    """Grade one file into DIR/records."""
    limits = limits_of(options)
    if not os.path.lexists(options.file):
        raise Usage(f"{options.file}: no such file")
    writable(options.report)
    if options.leash:
        batch.leash()
    learner, shown_as = options.learner or intake.text(options.file.stem), options.shown or intake.text(options.file)
    handed = intake.Handed(learner, shown_as, options.file, options.member)
    try:
        record, before = batch.one(handed, options.report, limits, options.anew, options.key)
    except OSError as error:
        print(f"grade: the record could not be written to {options.report} ({error.strerror})", file=sys.stderr)
        return 1
    say(record)
    if before:
        print("  graded before by the same grader; --regrade grades anew")
    return 0 if record.is_graded else 1


def limits_of(options):
    """What a grade depends on, from the options; Usage where one is out of range or something is missing here."""
    for name, value in (("--timeout", options.timeout), ("--total", options.total)):
        if not value > 0:
            raise Usage(f"{name}: got {value:g}, expected seconds above 0")
    if options.seed is not None and options.seed < 0:
        raise Usage(f"--seed: got {options.seed}, expected 0 or more")
    needs()
    if options.require_gpu and not gpu():
        raise Usage("--require-gpu: this machine has no GPU that torch can use")
    if options.require_isolation:
        isolated(options.require_isolation)
    return batch.Limits(options.timeout, options.total, options.seed)


def deliver(outcome, folder: Path, aside: list = ()) -> int:
    """Write the report and print a summary; the exit status."""
    try:
        report.write(folder, outcome.records, aside)
    except OSError as error:
        print(
            f"grade: the report could not be written to {folder} ({error.strerror}); nothing of it was left there",
            file=sys.stderr,
        )
        return 1
    for record in outcome.records:
        say(record)
    if outcome.done_before:
        print(f"{outcome.done_before} done before by the same grader and not run again")
    if outcome.run:
        print(f"{outcome.run} run in {outcome.seconds:.0f} s: {outcome.per_minute:.1f} submissions per minute")
    if aside:
        print(f"left aside: {', '.join(map(line, aside))}")
    print(f"report: {folder / 'index.html'}")
    print(summary(outcome.records))
    return 0 if all(record.is_graded for record in outcome.records) else 1


def summary(records: list) -> str:
    """How many submissions have a mark, and which have none and why; of one learner's, the sum of the points."""
    said = [f"{sum(record.is_graded for record in records)} graded"]
    for status, words in (("unreadable", "could not be read"), ("ungraded", "could not be graded")):
        those = [record for record in records if record.status == status]
        reasons = [line(f"{record.learner} ({reason(record).split(' (it ')[0]})") for record in those[:5]]
        reasons += ["..."] * (len(those) > 5)
        if those:
            said.append(f"{len(those)} {words}: {', '.join(reasons)}")
    marks = [record for record in records if record.is_graded]
    whole = None
    if len({record.learner for record in records}) == 1:
        whole = marks[0] if len(marks) == 1 else total_of(records)
    return ", ".join(said) + (f"; in all {standing(whole, ' points')}" if whole else "")


def say(record) -> None:
    """Print a submission's points and hints."""
    print(f"{line(record.path)}: {standing(record, ' points')}")
    for task in record.tasks:
        told = "; ".join(filter(None, (waiting(task), shown(task.hint))))
        print(f"  {task.id}  {WORDS[task.status]:13} {task.points} of {task.max_points}  {told}".rstrip())
    if not record.is_graded:
        print(f"  not graded: {reason(record)}")


def keeps(folder: Path, handed: list) -> None:
    """Usage where the report in `folder` is another class's. One submission's may go: its record stays."""
    lacking, held = report.others(folder, handed)
    if lacking and held > 1:
        names = ", ".join(map(line, lacking[:2])) + ", ..." * (len(lacking) > 2)
        raise Usage(
            f"--report {folder} holds a report of {held} submissions, and {len(lacking)} of them ({names}) "
            f"{'are' if len(lacking) > 1 else 'is'} not among those given: name another folder, or remove "
            f"{folder / 'results.json'}"
        )


def submissions(given: list, report: Path) -> tuple[list, list]:
    """What the arguments name, and the files that were left aside; Usage where they name nothing to grade."""
    found, singles, aside = [], [], []
    for name in given:
        if not Path(name).exists():
            raise Usage(f"{name}: no such file or folder")
    for path, label in zip(map(Path, given), intake.labels([Path(name) for name in given])):
        inside, beside = intake.found_in(path, report, label)
        aside += beside
        if not inside or all(h.problem for h in inside) and path.is_dir():
            raise Usage(f"{path}: no notebook in this folder")
        found += inside
        singles += [h for h in inside if h.file == path]
    problems = []
    for handed in singles if len(singles) == len(found) else []:  # files named one by one: wrong ones are wrong use
        try:
            pristine(intake.exercise_of(intake.read(handed)[0], handed.path))
        except intake.Unreadable as error:
            problems.append(str(error))
        except Missing as error:
            raise Usage(str(error)) from None
    if found and len(problems) == len(found):
        raise Usage("; ".join(problems))
    once: dict = {}
    for handed in found:
        once.setdefault(handed.place, handed)
    return list(once.values()), list(dict.fromkeys(aside))


def needs() -> None:
    """Usage where a package is missing that grading cannot do without."""
    for name, why in (
        ("nbval", "it runs the notebooks"),
        ("torch", "the exercises need it"),
        ("tqdm", "it shows progress"),
        ("triton", "kernels need it (Linux only; elsewhere use Colab, a container or WSL2)"),
    ):
        if importlib.util.find_spec(name) is None:
            raise Usage(f"{name} is not installed here: {why}")


def isolated(wanted: str) -> None:
    """Usage where learner code would be isolated less than asked for."""
    if wanted not in jail.LEVELS:
        raise Usage(f"--require-isolation: got {wanted!r}, expected one of: {', '.join(jail.LEVELS)}")
    if not jail.at_least(wanted):
        raise Usage(f"--require-isolation: this machine gives {jail.level()!r}, which is less than {wanted!r}")


def gpu() -> bool:
    """Whether torch finds a GPU."""
    import torch

    return torch.cuda.is_available()


def writable(folder: Path) -> None:
    """Make the report's folder before the work, so that a wrong one is told at once."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        trial = folder / f".trial.{os.getpid()}"
        trial.touch()
        trial.unlink()
    except OSError as error:
        raise Usage(f"--report: cannot write to {folder} ({error.strerror})") from None


if __name__ == "__main__":
    sys.exit(main())
