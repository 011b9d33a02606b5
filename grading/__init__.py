"""Automated grading: `check` inside a notebook, `grade` on the command line; see grading/README.md."""


def __getattr__(name: str):
    # Imported on first use: what runs beside a learner's code needs nothing of the grader.
    if name == "check":
        from grading.notebook import check

        return check
    raise AttributeError(f"module 'grading' has no attribute {name!r}")
