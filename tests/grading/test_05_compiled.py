"""The kernels of exercise 05's solution compile for real GPUs, and keep their rows in registers."""

import pytest
import torch
from grading_tools import answers, module_of

from instruments import backend
from instruments.compiled import compile_launch

SOLUTION = answers("05_rmsnorm")


def call_resident(module, cols, dtype):
    module.gemma_norm(torch.empty(2, cols, dtype=dtype), torch.empty(cols), 1e-6)


def call_streaming(module, cols, dtype):
    module.wide_norm(torch.empty(2, cols, dtype=dtype), torch.empty(cols), 1e-6, dtype)


def call_added(module, cols, dtype):
    module.add_gemma_norm(torch.empty(2, cols, dtype=dtype), torch.empty(2, cols), torch.empty(cols), 1e-6)


@pytest.mark.parametrize("arch", [80, 90])
@pytest.mark.parametrize(
    "task, call, cols",
    [
        ("05.3", call_resident, 8192),
        ("05.3", call_resident, 1000),
        ("05.4", call_streaming, 65536),
        ("05.5", call_added, 8192),
    ],
)
def test_the_solutions_kernels_compile_without_spills(task, call, cols, arch):
    with backend.captured() as records:
        call(module_of(SOLUTION[task]), cols, torch.bfloat16)
    assert len(records) == 1 and compile_launch(records[0], arch=arch).spills == 0
