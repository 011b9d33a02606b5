import random
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from instruments.gpus import GPUS
from instruments.occupancy import RESIDENT, occupancy

pytestmark = pytest.mark.each  # every set takes milliseconds, and most say something of their own

ANY = {gpu.arch: gpu for gpu in GPUS.values()}
ANY |= {arch: replace(ANY[89], arch=arch) for arch in (86, 120)}  # they too have 100 KiB per SM

CALCULATOR = """
#include <limits.h>
#include <stdio.h>
#include <cuda_occupancy.h>

int main() {
    int arch, warps, per_sm, registers, shared, num_warps;
    while (scanf("%d %d %d %d %d %d", &arch, &warps, &per_sm, &registers, &shared, &num_warps) == 6) {
        struct cudaOccResult result;
        struct cudaOccDeviceProp device = {
            arch / 10, arch % 10, 1024, 32 * warps, 65536, 65536, 32, 49152, per_sm, 1,
            arch < 80 ? per_sm : per_sm - 1024, arch < 80 ? 0 : 1024};
        struct cudaOccFuncAttributes kernel = {
            1024, registers, 0, PARTITIONED_GC_OFF, FUNC_SHMEM_LIMIT_OPTIN, shared, 1, 0};
        struct cudaOccDeviceState state = {CACHE_PREFER_NONE, SHAREDMEM_CARVEOUT_DEFAULT};
        if (cudaOccMaxActiveBlocksPerMultiprocessor(&result, &device, &kernel, &state, 32 * num_warps, shared))
            return 1;
        printf("%d\\n", result.activeBlocksPerMultiprocessor);
    }
    return 0;
}
"""


@pytest.mark.parametrize(
    "registers, shared, num_warps, programs, limiter",
    [
        (32, 0, 4, 16, "registers"),
        (16, 0, 4, 16, "warps"),
        (16, 0, 1, 32, "programs"),
        (128, 0, 4, 4, "registers"),
        (255, 0, 4, 2, "registers"),
        (168, 0, 8, 1, "registers"),
        (64, 113 * 1024, 4, 2, "shared memory"),
        (64, 113 * 1024 + 1, 4, 1, "shared memory"),
        (64, 96 * 1024, 4, 2, "shared memory"),
        (64, 228 * 1024, 4, 0, "shared memory"),
        (65, 0, 8, 3, "registers"),
        (16, 16 * 1024, 4, 13, "shared memory"),
        (129, 0, 1, 12, "registers"),
        (128, 0, 32, 0, ""),
    ],
)
def test_h200(registers, shared, num_warps, programs, limiter):
    found = occupancy(registers, shared, num_warps)
    if limiter:
        assert (found.programs, found.limiter, found.warps) == (programs, limiter, programs * num_warps)
    else:
        assert found.programs == 0


def test_nvidias_calculator_says_the_same(tmp_path):
    include = Path(pytest.importorskip("triton.backends.nvidia").__file__).parent / "include"
    if not shutil.which("cc") or not (include / "cuda_occupancy.h").exists():
        pytest.skip("needs a C compiler, and cuda_occupancy.h in Triton's wheel")
    (tmp_path / "calculator.c").write_text(CALCULATOR)
    subprocess.run(["cc", "-w", f"-I{include}", "-o", tmp_path / "calculator", tmp_path / "calculator.c"], check=True)
    draw = random.Random(0)
    kernels = [
        (
            arch,
            draw.randint(1, 255),
            draw.randint(0, ANY[arch].shared_per_sm + 2048) // draw.choice((1, 4, 32)),
            draw.randint(1, 32),
        )
        for arch in RESIDENT
        for _ in range(2000)
    ]
    given = "".join(
        f"{arch} {RESIDENT[arch][0]} {ANY[arch].shared_per_sm} {registers} {shared} {num_warps}\n"
        for arch, registers, shared, num_warps in kernels
    )
    said = subprocess.run([tmp_path / "calculator"], input=given, capture_output=True, text=True, check=True).stdout
    assert len(said.split()) == len(kernels)
    for (arch, registers, shared, num_warps), programs in zip(kernels, map(int, said.split())):
        ours = occupancy(registers, shared, num_warps, ANY[arch]).programs
        assert ours == programs, (arch, registers, shared, num_warps)


def test_every_gpu_of_the_course_has_limits():
    assert {gpu.arch for gpu in GPUS.values()} <= set(RESIDENT)
    assert occupancy(32, 0, 4, GPUS["T4"]).share == 1 and occupancy(32, 0, 4, GPUS["L4"]).most == 48
    assert occupancy(32, 64 * 1024, 4, GPUS["T4"]).programs == 1
    assert str(occupancy(128, 0, 4)) == "4 programs, 16 of 64 warps, limited by registers"


@pytest.mark.parametrize(
    "bad, name",
    [((0, 0, 4), "registers"), ((256, 0, 4), "registers"), ((32, -1, 4), "shared"), ((32, 0, 33), "num_warps")],
)
def test_bad_arguments_name_themselves(bad, name):
    with pytest.raises(ValueError, match=f"^{name}: got"):
        occupancy(*bad)
