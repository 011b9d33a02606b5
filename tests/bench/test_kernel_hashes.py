"""Records that are older than their kernels: named, and stamped once."""

import shutil
import warnings

import msgspec
import pytest

from bench import kernel_hashes, table
from instruments import results

RECORDS = results.RESULTS
replace = msgspec.structs.replace


@pytest.fixture
def copy(tmp_path, monkeypatch):
    """A copy of the records to write into."""
    shutil.copytree(RECORDS, tmp_path / "results")
    monkeypatch.setattr(results, "RESULTS", tmp_path / "results")
    return tmp_path / "results"


def test_records_are_as_old_as_their_kernels():
    """Never fails for it: figures are measured on a GPU, kernels are changed anywhere."""
    stale, unstamped = kernel_hashes.stale_records()
    if stale:
        warnings.warn(
            f"{len(stale)} records are older than their kernels (bench/table.py --stale): {stale}", stacklevel=1
        )
    if unstamped:
        warnings.warn(f"records without a hash: {len(unstamped)} (bench/table.py --stamp)", stacklevel=1)


def test_a_stamp_fills_what_is_empty_and_a_change_is_named(copy, capsys):
    assert table.main(["--stamp", "--all"]) == 0
    assert kernel_hashes.stale_records() == ([], []) and table.main(["--stale"]) == 0
    text = {path: path.read_bytes() for path in copy.rglob("*.json")}
    assert kernel_hashes.stamp_files() == kernel_hashes.stamp_files(every=True) == 0
    assert {path: path.read_bytes() for path in copy.rglob("*.json")} == text

    figures = results.read(copy / "h200.json")
    old, bare, *others = figures.cases
    assert old.kernel_hash and figures.machine.kernel_hashes.keys() >= {"latency", "accumulator"}
    changes = [replace(old, kernel_hash="0" * 12), replace(bare, kernel_hash=""), *others]
    results.store(replace(figures, cases=changes), copy / "h200.json")
    capsys.readouterr()
    assert table.main(["--stale"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"h200: case {old.name}: its kernel has changed since it was timed"
    assert lines[1].startswith("records without a hash: 1;") and len(lines) == 2
    assert kernel_hashes.stamp_files() == 1
    assert kernel_hashes.stale_records() == ([f"h200: case {old.name}"], [])
    assert results.read(copy / "h200.json").cases[1] == bare


def test_records_of_several_gpus_are_stamped_too(copy):
    kernel_hashes.stamp_files(every=True)
    path = next((copy / "parallel").iterdir())
    assert set(results.read(path, results.Parallel).kernel_hashes) == {"same", "steps", "timelines"}


def test_every_case_with_a_kernel_of_the_course_has_a_hash():
    hashes = kernel_hashes.hashes_today()
    assert all(text for key, text in hashes.items() if key[0] == "case")
    assert {key[2] for key, text in hashes.items() if not text} <= {"eager ops", "torch", "cublaslt"}
