import json

import pytest

from instruments import results


@pytest.fixture
def recorded(tmp_path, monkeypatch):
    case = {"kernel": "rmsnorm", "shape": [8, 16], "dtype": "bf16", "bytes": 1, "flops": 2, "impl": {}}
    (tmp_path / "toy.json").write_text(
        json.dumps({"device": "Toy", "torch": "1", "triton": "2", "date": "2026-01-01", "cases": [case]})
    )
    monkeypatch.setattr(results, "RESULTS", tmp_path)
    results.load.cache_clear()
    yield case
    results.load.cache_clear()


def test_load_provenance_and_case(recorded):
    assert results.load("Toy")["device"] == "Toy"
    assert results.provenance("toy") == "Toy, torch 1, triton 2, 2026-01-01"
    assert results.case("rmsnorm", (8, 16), gpu="toy") == recorded


def test_what_is_not_recorded_is_said(recorded):
    with pytest.raises(ValueError, match="gpu: no figures are recorded for 'b200', expected one of: toy"):
        results.load("b200")
    with pytest.raises(ValueError, match="no record of rmsnorm .8, 32. bf16, expected one of: rmsnorm 8x16 bf16"):
        results.case("rmsnorm", (8, 32), gpu="toy")
