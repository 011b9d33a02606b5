"""What `check` shows of a verdict: a card in a notebook, and the same in plain text for terminals and nbval."""

import html

from grading.record import Verdict
from grading.tally import standing
from instruments import diary

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
    """A verdict, and how the exercise stands with it. watch, portrait: the calls that show what went wrong in
    widgets.watch, and what is right in widgets.portrait; '' for none."""

    def __init__(self, verdict: Verdict, exercise: str, watch: str = "", portrait: str = ""):
        self.verdict = verdict
        self.calls = {title: call for title, call in (("watch it", watch), ("its bytes and times", portrait)) if call}
        points, pending, most = standing(exercise, diary.read())
        waiting = f", {pending} pending" if pending else ""
        self.so_far = f"this exercise so far: {points} of {most} points{waiting}"

    @property
    def right(self) -> bool:
        """Whether nothing is wrong."""
        return self.verdict.status in ("passed", "pending")

    def __repr__(self):
        lines = [str(self.verdict)]
        lines += [f"  {title}: {call}" for title, call in self.calls.items()]
        if self.right:
            lines.append(f"  {PUBLIC}")
        if self.verdict.status != "not_attempted":
            lines.append(f"  {self.so_far}")
        return "\n".join(lines)

    def _repr_html_(self):
        v = self.verdict
        sign, word, colour, ground = LOOKS[v.status]
        points = f"{v.points} of {v.max_points} points" + (f", {v.pending_points} pending" if v.pending_points else "")
        said = html.escape

        def lines(title: str, sentences: list) -> str:
            items = "".join(f'<li style="margin:2px 0">{said(sentence)}</li>' for sentence in sentences)
            return f'<p style="margin:8px 0 0">{title}</p><ul style="margin:2px 0 0 1.2em;padding:0">{items}</ul>'

        parts = [
            f'<p style="margin:0;font-size:110%"><b style="color:{colour}">{sign} {said(word)}</b> &nbsp; '
            f"{said(v.id)} {said(v.title)} &nbsp; {said(points)}</p>"
        ]
        if v.hint:
            parts.append(f'<p style="margin:8px 0 0;white-space:pre-wrap;overflow-wrap:anywhere">{said(v.hint)}</p>')
        for title, call in self.calls.items():
            code = f'<code style="color:inherit;background:none;overflow-wrap:anywhere">{said(call)}</code>'
            parts.append(f'<p style="margin:8px 0 0">{title.capitalize()}: {code}</p>')
        if v.proved:
            parts.append(lines("Proved", v.proved))
        if v.unproved:
            parts.append(lines("Not proved on this machine", v.unproved))
        small = [self.so_far] * (v.status != "not_attempted") + [PUBLIC] * self.right
        parts += [f'<p style="margin:8px 0 0;font-size:90%">{said(line[0].upper() + line[1:])}</p>' for line in small]
        return (
            f'<div role="status" style="background:{ground};color:#1a1a1a;border-left:6px solid {colour};'
            f'padding:10px 14px;margin:4px 0;max-width:60em;line-height:1.45">{"".join(parts)}</div>'
        )
