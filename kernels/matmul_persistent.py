"""The last rung of matmul's ladder: persistent programs, tensor descriptors, and a last wave that is not half empty.

Minimum traffic as in matmul.py. A program per multiprocessor walks over many tiles of c, so that the next tile's loads
start under the last one's stores. Descriptors let the hardware copy tiles to shared memory; they need rows that begin
on 16 bytes. Tiles that would fill at most half of a last wave are cut along K, and the parts of each added up by a
second launch: whatever is computed first, the order of the additions is the same. 16-bit operands only.

The kernel follows Triton's tutorials on persistent matmul (2024 to 2025); splitting only the last wave is Osama and
others' data-parallel form of Stream-K (2023). Its reference, public function and traffic are `matmul`'s.
"""

from dataclasses import dataclass
from functools import cache

import torch

from instruments.backend import tl, triton
from kernels.matmul_order import grouped_tile
from kernels.rows import device_of

GROUP_M = 8
LARGE = {"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64, "num_warps": 8, "num_stages": 3}
SMALL = {"BLOCK_M": 64, "BLOCK_N": 128, "BLOCK_K": 128, "num_warps": 4, "num_stages": 4}
TILES = (LARGE, SMALL)

#: Bytes of shared memory that the stages take; where there is less, the grouped kernel runs.
SHARED = max(t["num_stages"] * t["BLOCK_K"] * (t["BLOCK_M"] + t["BLOCK_N"]) * 2 for t in TILES)
SECTOR, LINE = 32, 128  # bytes: tiles whose rows begin off a sector come slower; copies begin on a line
MANY_ROWS = 3000  # of a, that pay for a copy of b whose rows begin on a sector
PART_STEPS = 8  # steps along K at least, for a part of a tile
STRIP = 4  # rows of a tile whose parts one program adds up


@dataclass(frozen=True)
class Plan:
    """How c is shared out. tile: as the kernels take it. programs: that walk over the `whole` tiles. The other `left`
    tiles are each cut along K into `parts` of `part_k`."""

    tile: dict
    programs: int
    whole: int
    left: int
    parts: int
    part_k: int


def tiles_of(tile: dict, M: int, N: int) -> int:
    """How many tiles c has."""
    return triton.cdiv(M, tile["BLOCK_M"]) * triton.cdiv(N, tile["BLOCK_N"])


@cache
def plan(M: int, N: int, K: int, programs: int) -> Plan:
    """Large tiles where they give three in four programs one, else small ones. Of large ones the last wave is cut where
    it is at most half full; a wave of small ones is over before parts of it were added up."""
    tile = LARGE if 4 * tiles_of(LARGE, M, N) >= 3 * programs else SMALL
    tiles = tiles_of(tile, M, N)
    left = tiles % programs
    steps = triton.cdiv(K, tile["BLOCK_K"])
    parts = min(programs // left, steps // PART_STEPS) if tile is LARGE and left and tiles > programs else 1
    if parts < 2:
        return Plan(tile, min(programs, tiles), tiles, 0, 1, K)
    part_k = triton.cdiv(steps, parts) * tile["BLOCK_K"]
    return Plan(tile, programs, tiles - left, left, triton.cdiv(K, part_k), part_k)


@triton.jit
def product_of_strips(
    a,
    b,
    row,
    col,
    first,
    last,
    B_TRANSPOSED: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """[BLOCK_M, BLOCK_N] at (row, col), summed over k from first to last; what lies outside a or b is zero."""
    total = tl.zeros([BLOCK_M, BLOCK_N], dtype=tl.float32)
    for k in tl.range(first, last, BLOCK_K):
        a_tile = a.load([row, k])  # [BLOCK_M, BLOCK_K]
        if B_TRANSPOSED:
            b_tile = b.load([col, k]).T  # [BLOCK_K, BLOCK_N]
        else:
            b_tile = b.load([k, col])
        total = tl.dot(a_tile, b_tile, total)
    return total


@triton.jit
def matmul_persistent_kernel(
    a,
    b,
    c,
    partial_ptr,
    M,
    N,
    K,
    whole,
    left,
    parts,
    part_k,
    B_TRANSPOSED: tl.constexpr,
    C_DESCRIBED: tl.constexpr,
    PARTS: tl.constexpr,
    GROUP_M: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Descriptors a [M, K], b [K, N] or [N, K], c [M, N] or a pointer to it: every so many-th of the whole tiles, then
    a part of one that is left; partial [left, parts, BLOCK_M, BLOCK_N] fp32."""
    # flattened, one loop over tiles and K: the next tile's loads start under this one's store
    for tile in tl.range(tl.program_id(0), whole, tl.num_programs(0), flatten=True):
        tile_m, tile_n = grouped_tile(tile, M, N, BLOCK_M, BLOCK_N, GROUP_M)
        row, col = tile_m * BLOCK_M, tile_n * BLOCK_N
        total = product_of_strips(a, b, row, col, 0, K, B_TRANSPOSED, BLOCK_M, BLOCK_N, BLOCK_K)
        if C_DESCRIBED:  # in two halves, so that half the shared memory is enough to stage them
            first, second = tl.split(tl.permute(tl.reshape(total, (BLOCK_M, 2, BLOCK_N // 2)), (0, 2, 1)))
            c.store([row, col], first.to(c.dtype))
            c.store([row, col + BLOCK_N // 2], second.to(c.dtype))
        else:
            rows = row.to(tl.int64) + tl.arange(0, BLOCK_M)[:, None]  # [BLOCK_M, 1]
            cols = col + tl.arange(0, BLOCK_N)[None, :]  # [1, BLOCK_N]
            tl.store(c + rows * N + cols, total.to(c.dtype.element_ty), mask=(rows < M) & (cols < N))
    if PARTS:
        program = tl.program_id(0)
        if program < left * parts:
            tile_m, tile_n = grouped_tile(whole + program // parts, M, N, BLOCK_M, BLOCK_N, GROUP_M)
            row, col = tile_m * BLOCK_M, tile_n * BLOCK_N
            first_k = program % parts * part_k
            last_k = tl.minimum(first_k + part_k, K)
            total = product_of_strips(a, b, row, col, first_k, last_k, B_TRANSPOSED, BLOCK_M, BLOCK_N, BLOCK_K)
            rows, cols = tl.arange(0, BLOCK_M)[:, None], tl.arange(0, BLOCK_N)[None, :]
            partial_ptr += program.to(tl.int64) * BLOCK_M * BLOCK_N
            tl.store(partial_ptr + rows * BLOCK_N + cols, total, mask=(row + rows < M) & (col + cols < N))


@triton.jit
def matmul_sum_parts_kernel(
    partial_ptr,
    c_ptr,
    M,
    N,
    whole,
    parts,
    GROUP_M: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    ROWS: tl.constexpr,
):
    """ROWS rows of one tile after the first `whole`: partial as above, summed over its parts into c [M, N]."""
    strips: tl.constexpr = BLOCK_M // ROWS
    left, strip = tl.program_id(0) // strips, tl.program_id(0) % strips
    tile_m, tile_n = grouped_tile(whole + left, M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows, cols = strip * ROWS + tl.arange(0, ROWS)[:, None], tl.arange(0, BLOCK_N)[None, :]  # [ROWS, 1], [1, BLOCK_N]
    row, col = (tile_m * BLOCK_M).to(tl.int64) + rows, tile_n * BLOCK_N + cols
    mask = (row < M) & (col < N)
    partial_ptr += left.to(tl.int64) * parts * BLOCK_M * BLOCK_N
    total = tl.zeros([ROWS, BLOCK_N], dtype=tl.float32)
    for part in tl.range(0, parts):
        total += tl.load(
            partial_ptr + part.to(tl.int64) * BLOCK_M * BLOCK_N + rows * BLOCK_N + cols, mask=mask, other=0.0
        )
    tl.store(c_ptr + row * N + col, total.to(c_ptr.dtype.element_ty), mask=mask)


def describable(matrix: torch.Tensor, on: int = 16) -> bool:
    """Whether a tensor descriptor can address a matrix: unit last stride, base and rows on 16 bytes, or on `on`."""
    return matrix.stride(1) == 1 and matrix.stride(0) * matrix.element_size() % on == 0 and matrix.data_ptr() % on == 0


def _described(matrix: torch.Tensor, on: int = 16) -> torch.Tensor:
    """The matrix itself where its rows begin on so many bytes, else a copy of which each row begins on a LINE."""
    if describable(matrix, on):
        return matrix
    rows, cols = matrix.shape
    pitch = triton.cdiv(cols * matrix.element_size(), LINE) * LINE // matrix.element_size()
    padded = torch.empty((rows, pitch), dtype=matrix.dtype, device=matrix.device)[:, :cols]
    if describable(matrix) and cols * matrix.element_size() % 16 == 0:  # by 16 bytes it is copied faster
        padded.view(torch.complex128).copy_(matrix.view(torch.complex128))
    else:
        padded.copy_(matrix)
    return padded


@cache
def runs_on(device: torch.device) -> bool:
    """Whether a GPU has tensor descriptors, from Hopper on, and SHARED per program; the interpreter has both."""
    if device.type != "cuda":
        return True
    properties = torch.cuda.get_device_properties(device)
    return properties.major >= 9 and properties.shared_memory_per_block_optin >= SHARED


def launch(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor):
    """c = a @ b for 16-bit a [M, K] and b [K, N], none of them empty; c contiguous. Copies what a descriptor cannot
    address, and b where that pays."""
    from triton.tools.tensor_descriptor import TensorDescriptor

    (M, K), N = a.shape, b.shape[1]
    transposed = b.stride(0) == 1 and b.stride(1) != 1 or not describable(b) and describable(b.T)
    a, b = _described(a), _described(b.T if transposed else b, SECTOR if M >= MANY_ROWS else 16)
    chosen = plan(M, N, K, device_of(c.device).sms)
    m, n, k = (chosen.tile[side] for side in ("BLOCK_M", "BLOCK_N", "BLOCK_K"))

    def describe(matrix, tile):
        return TensorDescriptor(matrix, list(matrix.shape), list(matrix.stride()), tile)

    operands = describe(a, [m, k]), describe(b, [n, k] if transposed else [k, n])
    described = describable(c)
    output = describe(c, [m, n // 2]) if described else c
    partial = torch.empty((chosen.left, chosen.parts, m, n), dtype=torch.float32, device=c.device)
    cut = chosen.whole, chosen.left, chosen.parts, chosen.part_k
    matmul_persistent_kernel[(chosen.programs,)](
        *operands,
        output,
        partial,
        M,
        N,
        K,
        *cut,
        transposed,
        described,
        PARTS=chosen.left > 0,
        GROUP_M=GROUP_M,
        **chosen.tile,
    )
    if chosen.left:
        matmul_sum_parts_kernel[(chosen.left * m // STRIP,)](
            partial, c, M, N, chosen.whole, chosen.parts, GROUP_M, m, n, ROWS=STRIP, num_warps=4
        )
