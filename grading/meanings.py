"""What an exception in a kernel, or an error of the compiler, means: meanings.toml has the table."""

import re
import tomllib
from functools import cache
from pathlib import Path


@cache
def _table() -> list:
    return tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))["meaning"]


def meaning(text: str, line: str = "") -> tuple[str, str]:
    """(the fault, what to do) of an error with this text, raised in this line of the learner's code; "" where nothing
    is known beyond the error's own words."""
    for entry in _table():
        in_text, in_line = re.search(entry["error"], text), re.search(entry.get("line", ""), line)
        if in_text and in_line:
            groups = [group for match in (in_text, in_line) for group in match.groups() if group]
            return entry.get("fault", "").format(*groups), entry["advice"].format(*groups)
    return "", ""
