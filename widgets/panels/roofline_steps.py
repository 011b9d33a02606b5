"""The roofline drawn up step by step: axes, memory roof, compute roof, ridge point, and kernels of one layer."""

import torch

from instruments.gpus import GPUS
from instruments.ops import elementwise, gemm
from instruments.results import rates
from widgets.toolkit.panel import BLUE, GREEN, INK_RED, ORANGE, RED, SKY, Example, Panel, canvas, whole
from widgets.toolkit.words import number, rate

EXAMPLE = Example(entry="4", text="ridge point")

X, Y = (0.08, 20_000), (1e11, 4e15)  # FLOP/byte, FLOP/s
LAST = 7
#: The gate and up projection of Llama 3 8B: outputs, inputs.
OUTPUTS, INPUTS = 28672, 4096


def layer_matmul(tokens: int):
    """The traffic of that projection for so many tokens, in bf16."""
    return gemm(tokens, OUTPUTS, INPUTS, torch.bfloat16)


def roofline_steps(step: int = 1) -> Panel:
    """The roofline of the H200, by measured rates.

    Args:
        step: 1 the axes, 2 the memory roof, 3 the compute roof, 4 the ridge point, 5 decode, 6 prefill, 7 the roof of
            the CUDA cores.
    """
    limits = rates("H200")
    bandwidth, peak, ridge = limits.bandwidth, limits.peak, limits.ridge
    cores = GPUS["H200"].vector
    decode, prefill, add = layer_matmul(1), layer_matmul(4096), elementwise(4096 * INPUTS, dtype=torch.bfloat16)
    figure = canvas(height=380)
    axes = figure.add_axes((0.135, 0.125, 0.85, 0.84))
    axes.set(xscale="log", yscale="log", xlim=X, ylim=Y)
    axes.set_xlabel("arithmetic intensity, FLOP/byte", fontsize=9.5)
    axes.set_xticks([0.1, 1, 10, 100, 1000, 1e4], ["0.1", "1", "10", "100", "1,000", "10,000"], fontsize=9)
    ticks = [1e11, 1e12, 1e13, 1e14, 1e15]
    axes.set_yticks(ticks, [rate(tick) for tick in ticks], fontsize=9)
    axes.minorticks_off()
    axes.grid(color="#e4e4e4", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    words = {"fontsize": 9.5, "animated": True}

    def line(xs, ys, colour, **look):
        return axes.plot(xs, ys, **{"color": colour, "linewidth": 2.6, "animated": True, **look})[0]

    def dot(work, height, colour, marker):
        look = {"marker": marker, "markersize": 10, "markeredgecolor": "black"}
        return line([work.intensity], [height], colour, **look)

    def drop(work, height, colour):
        return line([work.intensity] * 2, [Y[0], height], colour, linewidth=1, linestyle=":")

    at_decode = decode.intensity * bandwidth
    at_add = add.intensity * bandwidth
    memory = line([X[0], X[1]], [X[0] * bandwidth, X[1] * bandwidth], BLUE)
    memory_cut = line([X[0], ridge], [X[0] * bandwidth, peak], BLUE)
    compute = line([X[0], X[1]], [peak, peak], RED)
    compute_cut = line([ridge, X[1]], [peak, peak], RED)
    shown = {  # artist: the steps at which it is seen
        line([X[0], 10, 10], [1e12, 1e12, Y[0]], "#777777", linewidth=1, linestyle=":"): (1,),
        line([10], [1e12], SKY, marker="o", markersize=10, markeredgecolor="black"): (1,),
        axes.text(13, 1e12, "a kernel: 10 FLOP/byte, 1 TFLOP/s", va="center", **words): (1,),
        memory: (2,),
        line([1, 10], [bandwidth, 10 * bandwidth], SKY, marker="o", markeredgecolor="black", linestyle="none"): (2,),
        axes.text(1.35, bandwidth / 1.5, f"1 FLOP/byte: {rate(bandwidth)}", va="center", **words): (2,),
        axes.text(13.5, 10 * bandwidth / 1.5, f"10 FLOP/byte: {rate(10 * bandwidth)}", va="center", **words): (2,),
        axes.text(
            3, 2.3e13, "bandwidth × intensity", rotation=29, color=BLUE, ha="center", va="center", **words
        ): range(2, 8),
        compute: (3,),
        memory_cut: range(3, 8),
        compute_cut: range(4, 8),
        axes.text(X[1], peak * 1.5, f"tensor cores, {rate(peak)}", color=INK_RED, ha="right", **words): range(3, 8),
        line([ridge, ridge], [Y[0], peak], "#555555", linewidth=1.2, linestyle="--"): range(4, 8),
        axes.text(
            ridge * 1.12, Y[0] * 1.3, f"ridge point\n{number(ridge, digits=3)} FLOP/byte", color="#444444", **words
        ): range(4, 8),
        axes.text(6, Y[0] * 1.5, "memory-bound", color=BLUE, ha="center", **words): range(4, 8),
        axes.text(6500, Y[0] * 1.5, "compute-bound", color=INK_RED, ha="center", **words): range(4, 8),
        drop(decode, at_decode, ORANGE): (5, 6, 7),
        dot(decode, at_decode, ORANGE, "o"): (5, 6, 7),
        axes.text(
            decode.intensity * 1.3, at_decode / 1.35, f"decode, 1 token: {rate(at_decode)}", va="center", **words
        ): (5, 6, 7),
        drop(prefill, peak, GREEN): (6, 7),
        dot(prefill, peak, GREEN, "s"): (6, 7),
        axes.text(prefill.intensity * 1.25, peak / 1.5, "prefill,\n4,096 tokens", va="top", **words): (6, 7),
        line([cores / bandwidth, X[1]], [cores, cores], "#444444", linewidth=1.8): (7,),
        axes.text(X[1], cores / 1.2, f"CUDA cores,\n{rate(cores)}", ha="right", va="top", color="#333333", **words): (
            7,
        ),
        dot(add, at_add, SKY, "^"): (7,),
        axes.text(add.intensity / 1.2, at_add * 1.5, "add", ha="right", va="center", **words): (7,),
    }

    texts = {
        1: "Step 1: a kernel is a point, its FLOP/byte across and its FLOP/s upward. Both axes are "
        "logarithmic: each grid line is ten times the one before.",
        2: f"Step 2: memory at {bandwidth / 1e9:,.0f} GB/s allows bandwidth × intensity. This is the memory roof: at 1 "
        f"FLOP/byte it allows {rate(bandwidth)}, at 10 FLOP/byte {rate(10 * bandwidth)}.",
        3: f"Step 3: the tensor cores allow {rate(peak)}, whatever the intensity. This is the compute roof.",
        4: f"Step 4: the roofs meet at the ridge point, {number(ridge, digits=3)} FLOP/byte. To its left a kernel is "
        "memory-bound, to its right compute-bound.",
        5: f"Step 5: decode with 1 token has {number(decode.intensity, digits=3)} FLOP/byte and gets at most "
        f"{rate(at_decode)}. That is {at_decode / peak:.2%} of what the tensor cores allow.",
        6: f"Step 6: prefill with 4,096 tokens has {number(prefill.intensity, digits=4)} FLOP/byte and may reach "
        f"{rate(peak)}. The weights are the same as in decode.",
        7: f"Step 7: what is not a matmul runs on CUDA cores, under a lower roof of {rate(cores)} by the datasheet. "
        f"An addition has {number(add.intensity, digits=2)} FLOP/byte, so memory bounds it all the same.",
    }

    def draw(step):
        for artist, steps in shown.items():
            artist.set_visible(step in steps)
        return texts[step]

    return Panel("The roofline, step by step", figure, {"step": whole("step", 1, LAST, 1)}, draw).set(step=step)
