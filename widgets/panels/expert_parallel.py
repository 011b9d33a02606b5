"""The expert parallel panel: a layer's experts over several GPUs, how long rows travel, how long they are multiplied,
and how much of the transfer is exposed when chunks are sent while others are multiplied."""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from matplotlib.patches import Rectangle

from instruments.gpus import GPUS, LINKS
from kernels.moe import routing
from kernels.moe.layer import experts_traffic
from kernels.moe.parallel import ExchangeTraffic, chunk_bounds, expert_parallel_traffic
from widgets.toolkit.boxes import Boxes
from widgets.toolkit.panel import BLACK, BLUE, GREEN, ORANGE, Example, Panel, Powers, canvas, menu, real, whole
from widgets.toolkit.words import size, time

EXAMPLE = Example(entry="4096", text="4,096 tokens each", arguments={"tokens": 64})

GPU = GPUS["H200"]
RANKS = (2, 4, 8, 16, 32)
#: name: (experts, top_k)
EXPERTS = {"8, top-2": (8, 2), "64, top-6": (64, 6), "256, top-8": (256, 8)}
_SHARES = (0, 0.25, 0.5, 0.75, 1)  # of the step in one piece, where the axis of the timelines is marked
_FASTEST, _SLOWEST = 1e-7, 100  # seconds, the ends of the axis of times


@dataclass(frozen=True)
class Chunk:
    """What travels and is multiplied together. seconds: of its dispatch, and as many of its combine; of the matmuls,
    by rank."""

    travel: float
    matmuls: np.ndarray


@dataclass(frozen=True)
class Step:
    """When each chunk's dispatch, matmuls [chunks, ranks] and combine begin and end, in seconds."""

    dispatch: list
    matmuls: tuple
    combine: list

    @property
    def seconds(self) -> float:
        return self.combine[-1][1]

    @property
    def exposed(self) -> float:
        """Seconds that the step takes beyond the matmuls of the slowest rank."""
        begin, end = self.matmuls
        return self.seconds - float((end - begin).sum(0).max())


def schedule(chunks: list[Chunk]) -> Step:
    """kernels/moe/parallel.py's order: the link carries all dispatches, then the combines; a rank multiplies a chunk
    that has arrived when it is done with the one before; a combine waits until every rank has multiplied."""
    arrived, done, begin, end = 0.0, 0.0, [], []
    dispatch, combine = [], []
    for chunk in chunks:
        dispatch.append((arrived, arrived + chunk.travel))
        arrived += chunk.travel
        begin.append(np.maximum(done, arrived) + 0 * chunk.matmuls)
        end.append(begin[-1] + chunk.matmuls)
        done = end[-1]
    free = arrived
    for chunk, multiplied in zip(chunks, end):
        start = max(free, float(multiplied.max()))
        free = start + chunk.travel
        combine.append((start, free))
    return Step(dispatch, (np.array(begin), np.array(end)), combine)


@lru_cache(maxsize=256)
def rows(tokens: int, ranks: int, experts: int, top_k: int, skew: float) -> np.ndarray:
    """Rows that each rank's tokens have for each expert: [ranks, experts]."""
    return np.stack([routing.counts(tokens, experts, top_k, skew, first=rank * tokens) for rank in range(ranks)])


def chunks_of(counts: np.ndarray, hidden: int, inter: int, chunks: int, rate: float) -> list[Chunk]:
    """The chunks of an exchange of rows counts [ranks, experts], in bf16, over a link of so many bytes/s."""
    ranks, experts = counts.shape
    local = counts.reshape(ranks, ranks, experts // ranks)
    parts = []
    for first, last in chunk_bounds(experts // ranks, chunks):
        part = local[:, :, first:last]
        moved = expert_parallel_traffic(part.reshape(ranks, -1).tolist(), hidden, torch.bfloat16)
        works = [experts_traffic(own, hidden, inter, torch.bfloat16) for own in part.sum(0).tolist()]
        matmuls = [sum(work.roofline_seconds(GPU, "bf16") for work in both.values()) for both in works]
        parts.append(Chunk(moved.seconds(rate), np.array(matmuls)))
    return parts


def expert_parallel(
    tokens: int = 8192,
    ranks: int = 8,
    experts: str = "64, top-6",
    hidden: int = 2048,
    inter: int = 1408,
    skew: float = 0,
    link: str = "NVLink 4",
    chunks: int = 4,
) -> Panel:
    """A layer of experts over several H200s, in bf16, at datasheet rates: its timeline, whole and in chunks.

    Args:
        tokens: Of each rank, 1 to 8,192; kernels/moe/routing.py draws their experts at random.
        ranks: One of RANKS, at most as many as experts.
        experts: One of EXPERTS.
        hidden: 1,024 to 8,192.
        inter: 512 to 16,384.
        skew: 0 to 2, the power by which popularity falls.
        link: One of LINKS.
        chunks: 1 to 8, at most a rank's experts.

    Note:
        What a GPU does to send is not counted: NCCL's kernels take SMs from the matmuls that run beside them.
    """
    picture = _Picture()

    def draw(tokens, ranks, experts, hidden, inter, skew, link, chunks):
        tokens, hidden, inter, (experts, top_k) = round(tokens), round(hidden), round(inter), EXPERTS[experts]
        limits = f" {experts} experts go to at most {experts} ranks." if ranks > experts else ""
        ranks = min(ranks, experts)
        own = experts // ranks
        if chunks > own:
            limits += f" {own} expert{'s' * (own > 1)} a rank can be cut into at most {own} chunk{'s' * (own > 1)}."
        chunks = min(chunks, own)
        counts, rate = rows(tokens, ranks, experts, top_k, skew), LINKS[link].rate
        steps = [schedule(chunks_of(counts, hidden, inter, many, rate)) for many in (1, chunks)]
        picture.show(steps, chunks)
        moved = expert_parallel_traffic(counts.tolist(), hidden, torch.bfloat16)
        return _alt(tokens, ranks, (experts, top_k), moved, link, steps, chunks) + limits

    controls = {
        "tokens": Powers("tokens, each", 0, math.log2(routing.TOKENS), tokens),
        "ranks": menu("ranks", RANKS, 8),
        "experts": menu("experts", EXPERTS, "64, top-6"),
        "hidden": Powers("hidden", 10, 13, hidden),
        "inter": Powers("inter", 9, 14, inter),
        "skew": real("skew", 0, 2, skew, 0.1),
        "link": menu("link", LINKS, "NVLink 4"),
        "chunks": whole("chunks", 1, 8, chunks),
    }
    return Panel("Experts over several GPUs", picture.figure, controls, draw).set(
        ranks=ranks, experts=experts, link=link
    )


def _alt(tokens: int, ranks: int, experts: tuple, moved: ExchangeTraffic, link: str, steps: list, chunks: int) -> str:
    apart, chunked = steps
    begin, end = apart.matmuls
    matmuls = (end - begin).sum(0)
    travel = sum(end - start for start, end in (*apart.dispatch, *apart.combine))
    alt = (
        f"{ranks} ranks, {tokens:,} token{'s' * (tokens > 1)} each, {experts[1]} of {experts[0]} experts: a rank sends "
        f"{size(sum(moved.send_bytes) / ranks)} on average. It receives as much. Over {link} dispatch and "
        f"combine take at least {time(travel)}, latency not counted, matmuls on an {GPU.name} "
        f"{time(matmuls.max())} on the slowest rank"
    )
    alt += f", {time(matmuls.mean())} on average. " if matmuls.max() > 1.005 * matmuls.mean() else ". "
    alt += f"One after the other: {time(apart.seconds)}"
    if chunks == 1:
        return alt + f", of which {apart.exposed / apart.seconds:.0%} is waiting for rows."
    return alt + (
        f". In {chunks} chunks, if link and matmuls do not slow each other: {time(chunked.seconds)}, of which "
        f"{time(chunked.exposed)} ({chunked.exposed / chunked.seconds:.0%}) is waiting for rows."
    )


class _Picture:
    """Above, both timelines: the link, the slowest rank and the fastest. Below, times as points, on a logarithmic
    axis."""

    def __init__(self):
        self.figure = canvas(height=390)
        top = self.figure.add_axes((0.16, 0.455, 0.8, 0.49))
        top.set(xlim=(0, 1.04), ylim=(7.3, 0), yticks=[])
        top.set_xticks(_SHARES, [""] * len(_SHARES))
        top.spines[["top", "right", "left"]].set_visible(False)
        look = {"fontsize": 9, "va": "center"}
        self.heads = []
        for base in (0, 3.75):
            self.heads.append(top.text(0, base + 0.35, "", weight="bold", animated=True, **look))
            for lane, name in enumerate(("link", "slowest rank", "fastest rank")):
                self._word(0.152, base + 1.1 + 0.85 * lane, name, ha="right", **look)
        self.ticks = [top.text(x, 7.65, "", fontsize=9, ha="center", va="top", animated=True) for x in _SHARES]
        edge = {"edgecolor": "white", "linewidth": 0.8}
        for x, words, color, hatch in (
            (0.5, "dispatch", ORANGE, ""),
            (0.62, "combine", BLUE, ""),
            (0.74, "matmuls", GREEN, "//"),
        ):
            self.figure.add_artist(Rectangle((x, 0.948), 0.024, 0.034, facecolor=color, hatch=hatch, **edge))
            self.figure.text(x + 0.031, 0.965, words, **look)
        self.dispatch, self.combine = Boxes(top, ORANGE, **edge), Boxes(top, BLUE, **edge)
        self.matmuls = Boxes(top, GREEN, hatch="//", **edge)
        low = self.figure.add_axes((0.27, 0.085, 0.69, 0.265))
        low.set(xscale="log", xlim=(_FASTEST, _SLOWEST), ylim=(3.6, -0.6), yticks=[])
        low.minorticks_off()
        low.set_xticks([1e-6, 1e-4, 1e-2, 1], ["1 µs", "100 µs", "10 ms", "1 s"], fontsize=9)
        low.spines[["top", "right", "left"]].set_visible(False)
        low.grid(axis="x", color="#DDDDDD", linewidth=0.7)
        self.names, self.points, self.values = [], [], []
        for at, (colour, marker) in enumerate(((GREEN, "D"), (ORANGE, "o"), ("#c9c9c9", "s"), ("#c9c9c9", "s"))):
            y = 0.085 + 0.265 * (1 - (at + 0.6) / 4.2)
            self.names.append(self.figure.text(0.262, y, "", ha="right", animated=True, **look))
            self.points += low.plot([], [], marker, color=colour, markeredgecolor=BLACK, markersize=8, animated=True)
            self.values.append(low.text(1, at, "", animated=True, **look))

    def _word(self, x: float, lane: float, words: str, **look):
        """Words beside a lane of the timelines."""
        return self.figure.text(x, 0.455 + 0.49 * (1 - lane / 7.3), words, **look)

    def show(self, steps: list, chunks: int):
        whole = steps[0].seconds
        cut = f"{chunks} chunk{'s' * (chunks > 1)}"
        names = "one after the other", f"in {cut}"
        for tick, share in zip(self.ticks, _SHARES):
            tick.set_text(time(share * whole) if share else "0")
        parts = {"dispatch": [], "combine": [], "matmuls": []}
        for head, name, step, base in zip(self.heads, names, steps, (0, 3.75)):
            head.set_text(f"{name}: {time(step.seconds)}")
            begin, end = step.matmuls
            busy = (end - begin).sum(0)
            parts["dispatch"] += [(base + 0.75, start, stop) for start, stop in step.dispatch]
            parts["combine"] += [(base + 0.75, start, stop) for start, stop in step.combine]
            for lane, rank in ((1.6, busy.argmax()), (2.45, busy.argmin())):
                parts["matmuls"] += [(base + lane, *both) for both in zip(begin[:, rank], end[:, rank])]
        for name, boxes in (("dispatch", self.dispatch), ("combine", self.combine), ("matmuls", self.matmuls)):
            y, start, stop = np.array(parts[name]).T
            boxes.place(start / whole, y, (stop - start) / whole, 0.7)
        begin, end = steps[0].matmuls
        travel = sum(stop - start for start, stop in (*steps[0].dispatch, *steps[0].combine))
        values = (end - begin).sum(0).max(), travel, steps[0].exposed, steps[1].exposed
        names = "matmuls, slowest rank", "all-to-all, both ways", "exposed, not cut", f"exposed, {cut}"
        for at, (name, words, point, value, alt) in enumerate(zip(self.names, names, self.points, values, self.values)):
            name.set_text(words)
            point.set_data([max(value, _FASTEST)], [at])
            alt.set(text=time(value), x=max(value, _FASTEST) * 1.6)
