import pytest
import torch

from kernels.attention.models import NO_RESCALE, SCORE_ROWS, VALUES, row_output, row_states
from widgets import attention_row
from widgets.panels.attention_row import STEPS


@pytest.mark.parametrize("scores", SCORE_ROWS.values(), ids=list(SCORE_ROWS))
def test_the_row_ends_at_softmax_times_values(scores):
    weights = torch.softmax(torch.tensor(scores, dtype=torch.float64) * torch.log(torch.tensor(2.0)), 0)
    expected = (weights @ torch.tensor(VALUES, dtype=torch.float64)).tolist()
    assert row_states(scores)[-1].out == pytest.approx(expected) == row_output(scores)


def test_without_the_rescale_only_a_late_maximum_shows():
    late, early = SCORE_ROWS.values()
    assert row_states(late, loop=NO_RESCALE)[-1].out != pytest.approx(row_output(late))
    assert row_states(early, loop=NO_RESCALE)[-1].out == pytest.approx(row_output(early))


def test_every_step_says_and_shows_something_else():
    panel = attention_row(1)
    seen = {(panel.png, panel.alt)}
    for step in range(2, STEPS + 1):
        seen.add((panel.set(step=step).png, panel.alt))
    assert len({alt for _, alt in seen}) == STEPS and len({png for png, _ in seen}) == STEPS


def test_the_sentence_has_the_numbers_of_the_step():
    panel = attention_row(5)
    assert "l and out are multiplied by 2^(1 − 3) = 0.25. Now l = 0.375 and out = (1, 0.25)." in panel.alt
    assert "(3, 3.75) / 1.875 = (1.6, 2)" in panel.set(step=STEPS).alt and "the same." in panel.alt
    assert "so the loop is wrong." in panel.set(loop=NO_RESCALE).alt


@pytest.mark.parametrize("step", [0, STEPS + 1, "2"])
def test_a_step_that_is_not_there_is_refused(step):
    with pytest.raises(ValueError, match=f"step: got {step!r}, expected a whole number from 1 to {STEPS}"):
        attention_row(step)
