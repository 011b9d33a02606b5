"""bench/machine.py away from a GPU: its kernels compute what they should, in the interpreter."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

MACHINE = Path(__file__).resolve().parents[2] / "bench" / "machine.py"


def run(*options):
    return subprocess.run([sys.executable, MACHINE, *options], capture_output=True, text=True, timeout=300)


def test_every_part_checks_itself():
    done = run("--dry")
    assert done.returncode == 0, done.stderr
    for part in ("reads", "copy", "stages", "programs", "transpose", "divergence", "accumulator"):
        assert f"{part}: " in done.stdout


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU to time on")
def test_without_a_gpu_nothing_is_timed():
    done = run()
    assert done.returncode == 2 and "no GPU to time on" in done.stderr


def test_a_strange_part_is_named():
    done = run("--only", "reads,speed")
    assert done.returncode == 2 and "no part 'speed', expected some of latency, reads" in done.stderr
