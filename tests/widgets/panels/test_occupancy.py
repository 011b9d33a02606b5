import pytest

from instruments.gpus import GPUS
from widgets import occupancy
from widgets.panels.occupancy import WARPS


def test_the_limiter_is_named():
    panel = occupancy(registers=128)
    assert "16 of 64 warps (25%), limited by registers. 4 programs per SM." in panel.alt
    assert (
        "registers 4, shared memory 228, warps 16, programs 32. With 120 registers it would be 16 warps"
        not in panel.alt
    )
    before = panel.png
    panel.set(registers=32, shared=113)
    assert "8 of 64 warps (12%), limited by shared memory. 2 programs per SM." in panel.alt and panel.png != before
    assert "1 program per SM" in panel.set(shared=114).alt
    assert "64 of 64 warps (100%), full. 8 programs per SM. Each" in panel.set(registers=16, shared=0, warps=8).alt
    assert "32 of 64 warps (50%), limited by programs" in panel.set(warps=1).alt


def test_what_fewer_registers_would_do():
    assert "With 128 registers it would be 16 warps." in occupancy(registers=129).alt


def test_what_does_not_fit_says_so():
    assert "no program fits. The launch fails for lack of registers" in occupancy(registers=255, warps=32).alt
    assert "for lack of shared memory" in occupancy(shared=200, gpu="A100").alt


@pytest.mark.parametrize("registers, shared, warps", [(64, 57, 4), (168, 25, 4), (40, 113, 8)])
def test_three_curves_meet_at_the_kernel(registers, shared, warps):
    """With the KiB that is reserved, 57 KiB let three programs share the 228 KiB of an SM, and 57,000 bytes four."""
    panel = occupancy(registers, shared, warps)
    held = {0: registers, 1: shared, 2: warps}
    counts = set()
    for place, axes in enumerate(panel.figure.axes):
        curve, here = axes.lines
        assert here.get_xdata() == [held[place]]
        counts |= {dict(zip(*curve.get_data()))[held[place]], *here.get_ydata()}
    (count,) = counts
    assert f": {count} of 64 warps" in panel.alt


def test_all_of_it_draws():
    panel = occupancy()
    for gpu in GPUS:
        for warps in WARPS:
            panel.set(gpu=gpu, warps=warps)
            assert f"on the {gpu}: " in panel.alt


def test_bad_arguments_name_themselves():
    with pytest.raises(ValueError, match="gpu: got 'V100', expected one of T4"):
        occupancy(gpu="V100")
