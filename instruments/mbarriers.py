"""A model of one SM with TMA, tensor cores and mbarriers: which role waits for which, and whether one waits forever.

A role (a warp, or warps that do the same) is a list of instructions, written as words:

    wait full 2 0       until phase 0 of barrier full[2] is complete; phases are numbered 0, 1, 0, 1, ...
    expect full 2       announce the bytes of a copy at full[2], and arrive there
    copy 2 14           TMA copies item 14 into slot 2; its last byte arrives at full[2]
    multiply 2 14       queue the matmul of item 14, which slot 2 holds
    finish 1            until at most one matmul of this role is queued or running
    arrive free 2       arrive at free[2]
    store               the epilogue of a tile

    run = simulate({"producer": produce, "consumer": consume}, slots=4)
    run.problem         "", or a sentence on a deadlock or a data race

Every slot has two barriers, `full` and `free`. A phase of a barrier is complete once all its arrivals and all announced
copies are there; then the next phase begins. So a wait for phase 1 of a new barrier passes: the phase before the first
counts as complete. These are the rules of PTX's mbarrier.try_wait.parity. Times are in units of one item's matmul; they
are chosen for a drawing, not measured.
"""

import heapq
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import count

MAX_INSTRUCTIONS = 10_000  # of a run
TMA, TENSOR_CORES = "TMA", "tensor cores"


@dataclass(frozen=True)
class Timing:
    """How long things take, in units of one item's matmul.

    Args:
        latency: of a copy.
        interval: between the ends of two copies, at full bandwidth.
        store: of a tile's epilogue.
        queue: from queueing a matmul to its start, if the tensor cores are idle.
    """

    latency: float = 1.6
    interval: float = 0.8
    store: float = 2.0
    queue: float = 0.1


#: A race may show only if copies are quick, or slow: `check` tries all of these.
TIMINGS = (Timing(), Timing(0.05, 0.01), Timing(0.05, 0.01, 9), Timing(12, 5), Timing(3, 0.2, 0.1))


@dataclass
class Barrier:
    """An mbarrier. count: arrivals per phase. phase: the one that is not yet complete, 0 or 1. arrived: at it so far.
    copies: announced and not yet there."""

    count: int
    phase: int = 0
    arrived: int = 0
    copies: int = 0

    def settle(self):
        """Begin the next phase if this one is complete."""
        if self.arrived == self.count and not self.copies:
            self.phase, self.arrived = 1 - self.phase, 0


@dataclass
class Slot:
    """Shared memory for one item. item: the one that lies there, or None. coming: the one that a copy is writing.
    reading: matmuls of it, queued or running. read: how many were queued."""

    item: int | None = None
    coming: int | None = None
    reading: int = 0
    read: int = 0


@dataclass(frozen=True)
class Span:
    """What an actor (a role, TMA, the tensor cores) did from start to end: wait, copy, multiply or store. what: the
    barrier of a wait, else the number of an item or tile."""

    actor: str
    kind: str
    what: str
    start: float
    end: float


@dataclass(frozen=True)
class Snapshot:
    """The state after one instruction or event.

    Args:
        time: in units of one item's matmul.
        actor: whose instruction it was.
        words: the instruction, or what ended.
        slots: per slot, (item that lies there, item that is coming, matmuls that read it).
        full: per slot, (phase, arrived, copies) of its barrier.
        free: the same.
        waits: {role: instruction that it waits in}.
    """

    time: float
    actor: str
    words: str
    slots: tuple
    full: tuple
    free: tuple
    waits: dict


@dataclass
class Run:
    """What came of a run. problem: "" or a sentence. time: when the last role was done. multiplied: items, in order."""

    problem: str = ""
    time: float = 0.0
    spans: list[Span] = field(default_factory=list)
    snapshots: list[Snapshot] = field(default_factory=list)
    multiplied: list[int] = field(default_factory=list)

    def busy(self, actor: str) -> float:
        """The share of the time in which an actor was not idle; waits are idle."""
        own = sorted((s.start, s.end) for s in self.spans if s.actor == actor and s.kind != "wait")
        total, reached = 0.0, 0.0
        for start, end in own:
            total += max(0.0, end - max(start, reached))
            reached = max(reached, end)
        return total / self.time if self.time else 0.0


class _Fault(Exception):
    """A race, or an instruction that nobody could follow."""


class _Sm:
    """The state of a run, and what each instruction does to it."""

    def __init__(self, roles: dict, slots: int, consumers: int, free: int, timing: Timing):
        self.roles = {name: iter(role) for name, role in roles.items()}
        self.slots = [Slot() for _ in range(slots)]
        self.barriers = {"full": [Barrier(1) for _ in range(slots)], "free": [Barrier(free) for _ in range(slots)]}
        self.consumers, self.timing = consumers, timing
        self.now = self.last_copy = self.last_matmul = 0.0
        self.events, self.order, self.budget = [], count(), MAX_INSTRUCTIONS
        self.queued, self.tiles = dict.fromkeys(roles, 0), dict.fromkeys(roles, 0)
        self.waiting = {}  # {role: (instruction, since)}
        self.run = Run()

    def note(self, actor: str, words: str):
        """Keep the state for whoever steps through the run."""
        rows = {name: tuple((b.phase, b.arrived, b.copies) for b in row) for name, row in self.barriers.items()}
        slots = tuple((s.item, s.coming, s.reading) for s in self.slots)
        waits = {role: words for role, (words, _) in self.waiting.items()}
        self.run.snapshots.append(Snapshot(self.now, actor, words, slots, rows["full"], rows["free"], waits))

    def later(self, time: float, event):
        """Let `event()` happen at a time."""
        heapq.heappush(self.events, (time, next(self.order), event))

    def holds(self, role: str, words: str) -> bool:
        """Whether an instruction has to wait."""
        name, *rest = words.split()
        if name == "wait":
            return self.barrier(rest).phase == int(rest[2])
        return name == "finish" and self.queued[role] > int(rest[0])

    def barrier(self, rest: list) -> Barrier:
        return self.barriers[rest[0]][int(rest[1])]

    def do(self, role: str, words: str):
        """One instruction that need not wait."""
        name, *rest = words.split()
        if name in ("expect", "arrive"):
            barrier = self.barrier(rest)
            if barrier.arrived == barrier.count:
                raise _Fault(f"{role} arrives at {rest[0]}[{rest[1]}] once more than its count of {barrier.count}")
            barrier.arrived += 1
            barrier.copies += name == "expect"
            barrier.settle()
        elif name == "copy":
            self.copy(*map(int, rest))
        elif name == "multiply":
            self.multiply(role, *map(int, rest))
        elif name == "store":
            if self.queued[role]:
                raise _Fault(
                    f"data race: {role} stores its tile while {self.queued[role]} of its matmuls are in flight"
                )
            self.span(role, "store", self.tiles[role], self.now, self.now + self.timing.store)
            self.tiles[role] += 1
        elif name not in ("wait", "finish"):
            raise _Fault(f"{role}: {words!r} is no instruction")

    def span(self, actor: str, kind: str, what, start: float, end: float):
        self.run.spans.append(Span(actor, kind, str(what), start, end))
        self.run.time = max(self.run.time, end)

    def copy(self, number: int, item: int):
        """Start a copy, unless somebody still needs what lies in the slot."""
        slot = self.slots[number]
        if slot.coming is not None:
            raise _Fault(f"data race: item {item} is copied into slot {number} while item {slot.coming} is arriving")
        if slot.reading:
            raise _Fault(f"data race: item {item} is copied into slot {number} while item {slot.item} is multiplied")
        if slot.item is not None and slot.read < self.consumers:
            raise _Fault(f"data race: item {item} overwrites item {slot.item} in slot {number} before it is multiplied")
        slot.coming, slot.item, slot.read = item, None, 0
        end = max(self.now + self.timing.latency, self.last_copy + self.timing.interval)
        self.span(TMA, "copy", item, self.now, end)
        self.last_copy = end

        def arrived():
            slot.item, slot.coming = item, None
            barrier = self.barriers["full"][number]
            barrier.copies -= 1
            barrier.settle()
            self.note(TMA, f"item {item} has arrived in slot {number}")

        self.later(end, arrived)

    def multiply(self, role: str, number: int, item: int):
        """Queue a matmul of what lies in a slot."""
        slot = self.slots[number]
        if slot.item != item:
            found = "is empty" if slot.item is None else f"holds item {slot.item}"
            raise _Fault(f"data race: {role} multiplies item {item}, but slot {number} {found}")
        slot.reading, slot.read = slot.reading + 1, slot.read + 1
        self.queued[role] += 1
        start = max(self.now + self.timing.queue, self.last_matmul)
        self.last_matmul = start + 1 / self.consumers
        self.span(TENSOR_CORES, "multiply", item, start, self.last_matmul)
        self.run.multiplied.append(item)

        def done():
            slot.reading -= 1
            self.queued[role] -= 1
            self.note(TENSOR_CORES, f"the matmul of item {item} is done")

        self.later(self.last_matmul, done)

    def advance(self, role: str):
        """Let a role run until it has to wait, or is busy for a time."""
        while True:
            words, since = self.waiting.get(role, ("", self.now))
            words = words or next(self.roles[role], "")
            if not words:
                return
            if self.holds(role, words):
                if role not in self.waiting:
                    self.waiting[role] = words, self.now
                    self.note(role, words)
                return
            if self.waiting.pop(role, None) and self.now > since:
                self.span(role, "wait", " ".join(words.split()[:3]), since, self.now)
            self.budget -= 1
            if not self.budget:
                raise _Fault(f"more than {MAX_INSTRUCTIONS:,} instructions")
            self.do(role, words)
            self.note(role, words)
            if words == "store":
                self.later(self.now + self.timing.store, lambda: self.advance(role))
                return

    def go(self) -> Run:
        """Run all roles to their ends, or to a problem."""
        try:
            for role in self.roles:
                self.advance(role)
            while self.events:
                self.now, _, event = heapq.heappop(self.events)
                event()
                self.wake()
        except _Fault as fault:
            self.run.problem = str(fault)
            return self.run
        except (ValueError, IndexError, KeyError, TypeError) as error:
            self.run.problem = f"an instruction that cannot be followed: {type(error).__name__} {error}"
            return self.run
        if self.waiting:
            waits = " and ".join(f"{role} in '{words}'" for role, (words, _) in self.waiting.items())
            self.run.problem = f"deadlock: {waits} wait{'s' * (len(self.waiting) == 1)} forever"
        return self.run

    def wake(self):
        """Let all roles run that need no longer wait, until none does."""
        while awake := [role for role, (words, _) in self.waiting.items() if not self.holds(role, words)]:
            for role in awake:
                self.advance(role)


def simulate(
    roles: dict[str, Iterable[str]], slots: int, consumers: int = 1, free: int = 0, timing: Timing = TIMINGS[0]
) -> Run:
    """Run the roles of one program.

    Args:
        roles: {name: its instructions}.
        slots: of the ring.
        consumers: roles that multiply each item; each takes its share of an item's matmul.
        free: arrivals that complete a phase of a `free` barrier; as many as consumers if not given.
        timing: of copies and stores.
    """
    return _Sm(roles, slots, consumers, free or consumers, timing).go()


def check(roles: dict[str, list[str]], slots: int, consumers: int = 1, free: int = 0) -> str:
    """The first problem that occurs under any of TIMINGS, or ""."""
    runs = (simulate(roles, slots, consumers, free, timing) for timing in TIMINGS)
    return next((run.problem for run in runs if run.problem), "")
