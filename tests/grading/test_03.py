"""Exercise 03: right answers in several styles pass, each plausible mistake fails with the hint made for it."""

from grading_tools import answer_tests, answers, edited

EXERCISE = "03_tiling"
SOLUTION = answers(EXERCISE)

COUNT_BY_PROGRAMS = """
from math import ceil

def dot_bytes(m, n, k, itemsize):
    return sum((m * n * 2 * k * itemsize, m * n * itemsize))

def tiled_bytes(m, n, k, block_m, block_n, itemsize):
    read = sum(k * (min(block_m, m - i) * ceil(n / block_n)) for i in range(0, m, block_m))
    read += sum(k * (min(block_n, n - j) * ceil(m / block_m)) for j in range(0, n, block_n))
    return read * itemsize + m * n * itemsize

def tile_intensity(block_m, block_n, itemsize):
    return 2 / itemsize / (1 / block_m + 1 / block_n)
"""
COUNT_BY_TILE = """
def dot_bytes(m, n, k, itemsize):
    return tiled_bytes(m, n, k, 1, 1, itemsize)

def tiled_bytes(m, n, k, block_m, block_n, itemsize):
    return itemsize * (m * n + k * (m * ((n + block_n - 1) // block_n) + n * ((m + block_m - 1) // block_m)))

def tile_intensity(block_m, block_n, itemsize):
    return block_m * block_n * 2 / itemsize / (block_m + block_n)
"""
LOOP_K_OUTSIDE = """
def tile_loop(x, w, block):
    y = torch.zeros(len(x), len(w), device=x.device)
    for k in range(0, x.shape[1], block):
        for row in range(0, len(x), block):
            left = x[row:row + block, k:k + block].to(torch.float32)
            for col in range(0, len(w), block):
                y[row:row + block, col:col + block] += left @ w[col:col + block, k:k + block].to(torch.float32).T
    return y
"""
LOOP_SPLIT = """
def tile_loop(x, w, block):
    y = x.new_zeros((x.shape[0], w.shape[0]), dtype=torch.float32)
    for rows, out in zip(x.split(block), y.split(block)):
        for cols, tile in zip(w.split(block), out.split(block, dim=1)):
            for a, b in zip(rows.split(block, dim=1), cols.split(block, dim=1)):
                tile.addmm_(a.float(), b.float().t())
    return y
"""
ONE_AXIS = """
@triton.jit
def one_axis_kernel(x, w, y, M, N, K, xs, xk, ws, wk, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    tiles_n = tl.cdiv(N, BN)
    i = (tl.program_id(0) // tiles_n) * BM + tl.arange(0, BM)[:, None]
    j = (tl.program_id(0) % tiles_n) * BN + tl.arange(0, BN)[:, None]
    total = tl.zeros((BM, BN), tl.float32)
    for block in range(tl.cdiv(K, BK)):
        k = block * BK + tl.arange(0, BK)[None, :]
        a = tl.load(x + i * xs + k * xk, (i < M) & (k < K), 0.0)
        b = tl.load(w + j * ws + k * wk, (j < N) & (k < K), 0.0)
        total += tl.dot(a, tl.trans(b), input_precision="ieee")
    j = tl.trans(j)
    tl.store(y + i * N + j, total, (i < M) & (j < N))

def NAME(x, w):
    y = x.new_empty((x.shape[0], w.shape[0]), dtype=torch.float32)
    M, N = y.shape
    grid = (triton.cdiv(M, 64) * triton.cdiv(N, 32), )
    one_axis_kernel[grid](x, w, y, M, N, x.shape[1], *x.stride(), *w.stride(), 64, 32, 16)
    return y
"""
STRIDING = """
@triton.jit
def striding_kernel(x, w, y, M, N, K, xs, xk, ws, wk, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    tiles = tl.cdiv(M, BM) * tl.cdiv(N, BN)
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        i = tile // tl.cdiv(N, BN) * BM + tl.arange(0, BM)
        j = tile % tl.cdiv(N, BN) * BN + tl.arange(0, BN)
        a_ptrs = x + i[:, None] * xs + tl.arange(0, BK)[None, :] * xk
        b_ptrs = w + j[None, :] * ws + tl.arange(0, BK)[:, None] * wk
        total = tl.zeros((BM, BN), tl.float32)
        for left in range(K, 0, -BK):
            k = tl.arange(0, BK)
            a = tl.load(a_ptrs, mask=(i < M)[:, None] & (k < left)[None, :], other=0)
            b = tl.load(b_ptrs, mask=(j < N)[None, :] & (k < left)[:, None], other=0)
            total = tl.dot(a.to(tl.float32), b.to(tl.float32), total, input_precision="ieee")
            a_ptrs += BK * xk
            b_ptrs += BK * wk
        tl.store(y + i[:, None] * N + j[None, :], total, mask=(i < M)[:, None] & (j < N)[None, :])

def NAME(x, w):
    M, N = x.shape[0], w.shape[0]
    y = torch.empty((M, N), device=x.device)
    striding_kernel[(3, )](x, w, y, M, N, x.shape[1], *x.stride(), *w.stride(), BM=32, BN=64, BK=32)
    return y
"""
ORDER_COLUMNS = """
@triton.jit
def columns_kernel(x, w, y, order, N, tiles_m, tiles_n, WIDTH: tl.constexpr):
    p = tl.program_id(0)
    band = p // (tiles_m * WIDTH)                 # bands of columns, each walked row by row
    width = min(WIDTH, tiles_n - band * WIDTH)
    left = p % (tiles_m * WIDTH)
    i, j = left // width, band * WIDTH + left % width
    tl.store(order + p, i * tiles_n + j)
    rows, cols, k = i * 16 + tl.arange(0, 16), j * 16 + tl.arange(0, 16), tl.arange(0, 32)
    a = tl.load(x + rows[:, None] * 32 + k[None, :])
    b = tl.load(w + cols[:, None] * 32 + k[None, :])
    tl.store(y + rows[:, None] * N + cols[None, :], tl.dot(a, b.T, input_precision="ieee"))

def grouped_linear(x, w):
    tiles_m, tiles_n = x.shape[0] // 16, w.shape[0] // 16
    y = torch.empty(x.shape[0], w.shape[0], device=x.device)
    order = torch.empty(tiles_m * tiles_n, dtype=torch.int32, device=x.device)
    columns_kernel[(tiles_m * tiles_n, )](x, w, y, order, w.shape[0], tiles_m, tiles_n, WIDTH=3)
    return y, order
"""
ORDER_SNAKE = edited(
    SOLUTION["03.5"],
    (
        "tile_n = first + within % height, within // height",
        "tile_n = first + within % height, within // height\n"
        "    tile_n = tl.where(group % 2 == 1, tiles_n - 1 - tile_n, tile_n)",
    ),
)
CHOOSE_BY_LOOPS = """
def choose_tile(shared, threads, stages, block_k, itemsize):
    best, chosen = 0, None
    side = shared // (stages * block_k * itemsize)
    for m in (256, 128, 64, 32, 16):
        for n in (256, 128, 64, 32, 16):
            if m + n <= side and m * n // threads <= 128 and 1 / (1 / m + 1 / n) > best:
                best, chosen = 1 / (1 / m + 1 / n), [n, m]
    return chosen
"""
CHOOSE_BY_RATIO = """
import itertools

def choose_tile(shared, threads, stages, block_k, itemsize):
    def key(tile):
        m, n = tile
        fits = stages * block_k * itemsize * (m + n) <= shared and m * n <= threads * 128
        return fits, m * n / (m + n)
    return max(itertools.product([2**i for i in range(4, 9)], repeat=2), key=key)
"""

COUNT_EACH_PROGRAM = """
def dot_bytes(m, n, k, itemsize):
    return sum((2 * k + 1) * itemsize for _ in range(m) for _ in range(n))

def tiled_bytes(m, n, k, block_m, block_n, itemsize):
    total = 0
    for i in range(0, m, block_m):
        for j in range(0, n, block_n):
            rows, cols = min(block_m, m - i), min(block_n, n - j)
            total += (rows * k + cols * k + rows * cols) * itemsize
    return total

def tile_intensity(block_m, block_n, itemsize):
    return 2 * block_m * block_n / ((block_m + block_n) * itemsize)
"""
SUMS_ON_NOTHING = """
def tile_loop(x, w, block):
    y = torch.empty(len(x), len(w), device=x.device)
    for k in range(0, x.shape[1], block):
        for i in range(0, len(x), block):
            for j in range(0, len(w), block):
                a, b = x[i:i + block, k:k + block].float(), w[j:j + block, k:k + block].float()
                y[i:i + block, j:j + block] += a @ b.T
    return y
"""
JOINED = """
def tile_loop(x, w, block):
    rows = []
    for a in x.split(block):
        pairs = [zip(a.split(block, 1), b.split(block, 1)) for b in w.split(block)]
        rows.append(torch.cat([sum(p.float() @ q.float().T for p, q in pair) for pair in pairs], dim=1))
    return torch.cat(rows)
"""
NO_LOOP = [
    (
        """    total = tl.zeros([BLOCK, BLOCK], dtype=tl.float32)
    for start in range(0, K, BLOCK):
        total = tl.dot(tl.load(x_ptrs + start), tl.load(w_ptrs + start), total, input_precision="ieee")""",
        """    k = tl.arange(0, DEPTH)
    x = tl.load(x_ptr + row[:, None] * x_row_stride + k[None, :], mask=k[None, :] < K, other=0.0)
    w = tl.load(w_ptr + col[None, :] * w_row_stride + k[:, None], mask=k[:, None] < K, other=0.0)
    total = tl.dot(x, w, input_precision="ieee")""",
    ),
    ("BLOCK: tl.constexpr", "BLOCK: tl.constexpr, DEPTH: tl.constexpr"),
    ("BLOCK=32", "BLOCK=32, DEPTH=triton.next_power_of_2(K)"),
]
ONE_PROGRAM = [
    (
        "grid = (triton.cdiv(M, 32), triton.cdiv(N, 32))",
        "block = max(32, triton.next_power_of_2(max(M, N, K)))\n    grid = (1, 1)",
    ),
    ("BLOCK=32", "BLOCK=block"),
]
WRAPPED = [
    ("x_ptr + row[:, None]", "x_ptr + (row % M)[:, None]"),
    ("w_ptr + col[None, :]", "w_ptr + (col % N)[None, :]"),
    ("(row[:, None] < M) & (k[None, :] < K)", "k[None, :] < K"),
    ("(col[None, :] < N) & (k[:, None] < K)", "k[:, None] < K"),
]
ANOTHER_ORDER = [
    (
        "row = tile_m * 16",
        "number = tile_m * tiles_n + tile_n\n"
        "    tile_m, tile_n = program // tiles_n, program % tiles_n\n    row = tile_m * 16",
    ),
    ("tile_m * tiles_n + tile_n)", "number)"),
]

RIGHT = {
    "by programs": ("03.1", COUNT_BY_PROGRAMS),
    "by tile": ("03.1", COUNT_BY_TILE),
    "each program": ("03.1", COUNT_EACH_PROGRAM),
    "K outside": ("03.2", LOOP_K_OUTSIDE),
    "split": ("03.2", LOOP_SPLIT),
    "one axis": ("03.3", ONE_AXIS.replace("NAME", "linear")),
    "striding": ("03.3", STRIDING.replace("NAME", "linear")),
    "one axis, any size": ("03.4", ONE_AXIS.replace("NAME", "any_linear")),
    "striding, any size": ("03.4", STRIDING.replace("NAME", "any_linear")),
    "bands of columns": ("03.5", ORDER_COLUMNS),
    "snake": ("03.5", ORDER_SNAKE),
    "by loops": ("03.6", CHOOSE_BY_LOOPS),
    "by ratio": ("03.6", CHOOSE_BY_RATIO),
}

WRONG = {
    # name: task, changes to the solution or a whole answer, kind of finding, words that the hint has to hold
    "a float": (
        "03.1",
        [("return (x + w + m * n) * itemsize", "return float((x + w + m * n) * itemsize)")],
        "type",
        ["Bytes are whole"],
    ),
    "sums in 16 bits, in torch": (
        "03.2",
        [
            (
                "total = torch.zeros_like(y[rows, cols])",
                "total = torch.zeros_like(y[rows, cols], dtype=torch.bfloat16)",
            ),
            ("x_tile @ w_tile.T", "(x_tile @ w_tile.T).bfloat16()"),
        ],
        None,
        ["fp32"],
    ),
    "columns rounded down": (
        "03.2",
        [("range(0, N, block)", "range(0, N - block + 1, block)")],
        "nan",
        ["range(0, size, block)"],
    ),
    "rows rounded down": (
        "03.2",
        [("range(0, M, block)", "range(0, M - block + 1, block)")],
        "nan",
        ["range(0, size, block)"],
    ),
    "16-bit products": (
        "03.2",
        [
            (".float()     # [block, block]\n                w", "     # [block, block]\n                w"),
            ("w[cols, k:k + block].float()", "w[cols, k:k + block]"),
            ("total += x_tile @ w_tile.T", "total += (x_tile @ w_tile.T).float()"),
        ],
        "wrong",
        ["fp32 before they are multiplied"],
    ),
    "sums on nothing": ("03.2", SUMS_ON_NOTHING, "nan", ["sum at zero"]),
    "tiles joined": ("03.2", JOINED, "whole_tensor", ["its slice of y"]),
    "whole rows": (
        "03.2",
        [("y[rows, cols] = total", "y[rows, cols] = x[rows].float() @ w[cols].float().T")],
        "whole_tensor",
        ["Take slices of block by block"],
    ),
    "first tile again and again": ("03.3", [("w_ptrs + start", "w_ptrs + 0")], "wrong", ["sum runs over all of K"]),
    "K for x's row stride": (
        "03.3",
        [("row[:, None] * x_row_stride", "row[:, None] * K")],
        "out_of_bounds",
        ["x.stride(0)"],
    ),
    "K for w's row stride": (
        "03.3",
        [("col[None, :] * w_row_stride", "col[None, :] * K")],
        "out_of_bounds",
        ["w.stride(0)"],
    ),
    "one column of tiles": ("03.3", [("(M // 32, N // 32)", "(M // 32, 1)")], "unwritten", ["cover every tile"]),
    "tiles of 16": (
        "03.3",
        [("(M // 32, N // 32)", "(M // 16, N // 16)"), ("BLOCK=32", "BLOCK=16")],
        "bytes",
        ["Smaller tiles ask for more"],
    ),
    "sums in 16 bits": (
        "03.3",
        [
            (
                "total = tl.dot(tl.load(x_ptrs + start), tl.load(w_ptrs + start), total,",
                "total += tl.dot(tl.load(x_ptrs + start), tl.load(w_ptrs + start),",
            ),
            ("tl.zeros([BLOCK, BLOCK], dtype=tl.float32)", "tl.zeros([BLOCK, BLOCK], dtype=tl.bfloat16)"),
            ('input_precision="ieee")', 'input_precision="ieee").to(tl.bfloat16)'),
        ],
        None,
        ["fp32"],
    ),
    "grid's axes swapped": (
        "03.3",
        [("(M // 32, N // 32)", "(N // 32, M // 32)")],
        "out_of_bounds",
        ["order of the grid's axes"],
    ),
    "no loop over K": ("03.3", NO_LOOP, "tile_too_wide", ["loops over K"]),
    "no more programs than multiprocessors": (
        "03.3",
        [("(M // 32, N // 32)", "(M // 32, min(N // 32, 132))")],
        "unwritten",
        ["never written", "a program for each"],
    ),
    "y in columns": (
        "03.3",
        [
            (
                "torch.empty(M, N, dtype=torch.float32, device=x.device)",
                "torch.empty(N, M, dtype=torch.float32, device=x.device).T",
            ),
            ("row[:, None] * N + col[None, :]", "row[:, None] + col[None, :] * M"),
            ("y_ptr, N,", "y_ptr, M, N,"),
            ("y, N,", "y, M, N,"),
        ],
        "strides",
        ["not contiguous"],
    ),
    "TF32": ("03.3", [(', input_precision="ieee"', "")], "tf32", ["interpreter multiplies exactly"]),
    "torch alone": (
        "03.3",
        "def linear(x, w):\n    return x.float() @ w.float().T\n",
        "no_kernel",
        ["write one and launch it"],
    ),
    "no mask for M": (
        "03.4",
        [("(row[:, None] < M) & (k[None, :] < K)", "(k[None, :] < K)")],
        "out_of_bounds",
        ["A tile that hangs over"],
    ),
    "no mask for N": (
        "03.4",
        [("(col[None, :] < N) & (k[:, None] < K)", "(k[:, None] < K)")],
        "out_of_bounds",
        ["A tile that hangs over"],
    ),
    "masks in K alone": (
        "03.4",
        [
            ("(row[:, None] < M) & (k[None, :] < K)", "k[None, :] < K"),
            ("(col[None, :] < N) & (k[:, None] < K)", "k[:, None] < K"),
        ],
        "out_of_bounds",
        ["A tile that hangs over"],
    ),
    "sums in 16 bits, any size": (
        "03.4",
        [
            ("total = tl.dot(x, w, total,", "total += tl.dot(x, w,"),
            ("tl.zeros([BLOCK, BLOCK], dtype=tl.float32)", "tl.zeros([BLOCK, BLOCK], dtype=tl.bfloat16)"),
            ('input_precision="ieee")', 'input_precision="ieee").to(tl.bfloat16)'),
        ],
        None,
        ["fp32"],
    ),
    "no mask on the store": (
        "03.4",
        [(", mask=(row[:, None] < M) & (col[None, :] < N))", ")")],
        "out_of_bounds",
        ["A tile that hangs over"],
    ),
    "columns side by side": (
        "03.4",
        [("k[None, :] * x_col_stride", "k[None, :]")],
        "out_of_bounds",
        ["neighbours in a row are stride(1)"],
    ),
    "columns of both side by side": (
        "03.4",
        [("k[None, :] * x_col_stride", "k[None, :]"), ("k[:, None] * w_col_stride", "k[:, None]")],
        "out_of_bounds",
        ["neighbours in a row are stride(1)"],
    ),
    "one program": ("03.4", ONE_PROGRAM, "tile_too_wide", ["above 64"]),
    "wrapped lanes": ("03.4", WRAPPED, "bytes", ["wrapped"]),
    "TF32, any size": ("03.4", [(', input_precision="ieee"', "")], "tf32", ["interpreter multiplies exactly"]),
    "edge tiles left out": (
        "03.4",
        [("triton.cdiv(M, 32), triton.cdiv(N, 32)", "max(1, M // 32), max(1, N // 32)")],
        "unwritten",
        ["are never written"],
    ),
    "one stride of x taken for 1": (
        "03.4",
        [("*x.stride(),", "*[1 if s == min(x.stride()) else s for s in x.stride()],")],
        "out_of_bounds",
        ["no stride need be 1"],
    ),
    "w in rows or in columns": (
        "03.4",
        [("*w.stride(),", "*((w.stride(0), 1) if w.stride(1) == 1 else (1, w.stride(1))),")],
        None,
        ["no stride need be 1"],
    ),
    "no more programs than multiprocessors, any size": (
        "03.4",
        [("(triton.cdiv(M, 32), triton.cdiv(N, 32))", "(triton.cdiv(M, 32), min(triton.cdiv(N, 32), 11))")],
        "unwritten",
        ["never written", "a program for each"],
    ),
    "y cut out of whole tiles": (
        "03.4",
        [
            (
                "torch.empty(M, N, dtype=torch.float32, device=x.device)",
                "torch.empty(M, N + 8, dtype=torch.float32, device=x.device)[:, :N]",
            ),
            ("row[:, None] * N", "row[:, None] * (N + 8)"),
        ],
        "strides",
        ["not contiguous"],
    ),
    "no mask for K": (
        "03.4",
        [(" & (k[None, :] < K)", ""), (" & (k[:, None] < K)", "")],
        "out_of_bounds",
        ["A tile that hangs over"],
    ),
    "no more programs than multiprocessors, in groups": (
        "03.5",
        [
            ("programs = (M // 16) * (N // 16)", "programs = min(160, (M // 16) * (N // 16))"),
            ("torch.empty(programs,", "torch.empty((M // 16) * (N // 16),"),
        ],
        ("verdict", "not_read"),
        [],
    ),
    "row by row": ("03.5", [("GROUP=4", "GROUP=1")], "verdict", ["nearly square"]),
    "column by column": ("03.5", [("GROUP=4", "GROUP=64")], "verdict", ["nearly square"]),
    "last group as high as the others": (
        "03.5",
        [("tl.minimum(tiles_m - first, GROUP)", "GROUP")],
        "out_of_bounds",
        ["last group may have fewer rows"],
    ),
    "order claimed": (
        "03.5",
        [("tile_m * tiles_n + tile_n)", "program)")],
        "verdict",
        ["order[p] is the number of the tile"],
    ),
    "row by row, another order claimed": ("03.5", ANOTHER_ORDER, "verdict", ["program 1 stores tile 1 of y"]),
    "order the other way round": (
        "03.5",
        [("order_ptr + program, tile_m * tiles_n + tile_n", "order_ptr + tile_m * tiles_n + tile_n, program")],
        "verdict",
        ["order[p] is the number of the tile"],
    ),
    "TF32, in groups": ("03.5", [(', input_precision="ieee"', "")], "tf32", ["interpreter multiplies exactly"]),
    "order in int64": ("03.5", [("dtype=torch.int32", "dtype=torch.int64")], "verdict", ["int32 tensor"]),
    "order of other tiles": (
        "03.5",
        [('tl.dot(x, w, input_precision="ieee")', 'tl.dot(x, w, input_precision="ieee") * 2')],
        "verdict",
        ["tile whose number you report"],
    ),
    "y alone": ("03.5", [("return y, order", "return y")], "verdict", ["expected two"]),
    "order in fp32": ("03.5", [("dtype=torch.int32", "dtype=torch.float32")], "verdict", ["int32 tensor"]),
    "one stage": ("03.6", [("stages * (m + n)", "(m + n)")], "verdict", ["Every stage holds"]),
    "the larger tile alone": (
        "03.6",
        [("(m + n) * block_k * itemsize <= shared", "max(m, n) * block_k * itemsize <= shared")],
        "verdict",
        ["Every stage holds"],
    ),
    "registers left out": ("03.6", [(" and m * n <= 128 * threads", "")], "verdict", ["sums per thread"]),
    "less than shared": ("03.6", [("<= shared", "< shared")], "verdict", ["exactly `shared` bytes still fits"]),
    "fewer sums": ("03.6", [("<= 128 * threads", "< 128 * threads")], "verdict", ["Exactly 128 sums"]),
    "bytes of sums": (
        "03.6",
        [("m * n <= 128 * threads", "4 * m * n <= 128 * threads")],
        "verdict",
        ["not their bytes"],
    ),
    "smallest": ("03.6", [("max(fits,", "min(fits,")], "verdict", ["which fits too"]),
    "square tiles alone": (
        "03.6",
        [("for m in sides for n in sides", "for m in sides for n in [m]")],
        "verdict",
        ["need not be square"],
    ),
    "words for numbers": (
        "03.6",
        [("return max(fits", "return str(max(fits"), ("(tile[0] + tile[1]))", "(tile[0] + tile[1])))")],
        "verdict",
        ["two ints"],
    ),
}

NOT_ONE = {
    ("03.3", "linear"): "M, N and K are multiples of 32",
    ("03.5", "grouped_linear"): "M and N are multiples of 16, K is 32",
}
NOT_FAR = {("03.5", "grouped_linear"): "contiguous"}


test_right, test_wrong, test_untouched, test_enough = answer_tests(SOLUTION, RIGHT, WRONG)
