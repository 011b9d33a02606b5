"""docs/results.md: recorded figures, a section per lesson, written between its markers from bench/results/h200.json.

python bench/table.py            write it
python bench/table.py --check    exit 1 where it shows something else
python bench/table.py --stale    name the records whose kernels have changed since; exit 1 if there are any
python bench/table.py --stamp    give records without a hash that of today's kernels; with --all, every record

--stamp claims that the kernels of today are those that were timed: it is for records older than the hashes and, with
--all, for a change of names alone. The scripts that measure write the hash themselves.
"""

import argparse
import re
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from instruments import contents, results
from instruments.files import between, write_whole
from instruments.results import Case, Figures

PAGE = ROOT / "docs" / "results.md"
BEGIN, END = "<!-- results:begin -->\n", "<!-- results:end -->\n"
NOTHING = "No figures are recorded yet.\n"
#: The first pattern that a kernel's name begins with says to which lesson it belongs; others come last.
LESSONS = {
    r"copy": "01",
    r"row_sum": "02",
    r"matmul_bias_gelu|add$|pointwise|bias_gelu|swiglu(_backward)?$": "04",
    r"matmul_few_rows|matmul_long_k|matmul_waves": "10",
    r"matmul": "03",
    r"linear_cross_entropy|cross_entropy|adamw|embedding|sample": "12",
    r"weight_gradient|input_gradient": "13",
    r"linear|qkv|rmsnorm_linear": "07",
    r"rmsnorm_quantize|swiglu_quantize|quantize|dequantize|weight_only": "09",
    r"rmsnorm|add_rmsnorm": "05",
    r"layernorm": "05b",
    r"softmax|causal_softmax": "06",
    r"attention_backward": "08b",
    r"attention_decode": "08d",
    r"attention_limits|attention_steps": "08c",
    r"attention": "08",
    r"scaled_matmul|block_scaled|mx_": "09b",
    r"grouped_matmul|moe": "11",
}
NAMES = {
    "bytes-first": "this course",
    "bytes-first, gluon": "this course, Gluon",
    "torch": "torch",
    "bytes-first, no epilogue": "without epilogue",
    "bytes-first, matmul alone": "its matmul alone",
    "torch, fused": "torch, fused",
    "cublaslt": "cuBLASLt",
    "cudnn": "cuDNN",
    "fa2": "FA2",
    "flex": "FlexAttention",
    "torch.compile": "torch.compile",
    "torch.compile, max-autotune": "max-autotune",
    "liger": "Liger",
    "quack": "QuACK",
    "fa4": "FA4",
    "eager ops": "unfused",
    "loop": "loop over experts",
}


def lesson_of(kernel: str) -> str:
    """The number of the lesson that a recorded kernel belongs to, '' where no pattern names it."""
    return next((lesson for pattern, lesson in LESSONS.items() if re.match(pattern, kernel)), "")


def _short(case: Case) -> bool:
    """Whether a time of the case is from before a replay lasted a millisecond."""
    return any(timed.calls == 0 for timed in case.impl.values())


def _size(shape: tuple) -> str:
    return " x ".join(f"{size:,}" for size in shape)


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
        shape = _size(case.shape) + (" †" if _short(case) else "")
        lines.append(f"| {case.kernel} | {shape} | {case.dtype} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _is_compute_bound(case: Case, recorded: Figures) -> bool:
    """Whether a case's arithmetic intensity is above the ridge point that was measured."""
    ridge = recorded.matmul_tflops["bf16"] * 1e12 / (recorded.copy_gbps * 1e9)
    return case.flops / case.bytes > ridge


def _counted(lesson: str, recorded: Figures) -> str:
    """A Markdown table of how busy a lesson's kernels kept the parts of an SM; '' where that was not counted."""
    counters = [c for c in recorded.counters if c.issue_busy and lesson_of(c.kernel) == lesson]
    if not counters:
        return ""
    lines = [
        "\nBusy, % of its peak (Nsight Compute, caches flushed before each kernel), and MB read from DRAM:\n",
        "| kernel | shape | implementation | tensor cores | SFUs | issue slots | L2 | DRAM |",
        "|---|---|---|---:|---:|---:|---:|---:|",
    ]
    for c in counters:
        shares = " | ".join(f"{share:.0f}" for share in (c.matrix_busy, c.special_busy, c.issue_busy, c.l2_busy))
        name = NAMES.get(c.variant, c.variant.replace("bytes-first", "this course"))
        lines.append(f"| {c.kernel} | {_size(c.shape)} | {name} | {shares} | {c.dram_read / 1e6:,.0f} |")
    return "\n".join(lines) + "\n"


def _section(lesson: str, cases: list[Case], recorded: Figures) -> str:
    """A lesson's heading and its tables: memory-bound cases in GB/s, compute-bound ones in TFLOP/s."""
    (path,) = (ROOT / "lessons").glob(f"{lesson}_*.ipynb") if lesson else [None]
    text = f"## [{contents.described(path).title}](../lessons/{path.name})\n" if path else "## Other kernels\n"
    heavy = [case for case in cases if _is_compute_bound(case, recorded)]
    light = [case for case in cases if case not in heavy]
    if light:
        text += "\nGB/s of minimum traffic:\n\n" + _rows(light, Case.gbps)
    if heavy:
        text += "\nTFLOP/s:\n\n" + _rows(heavy, Case.tflops)
    return text + _counted(lesson, recorded)


def table() -> str:
    """Every lesson's tables in Markdown, or one sentence where nothing is recorded."""
    if "h200" not in results.gpus_on_record():
        return NOTHING
    recorded = results.load("h200")
    cases = [case for case in recorded.cases if NAMES.keys() & case.impl]  # a study of variants has none of them
    lessons = sorted({lesson_of(case.kernel) for case in cases}, key=lambda lesson: (not lesson, lesson))
    text = (
        f"Measured on {recorded.provenance}. Copying a large tensor with torch reached "
        f"{recorded.copy_gbps:,.0f} GB/s there, reads plus writes.\n"
    )
    if any(map(_short, cases)):
        text += (
            "\n† Timed in short replays, of 60 µs and more. Since then a replay lasts at least a millisecond, "
            "because 3 to 10 µs pass between a timing event and the kernel: "
            "a call below 200 µs may read 2 to 8% too slow here.\n"
        )
    for lesson in lessons:
        text += "\n" + _section(lesson, [case for case in cases if lesson_of(case.kernel) == lesson], recorded)
    return text


def with_table(page: str) -> str:
    """The page's text with the current tables between the markers."""
    return between(page, BEGIN, END, table())


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--check", action="store_true", help="exit 1 where the page shows something else")
    how.add_argument("--stale", action="store_true", help="name the records whose kernels have changed since")
    how.add_argument("--stamp", action="store_true", help="write today's hash into records without one")
    parser.add_argument("--all", action="store_true", help="with --stamp: into every record")
    options = parser.parse_args(arguments)
    if options.all and not options.stamp:
        parser.error("--all: goes with --stamp")
    if options.stale or options.stamp:
        from bench import kernel_hashes  # imports every kernel, which the table does not need

        if options.stamp:
            print(f"{kernel_hashes.stamp_files(options.all)} records have a new hash")
            return 0
        stale, unstamped = kernel_hashes.stale_records()
        for name in stale:
            print(f"{name}: its kernel has changed since it was timed")
        if unstamped:
            print(f"records without a hash: {len(unstamped)}; python bench/table.py --stamp writes them")
        return int(bool(stale))
    text = PAGE.read_text(encoding="utf-8")
    current = with_table(text)
    if options.check:
        if text != current:
            print("docs/results.md does not show the figures of bench/results/h200.json: run python bench/table.py")
        return int(text != current)
    write_whole(PAGE, current.encode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
