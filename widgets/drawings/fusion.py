"""Pictures of fusion: the kernels of a layer in a row, unfused and fused, and when they ran."""

from collections.abc import Sequence

import numpy as np

from instruments.results import Span
from widgets.drawings.pictures import box, page, picture
from widgets.toolkit.panel import INK_RED, ORANGE, SKY, WIDTH, Panel

#: Kinds of kernels, as in bench/decoder_layer.py, with what a picture calls them.
KINDS = {
    "matmul": ("matmul", "#9ad9c4"),
    "attention": ("attention", "#e3b9d2"),
    "elementwise": ("pointwise or norm op", "#f5cf80"),
}


def kernel_strips(ways: dict[str, Sequence[tuple]], title: str, about: str) -> Panel:
    """Kernels in the order of their launch, a line of boxes per way; boxes above each other do the same work.

    Args:
        ways: {name: [(what stands in the box, kind, width in ops), ...]}; the widths of each way have the same sum.
        title: the finding.
        about: the text alternative.
    """
    columns = {sum(width for *_, width in boxes) for boxes in ways.values()}
    if len(columns) != 1:
        raise ValueError(f"ways: got {sorted(columns)} ops, expected the same number in each way")
    unit, high, head = (WIDTH - 16) / columns.pop(), 92, 24
    height = 34 + (head + high + 8) * len(ways)
    figure, axes = page(height)
    x = 8
    for name, colour in KINDS.values():
        box(axes, x, 8, 16, 14, colour)
        axes.text(x + 22, 15, name, fontsize=9.5, va="center")
        x += 46 + 7.4 * len(name)
    for place, (name, boxes) in enumerate(ways.items()):
        top = 34 + place * (head + high + 8)
        axes.text(8, top + 11, name, fontsize=10, weight="bold", va="center")
        left = 8
        for words, kind, width in boxes:
            wide = width * unit
            box(axes, left + 0.8, top + head, wide - 1.6, high, KINDS[kind][1])
            flat = wide > 7.2 * max(map(len, words.split("\n")))
            axes.text(
                left + wide / 2, top + head + high / 2, words if flat else words.replace("\n", " "),
                fontsize=9 if flat else 8.5, rotation=0 if flat else 90, ha="center", va="center",
            )  # fmt: skip
            left += wide
    return picture(title, figure, about)


def kernel_timeline(
    ways: dict[str, Sequence[Span]], title: str, about: str, labels: dict[str, Sequence[str]] | None = None
) -> Panel:
    """When each kernel of a call ran, a line per way, all on one scale from 0.

    Args:
        ways: {name: the kernels that were traced}, whose lanes are of KINDS.
        labels: {name: a label for each kernel, or ''}.
        title: the finding.
        about: what is shown; the text alternative goes on with each way's kernels, end and busy time.
    """
    ends = {name: max(span.start + span.us for span in spans) for name, spans in ways.items()}
    left, line, head = 8, 34, 24
    top, height = 34, 34 + (head + line + 8) * len(ways) + 24
    figure, axes = page(height)
    scale = (WIDTH - left - 76) / max(ends.values())
    x = left
    for name, colour in KINDS.values():
        box(axes, x, 8, 16, 14, colour)
        axes.text(x + 22, 15, name, fontsize=9.5, va="center")
        x += 46 + 7.4 * len(name)
    step = next(s for s in (10, 20, 50, 100, 200, 500, 1000, 2000, 5000) if max(ends.values()) / s <= 8)
    for tick in np.arange(0, max(ends.values()) + step / 2, step):
        at = left + tick * scale
        if at < WIDTH - 40:
            axes.plot([at, at], [top, height - 24], color="#dddddd", linewidth=0.8, zorder=0)
            axes.text(at, height - 12, f"{tick:,.0f} µs" if tick else "0", fontsize=9, va="center",
                      ha="center" if tick else "left")  # fmt: skip
    said = []
    for place, (name, spans) in enumerate(ways.items()):
        y = top + place * (head + line + 8)
        axes.text(left, y + 11, name, fontsize=10, weight="bold", va="center", backgroundcolor="white")
        axes.plot([left, left + ends[name] * scale], [y + head + line / 2] * 2, color="#999999", linewidth=1, zorder=1)
        for span, words in zip(spans, (labels or {}).get(name) or [""] * len(spans), strict=True):
            x, wide = left + span.start * scale, max(span.us * scale, 0.8)
            box(axes, x, y + head, wide, line, KINDS[span.lane][1], linewidth=0.4, edgecolor="#555555", zorder=2)
            axes.text(x + wide / 2, y + head + line / 2, words, fontsize=9, ha="center", va="center", zorder=3)
        axes.text(
            left + ends[name] * scale + 6, y + head + line / 2, f"{ends[name]:,.0f} µs", fontsize=9.5, va="center"
        )
        busy = sum(span.us for span in spans)
        overlap = " (some overlap)" if busy > ends[name] else ""
        said.append(
            f"{name}: {len(spans)} kernels, the last one ends after {ends[name]:,.0f} µs, "
            f"their times add up to {busy:,.0f} µs{overlap}"
        )
    return picture(title, figure, about, "; ".join(said))


def pair_regions(pairs: Sequence, title: str, about: str) -> Panel:
    """Pairs of ops side by side: the tensor between them, what one program holds of it and what the next op needs.

    Args:
        pairs: as in widgets/panels/fusible_pairs.py, whose regions are in `cells` of the tensor.
        title: the finding.
        about: the text alternative.
    """
    cells, top, height = 8, 80, 224
    figure, axes = page(height)
    wide = WIDTH / len(pairs)
    side = wide - 18
    cell = side / cells
    axes.plot([8, 26], [15, 15], color=SKY, linewidth=3.5)
    axes.text(32, 15, "one program of the first op holds", fontsize=9.5, va="center")
    box(axes, 268, 8, 16, 14, ORANGE, hatch="//")
    axes.text(290, 15, "one program of the second op needs", fontsize=9.5, va="center")
    for place, pair in enumerate(pairs):
        left = place * wide + 9
        at = left + (cells - pair.wide) / 2 * cell * (not pair.again)
        axes.text(left + side / 2, 48, f"pair {place + 1}", fontsize=9.5, weight="bold", ha="center", va="center")
        axes.text(left + side / 2, 66, pair.short, fontsize=9, ha="center", va="center")
        grids = [(at, pair.wide)] + [(at + 2 * cell, cells - 2)] * bool(pair.again)
        for x, columns in grids:
            for row in range(cells):
                for column in range(columns):
                    look = {"edgecolor": "#bbbbbb", "linewidth": 0.5}
                    box(axes, x + column * cell, top + row * cell, cell, cell, "white", **look)
        for region, x, columns in [(pair.needs, at, None)] + [(pair.needs, at + 2 * cell, cells - 2)] * bool(
            pair.again
        ):
            row, column, rows, across = region
            box(axes, x + column * cell, top + row * cell, (columns or across) * cell, rows * cell, ORANGE, hatch="//")
        row, column, rows, across = pair.holds
        look = {"edgecolor": SKY, "linewidth": 3, "fill": False}
        box(axes, at + column * cell, top + row * cell, across * cell, rows * cell, **look)
        words = {"stays apart": ("stays apart", INK_RED), "fuses": ("fuses", "#006b4f")}
        verdict, colour = words.get(pair.verdict, ("at a price", "#8a5f00"))
        under = top + side + 16
        axes.text(left + side / 2, under, verdict, fontsize=9.5, weight="bold", ha="center", va="center", color=colour)
        if not pair.sharers.startswith("1 "):
            axes.text(left + side / 2, under + 18, "112 need it", fontsize=9, ha="center", va="center")
        if pair.again:
            axes.text(left + side / 2, under + 18, pair.again + " again", fontsize=9, ha="center", va="center")
    return picture(title, figure, about)
