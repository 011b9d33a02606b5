"""The attention memory panel: what eager ops hold and move and what one kernel does, by the sequence, and where a GPU's
memory ends."""

from instruments.gpus import DTYPES, GPUS
from instruments.traffic import Traffic
from kernels.attention import attention_ops, attention_traffic
from widgets.panel import BLACK, BLUE, INK_RED, ORANGE, RED, Example, Panel, Powers, canvas, menu
from widgets.words import number, size, time

EXAMPLE = Example(typed="4096", told="4,096 tokens", shown={"sequence": 16384})

FULL, CAUSAL = "full", "causal"
#: Query heads and key heads: one, as in Llama 2 7B, Llama 3 8B and Llama 3 70B.
HEADS = {"1": (1, 1), "32": (32, 32), "32, 8 of keys": (32, 8), "64, 8 of keys": (64, 8)}
HEAD_DIMS = (64, 128)
SIZES = ("bf16", "fp32")
_LEAST, _MOST = 9, 20  # powers of two of the sequence
_FASTEST = 1e-8  # seconds at which a bar of time begins
_INK_ORANGE = "#8a5f00"


def held(work: Traffic, ops: dict) -> int:
    """Bytes that eager ops hold at once, at the worst: q, k and v, and what softmax reads and writes."""
    return work.bytes_read + ops["softmax"].bytes


def longest(memory: int, held_at) -> int:
    """The longest sequence of which so many bytes hold everything; held_at(sequence) gives the bytes, and rises."""
    low, high = 0, 1
    while held_at(high) <= memory:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if held_at(middle) <= memory else (low, middle)
    return low


def attention_memory(
    sequence: int = 16384,
    batch: int = 1,
    heads: str = "32, 8 of keys",
    head_dim: int = 128,
    mask: str = CAUSAL,
    dtype: str = "bf16",
    gpu: str = "H200",
) -> Panel:
    """Attention of so many tokens against themselves: bytes held and moved, and the least time for bytes and products.

    sequence: 512 to 1,048,576. batch: 1 to 16. heads: one of HEADS; head_dim, mask, dtype, gpu: one of their menus.
    """
    picture = _Picture()

    def draw(sequence, batch, heads, head_dim, mask, dtype, gpu):
        sequence, batch, card, kind = round(sequence), round(batch), GPUS[gpu], DTYPES[dtype]
        heads, kv_heads = HEADS[heads]
        options = {"causal": mask == CAUSAL, "kv_heads": kv_heads}

        def both(tokens):
            sizes = batch, heads, tokens, tokens, head_dim, kind
            return attention_traffic(*sizes, **options), attention_ops(*sizes, **options)

        def held_at(tokens):
            return held(*both(tokens))

        work, ops = both(sequence)
        eager = sum(ops.values())
        scores = ops["q @ k^T"].written["scores"]
        unit = next((u for u in (("tf32",) if dtype == "fp32" else (dtype,)) if u in card.matrix), "vector")
        bounds = [
            eager.memory_seconds(card),
            eager.compute_seconds(card, unit),
            work.memory_seconds(card),
            work.compute_seconds(card, unit),
        ]
        end = longest(card.memory, held_at)
        grown = [1 << power for power in range(_LEAST, _MOST + 1)]
        now = held_at(sequence), work.bytes
        lines = [(held(*pair), pair[0].bytes) for pair in map(both, grown)]
        picture.show(sequence, now, grown, lines, card, end, bounds)
        return (
            f"{batch} x {heads} head{'s' * (heads > 1)}, {kv_heads} of keys, {sequence:,} tokens of {head_dim}, "
            f"{dtype}, {mask}: the scores take {size(scores)}, {number(scores / work.bytes, digits=3)} times q, k, v "
            f"and out ({size(work.bytes)}). Eager ops hold {size(now[0])} at once; the {gpu}'s {size(card.memory)} end "
            f"after {end:,} tokens. They move {size(eager.bytes)}, at least {time(bounds[0])}; one kernel moves "
            f"{size(work.bytes)}, at least {time(bounds[2])}, and its products take {time(bounds[3])} or more."
        )

    controls = {
        "sequence": Powers("tokens", _LEAST, _MOST, sequence),
        "batch": Powers("batch", 0, 4, batch),
        "heads": menu("heads", HEADS, "32, 8 of keys"),
        "head_dim": menu("head_dim", HEAD_DIMS, 128),
        "mask": menu("mask", (FULL, CAUSAL), CAUSAL),
        "dtype": menu("dtype", SIZES, "bf16"),
        "gpu": menu("GPU", GPUS, "H200"),
    }
    return Panel("Attention: memory and time", picture.figure, controls, draw).set(
        heads=heads, head_dim=head_dim, mask=mask, dtype=dtype, gpu=gpu
    )


class _Picture:
    """Left, bytes by the sequence, and the GPU's memory across; right, the least times of both forms."""

    def __init__(self):
        self.figure = canvas(height=310)
        left = self.figure.add_axes((0.085, 0.16, 0.37, 0.7))
        low, high = 1 << _LEAST, 1 << _MOST
        left.set(xscale="log", yscale="log", xlim=(low, high), ylim=(1e5, 1e16))
        left.minorticks_off()
        left.set_xticks([1 << p for p in (10, 13, 16, 19)], ["1 k", "8 k", "65 k", "524 k"], fontsize=9)
        left.set_yticks([1e6, 1e9, 1e12, 1e15], ["1 MB", "1 GB", "1 TB", "1 PB"], fontsize=9)
        left.set_xlabel("tokens", fontsize=9)
        left.spines[["top", "right"]].set_visible(False)
        self.figure.text(0.005, 0.93, "held at once", fontsize=9.5, weight="bold")
        self.figure.text(0.15, 0.93, "\N{BLACK SQUARE} eager ops", fontsize=9.5, color=_INK_ORANGE)
        self.figure.text(0.285, 0.93, "\N{BLACK CIRCLE} kernel", fontsize=9.5, color=BLUE)
        self.lines = [left.plot([], [], color=colour, linewidth=2, animated=True)[0] for colour in (ORANGE, BLUE)]
        self.points = [
            left.plot([], [], marker, color=colour, markeredgecolor=BLACK, markersize=9, clip_on=False, animated=True)[
                0
            ]
            for colour, marker in ((ORANGE, "s"), (BLUE, "o"))
        ]
        (self.memory,) = left.plot([], [], "--", color=RED, linewidth=1.5)
        (self.end,) = left.plot([], [], ":", color=RED, linewidth=1.5, animated=True)
        self.name = left.text(low * 1.1, 1, "", fontsize=9, color=INK_RED, va="bottom")
        right = self.figure.add_axes((0.61, 0.16, 0.38, 0.7))
        right.set(xscale="log", xlim=(_FASTEST, 1e9), ylim=(3.6, -0.7), yticks=[])
        right.minorticks_off()
        right.set_xticks([1e-6, 1e-3, 1, 1e3], ["1 µs", "1 ms", "1 s", "1,000 s"], fontsize=9)
        right.spines[["top", "right"]].set_visible(False)
        self.figure.text(0.5, 0.93, "least time", fontsize=9.5, weight="bold")
        self.bars, self.said = [], []
        for row, (words, colour, hatch) in enumerate(
            (
                ("eager, bytes", ORANGE, ""),
                ("products", ORANGE, "//"),
                ("kernel, bytes", BLUE, ""),
                ("products", BLUE, "//"),
            )
        ):
            y = 1 - (row + 0.7) / 4.3
            self.figure.text(0.602, 0.16 + 0.7 * y, words, fontsize=9, ha="right", va="center")
            self.bars += right.barh(
                row, 0, 0.55, left=_FASTEST, color=colour, hatch=hatch, edgecolor="white", animated=True
            )
            self.said.append(right.text(1, row, "", fontsize=9, va="center", animated=True))

    def show(self, sequence: int, now: tuple, grown: list, lines: list, card, end: int, bounds: list):
        """now, and each of lines: bytes of eager ops and of the kernel. bounds: seconds, a bar each."""
        for line, point, values, here in zip(self.lines, self.points, zip(*lines), now):
            line.set_data(grown, values)
            point.set_data([sequence], [here])
        if self.name.get_text() != (words := f"{card.name}: {size(card.memory)}"):
            self.name.set(text=words, y=card.memory * 1.6)
            self.memory.set_data([grown[0], grown[-1]], [card.memory] * 2)
        self.end.set_data([end, end], [1e5, card.memory])
        for bar, words, seconds in zip(self.bars, self.said, bounds):
            bar.set_width(max(seconds - _FASTEST, 0))
            words.set(text=time(seconds), x=max(seconds, _FASTEST) * 1.8)
