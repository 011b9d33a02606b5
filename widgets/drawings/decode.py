"""Still drawings of decode: intensities on a roofline, a group of heads as one tile, a KV cache in pages."""

from widgets.drawings.pictures import arrow, box, page, picture
from widgets.toolkit.panel import BLACK, BLUE, GREEN, ORANGE, RED, SKY, YELLOW, Panel, canvas

_GRAY = "#555555"
_INK_ORANGE = "#8a5f00"


def intensities(points: dict, measured: tuple, copy_gbps: float, matmul_tflops: float, title: str) -> Panel:
    """A roofline with the arithmetic intensities of a text marked on it.

    Args:
        points: {name: FLOP/byte}, on the roof.
        measured: (FLOP/byte, TFLOP/s, name) of a point below the roof.
        copy_gbps: slope of the roof.
        matmul_tflops: its height.
        title: the finding.
    """
    height = 300
    figure = canvas(height=height)
    axes = figure.add_axes((0.085, 0.15, 0.89, 0.76))
    ridge = 1e3 * matmul_tflops / copy_gbps
    axes.set(xscale="log", yscale="log", xlim=(0.5, 8192), ylim=(1, 2000))
    axes.minorticks_off()
    axes.set_xticks([1, 4, 16, 64, 256, 1024, 4096], ["1", "4", "16", "64", "256", "1,024", "4,096"], fontsize=9)
    axes.set_yticks([1, 10, 100, 1000], ["1", "10", "100", "1,000"], fontsize=9)
    axes.set_xlabel("arithmetic intensity, FLOP/byte", fontsize=9)
    axes.text(0, 1.03, "TFLOP/s", fontsize=9, transform=axes.transAxes)
    axes.spines[["top", "right"]].set_visible(False)
    axes.plot([0.5, ridge, 8192], [0.5 * copy_gbps / 1e3, matmul_tflops, matmul_tflops], color=BLACK, linewidth=2)
    axes.plot([ridge, ridge], [1, matmul_tflops], ":", color=_GRAY, linewidth=1.2)
    axes.text(ridge * 1.08, 1.25, f"ridge point: {ridge:.0f} FLOP/byte", fontsize=9, color=_GRAY)
    axes.text(ridge * 1.3, matmul_tflops * 1.18, f"matmul, {matmul_tflops:.0f} TFLOP/s", fontsize=9, color=_GRAY)
    axes.text(14, 110, f"copy bandwidth, {copy_gbps:,.0f} GB/s", fontsize=9, color=_GRAY, ha="right")
    said = []
    for name, x in points.items():
        y = min(x * copy_gbps / 1e3, matmul_tflops)
        axes.plot([x], [y], "o", color=BLUE, markeredgecolor=BLACK, markersize=9, zorder=4)
        look = {"textcoords": "offset points", "fontsize": 9, "va": "center"}
        axes.annotate(name, (x, y), (13, -9) if x < ridge else (20, -16), ha="left" if x < ridge else "right", **look)
        said.append(f"{name} {x:,.0f} FLOP/byte")
    x, y, name = measured
    axes.plot([x], [y], "s", color=ORANGE, markeredgecolor=BLACK, markersize=8, zorder=5)
    axes.plot([x, x * 1.75], [y, 2.1], color=_INK_ORANGE, linewidth=1, zorder=3)
    axes.text(x * 1.3, 1.5, f"{name}, {y:.0f} TFLOP/s", fontsize=9, color=_INK_ORANGE, va="center")
    about = f"Roofline of the H200, with a ridge point of {ridge:.0f} FLOP/byte; {name} reaches {y:.0f} TFLOP/s"
    return picture(title, figure, about, "; ".join(said))


def packed_group() -> Panel:
    """The query heads that share a KV head: a program each, and one program for all of them."""
    figure, axes = page(268)
    for left, words in ((14, "one program per query head"), (400, "one program per KV head")):
        axes.text(left, 14, words, fontsize=9.5, weight="bold", va="center")
    colors = (SKY, GREEN, YELLOW, "#CC79A7")
    for head, color in enumerate(colors):
        y = 40 + head * 52
        box(axes, 14, y + 8, 96, 18, color)
        axes.text(62, y + 17, f"query head {head}", fontsize=9, ha="center", va="center")
        box(axes, 178, y, 150, 34, ORANGE)
        axes.text(253, y + 17, "k and v of KV head 0", fontsize=9, ha="center", va="center")
        arrow(axes, (176, y + 17), (114, y + 17), _INK_ORANGE)
    axes.text(253, 256, "read four times", fontsize=9.5, ha="center", va="center", color=_INK_ORANGE)
    for row in range(16):
        box(axes, 400, 40 + row * 12, 96, 12, colors[row] if row < 4 else "white", linewidth=0.6)
    for head in range(4):
        axes.text(448, 46 + head * 12, f"query head {head}", fontsize=7.5, ha="center", va="center")
    ground = {"facecolor": "white", "edgecolor": "none", "pad": 1.5}
    axes.text(448, 160, "12 masked rows", fontsize=9, ha="center", va="center", color=_GRAY, bbox=ground)
    axes.text(448, 244, "tile of 16 rows", fontsize=9, ha="center", va="center")
    box(axes, 590, 100, 150, 34, ORANGE)
    axes.text(665, 117, "k and v of KV head 0", fontsize=9, ha="center", va="center")
    arrow(axes, (588, 117), (500, 117), _INK_ORANGE)
    axes.text(665, 150, "read once", fontsize=9.5, ha="center", va="center", color=_INK_ORANGE)
    return picture(
        "Four query heads as the rows of one tile",
        figure,
        "With a program per query head, four programs read the same keys and values. With one program per KV head, the "
        "four queries are rows 0 to 3 of a tile of 16, twelve rows are masked out, and keys and values are read once.",
    )


def paged_cache(tables: dict, page_keys: int, pages: int, key: int) -> Panel:
    """Sequences whose keys lie in pages, with their block tables, and the way to one key.

    Args:
        tables: {sequence: its pages, in order}.
        page_keys: keys per page.
        pages: in the pool.
        key: of the first sequence, whose place is shown.
    """
    figure, axes = page(292)
    colors = dict(zip(tables, (SKY, GREEN, YELLOW)))
    axes.text(12, 14, "what the kernel sees: keys in order", fontsize=9.5, weight="bold", va="center")
    axes.text(392, 14, "block table", fontsize=9.5, weight="bold", va="center")
    for at, (name, own) in enumerate(tables.items()):
        y = 34 + at * 46
        axes.text(12, y + 13, name, fontsize=9, va="center")
        for slot, where in enumerate(own):
            box(axes, 96 + slot * 62, y, 60, 26, colors[name])
            words = f"{slot * page_keys} to {(slot + 1) * page_keys - 1}"
            axes.text(126 + slot * 62, y + 13, words, fontsize=8.5, ha="center", va="center")
            box(axes, 392 + slot * 46, y, 44, 26, colors[name])
            axes.text(414 + slot * 46, y + 13, str(where), fontsize=9.5, ha="center", va="center")
    first, own = next(iter(tables.items()))
    slot, row = divmod(key, page_keys)
    box(axes, 96 + slot * 62, 34, 60, 26, "none", edgecolor=RED, linewidth=2.6)
    box(axes, 392 + slot * 46, 34, 44, 26, "none", edgecolor=RED, linewidth=2.6)
    where, within = f"{key} // {page_keys} = {slot}", f"{key} % {page_keys} = {row}"
    words = f"key {key} of {first}:  {where}  →  page {own[slot]},  {within}  →  row {row}"
    axes.text(12, 178, words, fontsize=9.5, va="center", color="#A84300")
    axes.text(12, 208, "where they lie in HBM: one pool of pages", fontsize=9.5, weight="bold", va="center")
    owner = {where: name for name, of in tables.items() for where in of}
    for where in range(pages):
        x = 12 + where * 74
        box(axes, x, 224, 70, 30, colors.get(owner.get(where), "white"))
        axes.text(x + 35, 239, f"page {where}" if where in owner else "free", fontsize=9, ha="center", va="center")
    x = 12 + own[slot] * 74
    box(axes, x, 224, 70, 30, "none", edgecolor=RED, linewidth=2.6)
    arrow(axes, (414 + slot * 46, 61), (x + 35, 222), RED)
    left = x + row * 70 / page_keys
    box(axes, left, 258, 70 / page_keys, 12, RED, linewidth=0)
    axes.text(x + 35, 281, f"row {row} of page {own[slot]}", fontsize=9, ha="center", va="center", color="#A84300")
    said = "; ".join(f"{name} has pages {', '.join(map(str, of))}" for name, of in tables.items())
    return picture(
        "A block table says where the pages of a sequence lie",
        figure,
        f"Pages of {page_keys} keys. {said}. Key {key} of {first} is row {row} of page {own[slot]}.",
    )
