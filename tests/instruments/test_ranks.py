"""Processes that stand for ranks: what they return, and what becomes of those that fail or never end."""

import time

import pytest
import torch
import torch.distributed as dist

from instruments.ranks import counting_bytes, each_rank, on_ranks

pytestmark = pytest.mark.once  # no kernel runs here


def told(value, keep=None, scale=1):
    """What ranks tell each other, and how this one does afterwards."""
    total = value["number"] * scale
    dist.all_reduce(total)
    return {"total": total, "rank": dist.get_rank(), "keep": keep}


def swaps(rows, splits):
    """Both ranks send so many rows to each; then an all-to-all of equal parts."""
    mine = splits[dist.get_rank()]
    received = rows.new_empty(2 * mine, rows.shape[1])
    dist.all_to_all_single(received, rows, [mine, mine], splits)
    numbers = torch.ones(2, dtype=torch.int32, device=rows.device)
    dist.all_to_all_single(torch.empty_like(numbers), numbers)
    return received


def fails(rank):
    if rank == 1:
        raise KeyError("nothing here")
    dist.barrier()


def never_ends():
    time.sleep(600)


def test_every_rank_gets_its_arguments_and_gives_its_result():
    results = on_ranks(told, [({"number": torch.ones(2)},), ({"number": torch.full((2,), 4.0)}, [True])], scale=2)
    assert [result["rank"] for result in results] == [0, 1]
    assert [result["keep"] for result in results] == [None, [True]]
    assert all(result["total"].tolist() == [10, 10] for result in results)


def test_bytes_are_counted_by_whom_they_go_to():
    rows = torch.arange(12.0).view(4, 3)
    found = on_ranks(counting_bytes, [(swaps, rows, [1, 3]), (swaps, rows, [1, 3])])
    assert [sent for _, sent in found] == [[[12, 36], [4, 4]]] * 2
    assert torch.equal(found[0][0], rows[[0, 0]]) and torch.equal(found[1][0], rows[[1, 2, 3] * 2])
    assert dist.all_to_all_single.__name__ == "all_to_all_single"


def test_a_rank_that_fails_is_quoted_and_the_others_do_not_wait():
    start = time.monotonic()
    with pytest.raises(RuntimeError, match="(?s)rank 1 of 2 failed:.*in fails\n.*KeyError: 'nothing here'"):
        on_ranks(fails, [(0,), (1,)], seconds=400)
    assert time.monotonic() - start < 300


def test_no_process_outlives_its_time():
    with pytest.raises(RuntimeError, match=r"ranks \[0\] of 1 gave no result in 2 s"):
        on_ranks(never_ends, [()], seconds=2)
    assert not torch.multiprocessing.active_children()


def test_a_function_of_no_module_runs_on_each_rank_and_keeps_its_name():
    @each_rank
    def neighbor(own, length):
        theirs = own.new_empty(length)
        dist.all_to_all_single(
            theirs, own, [0, length][:: 1 - 2 * dist.get_rank()], [0, len(own)][:: 1 - 2 * dist.get_rank()]
        )
        return theirs

    found = neighbor(torch.arange(3), 1, torch.tensor([7]), 3)
    assert [each.tolist() for each in found] == [[7], [0, 1, 2]] and neighbor.__name__ == "neighbor"


def test_a_forked_rank_that_fails_is_quoted():
    with pytest.raises(RuntimeError, match="(?s)rank 1 of 2 failed:.*KeyError: 'nothing here'"):
        each_rank(fails)(0, 1)
    assert not torch.multiprocessing.active_children()
