import json

import msgspec
import pytest

from instruments import files, gpus, results
from tests.figures import case, figures

NORM = case("rmsnorm", (8, 16), 1000, 500, {"bytes-first": 2, "torch": 4})
replaced = msgspec.structs.replace


@pytest.fixture
def recorded(tmp_path, monkeypatch):
    monkeypatch.setattr(results, "RESULTS", tmp_path)
    results.store(figures(NORM), tmp_path / "toy.json")
    results.load.cache_clear()
    yield tmp_path / "toy.json"
    results.load.cache_clear()


@pytest.mark.parametrize("gpu", results.gpus_on_record())
def test_what_is_recorded_is_what_would_be_written(gpu):
    """No field is lost or renamed between reading and writing."""
    assert results.encode(results.load(gpu)) == (results.RESULTS / f"{gpu}.json").read_bytes()


@pytest.mark.parametrize("path", sorted(results.RESULTS.rglob("*.json")), ids=lambda path: path.stem)
def test_stored_files_have_a_record_a_line(path):
    """Every script of bench/ writes by `dumps`."""
    text = path.read_bytes()
    content = json.loads(text)
    assert results.dumps(content) == text
    for records in (content | (content.get("machine") or {})).values():
        for record in records if isinstance(records, list) else ():
            assert json.dumps(record).encode() in text


def test_a_record_is_one_line_and_what_holds_records_is_spread():
    content = {"date": "1", "units": {"us": 1}, "none": [], "machine": {"at": [2], "reads": [{"x": {"y": [1]}}, {}]}}
    lines = results.dumps(content | {"panels": {"a": {"ms": 1}}}).decode().splitlines()
    assert lines == [
        "{",
        ' "date": "1",',
        ' "units": {"us": 1},',
        ' "none": [],',
        ' "machine": {',
        '  "at": [2],',
        '  "reads": [',
        '   {"x": {"y": [1]}},',
        "   {}",
        "  ]",
        " },",
        ' "panels": {',
        '  "a": {"ms": 1}',
        " }",
        "}",
    ]
    with pytest.raises(ValueError):
        results.dumps({"us": float("nan")})


def test_figures_have_names(recorded):
    toy = results.load("Toy")
    assert toy == figures(NORM) and results.gpus_on_record() == ["toy"]
    assert toy.provenance == "NVIDIA H200, torch 2.11.0, triton 3.6.0, 2026-01-02"
    norm = toy.case("rmsnorm", 8, 16)
    assert norm.name == "rmsnorm 8x16 bf16"
    assert (norm.us("torch"), norm.called_us("torch"), norm.gbps("torch")) == (4, 14, 1000 / 4e3)
    assert (norm.tflops("torch"), norm.error("torch")) == (500 / 4e6, 1e-8)
    assert toy.counter("rmsnorm", "two_pass", 8, 16).dram_read == 3
    assert toy.machine.programs[0].ns_per_program == 1000


def test_sums_of_the_accumulator_have_names():
    record = results.Accumulator(data="normal", ratio=0, K=128, every=32, error=0.1, simulated=0.1, equal=1.0)
    machine = replaced(figures(NORM).machine, accumulator=[replaced(record, every=0), record])
    assert machine.sums("normal", 128, 32) is record
    with pytest.raises(ValueError, match="no record of normal, 64, 0, 0, expected .* normal, 128, 0; normal, 128, 32$"):
        machine.sums("normal", 64)


def test_what_is_not_recorded_is_said(recorded):
    toy = results.load("toy")
    with pytest.raises(ValueError, match="gpu: no figures are recorded for 'b200', expected one of: toy"):
        results.load("b200")
    with pytest.raises(ValueError, match="no record of rmsnorm 8x16 fp32, expected one of: rmsnorm 8x16 bf16"):
        toy.case("rmsnorm", 8, 16, dtype="fp32")
    with pytest.raises(ValueError, match="no record of 'liger' for rmsnorm 8x16 bf16, expected one of: bytes-first, t"):
        toy.case("rmsnorm", 8, 16).us("liger")
    with pytest.raises(
        ValueError, match="no counters of rmsnorm, naive, .* expected one of: rmsnorm, two_pass, .8, 16"
    ):
        toy.counter("rmsnorm", "naive", 8, 16)


@pytest.mark.parametrize(
    "change, said",
    [
        ({"schema_version": 2}, r"toy.json: .*schema_version"),
        ({"copy_gbps": "fast"}, r"Expected `float`, got `str` - at `\$.copy_gbps`"),
        ({"speed": 1}, "unknown field `speed`"),
        ({"cases": [{"kernel": "rmsnorm"}]}, r"missing required field `shape` - at `\$.cases\[0\]`"),
    ],
)
def test_a_file_of_another_kind_is_refused(recorded, change, said):
    recorded.write_text(json.dumps({**json.loads(recorded.read_bytes()), **change}))
    with pytest.raises(ValueError, match=said):
        results.load("toy")


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ValueError, match="none.json: no such file; bench/run.py makes it"):
        results.read(tmp_path / "none.json")


@pytest.mark.parametrize("copy_gbps", [float("nan"), "fast"])
def test_what_could_not_be_read_is_not_written(recorded, copy_gbps):
    before = recorded.read_bytes()
    with pytest.raises(ValueError):
        results.store(replaced(figures(NORM), copy_gbps=copy_gbps), recorded)
    assert recorded.read_bytes() == before


def test_an_interrupt_leaves_the_old_file_alone(recorded, monkeypatch):
    before = recorded.read_bytes()

    def full(_):
        raise OSError("no space left")

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(OSError, match="no space left"):
        results.store(figures(), recorded)
    assert recorded.read_bytes() == before and [*recorded.parent.iterdir()] == [recorded]


def test_the_file_is_named_after_the_card(monkeypatch):
    monkeypatch.setattr(gpus, "this_device", lambda: ("Tesla T4", 15_828_320_256))
    assert results.place() == results.RESULTS / "t4.json"


def test_rates_are_measured_where_both_were(recorded):
    assert results.rates("L4").source == "datasheet" and results.rates("L4").ridge == gpus.GPUS["L4"].ridge("bf16")
    assert results.as_measured("L4") == gpus.GPUS["L4"]
    results.store(figures(NORM), recorded.with_name("h200.json"))
    limits, card = results.rates("H200"), results.as_measured("H200")
    assert limits.source == "measured" and limits.bandwidth == card.bandwidth == figures().copy_gbps * 1e9
    assert limits.ridge == card.ridge("bf16") and card.peak("fp8") == gpus.GPUS["H200"].peak("fp8")
    assert results.rates("H200", "fp8").source == "datasheet"
