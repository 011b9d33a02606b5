"""The attention row panel: one row of attention over two tiles of keys, with l and out rescaled, a step each."""

from matplotlib.patches import Rectangle

from kernels.attention.models import (
    KEYS_PER_TILE,
    NO_RESCALE,
    RIGHT,
    ROW_LOOPS,
    ROW_PARTS,
    SCORE_ROWS,
    VALUES,
    RowState,
    row_output,
    row_states,
)
from widgets.toolkit.panel import BLACK, BLUE, GREEN, INK_RED, ORANGE, SKY, WIDTH, Example, Panel, canvas, menu, whole

EXAMPLE = Example(entry="2", text="Tile 1 of 2, rescale", arguments={"step": 5})

TILES = len(VALUES) // KEYS_PER_TILE
STEPS = len(ROW_PARTS) * TILES + 1  # and the division at the end
_HEIGHT, _MOST, _LONGEST = 356, 6.0, 250  # CSS pixels; the longest bar: its number, its pixels
_HBM, _CHIP, _DARK_GREEN = "#eeeeee", "#e3f1fa", "#00694d"


def attention_row(step: int = 1, scores: str = next(iter(SCORE_ROWS)), loop: str = RIGHT) -> Panel:
    """One query against four keys in two tiles: running max m, running sum l and output accumulator out, step by step.

    Args:
        step: From 1 to STEPS.
        scores: One of SCORE_ROWS.
        loop: One of ROW_LOOPS, the second of which does not rescale out.
    """
    if not isinstance(step, int) or not 1 <= step <= STEPS:
        raise ValueError(f"step: got {step!r}, expected a whole number from 1 to {STEPS}")
    picture = _Picture()
    controls = {
        "step": whole("step", 1, STEPS, 1),
        "scores": menu("scores", SCORE_ROWS, next(iter(SCORE_ROWS))),
        "loop": menu("loop", ROW_LOOPS, RIGHT),
    }

    def draw(step, scores, loop):
        states = row_states(SCORE_ROWS[scores], loop=loop)
        before = states[step - 2] if step > 1 else None
        tile, part = divmod(step - 1, len(ROW_PARTS))
        words = _alt(SCORE_ROWS[scores], states[step - 1], before, tile, part, loop)
        picture.show(SCORE_ROWS[scores], states[step - 1], before, tile, part, loop)
        return words

    return Panel("One row, two tiles of keys", picture.figure, controls, draw).set(step=step, scores=scores, loop=loop)


def _words(value: float) -> str:
    return "−inf" if value == float("-inf") else f"{value:.4g}".replace("-", "−")


def _out(state: RowState) -> str:
    return "(" + ", ".join(map(_words, state.out)) + ")"


def _alt(scores: tuple, state: RowState, before: RowState, tile: int, part: int, loop: str) -> str:
    if tile == TILES:
        right = row_output(scores)
        same = all(abs(x - y) < 1e-9 for x, y in zip(state.out, right))
        verdict = "the same" if same else "so the loop is wrong"
        expected = "(" + ", ".join(map(_words, right)) + ")"
        return (
            f"The end: out is divided by l. {_out(before)} / {_words(before.running_sum)} = {_out(state)}, which is "
            f"written to HBM. Softmax over all four scores at once gives {expected}, {verdict}."
        )
    alt = f"Tile {tile + 1} of {TILES}, {ROW_PARTS[part]}: "
    if part == 0:
        own = scores[tile * KEYS_PER_TILE : (tile + 1) * KEYS_PER_TILE]
        moved = f"m rises from {_words(state.old_max)} to {_words(state.running_max)}"
        kept = f"m stays {_words(state.running_max)}"
        return (
            alt
            + f"the scores {', '.join(map(_words, own))} come, and "
            + (f"{moved if state.running_max > state.old_max else kept}. l and out still count from the old m.")
        )
    if part == 1:
        if tile == 0:
            return alt + "l and out are still 0, so there is nothing to rescale."
        what = "l is" if loop == NO_RESCALE else "l and out are"
        return alt + (
            f"{what} multiplied by 2^({_words(state.old_max)} − {_words(state.running_max)}) = "
            f"{_words(state.correction)}. Now l = {_words(state.running_sum)} and out = {_out(state)}."
        )
    return alt + (
        f"the weights are {' and '.join(map(_words, state.weights))}. With them l = {_words(state.running_sum)} and "
        f"out = {_out(state)}."
    )


class _Picture:
    """HBM at the left with keys, values and the row of out; at the right what stays on chip: m, l and out as bars."""

    def __init__(self):
        self.figure = canvas(height=_HEIGHT)
        axes = self.axes = self.figure.add_axes((0, 0, 1, 1))
        axes.set(xlim=(0, WIDTH), ylim=(_HEIGHT, 0))
        axes.axis("off")
        for x, wide, colour, name in ((6, 246, _HBM, "HBM"), (276, 478, _CHIP, "on chip: one row of one program")):
            axes.add_patch(Rectangle((x, 6), wide, _HEIGHT - 12, facecolor=colour, edgecolor="none"))
            axes.text(x + 10, 22, name, fontsize=9.5, weight="bold", va="center")
        look = {"animated": True, "zorder": 3}
        self.keys, self.values = [], []
        for at, value in enumerate(VALUES):
            y = 66 + 46 * at + 16 * (at // KEYS_PER_TILE)
            for x, wide, boxes in ((20, 92, self.keys), (132, 104, self.values)):
                box = Rectangle((x, y), wide, 38, edgecolor=BLACK, linewidth=0.8, animated=True, zorder=2)
                boxes.append(axes.add_patch(box))
            axes.text(66, y + 19, f"key {at + 1}", fontsize=9.5, ha="center", va="center", **look)
            said = ", ".join(f"{x:g}" for x in value)
            axes.text(184, y + 19, f"value {at + 1}: ({said})", fontsize=9, ha="center", va="center", **look)
        self.tiles = [
            axes.text(128, 57 + 108 * n, f"tile {n + 1}", fontsize=9, ha="center", va="center", **look)
            for n in range(TILES)
        ]
        axes.text(20, 320, "row of out", fontsize=9.5, va="center", **look)
        self.store = axes.add_patch(
            Rectangle((132, 301), 104, 38, edgecolor=BLACK, linewidth=0.8, animated=True, zorder=2)
        )
        self.stored = axes.text(184, 320, "", fontsize=9, ha="center", va="center", **look)
        self.score_boxes, self.score_words, self.weight_words = [], [], []
        axes.text(290, 70, "scores", fontsize=9.5, va="center", **look)
        axes.text(290, 112, "weights", fontsize=9.5, va="center", **look)
        for at in range(KEYS_PER_TILE):
            for y, words in ((52, self.score_words), (94, self.weight_words)):
                box = Rectangle((360 + 76 * at, y), 70, 34, edgecolor=BLACK, linewidth=0.8, animated=True, zorder=2)
                self.score_boxes.append(axes.add_patch(box))
                words.append(axes.text(395 + 76 * at, y + 18, "", fontsize=10, ha="center", va="center", **look))
        self.max_words = axes.text(540, 70, "", fontsize=11, color=INK_RED, va="center", **look)
        self.correction = axes.text(540, 112, "", fontsize=10, color=INK_RED, va="center", **look)
        self.bars, self.ghosts, self.numbers = [], [], []
        for at, name in enumerate(("l", *(f"out[{n}]" for n in range(len(VALUES[0]))))):
            y = 170 + 56 * at
            axes.text(290, y, name, fontsize=11, va="center", **look)
            axes.plot([346, 346], [y - 20, y + 20], color="#888888", linewidth=1)
            ghost = Rectangle((346, y - 15), 0, 30, facecolor="none", edgecolor="#777777", linestyle="--", **look)
            old = Rectangle((346, y - 15), 0, 30, facecolor=SKY, edgecolor="white", animated=True, zorder=2)
            new = Rectangle((346, y - 15), 0, 30, facecolor=ORANGE, edgecolor="white", hatch="//", **look)
            self.ghosts.append(axes.add_patch(ghost))
            self.bars.append((axes.add_patch(old), axes.add_patch(new)))
            self.numbers.append(axes.text(0, y, "", fontsize=10, va="center", **look))
        self.foot = axes.text(290, 336, "", fontsize=9.5, va="center", **look)

    def show(self, scores: tuple, state: RowState, before: RowState, tile: int, part: int, loop: str):
        end = tile == TILES
        for at, (key, value) in enumerate(zip(self.keys, self.values)):
            now = at // KEYS_PER_TILE == tile
            key.set_facecolor(ORANGE if now and part == 0 else "white")
            value.set_facecolor(ORANGE if now and part == 2 else "white")
        self.store.set_facecolor(GREEN if end else "white")
        self.stored.set_text(_out(state) if end else "")
        own = scores[tile * KEYS_PER_TILE : (tile + 1) * KEYS_PER_TILE] if not end else ()
        for at in range(KEYS_PER_TILE):
            self.score_words[at].set_text(_words(own[at]) if own else "")
            self.weight_words[at].set_text(_words(state.weights[at]) if own and part == 2 else "")
        for at, box in enumerate(self.score_boxes):
            box.set_facecolor("white" if end or (at % 2 and part < 2) else SKY)
        self.max_words.set_text(f"m = {_words(state.running_max)}")
        self.correction.set_text(f"correction = {_words(state.correction)}" if tile and not end else "")
        scale = _LONGEST / _MOST
        then = (before.running_sum, *before.out) if before else (0.0,) * len(self.bars)
        for at, (now, old) in enumerate(zip((state.running_sum, *state.out), then)):
            y = 170 + 56 * at
            kept = min(now, old) if part == 2 and not end else now
            self.bars[at][0].set_width(kept * scale)
            self.bars[at][1].set_x(346 + kept * scale)
            self.bars[at][1].set_width((now - kept) * scale)
            shrunk = (part == 1 or end) and old > now
            self.ghosts[at].set_width(old * scale if shrunk else 0)
            words = f"{_words(old)} × {_words(state.correction)} = {_words(now)}" if shrunk and not end else _words(now)
            if end and at:
                words = f"{_words(old)} / {_words(before.running_sum)} = {_words(now)}"
            self.numbers[at].set_text(words)
            self.numbers[at].set_position((352 + max(now, old if shrunk else 0) * scale, y))
        self.foot.set_text(
            "dashed: before the division"
            if end
            else "dashed: before the rescale"
            if part == 1 and tile
            else "hatched: added by this tile"
            if part == 2
            else ""
        )
        wrong = end and any(abs(x - y) > 1e-9 for x, y in zip(state.out, row_output(scores)))
        self.foot.set_color(INK_RED if wrong else _DARK_GREEN if end else BLUE)
        if end:
            right = "(" + ", ".join(map(_words, row_output(scores))) + ")"
            self.foot.set_text(f"all four at once: {right}" + (", so this loop is wrong" if wrong else ", the same"))
