"""Tells answers that are the same but for names, comments and blanks: a reason for a person to look, not a verdict."""

import hashlib
import io
import keyword
import tokenize
from functools import cache
from pathlib import Path

import nbformat

from grading.release import exercise_id, grade_id, task_id

LAYOUT = {tokenize.NEWLINE, tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.COMMENT, tokenize.ENCODING}


def likeness(source: str) -> str:
    """A short hash, equal for sources that differ in names, comments, docstrings and blanks only."""
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    except (tokenize.TokenError, SyntaxError, IndentationError):
        return hashlib.sha256(" ".join(source.split()).encode()).hexdigest()[:16]
    tokens = [t for t in tokens if t.type not in (tokenize.COMMENT, tokenize.NL)]
    names: dict[str, str] = {}
    words = []
    for before, token, after in zip([None, *tokens], tokens, [*tokens[1:], None]):
        if token.type in LAYOUT:
            continue
        if token.type == tokenize.STRING and (before is None or before.type in LAYOUT) and after and after.type in LAYOUT:
            continue  # a docstring
        if token.type == tokenize.NAME and not keyword.iskeyword(token.string):
            words.append(names.setdefault(token.string, f"name{len(names)}"))
        else:
            words.append(token.string)
    return hashlib.sha256(" ".join(words).encode()).hexdigest()[:16]


@cache
def of_solution(exercise: str, root: Path) -> dict:
    """{task id: likeness of the solution's answer}; empty where the solution is not at hand."""
    for path in sorted((root / "solutions").glob("*.ipynb")):
        nb = nbformat.read(path, as_version=4)
        if exercise_id(nb) == exercise:
            return {task_id(grade_id(cell)): likeness(cell.source) for cell in nb.cells
                    if grade_id(cell).startswith("answer_")}
    return {}
