import pytest
import torch

from instruments.meter import meter
from kernels.matmul.ablation import STEPS, matmul_step
from widgets import tile_walk
from widgets.panels.tile_walk import DEPTH, SIDE
from widgets.panels.tile_walk import STEPS as LOOP


def test_every_step_changes_the_picture():
    panel = tile_walk(tile=256)
    assert len({panel.set(step=step).png for step in range(1, 4 * LOOP + 1)}) == 4 * LOOP


def test_a_smaller_tile_has_more_steps():
    panel = tile_walk(step=27)
    assert panel.controls["step"].max == 16 * LOOP
    panel.set(tile=64)
    assert panel.controls["step"].max == 64 * LOOP and "Program 7 of 64, step 3 of 4" in panel.alt


def test_bytes_are_those_of_the_meter():
    a, b = torch.randn(SIDE, DEPTH).bfloat16(), torch.randn(DEPTH, SIDE).bfloat16()
    report = meter(lambda a, b: matmul_step(a, b, STEPS["BLOCK_K 64"]), a, b)
    assert report.traffic.bytes_read == 2_097_152 and "all programs have requested 2.1 MB" in tile_walk().alt


def test_intensity_grows_with_the_tile():
    assert "64 FLOP/byte" in tile_walk(tile=128).alt and "128 FLOP/byte" in tile_walk(tile=256, step=1).alt


def test_bad_arguments_name_themselves():
    with pytest.raises(ValueError, match="tile: got 100"):
        tile_walk(tile=100)
