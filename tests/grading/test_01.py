"""Exercise 01: right answers in several styles pass, each plausible mistake fails with the hint made for it."""

import pytest
from grading_tools import edited, verdict_of

SEEDS = (1, 2, 3)

COUNT = '''
def bias_add(rows, cols, itemsize):
    return itemsize * (2 * rows * cols + cols), rows * cols

def row_sums(rows, cols, itemsize):
    return itemsize * rows * cols + 4 * rows, rows * cols

def rank_one_update(rows, cols, itemsize):
    return itemsize * (2 * rows * cols + rows + cols), 2 * rows * cols

def quantised_matmul(m, n, k):
    return 2 * m * k + k * n + 4 * n + 2 * m * n, 2 * m * n * k + m * n
'''
COUNT_BY_TENSORS = '''
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
'''
ROOFLINE = '''
def ridge(bandwidth, peak):
    return peak / bandwidth

def attainable(intensity, bandwidth, peak):
    return min(peak, bandwidth * intensity)

def seconds(nbytes, flops, bandwidth, peak):
    return max(nbytes / (bandwidth * 1e12), flops / (peak * 1e12))
'''
ROOFLINE_BY_RIDGE = '''
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
'''
BREAK_EVEN = '''
def break_even(bytes_per_element, bandwidth, launch_us):
    return launch_us * 1e-6 * bandwidth * 1e12 / bytes_per_element
'''
BREAK_EVEN_BY_RATES = '''
def break_even(bytes_per_element, bandwidth, launch_us):
    elements_per_microsecond = bandwidth * 1e6 / bytes_per_element
    return elements_per_microsecond * launch_us
'''
BOUND = '''
def bound(nbytes, flops, launches, matmul, gpu):
    times = {"memory": nbytes / gpu["bandwidth"], "compute": flops / gpu["matrix" if matmul else "vector"],
             "launch": launches * gpu["launch"]}
    word = max(times, key=times.get)
    return word, times[word]
'''
BOUND_BY_CASES = '''
def bound(nbytes, flops, launches, matmul, gpu):
    peak = gpu["vector"]
    if matmul:
        peak = gpu["matrix"]
    memory, compute, launch = nbytes / gpu["bandwidth"], flops / peak, launches * gpu["launch"]
    if launch > memory and launch > compute:
        return ["launch", launch]
    return ["compute", compute] if compute > memory else ["memory", memory]
'''
SCALED_ADD = '''
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
'''
SCALED_ADD_BY_ROWS = '''
@triton.jit
def rows_kernel(x_ptr, y_ptr, out_ptr, alpha, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    for start in tl.range(0, cols, BLOCK):
        col = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * cols + col, mask=col < cols, other=0.0)
        y = tl.load(y_ptr + row * cols + col, mask=col < cols, other=0.0)
        tl.store(out_ptr + row * cols + col, tl.fma(x.to(tl.float32), tl.full([BLOCK], alpha, tl.float32), y), mask=col < cols)

def scaled_add(x, y, alpha):
    out = torch.empty(y.shape, dtype=torch.float32, device=y.device)
    rows, cols = y.reshape(-1, y.shape[-1]).shape
    rows_kernel[(rows, )](x, y, out, float(alpha), cols, BLOCK=2048)
    return out
'''
SCALED_ADD_STRIDING = '''
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
'''
AUDIT = '''
def wrong_claim(claims, l2):
    for claim in claims:
        moved, time = claim["read"] + claim["written"], claim["microseconds"] * 1e-6
        if abs(claim["gbps"] * 1e9 * time / claim["read"] - 1) < 0.01:
            return claim["name"], "one way"
        if abs(claim["gbps"] * 2**30 * time / moved - 1) < 0.01:
            return claim["name"], "binary units"
        if claim["buffers"] * moved <= l2:
            return claim["name"], "cache"
'''
AUDIT_BY_FACTOR = '''
def wrong_claim(claims, l2):
    def reason(c):
        true = (c["read"] + c["written"]) / c["microseconds"] / 1000
        factor = c["gbps"] / true
        if factor > 0.99:
            return "cache" if c["buffers"] * (c["read"] + c["written"]) < l2 else None
        return "binary units" if factor > 0.9 else "one way"
    return next([c["name"], reason(c)] for c in claims if reason(c))
'''

RIGHT = [("01.1", COUNT), ("01.1", COUNT_BY_TENSORS), ("01.2", ROOFLINE), ("01.2", ROOFLINE_BY_RIDGE),
         ("01.3", BREAK_EVEN), ("01.3", BREAK_EVEN_BY_RATES), ("01.4", BOUND), ("01.4", BOUND_BY_CASES),
         ("01.5", SCALED_ADD), ("01.5", SCALED_ADD_BY_ROWS), ("01.5", SCALED_ADD_STRIDING), ("01.6", AUDIT),
         ("01.6", AUDIT_BY_FACTOR)]


@pytest.mark.parametrize("task, source", RIGHT, ids=[f"{task} {i}" for i, (task, _) in enumerate(RIGHT)])
def test_right(task, source):
    for seed in SEEDS:
        verdict = verdict_of(task, source, seed)
        assert verdict.status in ("passed", "pending"), verdict
        assert verdict.points + verdict.pending_points == verdict.max_points, verdict


TWO_KERNELS = SCALED_ADD.replace("(x, y, out, alpha, size, BLOCK=1024)", """(x, torch.zeros_like(y), out, alpha, size, BLOCK=1024)
    product, out = out, torch.empty_like(y)
    scaled_add_kernel[(triton.cdiv(size, 1024), )](product, y, out, 1.0, size, BLOCK=1024)""")
READS_ALONE = """
def wrong_claim(claims, l2):
    for c in claims:
        if abs(c["gbps"] / (c["read"] / c["microseconds"] / 1e3) - 1) > 0.01:
            return c["name"], "binary units"
"""
TORCH_ALONE = "def scaled_add(x, y, alpha):\n    return alpha * x.float() + y\n"
WRONG = [
    # 01.1
    ("01.1", COUNT, [("itemsize * (2 * rows * cols + cols), rows * cols", "itemsize * 3 * rows * cols, rows * cols")], "all rows share"),
    ("01.1", COUNT, [("(2 * rows * cols + cols), rows", "(2 * rows * cols), rows")], "bias is read too"),
    ("01.1", COUNT, [("(2 * rows * cols + cols), rows", "(rows * cols + cols), rows")], "written count as much"),
    ("01.1", COUNT, [("itemsize * (2 * rows * cols + cols), rows", "(2 * rows * cols + cols), rows")], "bytes of one of them"),
    ("01.1", COUNT, [("* cols + cols), rows * cols", "* cols + cols), 2 * rows * cols")], "one addition"),
    ("01.1", COUNT, [("itemsize * rows * cols + 4 * rows", "itemsize * (rows * cols + rows)")], "fp32 whatever"),
    ("01.1", COUNT, [("itemsize * rows * cols + 4 * rows", "itemsize * rows * cols")], "written count as much"),
    ("01.1", COUNT, [("itemsize * rows * cols + 4 * rows, rows * cols", "rows * cols, itemsize * rows * cols + 4 * rows")], "(bytes, flops)"),
    ("01.1", COUNT, [("(2 * rows * cols + rows + cols)", "(rows * cols + rows + cols)")], "the matrix moves twice"),
    ("01.1", COUNT, [("(2 * rows * cols + rows + cols)", "(2 * rows * cols)")], "u and v are read"),
    ("01.1", COUNT, [("(2 * rows * cols + rows + cols)", "(4 * rows * cols + rows + cols)")], "stays on the chip"),
    ("01.1", COUNT, [("rows + cols), 2 * rows * cols", "rows + cols), rows * cols")], "are two FLOPs"),
    ("01.1", COUNT, [("+ k * n +", "+ 2 * k * n +")], "has one byte"),
    ("01.1", COUNT, [("+ 4 * n ", "")], "fp32 scale per column"),
    ("01.1", COUNT, [("2 * m * n * k + m * n", "m * n * k + m * n")], "are two FLOPs"),
    ("01.1", COUNT, [("2 * m * n * k + m * n", "2 * m * n * k")], "multiplied once by its column's scale"),
    ("01.1", COUNT, [("2 * m * n * k + m * n", "3 * m * n * k")], "after the sum"),
    ("01.1", COUNT, [("2 * m * n * k + m * n", "float(2 * m * n * k + m * n)")], "return ints"),
    # 01.2
    ("01.2", ROOFLINE, [("return peak / bandwidth", "return bandwidth / peak")], "solve for flops / bytes"),
    ("01.2", ROOFLINE, [("min(peak, bandwidth * intensity)", "bandwidth * intensity")], "smaller of the two roofs"),
    ("01.2", ROOFLINE, [("min(peak, bandwidth * intensity)", "peak")], "Left of the ridge"),
    ("01.2", ROOFLINE, [("min(peak", "max(peak")], "lower one decides"),
    ("01.2", ROOFLINE, [("bandwidth * intensity)", "bandwidth * intensity) * 1e12")], "TFLOP/s already"),
    ("01.2", ROOFLINE, [(" * 1e12)", ")")], "1e12"),
    ("01.2", ROOFLINE, [("max(nbytes", "sum(("), (", flops / (peak * 1e12))", ", flops / (peak * 1e12)))"), ("sum((", "sum((nbytes")], "not their sum"),
    ("01.2", ROOFLINE, [("max(nbytes", "min(nbytes")], "longer of the two times decides"),
    ("01.2", ROOFLINE, [("max(nbytes / (bandwidth * 1e12), flops / (peak * 1e12))", "nbytes / (bandwidth * 1e12)")], "longer of the two times decides"),
    ("01.2", ROOFLINE, [("max(nbytes / (bandwidth * 1e12), flops / (peak * 1e12))", "flops / (peak * 1e12)")], "longer of the two times decides"),
    # 01.3
    ("01.3", BREAK_EVEN, [(" * 1e-6", "")], "microseconds"),
    ("01.3", BREAK_EVEN, [(" * 1e-6", ""), (" * 1e12", "")], "do not cancel"),
    ("01.3", BREAK_EVEN, [(" / bytes_per_element", "")], "Divide by the bytes"),
    ("01.3", BREAK_EVEN, [(" / bytes_per_element", " * bytes_per_element")], "fewer elements"),
    ("01.3", BREAK_EVEN, [(" / bytes_per_element", " / bytes_per_element / 2")], "together already"),
    ("01.3", BREAK_EVEN, [("return ", "return 1 / ("), ("bytes_per_element\n", "bytes_per_element)\n")], "turned over"),
    # 01.4
    ("01.4", BOUND, [('"matrix" if matmul else "vector"', '"matrix"')], "gpu['vector']"),
    ("01.4", BOUND, [('"matrix" if matmul else "vector"', '"vector"')], "gpu['matrix']"),
    ("01.4", BOUND, [('launches * gpu["launch"]', "0")], "third time"),
    ("01.4", BOUND, [('launches * gpu["launch"]', 'gpu["launch"]')], "multiply by launches"),
    ("01.4", BOUND, [("return word, times[word]", "return word, sum(times.values())")], "the longest decides"),
    ("01.4", BOUND, [("max(times", "min(times")], "the longest decides"),
    ("01.4", BOUND, [("return word, times[word]", "return word")], "Return"),
    # 01.5
    ("01.5", SCALED_ADD, [(", mask=mask).to(tl.float32)", ").to(tl.float32)")], "offsets < size"),
    ("01.5", SCALED_ADD, [("alpha * x + y, mask=mask", "alpha * x + y")], "offsets < size"),
    ("01.5", SCALED_ADD, [("triton.cdiv(size, 1024)", "max(1, size // 1024)")], "never written"),
    ("01.5", SCALED_ADD, [(".to(tl.float32)", "")], "takes on the type"),
    ("01.5", SCALED_ADD, [("alpha * x + y", "(alpha * x).to(x_ptr.dtype.element_ty) + y")], "cast nothing back"),
    ("01.5", SCALED_ADD, [("alpha * x + y", "alpha * x + y.to(x_ptr.dtype.element_ty)")], "only x is converted"),
    ("01.5", SCALED_ADD, [("alpha * x + y", "x + alpha * y")], "only x is scaled"),
    ("01.5", SCALED_ADD, [("alpha * x + y", "alpha * (x + y)")], "only x is scaled"),
    ("01.5", SCALED_ADD, [("alpha * x + y", "x + y")], "Multiply x by alpha"),
    ("01.5", SCALED_ADD, [("alpha * x + y", "alpha * x")], "Add y"),
    ("01.5", SCALED_ADD, [("torch.empty_like(y)", "torch.empty_like(x)")], "empty_like(y)"),
    ("01.5", SCALED_ADD, [("torch.empty_like(y)", "y")], "store into a new tensor"),
    ("01.5", SCALED_ADD, [("(x, y, out,", "(x.float(), y, out,")], "converts x itself"),
    ("01.5", SCALED_ADD, [("(x, y, out,", "(x.float() * alpha, y, out,"), ("out, alpha,", "out, 1.0,")], "converts x itself"),
    ("01.5", TORCH_ALONE, [], "write one and launch it"),
    ("01.5", TWO_KERNELS, [], "no tensor between two kernels"),
    # 01.6
    ("01.6", AUDIT, [('"one way"', '"binary units"')], "Compare the claim with read / time"),
    ("01.6", AUDIT, [('"binary units"', '"one way"')], "Compare the claim with read / time"),
    ("01.6", AUDIT, [('if claim["buffers"] * moved <= l2', "if moved <= l2")], "not one call's bytes"),
    ("01.6", READS_ALONE, [], "Both directions count"),
    ("01.6", AUDIT, [('if claim["buffers"] * moved <= l2', "if moved / time > 4.8e12")], "two strings"),
    ("01.6", "def wrong_claim(claims, l2):\n    return max(claims, key=lambda c: c['gbps'])['name'], 'cache'\n", [], "is of DRAM"),
    ("01.6", "def wrong_claim(claims, l2):\n    return 'A', 1\n", [], "two strings"),
    ("01.6", "def wrong_claim(claims, l2):\n    return 'A', 'units'\n", [], "one of the reasons"),
]


@pytest.mark.parametrize("task, source, changes, hint", WRONG, ids=[f"{w[0]} {i} {w[3]}" for i, w in enumerate(WRONG)])
def test_wrong(task, source, changes, hint):
    verdict = verdict_of(task, edited(source, *changes))
    assert (verdict.status, verdict.points) == ("failed", 0), verdict
    assert hint in verdict.hint, verdict


@pytest.mark.parametrize("task", ["01.1", "01.2", "01.3", "01.4", "01.5", "01.6"])
def test_untouched(task):
    from grading.checks import task as find_task

    source = "".join(f"def {name}(*arguments):\n    raise NotImplementedError()\n\n" for name in find_task(task).functions)
    assert verdict_of(task, source).status == "not_attempted"
