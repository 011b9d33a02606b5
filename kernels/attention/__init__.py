"""Attention: softmax(q k^T * scale) v without storing the scores (FlashAttention, Dao et al., 2022).

forward.py           flash_attention: the plain kernel, and the fast one that loads tiles by TMA
hopper.py            the same forward for Hopper, in Gluon: warp specialization and asynchronous matmuls
backward.py          gradients of q, k and v, with the scores recomputed: the plain kernels and the fast ones
backward_hopper.py   the backward for Hopper, in Gluon: five matmuls instead of seven, dq added up by atomics
decode.py            a few queries per sequence, keys split over programs and merged (split-KV, Flash-Decoding)
decode_persistent.py the same in one wave of programs, each with an equal chunk of all keys, and their merging
masks.py             what the Triton kernels share: masks, ranges of keys, loads and stores of tiles
configs.py           checks of arguments, tile sizes by path and head_dim, and which path runs on a GPU
traffic.py           the bytes and FLOPs of each path, and the keys and queries that its tiles visit
fast_models.py       without a kernel: cycles per tile, orders of tiles, warpgroups over time (lesson 08c)
models.py            without a kernel: the peak memory of unfused attention, and the tiles that a mask leaves
decode_models.py     without a kernel: which SM reads which keys when in a decode step
operators.py         the sizes of a call, for `portrait`
forward_steps.py     lesson 08c's steps: the plain forward becomes the fast one, one change a step
ablation.py          lesson 08c's experiment: the forward with pieces of its work left out

Start with attention_kernel in forward.py; the others compute the same, faster.
"""

from kernels.attention.ablation import attention_limits
from kernels.attention.backward import attention_backward
from kernels.attention.decode import attention_decode, attention_decode_reference, attention_decode_traffic
from kernels.attention.forward import attention_reference, flash_attention
from kernels.attention.forward_steps import attention_steps
from kernels.attention.hopper import flash_attention_hopper
from kernels.attention.traffic import (
    attention_backward_ops,
    attention_backward_traffic,
    attention_ops,
    attention_traffic,
    keys_visited,
)
