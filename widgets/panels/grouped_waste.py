"""The panel of the padding of grouped matmuls: rows that pad the last tile of every group, or a batch padded to the
largest group, and whether they cost time."""

import numpy as np
import torch

from instruments.gpus import GPU, GPUS
from kernels.grouped_matmul.forward import grouped_matmul_traffic
from kernels.moe import routing
from widgets.toolkit.boxes import Boxes
from widgets.toolkit.panel import BLUE, GREEN, ORANGE, Example, Panel, Powers, canvas, menu
from widgets.toolkit.routing import routing_controls
from widgets.toolkit.words import number, time

EXAMPLE = Example(entry="4096", text="4,096 tokens", arguments={"tokens": 64})

#: Of an expert's matrix, K x N: Mixtral 8x7B's gate, DeepSeek-V2-Lite's and DeepSeek-V3's.
SHAPES = {"4096 x 14336": (4096, 14336), "2048 x 1408": (2048, 1408), "7168 x 2048": (7168, 2048)}
CARDS = [name for name, gpu in GPUS.items() if "bf16" in gpu.matrix]
EXACT, TILES, PADDED = "each row once", "in tiles", "padded"


def in_tiles(counts: np.ndarray, tile: int) -> np.ndarray:
    """Rows of whole tiles that hold so many rows."""
    return -(-counts // tile) * tile


def works(counts: np.ndarray, tile: int, shape: tuple[int, int]) -> dict:
    """{way: (rows multiplied, Traffic of the bytes, Traffic of the FLOPs)} of groups of so many rows, in bf16.

    A tile's rows beyond its group are multiplied, not loaded; those that pad a batch are both.
    """
    sizes, rows = (*shape, torch.bfloat16), counts.tolist()
    tiles = in_tiles(counts, tile)
    least, whole_tiles = grouped_matmul_traffic(rows, *sizes), grouped_matmul_traffic(tiles.tolist(), *sizes)
    padded = [grouped_matmul_traffic(each, *sizes, path="padded") for each in (rows, tiles.tolist())]
    return {
        EXACT: (int(counts.sum()), least, least),
        TILES: (int(tiles.sum()), least, whole_tiles),
        PADDED: (len(counts) * int(tiles.max()), *padded),
    }


def grouped_waste(
    tokens: int = 8192,
    experts: int = 64,
    top_k: int = 6,
    skew: float = 0.5,
    tile: int = 128,
    shape: str = "2048 x 1408",
    gpu: str = "H200",
) -> Panel:
    """A grouped matmul whose rows kernels/moe/routing.py draws at random: rows multiplied, and the lower bound on time.

    Args:
        tokens: 1 to 8,192.
        experts: 8 to 256, a power of two.
        top_k: 1 to 8.
        skew: 0 to 2, the power by which popularity falls.
        tile: Rows of a tile, 16 to 256, a power of two.
        shape: One of SHAPES.
        gpu: One of CARDS.
    """
    picture = _Picture()

    def draw(tokens, experts, top_k, skew, tile, shape, gpu):
        tokens, experts, tile, card = round(tokens), round(experts), round(tile), GPUS[gpu]
        counts = routing.counts(tokens, experts, top_k, skew)
        ways = works(counts, tile, SHAPES[shape])
        bounds = {
            way: (nbytes.memory_seconds(card), flops.compute_seconds(card, "bf16"))
            for way, (_, nbytes, flops) in ways.items()
        }
        rows = {way: count for way, (count, *_) in ways.items()}
        picture.show(counts, in_tiles(counts, tile), rows, bounds)
        return _alt(tokens, top_k, counts, tile, rows, bounds, card)

    controls = {
        **routing_controls(tokens, experts, top_k, skew),
        "tile": Powers("rows of a tile", 4, 8, tile, alone=True),
        "shape": menu("K x N", SHAPES, "2048 x 1408"),
        "gpu": menu("GPU", CARDS, "H200"),
    }
    return Panel("Padding in grouped matmuls", picture.figure, controls, draw).set(shape=shape, gpu=gpu)


def _alt(tokens: int, top_k: int, counts, tile: int, rows: dict, bounds: dict, card: GPU) -> str:
    exact, idle = rows[EXACT], int((counts == 0).sum())
    most = {way: max(both) for way, both in bounds.items()}
    bound = {way: "bytes" if both[0] > both[1] else "FLOPs" for way, both in bounds.items()}
    alt = (
        f"{tokens:,} token{'s' * (tokens > 1)}, {top_k} of {len(counts)} experts each: {exact:,} "
        f"row{'s' * (exact > 1)}, the largest group {counts.max():,}, {idle or 'none'} empty. "
        f"Tiles of {tile} multiply {rows[TILES]:,} rows, {_per(rows[TILES], exact)}; a batch padded to the largest "
        f"group, in the same tiles, {rows[PADDED]:,}, {_per(rows[PADDED], exact)}. On the {card.name} at least "
    )
    alt += f"{time(most[TILES])} in tiles, bound by {bound[TILES]}, and {time(most[PADDED])} padded, by {bound[PADDED]}"
    if most[TILES] == most[EXACT]:
        return alt + ". The padding of tiles costs no time."
    return alt + f"; without padding {time(most[EXACT])}."


def _per(rows: int, exact: int) -> str:
    """Rows multiplied per row, in words."""
    return f"{number(rows / exact, digits=3)} per row"


class _Picture:
    """Left, a column for each expert: its rows, what its tiles add, and what padding adds. Right, rows multiplied for
    each row, and the lower bounds on time of bytes and FLOPs; of each of the two, the longest bar fills the width."""

    def __init__(self):
        self.figure = canvas(height=340)
        left = self.figure.add_axes((0.045, 0.13, 0.43, 0.7))
        left.set(xlim=(0, 1), ylim=(0, 1), xticks=[])
        left.set_yticks([0, 0.5, 1], ["0", "½", "1"], fontsize=9)
        left.spines[["top", "right"]].set_visible(False)
        self.figure.text(
            0.005, 0.945, "rows multiplied by expert; 1 is the most", fontsize=9.5, weight="bold", va="center"
        )
        for x, words, colour in (
            (0.045, "■ rows", "#00694d"),
            (0.16, "■ end of a tile", "#8a5f00"),
            (0.3, "■ padding", "#8a8a8a"),
        ):
            self.figure.text(x, 0.88, words, fontsize=9, color=colour, va="center")
        self.figure.text(0.27, 0.055, "experts, in order", fontsize=9, ha="center")
        self.padding = Boxes(left, "#e3e3e3")
        self.ends = Boxes(left, ORANGE)
        self.exact = Boxes(left, GREEN)
        rows = self.figure.add_axes((0.635, 0.68, 0.355, 0.15))
        rows.set(xlim=(0, 1.2), ylim=(1.6, -0.6))
        self.figure.text(0.51, 0.945, "rows multiplied per row", fontsize=9.5, weight="bold", va="center")
        times = self.figure.add_axes((0.635, 0.13, 0.18, 0.37))
        times.set(xlim=(0, 1), ylim=(2.6, -0.6))
        for axes in (rows, times):
            axes.axis("off")
            axes.axvline(0, color="#888888", linewidth=1)
        self.figure.text(0.51, 0.555, "lower bound on time", fontsize=9.5, weight="bold", va="center")
        self.figure.text(0.905, 0.555, "■ bytes", fontsize=9, color=BLUE, ha="right", va="center")
        self.figure.text(0.995, 0.555, "■ FLOPs", fontsize=9, color="#8a5f00", ha="right", va="center")
        look = {"fontsize": 9, "va": "center"}
        self.rows, self.times = {}, {}
        for at, (way, colour) in enumerate(((TILES, ORANGE), (PADDED, "#c9c9c9"))):
            self.figure.text(0.627, 0.83 - 0.15 * (at + 0.6) / 2.2, way, ha="right", **look)
            self.rows[way] = Boxes(rows, colour), rows.text(1, at, "", animated=True, **look)
        for at, way in enumerate((EXACT, TILES, PADDED)):
            y = 0.5 - 0.37 * (at + 0.6) / 3.2
            self.figure.text(0.627, y, way, ha="right", **look)
            bars = [Boxes(times, colour) for colour in (BLUE, ORANGE)]
            words = [self.figure.text(x, y, "", ha="right", animated=True, **look) for x in (0.905, 0.995)]
            self.times[way] = bars, words

    def show(self, counts, tiles, rows: dict, bounds: dict):
        """counts, tiles: rows of each expert, as they are and in whole tiles. rows: multiplied, by way. bounds: seconds
        of bytes and of FLOPs, by way."""
        experts, most = len(counts), tiles.max()
        left, width = np.arange(experts) / experts, (1 if experts > 128 else 0.86) / experts
        self.exact.place(left, 0, width, counts / most)
        self.ends.place(left, counts / most, width, (tiles - counts) / most)
        self.padding.place(left, tiles / most, width, 1 - tiles / most)
        largest = max(rows.values())
        for at, (way, (bar, words)) in enumerate(self.rows.items()):
            bar.place(0, at - 0.35, rows[way] / largest, 0.7)
            words.set(text=number(rows[way] / rows[EXACT], digits=3), x=rows[way] / largest + 0.02)
        slowest = max(max(both) for both in bounds.values())
        for at, (way, (bars, texts)) in enumerate(self.times.items()):
            for below, (bar, text, seconds) in enumerate(zip(bars, texts, bounds[way])):
                bar.place(0, at - 0.36 + 0.37 * below, seconds / slowest, 0.34)
                text.set_text(time(seconds))
