"""The sizes of softmax in its forms, for `portrait`."""

import math

from kernels.shared.operator import ROWS, Operator, row_sizes
from kernels.softmax import (
    causal_softmax,
    causal_softmax_reference,
    causal_softmax_traffic,
    softmax,
    softmax_backward,
    softmax_backward_traffic,
    softmax_readings,
    softmax_readings_traffic,
    softmax_reference,
    softmax_traffic,
)


def _causal_sizes(scores, *_, **__) -> dict:
    *batch, queries, keys = scores.shape
    return {"batch": math.prod(batch), "queries": queries, "keys": keys, "dtype": scores.dtype}


OPERATORS = {
    "softmax": Operator(softmax, softmax_traffic, row_sizes, "softmax", ROWS, reference=softmax_reference),
    "softmax_backward": Operator(softmax_backward, softmax_backward_traffic, row_sizes, "softmax_backward", ROWS),
    "softmax_readings": Operator(softmax_readings, softmax_readings_traffic, row_sizes, "softmax_readings", ROWS),
    "causal_softmax": Operator(
        causal_softmax,
        causal_softmax_traffic,
        _causal_sizes,
        "causal_softmax",
        ("batch", "queries", "keys"),
        reference=causal_softmax_reference,
    ),
}
