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
    except (tokenize.TokenError, SyntaxError, ValueError):
        return _hash(source.split())
    tokens = [t for t in tokens if t.type not in (tokenize.COMMENT, tokenize.NL)]
    names: dict[str, str] = {}
    words = []
    for before, token, after in zip([None, *tokens], tokens, [*tokens[1:], None]):
        if token.type in LAYOUT:
            continue
        begins = before is None or before.type in LAYOUT
        if token.type == tokenize.STRING and begins and after and after.type in LAYOUT:
            continue  # a docstring
        if token.type == tokenize.NAME and not keyword.iskeyword(token.string):
            words.append(names.setdefault(token.string, f"name{len(names)}"))
        else:
            words.append(token.string)
    return _hash(words)


def _hash(words: list) -> str:
    return hashlib.sha256(" ".join(words).encode("utf-8", "replace")).hexdigest()[:16]


@cache
def solution_answers(exercise: str, root: Path) -> dict:
    """{task id: source of the solution's answer}; empty where the solution is not at hand."""
    for path in sorted((root / "solutions").glob("*.ipynb")):
        nb = nbformat.read(path, as_version=4)
        if exercise_id(nb) == exercise:
            return {task_id(grade_id(cell)): cell.source for cell in nb.cells if grade_id(cell).startswith("answer_")}
    return {}


@cache
def of_solution(exercise: str, root: Path) -> dict:
    """{task id: likeness of the solution's answer}; empty where the solution is not at hand."""
    return {task: likeness(source) for task, source in solution_answers(exercise, root).items()}
