"""Sampling a token from logits with temperature, top-k and top-p, in one launch and without sorting.

A token is kept if its logit is one of the row's k largest, and belongs to the smallest set of largest ones with a share
of at least p of the probability that these k have. One of the kept tokens is drawn with its probability among them.

Minimum traffic: the logits read once. A row of 128,256 logits does not fit in registers, so the program sweeps over it
several times, and all sweeps but the first can come from L2:

    threshold   the k-th largest logit, found two bits at a time: at which of the three settings above zero are there
                still k values or more? One sweep per two bits, 8 for bf16. No sort, no second copy of the row.
    top-p       the same with probabilities added up in place of tokens counted
    draw        the largest of logit / temperature + Gumbel noise, which falls on each token with its softmax
                probability (the Gumbel-max trick), so no probability is ever normalized

Equal logits stand or fall together: ties at the threshold are all kept. Radix selection and the Gumbel-max trick are
textbook; FlashInfer (2024) samples without sorting too, by rejection.
"""

import torch

from instruments.backend import next_power_of_2, tl, triton
from instruments.traffic import Traffic
from kernels.shared.arguments import check_no_grad, check_tensor
from kernels.shared.tiles import LOG2E

BLOCK = 8192
NUM_WARPS = 32
#: The lowest bit of fp32 in which two values of a dtype can differ.
LOWEST_BIT = {torch.float32: 0, torch.float16: 13, torch.bfloat16: 16}


def kept_reference(logits: torch.Tensor, k: int, p: float = 1.0, temperature: float = 1.0) -> torch.Tensor:
    """Which tokens may be drawn, and with what probability: [rows, cols], zero where a token is not kept. In plain
    PyTorch, by sorting, in the precision of the logits: pass fp64 for a reference."""
    k = min(k, logits.shape[1])
    kept = logits >= logits.topk(k).values[:, -1:]
    scaled = (logits / temperature).masked_fill(~kept, float("-inf"))
    probabilities = scaled.softmax(1)
    ordered = probabilities.sort(1, descending=True).values
    enough = (ordered.cumsum(1) >= p * (1 - 1e-12)).int().argmax(1, keepdim=True)  # the last token that is needed
    kept &= probabilities >= ordered.gather(1, enough)
    return scaled.masked_fill(~kept, float("-inf")).softmax(1)


@triton.jit
def sort_key(x):
    """int32 keys in the order of fp32 values x: positive floats are ordered like their bits, negative ones reversed."""
    bits = x.to(tl.int32, bitcast=True)
    return tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits)


@triton.jit
def above(key, threshold, value):
    """`value` where a key reaches the threshold, else 0."""
    return tl.where(key >= threshold, value, 0.0)


@triton.jit
def sum_above(
    logits_ptr, threshold, row_max, scale, cols,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """The sum of exp2((logit - row_max) * scale) over a row's logits with a key of at least `threshold`."""
    acc = tl.zeros([BLOCK], dtype=tl.float32)
    for start in tl.range(0, cols, BLOCK):
        col = start + tl.arange(0, BLOCK)
        x = tl.load(logits_ptr + col, mask=col < cols, other=float("-inf")).to(tl.float32)
        acc += above(sort_key(x), threshold, tl.exp2((x - row_max) * scale))
    return tl.sum(acc)


@triton.jit
def largest_threshold(
    logits_ptr, target, row_max, scale, cols,
    COUNT: tl.constexpr, LOWEST_BIT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The largest key that logits of at least `target` reach: so many logits with COUNT, else the sum of their
    exp2((logit - row_max) * scale). Two bits a sweep from the highest: three candidates, one above another."""
    threshold = tl.full([], -2147483648, tl.int32)
    for step in tl.range(0, (32 - LOWEST_BIT + 1) // 2):
        shift = 30 - 2 * step
        # ^ sets a bit that is 0, and at the sign, where keys begin with 1, clears it: candidates rise from 1 to 3
        first = threshold ^ (tl.full([], 1, tl.int32) << shift)
        second = threshold ^ (tl.full([], 2, tl.int32) << shift)
        third = threshold ^ (tl.full([], 3, tl.int32) << shift)
        one, two, three = (tl.zeros([BLOCK], dtype=tl.float32),) * 3
        for start in tl.range(0, cols, BLOCK):
            col = start + tl.arange(0, BLOCK)
            x = tl.load(logits_ptr + col, mask=col < cols, other=float("-inf")).to(tl.float32)
            key = sort_key(x)
            if COUNT:
                value = tl.where(col < cols, 1.0, 0.0)
            else:
                value = tl.exp2((x - row_max) * scale)
            one += above(key, first, value)
            two += above(key, second, value)
            three += above(key, third, value)
        # counts below 2^24 are exact in fp32
        if tl.sum(three) >= target:
            threshold = third
        elif tl.sum(two) >= target:
            threshold = second
        elif tl.sum(one) >= target:
            threshold = first
    return threshold


@triton.jit
def sample_kernel(
    logits_ptr, tokens_ptr,
    row_stride, cols, k, p, scale, seed,
    TOP_K: tl.constexpr, TOP_P: tl.constexpr, GREEDY: tl.constexpr, LOWEST_BIT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One token per program: logits [rows, cols], last stride 1; tokens [rows] int64. scale = log2(e) / temperature."""
    row = tl.program_id(0).to(tl.int64)
    logits_ptr += row * row_stride
    largest = tl.full([BLOCK], float("-inf"), dtype=tl.float32)
    for start in tl.range(0, cols, BLOCK):
        col = start + tl.arange(0, BLOCK)  # [BLOCK]
        largest = tl.maximum(largest, tl.load(logits_ptr + col, mask=col < cols, other=float("-inf")).to(tl.float32))
    row_max = tl.max(largest)
    threshold = tl.full([], -2147483648, tl.int32)
    if TOP_K:
        threshold = largest_threshold(logits_ptr, k, row_max, scale, cols, True, LOWEST_BIT, BLOCK)
    if TOP_P:
        target = p * sum_above(logits_ptr, threshold, row_max, scale, cols, BLOCK)
        by_mass = largest_threshold(logits_ptr, target, row_max, scale, cols, False, LOWEST_BIT, BLOCK)
        threshold = tl.maximum(threshold, by_mass)
    best = tl.full([BLOCK], float("-inf"), dtype=tl.float32)
    token = tl.zeros([BLOCK], dtype=tl.int32)
    for start in tl.range(0, cols, BLOCK):
        col = start + tl.arange(0, BLOCK)
        x = tl.load(logits_ptr + col, mask=col < cols, other=float("-inf")).to(tl.float32)
        score = (x - row_max) * scale
        if not GREEDY:
            uniform = tl.maximum(tl.rand(seed, row * cols + col), 1e-10)
            score -= tl.log2(-tl.log2(uniform))  # Gumbel noise in units of log2
        score = tl.where((sort_key(x) >= threshold) & (col < cols), score, float("-inf"))
        token = tl.where(score > best, col, token)
        best = tl.maximum(best, score)
    winner = tl.max(best)
    tl.store(tokens_ptr + row, tl.min(tl.where(best == winner, token, 2147483647)).to(tl.int64))


def sample_top_k(
    logits: torch.Tensor, k: int | None = None, p: float = 1.0, temperature: float = 1.0, *, seed: int = 0
) -> torch.Tensor:
    """One token per row, drawn among those that top-k and then top-p keep.

    Args:
        logits: [rows, cols], fp16, bf16 or fp32, last stride 1; -inf for a token that must not be drawn.
        k: how many of the largest logits are kept; None keeps all.
        p: the share of the probability of these that is kept, above 0 and at most 1.
        temperature: the logits are divided by it; 0 takes the largest logit, of equal ones the first.
        seed: of the noise. The same seed, shape and logits give the same tokens.

    Returns:
        [rows], int64.

    Raises:
        ValueError: naming the argument, what it is and what was expected.

    Note:
        Equal logits stand or fall together, so ties may keep more than k tokens.
    """
    check_no_grad("sample_top_k", logits=logits)
    check_tensor("logits", logits)
    if logits.dim() != 2 or not 1 <= logits.shape[1] < 1 << 24:
        raise ValueError(f"logits: got shape {tuple(logits.shape)}, expected (rows, cols) with 1 to 2^24 - 1 columns")
    if logits.stride(1) != 1 and logits.shape[1] > 1:
        raise ValueError(f"logits: got strides {logits.stride()}, expected a last stride of 1")
    if k is not None and (not isinstance(k, int) or k < 1):
        raise ValueError(f"k: got {k!r}, expected None or an integer of at least 1")
    if not 0 < p <= 1:
        raise ValueError(f"p: got {p!r}, expected a number above 0 and at most 1")
    if not temperature >= 0:
        raise ValueError(f"temperature: got {temperature!r}, expected a number of at least 0")
    rows, cols = logits.shape
    tokens = torch.empty(rows, dtype=torch.int64, device=logits.device)
    if rows:
        greedy = temperature == 0
        sample_kernel[(rows,)](
            logits, tokens,
            logits.stride(0), cols, k or 0, float(p), LOG2E.value / (temperature or 1.0), seed,
            TOP_K=k is not None and k < cols and not greedy, TOP_P=p < 1 and not greedy, GREEDY=greedy,
            LOWEST_BIT=LOWEST_BIT[logits.dtype], BLOCK=min(BLOCK, next_power_of_2(cols)), num_warps=NUM_WARPS,
        )  # fmt: skip
    return tokens


def sample_top_k_traffic(
    rows: int, cols: int, dtype: torch.dtype, k: int | None = None, p: float = 1.0, *, sweeps: bool = False
) -> Traffic:
    """The traffic of sampling.

    Args:
        rows: rows of the logits.
        cols: columns.
        dtype: their dtype.
        k: as for `sample_top_k`.
        p: as for `sample_top_k`.
        sweeps: count the requested bytes of every sweep; False counts each byte once, the minimum.
    """
    steps = (32 - LOWEST_BIT[dtype] + 1) // 2
    count = 2 + steps * (k is not None and k < cols) + (steps + 1) * (p < 1) if sweeps else 1
    return Traffic({"logits": count * rows * cols * dtype.itemsize}, {"tokens": rows * 8}, launches=1)
