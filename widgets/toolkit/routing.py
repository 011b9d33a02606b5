"""The controls that panels about experts share; kernels/moe/routing.py draws the choices."""

import math

from kernels.moe.routing import EXPERTS, TOKENS, TOP_K
from widgets.toolkit.panel import Powers, real, whole


def routing_controls(tokens: int, experts: int, top_k: int, skew: float) -> dict:
    """Sliders of tokens, experts, top_k and skew, by name, at these values."""
    return {
        "tokens": Powers("tokens", 0, math.log2(TOKENS), tokens),
        "experts": Powers("experts", 3, math.log2(EXPERTS), experts, alone=True),
        "top_k": whole("top-k", 1, TOP_K, top_k),
        "skew": real("skew", 0, 2, skew, 0.1),
    }
