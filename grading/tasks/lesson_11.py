"""Exercise 11, mixture of experts: balance, routing with a bias, aligned permutation, grouped GEMM, the combine's
backward, and the gradients of the experts' weights."""

import numpy as np

from grading.tasks import TILE, Case, Mistake, Task, ceil, returns, tensor
from grading.tasks.properties import PADDED

EXERCISE = "11_mixture_of_experts"
MANY = 160  # more than any GPU has SMs


def sigmoid(logits):
    return 1 / (1 + np.exp(-logits))


def random_choices(rng, tokens, top_k, experts, skew=1.0):
    """[tokens, top_k]: different experts for each token, some chosen far more often than others. Of five or more
    experts, nobody chooses one."""
    weight = np.arange(1, experts + 1.0) ** -skew
    weight[-1] *= experts < 5
    keys = rng.exponential(1, (tokens, experts)) / np.maximum(rng.permutation(weight), 1e-9)
    return np.argsort(keys, axis=1)[:, :top_k]


def padded(values, dtype, padding):
    """A tensor whose rows are followed by `padding` elements that do not belong to it."""
    return tensor(values, dtype, values.shape[1] + padding if padding else None)


# ---------------------------------------------------------------- 11.1 balance


def relative_loads(experts, num_experts, ignore_top_k, scaled):
    """[sequences, num_experts]: how often each expert was chosen, over the even load."""
    tokens, top_k = experts.shape[1:]
    counts = np.stack([np.bincount(sequence.ravel(), minlength=num_experts) for sequence in experts])
    return counts * (num_experts if scaled else 1) / (tokens if ignore_top_k else tokens * top_k)


def score_shares(logits, softmax, divided=True):
    """[..., experts]: each expert's score over the sum of the token's scores."""
    scores = np.exp(logits) if softmax else sigmoid(logits)
    return scores / scores.sum(axis=-1, keepdims=True) if divided else scores


@returns(loss="fp32")
def balance_loss(logits, experts, *, ignore_top_k=False, scaled=True, softmax=False, divided=True):
    loads = relative_loads(experts, logits.shape[-1], ignore_top_k, scaled)
    return (loads * score_shares(logits, softmax, divided).mean(axis=1)).sum(axis=1)


@returns(dlogits="fp32")
def balance_gradient(
    logits, experts, *, ignore_top_k=False, scaled=True, softmax=False, divided=True, mean_of_losses=False
):
    loads = relative_loads(experts, logits.shape[-1], ignore_top_k, scaled)[:, None]
    shares, slope = score_shares(logits, softmax, divided), 1 if softmax else 1 - sigmoid(logits)
    mean_load = (loads * shares).sum(axis=-1, keepdims=True) if divided else 0
    gradient = shares * slope * (loads - mean_load) / logits.shape[1]
    return gradient / (len(logits) if mean_of_losses else 1)


@returns(bias="fp32")
def next_bias(bias, experts, step, *, ignore_top_k=False, proportional=False, direction=1):
    counts, even = np.bincount(experts.ravel(), minlength=len(bias)), experts.size / len(bias)
    below = (even / experts.shape[1] if ignore_top_k else even) - counts
    return bias + direction * step * (below if proportional else np.sign(below))


def sequences(count, tokens, num_experts, top_k, large=0):
    """Random logits and choices. large: if not 0, the first two logits of each token are this number and minus it."""

    def make(rng):
        experts = np.stack([random_choices(rng, tokens, top_k, num_experts, skew=2) for _ in range(count)])
        logits = rng.uniform(-2, 1, (count, tokens, num_experts))
        if large:
            logits[..., :2] = large, -large
        return {"logits": tensor(logits), "experts": tensor(experts, "int32")}

    return make


def biases(top_k, loads):
    """A random bias; the experts have these loads, in any order, and the last one the last load."""

    def make(rng):
        order = np.append(rng.permutation(len(loads) - 1), len(loads) - 1)
        experts = np.repeat(order, loads).reshape(top_k, -1).T
        experts = tensor(rng.permuted(experts, axis=1), "int32")
        return {"bias": tensor(rng.normal(0, 0.1, len(loads))), "experts": experts, "step": 0.015625}

    return make


LOSSES = ("balance_loss", "balance_gradient")
ANY_LOGIT = "exp overflows fp32 above 88, in the forward pass or in its gradient. torch.sigmoid holds for any logit."
CLOSE = "A load can be close to the mean without being equal. Compare integers: count * num_experts, tokens * top_k."
BALANCE = Task(
    id="11.1",
    title="Balance the experts",
    points=3,
    functions={"balance_loss": balance_loss, "balance_gradient": balance_gradient, "next_bias": next_bias},
    cases=(
        *(
            Case(f"{name}, {shape[0]} x {shape[1]} tokens, top-{shape[3]} of {shape[2]}", sequences(*shape), name)
            for name in LOSSES
            for shape in ((3, 24, 8, 2), (1, 7, 5, 1), (2, 30, 12, 3))
        ),
        *(Case(f"{name}, logits of 100 and -100", sequences(2, 9, 6, 2, 100), name, ANY_LOGIT) for name in LOSSES),
        Case("next_bias, some loads exactly the mean", biases(2, (4, 6, 2, 4, 4, 4, 8, 0)), "next_bias"),
        Case("next_bias, loads of 20 and 21, whose mean is 20.5", biases(3, (20, 21) * 3), "next_bias"),
        Case("next_bias, loads of 1 and one of 2, mean 65 / 64", biases(1, (*[1] * 63, 2)), "next_bias", CLOSE),
    ),
    mistakes=(
        Mistake(
            "the even load was not tokens * top_k / experts",
            "Each token makes top_k choices, shared by all experts.",
            *({"ignore_top_k": True}, {"scaled": False}),
        ),
        Mistake(
            "the shares were a softmax, or scores that were not divided",
            "A share is sigmoid(logit) over the sum of the sigmoids of its token.",
            *({"softmax": True}, {"divided": False}),
        ),
        Mistake("the gradient was that of the mean loss", "Differentiate the sum of all losses.", mean_of_losses=True),
        Mistake("the bias moved in the wrong direction", "Lower it where the load is above the mean.", direction=-1),
        Mistake("the bias moved in proportion to the excess load", "Move it by one step.", proportional=True),
    ),
    hints={
        "values": "Compute f, P and the mean load of a small input by hand, as fractions, and compare.",
        "form": "All three return fp32: [sequences], the shape of logits, [number of experts].",
        "state": "Work on new tensors. An input that requires a gradient accumulates it from call to call.",
    },
)

# ---------------------------------------------------------------- 11.2 route


def top_experts(choice, top_k, overwrite):
    """[tokens, top_k]: argmax after argmax, the lower index first at a tie. `overwrite` replaces the value of an expert
    after its turn; None keeps it."""
    choice, rows, experts = choice.copy(), np.arange(len(choice)), []
    for _ in range(top_k):
        experts.append(choice.argmax(axis=1))
        if overwrite is not None:
            choice[rows, experts[-1]] = overwrite
    return np.stack(experts, axis=1)


@returns(experts="int32", gates="fp32")
def route(
    x, router, bias, top_k, scale, *,
    bias_before=False, biased_gates=False, overwrite=-np.inf, divisor="top_k", padding=0,
):  # fmt: skip
    """padding: the number of experts with those beyond the last one, which have a logit and a bias of 0."""
    more = max(padding - len(router), 0)
    logits, bias = np.pad(x @ router.T, ((0, 0), (0, more))), np.pad(bias, (0, more))
    scores = sigmoid(logits + bias if bias_before else logits)
    choice = scores if bias_before else scores + bias
    experts = top_experts(choice, top_k, overwrite)
    top_scores = np.take_along_axis(choice if biased_gates else scores, experts, axis=1)
    sums = {"top_k": top_scores, "all": scores, "none": np.ones((len(x), 1))}[divisor]
    return experts, scale * top_scores / sums.sum(axis=1, keepdims=True)


NEAR = 4e-6  # the least distance between two choices of one token that are not equal


def router_inputs(tokens, hidden, experts, top_k, dtype="bf16", padding=0, level=0.0, twins=None, limit=2, scale=2.5):
    """Whole numbers, so that the logits are exact in fp32 in any order of summation; with 64 they do not fit 16 bits.

    level: the mean of the biases. twins: {expert: (another one with the same weights, by how much its bias is larger)}.
    Their scores are the same however they are computed, so their choices may be near.
    """
    twins = twins or {}
    single = [e for e in range(experts) if not 0 <= abs(twins.get(e, (e, NEAR))[1]) < NEAR]

    def make(rng):
        spread = 2.0 ** -round(np.log2(np.sqrt(hidden) * limit * (limit + 1) / 4))
        x = rng.integers(-limit, limit + 1, (tokens, hidden))
        router = rng.integers(-limit, limit + 1, (experts, hidden)) * spread
        for expert, (other, _) in twins.items():
            router[expert] = router[other]
        scores = sigmoid(x @ router.T)
        for _ in range(200):
            bias = rng.normal(level, 0.25, experts)
            for expert, (other, more) in twins.items():
                bias[expert] = bias[other] + more
            bias = bias.astype(np.float32)
            if not (np.diff(np.sort((scores + bias)[:, single], axis=1), axis=1) < NEAR).any():
                break
        else:
            raise ValueError("no bias keeps these choices apart")
        tensors = {"x": padded(x, dtype, padding), "router": tensor(router, dtype), "bias": tensor(bias)}
        return {**tensors, "top_k": top_k, "scale": scale}

    return make


def extreme_logits(rng):
    """Tokens with logits of 100, 12 and 9 for three experts, and tokens with logits of -12 alone, each from one weight;
    four more experts have biases that no score makes up for, and the fourth choice is one of them."""
    tokens, experts = 16, 7
    logits = np.full((tokens, experts), -12)
    bias, low = np.zeros(experts), rng.permutation(experts)[:4]
    bias[low] = -1e5 * (1 + rng.permutation(4))
    others = np.setdiff1d(np.arange(experts), low)
    for row in logits[::2]:
        row[others], row[low] = rng.permutation([100, 12, 9]), rng.permutation([-3, -12, -100, 0])
    tensors = {"x": tensor(np.eye(tokens), "bf16"), "router": tensor(logits.T, "bf16"), "bias": tensor(bias)}
    return {**tensors, "top_k": 4, "scale": 2.5}


def router_bytes(x, router, bias, top_k, scale):
    programs, result = ceil(x.shape[0], 16), 4 * x.shape[0] * top_k
    loads = {"x": x.nbytes, "router": router.nbytes * programs, "bias": bias.nbytes * programs}
    return {**loads, "returned 0": result, "returned 1": result}


ALIKE_40_APART = {e + apart: (e, more) for e in range(0, 24, 2) for apart, more in ((40, 0.0), (1, -2e-6))}
EXTREME = "Keep fp32 and the scores' own sum: no epsilon, no clamp. Only minus infinity is below any bias."
ROUTE = Task(
    id="11.2",
    title="Route with a bias",
    points=5,
    functions={"route": route},
    kernel=True,
    cases=(
        Case("20 tokens, 96 hidden, top-2 of 8, bf16", router_inputs(20, 96, 8, 2, limit=64)),
        Case("37 tokens, 260 hidden, top-8 of 33, fp16", router_inputs(37, 260, 33, 8, "fp16", limit=64, scale=1.25)),
        Case("18 tokens, top-3 of 6, fp16, padded rows", router_inputs(18, 72, 6, 3, "fp16", 29), hint=PADDED),
        Case(
            "17 tokens, 64 hidden, top-2 of 5, bf16, every bias below -10",
            router_inputs(17, 64, 5, 2, level=-12.5, twins={1: (0, 2e-4), 3: (2, 2e-4)}),
            hint="Set masked-out experts and those already chosen to minus infinity, and add score and bias in fp32.",
        ),
        Case("16 tokens, logits of 100 to -12, biases of -100,000 and less", extreme_logits, hint=EXTREME),
        Case(
            "16 tokens, 1,100 hidden, top-8 of 64, fp16, experts 40 apart alike",
            router_inputs(16, 1100, 64, 8, "fp16", twins=ALIKE_40_APART),
            hint="All 1,100 columns count. Break a tie by the index, without changing the sums.",
        ),
        Case("3 tokens, 1 hidden, top-2 of 2, fp16", router_inputs(3, 1, 2, 2, "fp16")),
        Case(f"{16 * MANY} tokens, 16 hidden, top-2 of 4, bf16", router_inputs(16 * MANY, 16, 4, 2)),
    ),
    mistakes=(
        Mistake("the gates included the bias", "Compute the gates from scores without the bias.", biased_gates=True),
        Mistake("the bias was added before the sigmoid", "Add it to the score, sigmoid(logit).", bias_before=True),
        Mistake(
            "the gates were not divided by the sum of the chosen scores",
            "Divide by the sum of the token's top_k scores.",
            *({"divisor": divisor} for divisor in ("none", "all")),
        ),
        Mistake(
            "an expert already chosen could be chosen again", "Set it to -inf.", {"overwrite": None}, {"overwrite": 0.0}
        ),
        Mistake("padding beyond the last expert was chosen", "It must lose: set it to minus infinity.", padding=TILE),
    ),
    minimum_bytes=router_bytes,
    hints={
        "traffic": "Load x once, and the router once for every 16 tokens: keep their scores in registers.",
        "values": "Compare scores, scores plus bias, chosen experts and gates of one token, in this order, with torch.",
    },
)

# ---------------------------------------------------------------- 11.3 rows in whole tiles


@returns(slots="int32", owners="int32")
def align(experts, num_experts, block, *, tokens=False, spare_tile="none", padding=-1, owned=False):
    """spare_tile: which loads take one tile too many. owned: whether tiles beyond the last expert have an owner."""
    flat, top_k = experts.ravel(), experts.shape[1]
    tiles = (flat.size + num_experts * (block - 1)) // block
    slots, owners, row = np.full(tiles * block, padding), np.full(tiles, num_experts if owned else -1), 0
    for expert in range(num_experts):
        slot = np.flatnonzero(flat == expert)
        count = max(ceil(len(slot) + (spare_tile == "full"), block), spare_tile == "empty")
        slots[row : row + len(slot)] = slot // top_k if tokens else slot
        owners[row // block : row // block + count] = expert
        row += count * block
    return slots, owners


def alignment(tokens, top_k, num_experts, block, pairs=None):
    """Random choices. pairs: {two experts: how many tokens choose them}, of experts in a random order."""

    def make(rng):
        experts = random_choices(rng, tokens, top_k, num_experts)
        if pairs:
            experts = rng.permutation(np.repeat(list(pairs), list(pairs.values()), axis=0))
            experts = rng.permuted(rng.permutation(num_experts)[experts], axis=1)
        return {"experts": tensor(experts, "int32"), "num_experts": num_experts, "block": block}

    return make


def aligned_bytes(experts, num_experts, block):
    slots = experts.shape[0] * experts.shape[1]
    tiles = (slots + num_experts * (block - 1)) // block
    results = {"returned 0": 2 * 4 * tiles * block, "returned 1": 2 * 4 * tiles}
    return {"experts": 2 * experts.nbytes, **results, "counts": 5 * 4 * num_experts * ceil(slots, 128)}


ALIGNMENTS = ((7, 3, 7, 4), (300, 6, 33, 16), (1, 1, 1, 16), (140, 1, 1, 16), (5, 2, 8, 32), (64 * MANY, 2, 4, 64))
ONE_16, WHOLE = {(1, 2): 8, (0, 2): 4, (0, 1): 12}, {(0, 1): 16, (0, 2): 16}
ALIGN = Task(
    id="11.3",
    title="Rows in whole tiles",
    points=5,
    functions={"align": align},
    kernel=True,
    cases=(
        Case("24 tokens, top-2 of 3, tiles of 16, one load of 16", alignment(24, 2, 3, 16, pairs=ONE_16)),
        Case("32 tokens, top-2 of 6, tiles of 16, loads that are whole tiles", alignment(32, 2, 6, 16, pairs=WHOLE)),
        *(Case("{} tokens, top-{} of {}, tiles of {}".format(*sizes), alignment(*sizes)) for sizes in ALIGNMENTS),
    ),
    mistakes=(
        Mistake("the rows held tokens, not slots", "Store the slot, token * top_k + choice.", tokens=True),
        Mistake(
            "a load took one tile too many",
            "With tiles of 16, a load of 16 takes one and a load of 0 none.",
            *({"spare_tile": loads} for loads in ("empty", "full")),
        ),
        Mistake("padding was not -1", "Store -1 in rows that hold no slot.", padding=0, results=("slots",)),
        Mistake("tiles beyond the last expert had an owner", "Theirs is -1.", owned=True, results=("owners",)),
    ),
    minimum_bytes=aligned_bytes,
    hints={
        "traffic": "Read experts twice in all, to count and to place. A count per expert and 128 slots is enough.",
        "values": "Write down the loads, the loads rounded up to whole tiles, and their running sum.",
        "race": "Compute each slot's row from counts. If you fill with -1 first, fill in an earlier launch.",
        "unwritten": "A kernel stores -1 in every row that holds no slot and in every tile without an owner.",
        "out_of_bounds": "Mask slots beyond the last one: they have no row. Check the sizes of your tensors as well.",
        "form": "Return int32 slots, [tiles * block], and int32 owners, [tiles], `tiles` as the card says.",
    },
)

# ---------------------------------------------------------------- 11.4 grouped GEMM


@returns(y="x")
def grouped_linear(x, weight, bias, offsets, *, add_bias="first", relu=True, owner="right", tile=None):
    """owner: whose weight and bias a group gets. tile: the columns of the first tile of K, which alone counts."""
    y, columns = np.empty((len(x), weight.shape[1])), slice(tile)
    for expert, (start, end) in enumerate(zip(offsets, offsets[1:])):
        nonempty = int((np.diff(offsets)[:expert] > 0).sum())
        own = {"right": expert, "first": 0, "previous": expert - 1, "nonempty": nonempty}[owner]
        z, shift = x[start:end, columns] @ weight[own][:, columns].T, bias[own]
        z = z + shift if add_bias == "first" else z
        z = np.maximum(z, 0) if relu else z
        y[start:end] = (z + shift if add_bias == "after relu" else z) ** 2
    return y


def loads_of(rng, counts, moved=0):
    """Rows of experts, in any order. moved: rows that go from the first to the second at every other turn, so that the
    number of tiles changes."""
    loads = np.array(counts)
    if moved:
        loads[:2] += rng.turn % 2 * moved * np.array([-1, 1])
    return rng.permutation(loads)


def offsets_of(loads):
    """Where the rows of each expert begin, and the end of the last one's."""
    return tensor(np.concatenate([[0], np.cumsum(loads)]), "int32")


def groups(counts, hidden, inter, dtype="bf16", padding=0, moved=0, negative=0):
    """Experts with these numbers of rows. moved: as in `loads_of`. negative: the sums of experts with so many rows are
    all below zero."""

    def make(rng):
        loads = loads_of(rng, counts, moved)
        low = 0.5 if inter == 1 else -1.0
        bias = rng.uniform(low, 1, (len(counts), inter))
        bias[(loads == negative) & (loads > 0)] -= 1.1 * hidden
        return {
            "x": padded(rng.uniform(low, 1, (sum(counts), hidden)), dtype, padding),
            "weight": tensor(rng.uniform(low, 1, (len(counts), inter, hidden)), dtype),
            "bias": tensor(bias),
            "offsets": offsets_of(loads),
        }

    return make


def grouped_bytes(x, weight, bias, offsets):
    """With tiles of 16 rows and 32 columns of y."""
    experts, inter = weight.shape[:2]
    tiles, across = int(ceil(np.diff(offsets.values), 16).sum()), ceil(inter, 32)
    return {
        "x": x.nbytes * across,
        "weight": weight.nbytes // experts * tiles,
        "bias": bias.nbytes // experts * tiles,
        "offsets": 2 * offsets.nbytes * max(MANY, (ceil(x.shape[0], 16) + experts) * across),
        "returned 0": x.itemsize * x.shape[0] * inter,
    }


WHOLE_TILES = (64, 128, 0, 16, 32)
GROUPED = Task(
    id="11.4",
    title="Multiply groups, some of them empty",
    points=5,
    functions={"grouped_linear": grouped_linear},
    kernel=True,
    cases=(
        Case("72 rows of four experts, 64 to 48, bf16", groups((33, 29, 0, 10), 64, 48, moved=33)),
        Case("1, 33, 0, 0 and 3 rows, 40 to 33, fp16", groups((1, 33, 0, 0, 3), 40, 33, "fp16")),
        Case("5 and 20 rows, 24 to 40, bf16, padded rows", groups((5, 20), 24, 40, padding=11), hint=PADDED),
        Case("40 rows of 40 experts, most with one, 130 to 33, bf16", groups((*[1] * 37, 3, 0, 0), 130, 33)),
        Case("16 rows, all of one expert of 12, 64 to 64, bf16", groups((16, *[0] * 11), 64, 64)),
        Case(
            "0 to 128 rows, 64 to 136, fp16, negative sums in one group",
            groups(WHOLE_TILES, 64, 136, "fp16", negative=16),
        ),
        Case("1 row, 1 to 1, bf16", groups((1,), 1, 1)),
        Case("5,400 rows of two experts, 8 to 33, bf16", groups((2801, 2599), 8, 33, moved=2801)),
    ),
    mistakes=(
        Mistake("the bias was left out", "y is relu(x @ W.T + bias) ** 2.", add_bias="never"),
        Mistake("the bias was added after relu", "First the bias, then relu, then the square.", add_bias="after relu"),
        Mistake("relu was left out", "relu sets negative sums to 0 before the square.", relu=False),
        Mistake(
            "rows got the weight or the bias of another expert",
            "Rows offsets[e] to offsets[e + 1] - 1 use weight[e] and bias[e], even after experts without rows.",
            *({"owner": owner} for owner in ("first", "previous", "nonempty")),
        ),
        Mistake("only one tile of K was added up", "Add all tiles up in one fp32 accumulator.", tile=TILE),
    ),
    minimum_bytes=grouped_bytes,
    hints={
        "traffic": "x once per 32 columns of y, weight once per 16 rows: nothing is loaded for an expert without rows.",
        "values": "If the error is 1% or less, it is rounding: sums, bias, relu and square stay in fp32. Otherwise let "
        "each program store the number of its expert in place of y, and compare it with offsets.",
        "out_of_bounds": "Mask rows from offsets[e + 1] on, columns of y from N on, and columns from K on.",
        "unwritten": "There can be cdiv(rows, BLOCK_M) + experts tiles of rows, each with cdiv(N, BLOCK_N) of columns.",
        "race": "Mask rows from offsets[e + 1] on: they are the next expert's.",
    },
)

# ---------------------------------------------------------------- 11.5 the combine's backward


@returns(dy="y", dscores="fp32")
def combine_backward(dout, y, scores, rows, slots, *, weights="gates", through="division", dropped="counted"):
    """weights: what multiplies dout. through: what of the division reaches the scores. dropped: whether the score of a
    dropped choice gets a gradient."""
    total = scores.sum(axis=1, keepdims=True)
    gates, there = scores / total, rows >= 0
    left = np.where(there, scores, 0).sum(axis=1, keepdims=True)
    factors = {"gates": gates, "scores": scores, "renormalized": scores / np.where(left > 0, left, 1)}[weights]
    dy = np.zeros_like(y)
    dy[rows[there]] = (factors[..., None] * dout[:, None])[there]
    dgates = (np.where(there[..., None], y[np.maximum(rows, 0)], 0) * dout[:, None]).sum(axis=2)
    mean = (gates * dgates).sum(axis=1, keepdims=True)
    dscores = {"none": dgates, "divisor": dgates / total, "division": (dgates - mean) / total}[through]
    return dy, dscores if dropped == "counted" else np.where(there, dscores, 0)


def backward_of(tokens, top_k, hidden, dtype="bf16", *, spare=3, drop=0.2, padding=(0, 0), small=1.0):
    """y's rows in any order; `spare` more, among them row 0 and the last, hold no slot, and NaN. The choices of a token
    have gradients of either sign, so that no dscores is a small difference. padding: of the rows of dout and of y.
    small: a factor of the scores."""

    def make(rng):
        count = tokens * top_k
        rows = (1 + rng.permutation(count + spare - 2) if spare else rng.permutation(count))[:count]
        slots, y = np.full(count + spare, -1), np.full((count + spare, hidden), np.nan)
        y[rows] = rng.uniform(0.25, 1, (count, hidden)) * rng.uniform(1, 2, (count, 1))
        y[rows[1::2]] *= -1
        rows = np.where(rng.permutation(count) < int(drop * count), -1, rows)
        slots[rows[rows >= 0]] = np.flatnonzero(rows >= 0)
        y[slots < 0] = np.nan
        return {
            "dout": padded(rng.uniform(0.25, 1, (tokens, hidden)), dtype, padding[0]),
            "y": padded(y, dtype, padding[1]),
            "scores": tensor(small * rng.uniform(0.1, 1, (tokens, top_k))),
            "rows": tensor(rows.reshape(tokens, top_k), "int32"),
            "slots": tensor(slots, "int32"),
        }

    return make


def backward_bytes(dout, y, scores, rows, slots):
    """With tiles of 128 columns."""
    present, tiles = int((rows.values >= 0).sum()), ceil(y.shape[1], 128)
    row = y.shape[1] * y.itemsize
    small = {name: of.nbytes * tiles for name, of in (("scores", scores), ("rows", rows), ("slots", slots))}
    return {
        "dout": dout.shape[0] * row,
        "y": present * row,
        **small,
        "returned 0": y.shape[0] * row,
        "returned 1": scores.nbytes,
    }


STRIDES = "dout and y have padded rows, by different amounts: use dout.stride(0) and y.stride(0)."
DROPPED = "A dropped choice has no row, but its score is part of the sum by which all gates were divided."
COMBINE = Task(
    id="11.5",
    title="The combine's backward in one pass",
    points=5,
    functions={"combine_backward": combine_backward},
    kernel=True,
    cases=(
        Case("12 tokens, top-2, 256 wide, bf16", backward_of(12, 2, 256)),
        Case("9 tokens, top-6, fp16, padded rows", backward_of(9, 6, 100, "fp16", padding=(28, 12)), hint=STRIDES),
        Case("10 tokens, top-4, 70 wide, bf16, most of them dropped", backward_of(10, 4, 70, drop=0.7), hint=DROPPED),
        Case("8 tokens, top-2, 33 wide, fp32, every row taken", backward_of(8, 2, 33, "fp32", spare=0, drop=0.0)),
        Case("6 tokens, top-2, 40 wide, fp32, scores of 1e-6", backward_of(6, 2, 40, "fp32", small=1e-6)),
        Case("5 tokens, top-3, 1 wide, fp32", backward_of(5, 3, 1, "fp32")),
        Case("3 tokens, top-8, 1025 wide, bf16", backward_of(3, 8, 1025)),
        Case("2 tokens, top-2, 64 wide, fp16, 40 rows without a slot", backward_of(2, 2, 64, "fp16", spare=40)),
        Case(f"{MANY} tokens, top-2, 16 wide, bf16", backward_of(MANY, 2, 16)),
    ),
    mistakes=(
        Mistake(
            "dscores is the gradient of the gates, without the division behind them",
            "A score is in its own gate and in the sum under all gates of its token: differentiate the division.",
            *({"through": through} for through in ("none", "divisor")),
            results=("dscores",),
        ),
        Mistake("dropped choices have a gradient of 0", DROPPED, dropped="left out", results=("dscores",)),
        Mistake(
            "dout was not multiplied by the gate",
            "The gate is the score over the sum of all scores of the token, those of dropped choices too.",
            *({"weights": weights} for weights in ("scores", "renormalized")),
            results=("dy",),
        ),
    ),
    minimum_bytes=backward_bytes,
    hints={
        "traffic": "Load each tile of dout once, before the loop over choices; a program per row of y reads dout top_k "
        "times. Keep a token's gradients of the gates in registers over all columns.",
        "unwritten": "Rows of y without a slot are in slots, not in rows: some program has to store zeros there.",
        "values": "Work through one token by hand: its gates, the dot products of dout with its rows, the division. "
        "Rows of y without a slot hold NaN, and NaN times 0 is NaN: mask their loads.",
        "out_of_bounds": "-1 in rows is not a row of y: mask its load, and the columns beyond the last everywhere.",
    },
)

# ---------------------------------------------------------------- 11.6 gradients of the weights


@returns(dw="fp32", db="fp32")
def expert_gradients(dy, x, offsets, *, overrun=0, cut=0, owner="right", transposed=False):
    """dy[rows of e].T @ x[rows of e] and the sum of dy over the same rows, for each expert e.

    overrun: the height of tiles whose last one reads on into the rows of the next expert. cut: of tiles of which only
    full ones count. owner: whose rows an expert gets.
    """
    experts, (n, k) = len(offsets) - 1, (dy.shape[1], x.shape[1])
    dw, db = np.zeros((experts, n, k)), np.zeros((experts, n))
    for e in range(experts):
        other = {"right": e, "next": (e + 1) % experts, "previous": e - 1}[owner]
        start, end = offsets[other : other + 2] if other >= 0 else offsets[-2:]
        end = start + ceil(end - start, overrun) * overrun if overrun else end
        end = start + (end - start) // cut * cut if cut else end
        dw[e], db[e] = dy[start:end].T @ x[start:end], dy[start:end].sum(axis=0)
    return dw.swapaxes(1, 2) if transposed and n == k else dw, db


def rows_of(counts, n, k, dtype="bf16", padding=0, moved=0):
    """Experts with these numbers of rows. moved: as in `loads_of`. Sums of one sign, or nearly so."""

    def make(rng):
        loads = loads_of(rng, counts, moved)
        return {
            "dy": tensor(rng.integers(-1, 9, (sum(counts), n)) / 8, dtype),
            "x": padded(rng.integers(-1, 9, (sum(counts), k)) / 8, dtype, padding),
            "offsets": offsets_of(loads),
        }

    return make


def gradient_bytes(dy, x, offsets):
    """With tiles of 32 x 32 of dw: dy once per 32 columns of x, x once per 32 of dy, nothing of another expert's."""
    experts, n, k = offsets.shape[0] - 1, dy.shape[1], x.shape[1]
    across, down = ceil(k, 32), ceil(n, 32)
    return {
        "dy": dy.nbytes * across,
        "x": x.itemsize * x.shape[0] * k * down,
        "offsets": 8 * experts * across * down,
        "returned 0": 4 * experts * n * k,
        "returned 1": 4 * experts * n,
    }


GRADIENTS = Task(
    id="11.6",
    title="The gradients of all experts' weights",
    points=5,
    functions={"expert_gradients": expert_gradients},
    kernel=True,
    cases=(
        Case("72 rows of four experts, one without rows, 64 x 48, bf16", rows_of((33, 29, 0, 10), 64, 48, moved=33)),
        Case("1, 33, 0, 0 and 3 rows, 40 x 33, fp16", rows_of((1, 33, 0, 0, 3), 40, 33, "fp16")),
        Case("5 and 20 rows, 24 x 40, bf16, padded rows of x", rows_of((5, 20), 24, 40, padding=11), hint=PADDED),
        Case("16 rows, all of one expert of 12, 32 x 32, bf16", rows_of((16, *[0] * 11), 32, 32)),
        Case("64, 128, 0 and 32 rows, 33 x 65, fp16", rows_of((64, 128, 0, 32), 33, 65, "fp16")),
        Case("1 row, 1 x 1, bf16", rows_of((1,), 1, 1)),
        Case("50 rows of 40 experts, 24 x 40, bf16", rows_of((*[1] * 25, *[5] * 5, *[0] * 10), 24, 40)),
    ),
    mistakes=(
        Mistake(
            "rows of the next expert were added",
            "A tile of rows may reach beyond offsets[e + 1]: mask these rows with 0 in dy or in x.",
            overrun=TILE,
        ),
        Mistake(
            "the last, ragged tile of an expert's rows was left out",
            "Loop from offsets[e] to offsets[e + 1] and mask the last tile.",
            cut=TILE,
        ),
        Mistake(
            "an expert got the rows of another one",
            "The rows of expert e are offsets[e] to offsets[e + 1] - 1.",
            {"owner": "next"},
            {"owner": "previous"},
        ),
        Mistake("dw is transposed", "dw[e] is [N, K], as the weight: dy.T @ x.", transposed=True),
    ),
    minimum_bytes=gradient_bytes,
    max_tile=(64, 64),
    hints={
        "unwritten": "An expert without rows has a gradient, too: zeros, which its programs have to store.",
        "traffic": "One program per expert and tile of dw, with sides of 32 or 64. Only some programs have to store "
        "db, and none has to load dy again for it.",
        "values": "The sum runs over an expert's rows: a tile of dy transposed times a tile of x, in fp32.",
    },
)

TASKS = (BALANCE, ROUTE, ALIGN, GROUPED, COMBINE, GRADIENTS)
