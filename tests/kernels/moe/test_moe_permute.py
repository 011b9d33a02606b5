"""Sorting slots by expert: stable, exact, in one launch or three."""

import sys

import pytest
import torch

from instruments.compiled import compiled
from instruments.meter import meter
from kernels.moe.combine import gather_rows, gather_traffic
from kernels.moe.permute import ONE_PROGRAM, expert_capacity, permute, permute_plan, permute_reference, permute_traffic
from tests.kernels.tools import AGAIN, BF16, DEVICE, LAYOUTS, SPILLS, assert_counts

FIELDS = ("offsets", "tokens", "rows", "counts")


def choices(tokens, top_k, num_experts, skew=0.0, seed=0):
    """[tokens, top_k] int32, different experts for each token; with skew, low numbers are chosen more often."""
    generator = torch.Generator().manual_seed(seed)
    weight = (1 + torch.arange(num_experts, dtype=torch.float64)) ** -skew
    return torch.multinomial(weight.expand(tokens, -1), top_k, generator=generator).int().to(DEVICE)


def check(experts, num_experts, capacity=None):
    result, expected = permute(experts, num_experts, capacity), permute_reference(experts, num_experts, capacity)
    for name in FIELDS:
        assert getattr(result, name).dtype == torch.int32
        assert torch.equal(getattr(result, name), getattr(expected, name)), name
    return result


@pytest.mark.parametrize("capacity", [None, 1, 9])
@pytest.mark.parametrize(
    "tokens, top_k, num_experts, skew",
    [
        (1, 1, 1, 0),
        (5, 2, 8, 0),
        (700, 6, 60, 0),  # several programs, no power of two
        (700, 2, 8, 2),
        (40, 8, 256, 1),
        (1500, 1, 3, 0),
        (201, 8, 300, 0),
    ],
)
def test_against_the_reference(tokens, top_k, num_experts, skew, capacity):
    check(choices(tokens, top_k, num_experts, skew), num_experts, capacity)


def test_one_program_for_few_slots_and_several_for_many():
    assert permute_plan(ONE_PROGRAM, 8).programs == 1 and permute_plan(ONE_PROGRAM + 1, 8).programs > 1


@pytest.mark.parametrize("tokens", [50, 2000])
def test_all_to_one_expert_and_the_rest_empty(tokens):
    for expert in (0, 3, 6):
        experts = torch.full((tokens, 1), expert, dtype=torch.int32, device=DEVICE)
        result = check(experts, 7)
        assert torch.equal(result.tokens, torch.arange(tokens, device=DEVICE, dtype=torch.int32))
        assert check(experts, 7, tokens - 1).rows[-1] == -1


@pytest.mark.parametrize("tokens", [30, 900])
def test_numbers_that_are_no_expert_get_no_row(tokens):
    experts = choices(tokens, 2, 8)
    experts[::3, 1] = -1
    experts[1::5, 0] = 8
    result = check(experts, 8)
    assert (result.rows[::3, 1] == -1).all() and result.offsets[-1] == (experts.flatten().sub(4).abs() <= 4).sum() - (
        experts == 8
    ).sum()


def test_capacity_keeps_the_first_tokens_and_closes_the_gaps():
    experts = torch.tensor([[0], [1], [0], [0], [1], [2]], dtype=torch.int32, device=DEVICE)
    result = permute(experts, 4, 2)
    assert result.rows.flatten().tolist() == [0, 2, 1, -1, 3, 4]
    assert result.offsets.tolist() == [0, 2, 4, 5, 5] and result.counts.tolist() == [3, 2, 1, 0]
    assert result.tokens.tolist() == [0, 2, 1, 4, 5, -1] and result.capacity == 2


def test_capacity_of_a_factor():
    assert expert_capacity(100, 2, 8, 1.0) == 25 and expert_capacity(100, 2, 8, 1.25) == 32
    assert expert_capacity(1, 1, 64, 1.0) == 1


def test_counts_of_many_programs_are_added_up_in_steps(monkeypatch):
    monkeypatch.setattr(sys.modules["kernels.moe.permute"], "PREFIX", 4)
    permute_plan.cache_clear()
    check(choices(700, 1, 5), 5)
    assert permute_plan(700, 5).programs > 2 * permute_plan(700, 5).prefix["BLOCK_P"]
    permute_plan.cache_clear()


def test_the_same_in_every_run():
    experts = choices(700, 4, 16, 1)
    first = permute(experts, 16, 60)
    for _ in range(AGAIN):
        again = permute(experts, 16, 60)
        assert all(torch.equal(getattr(first, name), getattr(again, name)) for name in FIELDS)


@pytest.mark.parametrize("layout", ["transposed", "every second column", "one row, expanded"])
def test_layouts(layout):
    check(LAYOUTS[layout](choices(20, 4, 8)), 8)


@pytest.mark.parametrize("tokens, top_k, num_experts", [(40, 2, 8), (700, 6, 60)])
def test_traffic_is_what_the_meter_counts(tokens, top_k, num_experts):
    report = meter(permute, choices(tokens, top_k, num_experts), num_experts)
    assert not report.races and report.launches == (1 if tokens == 40 else 3)
    assert_counts(report, permute_traffic(tokens, top_k, num_experts, None))
    minimum = permute_traffic(tokens, top_k, num_experts)
    assert minimum.bytes == 12 * tokens * top_k + 4 * (2 * num_experts + 1)


def test_nothing_to_permute():
    none = permute(torch.empty(0, 2, dtype=torch.int32, device=DEVICE), 4)
    assert none.offsets.tolist() == [0] * 5 and none.counts.tolist() == [0] * 4 and none.rows.shape == (0, 2)
    assert gather_rows(torch.empty(0, 8, device=DEVICE), none).shape == (0, 8)


@pytest.mark.once
@pytest.mark.parametrize("tokens, top_k, num_experts", [(64, 8, 256), (65_536, 2, 8), (65_536, 8, 256)])
def test_nothing_spills(tokens, top_k, num_experts):
    experts = torch.empty(tokens, top_k, dtype=torch.int32, device=DEVICE)
    for binary in compiled(lambda: permute(experts, num_experts), arch=90):
        assert binary.spills <= SPILLS, binary


E = torch.zeros(4, 2, dtype=torch.int32, device=DEVICE)


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: permute(E.long(), 4), "experts: got dtype int64, expected one of int32"),
        (lambda: permute(E[0], 4), r"experts: got shape \(2,\), expected \(tokens, top_k\)"),
        (lambda: permute(E, 0), "num_experts: got 0, expected a whole number from 1 to 1024"),
        (lambda: permute(E, 4, 0), "capacity: got 0, expected None or a whole number of at least 1"),
        (lambda: permute(E, 4, 1.5), "capacity: got 1.5"),
        (lambda: gather_rows(E, permute(E, 4)), "x: got dtype int32"),
        (
            lambda: gather_rows(torch.ones(3, 8, device=DEVICE), permute(E, 4)),
            r"x: got shape \(3, 8\), expected \(4, hi",
        ),
        (lambda: gather_rows(torch.ones(4, 8, device=DEVICE), E), "permutation: got Tensor, expected a Permutation"),
        (lambda: permute_traffic(4, 2, 8, "fast"), "path: got 'fast', expected minimum or None"),
        (lambda: gather_traffic(4, 2, 8, BF16, "fast"), "path: got 'fast', expected minimum or None"),
    ],
)
def test_bad_arguments_name_themselves(call, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        call()
