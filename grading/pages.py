"""The pages that people read: one for the class, one for each learner. Plain HTML, no scripts; how it looks stands in
templates/. Texts are escaped there; wording.py has cut them before."""

import re
from collections import defaultdict
from pathlib import Path

import jinja2
from markupsafe import Markup, escape

from grading.record import Results, Submission
from grading.wording import WORDS, by_hand, reason, standing, who


def names(records: list[Submission]) -> dict[str, str]:
    """{learner: name of their page's file, without .html}, all different on any file system."""
    files = {}
    for learner in sorted({record.learner for record in records}):
        base = name = re.sub(r"[^\w.-]+", "_", learner).strip("._")[:50] or "learner"
        number = 1
        while name.casefold() in map(str.casefold, files.values()):
            number += 1
            name = f"{base}-{number}"
        files[learner] = name
    return files


def class_page(results: Results) -> str:
    """What needs a person, who is missing, and for each exercise who has what."""
    handed, exercises, records, aside = defaultdict(list), defaultdict(list), results.submissions, results.left_aside
    for record in records:
        handed[who(record)].append(record)
        if record.is_graded:
            exercises[record.exercise].append(record)
    attention = [f"{who(record)}: {reason(record)}" for record in records if not record.is_graded]
    twice = {name: ", ".join(r.path for r in those) for name, those in handed.items() if len(those) > 1}
    attention += [f"{name}: handed in more than once ({paths}). Decide which counts." for name, paths in twice.items()]
    attention += [f"A remark without a mark: {remark}" for remark in results.remarks_without_a_mark]
    if aside:
        attention.append(f"Left aside, because they are no notebooks: {', '.join(aside[:20])}.")
    return PAGES.get_template("class.html.j2").render(
        title="Grades",
        records=records,
        results=results,
        attention=attention,
        exercises=dict(sorted(exercises.items())),
        pages=names(records),
        levels=sorted({record.isolation for record in records if record.is_graded}),
    )


PAGES = jinja2.Environment(
    loader=jinja2.FileSystemLoader(Path(__file__).with_name("templates")),
    autoescape=True,
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
PAGES.globals.update(WORDS=WORDS, standing=standing)
PAGES.filters["by_hand"] = by_hand
PAGES.filters["code"] = lambda text: Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))
PAGES.filters["number"] = lambda value: f"{value:.6g}" if isinstance(value, float) else value
