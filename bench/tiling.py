"""Parts of bench/machine.py for lessons 03 and 03b: matmul step by step, order of tiles, waves, clock, power."""

import math
from collections.abc import Callable
from functools import partial

import torch

from bench.cases.matmul_hopper import STEPS as HOPPER_STEPS
from bench.cases.matmul_hopper import run as run_step
from instruments import timing
from instruments.backend import device
from instruments.cache import grouped
from instruments.results import MatmulLoad, MatmulOrder, MatmulStep, MatmulWave, WarpTrace
from kernels.matmul import hopper
from kernels.matmul.ablation import LAST, NEIGHBORS, STEPS, launch_step, matmul_step
from kernels.matmul.tiled import matmul, matmul_grouped_kernel
from kernels.shared.device import is_hopper

SIDE = 8192
WIDE = (8192, 28672, 8192)  # the up-projection of Llama 3 70B's MLP for 8,192 tokens
GROUPS = (1, 2, 4, 8, 16, 32, 64)
BUDGET = 2.0  # seconds of GPU time for each list that is timed in turns
STEP_SECONDS = 1.0  # for which each step runs without a pause
SECONDS = 1.5  # for which a matmul runs without a pause
SINGLE = 2  # calls of a kernel that takes tens of milliseconds, after one to compile it
TRACED = 4  # tiles of a program whose warps are traced
TOLERANCE = 4e-3  # relative error of bf16 results: about 1.7e-3 from rounding them


def operands(shape: tuple, zeros: bool = False) -> tuple:
    """a [M, K] and b [K, N] in bf16, of normal numbers or zeros."""
    M, N, K = shape
    make = torch.zeros if zeros else torch.randn
    return make(M, K, device=device()).bfloat16(), make(K, N, device=device()).bfloat16()


def relative_error(result: torch.Tensor, expected: torch.Tensor) -> float:
    """||result - expected|| / ||expected||. Raises AssertionError where it is beyond bf16's rounding."""
    error = ((result.double() - expected).norm() / expected.norm()).item()
    assert error < TOLERANCE, f"relative error {error:.1e}"
    return error


def flops(shape: tuple) -> int:
    return 2 * math.prod(shape)


def in_turns(functions: dict, args: tuple, budget: float = BUDGET) -> dict[object, timing.Timing]:
    """Times of the functions in turns; without a GPU they run once, and the times are NaN."""
    if device() == "cpu":
        for function in functions.values():
            function(*args)
        return dict.fromkeys(functions, timing.Timing(math.nan, math.nan, math.nan))
    times = timing.from_graphs(functions, args, sum(x.nbytes for x in args), budget)
    torch.cuda.empty_cache()
    return times


def singly(function: Callable, args: tuple) -> timing.Timing:
    """Times of single calls between two events; `function` is compiled already."""
    if device() == "cpu":
        function(*args)
        return timing.Timing(math.nan, math.nan, math.nan, 0)
    seconds = []
    for _ in range(SINGLE):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        function(*args)
        end.record()
        end.synchronize()
        seconds.append(start.elapsed_time(end) / 1e3)
    return timing.summarize(seconds, 0)


def fields(time: timing.Timing, shape: tuple | None = None) -> dict:
    """The fields of a record: us and its quantiles, and TFLOP/s for a shape."""
    us = {"us": time.median * 1e6, "us_p20": time.p20 * 1e6, "us_p80": time.p80 * 1e6}
    return us | ({"tflops": flops(shape) / time.median / 1e12} if shape else {})


def step(options: dict) -> Callable:
    return lambda a, b: matmul_step(a, b, options)


def with_masks(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The course's grouped kernel with the options of the ladder's last step: any sizes and strides."""
    (M, K), N = a.shape, b.shape[1]
    c = torch.empty(M, N, dtype=a.dtype, device=a.device)
    options = {name: value for name, value in LAST.items() if name != "TENSOR_CORES"}
    count = -(-M // LAST["BLOCK_M"]) * -(-N // LAST["BLOCK_N"])
    matmul_grouped_kernel.fn[(count,)](a, b, c, M, N, K, *a.stride(), *b.stride(), PRECISION="ieee", **options)
    return c


def resources(a: torch.Tensor, b: torch.Tensor, options: dict) -> dict:
    """Registers and spills per thread and shared memory of a step; none from the interpreter."""
    kernel = launch_step(a, b, torch.empty(a.shape[0], b.shape[1], dtype=a.dtype, device=a.device), options)
    if not hasattr(kernel, "n_regs"):
        return {}
    return {"registers": kernel.n_regs, "shared": kernel.metadata.shared, "spills": kernel.n_spills}


def alone(
    name: tuple[str, str], function: Callable, args: tuple, expected: torch.Tensor, at_once: bool, **more
) -> MatmulStep:
    """The record of a matmul that runs alone: in turns, what follows a kernel of little power finds a higher clock.

    Args:
        name: kind and name of the record.
        function: of `args`, a [M, K] and b [K, N].
        args: its arguments.
        expected: the product in fp64.
        at_once: whether to run without a pause for STEP_SECONDS; else a few single calls are timed.
        more: other fields of the record.
    """
    error = relative_error(function(*args), expected)
    run = timing.Sustained(singly(function, args), 0.0, 0.0)
    if at_once:
        run = timing.sustained(function, args, sum(x.nbytes for x in args), STEP_SECONDS)
    shape = (*expected.shape, args[0].shape[1])
    return MatmulStep(
        kind=name[0],
        name=name[1],
        shape=shape,
        **fields(run.timing, shape),
        calls=run.timing.calls,
        clock_mhz=run.clock_mhz,
        watts=run.watts,
        error=error,
        **more,
    )


def steps(small: bool) -> list[MatmulStep]:
    """Every step alone at one shape, the neighbors of the last one, and what else computes it."""
    shape = (256, 256, 128) if small else (SIDE, SIDE, SIDE)
    a, b = operands(shape)
    expected = a.double() @ b.double()
    options = {("step", name): chosen for name, chosen in STEPS.items()}
    options |= {("neighbor", name): chosen for name, chosen in NEIGHBORS.items()}
    functions = {name: step(chosen) for name, chosen in options.items()}
    functions |= {
        ("peer", "masks and strides"): with_masks,
        ("peer", "autotuned"): lambda a, b: matmul(a, b, path="grouped"),
        ("peer", "torch"): torch.matmul,
    }
    slow = {name for name, chosen in options.items() if not chosen["TENSOR_CORES"]}
    if not small:
        columns = b.t().contiguous().t()
        functions["peer", "bytes-first"] = matmul  # persistent, with TMA
        functions["dot", "dot product"] = lambda a, b: matmul(a, b, path="dot")
        functions["dot", "dot product, b by columns"] = lambda a, b: matmul(a, columns, path="dot")
        slow |= {name for name in functions if name[0] == "dot"}
    return [
        alone(
            name,
            function,
            (a, b),
            expected,
            at_once=not small and name not in slow,
            **(resources(a, b, options[name]) if name in options else {}),
        )
        for name, function in functions.items()
    ]


def orders(small: bool) -> list[MatmulOrder]:
    """Groups of 1 to 64 rows of tiles; at a wide shape, where one row of tiles is longer, three of them and torch."""
    records = []
    tiles = {(128, 128): STEPS["groups of 8"], (128, 256): LAST}
    runs = [((SIDE, SIDE, SIDE), GROUPS, tiles), (WIDE, (0, 1, 4, 8, 16), {(128, 128): tiles[128, 128]})]
    for shape, groups, options in [((256, 256, 128), (0, 1, 2), tiles)] if small else runs:
        a, b = operands(shape)
        expected = a.double() @ b.double()
        functions = {
            (group, tile): step(chosen | {"GROUP_M": group}) if group else torch.matmul
            for tile, chosen in options.items()
            for group in groups
        }
        for function in functions.values():
            relative_error(function(a, b), expected)
        records += [
            MatmulOrder(group=group, shape=shape, tile=tile, **fields(time, shape))
            for (group, tile), time in in_turns(functions, (a, b)).items()
        ]
        del a, b, expected
    return records


def first_tiles(count: int, tiles_m: int, tiles_n: int, options: dict) -> torch.Tensor:
    """Which elements of c the first `count` programs compute: booleans [M, N]."""
    computed = torch.zeros(tiles_m, tiles_n, dtype=torch.bool)
    for tile in grouped(tiles_m, tiles_n, options["GROUP_M"])[:count]:
        computed[tile] = True
    return computed.repeat_interleave(options["BLOCK_M"], 0).repeat_interleave(options["BLOCK_N"], 1)


def waves(small: bool) -> list[MatmulWave]:
    """So many programs of one matmul: one, quarters of a wave, and one more or less than a whole wave."""
    sms = 4 if small else torch.cuda.get_device_properties(0).multi_processor_count
    shape = (256, 512, 64) if small else (128 * 24, 256 * 24, SIDE)
    a, b = operands(shape)
    expected, records = a.double() @ b.double(), []
    counts = {1, *(sms * quarter // 4 for quarter in range(1, 18))}
    counts |= {sms * wave + more for wave in (1, 2, 3, 4) for more in (-1, 1, 4)}
    for options in (LAST, STEPS["groups of 8"]):
        tile = options["BLOCK_M"], options["BLOCK_N"]
        tiles_m, tiles_n = shape[0] // tile[0], shape[1] // tile[1]

        def run(count, options=options):
            return lambda a, b: matmul_step(a, b, options, tiles=count)

        functions = {count: run(count) for count in sorted(counts) if count <= tiles_m * tiles_n}
        for count, function in functions.items():
            computed = first_tiles(count, tiles_m, tiles_n, options).to(a.device)
            relative_error(function(a, b)[computed], expected[computed])
        records += [
            MatmulWave(tiles=count, shape=shape, tile=tile, **fields(time))
            for count, time in in_turns(functions, (a, b)).items()
        ]
    return records


def loads(functions: dict[str, Callable], shape: tuple, data: str, small: bool) -> list[MatmulLoad]:
    """Matmuls on normal numbers or on zeros, sustained and in turns."""
    a, b = operands(shape, data == "zeros")
    expected, records = a.double() @ b.double(), []
    for function in functions.values():
        result = function(a, b)
        assert relative_error(result, expected) if expected.any() else not result.any(), data
    turns = in_turns(functions, (a, b), BUDGET / 2)
    for name, function in functions.items():
        if small:
            run = timing.Sustained(turns[name], math.nan, math.nan)
        else:
            run = timing.sustained(function, (a, b), a.nbytes + b.nbytes, SECONDS)
        turn = fields(turns[name])
        records.append(
            MatmulLoad(
                name=name,
                data=data,
                shape=shape,
                **fields(run.timing, shape),
                clock_mhz=run.clock_mhz,
                watts=run.watts,
                turns_us=turn["us"],
                turns_p20=turn["us_p20"],
                turns_p80=turn["us_p80"],
            )
        )
    return records


def load(small: bool) -> list[MatmulLoad]:
    """Zeros against normal numbers: torch, the last step, and two orders of the same tiles."""
    shape = (256, 256, 128) if small else (SIDE, SIDE, SIDE)
    functions = {
        "torch": torch.matmul,
        "tile 128 x 256": step(LAST),
        "groups of 8": step(STEPS["groups of 8"]),
        "groups of 1": step(STEPS["BLOCK_K 64"]),
    }
    return loads(functions, shape, "normal", small) + loads(functions, shape, "zeros", small)


def hopper_functions() -> dict[str, Callable]:
    """Lesson 03b's steps, before and after them the course's other kernels, and torch."""
    paths = {path: partial(matmul, path=path) for path in ("grouped", "persistent")}
    return {"torch": torch.matmul} | paths | {name: partial(run_step, name) for name in HOPPER_STEPS}


def hopper_zeros(small: bool) -> list[MatmulLoad]:
    """Lesson 03b's ladder on zeros, where power is no limit, at two shapes."""
    if not is_hopper(torch.device(device())):
        return []
    functions = {name: f for name, f in hopper_functions().items() if name not in hopper.VARIANTS}
    return [record for n in (4096, SIDE) for record in loads(functions, (n, n, n), "zeros", small)]


def hopper_steps(small: bool) -> list[MatmulStep]:
    """Lesson 03b's ladder at two shapes, each step alone, and the last one with other plans."""
    if not is_hopper(torch.device(device())):
        return []
    kinds = dict.fromkeys(hopper.VARIANTS, "plan") | {"torch": "peer"}
    functions = {(kinds.get(name, "step"), name): function for name, function in hopper_functions().items()}
    records = []
    for shape in ((4096, 4096, 4096), (SIDE, SIDE, SIDE)):
        a, b = operands(shape)
        expected = a.double() @ b.double()
        records += [alone(name, function, (a, b), expected, at_once=True) for name, function in functions.items()]
    return records


def trace(small: bool) -> list[WarpTrace]:
    """The warps of one program of the Hopper matmul over its first tiles, after runs that warm the caches up."""
    if not is_hopper(torch.device(device())):
        return []
    shape = (8192, 8192, 1024)
    a, b = operands(shape)
    c, items = torch.empty(shape[0], shape[1], dtype=a.dtype, device=a.device), shape[2] // hopper.PLAN.block_k
    for _ in range(3):
        stamps = torch.zeros(hopper.WARPGROUPS.value + 1, TRACED * items, 5, dtype=torch.int64, device=a.device)
        hopper.launch(a, b, c, trace=stamps)
    relative_error(c, a.double() @ b.double())
    first = stamps[stamps > 0].min().item()
    cycles = [[[t - first if t else None for t in item] for item in role] for role in stamps.tolist()]
    roles = ["consumer 0", "consumer 1", "producer"]
    return [WarpTrace(shape=shape, slots=hopper.PLAN.slots, items=items, roles=roles, cycles=cycles)]


PARTS = {
    "matmul_steps": steps,
    "matmul_orders": orders,
    "matmul_waves": waves,
    "matmul_load": load,
    "matmul_hopper": hopper_steps,
    "matmul_hopper_zeros": hopper_zeros,
    "matmul_trace": trace,
}
