import pytest

from widgets import epilogue_bytes, interleave_steps


def test_bytes_by_hand():
    panel = epilogue_bytes(1024, 1024, 1024, ("bias", "activation", "residual"))
    y = 1024 * 1024 * 2
    unfused, fused = 2 * y + y + 2 * y + 2048 + 2 * y + 3 * y, 2 * y + 2048 + 2 * y
    assert (round(unfused / 1e6), f"{fused / 1e6:.2f}") == (21, "8.39")
    assert "unfused 21 MB in 4 launches, fused 8.39 MB in one" in panel.alt
    assert "in 3 launches" in panel.set(parts=("swiglu",)).alt
    assert "Ratio 1." in panel.set(parts=()).alt


def test_every_control_changes_the_picture():
    panel = epilogue_bytes(1024, 1024, 1024, ("bias",))
    pictures = {panel.png}
    for change in ({"tokens": 64}, {"K": 8192}, {"N": 4096}, {"parts": ("residual",)}, {"gpu": "A100"}):
        before = len(pictures)
        pictures.add(panel.set(**change).png)
        assert len(pictures) == before + 1, change


def test_each_step_of_interleaving_draws_more():
    assert len({interleave_steps(step).png for step in range(1, 5)}) == 4
    with pytest.raises(ValueError, match="step: got 5"):
        interleave_steps(5)
