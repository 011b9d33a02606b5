"""Writes exercises/ from solutions/, the one source of both.

    python -m instruments.release            write exercises/, say what changed
    python -m instruments.release --check    change nothing; exit status 1 where exercises/ and solutions/ disagree

In cells that nbgrader calls a solution, each region from `### BEGIN SOLUTION` to `### END SOLUTION` becomes the stub
that nbgrader itself would write. Cells tagged `solution` (explanations) are left out, outputs are dropped.
"""

import argparse
import copy
import re
import sys
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from instruments.files import write_whole
from instruments.start import lesson_of, notebook_of

ROOT = Path(__file__).resolve().parents[1]
BEGIN, END = "### BEGIN SOLUTION", "### END SOLUTION"
STUB = ("# YOUR CODE HERE", "raise NotImplementedError()")
SOLUTION_TAG = "solution"


def exercise_id(nb: NotebookNode) -> str:
    """The exercise that a notebook says it is; '' where it says none."""
    mark = nb.get("metadata", {}).get("bytes_first", {})
    return mark.get("exercise", "") if isinstance(mark, dict) and isinstance(mark.get("exercise"), str) else ""


def grade_id(cell: NotebookNode) -> str:
    """A cell's nbgrader id, '' for a cell without."""
    mark = cell.get("metadata", {}).get("nbgrader", {})
    return mark.get("grade_id", "") if isinstance(mark, dict) and isinstance(mark.get("grade_id"), str) else ""


def task_id(grade_id: str) -> str:
    """'answer_05_3' -> '05.3', 'check_05b_1' -> '05b.1'; '' for any other id."""
    match = re.fullmatch(r"(?:answer|check)_(\d\d[a-z]?)_(\d+)", grade_id)
    return f"{match[1]}.{match[2]}" if match else ""


def cleared(source: str) -> str:
    """A solution's source with every solution region replaced by the stub."""
    lines, inside = [], False
    for line in source.split("\n"):
        if line.strip() == BEGIN:
            if inside:
                raise ValueError(f"a second {BEGIN} before {END}")
            inside, indent = True, line[: len(line) - len(line.lstrip())]
            lines += [indent + stub for stub in STUB]
        elif line.strip() == END:
            if not inside:
                raise ValueError(f"{END} without {BEGIN}")
            inside = False
        elif not inside:
            lines.append(line)
    if inside:
        raise ValueError(f"{BEGIN} without {END}")
    return "\n".join(lines)


def released(solution: NotebookNode) -> NotebookNode:
    """The exercise that a solution becomes."""
    nb = copy.deepcopy(solution)
    nb.cells = [cell for cell in nb.cells if SOLUTION_TAG not in cell.metadata.get("tags", [])]
    for cell in nb.cells:
        cell.metadata.pop("execution", None)
        if cell.cell_type != "code":
            continue
        cell.outputs, cell.execution_count = [], None
        if cell.metadata.get("nbgrader", {}).get("solution"):
            try:
                cell.source = cleared(cell.source)
            except ValueError as error:
                raise ValueError(f"solution: cell {grade_id(cell)}: {error}") from None
    return nb


class Missing(ValueError):
    """The course lacks the notebook of an exercise."""


def pristine(exercise: str, root: Path = ROOT) -> NotebookNode:
    """The exercise as released: from its solution where that is at hand, else from exercises/."""
    for folder in ("solutions", "exercises"):
        for path in sorted((root / folder).glob("*.ipynb")):
            nb = nbformat.read(path, as_version=4)
            if exercise_id(nb) == exercise:
                return released(nb)
    raise Missing(f"exercise {exercise!r}: its notebook is missing from both solutions/ and exercises/ of {root}")


def text_of(nb: NotebookNode, path: Path) -> str:
    """The text that is stored at `path`."""
    from instruments.notebooks import dumps

    return dumps(nb, path)


def targets(root: Path = ROOT) -> list:
    """[(path in exercises/, the text that belongs there)] for every solution; ValueError where there is none."""
    solutions = sorted((root / "solutions").glob("*.ipynb"))
    if not solutions:
        raise ValueError(f"solutions: no notebooks in {root / 'solutions'}, and exercises are written from them")
    texts = []
    for path in solutions:
        nb = nbformat.read(path, as_version=4)
        if not exercise_id(nb):
            raise ValueError(f"solution: {path.name} has no metadata bytes_first.exercise")
        target = root / notebook_of(lesson_of(path.name), "exercises")
        texts.append((target, text_of(released(nb), target)))
    return texts


def main(argv: list | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m instruments.release", description="write exercises/ from solutions/"
    )
    parser.add_argument("--check", action="store_true", help="change nothing; status 1 where they disagree")
    options = parser.parse_args(argv)
    try:
        exercises = targets()
    except (ValueError, OSError) as error:
        print(f"release: {error}", file=sys.stderr)
        return 2
    stale = [(path, text) for path, text in exercises if not path.exists() or path.read_text(encoding="utf-8") != text]
    orphans = set((ROOT / "exercises").glob("*.ipynb")) - {path for path, _ in exercises}
    for path, text in stale:
        if not options.check:
            path.parent.mkdir(exist_ok=True)
            write_whole(path, text.encode("utf-8"))
        print(f"{path.relative_to(ROOT)}: {'differs from its solution' if options.check else 'written'}")
    for path in sorted(orphans):
        print(f"{path.relative_to(ROOT)}: has no solution", file=sys.stderr)
    if not stale and not orphans:
        print(f"{len(exercises)} exercise{'s' * (len(exercises) != 1)} agree with their solutions")
    return 1 if (stale and options.check) or orphans else 0


if __name__ == "__main__":
    sys.exit(main())
