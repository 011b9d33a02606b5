"""Peers written in CuTe DSL, as implementations of cases: QuACK (rows) and FlashAttention 4 (attention).

Each function imports its peer when it is called; where that is not installed, bench/run.py lists it as absent.
"""


def quack_softmax():
    """softmax(x) over rows; refuses rows that do not start on 16 bytes."""
    from quack.softmax import softmax_fwd

    return softmax_fwd


def quack_rmsnorm(eps: float):
    """rmsnorm(x, weight) over rows."""
    from quack.rmsnorm import rmsnorm_fwd

    return lambda x, weight: rmsnorm_fwd(x, weight, eps=eps)[0]


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
