"""`progress()`: points by exercise, guesses with how near they were, and what is next; kept by instruments/diary.py."""

import html

from grading.tasks import exercises, tasks_of
from instruments import diary

SIGNS = {"passed": "✓", "pending": "✓", "failed": "✗", "not_attempted": "·", "ungraded": "?"}


def standing(exercise: str, kept: diary.Diary) -> tuple[int, int, int]:
    """(points, pending points, points there are) of an exercise."""
    tasks = tasks_of(exercise)
    had = [kept.tasks[task.id] for task in tasks if task.id in kept.tasks]
    return sum(p.points for p in had), sum(p.pending for p in had), sum(task.max_points for task in tasks)


class Progress:
    """How far a learner is. exercises: [(exercise, points, pending, most, signs by task)], one for each there is."""

    def __init__(self):
        kept = diary.read()
        self.exercises, undone = [], []
        for exercise in sorted(exercises()):
            tasks = tasks_of(exercise)
            had = [kept.tasks.get(task.id) for task in tasks]
            signs = " ".join(f"{t.id} {SIGNS.get(p.status, '·') if p else '·'}" for t, p in zip(tasks, had))
            self.exercises.append((exercise, *standing(exercise, kept), signs))
            for task, points in zip(tasks, had):
                if not (points and points.points + points.pending == points.most):
                    tried = bool(points) and points.status == "failed"
                    undone.append((tried, f"{task.id} {task.title}, in exercises/{exercise}.ipynb"))
        self.next = max(undone, key=lambda task: task[0])[1] if undone else ""  # what was begun, then what comes first
        self.guesses = [(g.question, g.near) for g in kept.guesses.values()]
        self.kept = diary.FILE.is_file()

    @property
    def total(self) -> str:
        """All points in a sentence."""
        points, pending, most = (sum(row[i] for row in self.exercises) for i in (1, 2, 3))
        waiting = f", {pending} pending: they need a GPU" if pending else ""
        return f"{points} of {most} points{waiting}."

    @property
    def ending(self) -> str:
        """What is next, and where this is kept."""
        following = f"Next: {self.next}." if self.next else "Every task is done."
        return following + ("" if self.kept else " Kept for this session only; `make lab` makes a place for it.")

    def __repr__(self):
        lines = [
            f"{exercise:22} {points:3} of {most:3}" + (f", {pending} pending" if pending else "") + f"   {signs}"
            for exercise, points, pending, most, signs in self.exercises
        ]
        lines += [self.total, *(f"{question}  {near}" for question, near in self.guesses), self.ending]
        return "\n".join(lines)

    def _repr_html_(self):
        cell = '<td style="text-align:left;white-space:nowrap">{}</td>'
        rows = "".join(
            "<tr>"
            + cell.format(html.escape(exercise))
            + cell.format(f"{points} of {most}" + (f", {pending} pending" if pending else ""))
            + f'<td style="text-align:left">{html.escape(signs)}</td></tr>'
            for exercise, points, pending, most, signs in self.exercises
        )
        guesses = "".join(
            f'<tr><td style="text-align:left">{html.escape(question)}</td>{cell.format(html.escape(near))}</tr>'
            for question, near in self.guesses
        )
        asked = f"<p>Guesses:</p><table><tbody>{guesses}</tbody></table>" if guesses else ""
        return (
            f"<p>{html.escape(self.total)} ✓ right, ✗ wrong, · not attempted.</p>"
            f"<table><tbody>{rows}</tbody></table>{asked}<p>{html.escape(self.ending)}</p>"
        )


def progress() -> Progress:
    """Points by exercise, guesses, and what is next."""
    return Progress()
