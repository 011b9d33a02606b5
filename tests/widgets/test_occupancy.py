import pytest

from instruments.gpus import GPUS
from widgets import occupancy
from widgets.occupancy import WARPS


def test_the_limiter_is_named():
    panel = occupancy(registers=128)
    assert "4 programs at once, 16 of 64 warps (25%), limited by registers." in panel.sentence
    assert (
        "registers 4, shared memory 228, warps 16, programs 32. With 120 registers it would be 16 warps"
        not in panel.sentence
    )
    before = panel.png
    panel.set(registers=32, shared=113)
    assert "2 programs at once, 8 of 64 warps (12%), limited by shared memory" in panel.sentence and panel.png != before
    assert "1 program at once" in panel.set(shared=114).sentence
    assert "64 of 64 warps (100%), full. Each" in panel.set(registers=16, shared=0, warps=8).sentence
    assert "32 of 64 warps (50%), limited by programs" in panel.set(warps=1).sentence


def test_what_fewer_registers_would_do():
    assert "With 128 registers it would be 16 warps." in occupancy(registers=129).sentence


def test_what_does_not_fit_says_so():
    assert "no program fits, for want of registers: the launch fails" in occupancy(registers=255, warps=32).sentence
    assert "for want of shared memory" in occupancy(shared=200, gpu="A100").sentence


def test_all_of_it_draws():
    panel = occupancy()
    for gpu in GPUS:
        for warps in WARPS:
            panel.set(gpu=gpu, warps=warps)
            assert f"on the {gpu}: " in panel.sentence


def test_bad_arguments_name_themselves():
    with pytest.raises(ValueError, match="gpu: got 'V100', expected one of T4"):
        occupancy(gpu="V100")
