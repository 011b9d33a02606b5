from tests.widgets.tools import moves
from widgets import launch_lanes


def test_a_kernel_shorter_than_a_launch_waits():
    panel = launch_lanes(kernel=3)
    assert "launch-bound" in panel.alt and "3 µs on the GPU" in panel.caption
    assert "idle 64% of the time" in panel.caption  # 1 - 3 / 8.35
    assert "idle 6% of the time" in panel.set(kernel=12).alt and "launches are hidden" in panel.alt


def test_a_graph_needs_one_call():
    assert "one call on the host starts all 6 kernels" in launch_lanes(3, "CUDA graph").alt
    moves(launch_lanes(3), kernel=9, how="CUDA graph")
