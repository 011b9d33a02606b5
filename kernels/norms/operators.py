"""The sizes of the norms, for `portrait`."""

from kernels.norms.add_rmsnorm import add_rmsnorm, add_rmsnorm_reference, add_rmsnorm_traffic
from kernels.norms.layernorm import layernorm, layernorm_reference, layernorm_traffic
from kernels.norms.layernorm_backward import layernorm_backward, layernorm_backward_traffic
from kernels.norms.rmsnorm import rmsnorm, rmsnorm_reference, rmsnorm_traffic
from kernels.norms.rmsnorm_backward import rmsnorm_backward, rmsnorm_backward_traffic
from kernels.shared.operator import ROWS, Operator, row_sizes


def _rmsnorm_sizes(x, weight=None, *_, **__) -> dict:
    return {**row_sizes(x), "weight_dtype": None if weight is None else weight.dtype}


OPERATORS = {
    "rmsnorm": Operator(rmsnorm, rmsnorm_traffic, _rmsnorm_sizes, "rmsnorm", ROWS, reference=rmsnorm_reference),
    "rmsnorm_backward": Operator(rmsnorm_backward, rmsnorm_backward_traffic, row_sizes, "rmsnorm_backward", ROWS),
    "add_rmsnorm": Operator(
        add_rmsnorm, add_rmsnorm_traffic, row_sizes, "add_rmsnorm", ROWS, reference=add_rmsnorm_reference
    ),
    "layernorm": Operator(layernorm, layernorm_traffic, row_sizes, "layernorm", ROWS, reference=layernorm_reference),
    "layernorm_backward": Operator(
        layernorm_backward, layernorm_backward_traffic, row_sizes, "layernorm_backward", ROWS
    ),
}
