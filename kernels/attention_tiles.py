"""What the kernels of attention share: which keys a query sees, loads and stores of tiles, checks of arguments.

Query i stands at position i + keys - queries: the last query sees the last key, FlashAttention's convention since
version 2.1 (2023). Causal, it sees the keys up to its position; with a window of w, those less than w away.
"""

import torch

from instruments.backend import tl, triton
from kernels.arguments import check_tensor
from kernels.attention_plan import MAX_HEAD_DIM
from kernels.tiles import LOG2E as LOG2E

FLOOR = tl.constexpr(-1e38)  # a running maximum begins here: below every score, and a number, unlike -inf
DTYPES = (torch.float16, torch.bfloat16)


@triton.jit
def key_range(
    first_query,
    queries,
    keys,
    window,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    CAUSAL: tl.constexpr,
    WINDOWED: tl.constexpr,
):
    """(first, last): keys that some query of a tile sees lie in [first, last), and first begins a tile of keys."""
    position = first_query + keys - queries  # of the tile's first query; its last is at position + BLOCK_M - 1
    first, last = 0, keys
    if WINDOWED:
        first = tl.maximum(position - window + 1, 0) // BLOCK_N * BLOCK_N
        last = tl.minimum(position + BLOCK_M - 1 + window, keys)
    if CAUSAL:
        last = tl.minimum(position + BLOCK_M, keys)
    return first, last


@triton.jit
def whole_range(
    first_query,
    first,
    queries,
    keys,
    window,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    CAUSAL: tl.constexpr,
    WINDOWED: tl.constexpr,
):
    """(begin, end): every query of a tile sees all keys of the tiles in [begin, end), from its key_range's first on."""
    position = first_query + keys - queries
    begin, end = first, keys
    if WINDOWED:
        begin = tl.maximum(tl.cdiv(tl.maximum(position + BLOCK_M - window, 0), BLOCK_N) * BLOCK_N, first)
        end = tl.minimum(position + window, keys)
    if CAUSAL:
        end = tl.minimum(position + 1, keys)
    return begin, tl.maximum(tl.maximum(end, 0) // BLOCK_N * BLOCK_N, begin)


@triton.jit
def sees(query, key, queries, keys, window, CAUSAL: tl.constexpr, WINDOWED: tl.constexpr):
    """Whether a query sees a key: bool of the shape that the two broadcast to."""
    ahead = key - (query + keys - queries)
    seen = key < keys
    if CAUSAL:
        seen &= ahead <= 0
    if WINDOWED:
        seen &= ahead > -window
        if not CAUSAL:
            seen &= ahead < window
    return seen


@triton.jit
def query_range(
    first_key,
    queries,
    keys,
    window,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    CAUSAL: tl.constexpr,
    WINDOWED: tl.constexpr,
):
    """(first, last): queries that see some key of a tile lie in [first, last), and first begins a tile of queries."""
    query = first_key - (keys - queries)  # that stands at the tile's first key
    first, last = 0, queries
    if WINDOWED:
        first = tl.maximum(query - window + 1, 0) // BLOCK_M * BLOCK_M
        last = tl.minimum(query + BLOCK_N - 1 + window, queries)
    if CAUSAL:
        first = tl.maximum(query, 0) // BLOCK_M * BLOCK_M
    return first, last


@triton.jit
def load_rows(ptr, first, rows, head_dim, strides, ROWS: tl.constexpr, BLOCK_D: tl.constexpr):
    """Rows of one head from `first` on, [ROWS, BLOCK_D], zero where there are none. ptr: its first element; strides: of
    the whole tensor, of which the last two are the head's."""
    row = first + tl.arange(0, ROWS)[:, None]  # [ROWS, 1]
    col = tl.arange(0, BLOCK_D)[None, :]  # [1, BLOCK_D]
    offsets = row.to(tl.int64) * strides[2] + col.to(tl.int64) * strides[3]
    return tl.load(ptr + offsets, mask=(row < rows) & (col < head_dim), other=0.0)


@triton.jit
def store_rows(ptr, tile, first, rows, head_dim, ROWS: tl.constexpr, BLOCK_D: tl.constexpr):
    """The inverse, into a contiguous head: tile [ROWS, BLOCK_D], rounded to the dtype of ptr."""
    row = first + tl.arange(0, ROWS)[:, None]
    col = tl.arange(0, BLOCK_D)[None, :]
    offsets = row.to(tl.int64) * head_dim + col
    tl.store(ptr + offsets, tile.to(ptr.dtype.element_ty), mask=(row < rows) & (col < head_dim))


@triton.jit
def load_statistics(shift_ptr, delta_ptr, first, queries, ROWS: tl.constexpr):
    """(shift, delta) of a tile's rows, [ROWS] each; infinity, for weights of zero, and 0 where there are none."""
    row = first + tl.arange(0, ROWS)
    mask = row < queries
    return tl.load(shift_ptr + row, mask=mask, other=float("inf")), tl.load(delta_ptr + row, mask=mask, other=0.0)


def check_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float | None, window: int | None = None):
    """Raise ValueError, naming the argument, unless attention can be computed of them; returns the scale."""
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        check_tensor(name, tensor, like=None if name == "q" else q, dtypes=DTYPES if name == "q" else (q.dtype,))
        if tensor.dim() != 4:
            raise ValueError(f"{name}: got {tensor.dim()} dimensions, expected 4: batch, heads, sequence, head_dim")
    batch, heads, _, head_dim = q.shape
    if not 1 <= head_dim <= MAX_HEAD_DIM:
        raise ValueError(f"q: got a head_dim of {head_dim}, expected 1 to {MAX_HEAD_DIM}")
    if k.shape[0] != batch or k.shape[3] != head_dim:
        raise ValueError(f"k: got shape {tuple(k.shape)}, expected ({batch}, kv_heads, keys, {head_dim}), to go with q")
    if k.shape[1] < 1 or heads % k.shape[1]:
        raise ValueError(f"k: got {k.shape[1]} heads, expected a number that divides the {heads} of q")
    check_tensor("v", v, shape=k.shape, like=q, dtypes=(q.dtype,), why=", the shape of k")
    if window is not None and (not isinstance(window, int) or window < 1):
        raise ValueError(f"window: got {window!r}, expected None or a whole number of at least 1")
    scale = head_dim**-0.5 if scale is None else scale
    if not isinstance(scale, (int, float)) or not 0 < scale < float("inf"):
        raise ValueError(f"scale: got {scale!r}, expected None or a positive number")
    return scale
