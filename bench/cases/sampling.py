"""Sampling one token per row: the largest logit, and a draw with top-k 50 and top-p 0.9. The law of the draws is what
tests/kernels/sampling holds."""

import torch

from bench.cases import Case, random
from kernels.sampling import sample_top_k, sample_top_k_traffic

BF16 = torch.bfloat16
RAGGED = ((1, 1), (3, 4097), (5, 50_257))  # rows, vocabulary
SHAPES = ((64, 128_256), (1, 128_256))


def _torch(logits, k, p):
    """top-k, softmax, top-p and a draw, as generation libraries write them; the values are the first kept logits."""
    values, tokens = logits.topk(k)
    probabilities = values.float().softmax(1)
    probabilities *= probabilities.cumsum(1) - probabilities < p
    return tokens.gather(1, torch.multinomial(probabilities, 1))[:, 0]


def _case(name, rows, cols, reference, ours, torchs):
    return Case(
        name,
        (rows, cols),
        BF16,
        lambda: (random(rows, cols, dtype=BF16),),
        sample_top_k_traffic(rows, cols, BF16),
        reference,
        {"bytes-first": lambda: ours, "torch": lambda: torchs},
    )


def _greedy(logits):
    return sample_top_k(logits, temperature=0)


def _drawn(logits):
    return sample_top_k(logits, 50, 0.9)


def cases() -> list[Case]:
    greedy = [
        _case("sample_greedy", *shape, lambda x: x.double().argmax(1).double(), _greedy, lambda x: x.argmax(1))
        for shape in SHAPES
    ]
    # the reference of a draw is the draw itself, which checks no more than that a seed gives the same tokens again
    return greedy + [
        _case("sample_top_k", *shape, lambda x: _drawn(x).double(), _drawn, lambda x: _torch(x, 50, 0.9))
        for shape in SHAPES
    ]


def sanitize(rows, cols, dtype):
    """Greedy, top-k, top-p and both."""
    logits = random(rows, cols, dtype=dtype)
    for options in ({"temperature": 0}, {"k": 5}, {"p": 0.5}, {"k": 50, "p": 0.9}):
        sample_top_k(logits, **options)
