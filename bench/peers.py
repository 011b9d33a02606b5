"""Peers from other packages, as implementations of cases: QuACK and FlashAttention 4 (both in CuTe DSL), and Liger.

Each function imports its peer when it is called; where that is not installed, bench/run.py lists it as absent.
"""

from unittest.mock import patch

import torch


def quack_softmax():
    """softmax(x) over rows; refuses rows that do not start on 16 bytes."""
    from quack.softmax import softmax_fwd

    return softmax_fwd


def quack_rmsnorm(eps: float):
    """rmsnorm(x, weight) over rows."""
    from quack.rmsnorm import rmsnorm_fwd

    return lambda x, weight: rmsnorm_fwd(x, weight, eps=eps)[0]


def _quack_keys():
    """QuACK names a compiled kernel by all that its epilogue refers to, and refuses what it does not know, which the
    newer CuTe DSL has; within one process, the type's name will do."""
    from quack.gemm_runtime import identity

    key = identity.semantic_value_key
    if key.__module__ != identity.__name__:
        return

    def lenient(value, seen):
        try:
            return key(value, seen)
        except TypeError:
            return repr(type(value))

    identity.semantic_value_key = lenient


def quack_linear(activation: str | None = None):
    """linear(x, weight, bias=None), by QuACK's GEMM with its default tile; 'swiglu': rows of gate and up alternate."""
    _quack_keys()
    from quack.gemm_interface import gemm, gemm_act

    if activation is None:
        return lambda x, weight, *_: gemm(x, weight.T, tuned=False)
    return lambda x, weight, bias=None: gemm_act(
        x, weight.T, bias=bias, activation=activation, store_preact=False, tuned=False
    )[1]


def quack_linear_residual():
    """linear(x, weight, residual)."""
    from quack.gemm_interface import gemm_add

    return lambda x, weight, residual: gemm_add(x, weight.T, residual, tuned=False)


def quack_cross_entropy(gradient: bool):
    """loss(logits, targets): the mean, [1], or the gradient of the sum."""
    from quack.cross_entropy import cross_entropy_fwd

    if gradient:
        return lambda logits, targets: cross_entropy_fwd(logits, targets, return_dx=True)[1]
    return lambda logits, targets: cross_entropy_fwd(logits, targets).mean()[None]


def quack_linear_cross_entropy():
    """(dx, dweight) of the mean loss(x, weight, targets), by chunks of 2,048 tokens; 4,096, the default, fails where x
    is as wide."""
    _quack_keys()
    from quack.linear_cross_entropy import chunked_linear_cross_entropy

    def gradients(x, weight, targets):
        x, weight = x.detach().requires_grad_(), weight.detach().requires_grad_()
        return torch.autograd.grad(chunked_linear_cross_entropy(x, weight, targets, 2048, tuned=False), (x, weight))

    return gradients


def liger_linear_cross_entropy():
    """(dx, dweight) of the mean loss(x, weight, targets). Liger asks the GPU how many targets count, which no graph can
    capture; here all do, and it is told."""
    from liger_kernel.ops.fused_linear_cross_entropy import fused_linear_cross_entropy_forward

    def gradients(x, weight, targets):
        with patch.object(torch.Tensor, "item", lambda count: len(targets)):
            of = fused_linear_cross_entropy_forward(
                x, weight, targets, compute_gradients=True, weight_requires_grad=True
            )
        return of[4:6]

    return gradients


def flash_attention_4(causal: bool):
    """attention(q, k, v), each [batch, heads, sequence, head_dim]; FlashAttention 4 gets views with the heads last."""
    from flash_attn.cute.interface import _flash_attn_fwd

    def attend(q, k, v):
        out = _flash_attn_fwd(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), causal=causal)[0]
        return out.transpose(1, 2)

    return attend


def flash_attention_4_backward(causal: bool):
    """backward(dout, q, k, v, out, lse) -> (dq, dk, dv), in the layouts of `attention_backward`."""
    from flash_attn.cute.interface import _flash_attn_bwd

    def backward(dout, q, k, v, out, lse):
        q, k, v, out, dout = (x.transpose(1, 2) for x in (q, k, v, out, dout))
        gradients = _flash_attn_bwd(q, k, v, out, dout, lse, causal=causal)[:3]
        return tuple(x.transpose(1, 2) for x in gradients)

    return backward
