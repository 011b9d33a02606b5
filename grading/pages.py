"""The pages people read: one for each learner, with hints and pictures, and one for the class. Plain HTML, no scripts.

What is counted is counted here; how it looks stands in templates/. Records come through formats.told.
"""

import re
import unicodedata
from collections import Counter, defaultdict
from pathlib import Path

import jinja2
from markupsafe import Markup, escape

from grading.formats import WORDS, reason, standing, waiting
from grading.record import Place, Submission, Verdict

CELL = 10  # pixels of one field of a picture
SOME = 5  # names that a line has room for


def slugs(records: list[Submission]) -> dict[str, str]:
    """{learner: name of their page's file, without .html}, all different on any file system."""
    found, taken, numbers = {}, set(), Counter()
    for learner in by_learner(records):
        base = name = re.sub(r"[^\w.-]+", "_", unicodedata.normalize("NFKC", learner)).strip("._")[:50] or "learner"
        while name.casefold() in taken:
            numbers[base] += 1
            name = f"{base}-{numbers[base] + 1}"
        taken.add(name.casefold())
        found[learner] = name
    return found


def by_learner(records: list[Submission]) -> dict[str, list[Submission]]:
    """{learner: what they handed in}."""
    found = defaultdict(list)
    for record in records:
        found[record.learner].append(record)
    return found


def total(records: list[Submission]) -> Submission | None:
    """The sum of one learner's exercises, as a submission; None where only one has a mark, and where one exercise has
    two, because a person has to decide which counts."""
    graded = [record for record in records if record.is_graded]
    if not len(graded) == len({record.exercise for record in graded}) > 1:
        return None
    notes = [f"{len(records) - len(graded)} more without a mark"] if len(graded) < len(records) else []
    sums = {
        name: sum(getattr(record, name) for record in graded)
        for name in ("points", "pending_points", "max_points", "gradable_points")
    }
    return Submission(
        path="",
        file="",
        learner=graded[0].learner,
        exercise=f"{len(graded)} exercises",
        notes=notes,
        status="pending" if sums["pending_points"] else "graded",
        **sums,
    )


def learner_page(learner: str, records: list[Submission]) -> str:
    """All that one learner handed in."""
    failed = any(task.status == "failed" for record in records for task in record.tasks)
    return PAGES.get_template("learner.html.j2").render(
        title=f"Grades of {learner}", records=records, failed=failed, total=total(records)
    )


def class_page(records: list[Submission], aside: list[str] = ()) -> str:
    """The class: what needs a person, how each task went, who has what, and whose answers are alike."""
    names = slugs(records)
    likened = [task for record in records for task in record.tasks if task.likeness]
    return PAGES.get_template("class.html.j2").render(
        title="Grades",
        records=records,
        counts=Counter(record.status for record in records),
        here=_here(records),
        levels={r.isolation for r in records if r.is_graded},
        attention=_attention(records, aside),
        tasks=_tasks(records),
        alike=_alike(records),
        learners=[(names[learner], theirs, total(theirs)) for learner, theirs in by_learner(records).items()],
        missing=bool(likened) and all(task.like_solution is None for task in likened),
    )


# ---------------------------------------------------------------- the class


def _here(records: list[Submission]) -> str:
    """How many points could be earned here, where there was no GPU."""
    most = {
        r.exercise: f"{r.gradable_points} of the {r.max_points} points of {r.exercise}"
        for r in records
        if r.is_graded and r.gradable_points < r.max_points
    }
    return "; ".join(most[name] for name in sorted(most))


def _states(record: Submission) -> str:
    counts = Counter(task.status for task in record.tasks)
    return ", ".join(f"{counts[s]} {word}" for s, word in WORDS.items() if counts[s]) or WORDS[record.status]


def _some(names: list[str]) -> str:
    """Some names, and that there are more."""
    return ", ".join(names[:SOME]) + (f" and {len(names) - SOME} more" if len(names) > SOME else "")


def _attention(records: list[Submission], aside: list[str]) -> list[str]:
    """Submissions without a mark, learners with two files for one exercise, and files that are no one's."""
    lines = [f"{r.learner}: {reason(r)}" for r in records if not r.is_graded]
    several = defaultdict(list)
    for record in records:
        if record.exercise:
            several[record.learner, record.exercise].append(record.path)
    lines += [
        f"{learner} handed in {exercise} {len(paths)} times: {_some(paths)}. Decide which counts."
        for (learner, exercise), paths in several.items()
        if len(paths) > 1
    ]
    return lines + ([f"Left aside, because they are no notebooks: {_some(aside)}."] if aside else [])


def _tasks(records: list[Submission]) -> list[tuple]:
    """How each task went: id, title, how often it has which status, and the usual faults, [(fault, learners)]."""
    states, faults = defaultdict(Counter), defaultdict(lambda: defaultdict(list))
    for record in records:
        for task in record.tasks:
            states[task.id, task.title][task.status] += 1
            if task.status == "failed":
                faults[task.id, task.title][fault(task.hint)].append(record.learner)
    return [
        (*key, count, sorted(faults[key].items(), key=lambda item: -len(item[1]))[:3])
        for key, count in sorted(states.items())
    ]


def fault(hint: str) -> str:
    """The sentence of a hint that says what is wrong, without its case and its numbers: equal for equal faults."""
    told = re.sub(r'^(In `\w+`: )?Case "[^"]*": ', lambda found: found[1] or "", hint)
    told = re.sub(r" \d+ of \d+ cases (is|are) right; all have to be\.", "", told)
    sentence = re.split(r"\.\s+(?=[A-Z`])", told)[0].rstrip(".")
    sentence = re.sub(r"(?<![\w.])-?\d+(?:[.,]\d+)*(?![\w-])", "…", sentence)
    return re.sub(r" \([^()]*…[^()]*\)", "", sentence) or "no hint"


def _alike(records: list[Submission]) -> list[str]:
    """Answers that are the same but for names, comments and blanks: a reason to look, not a proof."""
    groups, lines = defaultdict(list), []
    for record in records:
        for task in record.tasks:
            if task.likeness:
                groups[task.id, task.likeness].append((record.learner, task.like_solution))
    for (name, _), found in sorted(groups.items()):
        learners, published = dict.fromkeys(learner for learner, _ in found), any(like for _, like in found)
        if len(learners) > 1 or published:
            lines.append(f"{name}: {', '.join(learners)}" + " (the published solution)" * published)
    for record in records:
        published = sum(task.like_solution is True for task in record.tasks)
        if published:
            lines.append(f"{record.learner}: {published} of {len(record.tasks)} as published ({record.exercise})")
    return lines


# ---------------------------------------------------------------- one submission


def _lines(task: Verdict) -> list[str]:
    """What is proved about a task, and what is not."""
    return [f"proved: {s}" for s in task.proved] + [f"not proved here: {s}" for s in task.unproved]


def _shared_lines(tasks: list[Verdict]) -> dict[str, list[str]]:
    """{line: the tasks under which it would stand}, of lines about kernels that several tasks have: told once."""
    found = defaultdict(list)
    for task in tasks:
        for line in _lines(task):
            found[line].append(task.id)
    return {line: names for line, names in found.items() if len(names) > 1 and "kernel" in line}


def _frame(place: Place) -> tuple[int, int, str]:
    """The picture of a result under a grid: its height and width in pixels, and what it shows."""
    rows, cols = len(place.map), len(place.map[0])
    height, width = place.shape[:2] or (rows, cols)
    caption = f"where {place.output} is wrong: {height:,} rows from top to bottom, {width:,} columns from left to right"
    high, broad = -(-height // rows), -(-width // cols)
    if high * broad > 1:
        most = " at most" if height % rows or width % cols else ""
        caption += f"; a square stands for {high:,} x {broad:,} elements{most}"
    return rows * CELL, cols * CELL, caption


def _code(text: str) -> Markup:
    """Text with what stands between backticks as code."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))


PAGES = jinja2.Environment(
    loader=jinja2.FileSystemLoader(Path(__file__).with_name("templates")),
    autoescape=True,
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
PAGES.globals.update(
    CELL=CELL,
    WORDS=WORDS,
    standing=standing,
    waiting=waiting,
    states=_states,
    some=_some,
    lines=_lines,
    shared_lines=_shared_lines,
    frame=_frame,
    share=lambda share: f"{share:.0%}" if share >= 0.005 else f"{share:.2%}",
)
PAGES.filters.update(code=_code, number=lambda value: f"{value:.6g}" if isinstance(value, float) else value)
