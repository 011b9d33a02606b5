"""The panel of a decode step: bytes, waves of programs and lower bounds on time."""

import numpy as np

from instruments.backend import cdiv
from instruments.gpus import DTYPES, GPUS
from kernels.attention.decode import PROGRAMS_PER_SM, attention_decode_traffic, split_plan
from kernels.shared.device import Device
from widgets.toolkit.boxes import Boxes
from widgets.toolkit.panel import BLACK, BLUE, GREEN, ORANGE, Example, Panel, Powers, canvas, menu
from widgets.toolkit.words import number, size, time

EXAMPLE = Example(entry="16", text="16 sequences", arguments={"splits": 4})

#: Query heads and KV heads, head_dim 128.
MODELS = {"32 heads, 8 KV": (32, 8), "64 heads, 8 KV": (64, 8), "32 heads, 32 KV": (32, 32)}
HEAD_DIM = 128
_MOST = 12  # waves that are drawn
_FASTEST, _SLOWEST = 1e-8, 300.0


def decode_waves(
    sequences: int = 1, keys: int = 32768, splits: int = 1, heads: str = "32 heads, 8 KV", gpu: str = "H200"
) -> Panel:
    """One query per head and sequence, bf16, on the kernel of decode.py with two programs per SM.

    Args:
        sequences: 1 to 256.
        keys: 1,024 to 131,072 per sequence.
        splits: 1 to 128 programs that share the keys of a KV head.
        heads: One of MODELS.
        gpu: One of GPUS.
    """
    picture = _Picture()

    def draw(sequences, keys, splits, heads, gpu):
        sequences, keys, splits, card = round(sequences), round(keys), round(splits), GPUS[gpu]
        query_heads, kv_heads = MODELS[heads]
        sizes = (sequences, query_heads, kv_heads, 1, keys, HEAD_DIM, DTYPES["bf16"])
        least = attention_decode_traffic(*sizes)
        asked = attention_decode_traffic(*sizes, splits=splits, gpu=card, path=None)
        device = Device(card.sms, card.shared_per_sm)
        group = query_heads // kv_heads
        plan = split_plan(sequences * kv_heads, group, keys, HEAD_DIM, 0, splits, device)
        chosen = split_plan(sequences * kv_heads, group, keys, HEAD_DIM, 0, None, device).splits
        programs, slots = sequences * kv_heads * splits * plan.tiles, PROGRAMS_PER_SM * card.sms
        waves = cdiv(programs, slots)
        used = programs / (waves * slots)
        unit = "bf16" if "bf16" in card.matrix else "fp16" if "fp16" in card.matrix else "vector"
        bounds = least.memory_seconds(card), asked.memory_seconds(card), least.compute_seconds(card, unit)
        picture.show(programs, slots, waves, bounds)
        parts = asked.bytes - least.bytes
        return (
            f"{sequences} sequence{'s' * (sequences > 1)}: {programs:,} programs in {waves} wave{'s' * (waves > 1)} of "
            f"{slots}, {used:.0%} of the slots are used. The KV cache of this layer takes {size(least.read['k'] * 2)}; "
            f"reading it takes {time(bounds[0])} at the {gpu}'s datasheet bandwidth, the matmuls {time(bounds[2])}. "
            f"With {splits} split{'s' * (splits > 1)}, q and the parts add {size(parts) if parts else 'no bytes'}, "
            f"{number(100 * parts / least.bytes, digits=2)}%. For this GPU the kernel would choose {chosen}."
        )

    controls = {
        "sequences": Powers("sequences", 0, 8, sequences),
        "keys": Powers("keys", 10, 17, keys),
        "splits": Powers("splits", 0, 7, splits),
        "heads": menu("heads", MODELS, "32 heads, 8 KV"),
        "gpu": menu("GPU", GPUS, "H200"),
    }
    return Panel("A decode step: waves and bytes", picture.figure, controls, draw).set(heads=heads, gpu=gpu)


class _Picture:
    """Left, the slots of the GPU that each wave fills; right, lower bounds on time."""

    def __init__(self):
        self.figure = canvas(height=270)
        left = self.figure.add_axes((0.075, 0.17, 0.4, 0.66))
        left.set(xlim=(0, _MOST), ylim=(0, 1), yticks=[0, 0.5, 1], xticks=[])
        left.set_yticks([0, 0.5, 1], ["0%", "50%", "100%"], fontsize=9)
        left.spines[["top", "right"]].set_visible(False)
        self.figure.text(0.005, 0.93, "slots that each wave fills", fontsize=9.5, weight="bold")
        self.full = Boxes(left, GREEN, edgecolor="white", linewidth=1)
        self.last = Boxes(left, ORANGE, edgecolor="white", linewidth=1, hatch="//")
        self.words = left.text(0, -0.1, "", fontsize=9, va="center", clip_on=False, animated=True)
        right = self.figure.add_axes((0.665, 0.17, 0.32, 0.66))
        right.set(xscale="log", xlim=(_FASTEST, _SLOWEST), ylim=(2.6, -0.6), yticks=[])
        right.minorticks_off()
        right.set_xticks([1e-8, 1e-6, 1e-4, 1e-2, 1.0], ["10 ns", "1 µs", "100 µs", "10 ms", "1 s"], fontsize=9)
        right.spines[["top", "right", "left"]].set_visible(False)
        right.grid(axis="x", color="#DDDDDD", linewidth=0.7)
        self.figure.text(0.5, 0.93, "lower bounds on time", fontsize=9.5, weight="bold")
        self.points, self.values = [], []
        rows = ("cache, read once", "requested bytes", "matmuls")
        for row, (words, color, marker) in enumerate(zip(rows, (BLUE, ORANGE, GREEN), "osD")):
            y = 1 - 0.17 - 0.66 * (row + 0.6) / 3.2
            self.figure.text(0.65, y, words, fontsize=9, ha="right", va="center")
            look = {"color": color, "markeredgecolor": BLACK, "markersize": 9, "animated": True}
            self.points += right.plot([], [], marker, **look)
            self.values.append(right.text(1, row, "", fontsize=9, va="center", animated=True))

    def show(self, programs: int, slots: int, waves: int, bounds: tuple):
        """bounds: seconds, a point each."""
        drawn = min(waves, _MOST)
        wide = _MOST / max(4, drawn)  # few waves are drawn wider
        full = [1.0] * (drawn - 1)
        rest = (programs - (waves - 1) * slots) / slots
        self.full.place(wide * (np.arange(len(full)) + 0.08), 0, wide * 0.84, np.array(full))
        self.last.place(wide * np.array([drawn - 1 + 0.08]), 0, wide * 0.84, np.array([rest]))
        more = f" ({waves - _MOST} full ones not drawn)" if waves > _MOST else ""
        self.words.set_text(f"{waves} wave{'s' * (waves > 1)}, the last one filled to {rest:.0%}{more}")
        for row, (point, words, seconds) in enumerate(zip(self.points, self.values, bounds)):
            point.set_data([seconds], [row])
            words.set(text=time(seconds), x=seconds * 3.2)
