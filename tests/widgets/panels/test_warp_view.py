import re

import pytest
import torch

from instruments import compiler
from instruments.backend import captured
from kernels.reductions.row_sum import row_sum
from widgets import warp_view
from widgets.panels.warp_view import COLS, DISTANCES, LOADS, PER_THREAD, ROWS, STEPS, WARPS, rows_of


def test_it_draws_what_the_compiler_makes_of_the_tile():
    with captured() as launches:
        row_sum(torch.empty(64, COLS, dtype=torch.bfloat16))
    binary = compiler.binary(launches[0], 90)
    layout = re.search(
        r"sizePerThread = (.*?), threadsPerWarp = (.*?), warpsPerCTA = (.*?), order", binary.asm["ttgir"]
    )
    assert layout.groups() == (f"[1, {PER_THREAD}]", "[2, 16]", f"[{WARPS}, 1]")
    assert f"tensor<{ROWS}x{COLS}xbf16" in binary.asm["ttgir"]
    shuffles = [int(n) for n in re.findall(r"shfl.sync.bfly.b32\s+[^,]+, [^,]+, (\d+)", binary.asm["ptx"])]
    assert shuffles == list(DISTANCES) * LOADS


def test_the_warps_share_out_all_rows():
    assert sorted(row for warp in range(WARPS) for load in range(LOADS) for row in rows_of(warp, load)) == list(
        range(ROWS)
    )


def test_every_step_has_a_picture_and_a_sentence():
    panel = warp_view()
    seen = {(panel.png, panel.alt)} | {(panel.set(step=step).png, panel.alt) for step in range(2, STEPS + 1)}
    assert len({png for png, _ in seen}) == len({alt for _, alt in seen}) == STEPS
    assert "Rows 0 and 1 are done, and so are rows 8 and 9." in panel.alt
    assert "load 2 of 2 brings rows 10 and 11" in panel.set(step=2, warp=1).alt


def test_bad_arguments_name_themselves():
    with pytest.raises(ValueError, match="step: got 9, expected a whole number from 1 to 8"):
        warp_view(9)
    with pytest.raises(ValueError, match="warp: got 4"):
        warp_view(1, 4)
