"""Exercise 02: right answers in several styles pass, each plausible mistake fails with the hint made for it."""

from grading_tools import answer_tests, answers, edited

EXERCISE = "02_execution_model"
SOLUTION = answers(EXERCISE)

COUNT_BY_BYTES = """
def sectors(first, stride, itemsize):
    seen = set()
    for lane in range(32):
        for byte in range(itemsize):
            seen.add((first + lane * stride * itemsize + byte) >> 5)
    return len(seen)

def programs_per_sm(registers, shared, warps):
    a_quarter = 16384 // ((registers + 7) // 8 * 256)
    n = 0
    while n < 32 and (n + 1) * warps <= min(64, 4 * a_quarter) and (n + 1) * (shared + 1024) <= 228 * 1024:
        n += 1
    return n
"""
COUNT_BY_TENSOR = """
def sectors(first, stride, itemsize):
    return torch.unique((first + torch.arange(32) * stride * itemsize) // 32).numel()

def programs_per_sm(registers, shared, warps):
    limits = [64 // warps, 32, 233472 // (1024 + shared), 16384 // (-(-registers // 8) * 256) * 4 // warps]
    return sorted(limits)[0]
"""
ADD_STRIDING = """
@triton.jit
def k(x_ptr, y_ptr, out_ptr, n, m, BLOCK: tl.constexpr):
    for start in range(tl.program_id(0) * BLOCK, n, tl.num_programs(0) * BLOCK):
        i = start + tl.arange(0, BLOCK)
        y = tl.where(i < m, tl.load(y_ptr + i, i < m).to(tl.float32), 0.0)
        tl.store(out_ptr + i, tl.load(x_ptr + i, i < n).to(tl.float32) + y, i < n)

def add_short(x, y):
    out = x.new_empty(x.shape, dtype=torch.float32)
    k[(3, )](x, y, out, len(x), len(y), 256)
    return out
"""
ADD_TWO_STORES = """
@triton.jit
def k(x_ptr, y_ptr, out_ptr, n, m, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=7.0).to(tl.float32)
    if tl.program_id(0) * BLOCK < m:
        x += tl.load(y_ptr + i, mask=i < m, other=0.0)
    tl.store(out_ptr + i, x, mask=i < n)

def add_short(x, y):
    out = torch.empty_like(x, dtype=torch.float32)
    k[((x.numel() + 511) // 512, )](x, y, out, x.numel(), y.numel(), BLOCK=512)
    return out
"""
TRANSPOSE_BY_TRANS = """
@triton.jit
def k(x_ptr, out_ptr, rows, cols, row_stride, T: tl.constexpr):
    per_row = tl.cdiv(cols, T)
    r = tl.program_id(0) // per_row * T + tl.arange(0, T)
    c = tl.program_id(0) % per_row * T + tl.arange(0, T)
    inside = (r[:, None] < rows) & (c[None, :] < cols)
    tile = tl.load(x_ptr + r[:, None] * row_stride + c[None, :], mask=inside, other=0.0)
    tl.store(out_ptr + c[:, None] * rows + r[None, :], tl.trans(tile), mask=tl.trans(inside))

def transpose(x):
    out = x.new_empty(x.shape[::-1])
    k[(triton.cdiv(x.shape[0], 32) * triton.cdiv(x.shape[1], 32), )](x, out, *x.shape, x.stride(0), 32)
    return out
"""
TRANSPOSE_LOOPING = """
@triton.jit
def k(x_ptr, out_ptr, rows, cols, row_stride, R: tl.constexpr, C: tl.constexpr):
    row = tl.program_id(0) * R + tl.arange(0, R)[:, None]
    for start in tl.range(0, cols, C):
        col = start + tl.arange(0, C)[None, :]
        mask = (row < rows) & (col < cols)
        tl.store(out_ptr + col * rows + row, tl.load(x_ptr + row * row_stride + col, mask=mask), mask=mask)

def transpose(x):
    out = torch.empty(x.shape[1], x.shape[0], dtype=x.dtype, device=x.device)
    k[(triton.cdiv(x.shape[0], 64), )](x, out, x.shape[0], x.shape[1], x.stride(0), R=64, C=32)
    return out
"""
ROWS_SCALAR = """
@triton.jit
def k(x_ptr, s_ptr, m_ptr, cols, stride, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = 0.0
    best = float("-inf")
    for start in range(0, cols, BLOCK):
        col = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * stride + col, mask=col < cols, other=float("-inf")).to(tl.float32)
        total += tl.sum(tl.where(col < cols, x, 0.0))
        best = tl.maximum(best, tl.max(x))
    tl.store(s_ptr + row, total)
    tl.store(m_ptr + row, best)

def row_sum_max(x):
    s, m = (torch.empty(x.shape[0], device=x.device) for _ in range(2))
    k[(x.shape[0], )](x, s, m, x.shape[1], x.stride(0), 1024)
    return [s, m]
"""
ROWS_TWO_DIMENSIONS = """
@triton.jit
def k(x_ptr, s_ptr, m_ptr, rows, cols, stride, R: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * R + tl.arange(0, R)
    s = tl.zeros([R], tl.float32)
    m = tl.zeros([R], tl.float32) - float("inf")
    for start in tl.range(0, cols, BLOCK):
        col = start + tl.arange(0, BLOCK)
        mask = (row[:, None] < rows) & (col[None, :] < cols)
        x = tl.load(x_ptr + row[:, None] * stride + col[None, :], mask=mask, other=0.0).to(tl.float32)
        s += tl.sum(x, axis=1)
        m = tl.maximum(m, tl.max(tl.where(mask, x, float("-inf")), axis=1))
    tl.store(s_ptr + row, s, mask=row < rows)
    tl.store(m_ptr + row, m, mask=row < rows)

def row_sum_max(x):
    s = torch.empty(x.shape[0], dtype=torch.float32, device=x.device)
    m = torch.empty_like(s)
    k[(triton.cdiv(x.shape[0], 4), )](x, s, m, *x.shape, x.stride(0), 4, 512)
    return s, m
"""
STRAY_BY_LANES = """
def first(reads, size):
    for program, lanes in enumerate(reads):
        outside = [i for i in lanes if not 0 <= i < size]
        if outside:
            return program, min(outside)
    return -1, 0

def tiles(n, block):
    return [range(p, p + block) for p in range(0, n, block)]

def stray_next(n, block):
    return first([[i + 1 for i in t if i < n] for t in tiles(n, block)], n)

def stray_warps(n, block):
    return first([[i for i in t if i < (n + 31) // 32 * 32] for t in tiles(n, block)], n)

def stray_tile(rows, cols, block):
    return first([range(r * cols, r * cols + block) for r in range(rows)], rows * cols)

def stray_gather(n, block):
    return first([[0 if i < n else -1 for i in t] for t in tiles(n, block)], n)
"""
STRAY_CLOSED = """
def stray_next(n, block):
    return [triton.cdiv(n, block) - 1, n]

def stray_warps(n, block):
    return (n // block, n) if -n % 32 else (-1, 0)

def stray_tile(rows, cols, block):
    return (-1, 0) if block == cols else (max(0, rows - (block - 1) // cols), rows * cols)

def stray_gather(n, block):
    return (triton.cdiv(n, block) - 1, -1) if n % block else (-1, 0)
"""

RIGHT = {
    "by bytes": ("02.1", COUNT_BY_BYTES),
    "by tensor": ("02.1", COUNT_BY_TENSOR),
    "striding": ("02.2", ADD_STRIDING),
    "y where there is any": ("02.2", ADD_TWO_STORES),
    "tile transposed": ("02.3", TRANSPOSE_BY_TRANS),
    "looping over columns": ("02.3", TRANSPOSE_LOOPING),
    "scalars carried": ("02.4", ROWS_SCALAR),
    "two dimensions": ("02.4", ROWS_TWO_DIMENSIONS),
    "lane by lane": ("02.5", STRAY_BY_LANES),
    "closed forms": ("02.5", STRAY_CLOSED),
}

ROW_BY_ROW = """
@triton.jit
def k(x_ptr, out_ptr, rows, cols, row_stride, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    for start in tl.range(0, cols, BLOCK):
        col = start + tl.arange(0, BLOCK)
        tl.store(out_ptr + col * rows + row, tl.load(x_ptr + row * row_stride + col, mask=col < cols), mask=col < cols)

def transpose(x):
    out = x.new_empty(x.shape[::-1])
    k[(x.shape[0], )](x, out, *x.shape, x.stride(0), 128)
    return out
"""
COLUMN_BY_COLUMN = edited(
    ROW_BY_ROW,
    ("out_ptr + col * rows + row", "out_ptr + row * rows + col"),
    ("tl.range(0, cols", "tl.range(0, rows"),
    ("x_ptr + row * row_stride + col", "x_ptr + col * row_stride + row"),
    ("col < cols", "col < rows"),
    ("(x.shape[0], )", "(x.shape[1], )"),
)

PLAIN_COPY = edited(
    ROW_BY_ROW,
    ("out_ptr + col * rows + row", "out_ptr + row * cols + col"),
    ("x.new_empty(x.shape[::-1])", "x.new_empty(x.shape)"),
    ("return out", "return out.T"),
)

WRONG = {  # beside those that the slips of the tasks make
    # name: task, changes to the solution or a whole answer, kind of finding, words that the hint has to hold
    "a float": ("02.1", [("64 // warps, 32)", "64 // warps, 32) / 1")], "type", ["Return an int"]),
    "constants": ("02.1", [("return len(", "return 17 or len(")], "wrong", ["an address per thread"]),
    "one mask for both": ("02.2", [("mask=offsets < m, other=0.0", "mask=mask")], "out_of_bounds", ["Two masks"]),
    "no mask on the store": ("02.2", [("x + y, mask=mask", "x + y")], "out_of_bounds", ["Two masks"]),
    "stored up to m": (
        "02.2",
        [("x + y, mask=mask", "x + y, mask=offsets < m")],
        "unwritten",
        ["has to be stored by the kernel"],
    ),
    "missing elements without a value": ("02.2", [(", other=0.0", "")], "nan", ["other="]),
    "a tile of 1,000": ("02.2", [("BLOCK = 1024", "BLOCK = 1000")], "exception", ["power of 2"]),
    "grid of y": (
        "02.2",
        [("x.numel(), BLOCK), )](x", "y.numel(), BLOCK), )](x")],
        "unwritten",
        ["has to be stored by the kernel"],
    ),
    "at most 132 programs": (
        "02.2",
        [("(triton.cdiv(x.numel(), BLOCK), )", "(min(132, triton.cdiv(x.numel(), BLOCK)), )")],
        "unwritten",
        ["never written"],
    ),
    "16-bit result": ("02.2", [("dtype=torch.float32", "dtype=x.dtype")], "dtype", ["dtype=torch.float32"]),
    "torch adds": (
        "02.2",
        "def add_short(x, y):\n    out = x.float()\n    out[:len(y)] += y\n    return out\n",
        "no_kernel",
        ["write one and launch it"],
    ),
    "row by row": ("02.3", ROW_BY_ROW, "sectors", ["two dimensions, at least 16"]),
    "column by column": ("02.3", COLUMN_BY_COLUMN, "sectors", ["two dimensions, at least 16"]),
    "cols for the row stride": (
        "02.3",
        [("x, out, rows, cols, x.stride(0), ROWS=64, COLS=64", "x, out, rows, cols, cols, ROWS=64, COLS=64")],
        "out_of_bounds",
        ["x.stride(0)"],
    ),
    "no mask for columns": (
        "02.3",
        [("& (col < cols)[None, :]", "& (col >= 0)[None, :]")],
        "out_of_bounds",
        ["Mask rows and columns"],
    ),
    "last tiles left out": (
        "02.3",
        [("triton.cdiv(cols, 64))", "max(1, cols // 64))")],
        "unwritten",
        ["never written"],
    ),
    "at most 132 programs along the columns": (
        "02.3",
        [("triton.cdiv(cols, 64))", "min(132, triton.cdiv(cols, 64)))")],
        "unwritten",
        ["never written"],
    ),
    "shape of x": ("02.3", [("torch.empty((cols, rows)", "torch.empty((rows, cols)")], "shape", ["[cols, rows]"]),
    "a view of a plain copy": ("02.3", PLAIN_COPY, "strides", ["A view such as out.T"]),
    "a result with the strides of x.T": (
        "02.3",
        [("torch.empty((cols, rows), dtype=x.dtype, device=x.device)", "torch.empty_like(x.T)")],
        "strides",
        ["torch.empty_like(x.T)"],
    ),
    "cols for the result's rows": (
        "02.3",
        [("col[None, :] * rows", "col[None, :] * cols")],
        "out_of_bounds",
        ["a row of the result has `rows`"],
    ),
    "diagonals of the tiles": (
        "02.3",
        [
            ("(row < rows)[:, None] & (col < cols)[None, :]", "(row < rows) & (col < cols)"),
            ("row[:, None]", "row"),
            ("col[None, :]", "col"),
        ],
        "unwritten",
        ["only a diagonal is stored"],
    ),
    "torch transposes": (
        "02.3",
        "def transpose(x):\n    return x.T.contiguous()\n",
        "no_kernel",
        ["write one and launch it"],
    ),
    "maximum masked with -10,000": (
        "02.4",
        [('tl.where(mask, x, float("-inf"))', "tl.where(mask, x, -1e4)")],
        None,
        ["only float('-inf') is below every number"],
    ),
    "maximum masked with fp16's lowest": (
        "02.4",
        [('tl.where(mask, x, float("-inf"))', "tl.where(mask, x, -65504.0)")],
        None,
        ["only float('-inf') is below every number"],
    ),
    "maximum from -1e9 on": (
        "02.4",
        [('tl.full([BLOCK], float("-inf")', "tl.full([BLOCK], -1e9")],
        None,
        ["only float('-inf') is below every number"],
    ),
    "masked lanes without a value": ("02.4", [(", other=0.0", "")], "nan", ["Give the sum 0"]),
    "sum in the dtype of x": (
        "02.4",
        [
            ("other=0.0).to(tl.float32)", "other=0.0)"),
            ("[BLOCK], dtype=tl.float32)\n    largest", "[BLOCK], dtype=x_ptr.dtype.element_ty)\n    largest"),
        ],
        ("overflow", "sixteen_bit", "row_scale", "slip"),
        ["fp32"],
    ),
    "running sum that begins in the dtype of x": (
        "02.4",
        [("[BLOCK], dtype=tl.float32)\n    largest", "[BLOCK], dtype=x_ptr.dtype.element_ty)\n    largest")],
        "compile",
        ["total"],
    ),
    "columns for the stride": (
        "02.4",
        [("x.stride(0), BLOCK=2048", "x.shape[1], BLOCK=2048")],
        "out_of_bounds",
        ["x.stride(0)"],
    ),
    "no mask": ("02.4", [("mask = col < cols", "mask = col >= 0")], "out_of_bounds", ["Mask every load"]),
    "tile as wide as the row": ("02.4", [("BLOCK=2048", "BLOCK=131072")], "tile_too_wide", ["at most 2,048 columns"]),
    "at most 132 programs, and no loop over rows": (
        "02.4",
        [("[(rows, )]", "[(min(rows, 132), )]")],
        "unwritten",
        ["elements from 132 on"],
    ),
    "A: another program": ("02.5", [("return (n - 1) // block, n ", "return -4, n ")], "wrong", ["as program"]),
    "C: cols divides the tile": ("02.5", [("block > rows * cols", "block >= rows * cols")], "wrong", ["stray_tile"]),
    "C: whole rows of a tile": (
        "02.5",
        [("if row * cols + block > rows * cols", "if row > rows - block // cols")],
        "slip",
        ["kernel C strays"],
    ),
    "an int alone": ("02.5", [("return row, rows * cols", "return row")], "count", ["two ints"]),
}

TILES = {"02.2": 1024}


test_right, test_wrong, test_untouched, test_enough = answer_tests(SOLUTION, RIGHT, WRONG)
