"""Linear layers: a matmul and what follows it, in one launch.

forward.py    the two kernels, plain and persistent, with their epilogues; plans and the reference
layers.py     the public functions: bias and activation, SwiGLU, packed queries, keys and values, RMSNorm

Start with linear_plain_kernel in forward.py.
"""

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
