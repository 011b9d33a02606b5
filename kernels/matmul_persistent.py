"""The last rung of matmul's ladder: persistent programs, tensor descriptors, and warp specialisation where it is
faster.

Minimum traffic as in matmul.py. A program per multiprocessor walks over many tiles of c, so that the next tile's loads
start under the last one's stores. Descriptors let the hardware copy tiles to shared memory; they need rows that begin
on 16 bytes.

The kernel follows Triton's tutorials on persistent matmul (2024 to 2025); warp specialisation is Triton's own (2025).
Its reference, public function and traffic are `matmul`'s.
"""

from functools import cache

import torch

from instruments.backend import tl, triton
from kernels.matmul_order import grouped_tile
from kernels.rows import device_of


def _shape_descriptors(arguments: dict):
    """Before a launch: give the descriptors the tiles of the configuration that is about to run."""
    m, n, k = arguments["BLOCK_M"], arguments["BLOCK_N"], arguments["BLOCK_K"]
    arguments["a"].block_shape = [m, k]
    arguments["b"].block_shape = [n, k] if arguments["B_TRANSPOSED"] else [k, n]
    if arguments["C_DESCRIBED"]:
        arguments["c"].block_shape = [m, n // 2]


#: (BLOCK_N, GROUP_M, stages, warp-specialised) that the kernel is tuned over, all with 8 warps.
TUNED = ((256, 8, 3, False), (256, 16, 3, False), (256, 16, 3, True), (128, 8, 4, False))
BLOCK_M, BLOCK_K = 128, 64
CONFIGS = [
    triton.Config(
        {"BLOCK_M": BLOCK_M, "BLOCK_N": n, "BLOCK_K": BLOCK_K, "GROUP_M": group, "SPECIALIZE": specialize},
        num_warps=8,
        num_stages=stages,
        pre_hook=_shape_descriptors,
    )
    for n, group, stages, specialize in TUNED
]

#: Bytes of shared memory that the smallest configuration's stages take; where there is less, the grouped kernel runs.
SHARED = min(stages * BLOCK_K * (BLOCK_M + n) * 2 for n, _, stages, _ in TUNED)


@triton.autotune(CONFIGS, key=["M", "N", "K", "B_TRANSPOSED"])
@triton.jit
def matmul_persistent_kernel(
    a,
    b,
    c,
    M,
    N,
    K,
    B_TRANSPOSED: tl.constexpr,
    C_DESCRIBED: tl.constexpr,
    SPECIALIZE: tl.constexpr,
    GROUP_M: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Descriptors a [M, K], b [K, N] or [N, K], c [M, N] or a pointer to it: every so many-th tile of c."""
    tiles = tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N)
    # one loop over tiles and K: the next tile's loads start under this one's store
    FLATTEN: tl.constexpr = not SPECIALIZE
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0), flatten=FLATTEN, warp_specialize=SPECIALIZE):
        tile_m, tile_n = grouped_tile(tile, M, N, BLOCK_M, BLOCK_N, GROUP_M)
        row, col = tile_m * BLOCK_M, tile_n * BLOCK_N
        total = tl.zeros([BLOCK_M, BLOCK_N], dtype=tl.float32)
        for k in tl.range(0, K, BLOCK_K):
            a_tile = a.load([row, k])  # [BLOCK_M, BLOCK_K]; what lies outside the matrix is zero
            if B_TRANSPOSED:
                b_tile = b.load([col, k]).T  # [BLOCK_K, BLOCK_N]
            else:
                b_tile = b.load([k, col])
            total = tl.dot(a_tile, b_tile, total)
        if C_DESCRIBED:  # in two halves, so that half the shared memory is enough to stage them
            left, right = tl.split(tl.permute(tl.reshape(total, (BLOCK_M, 2, BLOCK_N // 2)), (0, 2, 1)))
            c.store([row, col], left.to(c.dtype))
            c.store([row, col + BLOCK_N // 2], right.to(c.dtype))
        else:
            rows = row.to(tl.int64) + tl.arange(0, BLOCK_M)[:, None]  # [BLOCK_M, 1]
            cols = col + tl.arange(0, BLOCK_N)[None, :]  # [1, BLOCK_N]
            tl.store(c + rows * N + cols, total.to(c.dtype.element_ty), mask=(rows < M) & (cols < N))


def describable(matrix: torch.Tensor) -> bool:
    """Whether a tensor descriptor can address a matrix: unit last stride, base and rows on 16 bytes."""
    return matrix.stride(1) == 1 and matrix.stride(0) * matrix.element_size() % 16 == 0 and matrix.data_ptr() % 16 == 0


def _described(matrix: torch.Tensor) -> torch.Tensor:
    """The matrix itself where a descriptor can address it, else a copy whose rows begin on 16 bytes."""
    if describable(matrix):
        return matrix
    per_16_bytes = 16 // matrix.element_size()
    rows, cols = matrix.shape
    padded = torch.empty((rows, -(-cols // per_16_bytes) * per_16_bytes), dtype=matrix.dtype, device=matrix.device)
    padded[:, :cols] = matrix
    return padded[:, :cols]


@cache
def runs_on(device: torch.device) -> bool:
    """Whether a GPU has tensor descriptors, from Hopper on, and SHARED per program; the interpreter has both."""
    if device.type != "cuda":
        return True
    properties = torch.cuda.get_device_properties(device)
    return properties.major >= 9 and properties.shared_memory_per_block_optin >= SHARED


def launch(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor):
    """c = a @ b for 16-bit a [M, K] and b [K, N], none of them empty: copies what a descriptor cannot address."""
    from triton.tools.tensor_descriptor import TensorDescriptor

    M, K = a.shape
    N = b.shape[1]
    transposed = b.stride(0) == 1 and b.stride(1) != 1 or not describable(b) and describable(b.T)
    b = _described(b.T if transposed else b)
    a = _described(a)
    described = describable(c)
    tile = [1, 1]  # replaced by _shape_descriptors
    operands = [TensorDescriptor(m, list(m.shape), list(m.stride()), tile) for m in (a, b)]
    output = TensorDescriptor(c, list(c.shape), list(c.stride()), tile) if described else c
    programs = device_of(c.device).sms
    matmul_persistent_kernel[
        lambda meta: (min(programs, triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])),)
    ](*operands, output, M, N, K, B_TRANSPOSED=transposed, C_DESCRIBED=described)
