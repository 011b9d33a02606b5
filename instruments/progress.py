"""`progress()`: how far a learner is, as a page: points and guesses from the diary, minutes from the notebooks.

Where there is a work/ folder, the page is in work/progress.html too, with a summary at its end. A browser prints that
summary alone, on one sheet.
"""

import html
import os
import re
from dataclasses import dataclass
from datetime import date
from functools import cache
from pathlib import Path

from instruments import contents, diary
from instruments.contents import cells_of
from instruments.diary import score
from instruments.files import write_whole
from instruments.release import grade_id, task_id
from instruments.start import lesson_of, notebook_of

SIGNS = {"passed": "✓", "pending": "✓", "failed": "✗"}
UNTRIED = "·"
GUESS = re.compile(r"\bpredict\(\s*\"([^\"]+)\"")

BAR = (
    '<div style="width:7em;height:.7em;margin-top:.35em;background:#ddd">'
    '<div style="width:{}%;height:100%;background:#009e73"></div></div>'
)
CELL = '<td style="text-align:left;vertical-align:top;white-space:{}">{}</td>'

#: Around the page as a file. On paper there is the summary alone.
PAGE = """\
<!doctype html>
<html lang=en>
<meta charset=utf-8>
<meta name=viewport content="width=device-width">
<title>Bytes First: progress</title>
<style>
body {{ font: 16px/1.4 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; color: #222 }}
table {{ border-collapse: collapse }} td {{ padding: .1rem 1rem .1rem 0 }}
.summary {{ border-top: 1px solid #ccc; margin-top: 2rem }}
@media (max-width: 45rem) {{ tr {{ display: block; margin-bottom: .6rem }} td {{ display: inline-block }} }}
@media print {{ .screen {{ display: none }} .summary {{ border: 0; margin: 0 }} tr {{ break-inside: avoid }}
               body {{ font-size: 10pt; margin: 0 }} @page {{ size: A4; margin: 14mm }} }}
</style>
{}
"""


@dataclass(frozen=True)
class Task:
    """A task as its card in the exercise says."""

    id: str
    title: str
    minutes: int
    points: int


@dataclass(frozen=True)
class Row:
    """A lesson or an exercise. share: what is done of it, from 0 to 1. words: of the points or guesses."""

    name: str
    title: str
    share: float
    words: str
    minutes_left: int
    signs: str = ""

    @property
    def heading(self) -> str:
        """Its title up to the colon, as HTML."""
        return html.escape(self.title.partition(":")[0])

    @property
    def path(self) -> str:
        """Its notebook's, from the folder that holds lessons/ and exercises/."""
        return notebook_of(self.name, "exercises" if self.signs else "lessons")


@cache
def tasks_of(path: Path) -> tuple[Task, ...]:
    """The tasks of an exercise's notebook: the cards' titles and minutes, and the points of the check cells."""
    tasks, cards = [], {}
    for cell in cells_of(path):
        for number, title in re.findall(r"^## (\d\d[a-z]?\.\d+) (.+)$", cell.text, re.MULTILINE):
            minutes = re.search(r"· (\d+) minutes ·", cell.text)
            cards[number] = (title.strip(), int(minutes[1]) if minutes else 0)
        mark = {"metadata": cell.metadata}
        if grade_id(mark).startswith("check_"):
            number = task_id(grade_id(mark))
            tasks.append(Task(number, *cards.get(number, ("", 0)), cell.metadata["nbgrader"].get("points", 0)))
    return tuple(tasks)


def standing(exercise: str, history: diary.Diary) -> tuple[int, int, int]:
    """(points, pending points, points there are) of an exercise."""
    tasks = tasks_of(contents.ROOT / notebook_of(exercise, "exercises"))
    known = [history.tasks[task.id] for task in tasks if task.id in history.tasks]
    return sum(p.points for p in known), sum(p.pending for p in known), sum(task.points for task in tasks)


def is_done(points: diary.Points | None) -> bool:
    """Whether every point of a task is earned, or waits for a GPU alone."""
    return points is not None and points.points + points.pending == points.most


class Progress:
    """How far a learner is. rows: each lesson and, after it, its exercise."""

    def __init__(self):
        self.history = diary.read()
        self.rows, self.undone = [], []
        exercises = {lesson_of(path.name): path for path in (contents.ROOT / "exercises").glob("*.ipynb")}
        lessons = {lesson_of(path.name): path for path in (contents.ROOT / "lessons").glob("*.ipynb")}
        for name in sorted(exercises | lessons):
            exercise = self._exercise(name, tasks_of(exercises[name])) if name in exercises else None
            if name in lessons:
                self.rows.append(self._lesson(name, lessons[name], exercise))
            self.rows += [exercise] if exercise else []
        self.file = self._write()

    def _exercise(self, name: str, tasks: list[Task]) -> Row:
        known = {task.id: self.history.tasks.get(task.id) for task in sorted(tasks, key=lambda task: task.id)}
        undone = [task for task in tasks if not is_done(known[task.id])]
        self.undone += [(task, name, known[task.id]) for task in undone]
        points, pending, most = standing(name, self.history)
        words = score(points, pending, most)
        signs = "  ".join(
            f"{SIGNS.get(done.status, UNTRIED) if done else UNTRIED} {id_}" for id_, done in known.items()
        )
        share, left = (points + pending) / (most or 1), sum(task.minutes for task in undone)
        title = contents.described(contents.ROOT / notebook_of(name, "exercises")).title
        return Row(name, title, share, words, left, signs)

    def _lesson(self, name: str, path: Path, exercise: Row | None) -> Row:
        about, keys = contents.described(path), {key for cell in cells_of(path) for key in GUESS.findall(cell.text)}
        locked = len(keys & set(self.history.guesses))
        begun = exercise is not None and any(sign in exercise.signs for sign in SIGNS.values())
        share = locked / len(keys) if keys else float(begun)
        words = f"{locked} of {len(keys)} guess{'es' * (len(keys) != 1)}" if keys else ""
        return Row(name, about.title, share, words, round(about.minutes * (1 - share)))

    @property
    def next(self) -> str:
        """What to do next: what was begun and is wrong, then what follows the last task that was tried."""
        last = max(self.history.tasks, default="")[:3]

        def rank(undone: tuple) -> tuple:
            task, _, points = undone
            return points is not None and points.status == "failed", task.id >= last

        task, exercise, _ = max(self.undone, key=rank, default=(None, "", None))
        words = (
            f"Next: {task.id} {task.title}, in {notebook_of(exercise, 'exercises')}." if task else "Every task is done."
        )
        kept = "" if diary.FILE.is_file() else " Kept for this session only; `make lab` makes a place for it."
        return words + kept

    @property
    def total(self) -> str:
        """All points, and the time that is left."""
        known = [standing(row.name, self.history) for row in self.rows if row.signs]
        points, pending, most = (sum(of[i] for of in known) for i in range(3))
        hours = sum(row.minutes_left for row in self.rows) / 60
        waiting = ", which need a GPU" if pending else ""
        return f"{score(points, pending, most)}{waiting}. Lessons and exercises for about {hours:.0f} hours are left."

    @property
    def guessed(self) -> str:
        """How well guesses were, counted."""
        near = [re.match("right|close|far off|off|", guess.near)[0] for guess in self.history.guesses.values()]
        counts = ", ".join(
            f"{near.count(word)} {word}" for word in ("right", "close", "off", "far off") if word in near
        )
        return f"{len(near)} guess{'es' * (len(near) != 1)}: {counts}." if near else "No guess yet."

    def __repr__(self):
        lines = [self.total]
        for row in self.rows:
            left = f"{row.minutes_left} min left" if row.minutes_left else ""
            lines.append(f"{row.path:47} {row.share:4.0%}  {row.words:24} {left:13} {row.signs}".rstrip())
        lines += [self.guessed, *(f"{guess.question}  {guess.near}" for guess in self.history.guesses.values())]
        return "\n".join([*lines, self.next])

    def _repr_html_(self):
        if not self.file:
            return self.page("../")
        way = Path(os.path.relpath(self.file)).as_posix()  # from the notebook's folder, where its kernel runs
        return self.page("../") + f'<p><a href="{html.escape(way)}">A page of this, with a summary to print</a></p>'

    def page(self, way: str | None) -> str:
        """The page, as HTML. way: from where it is shown to the folder that holds lessons/ and exercises/; None: no
        links, which a file that JupyterLab shows may not follow."""
        rows = "\n".join(
            _line(
                row.heading if way is None else f'<a href="{way}{row.path}">{row.heading}</a>',
                BAR.format(round(100 * row.share)),
                row.words,
                f"{row.minutes_left} min left" if row.minutes_left else "",
                row.signs,
            )
            for row in self.rows
        )
        guesses = "\n".join(
            _line(html.escape(guess.question), html.escape(guess.near)) for guess in self.history.guesses.values()
        )
        return f"""<div class=screen><p>{self.total} {html.escape(self.next)}</p>
<p>A lesson's bar and minutes count its guesses, an exercise's bar its points. ✓ right, ✗ wrong, · not attempted.</p>
<table>{rows}</table>
<p>{self.guessed}</p>
<table>{guesses}</table></div>"""

    def summary(self) -> str:
        """The sheet that is printed, as HTML."""
        exercises = [row for row in self.rows if row.signs]
        done = sum(row.share == 1 for row in exercises)
        rows = "\n".join(_line(html.escape(row.title, quote=False), row.words, row.signs) for row in exercises)
        return f"""<div class=summary><h2>Bytes First: summary of {date.today():%Y-%m-%d}</h2>
<p>Name: ______________________________</p>
<p>{self.total} {done} of {len(exercises)} exercises are complete. {self.guessed}</p>
<table>{rows}</table></div>"""

    def _write(self) -> Path | None:
        """work/progress.html, where it can be written."""
        file = diary.FILE.with_suffix(".html")
        if not file.parent.is_dir():
            return None
        try:
            write_whole(file, PAGE.format(self.page(None) + self.summary()).encode())
        except OSError:  # a full or read-only disk
            return None
        return file


def _line(*cells: str) -> str:
    """A line of a table; its first and its last cell may wrap."""
    ends = (0, len(cells) - 1)
    return f"<tr>{''.join(CELL.format('normal' if i in ends else 'nowrap', cell) for i, cell in enumerate(cells))}</tr>"
