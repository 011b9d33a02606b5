"""Exercise 02 under test: several right answers of each task score, and each mistake fails with the hint made for it."""

import pytest

from grading_tools import answers, edited, verdict_of

SEEDS = (20260, 1, 2)
OWN = answers("02_execution_model")
COUNT, ADD, TRANSPOSE, ROWS, STRAY = (OWN[f"02.{k}"] for k in range(1, 6))

COUNT_BY_BYTES = '''
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
'''
COUNT_BY_TENSOR = '''
def sectors(first, stride, itemsize):
    return torch.unique((first + torch.arange(32) * stride * itemsize) // 32).numel()

def programs_per_sm(registers, shared, warps):
    limits = [64 // warps, 32, 233472 // (1024 + shared), 16384 // (-(-registers // 8) * 256) * 4 // warps]
    return sorted(limits)[0]
'''
ADD_STRIDING = '''
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
'''
ADD_TWO_STORES = '''
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
'''
TRANSPOSE_BY_TRANS = '''
@triton.jit
def k(x_ptr, out_ptr, rows, cols, row_stride, T: tl.constexpr):
    per_row = tl.cdiv(cols, T)
    r = tl.program_id(0) // per_row * T + tl.arange(0, T)
    c = tl.program_id(0) % per_row * T + tl.arange(0, T)
    tile = tl.load(x_ptr + r[:, None] * row_stride + c[None, :], mask=(r[:, None] < rows) & (c[None, :] < cols), other=0.0)
    tl.store(out_ptr + c[:, None] * rows + r[None, :], tl.trans(tile), mask=(c[:, None] < cols) & (r[None, :] < rows))

def transpose(x):
    out = x.new_empty(x.shape[::-1])
    k[(triton.cdiv(x.shape[0], 32) * triton.cdiv(x.shape[1], 32), )](x, out, *x.shape, x.stride(0), 32)
    return out
'''
TRANSPOSE_LOOPING = '''
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
'''
ROWS_SCALAR = '''
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
'''
ROWS_TWO_DIMENSIONS = '''
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
'''
STRAY_BY_LANES = '''
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
'''
STRAY_CLOSED = '''
def stray_next(n, block):
    return [triton.cdiv(n, block) - 1, n]

def stray_warps(n, block):
    return (n // block, n) if -n % 32 else (-1, 0)

def stray_tile(rows, cols, block):
    return (-1, 0) if block == cols else (max(0, rows - (block - 1) // cols), rows * cols)

def stray_gather(n, block):
    return (triton.cdiv(n, block) - 1, -1) if n % block else (-1, 0)
'''

RIGHT = [("02.1", COUNT), ("02.1", COUNT_BY_BYTES), ("02.1", COUNT_BY_TENSOR), ("02.2", ADD), ("02.2", ADD_STRIDING),
         ("02.2", ADD_TWO_STORES), ("02.3", TRANSPOSE), ("02.3", TRANSPOSE_BY_TRANS), ("02.3", TRANSPOSE_LOOPING),
         ("02.4", ROWS), ("02.4", ROWS_SCALAR), ("02.4", ROWS_TWO_DIMENSIONS), ("02.5", STRAY), ("02.5", STRAY_BY_LANES),
         ("02.5", STRAY_CLOSED)]


@pytest.mark.parametrize("task, source", RIGHT, ids=[f"{task} {i}" for i, (task, _) in enumerate(RIGHT)])
def test_right(task, source):
    for seed in SEEDS:
        verdict = verdict_of(task, source, seed)
        assert verdict.status in ("passed", "pending"), verdict
        assert verdict.points + verdict.pending_points == verdict.max_points, verdict


ROW_BY_ROW = '''
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
'''
COLUMN_BY_COLUMN = ROW_BY_ROW.replace("out_ptr + col * rows + row", "out_ptr + row * rows + col").replace(
    "x_ptr + row * row_stride + col", "x_ptr + col * row_stride + row").replace("tl.range(0, cols", "tl.range(0, rows").replace(
    "col < cols", "col < rows").replace("(x.shape[0], )", "(x.shape[1], )")

WRONG = [
    # 02.1
    ("02.1", COUNT, [("(first + lane", "(lane")], "count from `first`"),
    ("02.1", COUNT, [("// 32 for lane", "// 128 for lane")], "four of them make a line"),
    ("02.1", COUNT, [("len({(first + lane * stride * itemsize) // 32 for lane in range(32)})", "32")], "collect the sectors in a set"),
    ("02.1", COUNT, [("len({(first + lane * stride * itemsize) // 32 for lane in range(32)})", "itemsize")], "go by addresses"),
    ("02.1", COUNT, [("lane * stride * itemsize", "lane * stride")], "multiply by itemsize"),
    ("02.1", COUNT, [("(shared + 1024)", "max(1, shared)")], "1,024 bytes more"),
    ("02.1", COUNT, [("4 * (16_384 // per_warp) // warps", "65_536 // (32 * registers * warps)")], "multiples of 256"),
    ("02.1", COUNT, [("4 * (16_384 // per_warp)", "65_536 // per_warp")], "count 16,384 // per_warp"),
    ("02.1", COUNT, [("64 // warps, 32)", "64 // warps, 32) * warps")], "not warps"),
    ("02.1", COUNT, [("64 // warps, 32)", "64 // warps)")], "at most 32 programs"),
    ("02.1", COUNT, [("64 // warps, 32)", "32)")], "at most 64 warps"),
    # 02.2
    ("02.2", ADD, [("mask=offsets < m, other=0.0", "mask=mask")], "Two masks"),
    ("02.2", ADD, [("x + y, mask=mask", "x + y")], "Two masks"),
    ("02.2", ADD, [("other=0.0", "other=1.0")], "leaves a sum alone"),
    ("02.2", ADD, [("x + y, mask=mask", "x + y, mask=offsets < m")], "has to be stored by the kernel"),
    ("02.2", ADD, [("x + y, mask=mask", "x - y, mask=mask")], "Add."),
    ("02.2", ADD, [("x + y, mask=mask", "x, mask=mask")], "Add y where"),
    ("02.2", ADD, [("x.numel(), BLOCK), )](x", "y.numel(), BLOCK), )](x")], "has to be stored by the kernel"),
    ("02.2", ADD, [("dtype=torch.float32", "dtype=x.dtype")], "dtype=torch.float32"),
    ("02.2", "def add_short(x, y):\n    out = x.float()\n    out[:len(y)] += y\n    return out\n", [], "write one and launch it"),
    # 02.3
    ("02.3", ROW_BY_ROW, [], "two dimensions, at least 16"),
    ("02.3", COLUMN_BY_COLUMN, [], "two dimensions, at least 16"),
    ("02.3", TRANSPOSE, [("x, out, rows, cols, x.stride(0), ROWS=64, COLS=64", "x, out, rows, cols, cols, ROWS=64, COLS=64")], "x.stride(0)"),
    ("02.3", TRANSPOSE, [("mask = (row < rows)[:, None] & (col < cols)[None, :]", "mask = (row < rows)[:, None] & (col >= 0)[None, :]")], "Mask rows and columns"),
    ("02.3", TRANSPOSE, [("triton.cdiv(cols, 64))", "max(1, cols // 64))")], "never written"),
    ("02.3", TRANSPOSE, [("torch.empty((cols, rows)", "torch.empty((rows, cols)")], "[cols, rows]"),
    ("02.3", TRANSPOSE, [("col[None, :] * rows + row[:, None]", "row[:, None] * cols + col[None, :]")], "c * rows + r"),
    ("02.3", "def transpose(x):\n    return x.T.contiguous()\n", [], "write one and launch it"),
    # 02.4
    ("02.4", ROWS, [("tl.where(mask, x, float(\"-inf\"))", "x")], "minus infinity"),
    ("02.4", ROWS, [("total += x", "total = x")], "from tile to tile"),
    ("02.4", ROWS, [("tl.range(0, cols, BLOCK)", "tl.range(0, tl.minimum(cols, BLOCK), BLOCK)")], "Loop over all tiles"),
    ("02.4", ROWS, [("x.stride(0), BLOCK=2048", "x.shape[1], BLOCK=2048")], "x.stride(0)"),
    ("02.4", ROWS, [("mask = col < cols", "mask = col >= 0")], "Mask every load"),
    ("02.4", ROWS, [("BLOCK=2048", "BLOCK=131072")], "at most 2,048 columns"),
    ("02.4", ROWS, [("return sums, largest", "return largest, sums")], "in this order"),
    ("02.4", ROWS, [("tl.sum(total)", "tl.sum(total) / cols")], "not divided"),
    ("02.4", ROWS, [("tl.maximum(largest, tl.where(mask, x,", "tl.maximum(largest, tl.where(mask, tl.abs(x),")], "sign included"),
    # 02.5
    ("02.5", STRAY, [("return (n - 1) // block, n ", "return n // block, n ")], "lane n - 1"),
    ("02.5", STRAY, [("return (n - 1) // block, n ", "return -1, 0 ")], "goes to i + 1"),
    ("02.5", STRAY, [("(n // block, n) if n % 32 else (-1, 0)", "(n // block, n)")], "changes nothing"),
    ("02.5", STRAY, [("(n // block, n) if n % 32 else (-1, 0)", "(-1, 0)")], "rounded up to a multiple of 32"),
    ("02.5", STRAY, [("return row, rows * cols", "return rows - 1, rows * cols")], "wider than two rows"),
    ("02.5", STRAY, [("return row, rows * cols", "return 0, cols")], "inside the tensor"),
    ("02.5", STRAY, [("return row, rows * cols", "return -1, 0")], "It has no mask"),
    ("02.5", STRAY, [("(n // block, -1) if n % block", "(n // block, n) if n % block")], "as their index"),
    ("02.5", STRAY, [("(n // block, -1) if n % block else (-1, 0)", "(n // block, -1)")], "no lane is masked"),
    ("02.5", STRAY, [("(n // block, -1) if n % block else (-1, 0)", "(-1, 0)")], "the second load"),
    ("02.5", STRAY, [("return row, rows * cols", "return row")], "two ints"),
]


@pytest.mark.parametrize("task, source, changes, hint", WRONG, ids=[f"{w[0]} {i} {w[3]}" for i, w in enumerate(WRONG)])
def test_wrong(task, source, changes, hint):
    verdict = verdict_of(task, edited(source, *changes))
    assert (verdict.status, verdict.points) == ("failed", 0), verdict
    assert hint in verdict.hint, verdict


@pytest.mark.parametrize("task", [f"02.{k}" for k in range(1, 6)])
def test_untouched(task):
    from grading.checks import task as find_task

    source = "".join(f"def {name}(*arguments):\n    raise NotImplementedError()\n\n" for name in find_task(task).functions)
    assert verdict_of(task, source).status == "not_attempted"
