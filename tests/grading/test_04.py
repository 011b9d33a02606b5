"""Exercise 04: right answers in several styles pass, and each plausible wrong one fails with the hint made for it."""

from grading_tools import answer_tests, answers

EXERCISE = "04_fusion"
SOLUTION = answers(EXERCISE)

# ---------------------------------------------------------------- right, in another style

RIGHT = {
    "one formula": (
        "04.1",
        """
def norm_bytes(tokens, hidden):
    return 36 * tokens * hidden + 24 * tokens + 2 * hidden

def layer_bytes(tokens, hidden, inter):
    return 84 * tokens * hidden + 48 * tokens + 4 * hidden + 10 * tokens * inter

def fused_bytes(tokens, hidden, inter):
    return 16 * tokens * hidden + 4 * hidden + 6 * tokens * inter

def saved_microseconds(tokens, hidden, inter, layers, bandwidth):
    return (68 * tokens * hidden + 48 * tokens + 4 * tokens * inter) * layers / bandwidth / 1e6
""",
    ),
    "a table of ops": (
        "04.1",
        """
def moved(*tensors):
    return sum(elements * size for elements, size in tensors)

def norm_bytes(tokens, hidden):
    x, f, row = (tokens * hidden, 2), (tokens * hidden, 4), (tokens, 4)
    return moved(x, f, f, f, f, row, row, row, row, row, f, row, f, f, x, x, (hidden, 2), x)

def layer_bytes(tokens, hidden, inter):
    x, g = (tokens * hidden, 2), (tokens * inter, 2)
    return 2 * norm_bytes(tokens, hidden) + 2 * moved(x, x, x) + moved(g, g) + moved(g, g, g)

def fused_bytes(tokens, hidden, inter):
    x, g = (tokens * hidden, 2), (tokens * inter, 2)
    return 2 * moved(x, x, (hidden, 2), x, x) + moved(g, g, g)

def saved_microseconds(tokens, hidden, inter, layers, bandwidth):
    per_layer = layer_bytes(tokens, hidden, inter) - fused_bytes(tokens, hidden, inter)
    return 1e6 * layers * per_layer / bandwidth / 1e12
""",
    ),
    "by lists": (
        "04.1",
        """
def norm_bytes(tokens, hidden):
    per_element, per_row = [2, 4, 4, 4, 4, 4, 4, 4, 2, 2, 2], [4] * 6
    return tokens * (hidden * sum(per_element) + sum(per_row)) + hidden * 2

def layer_bytes(tokens, hidden, inter):
    total = 0
    for _ in range(2):
        total += norm_bytes(tokens, hidden) + tokens * hidden * (2 + 2 + 2)
    return total + tokens * inter * (2 + 2 + 2 + 2 + 2)

def fused_bytes(tokens, hidden, inter):
    return sum([tokens * hidden * 16, hidden * 4, tokens * inter * 6])

def saved_microseconds(tokens, hidden, inter, layers, bandwidth):
    before, after = (count(tokens, hidden, inter) / (bandwidth * 1e6) for count in (layer_bytes, fused_bytes))
    return layers * before - layers * after
""",
    ),
    "rows in a loop": (
        "04.2",
        """
@triton.jit
def rows_kernel(x_ptr, scale_ptr, shift_ptr, y_ptr, stride, cols, limit, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    for start in range(0, cols, BLOCK):
        c = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * stride + c, c < cols, 0).to(tl.float32)
        z = tl.fma(x, tl.load(scale_ptr + c, c < cols, 0), tl.load(shift_ptr + c, c < cols, 0))
        z = tl.where(z > 0, z, 0)
        tl.store(y_ptr + row * cols + c, tl.where(z * z < limit, z * z, limit), c < cols)

def fused_chain(x, scale, shift, limit):
    y = x.new_empty(x.shape)
    rows_kernel[(len(x), )](x, scale, shift, y, x.stride(0), x.shape[1], float(limit), BLOCK=512)
    return y
""",
    ),
    "tiles": (
        "04.2",
        """
@triton.jit
def tiles_kernel(x_ptr, a_ptr, b_ptr, y_ptr, stride, rows, cols, limit, M: tl.constexpr, N: tl.constexpr):
    r = tl.program_id(0) * M + tl.arange(0, M)[:, None]
    c = tl.program_id(1) * N + tl.arange(0, N)[None, :]
    ok = (r < rows) & (c < cols)
    z = tl.load(x_ptr + r * stride + c, ok).to(tl.float32) * tl.load(a_ptr + c, c < cols) + tl.load(b_ptr + c, c < cols)
    z = (tl.abs(z) + z) * 0.5
    tl.store(y_ptr + r * cols + c, tl.minimum(limit, z * z), ok)

def fused_chain(x, scale, shift, limit):
    rows, cols = x.shape
    y = torch.empty(rows, cols, dtype=x.dtype, device=x.device)
    grid = (triton.cdiv(rows, 4), triton.cdiv(cols, 128))
    tiles_kernel[grid](x, scale, shift, y, x.stride(0), rows, cols, limit, 4, 128)
    return y
""",
    ),
    "striding, the row tile whole": (
        "04.2",
        """
@triton.jit
def walk(x_ptr, a_ptr, b_ptr, y_ptr, stride, rows, cols, limit, BLOCK: tl.constexpr):
    c = tl.arange(0, BLOCK)
    a, b = tl.load(a_ptr + c, c < cols), tl.load(b_ptr + c, c < cols)
    for row in range(tl.program_id(0), rows, tl.num_programs(0)):
        z = tl.maximum(tl.load(x_ptr + row * stride + c, c < cols).to(tl.float32) * a + b, 0)
        tl.store(y_ptr + row * cols + c, tl.minimum(z * z, limit).to(y_ptr.dtype.element_ty), c < cols)

def fused_chain(x, scale, shift, limit):
    y = torch.empty_like(x, memory_format=torch.contiguous_format)
    walk[(2, )](x, scale, shift, y, x.stride(0), *x.shape, limit, BLOCK=triton.next_power_of_2(x.shape[1]))
    return y
""",
    ),
    "a column of programs": (
        "04.3",
        """
@triton.jit
def columns_kernel(x_ptr, bias_ptr, y_ptr, stride, rows, cols, BLOCK: tl.constexpr):
    c = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    bias = tl.load(bias_ptr + c, c < cols, 0)
    for row in range(rows):
        z = tl.load(x_ptr + row * stride + c, c < cols, 0).to(tl.float32) + bias
        u = 0.7978845608028654 * (z + 0.044715 * z * z * z)
        tl.store(y_ptr + row * cols + c, z / (1 + tl.exp(-2 * u)), c < cols)

def bias_gelu(x, bias):
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    columns_kernel[(triton.cdiv(x.shape[1], 128), )](x, bias, y, x.stride(0), *x.shape, BLOCK=128)
    return y
""",
    ),
    "tall tiles": (
        "04.3",
        """
@triton.jit
def half_one_plus_tanh(u):
    return 1 / (1 + tl.exp2(u * -2.8853900817779268))

@triton.jit
def tall(x_ptr, bias_ptr, y_ptr, stride, rows, cols, ROWS: tl.constexpr, COLS: tl.constexpr):
    r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    c = tl.program_id(1) * COLS + tl.arange(0, COLS)
    ok = (r < rows)[:, None] & (c < cols)[None, :]
    x = tl.load(x_ptr + r[:, None].to(tl.int64) * stride + c[None, :], mask=ok, other=0.0)
    z = x.to(tl.float32) + tl.load(bias_ptr + c, mask=c < cols, other=0.0)[None, :]
    y = z * half_one_plus_tanh(0.7978845608028654 * z * (1 + 0.044715 * z * z))
    tl.store(y_ptr + r[:, None].to(tl.int64) * cols + c[None, :], y.to(y_ptr.dtype.element_ty), mask=ok)

def bias_gelu(x, bias):
    rows, cols = x.shape
    y = x.new_empty((rows, cols))
    tall[(triton.cdiv(rows, 64), triton.cdiv(cols, 64))](x, bias, y, x.stride(0), rows, cols, ROWS=64, COLS=64)
    return y
""",
    ),
    "a tanh that cannot overflow": (
        "04.3",
        """
@triton.jit
def own_tanh(x_ptr, bias_ptr, y_ptr, stride, rows, cols, M: tl.constexpr, N: tl.constexpr):
    r = (tl.program_id(1) * M + tl.arange(0, M)[:, None]).to(tl.int64)
    c = tl.program_id(0) * N + tl.arange(0, N)[None, :]
    ok = (r < rows) & (c < cols)
    z = tl.load(x_ptr + r * stride + c, ok, 0).to(tl.float32) + tl.load(bias_ptr + c, c < cols, 0)
    e = tl.exp(-2 * 0.7978845608028654 * tl.abs(z + 0.044715 * z * z * z))
    half = tl.where(z >= 0, 1 / (1 + e), e / (1 + e))
    tl.store(y_ptr + r * cols + c, z * half, ok)

def bias_gelu(x, bias):
    y = torch.empty_like(x, memory_format=torch.contiguous_format)
    own_tanh[lambda meta: (triton.cdiv(x.shape[1], meta["N"]), triton.cdiv(x.shape[0], meta["M"]))](
        x, bias, y, x.stride(0), *x.shape, M=32, N=32)
    return y
""",
    ),
    "split and join": (
        "04.4",
        """
@triton.jit
def forward(both_ptr, y_ptr, size, BLOCK: tl.constexpr):
    i = tl.program_id(0) * 2 * BLOCK + tl.arange(0, 2 * BLOCK)
    both = tl.load(both_ptr + i, i < 2 * size, 0).to(tl.float32)
    g, u = tl.split(tl.reshape(both, [BLOCK, 2]))
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + o, g / (1 + tl.exp(-1.702 * g)) * (u + 1), o < size)

@triton.jit
def backward(dy_ptr, both_ptr, d_ptr, size, BLOCK: tl.constexpr):
    i = tl.program_id(0) * 2 * BLOCK + tl.arange(0, 2 * BLOCK)
    both = tl.load(both_ptr + i, i < 2 * size, 0).to(tl.float32)
    g, u = tl.split(tl.reshape(both, [BLOCK, 2]))
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    dy = tl.load(dy_ptr + o, o < size, 0).to(tl.float32)
    s = 1 / (1 + tl.exp(-1.702 * g))
    d = tl.join(dy * (u + 1) * s * (1 + 1.702 * g * (1 - s)), dy * g * s)
    tl.store(d_ptr + i, tl.reshape(d, [2 * BLOCK]), i < 2 * size)

def swiglu(gate_up):
    y = gate_up.new_empty((len(gate_up), gate_up.shape[1] // 2))
    forward[(triton.cdiv(y.numel(), 256), )](gate_up, y, y.numel(), 256)
    return y

def swiglu_backward(dy, gate_up):
    d = torch.empty_like(gate_up)
    backward[(triton.cdiv(dy.numel(), 256), )](dy, gate_up, d, dy.numel(), 256)
    return d
""",
    ),
    "row by row": (
        "04.4",
        """
@triton.jit
def pair(ptr, row, c, inter):
    g = tl.load(ptr + row * 2 * inter + 2 * c, c < inter, 0).to(tl.float32)
    return g, tl.load(ptr + row * 2 * inter + 2 * c + 1, c < inter, 0).to(tl.float32)

@triton.jit
def fw(x_ptr, y_ptr, inter, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, BLOCK)
    g, u = pair(x_ptr, row, c, inter)
    tl.store(y_ptr + row * inter + c, (u * g + g) * tl.sigmoid(1.702 * g), c < inter)

@triton.jit
def bw(dy_ptr, x_ptr, d_ptr, inter, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, BLOCK)
    g, u = pair(x_ptr, row, c, inter)
    dy = tl.load(dy_ptr + row * inter + c, c < inter, 0).to(tl.float32)
    s = tl.sigmoid(1.702 * g)
    tl.store(d_ptr + row * 2 * inter + 2 * c, (dy * u + dy) * (s + (1.702 * g * s) * (1 - s)), c < inter)
    tl.store(d_ptr + row * 2 * inter + 2 * c + 1, dy * (g * s), c < inter)

def swiglu(gate_up):
    rows, inter = len(gate_up), gate_up.shape[1] // 2
    y = torch.empty(rows, inter, dtype=gate_up.dtype, device=gate_up.device)
    fw[(rows, )](gate_up, y, inter, triton.next_power_of_2(inter))
    return y

def swiglu_backward(dy, gate_up):
    d = torch.zeros_like(gate_up)
    bw[(len(dy), )](dy, gate_up, d, dy.shape[1], triton.next_power_of_2(dy.shape[1]))
    return d
""",
    ),
    "two small functions": (
        "04.5",
        """
def busy(kernel, gpu):
    peak = gpu[kernel["unit"]] * kernel["efficiency"]
    memory, compute = kernel["bytes"] / gpu["bandwidth"], kernel["flops"] / peak
    return memory if memory > compute else compute

def total(kernels, gpu):
    return max(sum(busy(k, gpu) for k in kernels), gpu["launch"] * len(kernels))

def decide(unfused, fused, needed_by_backward, gpu):
    first = dict(fused[0], bytes=fused[0]["bytes"] + needed_by_backward)
    before, after = total(unfused, gpu), total([first] + fused[1:], gpu)
    return ["leave", "fuse"][after <= 0.95 * before], before - after
""",
    ),
    "numpy": (
        "04.5",
        """
import numpy as np

def decide(unfused, fused, needed_by_backward, gpu):
    times = []
    for kernels, extra in ((unfused, 0), (fused, needed_by_backward)):
        nbytes = np.array([k["bytes"] for k in kernels], dtype=float)
        nbytes[0] += extra
        work = np.array([k["flops"] / k["efficiency"] / gpu[k["unit"]] for k in kernels])
        times.append(max(float(np.maximum(nbytes / gpu["bandwidth"], work).sum()), len(kernels) * gpu["launch"]))
    gain = times[0] - times[1]
    return ("fuse", gain) if gain / times[0] >= 0.05 else ("leave", gain)
""",
    ),
    "rates": (
        "04.5",
        """
def decide(unfused, fused, needed_by_backward, gpu):
    def seconds(kernels, written):
        on_gpu, on_host = 0.0, 0.0
        for i, k in enumerate(kernels):
            moved = k["bytes"] + (written if i == 0 else 0)
            on_gpu += max(moved / gpu["bandwidth"], k["flops"] / gpu[k["unit"]] / k["efficiency"])
            on_host += gpu["launch"]
        return max(on_gpu, on_host)
    saved = seconds(unfused, 0) - seconds(fused, needed_by_backward)
    worth = saved >= seconds(unfused, 0) / 20
    return ("fuse" if worth else "leave"), saved
""",
    ),
}

# ---------------------------------------------------------------- wrong, each with its hint

WIDE_LOAD = """    start = tl.program_id(0).to(tl.int64) * BLOCK  # rows follow each other: one index is enough
    pair = 2 * start + tl.arange(0, 2 * BLOCK)  # both neighbours in one wide load, then taken apart in registers
    pairs = tl.load(gate_up_ptr + pair, mask=pair < 2 * size, other=0.0).to(tl.float32)
    gate, up = tl.split(tl.reshape(pairs, (BLOCK, 2)))
    y = gate * tl.sigmoid(1.702 * gate) * (up + 1)
    element = start + tl.arange(0, BLOCK)
    tl.store(y_ptr + element, y.to(y_ptr.dtype.element_ty), mask=element < size)
"""
APART = (
    WIDE_LOAD,
    """    element = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = element < size
    gate = tl.load(gate_up_ptr + 2 * element, mask=inside).to(tl.float32)
    up = tl.load(gate_up_ptr + 2 * element + 1, mask=inside).to(tl.float32)
    y = gate * tl.sigmoid(1.702 * gate) * (up + 1)
    tl.store(y_ptr + element, y.to(y_ptr.dtype.element_ty), mask=inside)
""",
)  # as right, and slower
TWO_LOADS = "    gate = tl.load(gate_up_ptr + 2 * element, mask=inside).to(tl.float32)\n"
HALVES = ("2 * element, mask", "element // inter * 2 * inter + element % inter, mask")

WRONG = {
    # name: task, changes to the solution or a whole answer, kind of finding, words that the hint has to hold
    "norm in bf16": (
        "04.1",
        [
            ("to_fp32 = 2 * x + 4 * x", "to_fp32 = 0"),
            ("square = 4 * x + 4 * x", "square = 2 * x + 2 * x"),
            ("mean = 4 * x", "mean = 2 * x"),
            ("scaled = 4 * x + 4 * tokens + 4 * x", "scaled = 2 * x + 4 * tokens + 2 * x"),
            ("to_bf16 = 4 * x + 2 * x", "to_bf16 = 0"),
        ],
        "slip",
        ["counted in bf16", "fp32"],
    ),
    "no row statistics": (
        "04.1",
        [
            ("4 * tokens + 4 * tokens", "0"),
            ("mean = 4 * x + 4 * tokens", "mean = 4 * x"),
            ("scaled = 4 * x + 4 * tokens", "scaled = 4 * x"),
        ],
        "slip",
        ["numbers per row"],
    ),
    "one norm": (
        "04.1",
        [("2 * norm_bytes(tokens, hidden) + 2 * add", "norm_bytes(tokens, hidden) + add")],
        "slip",
        ["only one norm"],
    ),
    "hidden columns": (
        "04.1",
        [("2 * tokens * inter, 3 * 2 * tokens * inter", "2 * tokens * hidden, 3 * 2 * tokens * hidden")],
        "slip",
        ["inter"],
    ),
    "nonsense": ("04.1", [("return to_fp32 + square", "return 17 + 0 * square")], "wrong", ["One line per operation"]),
    "the lesson's seven passes": (
        "04.1",
        [("return to_fp32 + square + mean + shifted + scale + scaled + to_bf16 + y", "return 7 * 2 * x")],
        "slip",
        ["seven passes"],
    ),
    "all in bf16, casts and all": (
        "04.1",
        [
            ("to_fp32 = 2 * x + 4 * x", "to_fp32 = 4 * x"),
            ("square = 4 * x + 4 * x", "square = 4 * x"),
            ("mean = 4 * x + 4 * tokens", "mean = 2 * x + 2 * tokens"),
            ("4 * tokens + 4 * tokens", "4 * tokens"),
            ("scaled = 4 * x + 4 * tokens + 4 * x", "scaled = 4 * x + 2 * tokens"),
            ("to_bf16 = 4 * x + 2 * x", "to_bf16 = 4 * x"),
        ],
        "slip",
        ["counted in bf16"],
    ),
    "gigabytes": ("04.1", [("bandwidth * 1e12", "bandwidth * 1e9")], "slip", ["TB/s"]),
    "arithmetic in the dtype of x": (
        "04.2",
        [
            ("mask=inside).to(tl.float32)", "mask=inside)"),
            ("shift_ptr + columns, mask=inside)", "shift_ptr + columns, mask=inside).to(x.dtype)"),
            ("scale_ptr + columns, mask=inside)", "scale_ptr + columns, mask=inside).to(x.dtype)"),
        ],
        ("slip", "overflow"),
        ["float32"],
    ),
    "no mask on x": (
        "04.2",
        [("x_row_stride + columns, mask=inside", "x_row_stride + columns")],
        "out_of_bounds",
        ["mask"],
    ),
    "no mask on the store": (
        "04.2",
        [("y.to(y_ptr.dtype.element_ty), mask=inside", "y.to(y_ptr.dtype.element_ty)")],
        "out_of_bounds",
        ["writes y["],
    ),
    "cols for the row stride": (
        "04.2",
        [("row * x_row_stride", "row * cols")],
        ("some_rows", "not_read", "nan", "out_of_bounds"),
        ["row"],
    ),
    "one block of columns": ("04.2", [("triton.cdiv(cols, BLOCK), rows", "1, rows")], "unwritten", ["columns"]),
    "fp32 out": ("04.2", [("dtype=x.dtype", "dtype=torch.float32")], "dtype", ["dtype of x"]),
    "two kernels": (
        "04.2",
        [
            (
                "    return y",
                "    chain_kernel[(triton.cdiv(cols, BLOCK), rows)](x, scale, shift, "
                "y, x.stride(0), cols, limit, BLOCK=BLOCK)\n    return y",
            )
        ],
        "bytes",
        ["One kernel"],
    ),
    "clamped by torch": (
        "04.2",
        [("    return y", "    return y.clamp(max=limit)")],
        ("not_by_kernel", "torch_work"),
        ["torch"],
    ),
    "relu rounded": (
        "04.2",
        [
            (
                "tl.maximum(scale * x + shift, 0.0)",
                "tl.maximum(scale * x + shift, 0.0).to(y_ptr.dtype.element_ty).to(tl.float32)",
            )
        ],
        "slip",
        ["rounded to 16 bits"],
    ),
    "axes exchanged": (
        "04.2",
        [("tl.program_id(1)", "tl.program_id(2 - 2)"), ("tl.program_id(0) * BLOCK", "tl.program_id(1) * BLOCK")],
        "out_of_bounds",
        ["axes of the grid", "tl.program_id(0)"],
    ),
    "in place": (
        "04.2",
        [
            ("y = torch.empty((rows, cols), dtype=x.dtype, device=x.device)", "y = x"),
            ("y_ptr + row * cols", "y_ptr + row * x_row_stride"),
        ],
        "strides",
        ["torch.empty"],
    ),
    "bias by row": (
        "04.3",
        [("bias_ptr + column, mask=column < cols", "bias_ptr + row % cols")],
        ("slip", "bytes"),
        ["bias"],
    ),
    "tanh that overflows": (
        "04.3",
        [("z * tl.sigmoid(two_u)", "0.5 * z * (1 + (tl.exp(two_u) - 1) / (tl.exp(two_u) + 1))")],
        "nan",
        ["overflows"],
    ),
    "bias for every row": (
        "04.3",
        [("bias_ptr + column, mask=column < cols", "bias_ptr + column + 0 * row, mask=inside")],
        "bytes",
        ["bias", "16 rows"],
    ),
    "one row per program": (
        "04.3",
        [("BLOCK_M, BLOCK_N = 16, 256", "BLOCK_M, BLOCK_N = 1, 256")],
        "bytes",
        ["16 rows"],
    ),
    "no row mask": ("04.3", [("(row < rows) & (column < cols)", "column < cols")], "out_of_bounds", ["mask"]),
    "no column mask": ("04.3", [("(row < rows) & (column < cols)", "row < rows")], "out_of_bounds", ["mask"]),
    "y with the stride of x": ("04.3", [("y_ptr + row * cols", "y_ptr + row * x_row_stride")], "out_of_bounds", ["y"]),
    "four digits, doubled": ("04.3", [("1.5957691216057308", "1.5958")], "slip", ["too few digits"]),
    "halves": (
        "04.4",
        [
            APART,
            ("gate_up_ptr, y_ptr, size,", "gate_up_ptr, y_ptr, size, inter,"),
            ("(gate_up, y, y.numel(), BLOCK", "(gate_up, y, y.numel(), inter, BLOCK"),
            (
                TWO_LOADS + "    up = tl.load(gate_up_ptr + 2 * element + 1, mask=inside).to(tl.float32)\n    y =",
                TWO_LOADS.replace(*HALVES)
                + "    up = tl.load(gate_up_ptr + element // inter * 2 * inter + inter + element "
                "% inter, mask=inside).to(tl.float32)\n    y =",
            ),
        ],
        "slip",
        ["alternate"],
    ),
    "gradients exchanged": (
        "04.4",
        [("+ 2 * element, dgate", "+ 2 * element, dup"), ("+ 2 * element + 1, dup", "+ 2 * element + 1, dgate")],
        "slip",
        ["exchanged"],
    ),
    "half of the gradient": (
        "04.4",
        [("    tl.store(dgate_up_ptr + 2 * element + 1, dup.to(dgate_up_ptr.dtype.element_ty), mask=inside)\n", "")],
        "unwritten",
        [""],
    ),
    "sigmoid that overflows": (
        "04.4",
        [("gate * tl.sigmoid(1.702 * gate)", "gate * tl.exp(1.702 * gate) / (1 + tl.exp(1.702 * gate))")],
        "nan",
        ["inf / inf"],
    ),
    "no mask": (
        "04.4",
        [("+ 2 * element, mask=inside", "+ 2 * element"), ("+ 2 * element + 1, mask=inside", "+ 2 * element + 1")],
        "out_of_bounds",
        ["mask"],
    ),
    "up loaded twice": (
        "04.4",
        [APART, ("    y = gate", "    up += 0 * tl.load(gate_up_ptr + 2 * element + 1, mask=inside)\n    y = gate")],
        "bytes",
        ["read once"],
    ),
    "read and written as halves": (
        "04.4",
        [
            (
                "def swiglu_backward_kernel(dy_ptr, gate_up_ptr, dgate_up_ptr, size,",
                "def swiglu_backward_kernel(dy_ptr, gate_up_ptr, dgate_up_ptr, size, inter,",
            ),
            ("dgate_up, dy.numel(), BLOCK", "dgate_up, dy.numel(), dy.shape[1], BLOCK"),
            ("gate_up_ptr + 2 * element + 1, ", "gate_up_ptr + element + element // inter * inter + inter, "),
            ("gate_up_ptr + 2 * element, ", "gate_up_ptr + element + element // inter * inter, "),
        ],
        "slip",
        ["alternate"],
    ),
    "backward's sigmoid rounded": (
        "04.4",
        [
            (
                "    sigmoid = tl.sigmoid(1.702 * gate)\n",
                "    sigmoid = tl.sigmoid(1.702 * gate).to(dy_ptr.dtype.element_ty).to(tl.float32)\n",
            )
        ],
        "slip",
        ["sigmoid was rounded"],
    ),
    "sigmoid of 16 bits": (
        "04.4",
        [
            (
                "gate = tl.load(gate_up_ptr + 2 * element, mask=inside).to(tl.float32)",
                "gate = tl.load(gate_up_ptr + 2 * element, mask=inside)",
            ),
            ("tl.sigmoid(1.702 * gate)\n", "tl.sigmoid(gate)\n"),
        ],
        "exception",
        ["after the load"],
    ),
    "no mask on pairs": (
        "04.4",
        [("mask=pair < 2 * size, other=0.0", "mask=pair < 4 * size, other=0.0")],
        "out_of_bounds",
        ["pair < 2 * size"],
    ),
    "backward forgotten": (
        "04.5",
        [("seconds(fused, needed_by_backward)", "seconds(fused)")],
        "slip",
        ["needed_by_backward"],
    ),
    "launches added": (
        "04.5",
        [('max(busy, len(kernels) * gpu["launch"])', 'busy + len(kernels) * gpu["launch"]')],
        "slip",
        ["their sum"],
    ),
    "bytes alone": ("04.5", [("busy += max(memory, compute)", "busy += memory")], "slip", ["only bytes"]),
    "any gain": ("04.5", [("saved >= 0.05 * before", "saved > 0")], "slip", ["however small"]),
    "one value": ("04.5", [('else "leave", saved', 'else "leave"')], "count", [""]),
    "backward's bytes last": (
        "04.5",
        [("kernel is kernels[0]", "kernel is kernels[-1]")],
        "slip",
        ["added to the last"],
    ),
    **{
        f"threshold of {share}": ("04.5", [("0.05 * before", f"{share} * before")], "slip", ["5% of the unfused"])
        for share in (0.045, 0.055, 0.08)
    },
    "a constant": ("04.5", [('"leave", saved', '"leave", 1.0')], "wrong", ["Take the case apart"]),
}

NOT_ONE = {("04.4", "swiglu"): "a row is a gate and an up of the same width: a single result takes two columns"}
NOT_FAR = {("04.4", "swiglu"): "contiguous", ("04.4", "swiglu_backward"): "contiguous"}


test_right, test_wrong, test_untouched, test_enough = answer_tests(SOLUTION, RIGHT, WRONG)
