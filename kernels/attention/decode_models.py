"""What lesson 08d draws without a kernel: which SM reads which tile of keys, and when.

A small GPU with one program per SM. Each tile of keys takes one unit of time, and so does the start of a program: until
its first tile arrives, an SM waits. Both lengths are chosen for the drawing, not measured. The panel `kv_split` shows
them.
"""

from dataclasses import dataclass

from instruments.backend import cdiv

SMS = 6
HEADS, SPLIT, PERSISTENT = "one program per KV head", "split-KV", "persistent"
WAYS = (HEADS, SPLIT, PERSISTENT)


@dataclass(frozen=True)
class Workload:
    """Caches to read.

    Attributes:
        sequences: pairs of a sequence and a KV head.
        tiles: tiles of keys of each.
        splits: programs that share one pair's keys with split-KV.
    """

    sequences: int
    tiles: int
    splits: int


#: A long sequence with two KV heads, and slightly more pairs than SMs.
WORKLOADS = {"2 long caches": Workload(2, 12, 3), "7 short caches": Workload(7, 4, 2)}


@dataclass(frozen=True)
class Program:
    """One program: the SM that runs it, when it starts, and its tiles as (pair, tile), in order."""

    sm: int
    start: int
    tiles: tuple

    @property
    def end(self) -> int:
        """When its last tile is read."""
        return self.start + 1 + len(self.tiles)


def schedule(way: str, work: Workload, sms: int = SMS) -> list[Program]:
    """All programs of a launch, each on the SM that is free first.

    Args:
        way: one of WAYS.
        work: the caches.
        sms: of the GPU.
    """
    every = [(pair, tile) for pair in range(work.sequences) for tile in range(work.tiles)]
    if way == PERSISTENT:
        size = cdiv(len(every), sms)
        parts = [every[at : at + size] for at in range(0, len(every), size)]
    else:
        size = cdiv(work.tiles, work.splits if way == SPLIT else 1)
        own = [every[pair * work.tiles :][: work.tiles] for pair in range(work.sequences)]
        parts = [keys[at : at + size] for keys in own for at in range(0, work.tiles, size)]
    free, programs = [0] * sms, []
    for part in parts:
        sm = min(range(sms), key=free.__getitem__)
        programs.append(Program(sm, free[sm], tuple(part)))
        free[sm] = programs[-1].end
    return programs


def parts_of(programs: list[Program]) -> dict[int, int]:
    """{pair: number of programs that read its keys}; more than one means that a second kernel has to merge."""
    readers = {}
    for program in programs:
        for pair in {pair for pair, _ in program.tiles}:
            readers[pair] = readers.get(pair, 0) + 1
    return readers
