import pytest

from instruments.compiled import compiled
from instruments.gpus import DTYPES, GPUS
from kernels.matmul.shared_memory import tile_shared
from widgets import tile_intensity


def test_reads_the_picture():
    panel = tile_intensity()
    assert panel.alt.startswith("128 x 128 by 64, bf16: 64 FLOP per byte read, below the H200's ridge point of 159.")
    assert (
        "3 buffers take 98,304 B of shared memory, the accumulators 64 registers of each of 256 threads: at most 2 "
        in panel.alt
    )
    before = panel.png
    panel.set(block_n=256)
    assert "85.3 FLOP per byte" in panel.alt and panel.png != before
    assert "64 registers" not in panel.alt and "at most 1 program at once" in panel.alt


def test_no_square_tile_of_power_of_two_that_fits_reaches_the_ridge():
    panel = tile_intensity()
    for side, says in ((256, "at most 1 program"), (512, "2,048")):
        panel.set(block_m=side, block_n=side, stages=1, block_k=16, warps=16 if side == 256 else 4)
        assert says in panel.alt
    assert "at or above the H200's ridge point" in panel.alt and "they spill" in panel.alt


def test_what_does_not_fit_is_said():
    assert "more than the 232,448 B that one program may have" in tile_intensity(block_m=256, block_n=256, stages=4).alt
    assert "more than the 101,376 B" in tile_intensity(stages=5, gpu="L4").alt
    assert "tensor memory" in tile_intensity(gpu="B200").alt


@pytest.mark.parametrize("arch", [80, 90])
def test_shared_memory_is_the_compilers(arch):
    import torch

    from kernels.matmul.tiled import matmul_grouped_kernel

    a, b, c = (torch.empty(512, 512, dtype=torch.bfloat16) for _ in range(3))
    for m, n, k, stages in ((64, 128, 32, 3), (128, 128, 64, 4)):
        kernel = compiled(
            lambda: matmul_grouped_kernel.fn[(1,)](
                a,
                b,
                c,
                512,
                512,
                512,
                512,
                1,
                512,
                1,
                PRECISION="ieee",
                GROUP_M=8,
                BLOCK_M=m,
                BLOCK_N=n,
                BLOCK_K=k,
                num_warps=8,
                num_stages=stages,
            ),
            arch=arch,
        )[0]
        assert kernel.shared == tile_shared(m, n, k, stages, 2, arch)


def test_all_of_it_draws():
    panel = tile_intensity()
    for gpu in GPUS:
        for dtype in DTYPES:
            for block, stages in ((16, 1), (1024, 6)):
                panel.set(gpu=gpu, dtype=dtype, block_m=block, stages=stages)
                assert f"the {gpu}'s ridge point" in panel.alt


def test_bad_arguments_name_themselves():
    with pytest.raises(ValueError, match="gpu: got 'V100', expected one of T4"):
        tile_intensity(gpu="V100")
    with pytest.raises(ValueError, match="block_m: got 8"):
        tile_intensity(block_m=8)
