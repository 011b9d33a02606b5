"""A step of AdamW for a billion parameters, and for the tensors of one layer of Llama 3 8B in one launch."""

import torch

from bench.cases import Call, Case, launch_of, random
from instruments.backend import device
from kernels.optimizers import adamw, adamw_many, adamw_reference, adamw_traffic

FP32, BF16 = torch.float32, torch.bfloat16
RAGGED = ((1,), (1023,), (70_001,))  # elements
ONE = 1 << 30
#: Parameters of one layer: two norms, the projections of queries, keys, values and the output, and the MLP's three.
LAYER = (4096, 4096, 4096 * 4096, 1024 * 4096, 1024 * 4096, 4096 * 4096, *(4096 * 14336,) * 3)
OPTIONS = {"step": 10, "lr": 1e-7}  # steps are in place and repeated: the parameter must stay near its reference


def _state(size, dtype=FP32):
    """param, grad, m, v."""
    param, grad = random(size, dtype=dtype), random(size, dtype=dtype)
    return param, grad, random(size, dtype=FP32), random(size, dtype=FP32).abs()


def _reference(params, grads, ms, vs, _):
    """The first parameter after a step, in fp64, in pieces: a billion elements of each operand would take 32 GB."""
    pieces = zip(*(lists[0].split(1 << 26) for lists in (params, grads, ms, vs)), strict=True)
    return torch.cat([adamw_reference(*(x.double() for x in piece), **OPTIONS)[0] for piece in pieces])


def _torch(tensors, **how):
    """A step of torch's AdamW with the state of the lists, in place."""
    params, grads, ms, vs, steps = tensors
    return lambda: torch.optim._functional.adamw(
        params, grads, ms, vs, [], steps, capturable=True,
        amsgrad=False, beta1=0.9, beta2=0.999, lr=1e-7, weight_decay=0.01, eps=1e-8, maximize=False, **how,
    )  # fmt: skip


def _case(name, sizes, dtype):
    def arguments():
        lists = tuple(map(list, zip(*(_state(size, dtype) for size in sizes), strict=True)))
        return *lists, [torch.full((), 9.0, device=device()) for _ in sizes]  # torch's count of the steps before

    def one_by_one(*lists):
        for tensors in zip(*lists[:4], strict=True):
            adamw(*tensors, **OPTIONS)
        return lists[0][0]

    def together(*lists):
        adamw_many(*lists[:4], **OPTIONS)
        return lists[0][0]

    def peer(**how):
        def call(*lists):
            _torch(lists, **how)()
            return lists[0][0]

        return call

    return Case(
        name,
        (sum(sizes),),
        dtype,
        arguments,
        adamw_traffic(sum(sizes), dtype),
        _reference,
        {
            "bytes-first": lambda: together,
            "bytes-first, a launch each": lambda: one_by_one,
            "torch, fused": lambda: peer(fused=True, foreach=False),
            "torch, foreach": lambda: peer(fused=False, foreach=True),
        },
    )


def cases() -> list[Case]:
    return [_case("adamw", (ONE,), FP32), _case("adamw_layer", LAYER, FP32), _case("adamw_layer", LAYER, BF16)]


def counter_calls() -> list[Call]:
    return [launch_of(case) for case in cases()[:2]]


def sanitize(size, dtype):
    """One parameter, and three in one launch."""
    states = [_state(n, dtype) for n in (size, 5, 2 * size)]
    adamw(*states[0], **OPTIONS)
    adamw_many(*map(list, zip(*states, strict=True)), **OPTIONS)
