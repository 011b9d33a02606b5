# wrong, exception: make_op
import torch


def faults(gate_up, dy):
    half = gate_up.chunk(2, dim=1)[0]  # empty_like keeps the strides of what has no gaps
    kept = half.mT.is_contiguous()
    return "strides" if kept else "", "" if gate_up.dtype == torch.float32 else "dtype"


def compiled_gradient(gate_up, dy):
    """No op at all: what is given below the answer counts."""
    gate, up = (3 * gate_up).chunk(2, dim=1)
    dx = torch.cat([2 * dy * up * (gate > 0), 2 * dy * gate.relu()], dim=1)
    return True, 2 * gate.relu() * up, 3 * dx
