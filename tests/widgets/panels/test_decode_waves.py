from widgets import decode_waves


def test_bytes_programs_and_waves_by_hand():
    panel = decode_waves(17, 8192, 4)
    assert "17 sequences: 544 programs in 3 waves of 264, 69%" in panel.alt  # 17 * 8 * 4 programs, two per SM of 132
    assert f"{17 * 8192 * 8 * 128 * 2 * 2 / 1e6:.0f}" == "570" and "takes 570 MB" in panel.alt
    assert "no bytes" in panel.set(splits=1).alt and "136 programs in 1 wave" in panel.alt


def test_every_control_changes_the_picture():
    panel = decode_waves(4, 8192, 2)
    pictures = {panel.png}
    changes = {"sequences": 8}, {"keys": 16384}, {"splits": 8}, {"heads": "32 heads, 32 KV"}, {"gpu": "A100"}
    for change in changes:
        before = len(pictures)
        pictures.add(panel.set(**change).png)
        assert len(pictures) == before + 1, change


def test_the_kernel_chooses_enough_splits_to_fill_the_gpu():
    assert "would choose 32." in decode_waves(1, 32768, 32).alt and "97% of the slots" in decode_waves(1, 32768, 32).alt
