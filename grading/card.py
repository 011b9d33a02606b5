"""What `check` shows of a verdict: a card in a notebook, and the same in plain text for terminals and nbval."""

from grading.pages import PAGES
from grading.record import Verdict
from instruments import diary
from instruments.diary import score
from instruments.progress import standing

#: status: sign, word, and the colours of sign and ground, which are the card's own in every theme
LOOKS = {
    "passed": ("✓", "right", "#00694d", "#e6f4ef"),
    "pending": ("✓", "right, as far as this machine can tell", "#00507d", "#e6f0f7"),
    "failed": ("✗", "wrong", "#a33b00", "#fbece4"),
    "not_attempted": ("·", "not attempted", "#555555", "#f0f0f0"),
    "ungraded": ("?", "not judged: the grader's fault", "#555555", "#f0f0f0"),
}
PUBLIC = "checked with the public seed; `grade` runs the same checks with another."


class Card:
    """A verdict, and the points of the exercise so far; no exercise: the verdict alone."""

    def __init__(self, verdict: Verdict, exercise: str | None):
        self.verdict = verdict
        self.so_far = []
        if exercise and verdict.status != "not_attempted":
            self.so_far = [f"this exercise so far: {score(*standing(exercise, diary.read()))}"]
        self.public = [PUBLIC] if verdict.status in ("passed", "pending") else []

    def __repr__(self):
        return "\n  ".join([str(self.verdict), *self.public, *self.so_far])

    def _repr_html_(self):
        looks = dict(zip(("sign", "word", "colour", "ground"), LOOKS[self.verdict.status]))
        points = score(self.verdict.points, self.verdict.pending_points, self.verdict.max_points)
        small = [*self.so_far, *self.public]
        return PAGES.get_template("card.html.j2").render(verdict=self.verdict, score=points, small=small, **looks)
