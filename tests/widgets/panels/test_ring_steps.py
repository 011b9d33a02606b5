import pytest

from instruments.mbarriers import simulate
from kernels.matmul.models import specialized
from widgets import ring_steps
from widgets.panels.ring_steps import ITEMS


@pytest.mark.parametrize("slots", [2, 3, 4])
def test_every_instruction_is_told(slots):
    snapshots = simulate(specialized(ITEMS, slots), slots).snapshots
    panel = ring_steps(step=1, slots=slots)
    assert panel.controls["step"].max == len(snapshots)
    told = [panel.set(step=step).alt for step in range(1, len(snapshots) + 1)]
    assert len(set(told)) == len(snapshots)
    for snap, words in zip(snapshots, told):
        assert all(f"item {item}" in words for item, *_ in snap.slots if item is not None)


def test_who_waits_is_named():
    panel = ring_steps(slots=3)
    told = [panel.set(step=step).alt for step in range(1, panel.controls["step"].max + 1)]
    assert any("producer waits until slot 0 is free" in words for words in told)
    assert any("the copy into slot 2 is complete" in words for words in told)


def test_fewer_slots_shorten_the_slider():
    panel = ring_steps(slots=2)
    panel.set(step=panel.controls["step"].max).set(slots=4)
    assert panel.values["step"] <= panel.controls["step"].max


def test_bad_arguments_name_themselves():
    with pytest.raises(ValueError, match="slots: got 5"):
        ring_steps(slots=5)
