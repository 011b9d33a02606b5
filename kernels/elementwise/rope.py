"""RoPE: each query and key is rotated by angles that grow with its token's position.

The first half of a head's elements and the second half form pairs (a, b). A pair with the angle t becomes
(a cos t - b sin t, b cos t + a sin t). Minimum traffic: read q, k and the two tables once, write q and k once. RoPE
comes from Su et al. (2021); the pairing of halves is that of GPT-NeoX, which Hugging Face's Llama uses.
"""

import torch

from instruments.backend import next_power_of_2, tl, triton
from instruments.traffic import Traffic
from kernels.shared.arguments import check_no_grad, check_tensor
from kernels.shared.tiles import check_path

NUM_WARPS = 4


def rope_tables(positions: torch.Tensor, head_dim: int, dtype: torch.dtype, base: float = 500_000.0):
    """cos and sin of every token's angles.

    Args:
        positions: [tokens].
        head_dim: elements per head; the second half of a table repeats the first.
        dtype: of the tables.
        base: angle i of a position p is p * base ** (-2 i / head_dim); Llama 3 has 500,000.

    Returns:
        cos and sin: [tokens, head_dim] each.
    """
    exponents = torch.arange(0, head_dim, 2, device=positions.device, dtype=torch.float64) / head_dim
    angles = positions.double()[:, None] * base**-exponents
    angles = torch.cat((angles, angles), dim=-1)
    return angles.cos().to(dtype), angles.sin().to(dtype)


def _rotate_half(x):
    first, second = x.chunk(2, dim=-1)
    return torch.cat((-second, first), dim=-1)


def rope_reference(q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor):
    """q and k rotated in plain PyTorch, as Hugging Face writes it: five ops for each."""
    return q * cos + _rotate_half(q) * sin, k * cos + _rotate_half(k) * sin


@triton.jit
def _rotate_heads(x_ptr, y_ptr, x_head_stride, x_strides_dim, y_head_stride, cos_low, cos_high, sin_low, sin_high,
                  heads, HEADS: tl.constexpr, HALF: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    """One token: x [heads, 2 * HALF] of any strides, y the same with contiguous heads; the tables [1, BLOCK]."""
    head = tl.arange(0, HEADS)[:, None]  # [HEADS, 1], HEADS >= heads
    low = tl.arange(0, BLOCK)[None, :]  # [1, BLOCK], BLOCK >= HALF
    mask = (head < heads) & (low < HALF)
    a = tl.load(x_ptr + head * x_head_stride + low * x_strides_dim, mask=mask).to(tl.float32)
    b = tl.load(x_ptr + head * x_head_stride + (low + HALF) * x_strides_dim, mask=mask).to(tl.float32)
    y_ptr += head * y_head_stride + low
    tl.store(y_ptr, (a * cos_low - b * sin_low).to(y_ptr.dtype.element_ty), mask=mask)
    tl.store(y_ptr + HALF, (b * cos_high + a * sin_high).to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def rope_kernel(
    q_ptr, k_ptr, cos_ptr, sin_ptr, q_out_ptr, k_out_ptr,
    q_strides, k_strides,
    tokens, heads, kv_heads,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, HALF: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """All heads of one token: q [batch, heads, tokens, 2 * HALF] and k [batch, kv_heads, tokens, 2 * HALF] of any
    strides, cos and sin [tokens, 2 * HALF] contiguous; outputs contiguous as [batch, tokens, heads, 2 * HALF]."""
    program = tl.program_id(0).to(tl.int64)
    batch, token = program // tokens, program % tokens
    low = tl.arange(0, BLOCK)[None, :]
    mask = low < HALF
    cos_ptr += token * 2 * HALF
    sin_ptr += token * 2 * HALF
    cos_low = tl.load(cos_ptr + low, mask=mask).to(tl.float32)
    cos_high = tl.load(cos_ptr + low + HALF, mask=mask).to(tl.float32)
    sin_low = tl.load(sin_ptr + low, mask=mask).to(tl.float32)
    sin_high = tl.load(sin_ptr + low + HALF, mask=mask).to(tl.float32)
    q_ptr += batch * q_strides[0] + token * q_strides[2]
    k_ptr += batch * k_strides[0] + token * k_strides[2]
    q_out_ptr += program * heads * 2 * HALF
    k_out_ptr += program * kv_heads * 2 * HALF
    _rotate_heads(q_ptr, q_out_ptr, q_strides[1], q_strides[3], 2 * HALF, cos_low, cos_high, sin_low, sin_high,
                  heads, HEADS, HALF, BLOCK)  # fmt: skip
    _rotate_heads(k_ptr, k_out_ptr, k_strides[1], k_strides[3], 2 * HALF, cos_low, cos_high, sin_low, sin_high,
                  kv_heads, KV_HEADS, HALF, BLOCK)  # fmt: skip


def rope(q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Rotate queries and keys by their tokens' angles, in one launch.

    Args:
        q: [batch, heads, tokens, head_dim], fp16, bf16 or fp32, any strides; head_dim even.
        k: [batch, kv_heads, tokens, head_dim], the dtype of q, any strides.
        cos: [tokens, head_dim], of any of these dtypes.
        sin: [tokens, head_dim], the dtype of cos.

    Returns:
        q and k rotated, in their shapes and dtype; contiguous as [batch, tokens, heads, head_dim]. No gradient.

    Raises:
        ValueError: naming the argument, what it is and what was expected.
    """
    check_tensor("q", q)
    if q.dim() != 4 or q.shape[3] % 2:
        raise ValueError(f"q: got shape {tuple(q.shape)}, expected [batch, heads, tokens, an even head_dim]")
    batch, heads, tokens, head_dim = q.shape
    kv_heads = k.shape[1] if isinstance(k, torch.Tensor) and k.dim() == 4 else heads
    check_tensor(
        "k", k, shape=(batch, kv_heads, tokens, head_dim), like=q, dtypes=(q.dtype,), why=", as q but for heads"
    )
    check_tensor("cos", cos, shape=(tokens, head_dim), like=q)
    check_tensor("sin", sin, shape=(tokens, head_dim), like=q, dtypes=(cos.dtype,))
    check_no_grad("rope", q=q, k=k)
    q_out, k_out = (torch.empty(batch, tokens, n, head_dim, dtype=q.dtype, device=q.device) for n in (heads, kv_heads))
    if q_out.numel():
        rope_kernel[(batch * tokens,)](
            q, k, cos.contiguous(), sin.contiguous(), q_out, k_out, q.stride(), k.stride(), tokens, heads, kv_heads,
            HEADS=next_power_of_2(heads), KV_HEADS=next_power_of_2(kv_heads), HALF=head_dim // 2,
            BLOCK=next_power_of_2(head_dim // 2), num_warps=NUM_WARPS,
        )  # fmt: skip
    return q_out.transpose(1, 2), k_out.transpose(1, 2)


def rope_ops(batch: int, tokens: int, heads: int, kv_heads: int, head_dim: int, dtype: torch.dtype):
    """{op: Traffic} of `rope_reference`, unfused: ten kernels. cos and sin are counted once per op."""
    ops = {}
    for name, count in (("q", heads), ("k", kv_heads)):
        size, table = batch * count * tokens * head_dim, tokens * head_dim * dtype.itemsize
        full = size * dtype.itemsize
        ops |= {
            f"- half of {name}": Traffic({name: full // 2}, {"minus": full // 2}, size // 2, launches=1),
            f"cat of {name}": Traffic({"minus": full // 2, name: full // 2}, {"rotated": full}, 0, launches=1),
            f"{name} * cos": Traffic({name: full, "cos": table}, {"left": full}, size, launches=1),
            f"rotated {name} * sin": Traffic({"rotated": full, "sin": table}, {"right": full}, size, launches=1),
            f"sum of {name}": Traffic({"left": full, "right": full}, {f"{name} out": full}, size, launches=1),
        }
    return ops


def rope_traffic(
    batch: int, tokens: int, heads: int, kv_heads: int, head_dim: int, dtype: torch.dtype, path: str = "fused"
) -> Traffic:
    """The traffic of RoPE for q and k. path: 'fused', or 'naive' (ten unfused ops)."""
    check_path(path)
    if path == "naive":
        return sum(rope_ops(batch, tokens, heads, kv_heads, head_dim, dtype).values())
    q, k = (batch * count * tokens * head_dim * dtype.itemsize for count in (heads, kv_heads))
    table = tokens * head_dim * dtype.itemsize
    flops = 6 * batch * (heads + kv_heads) * tokens * head_dim // 2
    return Traffic({"q": q, "k": k, "cos": table, "sin": table}, {"q out": q, "k out": k}, flops, launches=1)
