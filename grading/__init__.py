"""Automated grading: `check`, `inputs`, `progress` in a notebook, `grade` on the command line; see docs/grading.md."""

import sys

# nbformat loads jsonschema, which builds a grammar of internationalised addresses wherever it finds this package: 1.5 s
# in every process that opens a notebook, and no notebook has such an address. None stands for "not installed".
sys.modules.setdefault("rfc3987_syntax", None)


def __getattr__(name: str):
    # Imported on first use: what runs beside a learner's code needs nothing of the grader.
    if name in ("check", "inputs"):
        from grading import notebook

        return getattr(notebook, name)
    if name == "progress":
        from instruments.progress import Progress

        return Progress
    raise AttributeError(f"module 'grading' has no attribute {name!r}")
