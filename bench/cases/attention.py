"""Attention forward."""

from functools import partial

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from bench import peers
from bench.cases import Call, Case, launch_of, random
from instruments.backend import device
from kernels.attention import attention_reference, attention_traffic, flash_attention, flash_attention_hopper
from kernels.attention.configs import SHARED
from kernels.shared.device import has_descriptors

#: batch, heads, kv_heads, queries, keys, head_dim, whether causal, window (0: none)
RAGGED = ((1, 4, 2, 70, 130, 72, 1, 0), (2, 2, 1, 129, 65, 64, 0, 50), (1, 2, 2, 65, 200, 256, 1, 50))
BF16 = torch.bfloat16
BACKENDS = {"cudnn": SDPBackend.CUDNN_ATTENTION, "fa2": SDPBackend.FLASH_ATTENTION}


def triton_path() -> str:
    """The path that 'bytes-first' names in records of attention: 'fast', on a GPU without tensor descriptors 'plain'.
    It never means Gluon's, which `flash_attention` runs by default on Hopper: that is 'bytes-first, gluon'."""
    return "fast" if has_descriptors(torch.device(device()), SHARED) else "plain"


def by_head(function, *tensors) -> tuple:
    """function(one head of each tensor, in fp64), its results concatenated: fp64 scores of all heads would not fit."""
    batch, heads = tensors[0].shape[:2]
    results = [
        function(*(x[b : b + 1, h : h + 1].double() for x in tensors)) for b in range(batch) for h in range(heads)
    ]
    return tuple(torch.cat(r).unflatten(0, (batch, heads)).squeeze(2) for r in zip(*results))


def forced(backend: SDPBackend, causal: bool):
    """torch's attention by one of its backends."""

    def attend(q, k, v):
        with sdpa_kernel(backend):
            return F.scaled_dot_product_attention(q, k, v, is_causal=causal)

    return attend


def eager(q, k, v, causal):
    """The ops of `attention_ops`."""
    heads = [x.flatten(0, 1) for x in (q, k, v)]
    zero = heads[0].new_zeros(())
    scores = torch.baddbmm(zero, heads[0], heads[1].mT, beta=0, alpha=q.shape[-1] ** -0.5)
    if causal:
        mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
        scores = scores.masked_fill(mask, float("-inf"))
    return (scores.softmax(-1) @ heads[2]).view(q.shape)


def _flex(causal: bool, sequence: int):
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    torch._dynamo.reset()
    flex = torch.compile(flex_attention, dynamic=False)
    if not causal:
        return flex
    block_mask = create_block_mask(lambda batch, head, i, j: i >= j, None, None, sequence, sequence, device=device())
    return partial(flex, block_mask=block_mask)


def _attention(batch, heads, sequence, head_dim, causal, dtype=BF16, ops=False):
    size = batch, heads, sequence, head_dim
    implementations = {
        "bytes-first": lambda: partial(flash_attention, causal=causal, path=triton_path()),
        "bytes-first, plain": lambda: partial(flash_attention, causal=causal, path="plain"),
        "bytes-first, gluon": lambda: partial(flash_attention_hopper, causal=causal),
        **{name: partial(forced, backend, causal) for name, backend in BACKENDS.items()},
        "fa4": partial(peers.flash_attention_4, causal),
    }
    if ops:
        implementations["eager ops"] = lambda: partial(eager, causal=causal)
        if causal:
            implementations["flex"] = lambda: _flex(causal, sequence)
    return Case(
        "attention_causal" if causal else "attention",
        size,
        dtype,
        lambda: tuple(random(*size, dtype=dtype) for _ in range(3)),
        attention_traffic(batch, heads, sequence, sequence, head_dim, dtype, causal=causal),
        lambda q, k, v: by_head(partial(attention_reference, causal=causal), q, k, v)[0],
        implementations,
    )


def cases() -> list[Case]:
    return [
        _attention(4, 16, 4096, 128, causal=False, ops=True),
        _attention(4, 16, 4096, 128, causal=True, ops=True),
        _attention(4, 32, 4096, 64, causal=False),
        _attention(4, 32, 4096, 64, causal=True),
        _attention(16, 16, 1024, 128, causal=True),
        _attention(8, 16, 2048, 128, causal=True),
        _attention(2, 16, 8192, 128, causal=True),
        _attention(1, 32, 16384, 128, causal=True),
    ]


def ragged(batch, heads, kv_heads, queries, keys, head_dim, causal, window, dtype) -> tuple:
    """(q, k, v) and options of one of RAGGED."""
    kv = batch, kv_heads, keys, head_dim
    qkv = random(batch, heads, queries, head_dim, dtype=dtype), random(*kv, dtype=dtype), random(*kv, dtype=dtype)
    return qkv, {"causal": bool(causal), "window": window or None}


def sanitize(*size):
    """Every Triton path, and tensors whose heads lie side by side; 16 bits alone. Gluon's: attention_hopper.py."""
    if size[-1].itemsize > 2:
        return
    qkv, options = ragged(*size)
    flash_attention(*qkv, **options, path=triton_path())
    flash_attention(*qkv, **options, path="plain")
    flash_attention(*(x.transpose(1, 2).contiguous().transpose(1, 2) for x in qkv), **options, path=triton_path())


def counter_calls() -> list[Call]:
    whole, causal = (_attention(4, 16, 4096, 128, causal, ops=True) for causal in (False, True))
    peers = "bytes-first", "bytes-first, gluon", "cudnn"
    return [
        *(launch_of(whole, name) for name in (*peers, "bytes-first, plain", "eager ops")),
        *(launch_of(causal, name) for name in (*peers, "eager ops")),
        *(launch_of(_attention(4, 32, 4096, 64, causal=True), name) for name in peers),
    ]
