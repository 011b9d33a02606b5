"""Exercise 03, a linear layer in tiles: counted, as a loop in PyTorch, as kernels, in an order, in a tile that fits."""

import numpy as np

from grading.checks import Case, Expected, Suspect, Task, Tensor, encode, tensor
from instruments.cache import grouped, matmul_dram, row_major

EXERCISE = "03_tiling"


def ceil(n: int, block: int) -> int:
    """Blocks that cover n."""
    return -(-n // block)


# ---------------------------------------------------------------- 03.1 count


def _between(rng, low, high) -> int:
    return int(rng.integers(low, high + 1))


def _product(rng):
    """Small enough for an answer that loops over all programs."""
    return {name: _between(rng, 300, 900) for name in ("m", "n", "k")} | {"itemsize": int(rng.choice([2, 4]))}


def _block(rng) -> int:
    return int(rng.choice([32, 64, 128, 256]))


def _tiled(rng):
    sizes = _product(rng)
    return {name: sizes[name] for name in ("m", "n", "k")} | {
        "block_m": _block(rng), "block_n": _block(rng), "itemsize": sizes["itemsize"]}


def _exact(rng):
    """Sizes that the blocks divide."""
    block_m, block_n = _block(rng), _block(rng)
    return {"m": block_m * _between(rng, 2, 6), "n": block_n * _between(rng, 2, 6), "k": _between(rng, 100, 900),
            "block_m": block_m, "block_n": block_n, "itemsize": 2}


def _tile(itemsize):

    def make(rng):
        block_m = _block(rng)
        return {"block_m": block_m, "block_n": int(rng.choice([b for b in (32, 64, 128, 256) if b != block_m])),
                "itemsize": itemsize}

    return make


def dot_bytes(m, n, k, itemsize):
    """A row of x, a row of w and one result per program."""
    return [Expected("bytes", (2 * k + 1) * m * n * itemsize)]


def tiled_bytes(m, n, k, block_m, block_n, itemsize):
    """x once per column of tiles, w once per row of tiles."""
    return [Expected("bytes", (m * k * ceil(n, block_n) + n * k * ceil(m, block_m) + m * n) * itemsize)]


def tile_intensity(block_m, block_n, itemsize):
    """FLOP per byte read, for any k."""
    return [Expected("intensity", 2 * block_m * block_n / ((block_m + block_n) * itemsize))]


COUNTED = {f.__name__: f for f in (dot_bytes, tiled_bytes, tile_intensity)}


def _tiled_as(count):
    return {"tiled_bytes": lambda **sizes: [[Expected("bytes", count(**sizes))]]}


def _intensity_as(value):
    return {"tile_intensity": lambda **sizes: [[Expected("intensity", float(value(**sizes)))]]}


def _masked_too(m, n, k, block_m, block_n, itemsize):
    """Guesses: whole tiles counted at ragged edges, in the loads, in the stores, or in both."""
    tiles = ceil(m, block_m) * ceil(n, block_n)
    reads, writes = tiles * k * (block_m + block_n), tiles * block_m * block_n
    right = m * k * ceil(n, block_n) + n * k * ceil(m, block_m)
    return [[Expected("bytes", count * itemsize)] for count in (reads + m * n, reads + writes, right + writes)]


COUNT = Task(
    id="03.1", title="Count what the programs ask for", points=3, functions=tuple(COUNTED), oracle=COUNTED,
    cases=(Case("dot_bytes, some sizes", _product, "dot_bytes"), Case("dot_bytes, other sizes", _product, "dot_bytes"),
           Case("tiled_bytes, sizes that the tiles divide", _exact, "tiled_bytes"),
           Case("tiled_bytes, ragged sizes", _tiled, "tiled_bytes"),
           Case("tile_intensity, some tile", _tile(4), "tile_intensity"),
           Case("tile_intensity, another tile", _tile(2), "tile_intensity")),
    suspects=(
        Suspect("minimum traffic was counted",
                {"dot_bytes": lambda m, n, k, itemsize: [[Expected("bytes", (m * k + n * k + m * n) * itemsize)]],
                 **_tiled_as(lambda m, n, k, block_m, block_n, itemsize: (m * k + n * k + m * n) * itemsize)},
                "Count what programs ask for: the same row is asked for again by every program that needs it."),
        Suspect("the results were left out",
                {"dot_bytes": lambda m, n, k, itemsize: [[Expected("bytes", 2 * k * m * n * itemsize)]],
                 **_tiled_as(lambda m, n, k, block_m, block_n, itemsize:
                             (m * k * ceil(n, block_n) + n * k * ceil(m, block_m)) * itemsize)},
                "Each result is written once: m n elements more."),
        Suspect("x is counted per row of tiles and w per column",
                _tiled_as(lambda m, n, k, block_m, block_n, itemsize:
                          (m * k * ceil(m, block_m) + n * k * ceil(n, block_n) + m * n) * itemsize),
                "A strip of x is read by all the programs beside each other: once per block of columns, ceil(n / "
                "block_n)."),
        Suspect("the last, ragged tile was left out",
                _tiled_as(lambda m, n, k, block_m, block_n, itemsize:
                          (m * k * (n // block_n) + n * k * (m // block_m) + m * n) * itemsize),
                "A ragged edge has programs too: round the number of tiles up."),
        Suspect("masked lanes were counted", {"tiled_bytes": _masked_too},
                "At a ragged edge the lanes that hang over are masked and ask for nothing: the tiles of one column "
                "together read the m rows of x, not a multiple of block_m. So with w and y."),
        Suspect("the intensity was turned over",
                _intensity_as(lambda block_m, block_n, itemsize:
                              (block_m + block_n) * itemsize / (2 * block_m * block_n)),
                "Intensity is FLOPs over bytes."),
        Suspect("a multiplication and an addition were counted as one",
                _intensity_as(lambda block_m, block_n, itemsize: block_m * block_n / ((block_m + block_n) * itemsize)),
                "A multiplication and an addition are two FLOPs."),
        Suspect("elements of 2 bytes were taken for granted",
                _intensity_as(lambda block_m, block_n, itemsize: block_m * block_n / (block_m + block_n)),
                "That is the lesson's formula for 16 bits. Here elements have `itemsize` bytes: divide by it."),
        Suspect("the bytes of an element were left out",
                _intensity_as(lambda block_m, block_n, itemsize: 2 * block_m * block_n / (block_m + block_n)),
                "Divide by bytes, not by elements."),
    ),
    hints={"wrong": "Write down what one program reads, then multiply by the number of programs.",
           "type": "Bytes are whole: return an int, with // where you divide. The intensity is a float."},
)

# ---------------------------------------------------------------- the product and its inputs


def product(x, w, **_):
    """y = x w^T in fp32."""
    return [Expected("y", x @ w.T, "fp32")]


def _values(rng, *shape):
    """Not centred, so that no row of the result is a small difference of large numbers."""
    return rng.normal(0.5, 1, shape)


def _inputs(m, n, k, dtype="fp32", x_stride=None, w_stride=None):

    def make(rng):
        return {"x": tensor(_values(rng, m, k), dtype, x_stride), "w": tensor(_values(rng, n, k), dtype, w_stride)}

    return make


def _positive(m, n, k, dtype="fp32"):

    def make(rng):
        return {"x": tensor(rng.uniform(0.5, 2, (m, k)), dtype), "w": tensor(rng.uniform(0.5, 2, (n, k)), dtype)}

    return make


def _columns_first(values, dtype) -> Tensor:
    """A matrix whose columns lie one after the other, as a transposed one's do."""
    return Tensor(encode(np.ascontiguousarray(values.T), dtype).reshape(-1), dtype, values.shape, (1, values.shape[0]))


def _transposed(m, n, k, dtype, which):

    def make(rng):
        x, w = _values(rng, m, k), _values(rng, n, k)
        return {"x": _columns_first(x, dtype) if "x" in which else tensor(x, dtype),
                "w": _columns_first(w, dtype) if "w" in which else tensor(w, dtype)}

    return make


def _last_part(block):
    """A suspect: only the last block of K reached the result."""

    def guess(x, w, block=block):
        start = (x.shape[1] - 1) // block * block
        return [[Expected("y", x[:, start:] @ w[:, start:].T, "fp32")]]

    return Suspect("y holds the product of the last block of K alone", guess,
                   "Add each block's product to what is there: the sum starts at zero before the loop over K.")


def _without_tail(*blocks):
    """A suspect: the last, ragged block of K is missing."""

    def guess(x, w, block=None):
        ends = [x.shape[1] // b * b for b in ((block, ) if block else blocks)]
        return [[Expected("y", x[:, :end] @ w[:, :end].T, "fp32")] for end in ends]

    return Suspect("the last block of K, which is ragged, was left out", guess,
                   "Let the loop over K reach its end, range(0, K, block), also where K is smaller than a block.")


# ---------------------------------------------------------------- 03.2 the loop in PyTorch


def _with_block(make, block):
    return lambda rng: {**make(rng), "block": block}


TILE_LOOP = Task(
    id="03.2", title="The tile loop, in PyTorch", points=3, functions=("tile_loop", ), oracle=product,
    cases=(
        Case("32 x 48 x 64 fp32, tiles of 16", _with_block(_inputs(32, 48, 64), 16)),
        Case("40 x 24 x 100 bf16, tiles of 32: ragged", _with_block(_inputs(40, 24, 100, "bf16"), 32)),
        Case("17 x 33 x 31 fp16, tiles of 16: ragged", _with_block(_inputs(17, 33, 31, "fp16"), 16)),
        Case("5 x 70 x 40 fp32, tiles of 64: one tile is larger than x", _with_block(_inputs(5, 70, 40), 64)),
        Case("20 x 20 x 500 bf16, tiles of 20", _with_block(_inputs(20, 20, 500, "bf16"), 20)),
    ),
    suspects=(_last_part(16), _without_tail()),
    tile_elements=lambda x, w, block: block * block,
    hints={"tail": "The last tile of columns of y is missing or wrong: range(0, n, block) has to reach n.",
           "nan": "NaN is what y holds where nothing was written. Start each tile's sum at zero, which torch.empty "
                  "does not; and let the loops cover ragged edges too, range(0, size, block).",
           "some_rows": "The last tile of rows is missing or wrong: range(0, m, block) has to reach m.",
           "whole_tensor": "Take slices of block by block first, then convert and multiply them; and write each tile "
                           "into its slice of y, instead of joining tiles with torch.cat.",
           "sixteen_bit": "Convert the tiles to fp32 before the product, and add up in fp32.",
           "wrong": "y[i, j] is row i of x times row j of w: check which slices meet, that K is covered to its end, "
                    "and that the tiles are fp32 before they are multiplied."},
)

# ---------------------------------------------------------------- 03.3 and 03.4 kernels

SIDE, WIDEST = 32, 64  # sides of a tile: at least, at most


def _least(x, w):
    """What programs with tiles of 32 x 32 ask for."""
    (m, k), n = x.shape, w.shape[0]
    return {"x": m * k * ceil(n, SIDE) * x.itemsize, "w": n * k * ceil(m, SIDE) * w.itemsize, "returned 0": m * n * 4}


IEEE = ("The interpreter multiplies exactly and does not show it. For fp32 inputs, say "
        "tl.dot(..., input_precision='ieee').")

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
    id="03.3", title="The tiled kernel", points=4, functions=("linear", ), kernel=True, oracle=product, ieee=True,
    cases=(
        Case("32 x 32 x 32 fp32, one tile", _inputs(32, 32, 32)),
        Case("64 x 96 x 64 bf16", _inputs(64, 96, 64, "bf16")),
        Case("32 x 32 x 160 fp16", _inputs(32, 32, 160, "fp16")),
        Case("32 x 32 x 96 fp32, rows of x 112 elements apart", _inputs(32, 32, 96, x_stride=112),
             hint="This x has padded rows: the next row starts x.stride(0) elements on, not K."),
        Case("32 x 32 x 64 bf16, rows of w 80 elements apart", _inputs(32, 32, 64, "bf16", w_stride=80),
             hint="This w has padded rows: the next row starts w.stride(0) elements on, not K."),
    ),
    suspects=(_last_part(32), ), minimum_bytes=_least, max_tile=WIDEST,
    hints={**MATRIX_HINTS,
           "out_of_bounds": "Sizes are multiples of 32 here, so no tile of 32 hangs over an edge. Check the strides, "
                            "the order of the grid's axes, and where the loop over K starts."},
)


def _start_twice(x, w):
    """Guesses: k, which counts from the start of K, is masked by what is left of K."""
    depth = np.arange(x.shape[1])
    kept = ((depth < len(depth) - depth // block * block) for block in (16, 32, 64))
    return [[Expected("y", (x * keep) @ w.T, "fp32")] for keep in kept]


RAGGED = Task(
    id="03.4", title="Any size, any strides", points=5, functions=("any_linear", ), kernel=True, ieee=True,
    oracle=product,
    cases=(
        Case("64 x 64 x 64 fp32, whole tiles", _inputs(64, 64, 64)),
        Case("33 x 65 x 17 fp32, one over", _inputs(33, 65, 17)),
        Case("31 x 40 x 100 bf16, ragged", _inputs(31, 40, 100, "bf16")),
        Case("1 x 1 x 1 fp32", _positive(1, 1, 1)),
        Case("1 x 37 x 63 fp16, one row", _inputs(1, 37, 63, "fp16")),
        Case("40 x 1 x 45 fp32, one column", _positive(40, 1, 45)),
        Case("37 x 45 x 50 fp32, rows of x 64 elements apart", _inputs(37, 45, 50, x_stride=64),
             hint="This x has padded rows: the next row starts x.stride(0) elements on."),
        Case("37 x 45 x 50 bf16, w transposed", _transposed(37, 45, 50, "bf16", "w"),
             hint="This w is a transposed view: neighbours in a row are w.stride(1) elements apart, not 1."),
        Case("45 x 37 x 50 fp32, both transposed", _transposed(45, 37, 50, "fp32", "xw"),
             hint="These are transposed views: neighbours in a row are stride(1) elements apart, not 1. Use stride(1) "
                  "too."),
    ),
    suspects=(_without_tail(16, 32, 64),
              Suspect("blocks of K after the first are cut short", _start_twice,
                      "`start` is taken off twice: a mask compares either k < K, with k = start + arange, or arange < "
                      "K - start.")),
    minimum_bytes=_least, max_tile=WIDEST,
    hints={**MATRIX_HINTS,
           "out_of_bounds": "A tile that hangs over the edge needs a mask: rows < M, columns < N and k < K, in loads "
                            "and store. Where all masks are there, check which stride goes with which index, stride(1) "
                            "among them.",
           "bytes": MATRIX_HINTS["bytes"] + " So do lanes past the edge that are wrapped (% M, % N) instead of masked: "
                                            "they load rows again that other lanes have.",
           "wrong": MATRIX_HINTS["wrong"] + " Views may be transposed: use stride(0) and stride(1) of both.",
           "nan": "What lies beyond the edge of K or between padded rows got into the sum: mask k < K with other=0.0, "
                  "and use the strides given."},
)

# ---------------------------------------------------------------- 03.5 the order

TILE, DEPTH = 16, 32  # tiles of y; K
IN_FLIGHT, STRIPS = 12, 10  # programs at once; strips (16 rows of x or of w) that the model's L2 holds
SHARE = 2 / 3  # of the bytes read when programs walk row by row


def _order_of(shape, returned):
    """(fault, [(tile_m, tile_n)]) of a returned order."""
    tiles_m, tiles_n = shape[0] // TILE, shape[1] // TILE
    count = tiles_m * tiles_n
    if not isinstance(returned, np.ndarray) or returned.dtype != np.int32 or returned.shape != (count, ):
        got = type(returned).__name__
        if isinstance(returned, np.ndarray):
            got = f"{returned.dtype} of shape {list(returned.shape)}"
        return f"order has to be an int32 tensor of shape [{count}], one number per program; got {got}", None
    numbers = [int(number) for number in returned]
    for program, number in enumerate(numbers):
        if not 0 <= number < count:
            return (f"program {program} computes tile {number:,}, and there are {count} (0 to {count - 1}). Each "
                    "program stores its tile at its own number; the last group may have fewer rows than the "
                    "others"), None
    if len(set(numbers)) < count:
        twice = next(number for number in numbers if numbers.count(number) > 1)
        return (f"tile {twice} is computed {numbers.count(twice)} times and {count - len(set(numbers))} tiles never. "
                "The last group may have fewer rows than the others: divide by its own height"), None
    return "", [divmod(number, tiles_n) for number in numbers]


def _computed(tiles, cols, stored_by):
    """The fault where a program stored another tile of y than it reports. stored_by: [program's x, y, z, first and last
    element stored]."""
    ends = {x: (first, last) for x, y, z, first, last in stored_by}
    if sorted(ends) != list(range(len(tiles))) or len(stored_by) != len(tiles):
        return (f"{len(stored_by)} programs store to y; launch one for each of the {len(tiles)} tiles, in a grid of "
                "one dimension")
    for program, (i, j) in enumerate(tiles):
        found = [(element // cols // TILE, element % cols // TILE) for element in ends[program]]
        if found != [(i, j)] * 2:
            across = cols // TILE
            number, said = found[0][0] * across + found[0][1], i * across + j
            what = f"tile {number}" if found[0] == found[1] else "more than one tile"
            return (f"program {program} stores {what} of y, and order[{program}] says {said}. order[p] is the number "
                    "of the tile that program p computes and stores")
    return ""


def estimate(order, m, n):
    """The cache model of this task."""
    strip = TILE * DEPTH * 4
    return matmul_dram(order, (m, n, DEPTH), (TILE, TILE, TILE), 4, STRIPS * strip, IN_FLIGHT)


def _grouped(arguments, returned):
    x, w = arguments["x"], arguments["w"]
    if len(returned) != 2:
        return f"{len(returned)} values came back, expected two: y and order"
    y, order = returned
    right = x @ w.T
    if not isinstance(y, np.ndarray) or y.shape != right.shape:
        return f"y has to be an fp32 tensor of shape {list(right.shape)}"
    fault, tiles = _order_of(right.shape, order)
    if fault:
        return fault
    from grading.diagnose import allowed, row_errors  # which imports the checks

    error = row_errors(y, right)
    if not (error <= allowed(right, "fp32")).all():
        off = np.argwhere(~np.isclose(y, right, rtol=1e-3, atol=1e-4))
        if not len(off):
            return f"y is off by {error.max():.1e}. Multiply in fp32: tl.dot(..., input_precision='ieee')"
        across = right.shape[1] // TILE
        wrong = min(i // TILE * across + j // TILE for i, j in off)
        return (f"the order is a right one and y is not: tile {wrong} of y is wrong. Compute and store the tile whose "
                "number you report")
    m, n = right.shape
    fault = _computed(tiles, n, arguments["_stored_by"].get("returned 0", [])) if "_stored_by" in arguments else ""
    if fault:
        return fault
    read, plain = estimate(tiles, m, n).read, estimate(row_major(m // TILE, n // TILE), m, n).read
    if read > SHARE * plain:
        first = tiles[:IN_FLIGHT]
        rows, cols = len({i for i, _ in first}), len({j for _, j in first})
        return (f"this order reads {read:,} bytes from DRAM in the cache model, {read / plain:.0%} of what row by row "
                f"reads ({plain:,}); at most {SHARE:.0%} is asked for. The first {IN_FLIGHT} programs need {rows} strip"
                f"{'s' * (rows != 1)} of x and {cols} of w: {IN_FLIGHT} tiles in a block that is nearly square need "
                "the fewest")
    return ""


ORDER = Task(
    id="03.5", title="An order that L2 likes", points=4, functions=("grouped_linear", ), kernel=True, ieee=True,
    verdict=_grouped,
    cases=(
        Case("12 x 12 tiles", _inputs(12 * TILE, 12 * TILE, DEPTH)),
        Case("10 x 13 tiles, the last group lower", _inputs(10 * TILE, 13 * TILE, DEPTH)),
        Case("7 x 19 tiles, the last group lower", _inputs(7 * TILE, 19 * TILE, DEPTH)),
    ),
    hints={"tf32": IEEE,
           "out_of_bounds": "A program works on a tile that does not exist: the last group may have fewer rows than "
                            "the others, so divide by its own height.",
           "not_read": "Some tiles of y are computed by no program, so that a part of an input is never read: the last "
                       "group may have fewer rows than the others."},
    success="at most two thirds of the bytes that row by row reads, in the cache model",
)

# ---------------------------------------------------------------- 03.6 choose a tile

SIDES = (16, 32, 64, 128, 256)
SUMS = 128  # fp32 sums that a thread may hold


def shared_bytes(block_m, block_n, stages, block_k, itemsize):
    """Of the buffers of a pipelined loop."""
    return stages * (block_m + block_n) * block_k * itemsize


def _allowed(shared, threads, stages, block_k, itemsize):
    return [(m, n) for m in SIDES for n in SIDES
            if shared_bytes(m, n, stages, block_k, itemsize) <= shared and m * n <= SUMS * threads]


def _budget(binding, threads=(64, 128, 256)):
    """A budget in which shared memory, or the sums, or both decide."""

    def make(rng):
        while True:
            budget = {"shared": int(rng.choice([49152, 65536, 101376, 166912, 232448])),
                      "threads": int(rng.choice(threads)), "stages": _between(rng, 2, 5),
                      "block_k": int(rng.choice([32, 64, 128])), "itemsize": int(rng.choice([1, 2, 4]))}
            allowed = _allowed(**budget)
            best = max((_intensity(*tile) for tile in allowed), default=0)
            free_of_sums = max((_intensity(*tile) for tile in _allowed(**{**budget, "threads": 10**6})), default=0)
            free_of_shared = max(_intensity(*tile) for tile in _allowed(**{**budget, "shared": 10**9}))
            decides = {"shared memory": free_of_shared > best, "sums": free_of_sums > best}
            if best > _intensity(SIDES[0], SIDES[0]) and decides[binding]:  # and the smallest tile is not the best
                return budget

    return make


def _filled(rng):
    """A budget that one of the best tiles fills to the last byte."""
    budget = _budget("shared memory")(rng)
    allowed = _allowed(**budget)
    best = max(_intensity(*tile) for tile in allowed)
    rest = {name: budget[name] for name in ("stages", "block_k", "itemsize")}
    return {**budget, "shared": min(shared_bytes(*tile, **rest) for tile in allowed if _intensity(*tile) == best)}


def _intensity(block_m, block_n):
    return block_m * block_n / (block_m + block_n)


def _chosen(arguments, returned):
    if len(returned) != 2 or not all(type(side) is int for side in returned):
        return "return two ints, block_m and block_n"
    tile = tuple(returned)
    said = ", ".join(f"{name}={value}" for name, value in arguments.items())
    if any(side not in SIDES for side in tile):
        return f"{tile[0]} x {tile[1]}: both sides have to be one of {', '.join(map(str, SIDES))}"
    needs = shared_bytes(*tile, arguments["stages"], arguments["block_k"], arguments["itemsize"])
    if needs > arguments["shared"]:
        return (f"{tile[0]} x {tile[1]} needs {needs:,} bytes of shared memory for {said}. Every stage holds a tile of "
                "x and a tile of w, (block_m + block_n) * block_k elements")
    if tile[0] * tile[1] > SUMS * arguments["threads"]:
        return (f"{tile[0]} x {tile[1]} has {tile[0] * tile[1] // arguments['threads']} sums per thread for {said}, "
                f"and at most {SUMS} are allowed")
    allowed = _allowed(**arguments)
    best = max(allowed, key=lambda t: _intensity(*t))
    if _intensity(*best) > _intensity(*tile):
        return (f"{tile[0]} x {tile[1]} has {_intensity(*tile):.4g} multiply-adds per element read for {said}, and "
                f"{best[0]} x {best[1]}, which fits too, has {_intensity(*best):.4g}. "
                f"{_why_lower(arguments, tile, allowed)}")
    return ""


def _why_lower(arguments, tile, allowed):
    """Advice for a tile that fits and is not the best."""

    def chosen_under(fits):
        kept = [t for t in allowed if fits(t)]
        return kept and _intensity(*tile) == max(_intensity(*t) for t in kept)

    rest = {name: arguments[name] for name in ("stages", "block_k", "itemsize")}
    squares = ", and a tile need not be square" if chosen_under(lambda t: t[0] == t[1]) else ""
    mistakes = {
        "A tile that needs exactly `shared` bytes still fits (compare with <=)":
            lambda t: shared_bytes(*t, **rest) < arguments["shared"],
        f"Exactly {SUMS} sums per thread still fit (compare with <=)":
            lambda t: t[0] * t[1] < SUMS * arguments["threads"],
        f"The limit counts sums, not their bytes: {SUMS} fp32 sums per thread, one register each":
            lambda t: 4 * t[0] * t[1] <= SUMS * arguments["threads"]}
    told = [advice for advice, fits in mistakes.items() if chosen_under(fits)]
    return (". Or: ".join(told) or "Compare block_m * block_n / (block_m + block_n) over all tiles that fit") + squares


CHOOSE = Task(
    id="03.6", title="Choose a tile", points=3, functions=("choose_tile", ), verdict=_chosen,
    cases=(*(Case(f"shared memory decides, {turn}", _budget("shared memory")) for turn in (1, 2, 3)),
           *(Case(f"sums decide, {turn}", _budget("sums")) for turn in (1, 2)),
           Case("sums decide, 64 threads", _budget("sums", (64, ))),  # no square is best
           Case("the best tile fills shared memory", _filled)),
    success="no tile that fits has a higher intensity",
)

TASKS = (COUNT, TILE_LOOP, TILED, RAGGED, ORDER, CHOOSE)
