"""The steps of the Hopper matmul as roles for instruments/mbarriers.py: what hopper_steps.py and hopper.py do with
slots and barriers, without the numbers.

Item n is the n-th pair of tiles of a and b that a program copies; a tile of c takes `steps` of them.
"""

from dataclasses import replace

from instruments.mbarriers import TIMINGS, Run, Timing, simulate


def one_slot(steps: int) -> dict[str, list[str]]:
    """One slot: all warps start a copy, wait for it, multiply, and wait again."""
    role = []
    for item in range(steps):
        role += ["expect full 0", f"copy 0 {item}", f"wait full 0 {item & 1}", f"multiply 0 {item}", "finish 0"]
    return {"all warps": [*role, "store"]}


def ring(steps: int, slots: int) -> dict[str, list[str]]:
    """A ring: the copy of item n + slots - 1 begins once the matmul of item n - 1 is done."""

    def start(item):
        slot = item % slots
        return [f"expect full {slot}", f"copy {slot} {item}"] if item < steps else []

    role = [words for item in range(slots - 1) for words in start(item)]
    for item in range(steps):
        slot = item % slots
        role += [f"wait full {slot} {item // slots & 1}", f"multiply {slot} {item}", "finish 1"]
        role += start(item + slots - 1)
    return {"all warps": [*role, "finish 0", "store"]}


def produce(items: int, slots: int) -> list[str]:
    """The producer: each slot as soon as it is free."""
    role = []
    for item in range(items):
        slot = item % slots
        role += [f"wait free {slot} {item // slots & 1 ^ 1}", f"expect full {slot}", f"copy {slot} {item}"]
    return role


def consume(steps: int, slots: int, tiles: int = 1) -> list[str]:
    """A consumer: `tiles` tiles of c in turn, of `steps` items each, and the epilogue of each."""
    role, item = [], 0
    for _ in range(tiles):
        for step in range(steps):
            slot = item % slots
            role += [f"wait full {slot} {item // slots & 1}", f"multiply {slot} {item}", "finish 1"]
            role += [f"arrive free {(item - 1) % slots}"] if step else []
            item += 1
        role += ["finish 0", f"arrive free {(item - 1) % slots}", "store"]
    return role


def specialized(steps: int, slots: int, tiles: int = 1, consumers: int = 1) -> dict[str, list[str]]:
    """A producer and its consumers; with several tiles, the persistent kernel."""
    names = ["consumer"] if consumers == 1 else [f"consumer {number}" for number in range(consumers)]
    return {"producer": produce(steps * tiles, slots)} | {name: consume(steps, slots, tiles) for name in names}


#: What tells the steps apart.
STEPS = ("one slot", "ring", "producer")


def run_step(name: str, steps: int = 8, slots: int = 4, timing: Timing = TIMINGS[0]) -> Run:
    """One tile of c by a step: 'one slot', 'ring' or 'producer'."""
    if name not in STEPS:
        raise ValueError(f"name: got {name!r}, expected one of {', '.join(STEPS)}")
    if name == "one slot":
        return simulate(one_slot(steps), 1, timing=timing)
    return simulate(ring(steps, slots) if name == "ring" else specialized(steps, slots), slots, timing=timing)


def in_turn(run: Run, count: int) -> Run:
    """The same program `count` times, each starting when the one before has ended, as on an SM that holds one."""
    spans = [
        replace(span, start=span.start + at * run.time, end=span.end + at * run.time)
        for at in range(count)
        for span in run.spans
    ]
    return Run(run.problem, count * run.time, spans, run.snapshots, run.multiplied * count)
