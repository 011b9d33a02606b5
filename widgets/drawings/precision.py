"""Still drawings of low precision: the bits of formats, values before and after quantization, how codes and scales lie
in memory. What they show is handed in."""

import numpy as np
from matplotlib.lines import Line2D

from widgets.drawings.pictures import box, page, picture
from widgets.toolkit.panel import BLUE, GREEN, RED, SKY, WIDTH, Panel, canvas


def bit_fields(formats: dict, title: str, about: str) -> Panel:
    """The bits of each format, one box a bit: sign, exponent, mantissa.

    formats: {name: (exponent bits, mantissa bits, largest value in words)}; about: what is shown, for the caption.
    """
    line, head, side, left = 26, 34, 13, 70
    figure, axes = page(head + line * len(formats) + 6)
    for x, name, colour in ((left, "sign", RED), (left + 70, "exponent", GREEN), (left + 170, "mantissa", BLUE)):
        box(axes, x, 9, 13, 13, colour)
        axes.text(x + 19, 16, name, fontsize=9.5, va="center")
    axes.text(WIDTH - 210, 16, "significant bits", fontsize=9, va="center", ha="center")
    axes.text(WIDTH - 12, 16, "largest", fontsize=9, va="center", ha="right")
    for row, (name, (exponent, mantissa, largest)) in enumerate(formats.items()):
        y = head + row * line
        axes.text(left - 10, y + side / 2, name, fontsize=9.5, va="center", ha="right")
        for bit in range(1 + exponent + mantissa):
            colour = RED if not bit else GREEN if bit <= exponent else BLUE
            box(axes, left + bit * side, y, side, side, colour)
        axes.text(WIDTH - 210, y + side / 2, str(mantissa + 1), fontsize=9.5, va="center", ha="center")
        axes.text(WIDTH - 12, y + side / 2, largest, fontsize=9.5, va="center", ha="right")
    numbers = "; ".join(
        f"{name} 1 + {exponent} + {mantissa}, to {largest}" for name, (exponent, mantissa, largest) in formats.items()
    )
    return picture(title, figure, about, numbers)


def before_and_after(
    ways: dict, title: str, about: str, limit: float, group: int = 0, levels: dict | None = None
) -> Panel:
    """Elements of one row before and after quantization, a band for each way: dots, and bars in their place.

    Args:
        ways: {name: (values before, values after, words to the right)}; all of one length.
        title: the finding.
        about: what is shown, for the text alternative.
        limit: the bands go from -limit to limit; a value beyond is cut off there, which its number says.
        group: elements that share a scale, parted by thin lines in the last way; 0 for none.
        levels: {name: the values [elements, levels] that each element could become}, drawn as faint lines.
    """
    band, head, left, right = 78, 30, 118, 118
    height = head + band * len(ways) + 4
    figure = canvas(height=height)
    for x, words, mark in ((left, "before", "o"), (left + 92, "after", "s")):
        look = {"marker": mark, "color": "white" if mark == "o" else BLUE, "markeredgecolor": "#222222"}
        figure.add_artist(Line2D([x / WIDTH], [1 - 13 / height], markersize=6, linestyle="", **look))
        figure.text((x + 9) / WIDTH, 1 - 13 / height, words, fontsize=9.5, va="center")
    for place, (name, (before, after, words)) in enumerate(ways.items()):
        before, after = (np.asarray(values, dtype=float) for values in (before, after))
        top = head + place * band
        where = (left / WIDTH, 1 - (top + band - 6) / height, 1 - (left + right) / WIDTH, (band - 8) / height)
        axes = figure.add_axes(where)
        axes.set(xlim=(-1, len(before)), ylim=(-1.12 * limit, 1.12 * limit), xticks=[], yticks=[])
        axes.spines[:].set_visible(False)
        axes.axhline(0, color="#888888", linewidth=0.8)
        if group and place == len(ways) - 1:
            for at in range(group, len(before), group):
                axes.axvline(at - 0.5, color="#999999", linewidth=0.8, linestyle=":")
        columns = np.arange(len(before))
        for level in np.transpose((levels or {}).get(name, np.empty((0, 0)))):
            axes.hlines(level, columns - 0.5, columns + 0.5, color="#bbbbbb", linewidth=0.6, zorder=0)
        axes.bar(columns, after.clip(-limit, limit), 0.72, color=BLUE)
        axes.plot(columns, before.clip(-limit, limit), "o", color="white", markeredgecolor="#222222", markersize=3.6)
        for at in np.flatnonzero(np.abs(before) > limit):
            look = {"textcoords": "offset points", "fontsize": 9, "va": "center"}
            axes.annotate(f"{before[at]:g}, cut off", (at, np.sign(before[at]) * limit), (6, 0), **look)
        y = 1 - (top + band / 2 - 2) / height
        figure.text(6 / WIDTH, y, name, fontsize=9.5, va="center")
        figure.text(1 - (right - 10) / WIDTH, y, words, fontsize=9.5, va="center")
    numbers = "; ".join(" ".join(f"{name}, {words}".split()) for name, (_, _, words) in ways.items())
    return picture(title, figure, about, numbers)


def packed(ways: dict, title: str, about: str) -> Panel:
    """The bytes that 64 numbers of a row become: a box for each byte of codes, and below one for each byte of scales.

    ways: {name: (bits a code, numbers a scale or None, words beside the scales)}. about: what is shown, for the
    text alternative.
    """
    numbers, line, head, left, wide = 64, 60, 8, 76, 4.6
    figure, axes = page(head + line * len(ways) - 24 * any(not group for _, group, _ in ways.values()))
    y, sizes = head, []
    for name, (bits, group, words) in ways.items():
        codes = numbers * bits // 8
        each = codes * (group or numbers) // numbers  # bytes of codes to a scale
        axes.text(left - 10, y + 10, name, fontsize=9.5, va="center", ha="right")
        for byte in range(codes):
            box(axes, left + byte * wide, y, wide, 20, SKY if byte // each % 2 == 0 else "#d3eaf8")
        axes.text(left + codes * wide + 8, y + 10, f"{codes} bytes", fontsize=9, va="center")
        sizes.append(f"{name} {codes} bytes of codes")
        if group:
            scales = numbers // group
            for scale in range(scales):
                box(axes, left + scale * each * wide, y + 25, wide, 14, GREEN)
            axes.text(left + (scales - 1) * each * wide + 14, y + 32, words, fontsize=9, va="center")
            sizes[-1] += f" and {words}"
        y += line if group else line - 24
    return picture(title, figure, about, "; ".join(sizes))


def word_steps(steps: dict, title: str, about: str) -> Panel:
    """A 32-bit word after each step of its unpacking, one box a bit, and below the last one the fields of two bf16.

    steps: {what is done: a letter for each bit, from bit 31 on: s, e, m for the sign, exponent, mantissa of a code that
    is followed, - for a bit of another code, . for a zero}; about: what is shown, for the caption.
    """
    side, line, head, left, gap = 17, 34, 24, 186, 8
    colours = {"s": RED, "e": GREEN, "m": BLUE, "-": "#d9d9d9", ".": "white"}
    figure, axes = page(head + line * len(steps) + 24)

    def x(bit):
        return left + (31 - bit) * side + gap * (bit < 16)

    for bit in (31, 16, 15, 0):
        axes.text(x(bit) + side / 2, head - 12, str(bit), fontsize=9, ha="center", va="center")
    for row, (name, letters) in enumerate(steps.items()):
        y = head + row * line
        axes.text(left - 12, y + side / 2, name, fontsize=9.5, ha="right", va="center")
        for bit, letter in zip(range(31, -1, -1), letters):
            box(axes, x(bit), y, side, side, colours[letter])
    y = head + line * len(steps) - 10
    axes.text(left - 12, y + 10, "as two bf16", fontsize=9.5, ha="right", va="center")
    for low in (0, 16):
        for first, last, name in ((15, 15, "s"), (14, 7, "exponent"), (6, 0, "mantissa")):
            start, end = x(low + first) + 2, x(low + last) + side - 2
            axes.plot([start, end], [y, y], color="black", linewidth=1)
            axes.text((start + end) / 2, y + 11, name, fontsize=9, ha="center", va="center")
    numbers = []
    for name, letters in steps.items():
        places = {letter: [31 - at for at, each in enumerate(letters) if each == letter] for letter in "sm"}
        numbers.append(
            f"{name}: "
            + ", ".join(
                f"{word} in bit{'s' * (len(places[letter]) > 1)} {' and '.join(map(str, places[letter]))}"
                for letter, word in (("s", "sign"), ("m", "mantissa"))
            )
        )
    return picture(title, figure, about, "; ".join(numbers))
