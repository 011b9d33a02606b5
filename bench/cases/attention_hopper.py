"""Attention's kernels in Gluon, for the memory checker; they are timed in attention.py and attention_backward.py."""

from bench.cases.attention import ragged
from kernels.attention import attention_backward, flash_attention_hopper
from kernels.shared.device import is_hopper

RAGGED = ((1, 1, 1, 1, 1, 64), (1, 4, 2, 70, 130, 64), (2, 2, 1, 300, 65, 128), (3, 20, 10, 513, 700, 128))


def cases() -> list:
    return []


def sanitize(batch, heads, kv_heads, queries, keys, head_dim, dtype):
    """All of it and causal, and tensors whose heads lie side by side; 16 bits alone, and the GPU it is made for."""
    if dtype.itemsize > 2:
        return
    (q, k, v), _ = ragged(batch, heads, kv_heads, queries, keys, head_dim, False, None, dtype)
    if not is_hopper(q.device):
        return
    side_by_side = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in (q, k, v)]
    for causal in (False, True):
        out, lse = flash_attention_hopper(q, k, v, causal, return_lse=True)
        attention_backward(out, q, k, v, out, lse, causal, path="hopper")
        flash_attention_hopper(*side_by_side, causal)
