"""The portrait panel: held to the meter, to the models and to the records; what it does not know, it says."""

import importlib
import inspect
import string

import msgspec
import numpy as np
import pytest
import torch

from instruments import results
from instruments.backend import tl, triton
from instruments.gpus import DTYPES, GPUS
from instruments.meter import meter
from instruments.timing import Timing
from kernels.attention.backward import attention_backward
from kernels.attention.forward import attention_traffic, flash_attention
from kernels.elementwise.bias_gelu import bias_gelu, bias_gelu_traffic
from kernels.elementwise.copy import copy
from kernels.elementwise.pointwise import pointwise_chain, pointwise_chain_traffic
from kernels.grouped_matmul.forward import grouped_matmul, grouped_matmul_traffic
from kernels.low_precision.scaled import scaled_matmul, scaled_matmul_traffic
from kernels.matmul.tiled import matmul, matmul_traffic
from kernels.norms.rmsnorm import rmsnorm, rmsnorm_reference, rmsnorm_traffic
from kernels.quantization.quantize import quantize, quantize_traffic
from kernels.quantization.schemes import SCHEMES, quantize_reference
from tests import figures
from widgets import portrait
from widgets.toolkit.bars import MOST, Bars, Group, Row, fitted
from widgets.toolkit.model import model_of, operators
from widgets.toolkit.panel import WIDTH

inside = importlib.import_module("widgets.portrait")  # where the function has hidden the module
H200 = results.load("h200")
BF16 = torch.bfloat16


@triton.jit
def norm_kernel(x_ptr, weight_ptr, y_ptr, cols, BLOCK: tl.constexpr):
    row, col = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * cols + col, mask=col < cols, other=0.0)
    scale = tl.rsqrt(tl.sum(x * x) / cols + 1e-6)
    x = tl.load(x_ptr + row * cols + col, mask=col < cols, other=0.0)
    weight = tl.load(weight_ptr + col, mask=col < cols, other=0.0)
    tl.store(y_ptr + row * cols + col, x * scale * weight, mask=col < cols)


def my_norm(x, weight):
    y = torch.empty_like(x)
    norm_kernel[(x.shape[0],)](x, weight, y, x.shape[1], triton.next_power_of_2(x.shape[1]))
    return y


def rms_arguments(rows=6, cols=1000, dtype=BF16):
    return torch.randn(rows, cols).to(dtype), torch.randn(cols).to(dtype)


def rows_of(panel, heading: str) -> dict:
    """{name: row} under the first heading that begins so, as shown."""
    return next({row.name: row for row in group.rows} for group in shown(panel) if group.heading.startswith(heading))


def shown(panel) -> list:
    """The groups that the picture shows."""
    return panel.charts[panel.controls["record"].index if panel.controls else 0]


def opened(panel, place: int):
    """The panel, at a record by its place in the menu."""
    return panel.set(record=panel.controls["record"].options[place])


@pytest.fixture(autouse=True)
def charts_kept(monkeypatch):
    """Panels keep what they may show, for the tests to read."""
    bars = inside.Bars

    class Kept(bars):
        def __init__(self, charts):
            super().__init__(charts)
            self.figure.charts = charts

    monkeypatch.setattr(inside, "Bars", Kept)
    monkeypatch.setattr(inside.Panel, "charts", property(lambda panel: panel.figure.charts), raising=False)


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch):
    """The tests tell the same everywhere; `gpu` puts one there."""
    monkeypatch.setattr(inside, "_device", lambda: None)


def approximately(row, nbytes, least):
    return sum(row.parts) == pytest.approx(nbytes / least) and inside.size(nbytes) in row.words


def test_counted_bytes_are_the_meters_and_the_models():
    arguments = rms_arguments()
    rows, report = rows_of(portrait(rmsnorm, *arguments), "Bytes of rmsnorm, counted here"), meter(rmsnorm, *arguments)
    least = (2 * 6 * 1000 + 1000) * 2
    assert list(rows) == ["predicted", "requested", "unique"]
    assert approximately(rows["predicted"], rmsnorm_traffic(6, 1000, BF16, path=None).bytes, least)
    assert approximately(rows["requested"], report.traffic.bytes, least) and sum(rows["requested"].parts) > 1.2
    assert approximately(rows["unique"], report.unique.bytes, least) and rows["unique"].parts[0] * least == 14_000


@pytest.mark.parametrize(
    "function, arguments, of_sizes, predicted, least",
    [
        (copy, (torch.ones(2500),), "2,500 fp32", 20_000, 20_000),
        (matmul, (torch.ones(20, 30), torch.ones(30, 40)), "20 x 40 x 30 fp32", 4 * (600 + 1200 + 800), None),
        (pointwise_chain, (torch.ones(3, 100), 4, False), "3 x 100 fp32", 4 * 2400, 2400),
        (bias_gelu, (torch.ones(3, 100, dtype=BF16), torch.ones(100)), "3 x 100 bf16", 1200 + 400, None),
        (rmsnorm, rms_arguments(2, 9000), "2 x 9,000 bf16", 2 * 3 * 18_000 + 18_000, 2 * 2 * 18_000 + 18_000),
    ],
)
def test_the_model_is_asked_with_the_calls_own_sizes_and_settings(function, arguments, of_sizes, predicted, least):
    panel = portrait(function, *arguments)
    name = function.__name__
    assert f"{name}, counted here at {of_sizes}: predicted " in panel.alt
    row = rows_of(panel, f"Bytes of {name}, counted here")["predicted"]
    assert approximately(row, predicted, least or predicted)


def test_a_quantized_matrix_counts_as_what_it_stands_for():
    x, weight = (quantize_reference(torch.randn(rows, 128), "fp8_row") for rows in (64, 32))
    panel = portrait(scaled_matmul, x, weight)
    assert "scaled_matmul, counted here at 64 x 32 x 128 fp8_row: predicted " in panel.alt
    report = meter(scaled_matmul, x, weight)
    least = scaled_matmul_traffic(64, 32, 128, "fp8_row", "fp8_row").bytes
    rows = rows_of(panel, "Bytes of scaled_matmul, counted here")
    assert approximately(rows["requested"], report.traffic.bytes, least)
    assert approximately(rows["unique"], least, least)

    for scheme in ("mxfp4", SCHEMES["mxfp4"]):
        row = rows_of(portrait(quantize, torch.randn(8, 64), scheme), "Bytes of quantize, counted here")["predicted"]
        least = quantize_traffic(8, 64, torch.float32, "mxfp4").bytes
        assert least == 8 * 64 * 4 + 8 * 32 + 8 * 2 and approximately(row, least, least)


def test_each_record_is_held_to_the_file():
    panel = portrait(rmsnorm, *rms_arguments())
    cases = [case for case in H200.cases if case.kernel == "rmsnorm"]
    assert len(panel.controls["record"].options) == len(cases)
    pictures = set()
    for place, case in enumerate(cases):
        opened(panel, place)
        assert panel.values["record"] == f"{' x '.join(f'{n:,}' for n in case.shape)} {case.dtype}"
        pictures.add(panel.png)
        bytes_rows = rows_of(panel, "Bytes of rmsnorm, recorded on the H200")
        traffic = rmsnorm_traffic(*case.shape, DTYPES[case.dtype], path=None)
        assert approximately(bytes_rows["predicted"], traffic.bytes, case.bytes)
        moved = {c.variant: c for c in H200.counters if (c.kernel, c.shape) == ("rmsnorm", case.shape)}
        moved = moved if case.dtype == "bf16" else {}
        for variant, counter in moved.items():
            row = bytes_rows[f"moved, {variant}"]
            assert row.parts == (counter.dram_read / case.bytes, counter.dram_written / case.bytes)
        if not moved:
            assert bytes_rows["moved by DRAM"].words.startswith("not recorded at this shape, only at ")
        times = rows_of(panel, "Time of a call")
        assert len(times) == len(case.impl)
        for name, timed in case.impl.items():
            times_roof = timed.graph_us * 1e-6 / (case.bytes / H200.copy_gbps / 1e9)
            assert sum(times[name.replace("bytes-first", "rmsnorm")].parts) == pytest.approx(times_roof)
        assert [name for name, row in times.items() if row.colour == inside.BLUE] == ["rmsnorm"]
        best = min((name for name in case.impl if not name.startswith("bytes-first")), key=case.us)
        assert f"Fastest peer: {best}, " in panel.alt
        assert shown(panel)[2].mark == pytest.approx(H200.copy_gbps * 1e9 / GPUS["H200"].bandwidth)
    assert len(pictures) == len(cases), "every record has a picture of its own"


def test_counters_of_another_dtype_are_not_a_records_own(monkeypatch):
    counter = msgspec.structs.replace(H200.counter("rmsnorm", "resident", 65536, 8192), shape=(8192, 8192))
    monkeypatch.setattr(results, "load", lambda gpu: msgspec.structs.replace(H200, counters=[counter]))
    panel = portrait(rmsnorm, *rms_arguments())
    assert "at 8,192 x 8,192 bf16: predicted 1.50, moved by DRAM " in panel.alt
    panel.set(record="8,192 x 8,192 fp32")
    assert "moved by DRAM not recorded at this shape, only at 8,192 x 8,192" in panel.alt


def test_a_matmul_is_held_to_torchs_matmul():
    panel = portrait(matmul, torch.ones(64, 64, dtype=BF16), torch.ones(64, 64, dtype=BF16))
    assert "recorded on the H200 at 8,192 x 8,192 x 8,192 bf16" in panel.alt, "the largest with counters"
    seconds = 2 * 8192**3 / (H200.matmul_tflops["bf16"] * 1e12)
    row = rows_of(panel, f"Time of a call: 1 is {inside.time(seconds)}, at the rate of torch's matmul")["matmul"]
    assert sum(row.parts) == pytest.approx(H200.case("matmul", 8192, 8192, 8192).us("bytes-first") * 1e-6 / seconds)
    counter = H200.counter("matmul", "groups of 8", 8192, 8192, 8192)
    least = matmul_traffic(8192, 8192, 8192, BF16).bytes
    moved = rows_of(panel, "Bytes of matmul, recorded")["moved, groups of 8"]
    assert approximately(moved, counter.dram_read + counter.dram_written, least)


def test_the_record_of_the_arguments_own_shape_is_shown_first():
    x = torch.ones(1, 4096, dtype=BF16)
    assert "recorded on the H200 at 1 x 4,096 bf16" in portrait(rmsnorm, x, x[0]).alt
    assert "at 65,536 x 8,192 bf16" in portrait(rmsnorm, x.float(), x[0].float()).alt, "not of another dtype"


def test_a_learners_function_stands_beside_the_courses():
    arguments = rms_arguments()
    panel = portrait(my_norm, *arguments, like="rmsnorm")
    report, least = meter(my_norm, *arguments), rmsnorm_traffic(6, 1000, BF16).bytes
    rows = rows_of(panel, "Bytes of my_norm, counted here")
    assert approximately(rows["requested"], report.traffic.bytes, least)
    assert approximately(rows["predicted for rmsnorm"], least, least)
    times = rows_of(panel, "Time of a call")
    assert times[""].words == "my_norm is not in the record; with a GPU it is timed here"
    assert f"{times[''].words}." in panel.alt
    assert {"rmsnorm", "torch", "liger"} <= set(times) and "my_norm" not in times
    assert not any(row.colour == inside.BLUE for row in times.values()), "none of these times is the learner's"


def test_a_learners_function_alone_has_neither_model_nor_record():
    def copy(x):  # called as one of the course's is
        y = torch.empty_like(x)
        norm_kernel[(1,)](x, x, y, x.numel(), 16)
        return y

    panel = portrait(copy, torch.ones(10))
    assert not panel.controls and 'give like="..."' in panel.alt
    assert list(rows_of(panel, "Bytes of copy, counted here")) == ["requested", "unique"]
    assert "predicted" not in panel.alt
    assert "unique 1.00 times 80 B" in panel.alt


def test_what_the_call_asked_for_is_the_row_that_is_named():
    arguments = rms_arguments(2, 64)
    panel = portrait(rmsnorm, *arguments, path="two_pass")
    us = H200.case("rmsnorm", 65536, 8192).us("bytes-first, two_pass")
    assert f"rmsnorm, two_pass takes {inside.time(us * 1e-6)}" in panel.alt
    assert next(iter(rows_of(panel, "Time of a call"))) == "rmsnorm, two_pass"
    panel = portrait(pointwise_chain, torch.ones(3, 100), 4, fused=False)
    assert " takes " not in panel.alt, "records do not tell which of them is not fused"
    nbytes = pointwise_chain_traffic(8192 * 8192, BF16, 4, fused=False).bytes
    row = rows_of(panel, "Bytes of pointwise_chain, recorded")["predicted"]
    assert approximately(row, nbytes, H200.case("pointwise_chain_4", 8192, 8192).bytes)


def test_a_path_that_takes_no_such_rows_predicts_nothing():
    panel = portrait(rmsnorm, *rms_arguments(), path="resident")
    panel.set(record="512 x 1,048,576 bf16")
    assert rows_of(panel, "Bytes of rmsnorm, recorded")["predicted"].words == "nothing: this path takes no such rows"


def test_no_record_of_a_case_is_said():
    panel = portrait(pointwise_chain, torch.ones(3, 100), 3)
    assert not panel.controls and "no figures of it are recorded" in panel.alt


def test_too_much_to_interpret_is_not_counted():
    x, weight = torch.ones(513, 4096, dtype=BF16), torch.ones(4096, dtype=BF16)
    panel = portrait(rmsnorm, x, weight)
    assert "Nothing was counted here: 4.21 MB of arguments are too much to interpret" in panel.alt
    assert "requested" not in panel.alt and "moved by DRAM" in panel.alt
    fewer = portrait(rmsnorm, x, weight, counted=(x[:2], weight))
    assert "rmsnorm, counted here at 2 x 4,096 bf16: predicted" in fewer.alt
    with pytest.raises(ValueError, match="function: nothing is known of my_norm"):
        portrait(my_norm, x, weight)


def test_what_the_meter_finds_is_told():
    def short(x):
        y = torch.empty(20)
        norm_kernel[(1,)](x, x, y, 10, 16)
        return y

    assert "The meter found: 10 of 20 elements of y were never written" in portrait(short, torch.ones(10)).alt


def test_long_names_are_cut():
    def a_norm_with_a_name_that_is_far_longer_than_there_is_room_for_in_a_heading_of_the_picture(x, weight):
        return my_norm(x, weight)

    named = a_norm_with_a_name_that_is_far_longer_than_there_is_room_for_in_a_heading_of_the_picture
    panel = portrait(named, *rms_arguments(), like="rmsnorm")
    words = fitted(shown(panel)[0].heading, WIDTH - 12, "-Bold")
    assert words.endswith("…") and named.__name__[:60] in words


@pytest.fixture
def gpu(no_gpu, monkeypatch):
    """A machine that believes to have an H200, on which every call takes as many µs as its name has letters."""
    timed = []

    def from_graphs(calls, arguments, nbytes):
        timed.append((set(calls), nbytes))
        return {name: Timing(len(name) * 1e-6, 0, 0) for name in calls}

    monkeypatch.setattr(inside, "_device", lambda: "NVIDIA H200")
    monkeypatch.setattr(results, "place", lambda: results.RESULTS / "h200.json")
    monkeypatch.setattr(inside.timing, "from_graphs", from_graphs)
    monkeypatch.setattr(inside, "_on_gpu", lambda tensor: True)
    return timed


def test_with_a_gpu_the_learners_function_is_timed_beside_the_courses(gpu):
    arguments = rms_arguments()
    panel = portrait(my_norm, *arguments, like="rmsnorm")
    nbytes = rmsnorm_traffic(6, 1000, BF16).bytes
    assert gpu == [({"my_norm", "bytes-first", "eager ops"}, nbytes)]
    times = rows_of(panel, "Time of a call")
    assert list(times) == ["my_norm", "rmsnorm", "eager ops"] and times["my_norm"].colour == inside.BLUE
    assert sum(times["my_norm"].parts) == pytest.approx(7e-6 / (nbytes / H200.copy_gbps / 1e9))
    assert "my_norm takes 7 µs" in panel.alt and "not in the record" not in panel.alt
    assert "rmsnorm, on this NVIDIA H200 at 6 x 1,000 bf16" in panel.alt
    assert "moved by DRAM not recorded" in panel.alt
    assert len(panel.controls["record"].options) == 1 + sum(case.kernel == "rmsnorm" for case in H200.cases)


@pytest.mark.once
def test_a_product_that_no_tensor_core_takes_is_held_to_the_vector_units(gpu):
    panel = portrait(matmul, torch.ones(1000, 500), torch.ones(500, 1000))
    seconds = 2 * 1000 * 1000 * 500 / GPUS["H200"].vector
    assert f"Time of a call: 1 is {inside.time(seconds)}, at the rate of the datasheet's vector units" in str(
        shown(panel)
    )
    assert shown(panel)[2].mark == 1


def test_a_gpu_without_figures_or_datasheet_still_times(gpu, monkeypatch):
    monkeypatch.setattr(inside, "_device", lambda: "NVIDIA Unheard-of")
    monkeypatch.setattr(results, "place", lambda: results.RESULTS / "unheard-of.json")
    monkeypatch.setattr(inside.timing, "copy_roof", lambda nbytes: 1e12)
    panel = portrait(copy, torch.ones(1000))
    assert shown(panel)[2].heading == "Time of a call: 1 is 8 ns, at the rate of torch's copy"
    assert "on this NVIDIA Unheard-of at 1,000 fp32" in panel.alt
    assert "recorded on the H200" in opened(panel, 1).alt


def test_with_a_gpu_recorded_peers_of_the_same_shape_stand_beside(gpu):
    x = torch.ones(1, 4096, dtype=BF16)
    times = rows_of(portrait(rmsnorm, x, x[0]), "Time of a call")
    assert list(times)[:2] == ["rmsnorm", "eager ops"] and "liger, recorded" in times and "rmsnorm, recorded" in times
    of_fp32 = rows_of(portrait(rmsnorm, x.float(), x[0].float()), "Time of a call")
    assert list(of_fp32) == ["rmsnorm", "eager ops"], "the record is of bf16"


def test_a_function_that_no_graph_can_hold_is_not_timed(gpu, monkeypatch):
    def from_graphs(*_):
        raise RuntimeError("operation not permitted when stream is capturing\nmore")

    monkeypatch.setattr(inside.timing, "from_graphs", from_graphs)
    panel = portrait(rmsnorm, *rms_arguments())
    assert "at 65,536 x 8,192 bf16" in panel.alt, "the largest record is shown instead"
    assert "Not timed: operation not permitted when stream is capturing." in opened(panel, 0).alt


def test_with_a_gpu_a_path_is_timed_as_itself(gpu):
    panel = portrait(rmsnorm, *rms_arguments(), path="two_pass")
    times = rows_of(panel, "Time of a call")
    assert [name for name, row in times.items() if row.colour == inside.BLUE] == ["rmsnorm"], "as it was called"
    assert " takes 11 µs" in panel.alt


def test_a_learners_function_of_the_same_name_is_told_apart(gpu, monkeypatch):
    def rmsnorm(x, weight):
        return my_norm(x, weight)

    times = rows_of(portrait(rmsnorm, *rms_arguments(), like="rmsnorm"), "Time of a call")
    assert list(times) == ["your rmsnorm", "rmsnorm", "eager ops"]
    monkeypatch.setattr(inside, "_device", lambda: None)
    panel = portrait(rmsnorm, *rms_arguments(), like="rmsnorm")
    assert "your rmsnorm, counted here" in panel.alt and " takes " not in panel.alt
    assert not any(row.colour == inside.BLUE for row in rows_of(panel, "Time of a call").values())


def test_the_courses_model_is_the_same_for_functions_that_take_more():
    def more(x, weight, eps, dtype, scale):
        return my_norm(x, weight)

    panel = portrait(more, *rms_arguments(), 1e-6, BF16, 1.0, like="rmsnorm")
    assert sum(rows_of(panel, "Bytes of rmsnorm, recorded")["predicted"].parts) == pytest.approx(1.5, rel=1e-3)


def test_peers_that_take_other_arguments_are_left_out(gpu):
    def scaled(x):
        return my_norm(x, torch.ones(x.shape[1]))

    portrait(scaled, torch.ones(3, 100), like="rmsnorm")
    assert gpu[0][0] == {"scaled"}


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda: portrait(norm_kernel, torch.ones(3)), "function: got JITFunction"),
        (lambda: portrait(3, torch.ones(3)), "function: got int"),
        (lambda: portrait(copy), "arguments: got no tensor first"),
        (lambda: portrait(copy, torch.ones(0)), "arguments: got an empty tensor first"),
        (lambda: portrait(copy, np.ones(3)), r"arguments\[0\]: got a NumPy array"),
        (lambda: portrait(rmsnorm_reference, torch.ones(3, 4), torch.ones(4)), "launched no kernel"),
        (lambda: portrait(copy, torch.ones(3), like="rmsnrom"), "like: got 'rmsnrom', expected one of: add, "),
        (lambda: portrait(copy, torch.ones(3), gpu="T4"), "gpu: got 'T4', expected one of: h200"),
        (lambda: portrait(copy, torch.ones(3), counted=torch.ones(3)), "counted: expected a tuple"),
        (
            lambda: portrait(copy, torch.ones(3), like="pointwise_chain"),
            "arguments: got no steps, which the model of pointwise_chain needs",
        ),
        (
            lambda: portrait(copy, torch.ones(3), like="matmul"),
            r"arguments: got none to take sizes from .*, expected those of matmul\(a",
        ),
    ],
)
def test_bad_arguments_are_named(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def test_every_model_of_the_course_can_be_named():
    """By the name of its function; every size that a model needs is declared, or an argument of the function."""
    assert (operators()["bias_gelu"].function, operators()["bias_gelu"].traffic) == (bias_gelu, bias_gelu_traffic)
    for name, each in operators().items():
        function, traffic = (inspect.signature(of).parameters for of in (each.function, each.traffic))
        assert each.function.__name__ in (name, name.removeprefix("flash_"))
        assert set(each.lengths) <= set(traffic)
        recorded = {part for _, part, *_ in string.Formatter().parse(each.record) if part} - {"causal"}
        assert recorded <= {*traffic, *function}, name


def test_the_declared_sizes_give_the_bytes_of_the_records():
    """All records of an operator's own name whose model has no more to it than sizes."""
    held = {"copy", "add", "swiglu", "bias_gelu", "rmsnorm", "layernorm", "softmax", "row_sum", "matmul", "moe_combine"}
    held |= {"attention", "attention_backward", "attention_decode", "block_scaled_matmul", "moe_sort", "add_rmsnorm"}
    seen = set()
    for each in operators().values():
        for case in H200.cases:
            if case.kernel == each.record.replace("{causal}", "") and case.kernel in held:
                sizes = {"dtype": DTYPES.get(case.dtype)} | each.sizes_of_record(case.shape)
                parameters = inspect.signature(each.traffic).parameters
                work = each.traffic(**{key: value for key, value in sizes.items() if key in parameters})
                assert work.bytes == case.bytes, (case.kernel, case.shape)
                seen.add(case.kernel)
    assert seen == held


def attention_arguments():
    q, k, v = torch.randn(3, 1, 4, 96, 16).half()
    return q, k[:, :2].contiguous(), v[:, :2].contiguous()


def test_attention_is_known_by_its_heads_and_lengths(monkeypatch):
    """Counted with fewer key heads than query heads; of records, the causal ones, whose keys are as many as queries."""
    shape = 4, 16, 4096, 128
    work = attention_traffic(4, 16, 4096, 4096, 128, BF16, causal=True)
    cases = [figures.case("attention_causal", shape, work.bytes, work.flops, {"bytes-first": 600, "cudnn": 500})]
    cases.append(figures.case("attention", shape, work.bytes, 2 * work.flops, {"bytes-first": 1000}))
    monkeypatch.setattr(results, "load", lambda gpu: figures.figures(*cases))
    panel = portrait(flash_attention, *attention_arguments(), causal=True, path="plain")
    counted = rows_of(panel, "Bytes of flash_attention, counted here")
    assert counted["predicted"].parts == counted["requested"].parts
    tensors = 2 * 2 * (2 * 4 * 96 * 16) // 2 + 2 * 2 * 2 * 96 * 16
    assert approximately(
        counted["requested"], meter(flash_attention, *attention_arguments(), causal=True).traffic.bytes, tensors
    )
    assert not panel.controls, "attention without a mask is another kernel"
    asked = attention_traffic(4, 16, 4096, 4096, 128, BF16, causal=True, path="plain")
    assert approximately(rows_of(panel, "Bytes of flash_attention, recorded")["predicted"], asked.bytes, work.bytes)
    assert "Fastest peer: cudnn, 500 µs" in panel.alt


def test_a_backwards_key_heads_are_those_of_k():
    q, k, v = attention_arguments()
    out, lse = flash_attention(q, k, v, return_lse=True)
    rows = rows_of(portrait(attention_backward, q, q, k, v, out, lse), "Bytes of attention_backward, counted here")
    assert rows["predicted"].parts == rows["requested"].parts


def test_lengths_of_records_are_the_models():
    of = {
        "attention_decode": ((2, 32, 8, 1000, 128), {"queries": 1, "keys": 1000, "kv_heads": 8, "head_dim": 128}),
        "rmsnorm": ((6, 100), {"rows": 6, "cols": 100}),
        "matmul": ((2, 3, 4), {"M": 2, "N": 3, "K": 4}),
    }
    for name, (shape, sizes) in of.items():
        assert operators()[name].sizes_of_record(shape).items() >= sizes.items()


def test_bars_begin_where_the_longest_name_ends():
    """As with "recorded" behind the names of a GPU's own; and what the longest bar says still has its place."""
    for name in ("torch", "flash_attention, plain, recorded", "torch.compile, autotuned, without graphs, recorded"):
        row = Row(name, "1,443   4.53 ms", inside.BLUE, (9.0, 0.0))
        picture = Bars([[Group("Time of a call", [row], "")]])
        assert fitted(name, picture.zero - 8) == name
        end = picture.zero + MOST * picture.one + 8
        assert fitted(row.words, WIDTH - end) == row.words


def test_it_opens_at_the_record_that_is_asked_for():
    for shape in ((4096, 4096, 4096), (2048, 2048, 2048)):
        panel = portrait(matmul, torch.randn(16, 16), torch.randn(16, 16), at=shape)
        assert " x ".join(f"{size:,}" for size in shape) in panel.alt


def test_a_grouped_product_is_known_by_its_offsets_and_a_record_by_its_tokens():
    offsets = torch.tensor([0, 3, 3, 40], dtype=torch.int32)
    x, weight = torch.randn(40, 16).to(BF16), torch.randn(3, 16, 24).to(BF16)
    rows = rows_of(portrait(grouped_matmul, x, weight, offsets), "Bytes of grouped_matmul, counted")
    assert rows["predicted"].multiple == rows["requested"].multiple
    assert rows["unique"].multiple == "1.00"  # the group without rows has no weight read
    case = results.Case("grouped_matmul", (3, 4, 2, 16, 24), "bf16", 0, 0, {})
    model = model_of(grouped_matmul, None, (x, weight, offsets), {})
    sizes = model.of_record(case)
    assert sizes["counts"] == [2, 2, 1, 1]
    assert model.of(sizes, least=True).bytes == (grouped_matmul_traffic([2, 2, 1, 1], 16, 24, BF16).bytes)
