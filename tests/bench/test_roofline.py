"""bench/roofline.py and bench/sustained.py away from a GPU: what they time computes what it should."""

import pytest
import torch

from bench import roofline, sustained


@pytest.mark.parametrize("script", [roofline, sustained])
def test_everything_is_checked_at_tiny_sizes(script, capsys):
    assert script.main(["--dry"]) == 0


@pytest.mark.parametrize("script", [roofline, sustained])
@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU to time on")
def test_without_a_gpu_nothing_is_timed(script, capsys):
    assert script.main([]) == 2 and "no GPU to time on" in capsys.readouterr().err


@pytest.mark.parametrize("script", [roofline, sustained])
def test_a_strange_name_is_refused(script, capsys):
    with pytest.raises(SystemExit):
        script.main(["--only", "speed", "--dry"])
    assert "expected some of" in capsys.readouterr().err


def test_sizes_reach_from_10_kilobytes_to_a_gigabyte():
    works = list(roofline.memory(False))
    assert min(work.traffic.bytes for work in works) < 10_000 and max(work.traffic.bytes for work in works) > 1e9
    assert [work.shape[0] for work in roofline.matmuls(False)][::7] == [128, 16384]
    assert {work.shape[0] for work in roofline.layer(False)} >= {1, 4096}


def test_a_wrong_kernel_is_not_timed(monkeypatch):
    monkeypatch.setattr(roofline, "add", lambda x, y: x - y)
    with pytest.raises(AssertionError, match="add"):
        roofline.main(["--dry", "--only", "memory"])
