import math

import pytest
import torch

from kernels.softmax.models import NO_CORRECTION, NO_GUARD, RIGHT, ROWS, STEPS, online_states
from widgets import online_stepper


@pytest.mark.parametrize("name", ROWS)
def test_after_each_block_m_and_l_are_those_of_what_was_read(name):
    for block, state in enumerate(online_states(ROWS[name])[2::3], 1):
        seen = torch.tensor(ROWS[name][: 4 * block], dtype=torch.float64)
        assert state.running_max == seen.max()
        expected = torch.logsumexp(seen, 0)  # of nothing but -inf: -inf
        assert (
            state.running_max + math.log(state.running_sum or 5e-324) == pytest.approx(expected.item())
            or expected == -math.inf == state.running_max
        )


def test_what_is_left_out_shows():
    last, first, masked = ROWS.values()
    true = online_states(last)[-1].running_sum
    assert online_states(last, NO_CORRECTION)[-1].running_sum > 2 * true
    assert online_states(first, NO_CORRECTION)[-1].running_sum == pytest.approx(
        online_states(first)[-1].running_sum
    )  # passes a test without a late maximum
    assert online_states(last, NO_GUARD)[-1].running_sum == true  # passes a test without -inf
    assert math.isnan(online_states(masked, NO_GUARD)[-1].running_sum) and not math.isnan(
        online_states(masked)[-1].running_sum
    )


@pytest.mark.parametrize("name", ROWS)
def test_the_numbers_shown_add_up(name):
    before = None
    for state in online_states(ROWS[name]):
        if before and before.parts != state.parts and state.running_sum > before.running_sum:
            assert round(100 * before.running_sum) + round(100 * state.block_sum) == round(100 * state.running_sum)
        elif before and state.running_sum < before.running_sum:
            assert round(round(before.running_sum, 2) * round(state.correction, 2), 2) == round(state.running_sum, 2)
        before = state


def test_every_step_changes_the_picture_and_the_sentence():
    panel = online_stepper(1)
    pictures, sentences = {panel.png}, {panel.alt}
    for step in range(2, STEPS + 1):
        pictures.add(panel.set(step=step).png)
        sentences.add(panel.alt)
    assert len(sentences) == STEPS and len(pictures) == STEPS - 1  # a correction of 1 changes nothing
    for values in (dict(loop=NO_CORRECTION), dict(row="the max comes first")):
        before = panel.set(step=11).png
        assert panel.set(**values).png != before


def test_the_sentence_reads_the_step():
    panel = online_stepper(4)
    assert "2.00 is larger than 1.20, so m becomes 2.00. But l = " in panel.alt
    assert "exp(1.20 − 2.00) = 0.45" in panel.set(step=5).alt
    assert "the same." in panel.set(step=STEPS).alt
    assert "the loop is wrong." in panel.set(loop=NO_CORRECTION).alt
    assert "l becomes NaN" in panel.set(row="a block of −inf first", loop=NO_GUARD, step=2).alt
    assert "the exponents take 0 in its place" in panel.set(loop=RIGHT).alt


@pytest.mark.parametrize("arguments, said", [(dict(row="none"), "row: got 'none'"), (dict(loop=1), "loop: got 1")])
def test_bad_arguments_name_themselves(arguments, said):
    with pytest.raises(ValueError, match=said):
        online_stepper(**arguments)


@pytest.mark.parametrize("step", [0, STEPS + 1, "2"])
def test_a_step_that_is_not_there_is_refused(step):
    with pytest.raises(ValueError, match=f"step: got {step!r}, expected a whole number from 1 to {STEPS}"):
        online_stepper(step)
