"""Exercise 11, a mixture of experts: a loss that balances, a router with a bias, rows in whole tiles, a product over
groups, what the experts gave added up."""

import numpy as np

from grading.tasks import Case, Slip, Task, gives, tensor

EXERCISE = "11_mixture_of_experts"
MANY = 160  # more than any GPU has multiprocessors


def ceil(n, block: int):
    """Blocks that cover n."""
    return -(-n // block)


def chosen_by(rng, tokens, top_k, experts, skew=1.0):
    """[tokens, top_k]: different experts for each token, the higher ones chosen less often; the last of five or more
    never."""
    weight = np.arange(1, experts + 1.0) ** -skew
    weight[-1] *= experts < 5
    keys = rng.exponential(1, (tokens, experts)) / np.maximum(rng.permutation(weight), 1e-9)
    return np.argsort(keys, axis=1)[:, :top_k]


# ---------------------------------------------------------------- 11.1 balance


def fractions(experts, many):
    """[sequences, many]: how often each expert was chosen, 1 where all are chosen equally often."""
    tokens, top_k = experts.shape[1:]
    counts = np.stack([np.bincount(sequence.ravel(), minlength=many) for sequence in experts])
    return counts * many / (tokens * top_k)


def shares(logits):
    """[..., experts]: each expert's part of a token's scores."""
    scores = 1 / (1 + np.exp(-logits))
    return scores / scores.sum(axis=-1, keepdims=True)


@gives(loss="fp32", uses=(fractions, shares))
def sequence_losses(logits, experts):
    part = shares(logits).mean(axis=1)
    return (fractions(experts, logits.shape[-1]) * part).sum(axis=1)


@gives(dlogits="fp32", uses=(fractions, shares))
def loss_gradient(logits, experts):
    often, part = fractions(experts, logits.shape[-1])[:, None], shares(logits)
    slope = 1 - 1 / (1 + np.exp(-logits))
    return part * slope * (often - (often * part).sum(axis=-1, keepdims=True)) / logits.shape[1]


@gives(bias="fp32")
def moved_bias(bias, experts, step):
    counts = np.bincount(experts.ravel(), minlength=len(bias))
    return bias + step * np.sign(experts.size - counts * len(bias))


def of_sequences(sequences, tokens, many, top_k, far=0):
    """far: what the first two logits of each token are, with either sign, if it is not 0."""

    def make(rng):
        experts = np.stack([chosen_by(rng, tokens, top_k, many, skew=2) for _ in range(sequences)])
        logits = rng.uniform(-2, 1, (sequences, tokens, many))
        if far:
            logits[..., :2] = far, -far
        return {"logits": tensor(logits), "experts": tensor(experts, "int32")}

    return make


def of_bias(tokens, many, top_k):
    """Loads of which one is exactly the mean; tokens * top_k is a multiple of `many`."""

    def make(rng):
        mean = tokens * top_k // many
        counts = np.full(many, mean)
        counts[1] += mean // 2
        counts[2] -= mean // 2
        flat = np.repeat(np.arange(many), counts)
        return {
            "bias": tensor(rng.normal(0, 0.1, many)),
            "experts": tensor(rng.permutation(flat).reshape(tokens, top_k), "int32"),
            "step": 0.015625,
        }

    return make


def of_dealt(tokens, many, top_k):
    """Dealt out in turn: every load is the mean, rounded down or up."""

    def make(rng):
        experts = rng.permutation(many)[np.arange(tokens * top_k) % many].reshape(tokens, top_k)
        return {"bias": tensor(rng.normal(0, 0.1, many)), "experts": tensor(experts, "int32"), "step": 0.015625}

    return make


def of_any_bias(tokens, many, top_k):
    """Nobody chooses the last expert."""

    def make(rng):
        experts = chosen_by(rng, tokens, top_k, many - 1)
        return {"bias": tensor(rng.normal(0, 0.1, many)), "experts": tensor(experts, "int32"), "step": 0.015625}

    return make


BALANCE = Task(
    id="11.1",
    title="Balance the experts",
    points=3,
    functions={"balance_loss": sequence_losses, "balance_gradient": loss_gradient, "next_bias": moved_bias},
    cases=(
        *(
            Case(f"{name}, {shape[0]} x {shape[1]} tokens, top-{shape[3]} of {shape[2]}", of_sequences(*shape), name)
            for name in ("balance_loss", "balance_gradient")
            for shape in ((3, 24, 8, 2), (1, 7, 5, 1), (2, 30, 12, 3))
        ),
        *(
            Case(f"{name}, logits of 100 and -100", of_sequences(2, 9, 6, 2, far=100), name)
            for name in ("balance_loss", "balance_gradient")
        ),
        Case(
            "next_bias, an expert with just its part",
            of_bias(12, 6, 2),
            "next_bias",
            hint="An expert that was chosen tokens * top_k / experts times keeps its bias.",
        ),
        Case("next_bias, top-3 of 7", of_any_bias(25, 7, 3), "next_bias"),
        Case(
            "next_bias, loads of 20 and 21, whose mean is 20.5",
            of_dealt(41, 6, 3),
            "next_bias",
            hint="The mean load is no whole number here, and no load is just the mean.",
        ),
        Case(
            "next_bias, loads of 1 and one of 2, whose mean is 65 / 64",
            of_dealt(65, 64, 1),
            "next_bias",
            hint="Loads may be very near to the mean: compare whole numbers, counts times the number of experts "
            "and all choices.",
        ),
    ),
    slips=(
        Slip(
            "the choices were counted k times",
            "Each token makes top_k choices: divide the counts by tokens * top_k, so that they add up to the number of "
            "experts and even loads give a loss of 1.",
            "/ (tokens * top_k) -> / tokens",
            answer="(tokens * top_k) -> tokens",
        ),
        Slip(
            "the number of experts was left out",
            "With it even loads give 1, however many experts there are.",
            "counts * many / -> counts * 1 /",
            answer="counts * many / -> counts /",
        ),
        Slip(
            "the choices of all sequences were counted together",
            "Each sequence has its own loss, from its own counts.",
            "np.bincount(sequence.ravel(), minlength=many) for sequence in experts -> "
            "np.bincount(experts.ravel(), minlength=many) / len(experts) for sequence in experts",
            "np.bincount(sequence.ravel(), minlength=many) for sequence in experts -> "
            "np.bincount(experts.ravel(), minlength=many) for sequence in experts",
        ),
        Slip(
            "only the first choice of each token was counted",
            "All top_k choices count.",
            "np.bincount(sequence.ravel() -> np.bincount(sequence[:, 0]",
            "counts * many / (tokens * top_k) -> np.stack([np.bincount(s[:, 0], minlength=many) for s in experts])"
            " * many / tokens",
            "np.bincount(experts.ravel(), minlength=len(bias)) -> np.bincount(experts[:, 0], minlength=len(bias))",
            (
                "np.bincount(experts.ravel(), minlength=len(bias)) -> np.bincount(experts[:, 0], minlength=len(bias))",
                "experts.size - counts -> len(experts) - counts",
            ),
        ),
        Slip(
            "the shares are a softmax of the logits",
            "Here the scores are sigmoids, one for each expert, divided by their sum.",
            "scores = 1 / (1 + np.exp(-logits)) -> scores = np.exp(logits)",
            answer="torch.sigmoid(logits) -> torch.exp(logits)",
            functions=("balance_loss",),
        ),
        Slip(
            "the scores were not divided by their sum",
            "P is a share: a token's scores over their sum.",
            "return scores / scores.sum(axis=-1, keepdims=True) -> return scores",
            functions=("balance_loss",),
        ),
        Slip(
            "only the shares of the chosen experts were added",
            "P is the mean over all tokens, whichever experts they chose: that is what the gradient moves.",
            "part = shares(logits).mean(axis=1) -> part = (shares(logits) * (experts[..., None] == "
            "np.arange(logits.shape[-1])).any(axis=2)).mean(axis=1)",
            "part = shares(logits).mean(axis=1) -> taken = shares(logits) * (experts[..., None] == "
            "np.arange(logits.shape[-1])).any(axis=2)\n"
            "    part = (taken / taken.sum(axis=-1, keepdims=True)).mean(axis=1)",
        ),
        Slip(
            "P is the mean over the tokens of all sequences",
            "Each sequence has its own loss, from its own tokens.",
            "part = shares(logits).mean(axis=1) -> part = shares(logits).mean(axis=(0, 1))[None]",
            answer=".mean(1) -> .mean((0, 1))",
        ),
        Slip(
            "the scores were divided by their sum over the tokens",
            "A token's scores are divided by the sum of that token's scores, over the experts.",
            "return scores / scores.sum(axis=-1, keepdims=True) -> return scores / scores.sum(axis=-2, keepdims=True)",
            answer="scores.sum(-1, keepdim=True) -> scores.sum(1, keepdim=True)",
            functions=("balance_loss",),
        ),
        Slip(
            "P is a sum over the tokens, and not their mean",
            "Divide by the tokens of the sequence.",
            "part = shares(logits).mean(axis=1) -> part = shares(logits).sum(axis=1)",
            "* part).sum(axis=-1, keepdims=True)) / logits.shape[1] -> * part).sum(axis=-1, keepdims=True))",
        ),
        Slip(
            "the gradient is that of the losses' mean",
            "The gradient of the sum of all losses is asked for: balance_loss(...).sum().backward().",
            "/ logits.shape[1] -> / logits.shape[1] / len(logits)",
            answer="balance_loss(logits, experts).sum() -> balance_loss(logits, experts).mean()",
            functions=("balance_gradient",),
        ),
        Slip(
            "the gradient is that of the first sequence's loss alone",
            "The gradient of the sum of all losses is asked for: balance_loss(...).sum().backward().",
            "/ logits.shape[1] -> / logits.shape[1] * (np.arange(len(logits)) == 0)[:, None, None]",
            answer="balance_loss(logits, experts).sum() -> balance_loss(logits, experts)[0]",
            functions=("balance_gradient",),
        ),
        Slip(
            "loads were compared with a whole number, the mean rounded or their median",
            "The mean need not be whole. Whole numbers can be compared exactly: counts times the number of experts, "
            "and all choices.",
            "np.sign(experts.size - counts * len(bias)) -> np.sign(experts.size // len(bias) - counts)",
            "np.sign(experts.size - counts * len(bias)) -> np.sign(-(-experts.size // len(bias)) - counts)",
            "np.sign(experts.size - counts * len(bias)) -> np.sign(np.sort(counts)[(len(bias) - 1) // 2] - counts)",
            answer="experts.numel() - counts * len(bias) -> experts.numel() // len(bias) - counts",
        ),
        Slip(
            "a load near the mean counts as the mean",
            "Only at exactly the mean a bias stays.",
            "np.sign(experts.size - counts * len(bias)) -> np.sign(np.fix((experts.size / len(bias) - counts)))",
            "np.sign(experts.size - counts * len(bias)) -> np.sign(experts.size / len(bias) - counts) * "
            "(abs(counts * len(bias) / experts.size - 1) > 0.05)",
            "np.sign(experts.size - counts * len(bias)) -> np.sign(experts.size / len(bias) - counts) * "
            "(abs(counts - experts.size / len(bias)) > 0.02)",
        ),
        Slip(
            "an expert that nobody chose was left out",
            "Its load is 0, and counts: it is below the mean, which is over all experts.",
            "np.sign(experts.size - counts * len(bias)) -> np.sign(counts[counts > 0].mean() - counts)",
            "np.sign(experts.size - counts * len(bias)) -> np.sign(experts.size - counts * len(bias)) * (counts > 0)",
        ),
        Slip(
            "the bias moves the wrong way",
            "Who was chosen too often gets a smaller bias, and is chosen less often.",
            "experts.size - counts * len(bias) -> counts * len(bias) - experts.size",
            answer="experts.numel() - counts * len(bias) -> counts * len(bias) - experts.numel()",
        ),
        Slip(
            "an expert that has just its part was moved too",
            "Above the mean down, below it up, at the mean it stays.",
            "step * np.sign(experts.size - counts * len(bias)) -> "
            "step * np.where(counts * len(bias) < experts.size, 1, -1)",
            "step * np.sign(experts.size - counts * len(bias)) -> "
            "step * np.where(counts * len(bias) > experts.size, -1, 1)",
        ),
        Slip(
            "the bias moved by more where the load is further off",
            "Every bias moves by one step, up or down: only the sign of the difference counts.",
            "np.sign(experts.size - counts * len(bias)) -> (experts.size / len(bias) - counts)",
            "np.sign(experts.size - counts * len(bias)) -> (1 - counts * len(bias) / experts.size)",
            answer="torch.sign(experts.numel() - counts * len(bias)) -> (experts.numel() / len(bias) - counts)",
        ),
        Slip(
            "the mean is that of the tokens",
            "Each token makes top_k choices: the mean load is tokens * top_k / experts.",
            "experts.size - counts -> len(experts) - counts",
            answer="experts.numel() - counts -> len(experts) - counts",
        ),
    ),
    hints={
        "wrong": "Take a sequence of two tokens and two experts on paper: f, P, their product; the loads beside their "
        "mean. Where all loads are even the loss is 1, its gradient 0, and no bias moves.",
        "exception": "torch.bincount takes one dimension. It and one_hot count no expert beyond the largest one that "
        "was chosen unless they are told how many there are.",
        "dtype": "All three return fp32.",
        "nan": "exp overflows fp32 from 89 on, and then inf / inf, or inf * 0 on autograd's way back, is NaN: "
        "torch.sigmoid holds for any logit.",
        "input_changed": "Work on tensors of your own: the caller still needs its inputs as they were. What asks for a "
        "gradient collects it, and the next call's comes on top.",
    },
)

# ---------------------------------------------------------------- 11.2 route


@gives(experts="int32", gates="fp32")
def routed(x, router, bias, top_k, scale):
    scores = 1 / (1 + np.exp(-(x @ router.T)))
    choice = scores + bias
    experts = np.argsort(-choice, axis=1, kind="stable")[:, :top_k]
    kept = np.take_along_axis(scores, experts, axis=1)
    return experts, scale * kept / kept.sum(axis=1, keepdims=True)


def from_the_end(choice):
    """As argsort of -choice, the higher index first at a tie."""
    return choice.shape[1] - 1 - np.argsort(-choice[:, ::-1], axis=1, kind="stable")


def set_to_zero(choice, top_k):
    """One after the other, where what was taken counts as 0 from then on."""
    left, found = choice.copy(), []
    for _ in range(top_k):
        found.append(left.argmax(axis=1))
        left[np.arange(len(left)), found[-1]] = 0
    return np.stack(found, axis=1)


def widened(scores, fill):
    """With lanes beyond the last expert, up to a power of two."""
    width = 1 << (scores.shape[-1] - 1).bit_length()
    return np.concatenate([scores, np.full((*scores.shape[:-1], width - scores.shape[-1]), fill)], axis=-1)


NEAR = 4e-6  # apart, choices of one token, where they are not equal


def of_router(tokens, hidden, experts, top_k, dtype="bf16", padding=0, level=0.0, alike=None, most=2, scale=2.5):
    """Whole numbers to `most`, so that logits are exact in fp32 in whatever order they are added; with 64 they are not
    in 16 bits. level: what is added to all biases. alike: {expert: (another one, whose weights it has, and by how much
    its bias is larger)}: their scores are the same however they are computed, so their choices may be near."""
    alike = alike or {}
    single = [e for e in range(experts) if not 0 <= abs(alike.get(e, (e, NEAR))[1]) < NEAR]

    def make(rng):
        spread = 2.0 ** -round(np.log2(np.sqrt(hidden) * most * (most + 1) / 4))
        x = rng.integers(-most, most + 1, (tokens, hidden))
        router = rng.integers(-most, most + 1, (experts, hidden)) * spread
        for expert, (other, _) in alike.items():
            router[expert] = router[other]
        scores = 1 / (1 + np.exp(-(x @ router.T)))
        for _ in range(200):
            bias = rng.normal(level, 0.25, experts)
            for expert, (other, more) in alike.items():
                bias[expert] = bias[other] + more
            bias = bias.astype(np.float32)
            apart = np.diff(np.sort((scores + bias)[:, single], axis=1), axis=1)
            if not (apart < NEAR).any():
                break
        else:
            raise ValueError("no bias keeps these choices apart")
        return {
            "x": tensor(x, dtype, hidden + padding if padding else None),
            "router": tensor(router, dtype),
            "bias": tensor(bias),
            "top_k": top_k,
            "scale": scale,
        }

    return make


def of_far_logits(rng):
    """Tokens with logits of 100, 12 and 9 for three experts, and tokens with logits of -12 alone, each from one weight;
    four more experts have biases that no score makes up for, and the fourth choice is one of them."""
    tokens, experts = 16, 7
    logits = np.full((tokens, experts), -12)
    bias, far = np.zeros(experts), rng.permutation(experts)[:4]
    bias[far] = -1e5 * (1 + rng.permutation(4))
    near = np.setdiff1d(np.arange(experts), far)
    for row in logits[::2]:
        row[near], row[far] = rng.permutation([100, 12, 9]), rng.permutation([-3, -12, -100, 0])
    return {
        "x": tensor(np.eye(tokens), "bf16"),
        "router": tensor(logits.T, "bf16"),
        "bias": tensor(bias),
        "top_k": 4,
        "scale": 2.5,
    }


ROUTER_TOKENS = 16  # in a tile, by which bytes are judged


def router_bytes(x, router, bias, top_k, scale):
    tiles = ceil(x.shape[0], ROUTER_TOKENS)
    results = 4 * x.shape[0] * top_k
    return {
        "x": x.nbytes,
        "router": router.nbytes * tiles,
        "bias": bias.nbytes * tiles,
        "returned 0": results,
        "returned 1": results,
    }


TOP = 'np.argsort(-choice, axis=1, kind="stable")'
ROUTE = Task(
    id="11.2",
    title="Route with a bias",
    points=5,
    functions={"route": routed},
    kernel=True,
    cases=(
        Case("20 tokens, 96 hidden, top-2 of 8, bf16", of_router(20, 96, 8, 2, most=64)),
        Case(
            "37 tokens, 260 hidden, top-8 of 33, fp16",
            of_router(37, 260, 33, 8, "fp16", most=64, scale=1.25),
            hint="33 experts are no power of two, and 260 columns and 37 tokens fill no tile; top-8 is the most.",
        ),
        Case(
            "18 tokens, 72 hidden, top-3 of 6, fp16, padded rows",
            of_router(18, 72, 6, 3, "fp16", 29),
            hint="This x has padded rows: the next token starts x.stride(0) elements on.",
        ),
        Case(
            "17 tokens, 64 hidden, top-2 of 5, bf16, every bias below -10",
            of_router(17, 64, 5, 2, level=-12.5, alike={1: (0, 2e-4), 3: (2, 2e-4)}),
            hint="Here every score with its bias is below 0. What lies beyond the last expert, and what was taken "
            "already, has to be lower than any of them: minus infinity. And choices are near: the sum is fp32.",
        ),
        Case(
            "16 tokens, logits of 100, 12, 9 and -12, biases of -100,000 and less",
            of_far_logits,
            hint="The score of a logit of 100 is 1 and no NaN, that of 12 is above that of 9, scores of 6e-6 are "
            "divided by their own sum, and a bias may be as low as any number but minus infinity.",
        ),
        Case(
            "16 tokens, 1,100 hidden, top-8 of 64, fp16, experts 40 apart alike",
            of_router(
                16,
                1100,
                64,
                8,
                "fp16",
                alike={e + far: (e, more) for e in range(0, 24, 2) for far, more in ((40, 0.0), (1, -2e-6))},
            ),
            hint="All 1,100 columns count. Of equal choices the lower index comes first, and one that is 2e-6 smaller "
            "after both: a tie is broken by the index, and not by a change of the sum.",
        ),
        Case(
            "24 tokens, 48 hidden, top-4 of 12, bf16, experts in threes alike",
            of_router(24, 48, 12, 4, alike={e: (e // 3 * 3, 0.0) for e in range(12) if e % 3}),
            hint="Here some experts have the same score and the same bias: the lower index comes first.",
        ),
        Case("3 tokens, 1 hidden, top-2 of 2, fp16", of_router(3, 1, 2, 2, "fp16")),
        Case(f"{ROUTER_TOKENS * MANY} tokens, 16 hidden, top-2 of 4, bf16", of_router(ROUTER_TOKENS * MANY, 16, 4, 2)),
    ),
    slips=(
        Slip(
            "the gates were made from the scores with the bias",
            "The bias decides who is chosen, and weighs nothing: the gates come from the scores alone.",
            "kept = np.take_along_axis(scores -> kept = np.take_along_axis(choice",
            answer="tl.where(taken, scores, 0.0) -> tl.where(taken, scores + bias[None, :], 0.0)",
        ),
        Slip(
            "the bias was left out of the choice",
            "The largest scores + bias are chosen.",
            "choice = scores + bias -> choice = scores",
        ),
        Slip(
            "the bias was added before the sigmoid",
            "The score is sigmoid(logit), and the bias is added to it.",
            (
                "scores = 1 / (1 + np.exp(-(x @ router.T))) -> scores = 1 / (1 + np.exp(-(x @ router.T)))\n"
                "    shifted = 1 / (1 + np.exp(-(x @ router.T + bias)))",
                "choice = scores + bias -> choice = shifted",
            ),
            "scores = 1 / (1 + np.exp(-(x @ router.T))) -> scores = 1 / (1 + np.exp(-(x @ router.T + bias)))",
            (
                "scores = 1 / (1 + np.exp(-(x @ router.T))) -> scores = 1 / (1 + np.exp(-(x @ router.T + bias)))",
                "choice = scores + bias -> choice = scores",
            ),
        ),
        Slip(
            "the gates were not renormalised",
            "Divide the gates of a token by their sum, before or after they are scaled.",
            " / kept.sum(axis=1, keepdims=True) -> ",
            answer="kept / tl.sum(kept, axis=1)[:, None] -> kept",
        ),
        Slip(
            "the gates were divided by the sum over all experts",
            "The gates of the chosen ones add up to `scale`: divide by the sum of those that are kept.",
            " / kept.sum(axis=1, keepdims=True) ->  / scores.sum(axis=1, keepdims=True)",
        ),
        Slip("the scale was left out", "The gates of a token add up to `scale`.", "scale * kept -> kept"),
        Slip("the scale was applied twice", "Once is enough.", "scale * kept -> scale * scale * kept"),
        Slip(
            "at a tie the higher index came first",
            "Of equal ones the expert with the lower index is chosen first: tl.argmax(..., tie_break_left=True).",
            f"{TOP} -> from_the_end(choice)",
        ),
        Slip(
            "what was taken counts as 0 from then on",
            "Scores with a bias may be negative, and 0 is larger: minus infinity is not.",
            f"{TOP}[:, :top_k] -> set_to_zero(choice, top_k)",
            answer='choice = tl.where(taken, float("-inf"), choice) -> choice = tl.where(taken, 0.0, choice)',
        ),
        Slip(
            "one expert was chosen again and again",
            "What was taken must not be taken again: set it to minus infinity before the next choice.",
            f"{TOP}[:, :top_k] -> {TOP}[:, :1].repeat(top_k, axis=1)",
            answer='choice = tl.where(taken, float("-inf"), choice) -> choice = choice',
        ),
        Slip(
            "lanes beyond the last expert took part",
            "They have to lose every choice: minus infinity there, other=float('-inf') for the bias.",
            *(
                f"choice = scores + bias -> scores = widened(scores, 0.5); choice = {choice}"
                for choice in ("scores + widened(bias, 0)", "widened(scores[:, : len(bias)] + bias, 0)")
            ),
            answer='other=float("-inf")) -> other=0.0)',
        ),
        Slip(
            "the chosen experts were sorted by their index",
            "The largest score with its bias comes first.",
            f"{TOP}[:, :top_k] -> np.sort({TOP}[:, :top_k], axis=1)",
        ),
        Slip(
            "the chosen experts were sorted by their gates",
            "They come in the order in which they are chosen: the largest score + bias first.",
            "kept = np.take_along_axis(scores, experts, axis=1) -> experts = np.take_along_axis(experts, "
            "np.argsort(-np.take_along_axis(scores, experts, axis=1), axis=1, kind='stable'), axis=1)\n"
            "    kept = np.take_along_axis(scores, experts, axis=1)",
        ),
        Slip("the smallest were chosen", "Take the largest ones.", "np.argsort(-choice -> np.argsort(choice"),
        Slip(
            "the chosen experts come in the reverse order",
            "The largest score with its bias comes first.",
            f"{TOP}[:, :top_k] -> {TOP}[:, :top_k][:, ::-1]",
            results=("experts",),
        ),
        Slip(
            "the gates are in another order than their experts",
            "gates[t, i] belongs to experts[t, i].",
            "kept = np.take_along_axis(scores, experts, axis=1) -> "
            "kept = np.take_along_axis(scores, experts, axis=1)[:, ::-1]",
            results=("gates",),
        ),
        Slip(
            "the router was read as [hidden, experts]",
            "router is [experts, hidden], a row for each expert: the numbers of an expert lie side by side.",
            "x @ router.T -> x @ router.reshape(x.shape[1], -1)",
        ),
        Slip(
            "the scores are a softmax",
            "Here each expert has a score of its own, sigmoid(logit).",
            "scores = 1 / (1 + np.exp(-(x @ router.T))) -> scores = np.exp(x @ router.T) / "
            "np.exp(x @ router.T).sum(axis=1, keepdims=True)",
        ),
    ),
    minimum_bytes=router_bytes,
    hints={
        "bytes": f"x is needed once, and the router once for each {ROUTER_TOKENS} tokens: a program takes "
        f"{ROUTER_TOKENS} tokens or more, and holds the scores of all experts in registers through all top_k choices.",
        "wrong": "Print scores, scores + bias and the chosen experts of one token beside torch.topk's.",
        "out_of_bounds": "Mask tokens beyond the last, columns beyond `hidden`, experts beyond the last: none of the "
        "three has to be a multiple of its tile.",
        "some_rows": "Compare scores, sums with the bias and order of one of these tokens with torch's: where single "
        "tokens are wrong their choice was close.",
        "sixteen_bit": "The gates are scale times a score over the sum of the kept scores: nothing is added to that "
        "sum or missing from it, and logits, scores and sums are fp32, from the product on.",
        "unwritten": "A program stores top_k experts and top_k gates for each of its tokens.",
        "torch_work": "Logits, sigmoid and choice happen in the kernel; torch allocates.",
    },
)

# ---------------------------------------------------------------- 11.3 rows in whole tiles


@gives(slots="int32", owners="int32")
def aligned(experts, num_experts, block):
    flat = experts.ravel()
    tiles = (flat.size + num_experts * (block - 1)) // block
    slots, owners = np.full(tiles * block, -1), np.full(tiles, -1)
    row = 0
    for expert in range(num_experts):
        chosen = np.flatnonzero(flat == expert)
        many = ceil(len(chosen), block)
        slots[row : row + len(chosen)] = chosen
        owners[row // block : row // block + many] = expert
        row += many * block
    return slots, owners


def of_choices(tokens, top_k, num_experts, block, skew=1.0):
    def make(rng):
        return {
            "experts": tensor(chosen_by(rng, tokens, top_k, num_experts, skew), "int32"),
            "num_experts": num_experts,
            "block": block,
        }

    return make


def just_full(tokens, num_experts):
    """Top-2, and loads that are whole tiles of half the tokens, or none: one expert is chosen by all, two by half."""

    def make(rng):
        all_, one, other = rng.permutation(num_experts)[:3]
        second = rng.permutation(np.repeat([one, other], tokens // 2))
        pairs = np.stack([np.full(tokens, all_), second], axis=1)
        return {
            "experts": tensor(rng.permuted(pairs, axis=1), "int32"),
            "num_experts": num_experts,
            "block": tokens // 2,
        }

    return make


def three_experts(rng):
    """Top-2 of 3: a load of 16, which fills a tile, and of 20 and 12, which do not."""
    left_out = rng.permutation(np.repeat(rng.permutation(3), [8, 4, 12]))
    pairs = np.stack([(left_out + 1) % 3, (left_out + 2) % 3], axis=1)
    return {"experts": tensor(rng.permuted(pairs, axis=1), "int32"), "num_experts": 3, "block": 16}


COUNTED = 128  # slots that have a count for each expert, by which bytes are judged


def aligned_bytes(experts, num_experts, block):
    slots = experts.shape[0] * experts.shape[1]
    tiles = (slots + num_experts * (block - 1)) // block
    return {
        "experts": 2 * experts.nbytes,
        "returned 0": 2 * 4 * tiles * block,
        "returned 1": 2 * 4 * tiles,
        "counts": 4 * 4 * num_experts * ceil(slots, COUNTED),
    }


ALIGN = Task(
    id="11.3",
    title="Rows in whole tiles",
    points=5,
    functions={"align": aligned},
    kernel=True,
    any_order=True,
    no_readback=True,
    cases=(
        Case("24 tokens, top-2 of 3, tiles of 16, one load of 16", three_experts),
        Case("7 tokens, top-3 of 7, tiles of 4", of_choices(7, 3, 7, 4)),
        Case(
            "300 tokens, top-6 of 33, tiles of 16",
            of_choices(300, 6, 33, 16),
            hint="33 experts are no power of two, and the last tile of slots is not full.",
        ),
        Case(
            "32 tokens, top-2 of 6, tiles of 16, loads that are whole tiles",
            just_full(32, 6),
            hint="A load of 16 fills one tile of 16, and takes no second one; an expert that nobody chose has none.",
        ),
        Case("1 token, top-1 of 1, tiles of 16", of_choices(1, 1, 1, 16)),
        Case("140 tokens, top-1 of 1, tiles of 16", of_choices(140, 1, 1, 16)),
        Case("5 tokens, top-2 of 8, tiles of 32", of_choices(5, 2, 8, 32)),
        Case(f"{64 * MANY} tokens, top-2 of 4, tiles of 64", of_choices(64 * MANY, 2, 4, 64, skew=2)),
    ),
    slips=(
        Slip(
            "rows hold tokens, not slots",
            "A slot is token * top_k + choice: from it both can be had, slot // top_k and slot % top_k.",
            "= chosen\n -> = chosen // experts.shape[1]\n",
        ),
        Slip(
            "the rows of an expert are not in the order of their slots",
            "Stable: of two slots of one expert the lower one comes first. A slot's place is the number of slots of "
            "the same expert before it.",
            "= chosen\n -> = chosen[::-1]\n",
            "= chosen\n -> = sorted(chosen, key=lambda slot: (slot % experts.shape[1], slot))\n",
        ),
        Slip(
            "an expert that nobody chose got a tile",
            "A load of 0 takes no tile: nothing reads that expert's weights then.",
            "many = ceil(len(chosen), block) -> many = max(ceil(len(chosen), block), 1)",
            answer="(load + block - 1) // block -> tl.where(real, tl.maximum((load + block - 1) // block, 1), 0)",
        ),
        Slip(
            "a load that fills its last tile got one tile more",
            "Round up: a load of 16 takes one tile of 16, and a load of 0 takes none.",
            "many = ceil(len(chosen), block) -> many = len(chosen) // block + 1",
            answer="(load + block - 1) // block -> tl.where(real, load // block + 1, 0)",
        ),
        Slip(
            "the experts' rows are not padded",
            "Each expert begins at a multiple of `block`, so that no tile belongs to two.",
            "row += many * block -> row += len(chosen)",
        ),
        Slip(
            "padding holds another number than -1",
            "Rows of no slot are -1, and so are tiles of no expert.",
            "np.full(tiles * block, -1) -> np.full(tiles * block, 0)",
            "np.full(tiles * block, -1) -> np.full(tiles * block, flat.size)",
            answer="row, -1, mask=row < rows) -> row, 0, mask=row < rows)",
            results=("slots",),
        ),
        Slip(
            "tiles beyond the last expert's have an owner",
            "They belong to nobody: -1.",
            "np.full(tiles, -1) -> np.full(tiles, num_experts)",
            "np.full(tiles, -1) -> np.full(tiles, 1 << (num_experts - 1).bit_length())",
            "np.full(tiles, -1) -> np.full(tiles, num_experts - 1)",
            "np.full(tiles, -1) -> np.full(tiles, 0)",
            answer="tl.where(tile < used, owner, -1) -> owner",
            results=("owners",),
        ),
    ),
    minimum_bytes=aligned_bytes,
    hints={
        "bytes": "experts is read twice, to count and to place, by programs that share the slots: a program per expert "
        f"reads all of it for each. A count for each expert and each {COUNTED} slots or more is enough in between.",
        "wrong": "Write down the loads, the loads rounded up, and their running sum: where does each expert begin? "
        "Its slots come in their order, across the tiles of slots too.",
        "race": "Two programs store to the same row. Where padding is filled and slots are placed in one launch, fill "
        "in a launch before. Else two tiles of slots count from the same row on: a tile's slots come behind those of "
        "all tiles before it, expert by expert.",
        "tail": "How many tiles does each load take? One of whole tiles is not padded, and an expert that nobody chose "
        "takes none.",
        "unwritten": "Every row that holds no slot is -1, stored by a kernel, for all tiles * block rows, and so is "
        "every tile without an owner.",
        "out_of_bounds": "Mask slots beyond the last; a masked slot must count for no expert, and be placed nowhere. "
        "And is there as much room as the card says, for any loads?",
        "torch_work": "Counts, running sums and places are computed in kernels: torch.bincount, cumsum and argsort are "
        "launches of their own, and the tensors that they make are large.",
        "shape": "tiles = (tokens * top_k + num_experts * (block - 1)) // block, whatever the loads are: slots has "
        "tiles * block elements, owners has tiles.",
    },
)

# ---------------------------------------------------------------- 11.4 a product over groups


@gives(y="x")
def grouped(x, weight, bias, offsets):
    y = np.empty((len(x), weight.shape[1]))
    for expert in range(len(weight)):
        start, end = offsets[expert], offsets[expert + 1]
        y[start:end] = np.maximum(x[start:end] @ weight[expert].T + bias[expert], 0) ** 2
    return y


def owner_of_tile(offsets, rows, tile):
    """[rows]: the expert of the first row of each row's tile, tiles counted from row 0."""
    first = np.arange(rows) // tile * tile
    return np.searchsorted(offsets, first, side="right") - 1


def of_groups(counts, hidden, inter, dtype="bf16", padding=0, moved=0, silent=0):
    """Experts with so many rows each, in any order. moved: rows that go from the first to the second at each other
    turn, so that the number of tiles is another one. silent: rows of the experts whose sums are all below zero."""

    def make(rng):
        rows, single = sum(counts), inter == 1
        loads = np.array(counts)
        if moved:
            loads[:2] += rng.turn % 2 * moved * np.array([-1, 1])
        loads = rng.permutation(loads)
        low = 0.5 if single else -1.0
        bias = rng.uniform(low, 1, (len(counts), inter))
        bias[(loads == silent) & (loads > 0)] -= 1.1 * hidden
        return {
            "x": tensor(rng.uniform(low, 1, (rows, hidden)), dtype, hidden + padding if padding else None),
            "weight": tensor(rng.uniform(low, 1, (len(counts), inter, hidden)), dtype),
            "bias": tensor(bias),
            "offsets": tensor(np.concatenate([[0], np.cumsum(loads)]), "int32"),
        }

    return make


GROUP_ROWS, GROUP_COLUMNS = 16, 32  # of a tile, by which bytes are judged


def grouped_bytes(x, weight, bias, offsets):
    counts = np.diff(offsets.values)
    experts, inter = weight.shape[:2]
    programs = max(MANY, (ceil(x.shape[0], GROUP_ROWS) + experts) * ceil(inter, GROUP_COLUMNS))
    tiles = int(ceil(counts, GROUP_ROWS).sum())
    return {
        "x": x.nbytes * ceil(inter, GROUP_COLUMNS),
        "weight": weight.nbytes // experts * tiles,
        "bias": bias.nbytes // experts * tiles,
        "offsets": 2 * offsets.nbytes * programs,
        "returned 0": x.itemsize * x.shape[0] * inter,
    }


def of_chosen(x, weight, bias, offsets):
    experts = weight.shape[0]
    busy = int((np.diff(offsets.values) > 0).sum())
    return {"x": x.nbytes, "weight": weight.nbytes // experts * busy, "bias": bias.nbytes // experts * busy}


PRODUCT = "x[start:end] @ weight[expert].T"
GROUPED = Task(
    id="11.4",
    title="Multiply groups, some of them empty",
    points=5,
    functions={"grouped_linear": grouped},
    kernel=True,
    no_readback=True,
    cases=(
        Case("72 rows of four experts, 64 to 48, bf16", of_groups((33, 29, 0, 10), 64, 48, moved=33)),
        Case("1, 33, 0, 0 and 3 rows, 40 to 33, fp16", of_groups((1, 33, 0, 0, 3), 40, 33, "fp16")),
        Case(
            "5 and 20 rows, 24 to 40, bf16, padded rows",
            of_groups((5, 20), 24, 40, padding=11),
            hint="This x has padded rows: the next row starts x.stride(0) elements on. What you allocate has not.",
        ),
        Case(
            "40 rows of 40 experts, most with one, 130 to 33, bf16",
            of_groups((*[1] * 37, 3, 0, 0), 130, 33),
            hint="Each of so many groups has a tile of its own, and K = 130 takes several steps.",
        ),
        Case(
            "16 rows, all of one expert of 12, 64 to 64, bf16",
            of_groups((16, *[0] * 11), 64, 64),
            hint="Eleven of the twelve experts have no rows.",
        ),
        Case(
            "64, 128, 0, 16 and 32 rows, 64 to 136, fp16",
            of_groups((64, 128, 0, 16, 32), 64, 136, "fp16", silent=16),
            hint="Here every group fills its tiles exactly, N = 136 takes several tiles of columns, and the sums of "
            "one group are all below zero.",
        ),
        Case("1 row, 1 to 1, bf16", of_groups((1,), 1, 1)),
        Case("5,400 rows of two experts, 8 to 33, bf16", of_groups((2801, 2599), 8, 33, moved=2801)),
    ),
    slips=(
        Slip(
            "the bias was left out",
            "y is relu(x @ W.T + bias) ** 2.",
            f"{PRODUCT} + bias[expert] -> {PRODUCT}",
            answer="acc + bias[None, :] -> acc",
        ),
        Slip(
            "the bias was added after the square",
            "First the bias, then relu, then the square.",
            f"np.maximum({PRODUCT} + bias[expert], 0) ** 2 -> np.maximum({PRODUCT}, 0) ** 2 + bias[expert]",
        ),
        Slip(
            "the bias was added after relu",
            "First the bias, then relu, then the square.",
            f"np.maximum({PRODUCT} + bias[expert], 0) ** 2 -> (np.maximum({PRODUCT}, 0) + bias[expert]) ** 2",
            answer="tl.maximum(acc + bias[None, :], 0.0) -> tl.maximum(acc, 0.0) + bias[None, :]",
        ),
        Slip(
            "the bias of another expert was added",
            "Each expert has a row of its own: bias + expert * N.",
            "+ bias[expert], 0) -> + bias[0], 0)",
            "+ bias[expert], 0) -> + bias[expert - 1], 0)",
            answer="bias_ptr + expert * N -> bias_ptr + 0 * N",
        ),
        Slip(
            "the square was left out",
            "relu(...) ** 2: the square is taken in fp32, before y is rounded.",
            "0) ** 2 -> 0)",
        ),
        Slip(
            "negative numbers were squared",
            "relu comes before the square.",
            f"np.maximum({PRODUCT} + bias[expert], 0) ** 2 -> ({PRODUCT} + bias[expert]) ** 2",
            answer="tl.maximum(acc + bias[None, :], 0.0) -> acc + bias[None, :]",
        ),
        Slip(
            "relu was left out, and the square",
            "y is relu(x @ W.T + bias) ** 2.",
            f"np.maximum({PRODUCT} + bias[expert], 0) ** 2 -> {PRODUCT} + bias[expert]",
        ),
        Slip(
            "empty experts were not counted",
            "An expert keeps its number where those before it have no rows: its weight is weight[expert], not that of "
            "its place among those that have some.",
            (
                "weight[expert] -> weight[(np.diff(offsets)[:expert] > 0).sum()]",
                "bias[expert] -> bias[(np.diff(offsets)[:expert] > 0).sum()]",
            ),
        ),
        Slip(
            "the weight of another expert was taken",
            "Rows offsets[e] to offsets[e + 1] - 1 belong to expert e.",
            "weight[expert] -> weight[0]",
            ("weight[expert] -> weight[expert - 1]", "bias[expert] -> bias[expert - 1]"),
            (
                "weight[expert] -> weight[(expert + 1) % len(weight)]",
                "bias[expert] -> bias[(expert + 1) % len(weight)]",
            ),
            answer="weight_ptr + expert.to(tl.int64) * N * K -> weight_ptr + 0 * expert.to(tl.int64) * N * K",
        ),
        Slip(
            "a tile went on into the rows of the next expert",
            "A tile belongs to one expert: count tiles within each group, and mask rows from offsets[e + 1] on.",
            "return y -> owner = owner_of_tile(offsets, len(x), TILE)\n"
            "    return np.maximum((x[:, None] @ weight[owner].transpose(0, 2, 1))[:, 0] + bias[owner], 0) ** 2",
        ),
        Slip(
            "one tile of the columns of x counts, and the rest of K does not",
            "K may be wider than a tile: loop over it, and add up in fp32.",
            f"{PRODUCT} -> x[start:end, :TILE] @ weight[expert][:, :TILE].T",
            f"{PRODUCT} -> x[start:end, (x.shape[1] - 1) // TILE * TILE :] @ "
            "weight[expert][:, (x.shape[1] - 1) // TILE * TILE :].T",
            answer="range(0, K, BLOCK_K): -> range(0, 1, BLOCK_K):",
        ),
        Slip(
            "the weight was read transposed",
            "weight[e] is [N, K], as in torch.nn.Linear: an output's weights lie side by side.",
            "weight[expert].T -> weight[expert].reshape(x.shape[1], -1)",
        ),
        Slip(
            "the last group was left out",
            "Group e ends at offsets[e + 1], the last one at offsets[experts].",
            "range(len(weight)): -> range(len(weight) - 1):",
        ),
    ),
    minimum_bytes=grouped_bytes,
    reads=of_chosen,
    hints={
        "bytes": f"The minimum here is x once for each {GROUP_COLUMNS} columns of y, and an expert's weight once for "
        f"each {GROUP_ROWS} of its rows: not at all where it has none. A program that finds no tile returns before it "
        "loads.",
        "wrong": "Let the kernel store its expert's number in place of y, and compare it with offsets. (An error of "
        "1e-2 or less is rounding: sums, bias, relu and square stay in fp32 up to the store.)",
        "some_rows": "Which expert's rows are these, and where in the group? Look at how a program finds its expert "
        "and its first row, and at the mask of rows: the group ends at offsets[e + 1].",
        "out_of_bounds": "Mask rows from offsets[e + 1] on, columns of y beyond N, and columns beyond K in both "
        "operands. A program without a tile must not touch anything.",
        "unwritten": "Where in their groups are these rows? The last one of each: rows up to offsets[e + 1] - 1 count, "
        "and a group's tiles are rounded up. Whole tiles: every group may have one that is not full, so as many as "
        "cdiv(rows, BLOCK_M) + experts may be needed, for each tile of columns. Whole groups: an expert keeps its "
        "number where those before it have no rows. Columns: N need not end with a tile.",
        "race": "A tile that goes on into the next expert's rows overwrites what that expert's program stores: mask "
        "rows from offsets[e + 1] on.",
        "rounded_output": "Sums, bias, relu and square stay in fp32; y is rounded once, at the store.",
        "torch_work": "offsets stay on the device: the kernel reads them, and no torch operation.",
    },
)

# ---------------------------------------------------------------- 11.5 combine


@gives(out="y")
def combined(y, rows, gates, shared):
    kept = rows >= 0
    picked = np.where(kept[..., None], y[np.where(kept, rows, 0)], 0)
    return shared + (gates[..., None] * picked).sum(axis=1)


def of_rows(
    tokens,
    top_k,
    hidden,
    dtype="bf16",
    spare=3,
    drop=0.2,
    y_padding=0,
    shared_padding=0,
    large=1.0,
    small=1.0,
    less=0.0,
):
    """y's rows in any order; `spare` more, among them row 0 and the last, which belong to no slot and hold NaN. large,
    small: factors of y and of the gates. less: if it is not 0, every second choice takes away what the one before gave,
    and this part of it more, and `shared` takes away what is left, but for this part of it."""

    def make(rng):
        slots = tokens * top_k
        dropped = rng.permutation(slots) < int(drop * slots)
        low = 0.5 if hidden == 1 else -1.0
        y = rng.uniform(low, 1, (slots + spare, hidden))
        places = np.arange(slots + spare)
        if spare > 1:
            places = np.concatenate([[0], 1 + rng.permutation(slots + spare - 2), [slots + spare - 1]])
        rows = places[1 : 1 + slots] if spare > 1 else rng.permutation(places)[:slots]
        gates, shared = rng.uniform(0.1, 1.5, (tokens, top_k)), rng.uniform(low, 1, (tokens, hidden))
        if less:
            gates[:, 1::2], y[rows[1::2]] = -(1 + less) * gates[:, ::2], y[rows[::2]]
            shared = (less - 1) * (gates[..., None] * y[rows.reshape(tokens, top_k)]).sum(axis=1)
        rows = np.where(dropped, -1, rows)
        y[np.setdiff1d(places, rows)] = np.nan
        return {
            "y": tensor(large * y, dtype, hidden + y_padding if y_padding else None),
            "rows": tensor(rows.reshape(tokens, top_k), "int32"),
            "gates": tensor(small * gates),
            "shared": tensor(shared, dtype, hidden + shared_padding if shared_padding else None),
        }

    return make


COLUMNS = 128  # of a tile, by which bytes are judged


def combined_bytes(y, rows, gates, shared):
    kept, tiles = int((rows.values >= 0).sum()), ceil(y.shape[1], COLUMNS)
    return {
        "y": y.nbytes // y.shape[0] * kept,
        "rows": rows.nbytes * tiles,
        "gates": gates.nbytes * tiles,
        "shared": shared.nbytes,
        "returned 0": shared.nbytes,
    }


def of_kept(y, rows, gates, shared):
    kept = int((rows.values >= 0).sum())
    return {
        "y": y.nbytes // y.shape[0] * kept,
        "rows": rows.nbytes,
        "gates": gates.itemsize * kept,
        "shared": shared.nbytes,
    }


GATED = "(gates[..., None] * picked).sum(axis=1)"
PICKED = "picked = np.where(kept[..., None], y[np.where(kept, rows, 0)], 0)"
COMBINE = Task(
    id="11.5",
    title="Combine at minimum traffic",
    points=4,
    functions={"combine": combined},
    kernel=True,
    cases=(
        Case("12 tokens, top-2, 256 wide, bf16", of_rows(12, 2, 256)),
        Case(
            "9 tokens, top-6, 100 wide, fp16, padded rows",
            of_rows(9, 6, 100, "fp16", y_padding=28, shared_padding=12),
            hint="y and shared have padded rows, by different amounts: y.stride(0) and shared.stride(0).",
        ),
        Case(
            "10 tokens, top-4, 70 wide, bf16, most of them dropped",
            of_rows(10, 4, 70, drop=0.7),
            hint="Rows of y that belong to no slot hold NaN, and NaN times a gate of 0 is NaN: where rows is -1, "
            "nothing of y may be loaded.",
        ),
        Case("8 tokens, top-1, 33 wide, fp32, every row taken", of_rows(8, 1, 33, "fp32", spare=0, drop=0.0)),
        Case(
            "6 tokens, top-2, 40 wide, fp32, rows of 1e8, gates of 1e-4",
            of_rows(6, 2, 40, "fp32", large=1e8, small=1e-4),
            hint="Small gates count as large ones do, and a result may be any number.",
        ),
        Case("5 tokens, top-3, 1 wide, fp32", of_rows(5, 3, 1, "fp32")),
        Case(
            "3 tokens, top-8, 1025 wide, bf16, gates of either sign",
            of_rows(3, 8, 1025, drop=0.0, less=1 / 16),
            hint="Gates may be negative, and here what one row gives the next one nearly takes away, and `shared` the "
            "rest: products and sums stay in fp32 up to the store.",
        ),
        Case(f"{MANY} tokens, top-2, 16 wide, bf16", of_rows(MANY, 2, 16)),
    ),
    slips=(
        Slip(
            "the gate was applied twice",
            "Multiply each row by its gate once.",
            f"{GATED} -> (gates[..., None] ** 2 * picked).sum(axis=1)",
            answer="gate * expert_row -> gate * gate * expert_row",
        ),
        Slip(
            "the gates were left out",
            "Each row counts with its gate.",
            f"{GATED} -> picked.sum(axis=1)",
            f"{GATED} -> picked.mean(axis=1)",
            answer="gate * expert_row -> expert_row",
        ),
        Slip(
            "the gates were read in the order of the rows",
            "gates is [tokens, top_k]: it lies in the order of the slots, not in that of y's rows.",
            "gates[..., None] * -> gates.ravel()[np.where(kept, rows, 0) % gates.size][..., None] *",
        ),
        Slip(
            "every choice got the gate of the first one",
            "Choice c of token t has gates[t, c].",
            f"{GATED} -> (gates[:, :1, None] * picked).sum(axis=1)",
            answer="gates_ptr + slot) -> gates_ptr + token * TOP_K)",
        ),
        Slip("the shared expert was left out", "out begins with shared[token].", "return shared + -> return "),
        Slip(
            "the shared expert was weighed, too",
            "shared is added as it is, once.",
            f"return shared + {GATED} -> return shared * gates.sum(axis=1, keepdims=True) + {GATED}",
            f"return shared + {GATED} -> return shared * gates.shape[1] + {GATED}",
        ),
        Slip(
            "only the first choice was taken",
            "All top_k rows of a token are added.",
            f"{GATED} -> (gates[..., None] * picked)[:, 0]",
        ),
        Slip(
            "the last choice was left out",
            "All top_k rows of a token are added.",
            f"{GATED} -> (gates[..., None] * picked)[:, :-1].sum(axis=1)",
        ),
        Slip(
            "the gates of a token with dropped choices were scaled up",
            "What was dropped is missing from the sum: the gates that are left stay as they are.",
            "gates[..., None] * -> (gates * gates.sum(axis=1, keepdims=True) / np.maximum((gates * kept)"
            ".sum(axis=1, keepdims=True), 1e-9))[..., None] *",
        ),
        Slip(
            "row 0 of y was left out",
            "Row 0 is a row like every other one: only -1 is none.",
            "kept = rows >= 0 -> kept = rows > 0",
            answer="(row >= 0) -> (row > 0)",
        ),
        Slip(
            "the rows were taken in the order of the slots",
            "rows[t, c] says where in y the answer to choice c of token t lies: y is sorted by expert.",
            f"{PICKED} -> picked = y[: rows.size].reshape(*rows.shape, -1)",
        ),
    ),
    minimum_bytes=combined_bytes,
    reads=of_kept,
    hints={
        "bytes": "Each row of y that counts is read once, shared once, and out is written once: a program adds all "
        "top_k rows of its token in registers. Rows of no slot are not read.",
        "nan": "Rows of y that belong to no slot hold NaN, and NaN times 0 is NaN. Where rows[t, c] is -1 nothing may "
        "be loaded: mask the load, other=0.0.",
        "out_of_bounds": "rows holds -1 where a choice was dropped: that is no row of y. Mask the load by it, and "
        "columns beyond the last in every load and store.",
        "rounded_output": "Add in fp32, and round once, at the store.",
        "sixteen_bit": "Add in fp32, and round once, at the store.",
        "wrong": "Take one token on paper: its rows, its gates, and what was dropped.",
        "some_rows": "Take one of these tokens on paper: its rows, its gates, and what was dropped. Which of them are "
        "in the result?",
        "torch_work": "The kernel finds the rows itself: y[rows] is a copy of all of them.",
    },
)

TASKS = (BALANCE, ROUTE, ALIGN, GROUPED, COMBINE)
