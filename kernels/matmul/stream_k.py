"""Stream-K: every program multiplies the same number of steps along K, wherever tiles begin and end.

Minimum traffic as in tiled.py. A program per tile leaves SMs idle in the last wave: 140 tiles on 132 SMs take as long
as 264. Stream-K numbers the steps of all tiles in a row, 0 to tiles * ceil(K / BLOCK_K) - 1, and gives each program an
equal share of them. A program may finish a tile that another one began, compute some whole tiles, and begin one that
the next program finishes. Whole tiles go to c at once. Each piece of a shared tile is stored in fp32, and a second
launch adds the pieces of each tile in the order of K, so every run gives the same bits.

The price over tiles: up to two partial tiles written and read per program, and tiles that begin at different steps of K
at the same time, so that programs share less of a and b in L2. persistent.py splits the last wave alone instead.

Osama, Merrill, Cecka, Garland and Owens, "Stream-K" (2023); theirs adds pieces in one launch, where a program waits
for the next one's. Reference, arguments and descriptors are `matmul`'s. 16-bit operands.
"""

from dataclasses import dataclass

import torch

from instruments.backend import cdiv, tl, triton
from instruments.traffic import Traffic
from kernels.matmul.persistent import LARGE, SMALL, accumulate_tile, aligned, is_describable
from kernels.matmul.tile_order import grouped_tile
from kernels.shared.arguments import check_matrices, check_no_grad
from kernels.shared.device import device_of, has_descriptors, tensor_descriptor
from kernels.shared.metadata import by_metadata

GROUP_M = 8
SIXTEEN_BITS = (torch.float16, torch.bfloat16)
STRIP = 4  # rows of a tile whose pieces one program adds
SHARED = max(t["num_stages"] * t["BLOCK_K"] * (t["BLOCK_M"] + t["BLOCK_N"]) * 2 for t in (LARGE, SMALL))


@dataclass(frozen=True)
class StreamPlan:
    """How the steps of all tiles are distributed over programs.

    Args:
        tile: tile constants, num_warps and num_stages, by the kernel's names for them.
        programs: number of programs.
        tiles: tiles of c.
        steps: steps along K of one tile.
        share: steps of one program; the last program may have fewer.
    """

    tile: dict
    programs: int
    tiles: int
    steps: int
    share: int

    @property
    def shares_tiles(self) -> bool:
        """Whether programs share any tile: not if every share ends where a tile does."""
        return self.programs > 1 and self.share % self.steps != 0

    def pieces(self, program: int) -> list[tuple[int, int, int]]:
        """[(tile, first step, steps)] of a program, in its order."""
        step, last = program * self.share, min((program + 1) * self.share, self.tiles * self.steps)
        pieces = []
        while step < last:
            tile, first = divmod(step, self.steps)
            count = min(self.steps - first, last - step)
            pieces.append((tile, first, count))
            step += count
        return pieces


def stream_plan(M: int, N: int, K: int, programs: int, tile: dict = LARGE) -> StreamPlan:
    """The plan for a matmul of these sizes on a GPU that runs `programs` programs at a time."""
    tiles = cdiv(M, tile["BLOCK_M"]) * cdiv(N, tile["BLOCK_N"])
    steps = cdiv(K, tile["BLOCK_K"])
    share = cdiv(tiles * steps, programs)
    return StreamPlan(tile, cdiv(tiles * steps, share), tiles, steps, share)


@triton.jit
def matmul_stream_k_kernel(
    a, b, c_ptr, partial_ptr,
    M, N, K,
    steps, share, total,
    B_TRANSPOSED: tl.constexpr,
    GROUP_M: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """`share` of `total` steps per program: descriptors of a [M, K] and b [K, N] or [N, K]; c [M, N]; partial
    [programs, 2, BLOCK_M, BLOCK_N] in fp32 takes the pieces of tiles: at 1 the piece with which a tile begins, else at
    0."""
    program = tl.program_id(0)
    step = program * share
    last = tl.minimum(step + share, total)
    rows, cols = tl.arange(0, BLOCK_M)[:, None], tl.arange(0, BLOCK_N)[None, :]  # [BLOCK_M, 1], [1, BLOCK_N]
    while step < last:
        tile = step // steps
        first = step - tile * steps
        count = tl.minimum(steps - first, last - step)
        tile_m, tile_n = grouped_tile(tile, M, N, BLOCK_M, BLOCK_N, GROUP_M)
        row, col = tile_m * BLOCK_M, tile_n * BLOCK_N
        last_k = tl.minimum((first + count) * BLOCK_K, K)
        acc = accumulate_tile(a, b, row, col, first * BLOCK_K, last_k, B_TRANSPOSED, BLOCK_M, BLOCK_N, BLOCK_K)
        mask = (row + rows < M) & (col + cols < N)
        if count == steps:
            c_ptrs = c_ptr + (row + rows).to(tl.int64) * N + (col + cols)
            tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=mask)
        else:
            slot = (program * 2 + (first == 0).to(tl.int32)).to(tl.int64)
            tl.store(partial_ptr + slot * BLOCK_M * BLOCK_N + rows * BLOCK_N + cols, acc, mask=mask)
        step += count


@triton.jit
def matmul_add_pieces_kernel(
    partial_ptr, c_ptr,
    M, N,
    steps, share, total,
    GROUP_M: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """ROWS rows of the tile in which a program's share ends, if it is the first to end there: its pieces, of this and
    the following programs, added in the order of K and stored into c [M, N]. partial as above."""
    strips: tl.constexpr = BLOCK_M // ROWS
    program, strip = tl.program_id(0) // strips, tl.program_id(0) % strips
    end = (program + 1) * share
    tile = end // steps
    inside = end - tile * steps  # steps of the tile that this and earlier programs have done
    if (inside > 0) & (inside <= share):
        rows, cols = (
            strip * ROWS + tl.arange(0, ROWS)[:, None],
            tl.arange(0, BLOCK_N)[None, :],
        )  # [ROWS, 1], [1, BLOCK_N]
        tile_m, tile_n = grouped_tile(tile, M, N, BLOCK_M, BLOCK_N, GROUP_M)
        row, col = (tile_m * BLOCK_M).to(tl.int64) + rows, tile_n * BLOCK_N + cols
        mask = (row < M) & (col < N)
        pieces = partial_ptr + rows * BLOCK_N + cols  # [ROWS, BLOCK_N]
        acc = tl.load(pieces + (program * 2 + 1).to(tl.int64) * BLOCK_M * BLOCK_N, mask=mask, other=0.0)
        for other in tl.range(program + 1, tl.cdiv((tile + 1) * steps, share)):
            acc += tl.load(pieces + (other * 2).to(tl.int64) * BLOCK_M * BLOCK_N, mask=mask, other=0.0)
        tl.store(c_ptr + row * N + col, acc.to(c_ptr.dtype.element_ty), mask=mask)


@by_metadata
def _plan(a, b, tile) -> tuple[bool, StreamPlan]:
    check_no_grad("matmul_stream_k", a=a, b=b)
    check_matrices(a, b, SIXTEEN_BITS)
    if tile not in ("large", "small"):
        raise ValueError(f"tile: got {tile!r}, expected 'large' or 'small'")
    if not has_descriptors(a.device, SHARED):
        raise ValueError(
            f"a: got device {a.device}, expected a GPU with tensor descriptors and {SHARED:,} B of shared memory"
        )
    (M, K), N = a.shape, b.shape[1]
    transposed = b.stride(0) == 1 and b.stride(1) != 1 or not is_describable(b) and is_describable(b.T)
    sizes = LARGE if tile == "large" else SMALL
    return transposed, stream_plan(max(1, M), max(1, N), max(1, K), device_of(a.device).sms, sizes)


def matmul_stream_k(a: torch.Tensor, b: torch.Tensor, *, tile: str = "large") -> torch.Tensor:
    """a @ b with an equal share of all steps along K per program, accumulated in fp32 and rounded once.

    Args:
        a: [M, K], fp16 or bf16, any strides.
        b: [K, N], the dtype of a, any strides.
        tile: 'large', 128 x 256, or 'small', 64 x 128.

    Returns:
        [M, N], the dtype of a, contiguous; the same bits in every run.

    Raises:
        ValueError: naming the argument, what it is and what was expected.

    Note:
        An operand that a tensor descriptor cannot address is copied first.
    """
    transposed, plan = _plan(a, b, tile)
    (M, K), N = a.shape, b.shape[1]
    c = torch.empty((M, N), dtype=a.dtype, device=a.device)
    if not c.numel():
        return c
    if not K:
        return c.zero_()
    a, b = aligned(a), aligned(b.T if transposed else b)
    m, n, k = (plan.tile[name] for name in ("BLOCK_M", "BLOCK_N", "BLOCK_K"))
    partial = torch.empty((plan.programs, 2, m, n), dtype=torch.float32, device=c.device) if plan.shares_tiles else c
    numbers = plan.steps, plan.share, plan.tiles * plan.steps
    matmul_stream_k_kernel[(plan.programs,)](
        tensor_descriptor(a, (M, K), a.stride(), (m, k)),
        tensor_descriptor(b, b.shape, b.stride(), (n, k) if transposed else (k, n)),
        c, partial,
        M, N, K,
        *numbers,
        B_TRANSPOSED=transposed, GROUP_M=GROUP_M, **plan.tile,
    )  # fmt: skip
    if plan.shares_tiles:
        matmul_add_pieces_kernel[((plan.programs - 1) * (m // STRIP),)](
            partial, c,
            M, N,
            *numbers,
            GROUP_M, m, n, ROWS=STRIP, num_warps=4,
        )  # fmt: skip
    return c


def matmul_stream_k_traffic(M: int, N: int, K: int, dtype: torch.dtype, plan: StreamPlan | None = None) -> Traffic:
    """The traffic of a stream-K matmul.

    Args:
        M: rows of a and c.
        N: columns of b and c.
        K: columns of a, rows of b.
        dtype: dtype of a, b and c.
        plan: for the requested bytes of this plan's programs; None counts each byte once.

    Returns:
        Bytes per tensor, FLOPs and launches. Padding is not counted.
    """
    size = dtype.itemsize
    if plan is None:
        return Traffic({"a": M * K * size, "b": K * N * size}, {"c": M * N * size}, flops=2 * M * N * K, launches=1)
    m, n, k = (plan.tile[name] for name in ("BLOCK_M", "BLOCK_N", "BLOCK_K"))
    read = {"a": M * K * cdiv(N, n) * size, "b": K * N * cdiv(M, m) * size}
    partial = 0
    for program in range(plan.programs):
        for tile, _, count in plan.pieces(program):
            tile_m, tile_n = tile_place(tile, M, N, m, n)
            if count < plan.steps:
                partial += min(m, M - tile_m * m) * min(n, N - tile_n * n) * 4
    written = {"c": M * N * size}
    if partial:
        read["partial"] = written["partial"] = partial
    return Traffic(read, written, flops=2 * M * N * K, launches=1 + plan.shares_tiles)


def tile_place(tile: int, M: int, N: int, BLOCK_M: int, BLOCK_N: int) -> tuple[int, int]:
    """`grouped_tile` in Python: the row and column of a tile, in groups of GROUP_M rows of tiles."""
    across = cdiv(N, BLOCK_N)
    group, within = divmod(tile, GROUP_M * across)
    height = min(cdiv(M, BLOCK_M) - group * GROUP_M, GROUP_M)
    return group * GROUP_M + within % height, within // height
