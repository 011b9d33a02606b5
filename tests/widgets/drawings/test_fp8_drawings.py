import pytest

from widgets.drawings.fp8 import (
    block_scaled_instructions,
    k_major,
    kept_bits,
    promotion,
    promotion_over_time,
    scale_layout,
    two_precisions,
)

DRAWN = {
    "kept_bits": lambda: kept_bits({"bf16": 8, "Hopper's FP8": 14, "fp32": 24}),
    "promotion": promotion,
    "promotion with scales": lambda: promotion(scales=True),
    "promotion_over_time": promotion_over_time,
    "k_major": k_major,
    "scale_layout": scale_layout,
    "block_scaled_instructions": block_scaled_instructions,
    "two_precisions": lambda: two_precisions(
        4289, {"bf16": 684, "FP8": 1368}, {"one": ((1, 4), (2, 8)), "cube": ((2731, 683), (4096, 1349))}, "Two roofs"
    ),
}


def test_the_drawings_say_what_they_show():
    assert "0 of them in bf16, 2 of them in Hopper's FP8, 8 of them in fp32" in DRAWN["kept_bits"]().alt
    assert "Every 128 columns the short sum is added" in promotion().alt
    assert "Every 128 columns the short sum is multiplied" in promotion(scales=True).alt
    assert "ridge points at 159 bf16, 319 FP8" in DRAWN["two_precisions"]().alt
    assert "busy 67% of the time drawn" in promotion_over_time().alt and "busy 94%" in promotion_over_time().alt
    assert "each lies 4 bytes after the one before it" in k_major().alt
    assert "line 1 those of rows 1, 33, 65 and 97" in scale_layout().alt


@pytest.mark.parametrize("draw", DRAWN.values(), ids=DRAWN)
def test_no_words_lie_on_others(draw):
    panel = draw()
    boxes = [text.get_window_extent() for text in panel.figure.axes[0].texts]
    assert not any(one.overlaps(other) for at, one in enumerate(boxes) for other in boxes[:at])
    assert all(panel.figure.bbox.x0 <= box.x0 and box.x1 <= panel.figure.bbox.x1 for box in boxes)
