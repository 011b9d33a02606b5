"""Many rows of x times weights of 8 or 4 bits: what a layer does for the tokens of a prompt.

Minimum traffic as in weight_only.py, which has the reference, the public function and the traffic; here the products
are what takes time, and few bits save none of them. The weights are made 16-bit floats in registers, from where
Hopper's matrix unit takes its left operand, so a tile of y^T [BLOCK_N, BLOCK_M] is computed. They come out in the order
of their words' parts (weight_only_unpack.py); for many rows it pays to put x into that order in memory first, from
where it is copied to shared memory as the matrix unit reads it. A step has two products, half of its columns each, so
that while one is at work the other's weights are unpacked.
"""

import torch

from instruments.backend import tl, triton
from kernels.matmul_order import grouped_tile
from kernels.weight_only_unpack import by_parts, factors_of, mended, positive, unpack_part

GROUP_N = 8  # rows of tiles of the weights that programs walk over together


@triton.jit
def order_by_parts_kernel(
    x_ptr, ordered_ptr, K, x_row_stride, x_col_stride, cols, PARTS: tl.constexpr, BLOCK_K: tl.constexpr
):
    """x [M, K] of any strides -> ordered [M, cols], each BLOCK_K columns in the order of `by_parts`, zeros after x."""
    row = tl.program_id(0).to(tl.int64)
    col = tl.program_id(1) * BLOCK_K + tl.arange(0, BLOCK_K)[None, None, :]  # [1, 1, BLOCK_K]
    x = tl.load(x_ptr + row * x_row_stride + col * x_col_stride, mask=col < K, other=0.0)
    tl.store(ordered_ptr + row * cols + col, by_parts(x, PARTS))


@triton.jit
def weight_only_prefill_kernel(
    ordered_ptr,
    codes_ptr,
    scales_ptr,
    tensor_scale_ptr,
    y_ptr,
    M,
    N,
    cols,
    words,
    row_words,
    row_scales,
    FORMAT: tl.constexpr,
    GROUP: tl.constexpr,
    GROUP_N: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    STAGES: tl.constexpr,
):
    """ordered [M, cols], x as above, cols a multiple of BLOCK_K; the other tensors as weight_only_decode_kernel takes
    them; y [M, N]."""
    PER_WORD: tl.constexpr = 4 if FORMAT == "int8" else 8
    PARTS: tl.constexpr = PER_WORD // 2
    WORDS: tl.constexpr = BLOCK_K // PER_WORD
    TOGETHER: tl.constexpr = PARTS // 2  # parts that a product takes
    HALF: tl.constexpr = BLOCK_K // 2  # their columns
    like: tl.constexpr = ordered_ptr.dtype.element_ty
    tile_n, tile_m = grouped_tile(tl.program_id(0), N, M, BLOCK_N, BLOCK_M, GROUP_N)
    row = tile_n.to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)[:, None]  # [BLOCK_N, 1]: of the weights
    token = tile_m.to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)[None, :]  # [1, BLOCK_M]: a row of x
    word = tl.arange(0, WORDS)[None, :]  # [1, WORDS]
    codes_ptr += row * row_words + word
    scales_ptr += row * row_scales
    ordered_ptr += token * cols + tl.arange(0, HALF)[:, None]
    total = tl.zeros([BLOCK_N, BLOCK_M], dtype=tl.float32)
    for start in tl.range(0, words, WORDS, num_stages=STAGES):
        # what lies past a row's end may be any code: x is zero there
        codes = tl.load(codes_ptr + start, mask=(row < N) & (word < words - start))  # [BLOCK_N, WORDS]
        codes = positive(codes, FORMAT)
        step = total
        if GROUP:  # the scales of this step, [BLOCK_N, BLOCK_K // GROUP]
            group = start * PER_WORD // GROUP + tl.arange(0, BLOCK_K // GROUP)[None, :]
            scales = tl.load(scales_ptr + group, mask=(row < N) & (group < row_scales), other=0)
            if FORMAT == "e2m1":
                factors = factors_of(scales, like)[:, None, :, None]
                factors = tl.broadcast_to(factors, (BLOCK_N, TOGETHER, BLOCK_K // GROUP, GROUP // PARTS))
                factors = factors.reshape(BLOCK_N, HALF)  # one for each column of a product
            else:  # sums of a group are scaled before they are added up
                step = tl.zeros([BLOCK_N, BLOCK_M], dtype=tl.float32)
        for s in tl.static_range(0, PARTS, TOGETHER):
            at = ordered_ptr + (start * PER_WORD + s // TOGETHER * HALF)
            x = tl.load(at, mask=token < M, other=0.0)  # [HALF, BLOCK_M]
            weight = unpack_part(codes, s, FORMAT, like)
            if TOGETHER == 2:
                weight = tl.join(weight, unpack_part(codes, s + 1, FORMAT, like)).permute(0, 3, 1, 2)
            weight = weight.reshape(BLOCK_N, HALF)
            if FORMAT == "e2m1":
                weight *= factors
            step = tl.dot(weight, x, step)
        total = total + step * scales if GROUP and FORMAT != "e2m1" else step
    total = mended(total, FORMAT, like)
    if not GROUP:
        total *= tl.load(scales_ptr, mask=row < N, other=0.0)
    if tensor_scale_ptr is not None:
        total *= tl.load(tensor_scale_ptr)
    tl.store(y_ptr + token * N + row, total.to(like), mask=(row < N) & (token < M))


def launch(x: torch.Tensor, weights: tuple, y: torch.Tensor, words: tuple, form: dict, tile: dict):
    """y [M, N] = x [M, K] @ weights^T; weights: (codes, scales, tensor_scale or None), words: (32-bit words of a row,
    how far rows are apart, scales of a row), form: FORMAT and GROUP."""
    (M, K), N = x.shape, y.shape[1]
    parts = 2 if form["FORMAT"] == "int8" else 4
    blocks = triton.cdiv(2 * parts * words[0], tile["BLOCK_K"])
    ordered = torch.empty((M, blocks * tile["BLOCK_K"]), dtype=x.dtype, device=x.device)
    cols = ordered.shape[1]
    order_by_parts_kernel[(M, blocks)](x, ordered, K, *x.stride(), cols, parts, tile["BLOCK_K"], num_warps=1)
    grid = (triton.cdiv(M, tile["BLOCK_M"]) * triton.cdiv(N, tile["BLOCK_N"]),)
    weight_only_prefill_kernel[grid](ordered, *weights, y, M, N, cols, *words, **form, GROUP_N=GROUP_N, **tile)
