"""Shared memory of a software-pipelined matmul, for lesson 03 and its panel `tile_intensity`."""


def pipeline_buffers(stages: int, arch: int) -> int:
    """Pairs of tiles in shared memory: one per stage on sm_90 and sm_100; elsewhere one of them is in registers."""
    return stages if arch in (90, 100) else max(1, stages - 1)


def tile_shared(block_m: int, block_n: int, block_k: int, stages: int, itemsize: int, arch: int = 90) -> int:
    """Bytes of shared memory of a program: (BLOCK_M + BLOCK_N) * BLOCK_K elements per buffer.

    Args:
        block_m: Rows of the tile of c.
        block_n: Columns of the tile of c.
        block_k: Columns of the tile of a, rows of the tile of b.
        stages: `num_stages` of the launch.
        itemsize: Bytes per element of a and b.
        arch: Compute capability, such as 90 for Hopper.
    """
    return pipeline_buffers(stages, arch) * (block_m + block_n) * block_k * itemsize
