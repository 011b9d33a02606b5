"""A picture's moving words, painted line by line: matplotlib goes letter by letter, which takes most of a redraw."""

from functools import cache, lru_cache
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.colors import to_rgb
from matplotlib.text import Text
from PIL import Image, ImageDraw, ImageFont


@cache
def face(pixels: float, style: str = "") -> ImageFont.FreeTypeFont:
    """DejaVu Sans, as matplotlib has it. style: '', '-Bold' or 'Mono'."""
    path = Path(matplotlib.get_data_path()) / "fonts" / "ttf" / f"DejaVuSans{style}.ttf"
    return ImageFont.truetype(str(path), pixels)


@lru_cache(maxsize=512)
def _line(words: str, pixels: float, style: str, rotated: bool) -> tuple:
    """How much of each pixel a line covers, [height, width] from 0 to 1; its width and its baseline's row."""
    letters = face(pixels, style)
    ascent, descent = letters.getmetrics()
    width = letters.getlength(words)
    page = Image.new("L", (round(width) + 4, ascent + descent))
    ImageDraw.Draw(page).text((0, ascent), words, font=letters, fill=255, anchor="ls")
    cover = np.asarray(page, np.float32)[..., None] / 255
    return np.rot90(cover) if rotated else cover, width, ascent


def simple(artist) -> bool:
    """Whether `write` can paint an artist: words of one line in the usual letters, upright or turned by 90 degrees."""
    return (
        isinstance(artist, Text)
        and type(artist).draw is Text.draw
        and (artist.get_rotation(), artist.get_verticalalignment() == "baseline")
        in ((0, False), (0, True), (90, False))
        and artist.get_bbox_patch() is None
        and not artist.get_path_effects()
        and "\n" not in artist.get_text()
        and "$" not in artist.get_text()
    )


def write(artist: Text, pixels: np.ndarray, dpi: float):
    """Paint an artist's words where matplotlib would. pixels: RGBA, uint8 [height, width, 4]."""
    words = artist.get_text()
    if not words or not artist.get_visible():
        return
    style = "-Bold" if artist.get_fontweight() in ("bold", 700) else ""
    size, rotated = artist.get_fontsize() * dpi / 72, artist.get_rotation() == 90
    cover, width, ascent = _line(words, size, style, rotated)
    descent, height = 0.24 * size, size  # of a line as matplotlib lays it out
    across = {"left": 0, "center": width / 2, "right": width}[artist.get_horizontalalignment()]
    along = {"bottom": descent, "baseline": 0, "center": descent - height / 2, "top": descent - height}
    up = along.get(artist.get_verticalalignment(), descent - height / 2)
    x, y = artist.get_transform().transform(artist.get_unitless_position())
    y = pixels.shape[0] - y  # of the image, whose rows go down
    if rotated:  # alignment is that of the turned line's box
        across = {"left": descent - height, "center": descent - height / 2, "right": descent}
        x -= across[artist.get_horizontalalignment()]
        y += {"bottom": 0, "center": width / 2, "top": width}[artist.get_verticalalignment()]
        top, left = round(y) - cover.shape[0], round(x) - ascent
    else:
        top, left = round(y - up) - ascent, round(x - across)
    first = max(-top, 0), max(-left, 0)
    area = pixels[max(top, 0) : top + cover.shape[0], max(left, 0) : left + cover.shape[1], :3]
    cover = cover[first[0] : first[0] + area.shape[0], first[1] : first[1] + area.shape[1]]
    colour = np.array(to_rgb(artist.get_color()), np.float32) * 255
    area[:] = np.rint(area + cover * (colour - area))
