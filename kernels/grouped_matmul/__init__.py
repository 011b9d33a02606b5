"""Grouped matmul: one matmul per group of rows, in one launch.

forward.py     grouped_matmul, its plain kernel, the plan of each path and the traffic model
persistent.py  many rows per group: as many programs as SMs, tiles loaded by TMA
hopper.py      the same for Hopper, in Gluon: warp specialization and asynchronous matmuls
backward.py    the gradient of the weights
operators.py   the sizes of a call, for `portrait`
"""

from kernels.grouped_matmul.backward import (
    grouped_matmul_weight_gradient,
    grouped_matmul_weight_gradient_reference,
    grouped_matmul_weight_gradient_traffic,
)
from kernels.grouped_matmul.forward import grouped_matmul, grouped_matmul_reference, grouped_matmul_traffic
