"""The quantization panel: bytes, FLOPs and time by the roofline of a matmul, in few bits and in bf16, and from how
many tokens on it is compute-bound."""

from instruments.gpus import GPU, GPUS
from instruments.traffic import Traffic
from kernels.low_precision.models import (
    BF16,
    PAIRS,
    compute_bound_tokens,
    pair_traffic,
    rated,
    tensor_core,
    wanted_type,
)
from widgets.toolkit.panel import BLACK, BLUE, GREEN, ORANGE, PURPLE, Example, Panel, Powers, canvas, menu
from widgets.toolkit.words import number, size, time

EXAMPLE = Example(entry="4096", text="4,096 tokens x 8,192 to 28,672", arguments={"tokens": 1})

TOKENS, WIDTHS = (0, 15), (10, 15)  # powers of two
LEAST, MOST = 0.15, 500  # times that are seen, where 1 is what one token takes in bf16
PARTS = ("weights", "their scales", "x, its scales", "y")


def quantization(
    tokens: int = 1, outputs: int = 28672, inputs: int = 8192, pair: str = "int4_g128, bf16", gpu: str = "H200"
) -> Panel:
    """y [tokens, outputs] = x [tokens, inputs] @ weight.T, in few bits and in bf16, by the roofline.

    Args:
        tokens: 1 to 32,768.
        outputs: 1,024 to 32,768.
        inputs: 1,024 to 32,768.
        pair: One of PAIRS, weights first.
        gpu: One of GPUS; the H200 by measured rates, the others by their datasheets.
    """
    picture = _Picture()

    def draw(tokens, outputs, inputs, pair, gpu):
        (card, source), tokens, outputs, inputs = rated(gpu), round(tokens), round(outputs), round(inputs)
        sizes = outputs, inputs

        def least(name, count):
            return pair_traffic(name, count, *sizes).roofline_seconds(card, tensor_core(name, card))

        work, plain = (pair_traffic(name, tokens, *sizes) for name in (pair, BF16))
        seconds, plainly = least(pair, tokens), least(BF16, tokens)
        ends = {name: compute_bound_tokens(name, *sizes, card) for name in (BF16, pair)}
        grown = {1 << power for power in range(TOKENS[0], TOKENS[1] + 1)}
        grown = sorted(grown | {end for end in ends.values() if end and end < max(grown)})
        first = least(BF16, 1)
        lines = [[least(name, count) / first for count in grown] for name in (BF16, pair)]
        picture.show(tokens, grown, lines, (plainly / first, seconds / first), ends, pair)
        picture.bars(plain, work, plainly / seconds)
        picture.source.set_text(f"{gpu} by {source} rates")
        return _alt(tokens, *sizes, pair, card, source, work, plain, ends)

    controls = {
        "tokens": Powers("tokens, M", *TOKENS, tokens),
        "outputs": Powers("outputs, N", *WIDTHS, outputs),
        "inputs": Powers("inputs, K", *WIDTHS, inputs),
        "pair": menu("weights, x", PAIRS, "int4_g128, bf16"),
        "gpu": menu("GPU", GPUS, "H200"),
    }
    return Panel("What quantization saves", picture.figure, controls, draw).set(pair=pair, gpu=gpu)


def _alt(
    tokens: int, outputs: int, inputs: int, pair: str, card: GPU, source: str, work: Traffic, plain: Traffic, ends: dict
) -> str:
    few, used, (weights, x) = pair != BF16, tensor_core(pair, card), pair.split(", ")
    nbytes, flops = work.memory_seconds(card), work.compute_seconds(card, used)
    alt = f"{tokens:,} token{'s' * (tokens > 1)} x {inputs:,} to {outputs:,}, weights in {weights}, x in {x}: "
    alt += size(work.bytes) + f", in bf16 {size(plain.bytes)}" * few
    alt += f". On the {card.name}, by {source} rates, {time(nbytes)} for bytes and {time(flops)} for FLOPs on {used}"
    alt += " tensor cores"
    wanted = wanted_type(pair)
    alt += f", as it has none for {wanted}" * (used != wanted)
    alt += ", so " + ("compute" if flops >= nbytes else "memory") + "-bound"
    if few:
        plainly = plain.roofline_seconds(card, tensor_core(BF16, card))
        ratio = number(plainly / max(nbytes, flops), digits=3)
        alt += f"; in bf16 {time(plainly)}, " + (f"{ratio} times " if ratio != "1" else "") + "as long"
    if ends[pair] is None:
        return alt + ". It is memory-bound, however many tokens there are."
    alt += f". It is compute-bound from {ends[pair]:,} tokens on"
    return alt + (f", in bf16 from {ends[BF16]:,}." if few and ends[BF16] else ".")


class _Picture:
    """Left, the roofline's time by tokens, in bf16 and in few bits. Right, the bytes of both by what they are, and the
    speedup."""

    def __init__(self):
        self.figure = canvas(height=330)
        left = self.left = self.figure.add_axes((0.085, 0.15, 0.43, 0.67))
        left.set(xscale="log", yscale="log", xlim=(0.85, 1.18 * 2 ** TOKENS[1]), ylim=(LEAST, MOST))
        left.minorticks_off()
        left.set_xticks([1, 16, 256, 4096], ["1", "16", "256", "4,096"], fontsize=9)
        left.set_yticks([1, 10, 100], ["1", "10", "100"], fontsize=9)
        left.set_xlabel("tokens; dotted: compute-bound from here on", fontsize=9, labelpad=1)
        left.spines[["top", "right"]].set_visible(False)
        self.figure.text(
            0.005, 0.945, "time by the roofline, 1 = one token in bf16", fontsize=9.5, weight="bold", va="center"
        )
        self.figure.text(0.085, 0.88, "■ bf16", fontsize=9.5, color="#8a5f00", va="center")
        self.source = self.figure.text(0.995, 0.03, "", fontsize=9, color="#555555", ha="right", animated=True)
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
        self.values = gain.text(0, 0, "", fontsize=9, va="center", animated=True)

    def show(self, tokens: int, grown: list, lines: list, now: tuple, ends: dict, pair: str):
        """lines, now: times in bf16 and in the pair. ends: {pair: tokens from which on it is compute-bound}."""
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
        self.values.set(text=number(gain, digits=3), x=gain + 0.06)
