import pytest
import torch

from instruments.trace import trace
from kernels.attention.forward import attention_reference, flash_attention
from kernels.attention.models import BOTH, CAUSAL, FULL, TILE_M, TILE_N, WINDOW, visited_tiles
from widgets import tile_cursor
from widgets.panels.tile_cursor import KEYS, QUERIES


@pytest.mark.parametrize("mask, window", [(CAUSAL, None), (BOTH, 200), (WINDOW, 96)])
def test_a_program_visits_what_the_kernel_loads(mask, window):
    q, k, v = (torch.zeros(1, 1, length, 16).half() for length in (256, KEYS, KEYS))
    launched = trace(flash_attention, (q, k, v), {"causal": mask != WINDOW, "window": window, "path": "plain"})
    visited = [[step.rows.min() // TILE_N for step in one.steps if step.tensor == "k"] for one in launched.programs]
    programs, _ = visited_tiles(256, KEYS, mask, window or 16)
    assert [list(own) for own in programs] == visited


@pytest.mark.parametrize("queries", QUERIES)
@pytest.mark.parametrize("mask, window", [(FULL, None), (CAUSAL, None), (WINDOW, 96), (BOTH, 1024), (BOTH, 16)])
def test_pairs_are_those_that_the_reference_sees(queries, mask, window):
    ones = torch.zeros(1, 1, KEYS, 1)
    _, lse = attention_reference(ones[:, :, :queries], ones, ones, causal=mask in (CAUSAL, BOTH), window=window)
    programs, pairs = visited_tiles(queries, KEYS, mask, window or 16)
    assert pairs.sum() == round(lse.double().exp().sum().item())
    for row, own in enumerate(programs):
        assert pairs[row, own.start : own.stop].all() and pairs[row].sum() == pairs[row, own.start : own.stop].sum()


def test_the_sentence_at_several_settings():
    panel = tile_cursor()
    assert (
        "Program 9 of 0 to 15, step 10 of 10: keys 576 to 639, where some pairs are masked out. Mask: causal."
        in panel.alt
    )
    assert "visits 10 of 16 tiles, 1 of them with the mask, and skips 6" in panel.alt
    assert "visit 136 of 256, 53.1%" in panel.alt  # (n + 1) / 2n of them, n = 16
    assert "step 1 of 10: keys 0 to 63, where no pair is masked out" in panel.set(step=1).alt
    assert "256 of 256, 100.0%; 100.0% of all pairs" in panel.set(mask=FULL).alt
    assert "keys 512 to 575, where some pairs are masked out" in tile_cursor(CAUSAL, 0, queries=512).alt
    assert f"{512 * (512 + 1025) / 2 / 512 / KEYS:.1%} of all pairs" in tile_cursor(CAUSAL, 0, queries=512).alt


def test_every_control_moves_the_picture():
    panel = tile_cursor(BOTH, 9, 2)
    for name, value in dict(step=1, program=8, mask=WINDOW, window=512, queries=512).items():
        before = panel.png
        assert panel.set(**{name: value}).png != before and panel.error == "", name


def test_the_step_ends_where_the_programs_tiles_do():
    panel = tile_cursor(FULL, 15)
    assert panel.values["step"] == 16
    panel.controls["mask"].value = BOTH
    assert panel.error == "" and panel.values["step"] == 5
    panel.controls["queries"].value = 256
    assert panel.values["program"] == 256 // TILE_M - 1


@pytest.mark.parametrize(
    "arguments, said",
    [
        (dict(mask="none"), "mask: got 'none', expected one of full, causal, window, causal, window"),
        (dict(program=16), "program: got 16, expected a whole number from 0 to 15"),
        (dict(step=11), "step: got 11, expected a whole number from 1 to 10"),
        (dict(queries=100), "queries: got 100, expected one of"),
    ],
)
def test_bad_arguments_name_themselves(arguments, said):
    with pytest.raises(ValueError, match=said):
        tile_cursor(**arguments)
