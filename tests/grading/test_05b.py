"""Exercise 05b: right answers in several styles pass, and each plausible wrong one fails with the hint made for it."""

import pytest
import torch
from grading_tools import answer_tests, answers, module_of

from instruments import backend
from instruments.compiled import compile_launch

EXERCISE = "05b_layernorm"
SOLUTION = answers(EXERCISE)

# ---------------------------------------------------------------- right, in another style

RIGHT = {
    "each part from the common mean": (
        "05b.1",
        """
def merge(count_a, mean_a, deviations_a, count_b, mean_b, deviations_b):
    parts = [(count_a, mean_a, deviations_a), (count_b, mean_b, deviations_b)]
    count = sum(n for n, _, _ in parts)
    mean = sum(n / count * m for n, m, _ in parts)
    return count, mean, sum(d + n * (m - mean)**2 for n, m, d in parts)
""",
    ),
    "the empty parts first": (
        "05b.1",
        """
def merge(count_a, mean_a, deviations_a, count_b, mean_b, deviations_b):
    if not count_a:
        return count_b, mean_b, deviations_b
    if not count_b:
        return count_a, mean_a, deviations_a
    share = count_b / (count_a + count_b)
    apart = mean_a - mean_b
    between = apart * apart * share * count_a
    return count_a + count_b, mean_b + apart * (1 - share), deviations_a + deviations_b + between
""",
    ),
    "exact fractions": (
        "05b.1",
        """
from fractions import Fraction


def merge(count_a, mean_a, deviations_a, count_b, mean_b, deviations_b):
    mean_a, mean_b = Fraction(mean_a), Fraction(mean_b)
    total = count_a * mean_a + count_b * mean_b
    count = count_a + count_b
    squares = count_a * mean_a**2 + count_b * mean_b**2 - total**2 / count
    return count, float(total / count), deviations_a + deviations_b + float(squares)
""",
    ),
    "several rows per program": (
        "05b.2",
        """
@triton.jit
def rows_kernel(x, y, means, scales, stride, n_rows, n, eps, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    c = tl.arange(0, BLOCK)[None, :]
    ok = (r[:, None] < n_rows) & (c < n)
    tile = tl.load(x + r[:, None].to(tl.int64) * stride + c, ok, 0).to(tl.float32)
    mean = tl.sum(tile, axis=1) / n
    tile = (tile - mean[:, None]) * ok.to(tl.float32)
    scale = 1.0 / tl.sqrt(tl.sum(tile * tile, axis=1) / n + eps)
    tl.store(y + r[:, None].to(tl.int64) * n + c, tile * scale[:, None], ok)
    tl.store(means + r, mean, r < n_rows)
    tl.store(scales + r, scale, r < n_rows)

def normalise(x, eps):
    rows, cols = x.shape
    y, mean, scale = x.new_empty(rows, cols), x.new_empty(rows, dtype=torch.float32), torch.empty(rows, device=x.device)
    rows_kernel[(triton.cdiv(rows, 2), )](x, y, mean, scale, x.stride(0), rows, cols, eps, ROWS=2,
                                          BLOCK=triton.next_power_of_2(cols))
    return y, mean, scale
""",
    ),
    "persistent, squares masked": (
        "05b.2",
        """
@triton.jit
def walk(x_ptr, y_ptr, mean_ptr, scale_ptr, stride, rows, cols, eps, BLOCK: tl.constexpr):
    columns = tl.arange(0, BLOCK)
    row = tl.program_id(0)
    while row < rows:
        x = tl.load(x_ptr + row * stride + columns, mask=columns < cols, other=0.0).to(tl.float32)
        mean = tl.sum(x) / cols
        away = x - mean
        squares = tl.sum(tl.where(columns < cols, away * away, 0.0))
        scale = tl.rsqrt(squares / cols + eps)
        tl.store(y_ptr + row * cols + columns, away * scale, mask=columns < cols)
        tl.store(mean_ptr + row, mean)
        tl.store(scale_ptr + row, scale)
        row += tl.num_programs(0)

def normalise(x, eps):
    rows, cols = x.shape
    y = torch.empty((rows, cols), dtype=x.dtype, device=x.device)
    mean, scale = (torch.empty(rows, device=x.device) for _ in range(2))
    walk[(min(3, rows), )](x, y, mean, scale, x.stride(0), rows, cols, eps, BLOCK=triton.next_power_of_2(cols))
    return [y, mean, scale]
""",
    ),
    "a tree of merges": (
        "05b.2",
        """
@triton.jit
def merged(count_a, mean_a, squares_a, count_b, mean_b, squares_b):
    count = count_a + count_b
    share = tl.where(count > 0, count_b / tl.maximum(count, 1.0), 0.0)
    apart = mean_b - mean_a
    return count, mean_a + apart * share, squares_a + squares_b + apart * apart * count_a * share

@triton.jit
def tree_kernel(x_ptr, y_ptr, mean_ptr, scale_ptr, stride, cols, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    inside = columns < cols
    x = tl.load(x_ptr + row * stride + columns, mask=inside, other=0.0).to(tl.float32)
    _, mean, squares = tl.reduce((inside.to(tl.float32), x, tl.zeros_like(x)), 0, merged)
    scale = 1 / tl.sqrt(squares / cols + eps)
    tl.store(y_ptr + row * cols + columns, (x - mean) * scale, mask=inside)
    tl.store(mean_ptr + row, mean)
    tl.store(scale_ptr + row, scale)

def normalise(x, eps):
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    mean, scale = torch.empty(2, len(x), device=x.device)
    tree_kernel[(len(x), )](x, y, mean, scale, x.stride(0), x.shape[1], eps, BLOCK=triton.next_power_of_2(x.shape[1]))
    return y, mean, scale
""",
    ),
}

# ---------------------------------------------------------------- wrong, each with its hint

SUM = "tl.sum(centred * centred)"
WRONG = {
    # name: task, changes to the solution or a whole answer, kind of finding, words that the hint has to hold
    "by the means' squares": (
        "05b.1",
        """
def merge(count_a, mean_a, deviations_a, count_b, mean_b, deviations_b):
    count = count_a + count_b
    mean = (count_a * mean_a + count_b * mean_b) / count
    squares = deviations_a + count_a * mean_a**2 + deviations_b + count_b * mean_b**2
    return count, mean, squares - count * mean**2
""",
        "wrong",
        ["near ten million", "cancel"],
    ),
    "no empty part": (
        "05b.1",
        """
def merge(count_a, mean_a, deviations_a, count_b, mean_b, deviations_b):
    apart = (mean_b - mean_a)**2 / (1 / count_a + 1 / count_b)
    count = count_a + count_b
    return count, (count_a * mean_a + count_b * mean_b) / count, deviations_a + deviations_b + apart
""",
        "exception",
        ["empty"],
    ),
    "a float for a count": ("05b.1", [("return count,", "return float(count),")], "type", ["expected an int"]),
    "the shortcut": (
        "05b.2",
        [(f"{SUM} / cols", "(tl.sum(x * x) / cols - mean * mean)")],
        ("sixteen_bit", "row_scale"),
        ["600 standard deviations", "cancels"],
    ),
    "rows taken to lie side by side": (
        "05b.2",
        [("row * x_row_stride", "row * cols")],
        "out_of_bounds",
        ["x.stride(0)"],
    ),
    "no mask on the load": (
        "05b.2",
        [("columns, mask=inside, other=0.0)", "columns)")],
        "out_of_bounds",
        ["reads x[", "mask"],
    ),
    "y in fp32": ("05b.2", [("cols, dtype=x.dtype", "cols, dtype=torch.float32")], "dtype", ["y"]),
    "deviations in bf16": (
        "05b.2",
        [(SUM, "tl.sum((centred * centred).to(tl.bfloat16)).to(tl.float32)")],
        "sixteen_bit",
        ["16 bits", "fp32"],
    ),
    "read again for the variance": (
        "05b.2",
        [
            (
                "    centred =",
                "    x = tl.load(x_ptr + row * x_row_stride + columns, mask=inside, other=0.0).to(tl.float32)\n"
                "    centred =",
            )
        ],
        "bytes",
        ["x is read 2.0 times", "registers"],
    ),
    "row wider than the tile": ("05b.2", [("triton.next_power_of_2(cols)", "1024")], "unwritten", ["1,024"]),
    "divided by BLOCK": ("05b.2", [(f"{SUM} / cols", f"{SUM} / BLOCK")], "divisor", ["1024/1000"]),
    "the mean by torch": (
        "05b.2",
        [("    return y, mean", "    mean = x.float().mean(1)\n    return y, mean")],
        "not_by_kernel",
        ["no kernel stored mean"],
    ),
    "one result": ("05b.2", [("return y, mean, scale", "return y")], "count", ["expected 3"]),
}

test_right, test_wrong, test_untouched, test_enough = answer_tests(SOLUTION, RIGHT, WRONG)


@pytest.mark.parametrize("arch", [80, 90])
@pytest.mark.parametrize("cols", [1000, 8192])
def test_the_solutions_kernel_compiles_without_spills(cols, arch):
    with backend.captured() as records:
        module_of(SOLUTION["05b.2"]).normalise(torch.empty(2, cols, dtype=torch.bfloat16), 1e-5)
    assert len(records) == 1 and compile_launch(records[0], arch=arch).spills == 0
