"""The README's table of measured figures, written between its markers from bench/results/h200.json.

python bench/table.py            write it
python bench/table.py --check    exit 1 where the README shows something else
"""

import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from instruments import results
from instruments.files import between, write_whole
from instruments.results import Case, Figures

README = ROOT / "README.md"
BEGIN, END = "<!-- results:begin -->\n", "<!-- results:end -->\n"
NOTHING = "No figures are recorded yet.\n"
NAMES = {
    "bytes-first": "this course",
    "bytes-first, gluon": "its Gluon kernel",
    "torch": "torch",
    "cudnn": "cuDNN",
    "fa2": "FA2",
    "flex": "FlexAttention",
    "torch.compile": "torch.compile",
    "torch.compile, max-autotune": "max-autotune",
    "liger": "Liger",
    "eager ops": "eager ops",
    "loop": "a loop",
}


def _rows(cases: list[Case], figure: Callable) -> str:
    """One Markdown table: a line per case, a column per implementation, the best of figure(case, name) bold."""
    names = [name for name in NAMES if any(name in case.impl for case in cases)]
    lines = [
        "| kernel | shape | dtype | " + " | ".join(NAMES[name] for name in names) + " |",
        "|---|---|---|" + "---:|" * len(names),
    ]
    for case in cases:
        figures = {name: figure(case, name) for name in names if name in case.impl}
        best = max(figures.values(), default=None)
        cells = ["" if name not in figures else f"{figures[name]:,.0f}" for name in names]
        cells = [f"**{cell}**" if figures.get(name) == best else cell for name, cell in zip(names, cells)]
        shape = " x ".join(f"{size:,}" for size in case.shape)
        lines.append(f"| {case.kernel} | {shape} | {case.dtype} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _waits_for_arithmetic(case: Case, recorded: Figures) -> bool:
    """Whether a case has more FLOPs to a byte than the measured roofs, of matrix products and of copying, are apart."""
    ridge = recorded.matmul_tflops["bf16"] * 1e12 / (recorded.copy_gbps * 1e9)
    return case.flops / case.bytes > ridge


def table() -> str:
    """The tables in Markdown, or one sentence where nothing is recorded."""
    if "h200" not in results.recorded():
        return NOTHING
    recorded = results.load("h200")
    cases = [case for case in recorded.cases if NAMES.keys() & case.impl]  # a study of variants has none of them
    heavy = [case for case in cases if _waits_for_arithmetic(case, recorded)]
    text = _rows([case for case in cases if case not in heavy], Case.gbps)
    if heavy:
        text += "\nIn TFLOP/s, where arithmetic is the limit:\n\n" + _rows(heavy, Case.tflops)
    text += (
        f"\nMeasured on {recorded.provenance}. Copying a large tensor with torch reached "
        f"{recorded.copy_gbps:,.0f} GB/s there, read plus written.\n"
    )
    if any(timed.calls == 0 for case in cases for timed in case.impl.values()):
        long = sorted({case.kernel for case in cases if all(timed.calls for timed in case.impl.values())})
        text += (
            "\nA replay is to last a millisecond: 3 to 10 us of it pass between event and kernel. "
            + (f"That holds for {', '.join(long)}; all else" if long else "All of this")
            + " was timed before, in replays as short as 60 us, and calls of less than 200 us read 2 to 8% too slow.\n"
        )
    return text


def with_table(readme: str) -> str:
    """The README's text with the current table between the markers."""
    return between(readme, BEGIN, END, table())


def main() -> int:
    text = README.read_text(encoding="utf-8")
    current = with_table(text)
    if "--check" in sys.argv[1:]:
        if text != current:
            print("README.md does not show the figures of bench/results/h200.json: run python bench/table.py")
        return int(text != current)
    write_whole(README, current.encode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
