"""The router load panel: how many rows each expert gets, what a capacity drops and leaves empty, and how long ranks
wait for the slowest of them."""

import numpy as np

from kernels.moe import routing
from kernels.moe.permute import expert_capacity
from widgets.toolkit.boxes import Boxes
from widgets.toolkit.panel import BLACK, BLUE, INK_RED, RED, SKY, Example, Panel, canvas, menu
from widgets.toolkit.routing import routing_controls
from widgets.toolkit.words import number

GREY = "#555555"

EXAMPLE = Example(entry="4096", text="4,096 tokens", arguments={"tokens": 64})

#: name: capacity of an expert as a multiple of the mean; None: every row is computed
CAPACITIES = {"none, all kept": None, "1": 1.0, "1.25": 1.25, "1.5": 1.5, "2": 2.0, "4": 4.0}
RANKS = (1, 2, 4, 8)
TOPS = [2 << power for power in range(9)]  # times the mean: where the axis may end


def router_load(
    tokens: int = 8192,
    experts: int = 8,
    top_k: int = 2,
    skew: float = 0.5,
    capacity: str = "none, all kept",
    ranks: int = 4,
) -> Panel:
    """Rows by expert and dropped ones, and the ranks' idle time, or, with one rank, what a capacity drops and leaves
    empty; kernels/moe/routing.py draws the tokens' experts at random.

    Args:
        tokens: 1 to 8,192.
        experts: 8 to 256, a power of two, in order over the ranks.
        top_k: 1 to 8.
        skew: 0 to 2, the power by which popularity falls.
        capacity: One of CAPACITIES, times the mean.
        ranks: One of RANKS.
    """
    picture = _Picture()

    def draw(tokens, experts, top_k, skew, capacity, ranks):
        tokens, experts, factor = round(tokens), round(experts), CAPACITIES[capacity]
        rows = routing.counts(tokens, experts, top_k, skew)
        slots = tokens * top_k
        room = None if factor is None else expert_capacity(tokens, top_k, experts, factor)
        within = rows if room is None else np.minimum(rows, room)
        loads = within.reshape(ranks, -1).sum(1)
        picture.show(rows / (slots / experts), within / (slots / experts), factor and room / (slots / experts), loads)
        return _alt(tokens, top_k, rows, within, room, loads)

    controls = {
        **routing_controls(tokens, experts, top_k, skew),
        "capacity": menu("capacity", CAPACITIES, "none, all kept"),
        "ranks": menu("ranks", RANKS, 4),
    }
    return Panel("Router load", picture.figure, controls, draw).set(capacity=capacity, ranks=ranks)


def _alt(tokens: int, top_k: int, rows, within, room: int | None, loads) -> str:
    experts, slots, idle = len(rows), tokens * top_k, int((rows == 0).sum())
    alt = f"{tokens:,} token{'s' * (tokens > 1)}, {top_k} of {experts} experts each: {_rows(slots)}, "
    if rows.max() == rows.min():
        alt += f"{rows[0]:,} for each expert. "
    else:
        alt += f"{number(slots / experts, digits=3)} an expert on average. Expert {rows.argmax()} gets most, "
        alt += f"{rows.max():,}, {_above(rows)}; "
        alt += f"{idle} of {experts} get none. " if idle else f"the fewest are {rows.min():,}. "
    if room is not None:
        dropped = int((rows - within).sum())
        lost = f"{_rows(dropped)} ({dropped / slots:.1%})" if dropped else "none"
        unused = 1 - within.sum() / (room * experts)
        alt += f"Capacity for {_rows(room)} each drops {lost} and leaves {unused:.0%} of the buffers empty. "
    if len(loads) == 1:
        return alt + f"One rank computes {_rows(loads[0])}."
    if loads.max() == loads.min():
        return alt + f"Each of {len(loads)} ranks has {_rows(loads[0])}: none waits for another."
    return alt + (
        f"Of {len(loads)} ranks rank {loads.argmax()} has most, {_rows(loads.max())}, {_above(loads)}: until it is "
        f"done, the ranks are idle {_idle(loads)} of the time."
    )


def _idle(loads) -> str:
    """The share of the slowest rank's time in which unequal ranks are idle."""
    share = f"{1 - loads.mean() / loads.max():.0%}"
    return "less than 1%" if share == "0%" else share


def _above(counts) -> str:
    """How far the largest of unequal counts is above their mean."""
    alt = number(counts.max() / counts.mean(), digits=3)
    return "hardly more than the mean" if alt == "1" else f"{alt} times the mean"


def _rows(count: int) -> str:
    return f"{count:,} row" + ("s" if count != 1 else "")


class _Picture:
    """Left, a bar for each expert, in shades by rank, on a linear axis that ends at the next power of two. Right, the
    ranks' time until the slowest ends; of one rank, the rows that are dropped and the buffers that stay empty."""

    def __init__(self):
        self.figure = canvas(height=330)
        left = self.figure.add_axes((0.07, 0.13, 0.55, 0.7))
        left.set(xlim=(0, 1), ylim=(0, 1), xticks=[])
        left.set_yticks([0, 0.5, 1], ["", "", ""])
        left.spines[["top", "right"]].set_visible(False)
        self.figure.text(0.005, 0.94, "rows of each expert, in times the mean", fontsize=9.5, weight="bold")
        self.figure.text(0.07, 0.875, "■", fontsize=9, color=BLUE)
        self.figure.text(0.085, 0.875, "■", fontsize=9, color=SKY)
        self.figure.text(0.105, 0.875, "kept, rank by rank", fontsize=9)
        self.figure.text(0.285, 0.875, "■ dropped", fontsize=9, color=INK_RED)
        self.figure.text(0.385, 0.875, "- - mean", fontsize=9)
        self.capacity = self.figure.text(0.475, 0.875, "", fontsize=9, color=INK_RED, animated=True)
        self.figure.text(0.345, 0.055, "experts, in order", fontsize=9, ha="center")
        self.over = Boxes(left, RED)
        self.bars = [Boxes(left, colour) for colour in (BLUE, SKY)]
        (self.mean,) = left.plot([], [], "--", color=BLACK, linewidth=1.2, animated=True)
        (self.room,) = left.plot([], [], color=RED, linewidth=2, animated=True)
        right = self.figure.add_axes((0.71, 0.13, 0.26, 0.7))
        right.set(xlim=(0, 1), ylim=(1, 0), yticks=[])
        right.set_xticks([0, 0.5, 1], ["0", "50%", "100%"], fontsize=9)
        right.spines[["top", "right"]].set_visible(False)
        self.waits, self.lost = Boxes(right, "#cccccc"), Boxes(right, RED)
        self.works = [Boxes(right, colour) for colour in (BLUE, SKY)]
        look = {"fontsize": 9, "va": "center", "animated": True}
        self.ticks = [self.figure.text(0.062, 0.13 + 0.35 * at, "", ha="right", **look) for at in range(3)]
        self.names = [self.figure.text(0.702, 0, "", ha="right", **look) for _ in range(max(RANKS))]
        self.head = self.figure.text(0.64, 0.946, "", **look | {"fontsize": 9.5, "weight": "bold"})
        self.keys = [self.figure.text(x, 0.885, "", color=ink, **look) for x, ink in ((0.71, BLUE), (0.8, GREY))]
        costs = {"transform": right.transAxes} | look
        self.costs = [right.text(0.03, y, "", color=ink, **costs) for y, ink in ((0.85, INK_RED), (0.41, GREY))]
        self.across = self.figure.text(0.84, 0.032, "", ha="center", **look)
        self.up = self.figure.text(0.672, 0.48, "", ha="center", rotation=90, **look)

    def show(self, rows, within, room: float | None, loads):
        """rows, within: of each expert, in times the mean. room: the capacity likewise. loads: rows of each rank."""
        experts, ranks = len(rows), len(loads)
        left = np.arange(experts) / experts
        width = (1 if experts > 128 else 0.86) / experts
        top = next(value for value in TOPS if value >= rows.max())
        for tick, value in zip(self.ticks, (0, top // 2, top)):
            tick.set_text(f"{value}")
        shade = np.arange(experts) * ranks // experts % 2
        for turn, bars in enumerate(self.bars):
            bars.place(left, 0, width, np.where(shade == turn, within, 0) / top)
        self.over.place(left, within / top, width, (rows - within) / top)
        self.mean.set_data([0, 1], [1 / top, 1 / top])
        self.room.set_data(*(([], []) if room is None else ([0, 1], [room / top, room / top])))
        self.capacity.set_text("" if room is None else "— capacity")
        (self.show_costs if ranks == 1 else self.show_ranks)(within.mean(), room, loads)

    def show_costs(self, kept: float, room: float | None, _):
        """What a capacity costs: the share of the rows that it drops, and of the buffers that stays empty."""
        shares = np.array([kept] if room is None else [kept, kept / room])
        begin = np.array([0.22, 0.66])[: len(shares)]
        self.works[0].place(0, begin, shares, 0.2)
        self.works[1].place(0, 0, 0, 0)
        self.lost.place(shares[0], begin[0], 1 - shares[0], 0.2)
        self.waits.place(shares[1:], begin[1:], 1 - shares[1:], 0.2)
        lost = f"{1 - kept:.1%} of the rows dropped" if kept < 1 else "no row dropped"
        unused = "" if room is None else f"{1 - shares[1]:.0%} of the buffers empty"
        head = "no capacity, no fixed buffers" if room is None else "rows dropped, buffers empty"
        self._label(head, ("■ kept rows", ""), (lost, unused), "share of the rows, of the buffers", "", 0)

    def show_ranks(self, _, __, loads):
        """How long the ranks wait for the slowest. loads: rows of each."""
        ranks, busy = len(loads), loads / max(loads.max(), 1)
        begin, high = (np.arange(ranks) + 0.12) / ranks, 0.76 / ranks
        self.lost.place(0, 0, 0, 0)
        self.waits.place(busy, begin, 1 - busy, high)
        for turn, works in enumerate(self.works):
            works.place(0, begin[turn::2], busy[turn::2], high)
        head = f"ranks idle {_idle(loads)} of the time" if loads.min() < loads.max() else "no rank waits"
        self._label(head, ("■ busy", "■ idle"), ("", ""), "share of the slowest rank's time", "rank", ranks)

    def _label(self, head: str, keys: tuple, costs: tuple, across: str, up: str, ranks: int):
        """The words of the right half; `ranks` bars have their numbers."""
        texts = (self.head, *self.keys, *self.costs, self.across, self.up)
        for text, words in zip(texts, (head, *keys, *costs, across, up), strict=True):
            text.set_text(words)
        for rank, name in enumerate(self.names):
            name.set(text=f"{rank}" if rank < ranks else "", y=0.13 + 0.7 * (1 - (rank + 0.5) / max(ranks, 1)))
