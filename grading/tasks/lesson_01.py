"""Exercise 01: bytes, FLOPs and launches of small operations, the roofline, a first kernel, and claims of bandwidth."""

import numpy as np

from grading.checks import Case, Expected, RandomTensor, Speed, Suspect, Task, rounded, tensor

EXERCISE = "01_roofline"


def between(rng, low, high) -> int:
    """A whole number from low to high."""
    return int(rng.integers(low, high + 1))


# ---------------------------------------------------------------- 01.1 bytes and FLOPs


def _matrix(rng):
    return {"rows": between(rng, 100, 9_000), "cols": between(rng, 100, 9_000), "itemsize": 2}


def _wide(rng):
    return {**_matrix(rng), "itemsize": 4}


def _product(rng):
    return {"m": between(rng, 1, 200), "n": between(rng, 300, 9_000), "k": between(rng, 300, 9_000)}


def _both(nbytes, flops):
    return [Expected("bytes", nbytes), Expected("flops", flops)]


def _bytes(count):
    """A mistake in the bytes alone."""
    return lambda **sizes: [[Expected("bytes", count(**sizes))]]


def _flops(count):
    return lambda **sizes: [[Expected("flops", count(**sizes))]]


def bias_add(rows, cols, itemsize):
    """y = x + bias."""
    return _both((2 * rows * cols + cols) * itemsize, rows * cols)


def row_sums(rows, cols, itemsize):
    """One fp32 sum per row."""
    return _both(rows * cols * itemsize + 4 * rows, rows * cols)


def rank_one_update(rows, cols, itemsize):
    """a += u v^T."""
    return _both((2 * rows * cols + rows + cols) * itemsize, 2 * rows * cols)


def quantised_matmul(m, n, k):
    """bf16 a times int8 w, each column scaled by an fp32 number, bf16 out."""
    return _both(2 * m * k + k * n + 4 * n + 2 * m * n, 2 * m * n * k + m * n)


OPERATIONS = {f.__name__: f for f in (bias_add, row_sums, rank_one_update, quantised_matmul)}


def _swapped(oracle):
    def swapped(**sizes):
        nbytes, flops = oracle(**sizes)
        return [_both(flops.values, nbytes.values)]

    return swapped


COUNT = Task(
    id="01.1", title="Count bytes and FLOPs", points=4, functions=tuple(OPERATIONS), oracle=OPERATIONS,
    cases=(
        *(Case(f"{name}, {size} of {item} per element", make, name)
          for name in ("bias_add", "row_sums", "rank_one_update")
          for size, item, make in (("some sizes", "2 bytes", _matrix), ("other sizes", "4 bytes", _wide))),
        Case("quantised_matmul, some sizes", _product, "quantised_matmul"),
        Case("quantised_matmul, other sizes", _product, "quantised_matmul"),
    ),
    suspects=(
        Suspect("bytes and FLOPs came back in the other order", {n: _swapped(f) for n, f in OPERATIONS.items()},
                "Return (bytes, flops)."),
        Suspect("elements were counted, not bytes", {
            "bias_add": _bytes(lambda rows, cols, itemsize: 2 * rows * cols + cols),
            "row_sums": _bytes(lambda rows, cols, itemsize: rows * cols + rows),
            "rank_one_update": _bytes(lambda rows, cols, itemsize: 2 * rows * cols + rows + cols),
            "quantised_matmul": _bytes(lambda m, n, k: m * k + k * n + n + m * n),
        }, "Multiply each tensor's elements by the bytes of one of them."),
        Suspect("the bias was counted once per row", {
            "bias_add": _bytes(lambda rows, cols, itemsize: 3 * rows * cols * itemsize)},
            "The bias has cols elements, which all rows share: DRAM delivers them once."),
        Suspect("the bias was left out", {
            "bias_add": _bytes(lambda rows, cols, itemsize: 2 * rows * cols * itemsize)},
            "The bias is read too: cols elements, once."),
        Suspect("the result was left out", {
            "bias_add": _bytes(lambda rows, cols, itemsize: (rows * cols + cols) * itemsize),
            "row_sums": _bytes(lambda rows, cols, itemsize: rows * cols * itemsize),
            "quantised_matmul": _bytes(lambda m, n, k: 2 * m * k + k * n + 4 * n),
        }, "Bytes written count as much as bytes read."),
        Suspect("the sums were counted with itemsize", {
            "row_sums": _bytes(lambda rows, cols, itemsize: (rows * cols + rows) * itemsize)},
            "The sums are fp32 whatever x is: 4 bytes each."),
        Suspect("the matrix was counted once", {
            "rank_one_update": _bytes(lambda rows, cols, itemsize: (rows * cols + rows + cols) * itemsize)},
            "`a += ...` reads a and writes it back: the matrix moves twice."),
        Suspect("the two vectors were left out", {
            "rank_one_update": _bytes(lambda rows, cols, itemsize: 2 * rows * cols * itemsize)},
            "u and v are read too: rows + cols elements."),
        Suspect("the product u v^T was counted as a tensor in memory", {
            "rank_one_update": _bytes(lambda rows, cols, itemsize: (4 * rows * cols + rows + cols) * itemsize)},
            "At minimum traffic the product stays on the chip: only u, v and a move."),
        Suspect("the weights were counted with 2 bytes", {
            "quantised_matmul": _bytes(lambda m, n, k: 2 * (m * k + k * n + m * n) + 4 * n)},
            "An int8 weight has one byte: that is why one quantises."),
        Suspect("the scales were left out", {
            "quantised_matmul": _bytes(lambda m, n, k: 2 * m * k + k * n + 2 * m * n)},
            "One fp32 scale per column of w is read: 4 n bytes."),
        Suspect("a multiplication and an addition were counted as one FLOP", {
            "rank_one_update": _flops(lambda rows, cols, itemsize: rows * cols),
            "quantised_matmul": _flops(lambda m, n, k: m * n * k + m * n),
        }, "A multiplication and an addition are two FLOPs."),
        Suspect("the multiplications by the scale were left out", {
            "quantised_matmul": _flops(lambda m, n, k: 2 * m * n * k)},
            "Each of the m n results is multiplied once by its column's scale."),
        Suspect("the scale was counted inside the product, once per multiplication", {
            "quantised_matmul": _flops(lambda m, n, k: 3 * m * n * k)},
            "The scale belongs to a column, so it is applied once to each result, after the sum."),
        Suspect("two FLOPs were counted per element", {
            name: _flops(lambda rows, cols, itemsize: 2 * rows * cols) for name in ("bias_add", "row_sums")},
            "Here each element takes part in one addition and in no multiplication."),
    ),
    hints={"wrong": "Write down each tensor with its elements and its bytes per element, read or written, and add up.",
           "type": "Both numbers are whole: return ints, with // rather than / where you divide."},
)

# ---------------------------------------------------------------- 01.2 the roofline


def ridge(bandwidth, peak):
    """FLOP per byte; bandwidth in TB/s, peak in TFLOP/s."""
    return [Expected("ridge", peak / bandwidth)]


def attainable(intensity, bandwidth, peak):
    """TFLOP/s."""
    return [Expected("rate", min(peak, bandwidth * intensity))]


def seconds(nbytes, flops, bandwidth, peak):
    """Seconds."""
    return [Expected("seconds", max(nbytes / (bandwidth * 1e12), flops / (peak * 1e12)))]


ROOFLINE_FUNCTIONS = {f.__name__: f for f in (ridge, attainable, seconds)}


def _gpu(rng):
    return {"bandwidth": round(float(rng.uniform(0.3, 8)), 2), "peak": round(float(rng.uniform(20, 2500)), 1)}


def _at(share):
    """An intensity of `share` times the ridge."""

    def make(rng):
        gpu = _gpu(rng)
        return {"intensity": share * gpu["peak"] / gpu["bandwidth"] * float(rng.uniform(0.9, 1.1)), **gpu}

    return make


def _work(share):
    """Bytes and FLOPs at `share` times the ridge."""

    def make(rng):
        gpu = _gpu(rng)
        nbytes = between(rng, 10**6, 10**9)
        return {"nbytes": nbytes, "flops": int(nbytes * share * gpu["peak"] / gpu["bandwidth"]), **gpu}

    return make


def _attainable_as(rate):
    return {"attainable": lambda intensity, bandwidth, peak: [[
        Expected("rate", float(rate(bandwidth * intensity, peak)))]]}


def _seconds_as(time):
    return {"seconds": lambda nbytes, flops, bandwidth, peak: [[
        Expected("seconds", float(time(nbytes / bandwidth, flops / peak)))]]}


ROOFLINE = Task(
    id="01.2", title="The roofline of any GPU", points=2, functions=tuple(ROOFLINE_FUNCTIONS), oracle=ROOFLINE_FUNCTIONS,
    cases=(
        Case("ridge of an H100", lambda rng: {"bandwidth": 3.35, "peak": 989.4}, "ridge"),
        Case("ridge of some GPU", _gpu, "ridge"),
        Case("attainable, left of the ridge", _at(0.2), "attainable"),
        Case("attainable, right of the ridge", _at(5), "attainable"),
        Case("seconds, left of the ridge", _work(0.1), "seconds"),
        Case("seconds, right of the ridge", _work(7), "seconds"),
        Case("seconds of a copy, which computes nothing", _work(0), "seconds"),
    ),
    suspects=(
        Suspect("the ridge was turned over, bytes per FLOP",
                {"ridge": lambda bandwidth, peak: [[Expected("ridge", bandwidth / peak)]]},
                "At the ridge bytes / bandwidth equals flops / peak: solve for flops / bytes."),
        Suspect("the memory roof was left without a ceiling",
                _attainable_as(lambda memory, peak: memory),
                "No arithmetic is faster than the units' peak: take the smaller of the two roofs."),
        Suspect("the peak came back where the memory roof is lower", _attainable_as(lambda memory, peak: peak),
                "Left of the ridge bytes arrive too slowly for the peak: both roofs hold, and the lower one decides."),
        Suspect("FLOP/s came back, not TFLOP/s",
                _attainable_as(lambda memory, peak: min(memory, peak) * 1e12), "TB/s times FLOP/B is TFLOP/s already."),
        Suspect("the 10^12 of TB/s and TFLOP/s was left out", _seconds_as(max),
                "A TB is 10^12 bytes: divide by bandwidth * 1e12 and peak * 1e12."),
        Suspect("the two times were added", _seconds_as(lambda memory, compute: (memory + compute) / 1e12),
                "While one tile is computed the next is loaded: the longer of the two times decides, not their sum."),
        Suspect("the shorter of the two times was taken", _seconds_as(lambda memory, compute: min(memory, compute) / 1e12),
                "Both have to be done: the longer of the two times decides."),
    ),
    hints={"wrong": "P = min(peak, bandwidth * intensity); time = max(bytes / bandwidth, flops / peak). Mind the units."},
)

# ---------------------------------------------------------------- 01.3 where launches stop mattering


def break_even(bytes_per_element, bandwidth, launch_us):
    """Elements for which the bytes take as long as the launch; bandwidth in TB/s."""
    return [Expected("elements", launch_us * 1e-6 * bandwidth * 1e12 / bytes_per_element)]


def _elements(of):
    return lambda bytes_per_element, bandwidth, launch_us: [[
        Expected("elements", float(of(bytes_per_element, bandwidth, launch_us)))]]


def _launch(rng):
    return {"bytes_per_element": between(rng, 2, 20), "bandwidth": round(float(rng.uniform(0.3, 8)), 2),
            "launch_us": round(float(rng.uniform(2, 25)), 1)}


BREAK_EVEN = Task(
    id="01.3", title="The size at which launches stop mattering", points=2, functions=("break_even", ), oracle=break_even,
    cases=(Case("some GPU and launch cost", _launch), Case("another", _launch),
           Case("6 bytes per element, 4.8 TB/s, 5 µs", lambda rng: {"bytes_per_element": 6, "bandwidth": 4.8,
                                                                    "launch_us": 5.0})),
    suspects=(
        Suspect("the units do not cancel: TB/s is 10^12 bytes per second, a µs is 10^-6 seconds",
                _elements(lambda size, bandwidth, launch: launch * bandwidth / size),
                "launch_us * 1e-6 seconds, times bandwidth * 1e12 bytes per second."),
        Suspect("the microseconds were taken for seconds",
                _elements(lambda size, bandwidth, launch: launch * bandwidth * 1e12 / size),
                "launch_us is in microseconds: times 1e-6."),
        Suspect("bytes came back, not elements",
                _elements(lambda size, bandwidth, launch: launch * bandwidth * 1e6),
                "Divide by the bytes that each element moves."),
        Suspect("the bytes per element were multiplied where they divide",
                _elements(lambda size, bandwidth, launch: launch * bandwidth * 1e6 * size),
                "The more bytes an element moves, the fewer elements fill the launch's time."),
        Suspect("the bytes were counted twice",
                _elements(lambda size, bandwidth, launch: launch * bandwidth * 1e6 / size / 2),
                "bytes_per_element counts reads and writes together already."),
        Suspect("the result was turned over",
                _elements(lambda size, bandwidth, launch: size / (launch * bandwidth * 1e6)),
                "Solve elements * bytes_per_element / bandwidth = launch time for the elements."),
    ),
    hints={"wrong": "Solve elements * bytes_per_element / (bandwidth in bytes/s) = launch time in s for the elements."},
)

# ---------------------------------------------------------------- 01.4 which bound


def _times(nbytes, flops, launches, matmul, gpu):
    return {"memory": nbytes / gpu["bandwidth"], "compute": flops / gpu["matrix" if matmul else "vector"],
            "launch": launches * gpu["launch"]}


def _longest(times):
    word = max(times, key=times.get)
    return [Expected("bound", word), Expected("seconds", float(times[word]))]


def bound(nbytes, flops, launches, matmul, gpu):
    """(which of the three takes longest, how long)."""
    return _longest(_times(nbytes, flops, launches, matmul, gpu))


def _misjudged(change):
    """A bound formed from times that were changed in some way."""
    return lambda **work: [_longest({**_times(**work), **change(**work)})]


def _shortest(**work):
    times = _times(**work)
    word = min(times, key=times.get)
    return [[Expected("bound", word), Expected("seconds", float(times[word]))]]


H200 = {"bandwidth": 4.8e12, "vector": 66.9e12, "matrix": 989.4e12, "launch": 5e-6}
T4 = {"bandwidth": 0.32e12, "vector": 8.1e12, "matrix": 65e12, "launch": 8e-6}


def _on(gpu, low, high, work):
    """work(n) -> nbytes, flops, launches, matmul, for an n between low and high."""
    return lambda rng: dict(zip(("nbytes", "flops", "launches", "matmul", "gpu"),
                                (*work(between(rng, low, high)), gpu)))


def _gemm(m, n, k):
    return 2 * (m * k + k * n + m * n), 2 * m * n * k, 1, True


BOUND = Task(
    id="01.4", title="Memory-, compute- or launch-bound", points=3, functions=("bound", ), oracle=bound,
    cases=(
        Case("adding two large bf16 vectors, H200", _on(H200, 10**8, 10**9, lambda n: (6 * n, n, 1, False))),
        Case("adding two small bf16 vectors, H200", _on(H200, 10**3, 10**5, lambda n: (6 * n, n, 1, False))),
        Case("a large square GEMM, H200", _on(H200, 4000, 9000, lambda n: _gemm(n, n, n))),
        Case("a GEMM of 16 rows, H200", _on(H200, 8000, 16000, lambda n: _gemm(16, n, n))),
        Case("160 FLOPs per element, elementwise, H200", _on(H200, 10**8, 10**9, lambda n: (4 * n, 160 * n, 1, False))),
        Case("six eager operations on a matrix, H200", _on(H200, 10**6, 1_600_000, lambda n: (14 * n, 7 * n, 6, False))),
        Case("a GEMM of 64 rows, T4", _on(T4, 4000, 9000, lambda n: _gemm(64, n, n))),
        Case("40 FLOPs per element, elementwise, T4", _on(T4, 10**7, 10**8, lambda n: (4 * n, 40 * n, 1, False))),
        Case("160 FLOPs per element, elementwise, T4", _on(T4, 10**7, 10**8, lambda n: (4 * n, 160 * n, 1, False))),
    ),
    suspects=(
        Suspect("elementwise work was held against the matrix units",
                _misjudged(lambda nbytes, flops, launches, matmul, gpu: {"compute": flops / gpu["matrix"]}),
                "Matrix units do matrix products only: where matmul is False, the compute roof is gpu['vector']."),
        Suspect("a matrix product was held against the vector units",
                _misjudged(lambda nbytes, flops, launches, matmul, gpu: {"compute": flops / gpu["vector"]}),
                "Where matmul is True, the compute roof is gpu['matrix']."),
        Suspect("the launches were left out", _misjudged(lambda **_: {"launch": 0.0}),
                "launches * gpu['launch'] is the third time to compare."),
        Suspect("one launch was counted for all",
                _misjudged(lambda nbytes, flops, launches, matmul, gpu: {"launch": gpu["launch"]}),
                "Each launch costs gpu['launch']: multiply by launches."),
        Suspect("the times were added up",
                lambda **work: [[Expected("seconds", float(sum(_times(**work).values())))]],
                "The three go on at the same time: the longest decides."),
        Suspect("the shortest of the three was taken",
                _shortest,
                "All three have to be done: the longest decides."),
    ),
    hints={"wrong": "Compute the three times in seconds, take the largest, and return its name and its value.",
           "type": "Return (bound, seconds): one of 'memory', 'compute' and 'launch', and a float."},
)

# ---------------------------------------------------------------- 01.5 scaled add, the kernel


def scaled_add(x, y, alpha, **_):
    """alpha * x + y, fp32."""
    return [Expected("out", alpha * x + y, "fp32")]


ALPHA = float(np.float32(0.3))  # a kernel gets its scalars as fp32; in bf16 this one would be off by 0.1%


def _matrices(rows, cols, dtype, alpha=ALPHA, std=1.0):

    def make(rng):
        return {"x": tensor(rng.normal(0, std, (rows, cols)), dtype), "y": tensor(rng.normal(0, 1, (rows, cols)), "fp32"),
                "alpha": alpha, "_dtype": dtype}

    return make


def _one(rng):
    return {"x": tensor([[1.5]], "bf16"), "y": tensor([[float(rng.integers(1, 9))]], "fp32"), "alpha": ALPHA,
            "_dtype": "bf16"}


def _cancelling(rng):
    """alpha * x and y nearly cancel: what the product lost in a rounding is all that is left."""
    x = rounded(rng.normal(0, 1, (2, 700)), "bf16")
    return {"x": tensor(x, "bf16"), "y": tensor(-ALPHA * x + rng.normal(0, 0.1, x.shape), "fp32"), "alpha": ALPHA,
            "_dtype": "bf16"}


def _scaled_mistake(*results):
    """A mistaken formula, or several that are told apart by nobody."""
    return lambda x, y, alpha, _dtype: [[Expected("out", f(x, y, alpha, _dtype), "fp32")] for f in results]


SCALED_ADD = Task(
    id="01.5", title="Scaled add, the kernel", points=4, functions=("scaled_add", ), kernel=True, oracle=scaled_add,
    cases=(
        Case("4 x 256 fp32", _matrices(4, 256, "fp32")),
        Case("3 x 1000 bf16, ragged", _matrices(3, 1000, "bf16")),
        Case("1 x 1 bf16, one element", _one),
        Case("1 x 1023 fp16, one less than a power of two", _matrices(1, 1023, "fp16")),
        Case("1 x 8193 bf16, one more than a power of two", _matrices(1, 8193, "bf16", alpha=-1.75)),
        Case("11 x 911 fp16, primes", _matrices(11, 911, "fp16")),
        Case("2 x 500 fp16, products beyond fp16's range", _matrices(2, 500, "fp16", alpha=3000.0, std=300.0),
             hint="alpha * x leaves fp16's range, which ends at 65,504: convert x with `.to(tl.float32)` first."),
        Case("2 x 700 bf16, alpha * x and y nearly cancel", _cancelling),
        Case("2 x 300 bf16, alpha is 0", _matrices(2, 300, "bf16", alpha=0.0)),
        Case("2 x 50001 bf16, many programs", _matrices(2, 50001, "bf16")),
    ),
    suspects=(
        Suspect("alpha was applied to y, or to the sum", _scaled_mistake(lambda x, y, alpha, _: x + alpha * y),
                "out = alpha * x + y: only x is scaled."),
        Suspect("alpha was applied to the sum", _scaled_mistake(lambda x, y, alpha, _: alpha * (x + y)),
                "out = alpha * x + y: only x is scaled."),
        Suspect("alpha was not applied", _scaled_mistake(lambda x, y, alpha, _: x + y), "Multiply x by alpha."),
        Suspect("y was not added", _scaled_mistake(lambda x, y, alpha, _: alpha * x), "Add y to the product."),
        Suspect("the product alpha * x was rounded to 16 bits before y was added",
                _scaled_mistake(lambda x, y, alpha, dtype: rounded(rounded(alpha, dtype) * x, dtype) + y,
                                lambda x, y, alpha, dtype: rounded(alpha * x, dtype) + y),
                "A scalar takes on the type of a 16-bit tensor. Convert x with `.to(tl.float32)` right after the load, and "
                "cast nothing back before the sum is formed."),
        Suspect("y was rounded to the dtype of x",
                _scaled_mistake(lambda x, y, alpha, dtype: alpha * x + rounded(y, dtype)),
                "y is fp32 and stays so: only x is converted, to fp32."),
    ),
    minimum_bytes=lambda x, y, alpha, _dtype: {"x": x.nbytes, "y": y.nbytes, "returned 0": y.nbytes},
    hints={
        "out_of_bounds": "The last program's tile reaches past the last element: mask every load and the store with "
                         "`offsets < size`.",
        "unwritten": "Launch enough programs for all elements, `triton.cdiv(size, BLOCK)`, and start each at "
                     "program_id * BLOCK.",
        "dtype": "Allocate out in fp32, whatever x is: `torch.empty_like(y)`.",
        "not_by_kernel": "out has to be a tensor of its own, `torch.empty_like(y)`, that your kernel stores into; y stays "
                         "as it was.",
        "wrong": "out = alpha * x + y, element by element: all three tensors are addressed by the same offsets.",
        "rounded_output": "Everything between the loads and the store is fp32: cast nothing back to 16 bits.",
        "bytes": "Each element of x and y is loaded once, in the dtype in which it is stored, and out is stored once: no "
                 "converted copy, no tensor between two kernels.",
        "not_read": "Load x and y themselves, and store into a new tensor, `torch.empty_like(y)`, not into y.",
        "torch_work": "Allocate the result and launch the kernel, nothing else: it converts x itself, in registers, after the "
                      "load.",
        "foreign_kernel": "Write the kernel in this cell: only kernels defined in answer cells count.",
    },
    speed=Speed(points=1, share=0.8, bytes=8192 * 8192 * 10, shape="8192 x 8192 bf16",
                make=lambda: {"x": RandomTensor((8192, 8192), "bf16"), "y": RandomTensor((8192, 8192), "fp32"),
                              "alpha": ALPHA, "_dtype": "bf16"}),
)

# ---------------------------------------------------------------- 01.6 claims of bandwidth

L2 = 50 * 2**20
REASONS = ("one way", "binary units", "cache")


def _moved(claim):
    return claim["read"] + claim["written"]


def _rate(claim):
    """GB/s, both ways."""
    return _moved(claim) / claim["microseconds"] / 1e3


def _fits(claim, l2):
    return claim["buffers"] * _moved(claim) <= l2


def reason_of(claim, l2):
    """What is wrong with a claim; '' where nothing is."""
    def near(rate):
        return abs(claim["gbps"] / rate - 1) < 0.01

    if not near(_rate(claim)):
        return "one way" if near(claim["read"] / claim["microseconds"] / 1e3) else "binary units"
    return "cache" if _fits(claim, l2) else ""


def judged(arguments, returned):
    """What is wrong with the claim that was named, or with the reason given; '' where both are right."""
    claims, l2 = {c["name"]: c for c in arguments["claims"]}, arguments["l2"]
    if len(returned) != 2 or not all(isinstance(item, str) for item in returned):
        return "expected two strings, (name, reason)"
    name, said = returned
    if name not in claims or said not in REASONS:
        return (f"got {name!r} and {said!r}, expected one of the names {', '.join(claims)} and one of the reasons "
                + ", ".join(map(repr, REASONS)))
    claim, reason = claims[name], reason_of(claims[name], l2)
    if said == reason:
        return ""
    loop = (f"its loop goes through {claim['buffers']} buffers of {_moved(claim) / 1e6:,.1f} MB, "
            f"{claim['buffers'] * _moved(claim) / 1e6:,.0f} MB in all, and l2 is {l2 / 1e6:,.0f} MB")
    rate = f"(read + written) / time is {_rate(claim):,.0f} GB/s and {claim['gbps']:,} are claimed"
    if not reason:
        if said == "cache":
            return f"claim {name} is of DRAM: {loop}. What counts is buffers * (read + written), not one call's bytes"
        return f"the arithmetic of claim {name} is right: {rate}. Both directions count, in units of 10^9 bytes"
    if reason == "cache":
        return f"the arithmetic of claim {name} is right, so look at where its bytes came from: {loop}"
    return (f"claim {name} is wrong, and not for the reason {said!r}: {rate}. Compare the claim with read / time and with "
            "(read + written) / time / 2^30")


def _claim(rng, reason="", small=False, rate=(1_500, 4_300)):
    """One claim, right but for `reason`; small: each call moves less than the L2 holds, over many buffers."""
    read = between(rng, 10**6, 8 * 10**6) if small or reason == "cache" else between(rng, 10**8, 10**9)
    written = int(read * rng.uniform(0.5, 1.0))
    moved, gbps = read + written, float(rng.uniform(*rate))
    microseconds = moved / gbps / 1e3
    buffers = L2 // (2 * moved) if reason == "cache" else 5 * L2 // moved + 1 if small else between(rng, 1, 4)
    told = {"one way": read / microseconds / 1e3, "binary units": moved / microseconds * 1e6 / 2**30}.get(reason, gbps)
    return {"read": read, "written": written, "buffers": int(buffers), "microseconds": microseconds, "gbps": round(told)}


def _claims(reason, **look):
    """Four claims in random order, one of them wrong."""

    def make(rng):
        claims = [_claim(rng, reason, **look), _claim(rng, small=True), _claim(rng), _claim(rng, rate=(4_000, 4_600))]
        order = rng.permutation(4)
        return {"claims": [{"name": "ABCD"[i], **claims[j]} for i, j in enumerate(order)], "l2": L2}

    return make


AUDIT = Task(
    id="01.6", title="One wrong claim among four", points=3, functions=("wrong_claim", ), verdict=judged,
    cases=(
        Case("someone counted one direction", _claims("one way")),
        Case("someone counted one direction, small tensors", _claims("one way", small=True)),
        Case("someone divided by 2^30", _claims("binary units")),
        Case("someone divided by 2^30, a fast kernel", _claims("binary units", rate=(4_200, 4_500))),
        Case("someone measured a cache, above the datasheet", _claims("cache", rate=(5_000, 7_000))),
        Case("someone measured a cache, below the datasheet", _claims("cache", rate=(2_500, 3_800))),
    ),
    success="the wrong claim found each time, and why it is wrong",
)

TASKS = (COUNT, ROOFLINE, BREAK_EVEN, BOUND, SCALED_ADD, AUDIT)
