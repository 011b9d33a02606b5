"""The online stepper: a row of logits block by block, its running maximum m and sum l, and what a larger m repairs."""

import math
from dataclasses import dataclass

import numpy as np
from matplotlib.patches import Rectangle

from widgets.panel import BLACK, BLUE, GREEN, INK_RED, ORANGE, RED, SKY, Example, Panel, canvas, menu, whole

EXAMPLE = Example(typed="5", told="Block 2 of 4, the repair", shown={"step": 4})

BLOCK = 4
#: Logits, four blocks each; a logit of -inf is one that a mask has taken out.
ROWS = {
    "the largest comes last": (0.3, 1.2, -0.6, 0.7, 1.0, -1.4, 2.0, 0.2, 0.9, 1.4, -0.3, 1.0, -0.7, 1.7, 3.2, 0.5),
    "the largest comes first": (0.5, 3.2, 1.9, -0.8, 1.0, -0.4, 1.5, 0.8, 0.2, 2.0, -1.4, 1.2, 0.7, -0.5, 1.2, 0.4),
    "a block of −inf first": (*[-math.inf] * 4, 1.1, -1.4, 2.0, 0.2, 0.9, 1.4, -0.3, 0.9, -0.8, 1.9, 3.2, 0.5),
}
RIGHT, NO_REPAIR, NO_GUARD = "as it should be", "without the repair", "without the guard"
_DARK_GREEN = "#00694d"  # for words
KERNELS = (RIGHT, NO_REPAIR, NO_GUARD)
PARTS = ("the maximum", "the repair", "the sum")  # of a block's work, a step each
STEPS = 4 * len(PARTS)


@dataclass(frozen=True)
class State:
    """After a step. m_old, m: the running maximum before this block, and now; factor: what the repair multiplies by;
    added: the block's own sum; parts: each logit's part of l, as far as it is in; total: l itself, their sum."""

    m_old: float
    m: float
    factor: float
    added: float
    parts: tuple
    total: float


def _exp(x, m: float, guarded: bool):
    """exp(x - m); the guard takes 0 for an m of -inf, so that nothing is infinity minus infinity."""
    with np.errstate(invalid="ignore"):
        return np.exp(np.asarray(x) - (0.0 if guarded and m == -math.inf else m))


def states(row: tuple, kernel: str = RIGHT) -> list[State]:
    """The state after each of the 12 steps: of each block the maximum, the repair and the sum."""
    guarded, found = kernel != NO_GUARD, []
    m, parts = -math.inf, np.zeros(len(row))
    for start in range(0, len(row), BLOCK):
        block = np.array(row[start : start + BLOCK])
        m_old, m = m, max(m, float(block.max()))
        factor = 1.0 if kernel == NO_REPAIR else float(_exp(m_old, m, guarded))
        new = _exp(block, m, guarded)
        for part in PARTS:
            if part == "the repair":
                parts = parts * factor
            if part == "the sum":
                parts = parts.copy()
                parts[start : start + BLOCK] = new
            found.append(State(m_old, m, factor, float(new.sum()), tuple(parts), math.fsum(parts)))
    return found


def online_stepper(step: int = STEPS, row: str = "the largest comes last", kernel: str = RIGHT) -> Panel:
    """A row of 16 logits in blocks of 4; step: of each block its maximum, the repair of l, and its own sum, from 1.

    row: one of ROWS. kernel: one of KERNELS, two of which leave something out.
    """
    if not isinstance(step, int) or not 1 <= step <= STEPS:
        raise ValueError(f"step: got {step!r}, expected a whole number from 1 to {STEPS}")
    picture = _Picture()
    controls = {
        "step": whole("step", 1, STEPS, STEPS),
        "row": menu("row", ROWS, next(iter(ROWS))),
        "kernel": menu("loop", KERNELS, RIGHT),
    }

    def draw(step, row, kernel):
        state = states(ROWS[row], kernel)[step - 1]
        block, part = divmod(step - 1, len(PARTS))
        picture.show(ROWS[row], state, block, part)
        return _sentence(ROWS[row], state, block, part, step == STEPS)

    return Panel("One reading, block by block", picture.figure, controls, draw).set(step=step, row=row, kernel=kernel)


def _said(value: float) -> str:
    return "−inf" if value == -math.inf else "NaN" if math.isnan(value) else f"{value:.2f}".replace("-", "−")


def whole_sum(row: tuple) -> float:
    """The sum of exp(x - m) with the row's own m, which the loop should find."""
    return float(np.exp(np.array(row) - max(row)).sum())


def _sentence(row: tuple, state: State, block: int, part: int, last: bool) -> str:
    m_old, m, total = map(_said, (state.m_old, state.m, state.total))
    said = f"Block {block + 1} of {len(row) // BLOCK}, {PARTS[part]}: "
    moved = state.m > state.m_old
    if part == 0:
        if not moved:
            return said + f"nothing here is larger than m = {m}, which stays. l = {total}."
        counts = (
            f"But l = {total} still counts from {m_old}." if state.total > 0 else f"Nothing is in l yet: l = {total}."
        )
        return said + f"{m} is larger than {m_old}, so m becomes {m}. {counts}"
    if part == 1:
        if math.isnan(state.factor):
            return said + "exp(−inf − −inf) is NaN, not a number. l becomes NaN, and stays NaN whatever comes."
        if state.factor == 1 and moved:
            return said + f"left out. l stays {total}, counted from {m_old}, while m is {m}."
        if state.m == -math.inf:
            return said + f"m is −inf, so the exponents take 0 in its place. l = {total}."
        shrunk = (
            "" if not state.total else "; nothing changes" if state.factor == 1 else "; all that is in l shrinks alike"
        )
        return said + f"l is multiplied by exp({m_old} − {m}) = {_said(state.factor)}, and is {total}{shrunk}."
    said += f"its logits add {_said(state.added)}" + (f", the sum of exp(x − {m})" if math.isfinite(state.m) else "")
    said += f". Now l = {total}."
    if last:
        true = whole_sum(row)
        said += f" The row's own sum of exp(x − {_said(max(row))}) is {_said(true)}"
        said += ", the same." if abs(state.total - true) < 1e-9 else ": the loop is wrong."
    return said


class _Picture:
    """The logits above; below each its part of l; at the right l itself, beside what it should be at the end."""

    _MOST = 9.0  # of l

    def __init__(self):
        self.figure = canvas(height=350)
        count = len(next(iter(ROWS.values())))
        across = {"xlim": (-0.7, count - 0.3), "xticks": []}
        self.above = self.figure.add_axes((0.065, 0.56, 0.7, 0.38))
        self.above.set(**across, ylim=(-2.6, 4.2))
        self.above.set_yticks([-2, 0, 2, 4], ["−2", "0", "2", "4"], fontsize=8.5)
        self.below = self.figure.add_axes((0.065, 0.1, 0.7, 0.34))
        self.below.set(**across, ylim=(0, 1.25))
        self.below.set_yticks([0, 0.5, 1], ["0", "0.5", "1"], fontsize=8.5)
        for axes, words in (
            (self.above, "logits x, and the running maximum m"),
            (self.below, "what each logit adds to l"),
        ):
            axes.spines[["top", "right"]].set_visible(False)
            axes.set_title(words, fontsize=9.5, loc="left", weight="bold", pad=3)
        self.below.set_xticks([1.5 + BLOCK * n for n in range(count // BLOCK)])
        self.below.set_xticklabels([f"block {n + 1}" for n in range(count // BLOCK)], fontsize=9)
        self.below.tick_params(bottom=False)
        self.here = [
            axes.add_patch(Rectangle((0, -3), BLOCK - 0.1, 9, facecolor="#eeeeee", edgecolor="none", animated=True))
            for axes in (self.above, self.below)
        ]
        look = {"animated": True, "zorder": 3}
        (self.dots,) = self.above.plot([], [], "o", color=BLUE, markersize=6, **look)
        (self.ahead,) = self.above.plot([], [], "o", markerfacecolor="white", color="#999999", markersize=6, **look)
        (self.out,) = self.above.plot([], [], "v", color=BLACK, markersize=7, **look)
        (self.line,) = self.above.plot([], [], color=RED, linewidth=2.2, **look)
        (self.before,) = self.above.plot([], [], "--", color=RED, linewidth=1.4, **look)
        self.m = self.figure.text(
            0.765, 0.955, "", fontsize=11, color=INK_RED, ha="right", va="baseline", animated=True
        )
        self.minus = self.above.text(1.5, -1.75, "", fontsize=9, ha="center", va="center", **look)
        self.bars = [
            self.below.bar(at, 0, 0.78, color=SKY, edgecolor="white", animated=True, zorder=3)[0] for at in range(count)
        ]
        self.factor = self.below.text(0, 1.12, "", fontsize=11, ha="center", va="center", **look)
        right = self.figure.add_axes((0.83, 0.1, 0.16, 0.74))
        right.set(xlim=(0, 1), ylim=(0, self._MOST), xticks=[])
        right.set_yticks([0, 2, 4, 6, 8], ["0", "2", "4", "6", "8"], fontsize=8.5)
        right.spines[["top", "right"]].set_visible(False)
        self.l = self.figure.text(0.805, 0.955, "", fontsize=11, va="baseline", animated=True)
        self.own = self.figure.text(0.805, 0.895, "", fontsize=8.5, color=_DARK_GREEN, va="baseline", animated=True)
        self.old = right.bar(0.4, 0, 0.6, color=SKY, edgecolor="white", animated=True)[0]
        self.new = right.bar(0.4, 0, 0.6, color=ORANGE, hatch="//", edgecolor="white", animated=True)[0]
        (self.true,) = right.plot([], [], "--", color=GREEN, linewidth=2, animated=True)

    def show(self, row: tuple, state: State, block: int, part: int):
        start, seen = block * BLOCK, (block + 1) * BLOCK
        places, x = np.arange(len(row)), np.array(row)
        finite = np.isfinite(x)
        for patch in self.here:
            patch.set_x(start - 0.45)
        self.dots.set_data(places[:seen][finite[:seen]], x[:seen][finite[:seen]])
        self.ahead.set_data(places[seen:], x[seen:])
        self.out.set_data(places[~finite], np.full((~finite).sum(), -2.3))
        self.minus.set_text("" if finite.all() else "−inf")
        known = math.isfinite(state.m)
        self.line.set_data([-0.5, seen - 0.5] if known else [], [state.m] * 2 if known else [])
        moved = math.isfinite(state.m_old) and state.m > state.m_old and part < 2
        self.before.set_data([-0.5, start - 0.5] if moved else [], [state.m_old] * 2 if moved else [])
        self.m.set_text(f"m = {_said(state.m)}")
        for at, (bar, size) in enumerate(zip(self.bars, state.parts)):
            bar.set_height(0 if math.isnan(size) else size)
            fresh = start <= at < seen
            bar.set_facecolor(ORANGE if fresh else SKY)
            bar.set_hatch("//" if fresh else "")
        repaired = part == 1 and block > 0
        self.factor.set_text(f"× {_said(state.factor)}" if repaired else "")
        self.factor.set_x(start / 2 - 0.5)
        shown = 0.0 if math.isnan(state.total) else state.total
        new = sum(state.parts[start:seen]) if part == 2 and shown else 0.0
        self.old.set_height(shown - new)
        self.new.set_y(shown - new)
        self.new.set_height(new)
        self.l.set_text(f"l = {_said(state.total)}")
        true = whole_sum(row)
        self.true.set_data([0, 1], [true, true])
        self.own.set_text(f"dashed: the row's, {_said(true)}")
