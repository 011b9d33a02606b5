from widgets import split_k_bytes


def test_waves_and_partial_sums_by_hand():
    panel = split_k_bytes(64, 64, 65536, 32)
    assert "32 programs in 1 wave of 132, 24% of the slots" in panel.alt
    assert 32 * 64 * 64 * 4 * 2 == 1_048_576 and "add 1.05 MB with 32 parts, 6.2%" in panel.alt
    assert "no bytes with 1 part," in panel.set(parts=1).alt
    whole = split_k_bytes(2048, 2048, 4096, 1).alt  # 1,024 tiles in eight waves, so 1,056 places for 34.4 GFLOP
    assert "1,024 programs in 8 waves of 132, 97% of the slots" in whole
    assert "34.7 µs for the FLOPs, 35.8 µs for whole tiles" in whole


def test_every_control_changes_the_picture():
    panel = split_k_bytes(64, 64, 65536, 8)
    pictures = {panel.png}
    for change in ({"M": 2048}, {"N": 4096}, {"K": 8192}, {"parts": 2}, {"tile": "128 x 256"}, {"gpu": "A100"}):
        before = len(pictures)
        pictures.add(panel.set(**change).png)
        assert len(pictures) == before + 1, change
