"""Cross-entropy of a linear layer, x @ weight^T, as at the end of a language model: loss and gradients together.

With 8,192 tokens and a vocabulary of 128,256 the logits take 2.1 GB in bf16. Unfused training stores them, their
log-softmax in fp32 and the gradient. Here the logits are stored once, in 16 bits, and the gradient overwrites them;
weight's gradient is one matmul over all tokens, so it is accumulated in fp32 and rounded once. With chunks of tokens
the logits of one chunk alone are stored, and weight's gradient is accumulated over chunks in fp32 memory.

Minimum traffic: x, weight and the gradients once, if logits stayed on chip, which no matmul of this size does.
Chunking the loss over tokens with gradients computed in the forward is Liger Kernel's (2024).
"""

import torch

from instruments.traffic import Traffic
from kernels.losses.cross_entropy import IGNORED, cross_entropy_reference, cross_entropy_with_gradient
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
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The mean cross-entropy of x @ weight^T, and the gradients of x and weight.

    Args:
        x: [tokens, width], fp16, bf16 or fp32.
        weight: [vocabulary, width], the dtype of x.
        targets: [tokens], int64 or int32: a row of weight per token, or ignore_index.
        label_smoothing: the share of a target that is spread over the vocabulary.
        ignore_index: tokens with this target count for nothing.
        chunk: tokens whose logits are stored at a time; None stores those of all.

    Returns:
        The loss, a scalar in fp32; dx [tokens, width], the dtype of x; dweight [vocabulary, width], the dtype of
        weight, or with a chunk smaller than all tokens fp32.

    Raises:
        ValueError: naming the argument, what it is and what was expected.
    """
    check_no_grad("linear_cross_entropy, which returns the gradients,", x=x, weight=weight)
    check_matrices(x, weight.T, names=("x", "weight^T"))
    if chunk is not None and (not isinstance(chunk, int) or chunk < 1):
        raise ValueError(f"chunk: got {chunk!r}, expected None or an integer of at least 1")
    options = {"label_smoothing": label_smoothing, "ignore_index": ignore_index, "reduction": "sum", "in_place": True}
    counted = (targets != ignore_index).sum().float()
    if chunk is None or chunk >= len(x):
        loss, dlogits = cross_entropy_with_gradient(matmul(x, weight.T), targets, **options)
        # a sum's gradient, rounded to 16 bits near 1, not near 1 / tokens, where fp16 has few bits left
        return loss / counted, matmul(dlogits, weight) / counted, matmul(dlogits.T, x) / counted
    loss, dx = torch.zeros((), device=x.device), torch.empty_like(x, memory_format=torch.contiguous_format)
    dweight = torch.zeros(weight.shape, dtype=torch.float32, device=x.device)
    for start in range(0, len(x), chunk):
        part = slice(start, start + chunk)
        more, dlogits = cross_entropy_with_gradient(matmul(x[part], weight.T), targets[part], **options)
        loss += more
        dx[part] = matmul(dlogits, weight) / counted
        dweight += matmul(dlogits.T, x[part])
    return loss / counted, dx, dweight / counted


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
