"""docs/results.md: which lesson a recorded kernel stands under, and what a line says."""

from bench import table
from instruments import contents, results
from instruments.results import Case, Timed


def timed(us, gbps, calls=5):
    return Timed(error=0, graph_us=us, graph_us_p20=us, graph_us_p80=us, called_us=us, gbps=gbps, tflops=1, calls=calls)


def case(kernel, **impl):
    return Case(kernel, (64, 1024), "bf16", 10**6, 10**6, impl)


def test_every_recorded_kernel_stands_under_a_lesson_that_exists():
    numbers = {path.name.partition("_")[0] for path in (contents.ROOT / "lessons").glob("*.ipynb")}
    assert set(table.LESSONS.values()) <= numbers
    recorded = [case for case in results.load("h200").cases if table.NAMES.keys() & case.impl]
    assert [case.kernel for case in recorded if not table.lesson_of(case.kernel)] == []


def test_a_name_goes_to_the_lesson_of_its_longer_pattern():
    expected = {"rmsnorm_quantize_fp8_row": "09", "add_rmsnorm": "05", "attention_backward_causal": "08b", "add": "04"}
    expected |= {"swiglu_backward": "04", "swiglu_quantize_fp8_1x128": "09", "matmul_bias_gelu": "04", "twice": ""}
    assert {kernel: table.lesson_of(kernel) for kernel in expected} == expected


def test_the_best_of_a_line_is_bold_and_a_short_replay_is_marked():
    old, new = case("copy", torch=timed(9, 100, calls=0)), case("copy", torch=timed(9, 100), liger=timed(8, 2000))
    lines = table._rows([old, new], Case.gbps).splitlines()
    assert lines[0] == "| kernel | shape | dtype | torch | Liger |"
    assert lines[2].startswith("| copy | 64 x 1,024 † | bf16 | **") and lines[2].endswith("** |  |")
    assert lines[3].count("**") == 2 and "†" not in lines[3]


def test_a_kernel_without_a_lesson_comes_last():
    recorded = results.load("h200")
    assert table._section("", [case("twice", torch=timed(9, 100))], recorded).startswith("## Other kernels\n")
    titles = [line for line in table.table().splitlines() if line.startswith("## ")]
    assert titles == sorted(titles)
