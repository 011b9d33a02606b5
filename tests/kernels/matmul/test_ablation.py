"""Lesson 03's ladder: every step multiplies right, and each differs from the one before in one option."""

import pytest
import torch

from instruments.compiled import compiled
from kernels.matmul.ablation import CHANGES, LAST, NEIGHBORS, STEPS, matmul_step, matmul_step_kernel
from tests.kernels.tools import BF16, DEVICE, randn

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
    a, b = randn(256, 128, dtype=BF16), randn(128, 256, dtype=BF16, seed=1)
    expected = a.double() @ b.double()
    torch.testing.assert_close(matmul_step(a, b, options).double(), expected, rtol=1e-2, atol=0.3)


@pytest.mark.parametrize("name, rows, cols", [("BLOCK_K 64", 128, 256), ("groups of 8", 256, 128)])
def test_two_tiles_lie_side_by_side_or_in_a_group_below_each_other(name, rows, cols):
    a, b = (torch.ones(shape, dtype=BF16, device=DEVICE) for shape in ((256, 64), (64, 256)))
    c = matmul_step(a, b, STEPS[name], tiles=2)
    assert (c[:rows, :cols] == 64).all() and c[rows:].isnan().all() and c[:, cols:].isnan().all()


def test_sizes_that_the_tile_does_not_divide_are_refused():
    with pytest.raises(ValueError, match="BLOCK_M=128 for a side of 100"):
        matmul_step(randn(100, 64, dtype=BF16), randn(64, 128, dtype=BF16), LAST)


@pytest.mark.parametrize("name, instruction", [("tile 128 x 128", None), ("tensor cores", "wgmma")])
def test_which_unit_multiplies(name, instruction):
    x = torch.empty(512, 512, dtype=BF16, device=DEVICE)
    kernel = compiled(lambda: matmul_step_kernel[(1,)](x, x, x, 512, 512, 512, **STEPS[name]), arch=90)[0]
    assert kernel.matrix_instruction == instruction and not kernel.spills
