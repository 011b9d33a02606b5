"""bench/counters.py on what ncu prints: which kernels make up a call, and what is added up."""

from bench import counters

HEAD = '"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"'


def printed(*kernels: tuple) -> str:
    """ncu's lines of (name, us, MB read from DRAM, warps, registers), after a line of its own; L2 as busy as warps."""
    lines = ["==PROF== Profiling", HEAD]
    for number, (name, us, read, warps, registers) in enumerate(kernels):
        values = dict.fromkeys(counters.METRICS, ("byte", "0")) | {
            "gpu__time_duration.sum": ("us", us),
            "dram__bytes_read.sum": ("Mbyte", read),
            "sm__warps_active.avg.per_cycle_active": ("warp", warps),
            "launch__registers_per_thread": ("register/thread", registers),
            "lts__throughput.avg.pct_of_peak_sustained_elapsed": ("%", warps),
        }
        lines += [f'"{number}","{name}","{metric}","{unit}","{value}"' for metric, (unit, value) in values.items()]
    return "\n".join(lines)


def test_kernels_up_to_the_mark_are_one_call():
    mark = counters.call_ends_kernel.__name__, "1.0", "0", "1", "16"
    gemm, softmax = ("gemm", "1,000.0", "100.5", "8", "200"), ("softmax", "3,000.0", "2,000", "32", "40")
    first, second = counters.calls_of(printed(gemm, softmax, gemm, mark, softmax, mark))
    assert (first["us"], first["dram_read"], first["registers"]) == (5000, 2_201_000_000, 200)
    assert first["warps"] == first["l2_busy"] == (8 * 2000 + 32 * 3000) / 5000
    assert (second["us"], second["dram_read"], second["warps"]) == (3000, 2_000_000_000, 32)


def test_a_call_without_its_mark_is_none():
    assert counters.calls_of(printed(("gemm", "1", "1", "1", "1"))) == []
