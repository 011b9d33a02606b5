"""Linear layers: a matmul and what follows it, in one launch.

forward.py    the two kernels, plain and persistent, with their epilogues; plans and the reference
backward.py   the two matmuls of the gradients, and matmul_add: a matmul added to an fp32 total
layers.py     the public functions: bias and activation, SwiGLU, packed queries, keys and values, RMSNorm

Start with linear_plain_kernel in forward.py.
"""

from kernels.linear.backward import (
    linear_backward,
    linear_backward_traffic,
    matmul_add,
    matmul_add_traffic,
    weight_gradient,
)
from kernels.linear.forward import linear_reference
from kernels.linear.layers import (
    fold_norm_weight,
    interleave_gate_up,
    linear_bias_act,
    linear_ops,
    linear_residual_rmsnorm,
    linear_swiglu,
    linear_traffic,
    qkv_projection,
    rmsnorm_linear,
)
