"""What bench/run.py times: for each kernel and shape, the course's function and every peer that computes the same.

A case's arguments are random, 16-bit unless said otherwise. `reference` computes the result in fp64; the first tensor
of an implementation's result is compared with it. A peer's function is made by a factory, which raises ImportError
where the peer is not installed.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F

from instruments.gpus import DTYPES, dtype_name
from instruments.traffic import Traffic
from kernels import (
    add_rmsnorm,
    bias_gelu,
    copy,
    dropout,
    layernorm,
    layernorm_backward,
    matmul,
    pointwise,
    reduce,
    rmsnorm,
    rmsnorm_backward,
    swiglu,
)

EPS = 1e-6


@dataclass(frozen=True)
class Case:
    """One kernel at one shape. implementations: name -> factory of a function of the arguments."""

    kernel: str
    shape: tuple
    dtype: torch.dtype
    arguments: Callable
    traffic: Traffic
    reference: Callable
    implementations: dict = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.kernel} {'x'.join(map(str, self.shape))} {dtype_name(self.dtype)}"


def _random(*shape, dtype):
    return torch.randn(*shape, device="cuda").to(dtype)


def _compiled(function):
    torch._dynamo.reset()
    return torch.compile(function, dynamic=False)


def _rmsnorm(rows, cols, dtype=torch.bfloat16, paths=()):

    def torch_norm(x, weight):
        return F.rms_norm(x, (cols,), weight, EPS)

    def liger():
        from liger_kernel.ops.rms_norm import rms_norm_forward

        return lambda x, weight: rms_norm_forward(x, weight, EPS, 0.0, "llama", None)[0]

    implementations = {
        "bytes-first": lambda: lambda x, weight: rmsnorm.rmsnorm(x, weight, EPS),
        "torch": lambda: torch_norm,
        "torch.compile": lambda: _compiled(torch_norm),
        "liger": liger,
        "eager ops": lambda: lambda x, weight: rmsnorm.rmsnorm_reference(x, weight, EPS),
    }
    for path in paths:
        implementations[f"bytes-first, {path}"] = lambda path=path: (
            lambda x, weight: rmsnorm.rmsnorm(x, weight, EPS, path=path)
        )
    return Case(
        "rmsnorm",
        (rows, cols),
        dtype,
        lambda: (_random(rows, cols, dtype=dtype), _random(cols, dtype=dtype)),
        rmsnorm.rmsnorm_traffic(rows, cols, dtype),
        lambda x, weight: rmsnorm.rmsnorm_reference(x.double(), weight.double(), EPS),
        implementations,
    )


def _add_rmsnorm(rows, cols, dtype=torch.bfloat16):

    def eager(x, residual, weight):
        total = x + residual
        return F.rms_norm(total, (cols,), weight, EPS), total

    def liger():
        from liger_kernel.ops.fused_add_rms_norm import fused_add_rms_norm_forward

        return lambda x, residual, weight: fused_add_rms_norm_forward(x, residual, weight, EPS, 0.0, "llama")[:2]

    return Case(
        "add_rmsnorm",
        (rows, cols),
        dtype,
        lambda: (_random(rows, cols, dtype=dtype), _random(rows, cols, dtype=dtype), _random(cols, dtype=dtype)),
        add_rmsnorm.add_rmsnorm_traffic(rows, cols, dtype),
        lambda x, residual, weight: rmsnorm.rmsnorm_reference((x + residual).double(), weight.double(), EPS),
        {
            "bytes-first": lambda: lambda x, residual, weight: add_rmsnorm.add_rmsnorm(x, residual, weight, EPS),
            "torch": lambda: eager,
            "torch.compile": lambda: _compiled(eager),
            "liger": liger,
        },
    )


def _rmsnorm_backward(rows, cols, dtype=torch.bfloat16):

    def scale_of(x):
        return torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + EPS)

    def torch_backward():
        backward = torch.ops.aten._fused_rms_norm_backward
        return lambda dy, x, weight, scale: backward(dy, x, [cols], scale, weight, [True, True])

    def liger():
        from liger_kernel.ops.rms_norm import rms_norm_backward, rms_norm_forward

        x, weight = _random(2, cols, dtype=dtype), _random(cols, dtype=dtype)
        *_, block, warps, casting = rms_norm_forward(x, weight, EPS, 0.0, "llama", None)
        return lambda dy, x, weight, scale: rms_norm_backward(
            dy, x, weight, scale.view(-1), 0.0, casting, block, warps, False, None
        )[:2]

    def reference(dy, x, weight, scale):
        x = x.double().requires_grad_()
        rmsnorm.rmsnorm_reference(x, weight.double(), EPS).backward(dy.double())
        return x.grad

    def arguments():
        x = _random(rows, cols, dtype=dtype)
        return _random(rows, cols, dtype=dtype), x, _random(cols, dtype=dtype), scale_of(x)

    return Case(
        "rmsnorm_backward",
        (rows, cols),
        dtype,
        arguments,
        _minimum({"x": 1, "dy": 1}, {"dx": 1}, rows, cols, dtype),
        reference,
        {
            "bytes-first": lambda: lambda dy, x, weight, scale: rmsnorm_backward.rmsnorm_backward(dy, x, weight, EPS),
            "torch": torch_backward,
            "liger": liger,
        },
    )


def _minimum(read: dict, written: dict, rows, cols, dtype) -> Traffic:
    full = rows * cols * dtype.itemsize
    weight = cols * dtype.itemsize
    return Traffic(
        {**{n: k * full for n, k in read.items()}, "weight": weight},
        {**{n: k * full for n, k in written.items()}, "dweight": weight},
    )


def _layernorm(rows, cols, dtype=torch.bfloat16):

    def torch_norm(x, weight, bias):
        return F.layer_norm(x, (cols,), weight, bias, 1e-5)

    def liger():
        from liger_kernel.ops.layer_norm import layer_norm_forward

        return lambda x, weight, bias: layer_norm_forward(x, weight, bias, 1e-5)[0]

    return Case(
        "layernorm",
        (rows, cols),
        dtype,
        lambda: (_random(rows, cols, dtype=dtype), _random(cols, dtype=dtype), _random(cols, dtype=dtype)),
        layernorm.layernorm_traffic(rows, cols, dtype),
        lambda x, weight, bias: layernorm.layernorm_reference(x.double(), weight.double(), bias.double()),
        {
            "bytes-first": lambda: layernorm.layernorm,
            "torch": lambda: torch_norm,
            "torch.compile": lambda: _compiled(torch_norm),
            "liger": liger,
        },
    )


def _layernorm_backward(rows, cols, dtype=torch.bfloat16):

    def torch_backward():
        backward = torch.ops.aten.native_layer_norm_backward
        return lambda dy, x, weight, bias, mean, scale: backward(dy, x, [cols], mean, scale, weight, bias, [True] * 3)

    def liger():
        from liger_kernel.ops.layer_norm import layer_norm_backward

        return lambda dy, x, weight, bias, mean, scale: layer_norm_backward(
            dy, x, weight, bias, mean.view(-1), scale.view(-1)
        )

    def reference(dy, x, weight, bias, mean, scale):
        x = x.double().requires_grad_()
        layernorm.layernorm_reference(x, weight.double(), bias.double()).backward(dy.double())
        return x.grad

    def arguments():
        x = _random(rows, cols, dtype=dtype)
        mean = x.float().mean(-1, keepdim=True)
        scale = torch.rsqrt(x.float().var(-1, unbiased=False, keepdim=True) + 1e-5)
        return (
            _random(rows, cols, dtype=dtype),
            x,
            _random(cols, dtype=dtype),
            _random(cols, dtype=dtype),
            mean,
            scale,
        )

    return Case(
        "layernorm_backward",
        (rows, cols),
        dtype,
        arguments,
        _minimum({"x": 1, "dy": 1}, {"dx": 1}, rows, cols, dtype),
        reference,
        {
            "bytes-first": lambda: (
                lambda dy, x, weight, bias, mean, scale: layernorm_backward.layernorm_backward(
                    dy, x, weight, bias, 1e-5
                )
            ),
            "torch": torch_backward,
            "liger": liger,
        },
    )


def _copy(rows, cols, dtype=torch.bfloat16):
    return Case(
        "copy",
        (rows, cols),
        dtype,
        lambda: (_random(rows, cols, dtype=dtype),),
        copy.copy_traffic(rows * cols, dtype),
        lambda x: x.double(),
        {
            "bytes-first": lambda: copy.copy,
            "torch": lambda: lambda x: x + 0,  # torch's clone becomes a copy node in a graph, another engine's
        },
    )


def _swiglu(rows, cols, dtype=torch.bfloat16):

    def liger():
        from liger_kernel.ops.swiglu import LigerSiLUMulFunction

        return LigerSiLUMulFunction.apply

    return Case(
        "swiglu",
        (rows, cols),
        dtype,
        lambda: (_random(rows, cols, dtype=dtype), _random(rows, cols, dtype=dtype)),
        swiglu.swiglu_traffic(rows * cols, dtype),
        lambda gate, up: swiglu.swiglu_reference(gate.double(), up.double()),
        {
            "bytes-first": lambda: swiglu.swiglu,
            "torch": lambda: swiglu.swiglu_reference,
            "torch.compile": lambda: _compiled(swiglu.swiglu_reference),
            "liger": liger,
        },
    )


def _swiglu_backward(rows, cols, dtype=torch.bfloat16):

    def eager(dy, gate, up):
        return torch.ops.aten.silu_backward(dy * up, gate), dy * F.silu(gate)

    def reference(dy, gate, up):
        gate = gate.double().requires_grad_()
        swiglu.swiglu_reference(gate, up.double()).backward(dy.double())
        return gate.grad

    return Case(
        "swiglu_backward",
        (rows, cols),
        dtype,
        lambda: tuple(_random(rows, cols, dtype=dtype) for _ in range(3)),
        swiglu.swiglu_backward_traffic(rows * cols, dtype),
        reference,
        {
            "bytes-first": lambda: swiglu.swiglu_backward,
            "torch": lambda: eager,
            "torch.compile": lambda: _compiled(eager),
        },
    )


def _bias_gelu(rows, cols, dtype=torch.bfloat16):

    def torch_gelu(x, bias):
        return F.gelu(x + bias, approximate="tanh")

    return Case(
        "bias_gelu",
        (rows, cols),
        dtype,
        lambda: (_random(rows, cols, dtype=dtype), _random(cols, dtype=dtype)),
        bias_gelu.bias_gelu_traffic(rows, cols, dtype),
        lambda x, bias: bias_gelu.bias_gelu_reference(x.double(), bias.double()),
        {
            "bytes-first": lambda: bias_gelu.bias_gelu,
            "torch": lambda: torch_gelu,
            "torch.compile": lambda: _compiled(torch_gelu),
            "eager ops": lambda: bias_gelu.bias_gelu_reference,
        },
    )


def _bias_gelu_backward(rows, cols, dtype=torch.bfloat16):

    def eager(dy, x, bias):
        dx = torch.ops.aten.gelu_backward(dy, x + bias, approximate="tanh")
        return dx, dx.sum(0)

    def reference(dy, x, bias):
        x = x.double().requires_grad_()
        bias_gelu.bias_gelu_reference(x, bias.double()).backward(dy.double())
        return x.grad

    return Case(
        "bias_gelu_backward",
        (rows, cols),
        dtype,
        lambda: (_random(rows, cols, dtype=dtype), _random(rows, cols, dtype=dtype), _random(cols, dtype=dtype)),
        _minimum({"dy": 1, "x": 1}, {"dx": 1}, rows, cols, dtype),
        reference,
        {
            "bytes-first": lambda: bias_gelu.bias_gelu_backward,
            "torch": lambda: eager,
            "torch.compile": lambda: _compiled(eager),
        },
    )


def _bias_gelu_dropout(rows, cols, dtype=torch.bfloat16, p=0.1, seed=1):

    def torch_dropout(x, bias):  # another mask: its error means nothing
        return F.dropout(F.gelu(x + bias, approximate="tanh"), p)

    def reference(x, bias):
        mask = dropout.dropout_mask((rows, cols), p, seed)
        return dropout.bias_gelu_dropout_reference(x.double(), bias.double(), mask, p)

    return Case(
        "bias_gelu_dropout",
        (rows, cols),
        dtype,
        lambda: (_random(rows, cols, dtype=dtype), _random(cols, dtype=dtype)),
        dropout.bias_gelu_dropout_traffic(rows, cols, dtype),
        reference,
        {
            "bytes-first": lambda: lambda x, bias: dropout.bias_gelu_dropout(x, bias, p, seed),
            "torch": lambda: torch_dropout,
            "torch.compile": lambda: _compiled(torch_dropout),
        },
    )


def _add(rows, cols, dtype=torch.bfloat16):
    return Case(
        "add",
        (rows, cols),
        dtype,
        lambda: (_random(rows, cols, dtype=dtype), _random(rows, cols, dtype=dtype)),
        pointwise.add_traffic(rows * cols, dtype),
        lambda x, y: (x + y).double(),
        {"bytes-first": lambda: pointwise.add, "torch": lambda: pointwise.add_reference},
    )


def _pointwise_chain(rows, cols, steps, dtype=torch.bfloat16):
    size = rows * cols

    def eager(x):
        return pointwise.pointwise_chain_reference(x, steps)

    return Case(
        f"pointwise_chain_{steps}",
        (rows, cols),
        dtype,
        lambda: (_random(rows, cols, dtype=dtype),),
        pointwise.pointwise_chain_traffic(size, dtype, steps),
        lambda x: pointwise.pointwise_chain_reference(x.double(), steps),
        {
            "bytes-first": lambda: lambda x: pointwise.pointwise_chain(x, steps),
            "one launch per op": lambda: lambda x: pointwise.pointwise_chain(x, steps, fused=False),
            "torch": lambda: eager,
            "torch.compile": lambda: _compiled(eager),
        },
    )


def _row_sum(rows, cols, dtype=torch.bfloat16, paths=()):

    def torch_sum(x):
        return x.sum(-1, dtype=torch.float32)

    implementations = {
        "bytes-first": lambda: reduce.row_sum,
        "torch": lambda: torch_sum,
        "torch.compile": lambda: _compiled(torch_sum),
    }
    for path in paths:
        implementations[f"bytes-first, {path}"] = lambda path=path: lambda x: reduce.row_sum(x, path=path)
    return Case(
        "row_sum",
        (rows, cols),
        dtype,
        lambda: (_random(rows, cols, dtype=dtype),),
        reduce.row_sum_traffic(rows, cols, dtype),
        lambda x: reduce.row_sum_reference(x.double()),
        implementations,
    )


def _matmul(M, N, K, dtype=torch.bfloat16, paths=()):
    implementations = {"bytes-first": lambda: matmul.matmul, "torch": lambda: torch.matmul}
    for path in paths:
        implementations[f"bytes-first, {path}"] = lambda path=path: lambda a, b: matmul.matmul(a, b, path=path)
    return Case(
        "matmul",
        (M, N, K),
        dtype,
        lambda: (_random(M, K, dtype=dtype), _random(K, N, dtype=dtype)),
        matmul.matmul_traffic(M, N, K, dtype),
        lambda a, b: a.double() @ b.double(),
        implementations,
    )


def cases() -> list[Case]:
    """Every case, in the order they are timed."""
    two_ways = ("two_pass", "streaming", "resident")
    return [
        _copy(8192, 8192),
        _copy(32768, 8192),
        _rmsnorm(1, 4096),
        _rmsnorm(1024, 8192, paths=two_ways),
        _rmsnorm(8192, 8192, paths=two_ways),
        _rmsnorm(65536, 8192, paths=two_ways),
        _rmsnorm(8192, 8192, DTYPES["fp16"]),
        _rmsnorm(8192, 8192, DTYPES["fp32"]),
        _rmsnorm(32768, 4096),
        _rmsnorm(8192, 32768, paths=two_ways),
        _rmsnorm(4096, 65536, paths=("two_pass",)),
        _rmsnorm(512, 1048576),
        _rmsnorm(131072, 1024),
        _rmsnorm(1048576, 128, paths=("resident",)),
        _add_rmsnorm(8192, 8192),
        _add_rmsnorm(32768, 4096),
        _add_rmsnorm(4096, 65536),
        _layernorm(8192, 8192),
        _layernorm(32768, 4096),
        _layernorm(4096, 65536),
        _rmsnorm_backward(8192, 8192),
        _rmsnorm_backward(32768, 4096),
        _rmsnorm_backward(131072, 1024),
        _rmsnorm_backward(2048, 65536),
        _layernorm_backward(8192, 8192),
        _layernorm_backward(32768, 4096),
        _swiglu(16384, 11008),
        _swiglu(1024, 11008),
        _swiglu_backward(16384, 11008),
        _bias_gelu(16384, 11008),
        _bias_gelu(1024, 11008),
        _bias_gelu_backward(16384, 11008),
        _bias_gelu_dropout(16384, 11008),
        _add(8192, 8192),
        *(_pointwise_chain(8192, 8192, steps) for steps in (1, 2, 4, 8, 16)),
        *(_pointwise_chain(size, 1024, 8) for size in (1, 64, 1024)),  # where launches stop mattering
        _row_sum(65536, 8192, paths=("streaming",)),
        _row_sum(8192, 65536),
        _row_sum(1048576, 128, paths=("resident",)),
        _matmul(1024, 1024, 1024, paths=("dot", "tiled", "grouped")),
        _matmul(4096, 4096, 4096, paths=("tiled", "grouped")),
        _matmul(8192, 8192, 8192, paths=("tiled", "grouped")),
        _matmul(8191, 4097, 2049, paths=("grouped",)),
    ]
