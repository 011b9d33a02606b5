"""The figures recorded under bench/results/, typed: bench/ writes these records; lessons, panels and README read them.

    h200 = load("h200")
    h200.case("rmsnorm", 8192, 8192).us("bytes-first")
    h200.counter("rmsnorm", "two_pass", 65536, 8192).dram_read
    h200.machine.latency[-1].ns
    load_parallel("h200", 2).step(model="Mixtral", routing="even", part="whole", chunks=4).us

Microseconds (us) are medians, us_p20 and us_p80 the 20% and 80% quantiles, over the replays of a CUDA graph, in turns
with the others of the same list (instruments/timing.py). GB are 10**9 bytes, read plus written.

Records made before replays lasted a millisecond do not say how many calls one had: as few as exceeded four times the
L2, two for what moves more than 120 MB. From event to kernel and back, 3 to 10 us a replay are part of those times: 2
to 8% of calls of 20 to 150 us that wait for memory, less of what takes longer.
"""

import json
from functools import cache
from pathlib import Path
from typing import Literal

import msgspec

from instruments import gpus
from instruments.files import write_whole

RESULTS = Path(__file__).resolve().parents[1] / "bench" / "results"


class Record(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A record with these fields and no others."""


# What bench/run.py measures


class Timed(Record, omit_defaults=True):
    """One implementation at one shape. error: ||result - reference|| / ||reference|| against fp64. called_us: wall time
    of a call from Python. gbps: the case's bytes over graph_us; tflops: its FLOPs over the same. calls: of a replay, 0
    where it was not recorded."""

    error: float
    graph_us: float
    graph_us_p20: float
    graph_us_p80: float
    called_us: float
    gbps: float
    tflops: float
    calls: int = 0


class Case(Record):
    """One kernel at one shape. bytes: its minimum traffic. impl: the figures of each implementation, by its name."""

    kernel: str
    shape: tuple[int, ...]
    dtype: str
    bytes: int
    flops: int
    impl: dict[str, Timed]

    @property
    def name(self) -> str:
        return case_name(self.kernel, self.shape, self.dtype)

    def of(self, implementation: str) -> Timed:
        """The figures of one implementation. Raises ValueError where it was not timed."""
        if implementation not in self.impl:
            raise ValueError(
                f"implementation: no record of {implementation!r} for {self.name}, expected one of: "
                + ", ".join(self.impl)
            )
        return self.impl[implementation]

    def us(self, implementation: str) -> float:
        """Microseconds of a call on the GPU alone."""
        return self.of(implementation).graph_us

    def called_us(self, implementation: str) -> float:
        """Microseconds of wall time of a call from Python."""
        return self.of(implementation).called_us

    def gbps(self, implementation: str) -> float:
        """GB/s of minimum traffic."""
        return self.of(implementation).gbps

    def tflops(self, implementation: str) -> float:
        """TFLOP/s."""
        return self.of(implementation).tflops

    def error(self, implementation: str) -> float:
        """||result - reference|| / ||reference|| against fp64."""
        return self.of(implementation).error


class Launches(Record):
    """Host microseconds of one call, of many back to back: an empty Triton kernel, and torch's add."""

    triton_empty: float
    torch_add: float


# What bench/counters.py reads


class Counter(Record):
    """Bytes that a call's kernels moved, caches flushed before each, by the GPU's hardware counters: to and from DRAM;
    read from L2 by the L1s, and found there; asked of L1 by loads, and found there. us: of all its kernels. warps: that
    were on an SM at a time, on average. registers: per thread, of the kernel that takes most. matrix_busy,
    special_busy, l2_busy: how much of its peak the matrix unit, the unit of exponentials, and L2 did, in percent. 0
    where a field was not read."""

    kernel: str
    variant: str
    shape: tuple[int, ...]
    dtype: str
    dram_read: int
    dram_written: int
    us: float
    l2_read: int = 0
    l2_hit: int = 0
    l1_read: int = 0
    l1_hit: int = 0
    warps: float = 0
    registers: int = 0
    matrix_busy: float = 0.0
    special_busy: float = 0.0
    l2_busy: float = 0.0


# What bench/memory.py measures


class Peak(Record):
    """Bytes of the GPU's memory that a call needs beside its arguments, its result among them, and the time of a call;
    both 0 where the GPU's memory was too small."""

    kernel: str
    variant: str
    shape: tuple[int, ...]
    dtype: str
    peak: int
    us: float


# What bench/machine.py measures. registers: per thread; shared: bytes per program; both 0 of an interpreted kernel.


class Latency(Record):
    """One warp follows a random round trip of 128-byte stops through `bytes`: cycles and ns per load, the two
    instructions that make its address included."""

    bytes: int
    cycles: float
    ns: float


class Read(Record):
    """Loads of one pattern. pattern: stride or offset (`by` elements, loads of one element each), wide (stride 1, loads
    of 16 bytes) or scattered (runs of `by` elements, each anywhere in 2**30 of them). gbps: of the bytes it wants."""

    pattern: str
    by: int
    dtype: str
    us: float
    us_p20: float
    us_p80: float
    gbps: float


class Copy(Record):
    """The kernel of kernels/copy.py with `block` elements and `warps` warps per program."""

    block: int
    warps: int
    registers: int
    shared: int
    us: float
    us_p20: float
    us_p80: float
    gbps: float


class Stages(Record):
    """Rows summed by a loop of tl.range(num_stages=stages), one program per row."""

    programs: int
    warps: int
    stages: int
    registers: int
    shared: int
    us: float
    us_p20: float
    us_p80: float
    gbps: float


class Programs(Record):
    """A launch of so many empty programs."""

    programs: int
    warps: int
    us: float
    us_p20: float
    us_p80: float
    ns_per_program: float


class Transpose(Record):
    """A transpose. variant: who goes along rows, and who down columns."""

    variant: str
    shape: tuple[int, int]
    dtype: str
    us: float
    us_p20: float
    us_p80: float
    gbps: float


class Divergence(Record):
    """A loop of `rounds` that half of the lanes run: `together` lanes of a kind are neighbours; and Triton's own two
    ways."""

    variant: str
    together: int
    rounds: int
    us: float
    us_p20: float
    us_p80: float


class Banks(Record):
    """A tile of 32 x 32 words, transposed in shared memory `rounds` times. phases: how many of its rows are shifted
    apart; passes: of a warp's read of a column, by the model."""

    phases: int
    passes: int
    programs: int
    rounds: int
    us: float
    us_p20: float
    us_p80: float


class Accumulator(Record):
    """FP8 products, added up by the matrix unit and promoted to fp32 `every` so many of them, 0 for never.

    data: normal or positive numbers at random, or one large product, 2**ratio times each of the others. error: ||sums -
    exact|| / ||exact||, or the share of the small products that is lost. simulated: the same of simulated_sums in
    kernels/fp8_accumulator.py. equal: the share of sums that are the same in every bit by both.
    """

    data: str
    ratio: int
    K: int
    every: int
    error: float
    simulated: float
    equal: float


class Machine(Record):
    """What the machine itself costs, a list of records per part, and what that was measured with."""

    device: str
    driver: str
    torch: str
    triton: str
    date: str
    latency: list[Latency] = []
    reads: list[Read] = []
    copy: list[Copy] = []
    stages: list[Stages] = []
    programs: list[Programs] = []
    transpose: list[Transpose] = []
    divergence: list[Divergence] = []
    banks: list[Banks] = []
    accumulator: list[Accumulator] = []

    def sums(self, data: str, K: int, every: int = 0, ratio: int = 0) -> Accumulator:
        """One record of `accumulator`. Raises ValueError where there is none."""
        for record in self.accumulator:
            if (record.data, record.K, record.every, record.ratio) == (data, K, every, ratio):
                return record
        known = sorted({(r.data, r.K, r.every) for r in self.accumulator})
        raise ValueError(
            f"data, K, every, ratio: no record of {data}, {K}, {every}, {ratio}, expected some of: "
            + "; ".join(", ".join(map(str, values)) for values in known)
        )


# What bench/expert_parallel.py measures


class AllToAll(Record):
    """Every rank sends each of the others as many bytes. bytes: that a rank sends to all others together, what stays
    with it not counted; gbps: these over us, one direction. ctas: thread blocks that NCCL may use, before others' that
    wait; 0 for its own choice, and no preference. graph: replayed from a CUDA graph, and not called."""

    bytes: int
    ctas: int
    us: float
    us_p20: float
    us_p80: float
    gbps: float
    graph: bool = False


class Same(Record):
    """The layer over the ranks beside the same on one GPU. data: normal numbers, or whole ones, whose sums are exact in
    any order; error: ||difference|| / ||result||; equal: in every bit."""

    data: str
    dtype: str
    tokens: int
    experts: int
    top_k: int
    hidden: int
    inter: int
    chunks: int
    equal: bool
    error: float


class Step(Record):
    """A forward step of the layer; us: of the slowest rank. part: whole; counts known, the same without their exchange,
    so that the host waits for nothing; graph, that again as replayed from a CUDA graph; products, without the
    exchanges; or exchanges, without the products. "..., in a row": a step of several, one after the other. tokens: of
    each rank. sms: multiprocessors for products, 0 for all; ctas: as in AllToAll. link: as in Timeline. rows: that each
    rank multiplies; sent: bytes that each rank sends to others in dispatch."""

    model: str
    routing: str
    part: str
    link: str
    tokens: int
    experts: int
    top_k: int
    hidden: int
    inter: int
    chunks: int
    sms: int
    ctas: int
    us: float
    us_p20: float
    us_p80: float
    rows: tuple[int, ...]
    sent: tuple[int, ...]


class Span(Record):
    """A kernel on a GPU: which lane it is in (link, experts, rows), what it does, when it begins and how long it takes,
    in microseconds. blocks: thread blocks that it was launched with; 0 where that was not recorded."""

    lane: str
    name: str
    start: float
    us: float
    blocks: int = 0


class Timeline(Record):
    """The kernels of one step, by rank, from the first one's beginning. part: whole or graph, as in Step. link: NVLink,
    or host memory, where NCCL was told not to send from GPU to GPU."""

    model: str
    routing: str
    link: str
    chunks: int
    sms: int
    rows: tuple[int, ...]
    ranks: list[list[Span]]
    part: str = "whole"


class Parallel(Record, kw_only=True):
    """All that is recorded of some GPUs of one kind in one host."""

    schema_version: Literal[1] = 1
    device: str
    ranks: int
    driver: str
    torch: str
    triton: str
    nccl: str
    date: str
    all_to_all: list[AllToAll] = []
    same: list[Same] = []
    steps: list[Step] = []
    timelines: list[Timeline] = []

    @property
    def provenance(self) -> str:
        """One line for captions: devices, versions, date."""
        return f"{self.ranks} {self.device}, torch {self.torch}, triton {self.triton}, NCCL {self.nccl}, {self.date}"

    def step(self, **wanted) -> Step:
        """The first step whose fields are those given. Raises ValueError where there is none."""
        return _first("step", self.steps, wanted)

    def timeline(self, **wanted) -> Timeline:
        """The first timeline whose fields are those given. Raises ValueError where there is none."""
        return _first("timeline", self.timelines, wanted)


def _first(kind: str, records: list, wanted: dict):
    for record in records:
        if all(getattr(record, name) == value for name, value in wanted.items()):
            return record
    known = {tuple(getattr(record, name) for name in wanted) for record in records}
    raise ValueError(f"{', '.join(wanted)}: no {kind} with {tuple(wanted.values())}, expected one of: {sorted(known)}")


class Figures(Record, kw_only=True):
    """All that is recorded of one GPU.

    date: of the last run that added cases. liger: None where it was not installed. copy_gbps: torch's own copy;
    matmul_tflops: torch's own product, by dtype; machine: None until bench/machine.py has run.
    """

    schema_version: Literal[1] = 1
    device: str
    driver: str
    torch: str
    triton: str
    liger: str | None
    date: str
    copy_gbps: float
    matmul_tflops: dict[str, float]
    launch_us: Launches
    absent_peers: list[str] = []
    cases: list[Case] = []
    counters: list[Counter] = []
    machine: Machine | None = None
    peaks: list[Peak] = []

    @property
    def provenance(self) -> str:
        """One line for captions: device, versions, date."""
        return f"{self.device}, torch {self.torch}, triton {self.triton}, {self.date}"

    def case(self, kernel: str, *shape: int, dtype: str = "bf16") -> Case:
        """The figures of one kernel at one shape. Raises ValueError where none are recorded."""
        for case in self.cases:
            if (case.kernel, case.shape, case.dtype) == (kernel, shape, dtype):
                return case
        raise ValueError(
            f"kernel, shape, dtype: no record of {case_name(kernel, shape, dtype)}, expected one of: "
            + ", ".join(sorted(case.name for case in self.cases))
        )

    def counter(self, kernel: str, variant: str, *shape: int) -> Counter:
        """What the counters read of one variant of a kernel. Raises ValueError where nothing is recorded."""
        for counter in self.counters:
            if (counter.kernel, counter.variant, counter.shape) == (kernel, variant, shape):
                return counter
        known = (f"{c.kernel}, {c.variant}, {c.shape}" for c in self.counters)
        raise ValueError(
            f"kernel, variant, shape: no counters of {kernel}, {variant}, {shape}, expected one of: {'; '.join(known)}"
        )

    def peak(self, kernel: str, variant: str, *shape: int) -> Peak:
        """Memory and time of one variant of a kernel. Raises ValueError where nothing is recorded."""
        for peak in self.peaks:
            if (peak.kernel, peak.variant, peak.shape) == (kernel, variant, shape):
                return peak
        known = (f"{p.kernel}, {p.variant}, {p.shape}" for p in self.peaks)
        raise ValueError(
            f"kernel, variant, shape: no peak of {kernel}, {variant}, {shape}, expected one of: {'; '.join(known)}"
        )


def case_name(kernel: str, shape: tuple, dtype: str) -> str:
    """What a case is called: 'rmsnorm 8192x8192 bf16'."""
    return f"{kernel} {'x'.join(map(str, shape))} {dtype}"


# Files


def place() -> Path:
    """Where the figures of this machine's GPU lie."""
    return RESULTS / f"{gpus.file_stem(*gpus.this_device())}.json"


def recorded() -> list[str]:
    """The GPUs that figures are recorded of, as `load` takes them."""
    return sorted(path.stem for path in RESULTS.glob("*.json"))


@cache
def load(gpu: str) -> Figures:
    """The recorded figures of one GPU, such as 'h200'. Raises ValueError where there are none."""
    if gpu.lower() not in recorded():
        raise ValueError(
            f"gpu: no figures are recorded for {gpu!r}, expected one of: {', '.join(recorded()) or 'none'}"
        )
    return read(RESULTS / f"{gpu.lower()}.json")


@cache
def load_parallel(gpu: str, ranks: int) -> Parallel:
    """What is recorded of so many GPUs of one kind together. Raises ValueError where nothing is."""
    return read(parallel_place(gpu.lower(), ranks), Parallel)


def parallel_place(gpu: str, ranks: int) -> Path:
    """Where figures of several GPUs lie."""
    return RESULTS / "parallel" / f"{gpu}-x{ranks}.json"


def read(path: Path, kind: type = Figures) -> Figures | Parallel:
    """The figures in one file. Raises ValueError where there is none, or something else in it, and says where."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except FileNotFoundError:
        script = "run" if kind is Figures else "expert_parallel"
        raise ValueError(f"{path}: no such file; bench/{script}.py makes it") from None
    except msgspec.DecodeError as error:
        raise ValueError(f"{path.name}: not figures as instruments/results.py has them: {error}") from None


def encode(figures: Figures | Parallel) -> bytes:
    """What a file of figures holds. Raises ValueError where one is not a finite number, or not of its field's type."""
    text = json.dumps(msgspec.to_builtins(figures), indent=1, allow_nan=False).encode() + b"\n"
    msgspec.json.decode(text, type=type(figures))
    return text


def store(figures: Figures | Parallel, path: Path) -> None:
    """Write figures to `path`, all of them or nothing."""
    text = encode(figures)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, text)
