"""Exercise 03, a linear layer in tiles: counted, as a loop in PyTorch, as kernels, in an order, in a tile that fits."""

import numpy as np

from grading.arrays import spread
from grading.diagnose import allowed, row_errors
from grading.tasks import Case, Slip, Task, gives, tensor
from grading.tasks.properties import MANY
from instruments.cache import matmul_dram, row_major

EXERCISE = "03_tiling"


def ceil(n: int, block: int) -> int:
    """Blocks that cover n."""
    return -(-n // block)


# ---------------------------------------------------------------- 03.1 count


@gives("bytes")
def dot_bytes(m, n, k, itemsize):
    """A row of x, a row of w and one result per program."""
    return (m * n * k + m * n * k + m * n) * itemsize


@gives("bytes")
def tiled_bytes(m, n, k, block_m, block_n, itemsize):
    """x once per column of tiles, w once per row of tiles."""
    tiles_m, tiles_n = ceil(m, block_m), ceil(n, block_n)
    return (m * k * tiles_n + n * k * tiles_m + m * n) * itemsize


@gives("intensity")
def tile_intensity(block_m, block_n, itemsize):
    """FLOP per byte read, for any k."""
    return 2 * block_m * block_n / ((block_m + block_n) * itemsize)


BLOCKS = (32, 64, 128, 256)


def one_of(rng, *choices) -> int:
    return int(rng.choice(choices))


def between(rng, low, high) -> int:
    return one_of(rng, *range(low, high + 1))


def dots(itemsize):
    """Small enough for an answer that loops over all programs."""
    return lambda rng: {**{name: between(rng, 300, 900) for name in "mnk"}, "itemsize": itemsize}


def tiled(itemsize, ragged):
    """Fewer rows of tiles than columns; where ragged, m is odd and n even: so that no two numbers are equal."""

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


READS = "m * k * tiles_n + n * k * tiles_m"
FLOPS, TILE_READS = "2 * block_m * block_n", "(block_m + block_n) * itemsize"
ALL_READS, ALL_WRITES = "tiles_m * tiles_n * k * (block_m + block_n)", "tiles_m * block_m * tiles_n * block_n"

COUNT = Task(
    id="03.1",
    title="Count what the programs ask for",
    points=3,
    functions={oracle.__name__: oracle for oracle in (dot_bytes, tiled_bytes, tile_intensity)},
    cases=(
        Case("dot_bytes, some sizes", dots(4), "dot_bytes"),
        Case("dot_bytes, other sizes", dots(2), "dot_bytes"),
        Case("tiled_bytes, sizes that the tiles divide", tiled(2, ragged=False), "tiled_bytes"),
        Case("tiled_bytes, ragged sizes", tiled(4, ragged=True), "tiled_bytes"),
        Case("tile_intensity, some tile", tile(4), "tile_intensity"),
        Case("tile_intensity, another tile", tile(2), "tile_intensity"),
    ),
    slips=(
        Slip(
            "minimum traffic was counted",
            "Count what programs ask for: the same row is asked for again by every program that needs it.",
            "m * n * k + m * n * k -> m * k + n * k",
            f"{READS} -> m * k + n * k",
        ),
        Slip("the results were left out", "Each result is written once: m n elements more.", " + m * n) -> )"),
        Slip(
            "the results were counted twice",
            "Each result is written once, and nothing reads it.",
            " + m * n) -> + 2 * m * n)",
        ),
        Slip(
            "x is counted per row of tiles and w per column",
            "A strip of x is read by all the programs beside each other: once per block of columns, ceil(n / block_n).",
            f"{READS} -> m * k * tiles_m + n * k * tiles_n",
        ),
        Slip(
            "the last, ragged tile was left out",
            "A ragged edge has programs too: round the number of tiles up.",
            "ceil(m, block_m), ceil(n, block_n) -> m // block_m, n // block_n",
        ),
        Slip(
            "masked lanes were counted",
            "At a ragged edge the lanes that hang over are masked and ask for nothing: the tiles of one column "
            "together read the m rows of x, not a multiple of block_m. So with w and y.",
            f"{READS} -> {ALL_READS}",
            f"{READS} + m * n -> {ALL_READS} + {ALL_WRITES}",
            f" + m * n) -> + {ALL_WRITES})",
            functions=("tiled_bytes",),
        ),
        Slip(
            "the intensity was turned over",
            "Intensity is FLOPs over bytes.",
            f"{FLOPS} / ({TILE_READS}) -> {TILE_READS} / ({FLOPS})",
        ),
        Slip(
            "a multiplication and an addition were counted as one",
            "A multiplication and an addition are two FLOPs.",
            "2 * block_m -> block_m",
        ),
        Slip(
            "elements of 2 bytes were taken for granted",
            "That is the lesson's formula for 16 bits. Here elements have `itemsize` bytes: divide by it.",
            "block_n) * itemsize -> block_n) * 2",
        ),
        Slip(
            "the bytes of an element were left out",
            "Divide by bytes, not by elements.",
            "block_n) * itemsize -> block_n)",
        ),
    ),
    hints={
        "wrong": "Write down what one program reads, then multiply by the number of programs.",
        "type": "Bytes are whole: return an int, with // where you divide. The intensity is a float.",
    },
)

# ---------------------------------------------------------------- the product, its inputs, and ways to get it wrong


@gives(y="fp32")
def product(x, w):
    """y = x w^T."""
    K = x.shape[1]
    return x[:, 0:K] @ w[:, 0:K].T


def last_block(answer):
    return Slip(
        "y holds the product of the last block of K alone",
        "Add each block's product to what is there: the sum starts at zero before the loop over K.",
        "0:K -> (K - 1) // TILE * TILE:K",
        answer=answer,
    )


def without_tail(answer):
    return Slip(
        "the last block of K, which is ragged, was left out",
        "Let the loop over K reach its end, range(0, K, block), also where K is smaller than a block.",
        "0:K -> 0:K // TILE * TILE",
        answer=answer,
    )


def values(rng, *shape):
    """Not centred, so that no row of the result is a small difference of large numbers."""
    return rng.normal(0.5, 1, shape)


def positive(rng, *shape):
    """For rows of few results, of which none may be small."""
    return rng.uniform(0.5, 2, shape)


def inputs(m, n, k, dtype="fp32", x_stride=None, w_stride=None, draw=values, **more):
    """x and w. Their strides: none for contiguous ones, elements from row to row, or both."""

    def laid(rng, rows, stride):
        drawn = draw(rng, rows, k)
        return spread(drawn, dtype, *stride) if isinstance(stride, tuple) else tensor(drawn, dtype, stride)

    return lambda rng: {"x": laid(rng, m, x_stride), "w": laid(rng, n, w_stride), **more}


# ---------------------------------------------------------------- 03.2 the loop in PyTorch

TILE_LOOP = Task(
    id="03.2",
    title="The tile loop, in PyTorch",
    points=3,
    functions={"tile_loop": product},
    cases=(
        Case("32 x 48 x 64 fp32, tiles of 16", inputs(32, 48, 64, block=16)),
        Case("40 x 24 x 100 bf16, tiles of 32: ragged", inputs(40, 24, 100, "bf16", block=32)),
        Case("17 x 33 x 31 fp16, tiles of 16: ragged", inputs(17, 33, 31, "fp16", block=16)),
        Case("5 x 70 x 40 fp32, tiles of 64: one tile is larger than x", inputs(5, 70, 40, block=64)),
        Case("20 x 20 x 500 bf16, tiles of 20", inputs(20, 20, 500, "bf16", block=20)),
    ),
    slips=(
        last_block("total += x_tile -> total = x_tile"),
        without_tail("range(0, K, block) -> range(0, K - block + 1, block)"),
    ),
    tile_elements=lambda x, w, block: block * block,
    hints={
        "tail": "The last tile of columns of y is missing or wrong: range(0, n, block) has to reach n.",
        "nan": "NaN is what y holds where nothing was written. Start each tile's sum at zero, which torch.empty "
        "does not; and let the loops cover ragged edges too, range(0, size, block).",
        "some_rows": "The last tile of rows is missing or wrong: range(0, m, block) has to reach m.",
        "whole_tensor": "Take slices of block by block first, then convert and multiply them; and write each tile "
        "into its slice of y, instead of joining tiles with torch.cat.",
        "sixteen_bit": "Convert the tiles to fp32 before the product, and add up in fp32.",
        "wrong": "y[i, j] is row i of x times row j of w: check which slices meet, that K is covered to its end, "
        "and that the tiles are fp32 before they are multiplied.",
    },
)

# ---------------------------------------------------------------- 03.3 and 03.4 kernels

SIDE, WIDEST = 32, 64  # sides of a tile: at least, at most


def least(x, w):
    """What programs with tiles of 32 x 32 ask for."""
    (m, k), n = x.shape, w.shape[0]
    return {"x": m * k * ceil(n, SIDE) * x.itemsize, "w": n * k * ceil(m, SIDE) * w.itemsize, "returned 0": m * n * 4}


IEEE = (
    "The interpreter multiplies exactly and does not show it. For fp32 inputs, say tl.dot(..., input_precision='ieee')."
)
NOTHING = "tl.zeros([BLOCK, BLOCK], tl.float32)"  # where the sum so far belongs, in the slips' answers
MORE_TILES = (
    "There are more tiles than a GPU has multiprocessors: launch a program for each, or let each loop over "
    "tiles until all are done."
)
ROWS_APART = "This {0} has padded rows: the next row starts {0}.stride(0) elements on, not K."

MATRIX_HINTS = {
    "unwritten": "The grid has to cover every tile of y: cdiv(M, BLOCK_M) times cdiv(N, BLOCK_N) programs, and each "
    "stores its whole tile.",
    "bytes": "The minimum here is what tiles of 32 x 32 ask for: each element that a program loads is used 32 times. "
    "Smaller tiles ask for more.",
    "tile_too_wide": "No side of a tile is above 64 here: the grid has a program per tile, and each loops over K in "
    "blocks.",
    "tail": "Columns at the end are wrong: look at how the column offsets are formed and masked.",
    "some_rows": "Some rows are right and others wrong: look at the program's tile number and at x.stride(0).",
    "sixteen_bit": "Accumulate in fp32: tl.zeros([BLOCK_M, BLOCK_N], dtype=tl.float32), and for fp32 inputs "
    "tl.dot(..., input_precision='ieee').",
    "tf32": IEEE,
    "wrong": "y[i, j] is row i of x times row j of w. Check the strides, which dimension of w the tile of tl.dot needs "
    "first, and that the sum runs over all of K.",
    "not_read": "Every row of x and w has to be read, all of K.",
}

TILED = Task(
    id="03.3",
    title="The tiled kernel",
    points=4,
    functions={"linear": product},
    kernel=True,
    like="matmul",
    ieee=True,
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
            f"32 x {WIDEST * MANY} x 32 fp16, more tiles than a GPU has multiprocessors",
            inputs(32, WIDEST * MANY, 32, "fp16"),
            hint=MORE_TILES,
        ),
    ),
    slips=(last_block(f"w_ptrs + start), total, -> w_ptrs + start), {NOTHING},"),),
    minimum_bytes=least,
    max_tile=(WIDEST, WIDEST),
    hints={
        **MATRIX_HINTS,
        "out_of_bounds": "Sizes are multiples of 32 here, so no tile of 32 hangs over an edge. Check the strides, "
        "the order of the grid's axes, and where the loop over K starts.",
    },
)

BOTH_STRIDES = "neighbours in a row are stride(1) elements apart, not 1"

RAGGED = Task(
    id="03.4",
    title="Any size, any strides",
    points=5,
    functions={"any_linear": product},
    kernel=True,
    like="matmul",
    ieee=True,
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
        Case(
            "37 x 45 x 50 bf16, w transposed",
            inputs(37, 45, 50, "bf16", w_stride=(1, 45)),
            hint="This w is a transposed view: neighbours in a row are w.stride(1) elements apart, not 1.",
        ),
        Case(
            "45 x 37 x 50 fp32, both transposed",
            inputs(45, 37, 50, x_stride=(1, 45), w_stride=(1, 37)),
            hint=f"These are transposed views: {BOTH_STRIDES}. Use stride(1) too.",
        ),
        Case(
            "34 x 37 x 36 fp32, all strides above 1",
            inputs(34, 37, 36, x_stride=(75, 2), w_stride=(3, 113)),
            hint=f"These are views with steps, as x[:, ::2] is one: {BOTH_STRIDES}, and no stride need be 1.",
        ),
        Case(
            "383 x 705 x 5 fp32, more tiles than a GPU has multiprocessors",
            inputs(383, 705, 5, draw=positive),
            hint=MORE_TILES,
        ),  # 12 x 23 tiles of 32
    ),
    slips=(
        last_block(f"tl.dot(x, w, total, -> tl.dot(x, w, {NOTHING},"),
        without_tail("range(0, K, BLOCK) -> range(0, K - BLOCK + 1, BLOCK)"),
        Slip(
            "blocks of K after the first are cut short",
            "`start` is taken off twice: a mask compares either k < K, with k = start + arange, or arange < K - start.",
            "x[:, 0:K] -> (x * (np.arange(K) < K - np.arange(K) // TILE * TILE))",
            answer=("[None, :] < K) -> [None, :] < K - start)", "[:, None] < K) -> [:, None] < K - start)"),
        ),
    ),
    minimum_bytes=least,
    max_tile=(WIDEST, WIDEST),
    hints={
        **MATRIX_HINTS,
        "out_of_bounds": "A tile that hangs over the edge needs a mask: rows < M, columns < N and k < K, in loads "
        "and store. Where all masks are there, check which stride goes with which index: "
        "neighbours in a row are stride(1) elements apart, not 1.",
        "bytes": MATRIX_HINTS["bytes"] + " So do lanes past the edge that are wrapped (% M, % N) instead of masked: "
        "they load rows again that other lanes have.",
        "wrong": MATRIX_HINTS["wrong"] + " Views may be transposed: use stride(0) and stride(1) of both.",
        "nan": "What lies beyond the edge of K or between padded rows got into the sum: mask k < K with other=0.0, "
        "and use the strides given.",
    },
)

# ---------------------------------------------------------------- 03.5 the order

TILE, DEPTH = 16, 32  # tiles of y; K
IN_FLIGHT, STRIPS = 12, 10  # programs at once; strips (16 rows of x or of w) that the model's L2 holds
SHARE = 2 / 3  # of the bytes read when programs walk row by row
JUDGED = ((12, 12), (10, 13), (7, 19))  # tiles of the products whose bytes count, as the card lists them


def order_of(tiles_m, tiles_n, order):
    """(fault, [(tile_m, tile_n)]) of a returned order."""
    count = tiles_m * tiles_n
    if not isinstance(order, np.ndarray) or order.dtype != np.int32 or order.shape != (count,):
        got = f"{order.dtype} of shape {list(order.shape)}" if isinstance(order, np.ndarray) else type(order).__name__
        return f"order has to be an int32 tensor of shape [{count}], one number per program; got {got}", []
    numbers = order.tolist()
    for program, number in enumerate(numbers):
        if not 0 <= number < count:
            return (
                f"program {program} computes tile {number:,}, and there are {count} (0 to {count - 1}). Each "
                "program stores its tile at its own number; the last group may have fewer rows than the "
                "others"
            ), []
    if len(set(numbers)) < count:
        twice = next(number for number in numbers if numbers.count(number) > 1)
        return (
            f"tile {twice} is computed {numbers.count(twice)} times and {count - len(set(numbers))} tiles never. "
            "The last group may have fewer rows than the others: divide by its own height"
        ), []
    return "", [divmod(number, tiles_n) for number in numbers]


def computed(tiles, across, stored_by):
    """The fault where a program stored another tile of y than it reports. across: tiles in a row of y. stored_by:
    [program's x, y, z, first and last element stored]."""
    ends = {x: (first, last) for x, y, z, first, last in stored_by}
    if sorted(ends) != list(range(len(tiles))) or len(stored_by) != len(tiles):
        return (
            f"{len(stored_by)} programs store to y; launch one for each of the {len(tiles)} tiles, in a grid of "
            "one dimension"
        )
    for program, (i, j) in enumerate(tiles):
        found = {(element // (across * TILE) // TILE, element % (across * TILE) // TILE) for element in ends[program]}
        if found != {(i, j)}:
            what = "more than one tile" if len(found) > 1 else f"tile {min(found)[0] * across + min(found)[1]}"
            return (
                f"program {program} stores {what} of y, and order[{program}] says {i * across + j}. order[p] is "
                "the number of the tile that program p computes and stores"
            )
    return ""


def dram_read(order, m, n):
    """Bytes that the cache model of this task reads from DRAM."""
    strip = TILE * DEPTH * 4
    return matmul_dram(order, (m, n, DEPTH), (TILE, TILE, TILE), 4, STRIPS * strip, IN_FLIGHT).read


def in_a_good_order(arguments, returned):
    if len(returned) != 2:
        return f"{len(returned)} values came back, expected two: y and order"
    y, order = returned
    if arguments["_dtypes"][0] != "fp32":
        return f"y has to be fp32, got {arguments['_dtypes'][0] or type(y).__name__}"
    right = product(arguments["x"], arguments["w"])
    m, n = right.shape
    if not isinstance(y, np.ndarray) or y.shape != right.shape:
        return f"y has to be an fp32 tensor of shape {[m, n]}"
    fault, tiles = order_of(m // TILE, n // TILE, order)
    if fault:
        return fault
    error = row_errors(y, right)
    if not (error <= allowed(right, "fp32")).all():
        off = np.argwhere(~np.isclose(y, right, rtol=1e-3, atol=1e-4)) // TILE
        if not len(off):
            return f"y is off by {error.max():.1e}. Multiply in fp32: tl.dot(..., input_precision='ieee')"
        wrong = min(i * (n // TILE) + j for i, j in off)
        return (
            f"the order is a right one and y is not: tile {wrong} of y is wrong. Compute and store the tile whose "
            "number you report"
        )
    if "_stored_by" in arguments:
        fault = computed(tiles, n // TILE, arguments["_stored_by"].get("returned 0", []))
    if fault or (m // TILE, n // TILE) not in JUDGED:
        return fault
    read, plain = dram_read(tiles, m, n), dram_read(row_major(m // TILE, n // TILE), m, n)
    if read <= SHARE * plain:
        return ""
    rows, columns = (len(set(numbers)) for numbers in zip(*tiles[:IN_FLIGHT]))
    return (
        f"this order reads {read:,} bytes from DRAM in the cache model, {read / plain:.0%} of what row by row "
        f"reads ({plain:,}); at most {SHARE:.0%} is asked for. The first {IN_FLIGHT} programs need {rows} strip"
        f"{'s' * (rows != 1)} of x and {columns} of w: {IN_FLIGHT} tiles in a block that is nearly square need "
        "the fewest"
    )


def of_tiles(tiles_m, tiles_n):
    return inputs(tiles_m * TILE, tiles_n * TILE, DEPTH)


ORDER = Task(
    id="03.5",
    title="An order that L2 likes",
    points=4,
    functions={"grouped_linear": None},
    kernel=True,
    like="matmul",
    ieee=True,
    verdict=in_a_good_order,
    cases=(
        *(Case(f"{m} x {n} tiles{', the last group lower' * (m != n)}", of_tiles(m, n)) for m, n in JUDGED),
        Case(f"1 x {MANY} tiles, more than a GPU has multiprocessors", of_tiles(1, MANY)),
    ),
    hints={
        "tf32": IEEE,
        "out_of_bounds": "A program works on a tile that does not exist: the last group may have fewer rows than "
        "the others, so divide by its own height.",
        "not_read": "Some tiles of y are computed by no program, so that a part of an input is never read: the last "
        "group may have fewer rows than the others.",
    },
    success="at most two thirds of the bytes that row by row reads, in the cache model",
)

# ---------------------------------------------------------------- 03.6 choose a tile

SIDES = (16, 32, 64, 128, 256)
SUMS = 128  # fp32 sums that a thread may hold


def buffers(block_m, block_n, stages, block_k, itemsize, **_):
    """Bytes of shared memory of a pipelined loop."""
    return stages * (block_m + block_n) * block_k * itemsize


def fitting(shared, threads, **loop):
    """The tiles that fit."""
    return [(m, n) for m in SIDES for n in SIDES if buffers(m, n, **loop) <= shared and m * n <= SUMS * threads]


def reuse(block_m, block_n):
    """Multiply-adds per element read."""
    return block_m * block_n / (block_m + block_n)


def best(tiles):
    return max((reuse(*tile) for tile in tiles), default=0)


def budget(decides, threads=(64, 128, 256)):
    """A budget in which this one decides, 'shared' or 'threads', and the smallest tile is not the best."""

    def make(rng):
        while True:
            given = {
                "shared": one_of(rng, 49152, 65536, 101376, 166912, 232448),
                "threads": one_of(rng, *threads),
                "stages": between(rng, 2, 5),
                "block_k": one_of(rng, 32, 64, 128),
                "itemsize": one_of(rng, 1, 2, 4),
            }
            if best(fitting(**{**given, decides: 10**9})) > best(fitting(**given)) > reuse(SIDES[0], SIDES[0]):
                return given

    return make


def filled(rng):
    """A budget that one of the best tiles fills to the last byte."""
    given = budget("shared")(rng)
    tiles = fitting(**given)
    return {**given, "shared": min(buffers(*tile, **given) for tile in tiles if reuse(*tile) == best(tiles))}


def long_sided(rng):
    """A budget in which every one of the best tiles has the longest side."""
    while True:
        given = budget("threads", (256,))(rng)
        tiles = fitting(**given)
        if all(SIDES[-1] in tile for tile in tiles if reuse(*tile) == best(tiles)):
            return given


def chosen(arguments, returned):
    arguments = {name: value for name, value in arguments.items() if not name.startswith("_")}
    if len(returned) != 2 or not all(type(side) is int for side in returned):
        return "return two ints, block_m and block_n"
    tile, threads = tuple(returned), arguments["threads"]
    name, said = f"{tile[0]} x {tile[1]}", ", ".join(f"{name}={value}" for name, value in arguments.items())
    if not set(tile) <= set(SIDES):
        return f"{name}: both sides have to be one of {', '.join(map(str, SIDES))}"
    needs, sums = buffers(*tile, **arguments), tile[0] * tile[1]
    if needs > arguments["shared"]:
        return (
            f"{name} needs {needs:,} bytes of shared memory for {said}. Every stage holds a tile of x and a tile "
            "of w, (block_m + block_n) * block_k elements"
        )
    if sums > SUMS * threads:
        return f"{name} has {sums // threads} sums per thread for {said}, and at most {SUMS} are allowed"
    fits = fitting(**arguments)
    other = max(fits, key=lambda tile: reuse(*tile))
    if reuse(*other) <= reuse(*tile):
        return ""
    return (
        f"{name} has {reuse(*tile):.4g} multiply-adds per element read for {said}, and {other[0]} x {other[1]}, "
        f"which fits too, has {reuse(*other):.4g}. {why_lower(arguments, tile, fits)}"
    )


def why_lower(arguments, tile, fits):
    """Advice for a tile that fits and is not the best: under which other rule it would be."""

    def best_under(rule):
        kept = [(m, n) for m, n in fits if rule(m, n)]
        return kept and reuse(*tile) == best(kept)

    sums = SUMS * arguments["threads"]
    told = [
        advice
        for advice, rule in {
            "A tile that needs exactly `shared` bytes still fits (compare with <=)": lambda m, n: (
                buffers(m, n, **arguments) < arguments["shared"]
            ),
            f"Exactly {SUMS} sums per thread still fit (compare with <=)": lambda m, n: m * n < sums,
            f"The limit counts sums, not their bytes: {SUMS} fp32 sums per thread, one register each": lambda m, n: (
                4 * m * n <= sums
            ),
        }.items()
        if best_under(rule)
    ]
    squares = ", and a tile need not be square" if best_under(lambda m, n: m == n) else ""
    return (". Or: ".join(told) or "Compare block_m * block_n / (block_m + block_n) over all tiles that fit") + squares


CHOOSE = Task(
    id="03.6",
    title="Choose a tile",
    points=3,
    functions={"choose_tile": None},
    verdict=chosen,
    cases=(
        *(Case(f"shared memory decides, {turn}", budget("shared")) for turn in (1, 2, 3)),
        *(Case(f"sums decide, {turn}", budget("threads")) for turn in (1, 2)),
        Case("sums decide, 64 threads", budget("threads", (64,))),  # no square is best
        Case("the best tile has a side of 256", long_sided),
        Case("the best tile fills shared memory", filled),
    ),
    success="no tile that fits has a higher intensity",
)

TASKS = (COUNT, TILE_LOOP, TILED, RAGGED, ORDER, CHOOSE)
