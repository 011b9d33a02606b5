"""Still drawings of a mixture of experts: a token's way through its layer, rows in tiles, launches over time, rows
between ranks, and who was busy when."""

from collections.abc import Sequence

import numpy as np
from matplotlib.patches import Polygon

from instruments.results import Timeline
from widgets.drawings.pictures import arrow, box, page, picture
from widgets.toolkit.panel import BLACK, BLUE, GREEN, ORANGE, PURPLE, RED, SKY, WIDTH, YELLOW, Panel
from widgets.toolkit.words import number, time

#: Of experts, in order, and of ranks; on all of them black letters can be read.
COLOURS = (SKY, ORANGE, "#4fc3a1", PURPLE, YELLOW, "#7fa8d9", "#e98c5a", "#bdbdbd")
_GREY = "#555555"


def token_path(experts: int = 8, chosen: Sequence[int] = (1, 4), gates: Sequence[float] = (0.7, 0.3)) -> Panel:
    """A token goes to its experts and no others; what they make of it is added up, weighted by gates.

    chosen: the experts it goes to, and their gates, the best first.
    """
    line, top = 34, 34
    height = top + line * experts + 8
    figure, axes = page(height)
    middle = top + line * experts / 2
    heads = ((60, "token"), (190, "router"), (440, "experts"), (WIDTH - 60, "output"))
    for x, words in heads:
        axes.text(x, 16, words, fontsize=9.5, weight="bold", ha="center", va="center")
    box(axes, 30, middle - 14, 60, 28, SKY)
    axes.text(60, middle, "x", fontsize=11, ha="center", va="center")
    arrow(axes, (92, middle), (146, middle))
    for expert in range(experts):
        y = top + (expert + 0.5) * line
        at = list(chosen).index(expert) if expert in chosen else None
        axes.text(160, y, str(expert), fontsize=9, ha="right", va="center")
        share = 0.16 + 0.3 * ((7 * expert + 3) % 11) / 11 if at is None else 0.98 - 0.2 * at
        box(axes, 168, y - 8, 70 * share, 16, "#dddddd" if at is None else ORANGE, linewidth=0.5)
        taken = at is not None
        box(axes, 360, y - 13, 160, 26, ORANGE if taken else "#ececec", linewidth=1.2 if taken else 0.5)
        axes.text(
            440, y, f"gate, up, down of {expert}", fontsize=9, ha="center", va="center", color=BLACK if taken else _GREY
        )
        if taken:
            arrow(axes, (244, y), (357, y))
            axes.text(300, y - 9, "x", fontsize=10, ha="center", va="center")
            arrow(axes, (523, y), (626, middle + (y > middle) * 8 - 4))
            axes.text(566, y + (14 if y < middle else 18), f"times {gates[at]:g}", fontsize=9, va="center")
    axes.text(640, middle, "+", fontsize=15, ha="center", va="center")
    arrow(axes, (652, middle), (668, middle))
    box(axes, 670, middle - 14, 60, 28, GREEN)
    axes.text(700, middle, "y", fontsize=11, ha="center", va="center")
    names = " and ".join(str(expert) for expert in chosen)
    weights = " and ".join(f"{gate:g}" for gate in gates)
    return picture(
        f"A token uses {len(chosen)} of {experts} experts",
        figure,
        f"The router computes {experts} numbers for a token x, one per expert; the largest are those of experts "
        f"{names}. Only these multiply x with their matrices gate, up and down. Their results, times {weights}, are "
        "added up to y.",
    )


def tile_schedule(counts: Sequence[int] = (9, 14, 0, 6), tile: int = 4, programs: int = 3) -> Panel:
    """The same rows of experts in a batch of equal runs, and in tiles of a ragged product, with the program of each.

    counts: rows of each expert, at most eight of them. tile: rows of a tile. programs: that take tiles by turns.
    """
    most, tiles = max(counts), [-(-count // tile) for count in counts]
    unit = min(16, 200 / max(most, max(tiles) * tile))  # CSS pixels of a row
    top, gap = 62, 12
    wide = min(54, (WIDTH / 2 - 24) / len(counts) - gap)
    high = max(most, max(tiles) * tile) * unit
    height = round(top + high + 36)
    figure, axes = page(height)
    pitch = wide + gap
    starts = (WIDTH / 4 - len(counts) * pitch / 2, 3 * WIDTH / 4 - len(counts) * pitch / 2)
    total = sum(counts)
    multiplied = len(counts) * most, sum(tiles) * tile
    for x, words, rows in (
        (WIDTH / 4, "every run padded to the longest", multiplied[0]),
        (3 * WIDTH / 4, f"tiles of {tile} rows; the number is the program", multiplied[1]),
    ):
        axes.text(x, 16, words, fontsize=9.5, weight="bold", ha="center", va="center")
        axes.text(x, 36, f"{rows} rows multiplied for {total}", fontsize=9.5, ha="center", va="center")
    turn = 0
    for expert, (count, own) in enumerate(zip(counts, tiles)):
        for start, rows in zip(starts, (most, own * tile)):
            x = start + expert * pitch + gap / 2
            if rows > count:
                box(axes, x, top + count * unit, wide, (rows - count) * unit, "#e8e8e8", hatch="//", linewidth=0.5)
            if count:
                box(axes, x, top, wide, count * unit, COLOURS[expert], linewidth=0.5)
            name = f"{'expert ' * (wide > 50)}{expert}"
            axes.text(x + wide / 2, top + high + 18, name, fontsize=9, ha="center", va="center")
        for each in range(own):
            y = top + each * tile * unit
            box(axes, x, y, wide, tile * unit, "none", linewidth=1.6)
            axes.text(
                x + wide / 2,
                y + tile * unit / 2,
                str(turn % programs),
                fontsize=10,
                ha="center",
                va="center",
                bbox={"facecolor": "white", "edgecolor": "none", "boxstyle": "circle,pad=0.15"},
            )
            turn += 1
    return picture(
        "Tiles multiply a few extra rows per run, padding to the longest run many",
        figure,
        f"Experts with {', '.join(map(str, counts))} rows, {total} in all. A batch in which every run is as long as "
        f"the longest multiplies {multiplied[0]} rows, tiles of {tile} rows {multiplied[1]}; the hatched rows "
        f"are multiplied and discarded. {programs} programs take the {sum(tiles)} tiles by turns, expert after expert.",
    )


def launches_over_time(tiles: Sequence[int] = (3, 3, 3, 3), sms: int = 4, between: float = 0.4) -> Panel:
    """SMs over time: a launch per expert, each begun when the one before has ended, and all tiles in one launch.

    Args:
        tiles: of each expert, at most `sms` of them; every tile takes one unit of time.
        sms: of the GPU that is drawn.
        between: units of time in which a launch ends and the next one starts.
    """
    lane, left, top = 25, 72, 58
    loop, turns = len(tiles) * (1 + between) - between, -(-sum(tiles) // sms)
    unit = (WIDTH - left - 12) / max(loop, turns)
    height = round(top + 2 * (sms * lane + 46) - 34)
    figure, axes = page(height)
    for expert in range(len(tiles)):
        box(axes, left + 96 * expert, 6, 13, 13, COLOURS[expert])
        axes.text(left + 96 * expert + 19, 13, f"expert {expert}", fontsize=9.5, va="center")
    x = left + 96 * len(tiles)
    box(axes, x, 6, 13, 13, "#eeeeee", edgecolor="none")
    axes.text(x + 19, 13, "idle", fontsize=9.5, va="center")
    starts = [expert * (1 + between) for expert in range(len(tiles))]
    looped = [(at, sm, expert) for expert, at in enumerate(starts) for sm in range(tiles[expert])]
    owners = [expert for expert, count in enumerate(tiles) for _ in range(count)]
    together = [(tile // sms, tile % sms, expert) for tile, expert in enumerate(owners)]
    halves = (
        ("a loop: one launch per expert", looped, loop),
        ("one kernel: each SM takes the next tile", together, turns),
    )
    y = top
    for words, jobs, end in halves:
        axes.text(left, y - 14, words, fontsize=9.5, weight="bold", va="center")
        for sm in range(sms):
            axes.text(left - 10, y + sm * lane + 10, f"SM {sm}", fontsize=9.5, ha="right", va="center")
            box(axes, left, y + sm * lane, end * unit, 20, "#eeeeee", edgecolor="none")
        for at, sm, expert in jobs:
            box(axes, left + at * unit, y + sm * lane, unit, 20, COLOURS[expert])
            axes.text(left + (at + 0.5) * unit, y + sm * lane + 10, "tile", fontsize=8.5, ha="center", va="center")
        y += sms * lane + 46
    for sm, at in ((sms - 1, start) for start, count in zip(starts, tiles) if count < sms):
        middle = left + (at + 0.5) * unit, top + sm * lane + 10
        axes.text(*middle, "no tile left", fontsize=8.5, ha="center", va="center", color=_GREY)
    for at in starts[1:]:
        for sm, word in enumerate(("end", "start")):
            middle = left + (at - between / 2) * unit, top + sm * lane + 10
            axes.text(*middle, word, fontsize=8.5, ha="center", va="center", color=_GREY)
    busy = [100 * sum(tiles) / (sms * end) for end in (loop, turns)]
    return picture(
        "In a loop, SMs can wait between launches and within them",
        figure,
        f"{len(tiles)} experts with {', '.join(map(str, tiles))} tiles on {sms} SMs. Above, a launch per expert: an SM "
        "without a tile waits, and all wait while one launch ends and the next starts: busy "
        f"{busy[0]:.0f}% of the time drawn. Below, one kernel, whose SMs take tile after tile of whichever expert: "
        f"busy {busy[1]:.0f}%. The lengths are chosen, not measured.",
    )


def exchange(sent: Sequence[Sequence[int]], title: str, about: str, rows: str = "rows") -> Panel:
    """Rows on their way between ranks: left as each rank has them sorted by where they go, right as they arrive.

    sent: [from][to], at most eight ranks; those that stay are hatched. title: the finding. about: what is shown, for
    the text alternative. rows: what they are called.
    """
    sent = np.asarray(sent)
    ranks, total = len(sent), sent.sum()
    gap, top, left, right, wide = 18, 44, 110, WIDTH - 160, 46
    high = 60 * ranks
    unit = high / total
    height = round(top + high + gap * (ranks - 1) + 10)
    figure, axes = page(height)
    axes.text(left + wide / 2, 18, "as sent", fontsize=9.5, weight="bold", ha="center", va="center")
    axes.text(right + wide / 2, 18, "as received", fontsize=9.5, weight="bold", ha="center", va="center")
    start = top + unit * np.concatenate(([0], sent.ravel().cumsum()[:-1])).reshape(sent.shape)
    end = top + unit * np.concatenate(([0], sent.T.ravel().cumsum()[:-1])).reshape(sent.shape).T
    start, end = start + gap * np.arange(ranks)[:, None], end + gap * np.arange(ranks)[None, :]
    for source in range(ranks):
        for to in range(ranks):
            size = unit * sent[source, to]
            if not size:
                continue
            (a, b), hatch = (start[source, to], end[source, to]), "//" if source == to else ""
            across = np.linspace(0, 1, 24)
            bend = across**2 * (3 - 2 * across)
            x = left + wide + across * (right - left - wide)
            lower, upper = a + bend * (b - a), a + bend * (b - a) + size
            outline = np.concatenate((np.stack((x, lower), 1), np.stack((x, upper), 1)[::-1]))
            axes.add_patch(Polygon(outline, facecolor=COLOURS[to], alpha=0.45, edgecolor="none"))
            for at, y in ((left, a), (right, b)):
                box(axes, at, y, wide, size, COLOURS[to], hatch=hatch)
                if size > 13:
                    axes.text(
                        at + wide / 2,
                        y + size / 2,
                        f"{sent[source, to]:,}",
                        fontsize=9,
                        ha="center",
                        va="center",
                        bbox={"facecolor": COLOURS[to], "edgecolor": "none", "pad": 1} if hatch else None,
                    )
    for rank in range(ranks):
        for x, y, many, across in (
            (left - 10, start[rank, 0], sent[rank].sum(), "right"),
            (right + wide + 10, end[0, rank], sent[:, rank].sum(), "left"),
        ):
            middle = y + unit * many / 2
            axes.text(x, middle - 8, f"rank {rank}", fontsize=9.5, weight="bold", ha=across, va="center")
            axes.text(x, middle + 8, f"{many:,} {rows}", fontsize=9, ha=across, va="center")
    away = total - np.trace(sent)
    numbers = "; ".join(
        f"rank {rank} has {sent[rank].sum():,} and receives {sent[:, rank].sum():,}" for rank in range(ranks)
    )
    numbers += f". {away:,} of {total:,} {rows} ({away / total:.0%}) go over the link; hatched ones stay"
    return picture(title, figure, about, numbers)


#: What runs, with its colour and hatch; what has other names takes the rest, in the order in which it comes up.
_KINDS = {
    "dispatch": (ORANGE, ""),
    "matmuls": (GREEN, "//"),
    "combine": (BLUE, ".."),
    "counts": (PURPLE, "xx"),
    "routing and moving rows": ("#8a8a8a", ""),
}
_REST = ((RED, "\\\\"), (SKY, "||"), _KINDS["counts"], _KINDS["routing and moving rows"])
#: The parts of `time_of` in the colours of a timeline; rows in transit have dispatch's.
PART_LOOKS = {
    "matmuls": _KINDS["matmuls"],
    "rows in transit": _KINDS["dispatch"],
    "routing and moving rows": _KINDS["routing and moving rows"],
    "waiting for the other rank": _REST[1],
    "no kernel": _REST[0],
}


def timeline(ways: dict, title: str, about: str, numbers: str = "") -> Panel:
    """Who was busy when: lanes of intervals, all ways on one scale from 0.

    ways: {name: {lane: [(start, end, kind), ...]}}, in seconds. title: the finding. about: what is
    shown, for the text alternative. numbers: the text alternative's end in place of each lane's busy time.
    """
    kinds = list(dict.fromkeys(kind for lanes in ways.values() for parts in lanes.values() for _, _, kind in parts))
    rest = [kind for kind in kinds if kind not in _KINDS]
    free = [look for look in _REST if look not in [_KINDS[kind] for kind in kinds if kind in _KINDS]]
    if len(rest) > len(free):
        raise ValueError(f"ways: got kinds {', '.join(rest)}, expected at most {len(free)} beside {', '.join(_KINDS)}")
    looks = _KINDS | dict(zip(rest, free))
    ends = {name: max(end for parts in lanes.values() for _, end, _ in parts) for name, lanes in ways.items()}
    left = 20 + 6.6 * max(len(lane) for lanes in ways.values() for lane in lanes)
    line, head, top = 28, 26, 40
    height = top + sum(head + line * len(lanes) + 10 for lanes in ways.values()) + 30
    figure, axes = page(height)
    scale = (WIDTH - left - 74) / max(ends.values())
    bottom = height - 28
    x = min(left, WIDTH - sum(40 + 6.9 * len(kind) for kind in kinds))  # the key starts further left if it is long
    for kind in kinds:
        colour, hatch = looks[kind]
        box(axes, x, 11, 16, 14, colour, hatch=hatch, edgecolor="white")
        axes.text(x + 22, 18, kind, fontsize=9.5, va="center")
        x += 40 + 6.9 * len(kind)
    step = _step(max(ends.values()) / 6)
    for tick in np.arange(0, max(ends.values()) + step / 2, step):
        at = left + tick * scale
        if at <= WIDTH - 30:
            axes.plot([at, at], [top, bottom], color="#dddddd", linewidth=0.8, zorder=0)
            axes.text(at, height - 14, time(tick) if tick else "0", fontsize=9, ha="center", va="center")
    y, busy_times = top, []
    for name, lanes in ways.items():
        axes.text(left, y + 12, name, fontsize=9.5, weight="bold", va="center")
        axes.text(
            left + ends[name] * scale + 6, y + head + line * len(lanes) / 2, time(ends[name]), fontsize=9.5, va="center"
        )
        y += head
        for lane, parts in lanes.items():
            axes.text(left - 8, y + line / 2, lane, fontsize=9, ha="right", va="center")
            for start, end, kind in parts:
                (colour, hatch), wide = looks[kind], (end - start) * scale
                look = {"hatch": hatch, "edgecolor": "white", "linewidth": 0.4} if wide > 3 else {"linewidth": 0}
                box(axes, left + start * scale, y + 4, max(wide, 0.6), line - 8, colour, **look)
            y += line
        y += 10
        busy = ", ".join(f"{lane} busy {busy_share(parts, ends[name]):.0%}" for lane, parts in lanes.items())
        busy_times.append(f"{name} {time(ends[name])}, {busy}")
    return picture(title, figure, about, numbers or "; ".join(busy_times))


#: Lane of a record: (what it is called in a timeline, what stands for all of its kernels; None: their own names)
_LANES = {"link": ("link", None), "experts": ("matmuls", "matmuls"), "rows": ("rows", "routing and moving rows")}


def recorded_lanes(step: Timeline, ranks: Sequence[int] = (0, 1), gaps: bool = False) -> dict:
    """The lanes of a recorded step as `timeline` wants them: of each rank its link, its matmuls, and all else; with
    `gaps` also the time in which it runs no kernel."""
    drawn = {}
    for rank in ranks:
        for lane, (called, kind) in _LANES.items():
            drawn[f"{called} of rank {rank}"] = [
                (span.start * 1e-6, (span.start + span.us) * 1e-6, kind or span.name.rstrip(" 0123456789"))
                for span in step.ranks[rank]
                if span.lane == lane
            ]
        if gaps:
            drawn[f"gaps of rank {rank}"] = [
                (start * 1e-6, end * 1e-6, "no kernel") for start, end in gaps_of(step, rank)
            ]
    return drawn


def gaps_of(step: Timeline, rank: int) -> list[tuple[float, float]]:
    """The intervals of a recorded step, in microseconds, in which a rank runs no kernel."""
    found, at = [], 0.0
    last = max(span.start + span.us for spans in step.ranks for span in spans)
    for start, end in [*sorted((span.start, span.start + span.us) for span in step.ranks[rank]), (last, last)]:
        if start > at:
            found.append((at, start))
        at = max(at, end)
    return found


def time_of(step: Timeline, rank: int) -> dict[str, float]:
    """Microseconds of a recorded step by what a rank's GPU did: at each moment the first that applies. An exchange's
    rows are in transit from when its kernels run on every rank; until then those that run wait."""
    lanes = [{lane: [s for s in spans if s.lane == lane] for lane in _LANES} for spans in step.ranks]
    ready = [max(span.start for span in exchange) for exchange in zip(*(lane["link"] for lane in lanes))]
    mine = [(span.start, span.start + span.us) for span in lanes[rank]["link"]]
    runs = {
        "matmuls": [(span.start, span.start + span.us) for span in lanes[rank]["experts"]],
        "rows in transit": [(max(start, begin), end) for (start, end), begin in zip(mine, ready)],
        "routing and moving rows": [(span.start, span.start + span.us) for span in lanes[rank]["rows"]],
        "waiting for the other rank": [(start, min(end, begin)) for (start, end), begin in zip(mine, ready)],
    }
    last = max(span.start + span.us for spans in step.ranks for span in spans)
    edges = sorted({0.0, last, *(edge for parts in runs.values() for part in parts for edge in part)})
    seconds = dict.fromkeys([*runs, "no kernel"], 0.0)
    for start, end in zip(edges, edges[1:]):
        does = (name for name, parts in runs.items() if any(a <= start and end <= b for a, b in parts))
        seconds[next(does, "no kernel")] += end - start
    return seconds


def busy_share(parts: list, whole: float) -> float:
    """The share of a time in which at least one of the intervals (start, end, ...) runs."""
    busy, last = 0.0, float("-inf")
    for start, end, *_ in sorted(parts):
        busy += max(0.0, end - max(start, last))
        last = max(last, end)
    return busy / whole


def _step(least: float) -> float:
    """The next of 1, 2, 5, 10, 20, ... that is no less."""
    power = 10.0 ** np.floor(np.log10(least))
    return next(float(number(power * many)) for many in (1, 2, 5, 10) if power * many >= least * 0.999)
