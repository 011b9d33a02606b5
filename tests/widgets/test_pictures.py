from tests.figures import case
from widgets.pictures import (
    bytes_and_launches,
    counts,
    curves,
    errors_by_width,
    four_numbers,
    neighbours,
    passes,
    tile_and_strips,
)


def test_four_numbers_are_said_and_gaps_left_out():
    said = four_numbers({"naive": (7, None, None, 13.64), "resident": (2, 3, 1.98, 2.07)}, "Four", "In |x|").sentence
    assert said == (
        "In |x|: naive predicted 7.00, timed 13.64; "
        "resident predicted 2.00, requested 3.00, moved (counters) 1.98, timed 2.07."
    )


def test_errors_by_width():
    panel = errors_by_width([256, 512, 1024], {"sequential": [0.01, 0.1, 0.5]}, "Sums", "Error")
    assert panel.png and panel.sentence == "Error: sequential 10.0% at 512."


def test_names_of_curves_that_end_together_do_not_overlap():
    ticks = {1: "1", 100: "100"}
    lines = {"one": [1, 50], "two": [2, 51], "three": [3, 50.5], "gone": [99, None]}
    panel = curves([1, 100], lines, "Four", "Four lines.", ("x", ticks), ("y", ticks))
    assert panel.png and panel.sentence == "Four lines."
    (axes,) = panel.figure.axes
    boxes = [text.get_window_extent() for text in axes.texts]
    assert [text.get_text() for text in axes.texts] == ["y", "one", "three", "two", "gone"]
    assert not any(a.overlaps(b) for a in boxes for b in boxes if a is not b)


def test_neighbours_are_fp32_numbers():
    panel = neighbours({"exact": 1e8, "one more": 1e8 + 1}, "Apart", "Numbers near 100,000,000 are 8 apart.")
    said = [text.get_text() for text in panel.figure.axes[0].texts]
    assert {"99,999,992", "100,000,000", "100,000,008", "8 apart", "exact", "one more"} <= set(said)


def test_passes_and_counts():
    panel = passes({"kept": ["read", "write y"], "streamed": ["read", "read", "write y"]}, "Passes", "Two and three.")
    assert [bar.get_x() for bar in panel.figure.axes[0].patches] == [0, 1, 0, 1, 2] and panel.png
    assert counts({-8: 3, 0: 4}, (1, "all seven"), "Counts", "None is 1.", "value", "rows").png


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
