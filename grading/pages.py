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
    page, records = PAGES.get_template("class.html.j2"), results.submissions
    return page.render(title="Grades", records=records, results=results, pages=names(records))


def alike(hints: list[str]) -> list[tuple[int, str]]:
    """[(how many, one of them)] of hints that came more than once, but for their numbers, which differ by the seed."""
    groups = defaultdict(list)
    for hint in hints:
        groups[re.sub(r"-?\d[\d.,]*(e[+-]?\d+)?", "0", hint)].append(hint)
    return [(len(group), group[0]) for group in groups.values() if len(group) > 1]


PAGES = jinja2.Environment(
    loader=jinja2.FileSystemLoader(Path(__file__).with_name("templates")),
    autoescape=True,
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
PAGES.globals.update(WORDS=WORDS, standing=standing, who=who, reason=reason, alike=alike)
PAGES.filters["by_hand"] = by_hand
PAGES.filters["code"] = lambda text: Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))
PAGES.filters["number"] = lambda value: f"{value:.6g}" if isinstance(value, float) else value
