import pytest

from instruments.gpus import GPUS
from instruments.occupancy import RESIDENT, occupancy


@pytest.mark.parametrize("registers, shared, num_warps, programs, limiter", [
    (32, 0, 4, 16, "registers"), (16, 0, 4, 16, "warps"), (16, 0, 1, 32, "programs"), (128, 0, 4, 4, "registers"),
    (255, 0, 4, 2, "registers"), (168, 0, 8, 1, "registers"), (64, 113 * 1024, 4, 2, "shared memory"),
    (64, 113 * 1024 + 1, 4, 1, "shared memory"), (64, 96 * 1024, 4, 2, "shared memory"), (64, 228 * 1024, 4, 0, "shared memory"),
    (65, 0, 8, 3, "registers"), (16, 16 * 1024, 4, 13, "shared memory"), (129, 0, 1, 12, "registers"), (128, 0, 32, 0, "")])
def test_h200(registers, shared, num_warps, programs, limiter):
    found = occupancy(registers, shared, num_warps)
    if limiter:
        assert (found.programs, found.limiter, found.warps) == (programs, limiter, programs * num_warps)
    else:
        assert found.programs == 0


def test_every_gpu_of_the_course_has_limits():
    assert {gpu.arch for gpu in GPUS.values()} == set(RESIDENT)
    assert occupancy(32, 0, 4, GPUS["T4"]).share == 1 and occupancy(32, 0, 4, GPUS["L4"]).most == 48
    assert occupancy(32, 64 * 1024, 4, GPUS["T4"]).programs == 1
    assert str(occupancy(128, 0, 4)) == "4 programs, 16 of 64 warps, limited by registers"


@pytest.mark.parametrize("bad, name", [((0, 0, 4), "registers"), ((256, 0, 4), "registers"), ((32, -1, 4), "shared"),
                                       ((32, 0, 33), "num_warps")])
def test_bad_arguments_name_themselves(bad, name):
    with pytest.raises(ValueError, match=f"^{name}: got"):
        occupancy(*bad)
