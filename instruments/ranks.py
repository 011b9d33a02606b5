"""Runs a function on several ranks of torch.distributed: processes of this machine, NCCL between GPUs, gloo without.

    on_ranks(expert_parallel_layer, [(x0, router, up0, down0, 2), (x1, router, up1, down1, 2)], chunks=2)

calls the function once on each rank, with that rank's arguments, and gives the list of what they return.
`counting_bytes`, put before the function, adds what each rank's all-to-alls sent to whom. `each_rank` makes a function
of a notebook run on every rank, on the CPU.
"""

import functools
import inspect
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from instruments import backend


def gpus_for(ranks: int) -> bool:
    """Whether every rank can have a GPU of its own."""
    return torch.cuda.device_count() >= ranks


def _to(value: Any, device: str) -> Any:
    """value with its tensors on a device: in tuples, lists and dictionaries too."""
    if isinstance(value, torch.Tensor):
        return value.detach().to(device)
    if isinstance(value, (tuple, list)):
        return type(value)(_to(each, device) for each in value)
    if isinstance(value, dict):
        return {name: _to(each, device) for name, each in value.items()}
    return value


def _rank(rank: int, ranks: int, function: Callable, folder: str, keywords: dict, seconds: float, forked: bool):
    """What a process does: joins the group, calls, leaves its result in a file of the folder, or why there is none."""
    place = Path(folder)
    try:
        on_gpu = not forked and gpus_for(ranks)
        device = f"cuda:{rank}" if on_gpu else "cpu"
        if on_gpu:
            torch.cuda.set_device(rank)
        elif sys.platform == "linux":
            os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # this machine is enough; a host's name may lead nowhere
            torch.set_num_threads(1)
        dist.init_process_group(
            "nccl" if on_gpu else "gloo",
            init_method=(place / "store").as_uri(),
            rank=rank,
            world_size=ranks,
            timeout=timedelta(seconds=seconds),
            device_id=torch.device(device) if on_gpu else None,
        )
        arguments = torch.load(place / f"arguments{rank}.pt", weights_only=False)
        with nullcontext() if on_gpu else backend.interpret():  # where one GPU is too few, too
            result = function(*_to(arguments, device), **_to(keywords, device))
        torch.save(_to(result, "cpu"), place / f"unfinished{rank}.pt")
        (place / f"unfinished{rank}.pt").rename(place / f"result{rank}.pt")
        dist.barrier()
        dist.destroy_process_group()
    except BaseException:
        (place / f"error{rank}.txt").write_text(traceback.format_exc())
        sys.exit(1)


def on_ranks(
    function: Callable, arguments: Sequence[tuple], *, seconds: float = 120, forked: bool = False, **keywords
) -> list:
    """[what function(*arguments[rank], **keywords) returns on each rank], with as many ranks as arguments.

    function: of a module, so that another process can import it; it finds the default process group made. Tensors go
    to a rank's device and come back to the CPU. seconds: that all of it may take. forked: the processes are copies of
    this one, which start at once and know functions that no module has; they use no GPU.

    Raises RuntimeError with the traceback of the rank that failed first, or where time is over. No process is left
    behind.
    """
    ranks = len(arguments)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        for rank, values in enumerate(arguments):
            torch.save(_to(tuple(values), "cpu"), place / f"arguments{rank}.pt")
        context, until = mp.get_context("fork" if forked else "spawn"), time.monotonic() + seconds
        fixed = (ranks, function, folder, _to(keywords, "cpu"), seconds, forked)
        processes = [context.Process(target=_rank, args=(rank, *fixed), daemon=True) for rank in range(ranks)]
        for process in processes:
            process.start()
        try:
            while any(process.is_alive() for process in processes) and time.monotonic() < until:
                if any(process.exitcode for process in processes):
                    break  # the others would wait for it
                time.sleep(0.02)
        finally:
            for process in processes:
                process.kill() if process.is_alive() else None
                process.join()
        errors = sorted(place.glob("error*.txt"), key=lambda path: path.stat().st_mtime_ns)
        if errors:  # those behind it may only have lost the connection
            rank = errors[0].stem.removeprefix("error")
            raise RuntimeError(f"rank {rank} of {ranks} failed:\n{errors[0].read_text()}")
        missing = [rank for rank in range(ranks) if not (place / f"result{rank}.pt").exists()]
        if missing:
            raise RuntimeError(f"ranks {missing} of {ranks} gave no result in {seconds:g} s")
        return [torch.load(place / f"result{rank}.pt", weights_only=False) for rank in range(ranks)]


def each_rank(function: Callable) -> Callable:
    """A decorator: called with the arguments of rank 0, then those of rank 1, and so on, `function` runs on all ranks
    at the same time, each of them a process that sees its own arguments alone. Gives the list of what they return."""
    own = len(inspect.signature(function).parameters)

    @functools.wraps(function)
    def on_each(*arguments):
        ranks = [arguments[first : first + own] for first in range(0, len(arguments), own)]
        return on_ranks(function, ranks, seconds=10, forked=True)

    return on_each


def counting_bytes(function: Callable, *arguments, **keywords) -> tuple[Any, list[list[int]]]:
    """(what function(*arguments, **keywords) returns, [bytes that this rank handed over for each rank, its own among
    them] for each all_to_all_single that was called meanwhile). Of a rank: `on_ranks` calls it."""
    call, exchanges = dist.all_to_all_single, []

    def counted(output, input, output_split_sizes=None, input_split_sizes=None, group=None, async_op=False):
        ranks = dist.get_world_size(group)
        rows = input_split_sizes or [len(input) // ranks] * ranks
        exchanges.append([many * input[0].nbytes if many else 0 for many in rows])
        return call(output, input, output_split_sizes, input_split_sizes, group=group, async_op=async_op)

    dist.all_to_all_single = counted
    try:
        return function(*arguments, **keywords), exchanges
    finally:
        dist.all_to_all_single = call
