"""Exercise 02: sectors and occupancy, what a launch waits for, an addition with a mask, a transposed copy, row sums,
and stray reads."""

import numpy as np

from grading.tasks import TILE, Case, Mistake, RandomTensor, Speed, Task, returns, rounded, tensor
from grading.tasks.properties import MANY, row_cases

EXERCISE = "02_execution_model"


def between(rng, low, high):
    """A random whole number from low to high."""
    return int(rng.integers(low, high + 1))


# ---------------------------------------------------------------- 02.1 count sectors and programs


@returns("sectors")
def sectors(first, stride, itemsize, *, aligned=False, stride_in_bytes=False, counted="sectors"):
    """Sectors that 32 threads touch. counted: what a mistake counts instead."""
    start = 0 if aligned else first
    step = stride if stride_in_bytes else stride * itemsize
    addresses = [start + thread * step for thread in range(32)]
    if counted in ("sectors", "lines"):
        return len({address // (32 if counted == "sectors" else 128) for address in addresses})
    return 32 if counted == "threads" else itemsize


@returns("programs")
def programs_per_sm(registers, shared, warps, *, granularity=256, quarters=4, reserved=1024):
    """Programs that fit on one SM of an H200."""
    per_warp = -(-32 * registers // granularity) * granularity
    by_registers = quarters * (65_536 // quarters // per_warp) // warps
    by_shared = 233_472 // max(shared + reserved, 1)
    return min(by_registers, by_shared, 64 // warps, 32)


def request(name, itemsize, *strides, aligned=True):
    """A request that starts at a sector, or inside one at a multiple of the element's size."""

    def make(rng):
        first = 0 if aligned else 32 * between(rng, 0, 99) + itemsize * between(rng, 1, 32 // itemsize - 1)
        return {"first": first, "stride": int(rng.choice(strides)), "itemsize": itemsize}

    return Case(name, make)


def programs(name, registers, shared, *warps):
    """Programs with one of these numbers of registers and warps. shared: lowest and highest multiple of 128 bytes."""
    return Case(
        name,
        lambda rng: {
            "registers": int(rng.choice(registers)),
            "shared": 128 * between(rng, *shared),
            "warps": int(rng.choice(warps)),
        },
        "programs_per_sm",
    )


COUNT = Task(
    id="02.1",
    title="Count sectors and programs",
    points=4,
    functions={"sectors": sectors, "programs_per_sm": programs_per_sm},
    cases=(
        request("bf16, stride 8", 2, 8),
        request("bf16, neighbours, aligned", 2, 1),
        request("fp32, some stride", 4, 2, 3, 5, 7),
        request("bf16, some stride", 2, 3, 5, 6, 7),
        request("a stride larger than a sector", 2, 100, 1000, 4096),
        request("bf16, neighbours, not aligned", 2, 1, aligned=False),
        request("bf16, stride 2, not aligned", 2, 2, aligned=False),
        request("fp32, not aligned", 4, 1, 2, 3, aligned=False),
        request("all threads at one address", 4, 0, aligned=False),
        programs("81 or 97 registers, 1 warp", (81, 97), (0, 0), 1),  # each mistake with registers: a number of its own
        programs("registers decide", range(40, 97), (0, 8), 4),
        programs("many registers", range(97, 251), (0, 8), 4),
        programs("registers decide, 8 warps", range(65, 201), (0, 8), 8),
        programs("shared memory decides", range(16, 33), (300, 1700), 1, 2),
        programs("half of the shared memory", [32], (904, 904), 4),
        programs("a little more", [32], (905, 912), 4),
        programs("warps decide", range(16, 25), (0, 16), 4, 8, 16),
        programs("small programs", range(16, 31), (0, 16), 1),
        programs("more than an SM has", range(200, 256), (0, 8), 16, 32),
    ),
    mistakes=(
        Mistake(
            "the start address was ignored",
            "A request that starts inside a sector can need one more sector: count from `first`.",
            aligned=True,
        ),
        Mistake("the stride was taken in bytes", "stride counts elements, not bytes.", stride_in_bytes=True),
        Mistake(
            "lines, threads or the accessed bytes were counted instead of sectors",
            "Divide the address of each thread, first + i * stride * itemsize, by 32: count the different quotients.",
            {"counted": "lines"},
            {"counted": "threads"},
            {"counted": "bytes / 32"},
        ),
        Mistake(
            "the register limit ignored the rounding or the quarters",
            "A warp gets registers in multiples of 256, all from one quarter of the SM: fill a quarter first.",
            {"granularity": 1},
            {"quarters": 1},
            {"granularity": 1, "quarters": 1},
        ),
        Mistake(
            "the shared memory reserved per program was left out",
            "Each program takes 1,024 bytes more than it asks for.",
            reserved=0,
        ),
    ),
    hints={
        "values": "Follow the rules one by one: a sector per thread, and the least of four limits, each rounded down.",
        "form": "Return an int: round down with //.",
    },
)

# ---------------------------------------------------------------- 02.2 an addition with a short operand


@returns(out="fp32")
def add_short(x, y, dtypes=None, *, beyond="x", sum_rounded=False):
    """x + y where y has an element, x elsewhere. beyond: what a mistake puts beyond the end of y."""
    total, rest = x[: len(y)] + y, x[len(y) :]
    if sum_rounded:
        total = rounded(total, dtypes["x"])
    return np.concatenate([total, {"x": rest, "zeros": 0 * rest, "ones": 0 * rest + 1, "other=1": rest + 1}[beyond]])


def vectors(n, m, what="", dtype="fp32", other="fp32"):
    return Case(
        f"{n} and {m}{what}",
        lambda rng: {"x": tensor(rng.normal(0, 1, n), dtype), "y": tensor(rng.normal(0, 1, m), other)},
    )


ADD = Task(
    id="02.2",
    title="An addition with a mask",
    points=3,
    functions={"add_short": add_short},
    kernel=True,
    cases=(
        vectors(1024, 1024),
        vectors(1024, 700),
        vectors(1000, 1000, ", ragged"),
        vectors(1, 1),
        vectors(1025, 1023, ", one off", "bf16"),
        vectors(4099, 3000, ", fp16 and fp32", "fp16"),
        vectors(5000, 1, ", bf16", "bf16", "bf16"),
        vectors(2048, 1024, ", whole tiles"),
        vectors(20011, 19937, ", primes", "bf16", "fp16"),
        vectors(1024 * MANY - 3, 1024 * MANY - 1500, ", more tiles than a GPU has SMs"),
    ),
    mistakes=(
        Mistake(
            "the elements beyond the end of y are not those of x",
            "There the sum is x + 0: load y with a mask of its own and other=0.0, and store under the mask of x.",
            {"beyond": "zeros"},
            {"beyond": "ones"},
            {"beyond": "other=1"},
        ),
        Mistake(
            "the sum was rounded to 16 bits",
            "Convert x and y with `.to(tl.float32)` after the loads, before you add them.",
            sum_rounded=True,
        ),
    ),
    minimum_bytes=lambda x, y: {"x": x.nbytes, "y": y.nbytes, "returned 0": 4 * x.shape[0]},
    hints={
        "out_of_bounds": "There are two masks: `offsets < n` for x and the result, `offsets < m` for y.",
        "unwritten": "The result is as long as x: check the number of programs and the mask of the store.",
        "form": "Return one fp32 tensor as long as x.",
        "values": "out[i] is x[i] + y[i], or x[i] from m on, in fp32. Without other=0.0, masked-out y is undefined.",
        "traffic": "Read x and y once, and write the result once.",
        "torch_work": "PyTorch only allocates the result. Instead of padding y, mask its load.",
    },
)

# ---------------------------------------------------------------- 02.3 a transposed copy that coalesces


@returns(out="x")
def transpose(x, *, reshaped=False):
    """A contiguous transpose. reshaped: the elements keep their order in memory."""
    return x.reshape(x.shape[::-1]) if reshaped else x.T


def matrix(name, rows, cols, dtype="fp32", row_stride=None, mean=0.0, std=1.0, hint=""):
    return Case(
        f"{rows} x {cols} {dtype}{name}",
        hint=hint,
        make=lambda rng: {"x": tensor(rng.normal(mean, std, (rows, cols)), dtype, row_stride)},
    )


MORE = ", more tiles than a GPU has SMs"
PADDED = "Rows of x are x.stride(0) elements apart, which may be more than cols."
TRANSPOSE = Task(
    id="02.3",
    title="A transposed copy that coalesces",
    points=5,
    functions={"transpose": transpose},
    kernel=True,
    cases=(
        matrix("", 128, 128),
        matrix("", 96, 160, "bf16"),
        matrix(", ragged", 100, 72),
        matrix("", 1, 1),
        matrix("", 1, 100),
        matrix("", 70, 1),
        matrix(", primes", 67, 131),
        matrix("", 130, 257, "fp16"),
        matrix(", padded", 48, 80, "fp32", 96, hint=PADDED),
        matrix(", padded", 63, 65, "bf16", 99, hint=PADDED),
        matrix(MORE, 64 * MANY - 4, 3),
        matrix(MORE, 3, 64 * MANY - 4),
    ),
    mistakes=(
        Mistake(
            "x was copied in its own order, not transposed",
            "out[c, r] is x[r, c]: the element of row r and column c goes to c * rows + r.",
            reshaped=True,
        ),
    ),
    minimum_bytes=lambda x: {"x": x.nbytes, "returned 0": x.nbytes},
    coalesced=True,
    hints={
        "out_of_bounds": "Mask rows and columns. Rows have x.stride(0) elements in x and `rows` in the result.",
        "unwritten": "The programs have to cover both dimensions: a grid of cdiv(rows, ROWS) by cdiv(cols, COLS).",
        "form": "Return a contiguous [cols, rows] tensor in x's dtype; out.T or empty_like(x.T) keep x's memory order.",
        "values": "out[c, r] = x[r, c]: the offset in x is r * row_stride + c, the offset in out is c * rows + r.",
        "traffic": "Move each tile once, 16 or more elements each way: then loads and stores both fill whole sectors.",
        "torch_work": "PyTorch only allocates the result: let the kernel read x and write it in transposed order.",
    },
)

# ---------------------------------------------------------------- 02.4 sum and largest of rows of any width


@returns(sums="fp32", largest="fp32")
def row_sum_max(x, *, tiles="all", width=1, with_zero=False, swapped=False):
    """The sum and the largest element of each row. tiles: those of `width` columns that count."""
    cols = x.shape[1]
    columns = {
        "all": slice(cols),
        "full": slice(cols // width * width),
        "first": slice(width),
        "last": slice((cols - 1) // width * width, cols),
    }
    x = x[:, columns[tiles]]
    sums, largest = x.sum(axis=1), x.max(axis=1)
    if with_zero:
        largest = np.maximum(largest, 0)
    return (largest, sums) if swapped else (sums, largest)


def positive(*form):
    """Rows whose sums do not cancel."""
    return matrix("", *form, mean=3.0).make


def largest_last(rng):
    """The largest element is the row's last."""
    x = rng.normal(3, 1, (3, 5001))
    x[:, -1] = 60 + np.arange(3)
    return {"x": tensor(x, "fp32")}


NEGATIVE = "0 exceeds every element here: check masked-out elements and the value that the max starts from."
LOWEST = "A finite number such as -1e9 exceeds these elements: the neutral element of a max is minus infinity."
ROWS = Task(
    id="02.4",
    title="Sum and largest, rows of any width",
    points=5,
    functions={"row_sum_max": row_sum_max},
    kernel=True,
    cases=(
        *row_cases(positive, leave_out=("padded rows",)),
        matrix(", padded rows", 3, 777, "fp32", 1000, 3.0, hint=PADDED),
        matrix(", all negative", 5, 777, mean=-20.0, hint=NEGATIVE),
        matrix(", a negative number", 1, 1, mean=-20.0),
        Case("3 x 5001 fp32, the largest is the last", largest_last),
        matrix(", large sums", 2, 2048, "fp16", mean=50.0),
        matrix("", 2, 2049, mean=-5.0),
        matrix(", wide", 3, 70001, "bf16", mean=1.0),
        matrix(", the smallest numbers", 3, 1, mean=-3.3e38, std=1e36, hint=LOWEST),
    ),
    mistakes=(
        Mistake(
            "0 took part in the max",
            "The neutral element of a max is minus infinity: mask with it, and start the max from it.",
            with_zero=True,
        ),
        Mistake(
            "the columns after the last full tile were left out",
            "Round the number of tiles up, tl.range(0, cols, BLOCK), and mask the last one.",
            tiles="full",
            width=TILE,
        ),
        Mistake(
            "only one tile of each row counted",
            "Loop over all tiles of the row, and carry the running sum and the running max from tile to tile.",
            {"tiles": "first", "width": TILE},
            {"tiles": "last", "width": TILE},
        ),
        Mistake("sums and largest were swapped", "Return (sums, largest), in this order.", swapped=True),
    ),
    minimum_bytes=lambda x: {"x": x.nbytes, "returned 0": 4 * x.shape[0], "returned 1": 4 * x.shape[0]},
    coalesced=True,
    max_tile=2048,
    hints={
        "out_of_bounds": "Mask every load with `col < cols`, and step from row to row by x.stride(0).",
        "form": "Return (sums, largest), both fp32 of shape [rows].",
        "values": "Return the fp32 sum and the max of each row: mask with 0 in the sum, minus infinity in the max.",
        "traffic": "Go through each row in tiles of at most 2,048 neighboring columns, and load each tile once for "
        "both results.",
    },
    speed=Speed(
        points=1,
        share=0.6,
        bytes=16384 * 8192 * 2,
        shape="16384 x 8192 bf16",
        make=lambda: {"x": RandomTensor((16384, 8192), "bf16", mean=1.0)},
    ),  # sums do not cancel
)

# ---------------------------------------------------------------- 02.5 four kernels, four stray reads

NONE = (-1, 0)


@returns("program", "index")
def stray_next(n, block, *, never=False, program_after=False):
    """Element n - 1 reads x[n]."""
    program = n // block if program_after else (n - 1) // block
    return NONE if never else (program, n)


@returns("program", "index")
def stray_warps(n, block, *, never=False, always=False):
    """The first element beyond the end is read, unless the last warp is full."""
    return (n // block, n) if always or n % 32 and not never else NONE


@returns("program", "index")
def stray_tile(rows, cols, block, *, never=False, inside=False):
    """The first row whose tile extends past the tensor. inside: the first tile that extends past its row."""
    if inside and block > cols:
        return 0, cols
    past = [row for row in range(rows) if row * cols + block > rows * cols]
    return (past[0], rows * cols) if past and not never else NONE


@returns("program", "index")
def stray_gather(n, block, *, never=False, always=False, masked_index=-1):
    """Masked-out elements get the index -1."""
    index = n if masked_index == "n" else masked_index
    return (n // block, index) if always or n % block and not never else NONE


def ragged(rng):
    """n elements, never a multiple of 32."""
    n = between(rng, 3, 2000)
    return {"n": n + (n % 32 == 0), "block": int(rng.choice([64, 128, 256]))}


def whole(rng, unit=None):
    """n elements that fill their tiles, or units of so many."""
    block = int(rng.choice([64, 128, 256]))
    return {"n": between(rng, 2, 9) * block if unit is None else between(rng, 3, 62) * unit, "block": block}


def table(name, rows, cols, block):
    """Kernel C. rows: lowest and highest number; cols: possible numbers."""
    return Case(
        f"kernel C, {name}",
        function="stray_tile",
        make=lambda rng: {"rows": between(rng, *rows), "cols": int(rng.choice(cols)), "block": block},
    )


STRAY = Task(
    id="02.5",
    title="Four stray reads",
    points=4,
    functions={f.__name__: f for f in (stray_next, stray_warps, stray_tile, stray_gather)},
    cases=(
        Case("kernel A, ragged", ragged, "stray_next"),
        Case("kernel A, whole tiles", whole, "stray_next"),
        Case("kernel B, ragged", ragged, "stray_warps"),
        Case(
            "kernel B, more than half a tile over",
            lambda rng: {"n": 64 * between(rng, 2, 9) + 40, "block": 64},
            "stray_warps",
        ),
        Case("kernel B, a multiple of 32", lambda rng: whole(rng, 32), "stray_warps"),
        table("wide tile", (3, 40), range(33, 64), 64),
        table("the tile is the row", (3, 40), [64], 64),
        table("tile of several rows and a part", (27, 40), range(5, 30, 2), 128),
        table("tile of several whole rows", (9, 40), [16, 32], 128),
        table("one column", (300, 400), [1], 128),
        table("few rows, wide tile", (1, 2), range(5, 31), 256),
        Case("kernel D, ragged", ragged, "stray_gather"),
        Case("kernel D, whole tiles", whole, "stray_gather"),
    ),
    mistakes=(
        Mistake("the program after the last one was named", "Element n - 1 reads x[n].", program_after=True),
        Mistake(
            "(-1, 0) was returned where the kernel has a stray read",
            "Which elements does the mask of this load let through, and which addresses do they read?",
            never=True,
        ),
        Mistake(
            "a stray read was named where there is none",
            "For some sizes the mask of the load and the size agree, and nothing outside x is read.",
            always=True,
        ),
        Mistake(
            "a read of the next row was named",
            "The next row is the wrong one, but inside x: find the first read outside x.",
            inside=True,
        ),
        Mistake(
            "the index n was named",
            "Masked-out elements get `other` as their index, and the second load has no mask.",
            masked_index="n",
        ),
    ),
    hints={
        "values": "Run the kernel under the meter with these sizes, as the cell above shows, and read the first line.",
        "form": "Return two ints, (program, index).",
        "passed": "you predicted the first stray read of each kernel, and where there is none",
    },
)

# ---------------------------------------------------------------- 02.6 what a launch waits for


@returns("kib")
def kib_in_flight(gpu, *, sms=True, unit=1024):
    """KiB of loads that each SM needs in flight to read at the GPU's bandwidth."""
    return gpu["bandwidth"] * gpu["latency"] / (gpu["sms"] if sms else 1) / unit


@returns("word", "seconds")
def waits_for(nbytes, programs, resident, gpu, *, held=None, added=False, all_programs=False):
    """The longest of three times and its name. held: programs per SM that a mistake takes for resident."""
    each = nbytes / programs
    in_flight = (programs / gpu["sms"] if all_programs else held or resident) * each
    times = {
        "bandwidth": nbytes / gpu["bandwidth"],
        "latency": nbytes * gpu["latency"] / (gpu["sms"] * in_flight),
        "starts": programs * gpu["start"],
    }
    word = max(times, key=times.get)
    return word, sum(times.values()) if added else times[word]


@returns("rows")
def fewest_rows(row_bytes, gpu, *, up=1):
    """Rows per program from which on its bytes take at least as long as its start."""
    return int(gpu["start"] * gpu["bandwidth"] // row_bytes) + up


MEASURED_H200 = {"bandwidth": 4.289e12, "latency": 354e-9, "sms": 132, "start": 0.6e-9}
ANOTHER = {"bandwidth": 1.555e12, "latency": 466e-9, "sms": 108, "start": 1.1e-9}


def reads(name, gpu, kib, programs, resident):
    """A launch of so many programs, each of which reads some KiB."""

    def make(rng):
        count = between(rng, *programs)
        each = 1024 * int(rng.choice(kib))
        return {"nbytes": count * each, "programs": count, "resident": int(rng.choice(resident)), "gpu": gpu}

    return Case(name, make, "waits_for")


def rows_of(name, gpu, low, high):
    return Case(name, lambda rng: {"row_bytes": between(rng, low, high), "gpu": gpu}, "fewest_rows")


WAIT = Task(
    id="02.6",
    title="What a launch waits for",
    points=4,
    functions={"kib_in_flight": kib_in_flight, "waits_for": waits_for, "fewest_rows": fewest_rows},
    cases=(
        Case("the H200 of the lesson", lambda rng: {"gpu": MEASURED_H200}, "kib_in_flight"),
        Case("another GPU", lambda rng: {"gpu": ANOTHER}, "kib_in_flight"),
        reads("tiny programs, H200", MEASURED_H200, [1], (10**6, 2 * 10**6), [32]),
        reads("few resident programs, H200", MEASURED_H200, [4, 5, 6], (10**5, 2 * 10**5), [1]),
        reads("large tiles, H200", MEASURED_H200, [16, 32, 64], (10**5, 2 * 10**5), [4, 8]),
        reads("tiny programs, another GPU", ANOTHER, [1], (10**6, 2 * 10**6), [32]),
        reads("few resident programs, another GPU", ANOTHER, [2, 3], (10**5, 2 * 10**5), [1, 2]),
        reads("large tiles, another GPU", ANOTHER, [16, 32], (10**5, 2 * 10**5), [4, 8]),
        rows_of("rows of 258 to 400 bytes, H200", MEASURED_H200, 258, 400),
        rows_of("narrow rows, another GPU", ANOTHER, 20, 90),
        rows_of("rows wide enough alone", MEASURED_H200, 3000, 9000),
    ),
    mistakes=(
        Mistake("the bytes of the whole GPU were returned", "Divide by gpu['sms']: each SM has its share.", sms=False),
        Mistake("the unit is not KiB", "1 KiB is 1,024 bytes.", {"unit": 1}, {"unit": 1000}),
        Mistake("the three times were added", "They overlap: return the longest, not the sum.", added=True),
        Mistake(
            "the loads in flight on an SM were counted wrongly",
            "The resident programs of an SM have their loads in flight: resident * nbytes / programs.",
            {"all_programs": True},
            {"held": 1},
        ),
        Mistake("the rows were rounded down", "A program with too few rows is limited by its start: round up.", up=0),
    ),
    hints={
        "values": "Little's law: bytes in flight are bandwidth times latency. Compute each of the three times alone.",
        "form": "Return a float, then (word, seconds), then an int.",
    },
)

TASKS = (ADD, ROWS, STRAY, COUNT, WAIT, TRANSPOSE)  # part 1, after lesson 02; part 2, after lesson 02b
