"""Exercise 02: sectors and occupancy counted, an addition with a short operand, a transposed copy, sums, strays."""

import numpy as np

from grading.tasks import Case, RandomTensor, Slip, Speed, Task, gives, tensor
from grading.tasks.properties import MANY, row_cases

EXERCISE = "02_execution_model"


def between(rng, low, high):
    """A random whole number from low to high."""
    return int(rng.integers(low, high + 1))


def slip(fault, hint, *edits):
    """A mistake that the same edits make in the oracle and in the published answer, which share their words."""
    return Slip(fault, hint, edits, answer=edits)


# ---------------------------------------------------------------- 02.1 count sectors and programs


@gives("sectors")
def sectors(first, stride, itemsize):
    """Sectors that 32 threads touch."""
    return len({(first + lane * stride * itemsize) // 32 for lane in range(32)})


def cdiv(a, b):
    return -(-a // b)


@gives("programs")
def programs_per_sm(registers, shared, warps):
    """Programs that one SM of an H200 holds."""
    per_warp = cdiv(32 * registers, 256) * 256
    by_registers = 4 * (16_384 // per_warp) // warps
    return min(by_registers, 233_472 // (shared + 1024), 64 // warps, 32)


def request(name, itemsize, *strides, aligned=True):
    """A request that begins with a sector, or inside one on a multiple of the element's size."""

    def make(rng):
        first = 0 if aligned else 32 * between(rng, 0, 99) + itemsize * between(rng, 1, 32 // itemsize - 1)
        return {"first": first, "stride": int(rng.choice(strides)), "itemsize": itemsize}

    return Case(name, make)


def programs(name, registers, shared, *warps):
    """Programs with one of these numbers of registers, and shared memory from so many to so many times 128 bytes."""
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
    slips=(
        slip(
            "where the request begins was left out",
            "A request that begins inside a sector can need one more: count from `first`.",
            "(first + lane -> (lane",
        ),
        slip(
            "lines of 128 bytes were counted",
            "A sector has 32 bytes; four of them make a line.",
            "// 32 for -> // 128 for",
        ),
        slip(
            "one sector per thread was counted",
            "Lanes that fall into the same sector share it: collect the sectors in a set.",
            "return len( -> return 32 or len(",
        ),
        slip(
            "bytes of the threads were divided by the sector's size",
            "The bytes between the threads' are in the sectors too: go by addresses, first + lane * stride * itemsize.",
            "return len( -> return itemsize or len(",
        ),
        slip("the stride was taken in bytes", "stride counts elements: multiply by itemsize.", "e * itemsize) -> e)"),
        slip(
            "the shared memory kept per program was left out",
            "Each program takes 1,024 bytes more than it asks for.",
            "(shared + 1024) -> max(shared, 1)",
        ),
        slip(
            "the quarters were left out",
            "A warp takes all its registers from one quarter: how many warps fit into a quarter, and so into four?",
            "4 * (16_384 // per_warp) -> 65_536 // per_warp",
        ),
        slip(
            "the registers of a thread were taken for those of a warp",
            "A warp has 32 threads: it takes 32 times `registers`, rounded up.",
            "cdiv(32 * registers -> cdiv(registers",
        ),
        slip(
            "a warp's registers were not rounded up",
            "A warp gets registers in multiples of 256: round up what it asks for.",
            ", 256) * 256 -> , 1)",
        ),
        slip(
            "two things are missing: a warp's registers are rounded up, and come from one quarter of the SM",
            "A warp gets registers in multiples of 256, from the 16,384 of its quarter of the SM.",
            ", 256) * 256 -> , 1)",
            "4 * (16_384 // per_warp) -> 65_536 // per_warp",
        ),
        slip("warps were returned", "Return programs, not warps.", "warps, 32) -> warps, 32) * warps"),
        slip(
            "the limit of 32 programs was left out",
            "An SM holds at most 32 programs, however small.",
            "warps, 32 -> warps",
        ),
        slip("the limit of 64 warps was left out", "An SM holds at most 64 warps.", "64 // warps, 32 -> 32"),
    ),
    hints={
        "wrong": "Follow the card's rules one by one: an address per thread, whole sectors; the smallest of four "
        "limits, each rounded down.",
        "type": "Return an int.",
    },
)

# ---------------------------------------------------------------- 02.2 an addition with a short operand


@gives(out="fp32")
def add_short(x, y):
    """x plus y, where y has an element; x elsewhere."""
    return x + np.pad(y, (0, len(x) - len(y)))


def vectors(n, m, what="", dtype="fp32", other="fp32"):
    return Case(
        f"{n} and {m}{what}",
        lambda rng: {"x": tensor(rng.normal(0, 1, n), dtype), "y": tensor(rng.normal(0, 1, m), other)},
    )


ENDS = "x + np.pad(y, (0, len(x) - len(y)) -> np.pad(x[:len(y)] + y, (0, len(x) - len(y))"
ADD = Task(
    id="02.2",
    title="An addition with a mask",
    points=3,
    functions={"add_short": add_short},
    kernel=True,
    like="add",
    contiguous=False,
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
        vectors(1024 * MANY - 3, 1024 * MANY - 1500, ", more tiles than a GPU has multiprocessors"),
    ),
    slips=(
        Slip(
            "the elements behind the end of y are not those of x",
            "Behind the end of y the sum is x + 0: load y with "
            "a mask of its own and other=0.0, and store under the mask of x.",
            ENDS,
            f"{ENDS}, constant_values=1",
            answer="x + y, mask=mask -> tl.where(offsets < m, x + y, 0.0), mask=mask",
        ),
        Slip(
            "missing elements of y count as 1",
            "other=0.0 is what leaves a sum alone.",
            "len(y))) -> len(y)), constant_values=1)",
            answer="other=0.0 -> other=1.0",
        ),
        Slip("y was subtracted", "Add.", "x + np -> x - np", answer="x + y, -> x - y,"),
        Slip("x was returned", "Add y where it has elements.", "x + np -> x + 0 * np", answer="x + y, -> x,"),
    ),
    minimum_bytes=lambda x, y: {"x": x.nbytes, "y": y.nbytes, "returned 0": 4 * x.shape[0]},
    hints={
        "out_of_bounds": "Two masks: `offsets < n` for x and the result, `offsets < m` for y.",
        "unwritten": "Every element of the result has to be stored by the kernel, under the mask of x: launch "
        "`triton.cdiv(n, BLOCK)` programs, n being the length of x, and store where `offsets < n`.",
        "dtype": "Allocate the result with dtype=torch.float32.",
        "nan": "A masked lane without `other=` holds anything: load y with other=0.0.",
        "rounded_output": "Convert x and y with `.to(tl.float32)` after the load, and add then.",
        "bytes": "Read x once, y once, and write the result once.",
        "torch_work": "Do not pad y: the mask of its load stands in for the missing elements.",
        "wrong": "out[i] = x[i] + y[i] for i < m and x[i] beyond.",
    },
)

# ---------------------------------------------------------------- 02.3 a transposed copy that coalesces


@gives(out="x")
def transpose(x):
    """A contiguous transpose."""
    return x.T


def matrix(name, rows, cols, dtype="fp32", row_stride=None, mean=0.0, spread=1.0, hint=""):
    return Case(
        f"{rows} x {cols} {dtype}{name}",
        hint=hint,
        make=lambda rng: {"x": tensor(rng.normal(mean, spread, (rows, cols)), dtype, row_stride)},
    )


MORE = ", more tiles than a GPU has multiprocessors"
APART = "Rows of x are x.stride(0) elements apart, which may be more than cols."
TRANSPOSE = Task(
    id="02.3",
    title="A transposed copy that coalesces",
    points=5,
    functions={"transpose": transpose},
    kernel=True,
    like="copy",
    cases=(
        matrix("", 128, 128),
        matrix("", 96, 160, "bf16"),
        matrix(", ragged", 100, 72),
        matrix("", 1, 1),
        matrix("", 1, 100),
        matrix("", 70, 1),
        matrix(", primes", 67, 131),
        matrix("", 130, 257, "fp16"),
        matrix(", padded", 48, 80, "fp32", 96, hint=APART),
        matrix(", padded", 63, 65, "bf16", 99, hint=APART),
        matrix(MORE, 64 * MANY - 4, 3),
        matrix(MORE, 3, 64 * MANY - 4),
    ),
    slips=(
        Slip(
            "the result holds x, not transposed, in the new shape",
            "out[c, r] is x[r, c]: the element of row r and column c goes to c * rows + r.",
            "x.T -> x.reshape(x.shape[::-1])",
            answer="col[None, :] * rows + row[:, None] -> row[:, None] * cols + col[None, :]",
        ),
    ),
    minimum_bytes=lambda x: {"x": x.nbytes, "returned 0": x.nbytes},
    sector_factor=2,
    hints={
        "sectors": "Let a program move a tile of two dimensions, at least 16 elements each way: then both its rows in "
        "x and its rows in the result fill whole sectors.",
        "out_of_bounds": "Mask rows and columns, both, in loads and stores. Where the masks are right, look at the row "
        "lengths: a row of x has x.stride(0) elements, a row of the result has `rows`.",
        "unwritten": "Programs have to cover both dimensions: a grid of cdiv(rows, R) by cdiv(cols, C).",
        "shape": "Allocate [cols, rows].",
        "dtype": "Allocate the result in the dtype of x.",
        "strides": "A view such as out.T, or torch.empty_like(x.T), keeps the order of x in memory: allocate [cols, "
        "rows], and let the kernel write the transposed order.",
        "bytes": "Each element is loaded once and stored once.",
        "torch_work": "x.T.contiguous() is the whole work done by torch; let the kernel do it.",
        "wrong": "out[c, r] = x[r, c]: the address in x is r * row_stride + c, the one in out c * rows + r.",
    },
)

# ---------------------------------------------------------------- 02.4 sum and largest of rows of any width


@gives(sums="fp32", largest="fp32")
def row_sum_max(x):
    """The sum and the largest element of each row."""
    return x.sum(axis=1), x.max(axis=1)


def positive(*form):
    """Rows whose sums do not cancel."""
    return matrix("", *form, mean=3.0).make


def planted(rng):
    """The largest element is the row's last."""
    x = rng.normal(3, 1, (3, 5001))
    x[:, -1] = 60 + np.arange(3)
    return {"x": tensor(x, "fp32")}


def part(fault, hint, columns, answer):
    """Some columns alone were looked at."""
    return Slip(fault, hint, f"return x.sum -> x = x[:, {columns}]; return x.sum", answer=answer)


LOOP = "tl.range(0, cols, BLOCK) -> tl.range(0, "
ROWS = Task(
    id="02.4",
    title="Sum and largest, rows of any width",
    points=5,
    functions={"row_sum_max": row_sum_max},
    kernel=True,
    like="row_sum",
    contiguous=False,
    cases=(
        *row_cases(positive, leave_out=("padded rows",)),
        matrix(", padded rows", 3, 777, "fp32", 1000, 3.0),
        matrix(
            ", all negative",
            5,
            777,
            mean=-20.0,
            hint="Here 0 is larger than every element: it came from the lanes "
            "behind the row's end, or from the value that the maximum starts from.",
        ),
        matrix(", a negative number", 1, 1, mean=-20.0),
        Case("3 x 5001 fp32, the largest is the last", planted),
        matrix(", large sums", 2, 2048, "fp16", mean=50.0),
        matrix("", 2, 2049, mean=-5.0),
        matrix(", wide", 3, 70001, "bf16", mean=1.0),
        matrix(
            ", the smallest numbers",
            3,
            1,
            mean=-3.3e38,
            spread=1e36,
            hint="The lanes behind the row's end, or the "
            "running maximum's start, are a finite number larger than these elements: only float('-inf') is below "
            "every number.",
        ),
    ),
    slips=(
        Slip(
            "0 took part in the maximum: lanes behind the row's end, or the value that it starts from",
            "0 leaves a sum alone, not a maximum, whose neutral element is minus infinity.",
            "x.max(axis=1) -> np.maximum(x.max(axis=1), 0)",
            answer='tl.where(mask, x, float("-inf")) -> x',
        ),
        part(
            "the columns after the last full tile are missing",
            "The number of tiles is rounded up: tl.range(0, cols, BLOCK) with a mask in the last.",
            ":x.shape[1] // TILE * TILE",
            f"{LOOP}cols // BLOCK * BLOCK, BLOCK)",
        ),
        part(
            "only the last tile counts",
            "Carry sum and maximum from tile to tile.",
            "(x.shape[1] - 1) // TILE * TILE:",
            "total += x -> total = x",
        ),
        part(
            "only the first tile counts",
            "Loop over all tiles: range(0, cols, BLOCK).",
            ":TILE",
            f"{LOOP}tl.minimum(cols, BLOCK), BLOCK)",
        ),
        Slip(
            "sum and largest are exchanged",
            "Return (sums, largest), in this order.",
            "x.sum(axis=1), x.max(axis=1) -> x.max(axis=1), x.sum(axis=1)",
            answer="sums, largest\n -> largest, sums\n",
        ),
        Slip("the mean was returned", "The sum is not divided.", "x.sum -> x.mean", answer="(total) -> (total) / cols"),
        Slip(
            "the smallest element was returned",
            "Use tl.max.",
            "x.max -> x.min",
            answer=("tl.maximum -> tl.minimum", "tl.max( -> tl.min(", 'float("-inf") -> float("inf")'),
        ),
        Slip(
            "the largest absolute value was returned",
            "The largest element, sign included.",
            "x.max -> np.abs(x).max",
            answer="tl.where(mask, x, -> tl.where(mask, tl.abs(x),",
        ),
    ),
    minimum_bytes=lambda x: {"x": x.nbytes, "returned 0": 4 * x.shape[0], "returned 1": 4 * x.shape[0]},
    sector_factor=2,
    max_tile=2048,
    hints={
        "out_of_bounds": "Mask every load with `col < cols`, and step from row to row by x.stride(0).",
        "tile_too_wide": "Go through the row in tiles of at most 2,048 columns, with tl.range(0, cols, BLOCK).",
        "nan": "A masked lane holds `other`: minus infinity minus itself, or infinity in a sum, gives NaN. Give the "
        "sum 0 and the maximum minus infinity; rows are x.stride(0) apart.",
        "overflow": "Convert to fp32 right after the load, for sums leave fp16's range, and keep the running sum in "
        "fp32 (tl.zeros(..., dtype=tl.float32)).",
        "bytes": "Load each tile once and use it for both results.",
        "dtype": "Both results are fp32.",
        "wrong": "Add up per lane in fp32 over the tiles, then tl.sum once; the same with tl.maximum and tl.max.",
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

stray = gives("program", "index")


@stray
def stray_next(n, block):
    """Lane n - 1 reads x[n]."""
    return (n - 1) // block, n


@stray
def stray_warps(n, block):
    """The first lane behind the end reads, unless the last warp is full."""
    return (n // block, n) if n % 32 else (-1, 0)


@stray
def stray_tile(rows, cols, block):
    """The first row whose tile reaches past the tensor."""
    for row in range(rows):
        if row * cols + block > rows * cols:
            return row, rows * cols
    return -1, 0


@stray
def stray_gather(n, block):
    """Masked lanes get the index -1."""
    return (n // block, -1) if n % block else (-1, 0)


def ragged(rng):
    """n elements, never a multiple of 32."""
    n = between(rng, 3, 2000)
    return {"n": n + (n % 32 == 0), "block": int(rng.choice([64, 128, 256]))}


def whole(rng, unit=None):
    """n elements that fill their tiles, or units of so many."""
    block = int(rng.choice([64, 128, 256]))
    return {"n": between(rng, 2, 9) * block if unit is None else between(rng, 3, 62) * unit, "block": block}


def table(name, rows, cols, block):
    """Kernel C with from so many to so many rows, and one of these numbers of columns."""
    return Case(
        f"kernel C, {name}",
        function="stray_tile",
        make=lambda rng: {"rows": between(rng, *rows), "cols": int(rng.choice(cols)), "block": block},
    )


STRAY = Task(
    id="02.5",
    title="Four stray reads",
    points=4,
    functions={oracle.__name__: oracle for oracle in (stray_next, stray_warps, stray_tile, stray_gather)},
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
    slips=(
        slip(
            "the program behind the last one was named",
            "The lane that reads x[n] is lane n - 1: which program owns that?",
            "(n - 1) // block, n -> n // block, n",
        ),
        slip(
            "(-1, 0) was returned, and kernel A always strays",
            "The mask keeps i below n, and the load goes to i + 1.",
            "(n - 1) // block, n -> -1, 0",
        ),
        slip(
            "a stray read was seen where n is a multiple of 32",
            "For some n, rounding up to whole warps changes nothing.",
            " if n % 32 else (-1, 0) -> ",
        ),
        slip(
            "(-1, 0) was returned where kernel B strays",
            "The mask is rounded up to a multiple of 32 before it is compared.",
            "(n // block, n) if -> (-1, 0) if",
        ),
        slip(
            "the last row's program was named",
            "Where a tile is wider than two rows, programs before the last one reach past the tensor too.",
            "return row, -> return rows - 1,",
        ),
        slip(
            "the first program was named",
            "Behind a row comes the next row: that read is wrong, but inside the "
            "tensor. Find the first one outside it.",
            "return row, rows * cols -> return 0, cols",
        ),
        slip(
            "(-1, 0) was returned where kernel C strays",
            "It has no mask: what do the lanes from cols on read?",
            "return row, rows * cols -> return -1, 0",
        ),
        slip(
            "the index n was named",
            "Masked lanes get `other` as their index, and the second load has no mask.",
            "(n // block, -1) if -> (n // block, n) if",
        ),
        slip(
            "(-1, 0) was returned where kernel D strays",
            "The first load is masked; look at what its masked lanes hold, and at the second load.",
            "(n // block, -1) if -> (-1, 0) if",
        ),
        slip(
            "a stray read was seen where tiles are whole",
            "For some n no lane is masked: what is read then?",
            " if n % block else (-1, 0) -> ",
        ),
    ),
    hints={
        "wrong": "Run the kernel under the meter with small sizes, as the cell above shows, until you see the rule; "
        "programs run in order there, so the first line is the first stray read.",
        "type": "Return two ints, (program, index).",
        "count": "Return two ints, (program, index).",
    },
    success="the first stray read of each kernel predicted, and where there is none",
)

TASKS = (COUNT, ADD, TRANSPOSE, ROWS, STRAY)
