"""Exercise 03: right answers in several styles pass, each plausible mistake fails with the hint made for it."""

import pytest
from grading_tools import answers, edited, verdict_of

SEEDS = (1, 2, 3)
SOLUTION = {task: source.replace("### BEGIN SOLUTION", "pass").replace("### END SOLUTION", "pass")
            for task, source in answers("03_tiling").items()}

COUNT_BY_PROGRAMS = '''
from math import ceil

def dot_bytes(m, n, k, itemsize):
    return sum((m * n * 2 * k * itemsize, m * n * itemsize))

def tiled_bytes(m, n, k, block_m, block_n, itemsize):
    read = sum(k * (min(block_m, m - i) * ceil(n / block_n)) for i in range(0, m, block_m))
    read += sum(k * (min(block_n, n - j) * ceil(m / block_m)) for j in range(0, n, block_n))
    return read * itemsize + m * n * itemsize

def tile_intensity(block_m, block_n, itemsize):
    return 2 / itemsize / (1 / block_m + 1 / block_n)
'''
COUNT_BY_TILE = '''
def dot_bytes(m, n, k, itemsize):
    return tiled_bytes(m, n, k, 1, 1, itemsize)

def tiled_bytes(m, n, k, block_m, block_n, itemsize):
    return itemsize * (m * n + k * (m * ((n + block_n - 1) // block_n) + n * ((m + block_m - 1) // block_m)))

def tile_intensity(block_m, block_n, itemsize):
    return block_m * block_n * 2 / itemsize / (block_m + block_n)
'''
LOOP_K_OUTSIDE = '''
def tile_loop(x, w, block):
    y = torch.zeros(len(x), len(w), device=x.device)
    for k in range(0, x.shape[1], block):
        for row in range(0, len(x), block):
            left = x[row:row + block, k:k + block].to(torch.float32)
            for col in range(0, len(w), block):
                y[row:row + block, col:col + block] += left @ w[col:col + block, k:k + block].to(torch.float32).T
    return y
'''
LOOP_SPLIT = '''
def tile_loop(x, w, block):
    y = x.new_zeros((x.shape[0], w.shape[0]), dtype=torch.float32)
    for rows, out in zip(x.split(block), y.split(block)):
        for cols, tile in zip(w.split(block), out.split(block, dim=1)):
            for a, b in zip(rows.split(block, dim=1), cols.split(block, dim=1)):
                tile.addmm_(a.float(), b.float().t())
    return y
'''
ONE_AXIS = '''
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
    one_axis_kernel[(triton.cdiv(M, 64) * triton.cdiv(N, 32), )](x, w, y, M, N, x.shape[1], *x.stride(), *w.stride(), 64, 32, 16)
    return y
'''
STRIDING = '''
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
'''
ORDER_COLUMNS = '''
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
'''
ORDER_SNAKE = edited(SOLUTION["03.5"], ("tile_n = first + within % height, within // height",
                                        "tile_n = first + within % height, within // height\n"
                                        "    tile_n = tl.where(group % 2 == 1, tiles_n - 1 - tile_n, tile_n)"))
CHOOSE_BY_LOOPS = '''
def choose_tile(shared, threads, stages, block_k, itemsize):
    best, chosen = 0, None
    side = shared // (stages * block_k * itemsize)
    for m in (256, 128, 64, 32, 16):
        for n in (256, 128, 64, 32, 16):
            if m + n <= side and m * n // threads <= 128 and 1 / (1 / m + 1 / n) > best:
                best, chosen = 1 / (1 / m + 1 / n), [n, m]
    return chosen
'''
CHOOSE_BY_RATIO = '''
import itertools

def choose_tile(shared, threads, stages, block_k, itemsize):
    def key(tile):
        m, n = tile
        fits = stages * block_k * itemsize * (m + n) <= shared and m * n <= threads * 128
        return fits, m * n / (m + n)
    return max(itertools.product([2**i for i in range(4, 9)], repeat=2), key=key)
'''

RIGHT = [*SOLUTION.items(), ("03.1", COUNT_BY_PROGRAMS), ("03.1", COUNT_BY_TILE), ("03.2", LOOP_K_OUTSIDE),
         ("03.2", LOOP_SPLIT), *((task, source.replace("NAME", name)) for task, name in (("03.3", "linear"), ("03.4", "any_linear"))
                                 for source in (ONE_AXIS, STRIDING)),
         ("03.5", ORDER_COLUMNS), ("03.5", ORDER_SNAKE), ("03.6", CHOOSE_BY_LOOPS), ("03.6", CHOOSE_BY_RATIO)]


@pytest.mark.parametrize("task, source", RIGHT, ids=[f"{task} {i}" for i, (task, _) in enumerate(RIGHT)])
def test_right(task, source):
    for seed in SEEDS[:1] if task in ("03.3", "03.4", "03.5") else SEEDS:
        verdict = verdict_of(task, source, seed)
        assert (verdict.status, verdict.points) == ("passed", verdict.max_points), verdict


TORCH_ALONE = "def linear(x, w):\n    return x.float() @ w.float().T\n"
COLUMN_FIRST = [("GROUP=4", "GROUP=64")]
WRONG = [
    # 03.1
    ("03.1", [("programs * (k + k + 1)", "programs * (k + k)")], "Each result is written once"),
    ("03.1", [("programs * (k + k + 1) * itemsize", "(m * k + n * k + m * n) * itemsize")], "asked for again"),
    ("03.1", [("m * k * tiles_n", "m * k"), ("n * k * tiles_m", "n * k")], "asked for again"),
    ("03.1", [("m * k * tiles_n", "m * k * tiles_m"), ("n * k * tiles_m", "n * k * tiles_n")], "programs beside each other"),
    ("03.1", [("-(-m // block_m), -(-n // block_n)", "m // block_m, n // block_n")], "round the number of tiles up"),
    ("03.1", [("m * k * tiles_n", "tiles_m * block_m * k * tiles_n"), ("n * k * tiles_m", "tiles_n * block_n * k * tiles_m")], "masked"),
    ("03.1", [("return (x + w + m * n)", "return (x + w)")], "Each result is written once"),
    ("03.1", [("return flops / read", "return read / flops")], "FLOPs over bytes"),
    ("03.1", [("2 * block_m * block_n", "block_m * block_n")], "are two FLOPs"),
    ("03.1", [("(block_m + block_n) * itemsize", "(block_m + block_n)")], "Divide by bytes"),
    ("03.1", [("return (x + w + m * n) * itemsize", "return float((x + w + m * n) * itemsize)")], "Bytes are whole"),
    # 03.2
    ("03.2", [("total += x_tile", "total = x_tile")], "starts at zero before the loop"),
    ("03.2", [("range(0, N, block)", "range(0, N - block + 1, block)")], "range(0, size, block)"),
    ("03.2", [("range(0, M, block)", "range(0, M - block + 1, block)")], "range(0, size, block)"),
    ("03.2", [("range(0, K, block)", "range(0, K - block + 1, block)")], "smaller than a block"),
    ("03.2", [(".float()     # [block, block]\n                w", "     # [block, block]\n                w"),
              ("w[cols, k:k + block].float()", "w[cols, k:k + block]"), ("total += x_tile @ w_tile.T", "total += (x_tile @ w_tile.T).float()")],
     "fp32 before they are multiplied"),
    ("03.2", [("y[rows, cols] = total", "y[rows, cols] = x[rows].float() @ w[cols].float().T")], "Take slices of block by block"),
    # 03.3
    ("03.3", [("w_ptrs + start", "w_ptrs + 0")], "sum runs over all of K"),
    ("03.3", [("row[:, None] * x_row_stride", "row[:, None] * K")], "x.stride(0)"),
    ("03.3", [("col[None, :] * w_row_stride", "col[None, :] * K")], "w.stride(0)"),
    ("03.3", [("(M // 32, N // 32)", "(M // 32, 1)")], "cover every tile"),
    ("03.3", [("(M // 32, N // 32)", "(M // 16, N // 16)"), ("BLOCK=32", "BLOCK=16")], "Smaller tiles ask for more"),
    ("03.3", [("tl.zeros([BLOCK, BLOCK], dtype=tl.float32)", "tl.zeros([BLOCK, BLOCK], dtype=tl.float32)\n    kept = total"),
              ("total = tl.dot(tl.load(x_ptrs + start), tl.load(w_ptrs + start), total,", "total = tl.dot(tl.load(x_ptrs + start), tl.load(w_ptrs + start), kept,")],
     "starts at zero before the loop"),
    # 03.4
    ("03.4", [("(row[:, None] < M) & (k[None, :] < K)", "(k[None, :] < K)")], "A tile that hangs over"),
    ("03.4", [("(col[None, :] < N) & (k[:, None] < K)", "(k[:, None] < K)")], "A tile that hangs over"),
    ("03.4", [(", mask=(row[:, None] < M) & (col[None, :] < N))", ")")], "A tile that hangs over"),
    ("03.4", [("k[None, :] * x_col_stride", "k[None, :]")], "neighbours in a row are stride(1)"),
    ("03.4", [("triton.cdiv(M, 32), triton.cdiv(N, 32)", "max(1, M // 32), max(1, N // 32)")], "are never written"),
    ("03.4", [(" & (k[None, :] < K)", ""), (" & (k[:, None] < K)", "")], "A tile that hangs over"),
    ("03.4", [("range(0, K, BLOCK)", "range(0, K - BLOCK + 1, BLOCK)")], "smaller than a block"),
    # 03.5
    ("03.5", [("GROUP=4", "GROUP=1")], "nearly square"),
    ("03.5", COLUMN_FIRST, "nearly square"),
    ("03.5", [("tl.minimum(tiles_m - first, GROUP)", "GROUP")], "last group may have fewer rows"),
    ("03.5", [("tile_m * tiles_n + tile_n)", "program)")], "nearly square"),
    ("03.5", [('tl.dot(x, w, input_precision="ieee")', 'tl.dot(x, w, input_precision="ieee") * 2')], "tile whose number you report"),
    ("03.5", [("return y, order", "return y")], "expected two"),
    ("03.5", [("dtype=torch.int32", "dtype=torch.float32")], "int32 tensor"),
    # 03.6
    ("03.6", [("stages * (m + n)", "(m + n)")], "Every stage holds"),
    ("03.6", [("(m + n) * block_k * itemsize <= shared", "max(m, n) * block_k * itemsize <= shared")], "Every stage holds"),
    ("03.6", [(" and m * n <= 128 * threads", "")], "sums per thread"),
    ("03.6", [("max(fits,", "min(fits,")], "which fits too"),
    ("03.6", [("for m in sides for n in sides", "for m in sides for n in [m]")], "which fits too"),
    ("03.6", [("return max(fits", "return str(max(fits"), ("(tile[0] + tile[1]))", "(tile[0] + tile[1])))")], "two ints"),
]


@pytest.mark.parametrize("task, changes, hint", WRONG, ids=[f"{w[0]} {i} {w[2]}" for i, w in enumerate(WRONG)])
def test_wrong(task, changes, hint):
    verdict = verdict_of(task, edited(SOLUTION[task], *changes))
    assert (verdict.status, verdict.points) == ("failed", 0), verdict
    assert hint in verdict.hint, verdict


def test_torch_alone_is_no_kernel():
    verdict = verdict_of("03.3", TORCH_ALONE)
    assert verdict.status == "failed" and "write one and launch it" in verdict.hint


@pytest.mark.parametrize("task", sorted(SOLUTION))
def test_untouched(task):
    from grading.checks import task as find_task

    source = "".join(f"def {name}(*arguments):\n    raise NotImplementedError()\n\n" for name in find_task(task).functions)
    assert verdict_of(task, source).status == "not_attempted"
