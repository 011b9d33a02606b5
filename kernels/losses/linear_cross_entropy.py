"""Cross-entropy of a linear layer, x @ weight^T, as at the end of a language model: loss and gradients together.

With 8,192 tokens and a vocabulary of 128,256 the logits take 2.1 GB in bf16. Unfused training stores them, their
log-softmax in fp32 and the gradient. There are three ways to store less:

    all logits once           in 16 bits; the gradient overwrites them. dweight is one matmul over all tokens, summed in
                              fp32 in registers and rounded once
    chunks of tokens          the logits of one chunk at a time; dweight is summed over chunks in fp32 in memory
    chunks of the vocabulary  the log-sum-exp of all logits first, a chunk of columns at a time; then each chunk again,
                              for its gradient. A fourth matmul, and no tensor as large as the logits or an fp32 weight

Minimum traffic: x, weight and the gradients once, if logits stayed on chip, which no matmul of this size does.
Chunking the loss over tokens with gradients computed in the forward is Liger Kernel's (2024); recomputing the logits
per block of the vocabulary is Cut Cross-Entropy's (Wijmans et al., 2024).
"""

import torch

from instruments.traffic import Traffic
from kernels.linear.backward import matmul_add, multiply_into, weight_gradient
from kernels.losses.cross_entropy import (
    IGNORED,
    cross_entropy_reference,
    cross_entropy_with_gradient,
    piece_gradient_,
    piece_statistics,
)
from kernels.matmul.tiled import matmul, matmul_traffic
from kernels.shared.arguments import check_matrices, check_no_grad


def linear_cross_entropy_reference(x, weight, targets, **options):
    """The loss by torch, in the precision of its arguments: pass fp64 for a reference."""
    return cross_entropy_reference(x @ weight.T, targets, **options)


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
    options = {"label_smoothing": label_smoothing, "ignore_index": ignore_index, "reduction": "sum", "in_place": True}
    counted = (targets != ignore_index).sum().float()
    if chunk is None or chunk >= len(x):
        # a sum's gradient, rounded to 16 bits near 1, not near 1 / tokens, where fp16 has few bits left
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
    counted = (targets != ignore_index).sum().float()
    parts = [slice(start, start + size) for start in range(0, len(weight), size)]
    lse = torch.full((len(x),), float("-inf"), dtype=torch.float32, device=x.device)
    at_target = torch.full_like(lse, float("nan"))
    for part in parts:
        piece_statistics(matmul(x, weight[part].T), targets - part.start, lse, at_target)
    loss = torch.where(targets == ignore_index, 0.0, lse - at_target).sum() / counted
    dx = torch.zeros(x.shape, dtype=torch.float32, device=x.device)
    dweight = torch.empty_like(weight, memory_format=torch.contiguous_format)
    for part in parts:
        dlogits = matmul(x, weight[part].T)
        piece_gradient_(dlogits, targets - part.start, lse, ignore_index - part.start)
        matmul_add(dlogits, weight[part], dx)
        multiply_into(dweight[part], dlogits.T, x, add=False)
        del dlogits
    return loss, dx.div_(counted).to(x.dtype), dweight.div_(counted)


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
