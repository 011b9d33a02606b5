from widgets import fusible_pairs
from widgets.panels.fusible_pairs import APART, CELLS, FUSE, PAIRS


def cells(region):
    row, col, rows, cols = region
    return {(r, c) for r in range(row, row + rows) for c in range(col, col + cols)}


def test_what_fuses_needs_no_more_than_one_program_holds():
    for pair in PAIRS:
        assert cells(pair.holds) | cells(pair.needs) <= cells((0, 0, CELLS, pair.wide))
        inside = cells(pair.needs) <= cells(pair.holds) and pair.sharers.startswith("1 program")
        assert inside == (pair.verdict != APART), pair


def test_every_pair_draws():
    pictures = set()
    for step in range(1, len(PAIRS) + 1):
        panel = fusible_pairs(step)
        assert panel.error == "" and panel.caption and f"Pair {step} of {len(PAIRS)}" in panel.alt
        pictures.add(panel.png)
    assert len(pictures) == len(PAIRS)
    assert FUSE in fusible_pairs(1).alt
