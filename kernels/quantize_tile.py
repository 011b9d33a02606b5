"""Tiles of groups, from where they lie in a matrix to the codes and scales that leave: what quantising shares."""

from instruments.backend import tl, triton
from kernels.quantize_codes import E4M3_LARGEST, block_scale, encode, encode_pairs, largest_magnitude, scale_of_tensor


@triton.jit
def widened(x):
    """x in fp32. bf16 is fp32's upper half: said as a shift, the compiler takes one instruction for either half of a
    register; of a conversion it makes two for the upper one (Triton 3.6 to 3.9)."""
    if x.dtype == tl.bfloat16:
        return (x.to(tl.uint16, bitcast=True).to(tl.uint32) << 16).to(tl.float32, bitcast=True)
    else:
        return x.to(tl.float32)


@triton.jit
def groups_at(first, rows, cols, groups_per_row, FLAT: tl.constexpr, GROUPS: tl.constexpr, BLOCK: tl.constexpr):
    """Where the groups from the number `first` on lie: (first row, int64; row from there on, first column and count of
    columns from there on [GROUPS]). FLAT: a row is a group of BLOCK columns, so no number has to be divided."""
    local = tl.arange(0, GROUPS)
    if FLAT:
        left = tl.minimum(rows - first, GROUPS).to(tl.int32)
        return first, local, local * 0, tl.where(local < left, BLOCK, 0)
    else:
        first_row = first // groups_per_row
        group = (first % groups_per_row).to(tl.int32) + local
        start = group % groups_per_row * BLOCK
        row = (group // groups_per_row).to(tl.int64)
        return first_row, row, start, tl.where(first_row + row < rows, cols - start, 0)


@triton.jit
def store_codes(
    codes_ptr,
    first,
    code_at,
    count,
    y,
    FORMAT: tl.constexpr,
    LARGEST: tl.constexpr,
    NATIVE: tl.constexpr,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
):
    """The codes of y [ROWS, COLS], in units of its scales, to contiguous memory, two a byte where they have four bits.
    first, code_at [ROWS]: their sums are the places of the rows' first codes, both even where two share a byte; count
    [ROWS]: how many of each row there are."""
    if FORMAT == "e2m1" or FORMAT == "int4":
        codes_ptr += first // 2
        half = tl.arange(0, COLS // 2)[None, :]
        pairs = encode_pairs(y, FORMAT, LARGEST, ROWS, COLS)
        tl.store(codes_ptr + code_at[:, None] // 2 + half, pairs, mask=half < count[:, None] // 2)
    else:
        codes_ptr += first
        col = tl.arange(0, COLS)[None, :]
        code = encode(y, FORMAT, LARGEST, NATIVE)
        tl.store(codes_ptr + code_at[:, None] + col, code, mask=col < count[:, None])


@triton.jit
def quantize_tile(
    y,
    first,
    code_at,
    count,
    scale_at,
    codes_ptr,
    scales_ptr,
    partial_ptr,
    tensor_scale_ptr,
    FORMAT: tl.constexpr,
    SCALE: tl.constexpr,
    LARGEST: tl.constexpr,
    ROUND_UP: tl.constexpr,
    NATIVE: tl.constexpr,
    PARTIALS: tl.constexpr,
    GROUPS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Groups y [GROUPS, BLOCK], fp32, to memory as codes and scales; what is no value of a group is 0 in y.

    first, code_at, count: as in store_codes. scale_at [GROUPS]: the places of the groups' scales, where they have some.
    SCALE: 'tensor' for one scale of all, else the scheme's; it and e4m3 want the tensor's, see scale_of_tensor.
    """
    if SCALE == "tensor":
        inverse = tl.div_rn(1.0, scale_of_tensor(partial_ptr, tensor_scale_ptr, LARGEST, PARTIALS))
    else:
        of_tensor = 1.0
        if SCALE == "e4m3":
            of_tensor = scale_of_tensor(partial_ptr, tensor_scale_ptr, LARGEST * E4M3_LARGEST, PARTIALS)
        amax = largest_magnitude(y, 1)
        scale, inverse = block_scale(amax, of_tensor, SCALE, LARGEST, ROUND_UP, NATIVE)  # [GROUPS]
        tl.store(scales_ptr + scale_at, scale, mask=count > 0)
        inverse = inverse[:, None]
    store_codes(codes_ptr, first, code_at, count, y * inverse, FORMAT, LARGEST, NATIVE, GROUPS, BLOCK)
