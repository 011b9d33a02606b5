# right
import torch
from instruments.backend import tl, triton


def sizes(batch, heads, kv_heads, sequence, head_dim, itemsize):
    of = lambda heads, width: batch * heads * sequence * width * itemsize
    return of(heads, head_dim), of(kv_heads, head_dim), of(heads, sequence)


def materialised_bytes(*layer):
    q, k, scores = sizes(*layer)
    return sum([q, k, scores, scores, scores, scores, scores, scores, k, q])


def fused_bytes(batch, heads, kv_heads, sequence, head_dim, itemsize):
    q, k, _ = sizes(batch, heads, kv_heads, sequence, head_dim, itemsize)
    return 2 * (q + k) + batch * heads * sequence * 4


def asked_bytes(batch, heads, kv_heads, sequence, head_dim, itemsize, block):
    per_program = 2 * sequence * head_dim * itemsize
    tiles = (sequence + block - 1) // block
    per_head = tiles * per_program + 2 * sequence * head_dim * itemsize + 4 * sequence
    return batch * heads * per_head


def causal_flops(batch, heads, sequence, head_dim, block):
    return (
        sum(4 * block * block * head_dim for row in range(0, sequence, block) for _ in range(0, row + 1, block))
        * batch
        * heads
    )
