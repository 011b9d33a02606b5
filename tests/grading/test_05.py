"""Exercise 05: right answers in several styles pass, and each plausible wrong one fails with the hint made for it."""

from grading_tools import answer_tests, answers, edited, verdict_of

EXERCISE = "05_rmsnorm"
SOLUTION = answers(EXERCISE)
SOLUTION["05.6"] = "TILE = 64\n\n\n" + SOLUTION["05.6"]  # which a given cell defines

# ---------------------------------------------------------------- right, in another style

RIGHT = {
    "one formula": (
        "05.1",
        """
def total(passes, per_row):
    return lambda rows, cols, itemsize: (passes * rows * cols + cols) * itemsize + 4 * per_row * rows

eager_bytes, two_pass_bytes, resident_bytes = total(7, 4), total(3, 1), total(2, 1)
""",
    ),
    "tensor by tensor": (
        "05.1",
        """
def of(*tensors):
    return sum(elements * size for elements, size in tensors)

def eager_bytes(rows, cols, itemsize):
    m, v, gain = (rows * cols, itemsize), (rows, 4), (cols, itemsize)
    return of(m, m) + of(m, v) + of(v, v) + of(m, v, m) + of(m, gain, m)

def resident_bytes(rows, cols, itemsize):
    return of((rows * cols, itemsize), (cols, itemsize), (rows * cols, itemsize), (rows, 4))

def two_pass_bytes(rows, cols, itemsize):
    return resident_bytes(rows, cols, itemsize) + of((rows * cols, itemsize))
""",
    ),
    "row by row, one row of tiles at a time": (
        "05.2",
        """
def tile_loop(x, weight, eps, block):
    y = x.new_empty(x.shape, dtype=torch.float32)
    scale = torch.empty(len(x), device=x.device)
    for row in range(len(x)):
        total = 0.0
        for start in range(0, x.shape[1], block):
            total += torch.linalg.vector_norm(x[row, start:start + block], dtype=torch.float32)**2
        scale[row] = 1 / torch.sqrt(total / x.shape[1] + eps)
        for start in range(0, x.shape[1], block):
            tile, gain = x[row, start:start + block].to(torch.float32), weight[start:start + block]
            y[row, start:start + block] = torch.addcmul(tile * scale[row], tile * scale[row], gain)
    return y, scale
""",
    ),
    "chunks": (
        "05.2",
        """
def tile_loop(x, weight, eps, block):
    rows, cols = x.shape
    y = torch.zeros((rows, cols), device=x.device)
    pieces = list(zip(x.split(block, dim=1), y.split(block, dim=1), weight.split(block)))
    total = 0
    for piece, _, _ in pieces:
        total = total + piece.to(torch.float64).pow(2).sum(1)
    scale = (total / cols + eps).rsqrt().float()
    for piece, out, w in pieces:
        out.copy_(torch.addcmul(piece * scale.unsqueeze(1), piece * scale.unsqueeze(1), w))
    return y, scale
""",
    ),
    "several rows per program": (
        "05.3",
        """
@triton.jit
def rows_kernel(x, w, out, s, stride, n_rows, n: tl.constexpr, eps, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    c = tl.arange(0, BLOCK)
    ok = (r[:, None] < n_rows) & (c[None, :] < n)
    tile = tl.load(x + r[:, None].to(tl.int64) * stride + c[None, :], ok, 0).to(tl.float32)
    scale = 1.0 / tl.sqrt(tl.sum(tile * tile, axis=1) * (1.0 / n) + eps)
    gain = 1.0 + tl.load(w + c, c < n, 0)
    tl.store(out + r[:, None].to(tl.int64) * n + c[None, :], tile * (scale[:, None] * gain[None, :]), ok)
    tl.store(s + r, scale, r < n_rows)

def gemma_norm(x, weight, eps):
    rows, cols = x.shape
    y, scale = x.new_empty((rows, cols), dtype=torch.float32), x.new_empty(rows, dtype=torch.float32)
    rows_kernel[(triton.cdiv(rows, 2), )](x, weight, y, scale, x.stride(0), rows, cols, eps, ROWS=2,
                                          BLOCK=triton.next_power_of_2(cols))
    return y, scale
""",
    ),
    "persistent, gain made by torch": (
        "05.3",
        """
@triton.jit
def walk(x_ptr, gain_ptr, y_ptr, scale_ptr, stride, rows, cols, eps, BLOCK: tl.constexpr):
    columns = tl.arange(0, BLOCK)
    inside = columns < cols
    gain = tl.load(gain_ptr + columns, mask=inside, other=0.0)
    row = tl.program_id(0)
    while row < rows:
        x = tl.load(x_ptr + row * stride + columns, mask=inside, other=0.0)
        x = x.to(tl.float32)
        mean = tl.sum(x * x) / cols
        scale = tl.math.rsqrt(mean + eps)
        tl.store(scale_ptr + row, scale)
        tl.store(y_ptr + row * cols + columns, (x * gain) * scale, mask=inside)
        row += tl.num_programs(0)

def gemma_norm(x, weight, eps):
    rows, cols = x.shape
    y = torch.empty((rows, cols), device=x.device)
    scale = torch.empty((rows, ), device=x.device)
    walk[(min(2, rows), )](x, weight + 1, y, scale, x.stride(0), rows, cols, eps, BLOCK=triton.next_power_of_2(cols))
    return [y, scale]
""",
    ),
    "block pointers, both vectors made by torch": (
        "05.3",
        """
@triton.jit
def blocks(x_ptr, gain_ptr, y_ptr, scale_ptr, rows, stride, cols, inverse, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    x_block = tl.make_block_ptr(x_ptr, (rows, cols), (stride, 1), (row, 0), (1, BLOCK), (1, 0))
    gain_block = tl.make_block_ptr(gain_ptr, (cols, ), (1, ), (0, ), (BLOCK, ), (0, ))
    y_block = tl.make_block_ptr(y_ptr, (rows, cols), (cols, 1), (row, 0), (1, BLOCK), (1, 0))
    x = tl.load(x_block, boundary_check=(1, ), padding_option="zero").to(tl.float32)
    scale = tl.rsqrt(tl.sum(x * x, axis=1) * tl.load(inverse) + eps)
    tl.store(scale_ptr + row + tl.arange(0, 1), scale)
    gain = tl.load(gain_block, boundary_check=(0, ), padding_option="zero")
    tl.store(y_block, x * scale[:, None] * gain[None, :], boundary_check=(1, ))

def gemma_norm(x, weight, eps):
    rows, cols = x.shape
    y, scale = torch.empty(rows, cols, device=x.device), torch.empty(rows, device=x.device)
    inverse = torch.full((1, ), 1 / cols, device=x.device)
    blocks[(rows, )](x, 1 + weight, y, scale, rows, x.stride(0), cols, inverse, eps, triton.next_power_of_2(cols))
    return y, scale
""",
    ),
    "tuned": (
        "05.3",
        """
@triton.autotune([triton.Config({}, num_warps=warps) for warps in (1, 4, 16)], key=["cols"])
@triton.heuristics({"BLOCK": lambda args: triton.next_power_of_2(args["cols"])})
@triton.jit
def tuned(x_ptr, w_ptr, y_ptr, s_ptr, stride, cols, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    x = load(x_ptr + row * stride, cols, BLOCK)
    s = scale_of(x, cols, eps)
    tl.store(s_ptr + row, s)
    c = tl.arange(0, BLOCK)
    tl.store(y_ptr + row * cols + c, x * s * (load(w_ptr, cols, BLOCK) + 1), mask=c < cols)

@triton.jit
def load(ptr, cols, BLOCK: tl.constexpr):
    c = tl.arange(0, BLOCK)
    return tl.load(ptr + c, mask=c < cols, other=0.0).to(tl.float32)

@triton.jit
def scale_of(x, cols, eps):
    return tl.rsqrt(tl.sum(x * x, axis=0) / cols + eps)

def gemma_norm(x, weight, eps):
    y = torch.empty_like(x, dtype=torch.float32, memory_format=torch.contiguous_format)
    s = torch.empty(len(x), dtype=torch.float32, device=x.device)
    tuned[lambda meta: (len(x), )](x, weight, y, s, x.stride(0), x.shape[1], eps)
    return y, s
""",
    ),
    "two kernels, partial sums between them": (
        "05.4",
        """
@triton.jit
def sums(x_ptr, part_ptr, stride, cols, tiles, BLOCK: tl.constexpr):
    row, tile = tl.program_id(0), tl.program_id(1)
    c = tile * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride + c, mask=c < cols, other=0.0).to(tl.float32)
    tl.store(part_ptr + row * tiles + tile, tl.sum(x * x))

@triton.jit
def finish(x_ptr, w_ptr, part_ptr, y_ptr, stride, cols, tiles, eps, BLOCK: tl.constexpr, TILES: tl.constexpr):
    row, tile = tl.program_id(0), tl.program_id(1)
    t = tl.arange(0, TILES)
    total = tl.sum(tl.load(part_ptr + row * tiles + t, mask=t < tiles, other=0.0))
    c = tile * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride + c, mask=c < cols, other=0.0).to(tl.float32)
    w = tl.load(w_ptr + c, mask=c < cols, other=0.0)
    tl.store(y_ptr + row * cols + c, x * tl.rsqrt(total / cols + eps) * (1 + w), mask=c < cols)

def wide_norm(x, weight, eps, out_dtype):
    rows, cols = x.shape
    block = 2048
    tiles = triton.cdiv(cols, block)
    part = torch.empty(rows, tiles, device=x.device)
    y = torch.empty(rows, cols, dtype=out_dtype, device=x.device)
    sums[(rows, tiles)](x, part, x.stride(0), cols, tiles, BLOCK=block)
    finish[(rows, tiles)](x, weight, part, y, x.stride(0), cols, tiles, eps, block, triton.next_power_of_2(tiles))
    return y
""",
    ),
    "gain made by torch": (
        "05.4",
        """
@triton.jit
def square(a):
    return a * a

@triton.jit
def stream(x_ptr, gain_ptr, y_ptr, row_stride, cols, eps, WIDTH: tl.constexpr):
    row, total = tl.program_id(0).to(tl.int64), 0.0
    for tile in range(tl.cdiv(cols, WIDTH)):
        c = tile * WIDTH + tl.arange(0, WIDTH)
        x = tl.load(x_ptr + row * row_stride + c, mask=c < cols, other=0.0)
        total += tl.sum(square(x.to(tl.float32)), axis=0)
    scale = 1.0 / tl.sqrt_rn(total / cols + eps)
    for tile in range(tl.cdiv(cols, WIDTH)):
        c = tile * WIDTH + tl.arange(0, WIDTH)
        x = tl.load(x_ptr + row * row_stride + c, mask=c < cols, other=0.0).to(tl.float32)
        gain = tl.load(gain_ptr + c, mask=c < cols, other=0.0)
        tl.store(y_ptr + row * cols + c, (x * gain * scale).to(y_ptr.dtype.element_ty), mask=c < cols)

def wide_norm(x, weight, eps, out_dtype):
    gain = weight.clone().add_(1.0)
    y = x.new_empty(x.shape, dtype=out_dtype)
    stream[(len(x), 1, 1)](x, gain, y, row_stride=x.stride(0), cols=x.shape[1], eps=eps, WIDTH=2048)
    return y
""",
    ),
    "atomics": (
        "05.4",
        """
@triton.jit
def add_up(x_ptr, total_ptr, stride, cols, BLOCK: tl.constexpr):
    row = tl.program_id(1)
    c = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride + c, mask=c < cols, other=0.0).to(tl.float32)
    tl.atomic_add(total_ptr + row, tl.sum(x * x))

@triton.jit
def scale_rows(x_ptr, w_ptr, total_ptr, y_ptr, stride, cols, eps, BLOCK: tl.constexpr):
    row = tl.program_id(1)
    c = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    scale = tl.rsqrt(tl.load(total_ptr + row) / cols + eps)
    x = tl.load(x_ptr + row * stride + c, mask=c < cols, other=0.0).to(tl.float32)
    tl.store(y_ptr + row * cols + c, x * scale * (1 + tl.load(w_ptr + c, mask=c < cols, other=0.0)), mask=c < cols)

def wide_norm(x, weight, eps, out_dtype):
    y, total = torch.empty(x.shape, dtype=out_dtype, device=x.device), torch.zeros(len(x), device=x.device)
    grid = (triton.cdiv(x.shape[1], 4096), len(x))
    add_up[grid](x, total, x.stride(0), x.shape[1], BLOCK=4096)
    scale_rows[grid](x, weight, total, y, x.stride(0), x.shape[1], eps, BLOCK=4096)
    return y
""",
    ),
    "backwards, resident where it fits": (
        "05.4",
        """
@triton.jit
def both_ways(x_ptr, weight_ptr, y_ptr, stride, cols: tl.constexpr, eps, tiles, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    total = 0.0
    for tile in range(tiles):
        c = tile * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * stride + c, mask=c < cols, other=0).to(tl.float32)
        total += tl.sum(x * x)
    scale = 1 / tl.sqrt(total / cols + eps)
    for tile in range(tiles):
        c = (tiles - 1 - tile) * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * stride + c, mask=c < cols, other=0).to(tl.float32)
        w = tl.load(weight_ptr + c, mask=c < cols, other=0)
        tl.store(y_ptr + row * cols + c, (x * scale + x * scale * w).to(y_ptr.dtype.element_ty), mask=c < cols)

def wide_norm(x, weight, eps, out_dtype):
    y = torch.empty(x.shape, dtype=out_dtype, device=x.device)
    both_ways[(x.shape[0], )](x, weight, y, x.stride(0), x.shape[1], eps, triton.cdiv(x.shape[1], 1024), BLOCK=1024)
    return y
""",
    ),
    "two tiles at once": (
        "05.5",
        """
@triton.jit
def fused(x_ptr, stream_ptr, weight_ptr, y_ptr, cols: tl.constexpr, eps: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * cols + tl.arange(0, BLOCK)
    inside = tl.arange(0, BLOCK) < cols
    stream = tl.load(stream_ptr + offsets, inside, 0.0)
    stream += tl.load(x_ptr + offsets, inside, 0.0)
    tl.store(stream_ptr + offsets, stream, inside)
    y = stream / tl.sqrt(tl.sum(stream * stream, 0) / cols + eps)
    y = tl.fma(y, tl.load(weight_ptr + tl.arange(0, BLOCK), inside, 0.0), y)
    tl.store(y_ptr + offsets, y.to(y_ptr.dtype.element_ty), inside)

def add_gemma_norm(x, residual, weight, eps):
    y = torch.zeros_like(x)
    fused[x.shape[:1]](x, residual, weight, y, x.shape[1], eps, triton.next_power_of_2(x.shape[1]))
    return y
""",
    ),
    "striding over rows, gain made by torch": (
        "05.5",
        """
@triton.jit
def walk_rows(x_ptr, stream_ptr, gain_ptr, y_ptr, rows, cols, eps, BLOCK: tl.constexpr):
    c = tl.arange(0, BLOCK)
    gain = tl.load(gain_ptr + c, mask=c < cols, other=0.0)
    for row in tl.range(tl.program_id(0), rows, tl.num_programs(0)):
        at = row.to(tl.int64) * cols + c
        total = tl.load(stream_ptr + at, mask=c < cols, other=0.0) + tl.load(x_ptr + at, mask=c < cols, other=0.0)
        tl.store(stream_ptr + at, total, mask=c < cols)
        scale = tl.rsqrt(tl.sum(total * total) / cols + eps)
        tl.store(y_ptr + at, (scale * total * gain).to(y_ptr.dtype.element_ty), mask=c < cols)

def add_gemma_norm(x, residual, weight, eps):
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    walk_rows[(min(3, len(x)), )](x, residual, torch.ones_like(weight) + weight, y, *x.shape, eps,
                                  BLOCK=triton.next_power_of_2(x.shape[1]))
    return y
""",
    ),
    "in place, tuned": (
        "05.5",
        """
@triton.autotune([triton.Config({}, num_warps=n) for n in (4, 8)], key=["cols"], restore_value=["stream_ptr"])
@triton.jit
def tuned(x_ptr, stream_ptr, weight_ptr, y_ptr, cols, eps, BLOCK: tl.constexpr):
    c = tl.arange(0, BLOCK)
    at = tl.program_id(0) * cols + c
    total = tl.load(x_ptr + at, c < cols, 0).to(tl.float32) + tl.load(stream_ptr + at, c < cols, 0)
    tl.store(stream_ptr + at, total, c < cols)
    scale = tl.rsqrt(tl.sum(total * total) / cols + eps)
    tl.store(y_ptr + at, total * scale * (1 + tl.load(weight_ptr + c, c < cols, 0)), c < cols)

def add_gemma_norm(x, residual, weight, eps):
    y = torch.empty_like(x)
    tuned[(len(x), )](x, residual, weight, y, x.shape[1], eps, BLOCK=triton.next_power_of_2(x.shape[1]))
    return y
""",
    ),
    "row by row, through views": (
        "05.5",
        """
@triton.jit
def one_row(x_ptr, residual_ptr, weight_ptr, y_ptr, cols, eps, BLOCK: tl.constexpr):
    c = tl.arange(0, BLOCK)
    total = tl.load(x_ptr + c, c < cols, 0).to(tl.float32) + tl.load(residual_ptr + c, c < cols, 0)
    tl.store(residual_ptr + c, total, c < cols)
    scale = 1 / tl.sqrt(tl.sum(total * total) / cols + eps)
    tl.store(y_ptr + c, total * scale * (1 + tl.load(weight_ptr + c, c < cols, 0)), c < cols)

def add_gemma_norm(x, residual, weight, eps):
    y = torch.empty_like(x)
    for a, b, c in zip(x, residual, y):
        one_row[(1, )](a, b, weight, c, len(a), eps, BLOCK=triton.next_power_of_2(len(a)))
    return y
""",
    ),
    "alternating signs": (
        "05.6",
        """
def show_wrong(cols):
    row = torch.full((cols, ), 0.0625)
    row[1::2] *= -1
    row[:64] = 2.0
    return ["carry", row]
""",
    ),
    "values chosen at random": (
        "05.6",
        """
def show_wrong(cols):
    signs = torch.where(torch.rand(cols) < 0.5, -1.0, 1.0)
    sizes = torch.cat([torch.full((64, ), 2.0), torch.full((cols - 64, ), 2.0**-4)])
    return "carry", (signs * sizes).bfloat16().float()
""",
    ),
}

# ---------------------------------------------------------------- wrong, each with its hint

X_LOAD = "x_row_stride + columns, mask=inside, other=0.0"
FIRST_LOOP = """    for start in range(0, cols, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        x = tl.load(x_row + columns, mask=columns < cols, other=0.0).to(tl.float32)
        squares += x * x"""
RESIDUAL_LOAD = "tl.load(residual_ptr + row * cols + columns, mask=inside, other=0.0)"
BY_TORCH = (
    "    return y, scale",
    "    scale = torch.rsqrt(x.float().square().mean(1) + eps)\n"
    "    return x.float() * scale[:, None] * (1 + weight), scale",
)

WRONG = {
    # name: task, changes to the solution or a whole answer, kind of finding, words that the hint has to hold
    "x counted once": ("05.1", [("2 * matrix + cols", "matrix + cols")], "slip", ["reads it twice"]),
    "eager without intermediates": (
        "05.1",
        [("square + mean + scale + normed + y", "3 * matrix + cols * itemsize + 16 * rows")],
        "slip",
        ["intermediate"],
    ),
    "a float": ("05.1", [("return 2 * matrix", "return 2.0 * matrix")], "type", ["expected an int"]),
    "nonsense": ("05.1", [("square + mean + scale + normed + y", "17")], "wrong", ["gives 17"]),
    "whole matrix converted": (
        "05.2",
        [("    sum_of_squares = torch.z", "    x = x.float()\n    sum_of_squares = torch.z")],
        "whole_tensor",
        ["_to_copy", "slice"],
    ),
    "loop rounds down": (
        "05.2",
        [("range(0, cols, block)", "range(0, cols // block * block, block)")],
        "nan",
        ["second loop"],
    ),
    "only the last slice": ("05.2", [("sum_of_squares += ", "sum_of_squares = ")], "slip", ["last tile"]),
    "divided by block": ("05.2", [("/ cols", "/ block")], "divisor", ["64/256"]),
    "squares in fp16": ("05.2", [("block].float()          #", "block]  #")], "overflow", ["fp32"]),
    "no tail mask": (
        "05.3",
        [(", mask=inside, other=0.0", ""), (", mask=inside", "")],
        "out_of_bounds",
        ["reads x[", "program", "mask"],
    ),
    "no mask on the store": (
        "05.3",
        [("* (1 + weight), mask=inside", "* (1 + weight)")],
        "out_of_bounds",
        ["writes y[", "mask"],
    ),
    "mask one too far": ("05.3", [("columns < cols", "columns <= cols")], "out_of_bounds", ["mask"]),
    "mask one short": ("05.3", [("columns < cols", "columns < cols - 1")], "unwritten", ["columns from 255", "mask"]),
    "bf16 accumulator": (
        "05.3",
        [("tl.sum(x * x)", "tl.sum((x * x).to(tl.bfloat16)).to(tl.float32)")],
        "sixteen_bit",
        ["16 bits", "accumulator", "fp32"],
    ),
    "sum rounded to bf16": (
        "05.3",
        [("tl.sum(x * x)", "tl.sum(x * x).to(tl.bfloat16).to(tl.float32)")],
        "sixteen_bit",
        ["16 bits", "fp32"],
    ),
    "fp16 accumulator": (
        "05.3",
        [("tl.sum(x * x)", "tl.sum((x * x).to(tl.float16)).to(tl.float32)")],
        "overflow",
        ["overflow", "fp32"],
    ),
    "squares in the dtype of x": (
        "05.3",
        [("other=0.0).to(tl.float32)\n", "other=0.0)\n"), ("tl.sum(x * x)", "tl.sum((x * x).to(tl.float32))")],
        "overflow",
        ["overflow", "fp32"],
    ),
    "row wider than the tile": (
        "05.3",
        [("triton.next_power_of_2(cols)", "1024")],
        "unwritten",
        ["columns from 1,024 on of y are never written", "tile", "next_power_of_2"],
    ),
    "row wider than the tile, y of zeros": (
        "05.3",
        [("triton.next_power_of_2(cols)", "1024"), ("y = torch.empty", "y = torch.zeros")],
        "unwritten",
        ["1,024", "tile"],
    ),
    "masked lanes are 1": ("05.3", [(X_LOAD, X_LOAD.replace("0.0", "1.0"))], "slip", ["beyond the row", "other=0.0"]),
    "masked lanes without a value": ("05.3", [(X_LOAD, X_LOAD.replace(", other=0.0", ""))], "nan", ["NaN", "other="]),
    "divided by the tile": ("05.3", [("/ cols", "/ BLOCK")], "divisor", ["1024/1000", "cols"]),
    "eps after the root": (
        "05.3",
        [("tl.rsqrt(tl.sum(x * x) / cols + eps)", "1 / (tl.sqrt(tl.sum(x * x) / cols) + eps)")],
        "slip",
        ["eps was added after the root"],
    ),
    "mean subtracted": (
        "05.3",
        [("    scale = tl.rsqrt", "    x = tl.where(inside, x - tl.sum(x) / cols, 0)\n    scale = tl.rsqrt")],
        "slip",
        ["mean of the row", "LayerNorm"],
    ),
    "y through bf16": (
        "05.3",
        [("x * scale * (1 + weight)", "(x * scale * (1 + weight)).to(tl.bfloat16)")],
        "rounded_output",
        ["bf16", "fp32"],
    ),
    "y in the dtype of x": (
        "05.3",
        [("y = torch.empty(rows, cols, dtype=torch.float32", "y = torch.empty(rows, cols, dtype=x.dtype")],
        "dtype",
        ["bf16", "expected fp32"],
    ),
    "cols for the row stride": ("05.3", [("row * x_row_stride", "row * cols")], "out_of_bounds", ["x.stride(0)"]),
    "scale not stored": ("05.3", [("    tl.store(scale_ptr + row, scale)\n", "")], "unwritten", ["scale"]),
    "root mean square stored": ("05.3", [("scale_ptr + row, scale)", "scale_ptr + row, 1 / scale)")], "slip", ["root"]),
    "a program short": (
        "05.3",
        [("[(rows,)]", "[(max(1, rows - 1),)]")],
        "unwritten",
        ["never written", "program for every row"],
    ),
    "one program": ("05.3", [("[(rows,)]", "[(1,)]")], "unwritten", ["rows from 1 on", "program for every row"]),
    "torch instead of a kernel": (
        "05.3",
        [("gemma_norm_kernel[(rows,)](x", "(lambda *a, **k: None)(x"), BY_TORCH],
        "no_kernel",
        ["Triton kernel"],
    ),
    "a kernel beside the work": ("05.3", [BY_TORCH], "not_by_kernel", ["no kernel stored"]),
    "kernel rounds, torch finishes": (
        "05.3",
        [("    return y, scale", "    return y.mul_(1.0), scale")],
        "torch_work",
        ["mul_", "outside the kernel"],
    ),
    "x loaded twice": (
        "05.3",
        [("    tl.store(y_ptr", f"    x = tl.load(x_ptr + row * {X_LOAD}).to(tl.float32)\n    tl.store(y_ptr")],
        "bytes",
        ["x is read 2.0 times", "once"],
    ),
    "x overwritten": (
        "05.3",
        [
            (
                "    tl.store(scale_ptr",
                "    tl.store(x_ptr + row * x_row_stride + columns, x, "
                "mask=inside)\n    tl.store(x_ptr + row * x_row_stride, 0.0)\n    tl.store(scale_ptr",
            )
        ],
        "input_changed",
        ["changed its input x"],
    ),
    "y alone returned": ("05.3", [("return y, scale", "return y")], "count", ["y, scale"]),
    "nothing returned": ("05.3", [("    return y, scale\n", "")], "count", ["None", "return"]),
    "swapped": ("05.3", [("return y, scale", "return scale, y")], "shape", ["expected"]),
    "a name from elsewhere": ("05.3", [("return y, scale", "return y, rstd")], "exception", ["rstd", "answer cell"]),
    "no mask in the first loop": (
        "05.4",
        [("columns, mask=columns < cols, other=0.0", "columns")],
        "out_of_bounds",
        ["reads x[", "mask"],
    ),
    "second loop ends early": (
        "05.4",
        [
            (
                "    scale = tl.rsqrt(tl.sum(squares) / cols + eps)\n    for start in range(0, cols,",
                "    scale = tl.rsqrt(tl.sum(squares) / cols + eps)\n    for start in range(0, BLOCK,",
            )
        ],
        "unwritten",
        ["columns from 4,096", "second loop"],
    ),
    "tiles rounded down in the sum": (
        "05.4",
        [(FIRST_LOOP, FIRST_LOOP.replace("range(0, cols,", "range(0, cols // BLOCK * BLOCK,"))],
        "slip",
        ["last full tile"],
    ),
    "sum of the last tile": ("05.4", [("squares += x * x", "squares = x * x")], "slip", ["last tile", "+="]),
    "bf16 running sums": (
        "05.4",
        [
            ("BLOCK], dtype=tl.float32)", "BLOCK], dtype=tl.bfloat16)"),
            ("squares += x * x", "squares += (x * x).to(tl.bfloat16)"),
            ("tl.sum(squares)", "tl.sum(squares.to(tl.float32))"),
        ],
        "sixteen_bit",
        ["16 bits"],
    ),
    "bf16 carry": (
        "05.4",
        [
            ("squares = tl.zeros([BLOCK], dtype=tl.float32)", "squares = tl.zeros([1], dtype=tl.bfloat16)"),
            ("squares += x * x", "squares += tl.sum(x * x).to(tl.bfloat16)"),
            ("tl.sum(squares)", "tl.sum(squares.to(tl.float32))"),
            ("min(4096, triton.next_power_of_2(cols))", "64"),
        ],
        ("row_scale", "sixteen_bit"),
        ["16"],
    ),
    "a tile as wide as the row": (
        "05.4",
        [("min(4096, triton.next_power_of_2(cols))", "triton.next_power_of_2(cols)")],
        "tile_too_wide",
        ["4,096", "Loop"],
    ),
    "dtype of x, not out_dtype": ("05.4", [("dtype=out_dtype", "dtype=x.dtype")], "dtype", ["out_dtype"]),
    "three passes": (
        "05.4",
        [("    scale = tl.rsqrt", FIRST_LOOP.replace("x * x", "0 * x") + "\n    scale = tl.rsqrt")],
        "bytes",
        ["x is read 3.0 times"],
    ),
    "weight in the first loop too": (
        "05.4",
        [
            (
                "        squares += x * x",
                "        squares += x * x + 0 * tl.load(weight_ptr + columns, mask=columns < cols, other=0.0)",
            )
        ],
        "bytes",
        ["weight"],
    ),
    "numpy computes, a kernel copies": (
        "05.5",
        [
            (
                "def add_gemma_norm(x",
                "def reference(x, residual, weight, eps):\n    total = x.float().numpy() + residual.numpy()\n    "
                "residual.numpy()[:] = total\n    scale = 1 / ((total**2).mean(1, keepdims=True) + eps)**0.5\n    "
                "return torch.from_numpy(total * scale * (1 + weight.numpy()))\n\n\ndef add_gemma_norm(x",
            ),
            ("    y = torch", "    made = reference(x, residual, weight, eps)\n    y = torch"),
            ("(x, residual, weight, y, cols", "(made, made, weight, y, cols"),
            ("    tl.store(residual_ptr + row * cols + columns, total, mask=inside)\n", ""),
            ("total * scale * (1 + weight)", "x"),
        ],
        ("not_by_kernel", "torch_work", "not_read"),
        ["kernel"],
    ),
    "residual not stored": (
        "05.5",
        [("    tl.store(residual_ptr + row * cols + columns, total, mask=inside)\n", "")],
        "unwritten",
        ["residual"],
    ),
    "a new residual": (
        "05.5",
        [("    add_gemma", "    residual = residual + 0\n    add_gemma")],
        "not_by_kernel",
        ["residual"],
    ),
    "sum in bf16": (
        "05.5",
        [(f"x + {RESIDUAL_LOAD}", f"(x + {RESIDUAL_LOAD}).to(tl.bfloat16).to(tl.float32)")],
        "slip",
        ["rounded to 16 bits", "fp32"],
    ),
    "added by torch": (
        "05.5",
        [("    y = torch", "    residual += x\n    x0, x = x, torch.zeros_like(x)\n    y = torch")],
        "torch_work",
        ["add_", "kernel"],
    ),
    "residual read back": (
        "05.5",
        [("    scale =", f"    total = {RESIDUAL_LOAD}\n    scale =")],
        "bytes",
        ["residual is read 2.0 times"],
    ),
    "tuned in place, nothing put back": (
        "05.5",
        [
            (
                "@triton.jit\ndef add_gemma",
                '@triton.autotune([triton.Config({}, num_warps=n) for n in (4, 8)], key=["cols"])\n'
                "@triton.jit\ndef add_gemma",
            ),
            (", num_warps=warps)", ")"),
        ],
        "tuned",
        ["restore_value"],
    ),
    "both returned": ("05.5", [("return y", "return y, residual")], "count", ["expected 1: y"]),
    "05.5 bf16 accumulator": (
        "05.5",
        [("tl.sum(total * total)", "tl.sum((total * total).to(tl.bfloat16)).to(tl.float32)")],
        "sixteen_bit",
        ["16 bits"],
    ),
    "05.5 squares in the dtype of x": (
        "05.5",
        [
            (
                "tl.sum(total * total)",
                "tl.sum((total.to(x_ptr.dtype.element_ty) * total.to(x_ptr.dtype.element_ty)).to(tl.float32))",
            )
        ],
        "overflow",
        ["overflow"],
    ),
    "05.5 narrow tile": ("05.5", [("triton.next_power_of_2(cols)", "1024")], "unwritten", ["1,024"]),
    "another name": ("05.6", [('"carry"', '"tree"')], "verdict", ["tree is not off", "absorbs"]),
    "a random row": (
        "05.6",
        [("row[TILE:] = 0.044677734375", "row[TILE:] = torch.randn(cols - TILE).clamp(-3, 3).bfloat16()")],
        "verdict",
        ["carry is not off"],
    ),
    "not bf16": ("05.6", [("0.044677734375", "0.0447")], "verdict", ["bf16 number"]),
    "too large": ("05.6", [("= 1.0", "= 8.0")], "verdict", ["between -4 and 4"]),
    "the other order": ("05.6", [('"carry", row', 'row, "carry"')], "verdict", ["names"]),
}

NOT_FAR = {("05.5", "add_gemma_norm"): "contiguous"}


test_right, test_wrong, test_untouched, test_enough = answer_tests(SOLUTION, RIGHT, WRONG)


def test_the_same_fault_of_precision_shows_on_the_scale_of_the_widest_row():
    source = edited(
        SOLUTION["05.3"],
        ("tl.sum(x * x)", "tl.sum((x * x).to(tl.bfloat16)).to(tl.float32)"),
        ("x * scale * (1 + weight)", "x * tl.rsqrt(tl.sum(x * x) / cols + eps) * (1 + weight)"),
    )
    verdict = verdict_of("05.3", source)
    assert verdict.kind == "sixteen_bit" and "scale" in verdict.hint, verdict
