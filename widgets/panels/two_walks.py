"""The panel of two walks: a row read twice, tile by tile, through an L1 that evicts the least recently used tile."""

from matplotlib.patches import Rectangle

from kernels.norms.models import BACKWARDS, FORWARDS, TILE_KIB, read_twice
from widgets.toolkit.panel import BLACK, BLUE, GREEN, ORANGE, Example, Panel, canvas, menu, whole

EXAMPLE = Example(entry="17", text="Step 17 of 32: the second read", arguments={"step": 10})

ROWS_KIB = (16, 32, 64, 128)
MOST_KIB = 128
_FIRST, _SECOND, _L1 = 3.1, 0.0, 1.5  # bottoms of the three strips
#: How a tile looks, by whether its read hit L1; None: not read yet.
_LOOKS = {
    None: {"facecolor": "white", "hatch": ""},
    True: {"facecolor": GREEN, "hatch": "//"},
    False: {"facecolor": ORANGE, "hatch": ""},
}
_L2_INK, _L1_INK = "#8a5f00", "#00694d"  # orange and green, for words


def two_walks(row_kib: int = 64, l1_kib: int = 32, order: str = BACKWARDS, step: int | None = None) -> Panel:
    """A row read twice in tiles of 4 KiB: what the second read hits in L1.

    Args:
        row_kib: One of ROWS_KIB.
        l1_kib: What L1 has for this row, from 4 to 128 in steps of 4.
        order: Of the second read, FORWARDS or BACKWARDS.
        step: The one to open at, from 1; the last by default.
    """
    if not isinstance(l1_kib, int) or l1_kib % TILE_KIB or not TILE_KIB <= l1_kib <= MOST_KIB:
        raise ValueError(f"l1_kib: got {l1_kib!r}, expected a multiple of {TILE_KIB} from {TILE_KIB} to {MOST_KIB}")
    picture = _Picture()
    controls = {
        "step": whole("step", 1, 2 * MOST_KIB // TILE_KIB, 1),
        "order": menu("2nd read", (FORWARDS, BACKWARDS), BACKWARDS),
        "row_kib": menu("row, KiB", ROWS_KIB, 64),
        "l1_kib": whole("L1 for it, KiB", TILE_KIB, MOST_KIB, 32),
    }
    controls["l1_kib"].step = TILE_KIB

    def limit(_change=None):  # before the panel hears of the change: observers are called in their order
        controls["step"].max = 2 * controls["row_kib"].value // TILE_KIB

    controls["row_kib"].observe(limit, names="value")
    limit()

    def draw(step, order, row_kib, l1_kib):
        step = min(step, 2 * row_kib // TILE_KIB)
        tiles, room = row_kib // TILE_KIB, l1_kib // TILE_KIB
        reads = read_twice(tiles, room, order)
        picture.show(reads, step, tiles, room, order)
        tile, hit, _ = reads[step - 1]
        which = "first" if step <= tiles else "second"
        text = f"Step {step} of {2 * tiles}: the {which} read takes tile {tile + 1} of {tiles}"
        text += ", an L1 hit. " if hit else ", an L1 miss: L2 delivers it. "
        hits = sum(hit for _, hit, _ in reads)
        return text + (
            f"A row of {row_kib} KiB, an L1 with {l1_kib} KiB for it. {order.capitalize()}, the second read hits L1 "
            f"for {hits} of {tiles} tiles and requests {tiles - hits} from L2, "
            f"if L1 evicts the least recently used tile."
        )

    panel = Panel("Two walks over a row", picture.figure, controls, draw)
    panel.set(row_kib=row_kib, l1_kib=l1_kib, order=order)
    last = controls["step"].max
    if step is not None and not (isinstance(step, int) and 1 <= step <= last):
        raise ValueError(f"step: got {step!r}, expected a whole number from 1 to {last}")
    return panel.set(step=last if step is None else step)


class _Picture:
    """Three strips of tiles: the row as it is read first, what L1 holds, and the row as it is read again."""

    def __init__(self):
        self.figure = canvas(height=290)
        self.axes = axes = self.figure.add_axes((0.005, 0.01, 0.99, 0.98))
        self.most = max(ROWS_KIB) // TILE_KIB
        axes.set(xlim=(-0.2, self.most + 0.2), ylim=(-0.5, 4.25))
        axes.axis("off")
        for bottom, words in ((_FIRST, "first read, for the sum of squares"), (_L1, "in L1, oldest first")):
            axes.text(0, bottom + 0.78, words, fontsize=9.5, weight="bold", va="bottom")
        self.second = axes.text(0, _SECOND + 0.78, "", fontsize=9.5, weight="bold", va="bottom")
        for at, (words, colour) in enumerate((("from L2", _L2_INK), ("L1 hit", _L1_INK), ("not yet", "#666666"))):
            axes.text(self.most - 10.5 + 4 * at, _FIRST + 0.78, words, fontsize=9.5, color=colour, va="bottom")
            patch = Rectangle((self.most - 11.4 + 4 * at, _FIRST + 0.8), 0.7, 0.24, edgecolor="#555555", linewidth=1)
            axes.add_patch(patch).set(**_LOOKS[(False, True, None)[at]])
        self.strips = {bottom: [self._tile(i, bottom) for i in range(self.most)] for bottom in (_FIRST, _L1, _SECOND)}
        self.numbers = {  # under a row's tiles; they change with the row alone, so most redraws leave them as they are
            bottom: [self._text(i, bottom - 0.08, str(i + 1), va="top") for i in range(self.most)]
            for bottom in (_FIRST, _SECOND)
        }
        self.held = [self._text(i, _L1 + 0.33, "", va="center", animated=True) for i in range(self.most)]
        (self.room,) = axes.plot([], [], color=BLACK, linewidth=2, animated=True)
        self.here = Rectangle((0, 0), 0.92, 0.7, fill=False, edgecolor=BLUE, linewidth=3.5, animated=True)
        axes.add_patch(self.here)

    def _tile(self, at: int, bottom: float) -> Rectangle:
        patch = Rectangle((at + 0.04, bottom), 0.92, 0.7, edgecolor="#555555", linewidth=1, animated=True)
        return self.axes.add_patch(patch)

    def _text(self, at: int, y: float, words: str, **look):
        return self.axes.text(at + 0.5, y, words, fontsize=8, ha="center", **look)

    def show(self, reads: list, step: int, tiles: int, room: int, order: str):
        arrow = "\N{RIGHTWARDS ARROW}" if order == FORWARDS else "\N{LEFTWARDS ARROW}"
        words = f"second read, for the scaling, {order} {arrow}"
        if self.second.get_text() != words:
            self.second.set_text(words)
        done = {(at < tiles, tile): hit for at, (tile, hit, _) in enumerate(reads[:step])}
        for bottom, first in ((_FIRST, True), (_SECOND, False)):
            for tile, (patch, number) in enumerate(zip(self.strips[bottom], self.numbers[bottom])):
                hit = done.get((first, tile))
                patch.set_visible(tile < tiles)
                patch.set(**_LOOKS[hit])
                if number.get_visible() != (tile < tiles):
                    number.set_visible(tile < tiles)
        held = reads[step - 1][2]
        for place, (patch, number) in enumerate(zip(self.strips[_L1], self.held)):
            patch.set_visible(place < room)
            patch.set_facecolor("#cfe8df" if place < len(held) else "white")
            number.set_text(str(held[place] + 1) if place < len(held) else "")
        self.room.set_data([room] * 2, [_L1 - 0.14, _L1 + 0.74])
        self.here.set_xy((reads[step - 1][0] + 0.04, _FIRST if step <= tiles else _SECOND))
