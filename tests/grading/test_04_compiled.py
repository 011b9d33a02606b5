"""The kernels of exercise 04's solution compile for real GPUs, without spills."""

import pytest
import torch
from grading_tools import answers, module_of

from instruments import backend
from instruments.compiled import compile_launch

SOLUTION = answers("04_fusion")
BF16 = torch.bfloat16

CALLS = {
    "chain": (
        "04.2",
        lambda m: m.fused_chain(torch.empty(2, 8192, dtype=BF16), torch.empty(8192), torch.empty(8192), 4.0),
    ),
    "bias + GELU": ("04.3", lambda m: m.bias_gelu(torch.empty(32, 8192, dtype=BF16), torch.empty(8192))),
    "SwiGLU": ("04.4", lambda m: m.swiglu(torch.empty(2, 8192, dtype=BF16))),
    "SwiGLU backward": (
        "04.4",
        lambda m: m.swiglu_backward(torch.empty(2, 4096, dtype=BF16), torch.empty(2, 8192, dtype=BF16)),
    ),
}


@pytest.mark.parametrize("arch", [80, 90])
@pytest.mark.parametrize("name", CALLS)
def test_the_solutions_kernels_compile_without_spills(name, arch):
    task, call = CALLS[name]
    with backend.captured() as records:
        call(module_of(SOLUTION[task]))
    assert len(records) == 1 and compile_launch(records[0], arch=arch).spills == 0
