import pytest

from instruments import results
from instruments.gpus import DTYPES, GPUS
from tests.figures import case, figures
from widgets import roofline
from widgets.roofline import PRESETS, YOURS

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
    assert "left of the H100's ridge of 20 for its fp32 vector units, so memory-bound" in panel.sentence
    assert "The matrix units' ridge, 295, is not this code's" in panel.sentence
    assert {"ridge 20", "ridge 295"} <= set(_texts(panel))


def test_gemm_crosses_the_ridge_with_its_size():
    panel = roofline(look_at="GEMM", n=256)
    said = panel.sentence
    assert "is 85.3 FLOP/B, left of the H200's ridge of 206 for its bf16 matrix units, so memory-bound" in said
    panel.set(n=4096)
    assert "137 GFLOP over 101 MB is 1,365 FLOP/B, right of" in panel.sentence
    assert "compute-bound: at least 139 µs." in panel.sentence


def test_your_own_work():
    panel = roofline(look_at=YOURS).set(flops=3e9, nbytes=1.5e8)
    assert "Your own work: 3 GFLOP over 150 MB is 20 FLOP/B, right of the H200's ridge of 13.9" in panel.sentence
    panel.set(unit="matrix")
    assert "left of the H200's ridge of 206 for its bf16 matrix units" in panel.sentence
    before = panel.png
    panel.set(flops=12345)
    assert panel.png != before and "12.3 kFLOP" in panel.sentence


def test_a_gpu_without_the_matrix_instruction_says_so():
    panel = roofline(gpu="T4", look_at="GEMM")
    assert "The T4 has no matrix instruction for bf16" in panel.sentence
    panel.set(dtype="fp16")
    assert "fp16 matrix units" in panel.sentence and "no matrix instruction" not in panel.sentence
    assert "tf32 matrix units" in roofline(gpu="A100", dtype="fp32", look_at="GEMM").sentence


def test_measured_points_come_with_their_origin(recorded):
    panel = roofline()
    # 268,451,840 bytes at 4.8 TB/s are 55.9 of the 67 us taken. The single row is small, and work without FLOPs has
    # no place on this picture.
    assert "Measured there: kernels that move more than L2 holds reach 83% of their roof." in panel.sentence
    assert any("NVIDIA H200, torch 2.11.0, triton 3.6.0, 2026-01-02" in text for text in _texts(panel))
    with_points = panel.png
    panel.set(measured=False)
    assert panel.png != with_points and "Measured" not in panel.sentence
    assert any("no measurements are recorded for the L4" in text for text in _texts(roofline(gpu="L4")))


def test_without_a_record_it_says_so(unrecorded):
    panel = roofline()
    assert "Measured" not in panel.sentence
    assert "no measurements are recorded for the H200" in _texts(panel)


def test_all_of_it_draws():
    panel = roofline()
    for gpu in GPUS:
        for dtype in DTYPES:
            for n in (64, 16384):
                for name in (*PRESETS, YOURS):
                    panel.set(gpu=gpu, dtype=dtype, n=n, look_at=name)
                    assert name.split(",")[0].lower().replace(YOURS, "your own work") in panel.sentence.lower()


def test_bad_arguments_name_themselves():
    with pytest.raises(ValueError, match="gpu: got 'V100', expected one of T4"):
        roofline(gpu="V100")
    with pytest.raises(ValueError, match="look_at: got 'conv', expected one of vector add"):
        roofline(look_at="conv")
    with pytest.raises(ValueError, match="n: got 1"):
        roofline(n=1)
