"""Few rows of x times weights of 8 or 4 bits: what a layer does for every token that is generated.

Minimum traffic as in weight_only.py, which has the reference, the public function and the traffic: the packed weights
read once, everything else is small beside them. At 4 bits the GPU has under six instructions for a weight in the time
that its bytes take, so what counts is instructions: a multiplication and an addition for each weight, after it was made
fp32 and before partial sums are added up, are too many. The matrix unit takes 2,048 products an instruction even where
7 of 8 columns are padding, and takes 16-bit values in pairs, as the words hold them. The weights are its left operand,
their rows the tile's: a tile of y^T [BLOCK_N, BLOCK_M].

A program's warps share K, not rows: each takes 64 bytes of every row at a time, next to its neighbour's, so that
together they read long runs of a row, and none reads an x that another has read. Several programs share K, too, where
the rows alone would not fill the GPU, and a second kernel adds up what each leaves.
"""

from instruments.backend import tl, triton
from kernels.weight_only_unpack import by_parts, mended, scale_of, scaled, spread, unpack


@triton.jit
def weight_only_decode_kernel(
    x_ptr,
    codes_ptr,
    scales_ptr,
    tensor_scale_ptr,
    partial_ptr,
    y_ptr,
    M,
    N,
    K,
    x_row_stride,
    x_col_stride,
    words,
    row_words,
    row_scales,
    split_words,
    FORMAT: tl.constexpr,
    GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    SLICES: tl.constexpr,
    WORDS: tl.constexpr,
    STAGES: tl.constexpr,
):
    """x [M, K] of any strides; codes [N, words] int32 of FORMAT, row_words apart; scales [N, row_scales], one for GROUP
    values, or for a row where GROUP is 0; tensor_scale one fp32, or None. To y [M, N], or to partial [splits, M, N]
    fp32, where that is given, the sum over split_words of each row."""
    PER_WORD: tl.constexpr = 4 if FORMAT == "int8" else 8
    BLOCK_K: tl.constexpr = WORDS * PER_WORD
    like: tl.constexpr = x_ptr.dtype.element_ty
    slice = tl.arange(0, SLICES)[:, None, None]  # [SLICES, 1, 1]
    row = tl.program_id(0).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)[:, None]  # [BLOCK_N, 1]: of the weights
    token = tl.program_id(2) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]  # [BLOCK_M, 1]: a row of x
    word = slice * WORDS + tl.arange(0, WORDS)[None, None, :]  # [SLICES, 1, WORDS]
    k = slice * BLOCK_K + tl.arange(0, BLOCK_K)[None, None, :]  # [SLICES, 1, BLOCK_K]
    x_ptr += token.to(tl.int64) * x_row_stride
    codes_ptr += row * row_words
    scales_ptr += row * row_scales
    first = tl.program_id(1) * split_words
    total = tl.zeros([SLICES, BLOCK_N, BLOCK_M], dtype=tl.float32)
    for start in tl.range(first, tl.minimum(first + split_words, words), SLICES * WORDS, num_stages=STAGES):
        start = tl.multiple_of(start, SLICES * WORDS)
        # what lies past a row's end may be any code: the activations are zero there
        codes_mask = (row < N)[None] & (word < words - start)
        codes = tl.load(codes_ptr[None] + (start + word), mask=codes_mask)  # [SLICES, BLOCK_N, WORDS]
        column = start * PER_WORD + k
        x_mask = (token < M)[None] & (column < K)
        x = tl.load(x_ptr[None] + column * x_col_stride, mask=x_mask, other=0.0)  # [SLICES, BLOCK_M, BLOCK_K]
        if GROUP:  # those of a row lie together; of a slice, they are [SLICES, BLOCK_N, EACH]
            COUNT: tl.constexpr = SLICES * BLOCK_K // GROUP
            EACH: tl.constexpr = max(1, BLOCK_K // GROUP)
            group = start * PER_WORD // GROUP + tl.arange(0, COUNT)[None, :]
            scales = tl.load(scales_ptr + group, mask=(row < N) & (group < row_scales), other=0)
            scales = scale_of(scales.reshape(BLOCK_N, COUNT // EACH, EACH).permute(1, 0, 2))
            if COUNT < SLICES:  # slices that share a scale
                scales = tl.broadcast_to(scales[:, None], (COUNT, SLICES // COUNT, BLOCK_N, 1))
                scales = scales.reshape(SLICES, BLOCK_N, 1)
        weight = unpack(codes, FORMAT, like)  # [SLICES, BLOCK_N, BLOCK_K]
        if FORMAT == "e2m1":
            weight *= spread(scaled(scales, like), GROUP, WORDS)
        APART: tl.constexpr = GROUP and FORMAT != "e2m1"  # sums of a group are scaled before they are added up
        step = tl.zeros([SLICES, BLOCK_N, BLOCK_M], dtype=tl.float32) if APART else total
        step = tl.dot(weight, by_parts(x, PER_WORD // 2).permute(0, 2, 1), step)
        total = total + step * scales if APART else step
    y = mended(tl.sum(total, axis=0), FORMAT, like)  # [BLOCK_N, BLOCK_M]
    if not GROUP:
        y *= tl.load(scales_ptr, mask=row < N, other=0.0)
    if tensor_scale_ptr is not None:
        y *= tl.load(tensor_scale_ptr)
    token = token.T.to(tl.int64)
    mask = (row < N) & (token < M)
    if partial_ptr is not None:
        tl.store(partial_ptr + (tl.program_id(1) * M + token) * N + row, y, mask=mask)
    else:
        tl.store(y_ptr + token * N + row, y.to(like), mask=mask)


@triton.jit
def sum_splits_kernel(partial_ptr, y_ptr, size, splits, BLOCK: tl.constexpr):
    """y [size] = the sum of partial [splits, size], fp32, in the order of the splits, rounded once."""
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)  # [BLOCK]
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for split in tl.range(0, splits):
        total += tl.load(partial_ptr + split.to(tl.int64) * size + place, mask=place < size, other=0.0)
    tl.store(y_ptr + place, total.to(y_ptr.dtype.element_ty), mask=place < size)
