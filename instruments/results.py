"""The figures recorded under bench/results/, typed: bench/ writes these records; lessons, panels and README read them.

    h200 = load("h200")
    h200.case("rmsnorm", 8192, 8192).us("bytes-first")
    h200.counter("rmsnorm", "two_pass", 65536, 8192).dram_read
    h200.machine.latency[-1].ns
    load_parallel("h200", 2).step(model="Mixtral", routing="even", part="whole", chunks=4).us

Microseconds (us) are medians, us_p20 and us_p80 the 20% and 80% quantiles, over the replays of a CUDA graph, in turns
with the others of the same list (instruments/timing.py). GB are 10**9 bytes, read plus written.

A record's `kernel_hash` is that of the kernels that its call may launch (instruments/kernel_hash.py), as they were when
it was measured; an empty one says that the record is older than these hashes, or that the call launches no kernel of
the course. `python bench/table.py --stale` names the records whose kernels have changed since.

Older records do not say how many calls a replay had. These replays were as short as 60 us: as many calls as exceed four
times the L2, or two of a call that moves more than 120 MB. From event to kernel and back, 3 to 10 us per replay are
part of those times: 2 to 8% of memory-bound calls of 20 to 150 us, less of longer ones.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
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
    """One implementation at one shape.

    Attributes:
        error: ||result - reference|| / ||reference|| against fp64.
        graph_us: per call, replayed from a CUDA graph.
        called_us: wall time per eager call, many back to back.
        gbps: the case's bytes over graph_us.
        tflops: the case's FLOPs over graph_us.
        calls: per replay; 0 where it was not recorded.
    """

    error: float
    graph_us: float
    graph_us_p20: float
    graph_us_p80: float
    called_us: float
    gbps: float
    tflops: float
    calls: int = 0


class Case(Record, omit_defaults=True):
    """One kernel at one shape.

    Attributes:
        bytes: its minimum traffic.
        impl: {name of an implementation: its figures}.
        kernel_hash: of the kernels that the implementations may launch.
    """

    kernel: str
    shape: tuple[int, ...]
    dtype: str
    bytes: int
    flops: int
    impl: dict[str, Timed]
    kernel_hash: str = ""

    @property
    def name(self) -> str:
        """'rmsnorm 8192x8192 bf16'."""
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
    """Host microseconds per call, of many back to back: an empty Triton kernel, and torch's add."""

    triton_empty: float
    torch_add: float


# What bench/counters.py reads


class Counter(Record):
    """What the GPU's hardware counters say of a call's kernels, caches flushed before each. 0: not read.

    Attributes:
        dram_read, dram_written: bytes from and to DRAM.
        us: of all kernels of the call.
        l2_read, l2_hit: bytes that the L1s read from L2, and those of them that hit there.
        l1_read, l1_hit: bytes that loads request from L1, and those of them that hit there.
        warps: resident per SM, on average.
        registers: per thread, of the kernel that takes most.
        matrix_busy, special_busy, issue_busy, l2_busy: percent of their peak that tensor cores, SFUs, issue slots and
            L2 did.
        kernel_hash: of the kernels that the call may launch.
    """

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
    issue_busy: float = 0.0
    l2_busy: float = 0.0
    kernel_hash: str = ""


# What bench/memory.py measures


class Peak(Record, omit_defaults=True):
    """Peak memory of a call. Both figures are 0 where the call ran out of memory.

    Attributes:
        peak: bytes beyond the arguments, the result included.
        us: per call.
        kernel_hash: of the kernels that the call may launch.
    """

    kernel: str
    variant: str
    shape: tuple[int, ...]
    dtype: str
    peak: int
    us: float
    kernel_hash: str = ""


# What bench/host.py measures


class HostTime(Record):
    """What a call costs the host.

    Attributes:
        name: of the case in bench/host.py.
        launches: kernels that a call of ours launches.
        us: {implementation: (median, fastest, slowest) microseconds per eager call, many back to back}.
    """

    name: str
    launches: int
    us: dict[str, tuple[float, float, float]]


# What bench/roofline.py and bench/sustained.py measure


class Point(Record, omit_defaults=True):
    """One call at one size, on three clocks, as a point of the roofline.

    Attributes:
        part: of bench/roofline.py: memory, matmul or layer.
        kernel: copy, add, rmsnorm, matmul, or the name of a layer's matmul.
        bytes: minimum traffic.
        error: ||result - reference|| / ||reference|| against fp64.
        cold_us: per call in a CUDA graph over copies of the arguments that exceed the L2 (by less where a call moves so
            little that so many copies would not fit in a graph).
        warm_us: per call in a CUDA graph that calls again and again with the same arguments, into the same result; 0
            where it was not timed.
        eager_us: wall time per call of many eager calls back to back: median, fastest and slowest of five runs.
        clock_mhz: of the SMs, right after the cold replays; 0 where it could not be read.
    """

    part: str
    kernel: str
    implementation: str
    shape: tuple[int, ...]
    dtype: str
    bytes: int
    flops: int
    error: float
    cold_us: float
    cold_us_p20: float
    cold_us_p80: float
    eager_us: float
    eager_us_min: float
    eager_us_max: float
    warm_us: float = 0.0
    warm_us_p20: float = 0.0
    warm_us_p80: float = 0.0
    clock_mhz: float = 0.0
    kernel_hash: str = ""

    @property
    def intensity(self) -> float:
        """FLOP per byte of minimum traffic."""
        return self.flops / self.bytes


class Sustained(Record, omit_defaults=True):
    """A kernel that runs back to back for seconds (instruments/timing.py, sustained): time, clock and power.

    Attributes:
        data: random (normally distributed) or zeros.
        error: as in Point; of zeros, the largest magnitude of the result.
        clock_mhz: of the SMs, median of the second half.
        watts: median power draw of the second half.
    """

    kernel: str
    implementation: str
    shape: tuple[int, ...]
    dtype: str
    data: str
    bytes: int
    flops: int
    error: float
    us: float
    us_p20: float
    us_p80: float
    clock_mhz: float
    watts: float
    kernel_hash: str = ""


# What bench/decoder_layer.py measures


class DecoderLayer(Record, omit_defaults=True):
    """A decoder layer of Llama 3 8B, or a part of it, in one implementation.

    Attributes:
        part: layer, or the name of a group in kernels/decoder/layer.py.
        phase: decode, one new token per sequence, or prefill, a whole prompt.
        batch: sequences.
        queries: new tokens per sequence.
        keys: tokens in the KV cache, the new ones included; 0 for a part.
        error: ||result - reference|| / ||reference|| against fp32.
        us: per replay of a CUDA graph.
        eager_us: wall time per eager call, many back to back.
        host_us: of those, until the host has launched the last call.
        clock_mhz, watts: medians over all implementations, which took turns; 0 where they could not be read.
        eager_spans, graph_spans: the kernels of one call, traced eagerly and in a replay.
        kernel_hash: of the kernels of the course that the call may launch.
    """

    part: str
    phase: str
    batch: int
    queries: int
    keys: int
    impl: str
    error: float
    us: float
    us_p20: float
    us_p80: float
    eager_us: float
    eager_us_p20: float
    eager_us_p80: float
    host_us: float
    clock_mhz: float = 0.0
    watts: float = 0.0
    eager_spans: list["Span"] = []
    graph_spans: list["Span"] = []
    kernel_hash: str = ""

    @property
    def launches(self) -> int:
        """Kernels of one call."""
        return len(self.eager_spans)


# What bench/machine.py measures. registers: per thread; shared: bytes per program; both 0 for an interpreted kernel.


class Latency(Record):
    """One warp follows a random cycle of 128-byte lines through `bytes`: cycles and ns per load, with the two
    instructions that compute its address."""

    bytes: int
    cycles: float
    ns: float


class Read(Record):
    """Loads of one pattern.

    Attributes:
        pattern: stride or offset (`by` elements, loads of one element each), wide (stride 1, loads of 16 bytes) or
            scattered (runs of `by` elements, each anywhere in 2**30 of them).
        gbps: of the bytes that the kernel needs.
    """

    pattern: str
    by: int
    dtype: str
    us: float
    us_p20: float
    us_p80: float
    gbps: float


class Copy(Record):
    """The kernel of kernels/elementwise/copy.py with `block` elements and `warps` warps per program."""

    block: int
    warps: int
    registers: int
    shared: int
    us: float
    us_p20: float
    us_p80: float
    gbps: float


class Flight(Record, omit_defaults=True):
    """A copy by programs that loop over tiles: each loads a whole tile, then stores it.

    Attributes:
        changed: what this list changes, all else alike: 'programs', 'elements' or 'warps'.
        per_sm: programs per SM; the launch has so many times the number of SMs.
        most: programs that the busiest SM got.
        block: elements of a tile, in bf16: 2 * block * per_sm bytes are loaded at once per SM.
        warps: per program.
        clock_mhz, watts: of seconds of this copy alone, back to back; 0 where it was not run that long.
    """

    changed: str
    per_sm: int
    most: int
    block: int
    warps: int
    registers: int
    us: float
    us_p20: float
    us_p80: float
    gbps: float
    clock_mhz: float = 0
    watts: float = 0


class TallRows(Record, omit_defaults=True):
    """The sums of 1,048,576 rows of 128 elements in bf16, in tiles of several rows.

    Attributes:
        launch: 'tiles', a program per tile, or 'loop', programs that fill the SMs and loop over tiles.
        rows: per tile.
        warps: per program.
        programs: of the launch.
        clock_mhz, watts: as in Flight.
    """

    launch: str
    rows: int
    warps: int
    programs: int
    registers: int
    us: float
    us_p20: float
    us_p80: float
    gbps: float
    clock_mhz: float = 0
    watts: float = 0


class Stages(Record, omit_defaults=True):
    """Rows summed by a loop of tl.range(num_stages=stages) over tiles of `block`, one program per row."""

    programs: int
    warps: int
    stages: int
    registers: int
    shared: int
    us: float
    us_p20: float
    us_p80: float
    gbps: float
    block: int = 2048


class Programs(Record):
    """A launch of so many empty programs."""

    programs: int
    warps: int
    us: float
    us_p20: float
    us_p80: float
    ns_per_program: float


class Transpose(Record):
    """A transpose. variant: which of reads and writes goes along rows, and which down columns."""

    variant: str
    shape: tuple[int, int]
    dtype: str
    us: float
    us_p20: float
    us_p80: float
    gbps: float


class Divergence(Record):
    """A loop of `rounds` that half of the threads run, in runs of `together` neighbors; and Triton's own two ways."""

    variant: str
    together: int
    rounds: int
    us: float
    us_p20: float
    us_p80: float


class Banks(Record):
    """A tile of 32 x 32 words, transposed in shared memory `rounds` times.

    Attributes:
        phases: rows that the swizzle shifts apart.
        passes: of a warp's read of a column, by the model.
    """

    phases: int
    passes: int
    programs: int
    rounds: int
    us: float
    us_p20: float
    us_p80: float


class Accumulator(Record):
    """FP8 dot products as the tensor cores accumulate them.

    Attributes:
        data: normal or positive numbers at random, or one large product, 2**ratio times each of the others.
        K: products per sum.
        every: products after which the sum is promoted to fp32; 0 for never.
        error: ||sums - exact|| / ||exact||, or the share of the small products that is lost.
        simulated: the same for `simulated_sums` in kernels/low_precision/ablation.py.
        equal: the share of sums that agree with the simulation in every bit.
    """

    data: str
    ratio: int
    K: int
    every: int
    error: float
    simulated: float
    equal: float


class MatmulStep(Record):
    """One step of lesson 03's ladder (kernels/matmul/ablation.py) or 03b's (bench/cases/matmul_hopper.py), or a peer.

    Attributes:
        kind: dot, step, neighbor (of lesson 03's last step), plan (of 03b's last step) or peer.
        us: of the kernel alone, run without a pause (instruments/timing.py, sustained), with its clock and power.
        calls: per replay of the graph; 0 for single calls between two events, of kernels that take tens of ms, whose
            clock and power were not read.
        error: ||result - reference|| / ||reference|| against fp64.
        registers, shared, spills: per thread, per program, per thread in bytes; 0 for a peer.
    """

    kind: str
    name: str
    shape: tuple[int, int, int]
    us: float
    us_p20: float
    us_p80: float
    tflops: float
    calls: int
    error: float
    clock_mhz: float = 0.0
    watts: float = 0.0
    registers: int = 0
    shared: int = 0
    spills: int = 0


class WarpTrace(Record):
    """When the warps of one program of the Hopper matmul waited and worked (kernels/matmul/hopper.py).

    Attributes:
        shape: M, N, K.
        slots: of the ring.
        items: per tile of c.
        roles: consumer 0, consumer 1, producer.
        cycles: per role and item five stamps of the SM's clock since the first one, None where there is none: before
            and after the wait; once its work is queued; and, at a tile's last item, before and after the epilogue.
    """

    shape: tuple[int, int, int]
    slots: int
    items: int
    roles: list[str]
    cycles: list[list[list[int | None]]]


class MatmulOrder(Record):
    """The order of tiles alone: `group` rows of tiles per group, all else equal. Group 0 is torch."""

    group: int
    shape: tuple[int, int, int]
    tile: tuple[int, int]
    us: float
    us_p20: float
    us_p80: float
    tflops: float


class MatmulWave(Record):
    """The first `tiles` programs of one matmul, all else equal."""

    tiles: int
    shape: tuple[int, int, int]
    tile: tuple[int, int]
    us: float
    us_p20: float
    us_p80: float


class MatmulLoad(Record):
    """A matmul that runs for seconds without a pause (instruments/timing.py, sustained).

    Attributes:
        data: normal, or zeros.
        us: per call, in the second half of the run, as are clock and power.
        turns_us: per call, in turns with the other names on the same data.
    """

    name: str
    data: str
    shape: tuple[int, int, int]
    us: float
    us_p20: float
    us_p80: float
    tflops: float
    clock_mhz: float
    watts: float
    turns_us: float
    turns_p20: float
    turns_p80: float


class Machine(Record, omit_defaults=True):
    """What the machine itself costs: a list of records per part, and what they were measured with.

    Attributes:
        kernel_hashes: {part: hash of its kernels}.
    """

    device: str
    driver: str
    torch: str
    triton: str
    date: str
    latency: list[Latency] = []
    reads: list[Read] = []
    copy: list[Copy] = []
    flight: list[Flight] = []
    tall_rows: list[TallRows] = []
    stages: list[Stages] = []
    programs: list[Programs] = []
    transpose: list[Transpose] = []
    divergence: list[Divergence] = []
    banks: list[Banks] = []
    accumulator: list[Accumulator] = []
    matmul_steps: list[MatmulStep] = []
    matmul_orders: list[MatmulOrder] = []
    matmul_waves: list[MatmulWave] = []
    matmul_load: list[MatmulLoad] = []
    matmul_hopper: list[MatmulStep] = []
    matmul_hopper_zeros: list[MatmulLoad] = []
    matmul_trace: list[WarpTrace] = []
    kernel_hashes: dict[str, str] = {}

    def sums(self, data: str, K: int, every: int = 0, ratio: int = 0) -> Accumulator:
        """One record of `accumulator`. Raises ValueError where there is none."""
        for record in self.accumulator:
            if (record.data, record.K, record.every, record.ratio) == (data, K, every, ratio):
                return record
        names = sorted({(r.data, r.K, r.every) for r in self.accumulator})
        raise ValueError(
            f"data, K, every, ratio: no record of {data}, {K}, {every}, {ratio}, expected some of: "
            + "; ".join(", ".join(map(str, values)) for values in names)
        )


# What bench/expert_parallel.py measures


class AllToAll(Record):
    """Every rank sends the same number of bytes to each of the others.

    Attributes:
        bytes: that a rank sends to all others together.
        ctas: thread blocks that NCCL may use, at high priority; 0 for its own choice, without priority.
        gbps: bytes over us, one direction.
        graph: replayed from a CUDA graph, not eager.
    """

    bytes: int
    ctas: int
    us: float
    us_p20: float
    us_p80: float
    gbps: float
    graph: bool = False


class Same(Record):
    """The layer over the ranks, compared with the same layer on one GPU.

    Attributes:
        data: normal numbers, or whole ones, whose sums are exact in any order.
        equal: in every bit.
        error: ||difference|| / ||result||.
    """

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
    """A forward step of the layer.

    Attributes:
        part: whole; counts known (whole without the exchange of counts, so that the host never waits); graph (counts
            known, replayed from a CUDA graph); products (the matmuls alone); or exchanges (these alone). Parts that end
            in "in a row" are a step of several back to back.
        link: as in Timeline.
        tokens: per rank.
        sms: SMs for the matmuls; 0 for all.
        ctas: as in AllToAll.
        us: of the slowest rank.
        rows: that each rank multiplies.
        sent: bytes that each rank sends to others in dispatch.
    """

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
    """A kernel on a GPU.

    Attributes:
        lane: of the picture: link, experts or rows.
        name: what it does.
        start: when it begins, in microseconds.
        us: how long it takes.
        blocks: thread blocks of the launch; 0 where they were not recorded.
    """

    lane: str
    name: str
    start: float
    us: float
    blocks: int = 0


class Timeline(Record):
    """The kernels of one step by rank, from the beginning of the first one.

    Attributes:
        link: NVLink, or host memory, where NCCL may not send from GPU to GPU.
        part: whole or graph, as in Step.
    """

    model: str
    routing: str
    link: str
    chunks: int
    sms: int
    rows: tuple[int, ...]
    ranks: list[list[Span]]
    part: str = "whole"


class Parallel(Record, kw_only=True):
    """All that is recorded of several GPUs of one kind in one host. kernel_hashes: {part: hash of its kernels}."""

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
    kernel_hashes: dict[str, str] = {}

    @property
    def provenance(self) -> str:
        """One line for captions: devices, versions, date."""
        return f"{self.ranks} {self.device}, torch {self.torch}, triton {self.triton}, NCCL {self.nccl}, {self.date}"

    def step(self, **fields) -> Step:
        """The first step with these fields. Raises ValueError where there is none."""
        return _first("step", self.steps, fields)

    def timeline(self, **fields) -> Timeline:
        """The first timeline with these fields. Raises ValueError where there is none."""
        return _first("timeline", self.timelines, fields)


def _first(kind: str, records: list, fields: dict):
    for record in records:
        if all(getattr(record, name) == value for name, value in fields.items()):
            return record
    others = {tuple(getattr(record, name) for name in fields) for record in records}
    raise ValueError(f"{', '.join(fields)}: no {kind} with {tuple(fields.values())}, expected one of: {sorted(others)}")


class Figures(Record, kw_only=True):
    """All that is recorded of one GPU.

    Attributes:
        liger: version of Liger's kernels; None where they were not installed.
        date: of the last run that added cases.
        copy_gbps: copy bandwidth, by torch's own copy.
        matmul_tflops: {dtype: throughput of torch's own matmul}.
        launch_us: host time per launch.
        machine: None until bench/machine.py has run.
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
    host: list[HostTime] = []
    roofline: list[Point] = []
    sustained: list[Sustained] = []
    layers: list[DecoderLayer] = []

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
        names = (f"{c.kernel}, {c.variant}, {c.shape}" for c in self.counters)
        raise ValueError(
            f"kernel, variant, shape: no counters of {kernel}, {variant}, {shape}, expected one of: {'; '.join(names)}"
        )

    def peak(self, kernel: str, variant: str, *shape: int) -> Peak:
        """Memory and time of one variant of a kernel. Raises ValueError where nothing is recorded."""
        for peak in self.peaks:
            if (peak.kernel, peak.variant, peak.shape) == (kernel, variant, shape):
                return peak
        names = (f"{p.kernel}, {p.variant}, {p.shape}" for p in self.peaks)
        raise ValueError(
            f"kernel, variant, shape: no peak of {kernel}, {variant}, {shape}, expected one of: {'; '.join(names)}"
        )

    def point(self, kernel: str, implementation: str, *shape: int) -> Point:
        """The point of one call on the roofline. Raises ValueError where nothing is recorded."""
        return _first("point", self.roofline, {"kernel": kernel, "implementation": implementation, "shape": shape})

    def sustained_run(self, kernel: str, implementation: str, data: str, *shape: int) -> Sustained:
        """What a kernel took, run for seconds. Raises ValueError where nothing is recorded."""
        fields = {"kernel": kernel, "implementation": implementation, "data": data, "shape": shape}
        return _first("run of seconds", self.sustained, fields)

    def layer(self, part: str, phase: str, batch: int, impl: str) -> DecoderLayer:
        """A decoder layer or a part of it. Raises ValueError where nothing is recorded."""
        return _first("layer", self.layers, {"part": part, "phase": phase, "batch": batch, "impl": impl})


@dataclass(frozen=True)
class Rates:
    """The two rates of a GPU's roofline: bytes/s, FLOP/s, and whether they were measured or are the datasheet's."""

    bandwidth: float
    peak: float
    source: str

    @property
    def ridge(self) -> float:
        """The ridge point, in FLOP/byte."""
        return self.peak / self.bandwidth


def as_measured(gpu: str) -> gpus.GPU:
    """A GPU with copy bandwidth and matmul throughput as they were measured, and the datasheet's rates for the rest."""
    card = gpus.GPUS[gpu]
    if gpu.lower() not in gpus_on_record():
        return card
    figures = load(gpu)
    measured = {unit: tflops * 1e12 for unit, tflops in figures.matmul_tflops.items()}
    return replace(card, bandwidth=figures.copy_gbps * 1e9, matrix=card.matrix | measured)


def rates(gpu: str, unit: str = "bf16") -> Rates:
    """The rates that the course computes with: copy bandwidth and matmul throughput where both were measured, else both
    of the datasheet. unit: as for GPU.peak; only matmuls in bf16 have been measured."""
    measured = gpu.lower() in gpus_on_record() and unit in load(gpu).matmul_tflops
    card = as_measured(gpu) if measured else gpus.GPUS[gpu]
    return Rates(card.bandwidth, card.peak(unit), "measured" if measured else "datasheet")


def case_name(kernel: str, shape: tuple, dtype: str) -> str:
    """The name of a case: 'rmsnorm 8192x8192 bf16'."""
    return f"{kernel} {'x'.join(map(str, shape))} {dtype}"


# Files


def place() -> Path:
    """The path of the figures of this machine's GPU."""
    return RESULTS / f"{gpus.file_stem(*gpus.this_device())}.json"


def gpus_on_record() -> list[str]:
    """The GPUs that have figures, as `load` takes them."""
    return sorted(path.stem for path in RESULTS.glob("*.json"))


@cache
def load(gpu: str) -> Figures:
    """The recorded figures of one GPU, such as 'h200'. Raises ValueError where there are none."""
    if gpu.lower() not in gpus_on_record():
        raise ValueError(
            f"gpu: no figures are recorded for {gpu!r}, expected one of: {', '.join(gpus_on_record()) or 'none'}"
        )
    return read(RESULTS / f"{gpu.lower()}.json")


@cache
def load_parallel(gpu: str, ranks: int) -> Parallel:
    """The recorded figures of several GPUs of one kind. Raises ValueError where there are none."""
    return read(parallel_place(gpu.lower(), ranks), Parallel)


def parallel_place(gpu: str, ranks: int) -> Path:
    """The path of the figures of several GPUs."""
    return RESULTS / "parallel" / f"{gpu}-x{ranks}.json"


def read(path: Path, kind: type = Figures) -> Figures | Parallel:
    """The figures in one file.

    Raises:
        ValueError: where there is no such file, or something else in it; the message says where.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except FileNotFoundError:
        script = "run" if kind is Figures else "expert_parallel"
        raise ValueError(f"{path}: no such file; bench/{script}.py makes it") from None
    except msgspec.DecodeError as error:
        raise ValueError(f"{path.name}: not figures as instruments/results.py has them: {error}") from None


def dumps(content: dict) -> bytes:
    """The JSON text of a file under bench/results/: a record is one line, what holds records is spread over lines.

    Args:
        content: numbers, texts, lists and dictionaries.

    Raises:
        ValueError: for a number that is not finite.
    """
    return ("\n".join(_lines(content)) + "\n").encode()


def _lines(content, indent: str = "") -> Iterator[str]:
    """The lines of a dictionary or list that holds records, its brackets included."""
    first, last = "{}" if isinstance(content, dict) else "[]"
    items = list(content.items() if isinstance(content, dict) else enumerate(content))
    yield indent + first
    for place, (name, value) in enumerate(items):
        label = f"{json.dumps(name)}: " if isinstance(content, dict) else ""
        comma = "," if place + 1 < len(items) else ""
        if isinstance(content, dict) and _holds_records(value):
            first_line, *middle, last_line = _lines(value, indent + " ")
            yield f"{indent} {label}{first_line.lstrip()}"
            yield from middle
            yield last_line + comma
        else:
            yield f"{indent} {label}{json.dumps(value, allow_nan=False)}{comma}"
    yield indent + last


def _holds_records(value) -> bool:
    """Whether this is a list of records, or a dictionary of such lists or of records."""
    if isinstance(value, dict):
        return any(isinstance(each, dict) or _holds_records(each) for each in value.values())
    return isinstance(value, list) and any(isinstance(each, dict) for each in value)


def encode(figures: Figures | Parallel) -> bytes:
    """The file of some figures. Raises ValueError for a number that is not finite or not of its field's type."""
    text = dumps(msgspec.to_builtins(figures))
    msgspec.json.decode(text, type=type(figures))
    return text


def store(figures: Figures | Parallel, path: Path) -> None:
    """Write figures to `path`, all of them or nothing."""
    text = encode(figures)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, text)
