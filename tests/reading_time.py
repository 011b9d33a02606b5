"""How long a lesson takes to read: 180 words a minute, 15 seconds a line of shown code, 10 a line of a kernel's source,
15 a picture, two minutes for each guess and each panel."""

import re

from instruments.notebooks import WAY_IDS

WORDS, CODE_LINES, SOURCE_LINES, PICTURES = 180, 4, 6, 4  # per minute
PLAY = 2  # minutes for a guess or a panel
#: imported from widgets, and read like a picture or a table instead of played with
STILL = {"table", "columns", "lines", "curves", "show_source", "predict", "progress"}


def prose_words(text: str) -> int:
    """Words of Markdown; a formula, a name in backticks or an address counts as one."""
    return len(re.findall(r"\w+", re.sub(r"\$[^$]*\$|`[^`]*`|https?://\S+", " x ", text)))


def shown_lines(cell) -> int:
    """Lines of a code cell that a reader sees; none where it is folded."""
    hidden = cell.metadata.get("jupyter", {}).get("source_hidden") or cell.get("id") == "set-up"
    return 0 if hidden else sum(bool(line.strip()) for line in cell.source.splitlines())


def cell_minutes(cell, panels: set) -> float:
    """Minutes for one code cell and its output. panels: names imported from widgets so far."""
    data = [output.get("data", {}) for output in cell.get("outputs", [])]
    pictures = sum("image/png" in d for d in data)
    calls = re.findall(r"^(\w+)\(", cell.source, re.M)
    played = calls.count("predict") + (sum(name in panels for name in calls) if pictures else 0)
    source = 0
    if "show_source(" in cell.source:
        source = sum(len("".join(d.get("text/plain", "")).splitlines()) for d in data)
    return shown_lines(cell) / CODE_LINES + source / SOURCE_LINES + pictures / PICTURES + PLAY * played


def minutes(nb) -> tuple[float, float]:
    """(minutes of a lesson's thread, minutes of what stands behind *Going further*)."""
    total, part, panels = [0.0, 0.0], 0, set()
    for cell in nb.cells:
        if cell.get("id") in WAY_IDS:
            continue
        if cell.cell_type == "markdown":
            part = part or int(bool(re.search(r"^#+ *Going further", cell.source, re.M | re.I)))
            total[part] += prose_words(cell.source) / WORDS
        elif cell.cell_type == "code":
            for names in re.findall(r"from widgets(?:\.\w+)? import \(?([^\n)]+)", cell.source):
                panels |= {name.split(" as ")[-1].strip() for name in names.split(",")} - STILL
            total[part] += cell_minutes(cell, panels)
    return total[0], total[1]
