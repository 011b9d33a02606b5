"""Exercise 02: sectors and occupancy counted, an addition with a short operand, a transposed copy, sums, stray reads."""

import numpy as np

from grading.checks import Case, Expected, RandomTensor, Speed, Suspect, Task, tensor

EXERCISE = "02_execution_model"


def between(rng, low, high):
    """A random whole number from low to high."""
    return int(rng.integers(low, high + 1))


# ---------------------------------------------------------------- 02.1 count sectors and programs


def _sectors(first, stride, itemsize, lanes=32, step=32):
    byte = first + np.arange(lanes) * stride * itemsize
    return len({int(b) // step for start in byte for b in (start, start + itemsize - 1)})


def sectors(first, stride, itemsize):
    """Sectors that 32 lanes touch."""
    return [Expected("sectors", _sectors(first, stride, itemsize))]


def _resident(registers, shared, warps, step=256, reserved=1024, most=64, held=32):
    per_warp = -(-registers * 32 // step) * step
    return min(4 * (16_384 // per_warp) // warps, 233_472 // (shared + reserved) if shared + reserved else held, most // warps, held)


def programs_per_sm(registers, shared, warps):
    """Programs that one SM of an H200 holds."""
    return [Expected("programs", _resident(registers, shared, warps))]


def _count_suspect(name, guess, advice):
    """A mistake in `sectors`."""
    return Suspect(name, {"sectors": lambda first, stride, itemsize: [[Expected("sectors", guess(first, stride, itemsize))]]}, advice)


def _held_suspect(name, guess, advice):
    return Suspect(name, {"programs_per_sm": lambda registers, shared, warps:
                          [[Expected("programs", guess(registers, shared, warps))]]}, advice)


def _request(itemsize, strides, first=0):
    """Addresses that begin anywhere on a multiple of the element's size, or at `first`."""
    return lambda rng: {"first": first if first is not None else 32 * between(rng, 0, 99) + itemsize * between(rng, 1, 32 // itemsize - 1),
                        "stride": int(rng.choice(strides)), "itemsize": itemsize}


def _program(registers, shared, warps):
    return lambda rng: {"registers": between(rng, *registers), "shared": 128 * between(rng, *shared), "warps": int(rng.choice(warps))}


COUNT = Task(
    id="02.1", title="Count sectors and programs", points=4, functions=("sectors", "programs_per_sm"),
    oracle={"sectors": sectors, "programs_per_sm": programs_per_sm},
    cases=(
        Case("bf16, stride 8", _request(2, (8, ))), Case("bf16, neighbours, aligned", _request(2, (1, ))),
        Case("fp32, some stride", _request(4, (2, 3, 5, 7))), Case("bf16, some stride", _request(2, (3, 5, 6, 7))),
        Case("a stride larger than a sector", _request(2, (100, 1000, 4096))),
        Case("bf16, not aligned", _request(2, (1, 2), first=None)),
        Case("fp32, not aligned", _request(4, (1, 2, 3), first=None)),
        Case("all lanes at one address", _request(4, (0, ), first=None)),
        Case("registers decide", _program((40, 96), (0, 8), (4, )), function="programs_per_sm"),
        Case("many registers", _program((97, 250), (0, 8), (4, )), function="programs_per_sm"),
        Case("registers decide, 8 warps", _program((65, 200), (0, 8), (8, )), function="programs_per_sm"),
        Case("73 to 76 registers, 1 warp", _program((73, 76), (0, 0), (1, )), function="programs_per_sm"),
        Case("shared memory decides", _program((16, 32), (300, 1700), (1, 2)), function="programs_per_sm"),
        Case("half of the shared memory", _program((32, 32), (904, 904), (4, )), function="programs_per_sm"),
        Case("a little more than half", _program((32, 32), (905, 912), (4, )), function="programs_per_sm"),
        Case("warps decide", _program((16, 24), (0, 16), (4, 8, 16)), function="programs_per_sm"),
        Case("small programs", _program((16, 30), (0, 16), (1, )), function="programs_per_sm"),
        Case("more than an SM has", _program((200, 255), (0, 8), (16, 32)), function="programs_per_sm"),
    ),
    suspects=(
        _count_suspect("where the request begins was left out", lambda first, stride, itemsize: _sectors(0, stride, itemsize),
                       "A request that begins inside a sector can need one more: count from `first`."),
        _count_suspect("lines of 128 bytes were counted",
                       lambda first, stride, itemsize: _sectors(first, stride, itemsize, step=128),
                       "A sector has 32 bytes; four of them make a line."),
        _count_suspect("one sector per lane was counted", lambda first, stride, itemsize: 32,
                       "Lanes that fall into the same sector share it: collect the sectors in a set."),
        _count_suspect("bytes of the lanes were divided by the sector's size", lambda first, stride, itemsize: itemsize,
                       "The bytes between the lanes are in the sectors too: go by addresses, first + lane * stride * itemsize."),
        _count_suspect("the stride was taken in bytes",
                       lambda first, stride, itemsize: len({(first + i * stride) // 32 for i in range(32)}),
                       "stride counts elements: multiply by itemsize."),
        _held_suspect("the shared memory kept per program was left out",
                      lambda r, s, w: _resident(r, s, w, reserved=0), "Each program takes 1,024 bytes more than it asks for."),
        _held_suspect("the quarters were left out",
                      lambda r, s, w: min(65_536 // (-(-r * 32 // 256) * 256) // w, 233_472 // (s + 1024), 64 // w, 32),
                      "A warp takes all its registers from one quarter: how many warps fit into a quarter, and so "
                      "into four?"),
        _held_suspect("the registers of a thread were taken for those of a warp",
                      lambda r, s, w: min(4 * (16_384 // (-(-r // 256) * 256)) // w, 233_472 // (s + 1024),
                                          64 // w, 32),
                      "A warp has 32 threads: it takes 32 times `registers`, rounded up."),
        _held_suspect("a warp's registers were not rounded up",
                      lambda r, s, w: min(4 * (16_384 // (r * 32)) // w, 233_472 // (s + 1024), 64 // w, 32),
                      "A warp gets registers in multiples of 256: round up what it asks for."),
        _held_suspect("two things are missing: a warp's registers are rounded up, and come from one quarter of the SM",
                      lambda r, s, w: min(65_536 // (r * 32 * w), 233_472 // (s + 1024), 64 // w, 32),
                      "A warp gets registers in multiples of 256, from the 16,384 of its quarter of the SM."),
        _held_suspect("warps were returned", lambda r, s, w: _resident(r, s, w) * w, "Return programs, not warps."),
        _held_suspect("the limit of 32 programs was left out", lambda r, s, w: _resident(r, s, w, held=64),
                      "An SM holds at most 32 programs, however small."),
        _held_suspect("the limit of 64 warps was left out", lambda r, s, w: _resident(r, s, w, most=32 * 64),
                      "An SM holds at most 64 warps."),
    ),
    hints={"wrong": "Follow the card's rules one by one: an address per lane, whole sectors; the smallest of four limits, each "
                    "rounded down.",
           "type": "Return an int."},
)

# ---------------------------------------------------------------- 02.2 an addition with a short operand


def add_short(x, y):
    """x plus y, where y has an element; x elsewhere."""
    out = x.copy()
    out[:len(y)] += y
    return [Expected("out", out, "fp32")]


def _vectors(n, m, dtype="fp32", other="fp32"):
    return lambda rng: {"x": tensor(rng.normal(0, 1, n), dtype), "y": tensor(rng.normal(0, 1, m), other)}


def _ends(x, y):
    return [[Expected("out", np.where(np.arange(len(x)) < len(y), add_short(x, y)[0].values, fill), "fp32")] for fill in (0.0, 1.0)]


ADD = Task(
    id="02.2", title="An addition with a mask", points=3, functions=("add_short", ), kernel=True, oracle=add_short,
    cases=(
        Case("1024 and 1024", _vectors(1024, 1024)), Case("1000 and 1000, ragged", _vectors(1000, 1000)),
        Case("1 and 1", _vectors(1, 1)), Case("4099 and 3000, fp16 and fp32", _vectors(4099, 3000, "fp16")),
        Case("5000 and 1, bf16", _vectors(5000, 1, "bf16", "bf16")), Case("2048 and 1024, whole tiles", _vectors(2048, 1024)),
        Case("20011 and 19937, primes", _vectors(20011, 19937, "bf16", "fp16")),
    ),
    suspects=(
        Suspect("the elements behind the end of y are not those of x", _ends,
                "Behind the end of y the sum is x + 0: load y with a mask of its own and other=0.0, and store under the mask of x."),
        Suspect("missing elements of y count as 1", lambda x, y: [[Expected("out", np.where(np.arange(len(x)) < len(y),
                add_short(x, y)[0].values, x + 1), "fp32")]], "other=0.0 is what leaves a sum alone."),
        Suspect("y was subtracted", lambda x, y: [[Expected("out", 2 * x - add_short(x, y)[0].values, "fp32")]], "Add."),
        Suspect("x was returned", lambda x, y: [[Expected("out", x, "fp32")]], "Add y where it has elements."),
    ),
    minimum_bytes=lambda x, y: {"x": x.nbytes, "y": y.nbytes, "returned 0": 4 * x.shape[0]},
    hints={
        "out_of_bounds": "Two masks: `offsets < n` for x and the result, `offsets < m` for y.",
        "unwritten": "Launch `triton.cdiv(n, BLOCK)` programs, n being the length of x.",
        "dtype": "Allocate the result with dtype=torch.float32.",
        "nan": "A masked lane without `other=` holds anything: load y with other=0.0.",
        "rounded_output": "Convert x and y with `.to(tl.float32)` after the load, and add then.",
        "bytes": "Read x once, y once, and write the result once.",
        "torch_work": "Do not pad y: the mask of its load stands in for the missing elements.",
        "wrong": "out[i] = x[i] + y[i] for i < m and x[i] beyond.",
    },
)

# ---------------------------------------------------------------- 02.3 a transposed copy that coalesces


def transposed(x, _dtype):
    """A contiguous transpose."""
    return [Expected("out", np.ascontiguousarray(x.T), _dtype)]


def _matrix(rows, cols, dtype="fp32", row_stride=None):
    return lambda rng: {"x": tensor(rng.normal(0, 1, (rows, cols)), dtype, row_stride=row_stride), "_dtype": dtype}


TRANSPOSE = Task(
    id="02.3", title="A transposed copy that coalesces", points=5, functions=("transpose", ), kernel=True, oracle=transposed,
    cases=(
        Case("128 x 128 fp32", _matrix(128, 128)), Case("96 x 160 bf16", _matrix(96, 160, "bf16")),
        Case("100 x 72 fp32, ragged", _matrix(100, 72)), Case("1 x 1", _matrix(1, 1)), Case("1 x 100", _matrix(1, 100)),
        Case("70 x 1", _matrix(70, 1)), Case("67 x 131 fp32, primes", _matrix(67, 131)),
        Case("48 x 80 fp32, padded rows", _matrix(48, 80, row_stride=96),
             hint="Rows of x are x.stride(0) elements apart, which may be more than cols."),
        Case("130 x 257 fp16", _matrix(130, 257, "fp16")),
    ),
    suspects=(
        Suspect("the result holds x, not transposed, in the new shape",
                lambda x, _dtype: [[Expected("out", x.reshape(x.shape[1], x.shape[0]), _dtype)]],
                "out[c, r] is x[r, c]: the element of row r and column c goes to c * rows + r."),
    ),
    minimum_bytes=lambda x, _dtype: {"x": x.nbytes, "returned 0": x.nbytes}, sector_factor=2, contiguous=True,
    hints={
        "sectors": "Let a program move a tile of two dimensions, at least 16 elements each way: then both its rows in x and its "
                   "rows in the result fill whole sectors.",
        "out_of_bounds": "Mask rows and columns, both, in loads and stores. Where the masks are right, look at the row "
                         "lengths: a row of x has x.stride(0) elements, a row of the result has `rows`.",
        "unwritten": "Programs have to cover both dimensions: a grid of cdiv(rows, R) by cdiv(cols, C).",
        "shape": "Allocate [cols, rows].",
        "strides": "A view such as out.T, or torch.empty_like(x.T), keeps the order of x in memory: allocate "
                   "[cols, rows], and let the kernel write the transposed order.", "dtype": "Allocate the result in the dtype of x.",
        "bytes": "Each element is loaded once and stored once.",
        "torch_work": "x.T.contiguous() is the whole work done by torch; let the kernel do it.",
        "wrong": "out[c, r] = x[r, c]: the address in x is r * row_stride + c, the one in out c * rows + r.",
    },
)

# ---------------------------------------------------------------- 02.4 sum and largest of rows of any width


def row_sum_max(x, **_):
    """The sum and the largest element of each row."""
    return [Expected("sums", x.sum(axis=1), "fp32"), Expected("largest", x.max(axis=1), "fp32")]


def _rows(rows, cols, dtype="fp32", mean=0.0, row_stride=None, spread=1.0):
    return lambda rng: {"x": tensor(rng.normal(mean, spread, (rows, cols)), dtype, row_stride=row_stride)}


def _planted(rng):
    """The largest element is the row's last."""
    x = rng.normal(3, 1, (3, 5001))
    x[:, -1] = 60 + np.arange(3)
    return {"x": tensor(x, "fp32")}


def _partial(columns):
    """What comes out when only some columns are looked at; columns(cols, tile) -> slice or None."""

    def guesses(x):
        for tile in (256, 512, 1024, 2048, 4096):
            part = columns(x.shape[1], tile)
            if part is not None:
                some = x[:, part]
                yield [Expected("sums", some.sum(axis=1), "fp32"), Expected("largest", some.max(axis=1), "fp32")]
                yield [Expected("sums", some.sum(axis=1), "fp32")]
                yield [Expected("largest", some.max(axis=1), "fp32")]

    return lambda x: list(guesses(x))


ROWS = Task(
    id="02.4", title="Sum and largest, rows of any width", points=5, functions=("row_sum_max", ), kernel=True, oracle=row_sum_max,
    cases=(
        Case("4 x 1024 fp32, positive", _rows(4, 1024, mean=3.0)),
        Case("3 x 1000 bf16, ragged", _rows(3, 1000, "bf16", mean=2.0)),
        Case("5 x 777 fp32, all negative", _rows(5, 777, mean=-20.0),
             hint="Here 0 is larger than every element: it came from the lanes behind the row's end, or from the value that the "
                  "maximum starts from."),
        Case("2 x 1, one column", _rows(2, 1, mean=-3.0)), Case("3 x 5001 fp32, the largest is the last", _planted),
        Case("2 x 2048 fp16, large sums", _rows(2, 2048, "fp16", mean=50.0)),
        Case("3 x 70001 bf16, wide", _rows(3, 70001, "bf16", mean=1.0)),
        Case("4 x 300 fp32, padded rows", _rows(4, 300, mean=2.0, row_stride=320)),
        Case("2 x 2049 fp32", _rows(2, 2049, mean=-5.0)),
        Case("3 x 1100 fp32, around -1e30", _rows(3, 1100, mean=-1e30, spread=1e28),
             hint="The lanes behind the row's end, or the running maximum's start, are a finite number larger than these "
                  "elements: only float('-inf') is below every number."),
    ),
    suspects=(
        Suspect("0 took part in the maximum: lanes behind the row's end, or the value that it starts from",
                lambda x: [[Expected("largest", np.maximum(x.max(axis=1), 0), "fp32")]],
                "0 leaves a sum alone, not a maximum, whose neutral element is minus infinity."),
        Suspect("the columns after the last full tile are missing",
                _partial(lambda cols, tile: slice(0, cols // tile * tile) if cols % tile and tile < cols else None),
                "The number of tiles is rounded up: tl.range(0, cols, BLOCK) with a mask in the last."),
        Suspect("only the last tile counts", _partial(lambda cols, tile: slice((cols - 1) // tile * tile, cols) if tile < cols else None),
                "Carry sum and maximum from tile to tile."),
        Suspect("only the first tile counts", _partial(lambda cols, tile: slice(0, tile) if tile < cols else None),
                "Loop over all tiles: range(0, cols, BLOCK)."),
        Suspect("sum and largest are exchanged", lambda x: [[Expected("sums", x.max(axis=1), "fp32"), Expected("largest", x.sum(axis=1), "fp32")]],
                "Return (sums, largest), in this order."),
        Suspect("the mean was returned", lambda x: [[Expected("sums", x.mean(axis=1), "fp32")]], "The sum is not divided."),
        Suspect("the smallest element was returned", lambda x: [[Expected("largest", x.min(axis=1), "fp32")]], "Use tl.max."),
        Suspect("the largest absolute value was returned", lambda x: [[Expected("largest", np.abs(x).max(axis=1), "fp32")]],
                "The largest element, sign included."),
    ),
    minimum_bytes=lambda x: {"x": x.nbytes, "returned 0": 4 * x.shape[0], "returned 1": 4 * x.shape[0]},
    bytes_factor=1.05, sector_factor=2, max_tile=2048,
    hints={
        "out_of_bounds": "Mask every load with `col < cols`, and step from row to row by x.stride(0).",
        "tile_too_wide": "Go through the row in tiles of at most 2,048 columns, with tl.range(0, cols, BLOCK).",
        "nan": "A masked lane holds `other`: minus infinity minus itself, or infinity in a sum, gives NaN. Give the sum 0 and the maximum "
               "minus infinity; rows are x.stride(0) apart.",
        "overflow": "Convert to fp32 right after the load, for sums leave fp16's range, and keep the running sum in "
                    "fp32 (tl.zeros(..., dtype=tl.float32)).",
        "sixteen_bit": "Convert to fp32 right after the load, and keep the running sum in fp32 "
                       "(tl.zeros(..., dtype=tl.float32)).",
        "bytes": "Load each tile once and use it for both results.", "dtype": "Both results are fp32.",
        "wrong": "Add up per lane in fp32 over the tiles, then tl.sum once; the same with tl.maximum and tl.max.",
    },
    speed=Speed(points=1, share=0.6, bytes=16384 * 8192 * 2, shape="16384 x 8192 bf16",
                make=lambda: {"x": RandomTensor((16384, 8192), "bf16", mean=1.0)}),  # sums do not cancel
)

# ---------------------------------------------------------------- 02.5 four kernels, four stray reads

NOWHERE = (-1, 0)


def _found(program, index):
    return [Expected("program", program), Expected("index", index)]


def _next(n, block):
    return (n - 1) // block, n


def _warps(n, block):
    return (n // block, n) if n % 32 else NOWHERE


def _tile(rows, cols, block):
    return (max(0, (rows * cols - block) // cols + 1), rows * cols) if block > cols else NOWHERE


def _gather(n, block):
    return (n // block, -1) if n % block else NOWHERE


STRAYS = {"stray_next": _next, "stray_warps": _warps, "stray_tile": _tile, "stray_gather": _gather}


def _sizes(multiple=1, odd=False):
    """n elements in tiles of a random width; a multiple of so many, or surely not."""

    def make(rng):
        n = multiple * between(rng, 3, 2000 // multiple)
        return {"n": n + (n % 32 == 0) if odd else n, "block": int(rng.choice((64, 128, 256)))}

    return make


def _whole(rng):
    block = int(rng.choice((64, 128, 256)))
    return {"n": block * between(rng, 2, 9), "block": block}


def _table(rows, cols, blocks):
    return lambda rng: {"rows": between(rng, *rows), "cols": between(rng, *cols), "block": int(rng.choice(blocks))}


def _stray_suspects(name, *mistakes):
    return tuple(Suspect(what, {name: (lambda guess: lambda **sizes: [_found(*guess(**sizes))])(guess)}, advice)
                 for what, guess, advice in mistakes)


STRAY = Task(
    id="02.5", title="Four stray reads", points=4, functions=tuple(STRAYS),
    oracle={name: (lambda where: lambda **sizes: _found(*where(**sizes)))(where) for name, where in STRAYS.items()},
    cases=(
        Case("kernel A, ragged", _sizes(odd=True), function="stray_next"),
        Case("kernel A, whole tiles", _whole, function="stray_next"),
        Case("kernel B, ragged", _sizes(odd=True), function="stray_warps"),
        Case("kernel B, a multiple of 32", _sizes(32), function="stray_warps"),
        Case("kernel C, wide tile", _table((3, 40), (33, 63), (64, )), function="stray_tile"),
        Case("kernel C, tile of several rows", _table((9, 40), (5, 30), (128, )), function="stray_tile"),
        Case("kernel C, few rows, wide tile", _table((1, 2), (5, 30), (256, )), function="stray_tile"),
        Case("kernel C, the tile is the row", _table((3, 40), (64, 64), (64, )), function="stray_tile"),
        Case("kernel D, ragged", _sizes(odd=True), function="stray_gather"),
        Case("kernel D, whole tiles", _whole, function="stray_gather"),
    ),
    suspects=(
        *_stray_suspects("stray_next", ("the program behind the last one was named", lambda n, block: (n // block, n),
                                        "The lane that reads x[n] is lane n - 1: which program owns that?"),
                         ("(-1, 0) was returned, and kernel A always strays",
                          lambda n, block: NOWHERE, "The mask keeps i below n, and the load goes to i + 1.")),
        *_stray_suspects("stray_warps", ("a stray read was seen where n is a multiple of 32", lambda n, block: (n // block, n),
                                         "For some n, rounding up to whole warps changes nothing."),
                         ("(-1, 0) was returned where kernel B strays",
                          lambda n, block: NOWHERE, "The mask is rounded up to a multiple of 32 before it is compared.")),
        *_stray_suspects("stray_tile", ("the last row's program was named", lambda rows, cols, block: (rows - 1, rows * cols) if block > cols else NOWHERE,
                                        "Where a tile is wider than two rows, programs before the last one reach past the tensor too."),
                         ("the first program was named", lambda rows, cols, block: (0, cols) if block > cols else NOWHERE,
                          "Behind a row comes the next row: that read is wrong, but inside the tensor. Find the first one outside it."),
                         ("(-1, 0) was returned where kernel C strays",
                          lambda rows, cols, block: NOWHERE, "It has no mask: what do the lanes from cols on read?")),
        *_stray_suspects("stray_gather", ("the index n was named", lambda n, block: (n // block, n) if n % block else NOWHERE,
                                          "Masked lanes get `other` as their index, and the second load has no mask."),
                         ("(-1, 0) was returned where kernel D strays",
                          lambda n, block: NOWHERE, "The first load is masked; look at what its masked lanes hold, and at the second load."),
                         ("a stray read was seen where tiles are whole", lambda n, block: (n // block, -1),
                          "For some n no lane is masked: what is read then?")),
    ),
    hints={"wrong": "Run the kernel under the meter with small sizes, as the cell above shows, until you see the rule; programs run in "
                    "order there, so the first line is the first stray read.",
           "type": "Return two ints, (program, index).", "count": "Return two ints, (program, index)."},
    success="the first stray read of each kernel predicted, and where there is none",
)

TASKS = (COUNT, ADD, TRANSPOSE, ROWS, STRAY)
