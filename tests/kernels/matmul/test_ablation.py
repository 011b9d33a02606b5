"""Lesson 03's ladder: every step multiplies right, and each differs from the one before in one option."""

import pytest
import torch

from instruments.compiled import compiled
from kernels.matmul.ablation import CHANGES, LAST, NEIGHBORS, STEPS, matmul_step, matmul_step_kernel

EVERY = [*STEPS.items(), *((f"last step, {name}", options) for name, options in NEIGHBORS.items())]


def changed(before, after):
    """What differs between two steps, the sides of the tile as one."""
    names = {name for name in before if before[name] != after[name]}
    return {"tile" if name in ("BLOCK_M", "BLOCK_N") else name for name in names}


def test_each_step_changes_one_option():
    steps = list(STEPS.values())
    assert all(len(changed(*pair)) == 1 for pair in zip(steps, steps[1:]))
    assert list(STEPS) == list(CHANGES) and steps[-1] is LAST


def test_each_neighbor_changes_one_option_of_the_last_step():
    for name, options in NEIGHBORS.items():
        expected = {"BLOCK_K", "num_stages"} if name == "BLOCK_K 128" else changed(LAST, options)
        assert changed(LAST, options) == expected and (len(expected) == 1 or name == "BLOCK_K 128")


@pytest.mark.parametrize("name, options", EVERY)
def test_a_step_multiplies(name, options):
    a, b = torch.randn(256, 128).bfloat16(), torch.randn(128, 256).bfloat16()
    expected = a.double() @ b.double()
    torch.testing.assert_close(matmul_step(a, b, options).double(), expected, rtol=1e-2, atol=0.3)


@pytest.mark.parametrize("name, rows, cols", [("BLOCK_K 64", 128, 256), ("groups of 8", 256, 128)])
def test_two_tiles_lie_side_by_side_or_in_a_group_below_each_other(name, rows, cols):
    a, b = torch.ones(256, 64).bfloat16(), torch.ones(64, 256).bfloat16()
    c = matmul_step(a, b, STEPS[name], tiles=2)
    assert (c[:rows, :cols] == 64).all() and c[rows:].isnan().all() and c[:, cols:].isnan().all()


def test_sizes_that_the_tile_does_not_divide_are_refused():
    with pytest.raises(ValueError, match="BLOCK_M=128 for a side of 100"):
        matmul_step(torch.ones(100, 64).bfloat16(), torch.ones(64, 128).bfloat16(), LAST)


@pytest.mark.parametrize("name, instruction", [("tile 128 x 128", None), ("tensor cores", "wgmma")])
def test_which_unit_multiplies(name, instruction):
    x = torch.empty(512, 512, dtype=torch.bfloat16)
    kernel = compiled(lambda: matmul_step_kernel[(1,)](x, x, x, 512, 512, 512, **STEPS[name]), arch=90)[0]
    assert kernel.matrix_instruction == instruction and not kernel.spills
