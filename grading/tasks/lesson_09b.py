"""Exercise 09b: FP8 matmul. The cost of scales and promotion, a wrong layout of scales, a kernel with block scales."""

import numpy as np

from grading.tasks import TILE, Case, Mistake, Task, ceil, returns, tensor
from grading.tasks.arrays import rounded

EXERCISE = "09b_fp8_matmul"

# ---------------------------------------------------------------- 09b.1 count


@returns("bytes")
def scale_bytes(m, n, k, *, whole_groups=False, whole_stripes=False, w_rows=32):
    """fp32 scales: of x one per 1 x 64, of w one per 32 x 64."""
    groups = k // 64 if whole_groups else ceil(k, 64)
    stripes = n // 32 if whole_stripes else ceil(n, w_rows)
    return 4 * (m * groups + stripes * groups)


@returns("share")
def promotion_share(every, matrix, vector, *, inverted=False, per_k=False):
    """Seconds of the CUDA cores per second of the tensor cores, for one element of y."""
    share = (2 / vector) / (2 * (1 if per_k else every) / matrix)
    return 1 / share if inverted else share


def ragged_sizes(rng):
    """No number of rows or columns that a block divides, and more rows of x than three times w's stripes."""
    m, n, k = (int(number) for number in rng.integers((4, 20, 50), (10, 41, 91)))
    return {"m": 32 * m + 5, "n": 32 * n + 17, "k": 64 * k + 33}


def whole_sizes(rng):
    m, n, k = (int(number) for number in rng.integers((260, 20, 30), (401, 41, 51)))
    return {"m": m, "n": 64 * n, "k": 128 * k}


def throughputs(low, high):
    return lambda rng: {
        "every": int(rng.choice([32, 64, 128, 256])),
        "matrix": 1e12 * int(rng.integers(low, high)),
        "vector": 1e12 * int(rng.integers(20, 90)),
    }


COUNT = Task(
    id="09b.1",
    title="Count what scales and promotion cost",
    points=2,
    functions={"scale_bytes": scale_bytes, "promotion_share": promotion_share},
    cases=(
        Case("scale_bytes, sizes that the blocks divide", whole_sizes, "scale_bytes"),
        Case("scale_bytes, ragged sizes", ragged_sizes, "scale_bytes"),
        Case("promotion_share, some GPU", throughputs(200, 900), "promotion_share"),
        Case("promotion_share, another GPU", throughputs(1000, 5000), "promotion_share"),
    ),
    mistakes=(
        Mistake(
            "ragged blocks at the edge were left out",
            "The last group of K and the last rows of w have a scale too: round the number of blocks up.",
            *({"whole_groups": groups, "whole_stripes": stripes} for groups, stripes in ((1, 0), (0, 1), (1, 1))),
        ),
        Mistake("every row of w was given its own scale", "In w, 32 rows share a scale.", w_rows=1),
        Mistake("the share is upside down", "Divide the CUDA cores' seconds by the tensor cores'.", inverted=True),
        Mistake("promotion was counted for every k", "`every` elements of K share one promotion.", per_k=True),
    ),
    hints={
        "form": "scale_bytes returns an int (divide with //), promotion_share a float.",
        "values": "For scale_bytes, write down the scales of one row of x and of 32 rows of w. For promotion_share, "
        "write down the FLOPs of one element of y within `every` elements of K: a multiply-add is two.",
    },
)

# ---------------------------------------------------------------- 09b.2 a layout


def device_byte(r, g):
    """Where in a tile the device reads the scale of row r and group g."""
    return (g % 4 * 16 + r % 16) * 4 + g // 4 * 2 + r // 16


def written_byte(r, g):
    """Where in a tile `packed_wrong` writes it."""
    return g // 4 * 128 + r % 16 * 8 + g % 4 * 2 + r // 16


@returns("row", "group")
def used_instead(row, group, *, inverted=False, within_tile=False):
    """The scale that the device reads for (row, group) where `packed_wrong` wrote the bytes."""
    r, g = row % 32, group % 8
    source, target = (written_byte, device_byte) if inverted else (device_byte, written_byte)
    other_r, other_g = next((i, j) for i in range(32) for j in range(8) if target(i, j) == source(r, g))
    return (other_r, other_g) if within_tile else (row - r + other_r, group - g + other_g)


@returns(packed="uint8")
def packed(scales, *, order=(0, 3, 5, 2, 4, 1), padding=127):
    """Tile by tile, along a row of tiles first; within a tile [group % 4, row % 16, group // 4, row // 16]."""
    rows, groups = scales.shape
    down, across = ceil(rows, 32), ceil(groups, 8)
    padded = np.full((down * 32, across * 8), padding, np.uint8)
    padded[:rows, :groups] = scales
    return padded.reshape(down, 2, 16, across, 2, 4).transpose(order).reshape(-1)


def place_in_tile(tile):
    """A place in the tile that is (tile, tile) away from the first, where neither layout agrees with the other."""

    def make(rng):
        while True:
            row, group = int(rng.integers(32)), int(rng.integers(8))
            there = used_instead(row, group)
            if there != (row, group) and used_instead(*there) != (row, group):
                return {"row": row + 32 * tile, "group": group + 8 * tile}

    return make


def random_scales(rows, groups):
    return lambda rng: {"scales": tensor(rng.integers(100, 150, (rows, groups)), "uint8")}


LAYOUT = Task(
    id="09b.2",
    title="Right in NumPy, garbage on the device",
    points=4,
    functions={"used_instead": used_instead, "packed": packed},
    cases=(
        Case("used_instead, in the first tile", place_in_tile(0), "used_instead"),
        Case("used_instead, elsewhere in the first tile", place_in_tile(0), "used_instead"),
        Case("used_instead, in another tile", place_in_tile(3), "used_instead"),
        *(
            Case(f"packed, {rows} x {groups}", random_scales(rows, groups), "packed")
            for rows, groups in ((32, 8), (64, 24), (50, 13), (1, 1))
        ),
    ),
    mistakes=(
        Mistake(
            "this is where the scale is used, not which scale is used there",
            "Which scale did `packed_wrong` write where the device reads that of (row, group)?",
            inverted=True,
        ),
        Mistake("this is the place within the tile", "Add the tile's first row and group.", within_tile=True),
        Mistake(
            "it still packs as packed_wrong does",
            "Compare the order of the six axes with the formula, the slowest first.",
            order=(0, 3, 4, 2, 5, 1),
        ),
        Mistake("tiles are in the wrong order", "All tiles of the first 32 rows come first.", order=(3, 0, 5, 2, 4, 1)),
        Mistake("the padding is not 127", "Pad with 127, the code of 1.", {"padding": 0}, {"padding": 255}),
    ),
    hints={
        "form": "used_instead returns two ints, packed one dimension of uint8, 256 bytes per tile.",
        "values": "Take a tile whose codes are 0, 1, 2, ... and write next to each byte which code the formula wants.",
    },
)

# ---------------------------------------------------------------- 09b.3 the kernel


@returns(y="bf16")
def scaled_linear(
    x, w, x_scale, w_scale, bias, *, group_used="own", tile=1, whole_groups=False, sum_in="", part_in="", scales_in=""
):
    """y = x w^T + bias: per 64 of K the matmul of the codes, times both scales, added to an fp32 sum.

    group_used: whose scales a group gets. tile: rows of w that get the scale of the first of them. sum_in, part_in,
    scales_in: the dtype that the sum, a group's matmul or the product of its scales is rounded to.
    """
    k, stripes = x.shape[1], np.arange(len(w)) // tile * tile // 32
    groups = k // 64 if whole_groups else ceil(k, 64)
    total = np.zeros((len(x), len(w)))
    for group in range(groups):
        codes = slice(64 * group, 64 * group + 64)
        other = {"own": group, "first": 0, "last": groups - 1}[group_used]
        part = rounded(x[:, codes] @ w[:, codes].T, part_in or "fp64")
        scales = rounded(x_scale[other][:, None] * w_scale[stripes, other], scales_in or "fp64")
        total = rounded(total + part * scales, sum_in or "fp64")
    return total + bias


def random_operands(m, n, k, x_stride=None, w_stride=None, spread=1.0, scales=(0.004, 0.04), bias=(1, 4)):
    """Codes whose mean is not 0, so that no row of the result is a small difference of large numbers; scales that
    differ from group to group and from row to row, w's 3/4 of x's. The rows of x_scale begin on 16 bytes."""

    def make(rng):
        groups = ceil(k, 64)
        return {
            "x": tensor(rng.normal(40, 40 * spread, (m, k)), "e4m3", x_stride),
            "w": tensor(rng.normal(30, 30 * spread, (n, k)), "e4m3", w_stride),
            "x_scale": tensor(rng.uniform(*scales, (groups, m)), "fp32", ceil(m, 4) * 4),
            "w_scale": tensor(0.75 * rng.uniform(*scales, (ceil(n, 32), groups))),
            "bias": tensor(rng.uniform(*bias, n)),
        }

    return make


def scaled_linear_bytes(x, w, x_scale, w_scale, bias):
    """Requested bytes of tiles of 32 x 32, with one scale per row and column at every 32 of K."""
    (m, k), n = x.shape, w.shape[0]
    down, across, steps = ceil(m, 32), ceil(n, 32), ceil(k, 32)
    return {
        "x": m * k * across,
        "w": n * k * down,
        "x_scale": 4 * m * steps * across,
        "w_scale": 4 * n * steps * down,
        "bias": 4 * n * down,
        "returned 0": 2 * m * n,
    }


LINEAR = Task(
    id="09b.3",
    title="FP8 with block scales: promoted every 64 of K",
    points=6,
    functions={"scaled_linear": scaled_linear},
    kernel=True,
    # sm_90 may widen them
    instruction=(89, {".e4m3.e4m3": "pass tiles of 8-bit floats to tl.dot as they were loaded"}),
    cases=(
        # the bias takes most of the sum away, so a sum that is rounded before the bias is added shows
        Case("32 x 64 x 64, one group", random_operands(32, 64, 64, spread=0.3, scales=(0.02, 0.024), bias=(-36, -12))),
        Case("64 x 64 x 256", random_operands(64, 64, 256)),
        Case(
            "33 x 70 x 136, ragged",
            random_operands(33, 70, 136),
            hint="K = 136 has three groups, and the last is ragged: use x_scale.stride(0) and w_scale.stride(0).",
        ),
        Case("16 x 64 x 1,536, many groups", random_operands(16, 64, 1536)),
        Case("32 x 64 x 192, small scales", random_operands(32, 64, 192, scales=(8e-4, 1.2e-3), bias=(0.05, 0.2))),
        Case("1 x 1 x 1", random_operands(1, 1, 1, spread=0.1)),
        *(
            Case(
                f"40 x 96 x 128, rows of {name} {stride} elements apart",
                random_operands(40, 96, 128, **{f"{name}_stride": stride}),
                hint=f"This {name} has padded rows: the next row starts {name}.stride(0) elements on, not K.",
            )
            for name, stride in (("x", 144), ("w", 160))
        ),
        Case("1 x 8,480 x 1, more tiles of 64 than a GPU has SMs", random_operands(1, 8480, 1, spread=0.1)),
    ),
    mistakes=(
        Mistake(
            "the sum over all of K was scaled by the scales of one group",
            "Multiply the matmul of each group by that group's scales, and add the result to a second, fp32 sum.",
            *({"group_used": group} for group in ("first", "last")),
        ),
        Mistake("rows of w were multiplied by the scale of other rows", "Row n has that of n // 32.", tile=TILE),
        Mistake("the last, ragged group was left out", "A group that K cuts short counts too.", whole_groups=True),
        Mistake(
            "an intermediate result was rounded to 16 bits",
            "Keep the scales, their product and every sum in fp32 until the bias is added, and convert y alone.",
            *({"sum_in": "bf16"}, {"part_in": "bf16"}, {"scales_in": "fp16"}),
        ),
    ),
    minimum_bytes=scaled_linear_bytes,
    max_tile=(64, 64),
    hints={
        "traffic": "The minimum is that of 32 x 32 tiles, with a scale per row and column at every 32 of K: smaller "
        "tiles read more. No side of a tile may be above 64.",
        "out_of_bounds": "Mask rows beyond M, columns beyond N and elements beyond K, in the codes and in the scales. "
        "Rows of x_scale are padded: group g begins at g * x_scale.stride(0).",
        "values": "Start with one group, K = 64: codes times codes, times both scales, plus the bias; then two groups. "
        "Padding between rows, also those of x_scale, holds NaN: mask it, with other=0.0.",
    },
)

TASKS = (COUNT, LAYOUT, LINEAR)
