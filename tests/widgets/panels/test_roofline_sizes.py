from tests.widgets.corners import faults
from widgets import roofline_sizes
from widgets.panels.roofline_sizes import KERNELS, SIZES, series


def test_kernels_come_with_their_sizes():
    panel, pictures = roofline_sizes(), set()
    for step in range(1, len(SIZES) + 1):
        panel.set(step=step)
        pictures.add(panel.png)
        assert faults(panel.figure) == [], step
    assert len(pictures) == len(SIZES)
    assert all(name in panel.alt for name in ("add of 1.61 GB", "RMSNorm of 1.07 GB", "matmul of 1.61 GB"))


def test_series_grow():
    for kernel in KERNELS:
        sizes = [point.bytes for point in series(kernel)]
        assert sizes == sorted(sizes) and len(set(sizes)) == len(sizes) >= 8, kernel
