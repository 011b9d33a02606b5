import pytest
import torch

from instruments.trace import trace
from kernels.attention import attention_reference, flash_attention
from widgets import tile_cursor
from widgets.tile_cursor import BOTH, CAUSAL, FULL, KEYS, QUERIES, TILE_M, TILE_N, WINDOW, tiles


@pytest.mark.parametrize("mask, window", [(CAUSAL, None), (BOTH, 200), (WINDOW, 96)])
def test_a_program_visits_what_the_kernel_loads(mask, window):
    q, k, v = (torch.zeros(1, 1, length, 16).half() for length in (256, KEYS, KEYS))
    launched = trace(flash_attention, (q, k, v), {"causal": mask != WINDOW, "window": window, "path": "plain"})
    visited = [[step.rows.min() // TILE_N for step in one.steps if step.tensor == "k"] for one in launched.programs]
    programs, _ = tiles(256, mask, window or 16)
    assert [list(own) for own in programs] == visited


@pytest.mark.parametrize("queries", QUERIES)
@pytest.mark.parametrize("mask, window", [(FULL, None), (CAUSAL, None), (WINDOW, 96), (BOTH, 1024), (BOTH, 16)])
def test_pairs_are_those_that_the_reference_sees(queries, mask, window):
    ones = torch.zeros(1, 1, KEYS, 1)
    _, lse = attention_reference(ones[:, :, :queries], ones, ones, causal=mask in (CAUSAL, BOTH), window=window)
    programs, pairs = tiles(queries, mask, window or 16)
    assert pairs.sum() == round(lse.double().exp().sum().item())
    for row, own in enumerate(programs):
        assert pairs[row, own.start : own.stop].all() and pairs[row].sum() == pairs[row, own.start : own.stop].sum()


def test_the_sentence_at_several_settings():
    panel = tile_cursor()
    assert "Causal, program 9 of 0 to 15, queries 576 to 639: step 10 of 10 takes keys 576 to 639" in panel.sentence
    assert "visits 10 of 16 tiles, 1 of them with the mask, and skips 6" in panel.sentence
    assert "visit 136 of 256, 53.1%" in panel.sentence  # (n + 1) / 2n of them, n = 16
    assert "step 1 of 10 takes keys 0 to 63, where all pairs are seen" in panel.set(step=1).sentence
    assert "256 of 256, 100.0%; 100.0% of all pairs" in panel.set(mask=FULL).sentence
    assert "keys 512 to 575, where the mask hides some" in tile_cursor(CAUSAL, 0, queries=512).sentence
    assert f"{512 * (512 + 1025) / 2 / 512 / KEYS:.1%} of all pairs" in tile_cursor(CAUSAL, 0, queries=512).sentence


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
