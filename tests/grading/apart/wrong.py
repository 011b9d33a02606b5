"""Wrong answers that must get 0 points: {name: (line of the findings, task, answer cell, words)}. Data only.

Written apart from the cure, from the lines of the findings. words: texts or regexes (for re.search, case ignored), of
which the hint must hold at least one; () where any hint will do. A regex that begins with `(?s)\\A(?!` asks that the
hint does not hold something. A cell may assume `import torch` and `from instruments.backend import triton, tl`.

Those under `lets through 4` and `5` are wrong because a GPU would refuse them, run their programs at once, or believe
what they promise; nearly all of them give right numbers in the interpreter.
"""

# The published answers as of commit 7a3d67d, from which most items differ in few places.
BASE = {
    "01.5": """
@triton.jit
def scaled_add_kernel(x_ptr, y_ptr, out_ptr, alpha, size, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)  # [BLOCK]
    mask = offsets < size
    x = tl.load(x_ptr + offsets, mask=mask).to(tl.float32)
    y = tl.load(y_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, alpha * x + y, mask=mask)


def scaled_add(x, y, alpha):
    out = torch.empty_like(y)
    size = y.numel()
    BLOCK = 4096
    scaled_add_kernel[(triton.cdiv(size, BLOCK), )](x, y, out, alpha, size, BLOCK, num_warps=8)
    return out
    ### END SOLUTION
""",
    "02.2": """
@triton.jit
def add_short_kernel(x_ptr, y_ptr, out_ptr, n, m, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)  # [BLOCK]
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask).to(tl.float32)
    y = tl.load(y_ptr + offsets, mask=offsets < m, other=0.0).to(tl.float32)
    tl.store(out_ptr + offsets, x + y, mask=mask)


def add_short(x, y):
    out = torch.empty(x.shape, dtype=torch.float32, device=x.device)
    BLOCK = 1024
    add_short_kernel[(triton.cdiv(x.numel(), BLOCK), )](x, y, out, x.numel(), y.numel(), BLOCK)
    return out
    ### END SOLUTION
""",
    "02.3": """
@triton.jit
def transpose_kernel(x_ptr, out_ptr, rows, cols, row_stride, ROWS: tl.constexpr, COLS: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)  # [ROWS]
    col = tl.program_id(1).to(tl.int64) * COLS + tl.arange(0, COLS)  # [COLS]
    mask = (row < rows)[:, None] & (col < cols)[None, :]  # [ROWS, COLS]
    tile = tl.load(x_ptr + row[:, None] * row_stride + col[None, :], mask=mask)
    tl.store(out_ptr + col[None, :] * rows + row[:, None], tile, mask=mask)


def transpose(x):
    rows, cols = x.shape
    out = torch.empty((cols, rows), dtype=x.dtype, device=x.device)
    grid = (triton.cdiv(rows, 64), triton.cdiv(cols, 64))
    transpose_kernel[grid](x, out, rows, cols, x.stride(0), ROWS=64, COLS=64)
    return out
    ### END SOLUTION
""",
    "02.4": """
@triton.jit
def row_sum_max_kernel(x_ptr, sums_ptr, largest_ptr, cols, row_stride, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    total = tl.zeros([BLOCK], dtype=tl.float32)
    largest = tl.full([BLOCK], float("-inf"), dtype=tl.float32)
    for start in tl.range(0, cols, BLOCK):
        col = start + tl.arange(0, BLOCK)  # [BLOCK]
        mask = col < cols
        x = tl.load(x_ptr + row * row_stride + col, mask=mask, other=0.0).to(tl.float32)
        total += x
        largest = tl.maximum(largest, tl.where(mask, x, float("-inf")))
    tl.store(sums_ptr + row, tl.sum(total))
    tl.store(largest_ptr + row, tl.max(largest))


def row_sum_max(x):
    rows, cols = x.shape
    sums = torch.empty(rows, dtype=torch.float32, device=x.device)
    largest = torch.empty_like(sums)
    row_sum_max_kernel[(rows, )](x, sums, largest, cols, x.stride(0), BLOCK=2048, num_warps=8)
    return sums, largest
    ### END SOLUTION
""",
    "03.3": """
@triton.jit
def linear_kernel(x_ptr, w_ptr, y_ptr, N, K, x_row_stride, w_row_stride, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    col = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    k = tl.arange(0, BLOCK)
    x_ptrs = x_ptr + row[:, None] * x_row_stride + k[None, :]      # [M, K] of the tile
    w_ptrs = w_ptr + col[None, :] * w_row_stride + k[:, None]      # [K, N]: w is read transposed
    total = tl.zeros([BLOCK, BLOCK], dtype=tl.float32)
    for start in range(0, K, BLOCK):
        total = tl.dot(tl.load(x_ptrs + start), tl.load(w_ptrs + start), total, input_precision="ieee")
    tl.store(y_ptr + row[:, None] * N + col[None, :], total)


def linear(x, w):
    (M, K), N = x.shape, w.shape[0]
    y = torch.empty(M, N, dtype=torch.float32, device=x.device)
    linear_kernel[(M // 32, N // 32)](x, w, y, N, K, x.stride(0), w.stride(0), BLOCK=32)
    return y
    ### END SOLUTION
""",
    "03.4": """
@triton.jit
def any_linear_kernel(x_ptr, w_ptr, y_ptr, M, N, K, x_row_stride, x_col_stride, w_row_stride, w_col_stride,
                      BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    col = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK, BLOCK], dtype=tl.float32)
    for start in range(0, K, BLOCK):
        k = start + tl.arange(0, BLOCK).to(tl.int64)
        x = tl.load(x_ptr + row[:, None] * x_row_stride + k[None, :] * x_col_stride,
                    mask=(row[:, None] < M) & (k[None, :] < K), other=0.0)
        w = tl.load(w_ptr + col[None, :] * w_row_stride + k[:, None] * w_col_stride,
                    mask=(col[None, :] < N) & (k[:, None] < K), other=0.0)
        total = tl.dot(x, w, total, input_precision="ieee")
    tl.store(y_ptr + row[:, None] * N + col[None, :], total, mask=(row[:, None] < M) & (col[None, :] < N))


def any_linear(x, w):
    (M, K), N = x.shape, w.shape[0]
    y = torch.empty(M, N, dtype=torch.float32, device=x.device)
    grid = (triton.cdiv(M, 32), triton.cdiv(N, 32))
    any_linear_kernel[grid](x, w, y, M, N, K, *x.stride(), *w.stride(), BLOCK=32)
    return y
    ### END SOLUTION
""",
    "03.5": """
@triton.jit
def grouped_linear_kernel(x_ptr, w_ptr, y_ptr, order_ptr, M, N, K: tl.constexpr, GROUP: tl.constexpr):
    program = tl.program_id(0)
    tiles_m, tiles_n = M // 16, N // 16
    group = program // (GROUP * tiles_n)                  # GROUP rows of tiles form a group
    first = group * GROUP
    height = tl.minimum(tiles_m - first, GROUP)           # the last one may be lower
    within = program - first * tiles_n
    tile_m, tile_n = first + within % height, within // height
    row = tile_m * 16 + tl.arange(0, 16)
    col = tile_n * 16 + tl.arange(0, 16)
    k = tl.arange(0, K)
    x = tl.load(x_ptr + row[:, None] * K + k[None, :])
    w = tl.load(w_ptr + col[None, :] * K + k[:, None])
    tl.store(y_ptr + row[:, None] * N + col[None, :], tl.dot(x, w, input_precision="ieee"))
    tl.store(order_ptr + program, tile_m * tiles_n + tile_n)


def grouped_linear(x, w):
    (M, K), N = x.shape, w.shape[0]
    programs = (M // 16) * (N // 16)
    y = torch.empty(M, N, dtype=torch.float32, device=x.device)
    order = torch.empty(programs, dtype=torch.int32, device=x.device)
    grouped_linear_kernel[(programs,)](x, w, y, order, M, N, K, GROUP=4)
    return y, order
    ### END SOLUTION
""",
    "04.2": """
@triton.jit
def chain_kernel(x_ptr, scale_ptr, shift_ptr, y_ptr, x_row_stride, cols, limit, BLOCK: tl.constexpr):
    row = tl.program_id(1).to(tl.int64)
    columns = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = columns < cols
    x = tl.load(x_ptr + row * x_row_stride + columns, mask=inside).to(tl.float32)
    scale = tl.load(scale_ptr + columns, mask=inside)
    shift = tl.load(shift_ptr + columns, mask=inside)
    z = tl.maximum(scale * x + shift, 0.0)
    y = tl.minimum(z * z, limit)
    tl.store(y_ptr + row * cols + columns, y.to(y_ptr.dtype.element_ty), mask=inside)


def fused_chain(x, scale, shift, limit):
    rows, cols = x.shape
    y = torch.empty((rows, cols), dtype=x.dtype, device=x.device)
    BLOCK = min(1024, triton.next_power_of_2(cols))
    chain_kernel[(triton.cdiv(cols, BLOCK), rows)](x, scale, shift, y, x.stride(0), cols, limit, BLOCK=BLOCK)
    return y
    ### END SOLUTION
""",
    "04.3": """
@triton.jit
def bias_gelu_tile_kernel(x_ptr, bias_ptr, y_ptr, x_row_stride, rows, cols, BLOCK_M: tl.constexpr,
                          BLOCK_N: tl.constexpr):
    row = tl.program_id(1).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]  # [BLOCK_M, 1]
    column = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]            # [1, BLOCK_N]
    inside = (row < rows) & (column < cols)
    bias = tl.load(bias_ptr + column, mask=column < cols)                           # once for BLOCK_M rows
    z = tl.load(x_ptr + row * x_row_stride + column, mask=inside).to(tl.float32) + bias
    two_u = 1.5957691216057308 * (z + 0.044715 * z * z * z)                         # 2 sqrt(2/pi)
    y = z * tl.sigmoid(two_u)
    tl.store(y_ptr + row * cols + column, y.to(y_ptr.dtype.element_ty), mask=inside)


def bias_gelu(x, bias):
    rows, cols = x.shape
    y = torch.empty((rows, cols), dtype=x.dtype, device=x.device)
    BLOCK_M, BLOCK_N = 16, 256
    grid = (triton.cdiv(cols, BLOCK_N), triton.cdiv(rows, BLOCK_M))
    bias_gelu_tile_kernel[grid](x, bias, y, x.stride(0), rows, cols, BLOCK_M, BLOCK_N, num_warps=8)
    return y
    ### END SOLUTION
""",
    "04.4": """
@triton.jit
def swiglu_kernel(gate_up_ptr, y_ptr, size, BLOCK: tl.constexpr):
    start = tl.program_id(0).to(tl.int64) * BLOCK  # rows follow each other: one index is enough
    pair = 2 * start + tl.arange(0, 2 * BLOCK)  # both neighbours in one wide load, then taken apart in registers
    pairs = tl.load(gate_up_ptr + pair, mask=pair < 2 * size, other=0.0).to(tl.float32)
    gate, up = tl.split(tl.reshape(pairs, (BLOCK, 2)))
    y = gate * tl.sigmoid(1.702 * gate) * (up + 1)
    element = start + tl.arange(0, BLOCK)
    tl.store(y_ptr + element, y.to(y_ptr.dtype.element_ty), mask=element < size)


def swiglu(gate_up):
    rows, inter = gate_up.shape[0], gate_up.shape[1] // 2
    y = torch.empty((rows, inter), dtype=gate_up.dtype, device=gate_up.device)
    swiglu_kernel[(triton.cdiv(y.numel(), 1024),)](gate_up, y, y.numel(), BLOCK=1024)
    return y


@triton.jit
def swiglu_backward_kernel(dy_ptr, gate_up_ptr, dgate_up_ptr, size, BLOCK: tl.constexpr):
    element = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = element < size
    dy = tl.load(dy_ptr + element, mask=inside).to(tl.float32)
    gate = tl.load(gate_up_ptr + 2 * element, mask=inside).to(tl.float32)
    up = tl.load(gate_up_ptr + 2 * element + 1, mask=inside).to(tl.float32)
    sigmoid = tl.sigmoid(1.702 * gate)
    dgate = dy * (up + 1) * (sigmoid + 1.702 * gate * sigmoid * (1 - sigmoid))  # product rule
    dup = dy * gate * sigmoid
    tl.store(dgate_up_ptr + 2 * element, dgate.to(dgate_up_ptr.dtype.element_ty), mask=inside)
    tl.store(dgate_up_ptr + 2 * element + 1, dup.to(dgate_up_ptr.dtype.element_ty), mask=inside)


def swiglu_backward(dy, gate_up):
    dgate_up = torch.empty_like(gate_up)
    swiglu_backward_kernel[(triton.cdiv(dy.numel(), 1024),)](dy, gate_up, dgate_up, dy.numel(), BLOCK=1024)
    return dgate_up
    ### END SOLUTION
""",
    "05.3": """
@triton.jit
def gemma_norm_kernel(x_ptr, weight_ptr, y_ptr, scale_ptr, x_row_stride, cols, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)                   # int64: row * stride may pass 2^31
    columns = tl.arange(0, BLOCK)
    inside = columns < cols
    x = tl.load(x_ptr + row * x_row_stride + columns, mask=inside, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(x * x) / cols + eps)          # masked lanes are 0 and add nothing
    weight = tl.load(weight_ptr + columns, mask=inside, other=0.0)
    tl.store(y_ptr + row * cols + columns, x * scale * (1 + weight), mask=inside)
    tl.store(scale_ptr + row, scale)


def gemma_norm(x, weight, eps):
    rows, cols = x.shape
    y = torch.empty(rows, cols, dtype=torch.float32, device=x.device)
    scale = torch.empty(rows, dtype=torch.float32, device=x.device)
    BLOCK = triton.next_power_of_2(cols)                  # the tile spans the row
    warps = min(16, max(1, BLOCK // 512))                 # about 16 elements per thread
    gemma_norm_kernel[(rows,)](x, weight, y, scale, x.stride(0), cols, eps, BLOCK=BLOCK, num_warps=warps)
    return y, scale
    ### END SOLUTION
""",
    "05.4": """
@triton.jit
def wide_norm_kernel(x_ptr, weight_ptr, y_ptr, x_row_stride, cols, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x_row = x_ptr + row * x_row_stride
    y_row = y_ptr + row * cols
    squares = tl.zeros([BLOCK], dtype=tl.float32)         # one running sum per lane, added up once
    for start in range(0, cols, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        x = tl.load(x_row + columns, mask=columns < cols, other=0.0).to(tl.float32)
        squares += x * x
    scale = tl.rsqrt(tl.sum(squares) / cols + eps)
    for start in range(0, cols, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        inside = columns < cols
        x = tl.load(x_row + columns, mask=inside, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + columns, mask=inside, other=0.0)
        tl.store(y_row + columns, x * scale * (1 + weight), mask=inside)  # cast to y's dtype by the store


def wide_norm(x, weight, eps, out_dtype):
    rows, cols = x.shape
    y = torch.empty(rows, cols, dtype=out_dtype, device=x.device)
    BLOCK = min(4096, triton.next_power_of_2(cols))
    wide_norm_kernel[(rows,)](x, weight, y, x.stride(0), cols, eps, BLOCK=BLOCK, num_warps=8)
    return y
    ### END SOLUTION
""",
    "05.5": """
@triton.jit
def add_gemma_norm_kernel(x_ptr, residual_ptr, weight_ptr, y_ptr, cols, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    inside = columns < cols
    x = tl.load(x_ptr + row * cols + columns, mask=inside, other=0.0).to(tl.float32)
    total = x + tl.load(residual_ptr + row * cols + columns, mask=inside, other=0.0)
    tl.store(residual_ptr + row * cols + columns, total, mask=inside)
    scale = tl.rsqrt(tl.sum(total * total) / cols + eps)  # the sum is still in registers
    weight = tl.load(weight_ptr + columns, mask=inside, other=0.0)
    tl.store(y_ptr + row * cols + columns, total * scale * (1 + weight), mask=inside)


def add_gemma_norm(x, residual, weight, eps):
    rows, cols = x.shape
    y = torch.empty_like(x)
    BLOCK = triton.next_power_of_2(cols)
    warps = min(16, max(1, BLOCK // 512))
    add_gemma_norm_kernel[(rows,)](x, residual, weight, y, cols, eps, BLOCK=BLOCK, num_warps=warps)
    return y
    ### END SOLUTION
""",
}


def swap(task, *pairs, base=BASE):
    """The published answer with some of its text exchanged; each old text has to be there."""
    source = base[task]
    for old, new in pairs:
        if old not in source:
            raise ValueError(f"{task}: {old!r} is not in the answer")
        source = source.replace(old, new)
    return source


NO_ROUNDING = (r"(?s)\A(?!.*(noise|TF32|16-bit))",)
NO_ADDRESS = (r"(?s)\A(?!.*row's address)",)

LINEAR_SPLIT = """
@triton.jit
def linear_kernel(x_ptr, w_ptr, y_ptr, N, K, x_row_stride, w_row_stride, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    col = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    k = tl.program_id(2) * 32 + tl.arange(0, 32)
    x = tl.load(x_ptr + row[:, None] * x_row_stride + k[None, :])
    w = tl.load(w_ptr + col[None, :] * w_row_stride + k[:, None])
    y_ptrs = y_ptr + row[:, None] * N + col[None, :]
    tl.store(y_ptrs, tl.load(y_ptrs) + tl.dot(x, w, input_precision="ieee"))


def linear(x, w):
    (M, K), N = x.shape, w.shape[0]
    y = torch.zeros(M, N, dtype=torch.float32, device=x.device)
    linear_kernel[(M // 32, N // 32, K // 32)](x, w, y, N, K, x.stride(0), w.stride(0), BLOCK=32)
    return y
"""

STRIDES_SWAPPED = "any_linear_kernel[grid](x, w, y, M, N, K, *x.stride(), *w.stride(), BLOCK=32)"

DECIDE = """
def decide(unfused, fused, needed_by_backward, gpu):
    def seconds(kernels):
        busy = sum(max(k["bytes"] / gpu["bandwidth"], k["flops"] / (k["efficiency"] * gpu[k["unit"]])) for k in kernels)
        return max(busy, len(kernels) * gpu["launch"])

    before = seconds(unfused)
    fused[0]["bytes"] += needed_by_backward
    after = seconds(fused)
    return "fuse" if before - after >= 0.05 * before else "leave", before - after
"""

CLAIM = """
def wrong_claim(claims, l2):
    for claim in claims:
        moved = claim["read"] + claim["written"]
        seconds = claim["microseconds"] * 1e-6
        if abs(claim["gbps"] / (claim["read"] / seconds / 1e9) - 1) < 0.01:
            return claim["name"], "one way"
        if abs(claim["gbps"] / (moved / seconds / 2**30) - 1) < 0.01:
            return claim["name"], "binary units"
        if claim["buffers"] * moved <= l2:
            return claim["name"], "cache"
"""

STRAY = """
def stray_next(n, block):
    return (n - 1) // block, n


def stray_warps(n, block):
    return (n // block, n) if n % 32 else (-1, 0)


def stray_tile(rows, cols, block):
    # HERE


def stray_gather(n, block):
    return (n // block, -1) if n % block else (-1, 0)
"""

SHOW = """
def show_wrong(cols):
    row = torch.empty(cols)
    row[:64] = 1.0
    row[64:] = 0.044677734375
    return "carry", row
"""

BYTES_05 = """
def eager_bytes(rows, cols, itemsize):
    matrix = rows * cols * itemsize
    return 7 * matrix + cols * itemsize + 16 * rows


def two_pass_bytes(rows, cols, itemsize):
    return 3 * rows * cols * itemsize + cols * itemsize + 4 * rows


def resident_bytes(rows, cols, itemsize):
    return 2 * rows * cols * itemsize + cols * itemsize + 4 * rows
"""

ROOF = """
def ridge(bandwidth, peak):
    return peak / bandwidth


def attainable(intensity, bandwidth, peak):
    return min(peak, bandwidth * intensity)


def seconds(nbytes, flops, bandwidth, peak):
    return max(nbytes / (bandwidth * 1e12), flops / (peak * 1e12))
"""

BOUND = """
def bound(nbytes, flops, launches, matmul, gpu):
    times = {"memory": nbytes / gpu["bandwidth"], "compute": flops / gpu["matrix" if matmul else "vector"],
             "launch": launches * gpu["launch"]}
    word = max(times, key=times.get)
    return word, times[word]
"""

TILE_LOOP_05 = """
def tile_loop(x, weight, eps, block):
    rows, cols = x.shape
    y = torch.empty(rows, cols, dtype=torch.float32, device=x.device)
    squares = torch.zeros(rows, dtype=torch.float32, device=x.device)
    for start in range(0, cols, block):
        tile = x[:, start:start + block].float()
        squares += (tile * tile).sum(dim=1)
    scale = torch.rsqrt(squares / cols + eps)
    for start in range(0, cols, block):
        tile = x[:, start:start + block].float()
        y[:, start:start + block] = tile * scale[:, None] * (1 + weight[start:start + block])
    return y, scale
"""

PARTS_02_4 = """
@triton.jit
def row_sum_max_kernel(x_ptr, sums_ptr, largest_ptr, cols, row_stride, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    col = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * row_stride + col, mask=col < cols, other=float("-inf")).to(tl.float32)
    part, top = tl.sum(tl.where(col < cols, x, 0.0)), tl.max(x)
    # HERE


@triton.jit
def narrow_kernel(x_ptr, sums_ptr, largest_ptr, cols, stride, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    col = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride + col, mask=col < cols, other=float("-inf")).to(tl.float32)
    tl.store(sums_ptr + row, tl.sum(tl.where(col < cols, x, 0.0)))
    tl.store(largest_ptr + row, tl.max(x))


def row_sum_max(x):
    rows, cols = x.shape
    if cols <= 2048:
        out = tuple(torch.empty(rows, dtype=torch.float32, device=x.device) for _ in range(2))
        narrow_kernel[(rows,)](x, *out, cols, x.stride(0), BLOCK=triton.next_power_of_2(cols))
        return out
    sums = torch.zeros(rows, dtype=torch.float32, device=x.device)
    largest = torch.full((rows,), float("-inf"), dtype=torch.float32, device=x.device)
    row_sum_max_kernel[(rows, triton.cdiv(cols, 2048))](x, sums, largest, cols, x.stride(0), BLOCK=2048)
    return sums, largest
"""

WRONG = {
    # ---- lets through 1: grids that end too early ----
    "02.4 at most 108 programs, no loop": (
        "lets through 1",
        "02.4",
        swap("02.4", ("kernel[(rows, )]", "kernel[(min(rows, 108),)]")),
        (),
    ),
    "02.4 the grid's size is a fixed 16 at most": (
        "lets through 1",
        "02.4",
        swap(
            "02.4",
            (
                "row_sum_max_kernel[(rows, )]",
                "programs = rows if rows < 16 else 16\n    row_sum_max_kernel[(programs,)]",
            ),
        ),
        (),
    ),
    "04.2 at most 64 rows": ("lets through 1", "04.2", swap("04.2", ("BLOCK), rows)]", "BLOCK), min(rows, 64))]")), ()),
    "04.2 one wave of programs over blocks and rows": (
        "lets through 1",
        "04.2",
        swap(
            "04.2",
            (
                "chain_kernel[(triton.cdiv(cols, BLOCK), rows)]",
                "blocks = triton.cdiv(cols, BLOCK)\n    chain_kernel[(blocks, min(rows, max(1, 132 // blocks)))]",
            ),
        ),
        (),
    ),
    "05.3 at most 114 programs": (
        "lets through 1",
        "05.3",
        swap("05.3", ("kernel[(rows,)]", "kernel[(min(rows, 114),)]")),
        (),
    ),
    "05.3 a persistent loop of two turns": (
        "lets through 1",
        "05.3",
        swap(
            "05.3",
            (
                """    row = tl.program_id(0).to(tl.int64)                   # int64: row * stride may pass 2^31
    columns = tl.arange(0, BLOCK)
    inside = columns < cols
    x = tl.load(x_ptr + row * x_row_stride + columns, mask=inside, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(x * x) / cols + eps)          # masked lanes are 0 and add nothing
    weight = tl.load(weight_ptr + columns, mask=inside, other=0.0)
    tl.store(y_ptr + row * cols + columns, x * scale * (1 + weight), mask=inside)
    tl.store(scale_ptr + row, scale)
""",
                """    columns = tl.arange(0, BLOCK)
    inside = columns < cols
    weight = tl.load(weight_ptr + columns, mask=inside, other=0.0)
    for turn in range(0, 2):
        row = tl.program_id(0).to(tl.int64) + turn * 32
        if row < rows:
            x = tl.load(x_ptr + row * x_row_stride + columns, mask=inside, other=0.0).to(tl.float32)
            scale = tl.rsqrt(tl.sum(x * x) / cols + eps)
            tl.store(y_ptr + row * cols + columns, x * scale * (1 + weight), mask=inside)
            tl.store(scale_ptr + row, scale)
""",
            ),
            ("scale_ptr, x_row_stride, cols", "scale_ptr, x_row_stride, rows, cols"),
            ("x.stride(0), cols", "x.stride(0), rows, cols"),
            ("kernel[(rows,)]", "kernel[(min(rows, 32),)]"),
        ),
        (),
    ),
    "05.4 at most 32 rows": (
        "lets through 1",
        "05.4",
        swap("05.4", ("kernel[(rows,)]", "kernel[(min(rows, 32),)]")),
        (),
    ),
    "05.4 the rows beyond a multiple of 8 are left out": (
        "lets through 1",
        "05.4",
        swap("05.4", ("wide_norm_kernel[(rows,)]", "wide_norm_kernel[(rows if rows < 8 else rows // 8 * 8,)]")),
        (),
    ),
    "05.5 at most 148 programs": (
        "lets through 1",
        "05.5",
        swap("05.5", ("kernel[(rows,)]", "kernel[(min(rows, 148),)]")),
        (),
    ),
    "05.5 at most 24 programs": (
        "lets through 1",
        "05.5",
        swap("05.5", ("kernel[(rows,)]", "kernel[(min(24, rows),)]")),
        (),
    ),
    "01.5 at most 108 tiles of 1024": (
        "lets through 1",
        "01.5",
        swap(
            "01.5",
            ("BLOCK = 4096", "BLOCK = 1024"),
            ("(triton.cdiv(size, BLOCK), )", "(min(triton.cdiv(size, BLOCK), 108),)"),
        ),
        (),
    ),
    "01.5 at most 64 tiles of 256": (
        "lets through 1",
        "01.5",
        swap(
            "01.5",
            ("BLOCK = 4096", "BLOCK = 256"),
            ("(triton.cdiv(size, BLOCK), )", "(min(triton.cdiv(size, BLOCK), 64),)"),
        ),
        (),
    ),
    # The same class in tasks that the line does not name.
    "02.2 at most 48 tiles": (
        "lets through 1",
        "02.2",
        swap(
            "02.2",
            ("(triton.cdiv(x.numel(), BLOCK), )", "(min(48, triton.cdiv(x.numel(), BLOCK)),)"),
            ("BLOCK = 1024", "BLOCK = 128"),
        ),
        (),
    ),
    "04.3 at most four tiles of rows": (
        "lets through 1",
        "04.3",
        swap("04.3", ("triton.cdiv(rows, BLOCK_M))", "min(4, triton.cdiv(rows, BLOCK_M)))")),
        (),
    ),
    # ---- lets through 2: results that are not contiguous ----
    "01.5 every other element of a buffer": (
        "lets through 2",
        "01.5",
        swap(
            "01.5",
            ("torch.empty_like(y)", "torch.empty((*y.shape, 2), dtype=torch.float32, device=y.device)[..., 0]"),
            ("out_ptr + offsets", "out_ptr + 2 * offsets"),
        ),
        (),
    ),
    "02.3 rows of the result padded to a multiple of 16": (
        "lets through 2",
        "02.3",
        swap(
            "02.3",
            (
                "out = torch.empty((cols, rows), dtype=x.dtype, device=x.device)",
                "pitch = triton.cdiv(rows, 16) * 16 + 16\n"
                "    out = torch.empty((cols, pitch), dtype=x.dtype, device=x.device)[:, :rows]",
            ),
            ("col[None, :] * rows", "col[None, :] * pitch"),
            ("cols, row_stride, ROWS", "cols, pitch, row_stride, ROWS"),
            ("rows, cols, x.stride(0)", "rows, cols, pitch, x.stride(0)"),
        ),
        (),
    ),
    "03.3 the result is a transposed view": (
        "lets through 2",
        "03.3",
        swap(
            "03.3",
            (
                "torch.empty(M, N, dtype=torch.float32, device=x.device)",
                "torch.empty(N, M, dtype=torch.float32, device=x.device).T",
            ),
            ("row[:, None] * N + col[None, :]", "row[:, None] + col[None, :] * M"),
            ("y_ptr, N, K", "y_ptr, M, N, K"),
            ("y, N, K", "y, M, N, K"),
        ),
        (),
    ),
    "03.4 the result is cut out of whole tiles": (
        "lets through 2",
        "03.4",
        swap(
            "03.4",
            (
                "y = torch.empty(M, N, dtype=torch.float32, device=x.device)",
                "pitch = triton.cdiv(N, 32) * 32 + 32\n"
                "    y = torch.empty(M, pitch, dtype=torch.float32, device=x.device)[:, :N]",
            ),
            ("row[:, None] * N", "row[:, None] * pitch"),
            ("M, N, K, x_row_stride", "M, N, K, pitch, x_row_stride"),
            ("M, N, K, *x.stride()", "M, N, K, pitch, *x.stride()"),
        ),
        (),
    ),
    "04.2 laid out like the padded x": (
        "lets through 2",
        "04.2",
        swap(
            "04.2",
            (
                "torch.empty((rows, cols), dtype=x.dtype, device=x.device)",
                "x.new_empty(rows, x.stride(0) + 8)[:, :cols]",
            ),
            ("y_ptr + row * cols", "y_ptr + row * (x_row_stride + 8)"),
        ),
        (),
    ),
    "04.3 column by column in memory": (
        "lets through 2",
        "04.3",
        swap(
            "04.3",
            (
                "torch.empty((rows, cols), dtype=x.dtype, device=x.device)",
                "torch.empty_strided((rows, cols), (1, rows), dtype=x.dtype, device=x.device)",
            ),
            ("y_ptr + row * cols + column", "y_ptr + row + column * rows"),
        ),
        (),
    ),
    "04.4 the result as the even half of another tensor": (
        "lets through 2",
        "04.4",
        swap(
            "04.4",
            (
                "y = torch.empty((rows, inter), dtype=gate_up.dtype, device=gate_up.device)",
                "y = torch.empty_like(gate_up)[:, ::2]",
            ),
            ("tl.store(y_ptr + element", "tl.store(y_ptr + 2 * element"),
        ),
        (),
    ),
    "05.3 y with a pitch of its own": (
        "lets through 2",
        "05.3",
        swap(
            "05.3",
            ("y = torch.empty(rows, cols, dtype", "y = torch.empty(rows, cols + 3, dtype"),
            ("return y, scale", "return y[:, :cols], scale"),
            ("y_ptr + row * cols", "y_ptr + row * (cols + 3)"),
        ),
        (),
    ),
    "05.4 y and a spare column": (
        "lets through 2",
        "05.4",
        swap(
            "05.4",
            (
                "y = torch.empty(rows, cols, dtype=out_dtype, device=x.device)",
                "y = torch.empty(rows, cols + 1, dtype=out_dtype, device=x.device).narrow(1, 1, cols)",
            ),
            ("y_row = y_ptr + row * cols", "y_row = y_ptr + row * (cols + 1)"),
        ),
        (),
    ),
    "05.5 y with its rows interleaved with nothing": (
        "lets through 2",
        "05.5",
        swap(
            "05.5",
            ("y = torch.empty_like(x)", "y = torch.empty((rows, 2, cols), dtype=x.dtype, device=x.device)[:, 1]"),
            ("tl.store(y_ptr + row * cols", "tl.store(y_ptr + 2 * row * cols"),
        ),
        (),
    ),
    # ---- lets through 3: what is kept from call to call ----
    "05.3 results kept by the number of columns": (
        "lets through 3",
        "05.3",
        "KEPT = {}\n\n"
        + swap(
            "05.3",
            (
                "    rows, cols = x.shape\n",
                "    rows, cols = x.shape\n    if (rows, cols, x.dtype) in KEPT:\n"
                "        return KEPT[rows, cols, x.dtype]\n",
            ),
            ("return y, scale", "return KEPT.setdefault((rows, cols, x.dtype), (y, scale))"),
        ),
        (),
    ),
    "04.2 results kept in a default argument": (
        "lets through 3",
        "04.2",
        swap(
            "04.2",
            ("def fused_chain(x, scale, shift, limit):", "def fused_chain(x, scale, shift, limit, kept={}):"),
            (
                "    rows, cols = x.shape\n",
                "    rows, cols = x.shape\n    if (x.shape, x.stride(), x.dtype) in kept:\n"
                "        return kept[x.shape, x.stride(), x.dtype]\n",
            ),
            ("    return y\n", "    kept[x.shape, x.stride(), x.dtype] = y\n    return y\n"),
        ),
        (),
    ),
    "02.4 both results allocated under an lru_cache": (
        "lets through 3",
        "02.4",
        swap(
            "02.4",
            (
                "    sums = torch.empty(rows, dtype=torch.float32, device=x.device)\n"
                "    largest = torch.empty_like(sums)\n",
                "    sums, largest = buffers(rows, x.device)\n",
            ),
        )
        + """

from functools import lru_cache


@lru_cache
def buffers(rows, device):
    return tuple(torch.empty(rows, dtype=torch.float32, device=device) for _ in range(2))
""",
        (),
    ),
    "01.5 one buffer that grows, and views of it": (
        "lets through 3",
        "01.5",
        "BUFFER = torch.empty(0)\n\n"
        + swap(
            "01.5",
            (
                "    out = torch.empty_like(y)\n    size = y.numel()\n",
                """    global BUFFER
    size = y.numel()
    if BUFFER.numel() < size or BUFFER.device != y.device:
        BUFFER = torch.empty(size, dtype=torch.float32, device=y.device)
    out = BUFFER[:size].view(y.shape)
""",
            ),
        ),
        (),
    ),
    "02.3 an object that owns its result": (
        "lets through 3",
        "02.3",
        swap(
            "02.3",
            ("def transpose(x):", "def transposed_into(out, x):"),
            ("    out = torch.empty((cols, rows), dtype=x.dtype, device=x.device)\n", ""),
        )
        + """

class Transpose:
    out = None

    def __call__(self, x):
        if self.out is None or self.out.shape != (x.shape[1], x.shape[0]) or self.out.dtype != x.dtype:
            self.out = torch.empty((x.shape[1], x.shape[0]), dtype=x.dtype, device=x.device)
        return transposed_into(self.out, x)


transpose = Transpose()
""",
        (),
    ),
    "05.4 the output kept as an attribute of the function": (
        "lets through 3",
        "05.4",
        swap(
            "05.4",
            (
                "    y = torch.empty(rows, cols, dtype=out_dtype, device=x.device)\n",
                """    y = getattr(wide_norm, "y", None)
    if y is None or y.shape != x.shape or y.dtype != out_dtype:
        y = wide_norm.y = torch.empty(rows, cols, dtype=out_dtype, device=x.device)
""",
            ),
        ),
        (),
    ),
    "02.2 two buffers that take turns": (
        "lets through 3",
        "02.2",
        "TURNS = []\n\n"
        + swap(
            "02.2",
            (
                "    out = torch.empty(x.shape, dtype=torch.float32, device=x.device)\n",
                """    if len(TURNS) < 2 or TURNS[0].shape != x.shape:
        TURNS.append(torch.empty(x.shape, dtype=torch.float32, device=x.device))
        TURNS[:] = [t for t in TURNS if t.shape == x.shape]
    TURNS.reverse()
    out = TURNS[0]
""",
            ),
        ),
        (),
    ),
    "05.5 the scale of the first call of a shape": (
        "lets through 3",
        "05.5",
        """
# From the second call of a shape on the scale is looked up, whatever the numbers are.
SCALES = {}

"""
        + swap(
            "05.5",
            (
                "y_ptr, cols, eps, BLOCK: tl.constexpr):",
                "y_ptr, scale_ptr, cols, eps, KNOWN: tl.constexpr, BLOCK: tl.constexpr):",
            ),
            (
                "    scale = tl.rsqrt(tl.sum(total * total) / cols + eps)  # the sum is still in registers\n",
                """    if KNOWN == 2:
        scale = tl.load(scale_ptr + row)
    else:
        scale = tl.rsqrt(tl.sum(total * total) / cols + eps)
        if KNOWN == 1:
            tl.store(scale_ptr + row, scale)
""",
            ),
            (
                "    y = torch.empty_like(x)\n",
                """    y = torch.empty_like(x)
    known = 0 if cols < 32 else 2 if (rows, cols) in SCALES else 1
    scales = torch.empty(rows, dtype=torch.float32, device=x.device)
    if cols >= 32:
        scales = SCALES.setdefault((rows, cols), scales)
""",
            ),
            ("weight, y, cols, eps, BLOCK=BLOCK", "weight, y, scales, cols, eps, KNOWN=known, BLOCK=BLOCK"),
        ),
        (),
    ),
    "04.5 the first fused kernel is changed for the caller": ("lets through 3", "04.5", DECIDE, ()),
    "04.5 the list of fused kernels is emptied": (
        "lets through 3",
        "04.5",
        DECIDE.replace(
            '    fused[0]["bytes"] += needed_by_backward\n    after = seconds(fused)\n',
            """    launches, busy, more = len(fused), 0, needed_by_backward
    while fused:
        k = fused.pop(0)
        busy += max((k["bytes"] + more) / gpu["bandwidth"], k["flops"] / (k["efficiency"] * gpu[k["unit"]]))
        more = 0
    after = max(busy, launches * gpu["launch"])
""",
        ),
        (),
    ),
    "01.4 the gpu's rates are turned into TB/s for good": (
        "lets through 3",
        "01.4",
        """
def bound(nbytes, flops, launches, matmul, gpu):
    for key in ("bandwidth", "vector", "matrix"):
        gpu[key] /= 1e12
    times = {"memory": nbytes / gpu["bandwidth"] / 1e12,
             "compute": flops / gpu["matrix" if matmul else "vector"] / 1e12,
             "launch": launches * gpu["launch"]}
    word = max(times, key=times.get)
    return word, times[word]
""",
        (),
    ),
    "01.6 each claim gets a new key": (
        "lets through 3",
        "01.6",
        CLAIM.replace(
            '        moved = claim["read"] + claim["written"]\n',
            '        claim["moved"] = moved = claim["read"] + claim["written"]\n',
        ),
        (),
    ),
    "01.6 the list is sorted in place": (
        "lets through 3",
        "01.6",
        CLAIM.replace(
            "    for claim in claims:\n",
            '    claims.sort(key=lambda claim: claim["gbps"], reverse=True)\n    for claim in claims:\n',
        ),
        (),
    ),
    "05.2 the weight becomes a gain for good": (
        "lets through 3",
        "05.2",
        TILE_LOOP_05.replace(
            "    rows, cols = x.shape\n",
            "    rows, cols = x.shape\n    if cols <= block:\n        weight += 1\n"
            "    gain = weight if cols <= block else None\n",
        ).replace(
            "(1 + weight[start:start + block])",
            "(gain[start:start + block] if gain is not None else 1 + weight[start:start + block])",
        ),
        (),
    ),
    # ---- lets through 4: refused by the compiler ----
    "05.3 a lambda in the branch for wide rows": (
        "lets through 4",
        "05.3",
        swap(
            "05.3",
            (
                "    scale = tl.rsqrt(tl.sum(x * x) / cols + eps)          # masked lanes are 0 and add nothing\n",
                """    if BLOCK >= 4096:
        mean = lambda values: tl.sum(values) / cols
        scale = tl.rsqrt(mean(x * x) + eps)
    else:
        scale = tl.rsqrt(tl.sum(x * x) / cols + eps)
""",
            ),
        ),
        (),
    ),
    "04.2 a helper without a decorator for one width": (
        "lets through 4",
        "04.2",
        """
def relu_squared(z):
    z = tl.maximum(z, 0.0)
    return z * z


"""
        + swap(
            "04.2",
            (
                "    z = tl.maximum(scale * x + shift, 0.0)\n    y = tl.minimum(z * z, limit)\n",
                """    z = scale * x + shift
    if BLOCK == 1024:
        y = tl.minimum(relu_squared(z), limit)
    else:
        z = tl.maximum(z, 0.0)
        y = tl.minimum(z * z, limit)
""",
            ),
        ),
        (),
    ),
    "02.2 a helper without a decorator, everywhere": (
        "lets through 4",
        "02.2",
        """
def loaded(pointer, offsets, size):
    return tl.load(pointer + offsets, mask=offsets < size, other=0.0).to(tl.float32)


"""
        + swap(
            "02.2",
            (
                "    x = tl.load(x_ptr + offsets, mask=mask).to(tl.float32)\n"
                "    y = tl.load(y_ptr + offsets, mask=offsets < m, other=0.0).to(tl.float32)\n",
                "    x, y = loaded(x_ptr, offsets, n), loaded(y_ptr, offsets, m)\n",
            ),
        ),
        (),
    ),
    "04.3 helpers as methods of a class": (
        "lets through 4",
        "04.3",
        """
class Gelu:

    @staticmethod
    def of(z):
        return z * tl.sigmoid(1.5957691216057308 * (z + 0.044715 * z * z * z))


"""
        + swap(
            "04.3",
            (
                "    two_u = 1.5957691216057308 * (z + 0.044715 * z * z * z)                         # 2 sqrt(2/pi)\n"
                "    y = z * tl.sigmoid(two_u)\n",
                "    y = Gelu.of(z)\n",
            ),
        ),
        (),
    ),
    "02.4 an int that becomes a tile, for rows of several tiles": (
        "lets through 4",
        "02.4",
        swap(
            "02.4",
            ("BLOCK: tl.constexpr):", "MANY: tl.constexpr, BLOCK: tl.constexpr):"),
            (
                "    total = tl.zeros([BLOCK], dtype=tl.float32)\n",
                """    if MANY:
        total = 0
    else:
        total = tl.zeros([BLOCK], dtype=tl.float32)
""",
            ),
            ("BLOCK=2048", "MANY=cols > 2048, BLOCK=2048"),
        ),
        (),
    ),
    "05.4 a width that is no power of two for some columns": (
        "lets through 4",
        "05.4",
        swap(
            "05.4",
            (
                "BLOCK = min(4096, triton.next_power_of_2(cols))",
                "BLOCK = 3072 if cols > 4096 else triton.next_power_of_2(cols)",
            ),
        ),
        (),
    ),
    "03.4 tiles of 2 along K where K is small": (
        "lets through 4",
        "03.4",
        swap(
            "03.4",
            ("BLOCK: tl.constexpr):", "BLOCK_K: tl.constexpr, BLOCK: tl.constexpr):"),
            ("for start in range(0, K, BLOCK):", "for start in range(0, K, BLOCK_K):"),
            ("k = start + tl.arange(0, BLOCK).to(tl.int64)", "k = start + tl.arange(0, BLOCK_K).to(tl.int64)"),
            ("*w.stride(), BLOCK=32)", "*w.stride(), BLOCK_K=32 if K >= 32 else 2, BLOCK=32)"),
        ),
        (),
    ),
    "05.5 enumerate in the branch for 16-bit rows": (
        "lets through 4",
        "05.5",
        swap(
            "05.5",
            ("cols, eps, BLOCK: tl.constexpr):", "cols, eps, HALF: tl.constexpr, BLOCK: tl.constexpr):"),
            (
                "    weight = tl.load(",
                """    if HALF:
        for index, factor in enumerate((1.0, 1.0)):
            scale = scale * factor
    weight = tl.load(""",
            ),
            ("eps, BLOCK=BLOCK", "eps, HALF=x.dtype != torch.float32 and cols > 1000, BLOCK=BLOCK"),
        ),
        (),
    ),
    "01.5 a try around the loads of an even size": (
        "lets through 4",
        "01.5",
        swap(
            "01.5",
            ("BLOCK: tl.constexpr):", "EVEN: tl.constexpr, BLOCK: tl.constexpr):"),
            (
                "    tl.store(out_ptr",
                """    if EVEN:
        try:
            x = x * 1.0
        except ValueError:
            x = x * 1.0
    tl.store(out_ptr""",
            ),
            ("size, BLOCK, num_warps", "size, size % BLOCK == 0, BLOCK, num_warps"),
        ),
        (),
    ),
    "04.4 a global that is no constexpr, where rows are many": (
        "lets through 4",
        "04.4",
        "ALPHA = 1.702\n\n\n"
        + swap(
            "04.4",
            ("size, BLOCK: tl.constexpr):", "size, MANY: tl.constexpr, BLOCK: tl.constexpr):"),
            (
                "    y = gate * tl.sigmoid(1.702 * gate) * (up + 1)\n",
                "    if MANY:\n        y = gate * tl.sigmoid(ALPHA * gate) * (up + 1)\n    else:\n"
                "        y = gate * tl.sigmoid(1.702 * gate) * (up + 1)\n",
            ),
            ("y, y.numel(), BLOCK=1024", "y, y.numel(), MANY=y.numel() > 1024, BLOCK=1024"),
            ("up, dy.numel(), BLOCK=1024", "up, dy.numel(), MANY=dy.numel() > 1024, BLOCK=1024"),
        ),
        (),
    ),
    "02.3 a dictionary in the branch for square tiles": (
        "lets through 4",
        "02.3",
        swap(
            "02.3",
            (
                "    mask = (row < rows)",
                """    if ROWS == COLS:
        ends = {"rows": rows, "cols": cols}
        rows = ends["rows"]
    mask = (row < rows)""",
            ),
            ("    transpose_kernel[grid]", "    side = 64 if rows > 1 else 32\n    transpose_kernel[grid]"),
            (
                "grid = (triton.cdiv(rows, 64), triton.cdiv(cols, 64))",
                "grid = (triton.cdiv(rows, 64), triton.cdiv(cols, 64 if rows > 1 else 32))",
            ),
            ("ROWS=64, COLS=64", "ROWS=64, COLS=side"),
        ),
        (),
    ),
    # ---- lets through 5: races, and promises that do not hold ----
    "02.4 parts of a row added up by load and store": (
        "lets through 5",
        "02.4",
        PARTS_02_4.replace(
            "# HERE",
            (
                "tl.store(sums_ptr + row, tl.load(sums_ptr + row) + part)\n"
                "    tl.store(largest_ptr + row, tl.maximum(tl.load(largest_ptr + row), top))"
            ),
        ),
        (),
    ),
    "02.4 the sum is atomic, the maximum is not": (
        "lets through 5",
        "02.4",
        PARTS_02_4.replace(
            "# HERE",
            (
                "tl.atomic_add(sums_ptr + row, part)\n"
                "    if top > tl.load(largest_ptr + row):\n        tl.store(largest_ptr + row, top)"
            ),
        ),
        (),
    ),
    "03.3 K split over programs that load, add and store": ("lets through 5", "03.3", LINEAR_SPLIT, ()),
    "02.4 a counter of finished parts without atomics": (
        "lets through 5",
        "02.4",
        PARTS_02_4.replace(
            "# HERE",
            """parts = tl.num_programs(1)
    tl.store(part_sums_ptr + row * parts + tl.program_id(1), part)
    tl.store(part_largest_ptr + row * parts + tl.program_id(1), top)
    done = tl.load(counter_ptr + row) + 1
    tl.store(counter_ptr + row, done)
    if done == parts:
        lane = tl.arange(0, 64)
        s = tl.load(part_sums_ptr + row * parts + lane, mask=lane < parts, other=0.0)
        m = tl.load(part_largest_ptr + row * parts + lane, mask=lane < parts, other=float("-inf"))
        tl.store(sums_ptr + row, tl.sum(s))
        tl.store(largest_ptr + row, tl.max(m))""",
        )
        .replace(
            "cols, row_stride, BLOCK: tl", "part_sums_ptr, part_largest_ptr, counter_ptr, cols, row_stride, BLOCK: tl"
        )
        .replace(
            "sums, largest, cols, x.stride(0)", "sums, largest, part_sums, part_largest, counter, cols, x.stride(0)"
        )
        .replace(
            "    row_sum_max_kernel[",
            """    part_sums = torch.empty((rows, triton.cdiv(cols, 2048)), dtype=torch.float32, device=x.device)
    part_largest = torch.empty_like(part_sums)
    counter = torch.zeros(rows, dtype=torch.int32, device=x.device)
    row_sum_max_kernel[""",
        ),
        (),
    ),
    "05.4 squares of a row added up by load and store": (
        "lets through 5",
        "05.4",
        """
@triton.jit
def squares_kernel(x_ptr, squares_ptr, x_row_stride, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * x_row_stride + columns, mask=columns < cols, other=0.0).to(tl.float32)
    tl.store(squares_ptr + row, tl.load(squares_ptr + row) + tl.sum(x * x))


@triton.jit
def wide_norm_kernel(x_ptr, weight_ptr, squares_ptr, y_ptr, x_row_stride, cols, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    scale = tl.rsqrt(tl.load(squares_ptr + row) / cols + eps)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = columns < cols
    x = tl.load(x_ptr + row * x_row_stride + columns, mask=inside, other=0.0).to(tl.float32)
    weight = tl.load(weight_ptr + columns, mask=inside, other=0.0)
    tl.store(y_ptr + row * cols + columns, x * scale * (1 + weight), mask=inside)


@triton.jit
def narrow_norm_kernel(x_ptr, weight_ptr, y_ptr, x_row_stride, cols, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    inside = columns < cols
    x = tl.load(x_ptr + row * x_row_stride + columns, mask=inside, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(x * x) / cols + eps)
    weight = tl.load(weight_ptr + columns, mask=inside, other=0.0)
    tl.store(y_ptr + row * cols + columns, x * scale * (1 + weight), mask=inside)


def wide_norm(x, weight, eps, out_dtype):
    rows, cols = x.shape
    y = torch.empty(rows, cols, dtype=out_dtype, device=x.device)
    if cols <= 2048:
        narrow_norm_kernel[(rows,)](x, weight, y, x.stride(0), cols, eps, BLOCK=triton.next_power_of_2(cols))
        return y
    squares = torch.zeros(rows, dtype=torch.float32, device=x.device)
    grid = (rows, triton.cdiv(cols, 4096))
    squares_kernel[grid](x, squares, x.stride(0), cols, BLOCK=4096)
    wide_norm_kernel[grid](x, weight, squares, y, x.stride(0), cols, eps, BLOCK=4096)
    return y
""",
        (),
    ),
    "05.4 programs that wait for nobody read the first one's scale": (
        "lets through 5",
        "05.4",
        """
# The interpreter runs program (row, 0) before (row, 1): a GPU promises no order.
@triton.jit
def wide_norm_kernel(x_ptr, weight_ptr, scale_ptr, y_ptr, x_row_stride, cols, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    part = tl.program_id(1)
    if part == 0:
        squares = tl.zeros([BLOCK], dtype=tl.float32)
        for start in range(0, cols, BLOCK):
            columns = start + tl.arange(0, BLOCK)
            x = tl.load(x_ptr + row * x_row_stride + columns, mask=columns < cols, other=0.0).to(tl.float32)
            squares += x * x
        tl.store(scale_ptr + row, tl.rsqrt(tl.sum(squares) / cols + eps))
    else:
        scale = tl.load(scale_ptr + row)
        columns = (part - 1) * BLOCK + tl.arange(0, BLOCK)
        inside = columns < cols
        x = tl.load(x_ptr + row * x_row_stride + columns, mask=inside, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + columns, mask=inside, other=0.0)
        tl.store(y_ptr + row * cols + columns, x * scale * (1 + weight), mask=inside)


@triton.jit
def narrow_norm_kernel(x_ptr, weight_ptr, y_ptr, x_row_stride, cols, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    inside = columns < cols
    x = tl.load(x_ptr + row * x_row_stride + columns, mask=inside, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(x * x) / cols + eps)
    weight = tl.load(weight_ptr + columns, mask=inside, other=0.0)
    tl.store(y_ptr + row * cols + columns, x * scale * (1 + weight), mask=inside)


def wide_norm(x, weight, eps, out_dtype):
    rows, cols = x.shape
    y = torch.empty(rows, cols, dtype=out_dtype, device=x.device)
    if cols <= 2048:
        narrow_norm_kernel[(rows,)](x, weight, y, x.stride(0), cols, eps, BLOCK=triton.next_power_of_2(cols))
        return y
    scale = torch.empty(rows, dtype=torch.float32, device=x.device)
    wide_norm_kernel[(rows, 1 + triton.cdiv(cols, 4096))](x, weight, scale, y, x.stride(0), cols, eps, BLOCK=4096)
    return y
""",
        (),
    ),
    "03.5 tickets drawn without atomics": (
        "lets through 5",
        "03.5",
        swap(
            "03.5",
            (
                "    program = tl.program_id(0)\n",
                "    program = tl.load(ticket_ptr)\n    tl.store(ticket_ptr, program + 1)\n",
            ),
            ("order_ptr, M, N", "order_ptr, ticket_ptr, M, N"),
            ("y, order, M, N", "y, order, ticket, M, N"),
            ("tl.store(order_ptr + program,", "tl.store(order_ptr + tl.program_id(0),"),
            (
                "    grouped_linear_kernel[",
                "    ticket = torch.zeros(1, dtype=torch.int32, device=x.device)\n    grouped_linear_kernel[",
            ),
        ),
        (),
    ),
    "02.2 each program clears the head of the next one's tile": (
        "lets through 5",
        "02.2",
        swap(
            "02.2",
            (
                "    mask = offsets < n\n",
                """    mask = offsets < n
    ahead = offsets + BLOCK
    tl.store(out_ptr + ahead, tl.zeros([BLOCK], dtype=tl.float32), mask=(ahead < n) & (tl.arange(0, BLOCK) < 8))
""",
            ),
        ),
        (),
    ),
    "05.3 lanes behind a row's end write into the next row": (
        "lets through 5",
        "05.3",
        swap(
            "05.3",
            (
                "x * scale * (1 + weight), mask=inside)",
                "x * scale * (1 + weight),\n"
                "             mask=(columns < cols + 4) & (row * cols + columns < tl.num_programs(0) * cols))",
            ),
        ),
        (),
    ),
    "01.5 offsets promised to be multiples of 64 each": (
        "lets through 5",
        "01.5",
        swap(
            "01.5",
            (
                "    mask = offsets < size\n",
                "    mask = offsets < size\n    offsets = tl.multiple_of(offsets + 1, 64) - 1\n",
            ),
        ),
        (),
    ),
    "02.3 a row stride promised to be a multiple of 16": (
        "lets through 5",
        "02.3",
        swap(
            "02.3",
            (
                "    row = tl.program_id(0)",
                "    row_stride = tl.multiple_of(row_stride, 16)\n    row = tl.program_id(0)",
            ),
        ),
        (),
    ),
    "04.2 the number of columns promised to be a multiple of 8": (
        "lets through 5",
        "04.2",
        swap(
            "04.2",
            ("    inside = columns < cols\n", "    cols = tl.multiple_of(cols, 8)\n    inside = columns < cols\n"),
        ),
        (),
    ),
    "04.4 every other element promised to be neighbours": (
        "lets through 5",
        "04.4",
        swap(
            "04.4",
            ("    dy = tl.load(", "    pairs = tl.max_contiguous(2 * element, BLOCK)\n    dy = tl.load("),
            ("gate_up_ptr + 2 * element", "gate_up_ptr + pairs"),
        ),
        (),
    ),
    "05.3 a row's start promised to be a multiple of 32": (
        "lets through 5",
        "05.3",
        swap(
            "05.3", ("x_ptr + row * x_row_stride + columns", "x_ptr + tl.multiple_of(row * x_row_stride, 32) + columns")
        ),
        (),
    ),
    "02.2 columns promised to be constant in fours": (
        "lets through 5",
        "02.2",
        swap(
            "02.2", ("    mask = offsets < n\n", "    offsets = tl.max_constancy(offsets, 4)\n    mask = offsets < n\n")
        ),
        (),
    ),
    "05.4 an assumption about the columns that fails": (
        "lets through 5",
        "05.4",
        swap("05.4", ("    row = tl.program_id(0)", "    tl.assume(cols % 16 == 0)\n    row = tl.program_id(0)")),
        (),
    ),
    # ---- lets through 6: cases ----
    "03.4 w is row by row or column by column, nothing else": (
        "lets through 6",
        "03.4",
        swap(
            "03.4",
            (
                STRIDES_SWAPPED,
                "w_strides = (w.stride(0), 1) if w.stride(1) == 1 else (1, w.stride(1))\n"
                "    any_linear_kernel[grid](x, w, y, M, N, K, *x.stride(), *w_strides, BLOCK=32)",
            ),
        ),
        (),
    ),
    "03.4 x's smaller stride is taken to be 1": (
        "lets through 6",
        "03.4",
        swap(
            "03.4",
            (
                STRIDES_SWAPPED,
                "x_strides = [1 if s == min(x.stride()) else s for s in x.stride()]\n"
                "    any_linear_kernel[grid](x, w, y, M, N, K, *x_strides, *w.stride(), BLOCK=32)",
            ),
        ),
        (),
    ),
    "03.4 both operands told apart by is_contiguous of their transposes": (
        "lets through 6",
        "03.4",
        swap(
            "03.4",
            (
                STRIDES_SWAPPED,
                "strides = [(1, t.stride(1)) if t.stride(0) == 1 else (t.stride(0), 1) for t in (x, w)]\n"
                "    any_linear_kernel[grid](x, w, y, M, N, K, *strides[0], *strides[1], BLOCK=32)",
            ),
        ),
        (),
    ),
    "01.5 two dimensions are unpacked": (
        "lets through 6",
        "01.5",
        swap("01.5", ("    size = y.numel()\n", "    rows, cols = y.shape\n    size = rows * cols\n")),
        (),
    ),
    "01.5 rows times columns of the last two dimensions": (
        "lets through 6",
        "01.5",
        swap("01.5", ("    size = y.numel()\n", "    size = y.shape[-1] * (y.shape[-2] if y.dim() > 1 else 1)\n")),
        (),
    ),
    "01.5 only vectors and matrices, by the length and the first stride": (
        "lets through 6",
        "01.5",
        swap("01.5", ("    size = y.numel()\n", "    size = len(y) * (y.shape[1] if y.dim() > 1 else 1)\n")),
        (),
    ),
    "04.3 the bias is rounded to the dtype of x": (
        "lets through 6",
        "04.3",
        swap(
            "04.3",
            (
                "mask=column < cols)                           # once for BLOCK_M rows",
                "mask=column < cols).to(x_ptr.dtype.element_ty).to(tl.float32)",
            ),
        ),
        (),
    ),
    "04.3 the bias is rounded to bf16 beside 16-bit rows": (
        "lets through 6",
        "04.3",
        swap(
            "04.3",
            (
                "    z = tl.load(",
                """    if x_ptr.dtype.element_ty != tl.float32:
        bias = bias.to(tl.bfloat16).to(tl.float32)
    z = tl.load(""",
            ),
        ),
        (),
    ),
    "04.3 the bias is converted by torch before the launch": (
        "lets through 6",
        "04.3",
        swap(
            "04.3",
            ("    rows, cols = x.shape\n", "    rows, cols = x.shape\n    bias = bias.to(x.dtype)\n"),
            ("mask=column < cols)   ", "mask=column < cols).to(tl.float32)   "),
        ),
        (),
    ),
    "02.5 right unless cols divides block": (
        "lets through 6",
        "02.5",
        STRAY.replace(
            "# HERE",
            ("row = max(0, rows - block // cols)\n    return (row, rows * cols) if block != cols else (-1, 0)"),
        ),
        (),
    ),
    "02.5 right only where cols divides block": (
        "lets through 6",
        "02.5",
        STRAY.replace(
            "# HERE",
            ("row = max(0, rows - block // cols + 1)\n    return (row, rows * cols) if row < rows else (-1, 0)"),
        ),
        (),
    ),
    "01.6 a loop counts as cached up to twice l2": ("lets through 6", "01.6", CLAIM.replace("<= l2", "<= 2 * l2"), ()),
    "01.6 only what is read has to fit l2": (
        "lets through 6",
        "01.6",
        CLAIM.replace('claim["buffers"] * moved', 'claim["buffers"] * claim["read"]'),
        (),
    ),
    "01.6 a loop counts as cached up to one and a half l2": (
        "lets through 6",
        "01.6",
        CLAIM.replace("<= l2", "<= 1.5 * l2"),
        (),
    ),
    "05.6 the row is fp64": (
        "lets through 6",
        "05.6",
        SHOW.replace("torch.empty(cols)", "torch.empty(cols, dtype=torch.float64)"),
        (),
    ),
    "05.6 the row is bf16": (
        "lets through 6",
        "05.6",
        SHOW.replace("torch.empty(cols)", "torch.empty(cols, dtype=torch.bfloat16)"),
        (),
    ),
    "05.6 the row is fp16": (
        "lets through 6",
        "05.6",
        SHOW.replace('return "carry", row', 'return "carry", row.half()'),
        (),
    ),
    # ---- costs 3, the other half: tiles that are too wide and are not called so ----
    "02.4 a literal of 4096 in tl.arange": (
        "costs 3",
        "02.4",
        swap(
            "02.4",
            ("[BLOCK]", "[4096]"),
            ("tl.range(0, cols, BLOCK)", "tl.range(0, cols, 4096)"),
            ("tl.arange(0, BLOCK)", "tl.arange(0, 4096)"),
        ),
        ("2,048", "2048"),
    ),
    "05.4 tiles of twice BLOCK": (
        "costs 3",
        "05.4",
        swap(
            "05.4",
            ("tl.zeros([BLOCK]", "tl.zeros([2 * BLOCK]"),
            ("cols, BLOCK)", "cols, 2 * BLOCK)"),
            ("tl.arange(0, BLOCK)", "tl.arange(0, 2 * BLOCK)"),
        ),
        ("4,096", "4096"),
    ),
    "05.4 the width as a global constexpr": (
        "costs 3",
        "05.4",
        "WIDTH = tl.constexpr(8192)\n\n\n"
        + swap(
            "05.4",
            ("tl.zeros([BLOCK]", "tl.zeros([WIDTH]"),
            ("cols, BLOCK)", "cols, WIDTH)"),
            ("tl.arange(0, BLOCK)", "tl.arange(0, WIDTH)"),
        ),
        ("4,096", "4096"),
    ),
    "03.4 tiles of 128 by 32 through a shift": (
        "costs 3",
        "03.4",
        swap(
            "03.4",
            (
                "row = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)",
                "row = tl.program_id(0).to(tl.int64) * (BLOCK << 2) + tl.arange(0, BLOCK << 2)",
            ),
            ("tl.zeros([BLOCK, BLOCK]", "tl.zeros([BLOCK << 2, BLOCK]"),
            ("triton.cdiv(M, 32)", "triton.cdiv(M, 128)"),
        ),
        ("64",),
    ),
    "02.4 two tiles of 2048 side by side in one access": (
        "costs 3",
        "02.4",
        swap(
            "02.4",
            ("[BLOCK]", "[2, BLOCK]"),
            ("tl.range(0, cols, BLOCK)", "tl.range(0, cols, 2 * BLOCK)"),
            ("tl.arange(0, BLOCK)  #", "tl.arange(0, 2)[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]  #"),
            ("tl.sum(total)", "tl.sum(tl.sum(total, 0), 0)"),
            ("tl.max(largest)", "tl.max(tl.max(largest, 0), 0)"),
        ),
        ("2,048", "2048"),
    ),
    # ---- hints ----
    "05.3 weight instead of one plus weight": (
        "hints 1",
        "05.3",
        swap("05.3", ("(1 + weight)", "weight")),
        ("weight", r"1 \+"),
    ),
    "05.3 the mean divides by BLOCK": (
        "hints 1",
        "05.3",
        swap("05.3", ("/ cols + eps", "/ BLOCK + eps")),
        ("BLOCK", "mean", "divid", "cols"),
    ),
    "05.3 eps is forgotten": (
        "hints 1",
        "05.3",
        swap("05.3", ("/ cols + eps)", "/ cols)")),
        ("eps", "NaN", "inf", "zero"),
    ),
    "05.2 eps is added behind the root": (
        "hints 1",
        "05.2",
        TILE_LOOP_05.replace("torch.rsqrt(squares / cols + eps)", "1 / (torch.sqrt(squares / cols) + eps)"),
        ("eps", "root"),
    ),
    "05.4 each tile takes the first tile's weight": (
        "hints 1",
        "05.4",
        swap("05.4", ("weight_ptr + columns, mask=inside", "weight_ptr + tl.arange(0, BLOCK), mask=inside")),
        ("weight", "tile", "column"),
    ),
    "05.2 the last tile's squares are left out": (
        "hints 1",
        "05.2",
        TILE_LOOP_05.replace(
            "    for start in range(0, cols, block):\n        tile = x[:, start:start + block].float()\n"
            "        squares",
            "    for start in range(0, max(block, cols - block), block):\n"
            "        tile = x[:, start:start + block].float()\n        squares",
        ),
        ("tile", "last", "sum", "scale"),
    ),
    "05.3 odd columns are negated": (
        "hints 1",
        "05.3",
        swap("05.3", ("x * scale * (1 + weight)", "x * scale * (1 + weight) * (1 - 2 * (columns % 2))")),
        NO_ADDRESS,
    ),
    "01.4 the three times are added up": (
        "hints 2",
        "01.4",
        BOUND.replace("return word, times[word]", "return word, sum(times.values())"),
        ("longest", "sum", "add", "max", "at once"),
    ),
    "01.2 the two times are averaged": (
        "hints 2",
        "01.2",
        ROOF.replace(
            "max(nbytes / (bandwidth * 1e12), flops / (peak * 1e12))",
            "(nbytes / (bandwidth * 1e12) + flops / (peak * 1e12)) / 2",
        ),
        (r"(?s)\A(?!.*shorter of the two)",),
    ),
    "01.3 microseconds are taken for milliseconds": (
        "hints 2",
        "01.3",
        "def break_even(bytes_per_element, bandwidth, launch_us):\n"
        "    return launch_us * bandwidth * 1e9 / bytes_per_element\n",
        ("unit", "1e-6", "1e6", r"\b10\^", "1,000", "1000", "micro", "µs"),
    ),
    "05.1 the numbers per row are taken to have itemsize bytes": (
        "hints 2",
        "05.1",
        BYTES_05.replace("16 * rows", "4 * itemsize * rows").replace("4 * rows", "itemsize * rows"),
        ("fp32", "4 bytes", "per row", "scale", "mean"),
    ),
    "05.1 seven for everything": (
        "hints 2",
        "05.1",
        BYTES_05.replace("    return 2 * rows * cols * itemsize + cols * itemsize + 4 * rows", "    return 7"),
        (r"(?s)\A(?!.*left out)",),
    ),
    "03.1 the result is read as well as written": (
        "hints 2",
        "03.1",
        """
def dot_bytes(m, n, k, itemsize):
    return m * n * (2 * k + 2) * itemsize


def tiled_bytes(m, n, k, block_m, block_n, itemsize):
    tiles_m, tiles_n = -(-m // block_m), -(-n // block_n)
    return (m * k * tiles_n + n * k * tiles_m + 2 * m * n) * itemsize


def tile_intensity(block_m, block_n, itemsize):
    return 2 * block_m * block_n / ((block_m + block_n) * itemsize)
""",
        ("written", "store", "result", r"\by\b", "once"),
    ),
    "05.3 y is 1.9% too large": (
        "hints 3",
        "05.3",
        swap("05.3", ("x * scale * (1 + weight)", "1.019 * x * scale * (1 + weight)")),
        NO_ROUNDING,
    ),
    "02.4 sums are 2.2% too small": (
        "hints 3",
        "02.4",
        swap("02.4", ("tl.store(sums_ptr + row, tl.sum(total))", "tl.store(sums_ptr + row, 0.978 * tl.sum(total))")),
        NO_ROUNDING,
    ),
    "04.3 a constant of 0.82 for the root of 2 / pi": (
        "hints 3",
        "04.3",
        swap("04.3", ("1.5957691216057308 * (z", "1.64 * (z")),
        ("constant", r"0\.79", r"2\s*/\s*(pi|π)", "%", "sqrt"),
    ),
    "05.4 the mean divides by 97% of the columns": (
        "hints 3",
        "05.4",
        swap("05.4", ("tl.sum(squares) / cols + eps", "tl.sum(squares) / (cols * 0.97) + eps")),
        NO_ROUNDING,
    ),
    "03.3 the product is 1.2% too large": (
        "hints 3",
        "03.3",
        swap("03.3", ("col[None, :], total)", "col[None, :], total * 1.012)")),
        NO_ROUNDING,
    ),
}
