from widgets.drawings.epilogues import (
    accumulator_epilogue,
    added_time,
    deferred_row_scale,
    epilogue_over_time,
    packed_projections,
)


def test_the_picture_says_where_the_epilogue_works():
    assert "in registers" in accumulator_epilogue().alt and accumulator_epilogue().png


def test_packed_weights_and_idle_tensor_cores_are_counted():
    assert "weight of 6,144 rows" in packed_projections().alt and packed_projections().png
    assert "busy 71% of the time drawn" in epilogue_over_time().alt and "busy 91%" in epilogue_over_time().alt


def test_a_scale_in_the_epilogue_saves_a_pass_over_x():
    alt = deferred_row_scale().alt
    assert "reads it: three passes" in alt and "as it is: two passes" in alt and deferred_row_scale().png


def test_added_time_is_told_by_count_and_by_the_clock():
    rows = {"GELU": (25.2, 34.9, (27, 84)), "residual": (31.3, 40.1, (30, 55))}
    panel = added_time(rows, "What is added", "Time beyond the bare kernel", "µs", range(-40, 101, 20), strong=["GELU"])
    assert panel.png and panel.alt.startswith("Time beyond the bare kernel. GELU by count 25, measured 35; residual")
    assert panel.png != added_time(rows, "What is added", "Time beyond the bare kernel", "µs", range(-40, 101, 20)).png
