from tests.figures import case
from widgets.pictures import bytes_and_launches, tile_and_strips, way_to_registers


def test_bytes_and_launches_names_the_kernel_furthest_above_the_line():
    sizes = (((1, 64), 20_000, 2), ((512, 2**20), 2 * 10**9, 800), ((8, 8), 10**8, 27))
    panel = bytes_and_launches(
        [case("rmsnorm", shape, nbytes, 0, {"bytes-first": us}) for shape, nbytes, us in sizes],
        copy_rate=4e12,
        launch_seconds=8e-6,
    )
    assert "furthest above it, 1.6 times, is rmsnorm of 512 x 1,048,576" in panel.sentence
    assert "The smallest, 20 KB, takes 12 µs as called and 2 µs on the GPU." in panel.sentence


def test_tile_and_strips():
    panel = tile_and_strips()
    assert panel.png and "a strip of A, BLOCK_M rows and all of K" in panel.sentence


def test_the_way_to_registers_is_said():
    panel = way_to_registers({"kept": (1.0, 1.0, 2.0, "517 µs"), "twice": (1.1, 2.0, 3.0, "661 µs")}, "T", "A")
    assert panel.png and panel.sentence == (
        "A: kept 1.00 trips from DRAM to L2, 1.00 from L2 to L1, 2.00 from L1 to registers, 517 µs; "
        "twice 1.10 trips from DRAM to L2, 2.00 from L2 to L1, 3.00 from L1 to registers, 661 µs."
    )
