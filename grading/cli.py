"""`grade PATH... --report DIR`: grade exercise notebooks, or folders of them.

Exit status: 0 everything was graded, whatever the marks; 1 something could not be graded, or the report could not be
written; 2 wrong use, told in one sentence.
"""

import argparse
import importlib.util
import sys
from pathlib import Path

CELL_SECONDS = 120.0


class Usage(Exception):
    """Wrong use; the text is the sentence that is printed."""


def main(argv: list | None = None) -> int:
    parser = argparse.ArgumentParser(prog="grade", description="Grade exercise notebooks of the course.",
                                     epilog="Exit status: 0 everything was graded, whatever the marks; 1 something was "
                                     "not; 2 wrong use.")
    parser.add_argument("paths", nargs="+", metavar="PATH", help="a notebook, or a folder of notebooks")
    parser.add_argument("--report", required=True, metavar="DIR", type=Path,
                        help="folder for results.json and index.html")
    parser.add_argument("--timeout", metavar="S", type=float, default=CELL_SECONDS,
                        help="seconds that one cell may take (default %(default)g)")
    parser.add_argument("--require-gpu", action="store_true", help="refuse to grade where there is no GPU")
    options = parser.parse_args(argv)
    try:
        return run(options)
    except Usage as error:
        print(f"grade: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("grade: interrupted; no report was written", file=sys.stderr)
        return 1


def run(options) -> int:
    """Grade what the options name and write the report."""
    if not options.timeout > 0:
        raise Usage(f"--timeout: got {options.timeout:g}, expected seconds above 0")
    needs()
    from grading.submission import Missing, Unreadable, exercise_of, grade, pristine, read, ungraded

    if options.require_gpu and not gpu():
        raise Usage("--require-gpu: this machine has no GPU that torch can use")
    found, problems = [], {}
    paths = submissions(options.paths)
    for path in paths:
        try:
            exercise = exercise_of(read(path), path)
            pristine(exercise)
            found.append(path)
        except Unreadable as error:
            problems[path] = str(error)
        except Missing as error:
            raise Usage(str(error)) from None
    if not found:
        raise Usage("; ".join(problems.values()) or "nothing to grade")
    writable(options.report)

    from tqdm import tqdm

    records = []
    for path in tqdm(paths, desc="grading", unit="notebook", disable=None, leave=False):
        if path in problems:
            records.append(ungraded(path, problems[path]))
            continue
        try:
            records.append(grade(path, options.timeout))
        except (Unreadable, Missing) as error:
            records.append(ungraded(path, str(error)))
        except Exception as error:  # a fault of the grader's must not cost the others their grades
            records.append(ungraded(path, f"{path}: the grader failed ({type(error).__name__}: {error})"))
    return deliver(records, options.report)


def deliver(records: list, folder: Path) -> int:
    """Write the report and print a summary; the exit status."""
    from grading import report

    try:
        report.write(folder, records)
    except OSError as error:
        print(f"grade: the report could not be written to {folder} ({error.strerror}); nothing of it was left there",
              file=sys.stderr)
        return 1
    bad = 0
    for record in records:
        waiting = f", {record['pending_points']} pending" if record["pending_points"] else ""
        print(f"{record['path']}: {record['points']} of {record['max_points']} points{waiting}")
        for task in record["tasks"]:
            print(f"  {task['id']}  {task['status'].replace('_', ' '):13} {task['points']} of {task['max_points']}"
                  + (f"  {task['hint']}" if task["hint"] else ""))
        if not record["tasks"] or any(task["status"] == "ungraded" for task in record["tasks"]):
            bad += 1
            print(f"  not graded: {record['notes'][0] if record['notes'] else 'see above'}")
    print(f"report: {folder / 'index.html'}")
    return 1 if bad else 0


def submissions(given: list) -> list:
    """The notebooks that the arguments name; a folder gives those below it."""
    found = []
    for name in given:
        path = Path(name)
        if path.is_dir():
            inside = sorted(p for p in path.rglob("*.ipynb") if ".ipynb_checkpoints" not in p.parts)
            if not inside:
                raise Usage(f"{path}: no notebook in this folder")
            found += inside
        elif not path.exists():
            raise Usage(f"{path}: no such file or folder")
        else:
            found.append(path)
    return list(dict.fromkeys(found))


def needs() -> None:
    """Usage where a package is missing that grading cannot do without."""
    for name, why in (("nbval", "it runs the notebooks"), ("torch", "the exercises need it"), ("tqdm", "it shows progress"),
                      ("triton", "kernels need it (Linux only; elsewhere use Colab, a container or WSL2)")):
        if importlib.util.find_spec(name) is None:
            raise Usage(f"{name} is not installed here: {why}")


def gpu() -> bool:
    """Whether torch finds a GPU."""
    import torch

    return torch.cuda.is_available()


def writable(folder: Path) -> None:
    """Make the report's folder before the work, so that a wrong one is told at once."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        trial = folder / ".trial"
        trial.touch()
        trial.unlink()
    except OSError as error:
        raise Usage(f"--report: cannot write to {folder} ({error.strerror})") from None


if __name__ == "__main__":
    sys.exit(main())
