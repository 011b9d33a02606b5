# wrong, mistake: the wrong tiles were counted
import torch
from instruments.backend import tl, triton


def materialised_bytes(batch, heads, kv_heads, sequence, head_dim, itemsize):
    q = out = batch * heads * sequence * head_dim
    k = v = batch * kv_heads * sequence * head_dim
    matrix = batch * heads * sequence * sequence  # scores, capped scores, weights
    first = q + k + matrix  # reads q and k, writes the scores
    cap = matrix + matrix
    softmax = matrix + matrix
    second = matrix + v + out  # reads the weights and v, writes out
    return (first + cap + softmax + second) * itemsize


def fused_bytes(batch, heads, kv_heads, sequence, head_dim, itemsize):
    rows = batch * heads * sequence
    keys = batch * kv_heads * sequence
    return (2 * rows + 2 * keys) * head_dim * itemsize + 4 * rows  # q, out; k, v; the log-sum-exp


def asked_bytes(batch, heads, kv_heads, sequence, head_dim, itemsize, block):
    rows = batch * heads * sequence
    programs = batch * heads * -(-sequence // block)  # rounded up
    return (2 * rows + 2 * programs * sequence) * head_dim * itemsize + 4 * rows


def causal_flops(batch, heads, sequence, head_dim, block):
    side = sequence // block
    tiles = side * (side + 1) // 2  # on the diagonal and below
    return batch * heads * tiles * 2 * (2 * block * block * head_dim)


def causal_flops(batch, heads, sequence, head_dim, block):
    """Two products in each tile on the diagonal and below."""
    side = sequence // block
    tiles = side * side
    return 4 * batch * heads * tiles * block * block * head_dim
