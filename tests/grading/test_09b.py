"""Exercise 09b: right answers in several styles pass, and each plausible wrong one fails with the hint made for it."""

from grading_tools import answer_tests, answers

EXERCISE = "09b_fp8_matmul"
SOLUTION = answers(EXERCISE)

# ---------------------------------------------------------------- right, in another style

RIGHT = {
    "one formula each": (
        "09b.1",
        """
import math

def scale_bytes(m, n, k):
    return math.ceil(k / 64) * (4 * m + 4 * math.ceil(n / 32))

def promotion_share(every, matrix, vector):
    return matrix / (every * vector)
""",
    ),
    "counted out": (
        "09b.1",
        """
def scale_bytes(m, n, k):
    of_x = sum(1 for start in range(0, k, 64))
    return 4 * sum(of_x for row in range(m)) + 4 * sum(of_x for row in range(0, n, 32))

def promotion_share(every, matrix, vector):
    products, promotions = 4096 * 2, 4096 / every * 2
    return (promotions / vector) / (products / matrix)
""",
    ),
    "by packing indices, and scale by scale": (
        "09b.2",
        """
def place(r, g):
    return (g % 4 * 16 + r % 16) * 4 + g // 4 * 2 + r // 16

def used_instead(row, group):
    index = torch.arange(256).reshape(32, 8)
    lies = index.reshape(2, 16, 2, 4).permute(2, 1, 3, 0).reshape(-1)
    found = int(lies[place(row % 32, group % 8)])
    return row - row % 32 + found // 8, group - group % 8 + found % 8

def packed(scales):
    rows, groups = scales.shape
    across = (groups + 7) // 8
    out = torch.full((256 * across * ((rows + 31) // 32),), 127, dtype=torch.uint8)
    for row in range(rows):
        for group in range(groups):
            out[256 * (row // 32 * across + group // 8) + place(row % 32, group % 8)] = scales[row, group]
    return out
""",
    ),
    "tile by tile, padded by torch": (
        "09b.2",
        """
def used_instead(row, group):
    for r in range(32):
        for g in range(8):
            if (g // 4) * 128 + r % 16 * 8 + g % 4 * 2 + r // 16 == (
                group % 4 * 64 + row % 16 * 4 + group % 8 // 4 * 2 + row % 32 // 16
            ):
                return row // 32 * 32 + r, group // 8 * 8 + g

def packed(scales):
    rows, groups = scales.shape
    scales = torch.nn.functional.pad(scales, (0, -groups % 8, 0, -rows % 32), value=127)
    tiles = [tile for band in scales.split(32) for tile in band.split(8, dim=1)]
    return torch.stack([tile.view(2, 16, 2, 4).permute(3, 1, 2, 0) for tile in tiles]).flatten()
""",
    ),
    "steps of 32, the scales of a tile of w as one number": (
        "09b.3",
        """
@triton.jit
def steps(x_ptr, w_ptr, xs_ptr, ws_ptr, b_ptr, y_ptr, M, N, K, xr, wr, xsr, groups, BM: tl.constexpr, BN: tl.constexpr):
    across = tl.cdiv(N, BN)
    m = tl.program_id(0) // across * BM + tl.arange(0, BM)
    stripe = tl.program_id(0) % across
    n, k = stripe * BN + tl.arange(0, BN), tl.arange(0, 32)
    x_at = x_ptr + m.to(tl.int64)[:, None] * xr + k[None, :]
    w_at = w_ptr + n.to(tl.int64)[:, None] * wr + k[None, :]
    acc = tl.broadcast_to(tl.load(b_ptr + n, n < N, 0.0)[None, :], (BM, BN))
    for step in range(tl.cdiv(K, 32)):
        rest = K - step * 32
        x = tl.load(x_at + step * 32, (m < M)[:, None] & (k < rest)[None, :], 0.0)
        w = tl.load(w_at + step * 32, (n < N)[:, None] & (k < rest)[None, :], 0.0)
        xs = tl.load(xs_ptr + step // 2 * xsr + m, m < M, 0.0)
        acc += (xs * tl.load(ws_ptr + stripe * groups + step // 2))[:, None] * tl.dot(x, tl.trans(w))
    tl.store(y_ptr + m.to(tl.int64)[:, None] * N + n[None, :], acc.to(y_ptr.dtype.element_ty),
             (m < M)[:, None] & (n < N)[None, :])

def scaled_linear(x, w, x_scale, w_scale, bias):
    y = x.new_empty((x.shape[0], w.shape[0]), dtype=torch.bfloat16)
    (M, N), K = y.shape, x.shape[1]
    grid = (triton.cdiv(M, 64) * triton.cdiv(N, 32),)
    steps[grid](x, w, x_scale, w_scale, bias, y, M, N, K, x.stride(0), w.stride(0), x_scale.stride(0), w_scale.shape[1],
                BM=64, BN=32)
    return y
""",
    ),
    "transposed, one program for many tiles": (
        "09b.3",
        """
GROUP = tl.constexpr(64)

@triton.jit
def one_group(x, w, xs, ws):
    return tl.dot(w, x) * xs[None, :] * ws[:, None]

@triton.jit
def walk(x_ptr, w_ptr, xs_ptr, ws_ptr, b_ptr, y_ptr, M, N, K, x_step, w_step, xs_step, ws_step, tiles, B: tl.constexpr):
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        m = (tile % tl.cdiv(M, B)) * B + tl.arange(0, B)
        n = (tile // tl.cdiv(M, B)) * B + tl.arange(0, B)
        y = tl.zeros((B, B), dtype=tl.float32)
        start = 0
        while start < K:
            k = start + tl.arange(0, GROUP)
            x = tl.load(x_ptr + m[None, :] * x_step + k[:, None], mask=(m[None, :] < M) & (k[:, None] < K), other=0.0)
            w = tl.load(w_ptr + n[:, None] * w_step + k[None, :], mask=(n[:, None] < N) & (k[None, :] < K), other=0.0)
            xs = tl.load(xs_ptr + start // GROUP * xs_step + m, mask=m < M, other=0)
            ws = tl.load(ws_ptr + n // 32 * ws_step + start // GROUP, mask=n < N, other=0)
            y += one_group(x, w, xs, ws)
            start += GROUP
        y += tl.load(b_ptr + n, mask=n < N, other=0)[:, None]
        tl.store(y_ptr + m[None, :] * N + n[:, None], y.to(tl.bfloat16), mask=(m[None, :] < M) & (n[:, None] < N))

def scaled_linear(x, w, x_scale, w_scale, bias):
    M, N, K = x.size(0), w.size(0), x.size(1)
    y = torch.zeros(M, N, dtype=torch.bfloat16, device=x.device)
    tiles = triton.cdiv(M, 32) * triton.cdiv(N, 32)
    walk[(min(tiles, 20),)](x, w, x_scale, w_scale, bias, y, M, N, K, x.stride(0), w.stride(0), x_scale.stride(0),
                            w_scale.stride(0), tiles, 32)
    return y
""",
    ),
}

# ---------------------------------------------------------------- wrong, each with its hint

PRODUCT = "part = tl.dot(x, w) "
WRONG = {  # name: task, changes to the solution or a whole answer, kind of finding, words that the hint has to hold
    "a share of the whole time": (
        "09b.1",
        [("return promote / multiply", "return promote / (promote + multiply)")],
        "wrong",
        ["every"],
    ),
    "bytes as a float": ("09b.1", [(" * 4", " * 4.0")], "type", ["int"]),
    "tiles of 8 x 32": ("09b.2", [("down * 32, across * 8", "down * 32, across * 8 + 8")], ("exception", "shape"), []),
    "filled up with 255": ("09b.2", [("across * 8), 127", "across * 8), 255")], "slip", ["NaN"]),
    "codes widened": (
        "09b.2",
        [("permute(0, 3, 5, 2, 4, 1).reshape(-1)", "permute(0, 3, 5, 2, 4, 1).reshape(-1).int()")],
        "dtype",
        ["uint8"],
    ),
    "whole tiles alone": (
        "09b.2",
        [("-(-rows // 32), -(-groups // 8)", "rows // 32, groups // 8")],
        ("exception", "shape"),
        [],
    ),
    "dequantised before the product": (
        "09b.3",
        [(PRODUCT, "part = tl.dot(x.to(tl.float16), w.to(tl.float16)) ")],
        "products",
        ["as they were loaded"],
    ),
    "the product by the vector units": (
        "09b.3",
        [(PRODUCT, "part = tl.sum(x.to(tl.float32)[:, :, None] * w.to(tl.float32)[None, :, :], axis=1) ")],
        "products",
        ["as they were loaded"],
    ),
    "the scales' padding read as rows": (
        "09b.3",
        [("group * x_scale_stride + row", "group * M + row")],
        "out_of_bounds",
        ["x_scale.stride(0)"],
    ),
    "no mask on the scales of x": (
        "09b.3",
        [("+ row, mask=row < M, other=0.0)", "+ row)")],
        "out_of_bounds",
        ["scales"],
    ),
    "no mask along K": (
        "09b.3",
        [("(row[:, None] < M) & (k[None, :] < K)", "(row[:, None] < M) & (k[None, :] < K + 64)")],
        ("out_of_bounds", "nan"),
        [],
    ),
    "tiles of 16 rows": (
        "09b.3",
        [
            ("(tl.program_id(0) * BLOCK + tl.arange(0, BLOCK))", "(tl.program_id(0) * 16 + tl.arange(0, 16))"),
            ("tl.zeros([BLOCK, BLOCK]", "tl.zeros([16, BLOCK]"),
            ("triton.cdiv(M, 64)", "triton.cdiv(M, 16)"),
        ],
        "bytes",
        ["32 x 32"],
    ),
    "an integer for masked codes": (
        "09b.3",
        [("(k[None, :] < K), other=0.0)", "(k[None, :] < K), other=0)")],
        "exception",
        ["other=0.0"],
    ),
    "rounded before the bias too": (
        "09b.3",
        [("total + bias[None, :]", "total.to(tl.bfloat16).to(tl.float32) + bias[None, :]")],
        "slip",
        ["until it has the bias"],
    ),
    "rows of w_scale of K // 64": (
        "09b.3",
        [("col // 32 * w_scale_stride", "col // 32 * (K // 64)")],
        "slip",
        ["K // 64"],
    ),
    "tiles of 64 and no more programs than an H200 runs at a time": (
        "09b.3",
        [("triton.cdiv(M, 64), triton.cdiv(N, 64)", "triton.cdiv(M, 64), min(132, triton.cdiv(N, 64))")],
        "unwritten",
        [],
    ),
    "the result in fp16": (
        "09b.3",
        [("dtype=torch.bfloat16", "dtype=torch.float16"), ("y.to(tl.bfloat16)", "y.to(tl.float16)")],
        "dtype",
        [],
    ),
    "tiles of 128": (
        "09b.3",
        [("N, 64)", "N, 128)"), ("M, 64)", "M, 128)"), ("BLOCK=64", "BLOCK=128")],
        "tile_too_wide",
        [],
    ),
    "scaled by torch beforehand": (
        "09b.3",
        [("y = torch.empty(", "x_scale = x_scale * 1.0\n    y = torch.empty(")],
        "torch_work",
        [],
    ),
}

test_right, test_wrong, test_untouched, test_enough = answer_tests(SOLUTION, RIGHT, WRONG)
