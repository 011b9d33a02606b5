"""Exercise 05: Gemma's RMSNorm. Its weight is stored as the difference from one, so y = x * scale * (1 + weight)."""

import numpy as np

from grading.checks import Case, DType, Expected, RandomTensor, Speed, Suspect, Task, rounded, tensor

EXERCISE = "05_rmsnorm"
SIZE = {"fp32": 4, "fp16": 2, "bf16": 2}


# ---------------------------------------------------------------- the operation, and ways to get it wrong


def scale_of(x, eps):
    """1 / sqrt(mean(x^2) + eps) of each row, fp64."""
    return 1 / np.sqrt((x * x).mean(axis=1) + eps)


def gemma(x, weight, scale):
    """The normed rows for a given scale."""
    return x * scale[:, None] * (1 + weight)


def _both(y, scale):
    return [Expected("y", y, "fp32"), Expected("scale", scale, "fp32")]


def norm_and_scale(x, weight, eps, **_):
    """What 05.2 and 05.3 return: y and the scale, both fp32."""
    scale = scale_of(x, eps)
    return _both(gemma(x, weight, scale), scale)


def _mean(x):
    return (x * x).mean(axis=1)


def _part(columns):
    """The scale of a sum that covers only some columns; columns(cols, tile) -> slice, or None where it covers all."""

    def scales(x, eps):
        cols = x.shape[1]
        for tile in (64, 128, 256, 512, 1024, 2048, 4096):
            part = columns(cols, tile)
            if part is not None:
                yield 1 / np.sqrt((x[:, part]**2).sum(axis=1) / cols + eps)

    return scales


def _one(scale):
    return lambda x, eps: iter([scale(x, eps)])


def _padding(x):
    """How many lanes of the smallest tile that spans a row lie beyond it."""
    return (1 << (x.shape[1] - 1).bit_length()) - x.shape[1]


def _centred(x):
    return x - x.mean(axis=1, keepdims=True)


#: What was done wrong: (the scales it may give, advice).
MISTAKEN_SCALES = {
    "the sum of squares was not divided by the number of columns":
        (_one(lambda x, eps: 1 / np.sqrt((x * x).sum(axis=1) + eps)),
         "The scale needs the mean of the squares: divide the sum by cols."),
    "eps was left out": (_one(lambda x, eps: 1 / np.sqrt(_mean(x))), "Add eps to the mean of the squares, under the root."),
    "eps was added after the root":
        (_one(lambda x, eps: 1 / (np.sqrt(_mean(x)) + eps)), "eps belongs under the root: 1 / sqrt(mean + eps)."),
    "eps was added to the sum before the division":
        (_one(lambda x, eps: 1 / np.sqrt(((x * x).sum(axis=1) + eps) / x.shape[1])), "Divide first, then add eps."),
    "the root is missing": (_one(lambda x, eps: 1 / (_mean(x) + eps)), "The scale is 1 / sqrt(mean + eps): use tl.rsqrt."),
    "the scale is the root itself, not one over it":
        (_one(lambda x, eps: np.sqrt(_mean(x) + eps)), "Use tl.rsqrt, or divide by the root."),
    "the mean of the row was subtracted in the statistic":
        (_one(lambda x, eps: scale_of(_centred(x), eps)), "RMSNorm does not subtract a mean: that is LayerNorm."),
    "the mean was taken over all rows together":
        (_one(lambda x, eps: np.full(len(x), 1 / np.sqrt((x * x).mean() + eps))),
         "Each row has a scale of its own: one sum per row."),
    "the lanes beyond the row counted as 1 in the sum":
        (_one(lambda x, eps: 1 / np.sqrt(((x * x).sum(axis=1) + _padding(x)) / x.shape[1] + eps)),
         "Load masked lanes as the neutral element of a sum: other=0.0."),
    "only the first tile went into the sum":
        (_part(lambda cols, tile: slice(0, tile) if tile < cols else None), "Add up every tile of the row before the root."),
    "only the last tile went into the sum":
        (_part(lambda cols, tile: slice((cols - 1) // tile * tile, cols) if tile < cols else None),
         "Accumulate with +=, from zero, over all tiles."),
    "the columns after the last full tile are missing from the sum":
        (_part(lambda cols, tile: slice(0, cols // tile * tile) if cols % tile and tile < cols else None),
         "The number of tiles is rounded up: range(0, cols, BLOCK), with a mask in the last one."),
    "the last column is missing from the sum":
        (_one(lambda x, eps: 1 / np.sqrt((x[:, :-1]**2).sum(axis=1) / x.shape[1] + eps)),
         "The mask is columns < cols, not less."),
}


def _suspects(finish):
    """Suspects for a task whose outputs are `finish(x, scale, gain, **arguments)`, gain being 1 + weight."""

    def scaled(scales):

        def oracle(x, weight, eps, **rest):
            return [finish(x, scale, 1 + weight, **rest) for scale in scales(x, eps)]

        return oracle

    return (
        Suspect("the weight was applied as weight, not as 1 + weight",
                lambda x, weight, eps, **rest: [finish(x, scale_of(x, eps), weight, **rest)],
                "Here the weight is stored as the difference from one: multiply by (1 + weight)."),
        Suspect("the weight was not applied",
                lambda x, weight, eps, **rest: [finish(x, scale_of(x, eps), np.ones_like(weight), **rest)],
                "Multiply each column by (1 + weight)."),
        Suspect("the mean of the row was subtracted",
                lambda x, weight, eps, **rest: [finish(_centred(x), scale_of(_centred(x), eps), 1 + weight, **rest)],
                "RMSNorm does not subtract a mean: that is LayerNorm."),
        *(Suspect(name, scaled(scales), hint) for name, (scales, hint) in MISTAKEN_SCALES.items()),
    )


def _finish_both(x, scale, gain, **_):
    return _both(x * scale[:, None] * gain, scale)


INVERTED = Suspect("the root mean square was returned where the scale belongs",
                   lambda x, weight, eps, **_: [[Expected("scale", 1 / scale_of(x, eps), "fp32")]],
                   "Store the factor that x is multiplied by: 1 / sqrt(mean + eps).")


# ---------------------------------------------------------------- inputs


def _weight(rng, cols):
    return tensor(rng.normal(0, 0.3, cols), "fp32")


def _rows(rows, cols, dtype, std=1.0, row_stride=None, eps=1e-6):

    def make(rng):
        return {"x": tensor(rng.normal(0, std, (rows, cols)), dtype, row_stride), "weight": _weight(rng, cols),
                "eps": eps}

    return make


def _outlier(rows, cols, dtype):
    """Small values and one large one in the last column: a sum that ends early misses it."""

    def make(rng):
        x = rng.normal(0, 0.01, (rows, cols))
        x[:, -1] = 50.0
        return {"x": tensor(x, dtype), "weight": _weight(rng, cols), "eps": 1e-6}

    return make


def _zeros(rows, cols, dtype):

    def make(rng):
        x = rng.normal(0, 1, (rows, cols))
        x[0] = 0
        return {"x": tensor(x, dtype), "weight": _weight(rng, cols), "eps": 1e-5}

    return make


def _large(rows, cols):
    """fp16 values whose squares overflow fp16, which ends at 65,504."""

    def make(rng):
        x = rng.uniform(300, 2000, (rows, cols)) * rng.choice([-1, 1], (rows, cols))
        return {"x": tensor(x, "fp16"), "weight": _weight(rng, cols), "eps": 1e-6}

    return make


def _with(make, **more):
    """The same inputs with further arguments at the end."""
    return lambda rng: {**make(rng), **more}


# ---------------------------------------------------------------- 05.1 count the bytes


def _sizes(rng):
    return {"rows": int(rng.integers(100, 20_000)), "cols": int(rng.integers(100, 20_000)),
            "itemsize": int(rng.choice([2, 4]))}


PASSES = {"eager_bytes": 7, "two_pass_bytes": 3, "resident_bytes": 2}  # over a matrix of rows x cols
PER_ROW = {"eager_bytes": 4, "two_pass_bytes": 1, "resident_bytes": 1}  # fp32 values read or written per row


def _count(function, passes=0, weights=None, per_row=None, itemsize_of_row=None, elements=False):
    """Bytes of one variant, with one thing counted differently."""

    def oracle(rows, cols, itemsize):
        matrix = (PASSES[function] + passes) * rows * cols
        weight = cols if weights is None else weights(rows, cols)
        if elements:
            return [Expected("bytes", matrix + weight + PER_ROW[function] * rows)]
        row = (PER_ROW[function] if per_row is None else per_row) * rows * (itemsize_of_row or (lambda i: 4))(itemsize)
        return [Expected("bytes", (matrix + weight) * itemsize + row)]

    return oracle


def _every(**change):
    """A suspect's guesses for all three functions."""
    return {function: _guess(function, **change) for function in PASSES}


def _guess(function, **change):
    oracle = _count(function, **change)
    return lambda **sizes: [oracle(**sizes)]


COUNT = Task(
    id="05.1", title="Count the bytes of three variants", points=3, functions=tuple(PASSES),
    oracle={function: _count(function) for function in PASSES},
    cases=tuple(Case(f"{function}, sizes {turn}", _sizes, function) for function in PASSES for turn in (1, 2)),
    suspects=(
        Suspect("the weight was counted once per row", _every(weights=lambda rows, cols: rows * cols),
                "All rows share one weight: DRAM delivers it once and the caches serve the rest."),
        Suspect("the weight was left out", _every(weights=lambda rows, cols: 0),
                "The weight is read too: cols elements, once."),
        Suspect("the values kept per row were left out", _every(per_row=0),
                "One fp32 number per row is small beside a row, but it is written (and, unfused, read again)."),
        Suspect("the values kept per row were counted with itemsize", _every(itemsize_of_row=lambda i: i),
                "They are fp32 whatever x is: 4 bytes each."),
        Suspect("elements were counted, not bytes", _every(elements=True), "Multiply by the bytes of an element."),
        Suspect("x was counted once, and the variant reads it twice",
                {f: _guess(f, passes=-1) for f in ("eager_bytes", "two_pass_bytes")},
                "Go through the steps and note for each what it reads: x comes up twice."),
        Suspect("x was counted twice, and the resident kernel reads it once",
                {"resident_bytes": _guess("resident_bytes", passes=1)},
                "The row stays in registers between the sum and the output."),
        Suspect("one pass over the matrix too many was counted", _every(passes=1),
                "x * x reads x once, and a fused kernel writes only y."),
        Suspect("several intermediate results were left out", {"eager_bytes": _guess("eager_bytes", passes=-4)},
                "Each PyTorch operation reads its inputs from memory and writes its result back to memory."),
    ),
    hints={"wrong": "List each step with what it reads and what it writes, then add up."},
)

# ---------------------------------------------------------------- 05.2 the loop in PyTorch


def _loop(make, block):
    return _with(make, block=block)


TILE_LOOP = Task(
    id="05.2", title="The tile loop, in PyTorch", points=3, functions=("tile_loop", ),
    oracle=norm_and_scale,
    cases=(
        Case("4 x 256 fp32, tiles of 64", _loop(_rows(4, 256, "fp32"), 64)),
        Case("3 x 1000 bf16, tiles of 128: a ragged last tile", _loop(_rows(3, 1000, "bf16"), 128)),
        Case("5 x 1 fp16, tiles of 64: one column", _loop(_rows(5, 1, "fp16"), 64)),
        Case("7 x 129 fp32, tiles of 64: one column over", _loop(_rows(7, 129, "fp32"), 64)),
        Case("2 x 300 fp32, a row of zeros", _loop(_zeros(2, 300, "fp32"), 64)),
        Case("2 x 500 fp32, small values, eps 0.001", _loop(_rows(2, 500, "fp32", std=0.01, eps=1e-3), 100)),
        Case("2 x 400 fp16, large values", _loop(_large(2, 400), 128)),
        Case("2 x 700 fp32, outlier in the last column", _loop(_outlier(2, 700, "fp32"), 256)),
    ),
    suspects=(*_suspects(_finish_both), INVERTED),
    tile_elements=lambda x, weight, eps, block: len(x) * block,
    hints={"tail": "The last slice is shorter where block does not divide cols: let the slice's end be min(start + block, "
                   "cols), in both loops.",
           "nan": "A part of y was never written, or something was divided by zero: check that the second loop covers "
                  "every column and that eps is under the root."},
)

# ---------------------------------------------------------------- 05.3 the resident kernel


def _norm_bytes(x, weight, eps, **_):
    rows, cols = x.shape
    return {"x": x.nbytes, "weight": rows * cols * 4, "returned 0": rows * cols * 4, "returned 1": rows * 4}


RESIDENT = Task(
    id="05.3", title="The resident kernel", points=4, functions=("gemma_norm", ), kernel=True,
    oracle=norm_and_scale,
    cases=(
        Case("4 x 256 fp32", _rows(4, 256, "fp32")),
        Case("3 x 1000 bf16, ragged", _rows(3, 1000, "bf16")),
        Case("5 x 1 fp32, one column", _rows(5, 1, "fp32")),
        Case("2 x 1023 fp16, one less than a power of two", _rows(2, 1023, "fp16")),
        Case("2 x 1025 fp32, one more than a power of two", _rows(2, 1025, "fp32")),
        Case("3 x 777 fp32, rows 1,000 elements apart", _rows(3, 777, "fp32", row_stride=1000),
             hint="This x has padded rows: the next row starts x.stride(0) elements on, not cols. y has its own stride."),
        Case("2 x 4099 bf16, a wide row", _rows(2, 4099, "bf16")),
        Case("2 x 300 fp32, a row of zeros", _zeros(2, 300, "fp32")),
        Case("2 x 500 fp32, small values, eps 0.001", _rows(2, 500, "fp32", std=0.01, eps=1e-3)),
        Case("2 x 400 fp16, large values", _large(2, 400)),
        Case("1 x 32768 fp32, the widest row", _rows(1, 32768, "fp32")),
        Case("1 x 32768 bf16, outlier in the last column", _outlier(1, 32768, "bf16")),
    ),
    suspects=(*_suspects(_finish_both), INVERTED),
    minimum_bytes=_norm_bytes,
    hints={
        "unwritten": "The tile is narrower than the row. A resident kernel's tile spans the row: "
                     "BLOCK = triton.next_power_of_2(cols).",
        "bytes": "Load the row once: the registers that gave the sum of squares also give the output.",
    },
    speed=Speed(points=1, share=0.75, bytes=8192 * 8192 * 6 + 8192 * 8, shape="8192 x 8192 bf16",
                make=lambda: {"x": RandomTensor((8192, 8192), "bf16"), "weight": RandomTensor((8192, ), "fp32", 0, 0.3),
                              "eps": 1e-6}),
)

# ---------------------------------------------------------------- 05.4 the streaming kernel


def _finish_as(x, scale, gain, out_dtype):
    return [Expected("y", x * scale[:, None] * gain, out_dtype.name)]


def wide(x, weight, eps, out_dtype):
    """What 05.4 returns: y in the dtype asked for."""
    return _finish_as(x, scale_of(x, eps), 1 + weight, out_dtype)


def _to(make, dtype):
    return _with(make, out_dtype=DType(dtype))


def _wide_bytes(x, weight, eps, out_dtype):
    rows, cols = x.shape
    return {"x": 2 * x.nbytes, "weight": rows * cols * 4, "returned 0": rows * cols * SIZE[out_dtype.name]}


STREAMING = Task(
    id="05.4", title="The streaming kernel, for rows of any width", points=4, functions=("wide_norm", ), kernel=True,
    oracle=wide,
    cases=(
        Case("3 x 1000 fp32 to fp32", _to(_rows(3, 1000, "fp32"), "fp32")),
        Case("4 x 1 fp16 to fp32, one column", _to(_rows(4, 1, "fp16"), "fp32")),
        Case("2 x 4096 bf16 to fp32, one widest tile", _to(_rows(2, 4096, "bf16"), "fp32")),
        Case("2 x 4097 fp32 to bf16, one column over", _to(_rows(2, 4097, "fp32"), "bf16")),
        Case("2 x 10007 bf16 to bf16, a prime", _to(_rows(2, 10007, "bf16"), "bf16")),
        Case("2 x 5000 fp16 to fp16, rows 5,120 elements apart", _to(_rows(2, 5000, "fp16", row_stride=5120), "fp16"),
             hint="This x has padded rows: the next row starts x.stride(0) elements on, not cols."),
        Case("2 x 400 fp16 to fp32, large values", _to(_large(2, 400), "fp32")),
        Case("2 x 500 fp32 to fp32, small values, eps 0.001", _to(_rows(2, 500, "fp32", std=0.01, eps=1e-3), "fp32")),
        Case("1 x 40000 fp32 to fp32, ten tiles", _to(_rows(1, 40000, "fp32"), "fp32")),
        Case("1 x 70001 bf16 to fp32, outlier in the last column", _to(_outlier(1, 70001, "bf16"), "fp32")),
    ),
    suspects=_suspects(_finish_as),
    minimum_bytes=_wide_bytes, max_tile=4096,
    hints={
        "unwritten": "The second loop has to cover every tile of the row, the ragged last one too.",
        "bytes": "Two passes read x twice; the weight is needed only in the second, and y is written once.",
        "dtype": "Allocate y with dtype=out_dtype; `tl.store` casts to the type of the pointer.",
    },
    speed=Speed(points=1, share=0.45, bytes=4096 * 65536 * 4 + 65536 * 4, shape="4096 x 65536 bf16",
                make=lambda: {"x": RandomTensor((4096, 65536), "bf16"),
                              "weight": RandomTensor((65536, ), "fp32", 0, 0.3), "eps": 1e-6, "out_dtype": DType("bf16")}),
)

# ---------------------------------------------------------------- 05.5 residual add and norm


def _finish_normed(total, scale, gain, _dtype, stored):
    return [Expected("y", total * scale[:, None] * gain, _dtype.name), Expected("residual", stored, "fp32", "residual")]


def add_norm(x, residual, weight, eps, _dtype):
    """What 05.5 returns, and what it leaves in residual."""
    total = rounded(x + residual, "fp32")
    return _finish_normed(total, scale_of(total, eps), 1 + weight, _dtype, total)


def _of_the_sum(oracle):
    """A suspect of the plain norm, applied to the sum."""
    return lambda x, residual, weight, eps, _dtype: oracle(x + residual, weight, eps, _dtype=_dtype, stored=x + residual)


def _added_suspect(name, sums, hint):
    """sums(x, residual) -> (what was stored, what was normed)."""

    def oracle(x, residual, weight, eps, _dtype):
        stored, normed = sums(x, residual)
        return [_finish_normed(normed, scale_of(normed, eps), 1 + weight, _dtype, stored)]

    return Suspect(name, oracle, hint)


def _sixteen(values):
    return rounded(values, "bf16")


def _added(rows, cols, dtype, residual=1.0, eps=1e-6, cancel=False, std=1.0):

    def make(rng):
        x = rng.normal(0, std, (rows, cols))
        if cancel:
            x = rounded(x, dtype)
        before = -x + rng.normal(0, 0.05, x.shape) if cancel else rng.normal(0, residual, (rows, cols))
        return {"x": tensor(x, dtype), "residual": tensor(before, "fp32"), "weight": _weight(rng, cols), "eps": eps,
                "_dtype": DType(dtype)}

    return make


def _added_bytes(x, residual, weight, eps, _dtype):
    rows, cols = x.shape
    return {"x": x.nbytes, "residual": 2 * rows * cols * 4, "weight": rows * cols * 4, "returned 0": x.nbytes}


ADDED = Task(
    id="05.5", title="Residual add and norm at minimum traffic", points=5, functions=("add_gemma_norm", ), kernel=True,
    oracle=add_norm,
    cases=(
        Case("4 x 256 fp32", _added(4, 256, "fp32")),
        Case("3 x 1000 bf16, ragged", _added(3, 1000, "bf16")),
        Case("5 x 1 fp32, one column", _added(5, 1, "fp32")),
        Case("2 x 1025 fp16, one more than a power of two", _added(2, 1025, "fp16")),
        Case("2 x 4099 fp32, a wide row", _added(2, 4099, "fp32")),
        Case("2 x 777 fp32, x and residual nearly cancel", _added(2, 777, "fp32", cancel=True)),
        Case("2 x 600 bf16, a large residual", _added(2, 600, "bf16", residual=300.0)),
        Case("2 x 300 fp16, a sum whose square overflows fp16", _added(2, 300, "fp16", residual=1000.0)),
        Case("2 x 500 fp32, small values, eps 0.001", _added(2, 500, "fp32", std=0.01, residual=0.01, eps=1e-3)),
        Case("1 x 32768 fp32, the widest row", _added(1, 32768, "fp32")),
    ),
    suspects=(
        _added_suspect("the residual was not updated", lambda x, residual: (residual, x + residual),
                       "Store the sum back into residual, in place."),
        _added_suspect("x alone was normed, not the sum", lambda x, residual: (x + residual, x),
                       "The norm takes residual + x."),
        _added_suspect("the residual from before the addition was normed", lambda x, residual: (x + residual, residual),
                       "The norm takes residual + x."),
        _added_suspect("the sum was rounded to 16 bits", lambda x, residual: (_sixteen(x + residual), ) * 2,
                       "The residual stream stays fp32: convert x to fp32, add, store the fp32 sum."),
        _added_suspect("x was subtracted", lambda x, residual: (residual - x, ) * 2, "The norm takes residual + x."),
        Suspect("the scale is that of x alone, or of the old residual",
                lambda x, residual, weight, eps, _dtype: [
                    _finish_normed(x + residual, scale_of(part, eps), 1 + weight, _dtype, x + residual)
                    for part in (x, residual)],
                "The sum of squares is taken over the new residual, x + residual."),
        Suspect("the normed rows were written over the residual",
                lambda x, residual, weight, eps, _dtype: [[
                    Expected("residual", gemma(x + residual, weight, scale_of(x + residual, eps)), "fp32", "residual")]],
                "residual gets the sum; y, a tensor of its own, gets the normed sum."),
        *(Suspect(s.name, _of_the_sum(s.oracle), s.hint) for s in _suspects(_finish_normed)),
    ),
    minimum_bytes=_added_bytes,
    hints={
        "unwritten": "The tile is narrower than the row: BLOCK = triton.next_power_of_2(cols), as in 05.3.",
        "bytes": "x and residual are read once, residual and y are written once, and nothing else moves: keep the sum in "
                 "registers until y is stored.",
    },
    speed=Speed(points=1, share=0.75, bytes=8192 * 8192 * 12 + 8192 * 4, shape="8192 x 8192 bf16",
                make=lambda: {"x": RandomTensor((8192, 8192), "bf16"), "residual": RandomTensor((8192, 8192), "fp32"),
                              "weight": RandomTensor((8192, ), "fp32", 0, 0.3), "eps": 1e-6,
                              "_dtype": DType("bf16")}),
)

# ---------------------------------------------------------------- 05.6 the wrong accumulator

TILE = 64
OFF_BY, RIGHT_WITHIN, LARGEST = 0.10, 0.03, 4.0


def _bf16(values):
    return rounded(values, "bf16").astype(np.float32)


def lanes(row):
    """64 fp32 running sums, added up at the end."""
    return float(np.sum((row.astype(np.float32)**2).reshape(-1, TILE).sum(axis=0, dtype=np.float32), dtype=np.float32))


def tree(row):
    """Squares and every partial sum in bf16, added in pairs, in pairs of pairs and so on."""
    sums = _bf16(row.astype(np.float32)**2)
    sums = np.concatenate([sums, np.zeros(2**int(np.ceil(np.log2(len(sums)))) - len(sums), np.float32)])
    while len(sums) > 1:
        sums = _bf16(sums[0::2] + sums[1::2])
    return float(sums[0])


def squares(row):
    """Squares rounded to bf16, added in fp32."""
    return float(np.sum(_bf16(row.astype(np.float32)**2), dtype=np.float32))


def carry(row):
    """fp32 within a tile of 64, a bf16 running sum from tile to tile."""
    total = np.float32(0)
    for tile in (row.astype(np.float32)**2).reshape(-1, TILE):
        total = _bf16(total + tile.sum(dtype=np.float32))
    return float(total)


ACCUMULATORS = {"lanes": lanes, "tree": tree, "squares": squares, "carry": carry}


def _shown(arguments, returned):
    """Whether the named accumulator is far off on the returned row while the others are right."""
    cols = arguments["cols"]
    if len(returned) != 2:
        return f"{len(returned)} values came back, expected the name of an accumulator and a row"
    name, row = returned
    if not isinstance(name, str) or name not in ACCUMULATORS:
        said = repr(name) if isinstance(name, str) else f"the first value, a {type(name).__name__},"
        return f"{said} is none of the four names: " + ", ".join(ACCUMULATORS)
    if not isinstance(row, np.ndarray) or row.shape != (cols, ):
        got = f"shape {list(row.shape)}" if isinstance(row, np.ndarray) else type(row).__name__
        return f"the row has to be a tensor of shape [{cols}], got {got}"
    if not np.isfinite(row).all() or np.abs(row).max() > LARGEST:
        return f"every value of the row has to lie between -{LARGEST:g} and {LARGEST:g}"
    if not np.array_equal(rounded(row, "bf16"), row):
        return "every value of the row has to be a bf16 number, so that no accumulator is blamed for rounding the input"
    exact = float((row * row).sum())
    if exact == 0:
        return "a row of zeros shows nothing"
    errors = {other: abs(sum_of(row) / exact - 1) for other, sum_of in ACCUMULATORS.items()}
    if errors[name] < OFF_BY:
        advice = ("Think of when a bf16 running sum no longer changes: it has 8 significant bits, so it absorbs whatever is "
                  "less than 1/512 of it.")
        return f"on this row {name} is not off by {OFF_BY:.0%} or more, but by {errors[name]:.1%}. {advice}"
    if max(error for other, error in errors.items() if other != name) > RIGHT_WITHIN:  # which one, is theirs to find
        return (f"on this row {name} is off by {errors[name]:.1%}, and another one by more than {RIGHT_WITHIN:.0%} as "
                "well, so the row does not tell them apart")
    return ""


HUNT = Task(
    id="05.6", title="Which accumulator is wrong? Show it", points=3, functions=("show_wrong", ),
    verdict=_shown,
    cases=tuple(Case(f"row {turn}", lambda rng: {"cols": TILE * int(rng.integers(128, 257))}) for turn in (1, 2, 3)),
    success="the accumulator that you named is off by 10% or more on your rows, and the other three are not",
)

TASKS = (COUNT, TILE_LOOP, RESIDENT, STREAMING, ADDED, HUNT)
