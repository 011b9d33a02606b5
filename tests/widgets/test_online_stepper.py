import math

import pytest
import torch

from widgets import online_stepper
from widgets.online_stepper import NO_GUARD, NO_REPAIR, RIGHT, ROWS, STEPS, states


@pytest.mark.parametrize("name", ROWS)
def test_after_each_block_m_and_l_are_those_of_what_was_read(name):
    for block, state in enumerate(states(ROWS[name])[2::3], 1):
        seen = torch.tensor(ROWS[name][: 4 * block], dtype=torch.float64)
        assert state.m == seen.max()
        expected = torch.logsumexp(seen, 0)  # of nothing but -inf: -inf
        assert (
            state.m + math.log(state.total or 5e-324) == pytest.approx(expected.item())
            or expected == -math.inf == state.m
        )


def test_what_is_left_out_shows():
    last, first, masked = ROWS.values()
    true = states(last)[-1].total
    assert states(last, NO_REPAIR)[-1].total > 2 * true
    assert states(first, NO_REPAIR)[-1].total == pytest.approx(
        states(first)[-1].total
    )  # passes a test without a late maximum
    assert states(last, NO_GUARD)[-1].total == true  # passes a test without -inf
    assert math.isnan(states(masked, NO_GUARD)[-1].total) and not math.isnan(states(masked)[-1].total)


@pytest.mark.parametrize("name", ROWS)
def test_the_numbers_shown_add_up(name):
    before = None
    for state in states(ROWS[name]):
        if before and before.parts != state.parts and state.total > before.total:
            assert round(100 * before.total) + round(100 * state.added) == round(100 * state.total)
        elif before and state.total < before.total:
            assert round(round(before.total, 2) * round(state.factor, 2), 2) == round(state.total, 2)
        before = state


def test_every_step_changes_the_picture_and_the_sentence():
    panel = online_stepper(1)
    pictures, sentences = {panel.png}, {panel.sentence}
    for step in range(2, STEPS + 1):
        pictures.add(panel.set(step=step).png)
        sentences.add(panel.sentence)
    assert len(sentences) == STEPS and len(pictures) == STEPS - 1  # a repair by 1 changes nothing
    for values in (dict(kernel=NO_REPAIR), dict(row="the largest comes first")):
        before = panel.set(step=11).png
        assert panel.set(**values).png != before


def test_the_sentence_reads_the_step():
    panel = online_stepper(4)
    assert "2.00 is larger than 1.20, so m becomes 2.00. But l = " in panel.sentence
    assert "exp(1.20 − 2.00) = 0.45" in panel.set(step=5).sentence
    assert "the same." in panel.set(step=STEPS).sentence
    assert "the loop is wrong." in panel.set(kernel=NO_REPAIR).sentence
    assert "l becomes NaN" in panel.set(row="a block of −inf first", kernel=NO_GUARD, step=2).sentence
    assert "the exponents take 0 in its place" in panel.set(kernel=RIGHT).sentence


@pytest.mark.parametrize("arguments, said", [(dict(row="none"), "row: got 'none'"), (dict(kernel=1), "kernel: got 1")])
def test_bad_arguments_name_themselves(arguments, said):
    with pytest.raises(ValueError, match=said):
        online_stepper(**arguments)


@pytest.mark.parametrize("step", [0, STEPS + 1, "2"])
def test_a_step_that_is_not_there_is_refused(step):
    with pytest.raises(ValueError, match=f"step: got {step!r}, expected a whole number from 1 to {STEPS}"):
        online_stepper(step)
