import numpy as np
import pytest

from kernels.norms.models import ROW, welford_lanes
from widgets import welford_steps
from widgets.panels.welford_steps import LAST, TILES


def test_every_step_changes_the_picture_and_the_sentence():
    panel = welford_steps(step=0)
    pictures, sentences = {panel.png}, {panel.alt}
    for step in range(1, LAST + 1):
        panel.set(step=step)
        pictures.add(panel.png)
        sentences.add(panel.alt)
    assert len(pictures) == len(sentences) == LAST + 1


@pytest.mark.parametrize("tiles", range(1, TILES + 1))
def test_lanes_hold_what_numpy_counts(tiles):
    for lane, (mean, deviations, count) in enumerate(zip(*welford_lanes(ROW, tiles))):
        seen = ROW[: 4 * tiles][lane::4]
        assert count == len(seen)
        assert mean == pytest.approx(seen.mean()) and deviations == pytest.approx(((seen - seen.mean()) ** 2).sum())


def test_the_merge_gives_the_rows_variance():
    lanes = [ROW[lane::4] for lane in range(4)]
    within = sum(((lane - lane.mean()) ** 2).sum() for lane in lanes)
    whole = ((ROW - ROW.mean()) ** 2).sum()
    said = welford_steps(step=LAST).alt
    assert f"{within:.1f} + {whole - within:.1f} = {whole:.1f}" in said and f"variance is {np.var(ROW):.2f}" in said
