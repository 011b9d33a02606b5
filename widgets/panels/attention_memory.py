"""The attention memory panel: what unfused ops hold and move and what one kernel does, by sequence length, and the
longest sequence that fits in a GPU's memory."""

from instruments.gpus import DTYPES, GPUS
from kernels.attention.forward import attention_ops, attention_traffic
from kernels.attention.models import CAUSAL, FULL, longest_sequence, unfused_peak_bytes
from widgets.toolkit.panel import BLACK, BLUE, INK_RED, ORANGE, RED, Example, Panel, Powers, canvas, menu
from widgets.toolkit.words import number, size, time

EXAMPLE = Example(entry="4096", text="4,096 tokens", arguments={"sequence": 16384})

#: Query heads and key heads: one, as in Llama 2 7B, Llama 3 8B and Llama 3 70B.
HEADS = {"1": (1, 1), "32": (32, 32), "32, 8 of keys": (32, 8), "64, 8 of keys": (64, 8)}
HEAD_DIMS = (64, 128)
SIZES = ("bf16", "fp32")
_LEAST, _MOST = 9, 20  # powers of two of the sequence
_FASTEST = 1e-8  # seconds at which the axis of times begins
_INK_ORANGE = "#8a5f00"


def attention_memory(
    sequence: int = 16384,
    batch: int = 1,
    heads: str = "32, 8 of keys",
    head_dim: int = 128,
    mask: str = CAUSAL,
    dtype: str = "bf16",
    gpu: str = "H200",
) -> Panel:
    """Attention of a sequence to itself: peak memory, bytes and lower bounds on time, unfused and in one kernel.

    Args:
        sequence: 512 to 1,048,576 tokens.
        batch: 1 to 16.
        heads: One of HEADS.
        head_dim: One of HEAD_DIMS.
        mask: FULL or CAUSAL.
        dtype: One of SIZES.
        gpu: One of GPUS.
    """
    picture = _Picture()

    def draw(sequence, batch, heads, head_dim, mask, dtype, gpu):
        sequence, batch, card, kind = round(sequence), round(batch), GPUS[gpu], DTYPES[dtype]
        heads, kv_heads = HEADS[heads]
        options = {"causal": mask == CAUSAL, "kv_heads": kv_heads}

        def both(tokens):
            sizes = batch, heads, tokens, tokens, head_dim, kind
            return attention_traffic(*sizes, **options), attention_ops(*sizes, **options)

        def peak_at(tokens):
            return unfused_peak_bytes(*both(tokens))

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
        end = longest_sequence(card.memory, peak_at)
        grown = [1 << power for power in range(_LEAST, _MOST + 1)]
        now = peak_at(sequence), work.bytes
        lines = [(unfused_peak_bytes(*pair), pair[0].bytes) for pair in map(both, grown)]
        picture.show(sequence, now, grown, lines, card, end, bounds)
        return (
            f"{sequence:,} tokens: unfused ops hold {size(now[0])} at once, one kernel {size(work.bytes)}. "
            f"Of {batch} x {heads} head{'s' * (heads > 1)}, {kv_heads} of them KV heads, head_dim {head_dim}, {dtype}, "
            f"{mask}, the scores take {size(scores)}, {number(scores / work.bytes, digits=3)} times q, k, v and out "
            f"({size(work.bytes)}). Unfused, the {gpu}'s {size(card.memory)} hold at most {end:,} tokens. "
            f"Unfused ops move {size(eager.bytes)}, at least {time(bounds[0])}; one kernel moves {size(work.bytes)}, "
            f"at least {time(bounds[2])}, and its matmuls take {time(bounds[3])} or more."
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
    """Left, bytes by the sequence, and the GPU's memory across; right, the lower bounds on the times of both."""

    def __init__(self):
        self.figure = canvas(height=310)
        left = self.figure.add_axes((0.085, 0.16, 0.34, 0.7))
        low, high = 1 << _LEAST, 1 << _MOST
        left.set(xscale="log", yscale="log", xlim=(low, high), ylim=(1e5, 1e16))
        left.minorticks_off()
        left.set_xticks([1 << p for p in (10, 13, 16, 19)], ["1 k", "8 k", "65 k", "524 k"], fontsize=9)
        left.set_yticks([1e6, 1e9, 1e12, 1e15], ["1 MB", "1 GB", "1 TB", "1 PB"], fontsize=9)
        left.set_xlabel("tokens", fontsize=9)
        left.spines[["top", "right"]].set_visible(False)
        self.figure.text(0.005, 0.93, "peak memory", fontsize=9.5, weight="bold")
        self.figure.text(0.15, 0.93, "\N{BLACK SQUARE} unfused", fontsize=9.5, color=_INK_ORANGE)
        self.figure.text(0.285, 0.93, "\N{BLACK CIRCLE} fused", fontsize=9.5, color=BLUE)
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
        self.figure.text(0.5, 0.93, "lower bound on time", fontsize=9.5, weight="bold")
        right.grid(axis="x", color="#DDDDDD", linewidth=0.7)
        self.bounds, self.values = [], []
        for row, (words, colour, marker) in enumerate(
            (
                ("unfused, HBM", ORANGE, "s"),
                ("unfused, matmuls", ORANGE, "D"),
                ("fused, HBM", BLUE, "o"),
                ("fused, matmuls", BLUE, "D"),
            )
        ):
            y = 1 - (row + 0.7) / 4.3
            self.figure.text(0.602, 0.16 + 0.7 * y, words, fontsize=9, ha="right", va="center")
            look = {"color": colour, "markeredgecolor": BLACK, "markersize": 8, "animated": True}
            self.bounds += right.plot([1], [row], marker, **look)
            self.values.append(right.text(1, row, "", fontsize=9, va="center", animated=True))

    def show(self, sequence: int, now: tuple, grown: list, lines: list, card, end: int, bounds: list):
        """now, and each of lines: bytes of unfused ops and of the kernel. bounds: seconds, a point each."""
        for line, point, values, here in zip(self.lines, self.points, zip(*lines), now):
            line.set_data(grown, values)
            point.set_data([sequence], [here])
        if self.name.get_text() != (words := f"{card.name}: {size(card.memory)}"):
            self.name.set(text=words, y=card.memory * 1.6)
            self.memory.set_data([grown[0], grown[-1]], [card.memory] * 2)
        self.end.set_data([end, end], [1e5, card.memory])
        for point, words, seconds in zip(self.bounds, self.values, bounds):
            point.set_xdata([max(seconds, _FASTEST)])
            words.set(text=time(seconds), x=max(seconds, _FASTEST) * 6)
