from widgets.drawings.roofline import intensities, memory_hierarchy, overlap, shared_weights, waiting


def test_the_memories_are_named_with_their_latency():
    panel = memory_hierarchy({"L1": 20.3, "L2": 146.2, "HBM": 353.7}, 4289.3, 8.35)
    assert "20 ns from L1, 146 ns from L2 and 354 ns from HBM" in panel.alt and panel.png


def test_one_weight_for_one_token_and_for_many():
    panel = shared_weights(64, 32, {"one": (1, "4 KB", "4 kFLOP", "1 FLOP/byte"), "many": (8, "5 KB", "32 kFLOP", "6")})
    assert "the same weight of 32 x 64 once. one: 4 KB, 4 kFLOP, 1 FLOP/byte; many" in panel.alt


def test_intensities_are_points():
    panel = intensities({"add": {"fp32": 1 / 12, "bf16": 1 / 6}, "matmul": {"bf16": 1365}}, "T", "About")
    assert panel.alt == "About. add 0.0833 in fp32, 0.167 in bf16; matmul 1,365 in bf16."
    assert panel.png


def test_loads_and_arithmetic_overlap():
    assert "loads the next tile while it computes on this one" in overlap().caption and overlap().png


def test_a_small_copy_waits_for_its_load():
    assert "HBM is busy for a moment only" in waiting().caption and waiting().png
