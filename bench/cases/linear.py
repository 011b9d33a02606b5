"""Linear layers with an epilogue beside the plain matmul, torch's unfused ops, cuBLASLt and torch.compile."""

from dataclasses import replace
from functools import partial

import torch
import torch.nn.functional as F

from bench import peers
from bench.cases import Call, Case, compiled, launch_of, random
from instruments.backend import device
from kernels.elementwise.bias_gelu import bias_gelu
from kernels.elementwise.swiglu import swiglu_reference
from kernels.linear import (
    interleave_gate_up,
    linear_bias_act,
    linear_reference,
    linear_residual_rmsnorm,
    linear_swiglu,
    linear_traffic,
    matmul_add_traffic,
    qkv_projection,
    rmsnorm_linear,
    weight_gradient,
)
from kernels.matmul import matmul
from kernels.norms.rmsnorm import rmsnorm

BF16 = torch.bfloat16
RAGGED = ((1, 8, 1), (33, 72, 40), (130, 136, 72))  # M, N, K
LARGE = ((8192, 8192, 8192), (16384, 28672, 4096))
QKV = ((4096, 6144, 4096), (16, 6144, 4096))  # Llama 3 8B: 32 heads of queries, 8 of keys and of values, head_dim 128


def _operands(M, N, K):
    return random(M, K, dtype=BF16), random(N, K, dtype=BF16) * K**-0.5


def _plain(x, weight, *_):
    return matmul(x, weight.T)


def _no_epilogue(x, weight, *_):
    return linear_bias_act(x, weight)


#: What each epilogue is compared with in the same run: the matmul without one, and its own kernel without one.
ALONE = dict.fromkeys(
    ("bytes-first, matmul alone", "bytes-first, no epilogue", "quack, matmul alone"),
    lambda x, weight, *_: x.double() @ weight.double().T,
)


def _in_turns(function, tuned=False):
    """{name: factory} of a peer in eager PyTorch and compiled; `tuned` adds what a search of half a minute finds."""
    peers = {"torch": lambda: function, "torch.compile": lambda: compiled(function)}
    if tuned:
        peers["torch.compile, max-autotune"] = lambda: compiled(function, mode="max-autotune-no-cudagraphs")
    return peers


def _gelu(x, weight, bias):
    return F.gelu(F.linear(x, weight, bias), approximate="tanh")


def _cublaslt_gelu(x, weight, bias):
    return torch._addmm_activation(bias, x, weight.T, use_gelu=True)


def gelu_case(M: int, N: int, K: int) -> Case:
    """Bias and GELU after a matmul, y [M, N] of x [M, K]."""
    ours = {
        "bytes-first": lambda: partial(linear_bias_act, activation="gelu"),
        "bytes-first, matmul alone": lambda: _plain,
        "bytes-first, no epilogue": lambda: _no_epilogue,
        "bytes-first, two launches": lambda: lambda x, weight, bias: bias_gelu(matmul(x, weight.T), bias),
        "cublaslt": lambda: _cublaslt_gelu,
        "quack": partial(peers.quack_linear, "gelu_tanh_approx"),
        "quack, matmul alone": peers.quack_linear,
    }
    return Case(
        "linear_bias_gelu",
        (M, N, K),
        BF16,
        lambda: (*_operands(M, N, K), random(N, dtype=BF16)),
        linear_traffic(M, N, K, BF16, bias=True),
        lambda x, weight, bias: linear_reference(x.double(), weight.double(), bias.double(), "gelu"),
        ours | _in_turns(_gelu, tuned=M == 8192),
        ALONE,
    )


def _residual_case(M, N, K):
    return Case(
        "linear_residual",
        (M, N, K),
        BF16,
        lambda: (*_operands(M, N, K), random(M, N, dtype=BF16)),
        linear_traffic(M, N, K, BF16, residual=True),
        lambda x, weight, residual: x.double() @ weight.double().T + residual.double(),
        {
            "bytes-first": lambda: lambda x, weight, residual: linear_bias_act(x, weight, residual=residual),
            "bytes-first, matmul alone": lambda: _plain,
            "bytes-first, no epilogue": lambda: _no_epilogue,
            "cublaslt": lambda: lambda x, weight, residual: torch.addmm(residual, x, weight.T),
            "quack": peers.quack_linear_residual,
            **_in_turns(lambda x, weight, residual: F.linear(x, weight) + residual),
        },
        ALONE,
    )


def _swiglu(x, weight, _):
    gate, up = F.linear(x, weight).unflatten(1, (-1, 2)).unbind(2)
    return F.silu(gate) * up


def _swiglu_halves(x, _, weight):
    return swiglu_reference(*F.linear(x, weight).chunk(2, dim=1))


def _swiglu_case(M, N, K):
    def arguments():
        """x, the weight with gate and up in turns, and with all of gate before all of up."""
        gate, up = (random(N // 2, K, dtype=BF16) * K**-0.5 for _ in range(2))
        return random(M, K, dtype=BF16), interleave_gate_up(gate, up), torch.cat([gate, up])

    def quack():
        function = peers.quack_linear("swiglu")
        return lambda x, weight, _: function(x, weight)

    return Case(
        "linear_swiglu",
        (M, N, K),
        BF16,
        arguments,
        linear_traffic(M, N, K, BF16, swiglu=True),
        lambda x, weight, _: linear_reference(x.double(), weight.double(), activation="swiglu"),
        {
            "bytes-first": lambda: lambda x, weight, _: linear_swiglu(x, weight),
            "bytes-first, matmul alone": lambda: _plain,
            "bytes-first, no epilogue": lambda: _no_epilogue,
            "quack": quack,
            **_in_turns(_swiglu),
            "torch, side by side": lambda: _swiglu_halves,
            "torch.compile, side by side": lambda: compiled(_swiglu_halves),
        },
        ALONE,
    )


def _chain(x, weight, bias, residual):
    return F.gelu(F.linear(x, weight, bias), approximate="tanh") + residual


def _chain_case(M, N, K):
    """Bias, GELU and residual: all three epilogues at once."""

    def launches(x, weight, bias, residual):
        return F.gelu(matmul(x, weight.T) + bias, approximate="tanh") + residual

    return Case(
        "linear_bias_gelu_residual",
        (M, N, K),
        BF16,
        lambda: (*_operands(M, N, K), random(N, dtype=BF16), random(M, N, dtype=BF16)),
        linear_traffic(M, N, K, BF16, bias=True, residual=True),
        lambda x, weight, bias, residual: linear_reference(
            x.double(), weight.double(), bias.double(), "gelu", residual.double()
        ),
        {
            "bytes-first": lambda: (
                lambda x, weight, bias, residual: linear_bias_act(x, weight, bias, activation="gelu", residual=residual)
            ),
            "bytes-first, no epilogue": lambda: _no_epilogue,
            "bytes-first, four launches": lambda: launches,
            **_in_turns(_chain),
        },
        ALONE,
    )


def _depth_case(K):
    """Bias and GELU at another K: the epilogue's work is the same."""
    ours = ("bytes-first", "bytes-first, no epilogue")
    case = gelu_case(8192, 8192, K)
    return replace(case, implementations={name: case.implementations[name] for name in ours})


def _input_gradient_case(M, N, K):
    return Case(
        "input_gradient",
        (M, N, K),
        BF16,
        lambda: (random(M, K, dtype=BF16), random(K, N, dtype=BF16) * K**-0.5),
        linear_traffic(M, N, K, BF16),
        lambda dy, weight: dy.double() @ weight.double(),
        {"bytes-first": lambda: matmul, "torch": lambda: torch.matmul},
    )


def _qkv_case(M, N, K):
    heads, kv_heads = 32, 8

    def three(x, weight):
        return [F.linear(x, part) for part in weight.split((4096, 1024, 1024))]

    return Case(
        "qkv_projection",
        (M, N, K),
        BF16,
        lambda: _operands(M, N, K),
        linear_traffic(M, N, K, BF16),
        lambda x, weight: (x.double() @ weight.double().T)[:, :4096].unflatten(1, (32, 128)),
        {
            "bytes-first": lambda: lambda x, weight: qkv_projection(x, weight, heads, kv_heads)[0],
            "torch": lambda: lambda x, weight: F.linear(x, weight)[:, :4096].unflatten(1, (32, 128)),
            "three matmuls": lambda: lambda x, weight: three(x, weight)[0].unflatten(1, (32, 128)),
            "torch, q alone": lambda: lambda x, weight: F.linear(x, weight[:4096]).unflatten(1, (32, 128)),
            "torch, k alone": lambda: lambda x, weight: F.linear(x, weight[4096:5120]),
        },
        {"torch, k alone": lambda x, weight: x.double() @ weight[4096:5120].double().T},
    )


def _norm_case(M, N, K):
    def two(x, weight):
        return F.linear(F.rms_norm(x, x.shape[-1:], eps=1e-6), weight)

    def ours():
        ones = torch.ones(K, dtype=BF16, device=device())  # made once, not in the timed call
        return lambda x, weight: matmul(rmsnorm(x, ones), weight.T)

    return Case(
        "rmsnorm_linear",
        (M, N, K),
        BF16,
        lambda: _operands(M, N, K),
        linear_traffic(M, N, K, BF16),
        lambda x, weight: F.rms_norm(x.double(), x.shape[-1:], eps=1e-6) @ weight.double().T,
        {"bytes-first": lambda: rmsnorm_linear, "bytes-first, two launches": ours, **_in_turns(two)},
    )


def _weight_gradient_case(M, N, K, add):
    def total(dy):
        return torch.zeros(N, K, device=dy.device) if add else None

    ours = {"bytes-first": lambda: lambda dy, x, total: weight_gradient(dy, x, total=total)}
    if not add:
        ours["bytes-first, dy copied"] = lambda: lambda dy, x, _: matmul(dy.T, x)
        ours["torch"] = lambda: lambda dy, x, _: dy.T @ x
    return Case(
        "weight_gradient_added" if add else "weight_gradient",
        (M, N, K),
        BF16,
        lambda: (*(pair := (random(M, N, dtype=BF16), random(M, K, dtype=BF16))), total(pair[0])),
        matmul_add_traffic(N, K, M, BF16, add=add),
        lambda dy, x, total: dy.double().T @ x.double(),
        ours,
    )


def cases() -> list[Case]:
    large = [case(*shape) for shape in LARGE for case in (gelu_case, _residual_case, _swiglu_case)]
    return (
        large
        + [_qkv_case(*shape) for shape in QKV]
        + [_norm_case(*shape) for shape in QKV]
        + [_chain_case(*LARGE[1])]
        + [_depth_case(K) for K in (2048, 4096, 16384)]
        + [_input_gradient_case(8192, 4096, 14336)]
        + [_weight_gradient_case(8192, 14336, 4096, add) for add in (False, True)]
    )


def counter_calls() -> list[Call]:
    """Each epilogue beside the matmul alone and cuBLASLt's; RMSNorm and a projection of 16 tokens."""
    square, few = LARGE[0], QKV[1]
    gelu = gelu_case(*square)
    calls = [launch_of(gelu, name) for name in ("bytes-first", "bytes-first, matmul alone", "cublaslt")]
    return calls + [launch_of(case) for case in (_residual_case(*square), _swiglu_case(*square), _norm_case(*few))]


def sanitize(M, N, K, dtype):
    """Every epilogue in both kernels."""
    x, weight = random(M, K, dtype=dtype), random(N, K, dtype=dtype)
    bias, residual = random(N, dtype=dtype), random(M, N, dtype=dtype)
    for path in ("plain", *(["persistent"] if dtype == BF16 else [])):
        for activation in (None, "relu", "gelu", "silu"):
            linear_bias_act(x, weight, bias, activation=activation, residual=residual, path=path)
        linear_swiglu(x, weight, path=path if N % 16 == 0 or dtype != BF16 else "plain")
        rmsnorm_linear(x, weight, path=path)
    for path in ("plain", None):
        weight_gradient(residual, x, path=path)
        weight_gradient(residual, x, total=torch.zeros(N, K, device=x.device), path=path)
    linear_residual_rmsnorm(x, weight, residual, random(N, dtype=dtype))
    qkv_projection(x, weight, N // 4, N // 8)
