"""The figures recorded under bench/results/, with the device, the versions and the date they were measured with.

Every measured number that a lesson, a panel or the README shows is read from here.
"""

import json
from functools import cache
from pathlib import Path

RESULTS = Path(__file__).resolve().parents[1] / "bench" / "results"


@cache
def load(gpu: str = "h200") -> dict:
    """The recorded figures of one GPU, as bench/run.py wrote them (see its docstring for the fields)."""
    path = RESULTS / f"{gpu.lower()}.json"
    if not path.exists():
        have = ", ".join(sorted(p.stem for p in RESULTS.glob("*.json"))) or "none"
        raise ValueError(f"gpu: no figures are recorded for {gpu!r}, expected one of: {have}")
    return json.loads(path.read_text())


def provenance(gpu: str = "h200") -> str:
    """One line for captions: device, versions, date."""
    r = load(gpu)
    return f"{r['device']}, torch {r['torch']}, triton {r['triton']}, {r['date']}"


def case(kernel: str, shape, dtype: str = "bf16", gpu: str = "h200") -> dict:
    """One recorded case: {'kernel', 'shape', 'dtype', 'bytes', 'flops', 'impl': {implementation: figures}}."""
    for c in load(gpu)["cases"]:
        if c["kernel"] == kernel and tuple(c["shape"]) == tuple(shape) and c["dtype"] == dtype:
            return c
    known = sorted({f"{c['kernel']} {'x'.join(map(str, c['shape']))} {c['dtype']}" for c in load(gpu)["cases"]})
    raise ValueError(
        f"kernel, shape, dtype: no record of {kernel} {tuple(shape)} {dtype}, expected one of: " + ", ".join(known)
    )
