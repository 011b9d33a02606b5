"""Normalization of rows, forward and backward.

rmsnorm.py, rmsnorm_backward.py      RMSNorm: rows in registers, and wider rows in two passes
cluster.py                           RMSNorm of rows too wide for one CTA, shared by a cluster of them; Gluon, Hopper
add_rmsnorm.py                       residual add and RMSNorm in one kernel; backward: rmsnorm_backward.py, with `dsum`
layernorm.py, layernorm_backward.py  LayerNorm; welford.py computes mean and variance of a wide row in one pass
custom_op.py                         RMSNorm as an op that torch.compile does not look into
models.py                            without a kernel: passes over x, and Welford's update, step by step
operators.py                         the sizes of a call, for `portrait`
ablation.py                          lesson 05's experiment: what makes the second pass over a wide row cheap
"""

from kernels.norms.ablation import second_reading
from kernels.norms.add_rmsnorm import add_rmsnorm, add_rmsnorm_reference, add_rmsnorm_traffic
from kernels.norms.layernorm import layernorm, layernorm_reference, layernorm_traffic
from kernels.norms.layernorm_backward import layernorm_backward, layernorm_backward_traffic
from kernels.norms.rmsnorm import rmsnorm, rmsnorm_ops, rmsnorm_reference, rmsnorm_traffic
from kernels.norms.rmsnorm_backward import rmsnorm_backward, rmsnorm_backward_traffic
