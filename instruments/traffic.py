"""Traffic: the bytes, FLOPs and launches that a piece of work asks of a GPU, and the time they bound from below.

The roofline model is Williams, Waterman and Patterson's (2009): time is at least the larger of bytes over bandwidth
and FLOPs over peak. The course adds the host's cost per launch where launches are not hidden behind each other.
"""

from dataclasses import dataclass, field

from instruments.gpus import GPU

#: Seconds between two small kernels launched back to back from Python, for estimates only: about what an eager torch
#: op costs on a fast host. Measured costs are in bench/results/ and differ by machine.
LAUNCH_SECONDS = 5e-6


def _merge(a: dict, b: dict) -> dict:
    return {name: a.get(name, 0) + b.get(name, 0) for name in {**a, **b}}


@dataclass(frozen=True)
class Traffic:
    """Bytes read and written per tensor name, FLOPs and launches. Adds up: `Traffic + Traffic` is one after the other.

    read, written: {tensor name: bytes}. flops: floating-point operations. launches: kernels started.
    """

    read: dict = field(default_factory=dict)
    written: dict = field(default_factory=dict)
    flops: float = 0
    launches: int = 0

    def __add__(self, other: "Traffic") -> "Traffic":
        if not isinstance(other, Traffic):
            return NotImplemented
        return Traffic(
            _merge(self.read, other.read),
            _merge(self.written, other.written),
            self.flops + other.flops,
            self.launches + other.launches,
        )

    def __radd__(self, other):
        return self if other == 0 else NotImplemented  # lets sum() work

    @property
    def bytes_read(self) -> int:
        return sum(self.read.values())

    @property
    def bytes_written(self) -> int:
        return sum(self.written.values())

    @property
    def bytes(self) -> int:
        return self.bytes_read + self.bytes_written

    @property
    def intensity(self) -> float:
        """FLOP per byte; infinite for work that moves no bytes."""
        return self.flops / self.bytes if self.bytes else float("inf")

    def memory_seconds(self, gpu: GPU) -> float:
        """Bytes over the GPU's bandwidth."""
        return self.bytes / gpu.bandwidth

    def compute_seconds(self, gpu: GPU, unit: str = "vector") -> float:
        """FLOPs over the peak of one unit of the GPU: 'vector', or a matrix operand type such as 'bf16'."""
        return self.flops / gpu.peak(unit)

    def roofline_seconds(self, gpu: GPU, unit: str = "vector") -> float:
        """The larger of memory and compute time: no kernel with this traffic is faster."""
        return max(self.memory_seconds(gpu), self.compute_seconds(gpu, unit))

    def launch_seconds(self, per_launch: float = LAUNCH_SECONDS) -> float:
        """Host time for the launches, `per_launch` seconds each."""
        return self.launches * per_launch
