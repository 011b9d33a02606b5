"""Lesson 03b's pictures: who asks for a tile, and over time a barrier's phases, roles, slots and a recorded trace."""

import re
from dataclasses import replace

from instruments.mbarriers import TENSOR_CORES, TMA, Run
from widgets.drawings.pictures import arrow, box, page, picture
from widgets.toolkit.boxes import Boxes
from widgets.toolkit.panel import BLACK, BLUE, GREEN, ORANGE, RED, SKY, Panel, whole

_GREY, _PALE = "#555555", "#e4e4e4"
_WHITE = {"facecolor": "white", "edgecolor": "none", "pad": 1}
#: {kind of a span: colour and hatch}
LOOKS = {"copy": (SKY, ""), "multiply": (ORANGE, "//"), "store": (GREEN, ".."), "wait": (_PALE, "")}
NAMES = {"copy": "copy", "multiply": "matmul", "store": "epilogue", "wait": "wait"}


def two_requests(threads: int = 256, rows: int = 128, cols: int = 64, piece: int = 16) -> Panel:
    """A tile of 16-bit elements asked for by all threads, and by one thread with a descriptor."""
    figure, axes = page(290)
    pieces = rows * cols * 2 // piece
    axes.text(10, 16, "pointers: every thread asks", fontsize=10.5, weight="bold", va="center")
    axes.text(390, 16, "a tensor descriptor: one thread asks", fontsize=10.5, weight="bold", va="center")
    for at in range(64):
        box(axes, 12 + at % 16 * 10, 42 + at // 16 * 18, 8, 14, SKY, linewidth=0.5)
    for at in range(6):
        arrow(axes, (176, 46 + at * 12), (226, 40 + at * 15), _GREY, linewidth=0.8, mutation_scale=8)
    for at in range(64):
        box(axes, 230 + at % 8 * 14, 34 + at // 8 * 11, 14, 11, SKY, linewidth=0.4)
    box(axes, 392, 66, 8, 14, SKY, linewidth=0.5)
    arrow(axes, (406, 73), (462, 73), BLACK)
    box(axes, 466, 48, 94, 50, "#f7e3b0", linewidth=1)
    axes.text(513, 73, "TMA", fontsize=11, weight="bold", ha="center", va="center")
    arrow(axes, (564, 73), (628, 73), BLACK)
    box(axes, 632, 34, 112, 88, SKY, linewidth=0.8)
    words = {
        12: f"{threads} threads compute\n{pieces:,} addresses,\n{pieces // threads} each, in every step",
        230: f"tile {rows} x {cols}\nin shared memory,\n{piece} bytes at a time",
        392: "one thread,\none\ninstruction",
        484: "computes addresses,\nfills with zeros past\nthe edge, swizzles",
        632: f"tile {rows} x {cols}\nin shared memory",
    }
    for x, text in words.items():
        axes.text(x, 132, text, fontsize=9, va="top", linespacing=1.35)
    box(axes, 392, 212, 352, 66, "white", linewidth=1)
    axes.text(402, 228, "tensor descriptor, made on the host", fontsize=9.5, weight="bold", va="center")
    axes.text(402, 247, "address, shape [8192, 8192], strides [8192, 1],", fontsize=9, va="center")
    axes.text(402, 265, f"tile [{rows}, {cols}], bf16, swizzle of 128 bytes", fontsize=9, va="center")
    arrow(axes, (474, 210), (474, 101), _GREY, linewidth=1)
    return picture(
        "Who asks for a tile",
        figure,
        f"A tile of {rows} x {cols} elements of 2 bytes is copied to shared memory. With pointers, {threads} threads "
        f"compute {pieces:,} addresses, {pieces // threads} each, for pieces of {piece} bytes. With a descriptor, "
        "one thread issues one instruction; TMA computes the addresses, fills with zeros past the edge and swizzles.",
    )


def phases(run: Run, kind: str, slot: int, count: int, title: str) -> Panel:
    """A barrier's phases over time, what arrives at it, and who waits for it.

    Args:
        run: of instruments/mbarriers.py.
        kind: full or free.
        slot: which of these barriers.
        count: its arrivals per phase.
        title: the finding.
    """
    end = run.time
    figure, axes = page(206)
    left, wide = 96, 640

    def x(time):
        return left + wide * time / end

    states = [(snap.time, snap, (snap.full if kind == "full" else snap.free)[slot]) for snap in run.snapshots]
    changes, before = [(0.0, 0)], (0, 0, 0)
    arrivals = []
    for time, snap, state in states:
        if state != before:
            if state[1:] != before[1:] or state[0] != before[0]:
                what = "bytes" if snap.actor == TMA else snap.words.split()[0]
                arrivals.append((time, what))
            if state[0] != before[0]:
                changes.append((time, state[0]))
            before = state
    y, tall = 48, 34
    axes.text(left - 8, y + tall / 2, f"{kind}[{slot}]", fontsize=10, weight="bold", ha="right", va="center")
    for (start, phase), (stop, _) in zip(changes, [*changes[1:], (end, 0)]):
        box(axes, x(start), y, x(stop) - x(start), tall, "white" if phase else "#cfe6f5", linewidth=1)
        if x(stop) - x(start) > 46:
            axes.text((x(start) + x(stop)) / 2, y + tall / 2, f"phase {phase}", fontsize=9, ha="center", va="center")
    looks = {"expect": (BLUE, "v"), "arrive": (BLUE, "v"), "bytes": (RED, "o")}
    for time, what in arrivals:
        colour, marker = looks[what]
        axes.plot([x(time)], [y - 9], marker, color=colour, markersize=7, markeredgecolor=BLACK, markeredgewidth=0.5)
    waits = [s for s in run.spans if s.kind == "wait" and s.what == f"wait {kind} {slot}"]
    who = "consumer" if kind == "full" else "producer"
    axes.text(left - 8, 112, who, fontsize=9, ha="right", va="center", color=_GREY)
    for span in waits:
        box(axes, x(span.start), 100, max(x(span.end) - x(span.start), 3), 24, _PALE, linewidth=0.6)
        if x(span.end) - x(span.start) > 62:
            middle = (x(span.start) + x(span.end)) / 2
            axes.text(middle, 112, f"wait for {_phase_of(run, span)}", fontsize=9, ha="center", va="center")
    late = _late_waits(run, f"wait {kind} {slot}", waits)
    for time, phase in late:
        box(axes, x(time), 100, 3, 24, _PALE, linewidth=0.6)
        axes.text(x(time) + 1, 134, f"wait for {phase}: passes at once", fontsize=9, ha="center", va="center")
    axes.plot([14], [160], "v", color=BLUE, markersize=7, markeredgecolor=BLACK, markeredgewidth=0.5)
    first = "expect: one arrival, and the bytes to come" if kind == "full" else f"arrive, one of {count}"
    axes.text(24, 160, first, fontsize=9, va="center")
    if kind == "full":
        axes.plot([318], [160], "o", color=RED, markersize=7, markeredgecolor=BLACK, markeredgewidth=0.5)
        axes.text(328, 160, "the last byte: the phase is complete, and the next one begins", fontsize=9, va="center")
    arrow(axes, (left, 190), (left + wide - 40, 190), _GREY, linewidth=1)
    axes.text(left + wide - 34, 190, "time", fontsize=9, va="center", color=_GREY)
    return picture(
        title,
        figure,
        f"Barrier {kind}[{slot}] goes through {len(changes)} phases, numbered 0 and 1 in turn. "
        f"{len(waits)} waits end as the phase that they name is complete."
        + f" Waits that come later and pass at once: {len(late)}."
        * bool(late),
    )


def _late_waits(run: Run, what: str, held: list) -> list:
    """[(time, phase)] of the waits that pass at once; held: spans of the others."""
    passed = [snap for snap in run.snapshots if snap.words.startswith(f"{what} ") and snap.actor not in snap.waits]
    return [(s.time, s.words.split()[-1]) for s in passed if not any(abs(s.time - w.end) < 1e-9 for w in held)]


def _phase_of(run: Run, span) -> str:
    """The phase that a wait names, which a span leaves out."""
    waits = (snap.waits.get(span.actor, "") for snap in run.snapshots if abs(snap.time - span.start) < 1e-9)
    return next((words.split()[-1] for words in waits if words.startswith(span.what)), "")


def roles_over_time(runs: dict[str, Run], title: str, about: str, end: float = 0) -> Panel:
    """What every actor does over time, for one or several runs on one scale.

    Args:
        runs: {name: run of instruments/mbarriers.py}.
        title: the finding.
        about: what is shown, for the text alternative.
        end: of the time axis; that of the longest run if not given.
    """
    end = end or max(run.time for run in runs.values())
    rows = {name: _rows(run) for name, run in runs.items()}
    line = 25
    height = 40 + sum(28 + line * len(each) for each in rows.values())
    figure, axes = page(height)
    left, wide = 104, 640
    y = 8
    for name, actors in rows.items():
        busy = runs[name].busy(TENSOR_CORES)
        axes.text(6, y + 10, name, fontsize=9.5, weight="bold", va="center")
        said = f"tensor cores busy {busy:.0%} of {runs[name].time:.1f}"
        axes.text(left + wide, y + 10, said, fontsize=9, ha="right", va="center", color=_GREY)
        y += 24
        for actor, spans in actors:
            axes.text(left - 8, y + line / 2 - 2, actor, fontsize=9, ha="right", va="center")
            for span in spans:
                if span.start < end:
                    _draw(axes, span, left, wide / end, y, line - 5)
            y += line
        y += 4
    key(axes, left, y + 6)
    arrow(axes, (left + 420, y + 13), (left + 590, y + 13), _GREY, linewidth=1)
    axes.text(left + 598, y + 13, "time", fontsize=9, va="center", color=_GREY)
    numbers = "; ".join(
        f"{name}: {run.time:.1f} units, tensor cores busy {run.busy(TENSOR_CORES):.0%}" for name, run in runs.items()
    )
    return picture(title, figure, about, numbers)


def key(axes, left: float, y: float, kinds: tuple = tuple(LOOKS)):
    """What the colours of LOOKS stand for, in a row."""
    for place, kind in enumerate(kinds):
        colour, hatch = LOOKS[kind]
        box(axes, left + place * 96, y, 18, 14, colour, hatch=hatch, linewidth=0.6)
        axes.text(left + 24 + place * 96, y + 7, NAMES[kind], fontsize=9, va="center")


def _rows(run: Run) -> list:
    """[(actor, its spans)]: TMA's copies on as many lines as overlap, tensor cores, then roles."""
    lanes: list = []
    for span in (s for s in run.spans if s.actor == TMA):
        lane = next((lane for lane in lanes if lane[-1].end <= span.start + 1e-9), None)
        lanes.append([span]) if lane is None else lane.append(span)
    rows = [("TMA" if not at else "", lane) for at, lane in enumerate(lanes)]
    rows.append((TENSOR_CORES, [s for s in run.spans if s.actor == TENSOR_CORES]))
    roles = dict.fromkeys(s.actor for s in run.spans if s.actor not in (TMA, TENSOR_CORES))
    return rows + [(role, _merged([s for s in run.spans if s.actor == role])) for role in roles]


def _merged(spans: list) -> list:
    """A role's spans, with waits that follow each other at once as one."""
    merged: list = []
    for span in spans:
        if merged and span.kind == merged[-1].kind == "wait" and span.start - merged[-1].end < 0.05:
            merged[-1] = replace(merged[-1], end=span.end)
        else:
            merged.append(span)
    return merged


def slots_over_time(runs: dict[str, Run], slots: int, title: str) -> Panel:
    """What lies in each slot over time, for runs with and without a problem; the problem is drawn in red.

    Args:
        runs: {name: run of instruments/mbarriers.py}.
        slots: of the ring; item n is in slot n % slots.
        title: the finding.
    """
    line, band = 22, 30 + 22 * slots
    figure, axes = page(16 + (band + 8) * len(runs))
    left, wide = 104, 640
    unit = wide / max(run.time for run in runs.values())
    for number, (name, run) in enumerate(runs.items()):
        y = 6 + number * (band + 8)
        axes.text(6, y + 10, name, fontsize=9.5, weight="bold", va="center")
        for slot in range(slots):
            top = y + 24 + slot * line
            axes.text(left - 8, top + 9, f"slot {slot}", fontsize=9, ha="right", va="center")
            axes.plot([left, left + wide], [top + 18, top + 18], color=_PALE, linewidth=1)
        ends = run.snapshots[-1].time if run.problem else run.time
        for span in run.spans:
            if span.kind in ("copy", "multiply") and span.start < ends + 0.2:
                _draw(axes, span, left, unit, y + 24 + int(span.what) % slots * line, line - 4)
        if run.problem:
            _problem(axes, run, left + ends * unit, unit, y + 24, line, slots)
    key(axes, left + 260, 6, ("copy", "multiply"))
    said = "; ".join(f"{name}: {run.problem or 'no problem'}" for name, run in runs.items())
    return picture(title, figure, "Copies and matmuls in each slot over time", said)


def _problem(axes, run: Run, x: float, unit: float, y: float, line: int, slots: int):
    """A deadlock as a line after which nothing happens, a race as the box that comes too early."""
    if run.problem.startswith("deadlock"):
        axes.plot([x, x], [y - 2, y + slots * line], color=RED, linewidth=2, linestyle="--")
        words = "deadlock: both roles wait forever"
        axes.text(x + 8, y + slots * line / 2, words, fontsize=9.5, va="center", color=RED)
        return
    item, slot = map(int, re.search(r"item (\d+).*? slot (\d+)", run.problem).groups())
    verb = "copied" if "is copied" in run.problem else "multiplied"
    box(axes, x, y + slot * line - 2, unit, line, "none", edgecolor=RED, linewidth=2.2, zorder=4)
    words = f"data race: item {item} is {verb} too early"
    axes.text(
        x + 1.2 * unit + 8, y + slot * line + 9, words, fontsize=9.5, va="center", color=RED, zorder=5, bbox=_WHITE
    )


def _draw(axes, span, left: float, unit: float, y: float, tall: float):
    """A span as a box, with its number where there is space."""
    colour, hatch = LOOKS[span.kind]
    x, wide = left + span.start * unit, (span.end - span.start) * unit
    box(axes, x, y, wide, tall, colour, hatch=hatch, linewidth=0.6)
    words = {"wait": "", "store": "store"}.get(span.kind, span.what)
    if words and wide > 7 * len(words) + 6:
        patch = {"facecolor": colour, "edgecolor": "none", "pad": 0.6}
        axes.text(x + wide / 2, y + tall / 2, words, fontsize=9, ha="center", va="center", bbox=patch)


def warp_trace(record, start: int = 0, span: int = 22_000) -> Panel:
    """What the warps of one program did, cycle by cycle, as recorded; one control moves the window.

    Args:
        record: a WarpTrace.
        start: first cycle of the window.
        span: cycles of the window.
    """
    figure, axes = page(256)
    axes.set(ylim=(232, -24))
    left, wide = 104, 640
    last = max(stamp for role in record.cycles for item in role for stamp in item if stamp is not None)
    rows = {"consumer 0": 14, "consumer 1": 58, "producer": 102}
    for name, y in rows.items():
        axes.text(left - 8, y + 16, name, fontsize=9.5, ha="right", va="center")
    shown = {kind: Boxes(axes, look[0], edgecolor=BLACK, linewidth=0.5, hatch=look[1]) for kind, look in LOOKS.items()}
    ticks = [axes.text(0, 168, "", fontsize=9, ha="center", va="center", animated=True) for _ in range(12)]
    (marks,) = axes.plot([], [], color="#888888", linewidth=0.7, animated=True)
    numbers = [axes.text(0, 0, "", fontsize=8.5, ha="center", va="center", animated=True, zorder=5) for _ in range(120)]
    idle = Boxes(axes, RED)
    said = [axes.text(0, -13, "", fontsize=9, color=RED, ha="center", va="center", animated=True) for _ in range(4)]
    key(axes, left, 202)
    axes.text(left + wide, 209, "cycles of the SM's clock", fontsize=9, ha="right", va="center", color=_GREY)
    spans = trace_spans(record)

    def draw(start):
        scale = wide / span
        places: dict = {kind: [] for kind in LOOKS}
        words = []
        for role, kind, item, first, end in spans:
            first, end = max(first, start), min(end, start + span)
            if first < end:
                x, long = left + (first - start) * scale, (end - first) * scale
                places[kind].append((x, rows[role], long, 32))
                if kind in ("multiply", "copy") and long > 8 * len(str(item)) + 2:
                    words.append((x + long / 2, rows[role] + 16, str(item)))
        for kind, each in places.items():
            shown[kind].place(*zip(*each)) if each else shown[kind].place([], [], [], [])
        inside = [(first, end) for first, end in pauses(record) if start <= first and end <= start + span]
        bars = [(left + (first - start) * scale, -3, (end - first) * scale, 6) for first, end in inside]
        idle.place(*zip(*bars)) if bars else idle.place([], [], [], [])
        for text, pause in zip(said, [*inside, *[None] * len(said)]):
            first, end = pause or (0, 0)
            x = min(left + ((first + end) / 2 - start) * scale, left + wide - 76)
            text.set(x=x, text=f"no matmul: {end - first:,} cycles" if pause else "")
        for text, (x, y, number) in zip(numbers, [*words, *[(0, 0, "")] * len(numbers)]):
            text.set(x=x, y=y, text=number)
        grid = list(range(-(-start // 4000) * 4000, start + span + 1, 4000))
        for text, tick in zip(ticks, [*grid, *[None] * len(ticks)]):
            text.set(text="" if tick is None else f"{tick:,}", x=left + ((tick or 0) - start) * scale)
        xs = [x for tick in grid for x in (left + (tick - start) * scale,) * 2 + (float("nan"),)]
        marks.set_data(xs, [146, 158, float("nan")] * len(grid))
        epilogues = [
            item for role, kind, item, first, end in spans if kind == "store" and start <= first < start + span
        ]
        return (
            f"Cycles {start:,} to {start + span:,} of one program: a producer warp and two consumer warpgroups. "
            f"Consumers wait for a slot, queue a matmul, and wait for the one before; {len(epilogues)} epilogues begin "
            "in this window. Meanwhile the producer waits for free slots and starts copies."
            + "".join(f" From cycle {first:,} to {end:,} no matmul runs." for first, end in inside)
        )

    control = whole("from cycle", 0, max(0, (last - span) // 1000 * 1000), 0)
    control.step = 1000
    return Panel("The warps of one program over time", figure, {"start": control}, draw).set(start=start)


def pauses(record) -> list:
    """[(cycle, cycle)] between a tile's last matmul, of the later consumer, and the earlier one's next slot."""
    consumers = record.cycles[:-1]
    firsts = range(record.items, len(consumers[0]), record.items)
    return [(max(role[at - 1][3] for role in consumers), min(role[at][1] for role in consumers)) for at in firsts]


def trace_spans(record) -> list:
    """[(role, kind, item, first cycle, last cycle)] of a WarpTrace, kinds as in LOOKS."""
    spans = []
    for role, items in zip(record.roles, record.cycles):
        for item, (before, after, queued, drained, stored) in enumerate(items):
            kind = "copy" if role == "producer" else "multiply"
            spans += [(role, "wait", item, before, after), (role, kind, item, after, drained or queued)]
            if stored is not None:
                spans.append((role, "store", item, drained, stored))
    return spans
