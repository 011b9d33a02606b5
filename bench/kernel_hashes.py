"""Which records are older than their kernels: the hashes that records store, compared with those of today's kernels."""

from functools import cache
from pathlib import Path

import msgspec

from bench import cases, expert_parallel, machine, roofline, sustained
from instruments import results
from instruments.results import Figures, Parallel

replace = msgspec.structs.replace


@cache
def hashes_today() -> dict[tuple, str]:
    """{key of a record, as `stored_hashes` has it: hash of the kernels that would be timed today}."""
    hashes = {("case", case.name): case.kernel_hash for case in cases.cases()}
    for kind, calls in (("counter", cases.counter_calls()), ("peak", cases.peak_calls())):
        hashes |= {(kind, call.kernel, call.variant, call.shape): call.kernel_hash for call in calls}
    hashes |= {("machine", part): text for part, text in machine.kernel_hashes().items()}
    hashes |= {("roofline", *key): text for key, text in roofline.kernel_hashes().items()}
    hashes |= {("sustained", *key): text for key, text in sustained.kernel_hashes().items()}
    return hashes | {("parallel", part): text for part, text in expert_parallel.kernel_hashes().items()}


def stored_hashes(figures: Figures | Parallel) -> dict[tuple, str]:
    """{key of each record: its hash, empty where it has none}. Parts of the machine have one hash for all records."""
    if isinstance(figures, Parallel):
        return {key: figures.kernel_hashes.get(key[1], "") for key in hashes_today() if key[0] == "parallel"}
    hashes = {("case", case.name): case.kernel_hash for case in figures.cases}
    hashes |= {("counter", c.kernel, c.variant, c.shape): c.kernel_hash for c in figures.counters}
    hashes |= {("peak", p.kernel, p.variant, p.shape): p.kernel_hash for p in figures.peaks}
    for kind in ("roofline", "sustained"):
        hashes |= {(kind, r.kernel, r.implementation, r.shape): r.kernel_hash for r in getattr(figures, kind)}
    if figures.machine:
        parts = [key for key in hashes_today() if key[0] == "machine" and getattr(figures.machine, key[1])]
        hashes |= {key: figures.machine.kernel_hashes.get(key[1], "") for key in parts}
    return hashes


def stale_records() -> tuple[list[str], list[str]]:
    """The names of records whose kernel has changed since they were timed, and of those that have no hash.

    Returns:
        (stale, unstamped). A record of a call that launches no kernel of the course is neither.
    """
    stale, unstamped = [], []
    for path, kind in _files():
        for key, text in stored_hashes(results.read(path, kind)).items():
            name = f"{path.stem}: {key[0]} {', '.join(map(str, key[1:]))}"
            today = hashes_today().get(key, "")
            if today and not text:
                unstamped.append(name)
            elif text and text != today:
                stale.append(name)
    return stale, unstamped


def stamp_files(every: bool = False) -> int:
    """Write today's hash into the records that have none, or into every record; how many changed."""
    changes = 0
    for path, kind in _files():
        figures = results.read(path, kind)
        new = stamp(figures, every)
        before, after = stored_hashes(figures), stored_hashes(new)
        changes += sum(before[key] != after[key] for key in before)
        results.store(new, path)
    return changes


def stamp(figures: Figures | Parallel, every: bool = False) -> Figures | Parallel:
    """The same figures with today's hash in each record that has none, or in every record."""
    stored = stored_hashes(figures)
    hashes = {key: text if text and not every else hashes_today().get(key, text) for key, text in stored.items()}
    if isinstance(figures, Parallel):
        return replace(figures, kernel_hashes={key[1]: text for key, text in hashes.items()})
    parts = {key[1]: text for key, text in hashes.items() if key[0] == "machine"}
    return replace(
        figures,
        cases=[replace(case, kernel_hash=hashes["case", case.name]) for case in figures.cases],
        counters=[replace(c, kernel_hash=hashes["counter", c.kernel, c.variant, c.shape]) for c in figures.counters],
        peaks=[replace(p, kernel_hash=hashes["peak", p.kernel, p.variant, p.shape]) for p in figures.peaks],
        roofline=[
            replace(p, kernel_hash=hashes["roofline", p.kernel, p.implementation, p.shape]) for p in figures.roofline
        ],
        sustained=[
            replace(r, kernel_hash=hashes["sustained", r.kernel, r.implementation, r.shape]) for r in figures.sustained
        ],
        machine=figures.machine and replace(figures.machine, kernel_hashes=parts),
    )


def _files() -> list[tuple[Path, type]]:
    """Every file of figures and its type."""
    paths = [(path, Figures) for path in sorted(results.RESULTS.glob("*.json"))]
    return paths + [(path, Parallel) for path in sorted((results.RESULTS / "parallel").glob("*.json"))]
