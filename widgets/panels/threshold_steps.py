"""The panel of top-k by a threshold: ten numbers of four bits, and the largest threshold that k of them reach."""

import numpy as np

from widgets.toolkit.boxes import Boxes
from widgets.toolkit.panel import BLACK, INK_RED, ORANGE, RED, SKY, Example, Panel, canvas, whole

EXAMPLE = Example(entry="2", text="2 of 10 reach 12", arguments={"step": 3})

KEYS = (3, 9, 14, 6, 11, 1, 12, 9, 5, 7)
BITS = (8, 4, 2, 1)


def search(k: int) -> list[tuple[int, int, int]]:
    """(candidate, how many keys reach it, threshold after the step) for each bit, from the highest down."""
    threshold, steps = 0, []
    for bit in BITS:
        candidate = threshold + bit
        reached = sum(key >= candidate for key in KEYS)
        threshold = candidate if reached >= k else threshold
        steps.append((candidate, reached, threshold))
    return steps


def threshold_steps(step: int = 1, k: int = 4) -> Panel:
    """Ten numbers as bars; each step tests one bit of the threshold by counting the bars that reach a candidate.

    Args:
        step: Bits tested so far.
        k: How many numbers to keep.
    """
    figure = canvas(height=270)
    axes = figure.add_axes((0.05, 0.14, 0.6, 0.8))
    axes.set(xlim=(-0.6, len(KEYS) - 0.4), ylim=(0, 16.4), yticks=(0, 4, 8, 12, 16))
    axes.set_xticks(range(len(KEYS)), KEYS, fontsize=9)
    axes.tick_params(axis="y", labelsize=9)
    axes.tick_params(axis="x", length=0)
    axes.spines[["top", "right"]].set_visible(False)
    look = {"edgecolor": BLACK, "linewidth": 0.8}
    below, above = Boxes(axes, "white", **look), Boxes(axes, SKY, **look)
    kept = Boxes(axes, ORANGE, hatch="//", **look)
    (line,) = axes.plot([], [], "--", color=RED, linewidth=1.8, animated=True)
    side = figure.add_axes((0.68, 0.14, 0.31, 0.8))
    side.set(xlim=(0, 1), ylim=(len(BITS) + 1.5, -0.5))
    side.axis("off")
    words = {"fontsize": 9.5, "va": "center", "animated": True}
    lines = [side.text(0, at, "", **words) for at in range(len(BITS))]
    bits = side.text(0, len(BITS) + 0.6, "", weight="bold", **words)
    keys, at = np.array(KEYS), np.arange(len(KEYS)) - 0.38

    def draw(step, k):
        tested = search(k)[:step]
        candidate, reached, threshold = tested[-1] if tested else (0, len(KEYS), 0)
        last = step == len(BITS)
        level = threshold if last else candidate
        over = keys >= level
        below.place(at, 0, 0.76, keys * ~over)
        above.place(at, 0, 0.76, keys * over * (not last))
        kept.place(at, 0, 0.76, keys * over * last)
        line.set_data([-0.6, len(KEYS) - 0.4] if tested else [], [level - 0.5] * 2 if tested else [])
        for place, text in enumerate(lines):
            if place < step:
                tried, many, _ = tested[place]
                color = INK_RED if place == step - 1 else BLACK
                text.set(text=f"{many} reach {tried}: the bit is {int(many >= k)}", color=color)
            else:
                text.set_text("")
        bits.set_text(f"threshold {threshold:04b} = {threshold}")
        if not tested:
            return f"Nothing is tested yet: which {k} of the ten numbers are the largest?"
        answer = "so the bit is 1" if reached >= k else "so the bit is 0"
        count = f"{reached} of 10 reach {candidate}, {'at least' if reached >= k else 'fewer than'} {k}, {answer}."
        if not last:
            return f"{count} After {step} of 4 bits the threshold is {threshold}."
        return f"{count} The threshold is {threshold}, and {over.sum()} numbers reach it: each sweep only counted."

    controls = {"step": whole("bits tested", 0, len(BITS), 1), "k": whole("k", 1, len(KEYS), 4)}
    return Panel("A threshold, bit by bit", figure, controls, draw).set(step=step, k=k)
