"""The decoder-layer panel: how long one layer of Llama 3 8B takes the GPU and the host, unfused and fused."""

import torch
from matplotlib.patches import Rectangle

from instruments.gpus import GPUS
from instruments.traffic import LAUNCH_SECONDS, Traffic
from kernels.attention.traffic import attention_traffic
from kernels.decoder.layer import COUNTS, LLAMA_3_8B, fused_ops, layer_ops, matmul_ops
from widgets.toolkit.boxes import Boxes
from widgets.toolkit.panel import BLUE, GREEN, ORANGE, PURPLE, WIDTH, Example, Panel, Powers, canvas, menu, whole
from widgets.toolkit.words import size, time

EXAMPLE = Example(entry="8", text="8 sequences")

DECODE, PREFILL = "decode: 1 new token", "prefill: the whole prompt"
SMALL = "pointwise and norm ops"
#: What the GPU does, and how its part of a bar looks.
PARTS = {"matmuls": (GREEN, "//"), "attention": (PURPLE, ""), SMALL: (ORANGE, "\\\\")}
WAYS = ("unfused", "fused")
NEWEST = {name: gpu for name, gpu in GPUS.items() if "bf16" in gpu.matrix}


def layer_work(batch: int, queries: int, keys: int, fused: bool) -> dict[str, list[Traffic]]:
    """{part: the traffic of each of its kernels} of one layer of Llama 3 8B in bf16."""
    model, tokens = LLAMA_3_8B, batch * queries
    groups = layer_ops(model, batch, queries)
    if fused:
        groups = {
            name: ops if name == "KV cache" else {name: fused_ops(model, batch, queries)[name]}
            for name, ops in groups.items()
        }
    attention = attention_traffic(
        batch, model.heads, queries, keys, model.head_dim, torch.bfloat16, causal=queries > 1, kv_heads=model.kv_heads
    )
    return {
        "matmuls": list(matmul_ops(model, tokens, joined=fused).values()),
        "attention": [attention],
        SMALL: [op for name, ops in groups.items() for op in [*ops.values()] * COUNTS[name]],
    }


def layer_seconds(work: dict, gpu) -> dict[str, float]:
    """{part: the sum of its kernels' lower bounds}."""
    unit = {"matmuls": "bf16", "attention": "bf16", SMALL: "vector"}
    return {part: sum(kernel.roofline_seconds(gpu, unit[part]) for kernel in kernels) for part, kernels in work.items()}


def decoder_layer(
    phase: str = DECODE, batch: int = 1, tokens: int = 4096, gpu: str = "H200", per_launch: int | None = None
) -> Panel:
    """Lower bounds on the GPU's time for one layer, beside the host's time to launch its kernels.

    Args:
        phase: DECODE or PREFILL.
        batch: sequences, 1 to 512.
        tokens: in the KV cache of each sequence, or in each prompt; 128 to 32,768.
        gpu: whose bandwidth and peak, by the datasheet.
        per_launch: microseconds of the host per launch, 0 to 30; 0 is what a CUDA graph comes close to.
    """
    figure = canvas(height=270)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, WIDTH), ylim=(270, 0))
    axes.axis("off")
    left, wide = 150, 430
    tall, rows = 26, {}
    x = left
    looks = {**PARTS, "host: launches": ("white", "////")}
    for name, (colour, hatch) in looks.items():
        edge = BLUE if colour == "white" else "white"
        axes.add_patch(Rectangle((x, 12), 18, 14, facecolor=colour, hatch=hatch, edgecolor=edge, linewidth=0.8))
        axes.text(x + 24, 19, name, fontsize=9.5, va="center")
        x += 44 + 7.4 * len(name)
    for place, way in enumerate(WAYS):
        top = 50 + 108 * place
        axes.text(12, top + 32, way, fontsize=11, weight="bold", va="center")
        for line, name in enumerate(("GPU", "host")):
            axes.text(left - 8, top + 16 + 36 * line, name, fontsize=9.5, ha="right", va="center")
        axes.plot([left, left], [top - 4, top + 72], color="#888888", linewidth=1)
        rows[way] = {
            "top": top,
            "parts": {p: Boxes(axes, c, hatch=h, edgecolor="white", linewidth=0.5) for p, (c, h) in PARTS.items()},
            "host": Boxes(axes, "white", hatch="////", edgecolor=BLUE, linewidth=1),
            "gpu words": axes.text(0, top + 16, "", fontsize=9.5, va="center", animated=True),
            "host words": axes.text(0, top + 52, "", fontsize=9.5, va="center", animated=True),
        }

    note = axes.text(left, 254, "", fontsize=9.5, va="center", color="#444444", animated=True)

    def draw(phase, batch, tokens, gpu, per_launch):
        batch, tokens, device = round(batch), round(tokens), GPUS[gpu]
        queries = 1 if phase == DECODE else tokens
        found = {}
        for way in WAYS:
            work = layer_work(batch, queries, tokens, way == "fused")
            launches = sum(map(len, work.values()))
            found[way] = work, layer_seconds(work, device), launches, launches * per_launch * 1e-6
        most = max(max(sum(parts.values()), host) for _, parts, _, host in found.values())
        for way, (_, parts, launches, host) in found.items():
            row, start = rows[way], left
            for part, boxes in row["parts"].items():
                length = parts[part] / most * wide
                boxes.place(start, row["top"] + 16 - tall / 2, length, tall)
                start += length
            row["host"].place(left, row["top"] + 52 - tall / 2, host / most * wide, tall)
            row["gpu words"].set_position((start + 6, row["top"] + 16))
            row["gpu words"].set_text(time(sum(parts.values())))
            row["host words"].set_position((left + host / most * wide + 6, row["top"] + 52))
            row["host words"].set_text(f"{time(host)}, {launches} launches")
        each = (f"{time(parts[SMALL])} {way}" for way, (_, parts, *_) in found.items())
        note.set_text(f"of the GPU's time, {SMALL}: {', '.join(each)}")
        return _alt(phase, batch, tokens, device, found)

    return Panel(
        "One layer of Llama 3 8B, unfused and fused",
        figure,
        {
            "batch": Powers("batch", 0, 9, 1),
            "tokens": Powers("tokens", 7, 15, 4096),
            "phase": menu("phase", (DECODE, PREFILL), DECODE),
            "gpu": menu("GPU", NEWEST, "H200"),
            "per_launch": whole("µs per launch", 0, 30, round(LAUNCH_SECONDS * 1e6)),
        },
        draw,
    ).set(
        phase=phase, batch=batch, tokens=tokens, gpu=gpu, **({} if per_launch is None else {"per_launch": per_launch})
    )


def _alt(phase, batch, tokens, gpu, found) -> str:
    totals, limits = {}, []
    for way, (_, parts, _, host) in found.items():
        totals[way] = max(sum(parts.values()), host)
        bound = "launch-bound" if host > sum(parts.values()) else "bound by the GPU"
        limits.append(f"{way} {time(totals[way])}, {bound}")
    many = f"{batch:,} sequence{'s' * (batch != 1)}"
    alt = f"{'; '.join(limits).replace('unfused', 'Unfused', 1)}. "
    alt += f"{phase.split(':')[0].capitalize()} of {many}, {tokens:,} tokens each, {gpu.name}. "
    for way, (work, parts, launches, host) in found.items():
        moved = sum(op.bytes for op in work[SMALL])
        alt += (
            f"{way.capitalize()}, {launches} launches take the host {time(host)}, and the GPU needs at least "
            + ", ".join(f"{time(seconds)} for {part}" for part, seconds in parts.items())
            + f", which move {size(moved)}. "
        )
    saved = 1 - totals["fused"] / totals["unfused"]
    return alt + f"Fusion saves {saved:.0%} of the layer's time, if host and GPU overlap."
