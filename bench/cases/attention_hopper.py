"""Attention's forward in Gluon, for the memory checker; it is timed among the cases of attention.py."""

from bench.cases.attention import ragged
from kernels.attention_hopper import flash_attention_hopper, runs_on

RAGGED = ((1, 1, 1, 1, 1, 64), (1, 4, 2, 70, 130, 64), (2, 2, 1, 300, 65, 128), (3, 20, 10, 513, 700, 128))


def cases() -> list:
    return []


def sanitize(batch, heads, kv_heads, queries, keys, head_dim, dtype):
    """All of it and causal, and tensors whose heads lie side by side; 16 bits alone, and the GPU it is made for."""
    if dtype.itemsize > 2:
        return
    (q, k, v), _ = ragged(batch, heads, kv_heads, queries, keys, head_dim, False, None, dtype)
    if not runs_on(q.device):
        return
    side_by_side = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in (q, k, v)]
    for causal in (False, True):
        flash_attention_hopper(q, k, v, causal, return_lse=True)
        flash_attention_hopper(*side_by_side, causal)
