import pytest
import torch

from instruments.backend import captured
from instruments.compiled import compiled
from instruments.gpus import GPUS
from instruments.occupancy import occupancy
from kernels.reductions.row_sum import row_sum
from widgets import launch_steps
from widgets.panels.launch_steps import COLS, HELD, PROGRAMS, ROWS, STEPS, TILE_ROWS, WARPS


def test_it_draws_the_launch_of_the_row_sum():
    x = torch.empty(1, dtype=torch.bfloat16).expand(ROWS, COLS)
    with captured() as launches:
        row_sum(x)
    (launch,) = launches
    assert launch.grid[0] == PROGRAMS and launch.args["ROWS"] == TILE_ROWS and launch.options["num_warps"] == WARPS
    kernel = compiled(row_sum, torch.empty(64, COLS, dtype=torch.bfloat16))[0]
    assert occupancy(kernel.registers, kernel.shared, kernel.num_warps, GPUS["H200"]).programs == HELD


def test_each_step_adds_a_level():
    panel = launch_steps(1)
    pictures = {panel.png} | {panel.set(step=step).png for step in range(2, STEPS + 1)}
    assert len(pictures) == STEPS
    assert "8 elements of bf16 per thread" in panel.alt and "the whole grid 8,388,608" in panel.alt


def test_a_step_that_is_not_there_is_refused():
    with pytest.raises(ValueError, match="step: got 6, expected a whole number from 1 to 5"):
        launch_steps(6)
