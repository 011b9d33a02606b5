"""The panel of split-K: SMs that a matmul's programs keep busy, and what its partial sums cost."""

import numpy as np

from instruments.backend import cdiv
from instruments.gpus import DTYPES, GPUS
from kernels.matmul import matmul_split_k_traffic, matmul_traffic
from widgets.toolkit.boxes import Boxes
from widgets.toolkit.panel import GREEN, ORANGE, SKY, Example, Panel, Powers, canvas, menu
from widgets.toolkit.words import number, size, time

EXAMPLE = Example(entry="16", text="16 x 64 x 65,536", arguments={"parts": 4})

#: (BLOCK_M, BLOCK_N), one program per SM.
TILES = {"16 x 64": (16, 64), "64 x 64": (64, 64), "128 x 128": (128, 128), "128 x 256": (128, 256)}
_MOST = 12  # waves that are drawn


def split_k_bytes(
    M: int = 64, N: int = 64, K: int = 65536, parts: int = 1, tile: str = "64 x 64", gpu: str = "H100"
) -> Panel:
    """A bf16 matmul whose K is split into equal parts, one program per SM at a time.

    Args:
        M: 1 to 65,536 rows of a.
        N: 64 to 32,768 columns of b.
        K: 128 to 131,072.
        parts: 1 to 128 programs per tile.
        tile: One of TILES.
        gpu: One of GPUS.
    """
    picture = _Picture()

    def draw(M, N, K, parts, tile, gpu):
        M, N, K, card, (m, n) = round(M), round(N), round(K), GPUS[gpu], TILES[tile]
        parts = min(round(parts), K)
        least = matmul_traffic(M, N, K, DTYPES["bf16"])
        split = matmul_split_k_traffic(M, N, K, DTYPES["bf16"], parts=parts)
        tiles = cdiv(M, m) * cdiv(N, n)
        programs, waves = tiles * parts, cdiv(tiles * parts, card.sms)
        unit = "bf16" if "bf16" in card.matrix else "fp16" if "fp16" in card.matrix else "vector"
        whole = least.compute_seconds(card, unit)
        padded = 2 * m * n * cdiv(K, parts) * waves * card.sms  # FLOPs that fit into these waves
        bounds = least.memory_seconds(card), split.memory_seconds(card), whole, whole * padded / least.flops
        picture.show(programs, card.sms, waves, bounds)
        extra = split.bytes - least.bytes
        return (
            f"{M:,} x {N:,} x {K:,}: {programs:,} program{'s' * (programs > 1)} in {waves:,} "
            f"wave{'s' * (waves > 1)} of {card.sms}, {programs / (waves * card.sms):.0%} of the slots are used. "
            f"Partial sums add {size(extra) if extra else 'no bytes'} with {parts} part{'s' * (parts > 1)}, "
            f"{number(100 * extra / least.bytes, digits=2)}% of the minimum of {size(least.bytes)}. Lower bounds on "
            f"the {gpu}: {time(bounds[0])} for the minimum, {time(bounds[1])} with partial sums, {time(bounds[2])} for "
            f"the FLOPs, {time(bounds[3])} for whole tiles in whole waves."
        )

    controls = {
        "M": Powers("M", 0, 16, M),
        "N": Powers("N", 6, 15, N),
        "K": Powers("K", 7, 17, K),
        "parts": Powers("parts", 0, 7, parts),
        "tile": menu("tile", TILES, "64 x 64"),
        "gpu": menu("GPU", GPUS, "H100"),
    }
    return Panel("Split-K: waves and bytes", picture.figure, controls, draw).set(tile=tile, gpu=gpu)


class _Picture:
    """Left, the SMs that each wave uses, on idle ones in gray; right, lower bounds on time. The largest bound fills the
    width, because bounds of all settings have no scale in common."""

    def __init__(self):
        self.figure = canvas(height=290)
        left = self.figure.add_axes((0.075, 0.17, 0.33, 0.66))
        left.set(xlim=(0, _MOST), ylim=(0, 1), xticks=[])
        left.set_yticks([0, 0.5, 1], ["0%", "50%", "100%"], fontsize=9)
        left.spines[["top", "right"]].set_visible(False)
        self.figure.text(0.005, 0.93, "SMs that each wave uses", fontsize=9.5, weight="bold")
        self.idle = Boxes(left, "#e6e6e6", edgecolor="white", linewidth=1)
        self.full = Boxes(left, GREEN, edgecolor="white", linewidth=1)
        self.last = Boxes(left, ORANGE, edgecolor="white", linewidth=1, hatch="//")
        self.words = left.text(0, -0.1, "", fontsize=9, va="center", clip_on=False, animated=True)
        right = self.figure.add_axes((0.655, 0.17, 0.325, 0.66))
        right.set(xlim=(0, 1.38), ylim=(3.6, -0.6))
        right.axis("off")
        right.axvline(0, color="#888888", linewidth=1)
        self.figure.text(0.47, 0.93, "lower bounds on time, datasheet", fontsize=9.5, weight="bold")
        self.bars, self.values = [], []
        rows = ("minimum bytes", "with partial sums", "FLOPs, on all SMs", "FLOPs, in whole waves")
        for row, (words, color, hatch) in enumerate(zip(rows, (SKY, SKY, ORANGE, ORANGE), ("", "", "//", "//"))):
            y = 1 - 0.17 - 0.66 * (row + 0.6) / 4.2
            self.figure.text(0.645, y, words, fontsize=9, ha="right", va="center")
            self.bars.append(Boxes(right, color, edgecolor="white", hatch=hatch, linewidth=0.6))
            self.values.append(right.text(1, row, "", fontsize=9, va="center", animated=True))

    def show(self, programs: int, slots: int, waves: int, bounds: tuple):
        """bounds: seconds, a bar each."""
        drawn = min(waves, _MOST)
        wide = _MOST / max(drawn, 3)
        at = np.arange(drawn) * wide + 0.08
        rest = (programs - (waves - 1) * slots) / slots
        self.idle.place(at, 0, wide - 0.16, np.ones(drawn))
        self.full.place(at[:-1], 0, wide - 0.16, np.ones(drawn - 1))
        self.last.place(at[-1:], 0, wide - 0.16, np.array([rest]))
        more = f" ({waves - _MOST:,} full ones not drawn)" if waves > _MOST else ""
        self.words.set_text(f"{waves:,} wave{'s' * (waves > 1)}, the last one uses {rest:.0%}{more}")
        for row, (bar, words, seconds) in enumerate(zip(self.bars, self.values, bounds)):
            share = seconds / max(bounds)
            bar.place(np.array([0]), row - 0.32, np.array([share]), 0.64)
            words.set(text=time(seconds), x=share + 0.03)
