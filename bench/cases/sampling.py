"""Sampling one token per row, with noise, top-k and top-p. Draws cannot be compared with a reference, the greedy
token can: it is what is timed with torch beside it."""

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


def _case(rows, cols):
    return Case(
        "sample_top_k",
        (rows, cols),
        BF16,
        lambda: (random(rows, cols, dtype=BF16),),
        sample_top_k_traffic(rows, cols, BF16),
        lambda logits: logits.double().argmax(1).double(),
        {
            "bytes-first": lambda: lambda logits: sample_top_k(logits, temperature=0),
            "torch": lambda: lambda logits: logits.argmax(1),
            "bytes-first, k 50, p 0.9": lambda: lambda logits: sample_top_k(logits, 50, 0.9),
            "torch, k 50, p 0.9": lambda: lambda logits: _torch(logits, 50, 0.9),
        },
    )


def cases() -> list[Case]:
    return [_case(*shape) for shape in SHAPES]


def sanitize(rows, cols, dtype):
    """Greedy, top-k, top-p and both."""
    logits = random(rows, cols, dtype=dtype)
    for options in ({"temperature": 0}, {"k": 5}, {"p": 0.5}, {"k": 50, "p": 0.9}):
        sample_top_k(logits, **options)
