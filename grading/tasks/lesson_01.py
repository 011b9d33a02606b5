"""Exercise 01: bytes, FLOPs and launches of small operations, the roofline, a first kernel, and bandwidth claims."""

import numpy as np

from grading.tasks import Case, Mistake, RandomTensor, Speed, Task, returns, rounded, tensor
from grading.tasks.properties import shape_cases

EXERCISE = "01_roofline"


def between(rng, low, high) -> int:
    """A random whole number from low to high."""
    return int(rng.integers(low, high + 1))


# ---------------------------------------------------------------- 01.1 bytes and FLOPs


@returns("bytes", "flops")
def bias_add(rows, cols, itemsize, *, writes=True, bias_per_row=False):
    """y = x + bias."""
    elements = rows * cols
    bias = elements if bias_per_row else cols
    return ((1 + writes) * elements + bias) * itemsize, elements


@returns("bytes", "flops")
def row_sums(rows, cols, itemsize, *, writes=True, sums_like_x=False):
    """One fp32 sum per row."""
    sums = rows * (itemsize if sums_like_x else 4)
    return rows * cols * itemsize + writes * sums, rows * cols


@returns("bytes", "flops")
def rank_one_update(rows, cols, itemsize, *, writes=True, multiply_add=2):
    """a += u v^T."""
    return ((1 + writes) * rows * cols + rows + cols) * itemsize, multiply_add * rows * cols


@returns("bytes", "flops")
def quantized_matmul(m, n, k, *, writes=True, weight_bytes=1, multiply_add=2, scale_bytes=4, scale_flops=1):
    """bf16 a times int8 w, each column scaled by an fp32 number, bf16 out."""
    nbytes = 2 * m * k + weight_bytes * k * n + scale_bytes * n + writes * 2 * m * n
    return nbytes, multiply_add * m * n * k + scale_flops * m * n


def matrix(itemsize):
    return lambda rng: {"rows": between(rng, 100, 9_000), "cols": between(rng, 100, 9_000), "itemsize": itemsize}


def matmul_sizes(rng):
    return {"m": between(rng, 1, 200), "n": between(rng, 300, 9_000), "k": between(rng, 300, 9_000)}


COUNT = Task(
    id="01.1",
    title="Count bytes and FLOPs",
    points=4,
    functions={f.__name__: f for f in (bias_add, row_sums, rank_one_update, quantized_matmul)},
    cases=(
        *(
            Case(f"{name}, {sizes} of {itemsize} bytes per element", matrix(itemsize), name)
            for name in ("bias_add", "row_sums", "rank_one_update")
            for sizes, itemsize in (("some sizes", 2), ("other sizes", 4))
        ),
        Case("quantized_matmul, some sizes", matmul_sizes, "quantized_matmul"),
        Case("quantized_matmul, other sizes", matmul_sizes, "quantized_matmul"),
    ),
    mistakes=(
        Mistake(
            "the writes were left out", "Bytes written count as much as bytes read, and `+=` does both.", writes=False
        ),
        Mistake("the bias was counted once per row", "All rows share one bias: it is read once.", bias_per_row=True),
        Mistake(
            "a tensor was counted with the element size of another one",
            "Each tensor has an element size of its own: 4 bytes for an fp32 sum, 1 byte for an int8 weight.",
            {"sums_like_x": True},
            {"weight_bytes": 2},
        ),
        Mistake(
            "a multiplication and an addition were counted as one FLOP",
            "A multiplication and an addition are two FLOPs.",
            multiply_add=1,
        ),
        Mistake(
            "the scale was left out",
            "Each column has one fp32 scale: 4 * n bytes are read, and each of the m * n results is multiplied once.",
            {"scale_bytes": 0},
            {"scale_flops": 0},
            {"scale_bytes": 0, "scale_flops": 0},
        ),
    ),
    hints={
        "values": "Bytes: list each tensor with its elements, bytes per element (the sums of row_sums are fp32), reads "
        "and writes. FLOPs: count the additions and multiplications per result.",
        "form": "Return (bytes, flops), two ints. Where you divide, use // instead of /.",
    },
)

# ---------------------------------------------------------------- 01.2 the roofline


@returns("ridge")
def ridge(bandwidth, peak, *, inverted=False):
    """FLOP per byte; bandwidth in TB/s, peak in TFLOP/s."""
    return bandwidth / peak if inverted else peak / bandwidth


@returns("rate")
def attainable(intensity, bandwidth, peak, *, limit="both", tera=True):
    """TFLOP/s. limit: the one that is applied; "looser" for the larger of the two."""
    memory = bandwidth * intensity
    rates = {"both": min(memory, peak), "memory": memory, "compute": peak, "looser": max(memory, peak)}
    return rates[limit] * (1 if tera else 1e12)


@returns("seconds")
def seconds(nbytes, flops, bandwidth, peak, *, limit="both", tera=True):
    """The longer of the two times. limit: the one that is applied; "looser" for the shorter time."""
    unit = 1e12 if tera else 1
    memory, compute = nbytes / (bandwidth * unit), flops / (peak * unit)
    times = {"both": max(memory, compute), "memory": memory, "compute": compute, "looser": min(memory, compute)}
    return memory + compute if limit == "sum" else times[limit]


def gpu(rng):
    return {"bandwidth": round(float(rng.uniform(0.3, 8)), 2), "peak": round(float(rng.uniform(20, 2500)), 1)}


def at(share):
    """An intensity of `share` times the ridge."""

    def make(rng):
        limits = gpu(rng)
        return {"intensity": share * ridge(**limits) * float(rng.uniform(0.9, 1.1)), **limits}

    return make


def work(share):
    """Bytes and FLOPs at `share` times the ridge."""

    def make(rng):
        limits, nbytes = gpu(rng), between(rng, 10**6, 10**9)
        return {"nbytes": nbytes, "flops": int(nbytes * share * ridge(**limits)), **limits}

    return make


ROOFLINE = Task(
    id="01.2",
    title="The roofline of any GPU",
    points=2,
    functions={f.__name__: f for f in (ridge, attainable, seconds)},
    cases=(
        Case("ridge of an H100", lambda rng: {"bandwidth": 3.35, "peak": 989.4}, "ridge"),
        Case("ridge of some GPU", gpu, "ridge"),
        Case("attainable, left of the ridge", at(0.2), "attainable"),
        Case("attainable, right of the ridge", at(5), "attainable"),
        Case("seconds, left of the ridge", work(0.1), "seconds"),
        Case("seconds, right of the ridge", work(7), "seconds"),
        Case("seconds of a copy, which computes nothing", work(0), "seconds"),
    ),
    mistakes=(
        Mistake(
            "the ridge point was inverted, in bytes per FLOP",
            "At the ridge point, bytes / bandwidth equals flops / peak: solve for flops / bytes.",
            inverted=True,
        ),
        Mistake(
            "the looser of the two limits was applied",
            "Both limits hold at once: take the smaller throughput, or the longer time.",
            limit="looser",
        ),
        Mistake(
            "only one of the two limits was applied",
            "Bandwidth and peak both limit the kernel: take the smaller throughput, or the longer time.",
            {"limit": "memory"},
            {"limit": "compute"},
        ),
        Mistake(
            "the two times were added",
            "A kernel loads one tile while it computes another: the time is the longer of the two, not their sum.",
            limit="sum",
        ),
        Mistake(
            "a factor of 10^12 was wrong",
            "TB/s times FLOP/byte is TFLOP/s. For seconds, convert to bytes and FLOP per second: times 1e12.",
            tera=False,
        ),
    ),
    hints={"values": "There are two limits, bandwidth and peak: compute both, and check the units of each."},
)

# ---------------------------------------------------------------- 01.3 where launches stop mattering


@returns("elements")
def break_even(bytes_per_element, bandwidth, launch_us, *, microsecond=1e-6, terabyte=1e12, per_element="divide"):
    """Elements whose bytes take as long as the launch; bandwidth in TB/s."""
    bytes_during_launch = launch_us * microsecond * bandwidth * terabyte
    factors = {"divide": 1 / bytes_per_element, "multiply": bytes_per_element, "twice": 1 / (2 * bytes_per_element)}
    return bytes_during_launch * factors.get(per_element, 1)


def launch(rng):
    return {
        "bytes_per_element": between(rng, 2, 20),
        "bandwidth": round(float(rng.uniform(0.3, 8)), 2),
        "launch_us": round(float(rng.uniform(2, 25)), 1),
    }


BREAK_EVEN = Task(
    id="01.3",
    title="The size at which launches stop mattering",
    points=2,
    functions={"break_even": break_even},
    cases=(
        Case("some GPU and launch cost", launch),
        Case("another", launch),
        Case(
            "19 bytes per element, 0.3 TB/s, 2.3 µs",
            lambda rng: {"bytes_per_element": 19, "bandwidth": 0.3, "launch_us": 2.3},
        ),
        Case(
            "6 bytes per element, 4.8 TB/s, 5 µs",
            lambda rng: {"bytes_per_element": 6, "bandwidth": 4.8, "launch_us": 5.0},
        ),
    ),
    mistakes=(
        Mistake(
            "the units were converted wrongly or not at all",
            "A launch takes launch_us * 1e-6 seconds, and DRAM delivers bandwidth * 1e12 bytes per second.",
            {"microsecond": 1, "terabyte": 1},
            {"microsecond": 1},
            {"microsecond": 1e-3},
            {"terabyte": 1e9},
        ),
        Mistake(
            "bytes were returned, not elements", "Divide by the bytes that each element moves.", per_element="skip"
        ),
        Mistake(
            "the bytes were multiplied by bytes_per_element",
            "Divide: the more bytes an element moves, the fewer elements fit into the time of a launch.",
            per_element="multiply",
        ),
        Mistake(
            "reads and writes were counted twice",
            "bytes_per_element already counts reads and writes together.",
            per_element="twice",
        ),
    ),
    hints={"values": "Write elements * bytes_per_element / bandwidth = launch time in bytes, bytes/s and seconds."},
)

# ---------------------------------------------------------------- 01.4 which bound


@returns("bound", "seconds")
def bound(nbytes, flops, launches, matmul, gpu, *, peak="", counted=None, added=False):
    """The longest of the three times and its name. peak: the one used for all work. counted: launches counted."""
    times = {
        "memory": nbytes / gpu["bandwidth"],
        "compute": flops / gpu[peak or ("matrix" if matmul else "vector")],
        "launch": (launches if counted is None else counted) * gpu["launch"],
    }
    word = max(times, key=times.get)
    return word, sum(times.values()) if added else times[word]


H200 = {"bandwidth": 4.8e12, "vector": 66.9e12, "matrix": 989.4e12, "launch": 5e-6}
T4 = {"bandwidth": 0.32e12, "vector": 8.1e12, "matrix": 65e12, "launch": 8e-6}


def on(gpu, low, high, of):
    """of(n) -> nbytes, flops, launches, matmul, for an n between low and high."""
    return lambda rng: {**dict(zip(("nbytes", "flops", "launches", "matmul"), of(between(rng, low, high)))), "gpu": gpu}


def gemm(m, n, k):
    return 2 * (m * k + k * n + m * n), 2 * m * n * k, 1, True


def elementwise(flops, nbytes=4):
    """One launch with so many FLOPs and bytes per element."""
    return lambda n: (nbytes * n, flops * n, 1, False)


BOUND = Task(
    id="01.4",
    title="Memory-, compute- or launch-bound",
    points=3,
    functions={"bound": bound},
    cases=(
        Case("adding two large bf16 vectors, H200", on(H200, 10**8, 10**9, elementwise(1, nbytes=6))),
        Case("adding two small bf16 vectors, H200", on(H200, 10**3, 10**5, elementwise(1, nbytes=6))),
        Case("a large square GEMM, H200", on(H200, 4000, 9000, lambda n: gemm(n, n, n))),
        Case("a GEMM of 16 rows, H200", on(H200, 8000, 16000, lambda n: gemm(16, n, n))),
        Case("160 FLOPs per element, elementwise, H200", on(H200, 10**8, 10**9, elementwise(160))),
        Case("400 FLOPs per element of a small tensor, H200", on(H200, 10**6, 2 * 10**6, elementwise(400))),
        Case("400 FLOPs per element of a tiny tensor, H200", on(H200, 10**4, 10**5, elementwise(400))),
        Case("six eager operations on a matrix, H200", on(H200, 10**6, 1_600_000, lambda n: (14 * n, 7 * n, 6, False))),
        Case("a GEMM of 64 rows, T4", on(T4, 4000, 9000, lambda n: gemm(64, n, n))),
        Case("40 FLOPs per element, elementwise, T4", on(T4, 10**7, 10**8, elementwise(40))),
        Case("160 FLOPs per element, elementwise, T4", on(T4, 10**7, 10**8, elementwise(160))),
    ),
    mistakes=(
        Mistake(
            "elementwise work was compared with the tensor cores' peak",
            "Tensor cores only do matmuls: where matmul is False, the peak is gpu['vector'].",
            peak="matrix",
        ),
        Mistake(
            "a matmul was compared with the vector peak",
            "Tensor cores do the matmuls: where matmul is True, the peak is gpu['matrix'].",
            peak="vector",
        ),
        Mistake("the launches were left out", "launches * gpu['launch'] is the third time to compare.", counted=0),
        Mistake("only one launch was counted", "Each launch costs gpu['launch']: multiply by launches.", counted=1),
        Mistake(
            "the three times were added", "The three overlap: return the longest of them, not their sum.", added=True
        ),
    ),
    hints={
        "values": "Compute the three times in seconds, and return the name and the value of the longest.",
        "form": "Return (bound, seconds): one of 'memory', 'compute' and 'launch', and a float.",
    },
)

# ---------------------------------------------------------------- 01.5 scaled add, the kernel


@returns(out="fp32")
def scaled_add(x, y, alpha, dtypes=None, *, operand="x", product="fp32", round_y=False):
    """alpha * x + y.

    operand: what is multiplied by alpha. product: "rounded" to the dtype of x, or "all rounded", alpha too.
    """
    if product == "all rounded":
        alpha = rounded(alpha, dtypes["x"])
    if round_y:
        y = rounded(y, dtypes["x"])
    scaled_x = alpha * x if operand in ("x", "sum") else x
    if product != "fp32":
        scaled_x = rounded(scaled_x, dtypes["x"])
    return scaled_x + (alpha * y if operand in ("y", "sum") else y)


ALPHA = float(np.float32(0.3))  # a kernel gets its scalars as fp32; in bf16 this one would be off by 0.1%


def scaled(shape, dtype, alpha=ALPHA, std=1.0, cancel=False):
    """x and y; cancel: alpha * x + y is so small that rounding alpha * x shows."""

    def make(rng):
        x, y = rounded(rng.normal(0, std, shape), dtype), rng.normal(0, 1, shape)
        if shape[-1] == 1 or len(shape) == 1:  # each element is compared to 1e-6, so none may cancel
            y = np.copysign(y, alpha * x)
        return {"x": tensor(x, dtype), "y": tensor(0.1 * y - alpha * x if cancel else y, "fp32"), "alpha": alpha}

    return make


SCALED_ADD = Task(
    id="01.5",
    title="Scaled add, the kernel",
    points=4,
    functions={"scaled_add": scaled_add},
    kernel=True,
    cases=(
        *shape_cases(scaled),
        Case("3 x 8193 bf16, alpha is negative", scaled((3, 8193), "bf16", alpha=-1.75)),
        Case(
            "2 x 500 fp16, products beyond fp16's range",
            scaled((2, 500), "fp16", alpha=3000, std=300.0),
            hint="alpha * x exceeds fp16's range, which ends at 65,504: convert x with `.to(tl.float32)` first.",
        ),
        Case("2 x 700 bf16, alpha * x and y nearly cancel", scaled((2, 700), "bf16", cancel=True)),
        Case("2 x 300 bf16, alpha is 0", scaled((2, 300), "bf16", alpha=0.0)),
    ),
    mistakes=(
        Mistake(
            "alpha was applied to y", "out = alpha * x + y: only x is scaled.", {"operand": "y"}, {"operand": "sum"}
        ),
        Mistake("alpha was not applied", "Multiply x by alpha.", operand="none"),
        Mistake(
            "alpha * x was rounded to 16 bits before y was added",
            "Where alpha reaches the kernel as an int such as 3, as a literal or as a constexpr, alpha times a 16-bit "
            "tensor stays 16-bit. Convert x with `.to(tl.float32)` right after the load, and keep the result in fp32.",
            {"product": "all rounded"},
            {"product": "rounded"},
        ),
        Mistake("y was rounded to the dtype of x", "Keep y in fp32, and convert x to fp32.", round_y=True),
    ),
    minimum_bytes=lambda x, y, alpha: {"x": x.nbytes, "y": y.nbytes, "returned 0": y.nbytes},
    hints={
        "out_of_bounds": "The last tile extends past the last element: mask loads and store with `offsets < size`.",
        "unwritten": "Cover all y.numel() elements with cdiv(size, BLOCK) programs: one starts at program_id * BLOCK.",
        "form": "Return one new fp32 tensor of y's shape: `torch.empty_like(y)`.",
        "values": "out = alpha * x + y in fp32: convert x after the load, and use the same offsets for all tensors.",
        "traffic": "Load x and y once, as they are stored, and store out once: no copy, no intermediate tensor.",
        "torch_work": "PyTorch only allocates the result: the kernel loads x and y, and converts x in registers.",
    },
    speed=Speed(
        points=1,
        share=0.8,
        bytes=8192 * 8192 * 10,
        shape="8192 x 8192 bf16",
        make=lambda: {"x": RandomTensor((8192, 8192), "bf16"), "y": RandomTensor((8192, 8192), "fp32"), "alpha": ALPHA},
    ),
)

# ---------------------------------------------------------------- 01.6 claims of bandwidth

L2 = 50 * 2**20
REASONS = ("one way", "binary units", "cache")


def total_bytes(claim):
    return claim["read"] + claim["written"]


def bandwidth_of(claim):
    """GB/s, reads plus writes."""
    return total_bytes(claim) / claim["microseconds"] / 1e3


def reason_against(claim, l2):
    """What is wrong with a claim; '' for a right one."""

    def close_to(bandwidth):
        return abs(claim["gbps"] / bandwidth - 1) < 0.01

    if close_to(bandwidth_of(claim)):
        return "cache" if claim["buffers"] * total_bytes(claim) <= l2 else ""
    return "one way" if close_to(claim["read"] / claim["microseconds"] / 1e3) else "binary units"


def judge_claim(arguments, returned):
    """What is wrong with the returned name or reason; '' where both are right."""
    claims, l2 = {claim["name"]: claim for claim in arguments["claims"]}, arguments["l2"]
    if len(returned) != 2 or not all(isinstance(item, str) for item in returned):
        return "expected two strings, (name, reason)"
    name, answer = returned
    if name not in claims or answer not in REASONS:
        return (
            f"got {name!r} and {answer!r}, expected one of the names {', '.join(claims)} and one of the reasons "
            + ", ".join(map(repr, REASONS))
        )
    claim, reason = claims[name], reason_against(claims[name], l2)
    if answer == reason:
        return ""
    arithmetic = f"(read + written) / time is {bandwidth_of(claim):,.0f} GB/s, and {claim['gbps']:,} are claimed"
    loop = (
        f"its loop cycles through {claim['buffers'] * total_bytes(claim) / 1e6:,.1f} MB (buffers * (read + written)), "
        f"and L2 holds {l2 / 1e6:,.1f} MB"
    )
    if not reason and answer == "cache":
        return f"claim {name} measures DRAM: {loop}"
    if not reason:
        return f"the arithmetic of claim {name} is right: {arithmetic}. Both directions count, in units of 10^9 bytes"
    if reason == "cache":
        return f"the arithmetic of claim {name} is right, but its bytes may come from L2: {loop}"
    return (
        f"claim {name} is wrong, but not for the reason {answer!r}: {arithmetic}. Compare the claim with read / time "
        "and with (read + written) / time / 2^30"
    )


def claimed(rng, reason="", loop=(), rates=(1_500, 4_300)):
    """One claim, right except for `reason`. loop: range of the bytes that the timing loop cycles through, in units of
    L2, over many small buffers; without it there are a few large ones."""
    buffers = between(rng, 10, 60) if loop else between(rng, 1, 4)
    nbytes = rng.uniform(*loop) * L2 / buffers if loop else rng.uniform(2e8, 2e9)
    read, gbps = int(nbytes / rng.uniform(1.5, 2)), float(rng.uniform(*rates))
    claim = {"read": read, "written": int(nbytes) - read, "buffers": buffers}
    claim["microseconds"] = total_bytes(claim) / gbps / 1e3
    mistaken = {"one way": gbps * read / total_bytes(claim), "binary units": gbps * 1e9 / 2**30}
    return {**claim, "gbps": round(mistaken.get(reason, gbps))}


def claims(reason, late, **wrong):
    """Four claims in random order, one of them wrong; late: it comes after the one whose loop barely exceeds L2."""

    def make(rng):
        options = [
            claimed(rng, reason, **wrong),
            claimed(rng, loop=(1.1, 1.45)),
            claimed(rng, loop=(5, 6)),
            claimed(rng, rates=(4_000, 4_600)),
        ]
        order = rng.permutation(4).tolist()
        if (order.index(0) > order.index(1)) != late:
            order.reverse()
        return {"claims": [{"name": name, **options[i]} for name, i in zip("ABCD", order)], "l2": L2}

    return make


AUDIT = Task(
    id="01.6",
    title="One wrong claim among four",
    points=3,
    functions={"wrong_claim": None},
    verdict=judge_claim,
    cases=(
        Case("someone counted one direction", claims("one way", late=True)),
        Case("someone counted one direction, small tensors", claims("one way", late=False, loop=(5, 6))),
        Case("someone divided by 2^30", claims("binary units", late=False)),
        Case("someone divided by 2^30, a fast kernel", claims("binary units", late=True, rates=(4_200, 4_500))),
        Case(
            "someone measured a cache, above the datasheet",
            claims("cache", late=True, loop=(0.3, 0.6), rates=(5_000, 7_000)),
        ),
        Case(
            "someone measured a cache, below the datasheet",
            claims("cache", late=False, loop=(0.8, 0.97), rates=(2_500, 3_800)),
        ),
    ),
    hints={"passed": "you found each wrong claim, and why it is wrong"},
)

TASKS = (COUNT, ROOFLINE, BREAK_EVEN, BOUND, SCALED_ADD, AUDIT)
