"""Processes that stand for ranks: what they return, and what becomes of those that fail or never end."""

import time

import pytest
import torch
import torch.distributed as dist

from instruments.ranks import on_ranks


def told(value, keep=None, scale=1):
    """What ranks tell each other, and how this one does afterwards."""
    total = value["number"] * scale
    dist.all_reduce(total)
    return {"total": total, "rank": dist.get_rank(), "keep": keep}


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


@pytest.mark.once
def test_a_rank_that_fails_is_quoted_and_the_others_do_not_wait():
    start = time.monotonic()
    with pytest.raises(RuntimeError, match="(?s)rank 1 of 2 failed:.*in fails\n.*KeyError: 'nothing here'"):
        on_ranks(fails, [(0,), (1,)], seconds=400)
    assert time.monotonic() - start < 300


def test_no_process_outlives_its_time():
    with pytest.raises(RuntimeError, match=r"ranks \[0\] of 1 gave no result in 2 s"):
        on_ranks(never_ends, [()], seconds=2)
    assert not torch.multiprocessing.active_children()
