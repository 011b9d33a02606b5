"""`progress()`: points by exercise, guesses and how near they were, and what is next; from instruments/diary.py."""

from grading.card import LOOKS, standing
from grading.pages import PAGES
from grading.record import score
from grading.tasks import exercises, tasks_of
from instruments import diary


class Progress:
    """How far a learner is. exercises: [(exercise, points, pending, most, signs by task)], one for each there is."""

    def __init__(self):
        history = diary.read()
        self.exercises, undone, last = [], [], max(history.tasks, default="")[:3]  # last: of the last one begun
        for exercise in sorted(exercises()):
            signs = []
            for task in tasks_of(exercise):
                points = history.tasks.get(task.id)
                signs.append(f"{task.id} {LOOKS.get(points and points.status, '·')[0]}")
                if not points or points.points + points.pending != points.most:
                    tried = points is not None and points.status == "failed"
                    undone.append((tried, f"{task.id} {task.title}, in exercises/{exercise}.ipynb"))
            self.exercises.append((exercise, *standing(exercise, history), " ".join(signs)))
        following = max(undone, key=lambda task: (task[0], task[1] >= last), default=("", ""))[1]  # begun, next
        self.ending = f"Next: {following}." if undone else "Every task is done."
        if not diary.FILE.is_file():
            self.ending += " Kept for this session only; `make lab` makes a place for it."
        self.guesses = [(guess.question, guess.near) for guess in history.guesses.values()]
        points, pending, most = (sum(row[i] for row in self.exercises) for i in (1, 2, 3))
        self.total = score(points, pending, most) + (": they need a GPU." if pending else ".")

    def __repr__(self):
        lines = [
            f"{exercise:22} {points:3} of {most:3}" + (f", {pending} pending" if pending else "") + f"   {signs}"
            for exercise, points, pending, most, signs in self.exercises
        ]
        lines += [self.total, *(f"{question}  {near}" for question, near in self.guesses), self.ending]
        return "\n".join(lines)

    def _repr_html_(self):
        return PAGES.get_template("progress.html.j2").render(progress=self)
