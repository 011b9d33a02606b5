"""What is done to an accumulator between the K loop and the store."""

from widgets.drawings.pictures import arrow, box, page, picture
from widgets.toolkit.panel import GREEN, ORANGE, SKY, Panel


def accumulator_epilogue() -> Panel:
    """One program: the K loop fills the accumulator, the epilogue changes it, one store writes it."""
    figure, axes = page(238)
    for x, wide, words in ((8, 158, "HBM"), (196, 388, "registers of one program"), (614, 138, "HBM")):
        box(axes, x, 26, wide, 204, "white", linestyle="--", edgecolor="#777777")
        axes.text(x, 14, words, fontsize=9.5, weight="bold", va="center")
    for y, words, color in ((40, "x", SKY), (84, "weight", SKY), (140, "bias", ORANGE), (184, "residual", ORANGE)):
        box(axes, 24, y, 126, 34, color)
        axes.text(87, y + 17, words, fontsize=9.5, ha="center", va="center")
    stages = ((210, 52, 140, 58, "K loop:\nacc += x @ weight", SKY), (390, 52, 176, 58, "acc, fp32", "white"))
    for x, y, wide, high, words, color in stages:
        box(axes, x, y, wide, high, color)
        axes.text(x + wide / 2, y + high / 2, words, fontsize=9.5, ha="center", va="center")
    box(axes, 210, 152, 356, 58, ORANGE)
    words = "epilogue: act(acc + bias) + residual,\nthen one rounding to bf16"
    axes.text(388, 181, words, fontsize=9.5, ha="center", va="center")
    box(axes, 630, 152, 106, 58, GREEN)
    axes.text(683, 181, "y", fontsize=9.5, ha="center", va="center")
    for start, end in (
        ((150, 57), (210, 74)),
        ((150, 101), (210, 90)),
        ((350, 81), (390, 81)),
        ((478, 110), (478, 152)),
        ((150, 157), (210, 170)),
        ((150, 201), (210, 192)),
        ((566, 181), (630, 181)),
    ):
        arrow(axes, start, end)
    return picture(
        "The accumulator's way from the K loop to the store",
        figure,
        "The epilogue works on the accumulator where it is, in registers. The K loop reads x and weight from HBM; the "
        "epilogue reads bias and residual; the program stores y once. No intermediate goes to HBM.",
    )
