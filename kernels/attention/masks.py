"""What attention's Triton kernels share: which keys a query attends to, ranges of keys, loads and stores of tiles.

Query i stands at position i + keys - queries: the last query attends to the last key, FlashAttention's convention since
version 2.1 (2023). Causal, a query attends to the keys up to its position; with a window of w, to those less than w
positions away.
"""

from instruments.backend import tl, triton
from kernels.shared.tiles import LOG2E as LOG2E

MIN_SCORE = tl.constexpr(-1e38)  # where a running max starts: below every score, and finite, unlike -inf


@triton.jit
def key_range(
    first_query, queries, keys, window,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, CAUSAL: tl.constexpr, WINDOWED: tl.constexpr,
):  # fmt: skip
    """The keys that some query of a tile attends to.

    Args:
        first_query: of the tile, which has BLOCK_M queries.
        queries, keys: of the head.
        window: as for `flash_attention`, where WINDOWED.

    Returns:
        (first, last): the keys lie in [first, last); first is a multiple of BLOCK_N.
    """
    position = first_query + keys - queries  # of the tile's first query; its last is at position + BLOCK_M - 1
    first, last = 0, keys
    if WINDOWED:
        first = tl.maximum(position - window + 1, 0) // BLOCK_N * BLOCK_N
        last = tl.minimum(position + BLOCK_M - 1 + window, keys)
    if CAUSAL:
        last = tl.minimum(position + BLOCK_M, keys)
    return first, last


@triton.jit
def unmasked_range(
    first_query, first, queries, keys, window,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, CAUSAL: tl.constexpr, WINDOWED: tl.constexpr,
):  # fmt: skip
    """The tiles of keys that need no mask, because every query of a tile attends to all of their keys.

    Args:
        first: what `key_range` returned; begin is not before it.

    Returns:
        (begin, end): the tiles lie in [begin, end), both multiples of BLOCK_N.
    """
    position = first_query + keys - queries
    begin, end = first, keys
    if WINDOWED:
        begin = tl.maximum(tl.cdiv(tl.maximum(position + BLOCK_M - window, 0), BLOCK_N) * BLOCK_N, first)
        end = tl.minimum(position + window, keys)
    if CAUSAL:
        end = tl.minimum(position + 1, keys)
    return begin, tl.maximum(tl.maximum(end, 0) // BLOCK_N * BLOCK_N, begin)


@triton.jit
def attention_mask(query, key, queries, keys, window, CAUSAL: tl.constexpr, WINDOWED: tl.constexpr):
    """Which queries attend to which keys.

    Args:
        query, key: positions in the head, of shapes that broadcast, such as [BLOCK_M, 1] and [1, BLOCK_N].
        queries, keys: of the head; the last query stands at the last key's position.
        window: as for `flash_attention`, where WINDOWED.

    Returns:
        bool, of the shape that query and key broadcast to: False for masked-out pairs and for keys past the end.
    """
    ahead = key - (query + keys - queries)
    mask = key < keys
    if CAUSAL:
        mask &= ahead <= 0
    if WINDOWED:
        mask &= ahead > -window
        if not CAUSAL:
            mask &= ahead < window
    return mask


@triton.jit
def query_range(
    first_key, queries, keys, window,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, CAUSAL: tl.constexpr, WINDOWED: tl.constexpr,
):  # fmt: skip
    """(first, last): queries that attend to some key of a tile lie in [first, last); first begins a tile of queries."""
    query = first_key - (keys - queries)  # the query at the position of the tile's first key
    first, last = 0, queries
    if WINDOWED:
        first = tl.maximum(query - window + 1, 0) // BLOCK_M * BLOCK_M
        last = tl.minimum(query + BLOCK_N - 1 + window, queries)
    if CAUSAL:
        first = tl.maximum(query, 0) // BLOCK_M * BLOCK_M
    return first, last


@triton.jit
def load_rows(ptr, first, rows, head_dim, strides, ROWS: tl.constexpr, BLOCK_D: tl.constexpr):
    """Load rows of one head.

    Args:
        ptr: the head's first element.
        first: row of the head where the tile begins.
        rows, head_dim: of the head.
        strides: all four of the tensor [batch, heads, sequence, head_dim].

    Returns:
        [ROWS, BLOCK_D], zero past the end of the rows and columns.
    """
    row = first + tl.arange(0, ROWS)[:, None]  # [ROWS, 1]
    col = tl.arange(0, BLOCK_D)[None, :]  # [1, BLOCK_D]
    offsets = row.to(tl.int64) * strides[2] + col.to(tl.int64) * strides[3]
    return tl.load(ptr + offsets, mask=(row < rows) & (col < head_dim), other=0.0)


@triton.jit
def store_rows(ptr, tile, first, rows, head_dim, ROWS: tl.constexpr, BLOCK_D: tl.constexpr):
    """Store a tile as rows of a contiguous head, rounded to the dtype of ptr.

    Args:
        ptr: the head's first element.
        tile: [ROWS, BLOCK_D].
        first: row of the head where the tile begins.
        rows, head_dim: of the head; what lies past them is not stored.
    """
    row = first + tl.arange(0, ROWS)[:, None]
    col = tl.arange(0, BLOCK_D)[None, :]
    offsets = row.to(tl.int64) * head_dim + col
    tl.store(ptr + offsets, tile.to(ptr.dtype.element_ty), mask=(row < rows) & (col < head_dim))


@triton.jit
def load_tile(tensor, batch, head, row, ROWS: tl.constexpr, BLOCK_D: tl.constexpr):
    """[ROWS, BLOCK_D] of one head from `row` on; tensor: a descriptor of [batch, heads, sequence, head_dim]."""
    return tensor.load([batch, head, row, 0]).reshape([ROWS, BLOCK_D])


@triton.jit
def load_statistics(shift_ptr, delta_ptr, first, queries, ROWS: tl.constexpr):
    """(shift, delta) of a tile's rows, [ROWS] each; past the end infinity, for weights of zero, and 0."""
    row = first + tl.arange(0, ROWS)
    mask = row < queries
    return tl.load(shift_ptr + row, mask=mask, other=float("inf")), tl.load(delta_ptr + row, mask=mask, other=0.0)
