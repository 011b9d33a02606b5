"""The panel of the permutation: slots counted by expert, summed up to offsets, and moved to rows one by one."""

import numpy as np
import torch

from kernels.moe.permute import permute_reference
from widgets.drawings.moe import COLOURS
from widgets.toolkit.boxes import Boxes
from widgets.toolkit.panel import BLACK, RED, Example, Panel, canvas, menu, whole

EXAMPLE = Example(entry="7", text="Slot 4: token 2's first choice is expert", arguments={"step": 3})

TOKENS, EXPERTS, TOP_K, PROGRAMS = 8, 4, 2, 2
SLOTS = TOKENS * TOP_K
SHARE = SLOTS // PROGRAMS
#: Experts of each token, the best first.
ROUTINGS = {
    "any": ((2, 0), (0, 3), (2, 1), (3, 2), (0, 2), (2, 3), (1, 2), (2, 0)),
    "expert 1 empty": ((2, 0), (0, 3), (2, 3), (3, 2), (0, 2), (2, 3), (0, 2), (2, 0)),
    "expert 2 for all": ((2, 0), (2, 3), (2, 1), (2, 3), (2, 0), (2, 3), (2, 1), (2, 0)),
}
COUNT, SUM, LAST = 1, 2, 2 + SLOTS  # steps: 0 shows the choices; from 3 on a slot each is moved


def permutation_steps(step: int = 7, routing: str = "any") -> Panel:
    """Two experts of four for each of eight tokens: their 16 slots become rows sorted by expert.

    Args:
        step: 0 shows the choices, 1 counts them, 2 sums the counts, and each from 3 to 18 moves a slot to its row.
        routing: One of ROUTINGS.
    """
    picture = _Picture()

    def draw(step, routing):
        experts = torch.tensor(ROUTINGS[routing], dtype=torch.int32)
        permutation = permute_reference(experts, EXPERTS)
        rows, offsets = permutation.rows.flatten().tolist(), permutation.offsets.tolist()
        chosen = experts.flatten().tolist()
        counts = np.array([np.bincount(part, minlength=EXPERTS) for part in np.split(np.array(chosen), PROGRAMS)])
        picture.show(chosen, counts, offsets, rows, step)
        counted = ", ".join(map(str, permutation.counts.tolist()))
        if step == 0:
            return (
                f"{TOKENS} tokens, each with {TOP_K} of {EXPERTS} experts: {SLOTS} slots, in the order of the tokens. "
                f"Slot s belongs to token s // {TOP_K}."
            )
        if step == COUNT:
            return (
                f"Histogram: each of {PROGRAMS} programs counts its {SHARE} slots by expert. Together the experts are "
                f"chosen {counted} times."
            )
        if step == SUM:
            return (
                f"Prefix sum of the counts {counted}: the offsets {', '.join(map(str, offsets))}. Expert e gets the "
                "rows offsets[e] to offsets[e + 1]. The second program's first row of an expert lies behind those that "
                "the first has counted."
            )
        slot = step - SUM - 1
        expert, program = chosen[slot], slot // SHARE
        earlier = chosen[:slot].count(expert)
        alt = (
            f"Slot {slot}: token {slot // TOP_K}'s {('first', 'second')[slot % TOP_K]} choice is expert {expert}, "
            f"chosen by {earlier or 'no'} earlier slot{'s' * (earlier > 1)}. So its row is "
            f"offsets[{expert}] + {earlier} = {rows[slot]}; program {program} moves it."
        )
        if step == LAST:
            alt += " Each expert's rows lie together, in the order of the tokens: the sort is stable."
        return alt

    controls = {"step": whole("step", 0, LAST, 7), "routing": menu("choices", ROUTINGS, "any")}
    return Panel("Slots sorted by expert", picture.figure, controls, draw).set(step=step, routing=routing)


_HEAD = 3.1  # top of the table, whose columns are the experts


def _column(expert: int) -> float:
    return 5.9 + 2.2 * expert


def _line(at: int) -> float:
    return 4.3 + 0.8 * at


#: Where the way from a slot to its row can pass the table: left of it, and between its columns.
_GAPS = np.array([1.0, *(_column(expert) + 1.1 for expert in range(EXPERTS + 1))])


def _way(slot: int, row: int) -> tuple[list, list]:
    """x and y of the line from a slot to its row, which passes no words."""
    start, end = slot + 0.5, row + 0.5
    gap = _GAPS[np.argmin(abs(_GAPS - start) + abs(_GAPS - end))]
    return [start, start, gap, gap, end, end], [2.65, 2.87, 2.87, 7.4, 7.4, 8]


class _Picture:
    """From above: slots with the token of each; counts by program, their sum and the offsets; rows."""

    def __init__(self):
        self.figure = canvas(height=330)
        axes = self.axes = self.figure.add_axes((0, 0, 1, 1))
        axes.set(xlim=(-2.35, SLOTS + 0.45), ylim=(10.9, -0.7))
        axes.axis("off")
        edge = {"edgecolor": BLACK, "linewidth": 0.8}
        self.chosen = None  # the slots, which stay as they are while steps are taken
        self.slots = [Boxes(axes, colour, animated=False, **edge) for colour in COLOURS[:EXPERTS]]
        self.full = [Boxes(axes, colour, **edge) for colour in COLOURS[:EXPERTS]]
        empty = Boxes(axes, "#ececec", animated=False, edgecolor="#999999", linewidth=0.8)
        empty.place(np.arange(SLOTS) + 0.04, 8, 0.92, 1)
        self.mark = Boxes(axes, "none", edgecolor=RED, linewidth=3, zorder=3)
        (self.way,) = axes.plot([], [], color=RED, linewidth=2, alpha=0.5, animated=True, zorder=2)
        for y, words in ((0.5, "slots"), (1.5, "token"), (2.3, "row"), (8.5, "rows"), (9.5, "token")):
            self._word(-0.15, y, words, ha="right", weight="bold" if words in ("slots", "rows") else "normal")
        for program in range(PROGRAMS):
            middle = (program + 0.5) * SHARE
            self._word(middle, -0.34, f"program {program}", ha="center")
        axes.plot([SHARE, SHARE], [-0.45, 2.6], color="#999999", linewidth=1, linestyle=":")
        for at in range(SLOTS):
            self._word(at + 0.5, 1.5, str(at // TOP_K), ha="center")
        moving = {"ha": "center", "animated": True}
        self.experts = [self._word(at + 0.5, 0.5, "", ha="center") for at in range(SLOTS)]
        self.rows, self.places, self.tokens = (
            [self._word(at + 0.5, y, "", **moving) for at in range(SLOTS)] for y in (8.5, 2.3, 9.5)
        )
        self.bounds = [self._word(0, 10.35, "", **moving) for _ in range(EXPERTS)]
        lines = (*(f"counts of program {program}" for program in range(PROGRAMS)), "together", "offsets")
        for expert in range(EXPERTS):
            self._word(_column(expert), _HEAD + 0.33, f"{expert}", ha="center")
        self._word(_column(0) - 0.75, _HEAD + 0.33, "expert", ha="right")
        for line, words in enumerate(lines):
            self._word(_column(0) - 0.75, _line(line), words, ha="right", weight="bold" if line == 3 else "normal")
        self.table = [
            [self._word(_column(column), _line(line), "", **moving) for column in range(EXPERTS + 1)]
            for line in range(len(lines))
        ]

    def _word(self, x, y, words, **look):
        return self.axes.text(x, y, words, fontsize=9, va="center", **look)

    def show(self, chosen: list, counts: np.ndarray, offsets: list, rows: list, step: int):
        """chosen: the expert of each slot. counts: [programs, experts]. rows: of each slot."""
        moved = max(0, step - SUM)
        held = {rows[slot]: slot for slot in range(moved)}  # {row: slot}
        if chosen != self.chosen:
            self.chosen = chosen
            for expert, boxes in enumerate(self.slots):
                own = np.flatnonzero(np.array(chosen) == expert)
                x, y = np.append(own, _column(expert) - 0.5), np.append(0 * own, _HEAD)  # its slots, its head
                boxes.place(x + 0.04, y, 0.92, np.where(y, 0.66, 1))
            for text, expert in zip(self.experts, chosen):
                text.set_text(str(expert))
        for expert, boxes in enumerate(self.full):
            own = np.array([row for row, slot in held.items() if chosen[slot] == expert], float)
            boxes.place(own + 0.04, 8, 0.92, 1)
        for at in range(SLOTS):
            self.places[at].set_text(str(rows[at]) if at < moved else "")
            self.rows[at].set_text(str(chosen[held[at]]) if at in held else "")
            self.tokens[at].set_text(str(held[at] // TOP_K) if at in held else "")
        values = [*counts, counts.sum(0), offsets]
        for line, (texts, numbers) in enumerate(zip(self.table, values)):
            visible = step >= (SUM if line > PROGRAMS else COUNT)
            for column, text in enumerate(texts):
                text.set_text(str(numbers[column]) if visible and column < len(numbers) else "")
        for expert, text in enumerate(self.bounds):
            first, last = offsets[expert], offsets[expert + 1]
            visible = step >= SUM and last > first
            text.set(text=f"expert {expert}" if visible else "", x=(first + last) / 2)
        slot = moved - 1
        self.way.set_data(*(([], []) if slot < 0 else _way(slot, rows[slot])))
        x, y = ([slot, rows[slot]], [0, 8]) if slot >= 0 else ([], [])
        self.mark.place(np.array(x, float) + 0.04, np.array(y, float), 0.92, 1)
