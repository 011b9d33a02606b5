"""Exercise 09, few bits and a scale: rounded by hand, encoded, quantised in blocks, multiplied packed, chosen."""

import numpy as np

from grading.tasks import Case, Slip, Task, gives, tensor

EXERCISE = "09_low_precision"
PROGRAMS = 151  # just more than any GPU has multiprocessors


def ceil(n: int, block: int) -> int:
    """Blocks that cover n."""
    return -(-n // block)


def numbers_of(exponents, mantissa, least, largest):
    """What a format holds from 0 up: subnormals, then binades of 2**mantissa numbers, from 2**least on."""
    steps = 1 << mantissa
    found = [step / steps * 2.0**least for step in range(steps)]
    for exponent in range(least, least + exponents):
        found += [(1 + step / steps) * 2.0**exponent for step in range(steps)]
    return np.array([number for number in found if number <= largest])


E2M1 = numbers_of(3, 1, 0, 6)
E4M3 = numbers_of(15, 3, -6, 448)
MIDDLES = (E2M1[1:] + E2M1[:-1]) / 2


def codes_of(values, numbers):
    """The place of the number nearest to |value|, the even one at a tie, the last one beyond."""
    middles = (numbers[1:] + numbers[:-1]) / 2
    low, high = (np.searchsorted(middles, np.abs(values), side=side) for side in ("left", "right"))
    return np.where(low % 2 == 0, low, high)


def rounding_slips(added: str, **answers: str) -> tuple:
    """The slips of rounding and of the sign, which the oracle's text `added` adds. answers: {name of a slip below: the
    same edit of the published answer}."""

    def slip(name, fault, hint, *ways):
        return Slip(fault, hint, *ways, answer=answers.get(name, ()))

    ties = "np.where(low % 2 == 0, low, high)"
    values = added.removeprefix(" + 8 * np.signbit(").removesuffix(")")
    even = "Halfway between two numbers the one with the even code is taken: 2.5 becomes 2, 3.5 becomes 4."
    return (
        slip("away", "ties were rounded away from zero", even, f"{ties} -> high"),
        slip("towards", "ties were rounded towards zero", even, f"{ties} -> low"),
        slip("odd", "ties were rounded to the odd code", even, f"{ties} -> np.where(low % 2 == 0, high, low)"),
        slip(
            "cut",
            "values were cut off, not rounded",
            "Take the nearest number, not the next one towards zero.",
            f"{ties} -> np.searchsorted(numbers, np.abs(values), side='right') - 1",
        ),
        slip("sign", "the sign was left out", "A code's highest bit, worth 8, is the sign.", f"{added} -> "),
        slip(
            "lost",
            "the sign was left out where the magnitude becomes 0",
            "The sign is that of the number, not of its code: -0.1 becomes -0, code 8.",
            f"{added} -> {added} * (np.abs({values}) > 0.25)",
        ),
    )


# ---------------------------------------------------------------- 09.1 by hand

TIE = "It lies halfway between two numbers. Write down their mantissas: the one that ends in 0 is taken."
BEYOND = "It is beyond the largest number of the format: this course's conversions saturate."
BINADE = "Which binade is it in? With m bits of mantissa, the numbers from 2^e on are 2^(e - m) apart."
SMALL = "Below the smallest normal number, 2^-6, the spacing stays that of the lowest binade."
UP = "It is a power of two, the smallest one for which 7 / scale is not above 6."

NEAR = 0.01  # of a number of which digits were left out

#: letter: the right number, what to think of, {a wrong number: what it says}
BY_HAND = {
    "a": (2.0, TIE, {2.5: "From 2 on the numbers of E2M1 are 1 apart."}),
    "b": (4.0, TIE, {5.0: "From 4 on the numbers of E2M1 are 2 apart."}),
    "c": (2.0, TIE, {1.75: "Behind 1.5 comes 2."}),
    "d": (6.0, BEYOND, {float("inf"): "E2M1 has no infinity.", 8.0: "E2M1 ends before 8.", 7.0: "E2M1 ends before 7."}),
    "e": (0.3125, BINADE, {0.28125: "That is the neighbour below: which of the two is nearer?"}),
    "f": (16.0, TIE, {17.0: "From 16 on the numbers of E4M3 are 2 apart."}),
    "g": (
        448.0,
        BEYOND,
        {
            480.0: "The code that would be 480, S.1111.111, is NaN.",
            float("inf"): "E4M3 has no infinity.",
            240.0: "E4M3 uses its highest exponent for numbers, too.",
        },
    ),
    "h": (5 / 512, SMALL, {0.0: "E4M3 has subnormals.", 1 / 64: "E4M3 has subnormals."}),
    "i": (0.0, SMALL, {1 / 512: "2^-9 is the smallest number above 0. Is 0.0009 nearer to it, or to 0?"}),
    "j": (
        2.0,
        UP,
        {
            1.0: "With a scale of 1, 7 is above 6 and saturates. That is OCP's own rule; here nothing saturates.",
            7 / 6: "An E8M0 scale is a power of two.",
            4.0: "A smaller power of two will do.",
            128.0: "That is what E8M0 stores, the exponent plus 127. The scale itself is asked.",
        },
    ),
    "k": (
        8.0,
        "Divide by the scale of j, round to E2M1, multiply by the scale.",
        {
            6.0: TIE,
            7.0: "7 / 2 is no number of E2M1.",
            4.0: "That is the value of the code that is stored: multiply it by the scale.",
            12.0: "6 is the code that is stored, and its value is 4: multiply that by the scale.",
        },
    ),
    "l": (0.0, "Divide by the scale of j, round to E2M1, multiply by the scale.", {1.0: TIE, 0.5: TIE}),
}


def hand_fault(arguments, returned):
    """What is wrong with the first number that is, and how many are."""
    if len(returned) != len(BY_HAND):
        came = f"{len(returned)} numbers" if len(returned) > 1 else "a single thing"
        return f"by_hand returned {came}, expected a tuple of {len(BY_HAND)} numbers: those of a to l, in this order"
    wrong = []
    for (letter, (right, thought, told)), came in zip(BY_HAND.items(), returned):
        if isinstance(came, bool) or not isinstance(came, (int, float)):
            return f"{letter} is no int and no float"
        if came != right:
            if right and abs(came / right - 1) < NEAR:
                thought = "That is near, but every digit counts: write it as a fraction, n / 2**k."
            wrong.append(f"{letter} is not {came:.6g}. {told.get(came, thought)}")
    more = f" {len(wrong)} of {len(BY_HAND)} numbers are wrong." if len(wrong) > 1 else ""
    return f"{wrong[0]}{more}" if wrong else ""


HAND = Task(
    id="09.1",
    title="Round by hand",
    points=2,
    functions={"by_hand": None},
    verdict=hand_fault,
    cases=(Case("a to l", lambda rng: {}),),
    success="all twelve numbers",
)

# ---------------------------------------------------------------- 09.2 encode, and pack


@gives(codes="uint8", uses=(codes_of,))
def encoded(x):
    return codes_of(x, E2M1) + 8 * np.signbit(x)


@gives(packed="uint8")
def packed_columns(codes):
    """Two columns a byte."""
    even, odd = codes[:, 0::2].astype(int), codes[:, 1::2].astype(int)
    return even + 16 * odd


def signed(rng, size):
    return size * rng.choice([-1.0, 1.0], size.shape)


def units(rng, *shape):
    """Magnitudes up to 6, a third of them halfway between two numbers of E2M1; none is 0."""
    tie = rng.permutation(int(np.prod(shape))).reshape(shape) % 3 == 0
    return np.where(tie, rng.choice(MIDDLES, shape), rng.uniform(0.01, 6, shape))


def of_values(rows, cols):
    """Values about the size of E2M1's, one in seven beyond."""

    def make(rng):
        beyond = rng.permutation(rows * cols).reshape(rows, cols) % 7 == 0
        size = np.where(beyond, rng.uniform(6, 40, (rows, cols)), units(rng, rows, cols))
        return {"x": tensor(signed(rng, size))}

    return make


def at_the_ends(rng):
    """What lies next to a tie, what is tiny, huge, infinite."""
    ties = MIDDLES.astype(np.float32)
    near = [np.nextafter(ties, np.float32(side)) for side in (0, 9)]
    row = np.concatenate([*near, ties, [1e-30, 1e-3, 0.4, 0.6, 0.9, 6.0, 7.999, 8.0, 1e6, 3e38, np.inf]])
    return {"x": tensor(np.stack([rng.permutation(row), -rng.permutation(row)]))}


def of_codes(rows, cols):
    return lambda rng: {"codes": tensor(rng.integers(0, 16, (rows, cols)), "uint8")}


ENCODE = Task(
    id="09.2",
    title="Encode E2M1, and pack",
    points=3,
    functions={"encode": encoded, "pack": packed_columns},
    cases=(
        Case("encode, 5 x 64", of_values(5, 64), "encode"),
        Case("encode, 33 x 7", of_values(33, 7), "encode"),
        Case(
            "encode, beside ties and at the ends",
            at_the_ends,
            "encode",
            hint="Here stand the fp32 neighbours of each tie, 1e-30, 3e38 and infinity.",
        ),
        Case("pack, 5 x 64", of_codes(5, 64), "pack"),
        Case("pack, 3 x 2", of_codes(3, 2), "pack"),
    ),
    slips=(
        *rounding_slips(
            " + 8 * np.signbit(x)",
            away="> down_at_a_tie -> >= down_at_a_tie",
            towards=">= up_at_a_tie -> > up_at_a_tie",
            sign=" + 8 * (x < 0) -> ",
            lost="8 * (x < 0) -> 8 * ((x < 0) & (code > 0))",
        ),
        Slip(
            "the sign went to bit 7",
            "A code has four bits: the sign is the highest one, worth 8.",
            "8 * np.signbit -> 128 * np.signbit",
            answer="8 * (x < 0) -> 128 * (x < 0)",
        ),
        Slip(
            "negative numbers were stored in two's complement",
            "A float's sign is a bit of its own beside the magnitude: -1.5 is 8 + 3.",
            "codes_of(x, E2M1) + 8 * np.signbit(x) -> codes_of(x, E2M1) * np.where(np.signbit(x), -1, 1) % 16",
        ),
        Slip(
            "what is beyond 6 was counted on",
            "There is no code behind 7, which is 6.0: what is beyond saturates.",
            "return codes_of(x, E2M1) -> return codes_of(x, np.append(E2M1, [8.0, 12.0, 16.0]))",
            "return codes_of(x, E2M1) -> return np.minimum(codes_of(x, np.append(E2M1, [8.0])), 8)",
            "return codes_of(x, E2M1) -> return codes_of(x, np.append(E2M1, [8.0])) % 8",
        ),
        Slip(
            "small numbers became 0 or 1, without the subnormal 0.5",
            "Code 1 is 0.5: below 1 the spacing stays 0.5.",
            "return codes_of(x, E2M1) -> return np.where(np.abs(x) < 0.75, 2 * (np.abs(x) > 0.5), codes_of(x, E2M1))",
            "return codes_of(x, E2M1) -> return np.where(np.abs(x) < 1, 0, codes_of(x, E2M1))",
        ),
        Slip(
            "the even column went to the high nibble",
            "Column 0 is the low nibble of byte 0, column 1 its high one.",
            "even + 16 * odd -> odd + 16 * even",
            answer="codes[:, 0::2] | codes[:, 1::2] << 4 -> codes[:, 1::2] | codes[:, 0::2] << 4",
        ),
        Slip(
            "the first half of the columns was paired with the second one",
            "A byte holds two neighbours: columns 2 j and 2 j + 1.",
            "codes[:, 0::2].astype(int), codes[:, 1::2] -> "
            "codes[:, : codes.shape[1] // 2].astype(int), codes[:, codes.shape[1] // 2 :]",
        ),
    ),
    hints={
        "dtype": "Codes and packed bytes are torch.uint8.",
        "wrong": "For encode, write E2M1's magnitudes 0, 0.5, 1, 1.5, 2, 3, 4, 6 in a row, and the middles between "
        "them: which code does each middle belong to? For pack, write one byte in binary.",
    },
)

# ---------------------------------------------------------------- 09.3 quantise down the columns

BLOCK = 32  # rows that share a scale


@gives(packed="uint8", scales="uint8", uses=(codes_of,))
def quantised(x):
    """E2M1 codes, rows 2 i and 2 i + 1 in a byte, and the E8M0 code of each 32 rows of a column."""
    rows, cols = x.shape
    blocks = np.pad(x, ((0, -rows % BLOCK), (0, 0))).reshape(-1, BLOCK, cols)
    amax = np.abs(blocks).max(axis=1)
    fraction, exponent = np.frexp(amax)  # amax = fraction * 2**exponent, and 6 = 0.75 * 2**3
    power = exponent - 3 + (fraction > 0.75)
    scaled = blocks / 2.0 ** power[:, None]
    codes = (codes_of(scaled, E2M1) + 8 * np.signbit(scaled)).reshape(-1, cols)[:rows]
    return codes[0::2] + 16 * codes[1::2], np.where(amax > 0, power + 127, 0)


def of_tiles(numbers, width):
    """The largest of each tile of `width` columns, in the place of each."""
    rows, cols = numbers.shape
    tiles = np.pad(numbers, ((0, 0), (0, -cols % width))).reshape(rows, -1, width)
    return np.repeat(tiles.max(axis=2), width, axis=1)[:, :cols]


def halves(codes):
    """Two rows a byte, row i of a block with row i + 16."""
    rows, cols = codes.shape
    blocks = np.pad(codes, ((0, -rows % BLOCK), (0, 0))).reshape(-1, 2, BLOCK // 2, cols)
    return (blocks[:, 0] + 16 * blocks[:, 1]).reshape(-1, cols)[: rows // 2]


def any_top(rng, blocks, cols):
    """The largest value of each block in units of its scale: above 3, at most 6."""
    return rng.choice([3.0625, 3.5, 4.0, 4.5, 5.5, 6.0], (blocks, cols))


def some_zero(rng, blocks, cols):
    tops = any_top(rng, blocks, cols)
    tops[0, ::3] = 0.0
    return tops


def at_the_limit(rng, blocks, cols):
    """6 in one column of three, a little more in the next one."""
    return np.resize(np.array([6.0, np.nextafter(np.float32(6), np.float32(7)), 3.5]), (blocks, cols))


def far_apart(rng):
    """Blocks of the largest numbers that the card allows beside blocks of the smallest ones."""
    part = rng.choice([1, 1.5, 2, 3, 4, 6], (2 * BLOCK, 16))
    size = np.where(rng.permutation(16) % 2, part * 2.0**-100, 2.0**100 / part)
    size[0] = np.where(size[0] > 1, 2.0**100, 2.0**-100)
    return {"x": tensor(signed(rng, size))}


def of_blocks(rows, cols, dtype="fp32", row_stride=None, top_of=any_top):
    """Blocks of very different sizes, with ties in units of their scales. top_of(rng, blocks, cols): their largest."""

    def make(rng):
        many = ceil(rows, BLOCK)
        tops = top_of(rng, many, cols)
        size = units(rng, many, BLOCK, cols)
        size = np.where(size > tops[:, None], size / 2 * (tops[:, None] > 0), size)
        filled = [min(BLOCK, rows - BLOCK * block) for block in range(many)]
        for block, top, rows_in in zip(size, tops, filled):
            block[rng.integers(rows_in, size=cols), np.arange(cols)] = top
        size *= 2.0 ** rng.integers(-60, 61, (many, 1, cols))
        values = signed(rng, size.reshape(-1, cols)[:rows]) + 0.0  # no zero has a sign
        return {"x": tensor(values, dtype, row_stride)}

    return make


def packed_bytes(x):
    rows, cols = x.shape
    return {"x": x.nbytes, "returned 0": rows // 2 * cols, "returned 1": ceil(rows, BLOCK) * cols}


POWER = "power = exponent - 3 + (fraction > 0.75)"
SCALED = "blocks / 2.0 ** power[:, None]"
PADDED = "This x has padded rows: the next row starts x.stride(0) elements on. What you allocate has not."
LIMIT = (
    "Here the largest value of a block is 6 times a power of two, or the next fp32 number above that. A logarithm "
    "rounds, and does not see the difference: look at the bits of amax, or compare it with 6 times the scale."
)
QUANTIZE = Task(
    id="09.3",
    title="Quantise down the columns",
    points=5,
    functions={"quantize_down": quantised},
    kernel=True,
    cases=(
        Case("64 x 48 fp32", of_blocks(64, 48)),
        Case(
            "40 x 33 bf16, a last block of 8 rows",
            of_blocks(40, 33, "bf16"),
            hint="The last block has 8 rows: what is masked counts as 0, and nothing is stored for it.",
        ),
        Case("96 x 20 bf16, padded rows", of_blocks(96, 20, "bf16", 27), hint=PADDED),
        Case("32 x 24 fp32, padded rows", of_blocks(32, 24, "fp32", 37), hint=PADDED),
        Case("2 x 1 fp32", of_blocks(2, 1)),
        Case(
            "64 x 40 fp32, blocks of zeros",
            of_blocks(64, 40, top_of=some_zero),
            hint="A block of zeros has the scale's code 0 and codes 0: log2(0), and 0 / 0, are to be kept away.",
        ),
        Case("64 x 16 fp32, largest values at the limit", of_blocks(64, 16, top_of=at_the_limit), hint=LIMIT),
        Case(
            "64 x 16 fp32, sizes of 2^-100 and of 2^100",
            far_apart,
            hint="Here the codes of the scales go from 25 to 225: all sizes that the card allows have a scale of their "
            "own, which no limit or threshold may change.",
        ),
        Case("34 x 300 bf16", of_blocks(34, 300, "bf16")),
        Case("2 x 5000 bf16", of_blocks(2, 5000, "bf16")),
        Case(f"{BLOCK * PROGRAMS} x 16 bf16", of_blocks(BLOCK * PROGRAMS, 16, "bf16")),
    ),
    slips=(
        Slip(
            "the scale was rounded down",
            "floor(log2(amax)) - 2 is OCP's rule; it leaves amax / scale between 4 and 8, and what is above 6 "
            "saturates. Here the scale is the smallest power of two with amax / scale <= 6.",
            f"{POWER} -> power = exponent - 3",
            f"{POWER} -> power = exponent - 4 + (fraction >= 0.75)",
            answer="(exponent - 2 + (mantissa > 0x400000).to(tl.int32)) -> (exponent - 2)",
        ),
        Slip(
            "the scale was rounded to the nearest power of two",
            "Then half of the blocks saturate: take the next power of two above, unless amax / 6 is one.",
            f"{POWER} -> power = np.round(np.log2(np.where(amax > 0, amax, 1) / 6)).astype(int)",
        ),
        Slip(
            "a block whose largest value is 6 times a power of two got twice the scale that it needs",
            "6 is a number of E2M1: amax / scale may be 6.",
            "fraction > 0.75 -> fraction >= 0.75",
        ),
        Slip(
            "the scale is twice as large as it has to be",
            "Take the smallest power of two with amax / scale <= 6.",
            f"{POWER} -> power = exponent - 2 + (fraction > 0.75)",
            f"{POWER} -> power = exponent - 2",
            f"{POWER} -> power = exponent - 1",
            f"{POWER} -> power = exponent",
        ),
        Slip(
            "the largest value was scaled to 4",
            "The largest number of E2M1 is 1.5 * 2**2, which is 6.",
            "fraction > 0.75 -> fraction > 0.5",
        ),
        Slip(
            "the scale's code lacks the bias",
            "E8M0 holds the exponent plus 127.",
            "power + 127 -> power % 256",
            results=("scales",),
        ),
        Slip(
            "a block of zeros has another scale",
            "The card gives the scale's code of a block of zeros: 0.",
            "power + 127, 0) -> power + 127, 127)",
            "power + 127, 0) -> power + 127, 255)",
            "power + 127, 0) -> power + 127, 1)",
            results=("scales",),
        ),
        Slip(
            "one scale was taken for a whole tile of columns",
            "Each column has its own: tl.max along the rows, axis=0.",
            "np.abs(blocks).max(axis=1) -> of_tiles(np.abs(blocks).max(axis=1), TILE)",
            answer="tl.max(tl.maximum(tl.abs(even), tl.abs(odd)), axis=0) -> "
            "tl.max(tl.maximum(tl.abs(even), tl.abs(odd))) + tl.zeros([BLOCK], tl.float32)",
        ),
        Slip(
            "a part of the rows was left out of the maximum",
            "amax is the largest of all 32 rows, the even ones and the odd ones.",
            "np.abs(blocks).max(axis=1) -> np.abs(blocks)[:, 0::2].max(axis=1)",
            "np.abs(blocks).max(axis=1) -> np.abs(blocks)[:, 1::2].max(axis=1)",
            "np.abs(blocks).max(axis=1) -> np.abs(blocks)[:, :16].max(axis=1)",
        ),
        Slip(
            "the largest value was taken without its sign",
            "amax is the largest magnitude: negative values count.",
            "amax = np.abs(blocks).max(axis=1) -> amax = np.maximum(blocks.max(axis=1), 0)",
            answer="tl.max(tl.maximum(tl.abs(even), tl.abs(odd)), axis=0) -> "
            "tl.maximum(tl.max(tl.maximum(even, odd), axis=0), 0.0)",
        ),
        Slip(
            "the values were multiplied by the scale",
            "A code's value times the scale is the number, so the code is that of number / scale.",
            f"{SCALED} -> blocks * 2.0 ** power[:, None]",
        ),
        Slip(
            "the values were not divided by the scale", "Divide each value by its block's scale.", f"{SCALED} -> blocks"
        ),
        Slip("the scale was applied twice", "Divide by the scale once.", f"{SCALED} -> blocks / 4.0 ** power[:, None]"),
        Slip(
            "the scale of another block was applied",
            "32 rows in a row share a scale: rows 0 to 31, 32 to 63, and so on.",
            f"{SCALED} -> blocks / 2.0 ** np.roll(power, 1, axis=0)[:, None]",
            results=("packed",),
        ),
        Slip(
            "the even row went to the high nibble",
            "Row 2 i is the low nibble of byte row i, row 2 i + 1 the high one.",
            "codes[0::2] + 16 * codes[1::2] -> codes[1::2] + 16 * codes[0::2]",
        ),
        Slip(
            "rows i and i + 16 of a block share a byte",
            "A byte holds two neighbours: rows 2 i and 2 i + 1.",
            "return codes[0::2] + 16 * codes[1::2], -> return halves(codes),",
        ),
        *rounding_slips(
            " + 8 * np.signbit(scaled)", away=tuple(f"(size > {tie}) -> (size >= {tie})" for tie in MIDDLES[::2])
        ),
    ),
    minimum_bytes=packed_bytes,
    sector_factor=2,
    hints={
        "shape": "packed is [rows / 2, cols], and scales [ceil(rows / 32), cols]: the blocks lie down the columns.",
        "bytes": "x is needed once: hold the 32 rows of a tile in registers from the maximum to the codes.",
        "sectors": "A program that takes one column, or few, touches a whole sector for them in every row: give it 32 "
        "rows of many columns side by side.",
        "out_of_bounds": "Mask rows beyond the last and columns beyond the last, in both loads and both stores. x has "
        "x.stride(0) elements from row to row, packed and scales have cols.",
        "unwritten": "The grid has a program for each block of 32 rows, the last, ragged one too, and each tile of "
        "columns.",
        "race": "A byte holds two rows: one program has to have both of them.",
        "compile": "Conversions to FP8 and FP4 need a GPU that has the type: E2M1 takes seven comparisons.",
        "wrong": "Take one column, its 32 values on paper: amax, the scale, the values over the scale, their codes.",
        "tail": "Columns have nothing to do with each other: look at the mask and at the addresses of the last tile.",
        "some_rows": "Where the last block alone is wrong: rows beyond the last count as 0 in the maximum, other=0.0. "
        "Otherwise look at how the addresses of the rows are formed.",
    },
)

# ---------------------------------------------------------------- 09.4 a product from packed weights

GROUP = 32  # columns of a weight that share a scale
TILE_ROWS = 16  # rows of a weight in a tile, by which bytes are judged


@gives(y="fp32")
def multiplied(x, packed, scales):
    """x times the weights: 4 bits with an offset of 8, byte i of a group holding columns i and i + 16."""
    shape = (len(packed), packed.shape[1] // 16, 16)
    low, high = packed.reshape(shape) & 15, packed.reshape(shape) >> 4
    codes = np.concatenate([low, high], axis=2)
    weight = (codes - 8.0) * scales[..., None]
    return x @ weight.reshape(len(packed), -1).T


def any_scales(rng, rows, groups):
    return signed(rng, rng.uniform(0.5, 2, (rows, groups)) * 2.0 ** rng.integers(-8, 3, (rows, groups)))


def tiny_scales(rng, rows, groups):
    """Subnormal numbers of fp16; one of each row is 0."""
    scales = signed(rng, rng.uniform(0.5, 1, (rows, groups)) * 2.0 ** rng.integers(-20, -14, (rows, groups)))
    scales[np.arange(rows), rng.integers(groups, size=rows)] = 0
    return scales


def of_weights(tokens, rows, columns, padding=0, scales_of=any_scales):
    """x, and weights of rows x columns whose packed rows are `padding` bytes longer. A single group has values of one
    sign: one short sum may not be a small difference. scales_of(rng, rows, groups): the scales."""

    def make(rng):
        alone = rows == 1
        low, high = rng.integers(9 if alone else 0, 16, (2, rows, columns // 2))
        packed = low + 16 * high
        return {
            "x": tensor(rng.uniform(0.5 if alone else -1, 2, (tokens, columns)), "fp16"),
            "packed": tensor(packed, "uint8", columns // 2 + padding, fill=0xA5)
            if padding
            else tensor(packed, "uint8"),
            "scales": tensor(scales_of(rng, rows, columns // GROUP), "fp16"),
        }

    return make


def of_many_groups(rows, columns):
    """One token, and numbers of so few bits that fp32 holds every sum of their products exactly, in any order."""

    def make(rng):
        scales = signed(rng, 2.0 ** rng.integers(-2, 1, (rows, columns // GROUP)))
        return {
            "x": tensor(rng.integers(-8, 17, (1, columns)) / 8, "fp16"),
            "packed": tensor(rng.integers(0, 256, (rows, columns // 2)), "uint8"),
            "scales": tensor(scales, "fp16"),
        }

    return make


def weight_bytes(x, packed, scales):
    rows = packed.shape[0]
    return {
        "x": x.nbytes * ceil(rows, TILE_ROWS),
        "packed": packed.nbytes,
        "scales": scales.nbytes,
        "returned 0": 4 * x.shape[0] * rows,
    }


WHOLE = "x @ weight.reshape(len(packed), -1).T"
JOINED = "codes = np.concatenate([low, high], axis=2)"
MULTIPLY = Task(
    id="09.4",
    title="Multiply by weights that stay packed",
    points=5,
    functions={"q4_linear": multiplied},
    kernel=True,
    ieee="always",
    cases=(
        Case("1 token, 64 x 256", of_weights(1, 64, 256)),
        Case("3 tokens, 37 x 96: ragged", of_weights(3, 37, 96)),
        Case(
            "2 tokens, 20 x 160, padded rows of packed",
            of_weights(2, 20, 160, 13),
            hint="The next row of packed starts packed.stride(0) bytes on.",
        ),
        Case("8 tokens, 16 x 128", of_weights(8, 16, 128)),
        Case("1 token, 1 x 32", of_weights(1, 1, 32)),
        Case("1 token, 5 x 1024", of_weights(1, 5, 1024)),
        Case("1 token, 3 x 8192", of_many_groups(3, 8192), hint="This weight has 256 groups: all of them count."),
        Case(
            "2 tokens, 20 x 64, tiny scales and 0",
            of_weights(2, 20, 64, scales_of=tiny_scales),
            hint="Here the scales are 0, or below the smallest normal number of fp16, 2^-14.",
        ),
        Case(f"1 token, {PROGRAMS * 16} x 32", of_weights(1, PROGRAMS * 16, 32)),
    ),
    slips=(
        Slip(
            "low and high nibbles were exchanged",
            "Byte i of a group holds column i in its low nibble and column i + 16 in its high one.",
            f"{JOINED} -> codes = np.concatenate([high, low], axis=2)",
            answer="tl.dot(x_low, low, acc=tl.dot(x_high, high)) -> tl.dot(x_low, high, acc=tl.dot(x_high, low))",
        ),
        Slip(
            "a byte was taken for two neighbours",
            "Byte i of a group holds columns i and i + 16 of its 32, not 2 i and 2 i + 1.",
            f"{JOINED} -> codes = np.stack([low, high], axis=3).reshape(*low.shape[:2], 32)",
            f"{JOINED} -> codes = np.stack([high, low], axis=3).reshape(*low.shape[:2], 32)",
        ),
        Slip(
            "a byte was taken for columns half a row apart",
            "Each group of 32 columns is packed by itself, into 16 bytes: columns i and i + 16 of the group.",
            f"{JOINED} -> codes = np.concatenate([low.reshape(len(low), -1), high.reshape(len(low), -1)], axis=1)"
            ".reshape(*low.shape[:2], 32)",
        ),
        Slip(
            "the nibbles were read as two's complement",
            "They count from 0 to 15, and 8 is subtracted: 15 is 7, and 0 is -8.",
            "(codes - 8.0) -> ((codes ^ 8) - 8.0)",
            answer=("(bytes & 15) -> ((bytes & 15) ^ 8)", "(bytes >> 4) -> ((bytes >> 4) ^ 8)"),
        ),
        Slip(
            "8 was subtracted in uint8",
            "There 3 - 8 is 251: convert the nibbles before you subtract.",
            "(codes - 8.0) -> ((codes - 8.0) % 256)",
            answer=(
                "(bytes & 15).to(tl.float16) - 8 -> ((bytes & 15) - 8).to(tl.float16)",
                "(bytes >> 4).to(tl.float16) - 8 -> ((bytes >> 4) - 8).to(tl.float16)",
            ),
        ),
        Slip("the offset was left out", "A nibble q stands for q - 8.", "codes - 8.0 -> codes - 0.0"),
        Slip(
            "the offset is not 8",
            "A nibble q stands for q - 8.",
            "codes - 8.0 -> codes - 7.0",
            "codes - 8.0 -> codes - 7.5",
            "codes - 8.0 -> codes - 16.0",
        ),
        Slip(
            "the offset was subtracted after the scale",
            "The value is (q - 8) * scale, not q * scale - 8.",
            "(codes - 8.0) * scales[..., None] -> codes * scales[..., None] - 8.0",
        ),
        Slip(
            "8 was subtracted from one nibble of a byte alone",
            "Both nibbles have the offset.",
            "(codes - 8.0) -> (codes - np.repeat([8.0, 0.0], 16))",
            "(codes - 8.0) -> (codes - np.repeat([0.0, 8.0], 16))",
        ),
        Slip(
            "the scale was applied twice",
            "Multiply by the scale once: the weights, or the group's sum.",
            "* scales[..., None] -> * scales[..., None] ** 2",
            answer="* scale.to(tl.float32)[None, :] -> * (scale.to(tl.float32) * scale.to(tl.float32))[None, :]",
        ),
        Slip("the scale was left out", "A weight is (q - 8) * scale.", " * scales[..., None] -> "),
        Slip(
            "a scale was taken without its sign",
            "Scales have either sign: in Q4_0 the value of the largest magnitude becomes -8 * scale.",
            "* scales[..., None] -> * np.abs(scales)[..., None]",
            "* scales[..., None] -> * np.maximum(scales, 0)[..., None]",
            answer="* scale.to(tl.float32)[None, :] -> * tl.abs(scale.to(tl.float32))[None, :]",
        ),
        Slip(
            "small scales were taken for 0",
            "fp16 has subnormals: below 2^-14 the spacing stays 2^-24.",
            "* scales[..., None] -> * np.where(np.abs(scales) < 2.0**-14, 0, scales)[..., None]",
            answer="scale.to(tl.float32)[None, :] -> "
            "tl.where(tl.abs(scale) < 6.2e-5, 0.0, scale.to(tl.float32))[None, :]",
        ),
        Slip(
            "the scale of another group was applied",
            "Column c of a row belongs to group c // 32, and its scale is scales[row, c // 32].",
            "scales[..., None] -> np.roll(scales, 1, axis=1)[..., None]",
            "scales[..., None] -> np.roll(scales, -1, axis=1)[..., None]",
            "scales[..., None] -> scales[:, :1, None]",
            "scales[..., None] -> scales.repeat(2, axis=1)[:, : scales.shape[1], None]",
            answer="(K // 32) + g, -> (K // 32) + 0,",
        ),
        Slip(
            "the scales were read along the wrong axis",
            "scales is [rows, groups]: a row's scales lie side by side, rows are columns / 32 elements apart.",
            "scales[..., None] -> scales.reshape(scales.shape[1], -1).T[..., None]",
            "scales[..., None] -> scales[:1, :, None]",
            answer="row * (K // 32) + g -> g * N + row",
        ),
        Slip(
            "both nibbles of a byte were multiplied by the same columns of x",
            "The low nibbles belong to the first 16 columns of a group, the high ones to the other 16.",
            *(
                f"{WHOLE} -> x.reshape(len(x), -1, 2, 16)[:, :, {part}].reshape(x.shape) "
                "@ weight.reshape(len(packed), -1).T"
                for part in ([0, 0], [1, 1])
            ),
        ),
        Slip(
            "the last group was left out",
            "The loop goes over all columns / 32 groups.",
            f"{WHOLE} -> x[:, :-32] @ weight.reshape(len(packed), -1)[:, :-32].T",
        ),
        *(
            Slip(
                f"groups from {count} on were left out",
                "The loop goes over all columns / 32 groups, however many there are.",
                f"{WHOLE} -> x[:, : {32 * count}] @ weight.reshape(len(packed), -1)[:, : {32 * count}].T",
            )
            for count in (4, 8, 16, 32, 64, 128)
        ),
        Slip(
            "the last tile of columns was left out",
            "Where the columns are no multiple of the tile, the last one is ragged: mask it.",
            f"{WHOLE} -> x[:, : x.shape[1] // TILE * TILE] @ weight.reshape(len(packed), -1)"
            "[:, : x.shape[1] // TILE * TILE].T",
        ),
        Slip(
            "tokens and rows of the weight were exchanged in y",
            "y is [tokens, rows]: a token's sums lie side by side, tokens are N elements apart.",
            f"{WHOLE} -> ({WHOLE}).T.reshape(len(x), -1)",
        ),
        Slip(
            "every token got the first one's x",
            "Each row of x is a token: x.stride(0) elements on.",
            f"{WHOLE} -> x[:1].repeat(len(x), axis=0) @ weight.reshape(len(packed), -1).T",
        ),
    ),
    minimum_bytes=weight_bytes,
    hints={
        "bytes": f"The minimum here is packed and scales once, and x once for each {TILE_ROWS} rows of the weight: a "
        "program takes its bytes once for all tokens, and a scale once for its group, not once for each column.",
        "wrong": "Take one row of one group, 16 bytes, and write down its 32 weights. (An error of 1e-4 or 1e-3 is "
        "rounding: (q - 8) * scale has up to 14 bits, and fp16 keeps 11. Multiply q - 8, which is exact, and apply the "
        "scale to the group's sum, in fp32.)",
        "rounded_output": "Sums stay in fp32, and y is fp32.",
        "sixteen_bit": "Sums stay in fp32, and the scale is applied to them: (q - 8) * scale is no fp16 number.",
        "out_of_bounds": "Mask rows of the weight beyond the last, in packed, scales and y, and tokens beyond the last "
        "in x and y. packed has packed.stride(0) bytes from row to row.",
        "unwritten": "The grid covers all rows of the weight, and a program stores all tokens.",
        "torch_work": "Nothing is unpacked before: the kernel takes the bytes as they are.",
        "tf32": "Of fp32 tiles a product is TF32 unless it is asked not to be: input_precision='ieee'. TF32 keeps 11 "
        "bits, as fp16 does, and (q - 8) * scale has 14. (q - 8 and x are exact in fp16.)",
    },
)

# ---------------------------------------------------------------- 09.5 choose

#: name: format, rows and columns of a block (None: all), format of a scale, as the exercise's cell has them
SCHEMES = {
    "bf16": ("bf16", None, None, ""),
    "fp8_tensor": ("e4m3", None, None, "fp32"),
    "fp8_row": ("e4m3", 1, None, "fp32"),
    "fp8_128x128": ("e4m3", 128, 128, "fp32"),
    "mxfp8": ("e4m3", 1, 32, "e8m0"),
    "mxfp4": ("e2m1", 1, 32, "e8m0"),
    "nvfp4": ("e2m1", 1, 16, "e4m3"),
}
NUMBERS = {"e2m1": E2M1, "e4m3": E4M3}


@gives("bytes")
def stored_bytes(name, rows, cols):
    form, height, width, scale = SCHEMES[name]
    bits = {"bf16": 16, "e4m3": 8, "e2m1": 4}[form]
    blocks = ceil(rows, height or rows) * ceil(cols, width or cols)
    tensor_scale = 4 if name == "nvfp4" else 0
    return rows * cols * bits // 8 + blocks * {"": 0, "fp32": 4, "e8m0": 1, "e4m3": 1}[scale] + tensor_scale


def nearest(values, numbers):
    return np.sign(values) * numbers[codes_of(values, numbers)]


def round_trip(x, name):
    """What a scheme leaves of x."""
    form, height, width, scale_format = SCHEMES[name]
    if form == "bf16":
        return tensor(x, "bf16").values
    rows, cols = x.shape
    height, width = height or rows, width or cols
    padded = np.pad(x, ((0, -rows % height), (0, -cols % width)))
    blocks = padded.reshape(len(padded) // height, height, -1, width)
    scales = np.abs(blocks).max(axis=(1, 3), keepdims=True) / NUMBERS[form][-1]
    if scale_format == "e8m0":
        fraction, exponent = np.frexp(scales)
        scales = 2.0 ** (exponent - (fraction == 0.5))
    elif scale_format == "e4m3":
        whole = scales.max() / E4M3[-1]
        scales = nearest(scales / whole, E4M3) * whole
    scales = np.where(scales > 0, scales, 1)
    return (nearest(blocks / scales, NUMBERS[form]) * scales).reshape(padded.shape)[:rows, :cols]


def worst_row(got, x):
    """The error of the row that is worst."""
    return (np.linalg.norm(got - x, axis=1) / np.linalg.norm(x, axis=1)).max()


@gives("scheme", uses=(stored_bytes, worst_row))
def chosen(x, most_error, most_bytes):
    fits = []
    for name in SCHEMES:
        error = worst_row(round_trip(x, name), x)
        size = stored_bytes(name, *x.shape)
        if error <= most_error and size <= most_bytes:
            fits.append((size, error, name))
    return min(fits)[2] if fits else "none"


def gaussian(rng, rows, cols):
    return rng.normal(0, 1, (rows, cols))


def one_outlier(rng, rows, cols):
    x = gaussian(rng, rows, cols)
    x[rng.integers(rows), rng.integers(cols)] = 1e5
    return x


def rows_apart(rng, rows, cols):
    return gaussian(rng, rows, cols) * np.exp2(rng.permutation(rows) * -24 / rows)[:, None]


def one_small_row(rng, rows, cols):
    """Lost where all share a scale, and hardly seen in a mean over the rows."""
    x = gaussian(rng, rows, cols)
    x[rng.integers(rows)] *= 2.0**-24
    return x


def last_apart(rng, rows, cols):
    """Rows from 128 on are far smaller than the others."""
    return gaussian(rng, rows, cols) * np.where(np.arange(rows) < 128, 1, 2.0**-24)[:, None]


def columns_apart(rng, rows, cols):
    """A few columns are large in all rows, as in the activations of language models."""
    x = gaussian(rng, rows, cols)
    x[:, rng.choice(cols, 3, replace=False)] *= 60
    return x


GAP = 1.05  # between the error of the right answer and that of whatever is smaller


def budget(draw, rows, cols, name, spare=0):
    """A matrix, and budgets that `name` keeps and nothing smaller, with spare bytes; where these are negative, nothing
    keeps both. With one small row the error may be nearly that of what is smaller."""

    def make(rng):
        sizes = {key: stored_bytes(key, rows, cols) for key in SCHEMES}
        smaller = [key for key in SCHEMES if sizes[key] < sizes[name]]
        for _ in range(200):
            x = tensor(draw(rng, rows, cols)).values
            left = {key: round_trip(x, key) for key in [*smaller, name]}
            least = min((worst_row(left[key], x) for key in smaller), default=9.0)
            if draw is gaussian:  # where nothing is in a single row, the whole matrix has to tell the same
                least = min([least, *(np.linalg.norm(left[key] - x) / np.linalg.norm(x) for key in smaller)])
            error = worst_row(left[name], x)
            if least > GAP * error:
                break
        else:
            raise ValueError(f"{name} is not the smallest scheme of its error here")
        most_error = least / GAP if draw is one_small_row else error * min(GAP, np.sqrt(least / error))
        most_error = float(f"{most_error:.4g}")
        return {"x": tensor(x), "most_error": most_error, "most_bytes": int(sizes[name] + spare)}

    return make


def without_error(rng):
    """Numbers that E2M1 has, the largest in each block: MXFP4 leaves all of them, and an error of 0 is allowed."""
    x = rng.choice(E2M1[1:], (16, 96)) * rng.choice([-1, 1], (16, 96))
    x[:, ::32] = E2M1[-1]
    return {"x": tensor(x), "most_error": 0.0, "most_bytes": stored_bytes("mxfp4", 16, 96) + 90}


def one_after_another(rng):
    """Two matrices of one shape with the same budgets; in the first one a small row needs a scale of its own."""
    draw = gaussian if rng.turn % 2 else one_small_row
    return {"x": tensor(draw(rng, 16, 144)), "most_error": 0.05, "most_bytes": 5000}


def of_sizes(name):
    """A scheme, and sizes that no block divides."""

    def make(rng):
        rows, cols = (int(n) for n in rng.sizes.integers(2, 30, 2))
        return {"name": name, "rows": 64 * rows + 37, "cols": 128 * cols + 46}

    return make


CHOOSE = Task(
    id="09.5",
    title="Choose a format for an error and a size",
    points=4,
    functions={"stored_bytes": stored_bytes, "choose": chosen},
    cases=(
        *(Case(f"stored_bytes, {name}", of_sizes(name), "stored_bytes") for name in SCHEMES),
        *(
            Case(f"choose, {words}", budget(draw, rows, cols, name, spare), "choose", same=True)
            for words, draw, rows, cols, name, spare in (
                ("Gaussian numbers, a loose error", gaussian, 16, 144, "mxfp4", 500),
                ("Gaussian numbers, a stricter error", gaussian, 16, 144, "nvfp4", 500),
                ("Gaussian numbers, stricter still, not a byte to spare", gaussian, 20, 140, "fp8_tensor", 0),
                ("Gaussian numbers, the strictest error", gaussian, 16, 144, "bf16", 500),
                ("one outlier, a strict error", one_outlier, 16, 144, "fp8_row", 0),
                ("rows of very different size, a loose error", rows_apart, 16, 144, "mxfp4", 1200),
                ("rows of very different size, a strict error", rows_apart, 16, 64, "mxfp8", 100),
                ("one row far smaller than the others", one_small_row, 16, 144, "fp8_row", 100),
                ("two rows beyond 128, far smaller", last_apart, 130, 16, "fp8_128x128", 900),
                ("a few large columns", columns_apart, 24, 136, "nvfp4", 900),
                ("one byte too few", gaussian, 16, 144, "fp8_tensor", -1),
            )
        ),
        Case("choose, numbers that E2M1 has, an error of 0", without_error, "choose", same=True),
        Case(
            "choose, one matrix after another with the same budgets",
            one_after_another,
            "choose",
            hint="It is called for two matrices of the same shape, and the answers differ: compute anew in every call.",
        ),
    ),
    slips=(
        Slip(
            "the scales were left out",
            "A scale is stored for each block, and read with it.",
            " + blocks * { ->  + 0 * {",
            answer="blocks * scale_bytes -> 0 * scale_bytes",
            functions=("stored_bytes",),
        ),
        Slip(
            "the ragged block at the end of a row, or of the rows, was left out",
            "A ragged block has a scale too: round the number of blocks up, along rows and columns by themselves.",
            "ceil(rows, height or rows) * ceil(cols, width or cols) -> "
            "(rows // (height or rows)) * (cols // (width or cols))",
            "ceil(rows, height or rows) * ceil(cols, width or cols) -> "
            "rows * cols // ((height or rows) * (width or cols))",
            "ceil(rows, height or rows) * ceil(cols, width or cols) -> "
            "ceil(rows * cols, (height or rows) * (width or cols))",
            answer="-(-rows // (height or rows)) * -(-cols // (width or cols)) -> "
            "(rows // (height or rows)) * (cols // (width or cols))",
            functions=("stored_bytes",),
        ),
        Slip(
            "every scale was counted with 4 bytes",
            "An E8M0 or E4M3 scale has one byte, an fp32 scale four.",
            '"e8m0": 1, "e4m3": 1 -> "e8m0": 4, "e4m3": 4',
            answer='"e8m0": 1, "e4m3": 1 -> "e8m0": 4, "e4m3": 4',
            functions=("stored_bytes",),
        ),
        Slip(
            "NVFP4's scale of the tensor was left out",
            "Beside its E4M3 scales NVFP4 stores one fp32 number for the whole tensor.",
            '4 if name == "nvfp4" else 0 -> 0',
            answer=' + 4 * (name == "nvfp4") -> ',
            functions=("stored_bytes",),
        ),
        Slip(
            "a code of 4 bits was counted as a byte",
            "Two E2M1 codes share a byte.",
            '"e2m1": 4} -> "e2m1": 8}',
            answer='"e2m1": 4} -> "e2m1": 8}',
            functions=("stored_bytes",),
        ),
        Slip(
            "bits were counted, not bytes",
            "Divide by 8.",
            "* bits // 8 -> * bits",
            answer="* bits // 8 -> * bits",
            functions=("stored_bytes",),
        ),
        # from here on those that spoil few cases come first: what comes back is a name, which several mistakes may give
        Slip(
            "a scheme that takes all of the bytes was left out",
            "most_bytes may be used up: <=.",
            "size <= most_bytes -> size < most_bytes",
            answer="size <= most_bytes -> size < most_bytes",
        ),
        Slip(
            "a scheme whose error is just the one that is allowed was left out",
            "most_error may be reached: <=.",
            "error <= most_error -> error < most_error",
            answer="error <= most_error -> error < most_error",
        ),
        Slip(
            "the error is that of the whole matrix, or the mean over the rows",
            "A small row that is lost does not show beside large ones: take the row with the largest error.",
            "worst_row(round_trip(x, name), x) -> np.linalg.norm(round_trip(x, name) - x) / np.linalg.norm(x)",
            "/ np.linalg.norm(x, axis=1)).max() -> / np.linalg.norm(x, axis=1)).mean()",
            answer="((round_trip(x, name) - x).norm(dim=1) / x.norm(dim=1)).max() -> "
            "(round_trip(x, name) - x).norm() / x.norm()",
        ),
        *(
            Slip(
                f"{left_out} was never chosen",
                "All seven schemes are to be tried.",
                f'for name in SCHEMES: -> for name in [name for name in SCHEMES if name != "{left_out}"]:',
                answer=f'for name in SCHEMES: -> for name in [name for name in SCHEMES if name != "{left_out}"]:',
            )
            for left_out in SCHEMES
        ),
        Slip(
            "of those that keep both, another one than the smallest was taken",
            "Take the one with the fewest bytes.",
            "fits.append((size, error, name)) -> fits.append((error, size, name))",
            "min(fits)[2] -> fits[0][2]",
            "min(fits)[2] -> fits[-1][2]",
            answer="fits.append((size, name)) -> fits.append((error, name))",
        ),
        Slip(
            "the budget of bytes was left out",
            "Both have to be kept: the error and the bytes.",
            "error <= most_error and size <= most_bytes -> error <= most_error",
            answer="error <= most_error and size <= most_bytes -> error <= most_error",
        ),
        Slip(
            "the budget of the error was left out",
            "Both have to be kept: the error and the bytes.",
            "error <= most_error and size <= most_bytes -> size <= most_bytes",
            answer="error <= most_error and size <= most_bytes -> size <= most_bytes",
        ),
        Slip(
            "the error is another one",
            "A row's error is norm(round_trip - x) / norm(x), both of that row.",
            "worst_row(round_trip(x, name), x) -> np.abs(round_trip(x, name) - x).max() / np.abs(x).max()",
            "worst_row(round_trip(x, name), x) -> np.abs(round_trip(x, name) - x).max()",
            "worst_row(round_trip(x, name), x) -> np.linalg.norm(round_trip(x, name) - x, axis=1).max()",
            "worst_row(round_trip(x, name), x) -> worst_row(round_trip(x, name), x) ** 2",
            answer="((round_trip(x, name) - x).norm(dim=1) / x.norm(dim=1)).max() -> "
            "(round_trip(x, name) - x).abs().max()",
        ),
    ),
    hints={
        "type": "stored_bytes is an int (// where you divide), choose a string, 'none' where nothing keeps both.",
        "wrong": "Print bytes and error of every scheme for one matrix, and go through them with both budgets.",
    },
)

TASKS = (HAND, ENCODE, QUANTIZE, MULTIPLY, CHOOSE)
