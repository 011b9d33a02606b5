"""The sizes of attention, for `portrait`."""

from kernels.attention import (
    attention_backward,
    attention_backward_traffic,
    attention_decode,
    attention_decode_reference,
    attention_decode_traffic,
    attention_reference,
    attention_traffic,
    flash_attention,
)
from kernels.shared.operator import Operator


def _sizes(q, k, *_, **__) -> dict:
    """Of q [batch, heads, queries, head_dim] and k [batch, kv_heads, keys, head_dim]."""
    batch, heads, queries, head_dim = q.shape
    _, kv_heads, keys, _ = k.shape
    sizes = {"batch": batch, "heads": heads, "kv_heads": kv_heads, "queries": queries, "keys": keys}
    return {**sizes, "head_dim": head_dim, "dtype": q.dtype}


def _backward_sizes(dout, q, k, *_, **__) -> dict:
    return _sizes(q, k)


def _decode_sizes(q, k, v=None, lengths=None, scale=None, block_table=None, **_) -> dict:
    """With a block_table, k is pages [pages, kv_heads, page, head_dim]."""
    sizes = _sizes(q, k)
    if block_table is None:
        return sizes
    page = k.shape[2]
    return {**sizes, "keys": page * block_table.shape[1], "page": page}


def _as_many_keys(batch: int, heads: int, queries: int, head_dim: int) -> dict:
    return {"batch": batch, "heads": heads, "queries": queries, "keys": queries, "head_dim": head_dim}


def _one_query(batch: int, heads: int, kv_heads: int, keys: int, head_dim: int) -> dict:
    sizes = {"batch": batch, "heads": heads, "kv_heads": kv_heads, "queries": 1, "keys": keys}
    return {**sizes, "head_dim": head_dim}


_LENGTHS = ("batch", "heads", "queries", "head_dim")
OPERATORS = {
    "flash_attention": Operator(
        flash_attention, attention_traffic, _sizes, "attention{causal}", _LENGTHS, _as_many_keys, attention_reference
    ),
    "attention_backward": Operator(
        attention_backward,
        attention_backward_traffic,
        _backward_sizes,
        "attention_backward{causal}",
        _LENGTHS,
        _as_many_keys,
    ),
    "attention_decode": Operator(
        attention_decode,
        attention_decode_traffic,
        _decode_sizes,
        "attention_decode",
        ("batch", "heads", "kv_heads", "keys", "head_dim"),
        _one_query,
        attention_decode_reference,
    ),
}
