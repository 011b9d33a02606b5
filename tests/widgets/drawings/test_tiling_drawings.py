from widgets.drawings.tiling import (
    bytes_in_launches,
    gains,
    ladder,
    naive_reads,
    peak_split,
    pipeline,
    tile_in_wgmma,
    tiles_on_roofline,
    wave_rows,
    waves_measured,
)


def test_naive_reads_names_the_sectors():
    assert naive_reads().png and "lie in 16 sectors" in naive_reads().alt


def test_the_pipeline_adds_up_its_own_lengths():
    panel = pipeline(steps=6, load=1.6, dot=1.0)
    assert panel.png and "6 steps take 7.6 units instead of 15.6" in panel.alt


def test_a_last_wave_of_one():
    assert wave_rows(133, 132, "T").alt.endswith("The last wave has 1 program, so 131 SMs are idle.")
    assert "run in 4 waves. The last wave has 132 programs, so 0 SMs are idle" in wave_rows(528, 132, "T").alt


def test_a_tile_in_instructions():
    panel = tile_in_wgmma(128, 256, 64, rows=64, deep=16)
    assert panel.png and "2 warpgroups owns 64 rows of accumulators and issues 4 instructions m64n256k16" in panel.alt


def test_tiles_on_the_roofline_say_their_numbers():
    panel = tiles_on_roofline({"16 x 16": (8.0, 4e12, 0, (9, 0))}, 4e12, 6e14, "T", "A", 66.9e12)
    assert panel.png and panel.alt == "A. 16 x 16 4 TFLOP/s at 8 FLOP/byte. The CUDA cores' peak is 66.9 TFLOP/s."


def test_measured_waves_draw_each_tile():
    series = {"a": [(1, 100.0), (132, 100.0), (133, 200.0)], "b": [(1, 90.0), (264, 91.0)]}
    called = {"a": {133: ("right", -4, 9)}, "b": {}}
    assert waves_measured(series, {"a": 132, "b": 264}, called, "T", "Steps.").alt == "Steps."


def test_the_ladder_says_its_times():
    panel = ladder({"dot": 2400.0, "tile": 30.5, "cores": 3.38}, {"reuse": 2, "units": 1}, "T", "A")
    assert panel.png and panel.alt == "A. dot 2,400; tile 30.5; cores 3.38."


def test_gains_multiply():
    panel = gains({"loads": 9.2, "tiles": 8.6, "cores": 9.0}, ["loads"], "T", "A")
    assert panel.png and panel.alt == "A. loads 9.20; tiles 8.60; cores 9.00. All together 712."


def test_launches_hold_their_bytes():
    panel = bytes_in_launches({"row by row": (7.32, 7.15), "in groups": (5.96, 0.1)}, "T", "A")
    assert panel.png and "row by row: launch 7.32 ms, DRAM bytes 7.15 ms; in groups: launch 5.96 ms" in panel.alt


def test_a_peak_splits_into_what_is_reached_and_what_is_lost():
    panel = peak_split({"random": (669, 795, 1470), "zeros": (790, 957, 1770)}, 989, "T", "A")
    assert panel.png and "random: 669 reached, 126 lost at the sampled clock, 194 lost to the lower" in panel.alt
    assert "zeros: 790 reached, 167 lost at the sampled clock, 32 lost to the lower" in panel.alt
