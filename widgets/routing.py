"""Where the tokens of panels about experts go: choices drawn by lot, some experts more popular than others.

Popularity falls with a power of the place, as Zipf's law has it: the nth most popular expert of skew s is chosen first
in proportion to n**-s. A token's experts are drawn one after another without putting back, which is what the k largest
of logits log(popularity) + Gumbel noise are (Kool, van Hoof and Welling 2019): a router of skew 0 knows nothing.
"""

import math
from functools import lru_cache

import numpy as np

from widgets.panel import Powers, real, whole

TOKENS, EXPERTS, TOP_K = 8192, 256, 8  # the most of each
_NAME = EXPERTS - 1  # the bits of a key that say whose it is


@lru_cache
def _races() -> np.ndarray:
    """Waiting times, exponential with mean 1, of every expert for every token: fp32 [TOKENS, EXPERTS]."""
    return np.random.default_rng(11).standard_exponential((TOKENS, EXPERTS), dtype=np.float32)


@lru_cache
def popularity(experts: int, skew: float) -> np.ndarray:
    """How often each expert comes first, in an order drawn by lot: [experts], adds up to 1."""
    place = 1 + np.random.default_rng(experts).permutation(experts)
    shares = place ** -float(skew)
    return shares / shares.sum()


@lru_cache(maxsize=64)
def choices(experts: int, skew: float) -> np.ndarray:
    """Of each token the experts it prefers, the best first: int32 [TOKENS, at most TOP_K].

    The first to arrive of waiting times with rates `popularity` are drawn in that proportion, without putting back.
    """
    times = _races()[:, :experts] / popularity(experts, skew).astype(np.float32)
    keys = times.view(np.int32) & ~_NAME | np.arange(experts, dtype=np.int32)  # positive floats sort as integers do
    most = min(TOP_K, experts)
    first = np.partition(keys, most - 1, axis=1)[:, :most] if most < experts else keys
    return np.sort(first, axis=1) & _NAME


def counts(tokens: int, experts: int, top_k: int, skew: float, first: int = 0) -> np.ndarray:
    """Rows that each expert gets of so many tokens with top_k experts each: int [experts].

    first: the token to begin with; the tokens are a ring.
    """
    skew = round(skew, 2)  # as a slider gives it, 0.1 + 0.2 is another number than 0.3
    chosen = choices(experts, skew)[:, :top_k]
    turns, first = tokens // TOKENS, first % TOKENS
    some = chosen[first : first + tokens % TOKENS], chosen[: max(0, first + tokens % TOKENS - TOKENS)]
    return turns * _all(experts, top_k, skew) + sum(np.bincount(part.ravel(), minlength=experts) for part in some)


@lru_cache
def _all(experts: int, top_k: int, skew: float) -> np.ndarray:
    return np.bincount(choices(experts, skew)[:, :top_k].ravel(), minlength=experts)


def controls(tokens: int, experts: int, top_k: int, skew: float) -> dict:
    """The controls of a panel about tokens and their experts, by name, where they stand at first."""
    return {
        "tokens": Powers("tokens", 0, math.log2(TOKENS), tokens),
        "experts": Powers("experts", 3, math.log2(EXPERTS), experts, alone=True),
        "top_k": whole("top-k", 1, TOP_K, top_k),
        "skew": real("skew", 0, 2, skew, 0.1),
    }
