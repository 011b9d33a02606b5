"""Exercise 03b: the barriers of a consumer, slots against latency, deadlocks, and a matmul with tensor descriptors."""

from functools import cache

from grading.tasks import TILE, Case, Mistake, RandomTensor, Speed, Task, ceil, one_of, returns, tensor
from grading.tasks.properties import cancelling_halves
from instruments.mbarriers import TENSOR_CORES, check, simulate

EXERCISE = "03b_hopper_matmul"
LIMIT = 232_448  # bytes of shared memory that a program may have on an H200


# ---------------------------------------------------------------- 03b.1 a consumer

WORDS = ("wait", "multiply", "finish", "arrive", "store")


def produce(items, slots):
    """The producer that the notebook shows."""
    role = []
    for item in range(items):
        slot = item % slots
        role += [f"wait free {slot} {item // slots & 1 ^ 1}", f"expect full {slot}", f"copy {slot} {item}"]
    return role


@cache
def quickest(tiles, steps, slots) -> float:
    """How long the lesson's consumer takes."""
    role, item = [], 0
    for _ in range(tiles):
        for step in range(steps):
            role += [f"wait full {item % slots} {item // slots & 1}", f"multiply {item % slots} {item}", "finish 1"]
            role += [f"arrive free {(item - 1) % slots}"] if step else []
            item += 1
        role += ["finish 0", f"arrive free {(item - 1) % slots}", "store"]
    return simulate({"producer": produce(tiles * steps, slots), "consumer": role}, slots).time


def judge_consumer(arguments, returned):
    """What is wrong with a consumer, run against the producer at several timings."""
    tiles, steps, slots = (arguments[name] for name in ("tiles", "steps", "slots"))
    sizes = f"tiles={tiles}, steps={steps}, slots={slots}"
    strange = next((w for w in returned if not isinstance(w, str) or w.split(" ")[0] not in WORDS), None)
    if strange is not None:
        return f"{strange!r} is no instruction of a consumer: they begin with {', '.join(WORDS)}"
    roles = {"producer": produce(tiles * steps, slots), "consumer": list(returned)}
    if problem := check(roles, slots):
        return f"for {sizes}: {problem}"
    run = simulate(roles, slots)
    stores = [at for at, words in enumerate(returned) if words == "store"]
    done = [sum(words.startswith("multiply") for words in returned[:at]) for at in stores]
    if run.multiplied != list(range(tiles * steps)) or done != [steps * (tile + 1) for tile in range(tiles)]:
        return f"for {sizes}: multiply items 0 to {tiles * steps - 1} in order, and store after every {steps} of them"
    if run.time > 1.001 * quickest(tiles, steps, slots):
        return (
            f"for {sizes}: right, but the tensor cores are busy in only {run.busy(TENSOR_CORES):.0%} of the time: let "
            "one matmul run while the next is queued, and free every slot before the epilogue"
        )
    return ""


def sizes(tiles, steps, slots):
    return lambda rng: {"tiles": tiles, "steps": one_of(rng, *steps), "slots": slots}


CONSUMER = Task(
    id="03b.1",
    title="The barriers of a consumer",
    points=4,
    functions={"consumer": None},
    verdict=judge_consumer,
    cases=(
        Case("one tile, four slots", sizes(1, (9, 10, 11), 4)),
        Case("one tile, three slots", sizes(1, (7, 8, 10), 3)),
        Case("two tiles, four slots", sizes(2, (5, 6, 7), 4)),
        Case("three tiles, three slots", sizes(3, (4, 5), 3)),
        Case("two tiles of fewer steps than slots", sizes(2, (2, 3), 4)),
        Case("three tiles, two slots", sizes(3, (2, 4), 2)),
    ),
    hints={
        "passed": "no deadlock and no data race at any of five timings",
        "form": "Return a list of strings such as 'wait full 2 0'.",
    },
)

# ---------------------------------------------------------------- 03b.2 slots

BARRIER, RATE = 8, 4096  # bytes of a barrier; FLOP per cycle of an SM's tensor cores


@returns("slots")
def most_slots(
    block_m, block_n, block_k, itemsize, out_bytes, shared, *, barriers=2, output=1, both=True, elements=False
):
    """Slots that fit: a tile of a, a tile of b and two barriers each, beside the buffers of the output."""
    cells = (block_m + block_n if both else block_m) * block_k
    slot = cells * (1 if elements else itemsize) + barriers * BARRIER
    return (shared - output * out_bytes) // slot


@returns("slots")
def slots_for(latency, block_m, block_n, block_k, *, more=1, flops=2, down=False):
    """The slot that is multiplied, and those whose matmuls cover the latency of a copy."""
    work = flops * block_m * block_n * block_k
    return (latency * RATE // work if down else -(-latency * RATE // work)) + more


def ring(rng):
    """A tile, and shared memory that holds a few slots of it beside its output."""
    itemsize = one_of(rng, 1, 2, 4)
    plan = {"block_m": one_of(rng, 64, 128), "block_n": one_of(rng, 64, 128, 256), "block_k": one_of(rng, 32, 64)}
    slot = (plan["block_m"] + plan["block_n"]) * plan["block_k"] * itemsize
    out = one_of(rng, 16384, 32768)
    return {**plan, "itemsize": itemsize, "out_bytes": out, "shared": out + one_of(rng, 3, 4, 5) * slot + slot // 2}


def exact(rng):
    """Shared memory in which the tiles would fit once more, if a slot had a single barrier."""
    plan = {**ring(rng), "itemsize": 2}
    slot = (plan["block_m"] + plan["block_n"]) * plan["block_k"] * 2
    return {**plan, "shared": plan["out_bytes"] + 4 * (slot + BARRIER)}


def hopper(rng):
    """The lesson's tile on an H200."""
    return {"block_m": 128, "block_n": 256, "block_k": 64, "itemsize": 2, "out_bytes": 32768, "shared": LIMIT}


def waiting(rng):
    """A latency that is no multiple of a step's cycles."""
    plan = {"block_m": one_of(rng, 64, 128), "block_n": one_of(rng, 128, 256), "block_k": one_of(rng, 32, 64)}
    cycles = 2 * plan["block_m"] * plan["block_n"] * plan["block_k"] // RATE
    return {"latency": one_of(rng, 1, 2, 3) * cycles + one_of(rng, *range(20, cycles - 20)), **plan}


def matching(rng):
    """A latency of a whole number of steps."""
    plan = waiting(rng)
    cycles = 2 * plan["block_m"] * plan["block_n"] * plan["block_k"] // RATE
    return {**plan, "latency": one_of(rng, 2, 3, 4) * cycles}


SLOTS = Task(
    id="03b.2",
    title="How many slots",
    points=3,
    functions={f.__name__: f for f in (most_slots, slots_for)},
    cases=(
        Case("most_slots, the lesson's tile", hopper, "most_slots"),
        Case("most_slots, some tile", ring, "most_slots"),
        Case("most_slots, another tile", ring, "most_slots"),
        Case("most_slots, the barriers decide", exact, "most_slots"),
        Case("slots_for, some latency", waiting, "slots_for"),
        Case("slots_for, another latency", waiting, "slots_for"),
        Case("slots_for, a whole number of steps", matching, "slots_for"),
    ),
    mistakes=(
        Mistake("two barriers per slot were not counted", "A slot has two barriers of 8 bytes.",
                {"barriers": 0}, {"barriers": 1}),
        Mistake("the output's buffers were left out", "Subtract out_bytes before you divide.", output=0),
        Mistake("a slot holds two tiles", "A slot holds a tile of a and a tile of b, of itemsize bytes per element.",
                {"both": False}, {"elements": True}),
        Mistake("the slot that is multiplied was left out", "While one slot is multiplied, others are filled.",
                more=0),
        Mistake("the cycles of a step were miscounted", "A step has 2 * block_m * block_n * block_k FLOP; round the "
                "number of steps up.", {"flops": 1}, {"down": True}),
    ),
    hints={"form": "Slots are ints: use // where you divide.", "values": "Count the bytes, or cycles, of one slot."},
)  # fmt: skip

# ---------------------------------------------------------------- 03b.3 deadlocks


@returns("item")
def stops_at(kernel, slots, steps, *, later=0, tiles=2, always=False):
    """The item for which the producer of a broken kernel waits forever; -1 if it never does."""
    if kernel == "A":  # `free` counts two arrivals, and one comes
        at, items = slots, steps
    elif kernel == "B":  # the producer waits for the phase that nobody has begun
        at, items = 0, steps
    else:  # the slot of a tile's last item is never freed
        at, items = steps - 1 + slots, tiles * steps
    return at + later if always or at < items else -1


def broken(kernel, runs):
    """A kernel, and sizes at which it runs through, or not."""

    def make(rng):
        slots = one_of(rng, 3, 4, 5)
        if kernel == "A":
            steps = one_of(rng, 2, slots) if runs else slots + one_of(rng, 1, 2, 5)
        else:
            steps = one_of(rng, slots - 1, 2) if runs else slots + one_of(rng, 1, 2, 3, 6)
        return {"kernel": kernel, "slots": slots, "steps": steps}

    return make


DEADLOCK = Task(
    id="03b.3",
    title="Find the deadlock",
    points=4,
    functions={"stops_at": stops_at},
    cases=(
        Case("kernel A", broken("A", False), hint="How many arrivals does a phase of `free` need, and how many come?"),
        Case("kernel A, few steps", broken("A", True), hint="Does the producer come back to a slot at all?"),
        Case("kernel B", broken("B", False), hint="In which phase is a new barrier, and which one is waited for?"),
        Case("kernel B, few steps", broken("B", True), hint="A wait for phase 0 of a new barrier does not pass."),
        Case("kernel C", broken("C", False), hint="Which item's slot gets no arrival, and which item needs that slot?"),
        Case("kernel C, few steps", broken("C", True), hint="Both tiles together have 2 * steps items."),
    ),
    mistakes=(
        Mistake("the item after it was named", "Items are counted from 0.", later=1),
        Mistake("the item before it was named", "That copy starts: name the item whose wait never ends.", later=-1),
        Mistake("the second tile was left out", "Kernel C has two tiles of `steps` items.", tiles=1),
        Mistake("a short run ends before it stops", "Return -1 if no item needs that slot.", always=True),
    ),
    hints={"form": "Return an int.", "values": "Write down the producer's waits: which slot, and who frees it before?"},
)

# ---------------------------------------------------------------- 03b.4 a matmul with descriptors

SIDE, TIMED = 128, 4096  # of a tile of c at least; of the timed matrices


@returns(c="a")
def descriptor_matmul(a, b, *, last=0, full=0):
    """c = a b. last: only the last block of K counts. full: blocks of K that are not full do not."""
    k = a.shape[1]
    if last:
        start = (k - 1) // last * last
        return a[:, start:] @ b[start:]
    if full:
        if not k // full:
            raise ValueError("no block of K is full: zeros, which have other causes too")
        return a[:, : k // full * full] @ b[: k // full * full]
    return a @ b


def requested(a, b):
    """What programs with tiles of 128 x 128 request."""
    (m, k), n = a.shape, b.shape[1]
    rows, cols = ceil(m, SIDE), ceil(n, SIDE)
    return {"a": m * k * cols * a.itemsize, "b": n * k * rows * b.itemsize, "returned 0": m * n * a.itemsize}


def matrices(m, n, k, dtype):
    return lambda rng: {"a": tensor(rng.normal(0.5, 1, (m, k)), dtype), "b": tensor(rng.normal(0.5, 1, (k, n)), dtype)}


def cancelling(m, n, k, dtype):
    def make(rng):
        a, b = cancelling_halves(rng, m, n, k)
        return {"a": tensor(a, dtype), "b": tensor(b.T, dtype)}

    return make


DESCRIPTORS = Task(
    id="03b.4",
    title="A matmul with tensor descriptors",
    points=4,
    functions={"descriptor_matmul": descriptor_matmul},
    kernel=True,
    cases=(
        Case("256 x 256 x 64 bf16", matrices(256, 256, 64, "bf16")),
        Case("128 x 512 x 320 fp16", matrices(128, 512, 320, "fp16")),
        Case("200 x 136 x 72 bf16: ragged", matrices(200, 136, 72, "bf16"), hint="TMA fills with zeros past the edge."),
        Case(
            "256 x 128 x 512 fp16, the halves of K nearly cancel",
            cancelling(256, 128, 512, "fp16"),
            hint="Keep acc in fp32 over all of K.",
        ),
        Case("264 x 520 x 200 bf16: ragged", matrices(264, 520, 200, "bf16"), hint="Round the numbers of tiles up."),
    ),
    mistakes=(
        Mistake("only the last block of K was counted", "acc = tl.dot(a_tile, b_tile, acc) adds to acc.", last=TILE),
        Mistake("the last, ragged block of K was left out", "Loop over range(0, K, BLOCK_K).", full=TILE),
    ),
    minimum_bytes=requested,
    max_tile=(256, 256),
    hints={
        "unwritten": "The grid needs a program per tile of c, rounded up in both directions.",
        "traffic": "Tiles of c have to be 128 x 128 at least.",
        "values": "Offsets are elements: [row, k] for a, [k, col] for b, [row, col] for c. Accumulate in fp32.",
        "slow": "Try 128 x 256 by 64 with 8 warps and 3 stages, and groups of 8 rows of tiles.",
    },
    speed=Speed(
        points=2,
        share=0.7,
        bytes=3 * TIMED * TIMED * 2,
        flops=2 * TIMED**3,
        shape=f"{TIMED:,} x {TIMED:,} x {TIMED:,} bf16",
        make=lambda: {"a": RandomTensor((TIMED, TIMED), "bf16"), "b": RandomTensor((TIMED, TIMED), "bf16", whole=True)},
    ),
)

TASKS = (CONSUMER, SLOTS, DEADLOCK, DESCRIPTORS)
