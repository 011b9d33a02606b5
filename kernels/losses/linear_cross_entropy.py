"""Cross-entropy of a linear layer, x @ weight^T, as at the end of a language model: loss and gradients together.

With 8,192 tokens and a vocabulary of 128,256 the logits take 2.1 GB in bf16. Unfused training stores them, their
log-softmax in fp32 and the gradient. There are three ways to store less:

    all logits once           in 16 bits; the gradient overwrites them. dweight is one matmul over all tokens, summed in
                              fp32 in registers and rounded once
    chunks of tokens          the logits of one chunk at a time; dweight is summed over chunks in fp32 in memory
    chunks of the vocabulary  the log-sum-exp of all logits first; then the logits again, a chunk of columns at a time,
                              for their gradient. A fourth matmul, and no tensor as large as the logits or an fp32
                              weight. On a GPU with tensor descriptors both are epilogues of their matmul: the first
                              stores no logit, only a number per row and tile, the second stores the gradient

Minimum traffic: x, weight and the gradients once, if logits stayed on chip, which no matmul of this size does.
Chunking the loss over tokens with gradients computed in the forward is Liger Kernel's (2024); logits that are reduced
in the matmul's epilogue and computed again for their gradient are Cut Cross-Entropy's (Wijmans et al., 2024).
"""

import torch

from instruments.backend import cdiv, tl, triton
from instruments.traffic import Traffic
from kernels.linear.backward import matmul_add, multiply_into, weight_gradient
from kernels.losses.cross_entropy import (
    IGNORED,
    LN2,
    cross_entropy_reference,
    cross_entropy_with_gradient,
    gradient_tile,
    piece_gradient_,
    piece_statistics,
)
from kernels.matmul.persistent import LARGE, SHARED, accumulate_tile, aligned, count_tiles
from kernels.matmul.tile_order import grouped_tile
from kernels.matmul.tiled import matmul, matmul_traffic
from kernels.shared.arguments import check_matrices, check_no_grad, check_tensor
from kernels.shared.device import device_of, has_descriptors, tensor_descriptor
from kernels.shared.tiles import LOG2E

GROUP_M = 16  # rows of tiles of the logits that share a tile of the weight in L2


def linear_cross_entropy_reference(x, weight, targets, **options):
    """The loss by torch, in the precision of its arguments: pass fp64 for a reference."""
    return cross_entropy_reference(x @ weight.T, targets, **options)


@triton.jit
def logits_statistics_kernel(
    x, weight, targets_ptr, lse_ptr, at_target_ptr,
    M, N, K,
    tiles,
    GROUP_M: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Many tiles of logits = x @ weight^T per program, none of them stored: descriptors of x [M, K] and weight [N, K];
    targets [M]; lse [cdiv(N, BLOCK_N), M] fp32, a tile's log-sum-exp of each row; at_target [M] fp32."""
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0), flatten=True):
        tile_m, tile_n = grouped_tile(tile, M, N, BLOCK_M, BLOCK_N, GROUP_M)
        row, col = tile_m * BLOCK_M, tile_n * BLOCK_N
        logits = accumulate_tile(x, weight, row, col, 0, K, True, BLOCK_M, BLOCK_N, BLOCK_K)
        rows, cols = row + tl.arange(0, BLOCK_M), col + tl.arange(0, BLOCK_N)[None, :]  # [BLOCK_M], [1, BLOCK_N]
        logits = tl.where(cols < N, logits, float("-inf"))
        row_max = tl.max(logits, axis=1)  # [BLOCK_M], finite: a tile has at least one column
        row_sum = tl.sum(tl.exp2((logits - row_max[:, None]) * LOG2E), axis=1)
        tl.store(lse_ptr + tile_n.to(tl.int64) * M + rows, row_max + tl.log2(row_sum) * LN2, mask=rows < M)
        target = tl.load(targets_ptr + rows, mask=rows < M, other=-1)
        at_target = tl.sum(tl.where(cols == target[:, None], logits, 0.0), axis=1)
        tl.store(at_target_ptr + rows, at_target, mask=(target >= col) & (target < tl.minimum(col + BLOCK_N, N)))


@triton.jit
def logits_gradient_kernel(
    x, weight, targets_ptr, lse_ptr, factor_ptr, dlogits,
    M, N, K,
    ignore_index, tiles,
    GROUP_M: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Many tiles of factor[0] times the summed loss's gradient by logits = x @ weight^T per program: descriptors of x
    [M, K], weight [N, K] and dlogits [M, N], in tiles [BLOCK_M, BLOCK_N // 2]; targets and lse [M], lse of the whole
    vocabulary."""
    HALF: tl.constexpr = BLOCK_N // 2
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0), flatten=True):
        tile_m, tile_n = grouped_tile(tile, M, N, BLOCK_M, BLOCK_N, GROUP_M)
        row, col = tile_m * BLOCK_M, tile_n * BLOCK_N
        logits = accumulate_tile(x, weight, row, col, 0, K, True, BLOCK_M, BLOCK_N, BLOCK_K)
        rows = row + tl.arange(0, BLOCK_M)  # [BLOCK_M]
        target = tl.load(targets_ptr + rows, mask=rows < M, other=ignore_index)[:, None]
        lse = tl.load(lse_ptr + rows, mask=rows < M, other=0.0)[:, None]
        factor = tl.load(factor_ptr)  # here, or it would take a register through the loop over K
        cols = col + tl.arange(0, HALF)[None, :]  # [1, HALF]
        # in two halves, which share one buffer of half the size
        left, right = tl.split(tl.permute(tl.reshape(logits, (BLOCK_M, 2, HALF)), (0, 2, 1)))
        left = tl.where(target == ignore_index, 0.0, factor * gradient_tile(left, lse, cols == target, N, 0.0))
        right = tl.where(target == ignore_index, 0.0, factor * gradient_tile(right, lse, cols + HALF == target, N, 0.0))
        dlogits.store([row, col], left.to(dlogits.dtype))
        dlogits.store([row, col + HALF], right.to(dlogits.dtype))


def _launch(kernel, x, weight, pointers, out, ignored):
    """One of the two kernels, for 16-bit x [M, K] and weight [N, K]; pointers and out by its names for them."""
    x, weight = aligned(x), aligned(weight)
    (M, K), N = x.shape, len(weight)
    m, n, k = (LARGE[name] for name in ("BLOCK_M", "BLOCK_N", "BLOCK_K"))
    tiles = count_tiles(LARGE, M, N)
    kernel[(min(device_of(x.device).sms, tiles),)](
        tensor_descriptor(x, x.shape, x.stride(), (m, k)),
        tensor_descriptor(weight, weight.shape, weight.stride(), (n, k)),
        *pointers, out,
        M, N, K,
        *ignored, tiles,
        GROUP_M=GROUP_M, **LARGE,
    )  # fmt: skip


def logits_statistics(x: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor):
    """(log-sum-exp, the target's logit) of each row of x @ weight^T, [M] fp32, in one matmul that stores no logits; the
    latter NaN where a target is no row of weight. x [M, K] and weight [N, K] of 16 bits, targets [M]."""
    parts = torch.empty((cdiv(len(weight), LARGE["BLOCK_N"]), len(x)), dtype=torch.float32, device=x.device)
    at_target = torch.full((len(x),), float("nan"), dtype=torch.float32, device=x.device)
    _launch(logits_statistics_kernel, x, weight, (targets, parts), at_target, ())
    return torch.logsumexp(parts, dim=0), at_target


def logits_gradient(x, weight, targets, lse, factor, ignore_index) -> torch.Tensor:
    """[M, N], the dtype of x: factor [1] times the summed loss's gradient by x @ weight^T, for a piece of a vocabulary.
    targets and ignore_index are counted from the piece's first row; lse [M] is that of the whole vocabulary."""
    pitch = cdiv(len(weight), 8) * 8  # a descriptor's rows begin on 16 bytes
    dlogits = torch.empty((len(x), pitch), dtype=x.dtype, device=x.device)[:, : len(weight)]
    out = tensor_descriptor(dlogits, dlogits.shape, dlogits.stride(), (LARGE["BLOCK_M"], LARGE["BLOCK_N"] // 2))
    _launch(logits_gradient_kernel, x, weight, (targets, lse, factor), out, (ignore_index,))
    return dlogits


def linear_cross_entropy(
    x: torch.Tensor,
    weight: torch.Tensor,
    targets: torch.Tensor,
    *,
    label_smoothing: float = 0.0,
    ignore_index: int = IGNORED,
    chunk: int | None = None,
    vocabulary_chunk: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The mean cross-entropy of x @ weight^T, and the gradients of x and weight.

    Args:
        x: [tokens, width], fp16, bf16 or fp32.
        weight: [vocabulary, width], the dtype of x.
        targets: [tokens], int64 or int32: a row of weight per token, or ignore_index.
        label_smoothing: the share of a target that is spread over the vocabulary; 0 with a vocabulary_chunk.
        ignore_index: tokens with this target count for nothing.
        chunk: tokens whose logits are stored at a time; None stores those of all.
        vocabulary_chunk: rows of weight whose logits are stored at a time, instead of a chunk of tokens; they are
            computed twice.

    Returns:
        The loss, a scalar in fp32; dx [tokens, width], the dtype of x; dweight [vocabulary, width], the dtype of
        weight, or with a chunk smaller than all tokens fp32.

    Raises:
        ValueError: naming the argument, what it is and what was expected.
    """
    check_no_grad("linear_cross_entropy, which returns the gradients,", x=x, weight=weight)
    check_matrices(x, weight.T, names=("x", "weight^T"))
    for name, size in (("chunk", chunk), ("vocabulary_chunk", vocabulary_chunk)):
        if size is not None and (not isinstance(size, int) or size < 1):
            raise ValueError(f"{name}: got {size!r}, expected None or an integer of at least 1")
    if vocabulary_chunk is not None:
        if chunk is not None or label_smoothing:
            raise ValueError("vocabulary_chunk: got a chunk or label_smoothing as well, expected neither with it")
        return _by_vocabulary(x, weight, targets, ignore_index, vocabulary_chunk)
    options = {"label_smoothing": label_smoothing, "ignore_index": ignore_index, "in_place": True}
    if (chunk is None or chunk >= len(x)) and x.dtype != torch.float16:
        loss, dlogits = cross_entropy_with_gradient(matmul(x, weight.T), targets, **options)
        return loss, matmul(dlogits, weight), weight_gradient(dlogits, x)
    # a sum's gradient, rounded near 1, not near 1 / tokens, where fp16 has few bits left; divided at the end
    options["reduction"] = "sum"
    counted = (targets != ignore_index).sum().float()
    if chunk is None or chunk >= len(x):
        loss, dlogits = cross_entropy_with_gradient(matmul(x, weight.T), targets, **options)
        return loss / counted, matmul(dlogits, weight).div_(counted), weight_gradient(dlogits, x).div_(counted)
    loss, dx = torch.zeros((), device=x.device), torch.empty_like(x, memory_format=torch.contiguous_format)
    dweight = torch.zeros(weight.shape, dtype=torch.float32, device=x.device)
    for start in range(0, len(x), chunk):
        part = slice(start, start + chunk)
        more, dlogits = cross_entropy_with_gradient(matmul(x[part], weight.T), targets[part], **options)
        loss += more
        torch.div(matmul(dlogits, weight), counted, out=dx[part])
        weight_gradient(dlogits, x[part], total=dweight)
        del dlogits  # else the next chunk's logits are made beside this chunk's
    return loss / counted, dx, dweight.div_(counted)


def _by_vocabulary(x, weight, targets, ignore_index, size):
    """`linear_cross_entropy` in chunks of `size` rows of weight."""
    check_tensor("targets", targets, shape=x.shape[:1], like=x, dtypes=(torch.int64, torch.int32),
                 why=", the rows of x")  # fmt: skip
    counted = (targets != ignore_index).sum().float()
    parts = [slice(start, start + size) for start in range(0, len(weight), size)]
    epilogues = x.itemsize == 2 and has_descriptors(x.device, SHARED) and x.numel() > 0
    folded = epilogues and x.dtype == torch.bfloat16  # 1 / counted, into the epilogue; fp16: see `linear_cross_entropy`
    factor = counted.reciprocal() if folded else torch.ones_like(counted)
    if epilogues:
        x = aligned(x)  # once, not for every chunk
        lse, at_target = logits_statistics(x, weight, targets)
    else:
        lse = torch.full((len(x),), float("-inf"), dtype=torch.float32, device=x.device)
        at_target = torch.full_like(lse, float("nan"))
        for part in parts:
            piece_statistics(matmul(x, weight[part].T), targets - part.start, lse, at_target)
    loss = torch.where(targets == ignore_index, 0.0, lse - at_target).sum() / counted
    dx = torch.zeros(x.shape, dtype=torch.float32, device=x.device)
    dweight = torch.empty_like(weight, memory_format=torch.contiguous_format)
    for part in parts:
        piece, ignored = targets - part.start, ignore_index - part.start
        if epilogues:
            dlogits = logits_gradient(x, weight[part], piece, lse, factor, ignored)
        else:
            dlogits = matmul(x, weight[part].T)
            piece_gradient_(dlogits, piece, lse, ignored)
        matmul_add(dlogits, weight[part], dx)
        multiply_into(dweight[part], dlogits.T, x, add=False)
        del dlogits
    if not folded:
        dx.div_(counted)
        dweight.div_(counted)
    return loss, dx.to(x.dtype), dweight


def linear_cross_entropy_traffic(tokens: int, vocabulary: int, width: int, dtype: torch.dtype) -> Traffic:
    """The traffic of the form that stores all logits: three matmuls and one launch of the loss, each counted by itself.

    Args:
        tokens: rows of x.
        vocabulary: rows of weight.
        width: columns of both.
        dtype: dtype of both.

    Returns:
        Bytes by what is moved, FLOPs of the three matmuls, four launches.
    """
    logits = tokens * vocabulary * dtype.itemsize
    matmuls = [matmul_traffic(*sizes, dtype) for sizes in (
        (tokens, vocabulary, width), (tokens, width, vocabulary), (vocabulary, width, tokens)
    )]  # fmt: skip
    read = {"matmuls": sum(sum(m.read.values()) for m in matmuls), "logits": 2 * logits}
    written = {"matmuls": sum(sum(m.written.values()) for m in matmuls), "gradient": logits}
    return Traffic(read, written, flops=sum(m.flops for m in matmuls), launches=4)
