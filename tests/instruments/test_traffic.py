import pytest

from instruments.gpus import GPUS
from instruments.traffic import LAUNCH_SECONDS, Traffic

H200 = GPUS["H200"]


def test_addition_is_one_after_the_other():
    a = Traffic({"x": 10, "w": 1}, {"y": 5}, flops=7, launches=1)
    b = Traffic({"x": 2}, {"z": 4}, flops=1, launches=2)
    both = a + b
    assert both == Traffic({"x": 12, "w": 1}, {"y": 5, "z": 4}, 8, 3)
    assert (both.bytes_read, both.bytes_written, both.bytes) == (13, 9, 22)
    assert sum([a, b]) == both and sum([]) == 0
    assert a == Traffic({"x": 10, "w": 1}, {"y": 5}, flops=7, launches=1), "addition changed an operand"


def test_only_traffic_adds_to_traffic():
    for other in (1, None, "x"):
        with pytest.raises(TypeError):
            Traffic() + other
        with pytest.raises(TypeError):
            other + Traffic()


def test_intensity_and_the_two_roofs():
    traffic = Traffic({"x": 3 * 4.8e12 / 4}, {"y": 4.8e12 / 4}, flops=66.9e12 / 2, launches=3)
    assert traffic.memory_seconds(H200) == pytest.approx(1)
    assert traffic.compute_seconds(H200) == pytest.approx(0.5)
    assert traffic.roofline_seconds(H200) == pytest.approx(1)
    assert Traffic(flops=66.9e12 * 2).roofline_seconds(H200) == pytest.approx(2)
    assert traffic.intensity == pytest.approx(66.9 / 2 / 4.8)
    assert traffic.launch_seconds() == 3 * LAUNCH_SECONDS and traffic.launch_seconds(1e-3) == pytest.approx(3e-3)


def test_at_the_ridge_both_roofs_meet():
    for unit in ("vector", "bf16", "fp8"):
        traffic = Traffic({"x": 1e9}, flops=1e9 * H200.ridge(unit))
        assert traffic.memory_seconds(H200) == pytest.approx(traffic.compute_seconds(H200, unit))


def test_nothing_at_all():
    nothing = Traffic()
    assert (nothing.bytes, nothing.intensity, nothing.roofline_seconds(H200)) == (0, float("inf"), 0)


def test_a_unit_the_gpu_lacks():
    with pytest.raises(ValueError, match="unit: H200 has no matrix rate for 'fp4'"):
        Traffic(flops=1).compute_seconds(H200, "fp4")
