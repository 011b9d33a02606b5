"""The online stepper: a row of logits block by block, its running max m and running sum l, and the correction of l."""

import math

import numpy as np
from matplotlib.patches import Rectangle

from kernels.softmax.models import BLOCK, LOOPS, PARTS, RIGHT, ROWS, STEPS, OnlineState, online_states, softmax_sum
from widgets.toolkit.panel import BLACK, BLUE, GREEN, INK_RED, ORANGE, RED, SKY, Example, Panel, canvas, menu, whole

EXAMPLE = Example(entry="5", text="Block 2 of 4, the correction", arguments={"step": 4})

_DARK_GREEN = "#00694d"  # for words


def online_stepper(step: int = STEPS, row: str = "the max comes last", loop: str = RIGHT) -> Panel:
    """A row of 16 logits in blocks of 4: per block the running max, the correction and the running sum, a step each.

    Args:
        step: From 1 to STEPS.
        row: One of ROWS.
        loop: One of LOOPS, two of which leave something out.
    """
    if not isinstance(step, int) or not 1 <= step <= STEPS:
        raise ValueError(f"step: got {step!r}, expected a whole number from 1 to {STEPS}")
    picture = _Picture()
    controls = {
        "step": whole("step", 1, STEPS, STEPS),
        "row": menu("row", ROWS, next(iter(ROWS))),
        "loop": menu("loop", LOOPS, RIGHT),
    }

    def draw(step, row, loop):
        state = online_states(ROWS[row], loop)[step - 1]
        block, part = divmod(step - 1, len(PARTS))
        picture.show(ROWS[row], state, block, part)
        return _alt(ROWS[row], state, block, part, step == STEPS)

    return Panel("One pass, block by block", picture.figure, controls, draw).set(step=step, row=row, loop=loop)


def _words(value: float) -> str:
    return "−inf" if value == -math.inf else "NaN" if math.isnan(value) else f"{value:.2f}".replace("-", "−")


def _alt(row: tuple, state: OnlineState, block: int, part: int, last: bool) -> str:
    m_old, m, total = map(_words, (state.old_max, state.running_max, state.running_sum))
    alt = f"Block {block + 1} of {len(row) // BLOCK}, {PARTS[part]}: "
    moved = state.running_max > state.old_max
    if part == 0:
        if not moved:
            return alt + f"nothing here is larger than m = {m}, which stays. l = {total}."
        counts = (
            f"But l = {total} still counts from {m_old}."
            if state.running_sum > 0
            else f"Nothing is in l yet: l = {total}."
        )
        return alt + f"{m} is larger than {m_old}, so m becomes {m}. {counts}"
    if part == 1:
        if math.isnan(state.correction):
            return alt + "exp(−inf − −inf) is NaN, not a number. l becomes NaN, and stays NaN whatever comes."
        if state.correction == 1 and moved:
            return alt + f"left out. l stays {total}, counted from {m_old}, while m is {m}."
        if state.running_max == -math.inf:
            return alt + f"m is −inf, so the exponents take 0 in its place. l = {total}."
        shrunk = (
            ""
            if not state.running_sum
            else " Nothing changes."
            if state.correction == 1
            else " All of l is rescaled alike."
        )
        return alt + f"l is multiplied by exp({m_old} − {m}) = {_words(state.correction)}, and is {total}.{shrunk}"
    alt += f"its logits add {_words(state.block_sum)}" + (
        f", the sum of exp(x − {m})" if math.isfinite(state.running_max) else ""
    )
    alt += f". Now l = {total}."
    if last:
        true = softmax_sum(row)
        alt += f" The row's own sum of exp(x − {_words(max(row))}) is {_words(true)}"
        alt += ", the same." if abs(state.running_sum - true) < 1e-9 else ": the loop is wrong."
    return alt


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
        for axes, words in ((self.above, "logits x, and the running max m"), (self.below, "what each logit adds to l")):
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

    def show(self, row: tuple, state: OnlineState, block: int, part: int):
        start, end = block * BLOCK, (block + 1) * BLOCK
        places, x = np.arange(len(row)), np.array(row)
        finite = np.isfinite(x)
        for patch in self.here:
            patch.set_x(start - 0.45)
        self.dots.set_data(places[:end][finite[:end]], x[:end][finite[:end]])
        self.ahead.set_data(places[end:], x[end:])
        self.out.set_data(places[~finite], np.full((~finite).sum(), -2.3))
        self.minus.set_text("" if finite.all() else "−inf")
        known = math.isfinite(state.running_max)
        self.line.set_data([-0.5, end - 0.5] if known else [], [state.running_max] * 2 if known else [])
        moved = math.isfinite(state.old_max) and state.running_max > state.old_max and part < 2
        self.before.set_data([-0.5, start - 0.5] if moved else [], [state.old_max] * 2 if moved else [])
        self.m.set_text(f"m = {_words(state.running_max)}")
        for at, (bar, size) in enumerate(zip(self.bars, state.parts)):
            bar.set_height(0 if math.isnan(size) else size)
            fresh = start <= at < end
            bar.set_facecolor(ORANGE if fresh else SKY)
            bar.set_hatch("//" if fresh else "")
        corrected = part == 1 and block > 0
        self.factor.set_text(f"× {_words(state.correction)}" if corrected else "")
        self.factor.set_x(start / 2 - 0.5)
        height = 0.0 if math.isnan(state.running_sum) else state.running_sum
        new = sum(state.parts[start:end]) if part == 2 and height else 0.0
        self.old.set_height(height - new)
        self.new.set_y(height - new)
        self.new.set_height(new)
        self.l.set_text(f"l = {_words(state.running_sum)}")
        true = softmax_sum(row)
        self.true.set_data([0, 1], [true, true])
        self.own.set_text(f"dashed: the row's, {_words(true)}")
