"""A guess before the answer: entered, locked, then shown beside the answer and kept for the lesson's end.

    predict("rmsnorm bytes", "How many MB does the fused kernel move?", 33.6, unit="MB")
    ...
    predictions()

A stored notebook shows the question with the answer folded under it.
"""

import html
import math
import threading
import warnings

import ipywidgets

from instruments import diary
from widgets.toolkit.panel import show
from widgets.toolkit.words import number

#: The predictions of this session, by key, in the order in which they were first asked.
RECORD: dict = {}


def closeness(guess: float, answer: float, within: float = 0.05) -> str:
    """How near a guess came, in words; factors count rather than differences. Right means `within` of the answer."""
    if guess == answer or (answer and abs(guess - answer) <= within * abs(answer)):
        return "right"
    if answer == 0 or guess == 0 or (guess < 0) != (answer < 0):
        return f"off by {number(abs(guess - answer))}"
    ratio = guess / answer
    factor, side = max(ratio, 1 / ratio), "high" if ratio > 1 else "low"
    if factor <= 1.25:
        return f"close, {abs(ratio - 1):.0%} too {side}"
    times = f"{number(factor, digits=2)} times too {side}"
    if factor < 10:
        return f"off, {times}"
    return f"far off, {times}: {number(math.log10(factor), digits=2)} powers of ten"


def parse(text: str) -> float:
    """The number in what a learner typed: 33.6, 33,600,000, 33_600_000, 3.4e7."""
    try:
        guess = float(text.replace(",", "").replace("_", "").strip())
    except ValueError:
        raise ValueError(f"guess: got {text!r}, expected a number such as 1200 or 1.2e3") from None
    if not math.isfinite(guess):
        raise ValueError(f"guess: got {text!r}, expected a finite number")
    return guess


class Prediction:
    """One question, a place for the guess and a button that locks it. `lock(guess)` does what the button does."""

    def __init__(self, key: str, question: str, answer, unit: str = "", within: float = 0.05):
        self.key, self.question, self.unit, self.within = key, question, unit, within
        self.guess = None
        self._answer, self._lock = answer, threading.Lock()
        self._entry = ipywidgets.Text(placeholder="a number", layout={"width": "160px"})
        self._button = ipywidgets.Button(description="Lock my guess", tooltip="Then the answer is shown")
        self._reply = ipywidgets.HTML()
        self._button.on_click(self._clicked)
        self._entry.observe(self._typing, "value")
        with warnings.catch_warnings():  # ipywidgets 8 would rather have a lock on leaving the field
            warnings.simplefilter("ignore", DeprecationWarning)
            self._entry.on_submit(self._clicked)
        right = f"Right is {within:.0%} up or down." if within and answer != 0 else "Only the exact number is right."
        self.box = ipywidgets.VBox(
            [
                ipywidgets.HTML(f"<b>Predict.</b> {html.escape(question)} {right}"),
                ipywidgets.HBox([self._entry, ipywidgets.HTML(html.escape(unit)), self._button]),
                self._reply,
            ]
        )

    @property
    def answer(self) -> float:
        """The answer; a callable is called once, when first needed."""
        if callable(self._answer):
            self._answer = self._answer()
        return self._answer

    @property
    def verdict(self) -> str:
        """The guess beside the answer, in a sentence; empty while nothing is locked."""
        if self.guess is None:
            return ""
        near = closeness(self.guess, self.answer, self.within)
        return (
            f"Your guess: {number(self.guess, self.unit)}. Answer: {number(self.answer, self.unit)}. "
            f"{near[0].upper()}{near[1:]}."
        )

    def lock(self, guess: float) -> str:
        """Keeps the guess for good and tells the answer. A second guess changes nothing."""
        with self._lock:
            if self.guess is None:
                _ = self.answer  # if it cannot be computed, nothing is locked
                self.guess = float(guess)
                self._entry.value = number(self.guess)
                self._entry.disabled, self._button.description, self._button.tooltip = True, "Locked", ""
                self._say(self.verdict)
                near = closeness(self.guess, self.answer, self.within)
                diary.keep_guess(self.key, diary.Guess(self.question, self.guess, self.answer, self.unit, near))
        return self.verdict

    def _clicked(self, _button):
        if self.guess is not None:
            return
        try:
            self.lock(parse(self._entry.value))
            if hasattr(self._button, "focus"):  # from ipywidgets 8 on, which Colab lacks
                self._button.focus()  # the field, now disabled, drops the focus, and Shift+Enter would go nowhere
        except Exception as error:  # a callback's traceback reaches no one: say it here
            self._say(f"{error}" if isinstance(error, ValueError) else f"{type(error).__name__}: {error}", "#b00020")

    def _typing(self, _change):
        if self.guess is None:
            self._reply.value = ""

    def _say(self, text: str, colour: str = "inherit"):
        self._reply.value = (
            f'<p role="status" aria-live="polite" style="color:{colour};margin:4px 0">{html.escape(text)}</p>'
        )

    def __repr__(self):
        return f"Predict. {self.question} {self.verdict or '(Run this cell to enter a guess.)'}"

    def _still(self) -> str:
        try:
            folded = number(self.answer, self.unit)
        except Exception:  # an answer that later cells compute; locking a guess reports it if it stays so
            folded = "run the notebook: a later cell computes it"
        return (
            f"<p><b>Predict.</b> {html.escape(self.question)}</p>"
            f"<details><summary>Answer</summary>{html.escape(folded)}</details>"
        )

    def _ipython_display_(self):
        show(self.box, {"text/plain": repr(self), "text/html": self._still()})


class Predictions:
    """The session's guesses beside the answers; answers of questions not yet guessed stay hidden."""

    @property
    def rows(self) -> list:
        """(question, guess, answer, how near), one per prediction."""
        return [
            (p.question, "", "", "not guessed")
            if p.guess is None
            else (p.question, number(p.guess, p.unit), number(p.answer, p.unit), closeness(p.guess, p.answer, p.within))
            for p in RECORD.values()
        ]

    def __repr__(self):
        if not RECORD:
            return "No predictions yet in this session."
        return "\n".join(
            f"{question}  guess {guess}, answer {answer}: {near}" if guess else f"{question}  {near}"
            for question, guess, answer, near in self.rows
        )

    def _repr_html_(self):
        if not RECORD:
            return f"<p>{self!r}</p>"
        left = 'style="text-align:left"'
        body = "".join(
            "<tr>" + "".join(f"<td {left}>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in self.rows
        )
        head = "".join(f"<th {left}>{name}</th>" for name in ("Question", "Your guess", "Answer", "How near"))
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def predict(key: str, question: str, answer, unit: str = "", within: float = 0.05) -> Prediction:
    """Asks for a guess. Run again with the same key and question, it keeps a guess already locked.

    answer: a number, or a callable without arguments that gives one. within: the share of the answer by which a guess
    may differ and still be right.
    """
    if not callable(answer) and not isinstance(answer, (int, float)):
        try:
            answer = float(answer)
        except (TypeError, ValueError):
            raise ValueError(f"answer: got {answer!r}, expected a number or a callable that gives one") from None
    before = RECORD.get(key)
    RECORD[key] = now = Prediction(key, question, answer, unit, within)
    record = diary.read().guesses.get(key)
    if before is not None and before.guess is not None and before.question == question:
        now.lock(before.guess)
    elif (
        before is None and record and record.question == question and diary.FILE.is_file()
    ):  # locked in an earlier session
        try:
            now.lock(record.guess)
        except Exception:  # a later cell computes the answer: the guess stands in its field, to be locked after that
            now._entry.value = f"{record.guess:.12g}"
    return now


def predictions() -> Predictions:
    """The guesses of this session beside their answers, for a lesson's end."""
    return Predictions()
