import pytest

from instruments import results
from instruments.gpus import DTYPES, GPUS
from tests.figures import case, figures
from widgets import roofline
from widgets.panels.roofline import PRESETS, YOURS, _group

RECORDED = figures(
    case("rmsnorm", (8192, 8192), 268451840, 268443648, {"bytes-first": 67, "torch": 107}),
    case("copy", (8192, 8192), 268435456, 0, {"bytes-first": 64}),
    case("rmsnorm", (1, 4096), 24576, 16388, {"bytes-first": 2.1}),
    case("rmsnorm", (1, 64), 1, 1, {"torch": 1}),
)


@pytest.fixture
def recorded(tmp_path, monkeypatch):
    results.store(RECORDED, tmp_path / "h200.json")
    monkeypatch.setattr(results, "RESULTS", tmp_path)
    results.load.cache_clear()
    yield
    results.load.cache_clear()


@pytest.fixture
def unrecorded(tmp_path, monkeypatch):
    monkeypatch.setattr(results, "RESULTS", tmp_path)
    results.load.cache_clear()
    yield
    results.load.cache_clear()


def _texts(panel) -> list:
    return [t.get_text() for t in panel.figure.findobj(lambda artist: hasattr(artist, "get_text")) if t.get_visible()]


def test_matrix_units_and_elementwise_code_have_ridges_of_their_own():
    panel = roofline(gpu="H100", look_at="vector add")
    assert "memory-bound on the H100, at least" in panel.alt
    assert "The tensor cores' ridge point, 295, does not apply" in panel.alt
    assert {"ridge point 20", "ridge point 295, datasheet"} <= set(_texts(panel))


def test_gemm_crosses_the_ridge_with_its_size():
    panel = roofline(look_at="GEMM", n=256)
    said = panel.alt
    assert (
        ": 85.3 FLOP/B, memory-bound on the H200" in said
        and "left of the ridge point of 159 for its bf16 tensor cores (measured)" in said
    )
    panel.set(n=4096)
    assert "1,365 FLOP/B, compute-bound" in panel.alt and "137 GFLOP over 101 MB, right of" in panel.alt
    assert "compute-bound on the H200, at least 201 µs." in panel.alt
    assert "ridge point 206, datasheet" in _texts(panel.set(measured=False)) and "at least 139 µs" in panel.alt


def test_your_own_work():
    panel = roofline(look_at=YOURS).set(flops=3e9, nbytes=1.5e8)
    assert (
        "Your own work: 20 FLOP/B, compute-bound" in panel.alt
        and "3 GFLOP over 150 MB, right of the ridge point of 15.6" in panel.alt
    )
    panel.set(unit="matrix")
    assert "left of the ridge point of 159 for its bf16 tensor cores (measured)" in panel.alt
    before = panel.png
    panel.set(flops=12345)
    assert panel.png != before and "12.3 kFLOP" in panel.alt


def test_points_share_a_label_where_they_are_near_in_both_directions():
    points = {"a": (1, 1e12), "b": (1.2, 1.2e12), "above b": (1.3, 9e12), "right of it": (4, 9e12)}
    assert [names for names, *_ in _group(points)] == [["a", "b"], ["above b"], ["right of it"]]


def test_a_gpu_without_the_matrix_instruction_says_so():
    panel = roofline(gpu="T4", look_at="GEMM")
    assert "The T4 has no tensor core instruction for bf16" in panel.alt
    panel.set(dtype="fp16")
    assert "fp16 tensor cores" in panel.alt and "no tensor core instruction" not in panel.alt
    assert "tf32 tensor cores" in roofline(gpu="A100", dtype="fp32", look_at="GEMM").alt


def test_measured_points_come_with_their_origin(recorded):
    panel = roofline()
    # 268,451,840 bytes at the recorded 4,256 GB/s are 63 of the 67 us taken. The single row is small, and work without
    # FLOPs has no place on this picture.
    assert "Measured there: kernels that move more than L2 holds reach 94% of their roof." in panel.alt
    assert any("NVIDIA H200, torch 2.11.0, triton 3.6.0, 2026-01-02" in text for text in _texts(panel))
    with_points = panel.png
    panel.set(measured=False)
    assert panel.png != with_points and "Measured" not in panel.alt
    assert any("no measurements are recorded for the L4" in text for text in _texts(roofline(gpu="L4")))


def test_without_a_record_it_says_so(unrecorded):
    panel = roofline()
    assert "Measured" not in panel.alt
    assert "no measurements are recorded for the H200" in _texts(panel)


def test_all_of_it_draws():
    panel = roofline()
    for gpu in GPUS:
        for dtype in DTYPES:
            for n in (64, 16384):
                for name in (*PRESETS, YOURS):
                    panel.set(gpu=gpu, dtype=dtype, n=n, look_at=name)
                    assert name.split(",")[0].lower().replace(YOURS, "your own work") in panel.alt.lower()


def test_bad_arguments_name_themselves():
    with pytest.raises(ValueError, match="gpu: got 'V100', expected one of T4"):
        roofline(gpu="V100")
    with pytest.raises(ValueError, match="look_at: got 'conv', expected one of vector add"):
        roofline(look_at="conv")
    with pytest.raises(ValueError, match="n: got 1"):
        roofline(n=1)
