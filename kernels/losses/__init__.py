"""The loss of a language model.

cross_entropy.py          loss and gradient of logits that are there, without probabilities
linear_cross_entropy.py   the same of x @ weight^T: logits stored whole, overwritten by their gradient, or in chunks
"""

from kernels.losses.cross_entropy import (
    cross_entropy,
    cross_entropy_reference,
    cross_entropy_traffic,
    cross_entropy_with_gradient,
)
from kernels.losses.linear_cross_entropy import (
    linear_cross_entropy,
    linear_cross_entropy_reference,
    linear_cross_entropy_traffic,
)
