"""Exercise 09b, products in FP8: what scales and promotion cost, a layout of scales that is wrong on the device, and a
kernel with block scales."""

import numpy as np

from grading.tasks import Case, Slip, Task, gives, rounded, tensor
from grading.tasks.lesson_03 import MORE_TILES, ROWS_APART, between, ceil, one_of

EXERCISE = "09b_fp8_matmul"

GROUP, STRIPE = 64, 32  # of K per scale, of the weight's rows per scale

# ---------------------------------------------------------------- 09b.1 count


@gives("bytes")
def scale_bytes(m, n, k):
    """fp32 scales: of x one for 1 x 64, of w one for 32 x 64."""
    groups = ceil(k, 64)
    return 4 * (m * groups + ceil(n, 32) * groups)


@gives("share")
def promotion_share(every, matrix, vector):
    """Seconds of the vector units over seconds of the matrix units, for one element of y and any K."""
    return (2 / vector) / (2 * every / matrix)


def some_sizes(rng):
    """No number of rows or columns that a block divides, and more rows of x than three times w's stripes."""
    return {"m": 32 * between(rng, 4, 9) + 5, "n": 32 * between(rng, 20, 40) + 17, "k": 64 * between(rng, 50, 90) + 33}


def even_sizes(rng):
    return {"m": 2 * between(rng, 130, 200) + 1, "n": 64 * between(rng, 20, 40), "k": 128 * between(rng, 30, 50)}


def rates(low, high):
    return lambda rng: {
        "every": one_of(rng, 32, 64, 128, 256),
        "matrix": 1e12 * between(rng, low, high),
        "vector": 1e12 * between(rng, 20, 90),
    }


COUNT = Task(
    id="09b.1",
    title="Count what scales and promotion cost",
    points=2,
    functions={oracle.__name__: oracle for oracle in (scale_bytes, promotion_share)},
    cases=(
        Case("scale_bytes, sizes that the blocks divide", even_sizes, "scale_bytes"),
        Case("scale_bytes, ragged sizes", some_sizes, "scale_bytes"),
        Case("promotion_share, some GPU", rates(200, 900), "promotion_share"),
        Case("promotion_share, another GPU", rates(1000, 5000), "promotion_share"),
    ),
    slips=(
        Slip(
            "the ragged group at the end of K has no scale",
            "A group that K cuts short has a scale too: round the number of groups up.",
            "groups = ceil(k, 64) -> groups = k // 64",
        ),
        Slip(
            "the ragged stripe of w's rows has no scale",
            "The last rows of w have a scale too: round up.",
            "ceil(n, 32) -> n // 32",
        ),
        Slip("w was given a scale for every row", "In w, 32 rows share a scale.", "ceil(n, 32) * groups -> n * groups"),
        Slip(
            "x was given a scale for every 32 rows",
            "In x, every row has scales of its own.",
            "m * groups -> ceil(m, 32) * groups",
        ),
        Slip("scales were counted, not bytes", "A scale here is fp32: 4 bytes.", "4 * (m -> (m"),
        Slip(
            "groups of 128 were counted",
            "That is DeepSeek-V3's block; here a group is 64 of K.",
            "ceil(k, 64) -> ceil(k, 128)",
        ),
        Slip("the scales of w were left out", "Both operands have scales.", " + ceil(n, 32) * groups -> "),
        Slip("the scales of x were left out", "Both operands have scales.", "m * groups + -> 0 * groups +"),
        Slip(
            "the share was turned over",
            "The vector units' seconds are divided by the matrix units'.",
            "(2 / vector) / (2 * every / matrix) -> (2 * every / matrix) / (2 / vector)",
        ),
        Slip(
            "a multiplication and an addition were counted as one on one side alone",
            "A multiplication and an addition are two FLOPs, in the product as in the promotion.",
            "(2 / vector) -> (1 / vector)",
            "(2 * every / matrix) -> (every / matrix)",
        ),
        Slip(
            "promotion was counted for every k",
            "Within `every` elements of K the matrix unit adds up by itself: one promotion for all of them.",
            "(2 * every / matrix) -> (2 / matrix)",
        ),
    ),
    hints={
        "wrong": "Write down what one row of x has, and what 32 rows of w have; for the share, what happens to one "
        "element of y while K goes on by `every`.",
        "type": "Bytes are whole: return an int. The share is a float.",
    },
)

# ---------------------------------------------------------------- 09b.2 a layout

ROWS, GROUPS, ONE = 32, 8, 127  # of a tile of scales; the E8M0 code of 1


@gives("row", "group")
def used_instead(row, group):
    """What the device reads for (row, group) where `packed_wrong` has written."""
    r, g = row % 32, group % 8
    place = (g % 4 * 16 + r % 16) * 4 + g // 4 * 2 + r // 16
    high, low, middle, half = place // 128, place // 8 % 16, place // 2 % 4, place % 2
    return row - r + half * 16 + low, group - g + high * 4 + middle


@gives(packed="uint8")
def packed(scales):
    """Tile by tile, along a row of tiles first; within a tile [group % 4, row % 16, group // 4, row // 16]."""
    rows, groups = scales.shape
    down, across = ceil(rows, 32), ceil(groups, 8)
    padded = np.full((down * 32, across * 8), 127, np.uint8)
    padded[:rows, :groups] = scales
    tiles = padded.reshape(down, 2, 16, across, 2, 4)
    return tiles.transpose(0, 3, 5, 2, 4, 1).reshape(-1)


def place_of(tiles):
    """Somewhere in the tile that is (tiles, tiles) away from the first, and not where both layouts agree."""

    def make(rng):
        while True:
            row, group = between(rng, 0, 31), between(rng, 0, 7)
            there = used_instead(row, group)
            if there != (row, group) and used_instead(*there) != (row, group):
                return {"row": row + 32 * tiles, "group": group + 8 * tiles}

    return make


def codes(rows, groups):
    return lambda rng: {"scales": tensor(rng.integers(100, 150, (rows, groups)), "uint8")}


ORDER = "transpose(0, 3, 5, 2, 4, 1)"
LAYOUT = Task(
    id="09b.2",
    title="Right in NumPy, garbage on the device",
    points=4,
    functions={"used_instead": used_instead, "packed": packed},
    cases=(
        Case("used_instead, in the first tile", place_of(0), "used_instead"),
        Case("used_instead, elsewhere in the first tile", place_of(0), "used_instead"),
        Case("used_instead, in another tile", place_of(3), "used_instead"),
        Case("packed, 32 x 8: one tile", codes(32, 8), "packed"),
        Case("packed, 64 x 24: six tiles", codes(64, 24), "packed"),
        Case("packed, 50 x 13: ragged", codes(50, 13), "packed"),
        Case("packed, 1 x 1", codes(1, 1), "packed"),
    ),
    slips=(
        Slip(
            "this is where the scale is used, not which scale is used there",
            "The device reads a byte at the place of (row, group). Ask which scale `packed_wrong` has put there.",
            (
                "place = (g % 4 * 16 + r % 16) * 4 + g // 4 * 2 + r // 16 -> "
                "place = g // 4 * 128 + r % 16 * 8 + g % 4 * 2 + r // 16",
                "high, low, middle, half = place // 128, place // 8 % 16, place // 2 % 4, place % 2 -> "
                "middle, low, high, half = place // 64, place // 4 % 16, place // 2 % 2, place % 2",
            ),
        ),
        Slip(
            "this is the place within the tile",
            "Tiles lie one after the other, and the scale comes from the same tile: add where that begins.",
            ("row - r + half -> half", "group - g + high -> high"),
        ),
        Slip(
            "both layouts were taken to agree",
            "Follow one scale: compute the byte that the device reads, and what `packed_wrong` wrote there.",
            "return row - r + half * 16 + low, group - g + high * 4 + middle -> return row, group",
        ),
        Slip(
            "it still packs as packed_wrong does",
            "Compare the order of the six axes with the formula, the slowest first: which part of the group changes "
            "with every 64 bytes?",
            f"{ORDER} -> transpose(0, 3, 4, 2, 5, 1)",
            answer="permute(0, 3, 5, 2, 4, 1) -> permute(0, 3, 4, 2, 5, 1)",
        ),
        Slip(
            "tiles are in the wrong order",
            "Tiles follow each other along the groups first: all tiles of the first 32 rows, then the next 32 rows.",
            f"{ORDER} -> transpose(3, 0, 5, 2, 4, 1)",
            answer="permute(0, 3, 5, 2, 4, 1) -> permute(3, 0, 5, 2, 4, 1)",
        ),
        Slip(
            "the halves of rows and of groups are exchanged",
            "row // 16 changes with every byte, group // 4 with every second one.",
            f"{ORDER} -> transpose(0, 3, 5, 2, 1, 4)",
            answer="permute(0, 3, 5, 2, 4, 1) -> permute(0, 3, 5, 2, 1, 4)",
        ),
        Slip(
            "rows 2 r and 2 r + 1 were put beside each other",
            "Beside row r lies row r + 16: split rows into 2 x 16, not 16 x 2.",
            (
                "reshape(down, 2, 16, across, 2, 4) -> reshape(down, 16, 2, across, 2, 4)",
                f"{ORDER} -> transpose(0, 3, 5, 1, 4, 2)",
            ),
            answer=(
                "reshape(down, 2, 16, -> reshape(down, 16, 2,",
                "permute(0, 3, 5, 2, 4, 1) -> permute(0, 3, 5, 1, 4, 2)",
            ),
        ),
        Slip(
            "groups 2 g and 2 g + 1 were put beside each other",
            "Beside group g lies group g + 4: split groups into 2 x 4, not 4 x 2.",
            ("across, 2, 4) -> across, 4, 2)", f"{ORDER} -> transpose(0, 3, 4, 2, 5, 1)"),
            answer=("across, 2, 4) -> across, 4, 2)", "permute(0, 3, 5, 2, 4, 1) -> permute(0, 3, 4, 2, 5, 1)"),
        ),
        Slip(
            "each tile lies row by row",
            "Within a tile the order is another: the byte is (g % 4 * 16 + r % 16) * 4 + g // 4 * 2 + r // 16.",
            f"{ORDER} -> transpose(0, 3, 1, 2, 4, 5)",
            answer="permute(0, 3, 5, 2, 4, 1) -> permute(0, 3, 1, 2, 4, 5)",
        ),
        Slip(
            "the padding holds zeros",
            "Code 0 stands for 2**-127. Fill up with 127, the code of 1.",
            "* 8), 127, -> * 8), 0,",
            answer="across * 8), 127, -> across * 8), 0,",
        ),
        Slip("the padding holds 255", "Code 255 is NaN. Fill up with 127, the code of 1.", "* 8), 127, -> * 8), 255,"),
    ),
    hints={
        "shape": "One dimension: 256 bytes for each tile that has to be there, ragged ones filled up.",
        "dtype": "The codes stay uint8.",
        "wrong": "Take a tile whose codes are 0, 1, 2, ... and write beside each byte which one the formula wants. "
        "What fills up a tile that is cut short is 127.",
    },
)

# ---------------------------------------------------------------- 09b.3 the kernel


def sixteen(values, dtype):
    """What is left of a sum in 16 bits."""
    return rounded(values, dtype)


@gives(y="bf16")
def scaled_linear(x, w, x_scale, w_scale, bias):
    """y = x w^T + bias, for each group of 64 of K the product of the codes times both scales; the sum in fp32."""
    total = np.zeros((len(x), len(w)))
    stripe = np.arange(len(w)) // 32
    for group in range(ceil(x.shape[1], 64)):
        part = x[:, 64 * group :][:, :64] @ w[:, 64 * group :][:, :64].T
        total = total + part * x_scale[group][:, None] * w_scale[stripe, group]
    return total + bias


def operands(m, n, k, x_stride=None, w_stride=None, spread=1.0, scales=(0.004, 0.04), bias=(1, 4)):
    """Codes whose mean is not 0, so that no row of the result is a small difference of large numbers; scales that
    differ from group to group and from row to row, w's 3/4 of x's. The rows of x_scale begin on 16 bytes."""

    def make(rng):
        groups, x_row = ceil(k, GROUP), ceil(m, 4) * 4
        return {
            "x": tensor(rng.normal(40, 40 * spread, (m, k)), "e4m3", x_stride),
            "w": tensor(rng.normal(30, 30 * spread, (n, k)), "e4m3", w_stride),
            "x_scale": tensor(rng.uniform(*scales, (groups, m)), "fp32", x_row),
            "w_scale": tensor(0.75 * rng.uniform(*scales, (ceil(n, STRIPE), groups))),
            "bias": tensor(rng.uniform(*bias, n)),
        }

    return make


SIDE, WIDEST = 32, 64  # sides of a tile: at least, at most


def least(x, w, x_scale, w_scale, bias):
    """What programs with tiles of 32 x 32 ask for, a scale of each row and column at every 32 of K."""
    (m, k), n = x.shape, w.shape[0]
    down, across, steps = ceil(m, SIDE), ceil(n, SIDE), ceil(k, SIDE)
    return {
        "x": m * k * across,
        "w": n * k * down,
        "x_scale": 4 * m * steps * across,
        "w_scale": 4 * n * steps * down,
        "bias": 4 * n * down,
        "returned 0": 2 * m * n,
    }


OTHERS = "max(group - 1, 0)", "min(group + 1, len(x_scale) - 1)", "group // 2", "0"  # groups that are another's
ADDED = "total + part * x_scale[group][:, None] * w_scale[stripe, group]"
SCALED = "total += part * x_scale[:, None] * w_scale[None, :]"  # in the answer
PRODUCT = Task(
    id="09b.3",
    title="FP8 with block scales: promoted every 64 of K",
    points=6,
    functions={"scaled_linear": scaled_linear},
    kernel=True,
    architectures=(89, 90),
    products=".e4m3.e4m3",
    cases=(
        # the bias takes most of the sum away, so what is rounded before it is added shows
        Case("32 x 64 x 64, one group", operands(32, 64, 64, spread=0.3, scales=(0.02, 0.024), bias=(-36, -12))),
        Case("64 x 64 x 256", operands(64, 64, 256)),
        Case("33 x 70 x 136, ragged", operands(33, 70, 136)),
        Case("16 x 64 x 1,536, many groups", operands(16, 64, 1536)),
        Case("32 x 64 x 192, small scales", operands(32, 64, 192, scales=(8e-4, 1.2e-3), bias=(0.05, 0.2))),
        Case("1 x 1 x 1", operands(1, 1, 1, spread=0.1)),
        Case(
            "40 x 96 x 128, rows of x 144 elements apart",
            operands(40, 96, 128, x_stride=144),
            hint=ROWS_APART.format("x"),
        ),
        Case(
            "40 x 96 x 128, rows of w 160 elements apart",
            operands(40, 96, 128, w_stride=160),
            hint=ROWS_APART.format("w"),
        ),
        Case(
            "1 x 8,480 x 1, more tiles, of 64 even, than a GPU has multiprocessors",
            operands(1, 8480, 1, spread=0.1),
            hint=MORE_TILES,
        ),
    ),
    slips=(
        Slip(
            "one sum ran through all of K, and was scaled at the end",
            "Scales differ from group to group: the product of one group's codes is multiplied by that group's scales "
            "and added to a second sum. That is the promotion.",
            (
                f"{ADDED} -> total + part",
                "return total + bias -> return total * x_scale[group][:, None] * w_scale[stripe, group] + bias",
            ),
            (
                f"{ADDED} -> total + part",
                "return total + bias -> return total * x_scale[0][:, None] * w_scale[stripe, 0] + bias",
            ),
            answer=(
                "part = tl.dot(x, w) -> total = tl.dot(x, w, total)",
                f"        {SCALED} -> ",
                "bias = tl.load -> total *= tl.load(x_scale_ptr + row, mask=row < M, other=0.0)[:, None] "
                "* tl.load(w_scale_ptr + col // 32 * w_scale_stride, mask=col < N, other=0.0)[None, :]\n"
                "    bias = tl.load",
            ),
        ),
        Slip(
            "the sum so far was scaled again with every group",
            "Scale the product of this group alone, then add it to the sum.",
            f"{ADDED} -> (total + part) * x_scale[group][:, None] * w_scale[stripe, group]",
        ),
        Slip(
            "a scale was applied twice",
            "Each scale multiplies its group's product once.",
            "x_scale[group][:, None] -> x_scale[group][:, None] ** 2",
            "w_scale[stripe, group] -> w_scale[stripe, group] ** 2",
            f"{ADDED} -> total + part * (x_scale[group][:, None] * w_scale[stripe, group]) ** 2",
        ),
        Slip(
            "x's scales were read along the wrong axis",
            "x_scale is [groups, M]: the scale of row m in group g is x_scale[g, m], at g * x_scale.stride(0) + m.",
            "x_scale[group][:, None] -> x_scale.reshape(x_scale.shape[::-1])[:, group][:, None]",
        ),
        Slip(
            "w's scales were read along the wrong axis",
            "w_scale is [ceil(N / 32), groups]: a row of it holds the groups of 32 rows of w.",
            "w_scale[stripe, group] -> w_scale.reshape(w_scale.shape[::-1])[group, stripe]",
        ),
        Slip(
            "the scales of another group were used",
            "Elements 64 g to 64 g + 63 of K belong to group g.",
            "x_scale[group][:, None] * w_scale[stripe, group] -> "
            "x_scale[group - 1][:, None] * w_scale[stripe, group - 1]",
            "x_scale[group][:, None] * w_scale[stripe, group] -> "
            "x_scale[min(group + 1, len(x_scale) - 1)][:, None] * w_scale[stripe, min(group + 1, len(x_scale) - 1)]",
            "x_scale[group][:, None] * w_scale[stripe, group] -> "
            "x_scale[group // 2][:, None] * w_scale[stripe, group // 2]",
            "x_scale[group][:, None] * w_scale[stripe, group] -> x_scale[0][:, None] * w_scale[stripe, 0]",
            *(f"x_scale[group] -> x_scale[{other}]" for other in OTHERS),
            *(f"w_scale[stripe, group] -> w_scale[stripe, {other}]" for other in OTHERS),
            answer="group = start // 64 -> group = start // 128",
        ),
        Slip(
            "w's scales were given to other rows of w",
            "32 rows of w share a scale: row n has that of n // 32.",
            "len(w)) // 32 -> len(w)) // 64",
            "len(w)) // 32 -> len(w)) // TILE * (TILE // 32)",
            "len(w)) // 32 -> len(w)) // 32 * 0",
            answer="col // 32 -> col // 64",
        ),
        Slip(
            "the rows of w_scale were taken to be shorter",
            "A row of w_scale has a scale for the group that K cuts short, too: the next row begins "
            "w_scale.stride(0) elements on, not K // 64.",
            "w_scale[stripe, group] -> w_scale.reshape(-1)[stripe * (x.shape[1] // 64) + group]",
            "w_scale[stripe, group] -> w_scale.reshape(-1)[stripe * max(x.shape[1] // 64, 1) + group]",
        ),
        Slip("x's scales were left out", "Both operands have scales.", " * x_scale[group][:, None] -> "),
        Slip("w's scales were left out", "Both operands have scales.", " * w_scale[stripe, group] -> "),
        Slip(
            "the last, ragged group was left out",
            "The loop over K has to reach its end: a group that K cuts short counts too.",
            "ceil(x.shape[1], 64) -> x.shape[1] // 64",
            answer="range(0, K, 64) -> range(0, K - 63, 64)",
        ),
        Slip("the bias was left out", "The bias is added at the end, unscaled.", "total + bias -> total"),
        Slip(
            "the bias was given to rows",
            "The bias belongs to the columns of y, the rows of w: bias[None, :].",
            "total + bias -> total + np.append(bias, np.zeros(TILE))"
            "[np.arange(len(w)) // TILE * TILE + np.arange(len(x))[:, None] % TILE]",
            "total + bias -> total + np.resize(bias, len(x))[:, None]",
            answer="total + bias[None, :] -> total + bias[:, None]",
        ),
        Slip(
            "the bias was added before the scales",
            "The bias is in the result's units: add it after the last group.",
            "part * x_scale[group][:, None] * w_scale[stripe, group] -> "
            "(part + bias * (group == 0)) * x_scale[group][:, None] * w_scale[stripe, group] - bias * (group == 0)",
        ),
        Slip(
            "the bias was added with every group",
            "The bias is added once, after the loop.",
            f"{ADDED} -> {ADDED} + bias * (group > 0)",
        ),
        Slip(
            "the sum was kept in 16 bits",
            "Every promotion would round it. Let the sum be fp32, tl.zeros([...], tl.float32), until it has the bias.",
            f"total = {ADDED} -> total = sixteen({ADDED}, 'bf16')",
            f"total = {ADDED} -> total = sixteen({ADDED}, 'fp16')",
            answer=f"{SCALED} -> total = (total + part * x_scale[:, None] * w_scale[None, :])"
            ".to(tl.bfloat16).to(tl.float32)",
        ),
        Slip(
            "the product of two scales was rounded to 16 bits",
            "Scales stay fp32, and so does what they multiply: two small ones have a product that fp16 does not hold.",
            "part * x_scale[group][:, None] * w_scale[stripe, group] -> "
            "part * sixteen(x_scale[group][:, None] * w_scale[stripe, group], 'fp16')",
            "part * x_scale[group][:, None] * w_scale[stripe, group] -> "
            "part * sixteen(x_scale[group][:, None] * w_scale[stripe, group], 'bf16')",
            answer="part * x_scale[:, None] * w_scale[None, :] -> "
            "part * (x_scale[:, None] * w_scale[None, :]).to(tl.float16).to(tl.float32)",
        ),
        Slip(
            "the product of a group or the bias was rounded to 16 bits",
            "All is fp32 until the store: convert y alone.",
            "total + part -> total + sixteen(part, 'bf16')",
            "total + bias -> total + sixteen(bias, 'bf16')",
            answer="part = tl.dot(x, w) -> part = tl.dot(x, w).to(tl.bfloat16).to(tl.float32)",
        ),
    ),
    minimum_bytes=least,
    max_tile=(WIDEST, WIDEST),
    hints={
        "unwritten": "The grid has to cover every tile of y: cdiv(M, BLOCK_M) times cdiv(N, BLOCK_N) programs.",
        "bytes": "The minimum here is what tiles of 32 x 32 ask for, with a scale for each row and column at every 32 "
        "of K. Smaller tiles ask for more.",
        "tile_too_wide": "No side of a tile is above 64 here; a step over K is 64 at most.",
        "sixteen_bit": "Keep the sum over the groups in fp32, and convert to bf16 at the store.",
        "out_of_bounds": "Mask rows beyond M, columns beyond N and elements beyond K, in the codes and in the scales. "
        "x_scale has padded rows: group g begins at g * x_scale.stride(0).",
        "nan": "What lies between padded rows is NaN, in x_scale too: use its stride, and mask rows beyond M.",
        "row_scale": "All of a row is off by the same factor: look at x's scales. They stay fp32, each group has one "
        "for a row, and it multiplies the product of the codes, not the codes.",
        "some_rows": "Some rows are right and others wrong: look at which scale a row gets, and at its address.",
        "tail": "Columns at the end are wrong: look at which scale a column gets, and at the masks.",
        "not_read": "Every row of x and w has to be read, all of K.",
        "wrong": "Take one group, K = 64, first: codes times codes, times both scales, plus the bias; then two groups "
        "with other scales. A tile's rows are rows of x, its columns rows of w: x_scale[:, None], w_scale[None, :].",
    },
)

TASKS = (COUNT, LAYOUT, PRODUCT)
