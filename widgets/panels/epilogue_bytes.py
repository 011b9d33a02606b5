"""The panel of epilogues: HBM bytes of a linear layer and what follows it, unfused and in one launch."""

from instruments.gpus import DTYPES, GPUS
from kernels.linear import linear_ops, linear_traffic
from widgets.toolkit.boxes import Boxes
from widgets.toolkit.panel import BLUE, ORANGE, SKY, Checks, Example, Panel, Powers, canvas, menu
from widgets.toolkit.words import number, size, time

EXAMPLE = Example(entry="1024", text="1,024 tokens", arguments={"parts": ("bias",)})

#: What may follow the matmul; SwiGLU takes gate and up from one weight and excludes the others.
PARTS = ("bias", "activation", "residual", "swiglu")


def epilogue_bytes(
    tokens: int = 8192, K: int = 4096, N: int = 28672, parts: tuple = ("bias", "activation", "residual"), gpu="H100"
) -> Panel:
    """A bf16 linear layer with its epilogue: bytes unfused and fused, and lower bounds on time.

    Args:
        tokens: 1 to 65,536 rows of x.
        K: 256 to 32,768 columns of x.
        N: 256 to 65,536 rows of the weight, gate's and up's with 'swiglu'.
        parts: of PARTS.
        gpu: one of GPUS.
    """
    figure = canvas(height=200)
    axes = figure.add_axes((0.13, 0.16, 0.74, 0.66))
    axes.set(xlim=(0, 1), ylim=(1.9, -0.5), xticks=[])
    axes.set_yticks([0, 1], ["unfused", "fused"], fontsize=9.5)
    axes.spines[["top", "right", "bottom"]].set_visible(False)
    figure.text(0.13, 0.91, "HBM traffic by count; blue: matmul, orange: what follows it", fontsize=9.5, weight="bold")
    first, after = (Boxes(axes, color, edgecolor="white", hatch=hatch) for color, hatch in ((SKY, ""), (ORANGE, "//")))
    values = [axes.text(0, row, "", fontsize=9.5, va="center", animated=True) for row in range(2)]
    share = axes.text(0.01, 1.6, "", fontsize=9.5, va="center", color=BLUE, animated=True)

    def draw(tokens, K, N, parts, gpu):
        tokens, K, N, card = round(tokens), round(K), round(N) // 2 * 2, GPUS[gpu]
        chosen = {"swiglu"} if "swiglu" in parts else set(parts)
        flags = {part: part in chosen for part in PARTS}
        ops = linear_ops(tokens, N, K, DTYPES["bf16"], **flags)
        flags.pop("activation")
        fused = linear_traffic(tokens, N, K, DTYPES["bf16"], **flags)
        whole = sum(op.bytes for op in ops.values())
        matmul = ops["matmul"].bytes
        scale = 0.86 / max(whole, fused.bytes)
        blue = [matmul * scale, min(matmul, fused.bytes) * scale]  # SwiGLU writes less than the matmul alone
        first.place([0, 0], [-0.3, 0.7], blue, 0.6)
        after.place(blue, [-0.3, 0.7], [whole * scale - blue[0], fused.bytes * scale - blue[1]], 0.6)
        for text, nbytes in zip(values, (whole, fused.bytes)):
            text.set_text(size(nbytes))
            text.set_x(nbytes * scale + 0.01)
        unit = "bf16" if "bf16" in card.matrix else "fp16" if "fp16" in card.matrix else "vector"
        saved, flops = (whole - fused.bytes) / card.bandwidth, fused.compute_seconds(card, unit)
        share.set_text(f"saved: {time(saved)} at the {gpu}'s bandwidth; the matmul's FLOPs take {time(flops)}")
        return (
            f"{tokens:,} tokens, {K:,} to {N:,}: unfused {size(whole)} in {len(ops)} launches, fused "
            f"{size(fused.bytes)} in one. "
            f"Ratio {number(whole / fused.bytes, digits=3)}. Saved on the {gpu}: {time(saved)} by the "
            f"datasheet's bandwidth; the matmul's FLOPs take {time(flops)}."
        )

    controls = {
        "tokens": Powers("tokens", 0, 16, tokens),
        "K": Powers("K", 8, 15, K),
        "N": Powers("N", 8, 16, N),
        "parts": Checks("after the matmul", PARTS, parts),
        "gpu": menu("GPU", GPUS, "H100"),
    }
    return Panel("Bytes of an epilogue", figure, controls, draw).set(gpu=gpu)
