"""bench/run.py and bench/machine.py add to what is recorded; here nothing is measured, so no GPU is needed."""

import subprocess

import msgspec
import pytest
import torch

from bench import machine, run
from instruments import results
from instruments.gpus import dtype_name
from instruments.results import Banks, Launches
from tests.figures import case, figures

replaced = msgspec.structs.replace
BEFORE = figures(
    case("rmsnorm", (8192, 8192), 1000, 500, {"bytes-first": 2, "torch": 4}),
    case("copy", (8192, 8192), 1000, 0, {"bytes-first": 2, "torch": 2}),
    case("gone", (1, 1), 1000, 0, {"bytes-first": 2}),
)
BANKS = Banks(phases=1, passes=32, programs=8, rounds=2, us=1, us_p20=1, us_p80=1)


@pytest.fixture
def recorded(tmp_path, monkeypatch):
    """A file of figures, and scripts that find a GPU of its kind, two months later, and invent what they measure."""
    path = tmp_path / "h200.json"
    results.store(BEFORE, path)
    ran = {name: getattr(BEFORE, name) for name in ("device", "driver", "torch", "triton")}
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    for script in (run, machine):
        monkeypatch.setattr(script, "versions", lambda: {**ran, "driver": "590", "date": "2026-03-02"})
    monkeypatch.setattr(run, "liger", lambda: BEFORE.liger)
    roofs = {"copy_gbps": 1.0, "matmul_tflops": {"bf16": 1.0}, "launch_us": Launches(triton_empty=1, torch_add=1)}
    monkeypatch.setattr(run, "roofs", lambda: roofs)

    def measure(of, absent):
        us = {name: 3 if name == "torch" else 1.9 for name in of.implementations}
        return case(of.kernel, of.shape, 1000, 0, us, dtype_name(of.dtype))

    monkeypatch.setattr(run, "measure", measure)
    monkeypatch.setattr(machine, "PARTS", {"programs": lambda small: [], "banks": lambda small: [BANKS]})
    return path


def test_a_run_of_some_cases_keeps_the_others_and_the_roofs(recorded):
    assert run.main(["--only", "copy 8192", "--json", str(recorded)]) == 0
    after = results.read(recorded)
    copied, norm, gone = after.cases
    assert copied.us("bytes-first") == 1.9 and after.date == "2026-03-02"
    assert replaced(after, date=BEFORE.date, cases=[norm, BEFORE.cases[1], gone]) == BEFORE


def test_a_whole_run_replaces_cases_and_roofs_and_keeps_what_other_scripts_recorded(recorded):
    assert run.main(["--json", str(recorded)]) == 0
    after = results.read(recorded)
    assert after.copy_gbps == 1 and after.driver == "590"
    assert [c.name for c in after.cases] == [c.name for c in run.bench_cases.cases()]
    assert (after.counters, after.machine) == (BEFORE.counters, BEFORE.machine)


def test_the_first_run_needs_no_file(recorded):
    new = recorded.parent / "new" / "figures.json"
    assert run.main(["--only", "copy", "--json", str(new)]) == 0
    after = results.read(new)
    assert after.copy_gbps == 1 and {c.kernel for c in after.cases} == {"copy"} and after.machine is None


def test_a_slower_or_wrong_or_missing_kernel_fails_and_is_recorded(recorded, monkeypatch, capsys):
    slow = case("copy", (8192, 8192), 1000, 0, {"bytes-first": 3})
    wrong = replaced(slow, impl={"bytes-first": replaced(slow.of("bytes-first"), error=0.5)})
    monkeypatch.setattr(run, "measure", lambda of, absent: wrong)
    assert run.main(["--only", "copy 8192", "--json", str(recorded)]) == 1
    assert results.read(recorded).case("copy", 8192, 8192) == wrong
    told = capsys.readouterr().err
    assert "copy 8192x8192 bf16, bytes-first: error 5.0e-01, limit" in told and "GB/s, recorded 0" in told
    assert run.complaints(replaced(slow, impl={}), ["bytes-first"], slow) == [
        "copy 8192x8192 bf16: bytes-first has no figures"
    ]


def test_figures_of_other_versions_are_not_mixed(recorded, monkeypatch, capsys):
    monkeypatch.setattr(run, "liger", lambda: None)
    before = recorded.read_bytes()
    with pytest.raises(SystemExit) as stopped:
        run.main(["--only", "copy", "--json", str(recorded)])
    assert stopped.value.code == 2 and recorded.read_bytes() == before
    assert "liger is None here and 0.8.5 in the recorded figures" in capsys.readouterr().err


def test_parts_of_the_machine_keep_the_others(recorded):
    assert machine.main(["--only", "banks", "--json", str(recorded)]) == 0
    after = results.read(recorded)
    assert after.machine.banks == [BANKS] and after.machine.date == "2026-03-02"
    kept = replaced(after.machine, banks=[], date=BEFORE.machine.date)
    assert replaced(after, machine=kept) == BEFORE


def test_the_whole_machine_replaces_every_part(recorded):
    assert machine.main(["--json", str(recorded)]) == 0
    after = results.read(recorded).machine
    assert (after.programs, after.banks, after.driver) == ([], [BANKS], "590")


def test_the_machine_needs_the_file_that_run_makes(recorded, capsys):
    with pytest.raises(SystemExit) as stopped:
        machine.main(["--json", str(recorded.parent / "none.json")])
    assert stopped.value.code == 2
    assert "none.json: no such file; bench/run.py makes it" in capsys.readouterr().err


def test_versions_are_plain_words(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA H200")
    monkeypatch.setattr(run.subprocess, "run", lambda *_, **__: subprocess.CompletedProcess((), 0, "580\n"))
    found = run.versions()
    assert {type(word) for word in found.values()} == {str} and found["driver"] == "580"
