"""A mixture-of-experts layer: route, permute, two grouped matmuls, combine.

layer.py      moe_layer and its traffic, step by step
router.py     the top-k experts of each token and their gates
permute.py    slots sorted by expert, by counting: where each row goes
combine.py    rows moved to the experts (gather_rows) and back, weighted and summed (combine)
balance.py    losses against load imbalance
parallel.py   expert parallelism: the layer over several GPUs
routing.py    experts drawn at random with a skew, for lessons and panels
operators.py  the sizes of each step, for `portrait`

The grouped matmuls are in kernels/grouped_matmul.
"""

from kernels.moe.balance import Losses, balance_loss, losses_reference, losses_traffic, router_losses
from kernels.moe.combine import combine, combine_reference, combine_traffic, gather_rows, gather_traffic
from kernels.moe.layer import (
    experts,
    experts_reference,
    experts_traffic,
    moe_layer,
    moe_layer_reference,
    moe_steps,
    moe_traffic,
)
from kernels.moe.parallel import expert_parallel_layer, expert_parallel_traffic
from kernels.moe.permute import Permutation, expert_capacity, permute, permute_reference, permute_traffic
from kernels.moe.router import Routing, route, router_ops, router_reference, router_traffic
