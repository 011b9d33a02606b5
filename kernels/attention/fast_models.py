"""What lesson 08c computes without a kernel: cycles of a tile of scores on one SM, orders of tiles, and who works when.

The rates are Hopper's: an SM's tensor cores do 4,096 FLOP per cycle in 16 bits, its SFUs 16 exponentials, and each of
its four schedulers issues one instruction per cycle. All of it is arithmetic; nothing here is measured.
"""

import heapq
from dataclasses import dataclass

TENSOR_FLOP, SFU_RESULTS, SCHEDULERS = 4096, 16, 4  # per cycle and SM

INTEGERS, MASK, FLOATS, EXPONENTIALS, MATMULS, OTHER = (
    "integers: addresses, comparisons",
    "selections of the mask",
    "arithmetic on scores, output",
    "exponentials",
    "matmuls",
    "copies and others",
)
_KINDS = {
    INTEGERS: frozenset(
        "IMAD IADD3 LEA ISETP LOP3 SHF PLOP3 IMNMX VIADD UIADD3 ULEA ULOP3 USHF UMOV R2UR USEL UISETP MOV SEL".split()
    ),
    MASK: frozenset(("FSEL",)),
    FLOATS: frozenset(("FMUL", "FADD", "FFMA", "FMNMX", "F2FP", "SHFL")),
    EXPONENTIALS: frozenset(("MUFU",)),
    MATMULS: frozenset(("HGMMA",)),
}

IN_ORDER, OWN, TURNS = "in order", "under its own matmul", "in turns"
SCHEDULES = (IN_ORDER, OWN, TURNS)


def tensor_cycles(queries: int, keys: int, head_dim: int) -> float:
    """Cycles that the tensor cores of an SM need for both matmuls of a tile of queries and keys."""
    return 2 * 2 * queries * keys * head_dim / TENSOR_FLOP


def sfu_cycles(queries: int, keys: int) -> float:
    """Cycles that the SFUs of an SM need for the exponentials of a tile."""
    return queries * keys / SFU_RESULTS


def issue_cycles(instructions: int, warps: int) -> float:
    """Cycles that the schedulers of an SM need to issue so many instructions of each warp."""
    return instructions * warps / SCHEDULERS


def places(work: list[int], slots: int) -> list[tuple[int, int, int]]:
    """(place, start, end) of each program, if each starts as soon as one of `slots` places is free, in the order of
    `work`."""
    free, result = [(0, slot) for slot in range(slots)], []
    for each in work:
        start, slot = free[0]
        heapq.heapreplace(free, (start + each, slot))
        result.append((slot, start, start + each))
    return result


def makespan(work: list[int], slots: int) -> int:
    """When the last program ends, if each starts as soon as one of `slots` places is free, in the order of `work`."""
    return max(end for _, _, end in places(work, slots))


def instruction_kinds(loop: dict[str, int]) -> dict[str, int]:
    """{what they are for: instructions} of a loop, {SASS opcode without modifiers: how often it stands there}."""
    kinds = dict.fromkeys((*_KINDS, OTHER), 0)
    for opcode, count in loop.items():
        kinds[next((kind for kind, opcodes in _KINDS.items() if opcode in opcodes), OTHER)] += count
    return kinds


@dataclass(frozen=True)
class Span:
    """A warpgroup's work on a tile of keys. Times in cycles.

    Args:
        warpgroup: the consumer; -1 for a copy.
        kind: scores, out (the two matmuls), softmax, or k, v (copies).
        tile: of keys.
    """

    warpgroup: int
    kind: str
    tile: int
    start: float
    end: float


def schedule(how: str, tiles: int, warpgroups: int, matmul: float, softmax: float) -> list[Span]:
    """When warpgroups run their matmuls and softmax, where tensor cores and SFUs serve one warpgroup after the other.

    Args:
        how: One of SCHEDULES. IN_ORDER: scores, softmax, out, each after the one before. OWN: the matmul of the scores,
            then that of the output of the tile before; softmax runs meanwhile. TURNS: the same, but a warpgroup starts
            its two matmuls only after the warpgroup before has started its own.
        tiles: of keys.
        warpgroups: that share an SM.
        matmul: cycles of one matmul.
        softmax: cycles of the exponentials of a tile.
    """
    spans: list[Span] = []
    free = {"tensor cores": 0.0, "SFUs": 0.0}
    queues = [_operations(how, tiles) for _ in range(warpgroups)]
    ends: dict = {}  # (warpgroup, kind, tile): when it ended
    begun: dict = {}  # (warpgroup, turn): when its matmuls were queued
    while any(queues):
        ready = {}
        for group, queue in enumerate(queues):
            if queue and (at := _ready(how, group, queue[0], ends, begun, warpgroups)) is not None:
                ready[group] = at
        group = min(ready, key=lambda each: (ready[each], each))
        kind, tile, _, turn = queues[group].pop(0)
        if turn is not None:
            begun[group, turn] = ready[group]
        unit, long = ("SFUs", softmax) if kind == "softmax" else ("tensor cores", matmul)
        start = max(ready[group], free[unit])
        free[unit] = ends[group, kind, tile] = start + long
        spans.append(Span(group, kind, tile, start, start + long))
    return spans


def _operations(how: str, tiles: int) -> list:
    """[(kind, tile, what has to end before, turn or None)] of a warpgroup, in its order."""
    if how == IN_ORDER:
        return [
            operation
            for tile in range(tiles)
            for operation in (
                ("scores", tile, [("out", tile - 1)], None),
                ("softmax", tile, [("scores", tile)], None),
                ("out", tile, [("softmax", tile)], None),
            )
        ]
    operations = []
    for tile in range(tiles + 1):
        before = [("softmax", tile - 1), ("out", tile - 2)]
        if tile < tiles:
            operations.append(("scores", tile, before, tile))
        if tile:
            operations.append(("out", tile - 1, before, None))
        if tile < tiles:
            operations.append(("softmax", tile, [("scores", tile)], None))
    return operations


def _ready(how: str, group: int, operation: tuple, ends: dict, begun: dict, warpgroups: int) -> float | None:
    """When a warpgroup may start its next operation; None where it waits for a turn that has not been given."""
    _, _, needs, turn = operation
    at = max((ends.get((group, *need), 0.0) for need in needs), default=0.0)
    if how == TURNS and turn is not None:
        before = (group - 1, turn) if group else (warpgroups - 1, turn - 1)
        if before[1] >= 0 and before not in begun:
            return None
        at = max(at, begun.get(before, 0.0))
    return at


def copies(spans: list[Span], slots: int, length: float) -> list[Span]:
    """When a producer's copies of keys and values run beside a schedule, each as soon as a slot of the ring is free.

    Args:
        spans: of `schedule`; the first matmul starts at 0, so the copies for it come before.
        slots: tiles in the ring, keys and values in turn.
        length: cycles of a copy; chosen, not measured.
    """
    used = {}  # item: when all warpgroups have read it
    for span in spans:
        if span.kind != "softmax":
            item = 2 * span.tile + (span.kind == "out")
            used[item] = max(used.get(item, 0.0), span.end)
    before, result = -length, []
    for item in sorted(used):
        start = max(before, used.get(item - slots, -length))
        before = start + length
        result.append(Span(-1, "kv"[item % 2], item // 2, start, before))
    return result


def busy(spans: list[Span], softmax: bool) -> float:
    """The share of the time from the first span to the last in which the SFUs (softmax) or tensor cores work."""
    whole = max(span.end for span in spans)
    return sum(span.end - span.start for span in spans if (span.kind == "softmax") == softmax) / whole
