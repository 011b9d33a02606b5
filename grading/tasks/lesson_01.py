"""Exercise 01: bytes, FLOPs and launches of small operations, the roofline, a first kernel, and claims of bandwidth."""

import numpy as np

from grading.tasks import Case, RandomTensor, Slip, Speed, Task, gives, rounded, tensor
from grading.tasks.properties import shape_cases

EXERCISE = "01_roofline"


def between(rng, low, high) -> int:
    """A whole number from low to high."""
    return int(rng.integers(low, high + 1))


def slip(fault, hint, *edits):
    """A slip whose edits fit the published answer as they fit the oracle."""
    return Slip(fault, hint, edits, answer=edits)


# ---------------------------------------------------------------- 01.1 bytes and FLOPs


@gives("bytes", "flops")
def bias_add(rows, cols, itemsize):
    """y = x + bias."""
    nbytes = (2 * rows * cols + cols) * itemsize
    flops = rows * cols
    return nbytes, flops


@gives("bytes", "flops")
def row_sums(rows, cols, itemsize):
    """One fp32 sum per row."""
    nbytes = rows * cols * itemsize + rows * 4
    flops = rows * cols
    return nbytes, flops


@gives("bytes", "flops")
def rank_one_update(rows, cols, itemsize):
    """a += u v^T."""
    nbytes = (2 * rows * cols + rows + cols) * itemsize
    flops = 2 * rows * cols
    return nbytes, flops


@gives("bytes", "flops")
def quantised_matmul(m, n, k):
    """bf16 a times int8 w, each column scaled by an fp32 number, bf16 out."""
    nbytes = m * k * 2 + k * n + n * 4 + m * n * 2
    flops = 2 * m * n * k + m * n
    return nbytes, flops


def matrix(itemsize):
    return lambda rng: {"rows": between(rng, 100, 9_000), "cols": between(rng, 100, 9_000), "itemsize": itemsize}


def product(rng):
    return {"m": between(rng, 1, 200), "n": between(rng, 300, 9_000), "k": between(rng, 300, 9_000)}


COUNT = Task(
    id="01.1",
    title="Count bytes and FLOPs",
    points=4,
    functions={f.__name__: f for f in (bias_add, row_sums, rank_one_update, quantised_matmul)},
    cases=(
        *(
            Case(f"{name}, {sizes} of {itemsize} bytes per element", matrix(itemsize), name)
            for name in ("bias_add", "row_sums", "rank_one_update")
            for sizes, itemsize in (("some sizes", 2), ("other sizes", 4))
        ),
        Case("quantised_matmul, some sizes", product, "quantised_matmul"),
        Case("quantised_matmul, other sizes", product, "quantised_matmul"),
    ),
    slips=(
        Slip(
            "bytes and FLOPs came back in the other order", "Return (bytes, flops).", "nbytes, flops -> flops, nbytes"
        ),
        Slip(
            "elements were counted, not bytes",
            "Multiply each tensor's elements by the bytes of one of them.",
            ") * itemsize -> )",
            (" * itemsize -> ", "rows * 4 -> rows"),
            "m * k * 2 + k * n + n * 4 + m * n * 2 -> m * k + k * n + n + m * n",
        ),
        Slip(
            "the bias was counted once per row",
            "The bias has cols elements, which all rows share: DRAM delivers them once.",
            "cols + cols) -> cols + rows * cols)",
            answer="x + bias -> x + x",
        ),
        Slip(
            "the bias was left out",
            "The bias is read too: cols elements, once.",
            "cols + cols) -> cols)",
            answer="x + bias -> x",
        ),
        Slip(
            "the result was left out",
            "Bytes written count as much as bytes read.",
            "(2 * rows * cols + cols) -> (rows * cols + cols)",
            " + rows * 4 -> ",
            " + m * n * 2 -> ",
        ),
        Slip(
            "the sums were counted with itemsize",
            "The sums are fp32 whatever x is: 4 bytes each.",
            "rows * 4 -> rows * itemsize",
            answer="4 * rows -> rows * itemsize",
        ),
        Slip(
            "the matrix was counted once",
            "`a += ...` reads a and writes it back: the matrix moves twice.",
            "(2 * rows * cols + rows -> (rows * cols + rows",
            answer="cols + a) -> cols)",
        ),
        Slip(
            "the two vectors were left out",
            "u and v are read too: rows + cols elements.",
            " + rows + cols) -> )",
            answer="a + rows + cols + a -> a + a",
        ),
        Slip(
            "the product u v^T was counted as a tensor in memory",
            "At minimum traffic the product stays on the chip: only u, v and a move.",
            "(2 * rows * cols + rows -> (4 * rows * cols + rows",
            answer="cols + a) -> cols + 3 * a)",
        ),
        Slip(
            "the weights were counted with 2 bytes",
            "An int8 weight has one byte: that is why one quantises.",
            "k * n + -> 2 * k * n +",
            answer="1 * k * n -> 2 * k * n",
        ),
        Slip(
            "the scales were left out",
            "One fp32 scale per column of w is read: 4 n bytes.",
            " + n * 4 -> ",
            answer=" + 4 * n -> ",
        ),
        Slip(
            "a multiplication and an addition were counted as one FLOP",
            "A multiplication and an addition are two FLOPs.",
            "flops = 2 * -> flops = ",
        ),
        slip(
            "the multiplications by the scale were left out",
            "Each of the m n results is multiplied once by its column's scale.",
            "n * k + m * n -> n * k",
        ),
        slip(
            "the scale was counted inside the product, once per multiplication",
            "The scale belongs to a column, so it is applied once to each result, after the sum.",
            "2 * m * n * k + m * n -> 3 * m * n * k",
        ),
        Slip(
            "two FLOPs were counted per element",
            "Here each element takes part in one addition and in no multiplication.",
            "flops = rows -> flops = 2 * rows",
        ),
    ),
    hints={
        "wrong": "Write down each tensor with its elements and its bytes per element, read or written, and add up.",
        "type": "Both numbers are whole: return ints, with // rather than / where you divide.",
    },
)

# ---------------------------------------------------------------- 01.2 the roofline


@gives("ridge")
def ridge(bandwidth, peak):
    """FLOP per byte; bandwidth in TB/s, peak in TFLOP/s."""
    return peak / bandwidth


@gives("rate")
def attainable(intensity, bandwidth, peak):
    """TFLOP/s."""
    return min(peak, bandwidth * intensity)


@gives("seconds")
def seconds(nbytes, flops, bandwidth, peak):
    """The longer of the two times."""
    return max(nbytes / (bandwidth * 1e12), flops / (peak * 1e12))


def gpu(rng):
    return {"bandwidth": round(float(rng.uniform(0.3, 8)), 2), "peak": round(float(rng.uniform(20, 2500)), 1)}


def at(share):
    """An intensity of `share` times the ridge."""

    def make(rng):
        given = gpu(rng)
        return {"intensity": share * given["peak"] / given["bandwidth"] * float(rng.uniform(0.9, 1.1)), **given}

    return make


def work(share):
    """Bytes and FLOPs at `share` times the ridge."""

    def make(rng):
        given, nbytes = gpu(rng), between(rng, 10**6, 10**9)
        return {"nbytes": nbytes, "flops": int(nbytes * share * given["peak"] / given["bandwidth"]), **given}

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
    slips=(
        slip(
            "the ridge was turned over, bytes per FLOP",
            "At the ridge bytes / bandwidth equals flops / peak: solve for flops / bytes.",
            "peak / bandwidth -> bandwidth / peak",
        ),
        slip(
            "the memory roof was left without a ceiling",
            "No arithmetic is faster than the units' peak: take the smaller of the two roofs.",
            "min(peak, bandwidth * intensity) -> bandwidth * intensity",
        ),
        slip(
            "the peak came back where the memory roof is lower",
            "Left of the ridge bytes arrive too slowly for the peak: both roofs hold, and the lower one decides.",
            "min(peak, bandwidth * intensity) -> peak",
        ),
        slip(
            "FLOP/s came back, not TFLOP/s",
            "TB/s times FLOP/B is TFLOP/s already.",
            "bandwidth * intensity) -> bandwidth * intensity) * 1e12",
        ),
        slip(
            "the 10^12 of TB/s and TFLOP/s was left out",
            "A TB is 10^12 bytes: divide by bandwidth * 1e12 and peak * 1e12.",
            " * 1e12) -> )",
        ),
        slip(
            "the two times were added",
            "While one tile is computed the next is loaded: the longer of the two times decides, not their sum.",
            "max(nbytes / (bandwidth * 1e12), flops -> (nbytes / (bandwidth * 1e12) + flops",
        ),
        slip(
            "the shorter of the two times was taken",
            "Both have to be done: the longer of the two times decides.",
            "max(nbytes -> min(nbytes",
        ),
    ),
    hints={
        "wrong": "P = min(peak, bandwidth * intensity); time = max(bytes / bandwidth, flops / peak). Mind the units."
    },
)

# ---------------------------------------------------------------- 01.3 where launches stop mattering


@gives("elements")
def break_even(bytes_per_element, bandwidth, launch_us):
    """Elements for which the bytes take as long as the launch; bandwidth in TB/s."""
    bytes_during_launch = launch_us * 1e-6 * bandwidth * 1e12
    return bytes_during_launch / bytes_per_element


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
    slips=(
        Slip(
            "the units do not cancel: TB/s is 10^12 bytes per second, a µs is 10^-6 seconds",
            "launch_us * 1e-6 seconds, times bandwidth * 1e12 bytes per second.",
            (" * 1e-6 -> ", " * 1e12 -> "),
            "1e-6 -> 1e-3",
            "1e12 -> 1e9",
            answer=(" * 1e-6 -> ", " * 1e12 -> "),
        ),
        slip("the microseconds were taken for seconds", "launch_us is in microseconds: times 1e-6.", " * 1e-6 -> "),
        slip(
            "bytes came back, not elements", "Divide by the bytes that each element moves.", " / bytes_per_element -> "
        ),
        slip(
            "the bytes per element were multiplied where they divide",
            "The more bytes an element moves, the fewer elements fill the launch's time.",
            "/ bytes_per_element -> * bytes_per_element",
        ),
        slip(
            "the bytes were counted twice",
            "bytes_per_element counts reads and writes together already.",
            "/ bytes_per_element -> / bytes_per_element / 2",
        ),
        slip(
            "the result was turned over",
            "Solve elements * bytes_per_element / bandwidth = launch time for the elements.",
            "bytes_during_launch / bytes_per_element -> bytes_per_element / bytes_during_launch",
        ),
    ),
    hints={"wrong": "Solve elements * bytes_per_element / (bandwidth in bytes/s) = launch time in s for the elements."},
)

# ---------------------------------------------------------------- 01.4 which bound


@gives("bound", "seconds")
def bound(nbytes, flops, launches, matmul, gpu):
    """Which of the three times is the longest, and that time."""
    times = {
        "memory": nbytes / gpu["bandwidth"],
        "compute": flops / gpu["matrix" if matmul else "vector"],
        "launch": launches * gpu["launch"],
    }
    word = max(times, key=times.get)
    return word, times[word]


H200 = {"bandwidth": 4.8e12, "vector": 66.9e12, "matrix": 989.4e12, "launch": 5e-6}
T4 = {"bandwidth": 0.32e12, "vector": 8.1e12, "matrix": 65e12, "launch": 8e-6}


def on(gpu, low, high, of):
    """of(n) -> nbytes, flops, launches, matmul, for an n between low and high."""
    return lambda rng: {**dict(zip(("nbytes", "flops", "launches", "matmul"), of(between(rng, low, high)))), "gpu": gpu}


def gemm(m, n, k):
    return 2 * (m * k + k * n + m * n), 2 * m * n * k, 1, True


BOUND = Task(
    id="01.4",
    title="Memory-, compute- or launch-bound",
    points=3,
    functions={"bound": bound},
    cases=(
        Case("adding two large bf16 vectors, H200", on(H200, 10**8, 10**9, lambda n: (6 * n, n, 1, False))),
        Case("adding two small bf16 vectors, H200", on(H200, 10**3, 10**5, lambda n: (6 * n, n, 1, False))),
        Case("a large square GEMM, H200", on(H200, 4000, 9000, lambda n: gemm(n, n, n))),
        Case("a GEMM of 16 rows, H200", on(H200, 8000, 16000, lambda n: gemm(16, n, n))),
        Case("160 FLOPs per element, elementwise, H200", on(H200, 10**8, 10**9, lambda n: (4 * n, 160 * n, 1, False))),
        Case(
            "400 FLOPs per element of a small tensor, H200",
            on(H200, 10**6, 2 * 10**6, lambda n: (4 * n, 400 * n, 1, False)),
        ),
        Case(
            "400 FLOPs per element of a tiny tensor, H200", on(H200, 10**4, 10**5, lambda n: (4 * n, 400 * n, 1, False))
        ),
        Case("six eager operations on a matrix, H200", on(H200, 10**6, 1_600_000, lambda n: (14 * n, 7 * n, 6, False))),
        Case("a GEMM of 64 rows, T4", on(T4, 4000, 9000, lambda n: gemm(64, n, n))),
        Case("40 FLOPs per element, elementwise, T4", on(T4, 10**7, 10**8, lambda n: (4 * n, 40 * n, 1, False))),
        Case("160 FLOPs per element, elementwise, T4", on(T4, 10**7, 10**8, lambda n: (4 * n, 160 * n, 1, False))),
    ),
    slips=(
        slip(
            "elementwise work was held against the matrix units",
            "Matrix units do matrix products only: where matmul is False, the compute roof is gpu['vector'].",
            '"matrix" if matmul else "vector" -> "matrix"',
        ),
        slip(
            "a matrix product was held against the vector units",
            "Where matmul is True, the compute roof is gpu['matrix'].",
            '"matrix" if matmul else "vector" -> "vector"',
        ),
        slip(
            "the launches were left out",
            "launches * gpu['launch'] is the third time to compare.",
            'launches * gpu["launch"] -> 0',
        ),
        slip(
            "one launch was counted for all",
            "Each launch costs gpu['launch']: multiply by launches.",
            'launches * gpu["launch"] -> gpu["launch"]',
        ),
        slip(
            "the times were added up",
            "The three go on at the same time: the longest decides.",
            "word, times[word] -> word, sum(times.values())",
        ),
        slip(
            "the shortest of the three was taken",
            "All three have to be done: the longest decides.",
            "max(times -> min(times",
        ),
    ),
    hints={
        "wrong": "Compute the three times in seconds, take the largest, and return its name and its value.",
        "type": "Return (bound, seconds): one of 'memory', 'compute' and 'launch', and a float.",
    },
)

# ---------------------------------------------------------------- 01.5 scaled add, the kernel


@gives(out="fp32")
def scaled_add(x, y, alpha):
    """alpha * x + y."""
    return alpha * x + y


ALPHA = float(np.float32(0.3))  # a kernel gets its scalars as fp32; in bf16 this one would be off by 0.1%


def scaled(shape, dtype, alpha=ALPHA, std=1.0, cancel=False):
    """x and y; cancel: what the product lost in a rounding is all that is left of their sum."""

    def make(rng):
        x, y = rounded(rng.normal(0, std, shape), dtype), rng.normal(0, 1, shape)
        if shape[-1] == 1 or len(shape) == 1:  # held to 1e-6 element by element: none may cancel
            y = np.copysign(y, alpha * x)
        return {"x": tensor(x, dtype), "y": tensor(0.1 * y - alpha * x if cancel else y, "fp32"), "alpha": alpha}

    return make


SCALED_ADD = Task(
    id="01.5",
    title="Scaled add, the kernel",
    points=4,
    functions={"scaled_add": scaled_add},
    kernel=True,
    like="add",
    cases=(
        *shape_cases(scaled),
        Case("3 x 8193 bf16, alpha is negative", scaled((3, 8193), "bf16", alpha=-1.75)),
        Case(
            "2 x 500 fp16, products beyond fp16's range",
            scaled((2, 500), "fp16", alpha=3000, std=300.0),
            hint="alpha * x leaves fp16's range, which ends at 65,504: convert x with `.to(tl.float32)` first.",
        ),
        Case("2 x 700 bf16, alpha * x and y nearly cancel", scaled((2, 700), "bf16", cancel=True)),
        Case("2 x 300 bf16, alpha is 0", scaled((2, 300), "bf16", alpha=0.0)),
    ),
    slips=(
        slip("alpha was applied to y", "out = alpha * x + y: only x is scaled.", "alpha * x + y -> x + alpha * y"),
        slip(
            "alpha was applied to the sum", "out = alpha * x + y: only x is scaled.", "alpha * x + y -> alpha * (x + y)"
        ),
        slip("alpha was not applied", "Multiply x by alpha.", "alpha * x + y -> x + y"),
        slip("y was not added", "Add y to the product.", "alpha * x + y -> alpha * x"),
        Slip(
            "the product alpha * x was rounded to 16 bits before y was added",
            "A literal, a constexpr and an int take on the type of a 16-bit tensor. Convert x with `.to(tl.float32)` "
            "right after the load, and cast nothing back before the sum is formed.",
            'alpha * x + y -> rounded(rounded(alpha, dtype("x")) * x, dtype("x")) + y',
            'alpha * x + y -> rounded(alpha * x, dtype("x")) + y',
            answer=("alpha, size, BLOCK: -> alpha: tl.constexpr, size, BLOCK:", ".to(tl.float32) -> "),
        ),
        Slip(
            "y was rounded to the dtype of x",
            "y is fp32 and stays so: only x is converted, to fp32.",
            'alpha * x + y -> alpha * x + rounded(y, dtype("x"))',
            answer="alpha * x + y -> alpha * x + y.to(x_ptr.dtype.element_ty)",
        ),
    ),
    minimum_bytes=lambda x, y, alpha: {"x": x.nbytes, "y": y.nbytes, "returned 0": y.nbytes},
    hints={
        "out_of_bounds": "The last program's tile reaches past the last element: mask every load and the store with "
        "`offsets < size`.",
        "unwritten": "Launch enough programs for all elements, `triton.cdiv(size, BLOCK)`, and start each at "
        "program_id * BLOCK.",
        "dtype": "Allocate out in fp32, whatever x is: `torch.empty_like(y)`.",
        "not_by_kernel": "out has to be a tensor of its own, `torch.empty_like(y)`, that your kernel stores into; y "
        "stays as it was.",
        "wrong": "out = alpha * x + y, element by element: all three tensors are addressed by the same offsets.",
        "rounded_output": "Everything between the loads and the store is fp32: cast nothing back to 16 bits.",
        "bytes": "Each element of x and y is loaded once, in the dtype in which it is stored, and out is stored once: "
        "no converted copy, no tensor between two kernels.",
        "not_read": "Load x and y themselves, and store into a new tensor, `torch.empty_like(y)`, not into y.",
        "torch_work": "Allocate the result and launch the kernel, nothing else: it converts x itself, in registers, "
        "after the load.",
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


def moved(claim):
    return claim["read"] + claim["written"]


def rate(claim):
    """GB/s, both ways."""
    return moved(claim) / claim["microseconds"] / 1e3


def reason_of(claim, l2):
    """What is wrong with a claim; '' where nothing is."""

    def near(rate):
        return abs(claim["gbps"] / rate - 1) < 0.01

    if not near(rate(claim)):
        return "one way" if near(claim["read"] / claim["microseconds"] / 1e3) else "binary units"
    return "cache" if claim["buffers"] * moved(claim) <= l2 else ""


def judged(arguments, returned):
    """What is wrong with the claim that was named, or with the reason given; '' where both are right."""
    claims, l2 = {c["name"]: c for c in arguments["claims"]}, arguments["l2"]
    if len(returned) != 2 or not all(isinstance(item, str) for item in returned):
        return "expected two strings, (name, reason)"
    name, said = returned
    if name not in claims or said not in REASONS:
        return (
            f"got {name!r} and {said!r}, expected one of the names {', '.join(claims)} and one of the reasons "
            + ", ".join(map(repr, REASONS))
        )
    claim, reason = claims[name], reason_of(claims[name], l2)
    if said == reason:
        return ""
    loop = (
        f"its loop goes through {claim['buffers']} buffers of {moved(claim) / 1e6:,.1f} MB, "
        f"{claim['buffers'] * moved(claim) / 1e6:,.1f} MB in all, and l2 is {l2 / 1e6:,.1f} MB"
    )
    told = f"(read + written) / time is {rate(claim):,.0f} GB/s and {claim['gbps']:,} are claimed"
    if not reason:
        if said == "cache":
            return f"claim {name} is of DRAM: {loop}. What counts is buffers * (read + written), not one call's bytes"
        return f"the arithmetic of claim {name} is right: {told}. Both directions count, in units of 10^9 bytes"
    if reason == "cache":
        return f"the arithmetic of claim {name} is right, so look at where its bytes came from: {loop}"
    return (
        f"claim {name} is wrong, and not for the reason {said!r}: {told}. Compare the claim with read / time and "
        "with (read + written) / time / 2^30"
    )


def claimed(rng, reason="", loop=(), rates=(1_500, 4_300)):
    """One claim, right but for `reason`. loop: least and most that the timing loop goes through, in units of L2, over
    many small buffers; without it there are a few large ones."""
    buffers = between(rng, 10, 60) if loop else between(rng, 1, 4)
    nbytes = rng.uniform(*loop) * L2 / buffers if loop else rng.uniform(2e8, 2e9)
    read, gbps = int(nbytes / rng.uniform(1.5, 2)), float(rng.uniform(*rates))
    claim = {"read": read, "written": int(nbytes) - read, "buffers": buffers}
    claim["microseconds"] = moved(claim) / gbps / 1e3
    told = {"one way": gbps * read / moved(claim), "binary units": gbps * 1e9 / 2**30}.get(reason, gbps)
    return {**claim, "gbps": round(told)}


def claims(reason, late, **look):
    """Four claims in random order, one of them wrong; late: after the one whose loop holds a little more than L2."""

    def make(rng):
        found = [
            claimed(rng, reason, **look),
            claimed(rng, loop=(1.1, 1.45)),
            claimed(rng, loop=(5, 6)),
            claimed(rng, rates=(4_000, 4_600)),
        ]
        order = rng.permutation(4).tolist()
        if (order.index(0) > order.index(1)) != late:
            order.reverse()
        return {"claims": [{"name": name, **found[i]} for name, i in zip("ABCD", order)], "l2": L2}

    return make


AUDIT = Task(
    id="01.6",
    title="One wrong claim among four",
    points=3,
    functions={"wrong_claim": None},
    verdict=judged,
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
    success="the wrong claim found each time, and why it is wrong",
)

TASKS = (COUNT, ROOFLINE, BREAK_EVEN, BOUND, SCALED_ADD, AUDIT)
