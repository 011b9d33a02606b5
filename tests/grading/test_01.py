"""Exercise 01: right answers in several styles pass, each plausible mistake fails with the hint made for it."""

from grading_tools import answer_tests, answers, edited

EXERCISE = "01_roofline"
SOLUTION = answers(EXERCISE)

COUNT = """
def bias_add(rows, cols, itemsize):
    return itemsize * (2 * rows * cols + cols), rows * cols

def row_sums(rows, cols, itemsize):
    return itemsize * rows * cols + 4 * rows, rows * cols

def rank_one_update(rows, cols, itemsize):
    return itemsize * (2 * rows * cols + rows + cols), 2 * rows * cols

def quantised_matmul(m, n, k):
    return 2 * m * k + k * n + 4 * n + 2 * m * n, 2 * m * n * k + m * n
"""
COUNT_BY_TENSORS = """
from math import prod

def moved(*tensors):
    return sum(prod(shape) * size for shape, size in tensors)

def bias_add(rows, cols, itemsize):
    matrix = ((rows, cols), itemsize)
    return moved(matrix, ((cols,), itemsize), matrix), rows * cols

def row_sums(rows, cols, itemsize):
    return moved(((rows, cols), itemsize), ((rows,), 4)), cols * rows

def rank_one_update(rows, cols, itemsize):
    a = ((rows, cols), itemsize)
    return moved(a, a, ((rows,), itemsize), ((cols,), itemsize)), rows * cols + rows * cols

def quantised_matmul(m, n, k):
    return moved(((m, k), 2), ((k, n), 1), ((n,), 4), ((m, n), 2)), m * n * (2 * k + 1)
"""
ROOFLINE = """
def ridge(bandwidth, peak):
    return peak / bandwidth

def attainable(intensity, bandwidth, peak):
    return min(peak, bandwidth * intensity)

def seconds(nbytes, flops, bandwidth, peak):
    return max(nbytes / (bandwidth * 1e12), flops / (peak * 1e12))
"""
ROOFLINE_BY_RIDGE = """
def ridge(bandwidth, peak):
    return (peak * 1e12) / (bandwidth * 1e12)

def attainable(intensity, bandwidth, peak):
    if intensity < ridge(bandwidth, peak):
        return bandwidth * intensity
    return peak

def seconds(nbytes, flops, bandwidth, peak):
    if not flops:
        return nbytes / bandwidth / 1e12
    return flops / attainable(flops / nbytes, bandwidth, peak) / 1e12
"""
BREAK_EVEN = """
def break_even(bytes_per_element, bandwidth, launch_us):
    return launch_us * 1e-6 * bandwidth * 1e12 / bytes_per_element
"""
BREAK_EVEN_BY_RATES = """
def break_even(bytes_per_element, bandwidth, launch_us):
    elements_per_microsecond = bandwidth * 1e6 / bytes_per_element
    return elements_per_microsecond * launch_us
"""
BOUND = """
def bound(nbytes, flops, launches, matmul, gpu):
    times = {"memory": nbytes / gpu["bandwidth"], "compute": flops / gpu["matrix" if matmul else "vector"],
             "launch": launches * gpu["launch"]}
    word = max(times, key=times.get)
    return word, times[word]
"""
BOUND_BY_CASES = """
def bound(nbytes, flops, launches, matmul, gpu):
    peak = gpu["vector"]
    if matmul:
        peak = gpu["matrix"]
    memory, compute, launch = nbytes / gpu["bandwidth"], flops / peak, launches * gpu["launch"]
    if launch > memory and launch > compute:
        return ["launch", launch]
    return ["compute", compute] if compute > memory else ["memory", memory]
"""
SCALED_ADD = """
@triton.jit
def scaled_add_kernel(x_ptr, y_ptr, out_ptr, alpha, size, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < size
    x = tl.load(x_ptr + offsets, mask=mask).to(tl.float32)
    y = tl.load(y_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, alpha * x + y, mask=mask)

def scaled_add(x, y, alpha):
    out = torch.empty_like(y)
    size = y.numel()
    scaled_add_kernel[(triton.cdiv(size, 1024), )](x, y, out, alpha, size, BLOCK=1024)
    return out
"""
SCALED_ADD_BY_ROWS = """
@triton.jit
def rows_kernel(x_ptr, y_ptr, out_ptr, alpha, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    for start in tl.range(0, cols, BLOCK):
        col = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * cols + col, mask=col < cols, other=0.0)
        y = tl.load(y_ptr + row * cols + col, mask=col < cols, other=0.0)
        out = tl.fma(x.to(tl.float32), tl.full([BLOCK], alpha, tl.float32), y)
        tl.store(out_ptr + row * cols + col, out, mask=col < cols)

def scaled_add(x, y, alpha):
    out = torch.empty(y.shape, dtype=torch.float32, device=y.device)
    rows, cols = y.reshape(-1, y.shape[-1]).shape
    rows_kernel[(rows, )](x, y, out, float(alpha), cols, BLOCK=2048)
    return out
"""
SCALED_ADD_STRIDING = """
@triton.jit
def striding_kernel(x_ptr, y_ptr, out_ptr, alpha, size, BLOCK: tl.constexpr):
    for start in range(tl.program_id(0) * BLOCK, size, tl.num_programs(0) * BLOCK):
        here = start + tl.arange(0, BLOCK)
        product = tl.load(x_ptr + here, here < size).to(tl.float32) * alpha
        tl.store(out_ptr + here, product + tl.load(y_ptr + here, here < size), here < size)

def scaled_add(x, y, alpha):
    out = y.new_empty(y.shape)
    striding_kernel[(5, )](x.view(-1), y.view(-1), out.view(-1), alpha, out.numel(), 512)
    return out
"""
AUDIT = """
def wrong_claim(claims, l2):
    for claim in claims:
        moved, time = claim["read"] + claim["written"], claim["microseconds"] * 1e-6
        if abs(claim["gbps"] * 1e9 * time / claim["read"] - 1) < 0.01:
            return claim["name"], "one way"
        if abs(claim["gbps"] * 2**30 * time / moved - 1) < 0.01:
            return claim["name"], "binary units"
        if claim["buffers"] * moved <= l2:
            return claim["name"], "cache"
"""
AUDIT_BY_FACTOR = """
def wrong_claim(claims, l2):
    def reason(c):
        true = (c["read"] + c["written"]) / c["microseconds"] / 1000
        factor = c["gbps"] / true
        if factor > 0.99:
            return "cache" if c["buffers"] * (c["read"] + c["written"]) < l2 else None
        return "binary units" if factor > 0.9 else "one way"
    return next([c["name"], reason(c)] for c in claims if reason(c))
"""

RIGHT = {
    "in one line": ("01.1", COUNT),
    "by tensors": ("01.1", COUNT_BY_TENSORS),
    "the formulas": ("01.2", ROOFLINE),
    "by the ridge": ("01.2", ROOFLINE_BY_RIDGE),
    "in one line, elements": ("01.3", BREAK_EVEN),
    "by rates": ("01.3", BREAK_EVEN_BY_RATES),
    "a dictionary": ("01.4", BOUND),
    "by cases": ("01.4", BOUND_BY_CASES),
    "small tiles": ("01.5", SCALED_ADD),
    "by rows": ("01.5", SCALED_ADD_BY_ROWS),
    "striding": ("01.5", SCALED_ADD_STRIDING),
    "rates compared": ("01.6", AUDIT),
    "by factor": ("01.6", AUDIT_BY_FACTOR),
}

TWO_KERNELS = SCALED_ADD.replace(
    "(x, y, out, alpha, size, BLOCK=1024)",
    """(x, torch.zeros_like(y), out, alpha, size,
                                                 BLOCK=1024)
    product, out = out, torch.empty_like(y)
    scaled_add_kernel[(triton.cdiv(size, 1024), )](product, y, out, 1.0, size, BLOCK=1024)""",
)
READS_ALONE = """
def wrong_claim(claims, l2):
    for c in claims:
        if abs(c["gbps"] / (c["read"] / c["microseconds"] / 1e3) - 1) > 0.01:
            return c["name"], "binary units"
"""
TORCH_ALONE = "def scaled_add(x, y, alpha):\n    return alpha * x.float() + y\n"

WRONG = {
    # name: task, changes to the solution or a whole answer, kind of finding, words that the hint has to hold
    "a float": (
        "01.1",
        edited(COUNT, ("2 * m * n * k + m * n", "float(2 * m * n * k + m * n)")),
        "type",
        ["return ints"],
    ),
    "the higher roof": ("01.2", edited(ROOFLINE, ("min(peak", "max(peak")), "slip", ["lower one decides"]),
    "bytes alone": (
        "01.2",
        edited(ROOFLINE, ("max(nbytes / (bandwidth * 1e12), flops / (peak * 1e12))", "nbytes / (bandwidth * 1e12)")),
        "slip",
        ["longer of the two times decides"],
    ),
    "FLOPs alone": (
        "01.2",
        edited(ROOFLINE, ("max(nbytes / (bandwidth * 1e12), flops / (peak * 1e12))", "flops / (peak * 1e12)")),
        "slip",
        ["longer of the two times decides"],
    ),
    "the word alone": ("01.4", edited(BOUND, ("return word, times[word]", "return word")), "count", ["Return"]),
    "no mask on the loads": (
        "01.5",
        edited(SCALED_ADD, (", mask=mask).to(tl.float32)", ").to(tl.float32)")),
        "out_of_bounds",
        ["offsets < size"],
    ),
    "no mask on the store": (
        "01.5",
        edited(SCALED_ADD, ("alpha * x + y, mask=mask", "alpha * x + y")),
        "out_of_bounds",
        ["offsets < size"],
    ),
    "last block left out": (
        "01.5",
        edited(SCALED_ADD, ("triton.cdiv(size, 1024)", "max(1, size // 1024)")),
        "unwritten",
        ["never written"],
    ),
    "at most 132 programs": (
        "01.5",
        edited(SCALED_ADD, ("triton.cdiv(size, 1024)", "min(132, -(-size // 1024))")),
        "unwritten",
        ["never written"],
    ),
    "a matrix alone": (
        "01.5",
        edited(SCALED_ADD, ("size = y.numel()", "size = y.shape[0] * y.shape[1]")),
        "unwritten",
        ["three dimensions"],
    ),
    "product in the dtype of x, where alpha is an int": (
        "01.5",
        edited(SCALED_ADD, (".to(tl.float32)", "")),
        "slip",
        ["fp16's range", ".to(tl.float32)"],
    ),
    "product rounded": (
        "01.5",
        edited(SCALED_ADD, ("alpha * x + y", "(alpha * x).to(x_ptr.dtype.element_ty) + y")),
        "slip",
        ["cast nothing back"],
    ),
    "out like x": (
        "01.5",
        edited(SCALED_ADD, ("torch.empty_like(y)", "torch.empty_like(x)")),
        "dtype",
        ["empty_like(y)"],
    ),
    "y overwritten": (
        "01.5",
        edited(SCALED_ADD, ("torch.empty_like(y)", "y")),
        "not_read",
        ["store into a new tensor"],
    ),
    "x converted by torch": (
        "01.5",
        edited(SCALED_ADD, ("(x, y, out,", "(x.float(), y, out,")),
        "torch_work",
        ["converts x itself"],
    ),
    "x scaled by torch": (
        "01.5",
        edited(SCALED_ADD, ("(x, y, out,", "(x.float() * alpha, y, out,"), ("out, alpha,", "out, 1.0,")),
        "torch_work",
        ["converts x itself"],
    ),
    "torch alone": ("01.5", TORCH_ALONE, "no_kernel", ["write one and launch it"]),
    "two kernels": ("01.5", TWO_KERNELS, "bytes", ["no tensor between two kernels"]),
    "one way taken for binary": (
        "01.6",
        edited(AUDIT, ('"one way"', '"binary units"')),
        "verdict",
        ["Compare the claim with read / time"],
    ),
    "binary taken for one way": (
        "01.6",
        edited(AUDIT, ('"binary units"', '"one way"')),
        "verdict",
        ["Compare the claim with read / time"],
    ),
    "one call against L2": (
        "01.6",
        edited(AUDIT, ('if claim["buffers"] * moved <= l2', "if moved <= l2")),
        "verdict",
        ["not one call's bytes"],
    ),
    "twice L2": ("01.6", edited(AUDIT, ("<= l2", "<= 2 * l2")), "verdict", ["is of DRAM"]),
    "half of L2": ("01.6", edited(AUDIT, ("<= l2", "<= l2 / 2")), "verdict", ["two strings"]),
    "what is read against L2": (
        "01.6",
        edited(AUDIT, ('["buffers"] * moved', '["buffers"] * claim["read"]')),
        "verdict",
        ["is of DRAM"],
    ),
    "writes forgotten": ("01.6", READS_ALONE, "verdict", ["Both directions count"]),
    "cache by rate": (
        "01.6",
        edited(AUDIT, ('if claim["buffers"] * moved <= l2', "if moved / time > 4.8e12")),
        "verdict",
        ["two strings"],
    ),
    "the fastest": (
        "01.6",
        "def wrong_claim(claims, l2):\n    return max(claims, key=lambda c: c['gbps'])['name'], 'cache'\n",
        "verdict",
        ["is of DRAM"],
    ),
    "not a reason": ("01.6", "def wrong_claim(claims, l2):\n    return 'A', 1\n", "verdict", ["two strings"]),
    "another word": (
        "01.6",
        "def wrong_claim(claims, l2):\n    return 'A', 'units'\n",
        "verdict",
        ["one of the reasons"],
    ),
}

NOT_FAR = {("01.5", "scaled_add"): "contiguous"}


test_right, test_wrong, test_untouched, test_enough = answer_tests(SOLUTION, RIGHT, WRONG)
