import numpy as np
import pytest

from widgets.toolkit.cells import Blocks
from widgets.toolkit.letters import simple, write
from widgets.toolkit.panel import canvas


def _ink(pixels) -> tuple:
    """First and last row and column that are not white."""
    rows, cols = np.nonzero((pixels[..., :3] < 200).any(2))
    return rows.min(), rows.max(), cols.min(), cols.max()


def _page(figure) -> np.ndarray:
    figure.canvas.draw()  # without what is animated
    return np.asarray(figure.canvas.buffer_rgba())


@pytest.mark.parametrize("rotation", [0, 90])
@pytest.mark.parametrize("ha", ["left", "center", "right"])
@pytest.mark.parametrize("va", ["bottom", "center", "top", "baseline"])
def test_words_lie_where_matplotlib_puts_them(rotation, ha, va):
    figure = canvas(300, 200)
    text = figure.text(0.5, 0.5, "12.5 µs (gpu)", fontsize=9, rotation=rotation, ha=ha, va=va, color="#A84300")
    text.set_animated(True)
    page = _page(figure)
    text.draw(figure.canvas.get_renderer())
    theirs = _ink(page)
    page = _page(figure)
    if (rotation, va) == (90, "baseline"):  # laid out in another way, and no panel has it
        assert not simple(text)
        return
    assert simple(text)
    write(text, page, figure.dpi)
    assert np.abs(np.subtract(_ink(page), theirs)).max() <= 2, (rotation, ha, va)


def test_words_beyond_the_edge_are_cut():
    figure = canvas(100, 50)
    for x, y in ((-0.2, 0.5), (0.9, 0.5), (0.5, -0.05), (0.5, 1), (5, 5), (-5, -5)):
        write(figure.text(x, y, "beyond the edge", animated=True), _page(figure), figure.dpi)


def test_what_is_not_simple_is_left_to_matplotlib():
    figure = canvas(100, 50)
    for words, options in (("two\nlines", {}), ("$x^2$", {}), ("turned", {"rotation": 45}), ("boxed", {"bbox": {}})):
        assert not simple(figure.text(0.1, 0.1, words, **options))


def test_blocks_fill_their_axes_with_exact_colours():
    figure = canvas(100, 80)
    axes = figure.add_axes((0.1, 0.25, 0.8, 0.5))
    axes.axis("off")
    colours = np.arange(2 * 4 * 3, dtype=np.uint8).reshape(2, 4, 3)
    blocks, page = Blocks(axes, colours), _page(figure)
    blocks.draw(figure.canvas.get_renderer())
    left, bottom, right, top = (round(end) for end in axes.bbox.extents)
    inside = page[len(page) - top : len(page) - bottom, left:right, :3]
    assert (inside[0, 0] == colours[0, 0]).all() and (inside[-1, -1] == colours[1, 3]).all()
    assert len(np.unique(inside.reshape(-1, 3), axis=0)) == 8 and (page[0, 0, :3] == 255).all()
