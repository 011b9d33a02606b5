from tests.widgets.tools import moves
from widgets import toy


def test_the_control_moves_the_picture():
    moves(toy(), cols=7)


def test_the_sentence_counts_reads_and_writes():
    assert "1,024 x 7 " in toy(cols=7).alt
    assert f"{2 * 1024 * 7 * 2 / 1000:.1f} KB" in toy(cols=7).alt
