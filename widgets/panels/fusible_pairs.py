"""The panel of fusible pairs: what a program of one op holds of a tensor, and what a program of the next op needs."""

from dataclasses import dataclass

from matplotlib.patches import Rectangle

from widgets.toolkit.boxes import Boxes
from widgets.toolkit.panel import BLACK, INK_RED, ORANGE, SKY, WIDTH, Example, Panel, canvas, whole

EXAMPLE = Example(entry="6", text="Pair 6 of 7", arguments={"step": 1})

CELLS = 8  # of a tensor, each way
FUSE, CAREFUL, APART = "fuses", "fuses, at a price", "stays apart"


@dataclass(frozen=True)
class Pair:
    """Two ops in a row. Regions are (first row, first column, rows, columns) of the tensor between them, in cells.

    Attributes:
        producer, consumer: the ops, with an example.
        holds: what one program of the producer holds when it is done.
        needs: what one program of the consumer needs.
        verdict: FUSE, CAREFUL or APART.
        why: one sentence.
        wide: columns of the tensor between them, in cells.
        sharers: how many programs of the consumer need the same region.
        again: a tensor from before the producer whose same rows the consumer needs, too; '' if there is none.
        short: both ops in a few words, for pictures that show all pairs.
    """

    producer: str
    consumer: str
    holds: tuple
    needs: tuple
    verdict: str
    why: str
    wide: int = CELLS
    sharers: str = "1 program needs this region"
    again: str = ""
    short: str = ""


TILE, ROWS, COLUMNS = (2, 4, 2, 4), (2, 0, 2, CELLS), (0, 4, CELLS, 2)
PAIRS = (
    Pair(
        "elementwise: silu", "elementwise: * up", TILE, TILE, FUSE, "The same tile, element by element.",
        short="silu, * up",
    ),
    Pair(
        "elementwise: h * h", "reduction: mean of a row", ROWS, ROWS, FUSE, "The sum is taken as the row is computed.",
        short="h * h, mean",
    ),
    Pair(
        "reduction: scale of a row", "elementwise: h * scale", (2, 0, 2, 1), (2, 0, 2, 1), CAREFUL,
        "The scale is at hand, but h is needed again: keep the row on chip, or read it twice.", wide=1,
        sharers="1 program needs its scales (left) and rows of h", again="h", short="scale, h * scale",
    ),
    Pair(
        "matmul: x @ gate weight", "elementwise: silu", TILE, TILE, CAREFUL,
        "An epilogue: silu acts on the tile in the accumulator. Its values need registers beside it.",
        short="matmul, silu",
    ),
    Pair(
        "norm: whole rows", "matmul: h @ gate weight", ROWS, ROWS, APART,
        "Each of 112 programs would repeat the norm of these rows: too dear for 4,096 tokens, cheap for one.",
        sharers="112 programs need this region", short="norm, matmul",
    ),
    Pair(
        "reduction along rows", "reduction along columns", ROWS, COLUMNS, APART,
        "The needed columns are spread over the programs of all rows.",
        short="rows, columns",
    ),
    Pair(
        "matmul: scores of one tile", "softmax: whole rows of scores", TILE, ROWS, APART,
        "Not as written. A new algorithm, the online softmax, needs only a tile at a time (lessons 06 and 08).",
        short="scores, softmax",
    ),
)  # fmt: skip
_SIDE, _TOP = 168, 66  # CSS pixels: of a tensor, and where it begins


def fusible_pairs(step: int = 1) -> Panel:
    """Pairs of ops, and whether they fuse.

    Args:
        step: the pair to open at, 1 to 7.
    """
    figure = canvas(height=316)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, WIDTH), ylim=(316, 0))
    axes.axis("off")
    lefts = (90, 90 + _SIDE + 230)
    big = {"fontsize": 10.5, "weight": "bold", "va": "center", "ha": "center", "animated": True}
    small = {"fontsize": 9.5, "va": "center", "ha": "center", "animated": True}
    names = [axes.text(left + _SIDE / 2, 18, "", **big) for left in lefts]
    for left, words in zip(lefts, ("one program of this op holds", "one program of this op needs")):
        axes.text(left + _SIDE / 2, 40, words, fontsize=9.5, va="center", ha="center")
    sharers = axes.text(lefts[1] + _SIDE / 2, _TOP + _SIDE + 14, "", **small)
    grids = [Boxes(axes, "white", edgecolor="#999999", linewidth=0.8) for _ in lefts]
    regions = [
        Boxes(axes, colour, edgecolor=BLACK, linewidth=0.8, hatch=hatch)
        for colour, hatch in ((SKY, ""), (ORANGE, "//"))
    ]
    outline = axes.add_patch(Rectangle((0, 0), 1, 1, fill=False, edgecolor=SKY, linewidth=3.5, animated=True))
    middle = sum(lefts) / 2 + _SIDE / 2
    axes.annotate(
        "", (lefts[1] - 18, 150), (lefts[0] + _SIDE + 18, 150), arrowprops={"arrowstyle": "-|>", "linewidth": 2}
    )
    axes.text(middle, 128, "the tensor in between", fontsize=9.5, ha="center", va="center")
    verdict = axes.text(middle, 178, "", **big)
    why = axes.text(WIDTH / 2, 276, "", **small)
    axes.text(
        WIDTH / 2,
        300,
        "blue outline, right: what the program on the left holds",
        fontsize=9,
        ha="center",
        va="center",
        color="#444444",
    )
    cell = _SIDE / CELLS

    def block(region):
        top, first, rows, columns = region
        return {(r, c) for r in range(top, top + rows) for c in range(first, first + columns)}

    def cover(boxes, left, at):
        rows, columns = zip(*sorted(at))
        boxes.place([left + c * cell for c in columns], [_TOP + r * cell for r in rows], cell, cell)

    def draw(step):
        pair = PAIRS[step - 1]
        for name, words in zip(names, (pair.producer, pair.consumer)):
            name.set_text(words)
        shift = 0 if pair.again else (CELLS - pair.wide) / 2 * cell
        row, _, rows, _ = pair.needs
        # The tensor that is needed again lies to the right of the one in between, with a gap of a cell.
        others = [block((at, 2, high, CELLS - 2)) if pair.again else set() for at, high in ((0, CELLS), (row, rows))]
        for grid, left, more in zip(grids, lefts, (set(), others[0])):
            cover(grid, left + shift, block((0, 0, CELLS, pair.wide)) | more)
        for boxes, left, region, more in zip(regions, lefts, (pair.holds, pair.needs), (set(), others[1])):
            cover(boxes, left + shift, block(region) | more)
        top, first, high, wide = pair.holds
        outline.set_bounds(lefts[1] + shift + first * cell, _TOP + top * cell, wide * cell, high * cell)
        verdict.set_text(pair.verdict)
        verdict.set_color({FUSE: "#006b4f", CAREFUL: "#8a5f00", APART: INK_RED}[pair.verdict])
        why.set_text(pair.why)
        sharers.set_text(pair.sharers)
        alt = f"Pair {step} of {len(PAIRS)}: {pair.producer}, then {pair.consumer}, {pair.verdict}. "
        return f"{alt}{pair.why} {pair.sharers}."

    return Panel("Which pairs of ops fuse", figure, {"step": whole("pair", 1, len(PAIRS), 1)}, draw).set(step=step)
