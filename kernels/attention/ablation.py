"""Lesson 08c's experiment: FlashAttention's forward with a switch for each piece of a tile's work.

The pieces are the two matmuls, the running max and the exponential. The kernel exists to be measured: it shows what a
piece costs where nothing else changes. Most variants do not compute attention. Minimum traffic is attention's: q, k and
v read once, the output written once. The algorithm is FlashAttention-2 (Dao, 2023), without mask, log-sum-exp or GQA.
"""

from dataclasses import asdict, dataclass

import torch

from instruments.backend import tl, triton
from kernels.shared.arguments import check_no_grad, check_tensor
from kernels.shared.tiles import LOG2E

HEAD_DIMS = (64, 128)
TILE = {"BLOCK_M": 128, "BLOCK_N": 128, "num_warps": 8}
STAGES = 3
SIXTEEN_BITS = (torch.float16, torch.bfloat16)


@triton.jit
def attention_limits_kernel(
    q, k, v, out,  # descriptors
    sequence, log2_scale, zero,
    MATMULS: tl.constexpr, MAXIMUM: tl.constexpr, EXPONENTIALS: tl.constexpr, MULTIPLY: tl.constexpr,
    STAGES: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """BLOCK_M queries of one head against all its keys: q, k, v, out [batch * heads * sequence, HEAD_DIM]. zero: 0.0,
    which the compiler does not know."""
    head = tl.program_id(1) * sequence
    row = head + tl.program_id(0) * BLOCK_M
    q_tile = q.load([row, 0])  # [BLOCK_M, HEAD_DIM]
    running_max = tl.full([BLOCK_M], float("-inf"), tl.float32)
    running_sum = tl.zeros([BLOCK_M], tl.float32)
    acc = tl.zeros([BLOCK_M, HEAD_DIM], tl.float32)
    if not MATMULS:
        same = tl.dot(q_tile, k.load([head, 0]).T)  # [BLOCK_M, BLOCK_N], instead of every tile's scores
    for start in tl.range(0, sequence, BLOCK_N, num_stages=STAGES):
        if MATMULS:
            scores = tl.dot(q_tile, k.load([head + start, 0]).T)
        else:
            scores = same * (start * zero + 1.0)  # new to the compiler in every iteration, and no matmul's start
        if MAXIMUM:
            new_max = tl.maximum(running_max, tl.max(scores, 1) * log2_scale)
            correction = tl.exp2(running_max - new_max)  # [BLOCK_M]
            p = scores * log2_scale - new_max[:, None]
            running_max = new_max
        else:
            p = scores * log2_scale
        x = p
        if EXPONENTIALS > 0:
            p = tl.exp2(p)
        for _ in tl.static_range(1, EXPONENTIALS):
            p *= tl.exp2(x * zero)  # 1
            x += 1
        if MULTIPLY:
            p *= x * zero + 1  # 1, without an exponential
        if EXPONENTIALS > 0 or MAXIMUM:
            if MAXIMUM:
                running_sum = running_sum * correction + tl.sum(p, 1)
                acc *= correction[:, None]
            else:
                running_sum += tl.sum(p, 1)
        if MATMULS:
            acc = tl.dot(p.to(v.dtype), v.load([head + start, 0]), acc)
    if EXPONENTIALS > 0 or MAXIMUM:
        acc = (acc + (0.0 if MATMULS else 1.0)) / running_sum[:, None]
    out.store([row, 0], acc.to(out.dtype))


@dataclass(frozen=True)
class Variant:
    """One setting of the switches; the defaults are the whole kernel's.

    Args:
        matmuls: whether both matmuls run.
        maximum: whether there is a running max.
        exponentials: number per score.
        multiply: multiply by a 1 that costs what a second exponential does, less the exponential.
    """

    matmuls: bool = True
    maximum: bool = True
    exponentials: int = 1
    multiply: bool = False


WHOLE = "bytes-first"  # the name of the whole kernel in records
#: {name in records: variant}: the whole kernel, pieces left out, and pieces done again.
VARIANTS = {
    WHOLE: Variant(),
    "no exponential": Variant(exponentials=0),
    "a multiplication more": Variant(multiply=True),
    "two exponentials": Variant(exponentials=2),
    "three exponentials": Variant(exponentials=3),
    "no maximum": Variant(maximum=False),
    "products alone": Variant(maximum=False, exponentials=0),
    "softmax alone": Variant(matmuls=False),  # with a multiplication per score in place of both matmuls
    "softmax alone, no exponential": Variant(matmuls=False, exponentials=0),
}
#: Those that compute attention.
RIGHT = (WHOLE, "a multiplication more", "two exponentials", "three exponentials", "no maximum")


def attention_limits(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, variant: str = WHOLE) -> torch.Tensor:
    """softmax(q k^T / sqrt(head_dim)) v by one variant of the kernel, which may leave a piece of that out.

    Args:
        q: [batch, heads, sequence, head_dim], fp16 or bf16, contiguous; sequence a multiple of 128, head_dim 64 or 128.
        k: of q's shape and dtype, contiguous.
        v: of q's shape and dtype, contiguous.
        variant: a name of VARIANTS; "no maximum" overflows where a score exceeds 88.

    Returns:
        A tensor of q's shape and dtype.

    Raises:
        ValueError: an argument that does not fit, by name.
    """
    from triton.tools.tensor_descriptor import TensorDescriptor

    check_tensor("q", q, dtypes=SIXTEEN_BITS)
    if q.dim() != 4 or q.shape[2] % TILE["BLOCK_M"] or q.shape[3] not in HEAD_DIMS:
        expected = "[batch, heads, a multiple of 128, 64 or 128]"
        raise ValueError(f"q: got shape {tuple(q.shape)}, expected {expected}")
    for name, tensor in {"k": k, "v": v}.items():
        check_tensor(name, tensor, shape=q.shape, like=q, dtypes=(q.dtype,), why=", that of q")
    for name, tensor in {"q": q, "k": k, "v": v}.items():
        if not tensor.is_contiguous():
            raise ValueError(f"{name}: got strides {tensor.stride()}, expected a contiguous tensor")
    if variant not in VARIANTS:
        raise ValueError(f"variant: got {variant!r}, expected one of: {', '.join(VARIANTS)}")
    check_no_grad("attention_limits", q=q, k=k, v=v)
    out = torch.empty_like(q)
    if not q.numel():
        return out
    batch, heads, sequence, head_dim = q.shape

    def describe(tensor, rows):
        flat = tensor.view(-1, head_dim)
        return TensorDescriptor(flat, list(flat.shape), list(flat.stride()), [rows, head_dim])

    switches = {name.upper(): value for name, value in asdict(VARIANTS[variant]).items()}
    # fmt: off
    attention_limits_kernel[(sequence // TILE["BLOCK_M"], batch * heads)](
        describe(q, TILE["BLOCK_M"]), describe(k, TILE["BLOCK_N"]), describe(v, TILE["BLOCK_N"]),
        describe(out, TILE["BLOCK_M"]),
        sequence, head_dim**-0.5 * LOG2E.value, 0.0,
        **switches, STAGES=STAGES, HEAD_DIM=head_dim, **TILE,
    )
    # fmt: on
    return out
