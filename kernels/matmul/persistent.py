"""The persistent matmul, for Hopper and later: one program per SM, tensor descriptors, and split-K in the last wave.

Minimum traffic as in tiled.py. One program per SM computes many tiles of c, so that the loads of the next tile overlap
the stores of the last one. Tensor descriptors let TMA copy tiles to shared memory; they need rows that begin on 16
bytes. If the last wave would be at most half full, its tiles are split along K, and a second launch sums the parts of
each tile. The order of the additions does not depend on which part finishes first. 16-bit operands only.

The kernel follows Triton's tutorials on persistent matmul (2024 to 2025). Splitting only the last wave is the
data-parallel form of Stream-K by Osama et al. (2023). Reference, public function and traffic model are `matmul`'s.
"""

from dataclasses import dataclass
from functools import cache

import torch

from instruments.backend import cdiv, tl, triton
from instruments.launcher import Launch
from kernels.matmul.tile_order import grouped_tile
from kernels.shared.device import DescriptorPlan, device_of

GROUP_M = 8
LARGE = {"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64, "num_warps": 8, "num_stages": 3}
SMALL = {"BLOCK_M": 64, "BLOCK_N": 128, "BLOCK_K": 128, "num_warps": 4, "num_stages": 4}
TILES = (LARGE, SMALL)

#: Bytes of shared memory for the stages; on a GPU with less, the grouped kernel runs.
SHARED = max(t["num_stages"] * t["BLOCK_K"] * (t["BLOCK_M"] + t["BLOCK_N"]) * 2 for t in TILES)
SECTOR, LINE = 32, 128  # bytes: rows that do not begin on a sector load more slowly; copies begin on a cache line
MANY_ROWS = 3000  # from this many rows of a on, copying b to rows that begin on a sector pays off
PART_STEPS = 8  # the fewest steps along K of a part of a tile
STRIP = 4  # rows of a tile whose parts one program sums


@dataclass(frozen=True)
class PersistentPlan:
    """How the tiles of c are distributed over programs.

    Args:
        tile: tile constants, num_warps and num_stages, by the kernel's names for them.
        programs: number of programs.
        whole_tiles: tiles that one program computes alone.
        split_tiles: the remaining tiles, split along K.
        parts: parts of a split tile, with a program each.
        part_k: elements of K in a part.
    """

    tile: dict
    programs: int
    whole_tiles: int
    split_tiles: int
    parts: int
    part_k: int


def count_tiles(tile: dict, M: int, N: int) -> int:
    """How many tiles c has."""
    return cdiv(M, tile["BLOCK_M"]) * cdiv(N, tile["BLOCK_N"])


@cache
def persistent_plan(M: int, N: int, K: int, programs: int) -> PersistentPlan:
    """Large tiles if there are enough for three in four programs, else small ones. A last wave of large tiles is split
    if it is at most half full; a wave of small tiles ends sooner than the sum of its parts would."""
    tile = LARGE if 4 * count_tiles(LARGE, M, N) >= 3 * programs else SMALL
    tiles = count_tiles(tile, M, N)
    last_wave = tiles % programs
    steps = cdiv(K, tile["BLOCK_K"])
    parts = min(programs // last_wave, steps // PART_STEPS) if tile is LARGE and last_wave and tiles > programs else 1
    if parts < 2:
        return PersistentPlan(tile, min(programs, tiles), tiles, 0, 1, K)
    part_k = cdiv(steps, parts) * tile["BLOCK_K"]
    return PersistentPlan(tile, programs, tiles - last_wave, last_wave, cdiv(K, part_k), part_k)


@triton.jit
def accumulate_tile(
    a, b,
    row, col, first, last,
    B_TRANSPOSED: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """The tile [BLOCK_M, BLOCK_N] of a @ b at (row, col), summed over k from first to last; TMA pads with zeros."""
    acc = tl.zeros([BLOCK_M, BLOCK_N], dtype=tl.float32)
    for k in tl.range(first, last, BLOCK_K):
        a_tile = a.load([row, k])  # [BLOCK_M, BLOCK_K]
        if B_TRANSPOSED:
            b_tile = b.load([col, k]).T  # [BLOCK_K, BLOCK_N]
        else:
            b_tile = b.load([k, col])
        acc = tl.dot(a_tile, b_tile, acc)
    return acc


@triton.jit
def matmul_persistent_kernel(
    a, b, c, partial_ptr,
    M, N, K,
    whole_tiles, split_tiles, parts, part_k,
    B_TRANSPOSED: tl.constexpr, C_DESCRIPTOR: tl.constexpr, SPLIT: tl.constexpr,
    GROUP_M: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Whole tiles of c, one after another, then a part of a split tile. a [M, K], b [K, N] or [N, K] and c [M, N] are
    tensor descriptors, or c a pointer; partial [split_tiles, parts, BLOCK_M, BLOCK_N] fp32."""
    # flatten=True makes one loop of tiles and K, so that the next tile's loads overlap this one's store
    for tile in tl.range(tl.program_id(0), whole_tiles, tl.num_programs(0), flatten=True):
        tile_m, tile_n = grouped_tile(tile, M, N, BLOCK_M, BLOCK_N, GROUP_M)
        row, col = tile_m * BLOCK_M, tile_n * BLOCK_N
        acc = accumulate_tile(a, b, row, col, 0, K, B_TRANSPOSED, BLOCK_M, BLOCK_N, BLOCK_K)
        if C_DESCRIPTOR:  # in two halves, which share one buffer of half the size
            first, second = tl.split(tl.permute(tl.reshape(acc, (BLOCK_M, 2, BLOCK_N // 2)), (0, 2, 1)))
            c.store([row, col], first.to(c.dtype))
            c.store([row, col + BLOCK_N // 2], second.to(c.dtype))
        else:
            rows = row.to(tl.int64) + tl.arange(0, BLOCK_M)[:, None]  # [BLOCK_M, 1]
            cols = col + tl.arange(0, BLOCK_N)[None, :]  # [1, BLOCK_N]
            tl.store(c + rows * N + cols, acc.to(c.dtype.element_ty), mask=(rows < M) & (cols < N))
    if SPLIT:
        program = tl.program_id(0)
        if program < split_tiles * parts:
            tile_m, tile_n = grouped_tile(whole_tiles + program // parts, M, N, BLOCK_M, BLOCK_N, GROUP_M)
            row, col = tile_m * BLOCK_M, tile_n * BLOCK_N
            first_k = program % parts * part_k
            last_k = tl.minimum(first_k + part_k, K)
            acc = accumulate_tile(a, b, row, col, first_k, last_k, B_TRANSPOSED, BLOCK_M, BLOCK_N, BLOCK_K)
            rows, cols = tl.arange(0, BLOCK_M)[:, None], tl.arange(0, BLOCK_N)[None, :]
            partial_ptr += program.to(tl.int64) * BLOCK_M * BLOCK_N
            tl.store(partial_ptr + rows * BLOCK_N + cols, acc, mask=(row + rows < M) & (col + cols < N))


@triton.jit
def matmul_sum_parts_kernel(
    partial_ptr, c_ptr,
    M, N,
    whole_tiles, parts,
    GROUP_M: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """ROWS rows of a split tile: partial as above, summed over the parts and stored into c [M, N]."""
    strips: tl.constexpr = BLOCK_M // ROWS
    split_tile, strip = tl.program_id(0) // strips, tl.program_id(0) % strips
    tile_m, tile_n = grouped_tile(whole_tiles + split_tile, M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows, cols = strip * ROWS + tl.arange(0, ROWS)[:, None], tl.arange(0, BLOCK_N)[None, :]  # [ROWS, 1], [1, BLOCK_N]
    row, col = (tile_m * BLOCK_M).to(tl.int64) + rows, tile_n * BLOCK_N + cols
    mask = (row < M) & (col < N)
    partial_ptr += split_tile.to(tl.int64) * parts * BLOCK_M * BLOCK_N
    acc = tl.zeros([ROWS, BLOCK_N], dtype=tl.float32)
    for part in tl.range(0, parts):
        acc += tl.load(
            partial_ptr + part.to(tl.int64) * BLOCK_M * BLOCK_N + rows * BLOCK_N + cols, mask=mask, other=0.0
        )
    tl.store(c_ptr + row * N + col, acc.to(c_ptr.dtype.element_ty), mask=mask)


def is_describable(matrix: torch.Tensor, alignment: int = 16) -> bool:
    """Whether a tensor descriptor can address a matrix: unit last stride, base and rows on `alignment` bytes."""
    if matrix.stride(1) != 1 or matrix.stride(0) * matrix.element_size() % alignment:
        return False
    return matrix.data_ptr() % alignment == 0


def pitch_of(matrix: torch.Tensor, alignment: int = 16) -> int:
    """Elements from row to row of `aligned`."""
    if is_describable(matrix, alignment):
        return matrix.stride(0)
    return cdiv(matrix.shape[1] * matrix.element_size(), LINE) * LINE // matrix.element_size()


def aligned(matrix: torch.Tensor, alignment: int = 16) -> torch.Tensor:
    """The matrix itself if its rows begin on `alignment` bytes, else a copy whose rows begin on a LINE."""
    if is_describable(matrix, alignment):
        return matrix
    rows, cols = matrix.shape
    padded = torch.empty((rows, pitch_of(matrix, alignment)), dtype=matrix.dtype, device=matrix.device)[:, :cols]
    if is_describable(matrix) and cols * matrix.element_size() % 16 == 0:  # copies of 16-byte elements are faster
        padded.view(torch.complex128).copy_(matrix.view(torch.complex128))
    else:
        padded.copy_(matrix)
    return padded


@dataclass(frozen=True)
class Operand:
    """How a or b becomes a descriptor. copied: whether a descriptor cannot address it, or slowly; then what is copied
    is its transpose if `transposed`."""

    copied: bool
    transposed: bool
    alignment: int
    descriptor: DescriptorPlan

    def __call__(self, matrix: torch.Tensor):
        if self.copied:
            matrix = aligned(matrix.T if self.transposed else matrix, self.alignment)
        return self.descriptor(matrix)


def _operand(matrix: torch.Tensor, block: tuple[int, int], transposed: bool = False, alignment: int = 16) -> Operand:
    """The Operand for matrices like this one, in tiles `block`; transposed: of the transpose."""
    matrix = matrix.T if transposed else matrix
    descriptor = DescriptorPlan(matrix.shape, (pitch_of(matrix, alignment), 1), block)
    return Operand(not is_describable(matrix, alignment), transposed, alignment, descriptor)


@dataclass(frozen=True)
class PersistentCall:
    """A call's plan. a, b, c: of descriptors; c is a pointer where there is none. summing: the second launch, if tiles
    are split; partial: the shape of their parts."""

    a: Operand
    b: Operand
    c: DescriptorPlan | None
    kernel: Launch
    partial: tuple
    summing: Launch | None

    def __call__(self, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor):
        """c = a @ b; c is contiguous."""
        partial = c  # without split tiles no program touches the parts
        if self.summing:
            partial = torch.empty(self.partial, dtype=torch.float32, device=c.device)
        self.kernel(self.a(a), self.b(b), self.c(c) if self.c else c, partial)
        if self.summing:
            self.summing(partial, c)


def plan_call(a: torch.Tensor, b: torch.Tensor) -> PersistentCall:
    """The plan for 16-bit a [M, K] and b [K, N] like these, none of them empty. It copies an operand that a descriptor
    cannot address, and b where the copy pays off."""
    (M, K), N = a.shape, b.shape[1]
    transposed = b.stride(0) == 1 and b.stride(1) != 1 or not is_describable(b) and is_describable(b.T)
    plan = persistent_plan(M, N, K, device_of(a.device).sms)
    tile = plan.tile
    m, n, k = tile["BLOCK_M"], tile["BLOCK_N"], tile["BLOCK_K"]
    c_descriptor = N * a.element_size() % 16 == 0
    kernel = Launch(
        matmul_persistent_kernel, (plan.programs,),
        M, N, K,
        plan.whole_tiles, plan.split_tiles, plan.parts, plan.part_k,
        B_TRANSPOSED=transposed, C_DESCRIPTOR=c_descriptor, SPLIT=plan.split_tiles > 0,
        GROUP_M=GROUP_M, **tile,
    )  # fmt: skip
    summing = None
    if plan.split_tiles:
        summing = Launch(
            matmul_sum_parts_kernel, (plan.split_tiles * m // STRIP,),
            M, N,
            plan.whole_tiles, plan.parts,
            GROUP_M, m, n, ROWS=STRIP, num_warps=4,
        )  # fmt: skip
    return PersistentCall(
        _operand(a, (m, k)),
        _operand(b, (n, k) if transposed else (k, n), transposed, SECTOR if M >= MANY_ROWS else 16),
        DescriptorPlan((M, N), (N, 1), (m, n // 2)) if c_descriptor else None,
        kernel,
        (plan.split_tiles, plan.parts, m, n),
        summing,
    )
