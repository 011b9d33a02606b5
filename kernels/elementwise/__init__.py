"""Elementwise kernels: one pass over their tensors, however many ops they fuse.

copy.py       a copy, whose bandwidth is the yardstick of every memory-bound kernel
pointwise.py  an addition, and a chain of ops in one kernel
bias_gelu.py  GELU of x + bias, forward and backward
dropout.py    the same with dropout, whose mask is recomputed and never stored
rope.py       queries and keys rotated by their positions
swiglu.py     silu(gate) * up, forward and backward
operators.py  the sizes of a call, for `portrait`
"""

from kernels.elementwise.bias_gelu import (
    bias_gelu,
    bias_gelu_backward,
    bias_gelu_backward_traffic,
    bias_gelu_ops,
    bias_gelu_reference,
    bias_gelu_traffic,
)
from kernels.elementwise.copy import copy, copy_reference, copy_traffic
from kernels.elementwise.dropout import (
    bias_gelu_dropout,
    bias_gelu_dropout_ops,
    bias_gelu_dropout_reference,
    bias_gelu_dropout_traffic,
    dropout_mask,
)
from kernels.elementwise.pointwise import (
    add,
    add_reference,
    add_traffic,
    pointwise_chain,
    pointwise_chain_reference,
    pointwise_chain_traffic,
)
from kernels.elementwise.rope import rope, rope_ops, rope_reference, rope_tables, rope_traffic
from kernels.elementwise.swiglu import (
    swiglu,
    swiglu_backward,
    swiglu_backward_traffic,
    swiglu_ops,
    swiglu_reference,
    swiglu_traffic,
)
