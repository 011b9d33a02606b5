"""The Hopper matmul step by step (lesson 03b), for the memory checker; bench/machine.py times each step alone."""

from functools import partial

import torch

from bench.cases import Call, by_columns, random
from instruments.backend import device
from kernels.matmul import descriptors, hopper, hopper_steps
from kernels.matmul.tiled import matmul
from kernels.shared.device import is_hopper

RAGGED = ((1, 8, 8), (128, 256, 40), (136, 264, 72), (700, 520, 1000))  # M, N, K: rows on 16 bytes

#: {name: function of a, b and c}
STEPS = {
    "descriptors": descriptors.launch,
    "specialized": partial(descriptors.launch, specialized=True),
    "one slot": partial(hopper_steps.launch, "one slot"),
    "ring": partial(hopper_steps.launch, "ring"),
    "producer": partial(hopper_steps.launch, "producer"),
    "hopper": hopper.launch,
    **{name: partial(hopper.launch, plan=plan) for name, plan in hopper.VARIANTS.items()},
}


def run(name: str, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """a @ b by one of STEPS."""
    c = torch.empty((a.shape[0], b.shape[1]), dtype=a.dtype, device=a.device)
    STEPS[name](a, b, c)
    return c


def cases() -> list:
    return []


def counter_calls() -> list[Call]:
    """Each step, the course's other kernels and torch, at two shapes."""
    functions = {path: partial(matmul, path=path) for path in ("grouped", "persistent")}
    functions |= {"torch": torch.matmul} | {name: partial(run, name) for name in STEPS if name not in hopper.VARIANTS}

    def call(name, n):
        def make():
            a, b = random(n, n, dtype=torch.bfloat16), random(n, n, dtype=torch.bfloat16)
            return lambda: functions[name](a, b)

        return Call("matmul_hopper", name, (n, n, n), make)

    return [call(name, n) for n in (4096, 8192) for name in functions]


def sanitize(M, N, K, dtype):
    """Every step, and the last with b by columns; only 16 bits, on a Hopper GPU."""
    if dtype.itemsize > 2 or not is_hopper(torch.device(device())):
        return
    a, b = random(M, K, dtype=dtype), random(K, N, dtype=dtype)
    for name in STEPS:
        run(name, a, b)
    if M > 1:
        run("hopper", a, by_columns(b))
