"""The notebook that is really run: the pristine exercise with the learner's answers in their places.

Everything else of a submission is left behind: its other cells, tags, markers, outputs, metadata and order. Check cells
become stubs that export raw results, so nothing a learner does to them matters. An answer that stands elsewhere than in
its cell is looked for: in the learner's own cells, in another task's answer, in several cells.
"""

import ast
import copy
import re
from dataclasses import dataclass, field

from nbformat import NotebookNode

from grading.release import grade_id, task_id

LEFT_OUT_TAG = "notebook-only"
MAX_ANSWER = 100_000  # characters of one answer
MAX_CODE = 2_000_000  # characters of all cells together in which answers are looked for
MARKERS = ("NBVAL_", "PYTEST_VALIDATE_IGNORE_OUTPUT")

#: The first cell of a run: only what lies beside the notebook is the course here, and solutions cannot be imported.
START = """\
import os, sys
sys.path[:] = [{folder!r}] + [p for p in sys.path if not os.path.exists(os.path.join(p, "grading", "judge.py"))]
sys.modules.update(dict.fromkeys(("kernels", "widgets", "solutions", "lessons", "exercises", "bench")))
"""
EXPORT = "import grading.probe as _probe\n_probe.run({task!r}, globals(), {folder!r})"
TOO_LONG = f'raise ValueError("the answer has more than {MAX_ANSWER:,} characters, and so much is not graded")'

# All patterns here take time in proportion to the text: learners choose it.
DEFINED = re.compile(r"^(?:(?:async )?def|class) (\w+)", re.MULTILINE)
ASSIGNED = re.compile(r"^((?:[\w, ]+=)+)(?!=)", re.MULTILINE)
IMPORTED = re.compile(r"^(?:from [\w.]+ )?import (.+)", re.MULTILINE)
WORD = re.compile(r"[^\W\d]\w*")
APPLIED = re.compile(r"\b[^\W\d]\w*(?=[\[(])|\b[A-Z_][A-Z_0-9]+\b")  # what is called or launched, and constants
COMMENT = re.compile(r"#.*")
UNWRITTEN = re.compile(r"^[ \t]*raise NotImplementedError(?:\(\))?[ \t]*$", re.MULTILINE)
MAGIC = re.compile(r"^([ \t]*)[%!].*$", re.MULTILINE)


@dataclass
class Transplant:
    """What to run. notebook; answers: {task id: source of its answer cell}; untouched: ids of tasks whose answer is
    still the stub; notes: what was odd about the submission, one sentence each."""

    notebook: NotebookNode
    answers: dict = field(default_factory=dict)
    untouched: set = field(default_factory=set)
    notes: list = field(default_factory=list)


def normal(source: str) -> str:
    """A source without the differences that no one meant: trailing blanks and blank lines at the ends."""
    return "\n".join(line.rstrip() for line in source.strip().splitlines())


def transplant(
    pristine: NotebookNode,
    submitted: NotebookNode,
    folder: str,
    functions: dict,
    only: set | None = None,
    without: frozenset = frozenset(),
) -> Transplant:
    """Put the answers of `submitted` into `pristine`.

    functions: {task id: names its answer defines}, to know an answer that stands elsewhere. only: tasks to check (all
    by default). without: tasks whose answer is left out, because it ended the process before.
    """
    result = Transplant(NotebookNode(nbformat=4, nbformat_minor=5, metadata=copy.deepcopy(pristine.metadata), cells=[]))
    cells = result.notebook.cells
    cells.append(_code(START.format(folder=folder), "start", ""))
    given = [cell for cell in pristine.cells if cell.cell_type == "code"][1:]  # START stands in for the first
    asked = set().union(*functions.values())
    search = _Search(submitted, set().union(*(defined(c.source, asked) for c in given if not grade_id(c))), asked)
    for cell in given:
        name = grade_id(cell)
        task = task_id(name)
        if task and cell.metadata["nbgrader"]["solution"]:
            source, notes = search.answer(name, cell.source, set(functions.get(task, ())))
            result.notes += [f"{task}: {note}" for note in notes]
            if normal(source) == normal(cell.source):
                result.untouched.add(task)
            result.answers[task] = source if len(source) <= MAX_ANSWER else TOO_LONG
            if task not in without:
                cells.append(_code(_unmarked(result.answers[task]), "answer", task))
        elif task:
            if only is None or task in only:
                cells.append(_code(EXPORT.format(task=task, folder=folder), "check", task))
        elif LEFT_OUT_TAG not in cell.metadata.get("tags", []):
            cells.append(_code(cell.source, "given", ""))
    for number, cell in enumerate(cells):
        cell.id = f"cell-{number}"
    return result


def _code(source: str, role: str, task: str) -> NotebookNode:
    return NotebookNode(
        cell_type="code",
        source=source,
        outputs=[],
        execution_count=None,
        metadata=NotebookNode(bytes_first=NotebookNode(role=role, task=task)),
    )


def _unmarked(source: str) -> str:
    """A source without the comments that nbval obeys, found line by line as nbval finds them."""
    lines = source.splitlines(keepends=True)
    for number, line in enumerate(lines):
        comment = line.strip()
        if comment.startswith("#") and comment.lstrip("#").strip().startswith(MARKERS):
            lines[number] = "# (a marker of nbval, taken out)" + line[len(line.rstrip()) :]
    return "".join(lines)


# ---------------------------------------------------------------- where an answer stands


class _Search:
    """Finds answers among the cells of a submission. Of a name that several cells define, the last one counts, as when
    a notebook is run from top to bottom."""

    def __init__(self, submitted: NotebookNode, known: set, asked: set):
        self.cells, self.known = submitted.cells, known  # names that exist without the learner
        self.ids = [grade_id(cell) for cell in self.cells]
        self.defines, seen = [], 0
        for cell, name in zip(self.cells, self.ids):
            looked_at = (name or cell.cell_type == "code") and len(cell.source) <= MAX_ANSWER
            seen += len(cell.source) if looked_at else 0
            self.defines.append(defined(cell.source, asked) if looked_at and seen <= MAX_CODE else set())

    def answer(self, name: str, stub: str, names: set) -> tuple[str, list]:
        """(the source that counts for the answer cell `name`, what was odd about where it stood)."""
        same = [i for i, found in enumerate(self.ids) if found == name]
        own = [i for i in same if normal(self.cells[i].source) != normal(stub)]
        chosen = self._chosen(name, same, own, names) if names else []
        whole = "\n".join(stub if i is None else self.cells[i].source for i in chosen)
        notes = []
        if any(self.cells[i].cell_type != "code" for i in same):
            notes.append("the answer cell was not a code cell and was read as one")
        if (
            chosen
            and chosen != own[-1:]
            and not (same and normal(whole) == normal(stub))
            and (len(chosen) == 1 or _compiles(whole))
        ):
            other = task_id(self.ids[chosen[0]]) if len(chosen) == 1 else ""
            return whole, [
                *notes,
                (
                    f"the answer stood in {len(chosen)} cells and was put together"
                    if len(chosen) > 1
                    else f"the answer stood in the answer cell of {other} and was taken from there"
                    if other
                    else "the answer stood in a cell of its own and was taken from there"
                    if same
                    else "the answer cell had lost its id and was known by its function"
                ),
            ]
        if not same:
            notes.append("the answer cell is missing")
        if len(own) > 1:
            notes.append(f"{len(own)} cells carry the answer's id; the last one counts")
        return (self.cells[own[-1]].source if own else stub), notes

    def _chosen(self, name: str, same: list, own: list, names: set) -> list:
        """Numbers of the cells that together are an answer, in order, None standing for the stub; [] for none."""
        loose = [i for i, cell in enumerate(self.cells) if cell.cell_type == "code" and not self.ids[i]]
        others = [i for i, found in enumerate(self.ids) if found.startswith("answer_") and found != name]
        near = [
            i
            for i in loose
            if same
            and max([o for o in others if o < same[0]], default=-1) < i
            and i < min([o for o in others if o > same[-1]], default=len(self.cells))
        ]
        last = own[-1:]
        complete = bool(own) and names <= self.defines[own[-1]]
        if complete and not UNWRITTEN.search(self.cells[own[-1]].source):  # what it calls may stand beside it
            return self._needed(last, [*own[:-1], *near], names, APPLIED)
        for candidates in ([*own, *near], [*own, *loose], [*loose, *others]):
            found = self._needed([], sorted(candidates), names, WORD)
            if found and found != last:
                return found
        part = self._needed([], near, names, WORD, partly=True) if same and not own else []
        return [None, *part] if part else last if complete else []

    def _needed(self, kept: list, candidates: list, names: set, words: re.Pattern, partly: bool = False) -> list:
        """`kept`, and those candidates that define a name which is asked for, or used by what is taken, and which
        nothing else defines; [] where one of `names` stays undefined (partly: all of them)."""
        taken, have, wanted = [], set(), set(names)

        def take(i: int) -> None:
            taken.append(i)
            have.update(self.defines[i])
            wanted.update(words.findall(COMMENT.sub("", self.cells[i].source)))

        for i in kept:
            take(i)
        for _ in range(3):  # what is used may be defined below its use
            for i in reversed(candidates):
                if any(n in wanted and n not in have and (n in names or n not in self.known) for n in self.defines[i]):
                    take(i)
        return sorted(taken) if (names & have if partly else names <= have) else []


def defined(source: str, asked: set) -> set:
    """The names that a source gives at its left margin: functions, classes, imports, CONSTANTS and those asked for."""
    found = set(DEFINED.findall(source))
    for names in IMPORTED.findall(source):
        found |= {part.split(" as ")[-1].split(".")[0].strip(" ()") for part in names.split(",")}
    for names in ASSIGNED.findall(source):
        found |= {word for word in WORD.findall(names) if word.isupper() or word in asked}
    return found


def _compiles(source: str) -> bool:
    try:
        ast.parse(MAGIC.sub(r"\1pass", source[:MAX_ANSWER]))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True
