"""Few rows of x times weights of 8 or 4 bits: what a layer does for every token that is generated.

Minimum traffic as in weight_only.py, which has the reference, the public function and the traffic: the packed weights
read once; everything else is small beside them. While four bits come from memory an H200 has time for some four
instructions, so instructions count. Made fp32, multiplied and added, a weight takes more than that; the matrix unit
takes 16-bit values in pairs, as the words hold them, and 2,048 products an instruction, even if most are padding. The
weights are its left operand, so a tile of y^T [BLOCK_N, BLOCK_M] is computed.

The warps of a program share K, not rows: each takes some words of every row, next to its neighbour's, so that together
they read long runs of a row, and no two read the same x. They add up what they have at the end. Programs share K, too,
where the rows alone would not fill the GPU, and a second kernel adds up what each leaves.
"""

from instruments.backend import tl, triton
from kernels.weight_only_unpack import by_parts, by_slices, factors_of, mended, spread, unpack


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
    EVEN: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    SLICES: tl.constexpr,
    WORDS: tl.constexpr,
    STAGES: tl.constexpr,
):
    """x [M <= BLOCK_M, K] of any strides; codes [N, words] int32 of FORMAT, row_words apart; scales [N, row_scales],
    one for GROUP values, or for a row where GROUP is 0; tensor_scale one fp32, or None. EVEN: no tile ends outside the
    weight. To y [M, N], or to partial [splits, M, N] fp32, where given, the sum over split_words of each row."""
    PER_WORD: tl.constexpr = 4 if FORMAT == "int8" else 8
    BLOCK_K: tl.constexpr = WORDS * PER_WORD  # of a slice
    COUNT: tl.constexpr = SLICES * BLOCK_K // GROUP if GROUP else 1  # scales of a row in a step
    like: tl.constexpr = x_ptr.dtype.element_ty
    row = tl.program_id(0).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)[:, None]  # [BLOCK_N, 1]: of the weights
    token = tl.arange(0, BLOCK_M)[:, None]  # [BLOCK_M, 1]: a row of x
    word = tl.arange(0, SLICES * WORDS)[None, :]  # [1, SLICES * WORDS]
    k = tl.arange(0, SLICES * BLOCK_K)[None, :]  # [1, SLICES * BLOCK_K]
    x_ptr += token.to(tl.int64) * x_row_stride
    codes_ptr += row * row_words
    scales_ptr += row * row_scales
    first = tl.program_id(1) * split_words
    total = tl.zeros([SLICES, BLOCK_N, BLOCK_M], dtype=tl.float32)
    for start in tl.range(first, tl.minimum(first + split_words, words), SLICES * WORDS, num_stages=STAGES):
        start = tl.multiple_of(start, SLICES * WORDS)
        column = start * PER_WORD + k
        group = start * PER_WORD // GROUP + tl.arange(0, COUNT)[None, :] if GROUP else 0  # [1, COUNT]
        x_mask = token < M
        if EVEN:
            codes_mask, scales_mask, none = None, None, None
        else:  # past a row's end a weight may be anything finite: x is zero there
            codes_mask = (row < N) & (word < words - start)
            scales_mask, none = (row < N) & (group < row_scales), 0
            x_mask = x_mask & (column < K)
        codes = tl.load(codes_ptr + (start + word), mask=codes_mask)  # [BLOCK_N, SLICES * WORDS]
        x = tl.load(x_ptr + column * x_col_stride, mask=x_mask, other=0.0)  # [BLOCK_M, SLICES * BLOCK_K]
        weight = unpack(by_slices(codes, SLICES), FORMAT, like)  # [SLICES, BLOCK_N, BLOCK_K]
        x = by_parts(by_slices(x, SLICES), PER_WORD // 2)  # [SLICES, BLOCK_M, BLOCK_K]
        step = total
        if GROUP:
            scales = by_slices(tl.load(scales_ptr + group, mask=scales_mask, other=none), SLICES)
            if FORMAT == "e2m1":
                weight *= spread(factors_of(scales, like), GROUP)
            else:  # sums of a group are scaled before they are added up
                step = tl.zeros([SLICES, BLOCK_N, BLOCK_M], dtype=tl.float32)
        step = tl.dot(weight, x.permute(0, 2, 1), step)
        total = total + step * scales if GROUP and FORMAT != "e2m1" else step

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
