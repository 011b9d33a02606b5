"""The panels that move on the book's pages: the models evaluated on the grid of their sliders, drawn by Vega-Lite.

A panel of a notebook calls its models each time a slider moves, which needs Python. Here the same models are called
once for each position of the sliders when the book is built, and a page's sliders choose among the results. A panel
whose grid would be large, or whose picture is no chart, keeps its still. tests/book/ compares the numbers with those
that the notebook's panel says.

    PANELS = {name of the panel's function: Moving(...)}

    python -m book.panels FOLDER    write each panel's data there, in the course's environment (make book does this)
"""

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path

import torch

from instruments import results
from instruments.gpus import DTYPES, GPUS
from instruments.traffic import Traffic
from kernels.attention.forward import attention_ops, attention_traffic
from kernels.attention.models import CAUSAL, FULL, unfused_peak_bytes
from kernels.matmul.shared_memory import tile_shared
from kernels.norms.models import FORMS, rmsnorm_steps
from kernels.norms.rmsnorm import rmsnorm_ops, rmsnorm_traffic
from kernels.softmax.models import PASSES, softmax_passes_traffic
from widgets.panels.attention_memory import HEADS
from widgets.panels.decoder_layer import DECODE, PARTS, PREFILL, WAYS, layer_seconds, layer_work
from widgets.panels.in_flight import MOST, SIZES
from widgets.panels.launch_lanes import GRAPH_GAP, LONGEST
from widgets.panels.roofline_sizes import CLOCKS, KERNELS, NAMES, series, share_of_roof, up_to
from widgets.panels.roofline_sizes import SIZES as STEPS
from widgets.toolkit.panel import BLUE, GREEN, ORANGE, PURPLE, RED, SKY
from widgets.toolkit.words import number, size, time

COLOURS = [BLUE, ORANGE, GREEN, PURPLE, RED, SKY]
WIDE, ROW = 240, 34  # pixels of a chart and of a line in it


@dataclass(frozen=True)
class Slider:
    """A control. values: what it chooses among; `power` shows 2^n and its values are powers of two."""

    name: str
    values: list
    start: object
    power: bool = False


@dataclass(frozen=True)
class Chart:
    """One chart of a panel. log: points on a logarithmic axis in place of bars. limit: (value, words) of a line."""

    title: str
    lines: list
    log: bool = False
    limit: tuple | None = None


@dataclass(frozen=True)
class Moving:
    """A panel. rows: called with the sliders' values; {chart's title: {line: (value, words)}}."""

    sliders: dict[str, Slider]
    charts: list[Chart]
    rows: Callable[..., dict]
    note: str = ""
    colours: dict = field(default_factory=dict)


def powers(name: str, low: int, high: int, start: int) -> Slider:
    """A slider over powers of two, from 2^low to 2^high."""
    return Slider(name, [1 << power for power in range(low, high + 1)], start, power=True)


def _launch_rows(kernel, how):
    launch = results.load("h200").launch_us.triton_empty
    per = kernel + GRAPH_GAP if how == "CUDA graph" else max(launch, kernel + GRAPH_GAP)
    idle = 1 - kernel / per
    return {
        "µs from one kernel's start to the next": {
            "kernel": (kernel, f"{kernel} µs"),
            "idle": (per - kernel, f"{number(per - kernel, digits=3)} µs, {idle:.0%}"),
        }
    }


def _size_rows(step):
    chart = {}
    for kernel, clock in product(KERNELS, CLOCKS):
        points = up_to(series(kernel), step)
        if points:
            share = share_of_roof(kernel, points[-1], clock)
            words = f"{number(100 * share, digits=2)}%, {size(points[-1].bytes)}"
            chart[f"{NAMES[kernel]}, {CLOCKS[clock]}"] = (100 * share, words)
    return {"share of the roof, %": chart}


def _flight_rows(loads, bytes_each):
    h200, sms = results.load("h200"), GPUS["H200"].sms
    wait, peak = h200.machine.latency[-1].ns, h200.copy_gbps
    rate = min(loads * bytes_each * sms / wait, peak)
    return {
        "in flight per SM, KiB": {"in flight": (loads * bytes_each / 1024, f"{number(loads * bytes_each / 1024)} KiB")},
        "bandwidth of all SMs, GB/s": {"bandwidth": (rate, f"{rate:,.0f} GB/s")},
    }


def _tile_rows(block_m, block_n, block_k, stages):
    intensity = block_m * block_n / (block_m + block_n)
    shared = tile_shared(block_m, block_n, block_k, stages, 2, 90)
    return {
        "FLOP per requested byte": {"tile": (intensity, number(intensity, digits=3))},
        "shared memory, KiB": {"stages": (shared / 1024, f"{number(shared / 1024, digits=3)} KiB")},
    }


def _layer_rows(phase, batch, tokens):
    charts = {"GPU, ms": {}, "host: launches of 5 µs, ms": {}}
    for way in WAYS:
        work = layer_work(batch, 1 if phase == DECODE else tokens, tokens, way == "fused")
        parts, launches = layer_seconds(work, GPUS["H200"]), sum(map(len, work.values()))
        total = sum(parts.values())
        charts["GPU, ms"][way] = (total * 1e3, f"{time(total)}, matmuls {parts['matmuls'] / total:.0%}")
        host = launches * 5e-6
        charts["host: launches of 5 µs, ms"][way] = (host * 1e3, f"{time(host)}, {launches} launches")
    return charts


def _fusion_rows(rows, cols):
    work = {
        "unfused": sum(rmsnorm_ops(rows, cols, torch.bfloat16).values(), Traffic()),
        "two passes": rmsnorm_traffic(rows, cols, torch.bfloat16, path="two_pass"),
        "resident": rmsnorm_traffic(rows, cols, torch.bfloat16),
    }
    full, h200 = rows * cols * 2, GPUS["H200"]
    return {
        "bytes, in multiples of x": {way: (w.bytes / full, size(w.bytes)) for way, w in work.items()},
        "lower bound on time, µs": {
            way: (max(w.memory_seconds(h200) * 1e6, 1e-4), time(w.memory_seconds(h200))) for way, w in work.items()
        },
    }


def _pass_rows(form, step):
    steps = rmsnorm_steps(form, 8192, 8192, torch.bfloat16)
    done, full = steps[: min(step, len(steps))], 8192 * 8192 * 2
    moved = sum((s.work for s in done), Traffic())
    read, written = (sum(part.values()) for part in (moved.read, moved.written))
    return {
        "passes over x after this step": {
            "reads": (read / full, f"{number(read / full, digits=3)}, {size(read)}"),
            "writes": (written / full, f"{number(written / full, digits=3)}, {size(written)}"),
        }
    }


def _softmax_rows(cols):
    rows = max(1, (1 << 26) // cols)
    full, chart = rows * cols * 2, {}
    for form in PASSES:
        work = softmax_passes_traffic(form, rows, cols)
        if work is None:
            chart[form] = (0, "row too wide")
        else:
            chart[form] = (work.bytes / full, f"{size(work.bytes)}, at least {time(work.memory_seconds(GPUS['H200']))}")
    return {"passes over x": chart}


def _attention_rows(sequence, mask, dtype):
    heads, kv_heads = HEADS["32, 8 of keys"]
    sizes, options = (
        (1, heads, sequence, sequence, 128, DTYPES[dtype]),
        {"causal": mask == CAUSAL, "kv_heads": kv_heads},
    )
    work, ops = attention_traffic(*sizes, **options), attention_ops(*sizes, **options)
    held, h200 = unfused_peak_bytes(work, ops), GPUS["H200"]
    eager = sum(ops.values())
    return {
        "memory, GB": {"unfused": (held / 1e9, size(held)), "fused": (work.bytes / 1e9, size(work.bytes))},
        "lower bound on HBM's time, ms": {
            "unfused": (eager.memory_seconds(h200) * 1e3, time(eager.memory_seconds(h200))),
            "fused": (work.memory_seconds(h200) * 1e3, time(work.memory_seconds(h200))),
        },
    }


H200_GB = GPUS["H200"].memory / 1e9
KERNEL_CLOCKS = [f"{NAMES[kernel]}, {CLOCKS[clock]}" for kernel, clock in product(KERNELS, CLOCKS)]
COPY = results.load("h200").copy_gbps

PANELS = {
    "launch_lanes": Moving(
        {
            "kernel": Slider("µs of the kernel", list(range(1, LONGEST + 1)), 3),
            "how": Slider("launched", ["eager", "CUDA graph"], "eager"),
        },
        [Chart("µs from one kernel's start to the next", ["kernel", "idle"])],
        _launch_rows,
    ),
    "roofline_sizes": Moving(
        {"step": Slider("step", list(range(1, len(STEPS) + 1)), 7)},
        [Chart("share of the roof, %", KERNEL_CLOCKS, limit=(100, "the roof"))],
        _size_rows,
        "The largest tensors of each step, from 10 KB to more than 1 GB, on an H200.",
    ),
    "in_flight": Moving(
        {
            "loads": Slider("loads in flight per SM", list(range(1, MOST + 1)), 1),
            "bytes_each": Slider("bytes per load", list(SIZES), 512),
        },
        [
            Chart("in flight per SM, KiB", ["in flight"]),
            Chart("bandwidth of all SMs, GB/s", ["bandwidth"], limit=(COPY, "copy bandwidth")),
        ],
        _flight_rows,
    ),
    "tile_intensity": Moving(
        {
            "block_m": powers("BLOCK_M", 4, 9, 128),
            "block_n": powers("BLOCK_N", 4, 9, 128),
            "block_k": Slider("BLOCK_K", [32, 64, 128], 64),
            "stages": Slider("stages", [1, 2, 3, 4, 5], 3),
        },
        [
            Chart("FLOP per requested byte", ["tile"], log=True, limit=(159.4, "ridge point, H200")),
            Chart("shared memory, KiB", ["stages"], log=True, limit=(227, "most per program")),
        ],
        _tile_rows,
        "bf16, Hopper.",
    ),
    "decoder_layer": Moving(
        {
            "phase": Slider("phase", [DECODE, PREFILL], DECODE),
            "batch": powers("sequences", 0, 9, 1),
            "tokens": powers("tokens each", 7, 15, 4096),
        },
        [Chart("GPU, ms", list(WAYS), log=True), Chart("host: launches of 5 µs, ms", list(WAYS))],
        _layer_rows,
        f"One layer of Llama 3 8B on an H200 by the datasheet. On the GPU: {', '.join(PARTS)}.",
    ),
    "fusion_savings": Moving(
        {"rows": powers("rows", 0, 20, 8192), "cols": powers("columns", 4, 17, 8192)},
        [
            Chart("bytes, in multiples of x", ["unfused", "two passes", "resident"]),
            Chart("lower bound on time, µs", ["unfused", "two passes", "resident"], log=True),
        ],
        _fusion_rows,
        "RMSNorm in bf16; time at the H200's datasheet bandwidth.",
    ),
    "rmsnorm_passes": Moving(
        {"form": Slider("form", list(FORMS), next(iter(FORMS))), "step": Slider("step", [1, 2, 3, 4, 5, 6], 6)},
        [Chart("passes over x after this step", ["reads", "writes"])],
        _pass_rows,
        "RMSNorm of 8,192 x 8,192 in bf16.",
    ),
    "softmax_passes": Moving(
        {"cols": powers("columns", 7, 18, 8192)},
        [Chart("passes over x", list(PASSES))],
        _softmax_rows,
        "134 MB of bf16; time at the H200's datasheet bandwidth.",
    ),
    "attention_memory": Moving(
        {
            "sequence": powers("tokens", 9, 20, 16384),
            "mask": Slider("mask", [FULL, CAUSAL], CAUSAL),
            "dtype": Slider("dtype", ["bf16", "fp32"], "bf16"),
        },
        [
            Chart("memory, GB", ["unfused", "fused"], log=True, limit=(H200_GB, f"the H200's {H200_GB:.0f} GB")),
            Chart("lower bound on HBM's time, ms", ["unfused", "fused"], log=True),
        ],
        _attention_rows,
        "Batch 1, 32 query heads, 8 KV heads, head_dim 128; time at the H200's datasheet bandwidth.",
    ),
}


def table(panel: Moving) -> list[dict]:
    """A row per position of the sliders, chart and line: {slider: value or power, "chart", "line", "value", "words"}.

    A power of two stands as its exponent, which is what the slider moves over.
    """
    rows = []
    for values in product(*(slider.values for slider in panel.sliders.values())):
        chosen = dict(zip(panel.sliders, values, strict=True))
        place = {name: value.bit_length() - 1 if panel.sliders[name].power else value for name, value in chosen.items()}
        for number_, chart in enumerate(panel.charts):
            for line, (value, words) in panel.rows(**chosen)[chart.title].items():
                rows.append({**place, "chart": number_, "line": line, "value": float(f"{value:.4g}"), "words": words})
    return rows


def _parameter(name: str, slider: Slider) -> dict:
    if slider.power:
        first, last = (value.bit_length() - 1 for value in (slider.values[0], slider.values[-1]))
        bind = {"input": "range", "min": first, "max": last, "step": 1, "name": f"{slider.name} = 2 to the power of "}
        return {"name": name, "value": slider.start.bit_length() - 1, "bind": bind}
    steps = slider.values
    if all(isinstance(value, int) for value in steps) and steps == list(range(steps[0], steps[-1] + 1)):
        bind = {"input": "range", "min": steps[0], "max": steps[-1], "step": 1, "name": f"{slider.name} "}
    else:
        bind = {"input": "select", "options": steps, "name": f"{slider.name} "}
    return {"name": name, "value": slider.start, "bind": bind}


def _chart(panel: Moving, number_: int, values: list[float]) -> dict:
    """One chart: bars from 0, or points on a logarithmic axis; its axis does not move."""
    chart = panel.charts[number_]
    high = max([*values, chart.limit[0] if chart.limit else 0])
    low = min((v for v in values if v > 0), default=1)
    scale = {"type": "log", "domain": [low * 0.7, high * 4]} if chart.log else {"domain": [0, high * 1.45]}
    x = {"field": "value", "type": "quantitative", "scale": scale, "title": chart.title, "axis": {"tickCount": 5}}
    y = {"field": "line", "type": "nominal", "sort": chart.lines, "title": None, "axis": {"labelLimit": 220}}
    colour = {
        "field": "line", "type": "nominal", "legend": None,
        "scale": {"domain": chart.lines, "range": COLOURS[: len(chart.lines)]},
    }  # fmt: skip
    mark = {"type": "point", "filled": True, "size": 130} if chart.log else {"type": "bar", "height": 18}
    layers = [
        {"mark": mark, "encoding": {"x": x, "y": {**y, "scale": {"domain": chart.lines}}, "color": colour}},
        {
            "mark": {"type": "text", "align": "left", "dx": 9, "fontSize": 12},
            "encoding": {"x": x, "y": {**y, "scale": {"domain": chart.lines}}, "text": {"field": "words"}},
        },
    ]
    if chart.limit:
        value, words = chart.limit
        rule = {"data": {"values": [{"value": value, "words": words}]}, "encoding": {"x": x}}
        layers.append({**rule, "mark": {"type": "rule", "strokeDash": [5, 4]}})
        text = {"type": "text", "align": "right", "dx": -4, "y": -6, "fontSize": 11}
        layers.append({**rule, "mark": text, "encoding": {"x": x, "text": {"field": "words"}}})
    return {
        "width": WIDE if len(panel.charts) > 1 else 460,
        "height": ROW * len(chart.lines),
        "transform": [{"filter": f"datum.chart == {number_}"}],
        "layer": layers,
    }


def specification(panel: Moving) -> dict:
    """The Vega-Lite specification of a panel, data included."""
    rows = table(panel)
    same = " && ".join(f"datum.{name} == {name}" for name in panel.sliders)
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "description": panel.note,
        "title": {"text": panel.note, "anchor": "start", "fontWeight": "normal", "fontSize": 12, "offset": 14},
        "data": {"values": rows},
        "params": [_parameter(name, slider) for name, slider in panel.sliders.items()],
        "transform": [{"filter": same}],
        "hconcat": [
            _chart(panel, n, [row["value"] for row in rows if row["chart"] == n]) for n in range(len(panel.charts))
        ],
        "resolve": {"scale": {"y": "independent", "x": "independent", "color": "independent"}},
        "config": {"axis": {"grid": True, "labelFontSize": 11}, "view": {"stroke": None}},
    }


def write(folder: Path):
    """Write each panel's specification into a folder, as NAME.json."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, panel in PANELS.items():
        text = json.dumps(specification(panel), ensure_ascii=False, separators=(",", ":"))
        (folder / f"{name}.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
