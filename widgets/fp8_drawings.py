"""Still drawings of FP8 products: which bits of a product a sum keeps, where sums are promoted, how scales lie."""

from widgets.panel import GREEN, ORANGE, SKY, YELLOW, Panel
from widgets.pictures import arrow, box, page, picture

_PALE, _SHADE = "#eeeeee", "#555555"


def kept_bits(sums: dict, top: int = 13, product: tuple = (1, -6)) -> Panel:
    """Which bits of a product a sum near 2**top still holds. sums: {name: significant bits}; product: its highest and
    lowest power of two."""
    lowest = min(product[1], *(top + 1 - bits for bits in sums.values()))
    left, side, line, head = 214, 21, 34, 62
    figure, axes = page(head + line * (len(sums) + 1) + 4)

    def x(power):
        return left + (top - power) * side

    for power in range(top, lowest - 1, -1):
        if power % 2:
            axes.text(x(power) + side / 2, head - 14, f"$2^{{{power}}}$", fontsize=8.5, ha="center", va="center")
    axes.text(left - 12, head + side / 2, "a product between 1 and 4", fontsize=9.5, ha="right", va="center")
    for power in range(product[0], product[1] - 1, -1):
        box(axes, x(power), head, side, side, ORANGE)
    kept = {}
    for row, (name, bits) in enumerate(sums.items(), 1):
        y = head + row * line
        axes.text(left - 12, y + side / 2, f"{name}, {bits} bits", fontsize=9.5, ha="right", va="center")
        for power in range(top, top - bits, -1):
            box(axes, x(power), y, side, side, ORANGE if product[0] >= power >= product[1] else SKY)
        kept[name] = sum(product[0] >= power >= product[1] for power in range(top, top - bits, -1))
    axes.text(
        left, 20, f"a sum that has reached {2**top:,}: the boxes are the bits that it holds", fontsize=9.5, va="center"
    )
    of = product[0] - product[1] + 1
    return picture(
        f"Near {2**top:,} a sum of {min(sums.values())} bits holds nothing of a product near 1",
        figure,
        f"A product between 1 and 4 has {of} bits. A sum near {2**top:,} holds "
        + ", ".join(f"{count} of them in {name}" for name, count in kept.items())
        + ".",
    )


def promotion(every: int = 128, step: int = 32, blocks: int = 3) -> Panel:
    """Along K: short sums in the matrix unit, each added to a sum in registers."""
    figure, axes = page(214)
    wide, gap, left, steps = 34, 26, 132, every // step
    axes.text(14, 54, "matrix unit", fontsize=10, weight="bold", va="center")
    axes.text(14, 168, "registers, fp32", fontsize=10, weight="bold", va="center")
    axes.text(left, 20, f"K, {step} columns an instruction", fontsize=9.5, va="center")
    arrow(axes, (left + 226, 20), (left + 420, 20))
    for block in range(blocks):
        x = left + block * (steps * wide + gap)
        for part in range(steps):
            box(axes, x + part * wide, 38, wide, 32, SKY)
            axes.text(x + (part + 0.5) * wide, 54, "+" if part else "0 +", fontsize=10, ha="center", va="center")
        end = x + steps * wide
        arrow(axes, (end - wide / 2, 71), (end - wide / 2, 150))
        axes.text(end - wide / 2 - 8, 110, "times the block's\nscales, then added", fontsize=9, ha="right", va="center")
        box(axes, end - wide, 151, wide, 34, ORANGE)
        axes.text(end - wide / 2, 168, "+", fontsize=11, ha="center", va="center")
        if block:
            arrow(axes, (end - steps * wide - gap, 168), (end - wide, 168))
    arrow(axes, (end, 168), (end + 40, 168))
    axes.text(end + 44, 168, "y", fontsize=10, va="center")
    return picture(
        f"A sum of {every} columns in the matrix unit, the long sum in fp32",
        figure,
        f"Along K, {steps} instructions of {step} columns add up in the matrix unit, from zero. Every {every} columns "
        "the short sum is multiplied by the scales of its blocks and added to a sum in fp32 registers.",
    )


def scale_layout() -> Panel:
    """128 rows of four scales in a matrix, and as 512 bytes in the order that Blackwell's instructions want."""
    figure, axes = page(300)
    colours = SKY, ORANGE, GREEN, YELLOW
    looks = "", "//", "..", "xx"
    x, top, band, byte = 118, 52, 54, 15
    axes.text(x + 2 * byte, 20, "the matrix of scales", fontsize=9.5, weight="bold", ha="center", va="center")
    axes.text(x + 2 * byte, 38, "128 rows, 4 groups", fontsize=9, ha="center", va="center")
    for at, (colour, hatch) in enumerate(zip(colours, looks)):
        y = top + at * band
        box(axes, x, y, 4 * byte, band, colour, hatch=hatch)
        axes.text(x - 8, y + band / 2, f"rows {32 * at} to {32 * at + 31}", fontsize=9, ha="right", va="center")
    arrow(axes, (x + 4 * byte + 26, top + 2 * band), (x + 4 * byte + 116, top + 2 * band))
    right, line = 330, 22
    axes.text(right + 8 * 22, 20, "the 512 bytes in memory", fontsize=9.5, weight="bold", ha="center", va="center")
    axes.text(right + 8 * 22, 38, "32 lines of 16 bytes", fontsize=9, ha="center", va="center")
    for row in range(5):
        y = top + row * (line + 8) if row < 3 else top + 3 * (line + 8) + 26 + (row - 3) * (line + 8)
        number = (0, 1, 2, 30, 31)[row]
        for at, (colour, hatch) in enumerate(zip(colours, looks)):
            box(axes, right + at * 88, y, 88, line, colour, hatch=hatch)
            axes.text(
                right + at * 88 + 44,
                y + line / 2,
                f"row {32 * at + number}",
                fontsize=9,
                ha="center",
                va="center",
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 1},
            )
    axes.text(right + 8 * 22, top + 3 * (line + 8) + 10, "...", fontsize=11, ha="center", va="center")
    axes.text(
        right + 8 * 22,
        284,
        "row r, group g:  byte 16 (r mod 32) + 4 (r div 32) + g",
        fontsize=9.5,
        ha="center",
        va="center",
    )
    return picture(
        "Four bands of 32 rows lie side by side",
        figure,
        "The scales of 128 rows and 4 groups of K are 512 bytes. In the matrix they lie row by row. The instruction "
        "wants 32 lines of 16 bytes: line 0 holds the four scales of row 0, then those of rows 32, 64 and 96; line 1 "
        "those of rows 1, 33, 65 and 97, and so on.",
    )
