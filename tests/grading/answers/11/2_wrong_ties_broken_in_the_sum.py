# wrong, values: without changing the sums
import torch
from instruments.backend import tl, triton


@triton.jit
def route_kernel(
    x_ptr,
    router_ptr,
    bias_ptr,
    experts_ptr,
    gates_ptr,
    tokens,
    hidden,
    num_experts,
    x_row_stride,
    scale,
    TOP_K: tl.constexpr,
    BLOCK_T: tl.constexpr,
    BLOCK_E: tl.constexpr,
    BLOCK_H: tl.constexpr,
):
    token = tl.program_id(0) * BLOCK_T + tl.arange(0, BLOCK_T)
    expert = tl.arange(0, BLOCK_E)
    inside, real = token < tokens, expert < num_experts
    logits = tl.zeros([BLOCK_T, BLOCK_E], tl.float32)
    for start in range(0, hidden, BLOCK_H):
        h = start + tl.arange(0, BLOCK_H)
        x = tl.load(
            x_ptr + token.to(tl.int64)[:, None] * x_row_stride + h[None, :],
            mask=inside[:, None] & (h < hidden)[None, :],
            other=0.0,
        )  # [BLOCK_T, BLOCK_H]
        weight = tl.load(
            router_ptr + expert[None, :] * hidden + h[:, None], mask=real[None, :] & (h < hidden)[:, None], other=0.0
        )  # [BLOCK_H, BLOCK_E]
        logits = tl.dot(x, weight, acc=logits)

    scores = tl.sigmoid(logits)
    bias = tl.load(bias_ptr + expert, mask=real, other=float("-inf"))  # padding is never chosen
    choice = scores + bias[None, :] - 1e-7 * expert[None, :]
    place = tl.arange(0, 8)  # of up to 8 choices
    kept = tl.zeros([BLOCK_T, 8], tl.float32)
    for k in tl.static_range(TOP_K):
        best = tl.argmax(choice, axis=1, tie_break_left=True)  # [BLOCK_T]
        taken = expert[None, :] == best[:, None]
        gate = tl.sum(tl.where(taken, scores, 0.0), axis=1)
        kept = tl.where((place == k)[None, :], gate[:, None], kept)
        choice = tl.where(taken, float("-inf"), choice)
        tl.store(experts_ptr + token * TOP_K + k, best, mask=inside)
    gates = scale * kept / tl.sum(kept, axis=1)[:, None]
    tl.store(
        gates_ptr + token[:, None] * TOP_K + place[None, :], gates, mask=inside[:, None] & (place < TOP_K)[None, :]
    )


def route(x, router, bias, top_k, scale):
    tokens, hidden = x.shape
    experts = torch.empty(tokens, top_k, dtype=torch.int32, device=x.device)
    gates = torch.empty(tokens, top_k, dtype=torch.float32, device=x.device)
    BLOCK_T, BLOCK_E = 16, max(16, triton.next_power_of_2(len(router)))
    route_kernel[(triton.cdiv(tokens, BLOCK_T),)](
        x,
        router,
        bias,
        experts,
        gates,
        tokens,
        hidden,
        len(router),
        x.stride(0),
        scale,
        TOP_K=top_k,
        BLOCK_T=BLOCK_T,
        BLOCK_E=BLOCK_E,
        BLOCK_H=64,
    )
    return experts, gates
