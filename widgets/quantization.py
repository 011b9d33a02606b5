"""The panel of what quantisation buys: bytes, products and the least time of a matrix product, in few bits and in bf16,
and from how many tokens on its products take longer than its bytes."""

from dataclasses import replace
from functools import lru_cache

import torch

from instruments.gpus import GPU, GPUS
from instruments.traffic import Traffic
from kernels.matmul import matmul_traffic
from kernels.scaled_matmul import scaled_matmul_traffic
from kernels.weight_only import weight_only_matmul_traffic
from widgets.panel import BLACK, BLUE, GREEN, ORANGE, PURPLE, Example, Panel, Powers, canvas, menu
from widgets.words import number, size, time

EXAMPLE = Example(typed="4096", told="4,096 tokens x 8,192 to 28,672", shown={"tokens": 1})

BF16 = "bf16, bf16"
#: name, weights first: (scheme of the weights, scheme of the activations); None: bf16, as they are
PAIRS = {
    BF16: (None, None),
    "int8_row, bf16": ("int8_row", None),
    "int8_g128, bf16": ("int8_g128", None),
    "int4_g128, bf16": ("int4_g128", None),
    "mxfp4, bf16": ("mxfp4", None),
    "nvfp4, bf16": ("nvfp4", None),
    "fp8_row, fp8_row": ("fp8_row", "fp8_row"),
    "fp8_128x128, fp8_1x128": ("fp8_128x128", "fp8_1x128"),
    "mxfp8, mxfp8": ("mxfp8", "mxfp8"),
    "mxfp4, mxfp8": ("mxfp4", "mxfp8"),
    "mxfp4, mxfp4": ("mxfp4", "mxfp4"),
    "nvfp4, nvfp4": ("nvfp4", "nvfp4"),
}
#: Units that can multiply activations of a scheme, the fastest first; a narrower operand is widened to what they take.
UNITS = {None: ("bf16", "fp16"), "fp8": ("fp8", "bf16", "fp16"), "fp4": ("fp4", "fp8", "bf16", "fp16")}
TOKENS, WIDTHS = (0, 15), (10, 15)  # powers of two
LEAST, MOST = 0.15, 500  # times that are seen, where 1 is what one token takes in bf16
PARTS = ("weights", "their scales", "x, its scales", "y")


@lru_cache(maxsize=4096)
def traffic(pair: str, tokens: int, outputs: int, inputs: int) -> Traffic:
    """What y [tokens, outputs] = x [tokens, inputs] @ weights.T moves at least."""
    weights, activations = PAIRS[pair]
    if weights is None:
        work = matmul_traffic(tokens, outputs, inputs, torch.bfloat16)
        return Traffic({"x": work.read["a"], "weight": work.read["b"]}, {"y": work.written["c"]}, work.flops, 1)
    if activations is None:
        work = weight_only_matmul_traffic(tokens, outputs, inputs, weights, torch.bfloat16, path="minimum")
        return replace(work, read={"weight" if name == "codes" else name: size for name, size in work.read.items()})
    return scaled_matmul_traffic(tokens, outputs, inputs, activations, weights, path="minimum")


def _kind(pair: str) -> str | None:
    """Which of UNITS a pair asks for: its activations decide."""
    _, activations = PAIRS[pair]
    return activations and ("fp4" if activations.endswith("fp4") else "fp8")


def unit(pair: str, gpu: GPU) -> str:
    """The fastest matrix unit of a GPU that takes both operands."""
    return next(name for name in UNITS[_kind(pair)] if name in gpu.matrix)


def turns(pair: str, outputs: int, inputs: int, gpu: GPU) -> int | None:
    """The fewest tokens whose products take at least as long as their bytes; None where bytes always take longer."""

    def computes(tokens):
        work = traffic(pair, tokens, outputs, inputs)
        return work.compute_seconds(gpu, unit(pair, gpu)) >= work.memory_seconds(gpu)

    low, high = 0, 1 << 20
    if not computes(high):
        return None
    while high - low > 1:  # once products take longer, more tokens do not change that
        middle = (low + high) // 2
        low, high = (low, middle) if computes(middle) else (middle, high)
    return high


def quantization(
    tokens: int = 1, outputs: int = 28672, inputs: int = 8192, pair: str = "int4_g128, bf16", gpu: str = "H200"
) -> Panel:
    """y [tokens, outputs] = x [tokens, inputs] @ weights.T, in few bits and in bf16: bytes, products and least time.

    tokens: 1 to 32,768. outputs, inputs: 1,024 to 32,768. pair: one of PAIRS, weights first. gpu: one of GPUS.
    """
    picture = _Picture()

    def draw(tokens, outputs, inputs, pair, gpu):
        tokens, outputs, inputs, card = round(tokens), round(outputs), round(inputs), GPUS[gpu]
        sizes = outputs, inputs

        def least(name, count):
            return traffic(name, count, *sizes).roofline_seconds(card, unit(name, card))

        work, plain = (traffic(name, tokens, *sizes) for name in (pair, BF16))
        seconds, plainly = least(pair, tokens), least(BF16, tokens)
        ends = {name: turns(name, *sizes, card) for name in (BF16, pair)}
        grown = {1 << power for power in range(TOKENS[0], TOKENS[1] + 1)}
        grown = sorted(grown | {end for end in ends.values() if end and end < max(grown)})
        first = least(BF16, 1)
        lines = [[least(name, count) / first for count in grown] for name in (BF16, pair)]
        picture.show(tokens, grown, lines, (plainly / first, seconds / first), ends, pair)
        picture.bars(plain, work, plainly / seconds)
        return _sentence(tokens, *sizes, pair, card, work, plain, ends)

    controls = {
        "tokens": Powers("tokens, M", *TOKENS, tokens),
        "outputs": Powers("outputs, N", *WIDTHS, outputs),
        "inputs": Powers("inputs, K", *WIDTHS, inputs),
        "pair": menu("weights, x", PAIRS, "int4_g128, bf16"),
        "gpu": menu("GPU", GPUS, "H200"),
    }
    return Panel("What quantisation buys", picture.figure, controls, draw).set(pair=pair, gpu=gpu)


def _sentence(
    tokens: int, outputs: int, inputs: int, pair: str, card: GPU, work: Traffic, plain: Traffic, ends: dict
) -> str:
    few, used, (weights, x) = pair != BF16, unit(pair, card), pair.split(", ")
    nbytes, products = work.memory_seconds(card), work.compute_seconds(card, used)
    said = f"{tokens:,} token{'s' * (tokens > 1)} x {inputs:,} to {outputs:,}, weights in {weights}, x in {x}: "
    said += size(work.bytes) + f", in bf16 {size(plain.bytes)}" * few
    said += f". On the {card.name} at least {time(nbytes)} for bytes and {time(products)} for products by {used} units"
    wanted = UNITS[_kind(pair)][0]
    said += f", as it has none for {wanted}" * (used != wanted)
    said += ", so bound by " + ("products" if products >= nbytes else "bytes")
    if few:
        plainly = plain.roofline_seconds(card, unit(BF16, card))
        ratio = number(plainly / max(nbytes, products), digits=3)
        said += f"; in bf16 at least {time(plainly)}, " + (f"{ratio} times " if ratio != "1" else "") + "as long"
    if ends[pair] is None:
        return said + ". Bytes take longer, however many tokens there are."
    said += f". Decode turns into prefill at {ends[pair]:,} tokens"
    return said + (f", in bf16 at {ends[BF16]:,}." if few and ends[BF16] else ".")


class _Picture:
    """Left, the least time by tokens, in bf16 and in few bits. Right, the bytes of both by what they are, and how many
    times faster."""

    def __init__(self):
        self.figure = canvas(height=330)
        left = self.left = self.figure.add_axes((0.085, 0.15, 0.43, 0.67))
        left.set(xscale="log", yscale="log", xlim=(0.85, 1.18 * 2 ** TOKENS[1]), ylim=(LEAST, MOST))
        left.minorticks_off()
        left.set_xticks([1, 16, 256, 4096], ["1", "16", "256", "4,096"], fontsize=9)
        left.set_yticks([1, 10, 100], ["1", "10", "100"], fontsize=9)
        left.set_xlabel("tokens; dotted: where products take as long as bytes", fontsize=9, labelpad=1)
        left.spines[["top", "right"]].set_visible(False)
        self.figure.text(
            0.005, 0.945, "least time, where 1 is one token's in bf16", fontsize=9.5, weight="bold", va="center"
        )
        self.figure.text(0.085, 0.88, "■ bf16", fontsize=9.5, color="#8a5f00", va="center")
        self.name = self.figure.text(0.165, 0.88, "", fontsize=9.5, color=BLUE, va="center", animated=True)
        look = {"animated": True}
        self.ends = [left.plot([], [], ":", color=colour, linewidth=1.6, **look)[0] for colour in (ORANGE, BLUE)]
        self.lines = [left.plot([], [], color=colour, linewidth=2, **look)[0] for colour in (ORANGE, BLUE)]
        self.points = [
            left.plot([], [], marker, color=colour, markeredgecolor=BLACK, markersize=9, clip_on=False, **look)[0]
            for colour, marker in ((ORANGE, "s"), (BLUE, "o"))
        ]
        right = self.figure.add_axes((0.63, 0.5, 0.36, 0.32))
        right.set(xlim=(0, 1.16), ylim=(1.5, -0.5), yticks=[])
        right.set_xticks([0, 0.5, 1], ["0", "half", "bf16's"], fontsize=9)
        right.spines[["top", "right"]].set_visible(False)
        self.figure.text(0.545, 0.945, "bytes", fontsize=9.5, weight="bold", va="center")
        self.parts = []
        colours = (BLUE, PURPLE, GREEN, "#9a9a9a")
        self.stacks = [
            [
                right.barh(row, 0, 0.62, color=c, hatch=h, edgecolor="white", **look)[0]
                for c, h in zip(colours, ("", "", "//", ".."))
            ]
            for row in range(2)
        ]
        for x, words, colour in zip((0.545, 0.643, 0.77, 0.905), PARTS, ("#0072B2", "#94507a", "#00694d", "#555555")):
            self.figure.text(x, 0.88, f"■ {words}", fontsize=9, color=colour, va="center")
        for row, words in enumerate(("bf16", "this")):
            self.figure.text(0.622, 0.5 + 0.32 * (1 - (row + 0.5) / 2), words, fontsize=9, ha="right", va="center")
        self.figure.text(0.545, 0.335, "times faster than bf16", fontsize=9.5, weight="bold", va="center")
        gain = self.figure.add_axes((0.63, 0.15, 0.36, 0.13))
        gain.set(xlim=(0, 4.6), ylim=(-0.5, 0.5), yticks=[])
        gain.set_xticks([0, 1, 2, 3, 4], ["0", "1", "2", "3", "4"], fontsize=9)
        gain.spines[["top", "right"]].set_visible(False)
        self.gain = gain.barh(0, 0, 0.62, color=BLUE, animated=True)[0]
        self.said = gain.text(0, 0, "", fontsize=9, va="center", animated=True)

    def show(self, tokens: int, grown: list, lines: list, now: tuple, ends: dict, pair: str):
        """lines, now: times in bf16 and in the pair. ends: {pair: tokens at which it turns}."""
        self.name.set_text(f"● weights, x: {pair}")
        for line, point, times, here in zip(self.lines, self.points, lines, now):
            line.set_data(grown, times)
            point.set_data([tokens], [here])
        for line, name in zip(self.ends, (BF16, pair)):
            end = ends[name]
            line.set_data([end, end] if end else [], [LEAST, MOST] if end else [])

    def bars(self, plain: Traffic, work: Traffic, gain: float):
        """The bytes of both, each part a share of all that bf16 moves."""
        for stack, moved in zip(self.stacks, (plain, work)):
            x = sum(nbytes for name, nbytes in moved.read.items() if name.startswith("x"))
            weights, at = moved.read["weight"], 0.0
            for bar, nbytes in zip(stack, (weights, moved.bytes_read - x - weights, x, moved.written["y"])):
                bar.set(x=at, width=nbytes / plain.bytes, visible=nbytes > 0)
                at += nbytes / plain.bytes
        self.gain.set_width(gain)
        self.said.set(text=number(gain, digits=3), x=gain + 0.06)
