"""bench/cases/: a file per family is all that the bench, the memory checker and the counters need."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from bench import counters
from bench.cases import cases, counter_calls, families
from instruments import results

ROOT = Path(__file__).resolve().parents[2]


def listed(script: str, *more: str) -> list:
    ran = [sys.executable, ROOT / "bench" / script, "--list", *more]
    return subprocess.run(ran, capture_output=True, text=True, check=True).stdout.splitlines()


def test_no_name_comes_twice():
    names = [case.name for case in cases()]
    assert len(set(names)) == len(names)


def test_what_is_recorded_still_has_its_case():
    """A figure whose case was renamed would never be measured again."""
    recorded = results.load("h200")
    assert {case.name for case in recorded.cases} <= {case.name for case in cases()}
    launches = {(launch.kernel, launch.variant, launch.shape) for launch in counter_calls()}
    assert {(c.kernel, c.variant, c.shape) for c in recorded.counters} <= launches


def test_the_bench_lists_its_cases_without_a_gpu():
    assert listed("run.py") == [case.name for case in cases()]


def test_the_memory_checker_lists_every_family_without_a_gpu():
    assert {name.split()[0] for name in listed("sanitize.py")} == set(families())


def test_a_part_of_the_launches_can_be_named():
    assert {name.split()[0] for name in listed("sanitize.py", "--only", "copy,reduce")} == {"copy", "reduce"}
    assert {launch.kernel for launch in counters.selection("copy, rmsnorm")} == {"copy", "rmsnorm"}
    assert len(counters.selection("")) == len(counter_calls())


@pytest.mark.parametrize("name", families())
def test_what_the_memory_checker_launches_runs(name):
    family = families()[name]
    family.sanitize(*family.RAGGED[0], torch.bfloat16)
