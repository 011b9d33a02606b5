from instruments.results import Latency
from widgets.execution import execution_model, waits


def test_execution_model_says_what_it_draws():
    panel = execution_model(65_536, 132, rows=16, cols=128, warps=4, along=2, down=32)
    assert panel.png and panel.sentence.startswith("A grid of 65,536 programs; one of them on one of 132 SMs")
    assert "touch 2 sectors" in panel.sentence and "touch 32 and use 2 of 32 bytes" in panel.sentence


def test_waits_name_the_steps():
    records = [Latency(bytes=n, cycles=c, ns=c / 2) for n, c in ((1 << 14, 40.2), (1 << 22, 289.5), (1 << 30, 700.4))]
    panel = waits(records, {"L1": 256 * 1024, "L2": 60 * 2**20})
    assert panel.png and "40 where it runs over 16.4 KB, 290" in panel.sentence
    assert panel.sentence.endswith("it climbs around L1 (262 KB) and L2 (62.9 MB).")
