from kernels.attention.fast_models import IN_ORDER, TURNS, copies, schedule
from widgets.drawings.attention import (
    attention_roles,
    attention_roofline,
    forward_tiles,
    grouped_heads,
    measured_in_range,
    program_order,
    tile_on_sm,
)


def test_the_drawings_say_what_they_show():
    drawn = {panel.title: panel.alt for panel in (forward_tiles(),)}
    assert "HBM holds q, k, v and out, and no scores." in drawn["The scores live for one tile"]
    assert grouped_heads().png and "query heads 0 and 1 share KV head 0" in grouped_heads().alt


def roofline():
    points = {
        "unfused": (62, 118, False, "left"),
        "requested": (64, 347, True, "right"),
        "least": (2048, 347, False, "center"),
    }
    return attention_roofline(4289, 684, points, "Attention on the roofline")


def roles():
    runs = {"in order": schedule(IN_ORDER, 3, 1, 256, 512), "in turns": schedule(TURNS, 3, 2, 256, 512)}
    loads = {name: copies(spans, 4, 128) for name, spans in runs.items()}
    return attention_roles(runs, loads, "Warpgroups over time", "A model")


def needs():
    units = {
        "tensor cores": ("4,096 FLOP per cycle", "two matmuls", 512),
        "SFUs": ("16 per cycle", "exponentials", 256),
    }
    return tile_on_sm(units, "A tile", "About")


def order():
    work = {"short first": [(0, 1), (1, 1), (1, 4)], "long first": [(1, 4), (0, 1), (1, 1)]}
    return program_order(work, 2, "Orders", "About")


def ranges():
    return measured_in_range(
        {"before": (1600, 500, 1300), "after": (900, 512, 1100)}, "A model", "About", "cycles", ("a", "b")
    )


def test_a_tile_and_an_order_say_their_numbers():
    assert needs().alt == "About. Cycles for one tile: tensor cores 512; SFUs 256."
    assert "short first: the last program ends at 5, perfect balance 3; long first: the last" in order().alt


def test_the_roofline_and_the_roles_say_their_numbers():
    assert "ridge point of 159 FLOP/byte" in roofline().alt and "least: 2,048 FLOP/byte, 347 TFLOP/s" in roofline().alt
    assert "in order: 3,072 cycles, tensor cores busy 50%" in roles().alt
    assert ranges().alt == "About. before 1,600, model 500 to 1,300; after 900, model 512 to 1,100."


def test_no_words_lie_on_others():
    for panel in (forward_tiles(), roofline(), roles(), needs(), order(), ranges()):
        boxes = [text.get_window_extent() for text in panel.figure.axes[0].texts]
        assert not any(one.overlaps(other) for at, one in enumerate(boxes) for other in boxes[:at])
        assert all(panel.figure.bbox.x0 <= box.x0 and box.x1 <= panel.figure.bbox.x1 for box in boxes)
