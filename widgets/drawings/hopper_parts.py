"""Still drawings of kernels with roles: slots in shared memory, warps with roles, who writes which part of dq."""

from widgets.drawings.pictures import arrow, box, page, picture
from widgets.toolkit.panel import BLACK, BLUE, GREEN, ORANGE, RED, SKY, Panel

_GREY, _SAND, _PALE = "#555555", "#f7e3b0", "#e4e4e4"


def shared_budget(slots: int, a_bytes: int, b_bytes: int, out_bytes: int, limit: int) -> Panel:
    """A ring's slots and the output's buffers in shared memory, the next slot dashed, and the limit as a line."""
    figure, axes = page(150)
    left, wide = 12, 736
    slot = a_bytes + b_bytes
    scale = wide / ((slots + 1) * slot + out_bytes)
    y, tall = 58, 46
    for at in range(slots + 1):
        x = left + at * slot * scale
        if at == slots:
            x += out_bytes * scale
            box(axes, x, y, slot * scale, tall, "white", linestyle="--", edgecolor=RED, linewidth=1.4)
            axes.text(x + slot * scale / 2, y + tall / 2, f"slot {at}?", fontsize=9.5, ha="center", va="center")
            continue
        box(axes, x, y, a_bytes * scale, tall, SKY)
        box(axes, x + a_bytes * scale, y, b_bytes * scale, tall, "#cfe6f5")
        axes.text(x + a_bytes * scale / 2, y + tall / 2, "A", fontsize=9.5, ha="center", va="center")
        axes.text(x + (a_bytes + b_bytes / 2) * scale, y + tall / 2, "B", fontsize=9.5, ha="center", va="center")
        axes.text(x + slot * scale / 2, y + tall + 14, f"slot {at}", fontsize=9, ha="center", va="center")
    x = left + slots * slot * scale
    box(axes, x, y, out_bytes * scale, tall, GREEN, hatch="..")
    axes.text(x + out_bytes * scale / 2, y + tall + 14, "output", fontsize=9, ha="center", va="center")
    x = left + limit * scale
    axes.plot([x, x], [38, y + tall + 26], color=RED, linewidth=2, zorder=5)
    axes.text(x, 26, f"limit {limit:,} bytes", fontsize=9.5, ha="center", va="center", color=RED, weight="bold")
    axes.text(left, 26, f"a slot: {a_bytes:,} of A + {b_bytes:,} of B = {slot:,} bytes", fontsize=9.5, va="center")
    used = slots * slot + out_bytes
    axes.text(left, 140, f"{slots} slots and the output: {used:,} bytes", fontsize=9.5, va="center")
    return picture(
        "Slots and the limit of shared memory",
        figure,
        f"{slots} slots of {slot:,} bytes and {out_bytes:,} bytes for the output take {used:,} bytes of shared memory. "
        f"A program may have {limit:,}. One more slot would need {used + slot:,}.",
    )


def warp_roles(slots: int = 4, start: int = 168, producer: int = 24, consumer: int = 240) -> Panel:
    """A producer warp, TMA, the ring and two consumer warpgroups, with the barriers between them, and their registers.

    Args:
        slots: of the ring.
        start: registers per thread of all 12 warps, when the program starts.
        producer: registers per thread of the producer's 4 warps, later.
        consumer: of the consumers' 8 warps.
    """
    figure, axes = page(330)
    box(axes, 12, 66, 112, 60, _SAND, linewidth=1.2)
    axes.text(68, 96, "producer\n1 warp", fontsize=10, ha="center", va="center", weight="bold")
    box(axes, 196, 72, 70, 48, "white", linewidth=1.2)
    axes.text(231, 96, "TMA", fontsize=10, ha="center", va="center", weight="bold")
    arrow(axes, (126, 96), (194, 96))
    axes.text(160, 84, "copy", fontsize=9, ha="center", va="center")
    for at in range(slots):
        box(axes, 336, 32 + at * 32, 100, 28, SKY if at else ORANGE, hatch="" if at else "//")
        patch = {"facecolor": SKY if at else ORANGE, "edgecolor": "none", "pad": 0.6}
        axes.text(386, 46 + at * 32, f"slot {at}", fontsize=9, ha="center", va="center", bbox=patch)
    arrow(axes, (268, 96), (334, 96))
    axes.text(301, 84, "bytes", fontsize=9, ha="center", va="center")
    box(axes, 552, 22, 202, 148, "none", linewidth=1.2, edgecolor=_GREY, linestyle="--")  # the barriers are of both
    for at, y in enumerate((30, 104)):
        box(axes, 560, y, 186, 58, _SAND, linewidth=1.2)
        words = f"consumer {at}, 4 warps\nrows {at * 64} to {at * 64 + 63} of the tile"
        axes.text(653, y + 29, words, fontsize=9.5, ha="center", va="center")
        arrow(axes, (438, 46), (558, (52, 124)[at]))
    axes.text(521, 70, "wgmma", fontsize=9, ha="center", va="center")
    axes.text(386, 16, "ring in shared memory", fontsize=9.5, ha="center", va="center", weight="bold")
    axes.plot([710, 710, 68, 68], [170, 206, 206, 146], color=RED, linewidth=1.6)
    arrow(axes, (68, 150), (68, 128), RED)
    words = "free[slot]: two arrivals, one per consumer; the producer waits"
    axes.text(361, 206, words, fontsize=9.5, ha="center", va="center", color=RED, bbox=_white())
    axes.plot([231, 231, 600, 600], [122, 186, 186, 184], color=BLUE, linewidth=1.6)
    arrow(axes, (600, 186), (600, 171), BLUE)
    words = "full[slot]: all bytes are here; both consumers wait"
    axes.text(412, 186, words, fontsize=9.5, ha="center", va="center", color=BLUE, bbox=_white())
    _registers(axes, start, producer, consumer)
    return picture(
        "Roles meet at two barriers per slot",
        figure,
        f"One producer warp tells TMA to copy into {slots} slots; two consumers of 4 warps multiply from them, 64 rows "
        "each. full says that a slot's bytes have arrived, and the consumers wait for it. free needs an arrival from "
        f"each consumer, and the producer waits for it. Registers: at the start 12 warps x 32 threads x {start}; later "
        f"{producer} per thread for the producer's 4 warps and {consumer} for the consumers' 8. Both sum to "
        f"{384 * start:,}.",
    )


def _white() -> dict:
    """A white ground under words that cross a line."""
    return {"facecolor": "white", "edgecolor": "none", "pad": 1.5}


def _registers(axes, start: int, producer: int, consumer: int):
    """Two bars of one scale: a program's registers at its start, and with roles."""
    left, wide = 112, 636
    scale = wide / (384 * start)
    axes.text(12, 230, "registers of a program", fontsize=9.5, weight="bold", va="center")
    for y, name, parts in (
        (244, "at the start", [(384 * start, _PALE, f"12 warps x 32 x {start} = {384 * start:,}")]),
        (
            282,
            "with roles",
            [
                (128 * producer, _SAND, ""),
                (128 * consumer, SKY, f"consumer 0: 4 x 32 x {consumer}"),
                (128 * consumer, SKY, f"consumer 1: 4 x 32 x {consumer}"),
            ],
        ),
    ):
        axes.text(left - 8, y + 14, name, fontsize=9, ha="right", va="center")
        x = left
        for count, colour, words in parts:
            box(axes, x, y, count * scale, 28, colour)
            axes.text(x + count * scale / 2, y + 14, words, fontsize=9, ha="center", va="center")
            x += count * scale
    axes.text(left, 321, f"producer's group: 4 x 32 x {producer}", fontsize=9, va="center")


def who_writes(parts: dict, levels: list, title: str) -> Panel:
    """Which parts of a kernel the compiler writes, and which its author.

    Args:
        parts: {part: per level "compiler", "you" or ""}.
        levels: names of the columns.
        title: the subject.
    """
    line, head, left = 30, 46, 236
    wide = (748 - left) / len(levels)
    figure, axes = page(head + line * len(parts) + 10)
    for at, name in enumerate(levels):
        x = left + (at + 0.5) * wide
        axes.text(x, 22, name, fontsize=9.5, weight="bold", ha="center", va="center", linespacing=1.25)
    for row, (part, writers) in enumerate(parts.items()):
        y = head + row * line
        axes.text(left - 12, y + line / 2 - 1, part, fontsize=9.5, ha="right", va="center")
        for at, writer in enumerate(writers):
            looks = {"compiler": (_PALE, ""), "you": (ORANGE, "//"), "": ("white", "")}
            colour, hatch = looks[writer]
            edge = {"edgecolor": BLACK if writer else "#bbbbbb", "linewidth": 0.8, "hatch": hatch}
            box(axes, left + at * wide + 3, y, wide - 6, line - 5, colour, **edge)
            patch = {"facecolor": colour, "edgecolor": "none", "pad": 1}
            words = writer or "none"
            x = left + (at + 0.5) * wide
            axes.text(x, y + line / 2 - 2.5, words, fontsize=9, ha="center", va="center", bbox=patch)
    said = "; ".join(f"{part}: " + ", ".join(who or "none" for who in row) for part, row in parts.items())
    names = ", ".join(name.replace("\n", " ") for name in levels)
    return picture(title, figure, f"Who writes each part of the kernel, in {names}", said)


def shared_dq(queries: int = 64, head_dim: int = 128) -> Panel:
    """How two warpgroups that own keys form one tile of dq: which part each computes, and what crosses between them.

    Args:
        queries: of the tile.
        head_dim: columns of dq, shared between the warpgroups.
    """
    figure, axes = page(338)
    box(axes, 6, 128, 748, 58, _PALE, edgecolor="none")
    axes.text(380, 157, "shared\nmemory", fontsize=9, ha="center", va="center", color=_GREY)
    half = head_dim // 2
    for group, (color, hatch) in enumerate(((SKY, ""), (ORANGE, "//"))):
        left = 12 + group * 392
        patch = {"facecolor": color, "edgecolor": "none", "pad": 1}
        box(axes, left, 6, 344, 108, "#ffffff", edgecolor=_GREY)
        words = f"warpgroup {group}: keys {64 * group} to {64 * group + 63}, in registers"
        axes.text(left + 172, 20, words, fontsize=9.5, weight="bold", ha="center", va="center")
        box(axes, left + 12, 36, 140, 64, color, hatch=hatch)
        axes.text(left + 82, 68, f"ds {group}", fontsize=10.5, ha="center", va="center", bbox=patch)
        box(axes, left + 196, 36, 136, 64, GREEN)
        axes.text(left + 264, 68, f"dk {group} and dv {group}", fontsize=10, ha="center", va="center", color="white")
        arrow(axes, (left + 154, 68), (left + 194, 68))
        arrow(axes, (left + 82, 101), (left + 82, 136))
        box(axes, left + 12, 138, 140, 38, color, hatch=hatch)
        axes.text(left + 82, 157, f"copy of ds {group}", fontsize=9.5, ha="center", va="center", bbox=patch)
        box(axes, left + 196, 138, 136, 38, "white")
        axes.text(left + 264, 157, f"tile of k {group}", fontsize=9.5, ha="center", va="center")
        x = 190 + group * 152
        box(axes, x, 234, 150, 46, color, hatch=hatch)
        words = f"columns {half * group} to {half * group + half - 1}\nby warpgroup {group}"
        axes.text(x + 75, 257, words, fontsize=9, ha="center", va="center", bbox=patch)
        for other, x in enumerate((250 + 24 * group, 402 + 24 * group)):
            arrow(
                axes, (left + 82, 177), (x, 233), BLUE if group == 0 else RED, linestyle="-" if group == other else "--"
            )
    axes.text(14, 257, f"a tile of dq:\n{queries} queries", fontsize=9.5, va="center")
    arrow(axes, (496, 257), (590, 257))
    axes.text(543, 244, "TMA adds", fontsize=9, ha="center", va="center")
    box(axes, 592, 234, 156, 46, _PALE)
    axes.text(670, 257, "dq in HBM, in fp32", fontsize=9.5, ha="center", va="center")
    words = "solid: its own ds, multiplied first; dashed: the other's, after an mbarrier says that it is complete"
    axes.text(380, 301, words, fontsize=9, ha="center", va="center")
    words = f"columns 0 to {half - 1} of dq = ds 0 · these columns of k 0 + ds 1 · these of k 1 (ds lies transposed)"
    axes.text(380, 321, words, fontsize=9, ha="center", va="center")
    return picture(
        "dq needs the ds of both warpgroups",
        figure,
        f"Each of two warpgroups owns 64 keys and keeps their dk and dv in registers. dq sums over all keys, so each "
        f"warpgroup copies its ds to shared memory. Warpgroup 0 computes columns 0 to {half - 1} of a tile of dq of "
        f"{queries} queries, warpgroup 1 columns {half} to {head_dim - 1}: a matmul of its own ds and these columns "
        "of its tile of k, then one of the other's ds and tile of k. ds lies transposed. TMA adds both halves to dq "
        "in HBM, in fp32.",
    )
