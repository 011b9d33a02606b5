"""Still drawings of low precision: the bits of formats, what shares a scale with an outlier, how codes and scales lie
in memory. What they show is handed in."""

import numpy as np

from widgets.panel import BLUE, GREEN, RED, SKY, WIDTH, Panel, canvas
from widgets.pictures import box, page, picture

_DARK_RED = np.array([0xA8, 0x43, 0x00]) / 255


def bit_fields(formats: dict, title: str, about: str) -> Panel:
    """The bits of each format, one box a bit: sign, exponent, mantissa.

    formats: {name: (exponent bits, mantissa bits, largest value in words)}; about: what is shown, for the sentence.
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
    said = "; ".join(
        f"{name} 1 + {exponent} + {mantissa}, to {largest}" for name, (exponent, mantissa, largest) in formats.items()
    )
    return picture(title, figure, f"{about}: {said}.")


def lost(ways: dict, title: str, about: str) -> Panel:
    """What of a matrix is lost, a map for each way of sharing scales: white is kept, dark is lost.

    ways: {name: (matrix [rows, cols] of shares between 0 and 1, words below it)}, all of one shape; about: what is
    shown, for the sentence.
    """
    gap, top = 22, 34
    side = (WIDTH - gap * (len(ways) + 1)) / len(ways)
    height = round(top + side + 34)
    figure = canvas(height=height)
    for place, (name, (share, words)) in enumerate(ways.items()):
        left = gap + place * (side + gap)
        axes = figure.add_axes((left / WIDTH, 30 / height, side / WIDTH, side / height))
        share = np.clip(np.asarray(share, dtype=float), 0, 1)[:, :, None]
        axes.imshow(1 - share + share * _DARK_RED, interpolation="nearest", aspect="auto")
        axes.set_xticks([])
        axes.set_yticks([])
        middle = (left + side / 2) / WIDTH
        figure.text(middle, 1 - 16 / height, name, fontsize=9.5, weight="bold", ha="center", va="center")
        figure.text(middle, 14 / height, words, fontsize=9, ha="center", va="center")
    said = "; ".join(f"{name}, {words}" for name, (_, words) in ways.items())
    return picture(title, figure, f"{about}: {said}.")


def packed(ways: dict, title: str, about: str) -> Panel:
    """The bytes that 64 numbers of a row become: a box for each byte of codes, and below one for each byte of scales.

    ways: {name: (bits a code, numbers a scale or None, words beside the scales)}. about: what is shown, for the
    sentence.
    """
    numbers, line, head, left, wide = 64, 60, 8, 76, 4.6
    figure, axes = page(head + line * len(ways) - 24 * any(not group for _, group, _ in ways.values()))
    y, told = head, []
    for name, (bits, group, words) in ways.items():
        codes = numbers * bits // 8
        each = codes * (group or numbers) // numbers  # bytes of codes to a scale
        axes.text(left - 10, y + 10, name, fontsize=9.5, va="center", ha="right")
        for byte in range(codes):
            box(axes, left + byte * wide, y, wide, 20, SKY if byte // each % 2 == 0 else "#d3eaf8")
        axes.text(left + codes * wide + 8, y + 10, f"{codes} bytes", fontsize=9, va="center")
        told.append(f"{name} {codes} bytes of codes")
        if group:
            scales = numbers // group
            for scale in range(scales):
                box(axes, left + scale * each * wide, y + 25, wide, 14, GREEN)
            axes.text(left + (scales - 1) * each * wide + 14, y + 32, words, fontsize=9, va="center")
            told[-1] += f" and {words}"
        y += line if group else line - 24
    return picture(title, figure, f"{about}: {'; '.join(told)}.")


def word_steps(steps: dict, title: str, about: str) -> Panel:
    """A 32-bit word after each step of its unpacking, one box a bit, and below the last one the fields of two bf16.

    steps: {what is done: a letter for each bit, from bit 31 on: s, e, m for the sign, exponent, mantissa of a code that
    is followed, - for a bit of another code, . for a zero}; about: what is shown, for the sentence.
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
    said = []
    for name, letters in steps.items():
        places = {letter: [31 - at for at, each in enumerate(letters) if each == letter] for letter in "sm"}
        said.append(
            f"{name}: "
            + ", ".join(
                f"{word} in bit{'s' * (len(places[letter]) > 1)} {' and '.join(map(str, places[letter]))}"
                for letter, word in (("s", "sign"), ("m", "mantissa"))
            )
        )
    return picture(title, figure, f"{about}. {'; '.join(said)}.")
