from instruments.results import Latency
from widgets.drawings.execution import (
    cluster_row,
    mask_over_a_row,
    one_load,
    resident_programs,
    row_ends,
    strides_of_views,
    sum_across_warps,
    waits,
)


def test_each_says_what_it_draws():
    assert "keeps three offsets, which belong to the next row" in mask_over_a_row().alt
    assert "strides are (6, 1), (1, 6) and (6, 2)" in strides_of_views().alt
    assert "through L1, in its SM, and L2 to HBM" in one_load().alt
    assert "a cluster of 4 blocks" in cluster_row().alt and "keeps its 128 KiB in shared memory" in cluster_row().alt
    drawings = mask_over_a_row, strides_of_views, one_load, cluster_row
    assert all(drawing().png and drawing().caption for drawing in drawings)


def test_waits_name_the_steps():
    records = [Latency(bytes=n, cycles=c, ns=c / 2) for n, c in ((1 << 14, 40.2), (1 << 22, 289.5), (1 << 30, 700.4))]
    panel = waits(records, {"L1": 256 * 1024, "L2": 60 * 2**20})
    assert panel.png and "40 where it runs over 16.4 KB, 290" in panel.alt
    assert panel.caption.endswith("climb around L1 (262 KB) and L2 (62.9 MB).")


def test_resident_programs_never_fill_the_places():
    panel = resident_programs(79.4, 516, 32)
    assert panel.png and panel.alt.endswith("so at most 7 are resident at a time, of 32 that fit.")


def test_the_end_of_a_row_says_what_each_number_of_columns_does():
    panel = row_ends({1001: "one thread is cut", 1000: "none\nis cut"})
    assert panel.png and panel.alt.endswith("1,001 columns: one thread is cut; 1,000 columns: none is cut.")


def test_a_sum_over_warps_takes_as_many_more_shuffles_as_the_warps_have_halvings():
    for warps, more in ((2, "1 more"), (4, "2 more")):
        assert f"spread over {warps} warps" in (alt := sum_across_warps(warps).alt) and more in alt
