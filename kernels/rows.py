"""How kernels that normalise rows are tiled, and the small kernel that adds up their partial sums.

The numbers were measured on an H200 and are recorded by bench/run.py; each rule says what it balances.
"""

from functools import cache

import torch

from instruments.backend import tl, triton

MAX_COLS = 1 << 20  # forward
MAX_COLS_BACKWARD = 1 << 17
RESIDENT_BLOCK_LIMIT = 1 << 15  # the widest row that can stay in registers without spills
NARROW_BLOCK = 512  # up to this many columns a program takes several rows, or its threads have too little to load
NARROW_TILE = 2048  # elements of such a program's tile
RESIDENT_BLOCK_BACKWARD = 8192  # x, dy, weight and its gradient share the registers
PIPELINE_BYTES = 98_304  # of 16-bit rows on their way per multiprocessor in the backward; twice that for fp32
WIDE_CONFIG = {"BLOCK": 1024, "num_warps": 4}
WIDE_PROGRAMS = 8  # of the wide backward, per multiprocessor


def as_rows(tensor: torch.Tensor) -> torch.Tensor:
    """[..., cols] as [rows, cols] without a copy, unless its rows cannot be addressed by one stride.

    A row whose elements lie 2^31 or more apart is copied too: offsets inside a row are 32-bit.
    """
    cols = tensor.shape[-1]
    if cols * tensor.stride(-1) >= 1 << 31:
        tensor = tensor.contiguous()
    return tensor if tensor.dim() == 2 else tensor.reshape(-1, cols)


def multiprocessors() -> int:
    """Streaming multiprocessors of this GPU; a handful without one."""
    return _multiprocessor()[0]


@cache
def _multiprocessor() -> tuple[int, int]:
    """(how many this GPU has, shared memory of each in bytes); a handful of H200's without a GPU."""
    if not torch.cuda.is_available():
        return 3, 228 * 1024
    properties = torch.cuda.get_device_properties(0)
    return properties.multi_processor_count, properties.shared_memory_per_multiprocessor


def resident_config(block: int, per_thread: int = 16, most: int = 16) -> dict:
    """Tile and warps of a kernel that keeps its row: `per_thread` elements per thread, in 1 to `most` warps."""
    return {"BLOCK": block, "num_warps": min(most, max(1, block // (32 * per_thread)))}


def streaming_config(cols: int, dtype: torch.dtype) -> dict:
    """Tile and warps of a kernel that streams its row: one 16-byte load per thread and step.

    Whole programs of 16 or 32 warps fill a multiprocessor, and their rows nearly fit its L1, so that the second pass,
    which walks backwards over what was read last, finds most of the row there.
    """
    warps = 32 if cols * dtype.itemsize > 32_768 else 16
    return {"BLOCK": 32 * warps * 16 // dtype.itemsize, "num_warps": warps}


PATHS = ("narrow", "resident", "streaming", "two_pass")


@cache
def forward_plan(cols: int, dtype: torch.dtype, resident_bytes: int, path: str | None = None) -> tuple[str, dict]:
    """(path, tile and warps) for rows of one width.

    Unless `path` is given, rows of up to `resident_bytes` are kept in registers, which is where a kernel family measured
    it to pay; wider ones are streamed. Raises ValueError for a path not in PATHS, or one whose tile would not hold the row.
    """
    block = triton.next_power_of_2(cols)
    if path is None:
        path = (
            "narrow"
            if block <= NARROW_BLOCK
            else "resident"
            if cols * dtype.itemsize <= resident_bytes
            else "streaming"
        )
    if path == "narrow" and block <= NARROW_TILE:
        return path, {"ROWS": NARROW_TILE // block, "BLOCK": block, "num_warps": 4}
    if path == "resident" and block <= RESIDENT_BLOCK_LIMIT:
        return path, resident_config(block)
    if path == "streaming":
        return path, streaming_config(cols, dtype)
    if path == "two_pass":
        return path, {"BLOCK": 2048, "num_warps": 8}
    widest = {"narrow": NARROW_TILE, "resident": RESIDENT_BLOCK_LIMIT}.get(path)
    raise ValueError(
        f"path: got {path!r} for rows of {cols:,}, expected rows of at most {widest:,}"
        if widest
        else f"path: got {path!r}, expected None or one of {', '.join(PATHS)}"
    )


@cache
def pipelined_plan(cols: int, dtype: torch.dtype) -> tuple[int, int, int, dict]:
    """(persistent programs, fewest and most rows for which it pays, tile and warps) for a kernel that loads rows ahead.

    It pays for a few rows per program: then starting programs, a row each, is what takes the time. Eight rows of 16 KB are
    on their way per multiprocessor. Where rows do not begin on 16 bytes, loads cannot be sent ahead, and it never pays.
    """
    block = triton.next_power_of_2(cols)
    nbytes, stages = block * dtype.itemsize, 4
    multiprocessors, shared = _multiprocessor()
    programs = max(1, 2 * 16_384 // nbytes) * multiprocessors
    fits = stages * 2 * 16_384 <= shared * 7 // 8 and 4_096 <= nbytes <= 16_384 and cols * dtype.itemsize % 16 == 0
    config = {"BLOCK": block, "STAGES": stages, "num_warps": 4}
    return programs, 4 * multiprocessors, 16 * multiprocessors if fits else 0, config


def forward_counts(rows: int, cols: int, path: str) -> tuple[int, int]:
    """(how often a row is read, how many programs read the parameters that all rows share) on one of PATHS."""
    if path not in PATHS:
        raise ValueError(f"path: got {path!r}, expected one of {', '.join(PATHS)}")
    rows_per_program = max(1, NARROW_TILE // triton.next_power_of_2(cols)) if path == "narrow" else 1
    return 2 if path in ("streaming", "two_pass") else 1, triton.cdiv(rows, rows_per_program)


@cache
def backward_plan(rows: int, cols: int, dtype: torch.dtype, tensors: int) -> tuple[int, dict]:
    """(programs, tile, warps and stages) of the resident backward, which loads `tensors` rows per step.

    Each program walks over many rows and prefetches; what is on the way per multiprocessor is kept at PIPELINE_BYTES.
    Two stages cost shared memory and win nothing over one.
    """
    block = triton.next_power_of_2(cols)
    per_multiprocessor = min(16, max(1, 4096 // block))
    multiprocessors, shared = _multiprocessor()
    budget = min(PIPELINE_BYTES * dtype.itemsize // 2, shared * 5 // 6)
    stages = min(6, budget // (per_multiprocessor * 2 * block * dtype.itemsize) * 2 // tensors)
    config = {
        "BLOCK": block,
        "num_warps": min(16, max(1, block * dtype.itemsize // 1024)),
        "STAGES": stages if stages > 2 else 1,
    }
    return min(rows, per_multiprocessor * multiprocessors), config


def wide_plan(rows: int, cols: int) -> tuple[tuple[int, int], dict]:
    """(grid of column blocks by groups of rows, tile and warps) of the wide backward."""
    blocks = triton.cdiv(cols, WIDE_CONFIG["BLOCK"])
    return (blocks, min(rows, max(1, WIDE_PROGRAMS * _multiprocessor()[0] // blocks))), WIDE_CONFIG


@triton.jit
def sum_partials_kernel(partial_ptr, total_ptr, count, cols, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    col = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)  # [BLOCK]
    total = tl.zeros([ROWS, BLOCK], dtype=tl.float32)
    for start in tl.range(0, count, ROWS):
        row = start + tl.arange(0, ROWS)  # [ROWS]
        mask = (row < count)[:, None] & (col < cols)[None, :]
        total += tl.load(partial_ptr + row.to(tl.int64)[:, None] * cols + col[None, :], mask=mask, other=0.0)
    tl.store(total_ptr + col, tl.sum(total, axis=0).to(total_ptr.dtype.element_ty), mask=col < cols)


def sum_partials(partial: torch.Tensor, total: torch.Tensor):
    """total[cols] = the sum over the rows of partial[count, cols], in fp32, rounded to the dtype of total."""
    count, cols = partial.shape
    sum_partials_kernel[(triton.cdiv(cols, 64),)](partial, total, count, cols, ROWS=32, BLOCK=64, num_warps=4)
