"""Times on a GPU: as called from Python, and from a CUDA graph whose replays find nothing of their own in L2.

Two numbers, because they answer two questions. *As called* is wall time per call of many calls back to back: what a
program that calls the function sees, host work included; below about 20 us it is mostly host work. *From a graph* is
the GPU's time alone; each replay walks over copies of the arguments that together exceed four times the L2, so that
every call reads DRAM, and over so many that it lasts a millisecond: from one event to the next 3 to 10 us pass in which
no kernel runs (H200), and that is then a percent at most. Implementations are timed in turns, one replay each, so that
clocks and temperature hit all alike.
"""

import math
import statistics
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass, replace

import torch

FRESH = 4  # argument copies span this many times the L2
REPLAY = 1e-3  # seconds that a replay lasts at least, where memory has room for so many copies
MAX_COPIES = 16_384  # of the arguments, for calls that touch almost nothing


@dataclass(frozen=True)
class Timing:
    """Seconds per call: median, and the 20% and 80% quantiles over the replays, of so many calls each."""

    median: float
    p20: float
    p80: float
    calls: int = 1


def need_gpu():
    """Raise RuntimeError where there is no GPU to time on."""
    if not torch.cuda.is_available():
        raise RuntimeError("This machine has no GPU to time on; recorded figures are in instruments.results.")


def copies_needed(nbytes: int) -> int:
    """How many copies of arguments and results of `nbytes` exceed FRESH times this GPU's L2; at least two."""
    need_gpu()
    l2 = torch.cuda.get_device_properties(0).L2_cache_size
    return max(2, min(MAX_COPIES, -(-FRESH * l2 // max(1, nbytes))))


def _clone(value):
    """A copy of a tensor, or of a dataclass with tensors in it, as quantised matrices are; else the value itself."""
    if isinstance(value, torch.Tensor):
        return value.clone()
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{field.name: _clone(getattr(value, field.name)) for field in fields(value)})
    return value


def _nbytes(value) -> int:
    """Bytes that a copy of an argument takes."""
    if isinstance(value, torch.Tensor):
        return value.nbytes
    if is_dataclass(value) and not isinstance(value, type):
        return sum(_nbytes(getattr(value, field.name)) for field in fields(value))
    return 0


def _room() -> int:
    """Bytes of the GPU's memory that are free, those among them that torch keeps for itself."""
    return torch.cuda.mem_get_info()[0] + torch.cuda.memory_reserved() - torch.cuda.memory_allocated()


class Graphed:
    """A CUDA graph that calls `function` once for each of `copies` copies of its arguments.

    Results stay alive, each in memory of its own, so that writes are as fresh as reads. warm: all calls take the same
    arguments instead and write into the same memory, so that what fits in L2 is found there.
    """

    def __init__(self, function: Callable, args: tuple, copies: int, warm: bool = False):
        need_gpu()
        self.sets = [args, *(args if warm else tuple(_clone(a) for a in args) for _ in range(copies - 1))]
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                function(*args)
        torch.cuda.current_stream().wait_stream(stream)
        torch.cuda.synchronize()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.results = []
            for a in self.sets:
                result = function(*a)
                if not warm:
                    self.results.append(result)
                del result  # if warm, the next call's result takes its memory

    def seconds(self) -> float:
        """Seconds per call of one replay."""
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        self.graph.replay()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) / 1e3 / len(self.sets)


def long_enough(function: Callable, args: tuple, least: int, most: int, warm: bool = False) -> Graphed:
    """A graph of `least` calls, or of as many as take REPLAY seconds, where those are more, up to `most`."""
    graph = Graphed(function, args, least, warm)
    calls = math.ceil(REPLAY / min(graph.seconds() for _ in range(3)))
    if calls <= least or most <= least:
        return graph
    del graph  # its copies, before others are made
    return Graphed(function, args, min(calls, most), warm)


def summarize(seconds: list, calls: int = 1) -> Timing:
    """Median and quantiles of a list of seconds per call."""
    p20, median, p80 = torch.quantile(
        torch.tensor(seconds, dtype=torch.float64), torch.tensor([0.2, 0.5, 0.8], dtype=torch.float64)
    ).tolist()
    return Timing(median, p20, p80, calls)


def from_graphs(
    functions: dict, args: tuple, nbytes: int, budget: float = 0.5, warm: bool = False
) -> dict[str, Timing]:
    """Time {name: function} on copies of `args` from CUDA graphs, taking turns; warm: on the same `args` every time.

    nbytes: bytes that one call reads and writes, which sets the least number of copies; those beyond it, which make a
    replay last, take half of the free memory at most. budget: seconds of GPU time for all.
    """
    least = 16 if warm else copies_needed(nbytes)
    each = max(1, nbytes, sum(map(_nbytes, args)))
    most = MAX_COPIES if warm else min(MAX_COPIES, _room() // (2 * len(functions) * each))
    graphs = {name: long_enough(function, args, least, most, warm) for name, function in functions.items()}
    once = sum(g.seconds() * len(g.sets) for g in graphs.values())
    rounds = max(5, min(100, int(budget / max(once, 1e-9))))
    seconds = {name: [] for name in graphs}
    for turn in range(rounds + 2):
        for name, graph in graphs.items():
            t = graph.seconds()
            if turn >= 2:
                seconds[name].append(t)
    return {name: summarize(s, len(graphs[name].sets)) for name, s in seconds.items()}


def as_called(function: Callable, args: tuple, calls: int = 1000, budget: float = 0.5) -> float:
    """Wall seconds per call of `calls` back-to-back calls, synchronised before and after; of fewer, where they would
    take more than `budget` seconds."""
    need_gpu()

    def seconds(calls: int) -> float:
        start = time.perf_counter()
        for _ in range(calls):
            function(*args)
        torch.cuda.synchronize()
        return (time.perf_counter() - start) / calls

    once = seconds(10)
    return seconds(max(10, min(calls, int(budget / once))))


def as_called_in_turns(functions: dict, args: tuple, rounds: int = 5) -> dict[str, float]:
    """`as_called` for {name: function}: medians of `rounds` runs each, in turns. A GPU at its power limit lowers its
    clock as it warms up, so without turns the first function looks fastest."""
    called = [{name: as_called(f, args, 200, budget=0.1) for name, f in functions.items()} for _ in range(rounds)]
    return {name: statistics.median(turn[name] for turn in called) for name in functions}


def _eager(function: Callable, warm_up: float = 0.3, rounds: int = 30) -> float:
    """Median seconds of one call between two events, after the clocks have had `warm_up` seconds to rise."""
    need_gpu()
    until = time.perf_counter() + warm_up
    while time.perf_counter() < until:
        function()
        torch.cuda.synchronize()
    seconds = []
    for _ in range(rounds):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        function()
        end.record()
        end.synchronize()
        seconds.append(start.elapsed_time(end) / 1e3)
    return summarize(seconds).median


def copy_roof(nbytes: int = 1 << 32) -> float:
    """Bytes/s, read plus written, of torch's own device copy of `nbytes`: the practical memory roof of this GPU.

    Called eagerly: inside a CUDA graph the same copy becomes a copy node, which another engine does, at two thirds.
    """
    need_gpu()
    x = torch.empty(nbytes // 4, dtype=torch.int32, device="cuda").random_()
    y = torch.empty_like(x)
    return 2 * nbytes / _eager(lambda: y.copy_(x))


def matmul_roof(dtype: torch.dtype = torch.bfloat16, n: int = 8192) -> float:
    """FLOP/s of torch's own n x n x n matmul on random data: the practical matrix roof of this GPU."""
    need_gpu()
    a, b = (torch.randn(n, n, device="cuda").to(dtype) for _ in range(2))
    return 2 * n**3 / _eager(lambda: a @ b)


@dataclass(frozen=True)
class Sustained:
    """A kernel run back to back for seconds: seconds per call, and the GPU's clock and power in the second half.

    Attributes:
        timing: seconds per call of the replays of the second half.
        clock_mhz: median clock of the SMs.
        watts: median power draw.
    """

    timing: Timing
    clock_mhz: float
    watts: float


def sustained(function: Callable, args: tuple, nbytes: int, seconds: float = 2.0) -> Sustained:
    """Replay a CUDA graph of `function` without a pause, and sample clock and power meanwhile.

    Args:
        function: function of `args`.
        args: arguments; the graph walks over copies of them, as in from_graphs.
        nbytes: bytes that one call reads and writes.
        seconds: how long to run. The first half warms the GPU up and does not count.

    Returns:
        Medians over the second half.

    Raises:
        RuntimeError: without a GPU.
        ModuleNotFoundError: without nvidia-ml-py, through which torch reads clock and power.
    """
    graph = long_enough(function, args, copies_needed(nbytes), 64)
    samples, times, done = [], [], threading.Event()

    def sample():
        while not done.wait(0.02):
            samples.append((time.perf_counter(), torch.cuda.clock_rate(), torch.cuda.power_draw() / 1e3))

    sampler = threading.Thread(target=sample, daemon=True)
    half = time.perf_counter() + seconds / 2
    sampler.start()
    while (now := time.perf_counter()) < half + seconds / 2:
        times.append((now, graph.seconds()))
    done.set()
    sampler.join()

    def second_half(rows):
        return [row[1:] for row in rows if row[0] >= half] or [row[1:] for row in rows]

    clocks, watts = zip(*second_half(samples), strict=True)
    timing = summarize([t for (t,) in second_half(times)], len(graph.sets))
    return Sustained(timing, summarize(list(clocks)).median, summarize(list(watts)).median)
