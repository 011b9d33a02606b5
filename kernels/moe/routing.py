"""Choices of experts drawn at random, some experts more popular than others, for lessons 11 and 11b and their panels.

Popularity falls with a power of the rank, as in Zipf's law: the nth most popular expert of skew s is chosen first in
proportion to n**-s. A token's experts are drawn one after another without replacement, which gives the same
distribution as the k largest of logits log(popularity) + Gumbel noise (Kool, van Hoof and Welling, 2019): a router of
skew 0 has learned nothing.
"""

from functools import lru_cache

import numpy as np

TOKENS, EXPERTS, TOP_K = 8192, 256, 8  # the most of each
_NAME = EXPERTS - 1  # the bits of a key that say whose it is


@lru_cache
def _races() -> np.ndarray:
    """Waiting times, exponential with mean 1, of every expert for every token: fp32 [TOKENS, EXPERTS]."""
    return np.random.default_rng(11).standard_exponential((TOKENS, EXPERTS), dtype=np.float32)


@lru_cache
def popularity(experts: int, skew: float) -> np.ndarray:
    """How often each expert comes first, in a random order: [experts], adds up to 1."""
    rank = 1 + np.random.default_rng(experts).permutation(experts)
    shares = rank ** -float(skew)
    return shares / shares.sum()


@lru_cache(maxsize=64)
def choices(experts: int, skew: float) -> np.ndarray:
    """The experts that each token prefers, the best first: int32 [TOKENS, at most TOP_K].

    The first arrivals of waiting times with rates `popularity` are drawn in that proportion, without replacement.

    Args:
        experts: A power of two up to EXPERTS.
        skew: The power by which popularity falls.
    """
    times = _races()[:, :experts] / popularity(experts, skew).astype(np.float32)
    keys = times.view(np.int32) & ~_NAME | np.arange(experts, dtype=np.int32)  # positive floats sort as integers do
    most = min(TOP_K, experts)
    first = np.partition(keys, most - 1, axis=1)[:, :most] if most < experts else keys
    return np.sort(first, axis=1) & _NAME


def counts(tokens: int, experts: int, top_k: int, skew: float, first: int = 0) -> np.ndarray:
    """Rows that each expert gets of so many tokens with top_k experts each: int [experts].

    Args:
        tokens: Any number; beyond TOKENS the same tokens come again.
        experts: A power of two up to EXPERTS.
        top_k: At most TOP_K.
        skew: The power by which popularity falls.
        first: The token to begin with; the tokens form a ring.
    """
    skew = round(skew, 2)  # a slider's 0.1 + 0.2 is another number than 0.3
    experts_of = choices(experts, skew)[:, :top_k]
    rounds, first = tokens // TOKENS, first % TOKENS
    rest = experts_of[first : first + tokens % TOKENS], experts_of[: max(0, first + tokens % TOKENS - TOKENS)]
    return rounds * _all(experts, top_k, skew) + sum(np.bincount(part.ravel(), minlength=experts) for part in rest)


@lru_cache
def _all(experts: int, top_k: int, skew: float) -> np.ndarray:
    return np.bincount(choices(experts, skew)[:, :top_k].ravel(), minlength=experts)
