"""Sectors and banks: what a warp's access costs beyond its bytes, counted from the addresses that a kernel asks for.

Global memory answers in sectors of 32 bytes, and a warp's access takes as many as its 32 threads touch. Shared memory
has 32 banks of 4 bytes, and an access takes as many passes as different words lie in one bank.

`sectors(function, ...)` runs a function's kernels in the interpreter and cuts every access into requests of 32 threads,
in the tile's own order. That is how the compiler spreads a one-dimensional tile over threads, up to the width of a
thread's load, which changes neither sum nor share. A tile of two dimensions it spreads along whichever of them is
contiguous: there the requests counted here can be worse than the compiled ones, and the meter's `sectors`, which takes
each tile as one, fits.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from instruments import backend

SECTOR = 32  # bytes
LANES = 32  # threads of a warp
BANKS, WORD = 32, 4  # of shared memory; bytes of a bank's word


def touched(byte_offsets, size: int) -> np.ndarray:
    """The sectors that accesses of `size` bytes at these addresses touch, each once, in ascending order."""
    offsets = np.asarray(byte_offsets, dtype=np.int64).reshape(-1)
    first, last = offsets // SECTOR, (offsets + size - 1) // SECTOR
    if (first == last).all():
        return np.unique(first)
    span = np.arange(int((last - first).max()) + 1)
    every = first[:, None] + span
    return np.unique(every[every <= last[:, None]])


@dataclass(frozen=True)
class Requests:
    """What warps asked of one tensor, in one direction.

    requests: how many of up to 32 threads. sectors: that they touched, all together. useful: bytes of those that a
    thread of the request wanted; a byte that several threads of a request want counts once.
    """

    requests: int = 0
    sectors: int = 0
    useful: int = 0

    def __add__(self, other: "Requests") -> "Requests":
        return Requests(self.requests + other.requests, self.sectors + other.sectors, self.useful + other.useful)

    @property
    def per_request(self) -> float:
        return self.sectors / self.requests if self.requests else 0.0

    @property
    def share(self) -> float:
        """Useful bytes as a share of the bytes of the sectors."""
        return self.useful / (self.sectors * SECTOR) if self.sectors else 0.0

    def __str__(self) -> str:
        return (
            f"{self.requests:,} requests, {self.per_request:.2f} sectors each, {self.share:.0%} of their bytes useful"
        )


def request(byte_offsets, size: int) -> Requests:
    """One access of any number of lanes, cut into requests of 32."""
    offsets, total = np.asarray(byte_offsets, dtype=np.int64).reshape(-1), Requests()
    for start in range(0, offsets.size, LANES):
        lanes = np.unique(offsets[start : start + LANES])
        total += Requests(1, touched(lanes, size).size, lanes.size * size)
    return total


def sectors(function: Callable, *args, **kwargs) -> dict:
    """Call `function` with its kernels interpreted: {tensor: {'read' or 'write' or 'atomic': Requests}}.

    Tensors go by the kernels' parameter names, without `_ptr`; a name used by several launches is added up. Lanes that
    are masked, or outside the tensor's storage (which raises IndexError), ask for nothing. Raises RuntimeError without
    triton.
    """
    if backend.mode() == "unavailable":
        raise RuntimeError(backend.NO_TRITON)
    from instruments import interpreter

    requests: dict = {}

    class Counter(interpreter.Guard):
        def access(self, kind, argument, byte_offsets, size):
            kinds = requests.setdefault(argument.name.removesuffix("_ptr"), {})
            kinds[kind] = kinds.get(kind, Requests()) + request(byte_offsets + argument.address % SECTOR, size)

    def launcher(kernel, grid, launch_args, launch_kwargs):
        interpreter.launch(kernel, grid, launch_args, launch_kwargs, Counter())

    with backend.launching(launcher):
        function(*args, **kwargs)
    return requests


def bank_passes(byte_offsets) -> int:
    """Passes that shared memory needs for one word of 4 bytes per thread: the most different words of any one bank."""
    words = np.unique(np.asarray(byte_offsets, dtype=np.int64).reshape(-1) // WORD)
    return int(np.bincount(words % BANKS).max()) if words.size else 0
