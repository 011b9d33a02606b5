"""Exercise 03: a linear layer in tiles, counted, in PyTorch and as kernels, in an order for L2, in a tile that fits."""

import numpy as np

from grading.compare import limits
from grading.tasks import TILE, Case, Mistake, RandomTensor, Speed, Task, ceil, one_of, returns, spread, tensor
from grading.tasks.properties import MANY, cancelling_halves
from instruments.cache import matmul_dram, row_major
from kernels.shared.tolerances import row_errors

EXERCISE = "03_tiling"


# ---------------------------------------------------------------- 03.1 count


@returns("bytes")
def dot_bytes(m, n, k, itemsize, *, minimum=False, writes=1):
    """A row of x, a row of w and one result per program."""
    reads = m * k + n * k if minimum else m * n * 2 * k
    return (reads + writes * m * n) * itemsize


@returns("bytes")
def tiled_bytes(
    m, n, k, block_m, block_n, itemsize, *, minimum=False, writes=1, swapped=False, rounded_down=False, padded=""
):
    """x once per column of tiles, w once per row of tiles. padded: "reads" or "all", counted up to whole tiles."""
    tiles_m, tiles_n = (m // block_m, n // block_n) if rounded_down else (ceil(m, block_m), ceil(n, block_n))
    rows, cols = (tiles_m * block_m, tiles_n * block_n) if padded else (m, n)
    times_x, times_w = (tiles_m, tiles_n) if swapped else (tiles_n, tiles_m)
    reads = m * k + n * k if minimum else rows * k * times_x + cols * k * times_w
    results = rows * cols if padded == "all" else m * n
    return (reads + writes * results) * itemsize


@returns("intensity")
def tile_intensity(block_m, block_n, itemsize, *, element_bytes=0):
    """FLOP per byte read, for any k. element_bytes: a constant instead of itemsize."""
    return 2 * block_m * block_n / ((block_m + block_n) * (element_bytes or itemsize))


BLOCKS = (32, 64, 128, 256)


def between(rng, low, high) -> int:
    return one_of(rng, *range(low, high + 1))


def dots(itemsize):
    """Small enough for an answer that loops over all programs."""
    return lambda rng: {**{name: between(rng, 300, 900) for name in "mnk"}, "itemsize": itemsize}


def tiled(itemsize, ragged):
    """Fewer rows of tiles than columns; where ragged, m is odd and n even, so that no two counts are equal."""

    def make(rng):
        block_m, block_n = one_of(rng, *BLOCKS), one_of(rng, *BLOCKS)
        return {
            "m": block_m * between(rng, 2, 3) + ragged * (2 * between(rng, 1, 15) + 1),
            "n": block_n * between(rng, 5, 6) + ragged * 2 * between(rng, 1, 15),
            "k": between(rng, 100, 900),
            "block_m": block_m,
            "block_n": block_n,
            "itemsize": itemsize,
        }

    return make


def tile(itemsize):
    """A tile that is not square."""
    return lambda rng: {**dict(zip(("block_m", "block_n"), rng.permutation(BLOCKS).tolist())), "itemsize": itemsize}


COUNT = Task(
    id="03.1",
    title="Count the requested bytes",
    points=3,
    functions={f.__name__: f for f in (dot_bytes, tiled_bytes, tile_intensity)},
    cases=(
        Case("dot_bytes, some sizes", dots(4), "dot_bytes"),
        Case("dot_bytes, other sizes", dots(2), "dot_bytes"),
        Case("tiled_bytes, sizes that the tiles divide", tiled(2, ragged=False), "tiled_bytes"),
        Case("tiled_bytes, ragged sizes", tiled(4, ragged=True), "tiled_bytes"),
        Case("tile_intensity, some tile", tile(4), "tile_intensity"),
        Case("tile_intensity, another tile", tile(2), "tile_intensity"),
    ),
    mistakes=(
        Mistake("the minimum traffic was counted", "Count a row again for every program that loads it.", minimum=True),
        Mistake(
            "the results were not counted exactly once",
            "Each of the m * n results is written once, and no program reads them.",
            {"writes": 0},
            {"writes": 2},
        ),
        Mistake(
            "x was counted per row of tiles and w per column of tiles",
            "All programs of one row of tiles load the same rows of x: x is read ceil(n / block_n) times.",
            swapped=True,
        ),
        Mistake(
            "the ragged edges were counted wrongly",
            "Round the number of tiles up, but not m and n: masked-out elements request no bytes.",
            {"rounded_down": True},
            {"padded": "reads"},
            {"padded": "all"},
        ),
        Mistake(
            "itemsize was left out, or 2 bytes per element were assumed",
            "Here elements have `itemsize` bytes; the lesson's formula is for 16 bits.",
            {"element_bytes": 1},
            {"element_bytes": 2},
        ),
    ),
    hints={
        "values": "Add up what each program loads and stores. The intensity is a tile's FLOPs over the bytes it reads.",
        "form": "Bytes are ints: use // where you divide. The intensity is a float.",
    },
)

# ---------------------------------------------------------------- the reference, its inputs, and common mistakes


@returns(y="fp32")
def linear(x, w, *, blocks="all", width=1, masked_twice=False):
    """y = x w^T. blocks: those of `width` columns that count. masked_twice: k < K - start instead of k < K."""
    columns = np.arange(x.shape[1])
    start = columns // width * width
    if masked_twice:
        x = x * (columns < len(columns) - start)
    counts = {"all": start >= 0, "full": start + width <= len(columns), "last": start == start[-1]}[blocks]
    if not counts.any():
        raise ValueError("no block of K counts: zeros, which have other causes too")
    return x[:, counts] @ w[:, counts].T


LAST_BLOCK = Mistake(
    "only the last block of K was counted",
    "Add the matmul of each block to the accumulator, which starts at zero before the loop over K.",
    blocks="last",
    width=TILE,
)
FULL_BLOCKS = Mistake(
    "the last, ragged block of K was left out",
    "Let the loop over K reach its end, range(0, K, block), even where K is smaller than a block.",
    blocks="full",
    width=TILE,
)
MASKED_TWICE = Mistake(
    "the blocks of K after the first were masked too early",
    "The start of the block counts twice: the mask compares either start + arange < K, or arange < K - start.",
    masked_twice=True,
    width=TILE,
)


def values(rng, *shape):
    """Not centered, so that no row of the result is a small difference of large numbers."""
    return rng.normal(0.5, 1, shape)


def positive(rng, *shape):
    """For rows of few results, of which none may be small."""
    return rng.uniform(0.5, 2, shape)


def inputs(m, n, k, dtype="fp32", x_stride=None, w_stride=None, draw=values, **more):
    """x and w. Their strides: none for contiguous ones, elements from row to row, or both."""

    def matrix(rng, rows, stride):
        numbers = draw(rng, rows, k)
        return spread(numbers, dtype, *stride) if isinstance(stride, tuple) else tensor(numbers, dtype, stride)

    return lambda rng: {"x": matrix(rng, m, x_stride), "w": matrix(rng, n, w_stride), **more}


# ---------------------------------------------------------------- 03.2 the loop in PyTorch

TILE_LOOP = Task(
    id="03.2",
    title="The tile loop, in PyTorch",
    points=3,
    functions={"tile_loop": linear},
    cases=(
        Case("32 x 48 x 64 fp32, tiles of 16", inputs(32, 48, 64, block=16)),
        Case("40 x 24 x 100 bf16, tiles of 32: ragged", inputs(40, 24, 100, "bf16", block=32)),
        Case("17 x 33 x 31 fp16, tiles of 16: ragged", inputs(17, 33, 31, "fp16", block=16)),
        Case("5 x 70 x 40 fp32, tiles of 64: one tile is larger than x", inputs(5, 70, 40, block=64)),
        Case("20 x 20 x 500 bf16, tiles of 20", inputs(20, 20, 500, "bf16", block=20)),
    ),
    mistakes=(LAST_BLOCK, FULL_BLOCKS),
    max_tile=lambda x, w, block: block * block,
    hints={
        "values": "y[i, j] is the dot product of row i of x and row j of w. Check that all loops reach the ragged "
        "edges, that each sum starts at zero, and that tiles are fp32 before they are multiplied.",
        "traffic": "Slice first, then convert and multiply. Write each tile into its slice of y, without torch.cat.",
    },
)

# ---------------------------------------------------------------- 03.3 and 03.4 kernels

SIDE, WIDEST = 32, 64  # sides of a tile: at least, at most


def requested_bytes(x, w):
    """What programs with tiles of 32 x 32 request."""
    (m, k), n = x.shape, w.shape[0]
    return {"x": m * k * ceil(n, SIDE) * x.itemsize, "w": n * k * ceil(m, SIDE) * w.itemsize, "returned 0": m * n * 4}


MORE_TILES = "There are more tiles than a GPU has SMs: launch a program for each, or let each loop over tiles."
ROWS_APART = "This {0} has padded rows: the next row starts {0}.stride(0) elements on, not K."
STEPS = "In this view the elements of a row are stride(1) elements apart, not 1: use stride(1) of both x and w."

UNWRITTEN = "The programs have to cover every tile of y, cdiv(M, BLOCK_M) times cdiv(N, BLOCK_N) of them."
TRAFFIC = "Tiles of y have to be 32 x 32 at least, with no side above 64: loop over K in blocks of up to 64."
VALUES = "Check that the sum is fp32 and covers all of K, the strides, and which dimension of w tl.dot needs first."

TILED = Task(
    id="03.3",
    title="The tiled kernel",
    points=4,
    functions={"linear": linear},
    kernel=True,
    cases=(
        Case("32 x 32 x 32 fp32, one tile", inputs(32, 32, 32)),
        Case("64 x 96 x 64 bf16", inputs(64, 96, 64, "bf16")),
        Case("32 x 32 x 160 fp16", inputs(32, 32, 160, "fp16")),
        Case(
            "32 x 32 x 96 fp32, rows of x 112 elements apart",
            inputs(32, 32, 96, x_stride=112),
            hint=ROWS_APART.format("x"),
        ),
        Case(
            "32 x 32 x 64 bf16, rows of w 80 elements apart",
            inputs(32, 32, 64, "bf16", w_stride=80),
            hint=ROWS_APART.format("w"),
        ),
        Case(
            f"32 x {WIDEST * MANY} x 32 fp16, more tiles than a GPU has SMs",
            inputs(32, WIDEST * MANY, 32, "fp16"),
            hint=MORE_TILES,
        ),
    ),
    mistakes=(LAST_BLOCK,),
    minimum_bytes=requested_bytes,
    max_tile=(WIDEST, WIDEST),
    hints={
        "out_of_bounds": "All sizes are multiples of 32, so tiles of 32 need no mask: check the strides, the order of "
        "the grid's axes, and where the loop over K starts and ends.",
        "unwritten": UNWRITTEN,
        "traffic": TRAFFIC,
        "values": VALUES,
    },
)

RAGGED = Task(
    id="03.4",
    title="Any size, any strides",
    points=5,
    functions={"any_linear": linear},
    kernel=True,
    cases=(
        Case("64 x 64 x 64 fp32, whole tiles", inputs(64, 64, 64)),
        Case("33 x 65 x 17 fp32, one over", inputs(33, 65, 17)),
        Case("31 x 40 x 100 bf16, ragged", inputs(31, 40, 100, "bf16")),
        Case("63 x 31 x 33 fp16, one under", inputs(63, 31, 33, "fp16")),
        Case("1 x 1 x 1 fp32", inputs(1, 1, 1, draw=positive)),
        Case("1 x 37 x 63 fp16, one row", inputs(1, 37, 63, "fp16")),
        Case("40 x 1 x 45 fp32, one column", inputs(40, 1, 45, draw=positive)),
        Case(
            "37 x 45 x 50 fp32, rows of x 64 elements apart",
            inputs(37, 45, 50, x_stride=64),
            hint=ROWS_APART.format("x"),
        ),
        Case(
            "37 x 45 x 50 fp16, rows of w 56 elements apart",
            inputs(37, 45, 50, "fp16", w_stride=56),
            hint=ROWS_APART.format("w"),
        ),
        Case("37 x 45 x 50 bf16, w transposed", inputs(37, 45, 50, "bf16", w_stride=(1, 45)), hint=STEPS),
        Case("45 x 37 x 50 fp32, both transposed", inputs(45, 37, 50, x_stride=(1, 45), w_stride=(1, 37)), hint=STEPS),
        Case(
            "34 x 37 x 36 fp32, all strides above 1",
            inputs(34, 37, 36, x_stride=(75, 2), w_stride=(3, 113)),
            hint=STEPS,
        ),
        Case(
            "383 x 705 x 5 fp32, more tiles than a GPU has SMs", inputs(383, 705, 5, draw=positive), hint=MORE_TILES
        ),  # 12 x 23 tiles of 32
    ),
    mistakes=(LAST_BLOCK, FULL_BLOCKS, MASKED_TWICE),
    minimum_bytes=requested_bytes,
    max_tile=(WIDEST, WIDEST),
    hints={
        "out_of_bounds": "Loads and store need masks: row < M, col < N, k < K. If all are there, check the strides.",
        "unwritten": UNWRITTEN,
        "traffic": f"{TRAFFIC} Mask elements past the edge instead of wrapping them around (% M, % N).",
        "values": f"{VALUES} Mask k < K with other=0.0 in both operands.",
    },
)

# ---------------------------------------------------------------- 03.5 the order

EDGE, DEPTH = 16, 32  # side of the tiles of y; K
IN_FLIGHT, STRIPS = 12, 10  # programs at once; strips (16 rows of x or of w) that the model's L2 holds
SHARE = 2 / 3  # of the bytes that the row-by-row order reads
JUDGED = ((12, 12), (10, 13), (7, 19))  # tiles of the outputs whose DRAM reads count, as the card lists them


def order_fault(order, count):
    """What is wrong with an order: its form, a tile that does not exist, a tile computed twice; '' if nothing."""
    if not isinstance(order, np.ndarray) or order.dtype != np.int32 or order.shape != (count,):
        form = f"{order.dtype} of shape {list(order.shape)}" if isinstance(order, np.ndarray) else type(order).__name__
        return f"order has to be an int32 tensor of shape [{count}], one number per program; got {form}"
    numbers = order.tolist()
    outside = [(program, number) for program, number in enumerate(numbers) if not 0 <= number < count]
    repeated = [number for number in numbers if numbers.count(number) > 1]
    if outside:
        return "program {} computes tile {:,}, and the tiles are 0 to {}".format(*outside[0], count - 1)
    if repeated:
        return (
            f"tile {repeated[0]} is computed {numbers.count(repeated[0])} times, and {count - len(set(numbers))} tiles "
            "never. The last group may have fewer rows than the others: divide by its own height"
        )
    return ""


def store_fault(tiles, tiles_n, stored_by):
    """The first program that stores another tile than it reports; '' if none. stored_by: [x, y, z, first, last]."""
    ends = {x: (first, last) for x, _, _, first, last in stored_by}
    if sorted(ends) != list(range(len(tiles))) or len(stored_by) != len(tiles):
        return f"{len(stored_by)} programs store to y; launch one per tile, {len(tiles)}, in a grid of one dimension"
    for program, (i, j) in enumerate(tiles):
        stored = {(e // (tiles_n * EDGE) // EDGE, e % (tiles_n * EDGE) // EDGE) for e in ends[program]}
        if stored != {(i, j)}:
            row, col = min(stored)
            what = "more than one tile" if len(stored) > 1 else f"tile {row * tiles_n + col}"
            return f"program {program} stores {what} of y, and order[{program}] says {i * tiles_n + j}"
    return ""


def value_fault(y, right):
    """What is wrong with y; '' if nothing."""
    if not isinstance(y, np.ndarray) or y.shape != right.shape:
        return f"y has to be an fp32 tensor of shape {list(right.shape)}"
    error = row_errors(y, right)
    if (error <= limits(right, "fp32")).all():
        return ""
    wrong = np.argwhere(~np.isclose(y, right, rtol=1e-3, atol=1e-4)) // EDGE
    if not len(wrong):
        return f"y is off by {error.max():.1e}. Multiply in fp32: tl.dot(..., input_precision='ieee')"
    first = min(i * (right.shape[1] // EDGE) + j for i, j in wrong)
    return f"order is a valid order, but tile {first} of y is wrong"


def dram_read(tiles, m, n):
    """Bytes that the cache model of this task reads from DRAM."""
    strip = EDGE * DEPTH * 4
    return matmul_dram(tiles, (m, n, DEPTH), (EDGE, EDGE, EDGE), 4, STRIPS * strip, IN_FLIGHT).read


def judge_order(arguments, returned):
    """What is wrong with y, or with the order; '' if nothing."""
    if len(returned) != 2:
        return f"{len(returned)} value{'s' * (len(returned) != 1)} returned, expected two: y and order"
    y, order = returned
    if arguments["_dtypes"][0] != "fp32":
        return f"y has to be fp32, got {arguments['_dtypes'][0] or type(y).__name__}"
    right = linear(arguments["x"], arguments["w"])
    (m, n), tiles_m, tiles_n = right.shape, right.shape[0] // EDGE, right.shape[1] // EDGE
    fault = order_fault(order, tiles_m * tiles_n) or value_fault(y, right)
    if fault:
        return fault
    tiles = [divmod(number, tiles_n) for number in order.tolist()]
    if arguments["_metered"]:
        fault = store_fault(tiles, tiles_n, arguments["_metered"].stored_by("returned 0"))
    if fault or (tiles_m, tiles_n) not in JUDGED:
        return fault
    read, row_by_row = dram_read(tiles, m, n), dram_read(row_major(tiles_m, tiles_n), m, n)
    if read <= SHARE * row_by_row:
        return ""
    rows, columns = (len(set(numbers)) for numbers in zip(*tiles[:IN_FLIGHT]))
    return (
        f"this order reads {read:,} bytes from DRAM in the cache model, {read / row_by_row:.0%} of what row by row "
        f"reads ({row_by_row:,}); at most {SHARE:.0%} is allowed. The first {IN_FLIGHT} programs need {rows + columns} "
        f"strips, {rows} of x and {columns} of w; in a nearly square block of tiles they need the fewest"
    )


@returns(y="fp32", order="int32")
def grouped_linear(x, w):
    """What kernels have to store; the order itself is judged."""
    return linear(x, w), np.zeros(len(x) // EDGE * (len(w) // EDGE))


def of_tiles(tiles_m, tiles_n):
    return inputs(tiles_m * EDGE, tiles_n * EDGE, DEPTH)


ORDER = Task(
    id="03.5",
    title="An order that L2 likes",
    points=4,
    functions={"grouped_linear": grouped_linear},
    kernel=True,
    verdict=judge_order,
    cases=(
        *(Case(f"{m} x {n} tiles{', the last group lower' * (m != n)}", of_tiles(m, n)) for m, n in JUDGED),
        Case(f"1 x {MANY} tiles, more than a GPU has SMs", of_tiles(1, MANY)),
    ),
    hints={
        "out_of_bounds": "The last group may have fewer rows than the others: divide by its own height.",
        "torch_work": "Launch one program per tile of y, and let each read x and w itself.",
        "passed": "at most two thirds of the DRAM reads of the row-by-row order, in the cache model",
    },
)

# ---------------------------------------------------------------- 03.6 choose a tile

SIDES = (16, 32, 64, 128, 256)
PER_THREAD = 128  # fp32 sums that a thread may hold


def buffer_bytes(block_m, block_n, stages, block_k, itemsize, **_):
    """Shared memory of a pipelined loop."""
    return stages * (block_m + block_n) * block_k * itemsize


def fitting(shared, threads, **loop):
    """The tiles that fit."""
    tiles = [(m, n) for m in SIDES for n in SIDES]
    return [(m, n) for m, n in tiles if buffer_bytes(m, n, **loop) <= shared and m * n <= PER_THREAD * threads]


def reuse(block_m, block_n):
    """Multiply-adds per element read."""
    return block_m * block_n / (block_m + block_n)


def best(tiles):
    return max((reuse(*tile) for tile in tiles), default=0)


def budget(decides, threads=(64, 128, 256)):
    """A budget in which this one decides, 'shared' or 'threads', and the smallest tile is not the best."""

    def make(rng):
        while True:
            limits = {
                "shared": one_of(rng, 49152, 65536, 101376, 166912, 232448),
                "threads": one_of(rng, *threads),
                "stages": between(rng, 2, 5),
                "block_k": one_of(rng, 32, 64, 128),
                "itemsize": one_of(rng, 1, 2, 4),
            }
            if best(fitting(**{**limits, decides: 10**9})) > best(fitting(**limits)) > reuse(SIDES[0], SIDES[0]):
                return limits

    return make


def filled(rng):
    """A budget that one of the best tiles fills to the last byte."""
    limits = budget("shared")(rng)
    tiles = fitting(**limits)
    return {**limits, "shared": min(buffer_bytes(*tile, **limits) for tile in tiles if reuse(*tile) == best(tiles))}


def long_sided(rng):
    """A budget in which every one of the best tiles has the longest side."""
    while True:
        limits = budget("threads", (256,))(rng)
        tiles = fitting(**limits)
        if all(SIDES[-1] in tile for tile in tiles if reuse(*tile) == best(tiles)):
            return limits


def judge_tile(arguments, returned):
    """Why the tile does not fit, or which one is better; '' if it is one of the best."""
    limits = {name: value for name, value in arguments.items() if not name.startswith("_")}
    if len(returned) != 2 or not all(type(side) is int for side in returned):
        return "return two ints, block_m and block_n"

    def describe(tile):
        needs, sums = buffer_bytes(*tile, **limits), tile[0] * tile[1] // limits["threads"]
        return f"{tile[0]} x {tile[1]} needs {needs:,} bytes of shared memory and {sums} accumulators per thread"

    tile, tiles = tuple(returned), fitting(**limits)
    budgets = ", ".join(f"{name}={value}" for name, value in limits.items())
    if not set(tile) <= set(SIDES):
        return f"{tile[0]} x {tile[1]}: both sides have to be one of {', '.join(map(str, SIDES))}"
    if tile not in tiles:
        limit = f"at most `shared` bytes and {PER_THREAD} accumulators"
        return f"{describe(tile)} for {budgets}, so it does not fit: {limit}"
    better = max(tiles, key=lambda tile: reuse(*tile))
    if reuse(*better) <= reuse(*tile):
        return ""
    return (
        f"{tile[0]} x {tile[1]} has {reuse(*tile):.4g} multiply-adds per element read for {budgets}. A better tile, "
        f"with {reuse(*better):.4g}, fits too: {describe(better)}"
    )


CHOOSE = Task(
    id="03.6",
    title="Choose a tile",
    points=3,
    functions={"choose_tile": None},
    verdict=judge_tile,
    cases=(
        *(Case(f"shared memory decides, {turn}", budget("shared")) for turn in (1, 2, 3)),
        *(Case(f"sums decide, {turn}", budget("threads")) for turn in (1, 2)),
        Case("sums decide, 64 threads", budget("threads", (64,))),  # no square is best
        Case("the best tile has a side of 256", long_sided),
        Case("the best tile fills shared memory", filled),
    ),
    hints={"passed": "no tile that fits has a higher intensity"},
)

# ---------------------------------------------------------------- 03.7 fast on a GPU

LEAST, LARGEST = 128, 256  # sides of a tile of y: what the requested bytes allow, and at most
WIDE = LARGEST * 71  # columns of y: 142 tiles of 128 x 256 in two rows of tiles, and a prime
TIMED = 4096  # sides of the timed matmul


@returns(y="x")
def fast_linear(x, w, *, blocks="all", width=1):
    """linear with a result in the operands' dtype."""
    return linear(x, w, blocks=blocks, width=width)


def requested_by_large_tiles(x, w):
    """What programs with tiles of 128 x 128 request."""
    (m, k), n = x.shape, w.shape[0]
    return {
        "x": m * k * ceil(n, LEAST) * x.itemsize,
        "w": n * k * ceil(m, LEAST) * w.itemsize,
        "returned 0": m * n * x.itemsize,
    }


def cancelling(m, n, k, dtype):
    def make(rng):
        x, w = cancelling_halves(rng, m, n, k)
        return {"x": tensor(x, dtype), "w": tensor(w, dtype)}

    return make


FAST = Task(
    id="03.7",
    title="Half of cuBLAS's throughput",
    points=3,
    functions={"fast_linear": fast_linear},
    kernel=True,
    cases=(
        Case("256 x 256 x 64 bf16", inputs(256, 256, 64, "bf16")),
        Case("512 x 256 x 256 fp16", inputs(512, 256, 256, "fp16")),
        Case("256 x 768 x 320 bf16", inputs(256, 768, 320, "bf16")),
        Case("256 x 256 x 512 fp16, the halves of K nearly cancel", cancelling(256, 256, 512, "fp16")),
        Case(f"256 x {WIDE} x 64 bf16, more tiles than a GPU has SMs", inputs(256, WIDE, 64, "bf16"), hint=MORE_TILES),
    ),
    mistakes=(LAST_BLOCK,),
    minimum_bytes=requested_by_large_tiles,
    max_tile=(LARGEST, LARGEST),
    hints={
        "out_of_bounds": "M and N are multiples of 256, K of 64: check the strides, the grid and the loop over K.",
        "unwritten": UNWRITTEN,
        "traffic": "Tiles of y have to be 128 x 128 at least: a smaller tile requests more bytes from L2.",
        "values": "Accumulate in fp32 over all of K, and convert once, at the store.",
        "slow": "Give tl.dot the operands in 16 bits, and try 128 x 256 by 64 with 8 warps and 3 stages.",
    },
    speed=Speed(
        points=2,
        share=0.5,
        bytes=3 * TIMED * TIMED * 2,
        flops=2 * TIMED**3,
        shape=f"{TIMED:,} x {TIMED:,} x {TIMED:,} bf16",
        make=lambda: {"x": RandomTensor((TIMED, TIMED), "bf16"), "w": RandomTensor((TIMED, TIMED), "bf16", whole=True)},
    ),
)

TASKS = (COUNT, TILE_LOOP, TILED, RAGGED, ORDER, CHOOSE, FAST)
