"""FlashAttention's forward with a switch for each piece of a tile's work: the two products, the running maximum and the
exponential.

It exists to be measured: what a piece costs is seen where nothing else changed. Most variants compute no attention.
Minimum traffic is attention's: q, k and v read once, the output written once. The algorithm is Dao's FlashAttention-2
(2023), without mask, log-sum-exp or grouped heads.
"""

from dataclasses import asdict, dataclass

import torch

from instruments.backend import tl, triton
from kernels.arguments import check_no_grad, check_tensor
from kernels.tiles import LOG2E

HEAD_DIMS = (64, 128)
TILE = {"BLOCK_M": 128, "BLOCK_N": 128, "num_warps": 8}
STAGES = 3
SIXTEEN_BITS = (torch.float16, torch.bfloat16)


@triton.jit
def attention_limits_kernel(
    q,
    k,
    v,
    out,
    sequence,
    log2_scale,
    zero,
    PRODUCTS: tl.constexpr,
    MAXIMUM: tl.constexpr,
    EXPONENTIALS: tl.constexpr,
    MULTIPLIED: tl.constexpr,
    STAGES: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """BLOCK_M queries of one head against all its keys: descriptors q, k, v, out [batch * heads * sequence, HEAD_DIM].

    zero: 0.0, which the compiler does not know.
    """
    head = tl.program_id(1) * sequence
    row = head + tl.program_id(0) * BLOCK_M
    q_tile = q.load([row, 0])  # [BLOCK_M, HEAD_DIM]
    m = tl.full([BLOCK_M], float("-inf"), tl.float32)
    l = tl.zeros([BLOCK_M], tl.float32)  # noqa: E741, as in the papers
    total = tl.zeros([BLOCK_M, HEAD_DIM], tl.float32)
    if not PRODUCTS:
        same = tl.dot(q_tile, k.load([head, 0]).T)  # [BLOCK_M, BLOCK_N], in place of every tile's scores
    for start in tl.range(0, sequence, BLOCK_N, num_stages=STAGES):
        if PRODUCTS:
            scores = tl.dot(q_tile, k.load([head + start, 0]).T)
        else:
            scores = same + start * zero  # new to the compiler in every round
        if MAXIMUM:
            new_m = tl.maximum(m, tl.max(scores, 1) * log2_scale)
            repair = tl.exp2(m - new_m)  # [BLOCK_M]
            p = scores * log2_scale - new_m[:, None]
            m = new_m
        else:
            p = scores * log2_scale
        x = p
        if EXPONENTIALS > 0:
            p = tl.exp2(p)
        for _ in tl.static_range(1, EXPONENTIALS):
            p *= tl.exp2(x * zero)  # 1
            x += 1
        if MULTIPLIED:
            p *= x * zero + 1  # 1, by arithmetic alone
        if EXPONENTIALS > 0 or MAXIMUM:
            if MAXIMUM:
                l = l * repair + tl.sum(p, 1)  # noqa: E741
                total *= repair[:, None]
            else:
                l += tl.sum(p, 1)  # noqa: E741
        if PRODUCTS:
            total = tl.dot(p.to(v.dtype), v.load([head + start, 0]), total)
    if EXPONENTIALS > 0 or MAXIMUM:
        total = (total + (0.0 if PRODUCTS else 1.0)) / l[:, None]
    out.store([row, 0], total.to(out.dtype))


@dataclass(frozen=True)
class Variant:
    """One setting of the switches; the defaults are the whole kernel's. exponentials: per score. multiplied: by a 1
    that costs what a second exponential does, less the exponential."""

    products: bool = True
    maximum: bool = True
    exponentials: int = 1
    multiplied: bool = False


WHOLE = "bytes-first"  # as records call what has to be right
#: {name: variant}: the whole kernel, pieces left out, and pieces done again. Those of RIGHT compute attention.
VARIANTS = {
    WHOLE: Variant(),
    "no exponential": Variant(exponentials=0),
    "a multiplication more": Variant(multiplied=True),
    "two exponentials": Variant(exponentials=2),
    "three exponentials": Variant(exponentials=3),
    "no maximum": Variant(maximum=False),
    "products alone": Variant(maximum=False, exponentials=0),
    "softmax alone": Variant(products=False),
    "softmax alone, no exponential": Variant(products=False, exponentials=0),
}
RIGHT = (WHOLE, "a multiplication more", "two exponentials", "three exponentials", "no maximum")


def attention_limits(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, variant: str = WHOLE) -> torch.Tensor:
    """softmax(q k^T / sqrt(head_dim)) v by one variant of the kernel, which may leave a piece of that out.

    q, k, v: [batch, heads, sequence, head_dim], contiguous, fp16 or bf16, sequence a multiple of 128, head_dim 64 or
    128. variant: a name of VARIANTS; "no maximum" overflows where a score exceeds 88. Returns a tensor like q. Raises
    ValueError naming the argument.
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

    tiles = (describe(q, TILE["BLOCK_M"]), describe(k, TILE["BLOCK_N"]), describe(v, TILE["BLOCK_N"]))
    switches = {name.upper(): value for name, value in asdict(VARIANTS[variant]).items()}
    log2_scale = head_dim**-0.5 * LOG2E.value
    attention_limits_kernel[(sequence // TILE["BLOCK_M"], batch * heads)](
        *tiles,
        describe(out, TILE["BLOCK_M"]),
        sequence,
        log2_scale,
        0.0,
        **switches,
        STAGES=STAGES,
        HEAD_DIM=head_dim,
        **TILE,
    )
    return out
